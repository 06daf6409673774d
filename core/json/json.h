/* JSON outside of documents, in the canonical form that documents have. */
#ifndef FB_JSON_JSON_H
#define FB_JSON_JSON_H

#include <jansson.h>

#include "core/base/buffer.h"
#include "core/base/error.h"

/* Appends free JSON in canonical form: members sorted by their bytes, floats as Python's repr, ints bare. FB_NO_MEMORY, or
 * FB_SYNTAX for what a document could not hold (\u0000). */
fb_status fb_free_json_canonical(const json_t *value, fb_buffer *out);

/* ---- JSON texts as trees of jansson's and back, also when memory is short. ---------------------------------------------- */

/* When memory is short for a moment only, jansson leaves characters out of strings and says nothing, or fails and does not say
 * why; so the text is read twice, and is what both times agree on. NULL: `failure` says what is wrong with the text; when its
 * `text` is empty, memory is out. */
json_t *fb_load_json_bytes(const char *text, size_t size, size_t flags, json_error_t *failure);

/* One of our own texts (schemas, parameters, reports), which is JSON: NULL when memory is out. */
json_t *fb_load_json(const char *text);
/* One that was stored: FB_SYNTAX when it is not JSON. `out` is NULL on failure. */
fb_status fb_load_stored_json(const char *text, json_t **out);

/* json_dumps, which would leave characters out in the same way: NULL when memory is out. The caller frees. */
char *fb_dump_json(const json_t *value, size_t flags);

#endif
