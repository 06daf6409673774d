/* An undo: the source and the other passes again, and where the graph was edited, a merge of the edits. */
#include "core/compose/undo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/base/map.h"
#include "core/compose/run.h"
#include "core/diff/merge.h"
#include "core/document/document.h"
#include "core/graph/build.h"
#include "core/json/json.h"
#include "core/pass/pass.h"

/* The meanings of the names of nodes in a run's graphs. A pass that lets a node take another one in (a convolution its
 * BatchNorm) leaves its name with the value of the other. So one name can mean one value in one replay of a source and another
 * value in another; a reader must know which. */

/* The meanings of one replay; zeroed at its start. */
typedef struct meaning_table {
    fb_buffer items; /* the nodes that took others in */
    fb_map index;
    fb_arena arena;
} meaning_table;

typedef struct item {
    const char *node;
    const char *stands_for; /* a node of the replay's source, one that a pass created, or a new value of such a one: " " + it */
} item;

static const item *items_of(const meaning_table *meanings, size_t *count) {
    *count = meanings->items.size / sizeof(item);
    return (const item *)(const void *)meanings->items.data;
}

/* 1 + index, or 0. */
static uint32_t find(const meaning_table *meanings, const char *node) {
    size_t count;
    const item *items = items_of(meanings, &count);
    uint32_t cursor = 0, found;
    while ((found = fb_map_next(&meanings->index, fb_hash_text(node, 0), &cursor))) {
        if (strcmp(items[found - 1].node, node) == 0) return found;
    }
    return 0;
}

static const char *meaning_of(const meaning_table *meanings, const char *node) {
    uint32_t found = find(meanings, node);
    size_t count;
    return found ? items_of(meanings, &count)[found - 1].stands_for : node;
}

/* Another value than what is called `meaning`. */
static const char *make_new_value(meaning_table *meanings, const char *meaning) {
    char *text = fb_arena_alloc(&meanings->arena, strlen(meaning) + 2);
    if (text) sprintf(text, " %s", meaning);
    return text;
}

static bool absorb(meaning_table *meanings, const char *node, const char *other) {
    const char *meaning = meaning_of(meanings, other);
    item new = {.node = fb_arena_text(&meanings->arena, node, strlen(node)),
                .stands_for = strcmp(node, other) == 0 ? make_new_value(meanings, meaning)
                                                       : fb_arena_text(&meanings->arena, meaning, strlen(meaning))};
    uint32_t found = find(meanings, node);
    if (!new.node || !new.stands_for) return false;
    if (found) {
        memcpy(meanings->items.data + (found - 1) * sizeof new, &new, sizeof new);
        return true;
    }
    fb_buffer_append(&meanings->items, &new, sizeof new);
    uint32_t count = (uint32_t)(meanings->items.size / sizeof new);
    return !meanings->items.failed && fb_map_add(&meanings->index, fb_hash_text(node, 0), count);
}

/* Takes note of what a pass did. False when memory is out. */
static bool meanings_note(meaning_table *meanings, const fb_pass_report *report) {
    bool ok = true;
    for (size_t i = 0; i < report->absorbed_count && ok; i++)
        ok = absorb(meanings, report->absorbed[i].by, report->absorbed[i].node);
    return ok;
}

static void meanings_free(meaning_table *meanings) {
    fb_buffer_free(&meanings->items);
    fb_map_free(&meanings->index);
    fb_arena_free(&meanings->arena);
}

static void compare(const meaning_table *a, const meaning_table *b, fb_buffer *names) {
    size_t count;
    const item *items = items_of(a, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(items[i].stands_for, meaning_of(b, items[i].node)) != 0)
            fb_buffer_append(names, &items[i].node, sizeof items[i].node);
    }
}

/* Appends the names (const char *, the meanings' own) that mean something else in the other replay. */
static void meanings_compare(const meaning_table *a, const meaning_table *b, fb_buffer *names) {
    compare(a, b, names);
    compare(b, a, names);
}

/* ---- what a node is made of, and for whom ------------------------------------------------------------------------------- */

typedef struct kinship {
    const fb_undo_plan *plan;
    const fb_graph *graph;
    bool *is_created; /* by node: by a pass of ours */
    uint64_t *kinds;  /* by node: what it is made of, down to nodes of the source */
    uint64_t *uses;   /* by node: what reads it, up to nodes of the source */
    fb_buffer text;   /* of one value */
    fb_node last;     /* of the source: found last */
    fb_work *work;
} kinship;

/* One more node or edge is looked at; a microsecond or two. */
static bool goes_on(fb_work *work) {
    return fb_work_goes_on(work, 32);
}

static bool has_node(const fb_graph *graph, const char *name) {
    return fb_node_find(graph, FB_MAIN_PROGRAM, name).id != 0;
}

static bool was_created(kinship *k, const char *name) {
    const fb_undo_plan *plan = k->plan;
    bool is_added = false;
    for (size_t i = 0; i < plan->step_count && !is_added; i++) {
        const fb_undo_step *step = &plan->steps[i];
        is_added = !step->call && has_node(step->after, name) && !has_node(step->before, name);
    }
    return !is_added && !fb_node_follow(plan->source, name, &k->last).id;
}

/* Documents are nested to a bounded depth. */
static uint64_t kind_of_value(kinship *k, fb_value value, uint64_t seed) {
    const fb_value_row *row = fb_value_at(k->graph, value);
    fb_node node = fb_value_node(k->graph, value);
    if (node.id) return fb_hash(&k->kinds[node.id], sizeof *k->kinds, seed + 1);
    if (!row->has_nodes) {
        k->text.size = 0;
        fb_value_write(k->graph, value, &k->text);
        return fb_hash(k->text.data, k->text.size, seed + 2);
    }
    uint64_t kind = seed + 3 + (uint64_t)row->kind;
    for (uint32_t i = 0; i < row->count; i++) kind = kind_of_value(k, row->items[i], kind);
    return kind;
}

/* A module that passes made is identified by its path, regardless of its arguments. */
static uint64_t kind_of_node(kinship *k, fb_node node) {
    const fb_node_row *row = fb_node_at(k->graph, node);
    const char *name = fb_node_name(k->graph, node), *target = fb_node_target(k->graph, node);
    if (!k->is_created[node.id]) return fb_hash_text(name, 1);
    uint64_t kind = fb_hash_text(target, 2 + (uint64_t)row->opcode);
    if (row->opcode == FB_CALL_MODULE) return kind;
    return kind_of_value(k, row->kwargs, kind_of_value(k, row->args, kind));
}

/* The same, in any order of the readers. */
static uint64_t use_of_node(kinship *k, fb_node node) {
    uint64_t use = 0;
    for (uint32_t e = fb_user_first(k->graph, node); e && goes_on(k->work); e = fb_user_next(k->graph, e)) {
        fb_node user = fb_edge_user(k->graph, e);
        const char *name = fb_node_name(k->graph, user), *target = fb_node_target(k->graph, user);
        if (k->is_created[user.id]) use += fb_hash_text(target, k->uses[user.id] + 1);
        else use += fb_hash_text(name, 0);
    }
    return use;
}

static bool find_kin(kinship *k) {
    k->kinds = calloc(fb_node_limit(k->graph), sizeof *k->kinds);
    k->uses = calloc(fb_node_limit(k->graph), sizeof *k->uses);
    k->is_created = calloc(fb_node_limit(k->graph), sizeof *k->is_created);
    if (!k->kinds || !k->uses || !k->is_created) return false;
    for (fb_node n = fb_first_node(k->graph, FB_MAIN_PROGRAM); n.id && goes_on(k->work); n = fb_next_node(k->graph, n)) {
        k->is_created[n.id] = was_created(k, fb_node_name(k->graph, n));
        k->kinds[n.id] = kind_of_node(k, n);
    }
    for (fb_node n = fb_last_node(k->graph, FB_MAIN_PROGRAM); n.id && goes_on(k->work); n = fb_node_at(k->graph, n)->previous)
        k->uses[n.id] = use_of_node(k, n);
    return !k->text.failed && !k->work->stopped.status;
}

static void kinship_free(kinship *k) {
    free(k->kinds);
    free(k->uses);
    free(k->is_created);
    fb_buffer_free(&k->text);
}

/* ---- names -------------------------------------------------------------------------------------------------------------- */

typedef struct renaming {
    fb_graph *graph;
    fb_node *same;    /* by node: the one of the result that it is, or none */
    fb_symbol *names; /* by node: the name that it gets, none = it keeps its own */
    fb_node *now;     /* by node: its replacement, none = itself */
    uint32_t limit;   /* of the three */
    bool is_any;
    fb_work *work;
} renaming;

/* Nodes of the result that no node of the replay is yet: the first one of a key, and behind each the next. */
typedef struct candidates {
    fb_map first;
    uint32_t *next;
    bool *is_taken;
} candidates;

static uint64_t key_of(const kinship *k, fb_node node, bool for_the_same) {
    return for_the_same ? fb_hash(&k->uses[node.id], sizeof *k->uses, k->kinds[node.id]) : k->kinds[node.id];
}

/* Pairs nodes that are made of the same, in their order; first those that are made for the same. */
static bool pair_nodes(renaming *r, candidates *c, const kinship *theirs, const kinship *base, bool for_the_same) {
    const fb_graph *result = base->graph;
    bool ok = true;
    fb_map_clear(&c->first);
    for (fb_node n = fb_last_node(result, FB_MAIN_PROGRAM); ok && n.id; n = fb_node_at(result, n)->previous) {
        if (!goes_on(r->work)) return false;
        if (c->is_taken[n.id] || !base->is_created[n.id]) continue;
        uint64_t key = key_of(base, n, for_the_same);
        c->next[n.id] = fb_map_get(&c->first, key);
        ok = fb_map_put(&c->first, key, n.id);
    }
    for (fb_node n = fb_first_node(r->graph, FB_MAIN_PROGRAM); ok && n.id; n = fb_next_node(r->graph, n)) {
        if (!goes_on(r->work)) return false;
        if (r->same[n.id].id || !theirs->is_created[n.id]) continue;
        uint64_t key = key_of(theirs, n, for_the_same);
        uint32_t found = fb_map_get(&c->first, key);
        if (!found) continue;
        r->same[n.id] = (fb_node){found};
        c->is_taken[found] = true;
        if (c->next[found]) fb_map_put(&c->first, key, c->next[found]);
        else fb_map_remove(&c->first, key);
    }
    return ok;
}

static bool pair_all(renaming *r, const kinship *theirs, const kinship *base) {
    candidates c = {.next = calloc(fb_node_limit(base->graph), sizeof *c.next),
                    .is_taken = calloc(fb_node_limit(base->graph), sizeof *c.is_taken)};
    bool ok = c.next && c.is_taken && pair_nodes(r, &c, theirs, base, true) && pair_nodes(r, &c, theirs, base, false);
    fb_map_free(&c.first);
    free(c.next);
    free(c.is_taken);
    return ok;
}

static bool choose_names(renaming *r, const kinship *theirs, const kinship *base) {
    const fb_graph *result = base->graph;
    fb_namespace *names = fb_namespace_of(result, r->work);
    bool ok = names != NULL;
    for (fb_node n = fb_first_node(r->graph, FB_MAIN_PROGRAM); ok && n.id; n = fb_next_node(r->graph, n))
        ok = goes_on(r->work) && fb_namespace_reserve(names, fb_node_name(r->graph, n));
    for (fb_node n = fb_first_node(r->graph, FB_MAIN_PROGRAM); ok && n.id; n = fb_next_node(r->graph, n)) {
        if (!(ok = goes_on(r->work))) break;
        const char *name = fb_node_name(r->graph, n), *to = name;
        if (!theirs->is_created[n.id]) continue;
        if (r->same[n.id].id) to = fb_node_name(result, r->same[n.id]);
        else if (has_node(result, name)) to = fb_namespace_create(names, name);
        if (to && strcmp(to, name) == 0) continue;
        r->names[n.id] = to ? fb_intern(r->graph, to) : (fb_symbol){0};
        r->is_any = true;
        ok = r->names[n.id].id != 0;
    }
    fb_namespace_free(names);
    return ok;
}

static fb_node stand_in(void *context, fb_node node) {
    const renaming *r = context;
    return node.id < r->limit && r->now[node.id].id ? r->now[node.id] : node;
}

/* The same node under its new name, before the old one, which goes when nothing reads it any more. */
static bool add_renamed(renaming *r, fb_node old) {
    fb_graph *graph = r->graph;
    fb_node node = fb_graph_add_node(graph, FB_MAIN_PROGRAM, r->names[old.id], old);
    if (!node.id) return false;
    const fb_node_row *from = fb_node_at(graph, old);
    fb_node_row *to = fb_node_row_at(graph, node);
    to->type = from->type;
    to->shape = from->shape;
    to->transformations = from->transformations;
    to->meta_rest = from->meta_rest;
    to->dtype = from->dtype;
    fb_graph_set_target(graph, node, (fb_opcode)from->opcode, from->target);
    r->now[old.id] = node;
    return fb_graph_set_args(graph, node, from->args, from->kwargs);
}

static bool rename_nodes(renaming *r) {
    fb_graph *graph = r->graph;
    bool ok = true;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); ok && n.id; n = fb_next_node(graph, n)) {
        if (!goes_on(r->work)) return false;
        if (n.id < r->limit && r->names[n.id].id) ok = add_renamed(r, n);
    }
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM), next; ok && n.id; n = next) {
        if (!goes_on(r->work)) return false;
        next = fb_node_at(graph, n)->next;
        if (n.id < r->limit && r->now[n.id].id) continue;
        fb_value args = fb_value_map_nodes(graph, fb_node_at(graph, n)->args, stand_in, r);
        fb_value kwargs = fb_value_map_nodes(graph, fb_node_at(graph, n)->kwargs, stand_in, r);
        ok = args.id && kwargs.id && fb_graph_set_args(graph, n, args, kwargs);
    }
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM), next; ok && n.id; n = next) {
        if (!goes_on(r->work)) return false;
        next = fb_node_at(graph, n)->next;
        if (n.id < r->limit && r->now[n.id].id) fb_graph_erase_node(graph, n);
    }
    fb_graph_number(graph);
    return ok;
}

/* A pass that is taken out lets later ones create more nodes or fewer, and so the names move on: what was `cat_5` is `cat_7` in
 * the replay, and `cat_5` is something else. This gives the nodes that passes created in `replay` the names of those in the
 * plan's result that are made of the same, and names that the result has not to all others. A node that an external pass added
 * has the name that its author gave it, and keeps it. FB_NO_MEMORY. */
static fb_status align_names(const fb_undo_plan *plan, fb_graph *replay, fb_error *error) {
    uint32_t limit = fb_node_limit(replay);
    fb_work work = {.watch = plan->watch};
    kinship theirs = {.plan = plan, .graph = replay, .work = &work},
            base = {.plan = plan, .graph = plan->result, .work = &work};
    renaming r = {.graph = replay,
                  .same = calloc(limit, sizeof *r.same),
                  .names = calloc(limit, sizeof *r.names),
                  .now = calloc(limit, sizeof *r.now),
                  .limit = limit,
                  .work = &work};
    bool ok = r.same && r.names && r.now && find_kin(&theirs) && find_kin(&base) && pair_all(&r, &theirs, &base) &&
              choose_names(&r, &theirs, &base);
    if (ok && r.is_any) ok = rename_nodes(&r);
    kinship_free(&theirs);
    kinship_free(&base);
    free(r.same);
    free(r.names);
    free(r.now);
    return ok ? FB_OK : fb_work_failed(&work, error);
}

/* A replay under way. */
typedef struct replay {
    struct replay *other; /* another one that has taken the same steps so far, and learns the meanings of this one; or NULL */
    fb_graph *graph;
    fb_namespace *names;
    meaning_table meanings;
    const fb_blobs *blobs;
    const fb_watch *watch;
    bool is_rest; /* some steps are left out */
    fb_work work; /* on the same watch */
    fb_conflicts *conflicts;
    fb_error *error;
} replay;

static bool adopt_names(fb_namespace *names, const fb_graph *graph, fb_work *work) {
    bool ok = true;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); ok && n.id; n = fb_next_node(graph, n)) {
        const char *name = fb_node_name(graph, n);
        ok = fb_work_goes_on(work, 8) && (fb_namespace_is_used(names, name) || fb_namespace_adopt(names, name));
    }
    return ok;
}

static fb_status is_same_graph(const fb_graph *a, const fb_graph *b, fb_work *work, bool *is_same, fb_error *error) {
    *is_same = fb_node_count(a) == fb_node_count(b) && fb_module_count(a) == fb_module_count(b) &&
               fb_tensor_count(a) == fb_tensor_count(b);
    if (!*is_same) return FB_OK;
    return fb_document_is_same(a, b, work, is_same) ? FB_OK : fb_work_failed(work, error);
}

/* Names of matches mean the same in another replay only where no step in between could have given them to other nodes. */
static bool has_stable_names(const fb_graph *source, const char *chosen) {
    static const char *const members[] = {"only", "except"};
    json_t *choice = fb_load_json(chosen), *name;
    bool ok = choice != NULL;
    for (size_t k = 0, i; k < 2; k++)
        json_array_foreach(json_object_get(choice, members[k]), i, name) ok &= has_node(source, json_string_value(name));
    json_decref(choice);
    return ok;
}

/* A pass whose matches were chosen by name, behind a step that is undone now: the names must be of nodes that no pass made. */
static fb_status check_choice(const fb_undo_plan *plan, size_t index, fb_error *error) {
    const fb_undo_step *step = &plan->steps[index];
    bool is_behind = false, is_later_run = false;
    if (!step->call || !step->call->chosen) return FB_OK;
    for (size_t i = 0; i <= index; i++) {
        is_behind |= plan->steps[i].is_undone;
        is_later_run |= is_behind && plan->steps[i].begins_run;
    }
    if (!is_behind || (!is_later_run && has_stable_names(plan->source, step->call->chosen))) return FB_OK;
    return fb_fail(error, FB_CONFLICT, "matches-renamed", "",
                   "%s applies some of its matches, and without the other passes their names may mean others; undo it as well",
                   step->call->pass->name);
}

static fb_status take_step(replay *r, const fb_undo_step *step) {
    fb_status status;
    if (step->call) {
        fb_pass_report report = {0};
        fb_arena arena = {0};
        fb_graph_state work = {.graph = r->graph,
                               .names = r->names,
                               .blobs = step->knew_numbers ? r->blobs : NULL,
                               .may_lack_matches = r->is_rest};
        status = fb_pass_call_run(step->call, &work, r->watch, &report, &arena, r->error);
        fb_graph_state_forget(&work);
        bool is_noted =
            status || (meanings_note(&r->meanings, &report) && (!r->other || meanings_note(&r->other->meanings, &report)));
        if (!is_noted) status = fb_fail_memory(r->error);
        fb_arena_free(&arena);
        return status;
    }
    bool is_same = false;
    fb_graph *next = NULL;
    status = is_same_graph(r->graph, step->before, &r->work, &is_same, r->error);
    if (!status && is_same && !(next = fb_graph_copy(step->after, &r->work))) status = fb_work_failed(&r->work, r->error);
    const fb_merge_facts facts = {.blobs = r->blobs, .watch = r->watch};
    if (!status && !is_same) status = fb_merge(step->before, step->after, r->graph, &facts, &next, r->conflicts, r->error);
    if (status) return status;
    fb_graph_free(r->graph);
    r->graph = next;
    return adopt_names(r->names, next, &r->work) ? FB_OK : fb_work_failed(&r->work, r->error);
}

/* ---- replays ------------------------------------------------------------------------------------------------------------ */

static fb_status begin(const fb_undo_plan *plan, replay *r) {
    r->work = (fb_work){.watch = r->watch};
    r->graph = fb_graph_copy(plan->source, &r->work);
    r->names = fb_namespace_of(plan->source, &r->work);
    return r->graph && r->names ? FB_OK : fb_work_failed(&r->work, r->error);
}

static void end(replay *r) {
    fb_graph_free(r->graph);
    fb_namespace_free(r->names);
    meanings_free(&r->meanings);
}

static fb_status begin_run(replay *r) {
    fb_namespace_free(r->names);
    r->names = fb_namespace_new(); /* the graph does not stay as it is */
    return r->names && adopt_names(r->names, r->graph, &r->work) ? FB_OK : fb_work_failed(&r->work, r->error);
}

/* The steps from `first` to `end` that are not undone, or (`is_whole`) all of them. */
static fb_status run_steps(const fb_undo_plan *plan, size_t first, size_t end, bool is_whole, replay *r) {
    fb_status status = FB_OK;
    r->is_rest = !is_whole;
    for (size_t i = first; i < end && !status; i++) {
        const fb_undo_step *step = &plan->steps[i];
        fb_watch_begins(plan->watch, step->call ? step->call->pass->name : "external", i, plan->step_count);
        status = fb_watch_check(plan->watch, r->error);
        if (!status && step->begins_run) status = begin_run(r);
        if (!status && !is_whole && !step->is_undone) status = check_choice(plan, i, r->error);
        if (!status && (is_whole || !step->is_undone)) status = take_step(r, step);
    }
    return status;
}

/* Goes on from the step `first`. */
static fb_status replay_rest(const fb_undo_plan *plan, size_t first, replay *r, fb_graph **out) {
    fb_status status = run_steps(plan, first, plan->step_count, false, r);
    if (!status) status = fb_lint_graph(r->graph, &r->work, r->error);
    if (!status) {
        *out = r->graph;
        r->graph = NULL;
    }
    return status;
}

/* All steps, and those that are not undone, as far as the lint: both begin with what comes before the first undone one, which
 * is run once. `whole` is done before `rest` goes on: its names are those of `rest`, and some more. */
static fb_status replay_both(const fb_undo_plan *plan, replay *whole, replay *rest, fb_graph **out, fb_error *error) {
    size_t fork = 0;
    while (fork < plan->step_count && !plan->steps[fork].is_undone) fork++;
    rest->other = whole;
    fb_status status = begin(plan, rest);
    if (!status) status = run_steps(plan, 0, fork, true, rest);
    rest->other = NULL;
    whole->work = (fb_work){.watch = plan->watch};
    if (!status) whole->graph = fb_graph_copy(rest->graph, &whole->work);
    if (whole->graph) whole->names = fb_namespace_copy(rest->names, &whole->work);
    if (!status && !whole->names) status = fb_work_failed(&whole->work, error);
    if (!status) status = run_steps(plan, fork, plan->step_count, true, whole);
    return status ? status : replay_rest(plan, fork, rest, out);
}

/* Merges the two replays; the source counts as unknown when an external pass is among the steps. */
static fb_status merge_replay(const fb_undo_plan *plan, const replay *whole, const replay *rest, const fb_graph *theirs,
                              fb_graph **out, fb_conflicts *conflicts, fb_error *error) {
    fb_buffer diverged = {0};
    meanings_compare(&whole->meanings, &rest->meanings, &diverged);
    bool is_known = true;
    for (size_t i = 0; i < plan->step_count; i++) is_known &= plan->steps[i].call != NULL;
    fb_merge_facts facts = {.source = is_known ? plan->source : NULL,
                            .blobs = plan->blobs,
                            .watch = plan->watch,
                            .diverged = (const char *const *)(const void *)diverged.data,
                            .diverged_count = diverged.size / sizeof(const char *)};
    fb_status status = diverged.failed ? fb_fail_memory(error) : FB_OK;
    if (!status) status = fb_merge(plan->result, theirs, plan->ours, &facts, out, conflicts, error);
    fb_buffer_free(&diverged);
    return status;
}

static fb_status merge_rest(const fb_undo_plan *plan, fb_graph **out, bool *is_exact, fb_conflicts *conflicts,
                            fb_error *error) {
    replay whole = {.blobs = plan->blobs, .watch = plan->watch, .conflicts = conflicts, .error = error}, rest = whole;
    fb_work work = {.watch = plan->watch};
    fb_graph *plain = NULL, *theirs = NULL, *merged = NULL;
    fb_status status = replay_both(plan, &whole, &rest, &plain, error);
    if (!status && !(theirs = fb_graph_copy(plain, &work))) status = fb_work_failed(&work, error);
    if (!status) status = fb_watch_check(plan->watch, error);
    if (!status) status = align_names(plan, theirs, error);
    if (!status) status = fb_watch_check(plan->watch, error);
    if (!status) status = merge_replay(plan, &whole, &rest, theirs, &merged, conflicts, error);
    if (!status) status = is_same_graph(merged, plain, &work, is_exact, error);
    if (status) fb_graph_free(merged);
    else *out = merged;
    fb_graph_free(theirs);
    fb_graph_free(plain);
    end(&whole);
    end(&rest);
    return status;
}

fb_status fb_undo(const fb_undo_plan *plan, fb_graph **out, bool *is_exact, fb_conflicts *conflicts, fb_error *error) {
    bool is_same = plan->ours == NULL;
    fb_work work = {.watch = plan->watch};
    fb_status status = is_same ? FB_OK : is_same_graph(plan->ours, plan->result, &work, &is_same, error);
    if (status) return status;
    if (!is_same) return merge_rest(plan, out, is_exact, conflicts, error);
    replay rest = {.blobs = plan->blobs, .watch = plan->watch, .conflicts = conflicts, .error = error};
    status = begin(plan, &rest);
    if (!status) status = replay_rest(plan, 0, &rest, out);
    end(&rest);
    if (!status) *is_exact = true;
    return status;
}
