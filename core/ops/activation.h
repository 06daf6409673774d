/* Activations that can stand for one another: functions of one tensor, element by element (the rows of ops.def with HOMES). */
#ifndef FB_OPS_ACTIVATION_H
#define FB_OPS_ACTIVATION_H

#include "core/base/buffer.h"
#include "core/ops/view.h"

/* By any of its names; FB_OP_UNKNOWN when no activation is called so. */
fb_op fb_activation_find(const char *name);
/* Has it a parameter of that name, besides its input and `inplace`? */
bool fb_activation_has_parameter(fb_op activation, const char *name);

typedef struct fb_activation_spelling {
    fb_opcode opcode;
    bool is_in_place; /* it writes into its input … */
    bool has_flag;    /* … because it is given inplace=True */
} fb_activation_spelling;

/* How the activation is spelled in the place of a call of another: beside it, where its name exists there (torch.relu becomes
 * torch.tanh), and otherwise in torch.nn.functional. Appends the target, or of a module the type, to `target`. In place when
 * that is asked for and there is such a form. False when the dialect does not have it. */
bool fb_activation_spell(const fb_graph *graph, fb_node call, fb_op activation, bool in_place, fb_buffer *target,
                         fb_activation_spelling *out);

#endif
