/* What a client gives as a pass's parameters, held against the pass's schema. */
#ifndef FB_COMPOSE_PARAMS_H
#define FB_COMPOSE_PARAMS_H

#include "core/passes/pass.h"

/* `pointer` says where the parameters stand, and where the fault is after a failure. FB_INVALID: unknown-parameter,
 * missing-parameter, wrong-type, bad-parameter. Of JSON Schema passes may use `properties`, `required`, and of one value
 * `type`, `enum`, `minimum`, `maximum`, `exclusiveMinimum`, `minItems` and `items`. */
fb_status fb_params_check(const fb_pass *pass, const json_t *params, fb_buffer *pointer, fb_error *error);

#endif
