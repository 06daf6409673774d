/* An upload, as the files that implement it see it. */
#ifndef FB_STORE_UPLOADS_H
#define FB_STORE_UPLOADS_H

#include "server/store/internal.h"

/* Its bytes are in the file uploads/<id>. While it is open, only its opener touches it and its file. */
struct fb_upload {
    fb_store *store;
    fb_upload *next; /* in its bucket */
    char id[FB_UPLOAD_ID_LENGTH + 1];
    bool is_kept, is_open;
    bool is_changed;  /* since it was opened */
    bool is_whole;    /* an earlier finish was interrupted: its file may be a blob's already, and is not written to */
    bool is_finished; /* it has become a blob, and its file is gone */
    int file;         /* while it is open */
    uint64_t size;
    int64_t changed; /* when */
    int64_t created; /* of the blob, once it is one */
    fb_sha256 *hash; /* of its bytes; NULL: it is to be computed from the file */
};

#endif
