/* Writing JSON answers member by member. A comma is put wherever something stands before; large values go in as they are. */
#ifndef FB_JSON_MEMBERS_H
#define FB_JSON_MEMBERS_H

#include <jansson.h>

#include "core/base/buffer.h"

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
