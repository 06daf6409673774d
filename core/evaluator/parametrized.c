/* Parametrised modules, as torch.fx calls them: torch.nn.utils' weight_norm, spectral_norm (old and new) and prune compute a
 * weight from other tensors at each call. The exporter says in config.parametrized how:
 *
 *     ["torch.nn.Conv1d",                                              the class whose forward() runs
 *      ["weight", "weight_norm", dim, "weight_v", "weight_g"],         v × g / norm of v over all dimensions but `dim`
 *      ["weight", "spectral_norm", dim, eps, original, u, v],          original / (u · (M v))
 *      ["weight", "orthogonal", map, original, base],                  by kernels_linalg.c; base may be null
 *      ["weight", "mask", original, mask]]                             original × mask
 *
 * A `dim` of -1 in weight_norm means the norm of all of v. M is the original as a matrix: `dim` first, the rest flat.
 *
 * Names are of tensors below the module: "parametrizations.weight.original1". Where a weight has several recipes they follow
 * each other, and `original` is null from the second on: the result of the one before. Any other recipe is refused by name.
 * Such a module has no row in ops.def, so that no pass takes it for its class. */
#include <math.h>
#include <string.h>

#include "core/base/buffer.h"
#include "core/evaluator/internal.h"

fb_op fb_parametrized_op(const fb_graph *graph, fb_node node, fb_value *recipes) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->opcode != FB_CALL_MODULE || !row->module.id) return FB_OP_UNKNOWN;
    fb_value list = fb_module_config(graph, row->module, "parametrized"), name = fb_value_item(graph, list, 0);
    if (!list.id || fb_value_kind(graph, list) != FB_LIST || fb_value_kind(graph, name) != FB_STRING) return FB_OP_UNKNOWN;
    const char *type = fb_value_text(graph, name);
    fb_op op = fb_op_of_module(type, strlen(type));
    if (op) *recipes = list;
    return op;
}

/* ---- a recipe ----------------------------------------------------------------------------------------------------------- */

static const char *text_at(const fb_kernel_call *call, fb_value recipe, size_t index) {
    fb_value item = fb_value_item(call->graph, recipe, index);
    return item.id && fb_value_kind(call->graph, item) == FB_STRING ? fb_value_text(call->graph, item) : NULL;
}

static fb_tensor tensor_named(const fb_graph *graph, fb_module owner, const char *name) {
    const char *dot = strrchr(name, '.');
    if (!dot) return fb_module_tensor(graph, owner, name);
    fb_buffer path = {0};
    fb_buffer_printf(&path, "%s.%.*s", fb_text(graph, fb_module_at(graph, owner)->path), (int)(dot - name), name);
    const char *text = fb_buffer_text(&path);
    owner = text ? fb_module_find(graph, text) : (fb_module){0};
    fb_buffer_free(&path);
    return owner.id ? fb_module_tensor(graph, owner, dot + 1) : (fb_tensor){0};
}

void fb_visit_parametrized(const fb_graph *graph, fb_node node, void (*visit)(void *, fb_tensor), void *context) {
    fb_value recipes;
    if (!fb_parametrized_op(graph, node, &recipes)) return;
    for (uint32_t i = 1; i < fb_value_at(graph, recipes)->count; i++) {
        fb_value recipe = fb_value_item(graph, recipes, i);
        uint32_t count = fb_value_kind(graph, recipe) == FB_LIST ? fb_value_at(graph, recipe)->count : 0;
        for (uint32_t k = 2; k < count; k++) {
            fb_value name = fb_value_item(graph, recipe, k);
            if (fb_value_kind(graph, name) != FB_STRING) continue;
            const char *text = fb_value_text(graph, name);
            fb_tensor tensor = strchr(text, '.') ? tensor_named(graph, fb_node_at(graph, node)->module, text) : (fb_tensor){0};
            if (tensor.id) visit(context, tensor);
        }
    }
}

/* The tensor that the recipe names, kept, or what the recipe before has made. NULL: the call has failed. */
static fb_array *tensor_at(fb_kernel_call *call, fb_value recipe, size_t index, fb_array *before) {
    fb_array *found = NULL;
    fb_module owner = fb_node_at(call->graph, call->node)->module;
    const char *name = text_at(call, recipe, index);
    if (!name && before) return fb_array_keep(before);
    fb_tensor tensor = name ? tensor_named(call->graph, owner, name) : (fb_tensor){0};
    if (!tensor.id)
        fb_kernel_unsupported(call, "its parametrisation lacks the tensor %s", name ? name : "that it is computed from");
    else call->status = fb_evaluate_tensor(call->evaluator, tensor, &found);
    if (found && !fb_dtype_is_floating(found->dtype)) fb_kernel_unsupported(call, "its tensor %s does not hold floats", name);
    return found;
}

static fb_array *weight_norm(fb_kernel_call *call, fb_value recipe, fb_array *before) {
    int64_t dim;
    if (!fb_value_is_int(call->graph, fb_value_item(call->graph, recipe, 2), &dim) || before)
        return fb_kernel_unsupported(call, "its weight_norm is not complete"), NULL;
    fb_array *v = tensor_at(call, recipe, 3, NULL), *g = call->status ? NULL : tensor_at(call, recipe, 4, NULL);
    fb_array *out = call->status ? NULL : fb_make_weight_norm(call, v, g, dim);
    fb_array_drop(v);
    fb_array_drop(g);
    return out;
}

/* out = w / divisor. */
static void divide(fb_kernel_call *call, const fb_array *out, const fb_array *w, double divisor) {
    int64_t count = fb_array_count(w);
    for (int64_t i = 0; i < count && fb_work_at(fb_call_work(call), i, count); i++)
        fb_array_put(out, i, fb_array_get(w, i) / divisor);
}

/* u · (M v), where w is [outer, rows, inner] and M [rows, outer × inner]. */
static double sigma_of(fb_kernel_call *call, const fb_array *w, int64_t dim, const fb_array *u, const fb_array *v) {
    int64_t rows = w->sizes[dim], inner = 1;
    for (int i = (int)dim + 1; i < w->rank; i++) inner *= w->sizes[i];
    int64_t outer = rows && inner ? fb_array_count(w) / rows / inner : 0;
    double sigma = 0;
    for (int64_t k = 0; k < rows; k++) {
        double sum = 0;
        for (int64_t o = 0; o < outer && fb_kernel_goes_on(call, inner); o++)
            for (int64_t i = 0; i < inner; i++)
                sum += fb_array_get(w, (o * rows + k) * inner + i) * fb_array_get(v, (o * inner + i) * v->strides[0]);
        sigma += sum * fb_array_get(u, k * u->strides[0]);
    }
    return sigma;
}

static double length_of(fb_kernel_call *call, const fb_array *w) {
    double squares = 0;
    int64_t count = fb_array_count(w);
    for (int64_t i = 0; i < count && fb_work_at(fb_call_work(call), i, count); i++)
        squares += fb_array_get(w, i) * fb_array_get(w, i);
    return sqrt(squares);
}

/* Divides by the estimated spectral norm; a vector is divided by its length. */
static fb_array *spectral_norm(fb_kernel_call *call, fb_value recipe, fb_array *before) {
    int64_t dim;
    double eps;
    fb_array *u = NULL, *v = NULL, *out = NULL;
    if (fb_module_at(call->graph, fb_node_at(call->graph, call->node)->module)->training)
        return fb_kernel_unsupported(call, "spectral_norm changes its buffers in training"), NULL;
    if (!fb_value_is_int(call->graph, fb_value_item(call->graph, recipe, 2), &dim) ||
        !fb_value_is_number(call->graph, fb_value_item(call->graph, recipe, 3), &eps))
        return fb_kernel_unsupported(call, "its spectral_norm is not complete"), NULL;
    fb_array *given = tensor_at(call, recipe, 4, before), *w = call->status ? NULL : fb_make_contiguous(call, given);
    if (w && w->rank > 1) {
        u = tensor_at(call, recipe, 5, NULL);
        v = call->status ? NULL : tensor_at(call, recipe, 6, NULL);
        dim += dim < 0 ? w->rank : 0;
        bool fits =
            v && !call->status && dim >= 0 && dim < w->rank && u->rank == 1 && v->rank == 1 && u->sizes[0] == w->sizes[dim];
        if (!fits || u->sizes[0] * v->sizes[0] != fb_array_count(w))
            fb_kernel_fail(call, "the vectors of its spectral_norm do not fit");
    }
    if (w && !call->status) out = fb_make_array(call, w->dtype, w->rank, w->sizes);
    if (out) divide(call, out, w, v ? sigma_of(call, w, dim, u, v) : fmax(length_of(call, w), eps));
    fb_array_drop(given);
    fb_array_drop(w);
    fb_array_drop(u);
    fb_array_drop(v);
    return out;
}

static fb_array *orthogonal(fb_kernel_call *call, fb_value recipe, fb_array *before) {
    const char *map = text_at(call, recipe, 2);
    if (!map) return fb_kernel_unsupported(call, "its orthogonal is not complete"), NULL;
    fb_array *given = tensor_at(call, recipe, 3, before), *base = NULL, *out = NULL;
    if (given && text_at(call, recipe, 4)) base = tensor_at(call, recipe, 4, NULL);
    if (given && !call->status) out = fb_make_orthogonal(call, map, given, base);
    fb_array_drop(given);
    fb_array_drop(base);
    return out;
}

static fb_array *masked(fb_kernel_call *call, fb_value recipe, fb_array *before) {
    fb_array *given = tensor_at(call, recipe, 2, before), *mask = call->status ? NULL : tensor_at(call, recipe, 3, NULL);
    fb_array *w = call->status ? NULL : fb_make_contiguous(call, given), *m = NULL, *out = NULL;
    if (w) m = fb_make_cast(call, mask, w->dtype);
    bool fits = m && m->rank == w->rank && memcmp(m->sizes, w->sizes, (size_t)w->rank * sizeof *w->sizes) == 0;
    if (m && !fits) fb_kernel_fail(call, "its mask does not fit");
    if (fits) out = fb_make_array(call, w->dtype, w->rank, w->sizes);
    int64_t count = out ? fb_array_count(out) : 0;
    for (int64_t i = 0; i < count && fb_work_at(fb_call_work(call), i, count); i++)
        fb_array_put(out, i, fb_array_get(w, i) * fb_array_get(m, i));
    fb_array_drop(given);
    fb_array_drop(mask);
    fb_array_drop(w);
    fb_array_drop(m);
    return out;
}

static fb_array *follow(fb_kernel_call *call, fb_value recipe, fb_array *before) {
    static const struct {
        const char *name;
        fb_array *(*function)(fb_kernel_call *, fb_value, fb_array *);
    } known[] = {{"weight_norm", weight_norm}, {"spectral_norm", spectral_norm}, {"orthogonal", orthogonal}, {"mask", masked}};
    const char *kind = text_at(call, recipe, 1);
    fb_array *out = NULL;
    for (size_t i = 0; kind && i < sizeof known / sizeof *known; i++) {
        if (strcmp(kind, known[i].name) != 0) continue;
        out = known[i].function(call, recipe, before);
        if (out && !call->status) fb_array_round(out);
        return out;
    }
    fb_kernel_unsupported(call, "its %s is computed by %s, which is not known", text_at(call, recipe, 0),
                          kind ? kind : "nothing");
    return NULL;
}

bool fb_find_parametrized(fb_kernel_call *call, const char *name, fb_object *out) {
    uint32_t count = fb_value_at(call->graph, call->recipes)->count;
    bool is_found = false;
    fb_array *made = NULL;
    for (uint32_t i = 1; i < count && !call->status; i++) {
        fb_value recipe = fb_value_item(call->graph, call->recipes, i);
        const char *of = fb_value_kind(call->graph, recipe) == FB_LIST ? text_at(call, recipe, 0) : NULL;
        if (!of || strcmp(of, name) != 0) continue;
        is_found = true;
        fb_array *next = follow(call, recipe, made);
        fb_array_drop(made);
        made = next;
    }
    if (is_found && made && !call->status) *out = (fb_object){.kind = FB_OBJECT_ARRAY, .array = made};
    else fb_array_drop(made);
    return is_found;
}
