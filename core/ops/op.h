/* The operator table: what a spelling means. One row of ops.def is one fact sheet; this header is the question desk for
 * everything that needs only the name (not a graph). Views that look at a node's arguments are in view.h. */
#ifndef FB_OPS_OP_H
#define FB_OPS_OP_H

#include <stddef.h>
#include <stdint.h>

typedef uint16_t fb_op; /* FB_OP_… from ops.def; 0 = FB_OP_UNKNOWN */

/* Meaning of a call_function target ("torch.nn.functional.linear"), of a method name ("view") and of a module's type
 * ("torch.nn.Linear"); FB_OP_UNKNOWN when no row has that spelling. */
fb_op fb_op_of_function(const char *target, size_t length);
fb_op fb_op_of_method(const char *name, size_t length);
fb_op fb_op_of_module(const char *type, size_t length);

#endif
