/* Archives above 4 GiB: read and written with the fields of ZIP64. The files have a hole of 5 GiB, which takes neither disk nor
 * time, because nothing reads it. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/archive/archive.h"
#include "core/graph/write.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

#define BLOB "sha256:00000000000000000000000000000000000000000000000000000000000000aa"
#define HOLE ((uint64_t)5 << 30)
#define EDGE ((uint64_t)1 << 20) /* what is not hole lies in so many bytes at the beginning and at the end */

typedef struct sparse {
    FILE *file;
    const unsigned char *bytes;
    uint64_t size;
} sparse;

static void write_at(FILE *file, uint64_t at, const void *bytes, size_t size) {
    ck_assert_int_eq(pwrite(fileno(file), bytes, size, (off_t)at), (ssize_t)size);
}

static void map(sparse *s, uint64_t size) {
    s->size = size;
    ck_assert_int_eq(ftruncate(fileno(s->file), (off_t)size), 0);
    void *bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, fileno(s->file), 0);
    ck_assert(bytes != MAP_FAILED);
    s->bytes = bytes;
}

static void sparse_free(sparse *s) {
    munmap((void *)(uintptr_t)s->bytes, s->size);
    fclose(s->file);
}

static void put(fb_buffer *out, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++, number >>= 8) fb_buffer_char(out, (char)(number & 0xff));
}

static uint64_t number_at(const char *bytes, int size) {
    uint64_t made = 0;
    for (int i = size; i-- > 0;) made = made << 8 | (unsigned char)bytes[i];
    return made;
}

/* The fixture with one entry more, before its directory: the hole. It is not compressed. */
static void make_large(const char *fixture, const char *name, sparse *out) {
    size_t size;
    char *bytes = read_fixture("archives", fixture, &size);
    const char *end = bytes + size - 22;
    uint64_t count = number_at(end + 10, 2), length = number_at(end + 12, 4), start = number_at(end + 16, 4);
    fb_buffer local = {0}, tail = {0};
    fb_buffer_append(&local, bytes, start);
    for (int i = 0; i < 2; i++) {
        fb_buffer *to = i ? &tail : &local;
        if (i) fb_buffer_append(to, bytes + start, length);
        fb_buffer_append(to, i ? "PK\1\2\55\0\55\0\0\0\0\0" : "PK\3\4\55\0\0\0\0\0", i ? 12 : 10);
        put(to, 0, 4);
        put(to, 0, 4); /* the CRC, which opening does not look at */
        put(to, UINT32_MAX, 4);
        put(to, UINT32_MAX, 4);
        put(to, strlen(name), 2);
        put(to, 20, 2);
        if (i) put(to, 0, 10);
        if (i) put(to, start, 4);
        fb_buffer_string(to, name);
        put(to, 1, 2);
        put(to, 16, 2);
        put(to, HOLE, 8);
        put(to, HOLE, 8);
    }
    uint64_t directory = local.size + HOLE, listed = tail.size;
    fb_buffer_append(&tail, "PK\6\6\54\0\0\0\0\0\0\0\55\0\55\0\0\0\0\0\0\0\0\0", 24);
    put(&tail, count + 1, 8);
    put(&tail, count + 1, 8);
    put(&tail, listed, 8);
    put(&tail, directory, 8);
    fb_buffer_append(&tail, "PK\6\7\0\0\0\0", 8);
    put(&tail, directory + listed, 8);
    put(&tail, 1, 4);
    fb_buffer_append(&tail, "PK\5\6\0\0\0\0", 8);
    put(&tail, UINT16_MAX, 2);
    put(&tail, UINT16_MAX, 2);
    put(&tail, UINT32_MAX, 4);
    put(&tail, UINT32_MAX, 4);
    put(&tail, 0, 2);
    out->file = tmpfile();
    ck_assert(out->file && local.size < EDGE && tail.size < EDGE);
    write_at(out->file, 0, local.data, local.size);
    write_at(out->file, directory, tail.data, tail.size);
    map(out, directory + tail.size);
    fb_buffer_free(&local);
    fb_buffer_free(&tail);
    free(bytes);
}

/* The document, with one operator in the place of another. */
static fb_graph *changed_graph(const fb_archive *archive, const char *was, const char *is) {
    fb_buffer text = {0}, changed = {0};
    fb_error error = {0};
    fb_work work = {0};
    fb_status status = fb_archive_document(archive, NULL, BLOB, &work, &text, &error);
    ck_assert_msg(status == FB_OK, "%s", error.message);
    const char *at = strstr(fb_buffer_text(&text), was);
    ck_assert_ptr_nonnull(at);
    fb_buffer_append(&changed, text.data, (size_t)(at - text.data));
    fb_buffer_string(&changed, is);
    fb_buffer_string(&changed, at + strlen(was));
    fb_graph *graph = graph_of(changed.data, changed.size);
    fb_buffer_free(&text);
    fb_buffer_free(&changed);
    return graph;
}

/* Everything but the hole. */
static void write_out(fb_archive_file *file, sparse *out) {
    uint64_t size = fb_archive_file_size(file);
    char *block = malloc(EDGE);
    fb_error error = {0};
    out->file = tmpfile();
    ck_assert(out->file && block && size > HOLE);
    for (int i = 0; i < 2; i++) {
        uint64_t at = i ? size - EDGE : 0;
        ck_assert_msg(fb_archive_file_read(file, at, block, EDGE, &error) == FB_OK, "%s", error.message);
        write_at(out->file, at, block, EDGE);
    }
    free(block);
    map(out, size);
}

START_TEST(test_above_4_gib) {
    sparse given = {0}, made = {0};
    fb_archive archive, again;
    fb_archive_file *file = NULL;
    fb_error error = {0};
    fb_work work = {0};
    make_large("mlp.pt2", "mlp/extra/zeros", &given);
    ck_assert_msg(fb_archive_open(given.bytes, given.size, NULL, &(fb_work){0}, &archive, &error) == FB_OK, "%s",
                  error.message);
    ck_assert_uint_eq(fb_archive_find(&archive, "extra/zeros")->size, HOLE);
    fb_graph *graph = changed_graph(&archive, "torch.ops.aten.gelu.default", "torch.ops.aten.silu.default");
    fb_status status = fb_archive_file_new(&archive, NULL, BLOB, graph, NULL, NULL, &work, &file, &error);
    ck_assert_msg(status == FB_OK, "%s", error.message);
    write_out(file, &made);
    ck_assert_msg(fb_archive_open(made.bytes, made.size, NULL, &(fb_work){0}, &again, &error) == FB_OK, "%s", error.message);
    ck_assert_uint_eq(again.zip.count, archive.zip.count + 1);
    ck_assert_ptr_nonnull(fb_archive_find(&again, FB_ARCHIVE_GRAPH_ENTRY));
    const fb_zip_entry *zeros = fb_archive_find(&again, "extra/zeros"), *model = fb_archive_find(&again, "models/model.json");
    ck_assert_uint_eq(zeros->size, HOLE);
    ck_assert(zeros->offset % 64 == 0 && model->offset % 64 == 0 && model->offset > UINT32_MAX);
    fb_graph *read = changed_graph(&again, "torch.ops.aten.silu.default", "torch.ops.aten.silu.default");
    char ours[FB_ID_LENGTH + 1], its[FB_ID_LENGTH + 1];
    ck_assert(fb_document_structure(graph, ours) && fb_document_structure(read, its));
    ck_assert_str_eq(ours, its);
    fb_graph_free(read);
    fb_graph_free(graph);
    fb_archive_file_free(file);
    fb_archive_close(&again);
    fb_archive_close(&archive);
    sparse_free(&made);
    sparse_free(&given);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("large archives");
    tcase_add_test(tests, test_above_4_gib);
    return run_tests("archive_large", tests);
}
