#include "core/pass/pass.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/analysis/module.h"
#include "core/document/document.h"
#include "core/graph/slot.h"

const char *fb_exactness_name(fb_exactness exactness) {
    static const char *const names[] = {[FB_MOVES] = "moves", [FB_ROUNDS] = "rounds", [FB_CHANGES] = "changes"};
    return names[exactness];
}

const char *fb_gain_name(fb_gain gain) {
    static const char *const names[] = {
        [FB_GAIN_UNMEASURED] = "unmeasured",   [FB_GAIN_FASTER] = "faster",
        [FB_GAIN_FEWER_NODES] = "fewer-nodes", [FB_GAIN_SAME] = "same",
        [FB_GAIN_SMALLER] = "smaller",         [FB_GAIN_SLOWER] = "slower",
    };
    return names[gain];
}

/* ---- matching ---------------------------------------------------------------------------------------------------------- */

bool fb_matcher_takes(fb_matcher *matcher, unsigned nodes) {
    return !matcher->failed && !matcher->is_too_much && fb_work_goes_on(matcher->work, FB_WORK_NODE * nodes);
}

bool fb_matcher_goes_on(fb_matcher *matcher) {
    return fb_matcher_takes(matcher, 1);
}

static bool may_begin(fb_candidates *candidates, fb_op op) {
    size_t row = op & FB_OP_IN_PLACE ? FB_OP_COUNT + (op & (size_t)~FB_OP_IN_PLACE) : op;
    uint8_t *answer = &candidates->answers[row];
    if (!*answer) *answer = candidates->begins_at(op) + 1;
    return *answer > 1;
}

enum { SKIPPED_AT_ONCE = 256 }; /* nodes, as fast as one that is looked at */

fb_node fb_next_candidate(fb_candidates *candidates) {
    fb_node_list all = fb_usage_nodes(candidates->matcher->usage);
    size_t at = candidates->next, skipped;
    while (at < all.count && !may_begin(candidates, all.ops[at])) at++;
    skipped = at - candidates->next;
    candidates->next = at + 1;
    bool goes_on = fb_matcher_takes(candidates->matcher, (unsigned)(skipped / SKIPPED_AT_ONCE) + 1);
    return at < all.count && goes_on ? all.nodes[at] : (fb_node){0};
}

/* In `found`, a match is its size, then its data, which ends where the next size_t may be. */
void fb_match_found_as(fb_matcher *matcher, const void *data, size_t size) {
    size_t gap = -size % sizeof size, none = 0;
    fb_buffer_append(matcher->found, &size, sizeof size);
    fb_buffer_append(matcher->found, data, size);
    fb_buffer_append(matcher->found, &none, gap);
    matcher->failed |= matcher->found->failed;
}

void fb_match_found(fb_matcher *matcher, const fb_node *nodes, size_t count) {
    fb_match_found_as(matcher, nodes, count * sizeof *nodes);
}

static const char *const *copy_names(fb_matcher *matcher, const fb_node *nodes, size_t count) {
    const char **names = fb_arena_alloc(matcher->arena, count * sizeof *names);
    for (size_t i = 0; names && i < count; i++) {
        const char *name = fb_node_name(matcher->graph, nodes[i]);
        names[i] = fb_arena_text(matcher->arena, name, strlen(name));
        if (!names[i]) names = NULL;
    }
    return names;
}

static void refuse(fb_matcher *matcher, const char *reason, const fb_node *nodes, size_t count, const char *format,
                   va_list args) {
    char written[1024], detail[1000];
    vsnprintf(written, sizeof written, format, args);
    fb_copy_text(detail, sizeof detail, written);
    fb_refusal *refusal = fb_arena_alloc(matcher->arena, sizeof *refusal);
    const char *const *names = copy_names(matcher, nodes, count);
    const char *text = fb_arena_text(matcher->arena, detail, strlen(detail));
    if (!refusal || !names || !text) {
        matcher->failed = true;
        return;
    }
    *refusal = (fb_refusal){.reason = reason, .detail = text, .nodes = names, .count = count};
    matcher->is_too_much |= matcher->arena->total > FB_REPORT_MAX;
    fb_pass_report *report = matcher->report;
    if (report->last_refused) report->last_refused->next = refusal;
    else report->refused = refusal;
    report->last_refused = refusal;
    report->refused_count++;
}

void fb_refuse(fb_matcher *matcher, const char *reason, const fb_node *nodes, size_t count, const char *format, ...) {
    va_list args;
    va_start(args, format);
    refuse(matcher, reason, nodes, count, format, args);
    va_end(args);
}

void fb_refuse_node(fb_matcher *matcher, const char *reason, fb_node node, const char *format, ...) {
    va_list args;
    va_start(args, format);
    refuse(matcher, reason, &node, 1, format, args);
    va_end(args);
}

void fb_refuse_for(fb_matcher *matcher, fb_obstacle obstacle, const fb_node *nodes, size_t count) {
    fb_refuse(matcher, obstacle.code, nodes, count, "%s", obstacle.detail);
}

static const fb_alias *alias_of(fb_matcher *matcher, bool is_complete) {
    fb_alias *alias = *matcher->alias;
    if (!alias) alias = (is_complete ? fb_alias_new : fb_alias_new_for_writes)(matcher->graph, matcher->usage, matcher->work);
    *matcher->alias = alias;
    if (alias && (!is_complete || fb_alias_complete(alias, matcher->usage, matcher->work))) return alias;
    matcher->failed = true;
    return NULL;
}

const fb_alias *fb_matcher_alias(fb_matcher *matcher) {
    return alias_of(matcher, true);
}

const fb_alias *fb_matcher_writes(fb_matcher *matcher) {
    return alias_of(matcher, false);
}

fb_sharing *fb_matcher_sharing(fb_matcher *matcher) {
    const fb_alias *alias = matcher->sharing ? NULL : fb_matcher_alias(matcher);
    if (alias) matcher->sharing = fb_sharing_new(matcher->graph, matcher->usage, alias, matcher->work);
    matcher->failed |= !matcher->sharing;
    return matcher->sharing;
}

fb_exactness fb_report_exactness(const fb_pass_report *report) {
    bool may_round = strstr(report->params, "\"exactness\":\"rounds\"") != NULL; /* canonical: in a string it is escaped */
    return may_round ? FB_ROUNDS : report->pass->exactness;
}

bool fb_is_marked(const fb_matcher *matcher, fb_node node) {
    return matcher->has_signature && fb_node_is_marked(matcher->graph, node, matcher->signature);
}

typedef struct tensor_watch {
    const fb_alias *alias;
    bool is_mutated;
} tensor_watch;

static void watch_tensor(void *context, fb_tensor tensor) {
    tensor_watch *watch = context;
    watch->is_mutated |= fb_tensor_is_mutated(watch->alias, tensor);
}

fb_obstacle fb_module_obstacle(fb_matcher *matcher, fb_module module) {
    const fb_graph *graph = matcher->graph;
    if (fb_module_is_read(matcher->usage, module) || fb_module_is_inside_call(matcher->usage, module))
        return (fb_obstacle){"module-read", "its parameters are read outside its own calls, which the change would reach"};
    if (fb_module_is_reparametrised(graph, module))
        return (fb_obstacle){"reparametrised",
                             "it owns tensors that its type does not have, from which a hook computes others"};
    for (fb_node call = fb_first_call(matcher->usage, module); call.id; call = fb_next_call(matcher->usage, call)) {
        if (fb_is_nested(graph, call))
            return (fb_obstacle){"nested-call", "a nested program calls it too, and nested programs are left alone"};
    }
    tensor_watch watch = {.alias = fb_matcher_writes(matcher)};
    if (!watch.alias) return FB_OUT_OF_MEMORY;
    if (!fb_any_is_mutated(watch.alias)) return FB_NO_OBSTACLE;
    fb_value_visit_tensors(graph, fb_module_at(graph, module)->parameters, watch_tensor, &watch);
    fb_value_visit_tensors(graph, fb_module_at(graph, module)->buffers, watch_tensor, &watch);
    return watch.is_mutated ? FB_TENSOR_MUTATED : FB_NO_OBSTACLE;
}

fb_obstacle fb_disturbance(fb_matcher *matcher, const fb_node *calls, size_t count) {
    const fb_graph *graph = matcher->graph;
    uint32_t first = UINT32_MAX, last = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t ordinal = fb_node_at(graph, calls[i])->ordinal;
        if (ordinal < first) first = ordinal;
        if (ordinal > last) last = ordinal;
    }
    if (first == last) return FB_NO_OBSTACLE;
    const fb_alias *alias = fb_matcher_writes(matcher);
    bool is_written = !alias;
    for (size_t i = 0; i < count && !is_written; i++) {
        is_written |= fb_mutated_between(alias, calls[i], fb_node_at(graph, calls[i])->ordinal, last);
        for (uint32_t e = fb_input_first(graph, calls[i]); e && !is_written; e = fb_input_next(graph, e))
            is_written |= fb_mutated_between(alias, fb_edge_input(graph, e), first, last);
    }
    if (is_written) return (fb_obstacle){"input-mutated", "what the nodes of the match read is written in place between them"};
    return fb_mode_switched_between(alias, first, last)
               ? (fb_obstacle){"mode-switched", "autocast, autograd or another mode is switched between the nodes of the match"}
               : FB_NO_OBSTACLE;
}

fb_obstacle fb_gradient_obstacle(fb_matcher *matcher, fb_node value, fb_node call) {
    const fb_alias *alias = fb_matcher_writes(matcher);
    bool is_written = !alias || fb_mutated_after(alias, value, fb_node_at(matcher->graph, call)->ordinal);
    return is_written ? (fb_obstacle){"mutated", "what PyTorch would keep for the gradient is written in place later"}
                      : FB_NO_OBSTACLE;
}

/* ---- assertions ---------------------------------------------------------------------------------------------------------- */

bool fb_asserts_as_well(const fb_graph *graph, fb_node reader, fb_node value, fb_node other) {
    const fb_node_row *row = fb_node_at(graph, value);
    return fb_asserts_type_only(graph, reader) && row->dtype && row->dtype == fb_node_at(graph, other)->dtype;
}

void fb_move_assertions(fb_rewrite *rewrite, fb_node value, fb_node other) {
    fb_graph *graph = fb_rewrite_graph(rewrite);
    for (uint32_t e = fb_user_first(graph, value), next; e; e = next) {
        fb_node reader = fb_edge_user(graph, e);
        next = fb_user_next(graph, e);
        if (fb_asserts_type_only(graph, reader)) fb_set_argument(rewrite, reader, "input", fb_make_node(graph, other));
    }
}

/* ---- lint --------------------------------------------------------------------------------------------------------------- */

fb_status fb_lint_graph(const fb_graph *graph, fb_work *work, fb_error *error) {
    fb_errors errors = {.limit = 1};
    fb_verify(graph, work, &errors);
    fb_status status = fb_work_status(work, error);
    if (status) {
        fb_errors_free(&errors);
        return status;
    }
    if (errors.out_of_memory) {
        status = fb_fail_memory(error);
    } else if (errors.total) {
        const fb_error *first = &errors.items[0];
        status = fb_fail(error, FB_IO, "lint-failed", first->pointer, "a pass made an invalid graph: %s", first->message);
    }
    fb_errors_free(&errors);
    return status;
}

/* ---- calls that must stay ----------------------------------------------------------------------------------------------- */

fb_obstacle fb_effect_obstacle(const fb_graph *graph, fb_node node) {
    fb_effects effects = fb_op_effects(graph, node);
    if (effects.is_unknown) return (fb_obstacle){"unknown-operator", "what it does is not known"};
    if (effects.is_named)
        return (fb_obstacle){"named-elsewhere", "the model's training_info or quantization_annotation names its value"};
    if (effects.mutates_input || effects.mutates_module)
        return (fb_obstacle){"mutates", "it writes into memory that others may read"};
    if (effects.is_random)
        return (fb_obstacle){"random", "it draws random numbers: without it, those behind it would be others"};
    return effects.has_effect ? (fb_obstacle){"effect", "it checks something, or switches a mode"} : FB_NO_OBSTACLE;
}
