/* JSON outside of documents, in the canonical form that documents have. */
#ifndef FB_JSON_JSON_H
#define FB_JSON_JSON_H

#include <jansson.h>

#include "core/base/buffer.h"

/* Appends free JSON in canonical form: members sorted by their bytes, floats as Python's repr, ints bare. FB_NO_MEMORY, or
 * FB_SYNTAX for what a document could not hold (\u0000). */
fb_status fb_free_json_canonical(const json_t *value, fb_buffer *out);

#endif
