/* JSON texts as trees of jansson's and back, also when memory is short. */
#ifndef FB_JSON_LOAD_JSON_H
#define FB_JSON_LOAD_JSON_H

#include <jansson.h>

#include "core/base/error.h"

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
