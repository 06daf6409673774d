/* Our own JSON texts (schemas, parameters) as trees. */
#ifndef FB_BASE_LOAD_JSON_H
#define FB_BASE_LOAD_JSON_H

#include <jansson.h>

/* NULL when memory is out. When it is short for a moment only, jansson leaves characters out of strings and says nothing; so
 * the text is read twice, and is what both times agree on. */
json_t *fb_load_json(const char *text);

#endif
