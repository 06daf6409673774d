/* Parameters of a call of a pass, which fit its schema. */
#ifndef FB_PASSES_PARAMETER_H
#define FB_PASSES_PARAMETER_H

#include <jansson.h>
#include <stdbool.h>

/* False when it is not given. */
static inline bool fb_parameter_flag(const json_t *params, const char *name) {
    return json_is_true(json_object_get(params, name));
}

#endif
