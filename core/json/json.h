/* JSON outside of documents: in the canonical form that documents have, as trees, and as answers that are written. */
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

/* ---- writing answers member by member: members.c ------------------------------------------------------------------------- */

/* A comma is put wherever something comes before; large values go in as they are. */

/* The comma before an array's next item (or an object's next member), if one is needed. */
void fb_put_comma(fb_buffer *out);
/* `"name":`, for a value that the caller appends. */
void fb_put_name(fb_buffer *out, const char *name);
void fb_put_text(fb_buffer *out, const char *name, const char *text);
/* NULL is null. */
void fb_put_text_or_null(fb_buffer *out, const char *name, const char *text);
void fb_put_int(fb_buffer *out, const char *name, int64_t value);
void fb_put_bool(fb_buffer *out, const char *name, bool value);
/* A tree of jansson's, and one as a member. */
void fb_write_json(fb_buffer *out, const json_t *value);
void fb_put_json(fb_buffer *out, const char *name, const json_t *value);
/* Appends to a list, which becomes NULL when memory is out: then what is answered with it fails as well. Steals `item`. */
void fb_list_add_take(json_t **list, json_t *item);
/* Milliseconds since 1970 as "2026-01-31T23:59:59.123Z". */
void fb_put_time(fb_buffer *out, const char *name, int64_t milliseconds);

#endif
