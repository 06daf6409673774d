/* EvaluateConstants: what depends on no input and no weight is computed now, and kept as a buffer.
 *
 *     arange(4) ── unsqueeze(0) ─┐
 *     arange(4) ── unsqueeze(1) ─┴ le ── where(·, scores, -inf)          le_constant ── where(·, scores, -inf)
 *
 * Masks, tables of positions, and what is copied or computed of them: the evaluator runs these calls, and their bytes go into
 * the document, as a buffer of the root that no checkpoint has (`non_persistent`). It begins with calls that read no node
 * (arange, zeros, full) and with such buffers whose bytes are in the document; weights are left to FoldConstants. What reads
 * only the sizes and the dtype of a tensor (full_like(x, 2), mask.expand_as(x)) does not depend on it where these are recorded
 * as numbers, and is valid only for them.
 *
 * The bytes are the same on every machine. So only operators are run whose results PyTorch determines exactly: copies,
 * comparisons, integers, and arithmetic that IEEE 754 rounds correctly; not exp, sin, pow or sums of floats, nor random
 * numbers. A power of two to whole numbers, as slopes of ALiBi are, is exact; and in ONNX models the integers that are cast
 * from a Log or Exp, as buckets of positions are, where all that a library may give is cast to the same. With `"exactness":
 * "rounds"` all that the evaluator computes is run, but for random numbers; then last bits may differ between machines, and so
 * may ids. Writes in place are followed, where all that shares the memory is constant and is read after the last write.
 *
 * Of an ONNX model the programs of If, Loop and Scan and its functions are looked at as well, with what they capture.
 *
 * Kept:
 *   - what is an output of the graph, or shares memory with one: the caller may write into it
 *   - of an ONNX model, what makes floats of a quantised weight: it is stored so
 *   - what is larger than `maximum_bytes`; what it is made from is kept as a buffer then
 *   - what is on another device than the CPU, and what holds nan, whose bits are not determined
 *   - what is not row-major, where a reader may notice
 *
 * Exactness: moves (the same bits). Reversible.
 */
#include <math.h>
#include <stdlib.h>

#include "core/analysis/memory_layout.h"
#include "core/analysis/onnx.h"
#include "core/analysis/onnx_types.h"
#include "core/pass/constant_values.h"
#include "core/pass/constants.h"
#include "core/pass/pass.h"

#define TOTAL_MAX ((int64_t)64 << 20) /* bytes of all constants of one run */
#define NOT_IN_ROWS "it may not lie row by row, and a reader may notice"

/* The input of edit. */
typedef struct constant_plan {
    fb_constant_plan made;
    const bool *is_written; /* by node: in place, so what becomes a buffer is not what the node gave at first */
} constant_plan;

typedef struct search {
    fb_constant_values found;
    fb_matcher *m;
    const fb_graph *graph;
    int64_t maximum_bytes;
} search;

static bool is_constant(const search *s, fb_node node) {
    return s->found.constants.lattice[node.id] == FB_CONSTANT;
}

/* ---- what may be constant ------------------------------------------------------------------------------------------------ */

/* zeros_like and its kin have the strides of their argument. */
static bool has_unknown_layout(const search *s, fb_node node) {
    const fb_graph *g = s->graph;
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, node));
    bool follows = facts->type_of && facts->layout == FB_LAYOUT_AS_FIRST && facts->dtype == FB_DTYPE_RULE_LIKE;
    fb_node input = follows ? fb_call_argument_node(g, node, "input") : (fb_node){0};
    return input.id && !s->found.constants.lattice[input.id] && !fb_is_contiguous(g, input) && fb_layout_is_read(g, node);
}

static void look_at_call(search *s, fb_node node) {
    const fb_graph *g = s->graph;
    const fb_node_row *row = fb_node_at(g, node);
    bool reads_any = fb_input_first(g, node) != 0;
    if (!fb_reads_constants_only(&s->found.constants, node) || fb_result_kind_of(g, node) == FB_A_NUMBER) return;
    fb_effects effects = fb_op_effects(g, node);
    if (effects.has_effect || effects.mutates_module) return;
    bool is_bounded = fb_value_is_bounded(&s->found, node),
         may_be_exact = s->found.may_round || is_bounded || fb_value_may_be_exact(&s->found, node);
    if (effects.is_unknown || effects.is_random || !may_be_exact) {
        if (!reads_any) return; /* it is not a computation, or one of random numbers */
        if (effects.is_unknown) fb_constant_values_refuse(&s->found, node, "unknown-operator", "what it does is not known");
        else if (effects.is_random) fb_constant_values_refuse(&s->found, node, "random", "it draws random numbers");
        else fb_constant_values_refuse(&s->found, node, "inexact", "its last bits differ from machine to machine");
    } else if (s->found.is_onnx && fb_onnx_exact_of(g, node) == FB_ONNX_EXACT_STORED) {
        fb_constant_values_refuse(&s->found, node, "quantised", "it is how a quantised weight is read");
    } else if (effects.is_named) {
        fb_constant_values_refuse(&s->found, node, "named-elsewhere",
                                  "the model's training_info or quantization_annotation names its value");
    } else if (fb_names_another_device(g, node)) {
        fb_constant_values_refuse(&s->found, node, "device",
                                  "it is made on another device than the CPU, where a buffer would not lie");
    } else if (!row->dtype && fb_mode_switched_between(s->found.constants.alias, 0, row->ordinal)) {
        fb_constant_values_refuse(&s->found, node, "mode-switched",
                                  "a mode is switched before it, so its dtype, which is not recorded, is not certain");
    } else if (has_unknown_layout(s, node)) {
        fb_constant_values_refuse(&s->found, node, "needs-contiguous", NOT_IN_ROWS);
    } else {
        s->found.constants.lattice[node.id] = FB_CONSTANT;
        s->found.is_bounded[node.id] = is_bounded;
    }
}

static bool look_forwards(search *s) {
    bool is_any = false;
    const fb_scopes *scopes = &s->found.constants.scopes;
    for (size_t i = 0; i < scopes->count && fb_matcher_goes_on(s->m); i++) {
        fb_node n = scopes->nodes[i], outer = scopes->outer ? scopes->outer[n.id] : (fb_node){0};
        const fb_node_row *row = fb_node_at(s->graph, n);
        fb_tensor tensor;
        s->found.constants.open_levels +=
            fb_op_is(s->graph, n, FB_OP_ENTER_VMAP_LEVEL) - fb_op_is(s->graph, n, FB_OP_EXIT_VMAP_LEVEL);
        if (fb_reads_constant(s->graph, s->found.constants.alias, n, &tensor)) s->found.constants.lattice[n.id] = FB_SOURCE;
        if (outer.id && s->found.constants.lattice[outer.id]) s->found.constants.lattice[n.id] = FB_SOURCE;
        if (row->opcode == FB_CALL_FUNCTION || row->opcode == FB_CALL_METHOD) look_at_call(s, n);
        is_any |= is_constant(s, n);
    }
    return is_any;
}

/* ---- what becomes a buffer ----------------------------------------------------------------------------------------------- */

static int64_t bytes_of(const fb_array *array) {
    return fb_array_count(array) * (int64_t)fb_dtype_size(array->dtype);
}

static bool has_nan(const fb_array *array) {
    if (!fb_dtype_is_floating(array->dtype)) return false;
    fb_work *work = fb_array_work(array);
    for (int64_t i = 0, count = fb_array_count(array); i < count && fb_work_goes_on(work, 16); i++) {
        if (isnan(fb_array_number(array, i))) return true;
    }
    return false;
}

/* Why what is read outside must not become a buffer; NULL: it may. *is_told: whether to say so. */
static const char *obstacle(search *s, fb_node node, char *detail, size_t size, bool *is_told) {
    const fb_object *value = &s->found.values[node.id];
    fb_obstacle seen = s->found.constants.seen[fb_memory_of(s->found.constants.alias, node)];
    *is_told = value->kind == FB_OBJECT_ARRAY || s->found.is_bounded[node.id];
    if (value->kind != FB_OBJECT_ARRAY && *is_told) {
        snprintf(detail, size, FB_INEXACT);
        return "inexact";
    }
    if (!*is_told) return "unsupported-arguments"; /* several tensors, or none: its readers take them apart */
    const fb_array *array = value->array;
    if (seen.code) {
        snprintf(detail, size, "%s", seen.detail);
        return seen.code;
    }
    if (fb_dtype_is_complex(array->dtype)) {
        snprintf(detail, size, "it is %s", fb_dtype_name(array->dtype));
        return "unsupported-dtype";
    }
    if (!fb_value_is_as_recorded(&s->found, node, array)) {
        snprintf(detail, size, "another shape or dtype is recorded than it has");
        return "recorded-otherwise";
    }
    if (bytes_of(array) > s->maximum_bytes) {
        snprintf(detail, size, "as a buffer it would take %lld bytes, and %lld are allowed", (long long)bytes_of(array),
                 (long long)s->maximum_bytes);
        return "too-large";
    }
    if (!fb_array_is_contiguous(array) && fb_layout_is_read(s->graph, node)) {
        snprintf(detail, size, "%s", NOT_IN_ROWS);
        return "needs-contiguous";
    }
    if (has_nan(array)) {
        snprintf(detail, size, "it holds nan, whose bits differ from machine to machine");
        return "not-a-number";
    }
    return NULL;
}

/* Finds the constants that become buffers; when one is refused, its inputs are read from outside: repeated until nothing is
 * refused. */
static void find_buffers(search *s) {
    bool goes_on = true;
    while (goes_on && !s->m->failed) {
        goes_on = false;
        for (size_t i = 0; i < s->found.constants.scopes.count && fb_matcher_goes_on(s->m); i++) {
            fb_node n = s->found.constants.scopes.nodes[i];
            char detail[200] = "";
            bool is_told;
            if (!is_constant(s, n) || !fb_constant_is_read_outside(&s->found.constants, n)) continue;
            const char *reason = obstacle(s, n, detail, sizeof detail, &is_told);
            if (reason && is_told) fb_constant_values_refuse(&s->found, n, reason, detail);
            else if (reason) s->found.constants.lattice[n.id] = FB_VARIES;
            goes_on |= reason != NULL;
        }
        if (goes_on) fb_constants_settle(&s->found.constants);
    }
}

/* The largest are left out until the others take no more than TOTAL_MAX. */
static void limit_total(search *s) {
    bool goes_on = true;
    while (goes_on && !s->m->failed) {
        int64_t total = 0;
        fb_node largest = {0};
        for (size_t i = 0; i < s->found.constants.scopes.count && fb_matcher_goes_on(s->m); i++) {
            fb_node n = s->found.constants.scopes.nodes[i];
            if (!is_constant(s, n) || !fb_constant_is_read_outside(&s->found.constants, n)) continue;
            int64_t size = bytes_of(s->found.values[n.id].array);
            total += size;
            if (!largest.id || size > bytes_of(s->found.values[largest.id].array)) largest = n;
        }
        goes_on = total > TOTAL_MAX;
        if (!goes_on) return;
        fb_constant_values_refuse(&s->found, largest, "too-large",
                                  "all buffers together would take more than 64 MiB, and it is the largest");
        fb_constants_settle(&s->found.constants);
        find_buffers(s);
    }
}

/* ---- the plan ------------------------------------------------------------------------------------------------------------ */

static bool add(search *s, fb_constant_list *list, fb_node node) {
    const fb_array *array = s->found.values[node.id].array;
    size_t size = (size_t)bytes_of(array);
    unsigned char *bytes = malloc(size ? size : 1);
    if (bytes) fb_array_to_bytes(array, bytes);
    bool ok = bytes && fb_constant_list_add(list, node, array->dtype, array->rank, array->sizes, bytes, size);
    free(bytes);
    return ok;
}

static bool make_plan(search *s, constant_plan *plan) {
    size_t limit = (size_t)fb_node_limit(s->graph) + 1;
    bool *is_written = fb_arena_alloc(s->m->arena, limit * sizeof *is_written);
    fb_constant_list list;
    bool ok = fb_constant_list_begin(&list, s->m) && is_written;
    for (size_t i = 0; i < s->found.constants.scopes.count && ok && fb_matcher_goes_on(s->m); i++) {
        fb_node n = s->found.constants.scopes.nodes[i];
        if (!is_constant(s, n) || !fb_constant_is_read_outside(&s->found.constants, n)) continue;
        ok = add(s, &list, n);
        is_written[n.id] = fb_last_write(s->found.constants.alias, n) > fb_node_at(s->graph, n)->ordinal + 1;
    }
    ok &= fb_constant_list_end(&list, &plan->made);
    plan->is_written = is_written;
    return ok;
}

/* ---- what goes together -------------------------------------------------------------------------------------------------- */

static uint32_t root_of(uint32_t *parents, uint32_t node) {
    while (parents[node] != node) node = parents[node] = parents[parents[node]];
    return node;
}

/* Constants that read each other, or share memory, are one match: a write has no reader that would show where it belongs. */
static void join(search *s, uint32_t *parents, uint32_t *of_memory) {
    for (size_t i = 0; i < s->found.constants.scopes.count; i++) {
        fb_node n = s->found.constants.scopes.nodes[i];
        if (!is_constant(s, n)) continue;
        for (uint32_t e = fb_input_first(s->graph, n); e; e = fb_input_next(s->graph, e)) {
            fb_node input = fb_edge_input(s->graph, e);
            if (is_constant(s, input)) parents[root_of(parents, n.id)] = root_of(parents, input.id);
        }
        uint32_t *other = &of_memory[fb_memory_of(s->found.constants.alias, n)];
        if (*other) parents[root_of(parents, n.id)] = root_of(parents, *other);
        *other = n.id;
    }
}

/* The nodes of each group that has a buffer, in the order of the graph: a group's nodes are listed one after the other. */
static void report(search *s, constant_plan *plan, uint32_t *parents) {
    const fb_graph *g = s->graph;
    uint32_t limit = fb_node_limit(g) + 1;
    uint32_t *next = calloc(limit, sizeof *next), *last = calloc(limit, sizeof *last);
    bool *has_buffer = calloc(limit, sizeof *has_buffer);
    s->m->failed |= !next || !last || !has_buffer;
    const fb_scopes *scopes = &s->found.constants.scopes;
    for (size_t i = 0; i < scopes->count && !s->m->failed; i++) {
        fb_node n = scopes->nodes[i];
        if (!is_constant(s, n)) continue;
        uint32_t root = root_of(parents, n.id);
        if (last[root]) next[last[root]] = n.id;
        last[root] = n.id;
        has_buffer[root] |= plan->made.constant_of[n.id] != 0;
    }
    fb_buffer nodes = {0};
    for (size_t i = 0; i < scopes->count && !s->m->failed; i++) {
        fb_node n = scopes->nodes[i];
        uint32_t root = root_of(parents, n.id);
        if (s->found.constants.refused[n.id].code && fb_reads_constants_only(&s->found.constants, n))
            fb_refuse_for(s->m, s->found.constants.refused[n.id], &n, 1);
        if (!is_constant(s, n) || !has_buffer[root]) continue;
        has_buffer[root] = false; /* it is listed by its first node */
        nodes.size = 0;
        for (uint32_t id = n.id; id; id = next[id]) fb_buffer_append(&nodes, &(fb_node){id}, sizeof n);
        s->m->failed |= nodes.failed;
        if (!plan->made.first.id) plan->made.first = n;
        if (!nodes.failed) fb_match_found(s->m, (const fb_node *)(const void *)nodes.data, nodes.size / sizeof n);
    }
    fb_buffer_free(&nodes);
    free(next);
    free(last);
    free(has_buffer);
}

static void plan_and_report(search *s) {
    constant_plan *plan = fb_arena_alloc(s->m->arena, sizeof *plan);
    uint32_t limit = fb_node_limit(s->graph) + 1, *parents = malloc(limit * sizeof *parents);
    uint32_t *of_memory = calloc(fb_memory_limit(s->found.constants.alias), sizeof *of_memory);
    s->m->failed |= !plan || !parents || !of_memory || !make_plan(s, plan);
    for (uint32_t i = 0; i < limit && !s->m->failed; i++) parents[i] = i;
    if (!s->m->failed) join(s, parents, of_memory);
    if (!s->m->failed) report(s, plan, parents);
    s->m->plan = plan;
    free(parents);
    free(of_memory);
}

static bool reads_tensor(const fb_graph *g, fb_node n, fb_tensor *tensor) {
    const fb_node_row *row = fb_node_at(g, n);
    *tensor =
        row->module.id && row->attribute.id ? fb_module_tensor(g, row->module, fb_text(g, row->attribute)) : (fb_tensor){0};
    return tensor->id != 0;
}

/* ONNX's Constants, each of which is a match: a node that is called at every run. */
static void match_constants(fb_matcher *m) {
    const fb_graph *g = m->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        fb_tensor tensor;
        bool is_it = fb_onnx_is_constant(g, n) && fb_node_at(g, n)->user_count && reads_tensor(g, n, &tensor);
        if (is_it && !fb_tensor_is_carried(g, tensor) && !fb_is_result(g, n) && !fb_op_effects(g, n).is_named)
            fb_match_found(m, &n, 1);
    }
}

/* May the call be the first of some constants: does it read nothing, or types alone, and give a tensor? */
static bool may_be_first(const fb_graph *g, fb_node node) {
    uint32_t e = fb_input_first(g, node);
    while (e && fb_reads_type_only_of(g, node, fb_edge_input(g, e))) e = fb_input_next(g, e);
    if (e || fb_result_kind_of(g, node) == FB_A_NUMBER) return false;
    fb_effects effects = fb_op_effects(g, node);
    return !effects.has_effect && !effects.mutates_module;
}

/* Many graphs have none. */
static bool may_have_constants(const fb_graph *g) {
    bool may = fb_programs_to_clean(g) > FB_MAIN_PROGRAM.id + 1;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && !may; n = fb_next_node(g, n)) {
        fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
        fb_tensor ignored;
        if (opcode == FB_CALL_FUNCTION || opcode == FB_CALL_METHOD) may = may_be_first(g, n);
        else may = fb_reads_bytes(g, n, &ignored);
    }
    return may;
}

static void find_constants(fb_matcher *m, bool is_onnx) {
    const json_t *maximum = json_object_get(m->params, "maximum_bytes");
    search s = {.m = m, .graph = m->graph};
    const char *exactness = json_string_value(json_object_get(m->params, "exactness"));
    bool may_round = exactness && strcmp(exactness, "rounds") == 0;
    s.maximum_bytes = maximum ? json_integer_value(maximum) : (int64_t)4 << 20;
    m->failed |= !fb_constant_values_begin(&s.found, m, is_onnx, may_round);
    bool is_any = !m->failed && look_forwards(&s);
    if (is_any) {
        fb_constants_find_seen(&s.found.constants, "its strides are asked for, and a buffer has others");
        fb_constants_settle(&s.found.constants);
        fb_find_constant_values(&s.found);
        find_buffers(&s);
        limit_total(&s);
    }
    if (!m->failed && (is_any || s.found.constants.has_refused)) plan_and_report(&s);
    fb_constant_values_end(&s.found);
}

static void match_in(fb_matcher *m, bool is_onnx) {
    if (may_have_constants(m->graph)) find_constants(m, is_onnx);
    if (is_onnx && !m->failed) match_constants(m);
}

static void match_graph(fb_matcher *m) {
    match_in(m, false);
}

static void match_onnx(fb_matcher *m) {
    match_in(m, true);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static void put_read(fb_rewrite *rw, const constant_plan *plan, fb_node node) {
    fb_node read = fb_read_planned(rw, &plan->made, node);
    if (!read.id) return;
    if (plan->is_written[node.id]) {
        fb_replace_uses(rw, node, read);
        fb_erase(rw, node);
    } else {
        fb_absorb(rw, node, read);
    }
    fb_mark(rw, read);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    const constant_plan *plan = match->plan;
    if (match->count == 1 && fb_onnx_is_constant(fb_rewrite_graph(rw), match->nodes[0])) {
        fb_forget_meta(rw, match->nodes[0], "onnx");
        fb_mark(rw, match->nodes[0]);
        return;
    }
    fb_put_planned(rw, &plan->made, match);
    for (size_t i = 0; i < match->count; i++) fb_release_reads(rw, match->nodes[i]);
    for (size_t i = 0; i < match->count; i++) {
        if (plan->made.constant_of[match->nodes[i].id]) put_read(rw, plan, match->nodes[i]);
        else fb_erase(rw, match->nodes[i]);
    }
}

const fb_pass fb_evaluate_constants = {
    .name = "EvaluateConstants",
    .version = 1,
    .summary = "Computes what depends on no input and no weight, such as masks and positions, and keeps it as a buffer.",
    .parameters =
        "{\"additionalProperties\":false,\"properties\":{\"exactness\":{\"default\":\"moves\",\"description\":\"rounds: also "
        "what PyTorch computes with other last bits on other machines, such as sin and exp.\",\"enum\":[\"moves\",\"rounds\"],"
        "\"type\":\"string\"},\"maximum_bytes\":{\"default\":4194304,\"description\":"
        "\"How large a buffer may become.\",\"maximum\":67108864,\"minimum\":0,\"type\":\"integer\"}},"
        "\"type\":\"object\"}",
    .exactness = FB_MOVES,
    .gain = FB_GAIN_FEWER_NODES,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match_graph = match_graph,
    .match_onnx = match_onnx,
    .edit = edit,
};
