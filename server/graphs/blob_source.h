/* The store's blobs, as core sees them. */
#ifndef FB_GRAPHS_BLOB_SOURCE_H
#define FB_GRAPHS_BLOB_SOURCE_H

#include "core/weights/blobs.h"
#include "server/store/blobs.h"

/* Valid as long as the store is open. */
fb_blobs fb_blob_source(fb_store *store);

#endif
