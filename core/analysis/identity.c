#include "core/analysis/identity.h"
#include "core/analysis/onnx.h"

#include <math.h>
#include <string.h>

#include "core/analysis/infer.h"
#include "core/analysis/memory_layout.h"
#include "core/analysis/rearrange.h"
#include "core/analysis/shape.h"

static fb_identity_rule rule_of(fb_op op) {
    return (fb_identity_rule)fb_op_facts_of(op)->identity;
}

static bool casts(fb_op op) {
    fb_identity_rule rule = rule_of(op);
    return rule == FB_IDENTITY_RULE_CASTS || rule == FB_IDENTITY_RULE_CASTS_COPY || rule == FB_IDENTITY_RULE_CASTS_LIKE;
}

static void doubt(fb_identity *identity, const char *reason, const char *detail) {
    if (!identity->doubt.code) identity->doubt = (fb_obstacle){reason, detail};
}

/* ---- types --------------------------------------------------------------------------------------------------------------- */

/* As recorded, or as it follows from the inputs. */
static void type_of(const fb_graph *graph, fb_node node, fb_shape_result *type) {
    if (fb_recorded_shape(graph, node, type) && type->rank >= 0 && type->dtype) return;
    fb_shape_result inferred;
    if (!fb_infer(graph, node, &inferred)) return;
    if (type->rank < 0 && inferred.rank >= 0) {
        fb_dtype dtype = type->dtype;
        *type = inferred;
        type->dtype = dtype;
    }
    if (!type->dtype) type->dtype = inferred.dtype;
}

static bool has_same_sizes(const fb_shape_result *a, const fb_shape_result *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++) {
        bool is_same =
            a->sizes[i].symbol.id == b->sizes[i].symbol.id && (a->sizes[i].symbol.id || a->sizes[i].size == b->sizes[i].size);
        if (!is_same) return false;
    }
    return true;
}

/* False when the dtype certainly changes. */
static bool keeps_dtype(fb_identity *identity, const fb_shape_result *from, const fb_shape_result *to) {
    if (from->dtype && to->dtype) return from->dtype == to->dtype;
    doubt(identity, "unknown-dtype", "the dtype of what it is given, or of what it gives, is not recorded" FB_RECORD_DTYPE);
    return true;
}

/* ---- arguments ----------------------------------------------------------------------------------------------------------- */

static bool is_dtype(const fb_graph *graph, fb_value value) {
    if (fb_value_kind(graph, value) == FB_DTYPE) return true;
    fb_node node = fb_value_node(graph, value); /* y.dtype */
    if (!node.id || !fb_op_is(graph, node, FB_OP_GETATTR)) return false;
    const char *name = fb_value_text(graph, fb_node_arg(graph, node, 1));
    return name && strcmp(name, "dtype") == 0;
}

typedef enum device_answer { NO_DEVICE, SAME_DEVICE, OTHER_DEVICE, UNKNOWN_DEVICE } device_answer;

/* Does an argument name a device, itself, as a string or as y.device, and is it the input's device? */
static device_answer compare_device(const fb_graph *graph, fb_value value, fb_node input) {
    fb_kind kind = fb_value_kind(graph, value);
    const char *lies = fb_recorded_device(graph, input), *other;
    if (kind == FB_DEVICE || kind == FB_STRING) {
        const char *name = fb_value_text(graph, value);
        size_t length = strlen(name);
        if (!*lies) return UNKNOWN_DEVICE;
        return strlen(lies) == length + 2 && strncmp(lies + 1, name, length) == 0 ? SAME_DEVICE : OTHER_DEVICE;
    }
    fb_node node = fb_value_node(graph, value);
    if (!node.id || !fb_op_is(graph, node, FB_OP_GETATTR)) return NO_DEVICE;
    const char *attribute = fb_value_text(graph, fb_node_arg(graph, node, 1));
    if (!attribute || strcmp(attribute, "device") != 0) return NO_DEVICE;
    fb_node of = fb_arg_node(graph, node, 0);
    if (of.id == input.id) return SAME_DEVICE;
    other = fb_recorded_device(graph, of);
    return !*lies || !*other ? UNKNOWN_DEVICE : strcmp(lies, other) == 0 ? SAME_DEVICE : OTHER_DEVICE;
}

static void judge_cast_argument(const fb_graph *graph, fb_value value, fb_identity *identity) {
    fb_kind kind = fb_value_kind(graph, value);
    const char *text = kind == FB_LAYOUT || kind == FB_MEMORY_FORMAT ? fb_value_text(graph, value) : "";
    if (is_dtype(graph, value) || fb_is_absent(graph, value) || kind == FB_FALSE || strcmp(text, "preserve_format") == 0)
        return;
    switch (compare_device(graph, value, identity->input)) {
    case SAME_DEVICE: return;
    case OTHER_DEVICE: doubt(identity, "unsupported-arguments", "it may move the tensor to another device"); return;
    case UNKNOWN_DEVICE:
        doubt(identity, "unknown-device", "it may move the tensor: where that lies is not recorded in meta.device");
        return;
    case NO_DEVICE: break;
    }
    bool is_strided = strcmp(text, "strided") == 0, is_known = *fb_recorded_device(graph, identity->input);
    if (is_strided && is_known) return; /* recorded of strided tensors alone */
    if (is_strided) doubt(identity, "unknown-device", "it may change the layout: meta.device would say that it is strided");
    else doubt(identity, "unsupported-arguments", "it may also move the tensor to another device or layout, or copy it");
}

/* Judges if a call only casts: it names the device and the layout that the tensor has, and asks for no copy. */
static void judge_cast(const fb_graph *graph, fb_identity *identity) {
    const fb_node_row *row = fb_node_at(graph, identity->node);
    const fb_value_row *args = fb_value_at(graph, row->args), *kwargs = fb_value_at(graph, row->kwargs);
    for (uint32_t i = 1; i < args->count; i++) judge_cast_argument(graph, args->items[i], identity);
    for (uint32_t i = 0; i + 1 < kwargs->count; i += 2) {
        const char *keyword = fb_value_text(graph, kwargs->items[i]);
        bool says_nothing =
            strcmp(keyword, "non_blocking") == 0 || strcmp(keyword, "self") == 0 || strcmp(keyword, "input") == 0;
        if (!says_nothing) judge_cast_argument(graph, kwargs->items[i + 1], identity);
    }
}

static bool is_index_of_all(const fb_graph *graph, fb_value index) {
    fb_kind kind = index.id ? fb_value_kind(graph, index) : FB_NONE;
    if (kind == FB_SLICE || kind == FB_ELLIPSIS) return true;
    if (kind != FB_TUPLE) return false;
    for (size_t i = 0; fb_value_item(graph, index, i).id; i++) {
        fb_kind item = fb_value_kind(graph, fb_value_item(graph, index, i));
        if (item != FB_SLICE && item != FB_ELLIPSIS) return false;
    }
    return true;
}

/* ---- by rule ------------------------------------------------------------------------------------------------------------- */

static bool read_reshape(const fb_graph *graph, fb_identity *identity) {
    fb_shape_result from, to;
    if (fb_op_is(graph, identity->node, FB_OP_GETITEM) && !is_index_of_all(graph, fb_node_arg(graph, identity->node, 1)))
        return false;
    fb_node made_of = fb_arg_node(graph, identity->node, 1);
    if (made_of.id && is_dtype(graph, fb_node_arg(graph, identity->node, 1))) return false;
    type_of(graph, identity->input, &from);
    type_of(graph, identity->node, &to);
    if (from.rank >= 0 && to.rank >= 0 && !has_same_sizes(&from, &to)) return false;
    if (from.rank < 0 || to.rank < 0) {
        if (fb_op_is(graph, identity->node, FB_OP_GETITEM)) return false; /* of a tuple or a shape, for all that is known */
        doubt(identity, "unknown-shape", "the shape of what it is given, or of what it gives, is not recorded" FB_RECORD_SHAPE);
    }
    return keeps_dtype(identity, &from, &to);
}

static bool read_cast(const fb_graph *graph, fb_identity *identity) {
    fb_shape_result from, to;
    type_of(graph, identity->input, &from);
    type_of(graph, identity->node, &to);
    if (!keeps_dtype(identity, &from, &to)) return false;
    if (fb_result_kind_of(graph, identity->node) == FB_A_NUMBER) return false; /* x.type() */
    judge_cast(graph, identity);
    return true;
}

/* Is a value on the device of `other`, as it is computed from it? Only numbers without dimensions and indices may be elsewhere.
 */
static bool lies_with(const fb_graph *graph, fb_node value, fb_node other, int depth) {
    if (value.id == other.id) return true;
    fb_op op = (fb_op)(fb_node_op(graph, value) & ~FB_OP_IN_PLACE);
    bool may_move = op == FB_OP_UNKNOWN || op == FB_OP_DEVICE_COPY || casts(op) || fb_node_kwarg(graph, value, "device").id;
    if (!depth || may_move || fb_op_effects(graph, value).is_unknown) return false;
    fb_value first = fb_first_argument(graph, value);
    bool maps = fb_op_facts_of(op)->flags & FB_FACT_ELEMENTWISE;
    for (uint32_t e = fb_input_first(graph, value); e; e = fb_input_next(graph, e)) {
        fb_node input = fb_edge_input(graph, e);
        bool counts = (maps || fb_value_node(graph, first).id == input.id) && fb_node_rank(graph, input) > 0;
        if (counts && lies_with(graph, input, other, depth - 1)) return true;
    }
    return false;
}

/* Judges if the input is on the device of `other`. */
static void judge_place(const fb_graph *graph, fb_identity *identity, fb_node other) {
    const char *lies = fb_recorded_device(graph, identity->input);
    bool is_here = *lies ? strcmp(lies, fb_recorded_device(graph, other)) == 0 : lies_with(graph, identity->input, other, 4);
    if (!is_here) doubt(identity, "unknown-device", "it may move the tensor: where the two lie is not recorded in meta.device");
}

static bool judge_cast_like(const fb_graph *graph, fb_identity *identity) {
    fb_node other = fb_call_argument_node(graph, identity->node, "other");
    if (other.id) judge_place(graph, identity, other);
    return other.id != 0;
}

static bool read_cast_like(const fb_graph *graph, fb_identity *identity) {
    fb_shape_result from, to;
    type_of(graph, identity->input, &from);
    type_of(graph, identity->node, &to);
    return keeps_dtype(identity, &from, &to) && judge_cast_like(graph, identity);
}

static bool read_copy(const fb_graph *graph, fb_identity *identity, fb_identity_form form) {
    fb_memory_format format = fb_memory_format_of(graph, identity->node);
    bool is_kept = format == FB_FORMAT_UNSAID || format == FB_FORMAT_PRESERVE;
    identity->form = form;
    identity->needs_contiguous = format == FB_FORMAT_CONTIGUOUS || (is_kept && form == FB_IDENTITY_ITSELF);
    if (!is_kept && format != FB_FORMAT_CONTIGUOUS)
        doubt(identity, "unsupported-arguments", "it may give the tensor another memory layout");
    return true;
}

/* x + 0: only -0.0 + 0.0 is another number; x - 0 and x + -0.0 are x. */
static void read_zero(const fb_graph *graph, fb_op op, fb_value zero, fb_dtype dtype, fb_identity *identity) {
    bool is_negative = fb_value_kind(graph, zero) == FB_FLOAT && signbit(fb_value_at(graph, zero)->real);
    identity->turns_minus_zero = fb_dtype_is_floating(dtype) && is_negative == (op == FB_OP_SUB);
    fb_value alpha = fb_call_argument(graph, identity->node, "alpha");
    double factor = 1;
    if (alpha.id && !(fb_value_is_number(graph, alpha, &factor) && factor == 1))
        doubt(identity, "unsupported-arguments", "the zero is multiplied by alpha");
}

static bool read_arithmetic(const fb_graph *graph, fb_op op, bool is_sum, fb_identity *identity) {
    fb_value a = fb_call_argument(graph, identity->node, "input"), b = fb_call_argument(graph, identity->node, "other");
    if (!a.id || !b.id) return false;
    bool is_swapped = fb_value_kind(graph, a) != FB_NODE && (fb_op_facts_of(op)->flags & FB_FACT_COMMUTATIVE);
    fb_value tensor = is_swapped ? b : a, number = is_swapped ? a : b;
    double constant;
    identity->input = fb_value_node(graph, tensor);
    if (!identity->input.id || !fb_value_is_number(graph, number, &constant) || constant != (is_sum ? 0 : 1)) return false;
    fb_value rounding = fb_call_argument(graph, identity->node, "rounding_mode");
    if (!fb_is_absent(graph, rounding)) return false; /* the whole part of x */
    if (fb_is_python_number(graph, identity->input)) return false;
    fb_shape_result from, to;
    type_of(graph, identity->input, &from);
    type_of(graph, identity->node, &to);
    if (!keeps_dtype(identity, &from, &to)) return false;
    fb_shape_result inferred;
    if (fb_infer(graph, identity->node, &inferred) && inferred.dtype && inferred.dtype != to.dtype)
        doubt(identity, "unknown-dtype", "the dtype that is recorded is not the one that comes out");
    if (from.dtype && !fb_dtype_is_computed(from.dtype) && !fb_dtype_is_integer(from.dtype))
        doubt(identity, "unsupported-dtype", "in this dtype it is not certain that every value stays");
    if (is_sum) read_zero(graph, op, number, from.dtype, identity);
    identity->form = FB_IDENTITY_COPY;
    return true;
}

static bool read_dropout(const fb_graph *graph, fb_identity *identity) {
    if (fb_op_effects(graph, identity->node).is_random) doubt(identity, "training-mode", "it is in training mode, or may be");
    return true;
}

/* The layout of a copy that the operator makes of its input. */
static fb_identity_layout layout_of_copy(const fb_graph *graph, fb_node node) {
    return fb_layout_of(graph, node) == FB_LAYOUT_IMAGE ? FB_LAYS_IMAGES : FB_LAYS_IN_ROWS;
}

/* An adaptive pool whose result has as many elements as its input: each is the mean of one, 0.0 + x. */
static bool read_average(const fb_graph *graph, fb_identity *identity) {
    fb_shape_result from, to;
    type_of(graph, identity->input, &from);
    type_of(graph, identity->node, &to);
    if (from.rank < 0 || to.rank < 0 || !has_same_sizes(&from, &to)) return false;
    identity->form = FB_IDENTITY_COPY;
    identity->layout = layout_of_copy(graph, identity->node);
    identity->turns_minus_zero = true;
    return keeps_dtype(identity, &from, &to);
}

/* A permutation that leaves each dimension where it is. */
static bool read_turn(const fb_graph *graph, fb_identity *identity) {
    fb_rearrange view;
    if (!fb_rearrange_at(graph, identity->node, &view) || view.form != FB_REARRANGE_PERMUTE) return false;
    for (int i = 0; i < view.rank; i++) {
        if (view.dims[i] != i) return false;
    }
    identity->form = FB_IDENTITY_VIEW;
    return true;
}

/* A pad by nothing clones. */
static bool read_pad(const fb_graph *graph, fb_identity *identity) {
    fb_shape_call call = {.graph = graph, .node = identity->node, .op = fb_node_op(graph, identity->node)};
    fb_sizes sizes;
    fb_value pad = fb_call_argument(graph, identity->node, "pad"), mode = fb_option(&call, "mode");
    bool is_constant = !mode.id || (fb_value_text(graph, mode) && strcmp(fb_value_text(graph, mode), "constant") == 0);
    if (!pad.id || !is_constant || !fb_evaluate_sizes(graph, pad, &sizes) || !sizes.is_sequence) return false;
    for (int i = 0; i < sizes.count; i++) {
        if (!fb_dim_is(sizes.items[i], 0)) return false;
    }
    identity->form = FB_IDENTITY_COPY;
    return true;
}

static bool is_empty(const fb_graph *graph, fb_node node) {
    fb_shape_result type;
    type_of(graph, node, &type);
    for (int i = 0; i < type.rank; i++) {
        if (fb_dim_is(type.sizes[i], 0)) return true;
    }
    return false;
}

/* The one of several tensors that has elements; 0 where it is not certain that there is one only. */
static fb_node only_filled(const fb_graph *graph, fb_value tensors) {
    fb_node found = {0};
    const fb_value_row *row = fb_value_at(graph, tensors);
    for (uint32_t i = 0; i < row->count; i++) {
        fb_node item = fb_value_node(graph, row->items[i]);
        if (!item.id) return (fb_node){0};
        if (row->count > 1 && is_empty(graph, item)) continue;
        if (found.id) return (fb_node){0};
        found = item;
    }
    return found;
}

/* cat([x]), hstack([x]), and those that join x with nothing. Tensors without elements, of another layout, make it rows. */
static bool read_join(const fb_graph *graph, fb_identity *identity) {
    fb_shape_result from, to;
    fb_value tensors = fb_call_argument(graph, identity->node, "tensors");
    fb_kind kind = tensors.id ? fb_value_kind(graph, tensors) : FB_NONE;
    if ((kind != FB_LIST && kind != FB_TUPLE) || fb_node_kwarg(graph, identity->node, "out").id) return false;
    identity->input = only_filled(graph, tensors);
    if (!identity->input.id) return false;
    type_of(graph, identity->input, &from);
    type_of(graph, identity->node, &to);
    if (from.rank < 0 || to.rank < 0 || !has_same_sizes(&from, &to)) return false;
    bool is_alone = fb_value_at(graph, tensors)->count == 1;
    identity->form = FB_IDENTITY_COPY;
    identity->layout = is_alone ? layout_of_copy(graph, identity->node) : FB_LAYS_IN_ROWS;
    return keeps_dtype(identity, &from, &to);
}

/* copy_(x, y) is y, where both have one type. */
static bool read_overwrite(const fb_graph *graph, fb_identity *identity) {
    fb_shape_result from, to;
    fb_node into = identity->input;
    identity->input = fb_call_argument_node(graph, identity->node, "src");
    if (!identity->input.id || !into.id) return false;
    type_of(graph, identity->input, &from);
    type_of(graph, into, &to);
    if (from.rank < 0 || to.rank < 0 || !has_same_sizes(&from, &to) || !from.dtype || from.dtype != to.dtype) return false;
    identity->form = FB_IDENTITY_COPY;
    identity->overwrites = true;
    judge_place(graph, identity, into);
    return true;
}

static bool read_by_rule(const fb_graph *graph, fb_op op, fb_identity *identity) {
    switch (rule_of(op)) {
    case FB_IDENTITY_RULE_NEVER: return false;
    case FB_IDENTITY_RULE_RETURNS: return true;
    case FB_IDENTITY_RULE_DROPS: return read_dropout(graph, identity);
    case FB_IDENTITY_RULE_DETACHES: identity->form = FB_IDENTITY_VIEW; return true;
    case FB_IDENTITY_RULE_RESHAPES: identity->form = FB_IDENTITY_VIEW; return read_reshape(graph, identity);
    case FB_IDENTITY_RULE_CASTS: return read_cast(graph, identity);
    case FB_IDENTITY_RULE_MAKES_CONTIGUOUS: return read_copy(graph, identity, FB_IDENTITY_ITSELF);
    case FB_IDENTITY_RULE_COPIES: return read_copy(graph, identity, FB_IDENTITY_COPY);
    case FB_IDENTITY_RULE_CASTS_LIKE: return read_cast_like(graph, identity);
    case FB_IDENTITY_RULE_CASTS_COPY: identity->form = FB_IDENTITY_COPY; return read_cast(graph, identity);
    case FB_IDENTITY_RULE_ADDS: return read_arithmetic(graph, op, true, identity);
    case FB_IDENTITY_RULE_SCALES: return read_arithmetic(graph, op, false, identity);
    case FB_IDENTITY_RULE_AVERAGES: return read_average(graph, identity);
    case FB_IDENTITY_RULE_OVERWRITES: return read_overwrite(graph, identity);
    case FB_IDENTITY_RULE_PADS: return read_pad(graph, identity);
    case FB_IDENTITY_RULE_TURNS: return read_turn(graph, identity);
    case FB_IDENTITY_RULE_JOINS: return read_join(graph, identity);
    case FB_IDENTITY_RULE_SUBTRACTS:
    case FB_IDENTITY_RULE_CUTS:
    case FB_IDENTITY_RULE_REPEATS:
    case FB_IDENTITY_RULE_UNDOES:
    case FB_IDENTITY_RULE_CHOOSES:
    case FB_IDENTITY_RULE_QUANTISES: return false;
    }
    return false;
}

bool fb_identity_at(const fb_graph *graph, fb_node node, fb_identity *identity) {
    if (fb_graph_is_onnx(graph)) return fb_onnx_identity_at(graph, node, identity);
    fb_op op = fb_node_op(graph, node), plain = (fb_op)(op & ~FB_OP_IN_PLACE);
    fb_identity_rule rule = rule_of(op);
    if (rule == FB_IDENTITY_RULE_NEVER) return false;
    /* Dropout in eval mode writes nothing, in place or not; and detach_ changes what autograd sees alone. */
    if ((op & FB_OP_IN_PLACE) ? rule != FB_IDENTITY_RULE_DROPS && plain != FB_OP_DETACH && rule != FB_IDENTITY_RULE_OVERWRITES
                              : rule == FB_IDENTITY_RULE_OVERWRITES)
        return false;
    fb_identity found = {.node = node, .input = fb_value_node(graph, fb_first_argument(graph, node))};
    if (!found.input.id && rule != FB_IDENTITY_RULE_ADDS && rule != FB_IDENTITY_RULE_SCALES && rule != FB_IDENTITY_RULE_JOINS)
        return false;
    if (!read_by_rule(graph, plain, &found) || fb_op_effects(graph, node).is_unknown) return false;
    if (op == (FB_OP_DETACH | FB_OP_IN_PLACE)) found.form = FB_IDENTITY_ITSELF;
    if (fb_is_python_number(graph, found.input)) return false;
    *identity = found;
    return true;
}

bool fb_cast_at(const fb_graph *graph, fb_node node, fb_identity *cast) {
    fb_op op = fb_node_op(graph, node);
    if (op & FB_OP_IN_PLACE || op >= FB_OP_COUNT || fb_op_effects(graph, node).is_unknown) return false;
    if (!casts(op)) return false;
    fb_identity found = {.node = node, .input = fb_value_node(graph, fb_first_argument(graph, node))};
    if (!found.input.id || fb_result_kind_of(graph, node) == FB_A_NUMBER) return false; /* x.type() */
    if (rule_of(op) == FB_IDENTITY_RULE_CASTS_LIKE) {
        if (!judge_cast_like(graph, &found)) return false;
    } else {
        judge_cast(graph, &found);
    }
    *cast = found;
    return true;
}
