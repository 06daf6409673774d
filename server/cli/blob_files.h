/* Files that are, or are to become, blobs of the store. */
#ifndef FB_CLI_BLOB_FILES_H
#define FB_CLI_BLOB_FILES_H

#include "core/base/sha256.h"
#include "server/cli/cli.h"

/* Opens a file to be sent; the caller closes it. */
int fb_sent_file_open(const char *path, fb_sent_file *out);

typedef struct fb_blob_file {
    char *path; /* owned; NULL: it was given as a digest */
    char digest[FB_ID_LENGTH + 1];
    uint64_t size; /* of a path */
    bool is_missing;
} fb_blob_file;

typedef struct fb_blob_files {
    fb_blob_file *items;
    size_t count, capacity;
} fb_blob_files;

/* Reads words of a command line, each a path or the digest of a blob, perhaps a short one, and adds up the files. The shards
 * that a model.safetensors.index.json names come along with it. fb_blob_files_free is due in either case. */
int fb_blob_files_read(fb_cli *cli, const char *const *words, size_t count, fb_blob_files *out);
void fb_blob_files_free(fb_blob_files *files);

/* Asks which of them the store lacks. */
int fb_blob_files_ask(fb_cli *cli, fb_blob_files *files);
/* The same, and sends those; of a digest that is missing there is nothing to send. */
int fb_blob_files_send(fb_cli *cli, fb_blob_files *files);

#endif
