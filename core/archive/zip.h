/* The container of an archive: a zip file in memory (or mapped), read from its central directory.
 *
 * PyTorch stores entries without compression, so each is a range of bytes of the file. Deflated entries and ZIP64 are read as
 * well. What no writer makes and an attacker would is refused by the entry's name: names that are twice there, that
 * leave the folder or are absolute, entries that overlap or lie beyond the file, sizes that the file cannot hold, encryption,
 * several disks. */
#ifndef FB_ARCHIVE_ZIP_H
#define FB_ARCHIVE_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/work.h"

typedef struct fb_zip_entry {
    const char *name;
    uint64_t offset; /* of the entry's bytes in the file */
    uint64_t stored; /* bytes that it takes there */
    uint64_t size;   /* bytes of the content; the same as stored unless it is deflated */
    uint64_t header; /* offset of its local header */
    uint32_t crc;
    bool is_deflated;
} fb_zip_entry;

typedef struct fb_zip {
    const unsigned char *bytes; /* borrowed */
    uint64_t size;
    fb_zip_entry *entries; /* sorted by name; folders are left out */
    size_t count;
    fb_arena names;
} fb_zip;

/* Does the file begin as a zip file does? */
bool fb_is_zip(const void *bytes, uint64_t size);

/* Reads the directory and the headers of the entries; contents are not looked at. Asks the watch once in so many bytes of the
 * file: it may give back the pages of a mapped one. The caller frees with fb_zip_close, also after a failure, which is
 * FB_INVALID ("bad-archive"), FB_NO_MEMORY or the watch's. */
fb_status fb_zip_open(const void *bytes, uint64_t size, fb_work *work, fb_zip *zip, fb_error *error);
void fb_zip_close(fb_zip *zip);

/* Checks that the content has the size and the CRC that the directory gives. */
fb_status fb_zip_check(const fb_zip *zip, const fb_zip_entry *entry, fb_work *work, fb_error *error);
/* The content, of at most `limit` bytes, with a NUL behind it; to be freed. The CRC is checked. */
fb_status fb_zip_read(const fb_zip *zip, const fb_zip_entry *entry, uint64_t limit, fb_work *work, char **out, fb_error *error);

#endif
