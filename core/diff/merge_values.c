/* Which values an undo changes in ours: who must not see that, and what must hold so that all others stay the same. */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/view.h"
#include "core/diff/merging.h"
#include "core/document/document.h"
#include "core/graph/build.h"

/* ---- calls ------------------------------------------------------------------------------------------------------------- */

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

/* Finds out if ours has a node of base as it was, and no new reader of it writes into it. */
static bool is_unchanged_since(fb_merging *m, fb_node node) {
    const fb_graph *base = m->sides.base, *ours = m->sides.ours;
    fb_node now = fb_counterpart(&m->sides, base, node, ours);
    bool is_same = now.id && fb_merging_is_same_call(m, node, now);
    for (uint32_t e = is_same ? fb_user_first(ours, now) : 0; e && is_same && fb_merging_goes_on(m);
         e = fb_user_next(ours, e)) {
        fb_node user = fb_edge_user(ours, e), before = fb_counterpart(&m->sides, ours, user, base);
        bool wrote = before.id && fb_merging_may_write(base, before); /* its module may be another since */
        is_same = !fb_merging_may_write(ours, user) || (wrote && fb_merging_is_same_call(m, before, user));
    }
    return is_same;
}

/* ---- readers that came since ------------------------------------------------------------------------------------------- */

/* A reader that ours added must not read a node that is erased, nor one that diverges: a convolution that had absorbed its
 * BatchNorm gives the convolution alone again, and a new reader would silently get that. A node diverges if it is recomputed
 * (it is edited, its module or the module's tensors change, or it reads a recomputed node in both graphs), and a node of theirs
 * reads it that base does not have, or that reads something else there. */
typedef struct users {
    fb_merging *m;
    fb_map touched_modules; /* hash of the path -> 1 */
    bool *is_edited;        /* by node of base: an edit changes what it computes, or moves it past a write */
    bool *is_recomputed;    /* by node of base */
    bool *is_diverged;      /* by node of base */
    bool *is_checked;       /* by node of base: whether ours has it unchanged was looked at */
    int32_t *references;    /* by node of base: how often one reader reads it; [0] counts the nodes that base lacks */
} users;

static bool is_training_alone(const fb_edit *edit) {
    return edit->kind == FB_EDIT_SET && edit->member_count == 1 && strcmp(edit->members[0].pointer, "/training") == 0;
}

static bool find_touched_modules(users *u) {
    fb_merging *m = u->m;
    for (size_t i = 0; i < m->diff.count && fb_merging_goes_on(m); i++) {
        const fb_edit *edit = &m->diff.edits[i];
        if (edit->table != FB_MODULE_TABLE || edit->kind == FB_EDIT_MOVE || is_training_alone(edit)) continue;
        if (!fb_map_put(&u->touched_modules, fb_hash_text(edit->name, 0), 1)) return false;
    }
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; fb_merging_goes_on(m) && fb_slot_next(m->sides.base, &cursor, &slot);) {
        const char *path = fb_text(m->sides.base, fb_module_at(m->sides.base, slot.module)->path);
        if (fb_is_stale(&m->sides, slot.tensor) && !fb_map_put(&u->touched_modules, fb_hash_text(path, 0), 1)) return false;
    }
    return true;
}

static void mark_edited(users *u) {
    const fb_merging *m = u->m;
    for (size_t i = 0; i < m->diff.count && fb_merging_goes_on(u->m); i++) {
        const fb_edit *edit = &m->diff.edits[i];
        if (edit->table == FB_NODE_TABLE && edit->kind == FB_EDIT_SET && fb_merging_recomputes(edit))
            u->is_edited[fb_node_named(m->sides.base, edit->name).id] = true;
    }
}

/* The writes before a node are compared by the sum of their hashes. */
static uint64_t added_write(const fb_graph *graph, fb_node node, const fb_graph *other) {
    const char *name = fb_node_name(graph, node);
    return fb_merging_may_write(graph, node) && fb_node_named(other, name).id ? fb_hash_text(name, 0) : 0;
}

/* Marks the nodes of base that are, in theirs, on the other side of a node that may write. False when memory is out. */
static bool find_reordered(fb_merging *m, bool *marks) {
    const fb_graph *base = m->sides.base, *theirs = m->sides.theirs;
    uint64_t *writes = calloc(fb_node_limit(base), sizeof *writes), before = 0;
    for (fb_node n = fb_first_node(base, FB_MAIN_PROGRAM); writes && n.id && fb_merging_goes_on(m); n = fb_next_node(base, n)) {
        writes[n.id] = before;
        before += added_write(base, n, theirs);
    }
    before = 0;
    for (fb_node n = fb_first_node(theirs, FB_MAIN_PROGRAM); writes && n.id && fb_merging_goes_on(m);
         n = fb_next_node(theirs, n)) {
        fb_node same = fb_counterpart(&m->sides, theirs, n, base);
        if (same.id && writes[same.id] != before) marks[same.id] = true;
        before += added_write(theirs, n, base);
    }
    free(writes);
    return writes != NULL;
}

static bool calls_touched_module(const users *u, fb_node node) {
    const fb_graph *base = u->m->sides.base;
    fb_module module = fb_node_at(base, node)->module;
    return module.id && fb_map_get(&u->touched_modules, fb_hash_text(fb_text(base, fb_module_at(base, module)->path), 0));
}

/* In the order of base: its inputs come first. */
static bool is_recomputed(const users *u, fb_node node) {
    const fb_graph *base = u->m->sides.base, *theirs = u->m->sides.theirs;
    if (u->is_edited[node.id] || calls_touched_module(u, node)) return true;
    fb_node there = fb_counterpart(&u->m->sides, base, node, theirs);
    for (uint32_t e = fb_input_first(base, node); e && there.id && fb_merging_goes_on(u->m); e = fb_input_next(base, e)) {
        fb_node input = fb_edge_input(base, e);
        fb_node same = u->is_recomputed[input.id] ? fb_counterpart(&u->m->sides, base, input, theirs) : (fb_node){0};
        if (fb_merging_reads(u->m, theirs, there, same)) return true;
    }
    return false;
}

static bool is_read_anew(const users *u, fb_node before) {
    const fb_graph *base = u->m->sides.base, *theirs = u->m->sides.theirs;
    fb_node node = fb_counterpart(&u->m->sides, base, before, theirs);
    for (uint32_t e = node.id ? fb_user_first(theirs, node) : 0; e && fb_merging_goes_on(u->m); e = fb_user_next(theirs, e)) {
        fb_node same = fb_counterpart(&u->m->sides, theirs, fb_edge_user(theirs, e), base);
        if (!same.id || !fb_merging_reads(u->m, base, same, before)) return true;
    }
    return false;
}

/* Reports who reads the node in ours and did not in base. */
static void report_new_users(const users *u, const char *name) {
    const fb_graph *base = u->m->sides.base, *ours = u->m->sides.ours;
    fb_node node = fb_node_named(ours, name), before = fb_node_named(base, name);
    for (uint32_t e = node.id ? fb_user_first(ours, node) : 0; e && fb_merging_goes_on(u->m); e = fb_user_next(ours, e)) {
        const char *reader = fb_node_name(ours, fb_edge_user(ours, e));
        fb_node same = fb_node_named(base, reader);
        if (fb_merging_reads(u->m, base, same, before) || !fb_rows_find(&u->m->tables[FB_NODE_TABLE], reader).id) continue;
        fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "new-users", name, "%s now reads %s, whose value undo would change",
                         reader, name);
    }
}

/* Checks that the inputs of an inserted node have the shape and dtype that they have in base. */
static void check_inputs(const users *u, fb_node inserted) {
    const fb_graph *base = u->m->sides.base, *ours = u->m->sides.ours, *theirs = u->m->sides.theirs;
    for (uint32_t e = fb_input_first(theirs, inserted); e && fb_merging_goes_on(u->m); e = fb_input_next(theirs, e)) {
        const char *name = fb_node_name(theirs, fb_edge_input(theirs, e));
        fb_node before = fb_node_named(base, name), now = fb_node_named(ours, name);
        if (!before.id || !now.id) continue;
        const fb_node_row *x = fb_node_at(base, before), *y = fb_node_at(ours, now);
        bool is_same = !x->dtype || !y->dtype || x->dtype == y->dtype;
        int rank = fb_shape_rank(base, x->shape);
        if (x->shape.id && y->shape.id) is_same &= fb_shape_rank(ours, y->shape) == rank;
        for (int i = 0; i < rank && is_same && y->shape.id; i++)
            is_same = fb_shape_size(base, x->shape, i) == fb_shape_size(ours, y->shape, i);
        if (!is_same)
            fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                             "undo brings back %s, which reads %s, whose shape or dtype has changed since the run",
                             fb_node_name(theirs, inserted), name);
    }
}

static const char *module_of(const fb_graph *graph, fb_node node) {
    fb_module module = node.id ? fb_node_at(graph, node)->module : (fb_module){0};
    return module.id ? fb_text(graph, fb_module_at(graph, module)->path) : "";
}

/* The node of base that is this one of ours, in its program. */
static fb_node same_in_base(const users *u, fb_program program, fb_node node) {
    const fb_graph *ours = u->m->sides.ours, *base = u->m->sides.base;
    fb_module owner = fb_program_at(ours, program)->owner;
    fb_program same = FB_MAIN_PROGRAM;
    if (owner.id) {
        fb_module there = fb_module_find(base, fb_text(ours, fb_module_at(ours, owner)->path));
        same = there.id ? fb_module_at(base, there)->program : (fb_program){0};
    }
    return same.id ? fb_node_find(base, same, fb_node_name(ours, node)) : (fb_node){0};
}

/* Calls that ours added of modules that are erased or compute something else in theirs. */
static void check_call(const users *u, fb_program program, fb_node node) {
    const fb_graph *ours = u->m->sides.ours;
    const char *path = module_of(ours, node);
    if (!*path || strcmp(path, module_of(u->m->sides.base, same_in_base(u, program, node))) == 0) return;
    const fb_edit *edit = fb_merging_edit(u->m, FB_MODULE_TABLE, path);
    bool goes = edit && edit->kind == FB_EDIT_ERASE;
    if (goes || fb_map_get(&u->touched_modules, fb_hash_text(path, 0)))
        fb_conflicts_add(u->m->conflicts, FB_CONFLICT_MODULE, "new-users", path, "%s now uses module %s, %s",
                         fb_node_name(ours, node), path, goes ? "which undo would remove" : "whose result undo would change");
}

static void check_calls(const users *u) {
    const fb_graph *ours = u->m->sides.ours;
    for (fb_program program = FB_MAIN_PROGRAM; program.id < fb_program_limit(ours); program.id++) {
        for (fb_node n = fb_first_node(ours, program); n.id && fb_merging_goes_on(u->m); n = fb_next_node(ours, n))
            check_call(u, program, n);
    }
}

/* A node that called such a module in base, and calls another one in ours. */
static void check_still_calls(const users *u, fb_node before) {
    const fb_graph *ours = u->m->sides.ours, *base = u->m->sides.base;
    const char *name = fb_node_name(base, before), *path = module_of(base, before);
    fb_node now = fb_node_named(ours, name);
    if (!*path || !now.id || !fb_map_get(&u->touched_modules, fb_hash_text(path, 0)) || strcmp(path, module_of(ours, now)) == 0)
        return;
    fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                     "%s no longer calls module %s, whose result undo would change", name, path);
}

/* Finds out if a reader diverges though neither it nor its module was edited: then its input diverges. */
static bool gives_another_value(const users *u, fb_node node) {
    const fb_graph *base = u->m->sides.base, *theirs = u->m->sides.theirs;
    fb_node there = fb_counterpart(&u->m->sides, base, node, theirs);
    for (uint32_t e = there.id ? fb_user_first(base, node) : 0; e && fb_merging_goes_on(u->m); e = fb_user_next(base, e)) {
        fb_node reader = fb_edge_user(base, e);
        if (!u->is_diverged[reader.id] || u->is_edited[reader.id] || calls_touched_module(u, reader)) continue;
        if (fb_merging_reads(u->m, theirs, fb_counterpart(&u->m->sides, base, reader, theirs), there)) return true;
    }
    return false;
}

/* Nodes of the source keep their names: their meaning is known. The others were made by passes. */
static bool is_of_source(const users *u, fb_node node) {
    const fb_merge_facts *facts = u->m->facts;
    return facts && fb_counterpart(&u->m->sides, u->m->sides.base, node, facts->source).id;
}

/* A node that is recomputed relies on what a pass made for it, such as the column of ones of a fused bias. */
static void check_made_inputs(users *u, fb_node reader) {
    const fb_graph *base = u->m->sides.base, *ours = u->m->sides.ours;
    for (uint32_t e = fb_input_first(base, reader); e && fb_merging_goes_on(u->m); e = fb_input_next(base, e)) {
        fb_node input = fb_edge_input(base, e);
        const char *name = fb_node_name(base, input);
        fb_node now = fb_node_named(ours, name);
        if (u->is_checked[input.id] || is_of_source(u, input)) continue;
        u->is_checked[input.id] = true;
        if (now.id && !is_unchanged_since(u->m, input))
            fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                             "undo changes what %s computes, which is only valid while %s is unmodified",
                             fb_node_name(base, reader), name);
        check_made_inputs(u, input); /* ends at nodes of the source */
    }
}

static void check_made(users *u, fb_node node) {
    const fb_graph *base = u->m->sides.base, *ours = u->m->sides.ours;
    const char *name = fb_node_name(base, node);
    fb_node now = fb_node_named(ours, name);
    bool reads_made = false;
    for (uint32_t e = fb_input_first(base, node); e && fb_merging_goes_on(u->m); e = fb_input_next(base, e))
        reads_made |= !is_of_source(u, fb_edge_input(base, e));
    if (reads_made && now.id && !fb_merging_is_same_call(u->m, node, now))
        fb_conflicts_add(
            u->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
            "%s has changed since the run; undo changes what it computes, which is only valid while it reads what a "
            "pass made for it",
            name);
    check_made_inputs(u, node);
}

static void mark_diverged(users *u) {
    const fb_merge_facts *facts = u->m->facts;
    for (size_t i = 0; facts && i < facts->diverged_count; i++)
        u->is_diverged[fb_node_named(u->m->sides.base, facts->diverged[i]).id] = true;
}

/* A diverged node must not have been changed: the change was made for the value that it had. */
static void check_still_same(const users *u, fb_node before) {
    const char *name = fb_node_name(u->m->sides.base, before);
    fb_node now = fb_node_named(u->m->sides.ours, name);
    if (now.id && !fb_merging_is_same_call(u->m, before, now))
        fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                         "%s has changed since the run, and undo would change what it stands for", name);
}

/* How often a reader reads each node: in ours (sign 1), less in base (-1). */
typedef struct references {
    const users *u;
    const fb_graph *graph;
    int32_t sign;
} references;

static void count_reference(void *context, fb_node node) {
    const references *r = context;
    r->u->references[fb_counterpart(&r->u->m->sides, r->graph, node, r->u->m->sides.base).id] += r->sign;
}

static void count_references(const users *u, const fb_graph *graph, fb_node reader, int32_t sign) {
    references r = {u, graph, sign};
    fb_value_visit_nodes(graph, fb_node_at(graph, reader)->args, count_reference, &r);
    fb_value_visit_nodes(graph, fb_node_at(graph, reader)->kwargs, count_reference, &r);
}

/* A reader that does not diverge, of a node that does. If it reads the node in theirs too, it takes from both values what they
 * have in common, as a slice does, and must be unchanged. If it reads another node there, ours must not make it read this one
 * in a further place. */
static void check_changed_reader(const users *u, fb_node reader, fb_node now) {
    const fb_graph *base = u->m->sides.base, *ours = u->m->sides.ours, *theirs = u->m->sides.theirs;
    const char *name = fb_node_name(base, reader);
    count_references(u, ours, now, 1);
    count_references(u, base, reader, -1);
    for (uint32_t e = fb_input_first(base, reader); e && fb_merging_goes_on(u->m); e = fb_input_next(base, e)) {
        fb_node input = fb_edge_input(base, e);
        const char *input_name = fb_node_name(base, input);
        if (!u->is_diverged[input.id]) continue;
        if (fb_merging_reads(u->m, theirs, fb_node_named(theirs, name), fb_node_named(theirs, input_name)))
            fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                             "%s has changed since the run, and reads %s, whose value undo would change", name, input_name);
        else if (u->references[input.id] > 0)
            fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "new-users", input_name,
                             "%s now reads %s in another place, and undo would change its value", name, input_name);
    }
    count_references(u, ours, now, -1);
    count_references(u, base, reader, 1);
}

static void check_reader(const users *u, fb_node reader) {
    const fb_graph *base = u->m->sides.base, *ours = u->m->sides.ours;
    fb_node now = fb_counterpart(&u->m->sides, base, reader, ours);
    bool reads_diverged = false;
    for (uint32_t e = fb_input_first(base, reader); e && fb_merging_goes_on(u->m); e = fb_input_next(base, e))
        reads_diverged |= u->is_diverged[fb_edge_input(base, e).id];
    if (reads_diverged && !u->is_diverged[reader.id] && now.id && !fb_merging_is_same_call(u->m, reader, now))
        check_changed_reader(u, reader, now);
}

static void check_nodes(users *u) {
    const fb_graph *base = u->m->sides.base, *theirs = u->m->sides.theirs;
    for (fb_node n = fb_first_node(base, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(u->m); n = fb_next_node(base, n)) {
        bool is_read = is_read_anew(u, n);
        u->is_recomputed[n.id] = is_recomputed(u, n);
        u->is_diverged[n.id] = is_of_source(u, n) ? u->is_diverged[n.id] : u->is_recomputed[n.id] && is_read;
        if (u->is_edited[n.id] || is_read) check_still_calls(u, n);
        if (u->m->facts && calls_touched_module(u, n)) check_made(u, n);
    }
    for (fb_node n = fb_last_node(base, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(u->m); n = fb_node_at(base, n)->previous) {
        if (u->is_recomputed[n.id] && gives_another_value(u, n)) u->is_diverged[n.id] = true;
        if (u->is_diverged[n.id]) {
            report_new_users(u, fb_node_name(base, n));
            check_still_same(u, n);
        }
    }
    for (fb_node n = fb_first_node(base, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(u->m); n = fb_next_node(base, n))
        check_reader(u, n);
    for (fb_node n = fb_first_node(theirs, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(u->m); n = fb_next_node(theirs, n)) {
        const fb_edit *edit = fb_merging_edit(u->m, FB_NODE_TABLE, fb_node_name(theirs, n));
        if (edit && edit->kind == FB_EDIT_INSERT) check_inputs(u, n);
    }
}

static fb_status check_users(fb_merging *m) {
    size_t limit = fb_node_limit(m->sides.base);
    users u = {.m = m,
               .is_edited = calloc(limit, sizeof *u.is_edited),
               .is_recomputed = calloc(limit, sizeof *u.is_recomputed),
               .is_checked = calloc(limit, sizeof *u.is_checked),
               .references = calloc(limit, sizeof *u.references),
               .is_diverged = calloc(limit, sizeof *u.is_diverged)};
    bool ok = u.is_edited && u.references && u.is_recomputed && u.is_checked && u.is_diverged && find_touched_modules(&u) &&
              find_reordered(m, u.is_edited);
    if (ok) {
        mark_edited(&u);
        mark_diverged(&u);
        check_nodes(&u);
        check_calls(&u);
    }
    fb_map_free(&u.touched_modules);
    free(u.is_edited);
    free(u.is_recomputed);
    free(u.is_checked);
    free(u.references);
    free(u.is_diverged);
    return ok ? FB_OK : fb_fail_memory(m->error);
}

/* ---- what the edits rely on ------------------------------------------------------------------------------------ */

/* An edited node reads other nodes in theirs than in base, and computes the same: the nodes between, its trail, make the same
 * of what both sides read. So the nodes of the trail that base and theirs share must be unchanged in ours.
 *
 *     base:    x   ones   cat(x, ones)   merged(cat)   k = merged[…]
 *     theirs:  x   ones   cat(x, ones)   q(cat)        cat_1(x, ones_1)   k = k(cat_1)
 *
 * k reads x instead of cat; so cat, and what it is made of besides x, must be in ours what they are in base. */
enum { IN_BASE = 1, IN_THEIRS = 2, IN_BOTH = 3, MET_NODES = 8 };
typedef enum verdict { UNKNOWN, IS_UNCHANGED, IS_CHANGED } verdict;

/* How far a trail has come: the nodes that only one side depends on, and on which side. As long as a trail only goes down, what
 * follows depends on nothing else: where two trails have come to the same nodes they meet, and the second one ends. */
typedef struct meeting {
    struct {
        uint32_t node, sides;
    } nodes[MET_NODES]; /* by node; the rest is 0 */
    uint32_t part;      /* of the trail: what follows */
} meeting;

typedef struct values {
    fb_merging *m;
    uint32_t part;           /* of the trail at hand: since its last meeting place */
    unsigned char *sides;    /* by node of base: the sides on which the edited node depends on it */
    unsigned char *expanded; /* by node of base: the sides on which its inputs took its place */
    unsigned char *verdicts; /* by node of base: whether ours has it unchanged */
    uint64_t *taken_at[2];   /* by node of base, and of theirs, that the other side lacks: the last step that took it */
    uint64_t step, begin;    /* counts from 1; the step at which the trail began */
    fb_buffer seen;          /* fb_node: those with a mark in `sides` or `expanded` */
    fb_buffer heap;          /* fb_node: those with a mark in `sides`, down from the last that was looked at; the last first */
    fb_buffer stack;         /* fb_node of one graph */
    fb_buffer meetings;      /* meeting */
    fb_map met;              /* hash of the nodes -> 1 + index into meetings */
    size_t differing;        /* nodes of one side alone */
    uint32_t lowest;         /* ordinal of the last node that was looked at */
    bool has_turned;         /* it came back to a later node: it can no longer meet another */
    bool failed;
} values;

static uint32_t ordinal_of(const values *v, fb_node node) {
    return fb_node_at(v->m->sides.base, node)->ordinal;
}

/* ---- the nodes to look at, last first ---------------------------------------------------------------------------------- */

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

/* ---- what either side depends on --------------------------------------------------------------------------------------- */

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
    if (*known == UNKNOWN) *known = is_unchanged_since(v->m, node) ? IS_UNCHANGED : IS_CHANGED;
    return *known == IS_UNCHANGED;
}

/* Takes a node that only this side has, once in each trail: many paths may lead to it. A node without inputs adds nothing. */
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

/* A node without inputs that is unchanged is the same on both sides. */
static void take_common(values *v, unsigned side, fb_node in_base, fb_node in_theirs) {
    bool reads_any = fb_input_first(v->m->sides.base, in_base) || fb_input_first(v->m->sides.theirs, in_theirs);
    if (!reads_any && is_unchanged(v, in_base)) return;
    v->has_turned |= ordinal_of(v, in_base) >= v->lowest;
    if (!(v->expanded[in_base.id] & side)) set_sides(v, in_base, v->sides[in_base.id] | side);
}

/* Adds what the node reads on that side. A node that only that side has is replaced with its own inputs. */
static void add_inputs(values *v, unsigned side, fb_node node) {
    const fb_graph *base = v->m->sides.base, *theirs = v->m->sides.theirs;
    const fb_graph *graph = side == IN_BASE ? base : theirs, *other = side == IN_BASE ? theirs : base;
    fb_buffer_append(&v->stack, &node, sizeof node);
    while (v->stack.size && !v->stack.failed && fb_merging_goes_on(v->m)) {
        fb_node top;
        v->stack.size -= sizeof top;
        memcpy(&top, v->stack.data + v->stack.size, sizeof top);
        if (!v->m->conflicts->count)
            fb_buffer_append(&v->m->trail_nodes, &(fb_trail_node){v->part, top, side == IN_THEIRS}, sizeof(fb_trail_node));
        for (uint32_t e = fb_input_first(graph, top); e && fb_merging_goes_on(v->m); e = fb_input_next(graph, e)) {
            fb_node input = fb_edge_input(graph, e), there = fb_counterpart(&v->m->sides, graph, input, other);
            if (!there.id) take_own(v, side, graph, input);
            else if (side == IN_BASE) take_common(v, side, input, there);
            else take_common(v, side, there, input);
        }
    }
}

static void check_unchanged(values *v, fb_node node, const char *reader) {
    const char *name = fb_node_name(v->m->sides.base, node);
    if (!is_unchanged(v, node))
        fb_conflicts_add(v->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                         "undo changes what %s reads, which has the same value only while %s is unmodified", reader, name);
}

/* ---- where comparisons meet -------------------------------------------------------------------------------------------- */

static fb_trail_part *trail_part(const values *v, uint32_t part) {
    return (fb_trail_part *)(void *)v->m->trail_parts.data + part;
}

static uint32_t add_part(values *v, fb_node edited) {
    fb_buffer_append(&v->m->trail_parts, &(fb_trail_part){.edited = edited}, sizeof(fb_trail_part));
    v->failed |= v->m->trail_parts.failed;
    return (uint32_t)(v->m->trail_parts.size / sizeof(fb_trail_part)) - 1;
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

/* Joins an earlier trail that came to here: it has looked at all that follows. If not, a later one may. */
static bool meets_another(values *v) {
    if (v->has_turned || v->heap.size > MET_NODES * sizeof(fb_node)) return false;
    meeting here = meeting_here(v);
    uint64_t key = fb_hash(here.nodes, sizeof here.nodes, 0);
    const meeting *meetings = (const meeting *)(const void *)v->meetings.data;
    size_t count = v->meetings.size / sizeof *meetings;
    uint32_t cursor = 0, found, part = v->part;
    while ((found = fb_map_next(&v->met, key, &cursor))) {
        if (found > count || memcmp(meetings[found - 1].nodes, here.nodes, sizeof here.nodes) != 0) continue;
        trail_part(v, part)->next = meetings[found - 1].part + 1;
        return true;
    }
    here.part = v->part = add_part(v, (fb_node){0});
    if (v->failed) return true;
    trail_part(v, part)->next = here.part + 1;
    fb_buffer_append(&v->meetings, &here, sizeof here);
    v->failed |= v->meetings.failed || !fb_map_add(&v->met, key, (uint32_t)count + 1);
    return v->failed;
}

static bool goes_on(values *v) {
    v->failed |= v->stack.failed || v->seen.failed || v->heap.failed;
    return !v->failed && fb_merging_goes_on(v->m);
}

/* Replaces the last node that only one side depends on with its inputs, until both sides depend on the same nodes. */
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
        add_inputs(v, side, side == IN_BASE ? last : fb_counterpart(&v->m->sides, base, last, theirs));
    }
    if (v->has_turned) v->meetings.size = meetings; /* what followed depended on more than these */
    const fb_node *seen = (const fb_node *)(const void *)v->seen.data;
    for (size_t i = 0; i < v->seen.size / sizeof *seen; i++) v->sides[seen[i].id] = v->expanded[seen[i].id] = 0;
    v->seen.size = v->heap.size = v->differing = 0;
}

/* ---- what arguments mean ----------------------------------------------------------------------------------------------- */

/* Finds out if a node of theirs replaces one of base, as far as is known. */
static bool replaces(const fb_merging *m, fb_node was, fb_node now) {
    const fb_graph *base = m->sides.base, *theirs = m->sides.theirs;
    const fb_node_row *x = fb_node_at(base, was), *y = fb_node_at(theirs, now);
    bool is_described = x->shape.id && y->shape.id && x->dtype && y->dtype;
    if (is_described) return x->dtype == y->dtype && fb_same_text(base, x->shape, theirs, y->shape);
    return fb_counterpart(&m->sides, base, was, theirs).id || fb_counterpart(&m->sides, theirs, now, base).id;
}

static bool find_both(const fb_merging *m, fb_span was, fb_span now, fb_node *in_base, fb_node *in_theirs, bool *failed) {
    char *of_base = fb_span_unquote(was), *of_theirs = fb_span_unquote(now);
    if (of_base && of_theirs) {
        *in_base = fb_node_named(m->sides.base, of_base);
        *in_theirs = fb_node_named(m->sides.theirs, of_theirs);
    } else *failed = true;
    free(of_base);
    free(of_theirs);
    return !*failed;
}

/* Compares two arguments, where nodes that replace each other count as equal. Documents are nested to a bounded depth. */
static bool means_the_same(const fb_merging *m, fb_span was, fb_span now, bool *failed) {
    if (fb_span_equal(was, now)) return true;
    size_t at_was = 0, at_now = 0;
    fb_span was_key, now_key, was_item, now_item;
    bool is_same = was.text && now.text && *was.text == *now.text && (*was.text == '[' || *was.text == '{');
    while (is_same && !*failed) {
        bool is_any = fb_span_next(was, &at_was, &was_key, &was_item);
        if (is_any != fb_span_next(now, &at_now, &now_key, &now_item)) return false;
        if (!is_any) return true;
        fb_node in_base = {0}, in_theirs = {0};
        is_same = fb_span_equal(was_key, now_key);
        if (!is_same || !was_key.text || !fb_span_equal(was_key, fb_span_of("$node")))
            is_same = is_same && means_the_same(m, was_item, now_item, failed);
        else if (find_both(m, was_item, now_item, &in_base, &in_theirs, failed)) is_same = replaces(m, in_base, in_theirs);
    }
    return is_same;
}

static bool calls_the_same(const fb_graph *a, fb_node x, const fb_graph *b, fb_node y) {
    return fb_node_at(a, x)->opcode == fb_node_at(b, y)->opcode && strcmp(fb_node_target(a, x), fb_node_target(b, y)) == 0;
}

/* The new arguments of a call are meant for its target: ours must not call another one. False when memory is out. */
static bool check_target(fb_merging *m, const fb_edit *edit) {
    const fb_graph *base = m->sides.base, *ours = m->sides.ours, *theirs = m->sides.theirs;
    fb_node before = fb_node_named(base, edit->name), now = fb_node_named(ours, edit->name);
    fb_node there = fb_node_named(theirs, edit->name);
    if (!now.id || calls_the_same(base, before, ours, now) || calls_the_same(theirs, there, ours, now)) return true;
    bool failed = false;
    for (size_t i = 0; i < edit->member_count && !failed; i++) {
        const fb_member_edit *member = &edit->members[i];
        bool is_argument = !strncmp(member->pointer, "/args", 5) || !strncmp(member->pointer, "/kwargs", 7);
        if (is_argument && !means_the_same(m, member->was, member->now, &failed) && !failed)
            fb_conflicts_add(m->conflicts, FB_CONFLICT_NODE, "changed-node", edit->name,
                             "undo changes the arguments of %s, which are meant for %s, and it calls %s now", edit->name,
                             fb_node_target(base, before), fb_node_target(ours, now));
    }
    return !failed;
}

/* ---- all edited nodes -------------------------------------------------------------------------------------------------- */

static fb_status check_trails(fb_merging *m) {
    const fb_graph *base = m->sides.base, *theirs = m->sides.theirs;
    size_t limit = fb_node_limit(base);
    values v = {.m = m,
                .sides = calloc(limit, 1),
                .expanded = calloc(limit, 1),
                .verdicts = calloc(limit, 1),
                .taken_at = {calloc(limit, sizeof(uint64_t)), calloc(fb_node_limit(theirs), sizeof(uint64_t))}};
    bool ok = v.sides && v.expanded && v.verdicts && v.taken_at[0] && v.taken_at[1];
    for (size_t i = 0; ok && i < m->diff.count && fb_merging_goes_on(m); i++) {
        const fb_edit *edit = &m->diff.edits[i];
        if (edit->table != FB_NODE_TABLE || edit->kind != FB_EDIT_SET || !fb_merging_recomputes(edit)) continue;
        compare(&v, fb_node_named(base, edit->name), fb_node_named(theirs, edit->name));
        ok = check_target(m, edit) && !v.failed;
    }
    ok = ok && !v.stack.failed && !v.seen.failed && !v.heap.failed && !m->trail_nodes.failed;
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

fb_status fb_merge_values(fb_merging *m) {
    fb_status status = check_users(m);
    return status ? status : check_trails(m);
}
