/* Calls of ONNX's operators: their arguments, and the parts that they are made of. */
#include "core/evaluator/onnx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/namespace.h"
#include "core/operators/onnx.h"

#define PREVIEW "ai.onnx.preview."

/* ---- failing ------------------------------------------------------------------------------------------------------------ */

#define FAILURE(name, fail)                                                                                                    \
    fb_array *name(onnx_op *op, const char *format, ...) {                                                                     \
        char why[200];                                                                                                         \
        va_list list;                                                                                                          \
        va_start(list, format);                                                                                                \
        vsnprintf(why, sizeof why, format, list);                                                                              \
        va_end(list);                                                                                                          \
        fail(op->call, "%s", why);                                                                                             \
        return NULL;                                                                                                           \
    }
FAILURE(onnx_refuse, fb_kernel_unsupported)
FAILURE(onnx_undefined, fb_kernel_undefined)
FAILURE(onnx_fail, fb_kernel_fail)

/* ---- what is kept until the operator has ended --------------------------------------------------------------------------- */

static bool keep_object(onnx_op *op, fb_object object) {
    if (op->kept_count < ONNX_KEPT) {
        op->kept[op->kept_count++] = object;
        return true;
    }
    fb_object_drop(&object);
    onnx_refuse(op, "it has too many parts");
    return false;
}

fb_array *onnx_keep(onnx_op *op, fb_array *array) {
    return array && keep_object(op, (fb_object){.kind = FB_OBJECT_ARRAY, .array = array}) ? array : NULL;
}

fb_object onnx_list(onnx_op *op, const int64_t *items, int count) {
    fb_object list = {.kind = FB_OBJECT_NONE};
    if (!onnx_ok(op)) return list;
    op->call->status = fb_object_sequence(FB_OBJECT_TUPLE, (size_t)count, &list, op->call->error);
    for (int i = 0; i < count && onnx_ok(op); i++)
        list.items->objects[i] = (fb_object){.kind = FB_OBJECT_INT, .integer = items[i]};
    if (!onnx_ok(op) || !keep_object(op, list)) return (fb_object){.kind = FB_OBJECT_NONE};
    return list;
}

fb_object onnx_arrays(onnx_op *op, fb_array *const *items, size_t count) {
    fb_object list = {.kind = FB_OBJECT_NONE};
    if (!onnx_ok(op)) return list;
    op->call->status = fb_object_sequence(FB_OBJECT_TUPLE, count, &list, op->call->error);
    for (size_t i = 0; i < count && onnx_ok(op); i++)
        list.items->objects[i] = (fb_object){.kind = FB_OBJECT_ARRAY, .array = fb_array_keep(items[i])};
    if (!onnx_ok(op) || !keep_object(op, list)) return (fb_object){.kind = FB_OBJECT_NONE};
    return list;
}

/* A uint64 is held as an int64, whose order and quotients are those of numbers below 2^63 alone. */
static fb_array *check_unsigned(onnx_op *op, fb_array *array) {
    if (!array || array->dtype != FB_UINT64) return array;
    fb_walk walk;
    bool is_beyond = false;
    for (fb_walk_begin(&walk, array, NULL); fb_walk_more(&walk); fb_walk_next(&walk))
        for (int64_t i = 0; i < walk.count; i++) is_beyond |= ((const int64_t *)walk.data[0])[i * walk.strides[0]] < 0;
    return is_beyond ? onnx_undefined(op, "numbers of uint64 from 2^63 on are not evaluated") : array;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------------- */

size_t onnx_in_count(const onnx_op *op) {
    return op->args->count;
}

/* Is there such an input, and is it not omitted? */
static bool has_input(onnx_op *op, size_t index) {
    if (index < 64) op->call->read_args |= (uint64_t)1 << index;
    return index < op->args->count && fb_value_kind(op->call->graph, op->args->items[index]) != FB_NONE;
}

fb_array *onnx_maybe(onnx_op *op, size_t index) {
    fb_object object;
    if (!has_input(op, index) || !onnx_ok(op)) return NULL;
    op->call->status = fb_evaluate_value(op->call->evaluator, op->args->items[index], &object);
    if (!onnx_ok(op)) return NULL;
    if (object.kind == FB_OBJECT_ARRAY && !fb_dtype_is_complex(object.array->dtype))
        return check_unsigned(op, onnx_keep(op, object.array));
    fb_object_drop(&object);
    return onnx_refuse(op, "its input %zu is not a tensor of numbers", index);
}

fb_array *onnx_in(onnx_op *op, size_t index) {
    if (onnx_ok(op) && !has_input(op, index)) return onnx_fail(op, "it lacks its input %zu", index);
    return onnx_maybe(op, index);
}

int onnx_in_ints(onnx_op *op, size_t index, int64_t out[FB_MAX_RANK]) {
    fb_array *array = onnx_maybe(op, index);
    if (!array) return -1;
    int64_t count = fb_array_count(array);
    if (array->held != FB_HELD_INT || array->rank > 1 || count > FB_MAX_RANK) {
        onnx_refuse(op, "its input %zu is not a short list of integers", index);
        return -1;
    }
    for (int64_t i = 0; i < count; i++) out[i] = fb_array_int(array, i);
    return (int)count;
}

int64_t onnx_in_int(onnx_op *op, size_t index, int64_t fallback) {
    fb_array *array = onnx_maybe(op, index);
    if (!array) return fallback;
    if (fb_array_count(array) == 1 && (array->held == FB_HELD_INT || array->held == FB_HELD_BOOL))
        return fb_array_int(array, 0);
    onnx_refuse(op, "its input %zu is not an integer", index);
    return fallback;
}

/* ---- attributes --------------------------------------------------------------------------------------------------------- */

static fb_value value_in(const fb_graph *graph, const fb_value_row *kwargs, const char *name, uint32_t *place) {
    for (uint32_t i = 0; i + 1 < kwargs->count; i += 2) {
        if (strcmp(fb_text(graph, fb_value_at(graph, kwargs->items[i])->symbol), name) != 0) continue;
        *place = i / 2;
        return kwargs->items[i + 1];
    }
    return (fb_value){0};
}

/* An attribute that is one of the function around it has the value that the function's call gives, or the default. */
fb_value onnx_attribute(onnx_op *op, const char *name) {
    const fb_graph *graph = op->call->graph;
    const fb_onnx_scope *scope = op->call->evaluator->scope;
    uint32_t place = 0;
    fb_value value = value_in(graph, op->kwargs, name, &place);
    if (value.id && place < 64) op->call->read_kwargs |= (uint64_t)1 << place;
    for (; value.id && scope && fb_value_kind(graph, value) == FB_OPAQUE; scope = scope->outer) {
        const char *of_function = fb_value_text(graph, value);
        value = value_in(graph, scope->kwargs, of_function, &place);
        if (!value.id) value = fb_map_value(graph, scope->defaults, of_function);
        if (!value.id) onnx_refuse(op, "its attribute %s is one of the function, which is not given", name);
    }
    return value;
}

void onnx_ignore(onnx_op *op, const char *name) {
    onnx_attribute(op, name);
}

bool onnx_has_attribute(onnx_op *op, const char *name) {
    return onnx_attribute(op, name).id != 0;
}

int64_t onnx_int(onnx_op *op, const char *name, int64_t fallback) {
    fb_value value = onnx_attribute(op, name);
    int64_t found = fallback;
    if (value.id && !fb_value_is_int(op->call->graph, value, &found)) onnx_refuse(op, "its attribute %s is not an int", name);
    return found;
}

double onnx_float(onnx_op *op, const char *name, double fallback) {
    fb_value value = onnx_attribute(op, name);
    double found = fallback;
    if (value.id && !fb_value_is_number(op->call->graph, value, &found))
        onnx_refuse(op, "its attribute %s is not a float", name);
    return found;
}

const char *onnx_text(onnx_op *op, const char *name, const char *fallback) {
    fb_value value = onnx_attribute(op, name);
    if (!value.id) return fallback;
    if (fb_value_kind(op->call->graph, value) == FB_STRING) return fb_value_text(op->call->graph, value);
    onnx_refuse(op, "its attribute %s is not a string", name);
    return fallback;
}

int onnx_ints(onnx_op *op, const char *name, int64_t out[FB_MAX_RANK]) {
    fb_value value = onnx_attribute(op, name);
    if (!value.id) return -1;
    const fb_value_row *row = fb_value_at(op->call->graph, value);
    bool fits = row->kind == FB_LIST && row->count <= FB_MAX_RANK;
    for (uint32_t i = 0; fits && i < row->count; i++) fits = fb_value_is_int(op->call->graph, row->items[i], &out[i]);
    if (fits) return (int)row->count;
    onnx_refuse(op, "its attribute %s is not a short list of ints", name);
    return -1;
}

int onnx_floats(onnx_op *op, const char *name, double out[FB_MAX_RANK]) {
    fb_value value = onnx_attribute(op, name);
    if (!value.id) return -1;
    const fb_value_row *row = fb_value_at(op->call->graph, value);
    bool fits = row->kind == FB_LIST && row->count <= FB_MAX_RANK;
    for (uint32_t i = 0; fits && i < row->count; i++) fits = fb_value_is_number(op->call->graph, row->items[i], &out[i]);
    if (fits) return (int)row->count;
    onnx_refuse(op, "its attribute %s is not a short list of floats", name);
    return -1;
}

fb_array *onnx_tensor(onnx_op *op, const char *name) {
    fb_value value = onnx_attribute(op, name);
    fb_object object;
    if (!value.id || !onnx_ok(op)) return NULL;
    op->call->status = fb_evaluate_value(op->call->evaluator, value, &object);
    if (!onnx_ok(op)) return NULL;
    if (object.kind == FB_OBJECT_ARRAY) return onnx_keep(op, object.array);
    fb_object_drop(&object);
    return onnx_refuse(op, "its attribute %s is not a tensor", name);
}

int onnx_axis_of(onnx_op *op, int64_t axis, int rank) {
    int64_t limit = rank ? rank : 1;
    if (axis >= -limit && axis < limit) return (int)(axis < 0 ? axis + limit : axis);
    onnx_fail(op, "%lld is not an axis of a tensor of %d dimensions", (long long)axis, rank);
    return 0;
}

int onnx_axis(onnx_op *op, const char *name, int64_t fallback, const fb_array *array) {
    int64_t axis = onnx_int(op, name, fallback);
    return array ? onnx_axis_of(op, axis, array->rank) : 0;
}

fb_dtype onnx_dtype(onnx_op *op, int64_t number) {
    static const fb_dtype dtypes[] = {
        [1] = FB_FLOAT32, [2] = FB_UINT8,   [3] = FB_INT8,     [4] = FB_UINT16,   [5] = FB_INT16,
        [6] = FB_INT32,   [7] = FB_INT64,   [9] = FB_BOOL,     [10] = FB_FLOAT16, [11] = FB_FLOAT64,
        [12] = FB_UINT32, [13] = FB_UINT64, [16] = FB_BFLOAT16};
    fb_dtype found = number > 0 && number < (int64_t)(sizeof dtypes / sizeof *dtypes) ? dtypes[number] : FB_DTYPE_UNKNOWN;
    if (!found) onnx_refuse(op, "its dtype %lld is not evaluated", (long long)number);
    return found;
}

/* ---- parts -------------------------------------------------------------------------------------------------------------- */

fb_array *onnx_part(onnx_op *op, fb_op part, const char *spelling, const fb_part_argument *arguments, size_t item) {
    fb_object made;
    if (!onnx_ok(op) || fb_evaluate_part(op->call, part, spelling, arguments, &made)) return NULL;
    if (!keep_object(op, made)) return NULL;
    if (made.kind == FB_OBJECT_ARRAY) return made.array;
    bool has_item =
        fb_object_is_sequence(&made) && item < made.items->count && made.items->objects[item].kind == FB_OBJECT_ARRAY;
    return has_item ? made.items->objects[item].array : onnx_refuse(op, "its part %s gives no tensor", spelling);
}

fb_array *onnx_new(onnx_op *op, fb_dtype dtype, int rank, const int64_t *sizes) {
    if (rank > FB_MAX_RANK) return onnx_refuse(op, "its result has too many dimensions");
    return onnx_ok(op) ? onnx_keep(op, fb_make_array(op->call, dtype, rank, sizes)) : NULL;
}

fb_array *onnx_rows(onnx_op *op, fb_array *array) {
    return array && onnx_ok(op) ? onnx_keep(op, fb_make_contiguous(op->call, array)) : NULL;
}

fb_array *onnx_cast(onnx_op *op, fb_array *array, fb_dtype dtype) {
    if (!array || !onnx_ok(op) || array->dtype == dtype) return array;
    fb_array *made = onnx_keep(op, fb_make_cast(op->call, array, dtype));
    if (made) fb_array_round(made);
    return made;
}

fb_array *onnx_reshape(onnx_op *op, fb_array *array, int rank, const int64_t *sizes) {
    return array ? ONNX_PART(RESHAPE, "reshape", ONNX_A("input", array), ONNX_O("shape", onnx_list(op, sizes, rank))) : NULL;
}

fb_array *onnx_permute(onnx_op *op, fb_array *array, const int *axes) {
    int64_t dims[FB_MAX_RANK];
    for (int i = 0; array && i < array->rank; i++) dims[i] = axes[i];
    return array ? ONNX_PART(PERMUTE, "permute", ONNX_A("input", array), ONNX_O("dims", onnx_list(op, dims, array->rank)))
                 : NULL;
}

fb_array *onnx_scalar(onnx_op *op, double number, fb_dtype dtype) {
    fb_array *made = onnx_new(op, dtype, 0, NULL);
    if (!made) return NULL;
    fb_array_fill(made, number, (int64_t)number);
    fb_array_round(made);
    return made;
}

fb_array *onnx_of_ints(onnx_op *op, const int64_t *items, int count) {
    fb_array *made = onnx_new(op, FB_INT64, 1, (const int64_t[]){count});
    for (int i = 0; made && i < count; i++) onnx_put_int(made, i, items[i]);
    return made;
}

fb_array *onnx_cut(onnx_op *op, fb_array *array, int axis, int64_t start, int64_t stop) {
    if (!array || !onnx_ok(op)) return NULL;
    fb_array *view = onnx_keep(op, fb_make_view(op->call, array, array->rank));
    if (!view) return NULL;
    memcpy(view->sizes, array->sizes, sizeof view->sizes);
    memcpy(view->strides, array->strides, sizeof view->strides);
    fb_array_slice(view, axis, start, stop, 1);
    return view;
}

fb_array *onnx_join(onnx_op *op, fb_array *const *items, size_t count, int axis) {
    for (size_t i = 0; i < count; i++)
        if (!items[i]) return NULL;
    return ONNX_PART(CAT, "cat", ONNX_O("tensors", onnx_arrays(op, items, count)), ONNX_I("dim", axis));
}

fb_array *onnx_binary(onnx_op *op, fb_op part, const char *spelling, fb_array *a, fb_array *b) {
    if (!a || !b || !onnx_ok(op)) return NULL;
    if (a->dtype != b->dtype)
        return onnx_fail(op, "its operands are of %s and %s", fb_dtype_name(a->dtype), fb_dtype_name(b->dtype));
    return onnx_part(op, part, spelling,
                     (const fb_part_argument[]){ONNX_A("input", a), ONNX_A("other", b), {NULL, {.kind = FB_OBJECT_NONE}}}, 0);
}

fb_array *onnx_map(onnx_op *op, fb_array *array, double (*function)(double x, const double *with), const double *with) {
    if (!array || !onnx_ok(op)) return NULL;
    if (!fb_dtype_is_floating(array->dtype)) return onnx_refuse(op, "it is evaluated for floats alone");
    fb_array *x = onnx_rows(op, array), *made = onnx_new(op, array->dtype, array->rank, array->sizes);
    if (!made || !onnx_takes(op, 10 * (double)fb_array_count(made))) return NULL;
    for (int64_t i = 0, count = fb_array_count(made); i < count && fb_work_at(fb_call_work(op->call), i, count); i++)
        onnx_put(made, i, function(onnx_get(x, i), with));
    fb_array_round(made);
    return made;
}

/* ---- a call ------------------------------------------------------------------------------------------------------------- */

static bool is_of_default(const char *target) {
    return strncmp(target, FB_ONNX_DEFAULT, strlen(FB_ONNX_DEFAULT)) == 0;
}

static bool is_operator(const char *target, onnx_op *op, char *name, size_t size) {
    const char *part = is_of_default(target) ? target + strlen(FB_ONNX_DEFAULT) : target, *dot = strstr(part, ".v");
    if (!dot || (size_t)(dot - part) >= size || strchr(dot + 2, '.')) return false;
    memcpy(name, part, (size_t)(dot - part));
    name[dot - part] = '\0';
    op->name = name;
    op->version = atoll(dot + 2);
    return true;
}

bool fb_is_onnx_call(const fb_graph *graph, fb_node node) {
    const char *target = fb_node_target(graph, node);
    return fb_node_at(graph, node)->opcode == FB_CALL_FUNCTION &&
           (is_of_default(target) || strncmp(target, PREVIEW, strlen(PREVIEW)) == 0);
}

static const onnx_row *find_row(const onnx_op *op, bool *is_known) {
    static const onnx_row *const tables[] = {onnx_rows_math,      onnx_rows_shape,    onnx_rows_layer,   onnx_rows_reduce,
                                             onnx_rows_attention, onnx_rows_resize,   onnx_rows_program, onnx_rows_state,
                                             onnx_rows_sample,    onnx_rows_quantised};
    *is_known = false;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (const onnx_row *row = tables[t]; row->name; row++) {
            if (strcmp(row->name, op->name) != 0) continue;
            *is_known = true;
            if (op->version >= row->first && op->version <= row->last) return row;
        }
    }
    return NULL;
}

/* The node's metadata say how many results it has; without it is one. */
static void count_results(onnx_op *op) {
    static const char member[] = "\"results\":"; /* quotes within a text have a backslash */
    const fb_graph *graph = op->call->graph;
    fb_value rest = fb_node_at(graph, op->call->node)->meta_rest;
    const char *text = rest.id ? fb_value_text(graph, fb_map_value(graph, rest, "onnx")) : NULL;
    const char *found = text ? strstr(text, member) : NULL;
    op->has_several = found != NULL;
    op->wanted = found ? (size_t)atoll(found + strlen(member)) : 1;
    if (!op->wanted || op->wanted > ONNX_RESULTS) onnx_refuse(op, "it has more results than are evaluated");
}

/* An attribute or an input that nothing asked for would change what it means. */
static void check_unread(onnx_op *op) {
    for (uint32_t i = 0; i < op->args->count && onnx_ok(op); i++)
        if ((i >= 64 || !(op->call->read_args >> i & 1)) && fb_value_kind(op->call->graph, op->args->items[i]) != FB_NONE)
            onnx_refuse(op, "its input %u is not known", i);
    for (uint32_t i = 0; i + 1 < op->kwargs->count && onnx_ok(op); i += 2)
        if (i / 2 >= 64 || !(op->call->read_kwargs >> (i / 2) & 1))
            onnx_refuse(op, "its attribute %s is not known",
                        fb_text(op->call->graph, fb_value_at(op->call->graph, op->kwargs->items[i])->symbol));
}

static void give_results(onnx_op *op, fb_array *first, fb_object *result) {
    if (!op->results[0]) op->results[0] = first;
    for (size_t i = 0; i < op->wanted && onnx_ok(op); i++) check_unsigned(op, op->results[i]);
    if (!onnx_ok(op)) return;
    if (!op->results[0]) {
        onnx_refuse(op, "it gives nothing");
        return;
    }
    if (!op->has_several) {
        *result = (fb_object){.kind = FB_OBJECT_ARRAY, .array = fb_array_keep(op->results[0])};
        return;
    }
    op->call->status = fb_object_sequence(FB_OBJECT_TUPLE, op->wanted, result, op->call->error);
    for (size_t i = 0; i < op->wanted && onnx_ok(op); i++)
        if (op->results[i])
            result->items->objects[i] = (fb_object){.kind = FB_OBJECT_ARRAY, .array = fb_array_keep(op->results[i])};
}

/* A function is a nested program that is called by its name. */
static fb_status call_function(fb_kernel_call *call, const char *target, fb_object *result) {
    const fb_graph *graph = call->graph;
    const fb_node_row *row = fb_node_at(graph, call->node);
    fb_module module = fb_module_find(graph, target);
    if (!module.id || !fb_module_at(graph, module)->program.id)
        return fb_kernel_unsupported(call, "the model lacks the function");
    fb_program program = fb_module_at(graph, module)->program;
    const fb_value_row *args = fb_value_at(graph, row->args);
    size_t count = 0;
    for (fb_node node = fb_first_node(graph, program); node.id; node = fb_next_node(graph, node))
        count += fb_node_at(graph, node)->opcode == FB_PLACEHOLDER;
    fb_object inputs, outputs = {.kind = FB_OBJECT_NONE};
    if (args->count > count) return fb_kernel_fail(call, "the function has fewer inputs");
    call->status = fb_object_sequence(FB_OBJECT_TUPLE, count, &inputs, call->error);
    if (call->status) return call->status;
    for (size_t i = 0; i < args->count && !call->status; i++)
        call->status = fb_evaluate_value(call->evaluator, args->items[i], &inputs.items->objects[i]);
    const fb_onnx_scope scope = {fb_value_at(graph, row->kwargs), fb_module_at(graph, module)->config, call->evaluator->scope};
    call->evaluator->scope = &scope;
    if (!call->status) call->status = fb_evaluate_program(call->evaluator, program, inputs.items->objects, count, &outputs);
    call->evaluator->scope = scope.outer;
    fb_object_drop(&inputs);
    onnx_op op = {.call = call};
    if (!call->status) count_results(&op);
    bool is_right = !call->status && fb_object_is_sequence(&outputs) && outputs.items->count >= op.wanted;
    if (is_right && op.has_several) {
        *result = outputs;
        return FB_OK;
    }
    if (is_right) {
        *result = outputs.items->objects[0];
        fb_object_keep(result);
    }
    fb_object_drop(&outputs);
    return call->status || is_right ? call->status : fb_kernel_fail(call, "the function has fewer results");
}

fb_status fb_evaluate_onnx(fb_kernel_call *call, fb_object *result) {
    const char *target = fb_node_target(call->graph, call->node);
    const fb_node_row *node = fb_node_at(call->graph, call->node);
    char name[64];
    bool is_known = false;
    if (strncmp(target, FB_ONNX_FUNCTION, strlen(FB_ONNX_FUNCTION)) == 0) return call_function(call, target, result);
    onnx_op *op = calloc(1, sizeof *op);
    if (!op) return fb_fail_memory(call->error);
    op->call = call;
    op->args = fb_value_at(call->graph, node->args);
    op->kwargs = fb_value_at(call->graph, node->kwargs);
    const onnx_row *row = is_operator(target, op, name, sizeof name) ? find_row(op, &is_known) : NULL;
    if (!row) {
        onnx_refuse(op, op->name && is_known ? "this version of it is not evaluated" : "there is no kernel for it");
    } else {
        count_results(op);
        fb_array *made = NULL;
        if (onnx_ok(op) && row->same) {
            made = onnx_in_count(op) < 2
                       ? onnx_part(
                             op, row->same, row->spelling,
                             (const fb_part_argument[]){ONNX_A("input", onnx_in(op, 0)), {NULL, {.kind = FB_OBJECT_NONE}}}, 0)
                       : onnx_binary(op, row->same, row->spelling, onnx_in(op, 0), onnx_in(op, 1));
        } else if (onnx_ok(op)) {
            made = row->function(op);
        }
        check_unread(op);
        give_results(op, made, result);
    }
    while (op->kept_count) fb_object_drop(&op->kept[--op->kept_count]);
    free(op);
    return call->status;
}
