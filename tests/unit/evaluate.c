#include "tests/unit/evaluate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"
#include "tests/unit/evaluate_machine.h"
#include "tests/unit/numbers.h"

double machine_number(uint64_t seed, const char *name, int64_t index) {
    uint64_t hash = fb_hash(name, strlen(name), seed + (uint64_t)index * 0x9e3779b97f4a7c15u);
    hash ^= hash >> 29;
    hash *= 0xbf58476d1ce4e5b9u;
    return 0.1 + (double)(hash >> 11) * 0x1p-53;
}

static value random_tensor(machine *m, const char *name, int rank, const int64_t *sizes, double low) {
    value result = tensor_value(&m->arena, rank, sizes);
    int64_t count = result.kind == V_TENSOR ? element_count(&result) : 0;
    for (int64_t i = 0; i < count; i++) result.data[i] = machine_number(m->seed, name, i) + low;
    return result;
}

/* ---- tensors and recipes ------------------------------------------------------------------------------------------------- */

int machine_ints(const machine *m, fb_value list, int64_t *out) {
    int count = 0;
    while (count < MAX_DIMS && fb_value_is_int(m->graph, fb_value_item(m->graph, list, (size_t)count), &out[count])) count++;
    return count;
}

static int64_t int_of(const machine *m, fb_value members, const char *key) {
    int64_t number = 0;
    fb_value_is_int(m->graph, fb_map_value(m->graph, members, key), &number);
    return number;
}

static value recipe_of(machine *m, fb_value expression) {
    const fb_graph *g = m->graph;
    const fb_value_row *row = fb_value_at(g, expression);
    if (row->kind == FB_TENSOR) return machine_tensor(m, fb_value_tensor(g, expression));
    const char *op = fb_text(g, row->symbol);
    fb_value list = row->items[0], members = row->items[1];
    size_t count = fb_value_at(g, list)->count;
    value args = tuple_value(&m->arena, count + 2);
    for (size_t i = 0; i < count; i++) args.items[i] = recipe_of(m, fb_value_item(g, list, i));
    const value *a = &args.items[0], *b = &args.items[1];
    int64_t ints[MAX_DIMS];
    double number = 0;
    if (strcmp(op, "concat") == 0) return concatenate(&m->arena, args.items, count, int_of(m, members, "axis"));
    if (strcmp(op, "slice") == 0)
        return slice_of(a, (int)int_of(m, members, "axis"), int_of(m, members, "start"), int_of(m, members, "stop"), 1);
    if (strcmp(op, "reshape") == 0) {
        int rank = machine_ints(m, fb_map_value(g, members, "shape"), ints);
        return reshaped(&m->arena, a, rank, ints);
    }
    if (strcmp(op, "permute") == 0) {
        machine_ints(m, fb_map_value(g, members, "dims"), ints);
        return permuted(a, ints);
    }
    if (strcmp(op, "full") == 0) {
        int rank = machine_ints(m, fb_map_value(g, members, "shape"), ints);
        value result = tensor_value(&m->arena, rank, ints), item;
        fb_value_is_number(g, fb_map_value(g, members, "value"), &number);
        item = number_value(number, false);
        write_into(&result, &item);
        return result;
    }
    if (strcmp(op, "add") == 0) return map_binary(&m->arena, a, b, sum_of);
    if (strcmp(op, "sub") == 0) return map_binary(&m->arena, a, b, difference_of);
    if (strcmp(op, "mul") == 0) return map_binary(&m->arena, a, b, product_of);
    if (strcmp(op, "div") == 0) return map_binary(&m->arena, a, b, quotient_of);
    if (strcmp(op, "neg") == 0) return map_unary(&m->arena, a, negative_of);
    if (strcmp(op, "sqrt") == 0) return map_unary(&m->arena, a, sqrt);
    if (strcmp(op, "rsqrt") == 0) return map_unary(&m->arena, a, inverse_root_of);
    if (strcmp(op, "exp") == 0) return map_unary(&m->arena, a, exp);
    if (strcmp(op, "sin") == 0) return map_unary(&m->arena, a, sin);
    if (strcmp(op, "cos") == 0) return map_unary(&m->arena, a, cos);
    if (strcmp(op, "maximum") == 0) return map_binary(&m->arena, a, b, maximum_of);
    if (strcmp(op, "minimum") == 0) return map_binary(&m->arena, a, b, minimum_of);
    if (strcmp(op, "index_select") == 0) return index_select(&m->arena, a, (int)int_of(m, members, "axis"), b);
    if (strcmp(op, "round") == 0) return map_unary(&m->arena, a, rint);
    if (strcmp(op, "absmax") == 0) return absmax(&m->arena, a, ints, machine_ints(m, fb_map_value(g, members, "dims"), ints));
    if (strcmp(op, "matmul") == 0) return matmul(&m->arena, a, b);
    fprintf(stderr, "the evaluator knows no recipe %s\n", op);
    abort();
}

static value inline_tensor(machine *m, const fb_tensor_row *row) {
    fb_buffer bytes = {0};
    int64_t sizes[MAX_DIMS];
    int rank = machine_ints(m, row->shape, sizes);
    value result = tensor_value(&m->arena, rank, sizes);
    decode_base64(fb_text(m->graph, row->data), &bytes);
    size_t count = bytes.size / fb_dtype_size((fb_dtype)row->dtype);
    if (result.kind != V_TENSOR || count != (size_t)element_count(&result)) abort();
    decode_numbers((fb_dtype)row->dtype, (const unsigned char *)bytes.data, count, result.data);
    fb_buffer_free(&bytes);
    return result;
}

static value rounded(machine *m, fb_dtype dtype, const value *made) {
    fb_buffer bytes = {0};
    if (made->kind != V_TENSOR || !has_numbers(dtype)) return *made;
    value result = copy_of(&m->arena, made);
    size_t count = (size_t)element_count(&result);
    encode_numbers(dtype, result.data, count, &bytes);
    decode_numbers(dtype, (const unsigned char *)bytes.data, count, result.data);
    fb_buffer_free(&bytes);
    return result;
}

value machine_tensor(machine *m, fb_tensor tensor) {
    if (!tensor.id) return (value){.kind = V_NONE};
    if (m->is_made[tensor.id]) return m->tensors[tensor.id];
    const fb_tensor_row *row = fb_tensor_at(m->graph, tensor);
    int64_t sizes[MAX_DIMS];
    value made;
    if (row->recipe.id) made = recipe_of(m, row->recipe);
    else if (row->data.id) made = inline_tensor(m, row);
    else {
        fb_symbol content = row->digest.id ? row->digest : row->name;
        made = random_tensor(m, fb_text(m->graph, content), machine_ints(m, row->shape, sizes), sizes, 0);
    }
    if (row->recipe.id && m->is_rounded) made = rounded(m, (fb_dtype)row->dtype, &made);
    else if (row->recipe.id && fb_value_kind(m->graph, row->recipe) == FB_EXPRESSION) made = copy_of(&m->arena, &made);
    m->is_made[tensor.id] = true;
    return m->tensors[tensor.id] = made;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------- */

static value value_of(machine *m, fb_value given) {
    const fb_graph *g = m->graph;
    const fb_value_row *row = fb_value_at(g, given);
    value result = {0};
    switch ((fb_kind)row->kind) {
    case FB_NODE: return m->nodes[fb_value_node(g, given).id];
    case FB_NONE: return (value){.kind = V_NONE};
    case FB_FALSE: return (value){.kind = V_BOOL, .is_int = true};
    case FB_TRUE: return (value){.kind = V_BOOL, .is_int = true, .number = 1};
    case FB_INT: return number_value((double)row->integer, true);
    case FB_FLOAT: return number_value(row->real, false);
    case FB_ELLIPSIS: return (value){.kind = V_ELLIPSIS};
    case FB_LIST:
    case FB_TUPLE:
    case FB_SIZE:
    case FB_SLICE:
        result = tuple_value(&m->arena, row->count);
        if (row->kind == FB_SLICE) result.kind = V_SLICE;
        for (uint32_t i = 0; i < row->count; i++) result.items[i] = value_of(m, row->items[i]);
        return result;
    case FB_STRING:
    case FB_DTYPE:
    case FB_DEVICE: return (value){.kind = V_TEXT, .text = fb_value_text(g, given)};
    default: return result;
    }
}

static value make_input(machine *m, const fb_node_row *row) {
    int64_t sizes[MAX_DIMS];
    int rank = 0;
    const char *actual = fb_value_text(m->graph, fb_map_value(m->graph, row->meta_rest, "actual"));
    if (actual) {
        char *end = (char *)(uintptr_t)actual + 1;
        while (*end && *end != ']' && rank < MAX_DIMS) {
            sizes[rank++] = strtol(end, &end, 10);
            if (*end == ',') end++;
        }
    } else {
        if (!row->shape.id) return (value){0};
        rank = (int)fb_value_at(m->graph, row->shape)->count;
        for (int i = 0; i < rank && i < MAX_DIMS; i++) {
            if (!fb_value_is_int(m->graph, fb_value_item(m->graph, row->shape, (size_t)i), &sizes[i])) sizes[i] = 2;
        }
    }
    return random_tensor(m, fb_text(m->graph, row->target), rank, sizes, -0.6);
}

static value read_attribute(machine *m, const fb_node_row *row) {
    if (!row->module.id || !row->attribute.id) return (value){.kind = V_TEXT, .text = "program"};
    const char *name = fb_text(m->graph, row->attribute);
    fb_tensor tensor = fb_module_tensor(m->graph, row->module, name);
    if (tensor.id) return machine_tensor(m, tensor);
    fb_value plain = fb_map_value(m->graph, fb_module_at(m->graph, row->module)->attributes, name);
    return plain.id ? value_of(m, plain) : (value){.kind = V_NONE};
}

static void read_recorded_sizes(machine *m, const fb_node_row *row, call *c) {
    int rank = row->shape.id ? fb_shape_rank(m->graph, row->shape) : -1;
    if (rank < 0 || rank > MAX_DIMS) return;
    int64_t *sizes = take(&m->arena, MAX_DIMS * sizeof *sizes);
    for (int i = 0; i < rank; i++) {
        if (!fb_value_is_int(m->graph, fb_value_item(m->graph, row->shape, (size_t)i), &sizes[i])) sizes[i] = -1;
    }
    c->recorded = sizes;
    c->recorded_rank = rank;
}

/* A function that is given a nested program, and then what that takes. */
static bool run_wrapped(machine *m, const fb_value_row *args, const call *c, value *out) {
    for (size_t i = 0; i < c->count; i++) {
        fb_node program = fb_value_node(m->graph, args->items[i]);
        const fb_node_row *row = program.id ? fb_node_at(m->graph, program) : NULL;
        if (!row || row->opcode != FB_GET_ATTR || !row->module.id || row->attribute.id) continue;
        machine_run(m, fb_module_at(m->graph, row->module)->program, c->args + i + 1, c->count - i - 1, out);
        return true;
    }
    return false;
}

static value run_call(machine *m, fb_node node) {
    const fb_graph *g = m->graph;
    const fb_node_row *row = fb_node_at(g, node);
    const fb_value_row *args = fb_value_at(g, row->args), *kwargs = fb_value_at(g, row->kwargs);
    call c = {.arena = &m->arena, .count = args->count, .named_count = kwargs->count / 2, .unknown = &m->unknown};
    c.args = take(&m->arena, c.count * sizeof *c.args);
    c.named = take(&m->arena, c.named_count * sizeof *c.named);
    c.keywords = take(&m->arena, c.named_count * sizeof *c.keywords);
    for (size_t i = 0; i < c.count; i++) c.args[i] = value_of(m, args->items[i]);
    for (size_t i = 0; i < c.named_count; i++) {
        c.keywords[i] = fb_value_text(g, kwargs->items[2 * i]);
        c.named[i] = value_of(m, kwargs->items[2 * i + 1]);
    }
    read_recorded_sizes(m, row, &c);
    if (row->opcode == FB_CALL_MODULE) return evaluate_module(m, row->module, &c);
    value wrapped;
    if (run_wrapped(m, args, &c, &wrapped)) return wrapped;
    const char *target = fb_text(g, row->target);
    char *spelled = take(&m->arena, strlen(target) + 2);
    snprintf(spelled, strlen(target) + 2, "%s%s", row->opcode == FB_CALL_METHOD ? "." : "", target);
    c.target = spelled;
    value result;
    return evaluate_call(&c, &result) ? result : do_anything(&c, 1);
}

/* Has it other sizes than the graph says? */
static bool is_untrue(const machine *m, const fb_node_row *row, const value *made) {
    if (made->kind != V_TENSOR || !row->shape.id) return false;
    if (fb_shape_rank(m->graph, row->shape) != made->rank) return true;
    for (int i = 0; i < made->rank; i++) {
        int64_t size;
        if (fb_value_is_int(m->graph, fb_value_item(m->graph, row->shape, (size_t)i), &size) && size != made->sizes[i])
            return true;
    }
    return false;
}

void machine_run(machine *m, fb_program program, value *inputs, size_t count, value *out) {
    size_t used = 0;
    for (fb_node n = fb_first_node(m->graph, program); n.id; n = fb_node_at(m->graph, n)->next) {
        const fb_node_row *row = fb_node_at(m->graph, n);
        value result = {0};
        switch ((fb_opcode)row->opcode) {
        case FB_PLACEHOLDER:
            result = used < count ? inputs[used] : (value){0};
            used++;
            break;
        case FB_GET_ATTR: result = read_attribute(m, row); break;
        case FB_OUTPUT: result = value_of(m, fb_value_item(m->graph, row->args, 0)); break;
        default: result = run_call(m, n);
        }
        m->nodes[n.id] = result;
        m->unusable += result.kind == V_UNUSABLE;
        m->untrue += is_untrue(m, row, &result);
        if (row->opcode == FB_OUTPUT) *out = result;
    }
}

/* ---- results ------------------------------------------------------------------------------------------------------------- */

static void write_number(fb_buffer *out, double number) {
    fb_buffer_append(out, &number, sizeof number);
}

static void write_value(fb_buffer *out, const value *v) {
    write_number(out, (double)v->kind);
    if (v->kind == V_NUMBER || v->kind == V_BOOL) write_number(out, v->number);
    if (v->kind == V_TENSOR) {
        write_number(out, v->rank);
        for (int i = 0; i < v->rank; i++) write_number(out, (double)v->sizes[i]);
        int64_t count = element_count(v);
        for (int64_t i = 0; i < count; i++) write_number(out, *element(v, i));
    }
    if (v->kind == V_TUPLE) {
        write_number(out, (double)v->count);
        for (size_t i = 0; i < v->count; i++) write_value(out, &v->items[i]);
    }
}

static machine machine_for(const fb_graph *graph, uint64_t seed) {
    machine m = {.graph = graph, .seed = seed};
    m.nodes = take(&m.arena, fb_node_limit(graph) * sizeof *m.nodes);
    m.tensors = take(&m.arena, fb_tensor_limit(graph) * sizeof *m.tensors);
    m.is_made = take(&m.arena, fb_tensor_limit(graph) * sizeof *m.is_made);
    return m;
}

double *evaluate_tensor(const fb_graph *graph, uint64_t seed, fb_tensor tensor, size_t *count) {
    machine m = machine_for(graph, seed);
    m.is_rounded = true;
    value made = machine_tensor(&m, tensor);
    double *numbers = NULL;
    *count = 0;
    if (made.kind == V_TENSOR) {
        *count = (size_t)element_count(&made);
        numbers = calloc(*count + 1, sizeof *numbers);
        if (!numbers) abort();
        for (size_t i = 0; i < *count; i++) numbers[i] = *element(&made, (int64_t)i);
    }
    fb_arena_free(&m.arena);
    return numbers;
}

void evaluate(const fb_graph *graph, uint64_t seed, evaluation *out) {
    machine m = machine_for(graph, seed);
    *out = (evaluation){0};
    size_t count = 0;
    value inputs = tuple_value(&m.arena, fb_node_count(graph)), result = {0};
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_node_at(graph, n)->next) {
        if (fb_node_at(graph, n)->opcode == FB_PLACEHOLDER) inputs.items[count++] = make_input(&m, fb_node_at(graph, n));
    }
    inputs.count = count;
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) machine_tensor(&m, t);
    machine_run(&m, FB_MAIN_PROGRAM, inputs.items, count, &result);
    write_value(&out->numbers, &result);
    write_value(&out->numbers, &inputs);
    out->unusable = m.unusable;
    out->untrue = m.untrue;
    out->unknown = m.unknown;
    fb_arena_free(&m.arena);
}

void evaluation_free(evaluation *done) {
    fb_buffer_free(&done->numbers);
}

/* What stands behind the value written there. */
static const double *behind(const double *at) {
    value_kind kind = (value_kind)*at++;
    if (kind == V_NUMBER || kind == V_BOOL) return at + 1;
    if (kind == V_TENSOR) {
        size_t count = 1;
        for (int rank = (int)*at++; rank > 0; rank--) count *= (size_t)*at++;
        return at + count;
    }
    if (kind == V_TUPLE)
        for (size_t count = (size_t)*at++; count > 0; count--) at = behind(at);
    return at;
}

static bool numbers_agree(double x, double y, double tolerance, double largest) {
    /* Past the largest double the order of a sum decides between inf and nan. */
    bool is_finite_x = fabs(x) < 1e300, is_finite_y = fabs(y) < 1e300;
    return is_finite_x == is_finite_y && (!is_finite_x || fabs(x - y) <= tolerance * (largest + fabs(x)));
}

static bool values_agree(const double *x, const double *y, double tolerance, double largest, fb_buffer *why) {
    size_t count = (size_t)(behind(x) - x);
    if ((value_kind)*x == V_UNUSABLE) return true;
    if ((value_kind)*x == V_TUPLE && x[0] == y[0] && x[1] == y[1]) {
        const double *a = x + 2, *b = y + 2;
        for (size_t i = 0; i < (size_t)x[1]; i++, a = behind(a), b = behind(b))
            if (!values_agree(a, b, tolerance, largest, why)) return false;
        return true;
    }
    if (count != (size_t)(behind(y) - y)) {
        fb_buffer_printf(why, "%zu numbers before, %zu after", count, (size_t)(behind(y) - y));
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (numbers_agree(x[i], y[i], tolerance, largest)) continue;
        fb_buffer_printf(why, "number %zu of %zu: %.17g before, %.17g after", i, count, x[i], y[i]);
        return false;
    }
    return true;
}

bool evaluations_agree(const evaluation *a, const evaluation *b, double tolerance, fb_buffer *why) {
    const double *x = (const double *)(const void *)a->numbers.data, *y = (const double *)(const void *)b->numbers.data;
    double largest = 0;
    for (size_t i = 0; i < a->numbers.size / sizeof *x; i++) {
        if (isfinite(x[i]) && fabs(x[i]) > largest && fabs(x[i]) < 1e6) largest = fabs(x[i]);
    }
    /* The result, and the inputs. */
    return values_agree(x, y, tolerance, largest, why) && values_agree(behind(x), behind(y), tolerance, largest, why);
}
