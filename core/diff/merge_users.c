/* Readers that came since. A node that goes cannot be read; and one that stays may stand for something else: a convolution that
 * had taken in its BatchNorm gives the convolution alone again, and what reads it since would silently read that. Such a node
 * is known by two things: it computes otherwise (it, its module's tensors, or what it reads in both graphs), and a node that
 * comes back, or that read something else, reads it. */
#include <stdlib.h>
#include <string.h>

#include "core/diff/merging.h"

typedef struct users {
    fb_merging *m;
    fb_map touched_modules; /* hash of the path -> 1 */
    bool *is_edited;        /* by node of base: an edit makes it compute otherwise, or it stands elsewhere */
    bool *is_otherwise;     /* it computes otherwise, by itself or because of what it reads in both graphs */
    bool *is_checked;       /* its being unchanged has been looked at */
    int32_t *references;    /* by node of base: of one reader; [0] is for all nodes that base has not */
    bool *is_parted;        /* and it gives another value: what base has of it, another node of theirs has */
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
        if (fb_is_dirty(&m->sides, slot.tensor) && !fb_map_put(&u->touched_modules, fb_hash_text(path, 0), 1)) return false;
    }
    return true;
}

/* Marks what an edit of the node itself says. */
static void mark_edited(users *u) {
    const fb_merging *m = u->m;
    for (size_t i = 0; i < m->diff.count && fb_merging_goes_on(u->m); i++) {
        const fb_edit *edit = &m->diff.edits[i];
        if (edit->table != FB_NODE_TABLE || edit->kind != FB_EDIT_SET) continue;
        fb_node node = fb_node_find(m->sides.base, FB_MAIN_PROGRAM, edit->name);
        for (size_t j = 0; j < edit->member_count; j++) {
            if (strncmp(edit->members[j].pointer, "/meta/", 6) != 0) u->is_edited[node.id] = true;
        }
    }
}

static bool reads(fb_merging *m, const fb_graph *graph, fb_node reader, fb_node input) {
    if (!reader.id || !input.id) return false;
    /* Either may have very many of the others: both are walked, to the end of the shorter. */
    uint32_t e = fb_input_first(graph, reader), back = fb_user_first(graph, input);
    for (; e && back && fb_work_goes_on(&m->work, 1); e = fb_input_next(graph, e), back = fb_user_next(graph, back)) {
        if (fb_edge_input(graph, e).id == input.id || fb_edge_user(graph, back).id == reader.id) return true;
    }
    return false;
}

bool fb_merging_reads(fb_merging *m, const fb_graph *graph, const char *reader, const char *input) {
    return reads(m, graph, fb_node_find(graph, FB_MAIN_PROGRAM, reader), fb_node_find(graph, FB_MAIN_PROGRAM, input));
}

static bool calls_touched_module(const users *u, fb_node node) {
    const fb_graph *base = u->m->sides.base;
    fb_module module = fb_node_at(base, node)->module;
    return module.id && fb_map_get(&u->touched_modules, fb_hash_text(fb_text(base, fb_module_at(base, module)->path), 0));
}

static bool computes_otherwise(const users *u, fb_node node) {
    const fb_graph *base = u->m->sides.base, *theirs = u->m->sides.theirs;
    if (u->is_edited[node.id] || calls_touched_module(u, node)) return true;
    fb_node there = fb_node_find(theirs, FB_MAIN_PROGRAM, fb_node_name(base, node));
    for (uint32_t e = fb_input_first(base, node); e && there.id && fb_merging_goes_on(u->m); e = fb_input_next(base, e)) {
        fb_node input = fb_edge_input(base, e);
        fb_node same =
            u->is_otherwise[input.id] ? fb_node_find(theirs, FB_MAIN_PROGRAM, fb_node_name(base, input)) : (fb_node){0};
        if (reads(u->m, theirs, there, same)) return true;
    }
    return false;
}

static bool is_read_anew(const users *u, const char *name) {
    const fb_graph *base = u->m->sides.base, *theirs = u->m->sides.theirs;
    fb_node node = fb_node_find(theirs, FB_MAIN_PROGRAM, name), before = fb_node_find(base, FB_MAIN_PROGRAM, name);
    for (uint32_t e = node.id ? fb_user_first(theirs, node) : 0; e && fb_merging_goes_on(u->m); e = fb_user_next(theirs, e)) {
        fb_node same = fb_node_find(base, FB_MAIN_PROGRAM, fb_node_name(theirs, fb_edge_user(theirs, e)));
        if (!same.id || !reads(u->m, base, same, before)) return true;
    }
    return false;
}

/* Reports who reads the node in ours and did not in base. */
static void report_new_users(const users *u, const char *name) {
    const fb_graph *base = u->m->sides.base, *ours = u->m->sides.ours;
    fb_node node = fb_node_find(ours, FB_MAIN_PROGRAM, name), before = fb_node_find(base, FB_MAIN_PROGRAM, name);
    for (uint32_t e = node.id ? fb_user_first(ours, node) : 0; e && fb_merging_goes_on(u->m); e = fb_user_next(ours, e)) {
        const char *reader = fb_node_name(ours, fb_edge_user(ours, e));
        fb_node same = fb_node_find(base, FB_MAIN_PROGRAM, reader);
        if (reads(u->m, base, same, before) || !fb_rows_find(&u->m->tables[FB_NODE_TABLE], reader).id) continue;
        fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "new-users", name, "%s now reads %s, whose value undo would change",
                         reader, name);
    }
}

/* Nodes that what comes back reads must be what they were. */
static void check_inputs(const users *u, fb_node inserted) {
    const fb_graph *base = u->m->sides.base, *ours = u->m->sides.ours, *theirs = u->m->sides.theirs;
    for (uint32_t e = fb_input_first(theirs, inserted); e && fb_merging_goes_on(u->m); e = fb_input_next(theirs, e)) {
        const char *name = fb_node_name(theirs, fb_edge_input(theirs, e));
        fb_node before = fb_node_find(base, FB_MAIN_PROGRAM, name), now = fb_node_find(ours, FB_MAIN_PROGRAM, name);
        if (!before.id || !now.id) continue;
        const fb_node_row *x = fb_node_at(base, before), *y = fb_node_at(ours, now);
        bool is_same = !x->dtype || !y->dtype || x->dtype == y->dtype;
        int rank = fb_shape_rank(base, x->shape);
        if (x->shape.id && y->shape.id) is_same &= fb_shape_rank(ours, y->shape) == rank;
        for (int i = 0; i < rank && is_same && y->shape.id; i++)
            is_same = fb_shape_size(base, x->shape, i) == fb_shape_size(ours, y->shape, i);
        if (!is_same)
            fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                             "%s comes back and reads %s, whose shape or dtype is another now", fb_node_name(theirs, inserted),
                             name);
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

/* New calls of modules that go, or that compute something else afterwards. */
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

/* What a node makes of such a module's result, it would make of something else's. */
static void check_still_calls(const users *u, fb_node before) {
    const fb_graph *ours = u->m->sides.ours, *base = u->m->sides.base;
    const char *name = fb_node_name(base, before), *path = module_of(base, before);
    fb_node now = fb_node_find(ours, FB_MAIN_PROGRAM, name);
    if (!*path || !now.id || !fb_map_get(&u->touched_modules, fb_hash_text(path, 0)) || strcmp(path, module_of(ours, now)) == 0)
        return;
    fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                     "%s called module %s, which computes something else afterwards, and does not now", name, path);
}

/* Whether a reader that computes by itself what it computed gives another value: then it is given another one. */
static bool gives_another_value(const users *u, fb_node node) {
    const fb_graph *base = u->m->sides.base, *theirs = u->m->sides.theirs;
    fb_node there = fb_node_find(theirs, FB_MAIN_PROGRAM, fb_node_name(base, node));
    for (uint32_t e = there.id ? fb_user_first(base, node) : 0; e && fb_merging_goes_on(u->m); e = fb_user_next(base, e)) {
        fb_node reader = fb_edge_user(base, e);
        if (!u->is_parted[reader.id] || u->is_edited[reader.id] || calls_touched_module(u, reader)) continue;
        if (reads(u->m, theirs, fb_node_find(theirs, FB_MAIN_PROGRAM, fb_node_name(base, reader)), there)) return true;
    }
    return false;
}

/* Whether it is known what the node stands for. */
static bool is_known(const users *u, fb_node node) {
    const fb_merge_facts *facts = u->m->facts;
    return facts && fb_node_find(facts->source, FB_MAIN_PROGRAM, fb_node_name(u->m->sides.base, node)).id;
}

/* What a pass made for a node that computes otherwise afterwards, is taken for granted there: a fused bias, for a row of ones;
 * and that the node reads it still. */
static void check_made_inputs(users *u, fb_node reader) {
    const fb_graph *base = u->m->sides.base, *ours = u->m->sides.ours;
    for (uint32_t e = fb_input_first(base, reader); e && fb_merging_goes_on(u->m); e = fb_input_next(base, e)) {
        fb_node input = fb_edge_input(base, e);
        const char *name = fb_node_name(base, input);
        fb_node now = fb_node_find(ours, FB_MAIN_PROGRAM, name);
        if (u->is_checked[input.id] || is_known(u, input)) continue;
        u->is_checked[input.id] = true;
        if (now.id && !fb_merging_is_unchanged(u->m, input))
            fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                             "%s computes otherwise afterwards, which is right only as long as %s is what a pass made",
                             fb_node_name(base, reader), name);
        check_made_inputs(u, input); /* no deeper than what passes made */
    }
}

static void check_made(users *u, fb_node node) {
    const fb_graph *base = u->m->sides.base, *ours = u->m->sides.ours;
    const char *name = fb_node_name(base, node);
    fb_node now = fb_node_find(ours, FB_MAIN_PROGRAM, name);
    bool reads_made = false;
    for (uint32_t e = fb_input_first(base, node); e && fb_merging_goes_on(u->m); e = fb_input_next(base, e))
        reads_made |= !is_known(u, fb_edge_input(base, e));
    if (reads_made && now.id && !fb_merging_is_same_call(u->m, node, now))
        fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                         "%s has changed since the run; undo would change what it computes, which is right only while it reads "
                         "what a pass made "
                         "for it",
                         name);
    check_made_inputs(u, node);
}

static void mark_parted(users *u) {
    const fb_merge_facts *facts = u->m->facts;
    for (size_t i = 0; facts && i < facts->parted_count; i++)
        u->is_parted[fb_node_find(u->m->sides.base, FB_MAIN_PROGRAM, facts->parted[i]).id] = true;
}

/* What a node of ours makes of its inputs since, was made for what it stood for. */
static void check_still_same(const users *u, fb_node before) {
    const char *name = fb_node_name(u->m->sides.base, before);
    fb_node now = fb_node_find(u->m->sides.ours, FB_MAIN_PROGRAM, name);
    if (now.id && !fb_merging_is_same_call(u->m, before, now))
        fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                         "%s has changed since the run, and undo would change what it stands for", name);
}

/* How often a reader reads each node, since and before. */
typedef struct references {
    const users *u;
    const fb_graph *graph;
    int32_t sign;
} references;

static void count_reference(void *context, fb_node node) {
    const references *r = context;
    r->u->references[fb_node_find(r->u->m->sides.base, FB_MAIN_PROGRAM, fb_node_name(r->graph, node)).id] += r->sign;
}

static void count_references(const users *u, const fb_graph *graph, fb_node reader, int32_t sign) {
    references r = {u, graph, sign};
    fb_value_visit_nodes(graph, fb_node_at(graph, reader)->args, count_reference, &r);
    fb_value_visit_nodes(graph, fb_node_at(graph, reader)->kwargs, count_reference, &r);
}

/* Who reads on both sides a node that stands for something else, makes the same of both: a slice takes what is the same. It
 * must be what it was. Who reads something instead of it afterwards, must not read it in another place since. */
static void check_changed_reader(const users *u, fb_node reader, fb_node now) {
    const fb_graph *base = u->m->sides.base, *ours = u->m->sides.ours, *theirs = u->m->sides.theirs;
    const char *name = fb_node_name(base, reader);
    count_references(u, ours, now, 1);
    count_references(u, base, reader, -1);
    for (uint32_t e = fb_input_first(base, reader); e && fb_merging_goes_on(u->m); e = fb_input_next(base, e)) {
        fb_node input = fb_edge_input(base, e);
        const char *input_name = fb_node_name(base, input);
        if (!u->is_parted[input.id]) continue;
        if (fb_merging_reads(u->m, theirs, name, input_name))
            fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
                             "%s has changed since the run, and reads %s, whose value undo would change", name, input_name);
        else if (u->references[input.id] > 0)
            fb_conflicts_add(u->m->conflicts, FB_CONFLICT_NODE, "new-users", input_name,
                             "%s now reads %s once more, and undo would change its value", name, input_name);
    }
    count_references(u, ours, now, -1);
    count_references(u, base, reader, 1);
}

static void check_reader(const users *u, fb_node reader) {
    const fb_graph *base = u->m->sides.base, *ours = u->m->sides.ours;
    fb_node now = fb_node_find(ours, FB_MAIN_PROGRAM, fb_node_name(base, reader));
    bool reads_parted = false;
    for (uint32_t e = fb_input_first(base, reader); e && fb_merging_goes_on(u->m); e = fb_input_next(base, e))
        reads_parted |= u->is_parted[fb_edge_input(base, e).id];
    if (reads_parted && !u->is_parted[reader.id] && now.id && !fb_merging_is_same_call(u->m, reader, now))
        check_changed_reader(u, reader, now);
}

static void check_nodes(users *u) {
    const fb_graph *base = u->m->sides.base, *theirs = u->m->sides.theirs;
    for (fb_node n = fb_first_node(base, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(u->m); n = fb_next_node(base, n)) {
        bool is_read = is_read_anew(u, fb_node_name(base, n));
        u->is_otherwise[n.id] = computes_otherwise(u, n);
        u->is_parted[n.id] = is_known(u, n) ? u->is_parted[n.id] : u->is_otherwise[n.id] && is_read;
        if (u->is_edited[n.id] || is_read) check_still_calls(u, n);
        if (u->m->facts && calls_touched_module(u, n)) check_made(u, n);
    }
    for (fb_node n = fb_last_node(base, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(u->m); n = fb_node_at(base, n)->previous) {
        if (u->is_otherwise[n.id] && gives_another_value(u, n)) u->is_parted[n.id] = true;
        if (u->is_parted[n.id]) {
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

fb_status fb_merge_users(fb_merging *m) {
    size_t limit = fb_node_limit(m->sides.base);
    users u = {.m = m,
               .is_edited = calloc(limit, sizeof *u.is_edited),
               .is_otherwise = calloc(limit, sizeof *u.is_otherwise),
               .is_checked = calloc(limit, sizeof *u.is_checked),
               .references = calloc(limit, sizeof *u.references),
               .is_parted = calloc(limit, sizeof *u.is_parted)};
    bool ok = u.is_edited && u.references && u.is_otherwise && u.is_checked && u.is_parted && find_touched_modules(&u) &&
              fb_merge_find_reordered(m, u.is_edited);
    if (ok) {
        mark_edited(&u);
        mark_parted(&u);
        check_nodes(&u);
        check_calls(&u);
    }
    fb_map_free(&u.touched_modules);
    free(u.is_edited);
    free(u.is_otherwise);
    free(u.is_checked);
    free(u.references);
    free(u.is_parted);
    return ok ? FB_OK : fb_fail_memory(m->error);
}
