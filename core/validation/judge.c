/* A verdict on two graphs, whoever made them: what is equal by content is proved, and the rest is evaluated on several inputs.
 *
 * A sample convinces only where the first graph is itself certain. Where it is infinite in its dtype, the sample is drawn
 * again, smaller; where it is far from its own float64, as an argmax among equal numbers may be, the sample says nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/alias.h"
#include "core/analysis/infer.h"
#include "core/analysis/view.h"
#include "core/base/map.h"
#include "core/validation/equal_values.h"
#include "core/validation/samples.h"
#include "core/validation/validation.h"
#include "core/weights/dtype.h"
#include "core/weights/evaluate.h"

#define MOST_INTEGER 10 /* of the inputs of an ONNX model: integers are from -10 to 9 */

/* Relative to the largest magnitude, in float64, where both graphs have the same weights, or all but one and the same calls:
 * constants that were rounded to float32 are allowed, another epsilon is not. Where several weights differ, they may have been
 * rounded. */
#define CLOSE 0x1p-22

typedef struct leaf {
    fb_node a, b;
    fb_verdict verdict;
    bool is_skipped;  /* there is nothing more to find out */
    fb_judged common; /* what its parts have in common */
    fb_judged *parts; /* of each array that it is; NULL = not known */
    size_t count;
} leaf;

typedef struct judge {
    const fb_graph *graphs[2];
    const fb_judging *asked;
    fb_judgement *out;
    fb_node *partner[2]; /* by node: of a placeholder, the other graph's */
    leaf *leaves;
    size_t leaf_count;
    bool *skipped; /* by leaf */
    unsigned char *wanted[2];
    bool has_writes, is_close, is_drawn;
    fb_bounds bounds;            /* of calls that are not proved equal */
    unsigned char *has_shape[2]; /* by node: its recorded shape is true */
    fb_node *shared; /* by node of a: of b, whose memory is the same input or weight; NULL = nothing of that is written */
    fb_named_array *items[2];
    size_t item_count[2];
    fb_array_memory memory; /* of the items */
    fb_work work;
    fb_error *error;
} judge;

const char *fb_verdict_name(fb_verdict verdict) {
    static const char *const names[] = {"same", "moved", "evaluated", "not-evaluated", "differs"};
    return names[verdict];
}

static const char *keep(judge *j, const char *text) {
    const char *kept = fb_arena_text(&j->out->arena, text, strlen(text));
    if (!kept) fb_fail_memory(j->error);
    return kept ? kept : "";
}

/* ---- inputs: which are the same ------------------------------------------------------------------------------------------ */

static fb_node first_input(const fb_graph *graph) {
    fb_node node = fb_first_node(graph, FB_MAIN_PROGRAM);
    while (node.id && fb_node_at(graph, node)->opcode != FB_PLACEHOLDER) node = fb_next_node(graph, node);
    return node;
}
static fb_node next_input(const fb_graph *graph, fb_node node) {
    do node = fb_next_node(graph, node);
    while (node.id && fb_node_at(graph, node)->opcode != FB_PLACEHOLDER);
    return node;
}

static bool same_type(const judge *j, fb_node a, fb_node b) {
    fb_shape_result x, y;
    bool has_a = fb_recorded_shape(j->graphs[0], a, &x), has_b = fb_recorded_shape(j->graphs[1], b, &y);
    if (!has_a || !has_b || x.dtype != y.dtype || x.rank != y.rank) return has_a == has_b && !has_a;
    for (int i = 0; i < x.rank; i++)
        if (!x.sizes[i].symbol.id && !y.sizes[i].symbol.id && x.sizes[i].size != y.sizes[i].size) return false;
    return true;
}

static void pair(judge *j, fb_node a, fb_node b) {
    j->partner[0][a.id] = b;
    j->partner[1][b.id] = a;
}

static void match_inputs(judge *j) {
    const fb_graph *a = j->graphs[0], *b = j->graphs[1];
    for (int by_target = 0; by_target < 2; by_target++) {
        for (fb_node x = first_input(a); x.id; x = next_input(a, x)) {
            const char *name = by_target ? fb_node_target(a, x) : fb_node_name(a, x);
            for (fb_node y = first_input(b); y.id && !j->partner[0][x.id].id && fb_work_goes_on(&j->work, 4);
                 y = next_input(b, y))
                if (!j->partner[1][y.id].id && fb_is_input_name(b, y, name + strspn(name, "*"))) pair(j, x, y);
        }
    }
    fb_node y = first_input(b);
    for (fb_node x = first_input(a); x.id; x = next_input(a, x)) {
        if (j->partner[0][x.id].id) continue;
        while (y.id && j->partner[1][y.id].id) y = next_input(b, y);
        if (!y.id || !same_type(j, x, y)) break;
        pair(j, x, y);
    }
}

static fb_status list_lonely_inputs(judge *j) {
    fb_judgement *out = j->out;
    for (int pass = 0; pass < 2; pass++) {
        size_t count = 0;
        for (int k = 0; k < 2; k++) {
            for (fb_node n = first_input(j->graphs[k]); n.id; n = next_input(j->graphs[k], n)) {
                if (j->partner[k][n.id].id) continue;
                if (pass)
                    out->inputs[count] = (fb_judged){.name = keep(j, fb_node_name(j->graphs[k], n)),
                                                     .dtype = (fb_dtype)fb_node_at(j->graphs[k], n)->dtype,
                                                     .verdict = FB_VERDICT_NOT_EVALUATED,
                                                     .reason = k ? "missing-in-a" : "missing-in-b"};
                count++;
            }
        }
        out->input_count = count;
        if (!pass) out->inputs = fb_arena_alloc(&out->arena, (count + 1) * sizeof *out->inputs);
        if (!out->inputs) return fb_fail_memory(j->error);
    }
    return FB_OK;
}

/* ---- inputs: drawing ----------------------------------------------------------------------------------------------------- */

/* The tensor that a get_attr node reads. */
static fb_tensor tensor_of(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    bool is_read = row->opcode == FB_GET_ATTR && row->attribute.id;
    return is_read ? fb_module_tensor(graph, row->module, fb_text(graph, row->attribute)) : (fb_tensor){0};
}

/* ONNX's operators compute with integers: to half of them, where these may be, a sign is given. An index that is then out of
 * range is drawn again as it is elsewhere. */
static void give_signs(const fb_array *array) {
    int64_t *data = (int64_t *)fb_array_data(array), count = fb_array_count(array);
    if (array->dtype == FB_UINT8 || array->dtype == FB_UINT16 || array->dtype == FB_UINT32 || array->dtype == FB_UINT64) return;
    for (int64_t i = 0; i < count && fb_work_at(fb_array_work(array), i, count); i++)
        if (data[i] >= MOST_INTEGER) data[i] = MOST_INTEGER - 1 - data[i];
}

static bool is_given(const judge *j, int k, fb_node node) {
    for (size_t i = 0; i < j->asked->count; i++)
        if (fb_is_input_name(j->graphs[k], node, j->asked->items[i].name)) return true;
    return false;
}

static void drop_items(judge *j) {
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < j->item_count[k]; i++) fb_array_drop(j->items[k][i].array);
        j->item_count[k] = 0;
    }
}

static void add_item(judge *j, int k, fb_node node, fb_array *array) {
    j->items[k][j->item_count[k]++] = (fb_named_array){fb_node_name(j->graphs[k], node), array};
}

/* Gives a placeholder of one graph a value, and its partner the same, in the dtype that is recorded there. A placeholder
 * without a recorded shape stays without a value: who reads it reports that. */
static fb_status draw_input(judge *j, int k, fb_node node, fb_sample_kind kind, uint64_t sample, double deviation,
                            bool is_mild) {
    const fb_graph *graph = j->graphs[k], *other = j->graphs[1 - k];
    fb_node partner = j->partner[k][node.id];
    const fb_named_array *items = j->asked->items;
    size_t count = j->asked->count;
    fb_object object = {0};
    fb_error found = {0};
    fb_eval_inputs given = {.graph = graph,
                            .memory = &j->memory,
                            .items = items,
                            .count = count,
                            .is_drawn = true,
                            .seed = j->asked->options->seed + sample,
                            .sizes_seed = sample,
                            .deviation = deviation};
    bool has_value = is_given(j, k, node), by_partner = !has_value && partner.id && is_given(j, 1 - k, partner);
    if (by_partner) given.graph = other;
    fb_status status = fb_give_input(&given, by_partner ? partner : node, &object, &found);
    if (status == FB_NOT_FOUND || (status == FB_INVALID && !strcmp(found.code, "missing-shape"))) return FB_OK;
    if (status) {
        *j->error = found;
        return status;
    }
    if (!has_value && !by_partner) {
        fb_array *array = object.array;
        bool is_integer = array->held == FB_HELD_INT && !is_mild;
        int64_t high = !is_integer ? 0 : fb_graph_is_onnx(graph) ? 2 * MOST_INTEGER : fb_table_rows(graph, node);
        j->is_drawn = true;
        if (high > 2) {
            fb_array *wide;
            status = fb_random_array(&j->memory, array->dtype, array->rank, array->sizes, given.seed, fb_node_name(graph, node),
                                     1, high, &wide, j->error);
            if (status) return fb_object_drop(&object), status;
            fb_array_drop(array);
            object.array = array = wide;
            if (fb_graph_is_onnx(graph)) give_signs(array);
        }
        bool is_kept = is_mild && !fb_dtype_is_floating(array->dtype);
        if (!is_kept) fb_sample_change(&j->bounds, kind, array, high > 2 ? high : 2);
    }
    add_item(j, k, node, object.array);
    if (!partner.id) return FB_OK;
    fb_dtype dtype = (fb_dtype)fb_node_at(other, partner)->dtype;
    fb_array *twin = fb_array_keep(object.array);
    if (dtype && dtype != object.array->dtype && !by_partner) {
        fb_array_drop(twin);
        status = fb_array_cast(object.array, dtype, &twin, j->error);
    }
    if (!status) add_item(j, 1 - k, partner, twin);
    return status;
}

static fb_status draw(judge *j, uint64_t sample, int attempt) {
    fb_sample_kind kind = (fb_sample_kind)(sample % FB_SAMPLE_KINDS);
    fb_status status = FB_OK;
    drop_items(j);
    for (int k = 0; k < 2 && !status; k++) {
        for (fb_node n = first_input(j->graphs[k]); n.id && !status; n = next_input(j->graphs[k], n)) {
            if (k && j->partner[1][n.id].id) continue;
            status = draw_input(j, k, n, kind, sample, fb_deviation(attempt), attempt > 0);
        }
    }
    return status ? status : fb_work_status(&j->memory.work, j->error);
}

/* ---- outputs ------------------------------------------------------------------------------------------------------------- */

/* The output as written: the nodes among its arguments in order, as fb_comparison_scope counts leaves; how they are nested; and
 * what is not a node, in order. An exported program gives in one list what the model gave in any nesting. */
typedef struct written {
    fb_buffer nodes, nesting, rest;
    bool is_nested; /* more than one list, or a dict */
} written;

static void write_number(const fb_graph *graph, fb_value value, fb_buffer *out) {
    const fb_value_row *row = fb_value_at(graph, value);
    fb_buffer_append(out, &row->kind, sizeof row->kind);
    if (row->kind == FB_INT) fb_buffer_append(out, &row->integer, sizeof row->integer);
    else if (row->kind == FB_FLOAT) fb_buffer_append(out, &row->real, sizeof row->real);
    for (uint32_t i = 0; row->kind == FB_COMPLEX && i < row->count; i++) write_number(graph, row->items[i], out);
}

static void write_output(const fb_graph *graph, fb_value value, int depth, written *out) {
    const fb_value_row *row = fb_value_at(graph, value);
    bool has_items = row->kind == FB_LIST || row->kind == FB_TUPLE || row->kind == FB_SIZE || row->kind == FB_NAMED_TUPLE ||
                     row->kind == FB_SLICE || row->kind == FB_DICT;
    fb_buffer_append(&out->nesting, &row->kind, sizeof row->kind);
    fb_buffer_append(&out->nesting, &row->count, sizeof row->count);
    out->is_nested |= has_items && (depth || row->kind == FB_DICT);
    fb_node node = fb_value_node(graph, value);
    if (node.id) fb_buffer_append(&out->nodes, &node, sizeof node);
    for (uint32_t i = 0; has_items && i < row->count; i++) {
        bool is_key = row->kind == FB_DICT && i % 2 == 0;
        const fb_value_row *key = fb_value_at(graph, row->items[i]);
        if (!is_key) write_output(graph, row->items[i], depth + 1, out);
        else if (key->kind == FB_INT) fb_buffer_append(&out->nesting, &key->integer, sizeof key->integer);
        else if (key->kind == FB_STRING) fb_buffer_string(&out->nesting, fb_text(graph, key->symbol));
    }
    if (has_items || row->kind == FB_NODE) return;
    bool is_number = row->kind == FB_INT || row->kind == FB_FLOAT || row->kind == FB_COMPLEX;
    write_number(graph, value, &out->rest);
    if (!is_number && row->kind != FB_NONE && row->kind != FB_TRUE && row->kind != FB_FALSE && row->kind != FB_ELLIPSIS)
        fb_buffer_string(&out->rest, fb_text(graph, row->symbol));
}

static bool same_bytes(const fb_buffer *a, const fb_buffer *b) {
    return a->size == b->size && (!a->size || memcmp(a->data, b->data, a->size) == 0);
}

static fb_value output_of(const fb_graph *graph) {
    return fb_node_arg(graph, fb_last_node(graph, FB_MAIN_PROGRAM), 0);
}

static void settle(leaf *l, fb_verdict verdict, const char *reason, const char *detail) {
    l->verdict = verdict;
    l->is_skipped = true;
    l->common.reason = reason;
    l->common.detail = detail;
}

static fb_status find_leaves(judge *j, bool *is_same_structure) {
    written of[2] = {0};
    bool failed = false;
    for (int k = 0; k < 2; k++) {
        write_output(j->graphs[k], output_of(j->graphs[k]), 0, &of[k]);
        failed |= of[k].nodes.failed || of[k].nesting.failed || of[k].rest.failed;
    }
    size_t count[2] = {of[0].nodes.size / sizeof(fb_node), of[1].nodes.size / sizeof(fb_node)};
    j->leaf_count = count[0] > count[1] ? count[0] : count[1];
    j->leaves = calloc(j->leaf_count + 1, sizeof *j->leaves);
    j->skipped = calloc(j->leaf_count + 1, sizeof *j->skipped);
    failed |= !j->leaves || !j->skipped;
    for (size_t i = 0; i < j->leaf_count && !failed; i++) {
        leaf *l = &j->leaves[i];
        if (i < count[0]) memcpy(&l->a, of[0].nodes.data + i * sizeof l->a, sizeof l->a);
        if (i < count[1]) memcpy(&l->b, of[1].nodes.data + i * sizeof l->b, sizeof l->b);
        l->verdict = FB_VERDICT_EVALUATED;
        if (!l->a.id) settle(l, FB_VERDICT_NOT_EVALUATED, "missing-in-a", "only b has this output");
        if (!l->b.id) settle(l, FB_VERDICT_NOT_EVALUATED, "missing-in-b", "only a has this output");
    }
    bool is_flat = !of[0].is_nested || !of[1].is_nested;
    *is_same_structure = same_bytes(&of[0].rest, &of[1].rest) && (is_flat || same_bytes(&of[0].nesting, &of[1].nesting));
    for (int k = 0; k < 2; k++) {
        fb_buffer_free(&of[k].nodes);
        fb_buffer_free(&of[k].nesting);
        fb_buffer_free(&of[k].rest);
    }
    return failed ? fb_fail_memory(j->error) : FB_OK;
}

/* ---- proof --------------------------------------------------------------------------------------------------------------- */

/* Of calls whose values one graph has alone. */
static fb_status find_bounds(judge *j, const fb_equal_values *equal) {
    const uint32_t *of[] = {equal->of_a, equal->of_b};
    fb_map sides = {0};
    bool failed = false;
    for (int k = 0; k < 2; k++)
        for (fb_node n = fb_first_node(j->graphs[k], FB_MAIN_PROGRAM); n.id && !failed; n = fb_next_node(j->graphs[k], n))
            failed = !fb_map_put(&sides, of[k][n.id], fb_map_get(&sides, of[k][n.id]) | 1U << k);
    for (int k = 0; k < 2 && !failed; k++) {
        for (fb_node n = fb_first_node(j->graphs[k], FB_MAIN_PROGRAM); n.id; n = fb_next_node(j->graphs[k], n)) {
            const fb_node_row *row = fb_node_at(j->graphs[k], n);
            if (row->opcode == FB_OUTPUT || fb_map_get(&sides, of[k][n.id]) == 3) continue;
            fb_bounds_add(&j->bounds, j->graphs[k], row->args, &j->work);
            fb_bounds_add(&j->bounds, j->graphs[k], row->kwargs, &j->work);
        }
    }
    fb_map_free(&sides);
    return failed ? fb_fail_memory(j->error) : FB_OK;
}

static fb_status prove(judge *j) {
    fb_node *inputs = calloc(fb_node_limit(j->graphs[1]), sizeof *inputs);
    if (!inputs) return fb_fail_memory(j->error);
    for (fb_node n = first_input(j->graphs[1]); n.id; n = next_input(j->graphs[1], n)) {
        fb_node a = j->partner[1][n.id];
        if (a.id && fb_node_at(j->graphs[0], a)->dtype == fb_node_at(j->graphs[1], n)->dtype) inputs[n.id] = a;
    }
    fb_equality equality = {.a = j->graphs[0],
                            .b = j->graphs[1],
                            .input_of_b = inputs,
                            .blobs = j->asked->options->blobs,
                            .random_weights = j->asked->options->random_weights,
                            .work = &j->work};
    fb_status status = FB_OK;
    bool is_open = true, is_one_weight = false;
    for (int by_movement = 0; by_movement < 2 && is_open && !status; by_movement++) {
        fb_equal_values equal;
        status = fb_equal_values_find(&equality, by_movement, &equal, j->error);
        if (status) break;
        bool same_end = equal.end_of_a == equal.end_of_b;
        j->has_writes = equal.has_writes;
        j->is_close = !equal.lonely_weights[0] && !equal.lonely_weights[1];
        is_one_weight = !j->is_close && equal.lonely_weights[0] <= 1 && equal.lonely_weights[1] <= 1;
        if (!by_movement) j->out->writes = same_end ? FB_VERDICT_SAME : FB_VERDICT_NOT_EVALUATED;
        is_open = false;
        for (size_t i = 0; i < j->leaf_count; i++) {
            leaf *l = &j->leaves[i];
            bool are_equal = !l->is_skipped && same_end && equal.of_a[l->a.id] == equal.of_b[l->b.id];
            if (are_equal) settle(l, by_movement ? FB_VERDICT_MOVED : FB_VERDICT_SAME, NULL, NULL);
            is_open |= !l->is_skipped;
        }
        if (is_open && by_movement) {
            status = find_bounds(j, &equal);
            j->has_shape[0] = equal.has_shape_of_a;
            j->has_shape[1] = equal.has_shape_of_b;
            equal.has_shape_of_a = equal.has_shape_of_b = NULL;
        }
        fb_equal_values_free(&equal);
    }
    equality.any_weights = true;
    if (is_open && is_one_weight && !status) {
        fb_equal_values equal;
        status = fb_equal_values_find(&equality, false, &equal, j->error);
        fb_node last[] = {fb_last_node(j->graphs[0], FB_MAIN_PROGRAM), fb_last_node(j->graphs[1], FB_MAIN_PROGRAM)};
        if (!status) j->is_close = equal.of_a[last[0].id] == equal.of_b[last[1].id];
        if (!status) fb_equal_values_free(&equal);
    }
    free(inputs);
    return status;
}

/* ---- what is written ----------------------------------------------------------------------------------------------------- */

static fb_node reader_of(const fb_graph *graph, const char *tensor) {
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(graph, n)) {
        fb_tensor read = tensor_of(graph, n);
        if (read.id && !strcmp(fb_tensor_name(graph, read), tensor)) return n;
    }
    return (fb_node){0};
}

/* Inputs and weights that one of the graphs writes, with the other's. One that has no other leaves the verdict open, and so do
 * a module's own buffers and calls that are not known. */
static fb_status find_shared(judge *j) {
    bool is_any = false;
    fb_status status = FB_OK;
    if (j->out->writes == FB_VERDICT_SAME) return FB_OK;
    j->shared = calloc(fb_node_limit(j->graphs[0]), sizeof *j->shared);
    if (!j->shared) return fb_fail_memory(j->error);
    j->out->writes = FB_VERDICT_EVALUATED;
    for (int k = 0; k < 2 && !status; k++) {
        const fb_graph *graph = j->graphs[k];
        fb_usage *usage = fb_usage_new(graph);
        fb_alias *alias = usage ? fb_alias_new(graph, usage, &j->work) : NULL;
        if (!usage) status = fb_fail_memory(j->error);
        else if (!alias) status = fb_work_failed(&j->work, j->error);
        for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && !status; n = fb_next_node(graph, n)) {
            fb_tensor tensor = tensor_of(graph, n);
            fb_effects effects = fb_op_effects(graph, n);
            bool is_input = fb_node_at(graph, n)->opcode == FB_PLACEHOLDER;
            bool is_call =
                !is_input && fb_node_at(graph, n)->opcode != FB_GET_ATTR && fb_node_at(graph, n)->opcode != FB_OUTPUT;
            if (is_call && (effects.mutates_module || effects.is_unknown)) j->out->writes = FB_VERDICT_NOT_EVALUATED;
            if ((!is_input && !tensor.id) || !fb_is_mutated(alias, n)) continue;
            fb_node partner = is_input ? j->partner[k][n.id] : reader_of(j->graphs[1 - k], fb_tensor_name(graph, tensor));
            is_any = true;
            if (!partner.id) j->out->writes = FB_VERDICT_NOT_EVALUATED;
            else j->shared[k ? partner.id : n.id] = k ? n : partner;
        }
        fb_alias_free(alias);
        fb_usage_free(usage);
    }
    if (!is_any && j->out->writes == FB_VERDICT_EVALUATED) j->out->writes = FB_VERDICT_SAME;
    return status;
}

/* ---- what is evaluated --------------------------------------------------------------------------------------------------- */

/* Marks the inputs of the open leaves, all calls that write, and the memory that one of the graphs writes. True: a leaf is
 * open. */
static bool want(judge *j) {
    bool is_open = false;
    for (size_t i = 0; i < j->leaf_count; i++) is_open |= !(j->skipped[i] = j->leaves[i].is_skipped);
    for (int k = 0; k < 2; k++) {
        const fb_graph *graph = j->graphs[k];
        fb_node last = fb_last_node(graph, FB_MAIN_PROGRAM);
        memset(j->wanted[k], 0, fb_node_limit(graph));
        for (size_t i = 0; i < j->leaf_count; i++) {
            fb_node node = k ? j->leaves[i].b : j->leaves[i].a;
            if (!j->skipped[i] && node.id) j->wanted[k][node.id] = true;
        }
        for (uint32_t i = 0; j->shared && i < fb_node_limit(j->graphs[0]); i++)
            if (j->shared[i].id) j->wanted[k][k ? j->shared[i].id : i] = true;
        for (fb_node n = last; n.id && fb_work_goes_on(&j->work, 16); n = fb_node_at(graph, n)->previous) {
            if (n.id == last.id) {
                j->wanted[k][n.id] = true;
                continue;
            }
            j->wanted[k][n.id] |= fb_changes_state(graph, n);
            if (!j->wanted[k][n.id]) continue;
            for (uint32_t e = fb_input_first(graph, n); e; e = fb_input_next(graph, e))
                j->wanted[k][fb_edge_input(graph, e).id] = true;
        }
    }
    return is_open;
}

/* The open leaves that cannot be known where a node cannot be computed. */
static fb_status close_behind(judge *j, int k, const fb_error *found, fb_verdict verdict) {
    const fb_graph *graph = j->graphs[k];
    fb_node node = fb_node_find(graph, FB_MAIN_PROGRAM, found->node);
    fb_effects effects = node.id ? fb_op_effects(graph, node) : (fb_effects){0};
    const fb_node_row *row = node.id ? fb_node_at(graph, node) : NULL;
    bool hides_all = !node.id || fb_changes_state(graph, node);
    unsigned char *behind = calloc(fb_node_limit(graph), 1);
    if (!behind) return fb_fail_memory(j->error);
    if (node.id) behind[node.id] = true;
    for (fb_node n = node; n.id; n = fb_next_node(graph, n))
        for (uint32_t e = fb_input_first(graph, n); e && !behind[n.id]; e = fb_input_next(graph, e))
            behind[n.id] = behind[fb_edge_input(graph, e).id];
    bool is_random = verdict == FB_VERDICT_NOT_EVALUATED && effects.is_random && !effects.is_unknown;
    const char *reason = is_random ? "random" : keep(j, found->code), *detail = keep(j, found->message);
    bool is_any = false;
    for (int again = 0; again < 2 && !is_any; again++) { /* no leaf behind it: it is one that all need */
        for (size_t i = 0; i < j->leaf_count; i++) {
            leaf *l = &j->leaves[i];
            if (l->is_skipped || !(hides_all || again || behind[(k ? l->b : l->a).id])) continue;
            settle(l, verdict, reason, detail);
            is_any = true;
            if (!node.id) continue;
            l->common.node = keep(j, fb_node_name(graph, node));
            l->common.target = keep(j, row->opcode == FB_CALL_MODULE ? fb_text(graph, fb_module_at(graph, row->module)->type)
                                                                     : fb_node_target(graph, node));
        }
    }
    free(behind);
    return FB_OK;
}

/* ---- one sample ---------------------------------------------------------------------------------------------------------- */

typedef enum finding { FOUND_NOTHING, FOUND_EQUAL, FOUND_DIFFERENT, FOUND_DIFFERENT_EXACTLY } finding;

/* The dtype that both compute in: a cast that only one makes excuses no error. */
static fb_dtype shared_narrowest(const fb_output_comparison *o) {
    return fb_narrower_dtype(o->narrowest[0], o->narrowest[1]) == o->narrowest[0] ? o->narrowest[1] : o->narrowest[0];
}

/* Is the graph near its own float64? */
static bool is_certain(const fb_difference *own, fb_dtype narrowest, double largest) {
    fb_tolerance tolerance = fb_tolerance_of(narrowest, false);
    tolerance.absolute += fb_smallest_of(narrowest);
    return fb_difference_passes(own, largest, &tolerance);
}

static finding look_at(const judge *j, const fb_output_comparison *o, fb_sample_kind kind) {
    fb_dtype narrowest = shared_narrowest(o);
    fb_tolerance loose = j->asked->tolerance ? *j->asked->tolerance : fb_tolerance_of(narrowest, false);
    fb_tolerance close = {fb_smallest_of(narrowest), j->is_close ? CLOSE : loose.relative};
    bool has_ties = kind == FB_SAMPLE_EQUAL || kind == FB_SAMPLE_ZERO || kind == FB_SAMPLE_REPEATED;
    if (o->mismatch && !strcmp(o->mismatch, "shape")) return FOUND_DIFFERENT;
    if (o->is_hidden) return FOUND_NOTHING;
    if (j->asked->tolerance) return fb_difference_passes(&o->between, o->largest, &loose) ? FOUND_EQUAL : FOUND_DIFFERENT;
    loose.absolute += fb_smallest_of(narrowest);
    bool is_near = fb_difference_passes(&o->between, o->largest, &loose);
    if (is_near && fb_difference_passes(&o->exact, o->largest_exact, &close)) return FOUND_EQUAL;
    if (!is_certain(&o->a_exact, o->narrowest[0], o->largest_a)) return FOUND_NOTHING;
    if (has_ties && !is_certain(&o->b_exact, o->narrowest[1], o->largest)) return FOUND_NOTHING;
    return is_near ? FOUND_DIFFERENT_EXACTLY : FOUND_DIFFERENT;
}

static fb_status make_parts(judge *j, leaf *l, size_t count) {
    l->parts = fb_arena_alloc(&j->out->arena, (count ? count : 1) * sizeof *l->parts);
    if (!l->parts) return fb_fail_memory(j->error);
    l->count = count;
    for (size_t i = 0; i < (count ? count : 1); i++) l->parts[i] = (fb_judged){.verdict = FB_VERDICT_EVALUATED};
    return FB_OK;
}

static void join(fb_judged *part, const fb_output_comparison *o) {
    fb_difference_join(&part->between, &o->between);
    fb_difference_join(&part->a_exact, &o->a_exact);
    fb_difference_join(&part->b_exact, &o->b_exact);
    part->dtype = o->dtype;
}

static void take(fb_judged *part, const fb_output_comparison *o, size_t sample, finding found) {
    fb_sample_kind kind = (fb_sample_kind)(sample % FB_SAMPLE_KINDS);
    if (part->verdict == FB_VERDICT_DIFFERS || found == FOUND_NOTHING) return;
    part->samples++;
    part->has_spread |= kind != FB_SAMPLE_EQUAL && kind != FB_SAMPLE_ZERO;
    join(part, o);
    if (found == FOUND_EQUAL) return;
    bool is_shape = o->mismatch && !strcmp(o->mismatch, "shape"), exactly = found == FOUND_DIFFERENT_EXACTLY;
    part->verdict = FB_VERDICT_DIFFERS;
    part->reason = is_shape ? "shape" : exactly ? "float64" : NULL;
    part->has_counterexample = true;
    part->sample = sample;
    part->index = is_shape ? -1 : exactly ? o->exact.worst : o->between.worst;
    part->a = exactly ? o->a_value_exact : o->a_value;
    part->b = exactly ? o->b_value_exact : o->b_value;
}

/* Takes in the outputs of a sample; those that it said nothing of are to be drawn again if *is_unsure, which also asks that. */
static fb_status take_sample(judge *j, const fb_comparison *found, size_t sample, bool is_last, bool *is_unsure, bool *is_new) {
    fb_sample_kind kind = (fb_sample_kind)(sample % FB_SAMPLE_KINDS);
    fb_status status = FB_OK;
    for (size_t i = 0, first = 0; i < j->leaf_count && !status; i++) {
        leaf *l = &j->leaves[i];
        if (l->is_skipped) continue;
        if (i < found->leaves && found->mismatched[i]) {
            settle(l, FB_VERDICT_DIFFERS, "structure", "it differs in what is not a tensor: how it is nested, a key, a number");
            l->common.has_counterexample = true;
            l->common.sample = sample;
            l->common.index = -1;
            continue;
        }
        while (first < found->count && found->outputs[first].leaf < i) first++;
        size_t count = 0;
        while (first + count < found->count && found->outputs[first + count].leaf == i) count++;
        if (!l->parts) status = make_parts(j, l, count);
        bool is_open = false;
        for (size_t k = 0; k < count && k < l->count && !status; k++) {
            const fb_output_comparison *o = &found->outputs[first + k];
            finding now = look_at(j, o, kind);
            *is_unsure |= now == FOUND_NOTHING && l->parts[k].verdict != FB_VERDICT_DIFFERS;
            bool was_open = l->parts[k].verdict != FB_VERDICT_DIFFERS;
            if (now != FOUND_NOTHING || is_last) take(&l->parts[k], o, sample, now);
            if (o->mismatch && !strcmp(o->mismatch, "dtype") && l->parts[k].verdict == FB_VERDICT_EVALUATED)
                l->parts[k].reason = "dtype";
            *is_new |= was_open && l->parts[k].verdict == FB_VERDICT_DIFFERS;
            is_open |= l->parts[k].verdict != FB_VERDICT_DIFFERS;
        }
        if (!count && !status) l->parts[0].samples++, l->parts[0].has_spread = true;
        if (count && !is_open) l->is_skipped = true;
    }
    return status;
}

/* The first node, for the first difference that was found. */
static fb_status find_first(judge *j, const fb_comparison_inputs *inputs, const fb_eval_options *options,
                            const fb_comparison *found, size_t sample) {
    const fb_output_comparison *worst = NULL;
    bool exactly = false;
    for (size_t i = 0; i < found->count; i++) {
        const leaf *l = &j->leaves[found->outputs[i].leaf];
        size_t k = 0;
        while (i > k && found->outputs[i - k - 1].leaf == found->outputs[i].leaf) k++;
        if (!l->parts || k >= l->count || l->parts[k].verdict != FB_VERDICT_DIFFERS || l->parts[k].sample != sample) continue;
        worst = &found->outputs[i];
        exactly = l->parts[k].reason && !strcmp(l->parts[k].reason, "float64");
        break;
    }
    if (!worst) return FB_OK;
    fb_tolerance close = {fb_smallest_of(shared_narrowest(worst)), j->is_close ? CLOSE : 0x1p-15};
    fb_comparison first = {.first_node = ""};
    fb_status status =
        fb_compare_nodes(j->graphs[0], j->graphs[1], inputs, options, exactly ? FB_PRECISION_DOUBLE : FB_PRECISION_RECORDED,
                         exactly ? &close : j->asked->tolerance, worst->narrowest[0], &first, j->error);
    if (!status && *first.first_node) {
        j->out->first_node = keep(j, first.first_node);
        j->out->first_difference = first.first_difference;
    }
    fb_comparison_free(&first);
    return status;
}

/* The inputs of both on which something differs for the first time, in A's names, and where A has none in B's. */
static fb_status keep_inputs(judge *j, size_t sample) {
    if (!j->asked->keeps_inputs || j->out->drawn.size) return FB_OK;
    fb_named_array *items = calloc(j->item_count[0] + j->item_count[1] + 1, sizeof *items);
    size_t count = 0;
    if (!items) return fb_fail_memory(j->error);
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < j->item_count[k]; i++) {
            fb_node node = fb_node_find(j->graphs[k], FB_MAIN_PROGRAM, j->items[k][i].name);
            if (!k || !j->partner[1][node.id].id) items[count++] = j->items[k][i];
        }
    }
    fb_status status = fb_arrays_write(items, count, &j->out->drawn, j->error);
    j->out->drawn_sample = sample;
    free(items);
    return status;
}

static bool is_stop(fb_status status, const fb_error *found) {
    return status == FB_NO_MEMORY || status == FB_BUSY || status == FB_IO || (status == FB_INVALID && !*found->code);
}

static size_t samples_of(const judge *j) {
    return j->asked->samples ? j->asked->samples : FB_SAMPLES;
}

/* Has a sample said something of what is still open? */
static bool is_any_known(const judge *j) {
    for (size_t i = 0; i < j->leaf_count; i++)
        if (!j->leaves[i].is_skipped && j->leaves[i].parts) return true;
    return false;
}

/* As drawn, and smaller where that says nothing. */
static fb_status judge_sample(judge *j, size_t sample) {
    fb_status status = FB_OK;
    bool is_over = false;
    for (int attempt = 0; attempt < FB_DEVIATIONS && !is_over && !status; attempt++) {
        if (!want(j)) return FB_OK;
        status = draw(j, sample, attempt);
        if (status) return status;
        fb_eval_options options = *j->asked->options;
        fb_comparison_scope scope = {.items_of_b = j->items[1],
                                     .count_of_b = j->item_count[1],
                                     .skipped = j->skipped,
                                     .wanted = {j->wanted[0], j->wanted[1]},
                                     .partner = j->shared,
                                     .without_first_node = true};
        fb_comparison_inputs inputs = {.items = j->items[0], .count = j->item_count[0], .scope = &scope};
        fb_comparison found;
        fb_error why = {0};
        options.seed += sample;
        options.memory_held += j->memory.used;
        status = fb_compare_graphs(j->graphs[0], j->graphs[1], &inputs, &options, j->asked->tolerance, &found, &why);
        bool is_last = attempt == FB_DEVIATIONS - 1 || !j->is_drawn, is_unsure = false, is_new = false;
        if (!status) {
            if (found.writes_unknown && j->out->writes < FB_VERDICT_NOT_EVALUATED) j->out->writes = FB_VERDICT_NOT_EVALUATED;
            if (found.writes_differ) j->out->writes = FB_VERDICT_DIFFERS;
            status = take_sample(j, &found, sample, is_last, &is_unsure, &is_new);
            if (!status && is_new) status = keep_inputs(j, sample);
            if (!status && is_new && !*j->out->first_node) status = find_first(j, &inputs, &options, &found, sample);
            fb_comparison_free(&found);
            is_over = !is_unsure || is_last;
            continue;
        }
        if (is_stop(status, &why)) {
            *j->error = why;
            return status;
        }
        int k = found.failed == j->graphs[1] && found.failed != j->graphs[0];
        fb_node node = fb_node_find(j->graphs[k], FB_MAIN_PROGRAM, why.node);
        bool is_undefined = status == FB_INVALID && !strcmp(why.code, FB_UNDEFINED_RESULT);
        bool is_of_inputs = is_undefined || (!k && status == FB_INVALID && !strcmp(why.code, "evaluation-failed"));
        bool is_unknown = !strcmp(why.code, "unsupported-operator"); /* another tool's spelling of what a computes, perhaps */
        bool is_broken =
            k && status == FB_INVALID && found.failed && !is_unknown && fb_failure_counts(j->graphs[1], why.code, node);
        status = FB_OK;
        if (is_of_inputs && !is_last) continue; /* an index out of range, perhaps */
        if (is_undefined && j->is_drawn && (sample + 1 < samples_of(j) || is_any_known(j))) return FB_OK;
        status = close_behind(j, k, &why, is_broken ? FB_VERDICT_DIFFERS : FB_VERDICT_NOT_EVALUATED);
        attempt--; /* the others, on the same */
    }
    return status;
}

/* ---- regions ------------------------------------------------------------------------------------------------------------- */

/* From here on the changed regions come first; below, the graphs as a whole, which say more: values that are given are not
 * always those that the inputs lead to. */
#define MANY_NODES 10000
#define MANY_BYTES ((size_t)256 << 20)

static bool is_large(const fb_graph *graph) {
    size_t nodes = 0, bytes = 0;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(graph, n)) nodes++;
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next)
        bytes += (size_t)fb_tensor_bytes(graph, t);
    return nodes >= MANY_NODES || bytes >= MANY_BYTES;
}

/* Are values of equal names given alike: are inputs the same, is nothing random or written, has each weight something that says
 * what it is? */
static bool may_cut(const judge *j) {
    bool may = !j->has_writes && !j->asked->count && !j->asked->tolerance && !j->out->input_count && j->has_shape[0];
    for (int k = 0; k < 2 && may; k++) {
        const fb_graph *graph = j->graphs[k];
        for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && may; n = fb_next_node(graph, n)) {
            fb_effects effects = fb_op_effects(graph, n);
            fb_node partner = j->partner[k][n.id];
            may = !effects.is_random && !effects.is_unknown;
            if (fb_node_at(graph, n)->opcode == FB_PLACEHOLDER)
                may &= !strcmp(fb_node_name(graph, n), fb_node_name(j->graphs[1 - k], partner)) &&
                       same_type(j, k ? partner : n, k ? n : partner);
        }
        for (fb_tensor t = fb_first_tensor(graph); t.id && may; t = fb_tensor_at(graph, t)->next) {
            const fb_tensor_row *row = fb_tensor_at(graph, t);
            may = j->asked->options->random_weights || row->digest.id || row->data.id || row->blob.id || row->recipe.id;
        }
    }
    return may;
}

/* May regions say more of this output than what is known? */
static bool is_for_regions(const leaf *l) {
    bool may = l->a.id && l->b.id && (l->is_skipped ? l->verdict == FB_VERDICT_NOT_EVALUATED : !l->parts);
    for (size_t i = 0; i < l->count; i++) may &= l->parts[i].verdict != FB_VERDICT_DIFFERS;
    return may && (!l->common.reason || strcmp(l->common.reason, "random") != 0);
}

static bool is_any_for_regions(const judge *j) {
    bool is_any = false;
    for (size_t i = 0; i < j->leaf_count; i++) is_any |= is_for_regions(&j->leaves[i]);
    return is_any;
}

static fb_status take_regions(judge *j, const fb_validation *found, size_t samples) {
    fb_status status = FB_OK;
    for (size_t i = 0; i < j->leaf_count && !status; i++) {
        leaf *l = &j->leaves[i];
        if (!is_for_regions(l)) continue;
        l->parts = NULL;
        status = make_parts(j, l, 1);
        if (status) return status;
        settle(l, FB_VERDICT_EVALUATED, NULL, NULL);
        l->common.node = l->common.target = NULL;
        l->parts[0] = (fb_judged){.verdict = FB_VERDICT_EVALUATED,
                                  .samples = samples,
                                  .has_spread = true,
                                  .between = found->worst,
                                  .a_exact = found->before_exact,
                                  .b_exact = found->after_exact,
                                  .dtype = (fb_dtype)fb_node_at(j->graphs[1], l->b)->dtype};
    }
    return FB_OK;
}

/* Evaluates what differs and hangs together, on values in the place of what is equal. Where all of it agrees, so do the
 * outputs; where it does not, nothing is known yet: no inputs may lead to these values. */
static fb_status judge_regions(judge *j) {
    fb_region_samples samples = {.bounds = &j->bounds,
                                 .count = samples_of(j),
                                 .close = j->is_close ? CLOSE : 0,
                                 .has_shape = {j->has_shape[0], j->has_shape[1]}};
    fb_validation found;
    fb_error why = {0};
    if (!may_cut(j)) return FB_OK;
    fb_status status = fb_validate_samples(j->graphs[0], j->graphs[1], j->asked->options, &samples, &found, &why);
    if (status) {
        if (is_stop(status, &why)) *j->error = why;
        return is_stop(status, &why) ? status : FB_OK;
    }
    if (found.passes && found.is_complete && found.count) {
        j->out->regions = found.count;
        j->out->nodes = found.nodes;
        if (j->out->samples < samples.count) j->out->samples = samples.count;
        status = take_regions(j, &found, samples.count);
    }
    fb_validation_free(&found);
    return status;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static fb_status evaluate(judge *j) {
    const fb_judging *asked = j->asked;
    fb_status status = FB_OK;
    for (size_t sample = 0; sample < samples_of(j) && !status; sample++) {
        j->is_drawn = asked->options->random_weights;
        if (!want(j)) break;
        status = judge_sample(j, sample);
        if (!status) j->out->samples = sample + 1;
        /* It is late, and something is known: that is the answer. */
        if (status == FB_BUSY && !strcmp(j->error->code, "evaluation-timeout") && j->out->samples) {
            memset(j->error, 0, sizeof *j->error);
            return FB_OK;
        }
        if (!j->is_drawn) break;
    }
    return status;
}

static fb_judged judged_of(const leaf *l, size_t i) {
    fb_judged one = l->common;
    one.verdict = l->verdict;
    if (!l->parts) return one;
    const fb_judged *part = &l->parts[i];
    fb_judged of_part = *part;
    if (l->verdict != FB_VERDICT_EVALUATED) { /* it was closed later */
        of_part.verdict = part->verdict == FB_VERDICT_DIFFERS ? FB_VERDICT_DIFFERS : l->verdict;
        if (of_part.verdict != FB_VERDICT_DIFFERS || !of_part.has_counterexample) {
            of_part.reason = one.reason;
            of_part.detail = one.detail;
            of_part.node = one.node;
            of_part.target = one.target;
        }
    } else if (part->verdict == FB_VERDICT_EVALUATED && !part->has_spread) {
        of_part.verdict = FB_VERDICT_NOT_EVALUATED;
        of_part.reason = "not-certain";
        of_part.detail = "on all inputs that were drawn, a itself is infinite or nan in its dtype, or far from its own float64";
    } else if (part->verdict == FB_VERDICT_EVALUATED && part->reason) {
        of_part.verdict = FB_VERDICT_NOT_EVALUATED;
        of_part.detail = "the numbers agree, but the dtypes are not the same";
    }
    return of_part;
}

static fb_status write_verdict(judge *j, bool is_same_structure) {
    fb_judgement *out = j->out;
    size_t count = 0;
    for (size_t i = 0; i < j->leaf_count; i++) count += j->leaves[i].count > 1 ? j->leaves[i].count : 1;
    out->outputs = fb_arena_alloc(&out->arena, (count + 2) * sizeof *out->outputs);
    if (!out->outputs) return fb_fail_memory(j->error);
    for (size_t i = 0; i < j->leaf_count; i++) {
        const leaf *l = &j->leaves[i];
        for (size_t k = 0; k < (l->count > 1 ? l->count : 1); k++) {
            char name[40];
            fb_judged *one = &out->outputs[out->count];
            snprintf(name, sizeof name, "output.%zu", out->count++);
            *one = judged_of(l, k);
            one->name = keep(j, name);
            if (l->a.id) one->given_by[0] = keep(j, fb_node_name(j->graphs[0], l->a));
            if (l->b.id) one->given_by[1] = keep(j, fb_node_name(j->graphs[1], l->b));
            fb_node of = l->b.id ? l->b : l->a;
            if (!one->dtype) one->dtype = (fb_dtype)fb_node_at(j->graphs[l->b.id ? 1 : 0], of)->dtype;
        }
    }
    if (!is_same_structure)
        out->outputs[out->count++] =
            (fb_judged){.name = "structure",
                        .verdict = FB_VERDICT_DIFFERS,
                        .reason = "structure",
                        .detail = "how the outputs are nested differs, or a key or a number among them"};
    if (out->writes == FB_VERDICT_EVALUATED && !out->samples) out->writes = FB_VERDICT_NOT_EVALUATED;
    out->verdict = out->writes;
    for (size_t i = 0; i < out->count; i++)
        if (out->outputs[i].verdict > out->verdict) out->verdict = out->outputs[i].verdict;
    for (size_t i = 0; i < out->input_count; i++)
        if (out->inputs[i].verdict > out->verdict) out->verdict = out->inputs[i].verdict;
    return j->error->status;
}

fb_status fb_judge_graphs(const fb_graph *a, const fb_graph *b, const fb_judging *judging, fb_judgement *out, fb_error *error) {
    fb_error own = {0};
    judge j = {.graphs = {a, b}, .asked = judging, .out = out, .work = {.watch = judging->options->watch}, .error = &own};
    bool is_same_structure = true, is_complete = true;
    size_t inputs = 1;
    *out = (fb_judgement){.first_node = ""};
    j.memory = (fb_array_memory){
        .limit = judging->options->memory_limit, .has_wide_unsigned = true, .work = {.watch = judging->options->watch}};
    for (int k = 0; k < 2; k++)
        for (fb_node n = first_input(j.graphs[k]); n.id; n = next_input(j.graphs[k], n)) inputs++;
    for (int k = 0; k < 2; k++) {
        j.partner[k] = calloc(fb_node_limit(j.graphs[k]), sizeof *j.partner[k]);
        j.wanted[k] = calloc(fb_node_limit(j.graphs[k]), 1);
        j.items[k] = calloc(inputs, sizeof *j.items[k]);
        is_complete &= j.partner[k] && j.wanted[k] && j.items[k];
    }
    fb_status status = is_complete ? FB_OK : fb_fail_memory(&own);
    if (!status) match_inputs(&j);
    if (!status) status = list_lonely_inputs(&j);
    if (!status) status = find_leaves(&j, &is_same_structure);
    if (!status) status = prove(&j);
    if (!status) status = find_shared(&j);
    bool is_cut_first = !status && is_any_for_regions(&j) && is_large(a);
    if (is_cut_first) status = judge_regions(&j);
    if (!status) status = evaluate(&j);
    if (!status && !is_cut_first && is_any_for_regions(&j)) status = judge_regions(&j);
    if (!status) status = fb_work_status(&j.work, &own);
    if (!status) status = write_verdict(&j, is_same_structure);
    if (j.items[0] && j.items[1]) drop_items(&j);
    for (int k = 0; k < 2; k++) {
        free(j.partner[k]);
        free(j.wanted[k]);
        free(j.items[k]);
    }
    for (int k = 0; k < 2; k++) free(j.has_shape[k]);
    free(j.shared);
    free(j.leaves);
    free(j.skipped);
    if (status) {
        fb_judgement_free(out);
        if (error) *error = own;
    }
    return status;
}

void fb_judgement_free(fb_judgement *judgement) {
    fb_buffer_free(&judgement->drawn);
    fb_arena_free(&judgement->arena);
    *judgement = (fb_judgement){.first_node = ""};
}
