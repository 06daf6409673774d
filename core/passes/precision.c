/* Questions that ConvertPrecision asks about single nodes. */
#include "core/passes/precision.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/infer.h"
#include "core/passes/extent.h"
#include "core/passes/precision_change.h"
#include "core/weights/dtype.h"

/* A cast or a factory: which dtype it gives does not depend on what it reads, or only on the first of it. */
static bool says_its_dtype(const fb_graph *g, fb_node n) {
    fb_dtype_rule rule = (fb_dtype_rule)fb_op_facts_of(fb_node_op(g, n))->dtype;
    return rule == FB_DTYPE_RULE_CAST || rule == FB_DTYPE_RULE_LIKE || rule == FB_DTYPE_RULE_ARGUMENT ||
           rule == FB_DTYPE_RULE_FULL || rule >= FB_DTYPE_RULE_BOOL;
}

fb_dtype fb_value_dtype(const fb_graph *g, fb_node n) {
    const fb_node_row *row = fb_node_at(g, n);
    fb_shape_result found;
    if (row->dtype) return (fb_dtype)row->dtype;
    if (says_its_dtype(g, n)) return fb_infer(g, n, &found) ? found.dtype : FB_DTYPE_UNKNOWN;
    if (row->opcode != FB_GET_ATTR || !row->attribute.id) return FB_DTYPE_UNKNOWN;
    fb_tensor tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
    return tensor.id ? (fb_dtype)fb_tensor_at(g, tensor)->dtype : FB_DTYPE_UNKNOWN;
}

bool fb_takes_any_dtype(const fb_graph *g, fb_node n) {
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, n));
    if (facts->shape != FB_SHAPE_SAME || !(facts->flags & FB_FACT_ALIASES)) return false;
    return facts->dtype == FB_DTYPE_RULE_CAST ? fb_names_float32(g, n) || fb_value_dtype(g, n) != FB_FLOAT32
                                              : facts->dtype >= FB_DTYPE_RULE_BOOL;
}

bool fb_reads_dtype(const fb_graph *g, fb_node n) {
    fb_op op = fb_node_op(g, n);
    if (op == FB_OP_GETATTR) {
        fb_value name = fb_call_argument(g, n, "name");
        bool gives_tensor = fb_node_at(g, n)->dtype; /* x.T, sort(x).values */
        return gives_tensor || fb_value_kind(g, name) != FB_STRING || strcmp(fb_value_text(g, name), "dtype") == 0;
    }
    return !(fb_op_facts_of(op)->flags & FB_FACT_NUMBER) || fb_names_float32(g, n);
}

bool fb_is_float32(const fb_graph *g, fb_value value) {
    return fb_value_kind(g, value) == FB_DTYPE && strcmp(fb_value_text(g, value), fb_dtype_name(FB_FLOAT32)) == 0;
}

bool fb_names_float32(const fb_graph *g, fb_node n) {
    const fb_value maps[] = {fb_node_at(g, n)->args, fb_node_at(g, n)->kwargs};
    for (int k = 0; k < 2; k++) {
        const fb_value_row *row = fb_value_at(g, maps[k]);
        for (uint32_t i = 0; i < row->count; i++) {
            if (fb_is_float32(g, row->items[i])) return true;
        }
    }
    return false;
}

bool fb_takes_dtype(const fb_graph *g, fb_node n) {
    fb_dtype_rule rule = (fb_dtype_rule)fb_op_facts_of(fb_node_op(g, n))->dtype;
    bool is_factory = rule == FB_DTYPE_RULE_ARGUMENT || rule == FB_DTYPE_RULE_FULL;
    return is_factory && fb_value_dtype(g, n) == FB_FLOAT32 && !fb_node_kwarg(g, n, "dtype").id;
}

bool fb_is_float_method(const fb_graph *g, fb_node n) {
    return fb_node_at(g, n)->opcode == FB_CALL_METHOD && fb_op_facts_of(fb_node_op(g, n))->dtype == FB_DTYPE_RULE_FLOAT32;
}

bool fb_gives_float32(const fb_graph *g, fb_node n) {
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, n));
    if (fb_value_dtype(g, n) != FB_FLOAT32 || fb_names_float32(g, n) || fb_owns_float32(g, n)) return false;
    if (fb_takes_dtype(g, n) || fb_is_float_method(g, n)) return false;
    if (facts->dtype == FB_DTYPE_RULE_FLOAT32) return true;
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_dtype dtype = fb_value_dtype(g, fb_edge_input(g, e));
        if (!dtype || dtype == FB_FLOAT32) return false;
    }
    return true;
}

/* ---- modules ------------------------------------------------------------------------------------------------------------- */

fb_module fb_called_around(const fb_graph *g, const fb_usage *usage, fb_module module) {
    fb_symbol path = fb_module_at(g, module)->path;
    const char *text = fb_text(g, path);
    for (size_t length = fb_text_length(g, path); length > 0; length--) {
        if (text[length - 1] != '.') continue;
        fb_symbol around = fb_symbol_find(g, text, length - 1);
        fb_module found = around.id ? fb_module_find(g, fb_text(g, around)) : (fb_module){0};
        if (found.id && fb_call_count(usage, found)) return found;
    }
    return (fb_module){0};
}

fb_module fb_deciding_module(const fb_graph *g, const fb_usage *usage, fb_module module) {
    return fb_call_count(usage, module) ? module : fb_called_around(g, usage, module);
}

/* `*` stands for any characters, `?` for one. */
static bool fits(const char *pattern, const char *text, size_t length) {
    const char *end = text + length, *star = NULL, *from = NULL;
    while (text < end) {
        if (*pattern == '*') {
            star = pattern++;
            from = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

/* The path, or that of a module around it. */
static bool path_fits(const fb_graph *g, fb_module module, const char *pattern) {
    const char *path = fb_text(g, fb_module_at(g, module)->path);
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        if (fits(pattern, path, (size_t)(dot - path))) return true;
    }
    return fits(pattern, path, strlen(path));
}

static bool uses_module(const fb_graph *g, fb_node n, const char *pattern) {
    if (fb_node_at(g, n)->opcode == FB_CALL_MODULE) return path_fits(g, fb_node_at(g, n)->module, pattern);
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        const fb_node_row *input = fb_node_at(g, fb_edge_input(g, e));
        if (input->opcode == FB_GET_ATTR && path_fits(g, input->module, pattern)) return true;
    }
    return false;
}

bool fb_is_kept(const fb_graph *g, fb_node n, const json_t *keep, bool *is_used) {
    bool is_kept = false;
    for (size_t i = 0; i < json_array_size(keep); i++) {
        const char *pattern = json_string_value(json_array_get(keep, i));
        if (!fb_op_is_named(fb_node_op(g, n), pattern) && !uses_module(g, n, pattern)) continue;
        is_kept = is_used[i] = true;
    }
    return is_kept;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

/* The ends of float32's range stand for infinity (masks), and become the ends of the other range. Other numbers that are stored
 * as they are become the nearest one, too; those that are computed with are left to the computation, which is done wide. */
bool fb_literal_overflows(const fb_graph *g, fb_node n, fb_value value, fb_dtype dtype, double *out) {
    fb_dtype_range range;
    double number;
    if (fb_value_kind(g, value) != FB_FLOAT || !fb_dtype_limits(dtype, &range)) return false;
    fb_value_is_number(g, value, &number);
    *out = copysign(range.largest, number);
    if (!isfinite(number) || fabs(number) <= range.largest) return false;
    fb_dtype_rule rule = (fb_dtype_rule)fb_op_facts_of(fb_node_op(g, n))->dtype;
    bool is_computed_with = rule == FB_DTYPE_RULE_PROMOTE || rule == FB_DTYPE_RULE_FLOAT;
    return !is_computed_with || fabs(number) >= (double)FLT_MAX;
}

bool fb_tensor_overflows(const fb_graph *g, fb_tensor tensor, double largest) {
    fb_extent extent;
    return fb_tensor_extent(g, tensor, &extent) && extent.largest > largest;
}
