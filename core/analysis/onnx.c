#include "core/analysis/onnx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/base64.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"
#include "core/weights/dtype.h"

/* ---- what the document says of a node's message -------------------------------------------------------------------------- */

/* The text behind a member of meta.onnx, or NULL; quotes within a text have a backslash. */
static const char *find_member(const fb_graph *graph, fb_node node, const char *member) {
    fb_value rest = fb_node_at(graph, node)->meta_rest;
    const char *text = rest.id ? fb_value_text(graph, fb_map_value(graph, rest, "onnx")) : NULL;
    const char *found = text ? strstr(text, member) : NULL;
    return found ? found + strlen(member) : NULL;
}

int64_t fb_onnx_results(const fb_graph *graph, fb_node node) {
    const char *count = find_member(graph, node, "\"results\":");
    return count ? atoll(count) : -1;
}

uint32_t fb_programs_to_clean(const fb_graph *graph) {
    return fb_graph_is_onnx(graph) ? fb_program_limit(graph) : FB_MAIN_PROGRAM.id + 1;
}

fb_program fb_onnx_program_read_by(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = node.id ? fb_node_at(graph, node) : NULL;
    bool reads = row && row->opcode == FB_GET_ATTR && row->module.id && !row->attribute.id;
    return reads ? fb_module_at(graph, row->module)->program : (fb_program){0};
}

bool fb_onnx_is_captured(const fb_graph *graph, fb_node placeholder) {
    return fb_graph_is_onnx(graph) && find_member(graph, placeholder, "{\"captured\":") != NULL;
}

static bool is_named(const fb_graph *graph, fb_node node) {
    return find_member(graph, node, "\"named\":") != NULL;
}

/* ---- constants ----------------------------------------------------------------------------------------------------------- */

/* The tensor whose bytes are in the document, where the argument is a constant; or none. */
static fb_tensor constant_of(const fb_graph *graph, fb_value argument) {
    fb_node node = fb_value_node(graph, argument);
    const fb_node_row *row = node.id ? fb_node_at(graph, node) : NULL;
    if (!row || row->opcode != FB_GET_ATTR || !row->attribute.id) return (fb_tensor){0};
    fb_tensor tensor = fb_module_tensor(graph, row->module, fb_text(graph, row->attribute));
    return tensor.id && fb_tensor_at(graph, tensor)->data.id ? tensor : (fb_tensor){0};
}

enum { MOST_NUMBERS = 4096 };

/* An element as a number; false: it is of a dtype that is not read. */
static bool read_number(fb_dtype dtype, const unsigned char *bytes, size_t width, double *out) {
    uint64_t bits = 0;
    if (fb_dtype_is_computed(dtype)) {
        fb_decode_numbers(dtype, bytes, 1, out);
        return true;
    }
    if (!fb_dtype_is_integer(dtype) || width > sizeof bits) return false;
    for (size_t i = width; i-- > 0;) bits = bits << 8 | bytes[i];
    bool is_unsigned = dtype == FB_UINT8 || dtype == FB_UINT16 || dtype == FB_UINT32 || dtype == FB_UINT64 || dtype == FB_BOOL;
    if (!is_unsigned && width < sizeof bits && bits >> (8 * width - 1)) bits |= UINT64_MAX << (8 * width);
    *out = is_unsigned ? (double)bits : (double)(int64_t)bits;
    return true;
}

/* Are all elements of the constant so? Also true of one without elements. */
static bool all_are(const fb_graph *graph, fb_value argument, bool (*is_it)(double number)) {
    fb_tensor tensor = constant_of(graph, argument);
    if (!tensor.id) return false;
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    const char *text = fb_text(graph, row->data);
    size_t length = fb_text_length(graph, row->data), width = fb_dtype_size((fb_dtype)row->dtype);
    size_t count = width ? fb_base64_size(text, length) / width : MOST_NUMBERS + 1;
    if (count > MOST_NUMBERS) return false;
    for (size_t i = 0; i < count; i++) {
        unsigned char bytes[16];
        double number;
        if (width > sizeof bytes) return false;
        fb_base64_decode(text, i * width, width, bytes);
        if (!read_number((fb_dtype)row->dtype, bytes, width, &number) || !is_it(number)) return false;
    }
    return true;
}

/* Its elements; -1: they are not known, or more than `most`. */
static int numbers_of(const fb_graph *graph, fb_value argument, double *out, int most) {
    fb_tensor tensor = constant_of(graph, argument);
    const fb_tensor_row *row = tensor.id ? fb_tensor_at(graph, tensor) : NULL;
    size_t width = row ? fb_dtype_size((fb_dtype)row->dtype) : 0;
    unsigned char bytes[16];
    if (!width || width > sizeof bytes) return -1;
    const char *text = fb_text(graph, row->data);
    size_t count = fb_base64_size(text, fb_text_length(graph, row->data)) / width;
    if (count > (size_t)most) return -1;
    for (size_t i = 0; i < count; i++) {
        fb_base64_decode(text, i * width, width, bytes);
        if (!read_number((fb_dtype)row->dtype, bytes, width, &out[i])) return -1;
    }
    return (int)count;
}

bool fb_onnx_number(const fb_graph *graph, fb_value argument, double *out) {
    double number;
    if (numbers_of(graph, argument, &number, 1) != 1) return false;
    *out = number;
    return true;
}

enum { MOST_INTS = 32 };
#define LARGEST_INT 1e15 /* float64 has each integer up to it */

/* `clamps`: a larger one is as large as can be; else it is not known. */
static int read_ints(const fb_graph *graph, fb_node node, const char *attribute, size_t input, int64_t *out, int most,
                     bool clamps) {
    fb_value list = fb_node_kwarg(graph, node, attribute), given = input ? fb_node_arg(graph, node, input) : (fb_value){0};
    if (list.id) {
        const fb_value_row *row = fb_value_at(graph, list);
        if (row->kind != FB_LIST || row->count > (uint32_t)most) return -2;
        for (uint32_t i = 0; i < row->count; i++)
            if (!fb_value_is_int(graph, row->items[i], &out[i])) return -2;
        return (int)row->count;
    }
    if (fb_is_absent(graph, given)) return -1;
    double numbers[MOST_INTS];
    int count = numbers_of(graph, given, numbers, most < MOST_INTS ? most : MOST_INTS);
    for (int i = 0; i < count; i++) {
        bool is_large = fabs(numbers[i]) > LARGEST_INT;
        if (is_large && !clamps) return -2;
        out[i] = !is_large ? (int64_t)numbers[i] : numbers[i] < 0 ? INT64_MIN : INT64_MAX;
    }
    return count < 0 ? -2 : count;
}

int fb_onnx_ints_of(const fb_graph *graph, fb_node node, const char *attribute, size_t input, int64_t *out, int most) {
    return read_ints(graph, node, attribute, input, out, most, false);
}

int fb_onnx_bounds_of(const fb_graph *graph, fb_node node, const char *attribute, size_t input, int64_t *out, int most) {
    return read_ints(graph, node, attribute, input, out, most, true);
}

static bool is_zero(double number) {
    return number == 0;
}
static bool is_not_zero(double number) {
    return number != 0;
}
static bool is_negative_zero(double number) {
    return number == 0 && signbit(number);
}
static bool is_positive_zero(double number) {
    return number == 0 && !signbit(number);
}
static bool is_one(double number) {
    return number == 1;
}
static bool is_positive(double number) {
    return number > 0;
}

/* ---- effects ------------------------------------------------------------------------------------------------------------- */

static const fb_effects anything = {.is_unknown = true, .is_random = true, .has_effect = true};

enum { MAX_NESTED = 20000, MAX_DEPTH = 40 }; /* nodes of programs within that are looked at for one call, and their depth */

static bool add_effects(const fb_graph *graph, fb_node node, int *seen, int depth, fb_effects *effects);

/* False when what happens inside may be anything, or is too much to look at. */
static bool add_program(const fb_graph *graph, fb_program program, int *seen, int depth, fb_effects *effects) {
    for (fb_node n = fb_first_node(graph, program); n.id; n = fb_next_node(graph, n))
        if (++*seen > MAX_NESTED || !add_effects(graph, n, seen, depth, effects)) return false;
    return true;
}

static bool add_attributes(const fb_graph *graph, fb_node node, int *seen, int depth, fb_effects *effects) {
    bool has_program = false;
    for (uint32_t edge = fb_input_first(graph, node); edge; edge = fb_input_next(graph, edge)) {
        const fb_node_row *row = fb_node_at(graph, fb_edge_input(graph, edge));
        if (row->opcode != FB_GET_ATTR || !row->module.id || row->attribute.id) continue;
        fb_program program = fb_module_at(graph, row->module)->program;
        if (!program.id || !add_program(graph, program, seen, depth, effects)) return false;
        has_program = true;
    }
    return has_program;
}

static bool add_function(const fb_graph *graph, const char *target, int *seen, int depth, fb_effects *effects) {
    fb_module module = fb_module_find(graph, target);
    fb_program program = module.id ? fb_module_at(graph, module)->program : (fb_program){0};
    return program.id && add_program(graph, program, seen, depth, effects);
}

static bool is_in_training(const fb_graph *graph, fb_node node) {
    fb_value mode = fb_node_arg(graph, node, 2);
    return !fb_is_absent(graph, mode) && !all_are(graph, mode, is_zero);
}

static bool add_effects(const fb_graph *graph, fb_node node, int *seen, int depth, fb_effects *effects) {
    const fb_node_row *row = fb_node_at(graph, node);
    const char *target = fb_text(graph, row->target);
    if (row->opcode == FB_PLACEHOLDER || row->opcode == FB_GET_ATTR || row->opcode == FB_OUTPUT) return true;
    if (row->opcode != FB_CALL_FUNCTION || depth > MAX_DEPTH) return false;
    if (row->op == FB_OP_GETITEM) return true;
    if (fb_is_spelled(target, FB_ONNX_FUNCTION)) return add_function(graph, target, seen, depth + 1, effects);
    const fb_onnx_facts *facts = fb_onnx_facts_of(target);
    if (!facts) return false;
    switch (facts->effect) {
    case FB_ONNX_COMPUTES: return true;
    case FB_ONNX_DRAWS: effects->is_random = true; return true;
    case FB_ONNX_DRAWS_IN_TRAINING: effects->is_random |= is_in_training(graph, node); return true;
    case FB_ONNX_RUNS: return add_attributes(graph, node, seen, depth + 1, effects);
    }
    return false;
}

fb_effects fb_onnx_effects(const fb_graph *graph, fb_node node) {
    fb_effects effects = {0};
    int seen = 0;
    if (!add_effects(graph, node, &seen, 0, &effects)) effects = anything;
    effects.is_named = is_named(graph, node);
    return effects;
}

/* ---- identities ---------------------------------------------------------------------------------------------------------- */

static void doubt(fb_identity *identity, const char *reason, const char *detail) {
    if (!identity->doubt.code) identity->doubt = (fb_obstacle){reason, detail};
}

/* Equal sizes, symbols included, are one value. */
static bool has_same_shape(const fb_graph *graph, const fb_identity *identity) {
    fb_value from = fb_node_at(graph, identity->input)->shape, to = fb_node_at(graph, identity->node)->shape;
    return from.id && from.id == to.id;
}

static bool read_cast(const fb_graph *graph, fb_identity *identity) {
    uint8_t from = fb_node_at(graph, identity->input)->dtype, to = fb_node_at(graph, identity->node)->dtype;
    return from && from == to;
}

/* A constant of one element and no dimension leaves the shape as it is; others do where the document says so. */
static bool keeps_shape(const fb_graph *graph, const fb_identity *identity, fb_value constant) {
    fb_tensor tensor = constant_of(graph, constant);
    bool is_scalar = tensor.id && fb_value_at(graph, fb_tensor_at(graph, tensor)->shape)->count == 0;
    return is_scalar || has_same_shape(graph, identity);
}

/* x + 0, 0 + x, x - 0; x * 1, 1 * x, x / 1. `call` has the operands. */
static bool read_arithmetic(const fb_graph *graph, fb_node call, fb_identity_rule rule, bool commutes, fb_identity *identity) {
    bool is_sum = rule != FB_IDENTITY_RULE_SCALES;
    for (size_t i = 0; i < (commutes ? 2 : 1); i++) {
        fb_value tensor = fb_node_arg(graph, call, i), constant = fb_node_arg(graph, call, 1 - i);
        if (fb_is_absent(graph, tensor) || fb_is_absent(graph, constant)) return false;
        if (!all_are(graph, constant, is_sum ? is_zero : is_one)) continue;
        identity->input = fb_value_node(graph, tensor);
        if (!identity->input.id || !keeps_shape(graph, identity, constant)) continue;
        fb_dtype dtype = (fb_dtype)fb_tensor_at(graph, constant_of(graph, constant))->dtype;
        bool is_exact = all_are(graph, constant, rule == FB_IDENTITY_RULE_SUBTRACTS ? is_positive_zero : is_negative_zero);
        identity->turns_minus_zero = is_sum && fb_dtype_is_floating(dtype) && !is_exact;
        return true;
    }
    return false;
}

static bool read_turn(const fb_graph *graph, fb_node call, const fb_identity *identity) {
    fb_value perm = fb_node_kwarg(graph, call, "perm");
    int64_t axis;
    if (!perm.id) {
        int rank = fb_node_rank(graph, identity->input);
        return rank == 0 || rank == 1;
    }
    const fb_value_row *list = fb_value_at(graph, perm);
    for (uint32_t i = 0; i < list->count; i++)
        if (!fb_value_is_int(graph, list->items[i], &axis) || axis != i) return false;
    return list->kind == FB_LIST;
}

static bool read_pad(const fb_graph *graph, fb_node call) {
    fb_value pads = fb_node_kwarg(graph, call, "pads");
    int64_t pad;
    if (!pads.id) return all_are(graph, fb_node_arg(graph, call, 1), is_zero);
    const fb_value_row *list = fb_value_at(graph, pads);
    for (uint32_t i = 0; i < list->count; i++)
        if (!fb_value_is_int(graph, list->items[i], &pad) || pad) return false;
    return list->kind == FB_LIST;
}

/* All of a shape that goes forward is the whole. */
static bool read_cut(const fb_graph *graph, fb_node call, const fb_identity *identity) {
    fb_value steps = fb_node_arg(graph, call, 4);
    return has_same_shape(graph, identity) && (fb_is_absent(graph, steps) || all_are(graph, steps, is_positive));
}

/* The call that gives what `call` reads first, where it gives one value; or none. */
static fb_node call_before(const fb_graph *graph, fb_node call) {
    fb_value first = fb_node_arg(graph, call, 0);
    fb_node before = fb_is_absent(graph, first) ? (fb_node){0} : fb_value_node(graph, first);
    bool is_it = before.id && fb_node_at(graph, before)->opcode == FB_CALL_FUNCTION && fb_onnx_results(graph, before) < 0;
    return is_it ? before : (fb_node){0};
}

static bool read_again(const fb_graph *graph, fb_node call, fb_identity *identity, bool undoes) {
    fb_node before = call_before(graph, call);
    if (!before.id || fb_node_at(graph, before)->target.id != fb_node_at(graph, call)->target.id) return false;
    if (undoes) identity->input = fb_arg_node(graph, before, 0);
    return true;
}

/* Where(condition, x, y). */
static bool read_choice(const fb_graph *graph, fb_node call, fb_identity *identity) {
    fb_value condition = fb_node_arg(graph, call, 0);
    for (size_t i = 1; i <= 2; i++) {
        fb_value chosen = fb_node_arg(graph, call, i), other = fb_node_arg(graph, call, 3 - i);
        if (fb_is_absent(graph, chosen) || fb_is_absent(graph, other)) return false;
        identity->input = fb_value_node(graph, chosen);
        bool is_it = chosen.id == other.id || all_are(graph, condition, i == 1 ? is_not_zero : is_zero);
        if (is_it && identity->input.id && has_same_shape(graph, identity)) return true;
    }
    return false;
}

/* Is it the same argument, or the same numbers? */
static bool are_alike(const fb_graph *graph, fb_value one, fb_value other) {
    double a, b;
    if (fb_is_absent(graph, one) || fb_is_absent(graph, other)) return fb_is_absent(graph, one) && fb_is_absent(graph, other);
    return one.id == other.id || (fb_onnx_number(graph, one, &a) && fb_onnx_number(graph, other, &b) && a == b);
}

/* QuantizeLinear(DequantizeLinear(q, scale, zero), scale, zero). Of n = q - zero the one makes n * scale, rounded, and the
 * other rounds that, divided by the scale. Each of the two, or three where a runtime multiplies by 1 / scale, is off by
 * 2^-24 of itself in float32 and by 2^-11 in float16, where nothing over- or underflows: that is less than a half for |n| up to
 * 65,535 and 255. */
static bool read_requantised(const fb_graph *graph, fb_node call, fb_identity *identity) {
    fb_node before = call_before(graph, call);
    const fb_onnx_facts *facts = before.id ? fb_onnx_facts_of(fb_node_target(graph, before)) : NULL;
    if (!facts || !fb_is_spelled(fb_node_target(graph, before), FB_ONNX_DEFAULT "DequantizeLinear.")) return false;
    fb_node stored = fb_arg_node(graph, before, 0);
    fb_value scale = fb_node_arg(graph, call, 1);
    double factor;
    if (!stored.id || !fb_onnx_number(graph, scale, &factor) || !are_alike(graph, scale, fb_node_arg(graph, before, 1)) ||
        !are_alike(graph, fb_node_arg(graph, call, 2), fb_node_arg(graph, before, 2)))
        return false;
    fb_dtype dtype = (fb_dtype)fb_node_at(graph, stored)->dtype, real = (fb_dtype)fb_node_at(graph, before)->dtype;
    bool is_byte = dtype == FB_INT8 || dtype == FB_UINT8, is_short = dtype == FB_INT16 || dtype == FB_UINT16;
    double least = real == FB_FLOAT16 ? 0x1p-14 : 0x1p-126, most = real == FB_FLOAT16 ? 65504.0 / 255 : 0x1p127 / 65535;
    bool is_near = (real == FB_FLOAT32 && (is_byte || is_short)) || (real == FB_FLOAT16 && is_byte);
    identity->input = stored;
    return is_near && factor >= least && factor <= most && fb_node_at(graph, call)->dtype == (uint8_t)dtype &&
           !fb_node_kwarg(graph, call, "precision").id && has_same_shape(graph, identity);
}

static bool read_by_rule(const fb_graph *graph, fb_node call, const fb_onnx_facts *facts, fb_identity *identity) {
    switch (facts->identity) {
    case FB_IDENTITY_RULE_RETURNS: return true;
    case FB_IDENTITY_RULE_DROPS:
        if (is_in_training(graph, call)) doubt(identity, "training-mode", "it is in training mode, or may be");
        return true;
    case FB_IDENTITY_RULE_CASTS: return read_cast(graph, identity);
    case FB_IDENTITY_RULE_RESHAPES: return has_same_shape(graph, identity);
    case FB_IDENTITY_RULE_TURNS: return read_turn(graph, call, identity);
    case FB_IDENTITY_RULE_JOINS: return fb_value_at(graph, fb_node_at(graph, call)->args)->count == 1;
    case FB_IDENTITY_RULE_PADS: return read_pad(graph, call);
    case FB_IDENTITY_RULE_CUTS: return read_cut(graph, call, identity);
    case FB_IDENTITY_RULE_REPEATS: return read_again(graph, call, identity, false);
    case FB_IDENTITY_RULE_UNDOES: return read_again(graph, call, identity, true);
    case FB_IDENTITY_RULE_CHOOSES: return read_choice(graph, call, identity);
    case FB_IDENTITY_RULE_QUANTISES: return read_requantised(graph, call, identity);
    case FB_IDENTITY_RULE_ADDS:
    case FB_IDENTITY_RULE_SUBTRACTS:
    case FB_IDENTITY_RULE_SCALES: return read_arithmetic(graph, call, facts->identity, facts->is_commutative, identity);
    default: return false;
    }
}

enum { MAX_CHAIN = 16 };

/* Is every bit of it 0, as far as the document shows? What moves zeros gives zeros. */
static bool gives_zeros(const fb_graph *graph, fb_value value, int depth) {
    fb_node node = fb_value_node(graph, value);
    if (!node.id || !depth) return false;
    if (fb_node_at(graph, node)->opcode != FB_CALL_FUNCTION) return all_are(graph, value, is_positive_zero);
    const fb_onnx_facts *facts = fb_onnx_facts_of(fb_node_target(graph, node));
    if (!facts || fb_onnx_results(graph, node) >= 0) return false;
    if (facts->zeros == FB_ONNX_FILLED) {
        fb_value filled = fb_node_kwarg(graph, node, "value");
        return !filled.id || all_are(graph, filled, is_positive_zero);
    }
    bool moves = facts->identity == FB_IDENTITY_RULE_RETURNS || facts->identity == FB_IDENTITY_RULE_RESHAPES ||
                 facts->identity == FB_IDENTITY_RULE_TURNS;
    fb_value first = moves ? fb_node_arg(graph, node, 0) : (fb_value){0};
    return first.id && gives_zeros(graph, first, depth - 1);
}

size_t fb_onnx_needless_inputs(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    bool may_be = fb_graph_is_onnx(graph) && row->opcode == FB_CALL_FUNCTION;
    const fb_onnx_facts *facts = may_be ? fb_onnx_facts_of(fb_node_target(graph, node)) : NULL;
    const fb_value_row *args = fb_value_at(graph, row->args);
    enum { FIRST_STATE = 5, STATES = 2 };
    bool is_it = facts && facts->zeros == FB_ONNX_STATES && args->count > FIRST_STATE && args->count <= FIRST_STATE + STATES;
    for (uint32_t i = FIRST_STATE; i < args->count && is_it; i++)
        is_it = fb_is_absent(graph, args->items[i]) || gives_zeros(graph, args->items[i], MAX_CHAIN);
    return is_it ? FIRST_STATE : 0;
}

/* A value that becomes an output gets that one's name; so the one that goes, and the one that is renamed, must not be named
 * elsewhere. */
static void judge_names(const fb_graph *graph, fb_identity *identity) {
    bool is_kept = is_named(graph, identity->node) || (is_named(graph, identity->input) && fb_is_result(graph, identity->node));
    if (is_kept)
        doubt(identity, "named-elsewhere",
              "the model's training_info or quantization_annotation names its value, or its input's");
}

bool fb_onnx_identity_at(const fb_graph *graph, fb_node node, fb_identity *identity) {
    const fb_node_row *row = fb_node_at(graph, node);
    int64_t index = -1;
    if (row->opcode != FB_CALL_FUNCTION) return false;
    bool is_item = row->op == FB_OP_GETITEM;
    fb_node call = is_item ? fb_arg_node(graph, node, 0) : node;
    if (is_item && (!call.id || !fb_value_is_int(graph, fb_node_arg(graph, node, 1), &index) || index != 0)) return false;
    if (!is_item && fb_onnx_results(graph, call) >= 0) return false; /* its items are looked at */
    const fb_onnx_facts *facts = fb_onnx_facts_of(fb_node_target(graph, call));
    fb_value first = fb_node_arg(graph, call, 0);
    if (!facts || facts->identity == FB_IDENTITY_RULE_NEVER || fb_is_absent(graph, first)) return false;
    fb_identity found = {.node = node, .input = fb_value_node(graph, first), .form = FB_IDENTITY_COPY};
    if (!found.input.id || !read_by_rule(graph, call, facts, &found)) return false;
    judge_names(graph, &found);
    *identity = found;
    return true;
}
