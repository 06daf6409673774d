/* The rewritten regions of two graphs, evaluated before and after. */
#include "core/validation/validation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/view.h"
#include "core/base/map.h"
#include "core/operators/spelling.h"
#include "core/validation/region.h"

typedef struct failure {
    char code[48], detail[400];
    fb_node node; /* at which it was found */
} failure;

/* The one of some samples that is drawn now. */
typedef struct region_sample {
    const fb_region_samples *all;
    fb_sample_kind kind;
} region_sample;

/* One evaluation of the regions in one of the graphs. */
typedef struct side {
    const fb_graph *graph;
    const unsigned char *computed;
    const fb_eval_options *options;
    const region_sample *sample;    /* or NULL */
    const unsigned char *has_shape; /* of the sample */
    unsigned char *is_kept;         /* by node: a pair names it */
    fb_object *values;              /* by node, of those */
    bool *has_value;                /* by node */
    fb_dtype narrowest;             /* floating dtype that a node computed in */
    bool has_writes;                /* a computed node writes into what it is given */
    const uint32_t *read;           /* by node, of those: the ordinal of its first reader: what it is then is compared */
    uint32_t at;                    /* ordinal of the node that is computed now */
    fb_buffer pending;              /* fb_node: kept, and perhaps written before those that did not change read it */
    fb_map failed;                  /* node -> 1 + index in failures */
    fb_buffer failures;             /* failure */
    fb_array_memory memory;
} side;

/* ---- values ------------------------------------------------------------------------------------------------------------- */

static bool is_wanted(void *context, fb_node node) {
    return ((side *)context)->computed[node.id];
}

/* A copy in place of what may be written from now on. */
static fb_status take_copy(side *s, fb_node node, fb_error *error) {
    fb_object *kept = &s->values[node.id];
    const fb_array *now = kept->array;
    fb_array *copy = NULL;
    fb_status status = fb_array_new(&s->memory, now->dtype, now->rank, now->sizes, &copy, error);
    if (!status) status = fb_array_assign(copy, now, error);
    if (status) {
        fb_array_drop(copy);
        return status;
    }
    fb_object_drop(kept);
    *kept = (fb_object){.kind = FB_OBJECT_ARRAY, .array = copy};
    return FB_OK;
}

/* The next node that is computed writes: what is read before is copied. */
static fb_status copy_before(side *s, fb_node writer, fb_error *error) {
    fb_node *pending = (fb_node *)(void *)s->pending.data;
    size_t count = s->pending.size / sizeof *pending, left = 0;
    fb_status status = FB_OK;
    for (size_t i = 0; i < count && !status; i++) {
        bool is_due = s->read[pending[i].id] <= fb_node_at(s->graph, writer)->ordinal; /* it reads before it writes */
        if (is_due) status = take_copy(s, pending[i], error);
        else pending[left++] = pending[i];
    }
    s->pending.size = left * sizeof *pending;
    return status;
}

static fb_status hold(side *s, fb_node node, const fb_object *object, fb_error *error) {
    s->has_value[node.id] = true;
    s->values[node.id] = *object;
    fb_object_keep(object);
    if (!s->has_writes || object->kind != FB_OBJECT_ARRAY) return FB_OK;
    fb_buffer_append(&s->pending, &node, sizeof node);
    return s->pending.failed ? fb_fail_memory(error) : FB_OK;
}

/* Makes what was drawn a sample of its kind. */
static fb_status change_sample(side *s, fb_node node, fb_object *drawn, fb_error *error) {
    fb_array *array = drawn->array;
    int64_t high = array->held == FB_HELD_INT ? fb_table_rows(s->graph, node) : 0;
    fb_status status = FB_OK;
    if (high > 2) {
        fb_array *wide = NULL;
        status = fb_random_array(&s->memory, array->dtype, array->rank, array->sizes, s->options->seed,
                                 fb_node_name(s->graph, node), 1, high, &wide, error);
        if (status) return fb_object_drop(drawn), status;
        fb_array_drop(array);
        drawn->array = wide;
    }
    fb_sample_change(s->sample->all->bounds, s->sample->kind, drawn->array, high > 2 ? high : 2);
    return FB_OK;
}

/* Random values of the recorded shape, the same for the same name in both graphs. */
static fb_status give(void *context, fb_node node, fb_object *out, fb_error *error) {
    side *s = context;
    if (s->has_shape && !s->has_shape[node.id])
        return fb_fail(error, FB_INVALID, "missing-shape", NULL, "the shape of %s does not follow from the operators",
                       fb_node_name(s->graph, node));
    fb_status status = fb_draw_value(s->graph, node, &s->memory, s->options, out, error);
    if (!status && s->sample && out->kind == FB_OBJECT_ARRAY) status = change_sample(s, node, out, error);
    if (status || !s->is_kept[node.id] || s->has_value[node.id]) return status;
    status = hold(s, node, out, error);
    bool is_due = s->has_writes && s->read[node.id] <= s->at;
    return !status && is_due && out->kind == FB_OBJECT_ARRAY ? take_copy(s, node, error) : status;
}

static fb_node next_computed(const side *s, fb_node node) {
    while (node.id && !s->computed[node.id]) node = fb_next_node(s->graph, node);
    return node;
}

static fb_status keep(void *context, fb_node node, const fb_object *object, fb_error *error) {
    side *s = context;
    fb_status status = FB_OK;
    if (object->kind == FB_OBJECT_ARRAY) s->narrowest = fb_narrower_dtype(s->narrowest, object->array->dtype);
    if (object->kind == FB_OBJECT_WEIGHT) s->narrowest = fb_narrower_dtype(s->narrowest, object->weight->dtype);
    if (s->is_kept[node.id]) status = hold(s, node, object, error);
    if (status || !s->has_writes) return status;
    fb_node next = next_computed(s, fb_next_node(s->graph, node));
    if (next.id) s->at = fb_node_at(s->graph, next)->ordinal;
    return next.id && fb_op_effects(s->graph, next).mutates_input ? copy_before(s, next, error) : FB_OK;
}

static bool is_looked_at(void *context, fb_node node) {
    return ((side *)context)->is_kept[node.id];
}

static bool has_writes(const fb_graph *graph, const unsigned char *computed) {
    for (fb_node node = fb_first_node(graph, FB_MAIN_PROGRAM); node.id; node = fb_next_node(graph, node))
        if (computed[node.id] && fb_op_effects(graph, node).mutates_input) return true;
    return false;
}

bool fb_failure_counts(const fb_graph *graph, const char *code, fb_node node) {
    if (strcmp(code, "missing-shape") == 0 || strcmp(code, "missing-input") == 0 || strcmp(code, FB_UNDEFINED_RESULT) == 0)
        return false;
    if (strcmp(code, "unsupported-operator") != 0 || !node.id) return true;
    const fb_node_row *row = fb_node_at(graph, node);
    const char *name = fb_node_target(graph, node);
    if (row->opcode == FB_CALL_MODULE) name = fb_text(graph, fb_module_at(graph, row->module)->type);
    else if (row->opcode != FB_CALL_FUNCTION) return true;
    return fb_is_of_pytorch(name);
}

static bool note_failure(void *context, fb_node node, const fb_error *error) {
    side *s = context;
    failure found = {.node = node};
    fb_copy_text(found.code, sizeof found.code, error->code);
    fb_copy_text(found.detail, sizeof found.detail, error->message);
    fb_buffer_append(&s->failures, &found, sizeof found);
    return !s->failures.failed && fb_map_put(&s->failed, node.id, (uint32_t)(s->failures.size / sizeof found));
}

/* Why a node has no value: its own failure, or the first one of what it is computed from; NULL also when the work is stopped.
 */
static const failure *failure_of(side *s, fb_node node) {
    unsigned char *seen = calloc(fb_node_limit(s->graph), 1);
    fb_buffer to_do = {0};
    uint32_t number = 0;
    fb_buffer_append(&to_do, &node, sizeof node);
    fb_work_goes_on(&s->memory.work, fb_node_limit(s->graph) / 100); /* to clear `seen` */
    while (seen && !to_do.failed && to_do.size && !number && fb_work_goes_on(&s->memory.work, 10)) {
        to_do.size -= sizeof node;
        memcpy(&node, to_do.data + to_do.size, sizeof node);
        number = fb_map_get(&s->failed, node.id);
        for (uint32_t e = fb_input_first(s->graph, node); e; e = fb_input_next(s->graph, e)) {
            fb_node input = fb_edge_input(s->graph, e);
            if (seen[input.id] || !s->computed[input.id]) continue;
            seen[input.id] = true;
            fb_buffer_append(&to_do, &input, sizeof input);
        }
    }
    fb_buffer_free(&to_do);
    free(seen);
    return number ? (const failure *)(const void *)s->failures.data + (number - 1) : NULL;
}

static fb_status begin_side(side *s, const fb_graph *graph, const unsigned char *computed, const uint32_t *read,
                            const fb_eval_options *options, const region_sample *sample, int of_after, fb_error *error) {
    uint32_t limit = fb_node_limit(graph);
    *s = (side){.graph = graph,
                .sample = sample,
                .has_shape = sample ? sample->all->has_shape[of_after] : NULL,
                .computed = computed,
                .read = read,
                .options = options,
                .has_writes = has_writes(graph, computed),
                .narrowest = FB_FLOAT64};
    s->is_kept = calloc(limit, 1);
    s->values = calloc(limit, sizeof *s->values);
    s->has_value = calloc(limit, sizeof *s->has_value);
    return s->is_kept && s->values && s->has_value ? FB_OK : fb_fail_memory(error);
}

/* `last` is the side that ran before it, or NULL: what that holds counts against the limit. */
static fb_status run_side(side *s, const side *last, fb_precision precision, fb_error *error) {
    fb_eval_options options = *s->options;
    fb_eval_hooks hooks = {
        .context = s, .wanted = is_wanted, .given = give, .computed = keep, .failed = note_failure, .looks = is_looked_at};
    fb_object output;
    options.precision = precision;
    options.random_weights |= !s->sample;
    options.memory_held = last ? last->memory.used : 0;
    fb_node begin = next_computed(s, fb_first_node(s->graph, FB_MAIN_PROGRAM));
    if (begin.id) s->at = fb_node_at(s->graph, begin)->ordinal;
    fb_status status = fb_evaluate_graph(s->graph, &options, &hooks, &s->memory, &output, error);
    /* A value that a pair names and no node computes is one of the given values. */
    for (fb_node node = fb_first_node(s->graph, FB_MAIN_PROGRAM); node.id && !status; node = fb_next_node(s->graph, node)) {
        if (!s->is_kept[node.id] || s->computed[node.id] || s->has_value[node.id]) continue;
        fb_error found = {0};
        fb_object drawn = {.kind = FB_OBJECT_NONE};
        fb_status given = give(s, node, &drawn, &found);
        fb_object_drop(&drawn);
        if (given == FB_INVALID) given = note_failure(s, node, &found) ? FB_OK : FB_NO_MEMORY;
        if (given)
            status =
                given == FB_NO_MEMORY ? fb_fail_memory(error) : fb_fail(error, given, found.code, NULL, "%s", found.message);
    }
    return status;
}

static void end_side(side *s) {
    for (uint32_t i = 0; s->values && i < fb_node_limit(s->graph); i++) fb_object_drop(&s->values[i]);
    free(s->is_kept);
    free(s->values);
    free(s->has_value);
    fb_map_free(&s->failed);
    fb_buffer_free(&s->failures);
    fb_buffer_free(&s->pending);
}

/* ---- comparing ---------------------------------------------------------------------------------------------------------- */

typedef struct verdict {
    fb_difference between, before_exact, after_exact;
    double rms;
    bool passes, is_hidden;
} verdict;

/* For a reader that asks for shape and dtype. */
static bool are_alike(const fb_object *before, const fb_object *after) {
    if (before->kind != FB_OBJECT_ARRAY || after->kind != FB_OBJECT_ARRAY) return before->kind == after->kind;
    const fb_array *a = before->array, *b = after->array;
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->sizes, b->sizes, (size_t)a->rank * sizeof *a->sizes) == 0;
}

/* Are both near enough in float64? */
static bool are_close(const fb_object *before, const fb_object *after, fb_dtype dtype, double close) {
    fb_difference exactly;
    fb_tolerance tolerance = {fb_smallest_of(dtype), close > 0 ? close : fb_tolerance_of(dtype, false).relative};
    return after->kind == FB_OBJECT_ARRAY && fb_compare_arrays(before->array, after->array, &exactly) &&
           fb_difference_passes(&exactly, fb_largest_magnitude(after->array), &tolerance);
}

/* `narrowest`: the dtype that rounds most of those that `before` computes in. `exact_after` counts where there is a sample. */
static void compare_objects(const fb_object *before, const fb_object *after, const fb_object *exact,
                            const fb_object *exact_after, const region_sample *sample, bool only_moves, fb_dtype narrowest,
                            const fb_tolerance *given, verdict *out) {
    if (before->kind == FB_OBJECT_ARRAY && after->kind == FB_OBJECT_ARRAY && exact->kind == FB_OBJECT_ARRAY) {
        fb_difference between, of_before, of_after;
        fb_dtype dtype = only_moves ? before->array->dtype : fb_narrower_dtype(before->array->dtype, narrowest);
        fb_tolerance tolerance = given ? *given : fb_tolerance_of(dtype, only_moves);
        bool same = before->array->dtype == after->array->dtype && fb_compare_arrays(after->array, before->array, &between) &&
                    fb_compare_arrays(before->array, exact->array, &of_before) &&
                    fb_compare_arrays(after->array, exact->array, &of_after);
        if (!same) {
            out->passes = false;
            out->between.absolute = out->between.relative = out->between.ulp = out->rms = HUGE_VAL;
            return;
        }
        if (fb_overflow_hides(after->array, before->array, exact->array)) {
            out->is_hidden = true;
            return;
        }
        if (given) out->rms = fmax(out->rms, fb_rms_difference(after->array, before->array));
        fb_difference_join(&out->between, &between);
        fb_difference_join(&out->before_exact, &of_before);
        fb_difference_join(&out->after_exact, &of_after);
        out->passes &= fb_difference_passes(&between, fb_largest_magnitude(before->array), &tolerance);
        if (sample) out->passes &= are_close(exact, exact_after, dtype, sample->all->close);
        return;
    }
    double a, b;
    bool are_items = fb_object_is_sequence(before) && fb_object_is_sequence(after) && fb_object_is_sequence(exact) &&
                     fb_object_is_sequence(exact_after) && before->items->count == after->items->count &&
                     before->items->count == exact_after->items->count;
    if (are_items) {
        for (size_t i = 0; i < before->items->count; i++)
            compare_objects(&before->items->objects[i], &after->items->objects[i], &exact->items->objects[i],
                            &exact_after->items->objects[i], sample, only_moves, narrowest, given, out);
    } else if (fb_object_number(before, &a) && fb_object_number(after, &b)) {
        out->passes &= a == b || (isnan(a) && isnan(b));
    } else {
        out->passes &= before->kind == after->kind;
    }
}

/* ---- reports ------------------------------------------------------------------------------------------------------------ */

typedef struct validator {
    fb_regions regions;
    side before, after, exact, exact_after; /* the last one where there is a sample */
    const region_sample *sample;
    fb_work work; /* of all but evaluating */
    fb_map rows;  /* 1 + root of a region -> 1 + its report */
    fb_validation *out;
    fb_error *error;
} validator;

static char *copy(validator *v, const char *text) {
    return fb_arena_text(&v->out->arena, text, strlen(text));
}

static fb_status stopped(const validator *v) {
    const side *sides[] = {&v->before, &v->after, &v->exact, &v->exact_after};
    fb_status status = FB_OK;
    for (size_t i = 0; i < sizeof sides / sizeof *sides && !status; i++)
        status = fb_work_status(&sides[i]->memory.work, v->error);
    return status;
}

static fb_status report_pair(validator *v, const fb_region_pair *pair, bool only_moves, const fb_tolerance *tolerance) {
    fb_region_report *report = &v->out->regions[fb_map_get(&v->rows, fb_region_of(&v->regions, pair) + 1) - 1];
    const failure *why = NULL;
    bool has_all = v->before.has_value[pair->before.id] && v->after.has_value[pair->after.id] &&
                   v->exact.has_value[pair->before.id] && (!v->sample || v->exact_after.has_value[pair->after.id]);
    if (!has_all) {
        if (report->is_broken) return FB_OK;
        if (!v->before.has_value[pair->before.id]) why = failure_of(&v->before, pair->before);
        else if (!v->after.has_value[pair->after.id]) why = failure_of(&v->after, pair->after);
        else why = failure_of(&v->exact, pair->before);
        fb_status status = stopped(v);
        if (status) return status;
        bool could = v->before.has_value[pair->before.id] && v->exact.has_value[pair->before.id];
        if (could && why && fb_failure_counts(v->after.graph, why->code, why->node)) report->is_broken = true;
        report->unsupported = copy(v, why ? why->code : "unsupported-operator");
        report->detail = copy(v, why ? why->detail : "something that it reads cannot be evaluated");
        if (report->is_broken) {
            report->passes = false;
            report->between.absolute = report->between.relative = report->between.ulp = HUGE_VAL;
        }
        return report->unsupported && report->detail ? FB_OK : fb_fail_memory(v->error);
    }
    if (pair->by_type) {
        if (are_alike(&v->before.values[pair->before.id], &v->after.values[pair->after.id])) return FB_OK;
        report->passes = false;
        report->between.absolute = report->between.relative = report->between.ulp = HUGE_VAL;
        return FB_OK;
    }
    verdict found = {report->between, report->before_exact, report->after_exact, report->rms, report->passes, false};
    const fb_object *after = &v->after.values[pair->after.id];
    compare_objects(&v->before.values[pair->before.id], after, &v->exact.values[pair->before.id],
                    v->sample ? &v->exact_after.values[pair->after.id] : after, v->sample, only_moves, v->before.narrowest,
                    tolerance, &found);
    report->between = found.between;
    report->before_exact = found.before_exact;
    report->after_exact = found.after_exact;
    report->rms = found.rms;
    report->passes = found.passes;
    if (found.is_hidden) {
        report->unsupported = FB_NOT_FINITE;
        report->detail = FB_NOT_FINITE_DETAIL;
    }
    return stopped(v);
}

/* A changed node and the row of its region's report. */
typedef struct listed {
    uint32_t row;
    const char *name;
} listed;

static void list_changed(validator *v, bool of_after, fb_buffer *list, bool *has_after) {
    fb_regions *r = &v->regions;
    const fb_graph *graph = of_after ? r->after : r->before;
    fb_node node = fb_first_node(graph, FB_MAIN_PROGRAM);
    for (; node.id && fb_work_goes_on(&v->work, 16); node = fb_next_node(graph, node)) {
        if (!(of_after ? r->changed_after : r->changed_before)[node.id]) continue;
        listed one = {fb_map_get(&v->rows, (of_after ? fb_region_of_after(r, node) : fb_region_of_before(r, node)) + 1), NULL};
        if (!one.row || (!of_after && has_after[one.row - 1])) continue;
        if (of_after) has_after[one.row - 1] = true;
        one.name = copy(v, fb_node_name(graph, node));
        if (!one.name) list->failed = true;
        fb_buffer_append(list, &one, sizeof one);
        v->out->regions[one.row - 1].node_count++;
    }
}

/* The nodes that changed, in the reports of their regions: named as in `after`, or in `before` where nothing is left. */
static fb_status list_nodes(validator *v) {
    fb_buffer list = {0};
    bool *has_after = calloc(v->out->count + 1, sizeof *has_after);
    if (has_after) {
        list_changed(v, true, &list, has_after);
        list_changed(v, false, &list, has_after);
    }
    bool is_complete = has_after && !list.failed;
    free(has_after);
    for (size_t i = 0; i < v->out->count && is_complete && fb_work_goes_on(&v->work, 4); i++) {
        fb_region_report *report = &v->out->regions[i];
        report->nodes = fb_arena_alloc(&v->out->arena, (report->node_count + 1) * sizeof *report->nodes);
        report->node_count = 0;
        is_complete = report->nodes != NULL;
    }
    const listed *all = (const listed *)(const void *)list.data;
    is_complete &= !v->work.stopped.status;
    for (size_t i = 0; i < list.size / sizeof *all && is_complete && fb_work_goes_on(&v->work, 4); i++) {
        fb_region_report *report = &v->out->regions[all[i].row - 1];
        report->nodes[report->node_count++] = all[i].name;
    }
    fb_buffer_free(&list);
    return is_complete ? fb_work_status(&v->work, v->error) : fb_work_failed(&v->work, v->error);
}

static fb_status number_regions(validator *v, const fb_region_pair *pairs, size_t count) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (!fb_work_goes_on(&v->work, 16)) return fb_work_status(&v->work, v->error);
        uint32_t root = fb_region_of(&v->regions, &pairs[i]) + 1;
        if (fb_map_get(&v->rows, root)) continue;
        if (!fb_map_put(&v->rows, root, (uint32_t)++found)) return fb_fail_memory(v->error);
    }
    v->out->regions = fb_arena_alloc(&v->out->arena, (found + 1) * sizeof *v->out->regions);
    if (!v->out->regions) return fb_fail_memory(v->error);
    v->out->count = found;
    for (size_t i = 0; i < found; i++) v->out->regions[i] = (fb_region_report){.passes = true};
    return FB_OK;
}

static void sum_up(fb_validation *out) {
    out->passes = out->is_complete = true;
    for (size_t i = 0; i < out->count; i++) {
        const fb_region_report *report = &out->regions[i];
        out->passes &= report->passes;
        out->is_complete &= !report->unsupported;
        fb_difference_join(&out->worst, &report->between);
        fb_difference_join(&out->before_exact, &report->before_exact);
        fb_difference_join(&out->after_exact, &report->after_exact);
    }
}

static uint32_t row_of(validator *v, const fb_region_pair *pair) {
    return fb_map_get(&v->rows, fb_region_of(&v->regions, pair) + 1) - 1;
}

/* Which pairs are evaluated, by pair, and same_as[row], the row whose numbers each region has. */
static fb_status choose(validator *v, const fb_region_pair *pairs, size_t count, bool *is_wanted, uint32_t *same_as) {
    uint32_t *rows = calloc(count + 1, sizeof *rows);
    fb_status status = rows ? FB_OK : fb_fail_memory(v->error);
    for (size_t i = 0; i < count && rows && fb_work_goes_on(&v->work, 16); i++) rows[i] = row_of(v, &pairs[i]);
    if (!status) status = fb_work_status(&v->work, v->error);
    if (!status) status = fb_regions_find_equal(&v->regions, rows, v->out->count, same_as, v->error);
    bool is_any = false;
    for (size_t i = 0; i < count && !status; i++) {
        is_wanted[i] = same_as[rows[i]] == rows[i];
        is_any |= !is_wanted[i];
    }
    free(rows);
    return status || !is_any ? status : fb_regions_compute(&v->regions, is_wanted, v->error);
}

static fb_status run_sides(validator *v, const fb_region_pair *pairs, size_t count, const bool *is_wanted,
                           const fb_eval_options *options) {
    fb_regions *r = &v->regions;
    const unsigned char *of[] = {r->computed_before, r->computed_after};
    const uint32_t *read[] = {r->read_before, r->read_after};
    const region_sample *sample = v->sample;
    fb_status status = begin_side(&v->before, r->before, of[0], read[0], options, sample, 0, v->error);
    if (!status) status = begin_side(&v->after, r->after, of[1], read[1], options, sample, 1, v->error);
    if (!status) status = begin_side(&v->exact, r->before, of[0], read[0], options, sample, 0, v->error);
    if (!status && sample) status = begin_side(&v->exact_after, r->after, of[1], read[1], options, sample, 1, v->error);
    for (size_t i = 0; i < count && !status; i++) {
        if (!is_wanted[i]) continue;
        v->before.is_kept[pairs[i].before.id] = v->exact.is_kept[pairs[i].before.id] = true;
        v->after.is_kept[pairs[i].after.id] = true;
        if (sample) v->exact_after.is_kept[pairs[i].after.id] = true;
    }
    if (!status && count) status = run_side(&v->before, NULL, FB_PRECISION_RECORDED, v->error);
    if (!status && count) status = run_side(&v->after, &v->before, FB_PRECISION_RECORDED, v->error);
    if (!status && count) status = run_side(&v->exact, &v->after, FB_PRECISION_DOUBLE, v->error);
    if (!status && count && sample) status = run_side(&v->exact_after, &v->exact, FB_PRECISION_DOUBLE, v->error);
    for (int k = 0; k < 2 && !status; k++)
        for (uint32_t i = 0; i < fb_node_limit(k ? r->after : r->before); i++) v->out->nodes += of[k][i];
    return status;
}

static fb_status evaluate(validator *v, const fb_eval_options *options, bool only_moves, const fb_tolerance *tolerance) {
    const fb_region_pair *pairs = (const fb_region_pair *)(const void *)v->regions.pairs.data;
    size_t count = v->regions.pairs.size / sizeof *pairs;
    fb_status status = number_regions(v, pairs, count);
    bool *is_wanted = calloc(count + 1, sizeof *is_wanted);
    uint32_t *same_as = calloc(v->out->count + 1, sizeof *same_as);
    if (!status && (!is_wanted || !same_as)) status = fb_fail_memory(v->error);
    if (!status) status = choose(v, pairs, count, is_wanted, same_as);
    if (!status) status = run_sides(v, pairs, count, is_wanted, options);
    for (size_t i = 0; i < count && !status && fb_work_goes_on(&v->work, 64); i++)
        if (is_wanted[i]) status = report_pair(v, &pairs[i], only_moves, tolerance);
    if (!status) status = fb_work_status(&v->work, v->error);
    for (size_t i = 0; i < v->out->count && !status; i++) {
        v->out->regions[i] = v->out->regions[same_as[i]];
        v->out->regions[i].is_equal = same_as[i] != i;
    }
    free(is_wanted);
    free(same_as);
    if (!status) status = list_nodes(v);
    if (!status) sum_up(v->out);
    return status;
}

static void end_evaluation(validator *v) {
    side *sides[] = {&v->before, &v->after, &v->exact, &v->exact_after};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        end_side(sides[i]);
        *sides[i] = (side){0};
    }
    fb_map_free(&v->rows);
}

/* The pairs of regions that did not pass. */
static bool *doubted(validator *v) {
    const fb_region_pair *pairs = (const fb_region_pair *)(const void *)v->regions.pairs.data;
    size_t count = v->regions.pairs.size / sizeof *pairs;
    bool *found = calloc(count + 1, sizeof *found);
    for (size_t i = 0; i < count && found && fb_work_goes_on(&v->work, 16); i++)
        found[i] = !v->out->regions[row_of(v, &pairs[i])].passes;
    return found;
}

#define LOOKS 8

/* Evaluates again, from further back, the regions that do not pass, as they may rely on relations among the values that they
 * were given: until no such region is left, or LOOKS times. Only a look that sees as much as the first replaces it. */
static fb_status look_again(validator *v, const fb_eval_options *options, bool only_moves, const fb_tolerance *tolerance) {
    fb_validation *first = v->out, again = {0};
    fb_status status = FB_OK;
    for (int i = 0; i < LOOKS && !v->out->passes && !status; i++) {
        bool has_changed, *is_doubted = doubted(v);
        status = is_doubted ? fb_regions_relate(&v->regions, is_doubted, &has_changed, v->error) : fb_fail_memory(v->error);
        free(is_doubted);
        if (status || !has_changed) break;
        fb_validation_free(&again);
        end_evaluation(v);
        v->out = &again;
        status = evaluate(v, options, only_moves, tolerance);
    }
    if (!status && v->out->passes && (v->out->is_complete || !first->is_complete)) {
        fb_validation_free(first);
        *first = again;
    } else if (v->out != first) {
        fb_validation_free(&again);
    }
    v->out = first;
    return status;
}

static bool is_hidden(const fb_region_report *report) {
    return report->unsupported && strcmp(report->unsupported, FB_NOT_FINITE) == 0 && report->passes;
}

/* Evaluates again, of smaller values, the regions that overflowed before the rewrite and so show nothing. */
static fb_status look_closer(validator *v, const fb_eval_options *options, bool only_moves, const fb_tolerance *tolerance) {
    fb_validation *first = v->out;
    fb_status status = FB_OK;
    for (int attempt = 1; attempt < FB_DEVIATIONS && !status; attempt++) {
        fb_validation again = {0};
        fb_eval_options smaller = *options;
        bool is_any = false;
        smaller.deviation = fb_deviation(attempt);
        for (size_t i = 0; i < first->count; i++) is_any |= is_hidden(&first->regions[i]);
        if (!is_any) break;
        end_evaluation(v);
        v->out = &again;
        status = evaluate(v, &smaller, only_moves, tolerance);
        for (size_t i = 0; i < first->count && !status; i++) {
            fb_region_report *report = &first->regions[i], *now = &again.regions[i];
            if (!is_hidden(report) || now->unsupported) continue;
            report->between = now->between;
            report->before_exact = now->before_exact;
            report->after_exact = now->after_exact;
            report->rms = now->rms;
            report->passes = now->passes;
            report->unsupported = report->detail = NULL;
        }
        fb_validation_free(&again);
        v->out = first;
    }
    first->worst = first->before_exact = first->after_exact = (fb_difference){0};
    if (!status) sum_up(first);
    return status;
}

static fb_status look(validator *v, const fb_eval_options *options, bool only_moves, const fb_tolerance *tolerance) {
    fb_validation *out = v->out;
    fb_status status = evaluate(v, options, only_moves, tolerance);
    if (!status && !out->is_complete) status = look_closer(v, options, only_moves, tolerance);
    if (!status && !out->passes) status = look_again(v, options, only_moves, tolerance);
    end_evaluation(v);
    return status;
}

fb_status fb_validate_rewrite(const fb_graph *before, const fb_graph *after, const fb_eval_options *options, bool only_moves,
                              const fb_tolerance *tolerance, fb_validation *out, fb_error *error) {
    *out = (fb_validation){0};
    validator v = {
        .regions = {.before = before, .after = after}, .work = {.watch = options->watch}, .out = out, .error = error};
    fb_status status = fb_regions_find(before, after, &v.work, false, &v.regions, error);
    if (!status) status = look(&v, options, only_moves, tolerance);
    fb_regions_free(&v.regions);
    if (status) fb_validation_free(out);
    return status;
}

/* Are the outputs among what is compared? Not where their nodes have two names, or give them in another order or nesting. */
static bool are_outputs_paired(const fb_regions *r) {
    fb_node last = fb_last_node(r->before, FB_MAIN_PROGRAM);
    return r->twin_of_before[last.id].id == fb_last_node(r->after, FB_MAIN_PROGRAM).id && !r->changed_before[last.id];
}

fb_status fb_validate_samples(const fb_graph *a, const fb_graph *b, const fb_eval_options *options,
                              const fb_region_samples *samples, fb_validation *out, fb_error *error) {
    region_sample sample = {.all = samples};
    fb_eval_options drawn = *options;
    fb_difference worst = {0}, of_a = {0}, of_b = {0};
    *out = (fb_validation){0};
    validator v = {
        .regions = {.before = a, .after = b}, .sample = &sample, .work = {.watch = options->watch}, .out = out, .error = error};
    fb_status status = fb_regions_find(a, b, &v.work, true, &v.regions, error);
    size_t count = !status && are_outputs_paired(&v.regions) ? samples->count : 0;
    for (size_t i = 0; i < count && !status; i++) {
        fb_validation_free(out);
        sample.kind = (fb_sample_kind)(i % FB_SAMPLE_KINDS);
        drawn.seed = options->seed + i;
        status = look(&v, &drawn, false, NULL);
        fb_difference_join(&worst, &out->worst);
        fb_difference_join(&of_a, &out->before_exact);
        fb_difference_join(&of_b, &out->after_exact);
        if (!out->passes || !out->is_complete || !out->count) break;
    }
    out->worst = worst;
    out->before_exact = of_a;
    out->after_exact = of_b;
    fb_regions_free(&v.regions);
    if (status) fb_validation_free(out);
    return status;
}

void fb_validation_free(fb_validation *validation) {
    fb_arena_free(&validation->arena);
    *validation = (fb_validation){0};
}
