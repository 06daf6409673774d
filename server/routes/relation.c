#include "server/routes/relation.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIGNATURES_MAX 1000 /* what one list of runs takes */
#define CANDIDATES_MAX 100  /* runs with a signature of the graph, the newest; of these the marks are compared */

static bool has_mark(const fb_graph *graph, const char *name, const char *signature) {
    fb_node node = fb_node_find(graph, FB_MAIN_PROGRAM, name);
    fb_value marks = node.id ? fb_node_at(graph, node)->transformations : (fb_value){0};
    const fb_value_row *row = marks.id ? fb_value_at(graph, marks) : NULL;
    for (uint32_t i = 0; row && i < row->count; i++) {
        const char *text = fb_value_text(graph, row->items[i]);
        if (text && strcmp(text, signature) == 0) return true;
    }
    return false;
}

fb_status fb_graph_carries_marks(const fb_graph *graph, const fb_store_run *run, bool *carries, fb_error *error) {
    json_t *report = json_loads(run->report, 0, NULL);
    if (!report) return fb_fail_memory(error);
    size_t i, j;
    json_t *pass, *node;
    bool is_found = false;
    json_array_foreach(report, i, pass) {
        const char *signature = json_string_value(json_object_get(pass, "signature"));
        json_array_foreach(json_object_get(pass, "nodes"), j, node) {
            if (is_found) break;
            is_found = signature && has_mark(graph, json_string_value(node), signature);
        }
    }
    json_decref(report);
    *carries = is_found;
    return FB_OK;
}

/* ---- by result ---------------------------------------------------------------------------------------------------------- */

fb_status fb_find_runs_by_result(fb_store *store, const char *id, bool is_whole, fb_related_runs *out, fb_error *error) {
    fb_store_runs runs;
    fb_store_run_filter filter = {.result = id, .kind = "optimize"};
    fb_status status = fb_store_list_runs(store, &filter, &(fb_store_page){.limit = FB_PAGE_MAX}, false, &runs, error);
    if (status) return status;
    const fb_store_run *kept[FB_RELATED_MAX];
    *out = (fb_related_runs){0};
    for (size_t i = 0; i < runs.count && out->count < FB_RELATED_MAX; i++) {
        const fb_store_run *run = &runs.items[i];
        bool is_repetition = false;
        if (!strcmp(run->source, run->result)) continue;
        for (size_t j = 0; j < out->count; j++)
            is_repetition |= !strcmp(kept[j]->source, run->source) && (is_whole || !strcmp(kept[j]->signature, run->signature));
        if (is_repetition) continue;
        kept[out->count] = run;
        memcpy(out->ids[out->count++], run->id, sizeof run->id);
    }
    fb_store_runs_free(&runs);
    return FB_OK;
}

/* ---- by marks ----------------------------------------------------------------------------------------------------------- */

typedef struct signature_list {
    const char *items[SIGNATURES_MAX];
    size_t count;
} signature_list;

static void add_signature(signature_list *list, const char *signature) {
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i], signature) == 0) return;
    }
    if (list->count < SIGNATURES_MAX) list->items[list->count++] = signature;
}

static void list_signatures(const fb_graph *graph, signature_list *list) {
    fb_value last = {0}; /* neighbours mostly have the same marks, and equal lists have one id */
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_node_at(graph, n)->next) {
        fb_value marks = fb_node_at(graph, n)->transformations;
        if (!marks.id || marks.id == last.id) continue;
        last = marks;
        const fb_value_row *row = fb_value_at(graph, marks);
        for (uint32_t i = 0; i < row->count; i++) add_signature(list, fb_value_text(graph, row->items[i]));
    }
}

fb_status fb_find_runs_by_marks(fb_store *store, const fb_graph *graph, fb_related_runs *out, fb_error *error) {
    *out = (fb_related_runs){0};
    signature_list *signatures = calloc(1, sizeof *signatures);
    if (!signatures) return fb_fail_memory(error);
    list_signatures(graph, signatures);
    fb_store_runs runs = {0};
    fb_store_run_filter filter = {.kind = "optimize", .signatures = signatures->items, .signature_count = signatures->count};
    fb_status status = FB_OK;
    if (signatures->count)
        status = fb_store_list_runs(store, &filter, &(fb_store_page){.limit = CANDIDATES_MAX}, true, &runs, error);
    for (size_t i = 0; i < runs.count && !status && out->count < FB_RELATED_MAX; i++) {
        bool carries = false;
        status = fb_graph_carries_marks(graph, &runs.items[i], &carries, error);
        if (carries) memcpy(out->ids[out->count++], runs.items[i].id, sizeof runs.items[i].id);
    }
    fb_store_runs_free(&runs);
    free(signatures);
    return status;
}
