/* Arguments of a call by name, and operands of arithmetic. */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/shape.h"
#include "core/evaluator/internal.h"

/* ---- finding --------------------------------------------------------------------------------------------------------- */

/* Finds an argument in a module: a parameter or buffer, the flag, or the config. */
static bool find_in_module(fb_kernel_call *call, const char *name, fb_object *out) {
    if (call->recipes.id && fb_find_parametrized(call, name, out)) return !call->status;
    fb_module module = fb_node_at(call->graph, call->node)->module;
    const fb_module_row *row = fb_module_at(call->graph, module);
    if (strcmp(name, "training") == 0) {
        *out = (fb_object){.kind = FB_OBJECT_BOOL, .boolean = row->training};
        return true;
    }
    fb_tensor tensor = fb_module_tensor(call->graph, module, name);
    bool runs_once = fb_node_at(call->graph, call->node)->program.id == FB_MAIN_PROGRAM.id;
    if (tensor.id && call->takes_weight && runs_once &&
        fb_weight_has_parts(call->evaluator, tensor, call->evaluator->tensor_uses[tensor.id])) {
        call->status = fb_weight_open(call->evaluator, tensor, out);
        return !call->status;
    }
    if (tensor.id) {
        call->status = fb_evaluate_tensor(call->evaluator, tensor, &out->array);
        if (!call->status) out->kind = FB_OBJECT_ARRAY;
        return !call->status;
    }
    if (fb_map_value(call->graph, row->parameters, name).id || fb_map_value(call->graph, row->buffers, name).id)
        return true; /* None: also where the config has a flag of that name, such as `bias` */
    fb_value config = fb_module_config(call->graph, module, name);
    if (!config.id) return false;
    call->status = fb_evaluate_value(call->evaluator, config, out);
    return !call->status;
}

/* The operator whose parameters the call's arguments are. */
static fb_op op_of(const fb_kernel_call *call) {
    return call->recipes.id ? call->op : fb_node_op(call->graph, call->node);
}

/* The argument `name` was asked for. */
static void mark_read(fb_kernel_call *call, const char *name) {
    fb_argument_place place;
    const fb_node_row *row = fb_node_at(call->graph, call->node);
    if (!fb_call_argument_as(call->graph, call->node, op_of(call), name, &place).id) return;
    if (!place.is_keyword) {
        call->read_args |= place.index < 64 ? (uint64_t)1 << place.index : 0;
        return;
    }
    const fb_value_row *kwargs = fb_value_at(call->graph, row->kwargs);
    for (uint32_t i = 0; i + 1 < kwargs->count && i / 2 < 64; i += 2) {
        const char *keyword = fb_text(call->graph, fb_value_at(call->graph, kwargs->items[i])->symbol);
        if (strcmp(keyword, place.keyword) == 0) call->read_kwargs |= (uint64_t)1 << (i / 2);
    }
}

void fb_arguments_are_read(fb_kernel_call *call) {
    call->read_args = call->read_kwargs = UINT64_MAX;
}

static bool matters(const fb_graph *graph, fb_value value) {
    switch (fb_value_kind(graph, value)) {
    case FB_NONE:
    case FB_FALSE:
    case FB_DEVICE:
    case FB_MEMORY_FORMAT: return false;
    case FB_LAYOUT: return strcmp(fb_value_text(graph, value), "strided") != 0; /* nothing else is computed */
    default: return true;
    }
}

/* layout=0: torch.strided, by its number in c10. */
static bool is_strided(const fb_graph *graph, const char *keyword, fb_value value) {
    int64_t number;
    return strcmp(keyword, "layout") == 0 && fb_value_is_int(graph, value, &number) && number == 0;
}

static const char *find_unread(const fb_kernel_call *call) {
    const fb_node_row *row = fb_node_at(call->graph, call->node);
    const fb_value_row *args = fb_value_at(call->graph, row->args), *kwargs = fb_value_at(call->graph, row->kwargs);
    for (uint32_t i = 0; i < args->count && i < 64; i++)
        if (!(call->read_args >> i & 1) && matters(call->graph, args->items[i])) return "positional";
    for (uint32_t i = 0; i + 1 < kwargs->count && i / 2 < 64; i += 2) {
        const char *keyword = fb_text(call->graph, fb_value_at(call->graph, kwargs->items[i])->symbol);
        bool is_read = call->read_kwargs >> (i / 2) & 1;
        if (!is_read && matters(call->graph, kwargs->items[i + 1]) && !is_strided(call->graph, keyword, kwargs->items[i + 1]))
            return keyword;
    }
    return NULL;
}

const char *fb_unread_argument(fb_kernel_call *call) {
    /* Arguments about a result's storage, or for training alone; a kernel that needs one asks for it. */
    static const char *const harmless[] = {"device",
                                           "memory_format",
                                           "pin_memory",
                                           "requires_grad",
                                           "non_blocking",
                                           "inplace",
                                           "_stacklevel",
                                           "generator",
                                           "p",
                                           "momentum",
                                           "padding_idx",
                                           "sparse",
                                           "message",
                                           "names",
                                           "benchmark",
                                           "deterministic",
                                           "cudnn_enabled",
                                           "allow_tf32",
                                           "output_size",
                                           "implicit",
                                           "sparse_grad",
                                           "stable",
                                           "assume_unique",
                                           "compute_mode",
                                           "dropout_p",
                                           "scale_grad_by_freq"};
    if (!find_unread(call)) return NULL;
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) mark_read(call, harmless[i]);
    return find_unread(call);
}

static bool find_in_part(const fb_kernel_call *call, const char *name, fb_object *out) {
    for (const fb_part_argument *one = call->part; one->name; one++) {
        if (strcmp(one->name, name) != 0) continue;
        *out = one->object;
        fb_object_keep(out);
        return true;
    }
    return false;
}

static bool find(fb_kernel_call *call, const char *name, fb_object *out) {
    *out = (fb_object){.kind = FB_OBJECT_NONE};
    if (call->part) return find_in_part(call, name, out);
    fb_argument_place place;
    fb_value value = fb_call_argument_as(call->graph, call->node, op_of(call), name, &place);
    if (value.id) mark_read(call, name);
    if (!value.id) return fb_node_at(call->graph, call->node)->opcode == FB_CALL_MODULE && find_in_module(call, name, out);
    call->status = fb_evaluate_value(call->evaluator, value, out);
    return !call->status;
}

static const fb_object *hold(fb_kernel_call *call, fb_object object) {
    fb_evaluator *evaluator = call->evaluator;
    if (!call->takes_complex && fb_object_has_complex(&object)) {
        fb_object_drop(&object);
        fb_kernel_unsupported(call, "it is not evaluated for complex numbers");
        return NULL;
    }
    if (evaluator->argument_count == FB_CALL_ARGUMENTS) {
        fb_object_drop(&object);
        fb_kernel_unsupported(call, "it has too many arguments");
        return NULL;
    }
    fb_object *held = &evaluator->arguments[evaluator->argument_count++];
    *held = object;
    return held;
}

const fb_object *fb_argument(fb_kernel_call *call, const char *name) {
    fb_object object;
    if (call->status || !find(call, name, &object)) return NULL;
    return hold(call, object);
}

bool fb_argument_is_given(fb_kernel_call *call, const char *name) {
    const fb_object *object = fb_argument(call, name);
    return object && object->kind != FB_OBJECT_NONE;
}

/* NULL when absent or None. */
static const fb_object *find_given(fb_kernel_call *call, const char *name) {
    const fb_object *object = fb_argument(call, name);
    return object && object->kind != FB_OBJECT_NONE ? object : NULL;
}

static bool complain(fb_kernel_call *call, const char *name, const char *wanted) {
    fb_kernel_unsupported(call, "its argument %s is not %s", name, wanted);
    return false;
}

/* ---- kinds ----------------------------------------------------------------------------------------------------------- */

bool fb_argument_optional(fb_kernel_call *call, const char *name, fb_array **out) {
    const fb_object *object = find_given(call, name);
    *out = NULL;
    if (!object) return !call->status;
    /* A module without a bias may have the flag `bias` in its config, and nothing else of that name. */
    bool is_flag =
        object->kind == FB_OBJECT_BOOL && !object->boolean && fb_node_at(call->graph, call->node)->opcode == FB_CALL_MODULE;
    if (is_flag) return true;
    if (object->kind != FB_OBJECT_ARRAY) return complain(call, name, "a tensor");
    *out = object->array;
    return true;
}

bool fb_argument_array(fb_kernel_call *call, const char *name, fb_array **out) {
    if (!fb_argument_optional(call, name, out)) return false;
    return *out ? true : complain(call, name, "a tensor");
}

bool fb_argument_index(fb_kernel_call *call, const char *name, fb_array **out) {
    if (!fb_argument_array(call, name, out)) return false;
    bool is_index = (*out)->dtype == FB_INT64 || (*out)->dtype == FB_INT32;
    return is_index || fb_kernel_fail(call, "its argument %s is not of int64 or int32", name) == FB_OK;
}

bool fb_argument_weight(fb_kernel_call *call, fb_array **array, const fb_weight **weight) {
    call->takes_weight = true;
    const fb_object *object = find_given(call, "weight");
    call->takes_weight = false;
    *weight = object && object->kind == FB_OBJECT_WEIGHT ? object->weight : NULL;
    *array = object && object->kind == FB_OBJECT_ARRAY ? object->array : NULL;
    return *weight || *array || complain(call, "weight", "a tensor");
}

bool fb_argument_int(fb_kernel_call *call, const char *name, int64_t fallback, int64_t *out) {
    const fb_object *object = find_given(call, name);
    *out = fallback;
    if (!object) return !call->status;
    return fb_object_int(object, out) ? true : complain(call, name, "an int");
}

bool fb_argument_number(fb_kernel_call *call, const char *name, double fallback, double *out) {
    const fb_object *object = find_given(call, name);
    *out = fallback;
    if (!object) return !call->status;
    if (fb_object_number(object, out)) return true;
    if (object->kind != FB_OBJECT_ARRAY || fb_array_count(object->array) != 1) return complain(call, name, "a number");
    *out = fb_array_number(object->array, 0);
    return true;
}

bool fb_argument_bool(fb_kernel_call *call, const char *name, bool fallback, bool *out) {
    const fb_object *object = find_given(call, name);
    *out = fallback;
    if (!object) return !call->status;
    int64_t integer;
    if (object->kind == FB_OBJECT_ARRAY || !fb_object_int(object, &integer)) return complain(call, name, "a bool");
    *out = integer != 0;
    return true;
}

bool fb_argument_text(fb_kernel_call *call, const char *name, const char **out) {
    const fb_object *object = find_given(call, name);
    *out = "";
    if (!object) return !call->status;
    if (object->kind != FB_OBJECT_STRING) return complain(call, name, "a string");
    *out = object->text;
    return true;
}

bool fb_argument_dtype(fb_kernel_call *call, fb_dtype fallback, fb_dtype *out) {
    const fb_object *object = find_given(call, "dtype");
    *out = fallback;
    if (!object) return !call->status;
    if (object->kind != FB_OBJECT_DTYPE || !object->dtype) return complain(call, "dtype", "a dtype that is evaluated");
    *out = object->dtype;
    return true;
}

bool fb_argument_axis(fb_kernel_call *call, const char *name, int rank, int64_t *out) {
    const fb_object *object = find_given(call, name);
    if (!object || !fb_object_int(object, out)) return complain(call, name, "an axis");
    int64_t limit = rank ? rank : 1;
    if (*out < -limit || *out >= limit) {
        fb_kernel_fail(call, "%s %lld is not an axis of a tensor of %d dimensions", name, (long long)*out, rank);
        return false;
    }
    if (*out < 0) *out += limit;
    return true;
}

/* ---- lists ----------------------------------------------------------------------------------------------------------- */

/* Where a parameter is variadic ("*size") the arguments from its position on, as a tuple; a single one that is a sequence is
 * taken as it is. NULL: it is not, or was not given so. */
static const fb_object *find_variadic(fb_kernel_call *call, const char *name) {
    fb_argument_place place;
    const fb_object *object = fb_argument(call, name);
    if (!object || fb_object_is_sequence(object) || call->part) return object;
    if (!fb_call_argument_place(call->graph, call->node, name, &place) || place.is_keyword) return object;
    const fb_value_row *args = fb_value_at(call->graph, fb_node_at(call->graph, call->node)->args);
    if (!fb_call_parameter_is_variadic(call->graph, call->node, name)) return object;
    for (size_t i = place.index; i < args->count && i < 64; i++) call->read_args |= (uint64_t)1 << i;
    fb_object tuple;
    call->status = fb_object_sequence(FB_OBJECT_TUPLE, args->count - place.index, &tuple, call->error);
    if (call->status) return NULL;
    for (size_t i = place.index; i < args->count && !call->status; i++)
        call->status = fb_evaluate_value(call->evaluator, args->items[i], &tuple.items->objects[i - place.index]);
    return hold(call, tuple);
}

/* Sizes, strides and the like beyond 32 bits are not evaluated: so sums and products of two of them do not overflow. */
static bool is_geometry(const fb_object *object, int64_t *out) {
    return fb_object_int(object, out) && *out >= -INT32_MAX && *out <= INT32_MAX;
}

bool fb_argument_ints(fb_kernel_call *call, const char *name, int64_t out[FB_MAX_RANK], int *count) {
    const fb_object *object = find_variadic(call, name);
    *count = -1;
    if (!object || object->kind == FB_OBJECT_NONE) return !call->status;
    if (!fb_object_is_sequence(object)) {
        *count = 1;
        return is_geometry(object, out) || complain(call, name, "an int of 32 bits or a sequence of them");
    }
    if (object->items->count > FB_MAX_RANK) return complain(call, name, "short enough");
    *count = (int)object->items->count;
    for (int i = 0; i < *count; i++)
        if (!is_geometry(&object->items->objects[i], &out[i])) return complain(call, name, "a sequence of ints of 32 bits");
    return true;
}

bool fb_argument_each(fb_kernel_call *call, const char *name, int count, int64_t fallback, int64_t *out) {
    int64_t found[FB_MAX_RANK];
    int found_count;
    if (!fb_argument_ints(call, name, found, &found_count)) return false;
    if (found_count < 0) {
        found[0] = fallback;
        found_count = 1;
    }
    if (found_count != count && found_count != 1) {
        fb_kernel_fail(call, "%s has %d items in place of %d", name, found_count, count);
        return false;
    }
    for (int i = 0; i < count; i++) out[i] = found[found_count == 1 ? 0 : i];
    return true;
}

bool fb_argument_arrays(fb_kernel_call *call, const char *name, fb_array ***items, size_t *count) {
    const fb_object *object = find_variadic(call, name);
    *items = NULL;
    *count = 0;
    if (!object || !fb_object_is_sequence(object)) return complain(call, name, "a sequence of tensors");
    *items = calloc(object->items->count ? object->items->count : 1, sizeof(fb_array *));
    if (!*items) call->status = fb_fail_memory(call->error);
    for (size_t i = 0; i < object->items->count && !call->status; i++) {
        const fb_object *item = &object->items->objects[i];
        if (item->kind == FB_OBJECT_ARRAY) (*items)[(*count)++] = item->array;
        else complain(call, name, "a sequence of tensors");
    }
    if (call->status) {
        free(*items);
        *items = NULL;
    }
    return !call->status;
}

/* ---- operands -------------------------------------------------------------------------------------------------------- */

static fb_operand operand_of(const fb_object *object) {
    fb_operand operand = {.kind = FB_OPERAND_OTHER};
    switch (object->kind) {
    case FB_OBJECT_ARRAY:
        operand.kind = FB_OPERAND_TENSOR;
        operand.type.dtype = object->array->dtype;
        operand.type.rank = object->array->rank;
        break;
    case FB_OBJECT_BOOL:
        operand.kind = FB_OPERAND_NUMBER;
        operand.number = FB_BOOL;
        break;
    case FB_OBJECT_INT:
        operand.kind = FB_OPERAND_NUMBER;
        operand.number = FB_INT64;
        break;
    case FB_OBJECT_FLOAT:
        operand.kind = FB_OPERAND_NUMBER;
        operand.number = FB_FLOAT32;
        break;
    default: break;
    }
    return operand;
}

fb_dtype fb_promote_objects(const fb_object *const *objects, size_t count) {
    fb_operand operands[FB_CALL_ARGUMENTS];
    if (count > FB_CALL_ARGUMENTS) return FB_DTYPE_UNKNOWN;
    for (size_t i = 0; i < count; i++) operands[i] = operand_of(objects[i]);
    return fb_promote_all(operands, (int)count);
}

/* A number becomes a 0-d array of the dtype: in one step, so that a float32 result sees 0.1 rounded once. */
static fb_array *array_of(fb_kernel_call *call, const fb_object *object, fb_dtype dtype) {
    if (object->kind == FB_OBJECT_ARRAY) {
        return object->array->dtype == dtype ? fb_array_keep(object->array) : fb_make_cast(call, object->array, dtype);
    }
    fb_array *array = fb_make_array(call, dtype, 0, NULL);
    if (!array) return NULL;
    double number = 0;
    fb_object_number(object, &number);
    switch (array->held) {
    case FB_HELD_DOUBLE: *(double *)fb_array_data(array) = number; break;
    case FB_HELD_FLOAT: *(float *)fb_array_data(array) = (float)number; break;
    case FB_HELD_COMPLEX_DOUBLE:
    case FB_HELD_COMPLEX_FLOAT: fb_array_fill(array, number, 0); break;
    case FB_HELD_INT:
        *(int64_t *)fb_array_data(array) = object->kind == FB_OBJECT_INT ? object->integer : (int64_t)number;
        break;
    default: *(unsigned char *)fb_array_data(array) = number != 0; break;
    }
    return array;
}

bool fb_operands(fb_kernel_call *call, const char *const *names, fb_dtype *dtype, fb_array **out) {
    const fb_object *objects[FB_CALL_ARGUMENTS] = {0};
    size_t count = 0;
    for (; names[count]; count++) {
        double number;
        objects[count] = fb_argument(call, names[count]);
        if (!objects[count] || (objects[count]->kind != FB_OBJECT_ARRAY && !fb_object_number(objects[count], &number)))
            return complain(call, names[count], "a tensor or a number");
    }
    if (!*dtype) *dtype = fb_promote_objects(objects, count);
    if (!*dtype) return fb_kernel_unsupported(call, "its operands have no common dtype") == FB_OK;
    int64_t sizes[FB_MAX_RANK];
    int rank = 0;
    fb_array *arrays[FB_CALL_ARGUMENTS] = {0};
    for (size_t i = 0; i < count && !call->status; i++) {
        arrays[i] = array_of(call, objects[i], *dtype);
        if (arrays[i] && !fb_array_join_sizes(arrays[i], &rank, sizes))
            fb_kernel_fail(call, "its operands' sizes do not broadcast");
    }
    size_t made = 0;
    for (; made < count && !call->status; made++) {
        call->status = fb_array_broadcast(arrays[made], rank, sizes, &out[made], call->error);
        if (call->status) break;
    }
    for (size_t i = 0; i < count; i++) fb_array_drop(arrays[i]);
    if (call->status)
        while (made) fb_array_drop(out[--made]);
    return !call->status;
}
