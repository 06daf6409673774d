#include "core/ops/activation.h"

#include <string.h>

#include "core/operators/spelling.h"
#include "core/ops/parameter.h"

fb_op fb_activation_find(const char *name) {
    for (fb_op op = 1; op < FB_OP_COUNT; op++) {
        if (fb_op_facts_of(op)->homes && fb_op_is_named(op, name)) return op;
    }
    return FB_OP_UNKNOWN;
}

/* The first is the input. */
static bool has_parameter(fb_op op, const char *name) {
    const char *at = fb_parameter_next(fb_op_facts_of(op)->parameters);
    while (at && !fb_parameter_is(at, name, strlen(name))) at = fb_parameter_next(at);
    return at != NULL;
}

bool fb_activation_has_parameter(fb_op activation, const char *name) {
    return strcmp(name, "inplace") != 0 && has_parameter(activation, name);
}

static bool exists_in(fb_op op, const char *home) {
    return fb_has_word(fb_op_facts_of(op)->homes, home, strlen(home));
}

static void append_name(fb_buffer *out, const char *prefix, const char *names, bool in_place) {
    fb_buffer_string(out, prefix);
    fb_buffer_append(out, names, strcspn(names, " "));
    if (in_place) fb_buffer_char(out, '_');
}

bool fb_activation_spell(const fb_graph *graph, fb_node call, fb_op activation, bool in_place, fb_buffer *target,
                         fb_activation_spelling *out) {
    static const char torch[] = "torch.";
    const fb_op_facts *facts = fb_op_facts_of(activation);
    fb_opcode opcode = (fb_opcode)fb_node_at(graph, call)->opcode;
    const char *old = fb_node_target(graph, call);
    bool has_form = in_place && (facts->flags & FB_FACT_HAS_IN_PLACE),
         has_flag = in_place && has_parameter(activation, "inplace");
    *out = (fb_activation_spelling){.opcode = FB_CALL_FUNCTION, .is_in_place = has_form};
    if (fb_is_aten(graph, call)) {
        append_name(target, FB_ATEN, facts->names, has_form);
        fb_buffer_string(target, ".default");
        return exists_in(activation, "aten");
    }
    if (opcode == FB_CALL_MODULE) {
        *out = (fb_activation_spelling){.opcode = opcode, .is_in_place = has_flag, .has_flag = has_flag};
        append_name(target, "torch.nn.", facts->modules, false);
        return true;
    }
    if (opcode == FB_CALL_METHOD && exists_in(activation, "method")) {
        out->opcode = FB_CALL_METHOD;
        append_name(target, "", facts->names, has_form);
        return true;
    }
    bool is_of_torch = strncmp(old, torch, sizeof torch - 1) == 0 && !strchr(old + sizeof torch - 1, '.');
    if (opcode == FB_CALL_FUNCTION && is_of_torch && exists_in(activation, "torch")) {
        append_name(target, torch, facts->names, has_form);
        return true;
    }
    out->is_in_place = out->has_flag = has_flag;
    fb_op_functional_target(activation, target);
    return true;
}
