#include "tests/unit/undo_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/build.h"

undone undo(const undo_case *u, const bool *is_undone, const fb_graph *ours) {
    const random_case *c = &u->base;
    undone out = {0};
    fb_error error = {0};
    fb_undo_step *steps = calloc(c->composition.count, sizeof *steps);
    for (size_t i = 0; i < c->composition.count; i++) {
        steps[i] = (fb_undo_step){.call = &c->composition.calls[i], .is_undone = is_undone[i]};
    }
    fb_undo_plan plan = {
        .source = c->source, .steps = steps, .step_count = c->composition.count, .result = u->result, .ours = ours};
    fb_status status = fb_undo(&plan, &out.graph, &out.is_exact, &out.conflicts, &error);
    free(steps);
    CK(c, status == FB_OK || (status == FB_CONFLICT && strcmp(error.code, "conflict") == 0), "undo fails: %s: %s", error.code,
       error.message);
    CK(c, (status == FB_CONFLICT) == (out.conflicts.count > 0), "a status that does not fit %zu conflicts",
       out.conflicts.count);
    return out;
}

void undone_free(undone *done) {
    fb_graph_free(done->graph);
    fb_conflicts_free(&done->conflicts);
}

void dump(const char *name, const fb_graph *graph) {
    const char *folder = getenv("FOLDBACK_RANDOM_DUMP");
    fb_buffer bytes = {0}, path = {0};
    if (!folder) return;
    fb_document_write(graph, &bytes);
    fb_buffer_printf(&path, "%s/%s.json", folder, name);
    FILE *file = fopen(fb_buffer_text(&path), "w");
    if (!file || fwrite(bytes.data, 1, bytes.size, file) != bytes.size || fclose(file)) abort();
    fb_buffer_free(&bytes);
    fb_buffer_free(&path);
}

/* ---- on the unchanged result --------------------------------------------------------------------------------------------- */

static void check_undone(const undo_case *u, const bool *is_undone) {
    const random_case *c = &u->base;
    char id[FB_ID_LENGTH + 1], expected[FB_ID_LENGTH + 1];
    fb_graph *fresh = run_without(c, is_undone);
    undone done = undo(u, is_undone, NULL);
    CK(c, done.graph, "conflicts on an unchanged result");
    id_of(c, fresh, expected);
    id_of(c, done.graph, id);
    CK(c, strcmp(id, expected) == 0 && done.is_exact, "undone it is not what a run without those passes makes");
    undone_free(&done);
    fb_graph_free(fresh);
}

void check_each_pass_alone(const undo_case *u) {
    const random_case *c = &u->base;
    size_t count = c->composition.count;
    bool *is_undone = calloc(count, sizeof *is_undone);
    for (size_t i = 0; i < count; i++) {
        is_undone[i] = true;
        check_undone(u, is_undone);
        is_undone[i] = false;
    }
    for (size_t i = 0; i < count; i++) is_undone[i] = true;
    undone done = undo(u, is_undone, NULL);
    char id[FB_ID_LENGTH + 1];
    CK(c, done.graph, "conflicts on an unchanged result");
    id_of(c, done.graph, id);
    CK(c, strcmp(id, c->source_id) == 0 && done.is_exact, "all passes undone, and it is not the source");
    undone_free(&done);
    free(is_undone);
}

void check_given_result(undo_case *u) {
    const random_case *c = &u->base;
    char id[FB_ID_LENGTH + 1], expected[FB_ID_LENGTH + 1];
    undone done = undo(u, u->is_undone, u->result);
    CK(c, done.graph && done.is_exact, "conflicts on an unchanged result");
    id_of(c, done.graph, id);
    id_of(c, u->replay, expected);
    CK(c, strcmp(id, expected) == 0, "undone on the result as it is, it is not the replay");
    undone_free(&done);
}

static void call_by_places(json_t *document) {
    json_t *node;
    size_t i;
    json_array_foreach(json_object_get(document, "nodes"), i, node) {
        char name[32];
        snprintf(name, sizeof name, "$%zu", i);
        rename_in_document(document, row_name("nodes", node), name);
    }
}

void find_merge_replay(undo_case *u) {
    const random_case *c = &u->base;
    char id[FB_ID_LENGTH + 1], plain_id[FB_ID_LENGTH + 1];
    fb_graph *ours = fb_graph_copy(u->result, &(fb_work){0});
    fb_graph_set_name(ours, fb_intern(ours, "changed since"));
    undone done = undo(u, u->is_undone, ours);
    CK(c, done.graph, "the graph has another name: that is no conflict (%s of %s)", done.conflicts.items[0].code,
       done.conflicts.items[0].name);
    CK(c, strcmp(fb_graph_name(done.graph), "changed since") == 0, "the client's name of the graph is lost");
    fb_graph_set_name(done.graph, fb_intern(done.graph, fb_graph_name(u->result)));
    dump("merge-replay", done.graph);
    u->merge_replay = json_of(c, done.graph);
    id_of(c, done.graph, id);
    id_of(c, u->replay, plain_id);
    if (strcmp(id, plain_id)) {
        json_t *merged = json_deep_copy(u->merge_replay), *plain = json_of(c, u->replay);
        call_by_places(merged);
        call_by_places(plain);
        CK(c, json_equal(merged, plain), "the replay of a merge differs from the plain one by more than nodes' names");
        json_decref(merged);
        json_decref(plain);
        u->has_other_names = true;
    }
    fb_graph_free(ours);
    undone_free(&done);
}
