/* Python: questions to a tensor whose answer is a number, getattr, dtypes and devices, assertions. */
#include <math.h>
#include <string.h>

#include "core/evaluator/internal.h"
#include "core/weights/dtype.h"

static fb_status give_int(fb_object *result, int64_t integer) {
    *result = (fb_object){.kind = FB_OBJECT_INT, .integer = integer};
    return FB_OK;
}

static fb_status give_bool(fb_object *result, bool boolean) {
    *result = (fb_object){.kind = FB_OBJECT_BOOL, .boolean = boolean};
    return FB_OK;
}

static fb_status give_float(fb_object *result, double number) {
    *result = (fb_object){.kind = FB_OBJECT_FLOAT, .number = number};
    return FB_OK;
}

static fb_status give_sizes(fb_kernel_call *call, const fb_array *array, fb_object *result) {
    call->status = fb_object_sequence(FB_OBJECT_TUPLE, (size_t)array->rank, result, call->error);
    for (int i = 0; i < array->rank && !call->status; i++) give_int(&result->items->objects[i], array->sizes[i]);
    return call->status;
}

/* ---- sizes --------------------------------------------------------------------------------------------------------- */

/* size(), size(dim), aten.sym_size.int */
static fb_status kernel_size(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (!fb_argument_is_given(call, "dim")) return call->status ? call->status : give_sizes(call, input, result);
    if (!fb_argument_axis(call, "dim", input->rank, &dim)) return call->status;
    if (!input->rank) return fb_kernel_fail(call, "a tensor without dimensions has no size of one");
    return give_int(result, input->sizes[dim]);
}

static fb_status kernel_dim(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    return fb_argument_array(call, "input", &input) ? give_int(result, input->rank) : call->status;
}

static fb_status kernel_numel(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    return fb_argument_array(call, "input", &input) ? give_int(result, fb_array_count(input)) : call->status;
}

static fb_status kernel_len(fb_kernel_call *call, fb_object *result) {
    const fb_object *input = fb_argument(call, "input");
    if (!input) return fb_kernel_unsupported(call, "it has no argument");
    if (input->kind == FB_OBJECT_ARRAY && input->array->rank) return give_int(result, input->array->sizes[0]);
    if (fb_object_is_sequence(input)) return give_int(result, (int64_t)input->items->count);
    if (input->kind == FB_OBJECT_DICT) return give_int(result, (int64_t)input->items->count / 2);
    return fb_kernel_unsupported(call, "its argument has no length");
}

/* ---- numbers --------------------------------------------------------------------------------------------------------- */

/* The only element of a tensor, as a Python number. */
static fb_status give_element(fb_kernel_call *call, const fb_array *array, fb_object *result) {
    if (fb_array_count(array) != 1) return fb_kernel_fail(call, "a tensor of several elements is not a number");
    if (array->held == FB_HELD_BOOL) return give_bool(result, fb_array_int(array, 0) != 0);
    if (array->held == FB_HELD_INT) return give_int(result, fb_array_int(array, 0));
    return give_float(result, fb_array_number(array, 0));
}

static fb_status to_int(fb_kernel_call *call, const fb_object *number, fb_object *result) {
    int64_t integer;
    if (fb_object_int(number, &integer)) return give_int(result, integer);
    if (number->kind != FB_OBJECT_FLOAT) return fb_kernel_unsupported(call, "its argument is not a number");
    if (!(fabs(number->number) < 0x1p63)) return fb_kernel_unsupported(call, "the number is too large for an int of 64 bits");
    return give_int(result, (int64_t)number->number);
}

static fb_status to_float(fb_kernel_call *call, const fb_object *number, fb_object *result) {
    double real;
    if (!fb_object_number(number, &real)) return fb_kernel_unsupported(call, "its argument is not a number");
    return give_float(result, real);
}

static fb_status to_bool(fb_kernel_call *call, const fb_object *object, bool *truth) {
    double number;
    if (fb_object_number(object, &number)) *truth = number != 0;
    else if (object->kind == FB_OBJECT_NONE) *truth = false;
    else if (object->kind == FB_OBJECT_STRING) *truth = *object->text != '\0';
    else if (fb_object_is_sequence(object) || object->kind == FB_OBJECT_DICT) *truth = object->items->count > 0;
    else return fb_kernel_unsupported(call, "whether its argument is true cannot be told");
    return FB_OK;
}

/* item(), int(), float() … of a tensor or a number. */
static fb_status kernel_item(fb_kernel_call *call, fb_object *result) {
    const fb_object *input = fb_argument(call, "input");
    if (!input || input->kind != FB_OBJECT_ARRAY) return fb_kernel_unsupported(call, "its argument is not a tensor");
    if (fb_call_is_spelled(call, "tolist") && input->array->rank)
        return fb_kernel_unsupported(call, "lists are not made of tensors");
    fb_object element;
    if (give_element(call, input->array, &element)) return call->status;
    bool truth = false;
    if (fb_call_is_spelled(call, "__int__") || fb_call_is_spelled(call, "__index__")) return to_int(call, &element, result);
    if (fb_call_is_spelled(call, "__float__")) return to_float(call, &element, result);
    if (fb_call_is_spelled(call, "__bool__")) return to_bool(call, &element, &truth) ? call->status : give_bool(result, truth);
    *result = element;
    return FB_OK;
}

static fb_status product(fb_kernel_call *call, const fb_object *items, fb_object *result) {
    int64_t all = 1, integer;
    if (!fb_object_is_sequence(items)) return fb_kernel_unsupported(call, "its argument is not a sequence");
    for (size_t i = 0; i < items->items->count; i++) {
        if (!fb_object_int(&items->items->objects[i], &integer) || __builtin_mul_overflow(all, integer, &all))
            return fb_kernel_unsupported(call, "the product is not an int of 64 bits");
    }
    return give_int(result, all);
}

static fb_status kernel_number_of(fb_kernel_call *call, fb_object *result) {
    static const struct {
        const char *name;
        double (*function)(double);
    } functions[] = {{"sqrt", sqrt}, {"log", log}, {"log2", log2}, {"exp", exp}};
    const fb_object *input = fb_argument(call, "input");
    if (!input) return fb_kernel_unsupported(call, "it has no argument");
    fb_object number = *input;
    if (fb_call_is_spelled(call, "prod")) return product(call, input, result);
    if (input->kind == FB_OBJECT_ARRAY && give_element(call, input->array, &number)) return call->status;
    bool truth = false;
    if (fb_call_is_spelled(call, "float") || fb_call_is_spelled(call, "sym_float")) return to_float(call, &number, result);
    if (fb_call_is_spelled(call, "int") || fb_call_is_spelled(call, "sym_int") || fb_call_is_spelled(call, "index") ||
        fb_call_is_spelled(call, "trunc"))
        return fb_call_is_spelled(call, "index") && number.kind == FB_OBJECT_FLOAT
                   ? fb_kernel_fail(call, "a float is not an index")
                   : to_int(call, &number, result);
    if (fb_call_is_spelled(call, "bool") || fb_call_is_spelled(call, "truth"))
        return to_bool(call, &number, &truth) ? call->status : give_bool(result, truth);
    if (fb_call_is_spelled(call, "not_") || fb_call_is_spelled(call, "not") || fb_call_is_spelled(call, "sym_not"))
        return to_bool(call, &number, &truth) ? call->status : give_bool(result, !truth);
    double real;
    bool is_alone = fb_value_at(call->graph, fb_node_at(call->graph, call->node)->args)->count == 1;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (!fb_call_is_spelled(call, functions[i].name) || !is_alone || !fb_object_number(&number, &real)) continue;
        double value = functions[i].function(real);
        bool raises = value != value || (isinf(value) && isfinite(real)); /* out of its domain, or range */
        if (!raises || real != real) return give_float(result, value);
        break;
    }
    return fb_kernel_unsupported(call, "it is not evaluated on these arguments");
}

/* max, min and sum of Python numbers: as arguments, or of one sequence. */
static fb_status kernel_number_max(fb_kernel_call *call, fb_object *result) {
    const fb_object *input = fb_argument(call, "input");
    const fb_value_row *args = fb_value_at(call->graph, fb_node_at(call->graph, call->node)->args);
    bool is_sequence = input && fb_object_is_sequence(input) && args->count == 1;
    size_t count = is_sequence ? input->items->count : args->count;
    bool is_max = fb_call_is_spelled(call, "max"), is_sum = fb_call_is_spelled(call, "sum");
    fb_arguments_are_read(call);
    if (!input || (!count && !is_sum) || (!is_sequence && count < 2)) return fb_kernel_unsupported(call, "it has no arguments");
    if (is_sum && !is_sequence) return fb_kernel_unsupported(call, "sum begins with something else than 0");
    fb_object best = {.kind = FB_OBJECT_INT};
    double best_number = 0;
    for (size_t i = 0; i < count; i++) {
        fb_object item;
        double number;
        if (is_sequence) item = input->items->objects[i];
        else {
            call->status = fb_evaluate_value(call->evaluator, args->items[i], &item);
            if (call->status) return call->status;
        }
        bool is_number = fb_object_number(&item, &number);
        if (!is_sequence && !is_number) fb_object_drop(&item);
        if (!is_number) return fb_kernel_unsupported(call, "its arguments are not numbers");
        int64_t integer;
        if (is_sum && (!fb_object_int(&item, &integer) || __builtin_add_overflow(best.integer, integer, &best.integer)))
            return fb_kernel_unsupported(call, "its sum is not an int of 64 bits");
        if (is_sum) continue;
        if (i == 0 || (is_max ? number > best_number : number < best_number)) {
            best = item;
            best_number = number;
        }
    }
    *result = best;
    return FB_OK;
}

/* ---- collections --------------------------------------------------------------------------------------------------- */

/* tuple(x), list(x) and torch.Size(x) of a sequence. */
static fb_status kernel_collection(fb_kernel_call *call, fb_object *result) {
    const fb_object *input = fb_argument(call, call->op == FB_OP_DEVICE ? "type" : "input");
    bool is_tuple = fb_call_is_spelled(call, "tuple") || call->op == FB_OP_DEVICE, is_list = fb_call_is_spelled(call, "list");
    bool is_alone = fb_value_at(call->graph, fb_node_at(call->graph, call->node)->args)->count == 1;
    if (!input || !is_alone || (!is_tuple && !is_list) || !fb_object_is_sequence(input))
        return fb_kernel_unsupported(call, "it is not evaluated on these arguments");
    size_t count = input->items->count;
    call->status = fb_object_sequence(is_tuple ? FB_OBJECT_TUPLE : FB_OBJECT_LIST, count, result, call->error);
    for (size_t i = 0; i < count && !call->status; i++) {
        result->items->objects[i] = input->items->objects[i];
        fb_object_keep(&result->items->objects[i]);
    }
    return call->status;
}

static fb_status kernel_broadcast_shapes(fb_kernel_call *call, fb_object *result) {
    const fb_value_row *args = fb_value_at(call->graph, fb_node_at(call->graph, call->node)->args);
    fb_array joined = {0}; /* only its sizes */
    fb_arguments_are_read(call);
    for (uint32_t i = 0; i < args->count && !call->status; i++) {
        fb_object shape;
        fb_array one = {0};
        call->status = fb_evaluate_value(call->evaluator, args->items[i], &shape);
        if (call->status) return call->status;
        if (!fb_object_is_sequence(&shape) || shape.items->count > FB_MAX_RANK) fb_kernel_unsupported(call, "it takes shapes");
        else one.rank = (int)shape.items->count;
        for (int d = 0; d < one.rank; d++)
            if (!fb_object_int(&shape.items->objects[d], &one.sizes[d])) fb_kernel_unsupported(call, "a size is not an int");
        fb_object_drop(&shape);
        if (!call->status && !fb_array_join_sizes(&one, &joined.rank, joined.sizes))
            fb_kernel_fail(call, "the shapes do not broadcast");
    }
    return call->status ? call->status : give_sizes(call, &joined, result);
}

/* ---- dtypes, devices ------------------------------------------------------------------------------------------------- */

/* torch.finfo(dtype): it is held as the dtype; getattr knows what to ask. */
static fb_status kernel_dtype_info(fb_kernel_call *call, fb_object *result) {
    const fb_object *type = fb_argument(call, "type");
    if (!type || type->kind != FB_OBJECT_DTYPE) return fb_kernel_unsupported(call, "its argument is not a dtype");
    if (fb_dtype_is_floating(type->dtype) != fb_call_is_spelled(call, "finfo") || type->dtype == FB_BOOL)
        return fb_kernel_fail(call, "%s has no such limits", fb_dtype_name(type->dtype));
    *result = *type;
    return FB_OK;
}

static fb_status kernel_device(fb_kernel_call *call, fb_object *result) {
    if (fb_call_is_spelled(call, "Size")) return kernel_collection(call, result);
    if (fb_call_is_spelled(call, "get_default_dtype")) {
        *result = (fb_object){.kind = FB_OBJECT_DTYPE, .dtype = FB_FLOAT32};
        return FB_OK;
    }
    fb_arguments_are_read(call);
    *result = (fb_object){.kind = FB_OBJECT_DEVICE, .text = "cpu"};
    return FB_OK;
}

static fb_status integer_info(fb_kernel_call *call, fb_dtype dtype, const char *name, fb_object *result) {
    int bits = (int)fb_dtype_size(dtype) * 8;
    bool is_signed = dtype != FB_UINT8;
    int64_t largest = is_signed ? (int64_t)(((uint64_t)1 << (bits - 1)) - 1) : 255;
    if (strcmp(name, "max") == 0) return give_int(result, largest);
    if (strcmp(name, "min") == 0) return give_int(result, is_signed ? -largest - 1 : 0);
    if (strcmp(name, "bits") == 0) return give_int(result, bits);
    return fb_kernel_unsupported(call, "%s of an integer dtype is not known", name);
}

/* finfo, iinfo and dtypes. */
static fb_status dtype_attribute(fb_kernel_call *call, fb_dtype dtype, const char *name, fb_object *result) {
    fb_dtype_range range;
    if (strcmp(name, "is_floating_point") == 0) return give_bool(result, fb_dtype_is_floating(dtype));
    if (strcmp(name, "is_complex") == 0) return give_bool(result, fb_dtype_is_complex(dtype));
    if (strcmp(name, "itemsize") == 0) return give_int(result, (int64_t)fb_dtype_size(dtype));
    if (!fb_dtype_limits(dtype, &range)) return integer_info(call, dtype, name, result);
    if (strcmp(name, "max") == 0) return give_float(result, range.largest);
    if (strcmp(name, "min") == 0) return give_float(result, -range.largest);
    if (strcmp(name, "eps") == 0) return give_float(result, ldexp(1, 1 - range.mantissa_bits));
    if (strcmp(name, "tiny") == 0 || strcmp(name, "smallest_normal") == 0) return give_float(result, range.smallest_normal);
    if (strcmp(name, "bits") == 0) return give_int(result, (int64_t)fb_dtype_size(dtype) * 8);
    return fb_kernel_unsupported(call, "%s of a dtype is not known", name);
}

static fb_status transposed(fb_kernel_call *call, fb_array *array, bool only_last, fb_object *result) {
    if (only_last && array->rank == 1)
        return fb_kernel_fail(call, "a tensor of %d dimensions has no transposed matrices", array->rank);
    fb_array *view = fb_make_view(call, array, array->rank);
    int first = only_last && array->rank ? array->rank - 2 : 0;
    for (int i = first; i < array->rank && view; i++) {
        view->sizes[i] = array->sizes[array->rank - 1 - i + first];
        view->strides[i] = array->strides[array->rank - 1 - i + first];
    }
    return fb_return_array(call, view, result);
}

static fb_status array_attribute(fb_kernel_call *call, fb_array *array, const char *name, fb_object *result) {
    if (strcmp(name, "shape") == 0) return give_sizes(call, array, result);
    if (strcmp(name, "ndim") == 0) return give_int(result, array->rank);
    if (strcmp(name, "dtype") == 0) {
        *result = (fb_object){.kind = FB_OBJECT_DTYPE, .dtype = array->dtype};
        return FB_OK;
    }
    if (strcmp(name, "device") == 0) {
        *result = (fb_object){.kind = FB_OBJECT_DEVICE, .text = "cpu"};
        return FB_OK;
    }
    if (strcmp(name, "is_cuda") == 0) return give_bool(result, false);
    if (strcmp(name, "itemsize") == 0) return give_int(result, (int64_t)fb_dtype_size(array->dtype));
    if (strcmp(name, "T") == 0 || strcmp(name, "mT") == 0) return transposed(call, array, name[0] == 'm', result);
    if (strcmp(name, "real") == 0 || strcmp(name, "imag") == 0) return fb_return_part(call, array, name[0] == 'i', result);
    if (strcmp(name, "data") == 0) return fb_return_array(call, fb_make_view(call, array, array->rank), result);
    return fb_kernel_unsupported(call, "the attribute %s of a tensor is not known", name);
}

static fb_status kernel_getattr(fb_kernel_call *call, fb_object *result) {
    const fb_object *input = fb_argument(call, "input");
    const char *name;
    if (!fb_argument_text(call, "name", &name) || !input) return fb_kernel_unsupported(call, "its arguments are not known");
    if (input->kind == FB_OBJECT_ARRAY) return array_attribute(call, input->array, name, result);
    if (input->kind == FB_OBJECT_DTYPE) return dtype_attribute(call, input->dtype, name, result);
    if (input->kind == FB_OBJECT_TUPLE && input->items->count == 2) { /* what max, sort … along a dimension give */
        bool is_first = strcmp(name, "values") == 0 || strcmp(name, "min") == 0;
        if (is_first || strcmp(name, "indices") == 0 || strcmp(name, "max") == 0) {
            *result = input->items->objects[is_first ? 0 : 1];
            fb_object_keep(result);
            return FB_OK;
        }
    }
    if (input->kind == FB_OBJECT_DEVICE && strcmp(name, "type") == 0) {
        *result = (fb_object){.kind = FB_OBJECT_STRING, .text = "cpu"};
        return FB_OK;
    }
    return fb_kernel_unsupported(call, "the attribute %s of what it is asked of is not known", name);
}

/* ---- questions and assertions -------------------------------------------------------------------------------------- */

static fb_status kernel_question(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (fb_call_is_spelled(call, "is_floating_point")) return give_bool(result, fb_dtype_is_floating(input->dtype));
    if (fb_call_is_spelled(call, "is_complex")) return give_bool(result, fb_dtype_is_complex(input->dtype));
    if (fb_call_is_spelled(call, "element_size")) return give_int(result, (int64_t)fb_dtype_size(input->dtype));
    if (fb_call_is_spelled(call, "is_signed")) return give_bool(result, input->dtype != FB_BOOL && input->dtype != FB_UINT8);
    return fb_kernel_unsupported(call, "it is not evaluated");
}

/* Modes of autograd and of compilers are off while a graph is evaluated. */
static fb_status kernel_mode_question(fb_kernel_call *call, fb_object *result) {
    fb_arguments_are_read(call); /* "cpu", "cuda" */
    return give_bool(result, false);
}

/* Checks that would raise in PyTorch passed when the graph was traced; the call gives None. */
static fb_status kernel_nothing(fb_kernel_call *call, fb_object *result) {
    fb_arguments_are_read(call);
    (void)result;
    return FB_OK;
}

/* x is y, for None and for what is one thing in Python. */
static fb_status kernel_is(fb_kernel_call *call, fb_object *result) {
    const fb_object *input = fb_argument(call, "input"), *other = fb_argument(call, "other");
    bool is_negated = fb_call_is_spelled(call, "is_not");
    if (fb_call_is_spelled(call, "is_tensor") && input) return give_bool(result, input->kind == FB_OBJECT_ARRAY);
    if (!input || !other || (!is_negated && !fb_call_is_spelled(call, "is_") && !fb_call_is_spelled(call, "is")))
        return fb_kernel_unsupported(call, "it is not evaluated");
    bool same;
    if (input->kind != other->kind) same = false;
    else if (input->kind == FB_OBJECT_NONE) same = true;
    else if (input->kind == FB_OBJECT_BOOL) same = input->boolean == other->boolean;
    else if (input->kind == FB_OBJECT_ARRAY) same = input->array == other->array;
    else return fb_kernel_unsupported(call, "whether these are one thing is not known");
    return give_bool(result, same != is_negated);
}

const fb_kernel_row fb_kernels_python[] = {
    FB_KERNEL_COMPLEX(GETATTR, getattr),
    FB_KERNEL_COMPLEX(SIZE, size),
    FB_KERNEL_COMPLEX(SYM_SIZE, size),
    FB_KERNEL_COMPLEX(DIM, dim),
    FB_KERNEL_COMPLEX(NUMEL, numel),
    FB_KERNEL_COMPLEX(LEN, len),
    FB_KERNEL(ITEM, item),
    FB_KERNEL(NUMBER_OF, number_of),
    FB_KERNEL(NUMBER_MAX, number_max),
    FB_KERNEL_COMPLEX(COLLECTION, collection),
    FB_KERNEL(BROADCAST_SHAPES, broadcast_shapes),
    FB_KERNEL(DTYPE_INFO, dtype_info),
    FB_KERNEL(DEVICE, device),
    FB_KERNEL_COMPLEX(QUESTION, question),
    FB_KERNEL_COMPLEX(IS, is),
    FB_KERNEL(GRAD_QUESTION, mode_question),
    FB_KERNEL_COMPLEX(ASSERT, nothing),
    FB_KERNELS_END,
};
