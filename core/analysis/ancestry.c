#include "core/analysis/ancestry.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/buffer.h"

typedef struct search {
    const fb_graph *before, *after;
    fb_program was, is;
    fb_ancestry *out;
    bool *is_claimed;                    /* by node of `before`: it is gone, and a new node gives what it gave */
    fb_buffer before_reads, after_reads; /* fb_node */
    fb_work *work;
    bool failed;
} search;

static bool goes_on(search *s) {
    return !s->failed && fb_work_goes_on(s->work, FB_WORK_NODE);
}

static bool is_call(const fb_graph *graph, fb_node node) {
    fb_opcode opcode = (fb_opcode)fb_node_at(graph, node)->opcode;
    return opcode == FB_CALL_FUNCTION || opcode == FB_CALL_METHOD || opcode == FB_CALL_MODULE;
}

static fb_node twin_of(const search *s, fb_node node) {
    return fb_node_find(s->before, s->was, fb_node_name(s->after, node));
}

static bool calls_the_same(const search *s, fb_node before, fb_node after) {
    return fb_node_at(s->before, before)->opcode == fb_node_at(s->after, after)->opcode &&
           strcmp(fb_node_target(s->before, before), fb_node_target(s->after, after)) == 0;
}

/* ---- one node's ancestors ------------------------------------------------------------------------------------------------ */

static void add(search *s, fb_node node, fb_node ancestor) {
    fb_ancestors *list = &s->out->of[node.id];
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->nodes[i].id == ancestor.id) return;
    }
    if (list->count == FB_ANCESTORS_MAX) return;
    if (!(list->count & (list->count - 1))) { /* a power of two, or none: it is full */
        fb_node *more = fb_arena_alloc(&s->out->arena, (list->count ? 2 * list->count : 1) * sizeof *more);
        if (!more) {
            s->failed = true;
            return;
        }
        if (list->count) memcpy(more, list->nodes, list->count * sizeof *more);
        list->nodes = more;
    }
    list->nodes[list->count++] = ancestor;
}

static void add_all(search *s, fb_node node, fb_node other) {
    const fb_ancestors list = s->out->of[other.id];
    for (uint32_t i = 0; i < list.count; i++) add(s, node, list.nodes[i]);
}

static void push(void *context, fb_node node) {
    fb_buffer_append(context, &node, sizeof node);
}

static size_t list_reads(search *s, const fb_graph *graph, fb_node node, fb_buffer *out) {
    const fb_node_row *row = fb_node_at(graph, node);
    out->size = 0;
    fb_value_visit_nodes(graph, row->args, push, out);
    fb_value_visit_nodes(graph, row->kwargs, push, out);
    if (out->failed) s->failed = true;
    return out->failed ? 0 : out->size / sizeof(fb_node);
}

/* Pairs each new node that a node reads with the old one that it read in the same place. */
static void pair_reads(search *s, fb_node before, fb_node after) {
    size_t count = list_reads(s, s->before, before, &s->before_reads);
    if (list_reads(s, s->after, after, &s->after_reads) != count) return;
    for (size_t i = 0; i < count; i++) {
        fb_node was, now;
        memcpy(&was, s->before_reads.data + i * sizeof was, sizeof was);
        memcpy(&now, s->after_reads.data + i * sizeof now, sizeof now);
        if (!s->out->is_new[now.id]) continue;
        add(s, now, was);
        s->is_claimed[was.id] = s->out->is_gone[was.id];
    }
}

/* With what it replaces go the nodes before that which are gone, and which no other new node replaces. */
static void add_removed(search *s, fb_node node) {
    const fb_ancestors *list = &s->out->of[node.id];
    for (uint32_t i = 0; i < list->count && goes_on(s); i++) {
        fb_node from = list->nodes[i];
        if (!s->out->is_gone[from.id]) continue;
        for (uint32_t e = fb_input_first(s->before, from); e; e = fb_input_next(s->before, e)) {
            fb_node input = fb_edge_input(s->before, e);
            if (s->out->is_gone[input.id] && !s->is_claimed[input.id]) add(s, node, input);
        }
    }
}

/* Gives a node that only new nodes read their ancestors, which are known already. */
static void look_behind(search *s, fb_node node) {
    bool is_inner = !s->out->of[node.id].count;
    add_removed(s, node);
    for (uint32_t e = is_inner ? fb_user_first(s->after, node) : 0; e; e = fb_user_next(s->after, e)) {
        if (s->out->is_new[fb_edge_user(s->after, e).id]) add_all(s, node, fb_edge_user(s->after, e));
    }
}

/* Or of what it reads, or else it was made for the old nodes that read it. */
static void look_ahead(search *s, fb_node node) {
    fb_ancestors *list = &s->out->of[node.id];
    if (list->count) return;
    for (uint32_t e = fb_input_first(s->after, node); e; e = fb_input_next(s->after, e)) {
        fb_node input = fb_edge_input(s->after, e), twin = twin_of(s, input);
        bool is_weight = fb_node_at(s->after, input)->opcode == FB_GET_ATTR;
        if (s->out->is_new[input.id]) add_all(s, node, input);
        else if (twin.id && !is_weight) add(s, node, twin);
    }
    for (uint32_t e = fb_user_first(s->after, node); e && !list->count; e = fb_user_next(s->after, e)) {
        fb_node twin = twin_of(s, fb_edge_user(s->after, e));
        if (twin.id) add(s, node, twin);
    }
}

/* ---- all of them --------------------------------------------------------------------------------------------------------- */

static void sort_out(search *s) {
    for (fb_node n = fb_first_node(s->before, s->was); n.id && goes_on(s); n = fb_next_node(s->before, n)) {
        fb_node twin = fb_node_find(s->after, s->is, fb_node_name(s->before, n));
        s->out->is_gone[n.id] = is_call(s->before, n) && (!twin.id || !calls_the_same(s, n, twin));
    }
    for (fb_node n = fb_first_node(s->after, s->is); n.id && goes_on(s); n = fb_next_node(s->after, n)) {
        fb_node twin = twin_of(s, n);
        s->out->is_new[n.id] = is_call(s->after, n) && (!twin.id || !calls_the_same(s, twin, n));
        if (!s->out->is_new[n.id] || !twin.id) continue;
        add(s, n, twin);
        s->is_claimed[twin.id] = s->out->is_gone[twin.id];
    }
}

static void trace(search *s) {
    sort_out(s);
    for (fb_node n = fb_first_node(s->after, s->is); n.id && goes_on(s); n = fb_next_node(s->after, n)) {
        fb_node twin = twin_of(s, n);
        if (twin.id) pair_reads(s, twin, n);
    }
    for (fb_node n = fb_last_node(s->after, s->is); n.id && goes_on(s); n = fb_node_at(s->after, n)->previous) {
        if (s->out->is_new[n.id]) look_behind(s, n);
    }
    for (fb_node n = fb_first_node(s->after, s->is); n.id && goes_on(s); n = fb_next_node(s->after, n)) {
        if (s->out->is_new[n.id]) look_ahead(s, n);
    }
}

fb_status fb_ancestry_find(const fb_graph *before, fb_program was, const fb_graph *after, fb_program is, fb_work *work,
                           fb_ancestry *out, fb_error *error) {
    size_t nodes_before = fb_node_limit(before) + (size_t)1, nodes_after = fb_node_limit(after) + (size_t)1;
    *out = (fb_ancestry){.of = calloc(nodes_after, sizeof *out->of),
                         .is_new = calloc(nodes_after, sizeof *out->is_new),
                         .is_gone = calloc(nodes_before, sizeof *out->is_gone)};
    search s = {.before = before,
                .after = after,
                .was = was,
                .is = is,
                .out = out,
                .is_claimed = calloc(nodes_before, sizeof *s.is_claimed),
                .work = work};
    if (out->of && out->is_new && out->is_gone && s.is_claimed) trace(&s);
    else s.failed = true;
    free(s.is_claimed);
    fb_buffer_free(&s.before_reads);
    fb_buffer_free(&s.after_reads);
    fb_status status = s.failed ? fb_fail_memory(error) : fb_work_status(work, error);
    if (status) fb_ancestry_free(out);
    return status;
}

void fb_ancestry_free(fb_ancestry *ancestry) {
    free(ancestry->of);
    free(ancestry->is_new);
    free(ancestry->is_gone);
    fb_arena_free(&ancestry->arena);
    *ancestry = (fb_ancestry){0};
}
