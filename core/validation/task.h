/* A result that is meant to change, judged by a measure of its task on a caller's inputs. */
#ifndef FB_VALIDATION_TASK_H
#define FB_VALIDATION_TASK_H

#include "core/evaluator/evaluator.h"

typedef enum fb_metric {
    FB_METRIC_TOP1,         /* on which part of all rows the largest element is at the same place */
    FB_METRIC_COSINE,       /* of the angle between both, all elements together */
    FB_METRIC_MSE,          /* mean of the squared differences */
    FB_METRIC_MAX_RELATIVE, /* the largest difference, by the largest magnitude of what is expected */
} fb_metric;
#define FB_METRIC_NAMES "top1, cosine, mse, max-relative"

const char *fb_metric_name(fb_metric metric);
/* False for what names none. */
bool fb_metric_find(const char *name, fb_metric *out);
/* Is a larger number better? */
bool fb_metric_grows(fb_metric metric);

typedef struct fb_task {
    const fb_named_array *items; /* inputs, all of which must be given; what is expected, "output.0" …; the mask */
    size_t count;
    const char *mask; /* of the items: positions where it is 0 do not count; NULL = all do */
    fb_metric metric;
    double bound; /* at least, or at most */
} fb_task;

/* Expected is what the file says: an array as the output, or the places of the largest elements, integers without the last
 * dimension (labels). An output of which it says nothing should be what it was before. */
typedef struct fb_task_output {
    double value, before; /* of the result; of the graph before, where something is expected, else nan */
    bool passes;
} fb_task_output;

typedef struct fb_task_result {
    fb_task_output *outputs; /* malloc'ed */
    size_t count;
    bool passes;
} fb_task_result;

/* Is it the name of what is expected of an output? */
bool fb_is_expected_name(const char *name);

/* FB_INVALID "output-mismatch": other numbers of outputs, or shapes, or a mask of none of them or of zeros; otherwise as
 * fb_evaluate_graph. Free the result. */
fb_status fb_task_measure(const fb_graph *before, const fb_graph *after, const fb_task *task, const fb_eval_options *options,
                          fb_task_result *out, fb_error *error);

#endif
