/* Configs of modules, and what the views share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/operators/spelling.h"
#include "core/ops/shape.h"
#include "core/ops/view_internal.h"

/* ---- config ---------------------------------------------------------------------------------------------------------- */

bool fb_config_int(const fb_graph *graph, fb_module module, const char *key, int64_t fallback, int64_t *out) {
    fb_value value = fb_module_config(graph, module, key);
    int64_t number = fallback;
    if (value.id && !fb_value_is_int(graph, value, &number)) return false;
    *out = number;
    return true;
}

bool fb_config_number(const fb_graph *graph, fb_module module, const char *key, double fallback, double *out) {
    fb_value value = fb_module_config(graph, module, key);
    double number = fallback;
    bool is_big = value.id && fb_value_kind(graph, value) == FB_BIG_INT;
    if (is_big) number = strtod(fb_value_text(graph, value), NULL);
    else if (value.id && !fb_value_is_number(graph, value, &number)) return false;
    if (is_big && isinf(number)) return false;
    *out = number;
    return true;
}

/* ---- modules --------------------------------------------------------------------------------------------------------- */

bool fb_module_is_linear_like(const fb_graph *graph, fb_module module) {
    static const char word[] = "Linear";
    const size_t size = sizeof word - 1;
    if (fb_module_op(graph, module) != FB_OP_UNKNOWN) return false;
    const char *type = fb_text(graph, fb_module_at(graph, module)->type);
    const char *dot = strrchr(type, '.');
    const char *last = dot ? dot + 1 : type;
    size_t length = strlen(last);
    return length >= size && (memcmp(last, word, size) == 0 || memcmp(last + length - size, word, size) == 0);
}

bool fb_module_is_linear_subclass(const fb_graph *graph, fb_module module) {
    fb_tensor weight = fb_module_tensor(graph, module, "weight");
    int64_t in_features, out_features;
    return weight.id && fb_tensor_rank(graph, weight) == 2 && fb_module_is_linear_like(graph, module) &&
           fb_config_int(graph, module, "in_features", -1, &in_features) &&
           fb_config_int(graph, module, "out_features", -1, &out_features) &&
           fb_tensor_size(graph, weight, 0) == out_features && fb_tensor_size(graph, weight, 1) == in_features;
}

bool fb_is_aten(const fb_graph *graph, fb_node node) {
    return fb_node_at(graph, node)->opcode == FB_CALL_FUNCTION && fb_is_spelled(fb_node_target(graph, node), FB_ATEN);
}

bool fb_asserts_type_only(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (!fb_op_is(graph, node, FB_OP_ASSERT) || fb_value_at(graph, row->args)->count != 1) return false; /* size, stride */
    bool is_certain = !fb_node_kwarg(graph, node, "size").id && !fb_node_kwarg(graph, node, "stride").id;
    return is_certain && strcmp(fb_node_target(graph, node), "torch.ops.aten._assert_tensor_metadata.default") == 0;
}

bool fb_reads_type_only(const fb_graph *graph, fb_node node) {
    switch (fb_node_op(graph, node)) {
    case FB_OP_GETATTR: return fb_numberhood_of(graph, node) == FB_A_NUMBER;
    case FB_OP_SIZE:
    case FB_OP_SYM_SIZE:
    case FB_OP_DIM:
    case FB_OP_NUMEL:
    case FB_OP_LEN: return true;
    default: return fb_asserts_type_only(graph, node);
    }
}

/* How often the arguments of a node name an input. */
typedef struct mentions {
    fb_node input;
    int count;
} mentions;

static void count_mention(void *context, fb_node node) {
    mentions *m = context;
    m->count += node.id == m->input.id;
}

bool fb_reads_type_only_of(const fb_graph *graph, fb_node node, fb_node input) {
    if (fb_reads_type_only(graph, node)) return true;
    fb_op op = fb_node_op(graph, node);
    bool has_other = op == FB_OP_VIEW_AS || op == FB_OP_EXPAND_AS || op == FB_OP_TYPE_AS;
    bool is_like = op == FB_OP_ZEROS_LIKE || op == FB_OP_ONES_LIKE || op == FB_OP_FULL_LIKE || op == FB_OP_NEW_ZEROS ||
                   op == FB_OP_NEW_ONES || op == FB_OP_NEW_FULL;
    if (!has_other && !is_like) return false;
    mentions m = {.input = input};
    fb_value_visit_nodes(graph, fb_node_at(graph, node)->args, count_mention, &m);
    fb_value_visit_nodes(graph, fb_node_at(graph, node)->kwargs, count_mention, &m);
    return m.count == 1 && fb_call_argument_node(graph, node, has_other ? "other" : "input").id == input.id;
}

/* ---- arguments ------------------------------------------------------------------------------------------------------- */

bool fb_is_vector_or_none(const fb_graph *graph, fb_tensor tensor, int64_t size) {
    return !tensor.id || (fb_tensor_rank(graph, tensor) == 1 && fb_tensor_size(graph, tensor, 0) == size);
}

bool fb_sole_input(const fb_graph *graph, fb_node node, fb_node *input) {
    if (fb_node_at(graph, node)->opcode != FB_CALL_MODULE) return false;
    *input = fb_value_node(graph, fb_call_only_argument(graph, node, "input"));
    return input->id;
}

bool fb_tensor_read_by(const fb_graph *graph, fb_value argument, fb_node *read, fb_tensor *tensor) {
    fb_node node = argument.id ? fb_value_node(graph, argument) : (fb_node){0};
    if (!node.id) return false;
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->opcode != FB_GET_ATTR || !row->attribute.id || row->program.id != FB_MAIN_PROGRAM.id) return false;
    fb_tensor found = fb_module_tensor(graph, row->module, fb_text(graph, row->attribute));
    if (!found.id) return false;
    *read = node;
    *tensor = found;
    return true;
}

/* Does the call exchange the two dimensions of a matrix? */
static bool is_transposition(const fb_graph *graph, fb_node node) {
    fb_call call = {.graph = graph, .node = node, .op = fb_node_op(graph, node)};
    fb_sizes dims;
    int a, b;
    switch (call.op) {
    case FB_OP_T: return fb_call_has_only(graph, node, "input");
    case FB_OP_TRANSPOSE:
        return fb_call_argument(graph, node, "dim0").id && fb_call_argument(graph, node, "dim1").id &&
               fb_option_axis(&call, "dim0", 0, 2, &a) && fb_option_axis(&call, "dim1", 0, 2, &b) && a != b;
    case FB_OP_PERMUTE:
        return fb_sizes_named(&call, "dims", &dims) && dims.count == 2 && !dims.items[0].symbol.id &&
               !dims.items[1].symbol.id && fb_normalise_axis(dims.items[0].size, 2, &a) &&
               fb_normalise_axis(dims.items[1].size, 2, &b) && a == 1 && b == 0;
    default: return false;
    }
}

bool fb_matrix_read_by_node(const fb_graph *graph, fb_node node, fb_node *read, fb_node *transposition, fb_tensor *tensor) {
    fb_node found;
    fb_tensor matrix;
    if (!is_transposition(graph, node) || !fb_tensor_read_by(graph, fb_first_argument(graph, node), &found, &matrix))
        return false;
    if (fb_tensor_rank(graph, matrix) != 2) return false;
    *read = found;
    *transposition = node;
    *tensor = matrix;
    return true;
}

/* The matrix that a get_attr node reads, as an argument; transposed on the way where `transposition` is not none. */
static bool matrix_read_by(const fb_graph *graph, fb_value argument, fb_node *read, fb_node *transposition, fb_tensor *tensor) {
    fb_node node = argument.id ? fb_value_node(graph, argument) : (fb_node){0};
    if (node.id && fb_matrix_read_by_node(graph, node, read, transposition, tensor)) return true;
    if (!fb_tensor_read_by(graph, argument, read, tensor) || fb_tensor_rank(graph, *tensor) != 2) return false;
    *transposition = (fb_node){0};
    return true;
}

fb_node fb_call_of_value(const fb_graph *graph, fb_node node) {
    int64_t index;
    if (!fb_op_is(graph, node, FB_OP_GETITEM)) return node;
    fb_value item = fb_node_arg(graph, node, 1), from = fb_node_arg(graph, node, 0);
    fb_node call = from.id ? fb_value_node(graph, from) : (fb_node){0};
    bool is_first = call.id && item.id && fb_value_is_int(graph, item, &index) && index == 0;
    return is_first && fb_op_facts_of(fb_node_op(graph, call))->flags & FB_FACT_TUPLE ? call : node;
}

fb_value fb_next_argument(fb_call_reader *reader, const char *parameter) {
    fb_value value = fb_call_argument(reader->graph, reader->node, parameter);
    reader->seen += value.id != 0;
    return value;
}

fb_node fb_next_input(fb_call_reader *reader, const char *parameter) {
    fb_value value = fb_next_argument(reader, parameter);
    fb_node input = value.id ? fb_value_node(reader->graph, value) : (fb_node){0};
    reader->is_wrong |= !input.id;
    return input;
}

fb_tensor fb_next_tensor(fb_call_reader *reader, const char *parameter, bool is_optional, fb_node *read) {
    fb_value value = fb_next_argument(reader, parameter);
    fb_tensor tensor = {0};
    *read = (fb_node){0};
    bool is_absent = !value.id || fb_value_kind(reader->graph, value) == FB_NONE;
    if (is_absent) reader->is_wrong |= !is_optional;
    else reader->is_wrong |= !fb_tensor_read_by(reader->graph, value, read, &tensor);
    return tensor;
}

fb_tensor fb_next_matrix(fb_call_reader *reader, const char *parameter, fb_node *read, fb_node *transposition) {
    fb_tensor tensor = {0};
    *read = *transposition = (fb_node){0};
    reader->is_wrong |= !matrix_read_by(reader->graph, fb_next_argument(reader, parameter), read, transposition, &tensor);
    return tensor;
}

bool fb_next_bool(fb_call_reader *reader, const char *parameter, bool fallback) {
    fb_value value = fb_next_argument(reader, parameter);
    if (!value.id) return fallback;
    fb_kind kind = fb_value_kind(reader->graph, value);
    reader->is_wrong |= kind != FB_TRUE && kind != FB_FALSE;
    return kind == FB_TRUE;
}

double fb_next_number(fb_call_reader *reader, const char *parameter, double fallback) {
    fb_value value = fb_next_argument(reader, parameter);
    double number = fallback;
    reader->is_wrong |= value.id && !fb_value_is_number(reader->graph, value, &number);
    return number;
}

bool fb_is_read_whole(const fb_call_reader *reader) {
    const fb_node_row *row = fb_node_at(reader->graph, reader->node);
    size_t given = fb_value_at(reader->graph, row->args)->count + fb_value_at(reader->graph, row->kwargs)->count / 2;
    return !reader->is_wrong && given == reader->seen;
}
