/* Memory that is written. What is undone reads its inputs where it stands in ours, and what comes back where it stands in the
 * merged graph; a write in between is seen by one of them and not by the other. The passes saw to it that there is none, or
 * that it does no harm; so it matters whether there is one since that there was not.
 *
 *     base:    x   merged(x)      k = merged[…]         theirs:  x   q(x)           k = k(x)
 *     ours:    x   merged(x)   x.add_(1)   k = merged[…]         here k(x) would read what was written
 */
#include <stdlib.h>
#include <string.h>

#include "core/diff/merging.h"
#include "core/document/document.h"
#include "core/graph/build.h"
#include "core/ops/alias.h"
#include "core/ops/view.h"

/* Nodes that edits put in, take out, move or make other ones, in groups: what goes or comes belongs to what reads it. A group
 * is undone by itself, and when another one reads the same is nothing to it; but what a node of the group is made of reads for
 * the group too, on the side where it is made of that:
 *
 *     base:    x   cat(x, ones)   merged(cat)   a = merged[…]   b = merged[…]
 *     theirs:  x   a(x)   cat(x, ones)   b(cat)                                    cat reads x for b, and in base for a
 */
typedef struct memory {
    fb_merging *m;
    fb_map ingredients; /* hash of a node's name and side -> 1 + index into m->ingredients, of the last one */
    uint32_t *earlier;  /* by ingredient: 1 + index of the one before it of that name and side */
    uint32_t *leads_to; /* by part of the makings: 1 + the last part that goes on in it */
    uint32_t *beside;   /* by part of the makings: 1 + another one that goes on where it does */
    fb_buffer stack;    /* uint32_t: parts to look at */
    fb_map touched;     /* hash of a node's name -> 1 + index into groups */
    uint32_t *groups;   /* another one of the group, or itself */
    size_t count;
} memory;

/* From the first to the last time at which a group reads a node: ordinals of `after`. */
typedef struct span {
    fb_node node;
    uint32_t group, first, last;
} span;

/* One transition, of base to theirs or of ours to the merged graph, and what is read when in the latter. */
typedef struct transition {
    const fb_graph *before, *after;
    fb_buffer spans; /* span */
    fb_map reads;    /* node and group -> 1 + index into spans */
    fb_usage *usage;
    fb_alias *alias;
} transition;

/* ---- groups ------------------------------------------------------------------------------------------------------------- */

/* 0 for a node that no edit touches. */
static uint32_t group_of(const memory *y, const fb_graph *graph, fb_node node) {
    uint32_t at = fb_map_get(&y->touched, fb_hash_text(fb_node_name(graph, node), 0));
    while (at && y->groups[at - 1] != at) {
        y->groups[at - 1] = y->groups[y->groups[at - 1] - 1];
        at = y->groups[at - 1];
    }
    return at;
}

static void join_groups(const memory *y, const fb_graph *graph, const fb_graph *other) {
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(y->m); n = fb_next_node(graph, n)) {
        uint32_t group = group_of(y, graph, n);
        for (uint32_t e = group ? fb_input_first(graph, n) : 0; e && fb_merging_goes_on(y->m); e = fb_input_next(graph, e)) {
            fb_node input = fb_edge_input(graph, e);
            uint32_t joined = group_of(y, graph, input);
            if (joined && !fb_node_find(other, FB_MAIN_PROGRAM, fb_node_name(graph, input)).id)
                y->groups[joined - 1] = group_of(y, graph, n);
        }
    }
}

static const fb_ingredient *ingredient(const memory *y, size_t index) {
    return (const fb_ingredient *)(const void *)y->m->ingredients.data + index;
}

static uint64_t ingredient_key(const char *name, bool is_of_theirs) {
    return fb_hash_text(name, 1 + (uint64_t)is_of_theirs);
}

static const fb_making *making(const memory *y, size_t part) {
    return (const fb_making *)(const void *)y->m->makings.data + part;
}

static bool index_makings(memory *y) {
    size_t count = y->m->makings.size / sizeof(fb_making);
    y->leads_to = calloc(count + 1, sizeof *y->leads_to);
    y->beside = calloc(count + 1, sizeof *y->beside);
    for (size_t i = 0; y->leads_to && y->beside && i < count && fb_merging_goes_on(y->m); i++) {
        uint32_t next = making(y, i)->next;
        if (!next) continue;
        y->beside[i] = y->leads_to[next - 1];
        y->leads_to[next - 1] = (uint32_t)i + 1;
    }
    return y->leads_to && y->beside;
}

static bool index_ingredients(memory *y) {
    size_t count = y->m->ingredients.size / sizeof(fb_ingredient);
    y->earlier = calloc(count + 1, sizeof *y->earlier);
    for (size_t i = 0; y->earlier && i < count && fb_merging_goes_on(y->m); i++) {
        const fb_ingredient *one = ingredient(y, i);
        const fb_graph *graph = one->is_of_theirs ? y->m->sides.theirs : y->m->sides.base;
        uint64_t key = ingredient_key(fb_node_name(graph, one->node), one->is_of_theirs);
        y->earlier[i] = fb_map_get(&y->ingredients, key);
        if (!fb_map_put(&y->ingredients, key, (uint32_t)i + 1)) return false;
    }
    return y->earlier != NULL;
}

static bool find_groups(memory *y) {
    const fb_merging *m = y->m;
    y->groups = calloc(m->diff.count + 1, sizeof *y->groups);
    if (!y->groups) return false;
    for (size_t i = 0; i < m->diff.count && fb_merging_goes_on(y->m); i++) {
        const fb_edit *edit = &m->diff.edits[i];
        uint64_t name = fb_hash_text(edit->name, 0);
        if (edit->table != FB_NODE_TABLE || !fb_merging_recomputes(edit) || fb_map_get(&y->touched, name)) continue;
        uint32_t group = (uint32_t)++y->count;
        y->groups[group - 1] = group;
        if (!fb_map_put(&y->touched, name, group)) return false;
    }
    join_groups(y, m->sides.base, m->sides.theirs);
    join_groups(y, m->sides.theirs, m->sides.base);
    return true;
}

/* ---- when it is read ---------------------------------------------------------------------------------------------------- */

static span *span_of(const transition *t, fb_node node, uint32_t group) {
    uint32_t found = fb_map_get(&t->reads, (uint64_t)node.id << 32 | group);
    return found ? (span *)(void *)t->spans.data + found - 1 : NULL;
}

static bool add_read(transition *t, fb_node node, uint32_t group, uint32_t ordinal) {
    span *read = span_of(t, node, group);
    if (!read) {
        fb_buffer_append(&t->spans, &(span){node, group, ordinal, ordinal}, sizeof *read);
        return !t->spans.failed &&
               fb_map_put(&t->reads, (uint64_t)node.id << 32 | group, (uint32_t)(t->spans.size / sizeof *read));
    }
    if (ordinal < read->first) read->first = ordinal;
    if (ordinal > read->last) read->last = ordinal;
    return true;
}

/* What nothing writes at any time cannot be written between two. */
static bool may_be_disturbed(const transition *t, fb_node node) {
    return fb_last_write(t->alias, node) || fb_mode_switched_between(t->alias, 0, UINT32_MAX);
}

static bool add_reads_for(const memory *y, transition *t, const fb_graph *graph, fb_node reader, uint32_t group,
                          uint32_t ordinal) {
    bool ok = true;
    for (uint32_t e = group ? fb_input_first(graph, reader) : 0; e && ok && fb_merging_goes_on(y->m);
         e = fb_input_next(graph, e)) {
        fb_node input = fb_node_find(t->after, FB_MAIN_PROGRAM, fb_node_name(graph, fb_edge_input(graph, e)));
        if (input.id && may_be_disturbed(t, input)) ok = add_read(t, input, group, ordinal);
    }
    return ok;
}

static bool reads_disturbed(const memory *y, const transition *t, const fb_graph *graph, fb_node reader) {
    for (uint32_t e = fb_input_first(graph, reader); e && fb_merging_goes_on(y->m); e = fb_input_next(graph, e)) {
        fb_node input = fb_node_find(t->after, FB_MAIN_PROGRAM, fb_node_name(graph, fb_edge_input(graph, e)));
        if (input.id && may_be_disturbed(t, input)) return true;
    }
    return false;
}

/* Of each edited node that the part makes: those whose own parts lead to it. */
static bool add_reads_of_part(memory *y, transition *t, const fb_graph *graph, fb_node reader, uint32_t part,
                              uint32_t ordinal) {
    bool ok = true;
    y->stack.size = 0;
    fb_buffer_append(&y->stack, &part, sizeof part);
    while (ok && y->stack.size && !y->stack.failed && fb_merging_goes_on(y->m)) {
        y->stack.size -= sizeof part;
        memcpy(&part, y->stack.data + y->stack.size, sizeof part);
        fb_node edited = making(y, part)->edited;
        if (edited.id) ok = add_reads_for(y, t, graph, reader, group_of(y, y->m->sides.base, edited), ordinal);
        for (uint32_t p = y->leads_to[part]; p && fb_merging_goes_on(y->m); p = y->beside[p - 1])
            fb_buffer_append(&y->stack, &(uint32_t){p - 1}, sizeof part);
    }
    return ok && !y->stack.failed;
}

static bool add_reads(memory *y, transition *t, const fb_graph *graph, fb_node reader, uint32_t ordinal) {
    if (!reads_disturbed(y, t, graph, reader)) return true;
    bool ok = add_reads_for(y, t, graph, reader, group_of(y, graph, reader), ordinal);
    uint32_t at = fb_map_get(&y->ingredients, ingredient_key(fb_node_name(graph, reader), graph == t->after));
    for (; at && ok && fb_merging_goes_on(y->m); at = y->earlier[at - 1])
        ok = add_reads_of_part(y, t, graph, reader, ingredient(y, at - 1)->part, ordinal);
    return ok;
}

/* What goes stands between its neighbours that stay. */
static bool find_reads(memory *y, transition *t) {
    const fb_graph *before = t->before, *after = t->after;
    uint32_t ordinal = 0;
    bool ok = true;
    for (fb_node n = fb_first_node(before, FB_MAIN_PROGRAM); ok && n.id && fb_merging_goes_on(y->m);
         n = fb_next_node(before, n)) {
        fb_node same = fb_node_find(after, FB_MAIN_PROGRAM, fb_node_name(before, n));
        if (same.id && !group_of(y, before, n)) ordinal = fb_node_at(after, same)->ordinal;
        ok = add_reads(y, t, before, n, ordinal);
    }
    ordinal = (uint32_t)fb_node_count(after);
    for (fb_node n = fb_last_node(before, FB_MAIN_PROGRAM); ok && n.id && fb_merging_goes_on(y->m);
         n = fb_node_at(before, n)->previous) {
        fb_node same = fb_node_find(after, FB_MAIN_PROGRAM, fb_node_name(before, n));
        if (same.id && !group_of(y, before, n)) ordinal = fb_node_at(after, same)->ordinal;
        ok = add_reads(y, t, before, n, ordinal);
    }
    for (fb_node n = fb_first_node(after, FB_MAIN_PROGRAM); ok && n.id && fb_merging_goes_on(y->m); n = fb_next_node(after, n))
        ok = add_reads(y, t, after, n, fb_node_at(after, n)->ordinal);
    return ok;
}

static bool begin(memory *y, transition *t) {
    t->usage = fb_usage_new(t->after);
    t->alias = t->usage ? fb_alias_new(t->after, t->usage, &y->m->work) : NULL;
    return t->alias && find_reads(y, t);
}

static void end(transition *t) {
    fb_buffer_free(&t->spans);
    fb_map_free(&t->reads);
    fb_alias_free(t->alias);
    fb_usage_free(t->usage);
}

static bool is_disturbed(const transition *t, const span *read) {
    return read && (fb_mutated_between(t->alias, read->node, read->first, read->last) ||
                    fb_mode_switched_between(t->alias, read->first, read->last));
}

/* ---- what happened since ------------------------------------------------------------------------------------------------ */

bool fb_merging_may_write(const fb_graph *graph, fb_node node) {
    uint8_t opcode = fb_node_at(graph, node)->opcode;
    if (opcode == FB_PLACEHOLDER || opcode == FB_GET_ATTR || opcode == FB_OUTPUT) return false;
    fb_effects effects = fb_op_effects(graph, node);
    return effects.mutates_input || effects.mutates_module || effects.has_effect;
}

static bool is_alike(const fb_merging *m, fb_value in_base, fb_value in_ours) {
    fb_buffer was = {0}, is = {0};
    if (in_base.id) fb_value_write(m->sides.base, in_base, &was);
    if (in_ours.id) fb_value_write(m->sides.ours, in_ours, &is);
    m->conflicts->failed |= was.failed || is.failed;
    bool alike = fb_span_alike((fb_span){was.data, was.size}, (fb_span){is.data, is.size}, &m->conflicts->failed);
    fb_buffer_free(&was);
    fb_buffer_free(&is);
    return alike;
}

bool fb_merging_is_same_call(const fb_merging *m, fb_node before, fb_node now) {
    const fb_graph *base = m->sides.base, *ours = m->sides.ours;
    const fb_node_row *x = fb_node_at(base, before), *y = fb_node_at(ours, now);
    return x->opcode == y->opcode && strcmp(fb_node_target(base, before), fb_node_target(ours, now)) == 0 &&
           is_alike(m, x->args, y->args) && is_alike(m, x->kwargs, y->kwargs);
}

/* Whether nodes stand in another order since, or there are others that write. */
static bool is_rearranged(fb_merging *m) {
    const fb_graph *base = m->sides.base, *ours = m->sides.ours;
    uint32_t last = 0;
    size_t writes = 0, writes_since = 0;
    for (fb_node n = fb_first_node(base, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(m); n = fb_next_node(base, n))
        writes += fb_merging_may_write(base, n);
    for (fb_node n = fb_first_node(ours, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(m); n = fb_next_node(ours, n)) {
        fb_node before = fb_node_find(base, FB_MAIN_PROGRAM, fb_node_name(ours, n));
        bool writes_now = fb_merging_may_write(ours, n);
        writes_since += writes_now;
        if (writes_now && (!before.id || !fb_merging_is_same_call(m, before, n))) return true;
        if (!before.id) continue;
        if (fb_node_at(base, before)->ordinal < last) return true;
        last = fb_node_at(base, before)->ordinal;
    }
    return writes != writes_since;
}

/* What stands before a node is known by the sum of hashes. */
static uint64_t added_write(const fb_graph *graph, fb_node node, const fb_graph *other) {
    const char *name = fb_node_name(graph, node);
    return fb_merging_may_write(graph, node) && fb_node_find(other, FB_MAIN_PROGRAM, name).id ? fb_hash_text(name, 0) : 0;
}

bool fb_merge_find_reordered(fb_merging *m, bool *marks) {
    const fb_graph *base = m->sides.base, *theirs = m->sides.theirs;
    uint64_t *writes = calloc(fb_node_limit(base), sizeof *writes), before = 0;
    for (fb_node n = fb_first_node(base, FB_MAIN_PROGRAM); writes && n.id && fb_merging_goes_on(m); n = fb_next_node(base, n)) {
        writes[n.id] = before;
        before += added_write(base, n, theirs);
    }
    before = 0;
    for (fb_node n = fb_first_node(theirs, FB_MAIN_PROGRAM); writes && n.id && fb_merging_goes_on(m);
         n = fb_next_node(theirs, n)) {
        fb_node same = fb_node_find(base, FB_MAIN_PROGRAM, fb_node_name(theirs, n));
        if (same.id && writes[same.id] != before) marks[same.id] = true;
        before += added_write(theirs, n, base);
    }
    free(writes);
    return writes != NULL;
}

static void report(const memory *y, const transition *before, const transition *since) {
    bool is_new_order = is_rearranged(y->m);
    size_t count = since->spans.size / sizeof(span);
    for (size_t i = 0; i < count && fb_merging_goes_on(y->m); i++) {
        const span *read = (const span *)(const void *)since->spans.data + i;
        const char *name = fb_node_name(since->after, read->node);
        fb_node there = fb_node_find(before->after, FB_MAIN_PROGRAM, name);
        if (is_disturbed(since, read) && (is_new_order || !is_disturbed(before, span_of(before, there, read->group))))
            fb_conflicts_add(y->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                             "what is undone and what comes back read %s at two times, and between them its memory is written",
                             name);
    }
}

fb_status fb_merge_memory(fb_merging *m, const fb_graph *merged) {
    memory y = {.m = m};
    transition before = {.before = m->sides.base, .after = m->sides.theirs}, since = {.before = m->sides.ours, .after = merged};
    fb_graph_number(m->sides.base);
    fb_graph_number(m->sides.theirs);
    bool ok = find_groups(&y) && index_makings(&y) && index_ingredients(&y) && begin(&y, &before) && begin(&y, &since);
    if (ok) report(&y, &before, &since);
    end(&before);
    end(&since);
    fb_map_free(&y.touched);
    fb_map_free(&y.ingredients);
    free(y.groups);
    free(y.earlier);
    free(y.leads_to);
    free(y.beside);
    fb_buffer_free(&y.stack);
    return ok ? FB_OK : fb_work_failed(&m->work, m->error);
}
