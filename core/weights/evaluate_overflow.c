/* Numbers that a recipe makes infinite, or nan, of finite ones: the dtype of its tensor is too narrow for them.
 *
 * A number that is not finite says nothing by itself, as the weights that it is made of may have been infinite: masks are. So
 * these are looked at when the first such number comes up. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/weights/dtype.h"
#include "core/weights/evaluate_internal.h"
#include "core/weights/inputs.h"

static bool are_finite(fb_dtype dtype, const unsigned char *bytes, size_t size) {
    enum { AT_ONCE = 512 };
    const size_t element = fb_dtype_size(dtype), count = size / element;
    double numbers[AT_ONCE], zero = 0; /* infinity and nan times 0 are nan */
    for (size_t from = 0; from < count; from += AT_ONCE) {
        size_t some = count - from < AT_ONCE ? count - from : AT_ONCE;
        fb_decode_numbers(dtype, bytes + from * element, some, numbers);
        for (size_t i = 0; i < some; i++) zero += numbers[i] * 0;
    }
    return zero == 0;
}

/* ---- what it is made of -------------------------------------------------------------------------------------------------- */

typedef struct source_look {
    const fb_graph *graph;
    const fb_blobs *blobs;
    bool are_finite;
    fb_status status;
    fb_error *error;
} source_look;

/* Numbers of fillers, as a mask's -inf. */
static void look_at_fillers(source_look *look, fb_value expression) {
    double number;
    if (fb_recipe_op_of(look->graph, expression) == FB_RECIPE_NONE) return;
    fb_value value = fb_recipe_value(look->graph, expression, "value");
    if (value.id && fb_value_is_number(look->graph, value, &number)) look->are_finite &= isfinite(number) != 0;
    for (size_t i = 0; i < fb_recipe_arg_count(look->graph, expression); i++)
        look_at_fillers(look, fb_recipe_arg(look->graph, expression, i));
}

static void look_at_source(void *context, fb_tensor tensor) {
    source_look *look = context;
    const fb_tensor_row *row = fb_tensor_at(look->graph, tensor);
    fb_evaluation *evaluation = NULL;
    fb_extent extent;
    if (look->status || !look->are_finite) return;
    if (row->recipe.id) look_at_fillers(look, row->recipe);
    if (row->recipe.id || !fb_dtype_is_computed((fb_dtype)row->dtype)) return;
    look->status = fb_evaluation_new(look->graph, tensor, look->blobs, &evaluation, look->error);
    if (!look->status) look->status = fb_evaluation_extent(evaluation, &extent, look->error);
    if (!look->status) look->are_finite = extent.is_finite;
    fb_evaluation_free(evaluation);
}

typedef struct walking {
    fb_inputs_walk walk;
    source_look *look;
} walking;

static void visit_inputs(void *context, fb_tensor tensor) {
    walking *w = context;
    fb_inputs_visit(&w->walk, tensor, look_at_source, w->look);
}

static bool has_finite_sources(fb_evaluation *e) {
    source_look look = {.graph = e->graph, .blobs = e->blobs, .are_finite = true, .error = e->error};
    walking w = {.look = &look};
    look_at_fillers(&look, e->expression);
    if (fb_inputs_begin(&w.walk, e->graph)) fb_value_visit_tensors(e->graph, e->expression, visit_inputs, &w);
    if (!fb_inputs_end(&w.walk)) fb_evaluation_no_memory(e);
    if (!e->status) e->status = look.status;
    return look.are_finite;
}

/* ---- what comes of it ---------------------------------------------------------------------------------------------------- */

bool fb_evaluation_check_finite(fb_evaluation *e, const unsigned char *bytes, size_t size) {
    if (!e->refuses_overflow || are_finite(e->dtype, bytes, size)) return true;
    if (!has_finite_sources(e)) {
        e->refuses_overflow = false;
        return !e->status;
    }
    fb_tensor tensor = fb_value_tensor(e->graph, e->expression);
    if (!e->status)
        fb_evaluation_fail(
            e, FB_CONFLICT, FB_TENSOR_OVERFLOWS,
            "%.200s, which passes made of finite numbers, has some that are infinite or nan in %s; run the passes "
            "on the graph with these weights bound, and they leave it as it was",
            tensor.id ? fb_tensor_name(e->graph, tensor) : "a tensor", fb_dtype_name(e->dtype));
    return false;
}

fb_status fb_evaluation_refuse_overflow(fb_evaluation *e, uint64_t *left, fb_error *error) {
    uint64_t size = fb_evaluation_size(e);
    fb_extent ignored;
    e->refuses_overflow = e->computes && fb_dtype_is_computed(e->dtype);
    if (!e->refuses_overflow || !left || size > *left) return FB_OK;
    *left -= size;
    return fb_evaluation_extent(e, &ignored, error);
}
