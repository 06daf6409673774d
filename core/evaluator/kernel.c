/* The spelling of a call, its failures, the time and memory that it takes, and its results. */
#include <stdlib.h>

#include "core/evaluator/internal.h"
#include "core/graph/namespace.h"
#include "core/operators/spelling.h"

const char *fb_call_spelling(const fb_kernel_call *call) {
    if (call->spelling) return call->spelling;
    const fb_node_row *row = fb_node_at(call->graph, call->node);
    const char *text = fb_node_target(call->graph, call->node);
    if (row->opcode == FB_CALL_MODULE) text = fb_text(call->graph, fb_module_at(call->graph, row->module)->type);
    if (call->recipes.id) text = fb_value_text(call->graph, fb_value_item(call->graph, call->recipes, 0));
    return row->opcode == FB_CALL_METHOD ? text : fb_function_name(text);
}

bool fb_call_is_of_nn(const fb_kernel_call *call) {
    const fb_node_row *row = fb_node_at(call->graph, call->node);
    bool is_functional =
        row->opcode == FB_CALL_FUNCTION && fb_is_spelled(fb_node_target(call->graph, call->node), FB_FUNCTIONAL);
    return is_functional || row->opcode == FB_CALL_MODULE;
}

bool fb_call_is_spelled(const fb_kernel_call *call, const char *name) {
    const char *spelling = fb_call_spelling(call);
    size_t length = strlen(name);
    if (strncmp(spelling, name, length) != 0) return false;
    if (spelling[length] == '_' && (!spelling[length + 1] || spelling[length + 1] == '.')) length++; /* in place */
    return !spelling[length] || spelling[length] == '.';
}

/* The first failure of a call counts. */
static void fail(fb_kernel_call *call, const char *code, const char *verdict, const char *format, va_list list) {
    char why[300];
    if (call->status) return;
    vsnprintf(why, sizeof why, format, list);
    call->status = fb_fail(call->error, FB_INVALID, code, NULL, "%s (%s)%s: %s", fb_node_name(call->graph, call->node),
                           fb_node_target(call->graph, call->node), verdict, why);
}

fb_status fb_kernel_unsupported(fb_kernel_call *call, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fail(call, "unsupported-operator", " cannot be evaluated", format, list);
    va_end(list);
    return call->status;
}

fb_status fb_kernel_fail(fb_kernel_call *call, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fail(call, "evaluation-failed", "", format, list);
    va_end(list);
    return call->status;
}

fb_status fb_kernel_undefined(fb_kernel_call *call, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fail(call, FB_UNDEFINED_RESULT, " cannot be evaluated", format, list);
    va_end(list);
    return call->status;
}

fb_status fb_return_array(fb_kernel_call *call, fb_array *array, fb_object *result) {
    if (array && !call->status) call->status = fb_array_check_sizes(array->rank, array->sizes, call->error);
    if (array && !call->status) *result = (fb_object){.kind = FB_OBJECT_ARRAY, .array = array};
    else fb_array_drop(array);
    if (!array && !call->status) call->status = fb_fail_memory(call->error);
    return call->status;
}

fb_status fb_return_tuple(fb_kernel_call *call, fb_array *const *items, size_t count, fb_object *result) {
    if (!call->status) call->status = fb_object_sequence(FB_OBJECT_TUPLE, count, result, call->error);
    for (size_t i = 0; i < count; i++) {
        if (call->status) fb_array_drop(items[i]);
        else result->items->objects[i] = (fb_object){.kind = FB_OBJECT_ARRAY, .array = items[i]};
    }
    return call->status;
}

/* The maker's failure becomes the call's. */
#define MAKE(expression)                                                                                                       \
    fb_array *made = NULL;                                                                                                     \
    if (!call->status) call->status = (expression);                                                                            \
    return call->status ? NULL : made

/* 812345678901 as "812 billion": a number to compare, not to calculate with. */
static void print_steps(double steps, char *out, size_t size) {
    static const char *const units[] = {"", " thousand", " million", " billion", " trillion"};
    size_t unit = 0;
    for (; steps >= 1e4 && unit < sizeof units / sizeof *units - 1; unit++) steps /= 1000;
    snprintf(out, size, "%.4g%s", steps, units[unit]);
}

bool fb_kernel_takes(fb_kernel_call *call, double steps) {
    const fb_evaluator *evaluator = call->evaluator;
    double limit = evaluator->options->step_limit > 0 ? evaluator->options->step_limit : FB_EVAL_STEPS;
    if (call->status) return false;
    if ((call->evaluator->steps += steps) <= limit) return true;
    char taken[40], most[40];
    print_steps(steps, taken, sizeof taken);
    print_steps(limit, most, sizeof most);
    call->status = fb_fail(call->error, FB_TOO_LARGE, "evaluation-too-large", NULL,
                           "%s (%s) takes about %s steps; one evaluation may take %s in all",
                           fb_node_name(call->graph, call->node), fb_node_target(call->graph, call->node), taken, most);
    return false;
}

bool fb_kernel_goes_on(fb_kernel_call *call, int64_t steps) {
    fb_work *work = fb_call_work(call);
    if (!call->status && !fb_work_goes_on(work, steps)) call->status = fb_work_status(work, call->error);
    return !call->status;
}

/* Elements of those sizes, as an estimate. */
static double elements_of(int rank, const int64_t *sizes) {
    double count = 1;
    for (int i = 0; i < rank; i++) count *= (double)sizes[i];
    return count;
}

/* May this call make an array of the dtype? */
static bool may_make(fb_kernel_call *call, fb_dtype dtype) {
    if (call->takes_complex || !fb_dtype_is_complex(dtype)) return true;
    return fb_kernel_unsupported(call, "it is not evaluated for complex numbers") == FB_OK;
}

fb_array *fb_make_array(fb_kernel_call *call, fb_dtype dtype, int rank, const int64_t *sizes) {
    if (!may_make(call, dtype)) return NULL;
    if (rank <= FB_MAX_RANK) fb_kernel_takes(call, elements_of(rank, sizes));
    MAKE(fb_array_new(call->memory, dtype, rank, sizes, &made, call->error));
}
fb_array *fb_make_view(fb_kernel_call *call, const fb_array *of, int rank) {
    MAKE(fb_array_view(of, rank, &made, call->error));
}
fb_array *fb_make_contiguous(fb_kernel_call *call, fb_array *array) {
    if (!fb_array_is_contiguous(array)) fb_kernel_takes(call, elements_of(array->rank, array->sizes));
    MAKE(fb_array_contiguous(array, &made, call->error));
}
fb_array *fb_make_cast(fb_kernel_call *call, const fb_array *array, fb_dtype dtype) {
    if (!may_make(call, dtype)) return NULL;
    fb_kernel_takes(call, elements_of(array->rank, array->sizes));
    MAKE(fb_array_cast(array, dtype, &made, call->error));
}

void *fb_make_workspace(fb_kernel_call *call, int64_t count, size_t element) {
    size_t size;
    if (call->status) return NULL;
    if (count < 0 || __builtin_mul_overflow((size_t)count, element, &size) || size > PTRDIFF_MAX) size = PTRDIFF_MAX;
    call->status = fb_array_memory_take(call->memory, size, call->error);
    if (call->status) return NULL;
    void *bytes = malloc(size ? size : 1);
    if (bytes) return bytes;
    fb_array_memory_give(call->memory, size);
    call->status = fb_fail_memory(call->error);
    return NULL;
}

void fb_free_workspace(fb_kernel_call *call, void *workspace, int64_t count, size_t element) {
    if (workspace) fb_array_memory_give(call->memory, (size_t)count * element);
    free(workspace);
}
