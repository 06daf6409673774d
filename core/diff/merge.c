/* The steps of a merge in their order, and two of them: adapters, and graphs that compute nothing. */
#include "core/diff/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/diff/merging.h"
#include "core/graph/build.h"
#include "core/graph/slot.h"
#include "core/operators/spelling.h"
#include "core/weights/recipe.h"

/* LoRA adapters that were trained on a weight which the undo takes apart by rows. Where W = concat(Wq, Wk), W + B A is
 *
 *     Wq + Bq A        B = concat(Bq, Bk)
 *     Wk + Bk A
 *
 * and so with every recipe that leaves rows whole. Base and theirs get the adapters that ours would have had of them: base a B
 * that is made of the parts' rows by the same recipe, theirs the rows, with A for the first part and a copy of it for each
 * other. The merge carries the numbers of ours there, as it does all that was trained. Where a recipe does more nothing is
 * added, and merge_checkpoint refuses the adapter. */

#define LORA_A ".lora_A"
#define LORA_B ".lora_B"
#define WEIGHT ".weight"
#define PARTS_MAX 64

/* One adapter of ours. */
typedef struct adapter {
    const char *module; /* of the weight, `length` long */
    size_t length;
    const char *rest; /* ".weight", or ".default.weight" */
    fb_tensor a, b;   /* of ours */
    fb_value recipe;  /* its weight's, in base */
    fb_tensor parts[PARTS_MAX];
    size_t part_count;
} adapter;

typedef struct adopting {
    const fb_graph *base, *theirs, *ours;
    fb_graph *new_base, *new_theirs; /* NULL until there is an adapter */
    fb_work *work;
    fb_arena arena;
    bool failed;
} adopting;

static const char *text_of(adopting *a, const char *module, size_t length, const char *middle, const char *rest) {
    char *text = fb_arena_alloc(&a->arena, length + strlen(middle) + strlen(rest) + 1);
    if (text) sprintf(text, "%.*s%s%s", (int)length, module, middle, rest);
    a->failed |= !text;
    return text ? text : "";
}

static int64_t size_of(const fb_graph *graph, fb_tensor tensor, int axis) {
    return fb_shape_size(graph, fb_tensor_at(graph, tensor)->shape, axis);
}

static bool is_matrix(const fb_graph *graph, fb_tensor tensor) {
    return tensor.id && fb_shape_rank(graph, fb_tensor_at(graph, tensor)->shape) == 2;
}

/* ---- which -------------------------------------------------------------------------------------------------------------- */

/* "q.lora_B.weight" or "q.lora_B.default.weight" */
static bool read_path(const char *path, adapter *out) {
    const char *at = strstr(path, LORA_B ".");
    if (!at) return false;
    *out = (adapter){.module = path, .length = (size_t)(at - path), .rest = at + strlen(LORA_B)};
    const char *name = out->rest + 1, *dot = strchr(name, '.');
    return strcmp(out->rest, WEIGHT) == 0 || (dot && strcmp(dot, WEIGHT) == 0);
}

static size_t find_part(const adapter *one, fb_tensor part) {
    size_t i = 0;
    while (i < one->part_count && one->parts[i].id != part.id) i++;
    return i;
}

/* A weight of theirs that is called by its path, whose module has no adapter yet. */
static bool is_part(adopting *a, const adapter *one, fb_tensor part) {
    const char *name = fb_tensor_name(a->base, part);
    size_t length = strlen(name), end = strlen(WEIGHT);
    fb_tensor there = fb_tensor_find(a->theirs, name);
    if (!is_matrix(a->base, part) || length <= end || strcmp(name + length - end, WEIGHT) != 0) return false;
    if (!there.id || fb_tensor_at_path(a->theirs, name).id != there.id) return false;
    const char *taken = text_of(a, name, length - end, LORA_B, one->rest);
    return !fb_tensor_find(a->theirs, taken).id && !fb_tensor_at_path(a->theirs, taken).id;
}

/* Is the last axis, of `columns`, whole all the way? Lists the parts. */
static bool leaves_rows_whole(adopting *a, adapter *one, fb_value recipe, int64_t columns) {
    const fb_graph *base = a->base;
    fb_recipe_type type, from;
    if (fb_recipe_type_of(base, recipe, &type, NULL) || !type.rank || type.sizes[type.rank - 1] != columns) return false;
    if (fb_value_kind(base, recipe) == FB_TENSOR) {
        fb_tensor part = fb_value_tensor(base, recipe);
        bool is_new = find_part(one, part) == one->part_count;
        if (!is_part(a, one, part) || (is_new && one->part_count == PARTS_MAX)) return false;
        if (is_new) one->parts[one->part_count++] = part;
        return true;
    }
    fb_recipe_op op = fb_recipe_op_of(base, recipe);
    fb_value first = fb_recipe_arg(base, recipe, 0), dims = fb_recipe_value(base, recipe, "dims");
    if (fb_recipe_type_of(base, first, &from, NULL)) return false;
    bool is_whole = op == FB_RECIPE_RESHAPE; /* the last size is the argument's, which is looked at below */
    if (op == FB_RECIPE_CONCAT || op == FB_RECIPE_SLICE) is_whole = fb_recipe_int(base, recipe, "axis") < type.rank - 1;
    if (op == FB_RECIPE_PERMUTE) is_whole = fb_shape_size(base, dims, type.rank - 1) == type.rank - 1;
    for (size_t i = 0; i < fb_recipe_arg_count(base, recipe) && is_whole; i++)
        is_whole = leaves_rows_whole(a, one, fb_recipe_arg(base, recipe, i), columns);
    return is_whole;
}

static bool find_adapter(adopting *a, const char *path, fb_tensor tensor, adapter *out) {
    if (!read_path(path, out) || fb_tensor_at_path(a->base, path).id) return false;
    out->b = tensor;
    out->a = fb_tensor_at_path(a->ours, text_of(a, out->module, out->length, LORA_A, out->rest));
    fb_tensor weight = fb_tensor_at_path(a->base, text_of(a, out->module, out->length, "", WEIGHT));
    if (!is_matrix(a->ours, out->a) || !is_matrix(a->ours, out->b) || !is_matrix(a->base, weight)) return false;
    bool fits = size_of(a->ours, out->b, 0) == size_of(a->base, weight, 0) &&
                size_of(a->ours, out->a, 1) == size_of(a->base, weight, 1) &&
                size_of(a->ours, out->a, 0) == size_of(a->ours, out->b, 1);
    out->recipe = fb_tensor_at(a->base, weight)->recipe;
    return fits && out->recipe.id && leaves_rows_whole(a, out, out->recipe, size_of(a->base, weight, 1));
}

/* ---- adding ------------------------------------------------------------------------------------------------------------- */

/* A tensor like `like` of ours, with so many rows. */
static fb_tensor add_tensor(adopting *a, fb_graph *graph, const char *name, fb_tensor like, int64_t rows, fb_value recipe) {
    const fb_tensor_row *row = fb_tensor_at(a->ours, like);
    fb_value sizes[2] = {fb_make_int(graph, rows), fb_make_int(graph, size_of(a->ours, like, 1))};
    fb_value shape = fb_make_list(graph, sizes, 2);
    fb_symbol symbol = fb_intern(graph, name);
    fb_tensor made = symbol.id && shape.id ? fb_graph_add_tensor(graph, symbol, (fb_tensor){0}) : (fb_tensor){0};
    a->failed |= !made.id;
    if (!made.id) return made;
    fb_tensor_row *to = fb_tensor_row_at(graph, made);
    to->shape = shape;
    to->dtype = row->dtype;
    to->requires_grad = row->requires_grad;
    to->recipe = recipe;
    return made;
}

/* The module that owns the tensor under the last name of its path. */
static void add_owner(adopting *a, fb_graph *graph, const char *path, fb_tensor tensor) {
    const char *dot = strrchr(path, '.');
    fb_symbol symbol = fb_intern(graph, text_of(a, path, (size_t)(dot - path), "", "")),
              type = fb_intern(graph, FB_TYPE_MODULE);
    fb_module module = symbol.id && type.id ? fb_graph_add_module(graph, symbol, (fb_module){0}) : (fb_module){0};
    fb_value owned =
        tensor.id ? fb_map_with(graph, FB_VALUE_EMPTY_MAP, dot + 1, fb_recipe_tensor(graph, tensor)) : (fb_value){0};
    a->failed |= !module.id || !owned.id;
    if (a->failed) return;
    fb_graph_set_module_type(graph, module, type);
    fb_module_row_at(graph, module)->parameters = owned;
}

/* B of one part, and A of the first one or a copy of that; in base as what recipes read. */
static fb_tensor add_part(adopting *a, fb_graph *graph, const adapter *one, size_t index, fb_tensor *first) {
    const char *name = fb_tensor_name(a->base, one->parts[index]);
    size_t length = strlen(name) - strlen(WEIGHT);
    bool is_base = graph == a->new_base;
    const char *of_a = text_of(a, name, length, LORA_A, one->rest), *of_b = text_of(a, name, length, LORA_B, one->rest);
    if (!index || !is_base) {
        fb_value copied = index ? fb_recipe_tensor(graph, *first) : (fb_value){0};
        fb_tensor made = add_tensor(a, graph, of_a, one->a, size_of(a->ours, one->a, 0), copied);
        if (!index) *first = made;
        if (!is_base && !a->failed) add_owner(a, graph, of_a, made);
    }
    fb_tensor b = add_tensor(a, graph, of_b, one->b, size_of(a->base, one->parts[index], 0), (fb_value){0});
    if (!is_base && !a->failed) add_owner(a, graph, of_b, b);
    return b;
}

/* The weight's recipe over the parts' B: what has columns there has ranks here. */
static fb_value make_rows(fb_graph *graph, const adapter *one, const fb_value *rows, fb_value recipe, int64_t ranks) {
    if (fb_value_kind(graph, recipe) == FB_TENSOR) return rows[find_part(one, fb_value_tensor(graph, recipe))];
    fb_value parts[PARTS_MAX];
    size_t count = fb_recipe_arg_count(graph, recipe);
    fb_recipe_type type;
    int64_t sizes[FB_RECIPE_MAX_RANK];
    if (count > PARTS_MAX || fb_recipe_type_of(graph, recipe, &type, NULL)) return (fb_value){0};
    for (size_t i = 0; i < count; i++) parts[i] = make_rows(graph, one, rows, fb_recipe_arg(graph, recipe, i), ranks);
    switch (fb_recipe_op_of(graph, recipe)) {
    case FB_RECIPE_CONCAT: return fb_recipe_concat(graph, fb_recipe_int(graph, recipe, "axis"), parts, count);
    case FB_RECIPE_SLICE:
        return fb_recipe_slice(graph, parts[0], fb_recipe_int(graph, recipe, "axis"), fb_recipe_int(graph, recipe, "start"),
                               fb_recipe_int(graph, recipe, "stop"));
    case FB_RECIPE_PERMUTE:
        for (int i = 0; i < type.rank; i++) sizes[i] = fb_shape_size(graph, fb_recipe_value(graph, recipe, "dims"), i);
        return fb_recipe_permute(graph, parts[0], sizes, (size_t)type.rank);
    default: /* reshape */
        for (int i = 0; i < type.rank; i++) sizes[i] = i < type.rank - 1 ? type.sizes[i] : ranks;
        return fb_recipe_reshape(graph, parts[0], sizes, (size_t)type.rank);
    }
}

/* Parts that are made are not named by paths: a part may have the path of what it is taken from. */
static fb_tensor add_made(adopting *a, const adapter *one, const char *which, fb_tensor like, fb_value recipe) {
    const char *path = text_of(a, one->module, one->length, which, one->rest);
    const char *name = text_of(a, path, strlen(path), "@", "adapter");
    a->failed |= !recipe.id;
    fb_tensor made = a->failed ? (fb_tensor){0} : add_tensor(a, a->new_base, name, like, size_of(a->ours, like, 0), recipe);
    if (!a->failed) add_owner(a, a->new_base, path, made);
    return made;
}

static void add_to_base(adopting *a, const adapter *one) {
    fb_value rows[PARTS_MAX];
    fb_tensor first = {0};
    for (size_t i = 0; i < one->part_count && !a->failed; i++) {
        fb_tensor part = add_part(a, a->new_base, one, i, &first);
        rows[i] = a->failed ? (fb_value){0} : fb_recipe_tensor(a->new_base, part);
    }
    if (a->failed) return;
    add_made(a, one, LORA_A, one->a, fb_recipe_tensor(a->new_base, first));
    if (!a->failed)
        add_made(a, one, LORA_B, one->b, make_rows(a->new_base, one, rows, one->recipe, size_of(a->ours, one->b, 1)));
}

static void adopt(adopting *a, const adapter *one) {
    fb_tensor first = {0};
    if (!a->new_base) a->new_base = fb_graph_copy(a->base, a->work);
    if (!a->new_theirs) a->new_theirs = fb_graph_copy(a->theirs, a->work);
    a->failed |= !a->new_base || !a->new_theirs;
    for (size_t i = 0; i < one->part_count && !a->failed; i++) add_part(a, a->new_theirs, one, i, &first);
    if (!a->failed) add_to_base(a, one);
}

/* Copies of base and theirs that have the adapters of ours, to be freed. Both NULL: ours has no adapters to add. */
static fb_status merge_adapters(const fb_graph *base, const fb_graph *theirs, const fb_graph *ours, fb_work *work,
                                fb_graph **new_base, fb_graph **new_theirs, fb_error *error) {
    adopting a = {.base = base, .theirs = theirs, .ours = ours, .work = work};
    bool computes_nothing = fb_node_count(base) <= 1;
    fb_buffer path = {0};
    fb_slot slot;
    adapter one;
    for (fb_slot_cursor cursor = {0};
         computes_nothing && !a.failed && fb_work_goes_on(work, 1024) && fb_slot_next(ours, &cursor, &slot);) {
        path.size = 0;
        fb_slot_path(ours, &slot, &path);
        const char *text = fb_buffer_text(&path);
        a.failed |= !text;
        if (text && find_adapter(&a, text, slot.tensor, &one)) adopt(&a, &one);
    }
    fb_buffer_free(&path);
    fb_arena_free(&a.arena);
    *new_base = a.new_base;
    *new_theirs = a.new_theirs;
    return a.failed ? fb_work_failed(work, error) : FB_OK;
}

/* Graphs that compute nothing: no node says there what needs a tensor, and which tensors belong together. So everything that an
 * edit takes apart must be there as a whole, and nothing may have joined it.
 *
 *     base:  qkv   theirs:  q k v    ours:  nothing           q, k and v would come back as they were before the training
 *     base:  qkv   theirs:  q k v    ours:  qkv qkv.absmax    the state would stay, and belong to nothing
 */

/* Marks the modules of base that an edit erases or changes. */
static bool *find_edited(fb_merging *m) {
    const fb_graph *base = m->sides.base;
    bool *is_edited = calloc(fb_module_limit(base) + 1, sizeof *is_edited);
    for (size_t i = 0; is_edited && i < m->diff.count && fb_merging_goes_on(m); i++) {
        const fb_edit *edit = &m->diff.edits[i];
        if (edit->table != FB_MODULE_TABLE || !*edit->name) continue; /* the root's tensors have no owner */
        if (edit->kind != FB_EDIT_SET && edit->kind != FB_EDIT_ERASE) continue;
        is_edited[fb_module_find(base, edit->name).id] = true;
        if (edit->kind == FB_EDIT_ERASE && !fb_module_find(m->sides.ours, edit->name).id)
            fb_conflicts_add(m->conflicts, FB_CONFLICT_MODULE, "missing-module", edit->name,
                             "undo takes module %s apart, and it is not there", edit->name);
    }
    return is_edited;
}

/* A tensor that base has not, at or beneath an edited module. Cuts the path up. */
static void check_new(fb_merging *m, const bool *is_edited, char *path) {
    fb_buffer name = {0};
    fb_buffer_string(&name, path);
    for (char *dot; (dot = strrchr(path, '.'));) {
        *dot = '\0';
        fb_module module = fb_module_find(m->sides.base, path);
        if (!module.id || !is_edited[module.id]) continue;
        fb_conflicts_add(m->conflicts, FB_CONFLICT_MODULE, "changed-module", path,
                         "%s was added to module %s, which undo takes apart or changes",
                         fb_buffer_text(&name) ? fb_buffer_text(&name) : "a tensor", path);
        break;
    }
    fb_buffer_free(&name);
}

static fb_status merge_checkpoint(fb_merging *m) {
    if (fb_node_count(m->sides.base) > 1) return FB_OK;
    fb_buffer path = {0};
    fb_slot slot;
    bool *is_edited = find_edited(m), ok = is_edited != NULL;
    for (fb_slot_cursor cursor = {0}; ok && fb_merging_goes_on(m) && fb_slot_next(m->sides.ours, &cursor, &slot);) {
        path.size = 0;
        fb_slot_path(m->sides.ours, &slot, &path);
        const char *text = fb_buffer_text(&path);
        ok = text != NULL;
        if (ok && !fb_tensor_at_path(m->sides.base, text).id) check_new(m, is_edited, path.data);
    }
    free(is_edited);
    fb_buffer_free(&path);
    return ok ? FB_OK : fb_fail_memory(m->error);
}

static fb_status relate(fb_merging *m) {
    fb_sides *sides = &m->sides;
    bool ok = fb_sides_relate(sides, sides->base, sides->theirs, &m->work) &&
              fb_sides_relate(sides, sides->base, sides->ours, &m->work) &&
              (!m->facts || fb_sides_relate(sides, sides->base, m->facts->source, &m->work));
    return ok ? FB_OK : fb_fail_memory(m->error);
}

/* Asked after each step: what a step left out when it was stopped does not count then. */
static fb_status watch(fb_merging *m) {
    fb_work_ask(&m->work);
    return fb_work_status(&m->work, m->error);
}

/* The merged graph breaks a rule: which, and where. */
static void report_invalid(fb_merging *m, const fb_error *found) {
    static const struct {
        const char *prefix;
        fb_document_table table;
        fb_conflict_kind kind;
    } places[] = {{"/nodes/", FB_NODE_TABLE, FB_CONFLICT_NODE},
                  {"/modules/", FB_MODULE_TABLE, FB_CONFLICT_MODULE},
                  {"/tensors/", FB_TENSOR_TABLE, FB_CONFLICT_TENSOR}};
    fb_conflict_kind kind = FB_CONFLICT_NODE;
    const char *name = found->node;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        size_t length = strlen(places[i].prefix);
        if (strncmp(found->pointer, places[i].prefix, length) != 0) continue;
        const fb_rows *rows = &m->tables[places[i].table];
        fb_row_id row = rows->first;
        for (unsigned long n = strtoul(found->pointer + length, NULL, 10); n && row.id; n--) row = rows->items[row.id].next;
        if (row.id) name = rows->items[row.id].name;
        kind = places[i].kind;
    }
    fb_conflicts_add(m->conflicts, kind, "invalid", name, "together the changes make no valid graph: %s", found->message);
}

static fb_status finish(fb_merging *m, fb_graph **out) {
    fb_error found = {0};
    fb_status status = fb_rows_graph(m->tables, m->work.watch, out, &found);
    if (status == FB_NO_MEMORY) return fb_fail_memory(m->error);
    if (status == FB_BUSY) return fb_fail(m->error, status, found.code, "", "%s", found.message);
    if (status) report_invalid(m, &found);
    return FB_OK;
}

static fb_status merge(fb_merging *m, fb_graph **out) {
    fb_status status = fb_carry_back(&m->sides, m->conflicts, m->error);
    if (!status) status = watch(m);
    if (!status) status = fb_diff_make(m->sides.base, m->sides.theirs, &m->work, &m->diff, m->error);
    fb_status (*const steps[])(fb_merging *) = {
        relate, fb_merge_rows, merge_checkpoint, fb_merge_values, fb_merge_order, fb_merge_tensors, watch};
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !status; i++) {
        status = watch(m);
        if (!status) status = steps[i](m);
    }
    if (!status && !m->conflicts->count && !m->conflicts->failed) status = finish(m, out);
    if (!status) status = watch(m);
    if (!status && *out) status = fb_merge_memory(m, *out);
    if (!status) status = watch(m);
    if (!status && m->conflicts->failed) status = fb_fail_memory(m->error);
    if (!status && m->conflicts->count)
        status = fb_fail(m->error, FB_CONFLICT, "conflict", "",
                         "the graph has changed since the run, in %zu place(s) that do not fit", m->conflicts->count);
    return status;
}

fb_status fb_merge(const fb_graph *base, const fb_graph *theirs, const fb_graph *ours, const fb_merge_facts *facts,
                   fb_graph **out, fb_conflicts *conflicts, fb_error *error) {
    fb_merging m = {.facts = facts && facts->source ? facts : NULL,
                    .conflicts = conflicts,
                    .work = {.watch = facts ? facts->watch : NULL},
                    .error = error};
    fb_graph *merged = NULL, *new_base = NULL, *new_theirs = NULL;
    fb_status status = merge_adapters(base, theirs, ours, &m.work, &new_base, &new_theirs, error);
    if (!status)
        status = fb_sides_make(new_base ? new_base : base, new_theirs ? new_theirs : theirs, ours, &m.work, &m.sides, error);
    m.sides.blobs = facts ? facts->blobs : NULL;
    if (!status) status = merge(&m, &merged);
    if (status) fb_graph_free(merged);
    else *out = merged;
    for (size_t i = 0; i < FB_TABLES; i++) fb_rows_free(&m.tables[i]);
    fb_map_free(&m.edits);
    fb_map_free(&m.alike);
    fb_buffer_free(&m.trail_parts);
    fb_buffer_free(&m.trail_nodes);
    fb_diff_free(&m.diff);
    fb_sides_free(&m.sides);
    fb_graph_free(new_base);
    fb_graph_free(new_theirs);
    return status;
}
