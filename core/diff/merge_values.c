/* What undoing takes for granted. A node that reads other nodes afterwards computes the same, because those give the same:
 * either they are what it had read, but for what comes and goes, or the graph between the two says so.
 *
 *     base:    x   ones   cat(x, ones)   merged(cat)   k = merged[…]
 *     theirs:  x   ones   cat(x, ones)   q(cat)        cat_1(x, ones_1)   k = k(cat_1)
 *
 * k reads x now, where it read cat; so cat, and what it is made of besides x, must be in ours what they are in base. */
#include <stdlib.h>
#include <string.h>

#include "core/diff/merging.h"
#include "core/graph/build.h"

enum { IN_BASE = 1, IN_THEIRS = 2, IN_BOTH = 3, MET_NODES = 8 };
typedef enum verdict { UNKNOWN, IS_UNCHANGED, IS_CHANGED } verdict;

/* How far a comparison has come: the nodes that still stand for others, and on which sides. What follows depends on nothing
 * else as long as it only goes down, so comparisons that come to the same meet there, and the second one ends. */
typedef struct meeting {
    struct {
        uint32_t node, sides;
    } nodes[MET_NODES]; /* by node; the rest is 0 */
    uint32_t part;      /* of the makings: what follows */
} meeting;

typedef struct values {
    fb_merging *m;
    uint32_t part;           /* of the makings: of the comparison, from where it met no other */
    unsigned char *sides;    /* by node of base: who the node under comparison depends on, in base and in theirs */
    unsigned char *expanded; /* by node of base: sides whose inputs were put in its place */
    unsigned char *verdicts; /* by node of base: whether ours has it unchanged */
    uint64_t *taken_at[2];   /* by node of base, and of theirs, that the other side lacks: the last step that took it */
    uint64_t step, begin;    /* counts from 1; the step at which the comparison began */
    fb_buffer seen;          /* fb_node: those with a mark in `sides` or `expanded` */
    fb_buffer heap;          /* fb_node: those with a mark in `sides`, down from the last that was looked at; the last first */
    fb_buffer stack;         /* fb_node of one graph */
    fb_buffer meetings;      /* meeting */
    fb_map met;              /* hash of the nodes -> 1 + index into meetings */
    size_t differing;        /* nodes of one side alone */
    uint32_t lowest;         /* ordinal of the last node that was looked at */
    bool has_turned;         /* it came to a node that lies behind it already: it can meet no other */
    bool failed;
} values;

static fb_node other_node(const fb_graph *graph, fb_node node, const fb_graph *other) {
    return fb_node_find(other, FB_MAIN_PROGRAM, fb_node_name(graph, node));
}

static uint32_t ordinal_of(const values *v, fb_node node) {
    return fb_node_at(v->m->sides.base, node)->ordinal;
}

/* ---- the nodes to look at, last first ----------------------------------------------------------------------------------- */

static fb_node *heap_of(const values *v, size_t *count) {
    *count = v->heap.size / sizeof(fb_node);
    return (fb_node *)(void *)v->heap.data;
}

static void push(values *v, fb_node node) {
    size_t at, parent;
    fb_buffer_append(&v->heap, &node, sizeof node);
    if (v->heap.failed) return;
    fb_node *heap = heap_of(v, &at);
    for (at--; at && ordinal_of(v, heap[parent = (at - 1) / 2]) < ordinal_of(v, node); at = parent) heap[at] = heap[parent];
    heap[at] = node;
}

static fb_node pop(values *v) {
    size_t count, at = 0;
    fb_node *heap = heap_of(v, &count), top = heap[0], moved = heap[--count];
    v->heap.size -= sizeof top;
    for (size_t child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && ordinal_of(v, heap[child]) < ordinal_of(v, heap[child + 1])) child++;
        if (ordinal_of(v, heap[child]) <= ordinal_of(v, moved)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
    return top;
}

/* ---- what either side depends on ---------------------------------------------------------------------------------------- */

static void set_sides(values *v, fb_node node, unsigned sides) {
    unsigned was = v->sides[node.id];
    bool differed = was == IN_BASE || was == IN_THEIRS, differs = sides == IN_BASE || sides == IN_THEIRS;
    if (!was && !v->expanded[node.id]) fb_buffer_append(&v->seen, &node, sizeof node);
    if (!was) push(v, node);
    v->sides[node.id] = (unsigned char)sides;
    v->differing = v->differing + differs - differed;
}

static bool is_unchanged(values *v, fb_node node) {
    unsigned char *known = &v->verdicts[node.id];
    if (*known == UNKNOWN) *known = fb_merging_is_unchanged(v->m, node) ? IS_UNCHANGED : IS_CHANGED;
    return *known == IS_UNCHANGED;
}

/* Takes a node that only this side has, once in each comparison: many paths may lead to it. What reads nothing adds nothing. */
static void take_own(values *v, unsigned side, const fb_graph *graph, fb_node node) {
    uint64_t *taken_at = &v->taken_at[side == IN_THEIRS][node.id];
    if (!fb_input_first(graph, node)) return;
    if (*taken_at >= v->begin) {
        v->has_turned |= *taken_at < v->step;
        return;
    }
    *taken_at = v->step;
    fb_buffer_append(&v->stack, &node, sizeof node);
}

/* Nothing depends on the side of what reads nothing and is unchanged. */
static void take_common(values *v, unsigned side, fb_node in_base, fb_node in_theirs) {
    bool reads_any = fb_input_first(v->m->sides.base, in_base) || fb_input_first(v->m->sides.theirs, in_theirs);
    if (!reads_any && is_unchanged(v, in_base)) return;
    v->has_turned |= ordinal_of(v, in_base) >= v->lowest;
    if (!(v->expanded[in_base.id] & side)) set_sides(v, in_base, v->sides[in_base.id] | side);
}

/* Adds what the node reads on that side; what only that side has, comes or goes, and what it reads stands for it. */
static void add_inputs(values *v, unsigned side, fb_node node) {
    const fb_graph *base = v->m->sides.base, *theirs = v->m->sides.theirs;
    const fb_graph *graph = side == IN_BASE ? base : theirs, *other = side == IN_BASE ? theirs : base;
    fb_buffer_append(&v->stack, &node, sizeof node);
    while (v->stack.size && !v->stack.failed && fb_merging_goes_on(v->m)) {
        fb_node top;
        v->stack.size -= sizeof top;
        memcpy(&top, v->stack.data + v->stack.size, sizeof top);
        if (!v->m->conflicts->count)
            fb_buffer_append(&v->m->ingredients, &(fb_ingredient){v->part, top, side == IN_THEIRS}, sizeof(fb_ingredient));
        for (uint32_t e = fb_input_first(graph, top); e && fb_merging_goes_on(v->m); e = fb_input_next(graph, e)) {
            fb_node input = fb_edge_input(graph, e), there = other_node(graph, input, other);
            if (!there.id) take_own(v, side, graph, input);
            else if (side == IN_BASE) take_common(v, side, input, there);
            else take_common(v, side, there, input);
        }
    }
}

bool fb_merging_is_unchanged(fb_merging *m, fb_node node) {
    const fb_graph *base = m->sides.base, *ours = m->sides.ours;
    fb_node now = other_node(base, node, ours);
    bool is_same = now.id && fb_merging_is_same_call(m, node, now);
    for (uint32_t e = is_same ? fb_user_first(ours, now) : 0; e && is_same && fb_merging_goes_on(m);
         e = fb_user_next(ours, e)) {
        fb_node user = fb_edge_user(ours, e), before = other_node(ours, user, base);
        bool wrote = before.id && fb_merging_may_write(base, before); /* its module may be another since */
        is_same = !fb_merging_may_write(ours, user) || (wrote && fb_merging_is_same_call(m, before, user));
    }
    return is_same;
}

static void check_unchanged(values *v, fb_node node, const char *reader) {
    const char *name = fb_node_name(v->m->sides.base, node);
    if (!is_unchanged(v, node))
        fb_conflicts_add(v->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                         "%s reads something else afterwards, which is the same only as long as %s is what it was", reader,
                         name);
}

/* ---- where comparisons meet --------------------------------------------------------------------------------------------- */

static fb_making *making(const values *v, uint32_t part) {
    return (fb_making *)(void *)v->m->makings.data + part;
}

static uint32_t add_part(values *v, fb_node edited) {
    fb_buffer_append(&v->m->makings, &(fb_making){.edited = edited}, sizeof(fb_making));
    v->failed |= v->m->makings.failed;
    return (uint32_t)(v->m->makings.size / sizeof(fb_making)) - 1;
}

static meeting meeting_here(const values *v) {
    size_t count, at;
    const fb_node *heap = heap_of(v, &count);
    meeting here = {0};
    for (size_t i = 0; i < count; i++) {
        for (at = i; at && here.nodes[at - 1].node > heap[i].id; at--) here.nodes[at] = here.nodes[at - 1];
        here.nodes[at].node = heap[i].id;
        here.nodes[at].sides = v->sides[heap[i].id];
    }
    return here;
}

/* Whether an earlier comparison came to here, too: then it has looked at all that follows. If not, a later one may. */
static bool meets_another(values *v) {
    if (v->has_turned || v->heap.size > MET_NODES * sizeof(fb_node)) return false;
    meeting here = meeting_here(v);
    uint64_t key = fb_hash(here.nodes, sizeof here.nodes, 0);
    const meeting *meetings = (const meeting *)(const void *)v->meetings.data;
    size_t count = v->meetings.size / sizeof *meetings;
    uint32_t cursor = 0, found, part = v->part;
    while ((found = fb_map_next(&v->met, key, &cursor))) {
        if (found > count || memcmp(meetings[found - 1].nodes, here.nodes, sizeof here.nodes) != 0) continue;
        making(v, part)->next = meetings[found - 1].part + 1;
        return true;
    }
    here.part = v->part = add_part(v, (fb_node){0});
    if (v->failed) return true;
    making(v, part)->next = here.part + 1;
    fb_buffer_append(&v->meetings, &here, sizeof here);
    v->failed |= v->meetings.failed || !fb_map_add(&v->met, key, (uint32_t)count + 1);
    return v->failed;
}

static bool goes_on(values *v) {
    v->failed |= v->stack.failed || v->seen.failed || v->heap.failed;
    return !v->failed && fb_merging_goes_on(v->m);
}

/* Puts the inputs of the last node that only one side depends on in its place, until both depend on the same. */
static void compare(values *v, fb_node node, fb_node there) {
    const fb_graph *base = v->m->sides.base, *theirs = v->m->sides.theirs;
    size_t meetings = v->meetings.size;
    v->part = add_part(v, node);
    v->begin = ++v->step;
    v->lowest = UINT32_MAX;
    v->has_turned = false;
    add_inputs(v, IN_BASE, node);
    add_inputs(v, IN_THEIRS, there);
    while (goes_on(v) && v->differing && v->heap.size) {
        size_t count;
        unsigned side = v->sides[heap_of(v, &count)->id];
        if (side != IN_BOTH && meets_another(v)) break;
        fb_node last = pop(v);
        v->lowest = ordinal_of(v, last);
        if (side == IN_BOTH) continue;
        v->step++;
        check_unchanged(v, last, fb_node_name(base, node));
        set_sides(v, last, 0);
        v->expanded[last.id] |= (unsigned char)side;
        add_inputs(v, side, side == IN_BASE ? last : other_node(base, last, theirs));
    }
    if (v->has_turned) v->meetings.size = meetings; /* what followed depended on more than these say */
    const fb_node *seen = (const fb_node *)(const void *)v->seen.data;
    for (size_t i = 0; i < v->seen.size / sizeof *seen; i++) v->sides[seen[i].id] = v->expanded[seen[i].id] = 0;
    v->seen.size = v->heap.size = v->differing = 0;
}

/* ---- what arguments mean ------------------------------------------------------------------------------------------------ */

/* Whether one node stands for the other, as far as is known: one of them is made to give what the other gave. */
static bool stands_for(const fb_merging *m, fb_node was, fb_node now) {
    const fb_graph *base = m->sides.base, *theirs = m->sides.theirs;
    const fb_node_row *x = fb_node_at(base, was), *y = fb_node_at(theirs, now);
    bool is_described = x->shape.id && y->shape.id && x->dtype && y->dtype;
    if (is_described) return x->dtype == y->dtype && fb_same_text(base, x->shape, theirs, y->shape);
    return other_node(base, was, theirs).id || other_node(theirs, now, base).id;
}

static bool find_both(const fb_merging *m, fb_span was, fb_span now, fb_node *in_base, fb_node *in_theirs, bool *failed) {
    char *of_base = fb_span_unquote(was), *of_theirs = fb_span_unquote(now);
    if (of_base && of_theirs) {
        *in_base = fb_node_find(m->sides.base, FB_MAIN_PROGRAM, of_base);
        *in_theirs = fb_node_find(m->sides.theirs, FB_MAIN_PROGRAM, of_theirs);
    } else *failed = true;
    free(of_base);
    free(of_theirs);
    return !*failed;
}

/* Whether two arguments are the same, but for nodes that stand for each other. Documents are nested to a bounded depth. */
static bool means_the_same(const fb_merging *m, fb_span was, fb_span now, bool *failed) {
    if (fb_span_equal(was, now)) return true;
    size_t at_was = 0, at_now = 0;
    fb_span was_key, now_key, was_item, now_item;
    bool is_same = was.text && now.text && *was.text == *now.text && (*was.text == '[' || *was.text == '{');
    while (is_same && !*failed) {
        bool is_any = fb_span_next(was, &at_was, &was_key, &was_item);
        if (is_any != fb_span_next(now, &at_now, &now_key, &now_item)) return false;
        if (!is_any) return true;
        fb_node in_base, in_theirs;
        is_same = fb_span_equal(was_key, now_key);
        if (!is_same || !was_key.text || !fb_span_equal(was_key, fb_span_of("$node")))
            is_same = is_same && means_the_same(m, was_item, now_item, failed);
        else if (find_both(m, was_item, now_item, &in_base, &in_theirs, failed)) is_same = stands_for(m, in_base, in_theirs);
    }
    return is_same;
}

static bool calls_the_same(const fb_graph *a, fb_node x, const fb_graph *b, fb_node y) {
    return fb_node_at(a, x)->opcode == fb_node_at(b, y)->opcode && strcmp(fb_node_target(a, x), fb_node_target(b, y)) == 0;
}

/* What is called with other arguments afterwards must still be what they are meant for. False when memory is out. */
static bool check_target(fb_merging *m, const fb_edit *edit) {
    const fb_graph *base = m->sides.base, *ours = m->sides.ours, *theirs = m->sides.theirs;
    fb_node before = fb_node_find(base, FB_MAIN_PROGRAM, edit->name), now = fb_node_find(ours, FB_MAIN_PROGRAM, edit->name);
    fb_node there = fb_node_find(theirs, FB_MAIN_PROGRAM, edit->name);
    if (!now.id || calls_the_same(base, before, ours, now) || calls_the_same(theirs, there, ours, now)) return true;
    bool failed = false;
    for (size_t i = 0; i < edit->member_count && !failed; i++) {
        const fb_member_edit *member = &edit->members[i];
        bool is_argument = !strncmp(member->pointer, "/args", 5) || !strncmp(member->pointer, "/kwargs", 7);
        if (is_argument && !means_the_same(m, member->was, member->now, &failed) && !failed)
            fb_conflicts_add(m->conflicts, FB_CONFLICT_NODE, "changed-node", edit->name,
                             "%s gets other arguments afterwards, which are meant for %s, and it is %s now", edit->name,
                             fb_node_target(base, before), fb_node_target(ours, now));
    }
    return !failed;
}

/* ---- all edited nodes --------------------------------------------------------------------------------------------------- */

fb_status fb_merge_values(fb_merging *m) {
    const fb_graph *base = m->sides.base, *theirs = m->sides.theirs;
    size_t limit = fb_node_limit(base);
    values v = {.m = m,
                .sides = calloc(limit, 1),
                .expanded = calloc(limit, 1),
                .verdicts = calloc(limit, 1),
                .taken_at = {calloc(limit, sizeof(uint64_t)), calloc(fb_node_limit(theirs), sizeof(uint64_t))}};
    fb_graph_number(m->sides.base);
    bool ok = v.sides && v.expanded && v.verdicts && v.taken_at[0] && v.taken_at[1];
    for (size_t i = 0; ok && i < m->diff.count && fb_merging_goes_on(m); i++) {
        const fb_edit *edit = &m->diff.edits[i];
        if (edit->table != FB_NODE_TABLE || edit->kind != FB_EDIT_SET || !fb_merging_recomputes(edit)) continue;
        compare(&v, fb_node_find(base, FB_MAIN_PROGRAM, edit->name), fb_node_find(theirs, FB_MAIN_PROGRAM, edit->name));
        ok = check_target(m, edit) && !v.failed;
    }
    ok = ok && !v.stack.failed && !v.seen.failed && !v.heap.failed && !m->ingredients.failed;
    free(v.sides);
    free(v.expanded);
    free(v.verdicts);
    free(v.taken_at[0]);
    free(v.taken_at[1]);
    fb_buffer_free(&v.seen);
    fb_buffer_free(&v.heap);
    fb_buffer_free(&v.stack);
    fb_buffer_free(&v.meetings);
    fb_map_free(&v.met);
    return ok ? FB_OK : fb_fail_memory(m->error);
}
