#include "core/validation/task.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/weights/dtype.h"

static const char *const names[] = {[FB_METRIC_TOP1] = "top1",
                                    [FB_METRIC_COSINE] = "cosine",
                                    [FB_METRIC_MSE] = "mse",
                                    [FB_METRIC_MAX_RELATIVE] = "max-relative"};

const char *fb_metric_name(fb_metric metric) {
    return names[metric];
}

bool fb_metric_find(const char *name, fb_metric *out) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *out = (fb_metric)i;
        return true;
    }
    return false;
}

bool fb_metric_grows(fb_metric metric) {
    return metric == FB_METRIC_TOP1 || metric == FB_METRIC_COSINE;
}

#define EXPECTED "output."

bool fb_is_expected_name(const char *name) {
    size_t length = strlen(EXPECTED);
    return strncmp(name, EXPECTED, length) == 0 && name[length] && strspn(name + length, "0123456789") == strlen(name + length);
}

/* ---- one graph ----------------------------------------------------------------------------------------------------------- */

typedef struct evaluation {
    fb_array_memory memory;
    fb_object output;
    fb_array **arrays;
    size_t count;
} evaluation;

static fb_status run(evaluation *e, const fb_graph *graph, const fb_task *task, const fb_eval_options *options,
                     const evaluation *last, fb_error *error) {
    fb_eval_inputs given = {.graph = graph, .memory = &e->memory, .items = task->items, .count = task->count};
    fb_eval_hooks hooks = {.context = &given, .given = fb_give_input};
    fb_eval_options held = *options;
    if (last) held.memory_held += last->memory.used;
    fb_status status = fb_evaluate_graph(graph, &held, &hooks, &e->memory, &e->output, error);
    return status ? status : fb_flatten_output(&e->output, &e->arrays, &e->count, error);
}

static void end(evaluation *e) {
    for (size_t i = 0; i < e->count; i++) fb_array_drop(e->arrays[i]);
    free(e->arrays);
    fb_object_drop(&e->output);
}

/* ---- measures ------------------------------------------------------------------------------------------------------------ */

static const fb_array *item_named(const fb_task *task, const char *name) {
    for (size_t i = 0; i < task->count && name; i++)
        if (!strcmp(task->items[i].name, name)) return task->items[i].array;
    return NULL;
}

/* The mask, where its sizes are the first of the array's; otherwise all of the array counts. It must be that of one output. */
static const fb_array *mask_of(const fb_task *task, const fb_array *array) {
    const fb_array *mask = item_named(task, task->mask);
    bool fits = mask && mask->rank <= array->rank && fb_array_count(mask);
    for (int i = 0; fits && i < mask->rank; i++) fits = mask->sizes[i] == array->sizes[i];
    return fits ? mask : NULL;
}

/* `per` elements of the array have one position of the mask. */
static bool counts(const fb_array *mask, int64_t per, int64_t i) {
    return !mask || fb_array_number(mask, i / per) != 0;
}

static bool leaves_any(const fb_array *mask) {
    bool any = !mask;
    for (int64_t i = 0, count = mask ? fb_array_count(mask) : 0; i < count && !any; i++) any = fb_array_number(mask, i) != 0;
    return any;
}

static int64_t largest_of_row(const fb_array *array, int64_t row, int64_t size) {
    int64_t found = 0;
    double most = -HUGE_VAL;
    for (int64_t i = 0; i < size; i++) {
        double number = fb_array_number(array, row * size + i);
        if (number > most || isnan(number)) found = i, most = isnan(number) ? HUGE_VAL : number;
    }
    return found;
}

static bool is_integer(const fb_array *array) {
    return !fb_dtype_is_floating(array->dtype) && !fb_dtype_is_complex(array->dtype);
}

/* Are these the places of the largest elements of the array's rows? */
static bool are_labels(const fb_array *labels, const fb_array *array) {
    bool fits = is_integer(labels) && labels->rank == array->rank - 1;
    for (int i = 0; fits && i < labels->rank; i++) fits = labels->sizes[i] == array->sizes[i];
    return fits;
}

static bool same_sizes(const fb_array *a, const fb_array *b) {
    return a->rank == b->rank && memcmp(a->sizes, b->sizes, (size_t)a->rank * sizeof *a->sizes) == 0;
}

static double top1(const fb_array *found, const fb_array *expected, const fb_array *mask, fb_work *work) {
    bool by_labels = are_labels(expected, found), is_place = !by_labels && (is_integer(found) || !found->rank);
    int64_t size = is_place || !found->rank ? 1 : found->sizes[found->rank - 1], rows = size ? fb_array_count(found) / size : 0;
    int64_t per = mask ? rows / fb_array_count(mask) : 1, equal = 0, all = 0;
    if (mask && !per) mask = NULL; /* it has the last dimension as well */
    for (int64_t row = 0; row < rows && fb_work_goes_on(work, size); row++) {
        if (!counts(mask, per, row)) continue;
        double one = is_place ? fb_array_number(found, row) : (double)largest_of_row(found, row, size);
        double other = by_labels || is_place ? fb_array_number(expected, row) : (double)largest_of_row(expected, row, size);
        equal += one == other;
        all++;
    }
    return all ? (double)equal / (double)all : 1;
}

static double distance(fb_metric metric, const fb_array *found, const fb_array *expected, const fb_array *mask, fb_work *work) {
    int64_t count = fb_array_count(found), per = mask ? count / fb_array_count(mask) : 1, all = 0;
    double squares = 0, product = 0, of_found = 0, of_expected = 0, apart = 0, largest = 0;
    bool is_nan = false;
    for (int64_t i = 0; i < count && fb_work_goes_on(work, 4); i++) {
        if (!counts(mask, per, i)) continue;
        double a = fb_array_number(found, i), b = fb_array_number(expected, i);
        is_nan |= isnan(a - b) && !(a == b);
        if (a != b) squares += (a - b) * (a - b), apart = fmax(apart, fabs(a - b));
        product += a * b;
        of_found += a * a;
        of_expected += b * b;
        largest = fmax(largest, fabs(b));
        all++;
    }
    if (is_nan) return NAN;
    if (metric == FB_METRIC_MSE) return all ? squares / (double)all : 0;
    if (metric == FB_METRIC_MAX_RELATIVE) return apart == 0 ? 0 : apart / largest;
    if (of_found == 0 && of_expected == 0) return 1;
    return product / (sqrt(of_found) * sqrt(of_expected));
}

static fb_status measure(const fb_task *task, size_t i, const fb_array *found, const fb_array *expected, double *out,
                         fb_error *error) {
    const fb_array *mask = mask_of(task, found);
    bool is_top1 = task->metric == FB_METRIC_TOP1, fits = same_sizes(found, expected);
    if (!fits && !(is_top1 && are_labels(expected, found)))
        return fb_fail(error, FB_INVALID, "output-mismatch", NULL, "output.%zu has another shape than what is expected of it",
                       i);
    if (fb_dtype_is_complex(found->dtype) || fb_dtype_is_complex(expected->dtype))
        return fb_fail(error, FB_INVALID, "unsupported-dtype", NULL, "output.%zu is complex, which has no measure", i);
    if (!leaves_any(mask))
        return fb_fail(error, FB_INVALID, "output-mismatch", NULL, "the mask %.80s leaves nothing of output.%zu", task->mask,
                       i);
    fb_work *work = fb_array_work(found);
    *out = is_top1 ? top1(found, expected, mask, work) : distance(task->metric, found, expected, mask, work);
    return fb_work_status(work, error);
}

/* ---- both graphs --------------------------------------------------------------------------------------------------------- */

static fb_status measure_output(const fb_task *task, size_t i, const fb_array *before, const fb_array *after,
                                fb_task_output *out, fb_error *error) {
    char name[40];
    snprintf(name, sizeof name, EXPECTED "%zu", i);
    const fb_array *expected = item_named(task, name);
    *out = (fb_task_output){.before = NAN};
    fb_status status = measure(task, i, after, expected ? expected : before, &out->value, error);
    if (!status && expected) status = measure(task, i, before, expected, &out->before, error);
    out->passes = fb_metric_grows(task->metric) ? out->value >= task->bound : out->value <= task->bound;
    return status;
}

fb_status fb_task_measure(const fb_graph *before, const fb_graph *after, const fb_task *task, const fb_eval_options *options,
                          fb_task_result *out, fb_error *error) {
    evaluation of[2] = {0};
    fb_status status = run(&of[0], before, task, options, NULL, error);
    if (!status) status = run(&of[1], after, task, options, &of[0], error);
    *out = (fb_task_result){.count = of[0].count, .passes = true};
    if (!status && of[0].count != of[1].count)
        status = fb_fail(error, FB_INVALID, "output-mismatch", NULL, "the result gives %zu tensors, the graph before %zu",
                         of[1].count, of[0].count);
    for (size_t i = 0; i < task->count && !status; i++)
        if (fb_is_expected_name(task->items[i].name) &&
            strtoul(task->items[i].name + strlen(EXPECTED), NULL, 10) >= (unsigned long)out->count)
            status = fb_fail(error, FB_INVALID, "output-mismatch", NULL, "there is no %.80s: the graph gives %zu tensors",
                             task->items[i].name, out->count);
    bool is_used = !task->mask || status;
    for (size_t i = 0; i < of[1].count && !is_used; i++) is_used = mask_of(task, of[1].arrays[i]) != NULL;
    if (!is_used)
        status = fb_fail(error, FB_INVALID, "output-mismatch", NULL, "the mask %.80s has not the first sizes of any output",
                         task->mask);
    if (!status && !(out->outputs = calloc(out->count + 1, sizeof *out->outputs))) status = fb_fail_memory(error);
    for (size_t i = 0; i < out->count && !status; i++) {
        status = measure_output(task, i, of[0].arrays[i], of[1].arrays[i], &out->outputs[i], error);
        out->passes &= out->outputs[i].passes;
    }
    for (int k = 0; k < 2; k++) end(&of[k]);
    if (status) free(out->outputs), out->outputs = NULL;
    return status;
}
