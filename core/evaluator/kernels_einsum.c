/* einsum: products of elements that agree in their labels, summed over the labels that the result lacks. */
#include <complex.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buffer.h"
#include "core/evaluator/internal.h"
#include "core/evaluator/loops.h"

enum { LETTERS = 52, LABELS = LETTERS + FB_MAX_RANK, MAX_OPERANDS = 8, STEPS_OF_A_PRODUCT = 12 };
#define TOO_MANY "it is evaluated for 1 to %d operands"

typedef struct einsum {
    fb_kernel_call *call;
    size_t count;
    fb_array *inputs[MAX_OPERANDS];         /* row-major */
    int64_t strides[MAX_OPERANDS][LABELS];  /* by label: 0 where the operand lacks it, or has one element of it */
    int64_t sizes[LABELS];                  /* 0 … of a label that is used */
    int uses[LABELS];                       /* how often a label occurs in the operands */
    int order[LABELS], result_rank, labels; /* the result's labels, then those that are summed over */
    int ellipsis;                           /* dimensions that `...` represents, at most */
    bool is_complex;                        /* all operands are */
    fb_array *out;
    int64_t next;
} einsum;

/* A to Z before a to z, as they are sorted. */
static int label_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    return c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}

static char letter_of(int64_t label) {
    return (char)(label < 26 ? 'A' + label : 'a' + label - 26);
}

/* Reads one subscript, up to a comma, "->" or the end: its labels, with LETTERS for `...`. Gives their number; -1 = not one. */
static int read_subscript(const char **text, int labels[LABELS]) {
    int count = 0;
    bool has_ellipsis = false;
    for (; **text && **text != ',' && **text != '-'; (*text)++) {
        if (**text == ' ') continue;
        bool is_ellipsis = strncmp(*text, "...", 3) == 0;
        int label = is_ellipsis ? LETTERS : label_of(**text);
        if (label < 0 || count == FB_MAX_RANK + 1 || (is_ellipsis && has_ellipsis)) return -1;
        has_ellipsis |= is_ellipsis;
        labels[count++] = label;
        if (is_ellipsis) *text += 2;
    }
    return count;
}

/* Records that a dimension of an operand has this label. `own`: 1 + the size of each label in this operand, 0 = not seen yet.
 * A dimension of one element is repeated. */
static bool add_dimension(einsum *e, size_t operand, int label, int64_t size, int64_t stride, int64_t *own) {
    bool fits_others = !e->uses[label] || e->sizes[label] == size || size == 1 || e->sizes[label] == 1;
    if (!fits_others || (own[label] && own[label] != size + 1))
        return fb_kernel_fail(e->call, "the sizes of one of its labels do not fit") == FB_OK;
    if (!e->uses[label] || e->sizes[label] == 1) e->sizes[label] = size;
    if (size != 1) e->strides[operand][label] += stride;
    own[label] = size + 1;
    e->uses[label]++;
    return true;
}

static bool add_operand(einsum *e, size_t operand, const fb_array *array, const int *labels, int count) {
    bool has_ellipsis = false;
    int64_t own[LABELS] = {0};
    for (int i = 0; i < count; i++) has_ellipsis |= labels[i] == LETTERS;
    int rest = array->rank - (count - has_ellipsis), dim = 0;
    if (rest < 0 || (rest && !has_ellipsis))
        return fb_kernel_fail(e->call, "a subscript does not have as many labels as its operand dimensions") == FB_OK;
    if (has_ellipsis && rest > e->ellipsis) e->ellipsis = rest;
    for (int i = 0; i < count; i++) {
        int times = labels[i] == LETTERS ? rest : 1;
        for (int k = 0; k < times; k++, dim++) {
            /* the dimensions of `...` are aligned at their end */
            int label = labels[i] == LETTERS ? LABELS - rest + k : labels[i];
            if (!add_dimension(e, operand, label, array->sizes[dim], array->strides[dim], own)) return false;
        }
    }
    return true;
}

static void put_ellipsis(einsum *e) {
    for (int i = LABELS - e->ellipsis; i < LABELS; i++) e->order[e->result_rank++] = i;
}

static bool read_result(einsum *e, const char *text) {
    int labels[LABELS], count = 0;
    bool is_in_result[LABELS] = {false};
    if (*text) {
        text += 2;
        count = read_subscript(&text, labels);
        if (count < 0 || *text) return fb_kernel_fail(e->call, "its equation is not one") == FB_OK;
        for (int i = 0; i < count; i++) {
            if (labels[i] == LETTERS) put_ellipsis(e);
            else if (is_in_result[labels[i]] || !e->uses[labels[i]])
                return fb_kernel_fail(e->call, "a label of its result stands there twice, or in no operand") == FB_OK;
            else e->order[e->result_rank++] = labels[i];
            if (labels[i] != LETTERS) is_in_result[labels[i]] = true;
        }
    } else {
        put_ellipsis(e);
        for (int i = 0; i < LETTERS; i++)
            if (e->uses[i] == 1) e->order[e->result_rank++] = i;
    }
    if (e->result_rank > FB_MAX_RANK) return fb_kernel_unsupported(e->call, "its result has too many dimensions") == FB_OK;
    bool is_listed[LABELS] = {false};
    for (int i = 0; i < e->result_rank; i++) is_listed[e->order[i]] = true;
    e->labels = e->result_rank;
    for (int i = 0; i < LABELS; i++)
        if (e->uses[i] && !is_listed[i]) e->order[e->labels++] = i;
    return true;
}

static bool read_equation(einsum *e, const char *text, fb_array *const *operands) {
    for (size_t i = 0; i < e->count; i++) {
        int labels[LABELS], count = read_subscript(&text, labels);
        bool is_last = i + 1 == e->count, ends = !*text || strncmp(text, "->", 2) == 0;
        if (count < 0 || (is_last ? !ends : *text != ','))
            return fb_kernel_fail(e->call, "its equation is not one, or not for so many operands") == FB_OK;
        if (!add_operand(e, i, operands[i], labels, count)) return false;
        text += !is_last;
    }
    return read_result(e, text);
}

/* ---- computing ---------------------------------------------------------------------------------------------------------- */

static double _Complex complex_at(const fb_array *array, int64_t at) {
    at += array->offset;
    return array->held == FB_HELD_COMPLEX_FLOAT ? (double _Complex)((const float _Complex *)array->storage->bytes)[at]
                                                : ((const double _Complex *)array->storage->bytes)[at];
}

static double _Complex sum_over(einsum *e, int depth, const int64_t at[MAX_OPERANDS]) {
    if (depth == e->labels && e->is_complex) {
        double _Complex product = 1;
        for (size_t i = 0; i < e->count; i++) product = fb_complex_product(product, complex_at(e->inputs[i], at[i]));
        return product;
    }
    if (depth == e->labels) {
        double product = 1;
        for (size_t i = 0; i < e->count; i++) product *= fb_array_get(e->inputs[i], at[i]);
        return product;
    }
    int label = e->order[depth];
    int64_t now[MAX_OPERANDS];
    double _Complex sum = 0;
    memcpy(now, at, sizeof now);
    for (int64_t k = 0; k < e->sizes[label] && fb_kernel_goes_on(e->call, STEPS_OF_A_PRODUCT); k++) {
        sum += sum_over(e, depth + 1, now);
        for (size_t i = 0; i < e->count; i++) now[i] += e->strides[i][label];
    }
    return sum;
}

static void fill(einsum *e, int depth, const int64_t at[MAX_OPERANDS]) {
    if (depth == e->result_rank) {
        double _Complex sum = sum_over(e, depth, at);
        if (e->out->held == FB_HELD_COMPLEX_DOUBLE) ((double _Complex *)fb_array_data(e->out))[e->next++] = sum;
        else if (e->is_complex) ((float _Complex *)fb_array_data(e->out))[e->next++] = (float _Complex)sum;
        else fb_array_put(e->out, e->next++, creal(sum));
        return;
    }
    int label = e->order[depth];
    int64_t now[MAX_OPERANDS];
    memcpy(now, at, sizeof now);
    for (int64_t k = 0; k < e->sizes[label] && fb_kernel_goes_on(e->call, STEPS_OF_A_PRODUCT); k++) {
        fill(e, depth + 1, now);
        for (size_t i = 0; i < e->count; i++) now[i] += e->strides[i][label];
    }
}

/* Gives a view, as PyTorch does of one operand without a sum. */
static fb_status view_of(einsum *e, fb_array *operand, fb_object *result) {
    fb_array *view = fb_make_view(e->call, operand, e->result_rank);
    for (int i = 0; view && i < e->result_rank; i++) {
        view->sizes[i] = e->sizes[e->order[i]];
        view->strides[i] = e->strides[0][e->order[i]];
    }
    return fb_return_array(e->call, view, result);
}

static fb_status multiply(einsum *e, fb_dtype dtype, fb_object *result) {
    int64_t sizes[FB_MAX_RANK] = {0}, at[MAX_OPERANDS] = {0};
    double steps = STEPS_OF_A_PRODUCT;
    for (int i = 0; i < e->result_rank; i++) sizes[i] = e->sizes[e->order[i]];
    for (int i = 0; i < e->labels; i++) steps *= (double)e->sizes[e->order[i]];
    e->out = fb_make_array(e->call, dtype, e->result_rank, sizes);
    if (e->out && fb_array_count(e->out) && fb_kernel_takes(e->call, steps)) fill(e, 0, at);
    return fb_return_array(e->call, e->out, result);
}

static fb_status compute(einsum *e, const char *equation, fb_array **operands, fb_object *result) {
    e->is_complex = fb_dtype_is_complex(operands[0]->dtype);
    for (size_t i = 0; i < e->count; i++)
        if (operands[i]->dtype != operands[0]->dtype || (!e->is_complex && !fb_dtype_is_floating(operands[i]->dtype)))
            return fb_kernel_unsupported(e->call, "it is evaluated for floats or complex numbers of one dtype alone");
    for (size_t i = 0; i < e->count && e->count > 1; i++)
        if (!(operands[i] = e->inputs[i] = fb_make_contiguous(e->call, operands[i]))) return e->call->status;
    if (!read_equation(e, equation, operands)) return e->call->status;
    if (e->count == 1 && e->labels == e->result_rank) return view_of(e, operands[0], result);
    if (e->count == 1) {
        einsum again = {.call = e->call, .count = 1, .is_complex = e->is_complex};
        if (!(again.inputs[0] = e->inputs[0] = fb_make_contiguous(e->call, operands[0]))) return e->call->status;
        if (!read_equation(&again, equation, again.inputs)) return e->call->status;
        return multiply(&again, again.inputs[0]->dtype, result);
    }
    return multiply(e, operands[0]->dtype, result);
}

/* A subscript as a list: of labels from 0 to 51, and `...`. */
static void append_sublist(fb_kernel_call *call, fb_buffer *equation, const fb_object *sublist) {
    if (!fb_object_is_sequence(sublist)) {
        fb_kernel_unsupported(call, "its arguments are not tensors and lists in turn");
        return;
    }
    for (size_t i = 0; i < sublist->items->count && !call->status && fb_kernel_goes_on(call, 1); i++) {
        const fb_object *item = &sublist->items->objects[i];
        int64_t label;
        if (item->kind == FB_OBJECT_ELLIPSIS) fb_buffer_string(equation, "...");
        else if (!fb_object_int(item, &label)) fb_kernel_unsupported(call, "a label in its lists is not a number");
        else if (label < 0 || label >= LETTERS)
            fb_kernel_fail(call, "its lists have a label that is not from 0 to %d", LETTERS - 1);
        else fb_buffer_char(equation, letter_of(label));
    }
}

/* einsum(a, [0, 1], b, [1, 2], [0, 2]) is einsum("AB,BC->AC", a, b). */
static fb_status compute_sublists(einsum *e, fb_object *result) {
    fb_kernel_call *call = e->call;
    const fb_node_row *row = fb_node_at(call->graph, call->node);
    const fb_value_row *args = fb_value_at(call->graph, row->args);
    fb_object given[2 * MAX_OPERANDS + 1] = {{.kind = FB_OBJECT_NONE}};
    fb_array *operands[MAX_OPERANDS];
    fb_buffer equation = {0};
    e->count = args->count / 2;
    if (args->count < 2 || fb_value_at(call->graph, row->kwargs)->count)
        return fb_kernel_unsupported(call, "its arguments are not tensors and lists in turn");
    if (args->count > sizeof given / sizeof *given) return fb_kernel_unsupported(call, TOO_MANY, MAX_OPERANDS);
    fb_arguments_are_read(call);
    for (uint32_t i = 0; i < args->count && !call->status; i++) {
        call->status = fb_evaluate_value(call->evaluator, args->items[i], &given[i]);
        bool is_operand = i % 2 == 0 && i + 1 < args->count;
        if (call->status) break;
        if (!is_operand) {
            if (i > 1) fb_buffer_string(&equation, i % 2 ? "," : "->");
            append_sublist(call, &equation, &given[i]);
        } else if (given[i].kind != FB_OBJECT_ARRAY)
            fb_kernel_unsupported(call, "its arguments are not tensors and lists in turn");
        else operands[i / 2] = given[i].array;
    }
    const char *text = fb_buffer_text(&equation);
    if (!call->status && !text) call->status = fb_fail_memory(call->error);
    if (!call->status) call->status = compute(e, text, operands, result);
    for (uint32_t i = 0; i < args->count; i++) fb_object_drop(&given[i]);
    fb_buffer_free(&equation);
    return call->status;
}

static fb_status compute_equation(einsum *e, fb_object *result) {
    const char *equation;
    fb_array **operands = NULL;
    if (!fb_argument_text(e->call, "equation", &equation) || !fb_argument_arrays(e->call, "operands", &operands, &e->count))
        return e->call->status;
    fb_status status = e->count < 1 || e->count > MAX_OPERANDS ? fb_kernel_unsupported(e->call, TOO_MANY, MAX_OPERANDS)
                                                               : compute(e, equation, operands, result);
    free(operands);
    return status;
}

static fb_status kernel_einsum(fb_kernel_call *call, fb_object *result) {
    einsum e = {.call = call};
    const fb_object *first = fb_argument(call, "equation");
    bool has_sublists = first && first->kind == FB_OBJECT_ARRAY;
    fb_status status = has_sublists ? compute_sublists(&e, result) : compute_equation(&e, result);
    for (size_t i = 0; i < MAX_OPERANDS; i++) fb_array_drop(e.inputs[i]);
    return status;
}

const fb_kernel_row fb_kernels_einsum[] = {
    FB_KERNEL_COMPLEX(EINSUM, einsum),
    FB_KERNELS_END,
};
