#include "core/archive/archive.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/base/sort.h"
#include "core/json/scan.h"

#define END_SIZE 22 /* of the end record, without its comment */
#define END64_SIZE 56
#define LOCATOR_SIZE 20
#define CENTRAL_SIZE 46
#define LOCAL_SIZE 30
#define ZIP64_EXTRA 1
#define IS_ENCRYPTED (1 | 1 << 6 | 1 << 13)
#define STORED 0
#define DEFLATED 8
#define PART ((uint64_t)1 << 20) /* bytes that are read at once */
#define BYTES_OF_A_STEP 256      /* of the file; so the watch is asked once in 16 MiB */

/* ---- numbers ------------------------------------------------------------------------------------------------------------ */

static uint64_t number(const unsigned char *at, size_t size) {
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | at[i];
    return value;
}
static uint32_t two(const unsigned char *at) {
    return (uint32_t)number(at, 2);
}
static uint32_t four(const unsigned char *at) {
    return (uint32_t)number(at, 4);
}

static bool is_signature(const unsigned char *at, const char *signature) {
    return memcmp(at, signature, 4) == 0;
}

/* Are `size` bytes from `offset` on within the first `limit`? */
static bool is_within(uint64_t offset, uint64_t size, uint64_t limit) {
    return offset <= limit && size <= limit - offset;
}

static fb_status bad(fb_error *error, const char *message) {
    return fb_fail(error, FB_INVALID, "bad-archive", "", "the zip archive %s", message);
}

static fb_status bad_entry(fb_error *error, const char *name, const char *message) {
    char shown[200];
    fb_copy_text(shown, sizeof shown, name);
    return fb_fail(error, FB_INVALID, "bad-archive", "", "the entry \"%s\" of the zip archive %s", shown, message);
}

bool fb_is_zip(const void *bytes, uint64_t size) {
    return size >= 4 && (memcmp(bytes, "PK\3\4", 4) == 0 || memcmp(bytes, "PK\5\6", 4) == 0);
}

/* ---- the directory ------------------------------------------------------------------------------------------------------ */

typedef struct directory {
    uint64_t offset, size, count;
    uint64_t limit; /* where the records of the end begin: everything else is before */
} directory;

/* The end record, which may have a comment behind it: the last one whose comment ends with the file. */
static const unsigned char *find_end(const fb_zip *zip) {
    uint64_t lowest = zip->size > END_SIZE + PT_MOST_COMMENT ? zip->size - END_SIZE - PT_MOST_COMMENT : 0;
    if (zip->size < END_SIZE) return NULL;
    for (uint64_t at = zip->size - END_SIZE + 1; at-- > lowest;) {
        const unsigned char *end = zip->bytes + at;
        if (is_signature(end, "PK\5\6") && at + END_SIZE + two(end + 20) == zip->size) return end;
    }
    return NULL;
}

static fb_status find_directory(const fb_zip *zip, directory *found, fb_error *error) {
    const unsigned char *end = find_end(zip);
    if (!end) return bad(error, "has no directory at its end: it was cut off, or is not one");
    uint64_t at = (uint64_t)(end - zip->bytes);
    *found = (directory){four(end + 16), four(end + 12), two(end + 10), at};
    bool has_64 = at >= LOCATOR_SIZE && is_signature(end - LOCATOR_SIZE, "PK\6\7");
    if (has_64) {
        uint64_t end64 = number(end - LOCATOR_SIZE + 8, 8);
        if (!is_within(end64, END64_SIZE, at - LOCATOR_SIZE)) return bad(error, "has a ZIP64 record beyond its end");
        const unsigned char *record = zip->bytes + end64;
        if (!is_signature(record, "PK\6\6")) return bad(error, "has no ZIP64 record where its locator says");
        if (four(record + 16) || four(record + 20)) return bad(error, "is a part of several");
        *found = (directory){number(record + 48, 8), number(record + 40, 8), number(record + 32, 8), end64};
    } else if (two(end + 4) || two(end + 6)) {
        return bad(error, "is a part of several");
    }
    if (found->count > PT_MOST_ENTRIES) return bad(error, "has more than 100,000 entries");
    if (!is_within(found->offset, found->size, found->limit)) return bad(error, "has a directory beyond its end");
    return FB_OK;
}

/* Reads ZIP64's extra field: the numbers that 32 bits cannot hold, in this order, and only as many as are needed. */
static bool read_64(const unsigned char *extra, size_t length, uint64_t *values[3]) {
    while (length >= 4) {
        size_t size = two(extra + 2);
        if (size > length - 4) return false;
        if (two(extra) == ZIP64_EXTRA) {
            const unsigned char *at = extra + 4, *end = at + size;
            for (int i = 0; i < 3; i++) {
                if (*values[i] != UINT32_MAX) continue;
                if (end - at < 8) return false;
                *values[i] = number(at, 8);
                at += 8;
            }
            return true;
        }
        extra += 4 + size;
        length -= 4 + size;
    }
    return true;
}

static bool is_utf8(const char *text, size_t length) {
    const unsigned char *at = (const unsigned char *)text, *end = at + length;
    for (size_t size; at < end; at += size) {
        size = fb_utf8_length(at, end);
        if (!size) return false;
    }
    return true;
}

/* The fault of an entry's name, or NULL. */
static const char *wrong_name(const char *name, size_t length) {
    if (length == 0) return "has no name";
    if (strlen(name) != length) return "has a NUL character in its name";
    if (name[0] == '/' || (length > 1 && name[1] == ':')) return "has an absolute name";
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)name[i] < ' ' || name[i] == '\\') return "has a character in its name that names of files lack";
    }
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        size_t size = strcspn(part, "/");
        if (size == 2 && strncmp(part, "..", 2) == 0) return "has a name that leaves its folder";
    }
    return is_utf8(name, length) ? NULL : "has a name that is not UTF-8";
}

/* Where the bytes are: behind the local header, whose name and extra field have lengths of their own. */
static fb_status read_local(const fb_zip *zip, uint64_t limit, fb_zip_entry *entry, fb_error *error) {
    if (!is_within(entry->header, LOCAL_SIZE, limit)) return bad_entry(error, entry->name, "lies beyond its end");
    const unsigned char *local = zip->bytes + entry->header;
    size_t name = two(local + 26), extra = two(local + 28);
    if (!is_signature(local, "PK\3\4")) return bad_entry(error, entry->name, "is not where the directory says");
    entry->offset = entry->header + LOCAL_SIZE + name + extra;
    if (!is_within(entry->offset, entry->stored, limit)) return bad_entry(error, entry->name, "lies beyond its end");
    if (name != strlen(entry->name) || memcmp(local + LOCAL_SIZE, entry->name, name) != 0)
        return bad_entry(error, entry->name, "has another name in its own header");
    if (two(local + 8) != (entry->is_deflated ? DEFLATED : STORED))
        return bad_entry(error, entry->name, "has another compression in its own header");
    return FB_OK;
}

/* Reads the entry at `at` of the directory, and steps over it. */
static fb_status read_entry(fb_zip *zip, const directory *where, uint64_t *at, size_t *names, fb_error *error) {
    uint64_t end = where->offset + where->size;
    if (!is_within(*at, CENTRAL_SIZE, end)) return bad(error, "has a directory that ends within an entry");
    const unsigned char *row = zip->bytes + *at;
    size_t length = two(row + 28), extra = two(row + 30), comment = two(row + 32);
    if (!is_signature(row, "PK\1\2")) return bad(error, "has a directory with something else than entries");
    if (!is_within(*at, CENTRAL_SIZE + length + extra + comment, end))
        return bad(error, "has a directory that ends within an entry");
    *at += CENTRAL_SIZE + length + extra + comment;
    if ((*names += length) > PT_MOST_NAME_BYTES) return bad(error, "has more than 1 MiB of names");
    const char *name = fb_arena_text(&zip->names, (const char *)row + CENTRAL_SIZE, length);
    if (!name) return fb_fail_memory(error);
    const char *wrong = wrong_name(name, length);
    if (wrong) return bad_entry(error, name, wrong);
    uint32_t method = two(row + 10);
    fb_zip_entry entry = {.name = name, .crc = four(row + 16), .is_deflated = method == DEFLATED};
    entry.stored = four(row + 20);
    entry.size = four(row + 24);
    entry.header = four(row + 42);
    if (!read_64(row + CENTRAL_SIZE + length, extra, (uint64_t *[]){&entry.size, &entry.stored, &entry.header}))
        return bad_entry(error, name, "has an extra field that ends too early");
    if (two(row + 8) & IS_ENCRYPTED) return bad_entry(error, name, "is encrypted");
    if (method != STORED && method != DEFLATED) return bad_entry(error, name, "is compressed in a way that is not supported");
    if (method == STORED && entry.stored != entry.size) return bad_entry(error, name, "has two sizes, but is not compressed");
    if (method == DEFLATED && entry.size / PT_MOST_INFLATION > entry.stored)
        return bad_entry(error, name, "promises more than its bytes can hold");
    fb_status status = read_local(zip, where->offset, &entry, error);
    if (!status && (name[length - 1] != '/' || entry.size)) zip->entries[zip->count++] = entry;
    return status;
}

static int by_offset(const void *a, const void *b) {
    const fb_zip_entry *x = a, *y = b;
    return x->header < y->header ? -1 : x->header > y->header;
}
static int by_name(const void *a, const void *b) {
    return strcmp(((const fb_zip_entry *)a)->name, ((const fb_zip_entry *)b)->name);
}

static fb_status check_entries(fb_zip *zip, fb_error *error) {
    if (!zip->count) return FB_OK;
    fb_sort(zip->entries, zip->count, sizeof *zip->entries, by_offset);
    for (size_t i = 1; i < zip->count; i++) {
        const fb_zip_entry *before = &zip->entries[i - 1];
        if (before->offset + before->stored > zip->entries[i].header)
            return bad_entry(error, zip->entries[i].name, "overlaps another one");
    }
    fb_sort(zip->entries, zip->count, sizeof *zip->entries, by_name);
    for (size_t i = 1; i < zip->count; i++) {
        if (by_name(&zip->entries[i - 1], &zip->entries[i]) == 0)
            return bad_entry(error, zip->entries[i].name, "is there twice");
    }
    return FB_OK;
}

/* One touch of a header may map all of a large folio of the page cache. */
static bool goes_on(fb_work *work, uint64_t from, uint64_t to) {
    return fb_work_goes_on(work, (int64_t)((from < to ? to - from : from - to) / BYTES_OF_A_STEP) + 1);
}

fb_status fb_zip_open(const void *bytes, uint64_t size, fb_work *work, fb_zip *zip, fb_error *error) {
    *zip = (fb_zip){.bytes = bytes, .size = size};
    directory where = {0};
    fb_status status = find_directory(zip, &where, error);
    if (status) return status;
    zip->entries = calloc(where.count ? where.count : 1, sizeof *zip->entries);
    if (!zip->entries) return fb_fail_memory(error);
    uint64_t at = where.offset, before = where.offset;
    size_t names = 0;
    for (uint64_t i = 0; i < where.count && !status; i++) {
        status = read_entry(zip, &where, &at, &names, error);
        if (status || !zip->count) continue;
        uint64_t header = zip->entries[zip->count - 1].header;
        if (!goes_on(work, before, header)) status = fb_work_status(work, error);
        before = header;
    }
    return status ? status : check_entries(zip, error);
}

void fb_zip_close(fb_zip *zip) {
    free(zip->entries);
    fb_arena_free(&zip->names);
    *zip = (fb_zip){0};
}

/* ---- contents ----------------------------------------------------------------------------------------------------------- */

static uint32_t checksum(const unsigned char *bytes, uint64_t size, uint32_t crc) {
    return (uint32_t)crc32_z(crc, bytes, size);
}

static fb_status check_stored(const fb_zip *zip, const fb_zip_entry *entry, fb_work *work, fb_error *error) {
    uint32_t crc = 0;
    for (uint64_t at = 0; at < entry->size; at += PART) {
        if (!fb_work_goes_on(work, PART / BYTES_OF_A_STEP)) return fb_work_status(work, error);
        uint64_t size = entry->size - at < PART ? entry->size - at : PART;
        crc = checksum(zip->bytes + entry->offset + at, size, crc);
    }
    return crc == entry->crc ? FB_OK : bad_entry(error, entry->name, "is damaged: its bytes have another CRC");
}

/* Inflates into `out`, which has room for the content, or, if it is NULL, only looks whether that goes well. */
static fb_status inflate_entry(const fb_zip *zip, const fb_zip_entry *entry, unsigned char *out, fb_work *work,
                               fb_error *error) {
    unsigned char *scratch = out ? NULL : malloc(PART);
    z_stream stream = {0};
    if ((!out && !scratch) || inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
        free(scratch);
        return fb_fail_memory(error);
    }
    uint64_t read = 0, made = 0;
    uint32_t crc = 0;
    int state = Z_OK;
    while (state == Z_OK && fb_work_goes_on(work, FB_WORK_UNASKED / 4)) {
        uint64_t left = entry->stored - read, room = out ? entry->size - made : PART;
        unsigned char none[1] = {0}, *to = out ? out + made : scratch;
        if (out && !room) to = none, room = 1; /* the end of the stream may be still to come */
        stream.next_in = (unsigned char *)(uintptr_t)(zip->bytes + entry->offset + read);
        stream.avail_in = (uInt)(left < PART ? left : PART);
        stream.next_out = to;
        stream.avail_out = (uInt)(room < PART ? room : PART);
        uInt given = stream.avail_in, free_before = stream.avail_out;
        state = inflate(&stream, Z_NO_FLUSH);
        uint64_t more = free_before - stream.avail_out;
        read += given - stream.avail_in;
        crc = checksum(to, more, crc);
        made += more;
        if (made > entry->size || (state == Z_BUF_ERROR && !left)) break;
    }
    inflateEnd(&stream);
    free(scratch);
    fb_status status = fb_work_status(work, error);
    if (status) return status;
    if (state == Z_MEM_ERROR) return fb_fail_memory(error);
    if (state != Z_STREAM_END || made != entry->size) return bad_entry(error, entry->name, "is damaged: it cannot be inflated");
    return crc == entry->crc ? FB_OK : bad_entry(error, entry->name, "is damaged: its bytes have another CRC");
}

fb_status fb_zip_check(const fb_zip *zip, const fb_zip_entry *entry, fb_work *work, fb_error *error) {
    return entry->is_deflated ? inflate_entry(zip, entry, NULL, work, error) : check_stored(zip, entry, work, error);
}

fb_status fb_zip_read(const fb_zip *zip, const fb_zip_entry *entry, uint64_t limit, fb_work *work, char **out,
                      fb_error *error) {
    if (entry->size > limit) return bad_entry(error, entry->name, "is larger than what is read of its kind");
    char *bytes = malloc(entry->size + 1);
    if (!bytes) return fb_fail_memory(error);
    fb_status status = entry->is_deflated ? inflate_entry(zip, entry, (unsigned char *)bytes, work, error)
                                          : check_stored(zip, entry, work, error);
    if (status) {
        free(bytes);
        return status;
    }
    if (!entry->is_deflated) memcpy(bytes, zip->bytes + entry->offset, entry->size);
    bytes[entry->size] = '\0';
    *out = bytes;
    return FB_OK;
}
