/* Tensors that belong to the weight W (out, in) of a Linear: they go where the weight goes, if that is exact.
 *
 * LoRA adds B A to the weight, with B (out, rank) and A (rank, in). A recipe of rows leaves every row whole; then
 *
 *     weight          B                                  A
 *     concat(q, k)    concat([Bq  0 ]                    concat(Aq, Ak)
 *                            [0  Bk])
 *     rows of w       the same rows of B                 A
 *     columns of w    B                                  the same columns of A
 *
 * So the recipe is made once more over stand-ins: what is (out, in) there is (out, ranks) here, the rows of B beside zeros. A
 * recipe of columns has A in the place of rows. A recipe that is neither has no such factors, and is refused. The ranks of one
 * row are equal: so the scale of all is multiplied by the same number, lora_alpha / rank, when lora_alpha is multiplied by it.
 *
 * Scales are one for each block of the weight: a row, some elements of it, 128 x 128; they go where the blocks go (blocks.c).
 * DoRA has a magnitude for each whole row, so they follow rows and no parts of them. One for the whole weight stays one where
 * the row reads one weight; weights that are joined keep one for each. */
#include <string.h>

#include "core/layouts/internal.h"
#include "core/weights/recipe.h"

/* Marks the side of a stand-in that nothing may cut: a prime that no recipe has. */
#define UNCUT 1000003

enum { ROWS = 1, COLUMNS = 0 }; /* what a recipe moves, by the axis that it leaves whole */

static size_t count_of(const fb_layout_scope *scope) {
    return scope->application->row->of->source_count;
}

/* ---- what is there ------------------------------------------------------------------------------------------------------ */

/* Source `index` of the row: of adapters the A of every weight, and then the B; NULL: it is not there. */
static const fb_layout_owned *belonging(const fb_layout_scope *scope, size_t index) {
    return scope->application->counts[index] ? scope->application->tensors[index][0] : NULL;
}

static int rank_of(const fb_layout_scope *scope, const fb_layout_owned *owned) {
    return fb_shape_rank(scope->graph, fb_tensor_at(scope->graph, owned->tensor)->shape);
}

static int64_t size_of(const fb_layout_scope *scope, const fb_layout_owned *owned, int axis) {
    return fb_shape_size(scope->graph, fb_tensor_at(scope->graph, owned->tensor)->shape, axis);
}

static fb_value tensor_of(fb_graph *graph, const fb_layout_owned *owned) {
    return fb_recipe_tensor(graph, owned->tensor);
}

static bool has_adapter(const fb_layout_scope *scope, size_t weight) {
    return belonging(scope, weight) != NULL;
}

/* One number for the whole weight. */
static bool is_single(const fb_layout_scope *scope, const fb_layout_owned *scale) {
    bool is_one = true;
    for (int axis = 0; axis < rank_of(scope, scale); axis++) is_one &= size_of(scope, scale, axis) == 1;
    return is_one;
}

/* ---- checking it -------------------------------------------------------------------------------------------------------- */

static fb_status missing(const fb_layout_scope *scope, size_t there, const char *module_of, const char *what, fb_error *error) {
    int length = (int)(strlen(module_of) - strlen("weight"));
    return fb_fail(error, FB_INVALID, "incomplete", NULL, "%s is there, but %.*s%s is not", belonging(scope, there)->name,
                   length, module_of, what);
}

/* The part after the module in the name of the row's source. */
static const char *ending_of(const fb_layout_scope *scope, size_t source) {
    const fb_layout_row *row = scope->application->row;
    size_t of = strlen(row->of->sources[source % row->of->source_count].pattern.text) - strlen("weight");
    return row->sources[source].pattern.text + of;
}

static fb_status set_size(fb_layout_weight *weight, int axis, int64_t size, const char *by, fb_error *error) {
    if (weight->sizes[axis] >= 0 && weight->sizes[axis] != size)
        return fb_fail(error, FB_INVALID, "shape-mismatch", NULL, "by %s %s has %lld %s, not %lld", by, weight->name,
                       (long long)size, axis ? "columns" : "rows", (long long)weight->sizes[axis]);
    weight->sizes[axis] = size;
    return FB_OK;
}

static fb_status read_weight(const fb_layout_scope *scope, fb_layout_weight *weight, fb_error *error) {
    if (!weight->owned) return FB_OK;
    if (rank_of(scope, weight->owned) != 2)
        return fb_fail(error, FB_INVALID, "shape-mismatch", NULL, "%s has %d dimensions, not 2", weight->name,
                       rank_of(scope, weight->owned));
    for (int axis = 0; axis < 2; axis++) weight->sizes[axis] = fb_layout_size(scope->graph, weight->owned->tensor, axis);
    return FB_OK;
}

static fb_status read_adapter(const fb_layout_scope *scope, size_t index, int64_t *rank, fb_error *error) {
    fb_layout_weight *weight = &scope->application->weights[index];
    size_t other = index + count_of(scope);
    const fb_layout_owned *a = belonging(scope, index), *b = belonging(scope, other);
    if (!a && !b) return FB_OK;
    if (!a) return missing(scope, other, weight->name, ending_of(scope, index), error);
    if (!b) return missing(scope, index, weight->name, ending_of(scope, other), error);
    const fb_layout_owned *odd = rank_of(scope, a) != 2 ? a : rank_of(scope, b) != 2 ? b : NULL;
    if (odd)
        return fb_fail(error, FB_INVALID, "shape-mismatch", NULL, "%s has %d dimensions, not 2", odd->name,
                       rank_of(scope, odd));
    if (*rank < 0) *rank = size_of(scope, a, 0);
    if (size_of(scope, a, 0) != *rank || size_of(scope, b, 1) != *rank)
        return fb_fail(error, FB_INVALID, "shape-mismatch", NULL,
                       "%s and %s are of rank %lld and %lld, and what is fused with them is of rank %lld", a->name, b->name,
                       (long long)size_of(scope, a, 0), (long long)size_of(scope, b, 1), (long long)*rank);
    fb_status status = set_size(weight, 0, size_of(scope, b, 0), b->name, error);
    return status ? status : set_size(weight, 1, size_of(scope, a, 1), a->name, error);
}

/* If nothing else says how large a weight is that is not there, the row's parameters do. Then they must be true of the others.
 */
static fb_status read_absent(const fb_layout_scope *scope, fb_error *error) {
    const fb_layout_row *of = scope->application->row->of;
    fb_layout_names names = fb_layout_names_of(scope);
    bool is_known = true;
    for (size_t i = 0; i < of->source_count; i++) is_known &= scope->application->weights[i].sizes[0] >= 0;
    for (size_t i = 0; i < 2 * of->source_count && !is_known; i++) {
        const json_t *rule = json_array_get(of->sources[i / 2].absent, i % 2);
        int64_t size = 0;
        if (!rule || json_is_null(rule)) continue;
        fb_status status = fb_layout_number(rule, &names, &size, error);
        if (!status && size)
            status = set_size(&scope->application->weights[i / 2], i % 2, size, "the layout's parameters", error);
        if (status) return status;
    }
    return FB_OK;
}

/* The row's rules say, or must agree with, the sizes of weights. */
static fb_status check_rules(const fb_layout_scope *scope, fb_error *error) {
    const fb_layout_row *of = scope->application->row->of;
    fb_layout_names names = fb_layout_names_of(scope);
    for (size_t i = 0; i < 2 * of->source_count; i++) { /* twice: a rule may read sizes that a later one says */
        size_t source = i % of->source_count;
        fb_layout_weight *weight = &scope->application->weights[source];
        for (int axis = 0; axis < 2; axis++) {
            const json_t *rule = json_array_get(of->sources[source].shape, (size_t)axis);
            int64_t wanted;
            fb_error met = {0};
            if (!rule || json_is_null(rule)) continue;
            if (fb_layout_number(rule, &names, &wanted, &met)) {
                if (strcmp(met.code, "shape-mismatch") == 0) continue; /* a size that is not known */
                return fb_fail(error, FB_INVALID, met.code, NULL, "%s: %s", weight->name, met.message);
            }
            fb_status status = set_size(weight, axis, wanted, "the layout's rule", error);
            if (status) return status;
        }
    }
    return FB_OK;
}

/* Rows that are scaled to a length: each weight has them, or its rows would have to be measured. */
static fb_status read_magnitudes(const fb_layout_scope *scope, size_t index, size_t there, fb_error *error) {
    fb_layout_weight *weight = &scope->application->weights[index];
    const fb_layout_owned *magnitudes = belonging(scope, index);
    if (!magnitudes) return missing(scope, there, weight->name, ending_of(scope, index), error);
    if (rank_of(scope, magnitudes) != 1)
        return fb_fail(error, FB_INVALID, "shape-mismatch", NULL, "%s has %d dimensions, not 1", magnitudes->name,
                       rank_of(scope, magnitudes));
    return set_size(weight, 0, size_of(scope, magnitudes, 0), magnitudes->name, error);
}

static fb_status check_scale(const fb_layout_scope *scope, size_t index, size_t there, fb_error *error) {
    const fb_layout_weight *weight = &scope->application->weights[index];
    const fb_layout_owned *scale = belonging(scope, index), *first = belonging(scope, 0);
    if (!scale) return missing(scope, there, weight->name, ending_of(scope, index), error);
    if (!weight->owned) return missing(scope, there, weight->name, "weight", error);
    if (rank_of(scope, scale) > 2)
        return fb_fail(error, FB_INVALID, "inexact", NULL, "%s has %d dimensions: rows of the weight do not follow",
                       scale->name, rank_of(scope, scale));
    bool is_same = rank_of(scope, scale) == rank_of(scope, first);
    is_same &= rank_of(scope, scale) < 2 || size_of(scope, scale, 1) == size_of(scope, first, 1);
    if (!is_same)
        return fb_fail(error, FB_INVALID, "shape-mismatch", NULL, "%s has other sizes for a row than %s", scale->name,
                       first->name);
    return FB_OK;
}

fb_status fb_layout_check_adapters(const fb_layout_scope *scope, fb_error *error) {
    const fb_layout_application *application = scope->application;
    size_t count = count_of(scope), there = 0;
    int64_t rank = -1;
    fb_status status = FB_OK;
    while (!application->counts[there]) there++;
    for (size_t i = 0; i < count && !status; i++) {
        status = read_weight(scope, &application->weights[i], error);
        if (status) return status;
        switch (application->row->belonging) {
        case FB_ADAPTERS: status = read_adapter(scope, i, &rank, error); break;
        case FB_MAGNITUDES: status = read_magnitudes(scope, i, there, error); break;
        default: status = check_scale(scope, i, there, error); break;
        }
    }
    if (!status) status = check_rules(scope, error);
    if (!status) status = read_absent(scope, error);
    return status ? status : check_rules(scope, error);
}

/* ---- what a recipe moves ------------------------------------------------------------------------------------------------ */

/* Where the axis of the stand-ins that nothing cuts is in the expression; -1: it was cut, or joined with another one. */
static int find_uncut(const fb_graph *graph, fb_value expression, const fb_stand_in *stand_ins, size_t count, int axis) {
    for (size_t i = 0; i < count; i++)
        if (stand_ins[i].value.id == expression.id) return axis;
    fb_recipe_op op = fb_recipe_op_of(graph, expression);
    fb_recipe_type type;
    int at = -1;
    if (!op || op == FB_RECIPE_FULL) return -1;
    for (size_t i = 0; i < fb_recipe_arg_count(graph, expression); i++) {
        int of_part = find_uncut(graph, fb_recipe_arg(graph, expression, i), stand_ins, count, axis);
        if (of_part < 0 || (i && of_part != at)) return -1;
        at = of_part;
    }
    if (op == FB_RECIPE_CONCAT || op == FB_RECIPE_SLICE) return fb_recipe_int(graph, expression, "axis") == at ? -1 : at;
    if (op == FB_RECIPE_PERMUTE) {
        int place = 0;
        while (fb_shape_size(graph, fb_recipe_value(graph, expression, "dims"), place) != at) place++;
        return place;
    }
    /* A reshape: as many elements come before it. */
    int64_t before = 1, wanted = 1;
    if (fb_recipe_type_of(graph, fb_recipe_arg(graph, expression, 0), &type, NULL)) return -1;
    for (int i = 0; i < at; i++) before *= type.sizes[i];
    if (fb_recipe_type_of(graph, expression, &type, NULL)) return -1;
    for (int i = 0; i < type.rank; wanted *= type.sizes[i++])
        if (type.sizes[i] == UNCUT && wanted == before) return i;
    return -1;
}

/* True if a recipe leaves the axis whole and in its place. */
static bool leaves_whole(fb_graph *graph, fb_layout_scope *scope, const json_t *recipe, int axis) {
    fb_stand_in probes[SOURCES_MAX];
    fb_error ignored = {0};
    size_t count = count_of(scope);
    for (size_t i = 0; i < count; i++) {
        fb_stand_in *probe = &probes[i];
        probe->sizes[axis] = UNCUT;
        probe->sizes[!axis] = scope->application->weights[i].sizes[!axis];
        if (probe->sizes[!axis] < 0) return false;
        probe->value = fb_recipe_full(graph, probe->sizes, 2, fb_make_int(graph, (int64_t)i + 1));
    }
    scope->stand_ins = probes;
    fb_value made = fb_layout_build(graph, scope, recipe, &ignored);
    scope->stand_ins = NULL;
    fb_recipe_type type;
    if (ignored.status || !made.id || fb_recipe_type_of(graph, made, &type, &ignored)) return false;
    return type.rank == 2 && find_uncut(graph, made, probes, count, axis) == axis;
}

/* The sources that have an adapter, in the order in which the recipe reads them. */
static size_t list_used(const fb_layout_scope *scope, const json_t *recipe, size_t used[SOURCES_MAX], size_t count) {
    const fb_layout_row *of = scope->application->row->of;
    size_t i;
    json_t *argument;
    json_array_foreach(json_object_get(recipe, "args"), i, argument) count = list_used(scope, argument, used, count);
    for (i = 0; json_is_string(recipe) && i < of->source_count; i++) {
        bool is_new = has_adapter(scope, i) && strcmp(json_string_value(recipe), of->sources[i].name) == 0;
        for (size_t k = 0; k < count; k++) is_new &= used[k] != i;
        if (is_new) used[count++] = i;
    }
    return count;
}

/* ---- adapters ----------------------------------------------------------------------------------------------------------- */

/* The factor of a weight that moves, beside zeros for the others' ranks; or zeros. */
static fb_value pad(fb_graph *graph, const fb_layout_scope *scope, size_t index, const size_t *used, size_t count, int axis,
                    int64_t rank, fb_dtype dtype) {
    fb_value parts[SOURCES_MAX];
    int64_t sizes[2];
    sizes[axis] = rank;
    sizes[!axis] = scope->application->weights[index].sizes[!axis];
    for (size_t i = 0; i < count; i++) {
        size_t factor = axis == ROWS ? used[i] + count_of(scope) : used[i];
        parts[i] = used[i] == index ? tensor_of(graph, belonging(scope, factor)) : fb_recipe_zeros(graph, sizes, 2, dtype);
    }
    return count == 1 ? parts[0] : fb_recipe_concat(graph, axis, parts, count);
}

/* The other factors: one after the other along the ranks. */
static fb_value stack(fb_graph *graph, const fb_layout_scope *scope, const size_t *used, size_t count, int axis) {
    fb_value parts[SOURCES_MAX];
    for (size_t i = 0; i < count; i++)
        parts[i] = tensor_of(graph, belonging(scope, axis == ROWS ? used[i] : used[i] + count_of(scope)));
    return count == 1 ? parts[0] : fb_recipe_concat(graph, !axis, parts, count);
}

static fb_value make_factor(fb_graph *graph, fb_layout_scope *scope, const json_t *recipe, int axis, bool is_a,
                            fb_error *error) {
    const fb_layout_row *of = scope->application->row->of;
    size_t used[SOURCES_MAX], count = list_used(scope, recipe, used, 0);
    if (!count) {
        fb_fail(error, FB_INVALID, "inexact", NULL, "a part of the weights has no adapter, and would get one");
        return (fb_value){0};
    }
    if (is_a == (axis == ROWS)) return stack(graph, scope, used, count, axis);
    const fb_layout_owned *first = belonging(scope, used[0]);
    fb_dtype dtype = (fb_dtype)fb_tensor_at(graph, first->tensor)->dtype;
    int64_t rank = size_of(scope, first, 0);
    fb_stand_in stand_ins[SOURCES_MAX];
    for (size_t i = 0; i < of->source_count; i++) {
        stand_ins[i].value = pad(graph, scope, i, used, count, axis, rank, dtype);
        stand_ins[i].sizes[axis] = rank * (int64_t)count;
        stand_ins[i].sizes[!axis] = scope->application->weights[i].sizes[!axis];
    }
    scope->stand_ins = stand_ins;
    fb_value made = fb_layout_build(graph, scope, recipe, error);
    scope->stand_ins = NULL;
    return made;
}

static fb_value adapter(fb_graph *graph, fb_layout_scope *scope, const fb_layout_target *target, fb_error *error) {
    size_t index = (size_t)(target - scope->application->row->targets);
    for (int axis = ROWS; axis >= COLUMNS; axis--)
        if (leaves_whole(graph, scope, target->recipe, axis))
            return make_factor(graph, scope, target->recipe, axis, index % 2 == 0, error);
    for (size_t i = 0; i < count_of(scope); i++) {
        const fb_layout_weight *weight = &scope->application->weights[i];
        if (weight->sizes[0] >= 0 && weight->sizes[1] >= 0) continue;
        fb_fail(error, FB_INVALID, "incomplete", NULL, "%s has no adapter, and is not there to say how large it is",
                weight->name);
        return (fb_value){0};
    }
    fb_fail(error, FB_INVALID, "inexact", NULL, "the row moves neither whole rows nor whole columns of the weight");
    return (fb_value){0};
}

/* ---- scales ------------------------------------------------------------------------------------------------------------- */

typedef struct fine_weights {
    const fb_layout_scope *scope;
    fb_stand_in stand_ins[SOURCES_MAX];
} fine_weights;

/* A weight's scales, two-dimensional, and of how many elements each is. */
static fb_value scales_of(const void *context, fb_graph *graph, fb_value fine, int64_t blocks[FB_RECIPE_MAX_RANK]) {
    const fine_weights *weights = context;
    for (size_t i = 0; i < count_of(weights->scope); i++) {
        if (weights->stand_ins[i].value.id != fine.id) continue;
        const fb_layout_owned *scales = belonging(weights->scope, i);
        int rank = rank_of(weights->scope, scales);
        int64_t counts[2];
        for (int axis = 0; axis < 2; axis++) {
            counts[axis] = axis < rank ? size_of(weights->scope, scales, axis) : 1;
            blocks[axis] = fb_layout_block_of(weights->stand_ins[i].sizes[axis], counts[axis]);
        }
        fb_value tensor = tensor_of(graph, scales);
        return rank == 2 ? tensor : fb_recipe_reshape(graph, tensor, counts, 2);
    }
    return (fb_value){0};
}

/* The recipe of the weights in units of what each scale is for. */
static fb_value scales_of_blocks(fb_graph *graph, fb_layout_scope *scope, const json_t *recipe, fb_error *error) {
    fine_weights weights = {.scope = scope};
    int64_t blocks[FB_RECIPE_MAX_RANK], rows;
    fb_recipe_type type;
    for (size_t i = 0; i < count_of(scope); i++) {
        fb_stand_in *one = &weights.stand_ins[i];
        memcpy(one->sizes, scope->application->weights[i].sizes, sizeof one->sizes);
        if (one->sizes[1] < 0) one->sizes[1] = UNCUT; /* of magnitudes in a file of their own */
        one->value = fb_recipe_full(graph, one->sizes, 2, fb_make_int(graph, (int64_t)i + 1));
    }
    scope->stand_ins = weights.stand_ins;
    fb_value fine = fb_layout_build(graph, scope, recipe, error);
    scope->stand_ins = NULL;
    if (error->status || !fine.id) return (fb_value){0};
    fb_value made =
        fb_layout_in_blocks(graph, fine, scales_of, &weights, scope->application->row->belonging == FB_SCALES, blocks, error);
    if (!made.id || rank_of(scope, belonging(scope, 0)) == 2 || fb_recipe_type_of(graph, made, &type, error)) return made;
    rows = type.sizes[0];
    return fb_recipe_reshape(graph, made, &rows, 1);
}

/* Where whole weights are joined: the numbers of all of them, in the order of the parts. vLLM has them so
 * (PerTensorScaleParameter in vllm/model_executor/parameter.py, one for each of the output partitions). */
static fb_value one_for_each(fb_graph *graph, fb_layout_scope *scope, const json_t *recipe, fb_error *error) {
    const fb_layout_row *of = scope->application->row->of;
    const json_t *args = json_object_get(recipe, "args"), *axis = json_object_get(recipe, "axis");
    fb_value parts[SOURCES_MAX];
    size_t count = 0, i;
    json_t *argument;
    bool is_used[SOURCES_MAX] = {false}, fits = json_is_integer(axis) && !json_integer_value(axis);
    fits &= fb_recipe_op_find(json_string_value(json_object_get(recipe, "op"))) == FB_RECIPE_CONCAT &&
            !json_object_get(recipe, "each") && json_array_size(args) == count_of(scope);
    json_array_foreach(args, i, argument) {
        size_t source = 0;
        const char *name = json_string_value(argument);
        while (fits && source < count_of(scope) && (!name || strcmp(name, of->sources[source].name) != 0)) source++;
        fits = fits && source < count_of(scope) && !is_used[source];
        if (!fits) break;
        is_used[source] = true;
        parts[count++] = fb_recipe_reshape(graph, tensor_of(graph, belonging(scope, source)), (int64_t[]){1}, 1);
    }
    if (fits) return fb_recipe_concat(graph, 0, parts, count);
    fb_fail(error, FB_INVALID, "inexact", NULL,
            "it is one number for a whole weight, and the row makes of %zu weights one that has no such parts",
            count_of(scope));
    return (fb_value){0};
}

static fb_value scale(fb_graph *graph, fb_layout_scope *scope, const fb_layout_target *target, fb_error *error) {
    bool is_alone = count_of(scope) == 1, are_single = true;
    for (size_t i = 0; i < count_of(scope); i++) are_single &= is_single(scope, belonging(scope, i));
    /* The weight itself, under another name; or one number, also for each part of it. */
    if (is_alone && (are_single || json_is_string(target->recipe))) return tensor_of(graph, belonging(scope, 0));
    return are_single ? one_for_each(graph, scope, target->recipe, error)
                      : scales_of_blocks(graph, scope, target->recipe, error);
}

fb_value fb_layout_belonging(fb_graph *graph, fb_layout_scope *scope, const fb_layout_target *target, fb_error *error) {
    switch (scope->application->row->belonging) {
    case FB_ADAPTERS: return adapter(graph, scope, target, error);
    case FB_MAGNITUDES: return scales_of_blocks(graph, scope, target->recipe, error);
    default: return scale(graph, scope, target, error);
    }
}
