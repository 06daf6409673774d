/* Conflicts about writes into memory. An erased node reads its inputs at its place in ours, an inserted one at its place in the
 * merged graph. One of them sees a write in between, the other does not. The passes made sure that base and theirs have no such
 * write, or a harmless one; a conflict is one that ours added.
 *
 *     base:    x   merged(x)      k = merged[…]         theirs:  x   q(x)           k = k(x)
 *     ours:    x   merged(x)   x.add_(1)   k = merged[…]         here k(x) would read what was written
 *
 * A node that is put back where nothing was read has no such place in ours. It reads what it read in theirs: after the same
 * writes.
 *
 *     base:    x   t = x.transpose_(0, 1)               theirs:  x   dead(x)   t = x.transpose_(0, 1)
 *     ours:    x   turned = x.transpose_(0, 1)                   here dead(x) would follow it
 */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/alias.h"
#include "core/analysis/view.h"
#include "core/diff/merging.h"
#include "core/graph/build.h"
#include "core/graph/write.h"

/* Edited nodes in groups: an inserted or erased node belongs to the group of its readers. When another group reads the same
 * does not matter to a group. But the trail of an edited node reads for its group too, on the side where the node is made of
 * it:
 *
 *     base:    x   cat(x, ones)   merged(cat)   a = merged[…]   b = merged[…]
 *     theirs:  x   a(x)   cat(x, ones)   b(cat)                                    cat reads x for b, and in base for a
 */
typedef struct memory {
    fb_merging *m;
    fb_map trail_nodes; /* hash of a node's name and side -> 1 + index into m->trail_nodes, of the last one */
    uint32_t *earlier;  /* by trail node: 1 + index of the one before it of that name and side */
    uint32_t *leads_to; /* by trail part: 1 + the last part that continues in it */
    uint32_t *beside;   /* by trail part: 1 + another one that continues in the same */
    fb_buffer stack;    /* uint32_t: parts to look at */
    fb_map touched;     /* hash of a node's name -> 1 + index into groups */
    uint32_t *groups;   /* another one of the group, or itself */
    size_t count;
} memory;

/* From the first to the last time at which a group reads a node: ordinals of `after`. */
typedef struct span {
    fb_node node;
    uint32_t group, first, last;
    bool is_lost;    /* a node that reads it before does not afterwards */
    uint64_t gained; /* of the nodes behind a write that read it afterwards and did not before, with those writes; or 0 */
} span;

/* One transition, of base to theirs or of ours to the merged graph, and what is read when in the latter. */
typedef struct transition {
    const fb_graph *before, *after;
    fb_buffer spans; /* span */
    fb_map reads;    /* node and group -> 1 + index into spans */
    fb_usage *usage;
    fb_alias *alias;
    fb_node *nodes;      /* of `after`, by ordinal */
    fb_buffer histories; /* uint64_t: of a memory's first write, of its first two, … */
    fb_map written;      /* memory -> 1 + index of its first one */
    fb_buffer text;
} transition;

/* ---- groups ------------------------------------------------------------------------------------------------------------ */

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
            if (joined && !fb_counterpart(&y->m->sides, graph, input, other).id) y->groups[joined - 1] = group_of(y, graph, n);
        }
    }
}

static const fb_trail_node *trail_node(const memory *y, size_t index) {
    return (const fb_trail_node *)(const void *)y->m->trail_nodes.data + index;
}

static uint64_t trail_key(const char *name, bool is_of_theirs) {
    return fb_hash_text(name, 1 + (uint64_t)is_of_theirs);
}

static const fb_trail_part *trail_part(const memory *y, size_t part) {
    return (const fb_trail_part *)(const void *)y->m->trail_parts.data + part;
}

static bool index_trail_parts(memory *y) {
    size_t count = y->m->trail_parts.size / sizeof(fb_trail_part);
    y->leads_to = calloc(count + 1, sizeof *y->leads_to);
    y->beside = calloc(count + 1, sizeof *y->beside);
    for (size_t i = 0; y->leads_to && y->beside && i < count && fb_merging_goes_on(y->m); i++) {
        uint32_t next = trail_part(y, i)->next;
        if (!next) continue;
        y->beside[i] = y->leads_to[next - 1];
        y->leads_to[next - 1] = (uint32_t)i + 1;
    }
    return y->leads_to && y->beside;
}

static bool index_trail_nodes(memory *y) {
    size_t count = y->m->trail_nodes.size / sizeof(fb_trail_node);
    y->earlier = calloc(count + 1, sizeof *y->earlier);
    for (size_t i = 0; y->earlier && i < count && fb_merging_goes_on(y->m); i++) {
        const fb_trail_node *one = trail_node(y, i);
        const fb_graph *graph = one->is_of_theirs ? y->m->sides.theirs : y->m->sides.base;
        uint64_t key = trail_key(fb_node_name(graph, one->node), one->is_of_theirs);
        y->earlier[i] = fb_map_get(&y->trail_nodes, key);
        if (!fb_map_put(&y->trail_nodes, key, (uint32_t)i + 1)) return false;
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

/* ---- when it is read --------------------------------------------------------------------------------------------------- */

static span *span_of(const transition *t, fb_node node, uint32_t group) {
    uint32_t found = fb_map_get(&t->reads, (uint64_t)node.id << 32 | group);
    return found ? (span *)(void *)t->spans.data + found - 1 : NULL;
}

static bool add_read(transition *t, fb_node node, uint32_t group, uint32_t ordinal) {
    span *read = span_of(t, node, group);
    if (!read) {
        fb_buffer_append(&t->spans, &(span){.node = node, .group = group, .first = ordinal, .last = ordinal}, sizeof *read);
        return !t->spans.failed &&
               fb_map_put(&t->reads, (uint64_t)node.id << 32 | group, (uint32_t)(t->spans.size / sizeof *read));
    }
    if (ordinal < read->first) read->first = ordinal;
    if (ordinal > read->last) read->last = ordinal;
    return true;
}

/* Finds out if anything writes a node's memory at any time. */
static bool may_be_disturbed(const transition *t, fb_node node) {
    return fb_last_write(t->alias, node) || fb_mode_switched_between(t->alias, 0, UINT32_MAX);
}

/* Appends what its writes have made of the node's memory, one after the other. */
static bool add_history(const memory *y, transition *t, fb_node node) {
    uint32_t count;
    const uint32_t *writes = fb_writes_of(t->alias, node, &count);
    uint64_t history = 0;
    if (!fb_map_put(&t->written, fb_memory_of(t->alias, node), (uint32_t)(t->histories.size / sizeof history) + 1))
        return false;
    for (uint32_t i = 0; i < count && fb_merging_goes_on(y->m); i++) {
        const fb_node_row *row = fb_node_at(t->after, t->nodes[writes[i]]);
        t->text.size = 0;
        fb_value_write(t->after, row->args, &t->text);
        fb_value_write(t->after, row->kwargs, &t->text);
        history = fb_hash_text(fb_text(t->after, row->target), history + row->opcode);
        history = fb_hash(t->text.data, t->text.size, history);
        fb_buffer_append(&t->histories, &history, sizeof history);
    }
    return !t->text.failed && !t->histories.failed;
}

/* The writes into a node's memory before an ordinal; 0 for none. */
static bool find_history(const memory *y, transition *t, fb_node node, uint32_t ordinal, uint64_t *out) {
    uint32_t count, before = 0;
    const uint32_t *writes = fb_writes_of(t->alias, node, &count);
    *out = 0;
    for (uint32_t above = count; before < above;) {
        uint32_t middle = before + (above - before) / 2;
        if (writes[middle] < ordinal) before = middle + 1;
        else above = middle;
    }
    if (!before) return true;
    uint32_t at = fb_memory_of(t->alias, node);
    if (!fb_map_get(&t->written, at) && !add_history(y, t, node)) return false;
    size_t index = fb_map_get(&t->written, at) - 1 + before - 1;
    if (!y->m->work.stopped.status) memcpy(out, t->histories.data + index * sizeof *out, sizeof *out);
    return true;
}

static bool is_read_by_counterpart(const memory *y, const transition *t, const fb_graph *graph, fb_node reader, fb_node input) {
    const fb_graph *other = graph == t->after ? t->before : t->after;
    const fb_sides *sides = &y->m->sides;
    return fb_merging_reads(y->m, other, fb_counterpart(sides, graph, reader, other),
                            fb_counterpart(sides, graph, input, other));
}

/* Takes note of a read that is lost or gained. A node of the trail reads for a group that it is not in, on one side. */
static bool note_read(const memory *y, transition *t, const fb_graph *graph, fb_node reader, fb_node input, span *read,
                      uint32_t ordinal) {
    bool of_trail = group_of(y, graph, reader) != read->group;
    if (graph == t->before) {
        read->is_lost |= of_trail || !is_read_by_counterpart(y, t, graph, reader, input);
        return true;
    }
    if (of_trail || is_read_by_counterpart(y, t, graph, reader, input)) return true;
    uint64_t history;
    bool ok = find_history(y, t, input, ordinal, &history);
    if (ok && history) read->gained += fb_hash_text(fb_node_name(graph, reader), history);
    return ok;
}

static bool add_reads_for(const memory *y, transition *t, const fb_graph *graph, fb_node reader, uint32_t group,
                          uint32_t ordinal) {
    bool ok = true;
    for (uint32_t e = group ? fb_input_first(graph, reader) : 0; e && ok && fb_merging_goes_on(y->m);
         e = fb_input_next(graph, e)) {
        fb_node read = fb_edge_input(graph, e), input = fb_counterpart(&y->m->sides, graph, read, t->after);
        if (!input.id || !may_be_disturbed(t, input)) continue;
        ok = add_read(t, input, group, ordinal) && note_read(y, t, graph, reader, read, span_of(t, input, group), ordinal);
    }
    return ok;
}

static bool reads_disturbed(const memory *y, const transition *t, const fb_graph *graph, fb_node reader) {
    for (uint32_t e = fb_input_first(graph, reader); e && fb_merging_goes_on(y->m); e = fb_input_next(graph, e)) {
        fb_node input = fb_counterpart(&y->m->sides, graph, fb_edge_input(graph, e), t->after);
        if (input.id && may_be_disturbed(t, input)) return true;
    }
    return false;
}

/* A trail part has the reads of each edited node whose trail leads to it. */
static bool add_reads_of_part(memory *y, transition *t, const fb_graph *graph, fb_node reader, uint32_t part,
                              uint32_t ordinal) {
    bool ok = true;
    y->stack.size = 0;
    fb_buffer_append(&y->stack, &part, sizeof part);
    while (ok && y->stack.size && !y->stack.failed && fb_merging_goes_on(y->m)) {
        y->stack.size -= sizeof part;
        memcpy(&part, y->stack.data + y->stack.size, sizeof part);
        fb_node edited = trail_part(y, part)->edited;
        if (edited.id) ok = add_reads_for(y, t, graph, reader, group_of(y, y->m->sides.base, edited), ordinal);
        for (uint32_t p = y->leads_to[part]; p && fb_merging_goes_on(y->m); p = y->beside[p - 1])
            fb_buffer_append(&y->stack, &(uint32_t){p - 1}, sizeof part);
    }
    return ok && !y->stack.failed;
}

static bool add_reads(memory *y, transition *t, const fb_graph *graph, fb_node reader, uint32_t ordinal) {
    if (!reads_disturbed(y, t, graph, reader)) return true;
    bool ok = add_reads_for(y, t, graph, reader, group_of(y, graph, reader), ordinal);
    uint32_t at = fb_map_get(&y->trail_nodes, trail_key(fb_node_name(graph, reader), graph == t->after));
    for (; at && ok && fb_merging_goes_on(y->m); at = y->earlier[at - 1])
        ok = add_reads_of_part(y, t, graph, reader, trail_node(y, at - 1)->part, ordinal);
    return ok;
}

/* An erased node reads between its neighbours that stay. */
static bool find_reads(memory *y, transition *t) {
    const fb_graph *before = t->before, *after = t->after;
    uint32_t ordinal = 0;
    bool ok = true;
    for (fb_node n = fb_first_node(before, FB_MAIN_PROGRAM); ok && n.id && fb_merging_goes_on(y->m);
         n = fb_next_node(before, n)) {
        fb_node same = fb_counterpart(&y->m->sides, before, n, after);
        if (same.id && !group_of(y, before, n)) ordinal = fb_node_at(after, same)->ordinal;
        ok = add_reads(y, t, before, n, ordinal);
    }
    ordinal = (uint32_t)fb_node_count(after);
    for (fb_node n = fb_last_node(before, FB_MAIN_PROGRAM); ok && n.id && fb_merging_goes_on(y->m);
         n = fb_node_at(before, n)->previous) {
        fb_node same = fb_counterpart(&y->m->sides, before, n, after);
        if (same.id && !group_of(y, before, n)) ordinal = fb_node_at(after, same)->ordinal;
        ok = add_reads(y, t, before, n, ordinal);
    }
    for (fb_node n = fb_first_node(after, FB_MAIN_PROGRAM); ok && n.id && fb_merging_goes_on(y->m); n = fb_next_node(after, n))
        ok = add_reads(y, t, after, n, fb_node_at(after, n)->ordinal);
    return ok;
}

static bool look_at_memory(const memory *y, transition *t) {
    t->usage = fb_usage_new(t->after);
    t->alias = t->usage ? fb_alias_new(t->after, t->usage, &y->m->work) : NULL;
    t->nodes = calloc((size_t)fb_node_count(t->after) + 1, sizeof *t->nodes);
    for (fb_node n = fb_first_node(t->after, FB_MAIN_PROGRAM); t->nodes && n.id; n = fb_next_node(t->after, n))
        t->nodes[fb_node_at(t->after, n)->ordinal] = n;
    return t->alias && t->nodes;
}

static bool begin(memory *y, transition *t) {
    return look_at_memory(y, t) && find_reads(y, t);
}

static void end(transition *t) {
    fb_buffer_free(&t->spans);
    fb_map_free(&t->reads);
    fb_alias_free(t->alias);
    fb_usage_free(t->usage);
    free(t->nodes);
    fb_buffer_free(&t->histories);
    fb_map_free(&t->written);
    fb_buffer_free(&t->text);
}

static bool is_disturbed(const transition *t, const span *read) {
    return read && (fb_mutated_between(t->alias, read->node, read->first, read->last) ||
                    fb_mode_switched_between(t->alias, read->first, read->last));
}

/* ---- what happened since ----------------------------------------------------------------------------------------------- */

/* Finds out if ours reordered the nodes of base, or has other nodes that write. */
static bool is_rearranged(fb_merging *m) {
    const fb_graph *base = m->sides.base, *ours = m->sides.ours;
    uint32_t last = 0;
    size_t writes = 0, writes_since = 0;
    for (fb_node n = fb_first_node(base, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(m); n = fb_next_node(base, n))
        writes += fb_merging_may_write(base, n);
    for (fb_node n = fb_first_node(ours, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(m); n = fb_next_node(ours, n)) {
        fb_node before = fb_counterpart(&m->sides, ours, n, base);
        bool writes_now = fb_merging_may_write(ours, n);
        writes_since += writes_now;
        if (writes_now && (!before.id || !fb_merging_is_same_call(m, before, n))) return true;
        if (!before.id) continue;
        if (fb_node_at(base, before)->ordinal < last) return true;
        last = fb_node_at(base, before)->ordinal;
    }
    return writes != writes_since;
}

static void report_read(const memory *y, const char *name) {
    fb_conflicts_add(y->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                     "undo moves a read of %s past a write into its memory", name);
}

static void report(const memory *y, const transition *before, const transition *since) {
    bool is_new_order = is_rearranged(y->m);
    const span *spans = (const span *)(const void *)since->spans.data;
    for (size_t i = 0; i < since->spans.size / sizeof *spans && fb_merging_goes_on(y->m); i++) {
        const char *name = fb_node_name(since->after, spans[i].node);
        const span *was = span_of(before, fb_node_named(before->after, name), spans[i].group);
        bool is_moved = is_disturbed(since, &spans[i]) && (is_new_order || !is_disturbed(before, was));
        if (is_moved || (!spans[i].is_lost && spans[i].gained != (was ? was->gained : 0))) report_read(y, name);
    }
    spans = (const span *)(const void *)before->spans.data;
    for (size_t i = 0; i < before->spans.size / sizeof *spans && fb_merging_goes_on(y->m); i++) {
        const char *name = fb_node_name(before->after, spans[i].node);
        fb_node now = fb_node_named(since->after, name);
        if (!spans[i].is_lost && spans[i].gained && now.id && !span_of(since, now, spans[i].group)) report_read(y, name);
    }
}

/* ---- writes of ours that no longer reach a reader ------------------------------------------------------------------------ */

/* Values that a pass made one, and undo makes two again: a write of ours into the one would reach one of the two.
 *
 *     base:    a = f(x)   v = a.view(-1)   output(a)         theirs:  a = f(x)   c = f(x)   v = c.view(-1)   output(a)
 *     ours:    a = f(x)   v = a.view(-1)   v.add_(1)   output(a)
 */
typedef struct reading {
    fb_node reader, input;
} reading;

typedef struct reach {
    const memory *y;
    const transition *from, *to; /* ours and the merged graph, or the other way round */
    uint32_t *first;             /* by memory of `from`: where its readings begin; one more at the end */
    reading *readings;
    bool *is_reached; /* by node of `to`: written by the writer, or computed behind it of what is */
    fb_node writer;   /* of `to`: the one that is_reached is of */
    fb_node written;
} reach;

/* Lists who reads which memory that is ever written. */
static bool list_readings(reach *r) {
    const fb_graph *g = r->from->after;
    const fb_alias *alias = r->from->alias;
    size_t limit = fb_memory_limit(alias);
    r->first = calloc(limit + 2, sizeof *r->first);
    r->is_reached = calloc(fb_node_limit(r->to->after), sizeof *r->is_reached);
    for (int fills = 0; fills < 2 && r->first; fills++) {
        for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(r->y->m); n = fb_next_node(g, n))
            for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
                fb_node input = fb_edge_input(g, e);
                if (!fb_last_write(alias, input)) continue;
                uint32_t *at = &r->first[fb_memory_of(alias, input) + 1];
                if (fills) r->readings[*at] = (reading){n, input};
                ++*at;
            }
        if (fills) break;
        for (size_t i = 1; i < limit + 2; i++) r->first[i] += r->first[i - 1];
        r->readings = malloc((r->first[limit + 1] + 1) * sizeof *r->readings);
        if (!r->readings) return false;
        memmove(r->first + 1, r->first, (limit + 1) * sizeof *r->first);
    }
    return r->first && r->is_reached;
}

/* The slice at the root of a value; none when it shows all of another one. Two slices of one value are taken to share nothing.
 */
static fb_node part_of(const fb_graph *g, fb_node value) {
    for (int step = 0; step < 64 && value.id && fb_op_effects(g, value).may_alias_input; step++) {
        const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, value));
        bool is_part = facts->shape == FB_SHAPE_SLICE || facts->shape == FB_SHAPE_NARROW || facts->shape == FB_SHAPE_SELECT;
        if (is_part || facts->shape == FB_SHAPE_GETITEM || facts->flags & (FB_FACT_TUPLE | FB_FACT_PARTS)) return value;
        value = fb_value_node(g, fb_first_argument(g, value));
    }
    return (fb_node){0};
}

static bool writes(const transition *t, fb_node writer, fb_node into) {
    uint32_t count, ordinal = fb_node_at(t->after, writer)->ordinal;
    const uint32_t *all = fb_writes_of(t->alias, into, &count);
    for (uint32_t i = 0; i < count; i++)
        if (all[i] == ordinal) return true;
    return false;
}

static bool shares(const transition *t, fb_node a, fb_node b) {
    return fb_memory_of(t->alias, a) == fb_memory_of(t->alias, b);
}

/* Marks what the writer reaches, of a value that it writes. */
static void mark_reached(reach *r, fb_node written, fb_node writer) {
    const fb_graph *g = r->to->after;
    if (r->writer.id == writer.id && r->written.id == written.id) return;
    r->writer = writer, r->written = written;
    uint32_t since = fb_node_at(g, writer)->ordinal;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(r->y->m); n = fb_next_node(g, n)) {
        bool is_reached = shares(r->to, n, written), is_behind = fb_node_at(g, n)->ordinal > since;
        for (uint32_t e = is_behind ? fb_input_first(g, n) : 0; e && !is_reached; e = fb_input_next(g, e))
            is_reached = r->is_reached[fb_edge_input(g, e).id];
        r->is_reached[n.id] = is_reached;
    }
}

/* Does the reader read in the other graph, in place of what it reads here alone, something that is reached? */
static bool reads_instead(reach *r, fb_node reader, fb_node there, fb_node written, fb_node writer) {
    const fb_graph *g = r->to->after;
    mark_reached(r, written, writer);
    for (uint32_t e = fb_input_first(g, there); e && fb_merging_goes_on(r->y->m); e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e), here = fb_counterpart(&r->y->m->sides, g, input, r->from->after);
        bool is_gained = !here.id || !fb_merging_reads(r->y->m, r->from->after, reader, here);
        if (is_gained && r->is_reached[input.id]) return true;
    }
    return false;
}

/* `reader` reads `input`, of the memory that the writer has written before. */
static void check_reading(reach *r, fb_node reader, fb_node input, fb_node writer, fb_node written) {
    const fb_graph *g = r->from->after, *other = r->to->after;
    const fb_sides *sides = &r->y->m->sides;
    fb_node own = part_of(g, written), part = own.id ? part_of(g, input) : own, there[4];
    const fb_node here[4] = {reader, writer, written, input};
    for (int i = 0; i < 4; i++)
        if (!(there[i] = fb_counterpart(sides, g, here[i], other)).id && i < 3) return;
    if (own.id && part.id && own.id != part.id) return;
    bool is_kept = there[3].id && fb_merging_reads(r->y->m, other, there[0], there[3]);
    if (is_kept ? shares(r->to, there[3], there[2]) : reads_instead(r, reader, there[0], there[2], there[1])) return;
    fb_conflicts_add(r->y->m->conflicts, FB_CONFLICT_NODE, "changed-node", fb_node_name(g, reader),
                     "what %s writes since the run reaches it before the undo or behind it, and not both",
                     fb_node_name(g, writer));
}

/* Of a call that ours added, or that writes since. */
static void check_writer(reach *r, fb_node writer) {
    const fb_graph *g = r->from->after;
    uint32_t since = fb_node_at(g, writer)->ordinal;
    for (uint32_t e = fb_input_first(g, writer); e; e = fb_input_next(g, e)) {
        fb_node written = fb_edge_input(g, e);
        uint32_t at = fb_memory_of(r->from->alias, written);
        if (!writes(r->from, writer, written)) continue;
        for (uint32_t i = r->first[at]; i < r->first[at + 1] && fb_merging_goes_on(r->y->m); i++)
            if (fb_node_at(g, r->readings[i].reader)->ordinal > since)
                check_reading(r, r->readings[i].reader, r->readings[i].input, writer, written);
    }
}

static bool check_writes(const memory *y, const transition *merged) {
    const fb_sides *sides = &y->m->sides;
    transition ours = {.after = sides->ours};
    if (!is_rearranged(y->m)) return true;
    reach there = {.y = y, .from = &ours, .to = merged}, back = {.y = y, .from = merged, .to = &ours};
    bool ok = look_at_memory(y, &ours) && list_readings(&there) && list_readings(&back);
    for (fb_node n = fb_first_node(ours.after, FB_MAIN_PROGRAM); n.id && ok && fb_merging_goes_on(y->m);
         n = fb_next_node(ours.after, n)) {
        fb_node was = fb_counterpart(sides, ours.after, n, sides->base);
        fb_node now = fb_counterpart(sides, ours.after, n, merged->after);
        bool is_new = fb_merging_may_write(ours.after, n) && (!was.id || !fb_merging_is_same_call(y->m, was, n));
        if (is_new) check_writer(&there, n);
        if (is_new && now.id) check_writer(&back, now);
    }
    reach *const both[] = {&there, &back};
    for (int i = 0; i < 2; i++) free(both[i]->first), free(both[i]->readings), free(both[i]->is_reached);
    end(&ours);
    return ok;
}

/* ---- calls that write since -------------------------------------------------------------------------------------------- */

/* Inserted or erased calls of a module whose type changed in ours, so that it may write into its input. A pass that removes
 * calls relied on it that they only compute.
 *
 *     base:    x   a = act(x)   (b = act(x), which nothing reads, went)      theirs:  x   a = act(x)   b = act(x)
 *     ours:    act is my.Block, and writes into x: b = act(x) would do it once more
 */
/* Checks the calls of `graph` that `other` lacks; `then` has the same call from before the module changed. */
static void check_calls(fb_merging *m, const fb_graph *graph, const fb_graph *other, const fb_graph *then) {
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(m); n = fb_next_node(graph, n)) {
        const char *name = fb_node_name(graph, n);
        if (fb_node_at(graph, n)->opcode != FB_CALL_MODULE || fb_node_named(other, name).id) continue;
        fb_node was = fb_node_named(then, name);
        if (!was.id || fb_merging_may_write(then, was) || !fb_merging_may_write(graph, n)) continue;
        fb_conflicts_add(m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                         "undo calls module %s once more or once less, and since the run the module may write into its input",
                         fb_node_target(graph, n));
    }
}

static void check_effects(fb_merging *m, const fb_graph *merged) {
    check_calls(m, merged, m->sides.ours, m->sides.theirs);
    check_calls(m, m->sides.ours, merged, m->sides.base);
}

fb_status fb_merge_memory(fb_merging *m, const fb_graph *merged) {
    memory y = {.m = m};
    transition before = {.before = m->sides.base, .after = m->sides.theirs}, since = {.before = m->sides.ours, .after = merged};
    bool ok = fb_sides_relate(&m->sides, m->sides.ours, merged, &m->work) && find_groups(&y) && index_trail_parts(&y) &&
              index_trail_nodes(&y) && begin(&y, &before) && begin(&y, &since);
    if (ok) report(&y, &before, &since);
    if (ok) ok = check_writes(&y, &since);
    if (ok) check_effects(m, merged);
    end(&before);
    end(&since);
    fb_map_free(&y.touched);
    fb_map_free(&y.trail_nodes);
    free(y.groups);
    free(y.earlier);
    free(y.leads_to);
    free(y.beside);
    fb_buffer_free(&y.stack);
    return ok ? FB_OK : fb_work_failed(&m->work, m->error);
}
