/* Undo on random graphs. How many, and how one is run alone: random_case.h. With FOLDBACK_RANDOM_DUMP=<folder> the graphs of
 * every case are written there.
 *
 * Every pass of a random list taken out alone, and all of them: what comes back is the run that never had them, byte for byte.
 * Then a client changes the result (client_changes.h) or trains its weights (fine_tuning.h), and some passes are undone on
 * that. Either there are conflicts, each about something that exists; or a graph that is valid, computes what the client's
 * graph computes (evaluate.h), and is the replay with the client's change where the change can be made there too.
 *
 * At the end every code of a conflict must have come up, but for `invalid`: that is what the verifier finds in a merged graph
 * when nothing else had anything against it, and no way to get there is known. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/document/document.h"
#include "core/weights/dtype.h"
#include "core/weights/inputs.h"
#include "tests/unit/evaluate.h"
#include "tests/unit/fine_tuning.h"
#include "tests/unit/movements.h"
#include "tests/unit/numbers.h"
#include "tests/unit/undo_oracle.h"

/* ---- tallies ------------------------------------------------------------------------------------------------------------- */

static struct tally {
    const char *code;
    uint64_t count;
} conflict_tallies[] = {
    {"missing-node", 0},     {"missing-module", 0},  {"renamed-node", 0},   {"changed-node", 0},
    {"changed-module", 0},   {"new-users", 0},       {"name-taken", 0},     {"path-taken", 0},
    {"not-topological", 0},  {"invalid", 0},         {"changed-tensor", 0}, {"computed", 0},
    {"constant-changed", 0}, {"copies-diverged", 0}, {"partly-moved", 0},   {"tied", 0},
};
enum { TALLIES = sizeof conflict_tallies / sizeof *conflict_tallies };

static uint64_t undone_alone, changed_cases, merged_with_edits, merged_without, conflicted, with_oracle, renamed_replays,
    bytes_compared, broken;
static uint64_t made[CHANGE_KINDS], trained;

static void ck_tallies(uint64_t cases) {
    printf("%" PRIu64 " graphs; %" PRIu64 " passes undone alone; %" PRIu64 " changed since: %" PRIu64 " merged with an edit or "
           "more, %" PRIu64 " needed none, %" PRIu64 " had conflicts; %" PRIu64 " equal the change made on the replay; "
           "%" PRIu64 " replays with other names; %" PRIu64 " tensors' bytes compared; %" PRIu64 " compute nothing\n",
           cases, undone_alone, changed_cases, merged_with_edits, merged_without, conflicted, with_oracle, renamed_replays,
           bytes_compared, broken);
    for (size_t i = 0; i < CHANGE_KINDS; i++) printf("%-24s %10" PRIu64 "\n", change_names[i], made[i]);
    printf("%-24s %10" PRIu64 "\n", "trained", trained);
    bool is_complete = true;
    for (size_t i = 0; i < TALLIES; i++) {
        const struct tally *tally = &conflict_tallies[i];
        printf("%-24s %10" PRIu64 "\n", tally->code, tally->count);
        is_complete &= tally->count > 0 || strcmp(tally->code, "invalid") == 0;
    }
    fflush(stdout);
    ck_assert_msg(cases < 1000 || merged_with_edits * 100 >= changed_cases * 30, "too few changed cases merge");
    ck_assert_msg(cases < 1000 || conflicted * 100 >= changed_cases * 10, "too few changed cases conflict");
    ck_assert_msg(cases < 10000 || is_complete, "a code never came up");
}

static void count_conflict(const random_case *c, const fb_conflict *conflict) {
    bool is_known = false;
    for (size_t i = 0; i < TALLIES; i++) {
        struct tally *tally = &conflict_tallies[i];
        if (strcmp(tally->code, conflict->code)) continue;
        tally->count++;
        is_known = true;
    }
    CK(c, is_known, "a conflict of a %s has the code %s", fb_conflict_kind_name(conflict->kind), conflict->code);
}

/* ---- on a changed one ---------------------------------------------------------------------------------------------------- */

static void check_conflicts(const undo_case *u, const json_t *ours, const fb_conflicts *conflicts) {
    const random_case *c = &u->base;
    for (size_t i = 0; i < conflicts->count; i++) {
        const fb_conflict *conflict = &conflicts->items[i];
        const char *table = conflict_tables[conflict->kind];
        CK(c, conflict->name && conflict->detail && strlen(conflict->detail) > 10, "%s without a name or a sentence",
           conflict->code);
        CK(c,
           find_row(ours, table, conflict->name, NULL) || find_row(u->changed_from, table, conflict->name, NULL) ||
               find_row(u->merge_replay, table, conflict->name, NULL),
           "%s names %s, which is nowhere: %s", conflict->code, conflict->name, conflict->detail);
        for (size_t k = 0; k < i; k++) {
            const fb_conflict *other = &conflicts->items[k];
            CK(c, other->kind != conflict->kind || strcmp(other->code, conflict->code) || strcmp(other->name, conflict->name),
               "%s of %s is there twice", conflict->code, conflict->name);
        }
    }
}

typedef struct arithmetic {
    const fb_graph *graph;
    bool is_found;
} arithmetic;

/* Whether a tensor is computed somewhere on the way from those that it is made from. */
static void look_for_arithmetic(void *context, fb_tensor tensor) {
    arithmetic *a = context;
    fb_value recipe = fb_tensor_at(a->graph, tensor)->recipe;
    fb_recipe_type type;
    a->is_found |= recipe.id && !fb_recipe_type_of(a->graph, recipe, &type, NULL) && !type.is_movement;
}

static bool is_computed(const fb_graph *graph, fb_tensor tensor) {
    arithmetic found = {.graph = graph};
    fb_inputs_walk walk;
    if (fb_inputs_begin(&walk, graph)) fb_inputs_visit(&walk, tensor, look_for_arithmetic, &found);
    if (!fb_inputs_end(&walk)) abort();
    return found.is_found;
}

/* Movements copy bytes; but sums may be taken in another order. */
static bool are_numbers(const fb_graph *graph, fb_tensor tensor, const double *expected, size_t count, const fb_buffer *bytes) {
    fb_dtype dtype = (fb_dtype)fb_tensor_at(graph, tensor)->dtype;
    fb_dtype_range range;
    if (!is_computed(graph, tensor) || !fb_dtype_limits(dtype, &range)) return false;
    double *numbers = calloc(count + 1, sizeof *numbers);
    if (!numbers) abort();
    decode_numbers(dtype, (const unsigned char *)bytes->data, count, numbers);
    bool is_close = true;
    for (size_t i = 0; i < count; i++)
        is_close &= fabs(numbers[i] - expected[i]) <= ldexp(16, -range.mantissa_bits) * (1 + fabs(expected[i]));
    free(numbers);
    return is_close;
}

static void check_bytes(const undo_case *u, const fb_graph *merged) {
    const random_case *c = &u->base;
    for (fb_tensor t = fb_first_tensor(merged); t.id; t = fb_tensor_at(merged, t)->next) {
        const fb_tensor_row *row = fb_tensor_at(merged, t);
        fb_dtype dtype = (fb_dtype)row->dtype;
        fb_buffer bytes = {0}, expected = {0};
        size_t count;
        fb_error error = {0};
        if (!row->recipe.id || !has_numbers(dtype)) continue;
        fb_status status =
            evaluate_whole(merged, row->recipe, dtype, NULL, (unsigned char **)(void *)&bytes.data, &bytes.size, &error);
        if (status == FB_NOT_FOUND) continue;
        CK(c, !status, "%s does not evaluate: %s", fb_text(merged, row->name), error.message);
        double *numbers = evaluate_tensor(merged, c->seed, t, &count);
        if (numbers) encode_numbers(dtype, numbers, count, &expected);
        bool is_same = expected.size == bytes.size &&
                       (memcmp(expected.data, bytes.data, bytes.size) == 0 || are_numbers(merged, t, numbers, count, &bytes));
        CK(c, is_same, "%s has other bytes", fb_text(merged, row->name));
        bytes_compared++;
        fb_buffer_free(&expected);
        fb_buffer_free(&bytes);
        free(numbers);
    }
}

static bool has_mark(const json_t *graph, const char *node, const json_t *mark) {
    const json_t *row = find_row(graph, "nodes", node, NULL);
    const json_t *marks = json_object_get(json_object_get(row, "meta"), "transformations"), *other;
    size_t i;
    json_array_foreach(marks, i, other) {
        if (json_equal(mark, other)) return true;
    }
    return false;
}

/* What undoing takes away goes, what the client added stays, and what the client took away does not come back. */
static void check_marks(const undo_case *u, const json_t *ours, const json_t *merged) {
    const json_t *graphs[] = {u->changed_from, u->merge_replay, ours, merged}, *node, *mark;
    size_t i, k;
    json_array_foreach(json_object_get(merged, "nodes"), i, node) {
        const char *name = row_name("nodes", node);
        if (!find_row(ours, "nodes", name, NULL) || !find_row(u->changed_from, "nodes", name, NULL)) continue;
        for (int g = 0; g < 4; g++) {
            json_array_foreach(
                json_object_get(json_object_get(find_row(graphs[g], "nodes", name, NULL), "meta"), "transformations"), k,
                mark) {
                bool was = has_mark(u->changed_from, name, mark), is_undone = !has_mark(u->merge_replay, name, mark);
                bool is_expected = was ? has_mark(ours, name, mark) && !is_undone : has_mark(ours, name, mark) || !is_undone;
                CK(&u->base, has_mark(merged, name, mark) == is_expected, "%s has not the marks that it should have", name);
            }
        }
    }
}

/* How exact the numbers are: where a computed tensor was replaced by the bytes that it has, they were rounded, which the
 * reference evaluator does not do to what recipes compute. */
static double tolerance_of(const undo_case *u, const fb_graph *ours) {
    double tolerance = 1e-8;
    for (fb_tensor t = fb_first_tensor(u->result); t.id; t = fb_tensor_at(u->result, t)->next) {
        const fb_tensor_row *row = fb_tensor_at(u->result, t);
        fb_tensor now = fb_tensor_find(ours, fb_tensor_name(u->result, t));
        fb_dtype_range range;
        if (!row->recipe.id || !now.id || !fb_tensor_at(ours, now)->data.id || !is_computed(u->result, t)) continue;
        if (fb_dtype_limits((fb_dtype)row->dtype, &range)) tolerance = fmax(tolerance, ldexp(16, -range.mantissa_bits));
    }
    return tolerance;
}

/* A copy of the merged graph with the shapes that ours records. An unknown call returns what its recorded shape says: where
 * undoing took that record away, the call still returns the same. */
static fb_graph *with_recorded_shapes(const random_case *c, const fb_graph *merged, const fb_graph *ours) {
    json_t *document = json_of(c, merged), *recorded = json_of(c, ours), *node;
    size_t i;
    json_array_foreach(json_object_get(document, "nodes"), i, node) {
        json_t *meta = json_object_get(node, "meta"), *of_ours = find_row(recorded, "nodes", row_name("nodes", node), NULL);
        json_t *shape = json_object_get(json_object_get(of_ours, "meta"), "shape");
        if (shape && meta && !json_object_get(meta, "shape")) json_object_set(meta, "shape", shape);
    }
    fb_graph *graph = graph_of_json(document);
    CK(c, graph, "with the shapes of ours the merged graph is not valid");
    json_decref(document);
    json_decref(recorded);
    return graph;
}

static void check_merged(const undo_case *u, const fb_graph *ours, const fb_graph *merged, const char *changes) {
    const random_case *c = &u->base;
    fb_errors errors = {0};
    fb_graph *recorded;
    evaluation before, after, unchanged, source;
    fb_buffer why = {0};
    fb_verify(merged, &(fb_work){0}, &errors);
    CK(c, errors.total == 0, "%s: the merged graph is not valid: %s", changes, errors.items[0].message);
    fb_errors_free(&errors);
    check_round_trip(c, merged, "the merged graph");
    evaluate(ours, c->seed, &before);
    recorded = with_recorded_shapes(c, merged, ours);
    evaluate(recorded, c->seed, &after);
    fb_graph_free(recorded);
    /* Where the client's change makes PyTorch fail, or makes false what the graph says of shapes, there is nothing to be kept;
     * and where a pass left out what fails, undoing it brings that back. The
     * same where the client made a module an unknown one, of which a pass had left out a call. */
    evaluate(u->result, c->seed, &unchanged);
    evaluate(c->source, c->seed, &source);
    bool is_broken = before.unusable > unchanged.unusable || before.untrue > unchanged.untrue ||
                     source.unusable > unchanged.unusable || (after.unknown > before.unknown && after.unknown > source.unknown);
    broken += is_broken;
    evaluation_free(&unchanged);
    evaluation_free(&source);
    CK(c, is_broken || evaluations_agree(&before, &after, tolerance_of(u, ours), &why),
       "%s: merged it computes something else: %s", changes, fb_buffer_text(&why));
    evaluation_free(&before);
    evaluation_free(&after);
    check_bytes(u, merged);
}

static void describe(const undo_case *u, fb_buffer *out) {
    fb_buffer_string(out, "undone");
    for (size_t i = 0; i < u->base.composition.count; i++) {
        if (u->is_undone[i]) fb_buffer_printf(out, " %zu", i);
    }
    for (size_t i = 0; i < u->change_count; i++) {
        const client_change *change = &u->changes[i];
        fb_buffer_printf(out, "; %s %s (%s, %s, %u)", change_names[change->kind], change->name, change->other, change->fresh,
                         (unsigned)(change->choice % 12));
    }
}

/* Undoes on the changed graph and checks whatever comes out. */
static void check_changed(const undo_case *u, const json_t *document) {
    const random_case *c = &u->base;
    fb_graph *ours = graph_of_json(document);
    fb_buffer changes = {0};
    char id[FB_ID_LENGTH + 1], ours_id[FB_ID_LENGTH + 1], other_id[FB_ID_LENGTH + 1];
    describe(u, &changes);
    CK(c, ours, "%s: the changed graph is not valid", fb_buffer_text(&changes));
    id_of(c, ours, ours_id);
    id_of(c, u->result, id);
    if (strcmp(id, ours_id) == 0) { /* changed and changed back */
        fb_graph_free(ours);
        fb_buffer_free(&changes);
        return;
    }
    json_t *canonical = json_of(c, ours);
    dump("ours", ours);
    undone done = undo(u, u->is_undone, ours);
    fb_graph *oracle = changed_replay(u, canonical);
    bool has_effect = !json_equal(u->changed_from, u->merge_replay);
    changed_cases++;
    if (done.graph) {
        dump("merged", done.graph);
        id_of(c, done.graph, id);
        bool is_edited = strcmp(id, ours_id) != 0;
        *(is_edited ? &merged_with_edits : &merged_without) += 1;
        CK(c, !is_edited || has_effect, "%s: undoing nothing changes the graph", fb_buffer_text(&changes));
        check_merged(u, ours, done.graph, fb_buffer_text(&changes));
        json_t *merged = json_of(c, done.graph);
        check_marks(u, canonical, merged);
        json_decref(merged);
        if (oracle) {
            id_of(c, oracle, other_id);
            dump("expected", oracle);
            CK(c, strcmp(id, other_id) == 0 || stands_elsewhere(u, oracle, done.graph),
               "%s: the merged graph is not the replay with the same change", fb_buffer_text(&changes));
            with_oracle++;
        }
        id_of(c, u->replay, other_id);
        CK(c, done.is_exact == (strcmp(id, other_id) == 0), "%s: it is said to be %sexact", fb_buffer_text(&changes),
           done.is_exact ? "" : "not ");
    } else {
        conflicted++;
        check_conflicts(u, canonical, &done.conflicts);
        CK(c, has_effect, "%s: conflicts when nothing is undone", fb_buffer_text(&changes));
        for (size_t i = 0; i < done.conflicts.count; i++) {
            const fb_conflict *conflict = &done.conflicts.items[i];
            count_conflict(c, conflict);
            CK(c, !oracle || is_conflict_due(u, conflict), "%s: %s of %s is no conflict: %s", fb_buffer_text(&changes),
               conflict->code, conflict->name, conflict->detail);
        }
    }
    id_of(c, ours, id);
    CK(c, strcmp(id, ours_id) == 0, "the changed graph was changed");
    fb_graph_free(oracle);
    json_decref(canonical);
    fb_graph_free(ours);
    undone_free(&done);
    fb_buffer_free(&changes);
}

/* Up to four changes, each of which leaves a valid graph. */
static json_t *change_at_random(undo_case *u) {
    size_t wanted = random_once_in(&u->random, 2) ? 1 : 1 + random_below(&u->random, 4);
    json_t *graph = json_deep_copy(u->changed_from);
    for (int tries = 0; u->change_count < wanted && tries < 30; tries++) {
        client_change *change = &u->changes[u->change_count];
        json_t *changed = json_deep_copy(graph);
        fb_graph *valid = NULL;
        if (choose_change(&u->random, graph, u->source, change) && make_change(&u->base, change, &changed))
            valid = graph_of_json(changed);
        if (valid) {
            u->change_count++;
            made[change->kind]++;
            json_decref(graph);
            graph = json_incref(changed);
        }
        json_decref(changed);
        fb_graph_free(valid);
    }
    return graph;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

/* A list of passes that does something, most of the time. */
static fb_run begin_case(undo_case *u) {
    random_case *c = &u->base;
    generate_document(c->seed, &c->document);
    if (random_once_in(&u->random, 2)) { /* what tensors hold */
        json_t *document = json_loadb(c->document.data, c->document.size, 0, NULL);
        give_content(&u->random, document);
        fb_graph *graph = graph_of_json(document);
        CK(c, graph, "with contents it is not valid");
        c->document.size = 0;
        fb_document_write(graph, &c->document);
        fb_graph_free(graph);
        json_decref(document);
    }
    for (uint64_t tries = 0;; tries++) {
        size_t applied = 0;
        generate_passes(c->seed + (tries << 40), &c->passes);
        read_case(c);
        fb_run run = run_passes(c, &c->composition, c->source);
        for (size_t i = 0; i < run.count; i++) applied += run.passes[i].applied;
        if (applied || tries == 6) return run;
        fb_run_free(&run);
        fb_composition_free(&c->composition);
        fb_graph_free(c->source);
        c->passes.size = 0;
    }
}

/* One that did something, if there is one, and some of the others; but none that is irreversible, as the service refuses to
 * undo those on a changed graph. False: that leaves none. */
static bool choose_undone(undo_case *u, const fb_run *run) {
    size_t first = random_below(&u->random, run->count), count = 0;
    for (size_t i = 0; i < run->count && !run->passes[first].applied; i++) first = (first + 1) % run->count;
    for (size_t i = 0; i < run->count; i++) {
        bool is_drawn = i == first || random_once_in(&u->random, 3);
        count += u->is_undone[i] = is_drawn && u->base.composition.calls[i].pass->reversible;
    }
    return count;
}

static void run_case(uint64_t seed) {
    undo_case u = {.base = {.seed = seed}, .random = {seed ^ 0x2545f4914f6cdd1du}};
    random_case *c = &u.base;
    fb_run run = begin_case(&u);
    char id[FB_ID_LENGTH + 1], result_id[FB_ID_LENGTH + 1];
    u.result = run.result;
    u.is_undone = calloc(run.count, sizeof *u.is_undone);
    bool is_reversible = choose_undone(&u, &run);
    id_of(c, u.result, result_id);
    dump("source", c->source);
    dump("result", u.result);
    check_each_pass_alone(&u);
    undone_alone += run.count;

    u.replay = run_without(c, u.is_undone);
    dump("replay", u.replay);
    u.source = json_of(c, c->source);
    u.changed_from = json_of(c, u.result);
    check_given_result(&u);
    find_merge_replay(&u);
    renamed_replays += u.has_other_names;
    size_t how = random_below(&u.random, 8); /* changed, trained, or both */
    json_t *changed = how < 6 ? change_at_random(&u) : json_deep_copy(u.changed_from);
    u.is_trained = how >= 5 && fine_tune(c, &u.random, changed);
    trained += u.is_trained;
    if (is_reversible && (u.change_count || u.is_trained)) check_changed(&u, changed);

    id_of(c, c->source, id);
    CK(c, strcmp(id, c->source_id) == 0, "the source changed");
    id_of(c, u.result, id);
    CK(c, strcmp(id, result_id) == 0, "the result changed");
    json_decref(changed);
    json_decref(u.source);
    json_decref(u.changed_from);
    json_decref(u.merge_replay);
    fb_graph_free(u.replay);
    fb_run_free(&run);
    free(u.is_undone);
    free_case(c);
}

START_TEST(test_undo) {
    ck_tallies(run_random_cases(run_case));
}
END_TEST

int main(void) {
    return random_main("undo of random graphs", test_undo);
}
