#include "server/graphs/graphs.h"

#include <stdlib.h>
#include <string.h>

#include "server/metrics/metrics.h"
#include "server/store/blobs.h"

fb_status fb_graph_input_take(fb_graph *graph, const fb_watch *watch, fb_graph_input *out, fb_error *error) {
    fb_graph_input input = {0};
    fb_work work = {.watch = watch};
    char id[FB_ID_LENGTH + 1];
    if (fb_document_write_marked(graph, &work, &input.document, &input.left_out, id))
        input.shared = fb_share_take(graph, id, input.document.size);
    else fb_graph_free(graph);
    if (input.shared) {
        *out = input;
        return FB_OK;
    }
    fb_buffer_free(&input.document);
    fb_buffer_free(&input.left_out);
    return fb_work_failed(&work, error);
}

/* ---- packing ---- */

/* Is it in the cache, and so in the store? */
static bool is_cached(const fb_app *app, const fb_graph_input *input) {
    fb_shared_graph *cached = fb_cache_get(app->cache, input->shared->id);
    fb_share_release(cached);
    return cached != NULL;
}

#define PACKED_FROM ((size_t)1 << 20) /* bytes that are worth a thread */

static void leave(fb_packing *packing) {
    if (!atomic_exchange(&packing->is_left, true)) return;
    fb_buffer_free(&packing->document);
    fb_buffer_free(&packing->left_out);
    free(packing->frame);
    free(packing);
}

static void *pack(void *argument) {
    fb_packing *p = argument;
    bool ok = fb_document_structure_of(&p->document, &p->left_out, &(fb_work){0}, p->structure);
    p->status = ok ? fb_store_pack(p->level, &p->document, &p->frame, &p->frame_size, &p->error) : fb_fail_memory(&p->error);
    fb_buffer_free(&p->document);
    leave(p);
    return NULL;
}

void fb_graph_input_pack(const fb_app *app, fb_graph_input *input) {
    bool is_worth_it = input->document.size >= PACKED_FROM && !is_cached(app, input);
    fb_packing *packing = is_worth_it ? calloc(1, sizeof *packing) : NULL;
    if (!packing) return;
    packing->document = input->document;
    packing->left_out = input->left_out;
    packing->size = input->document.size;
    packing->level = fb_store_level(app->store);
    if (pthread_create(&packing->thread, NULL, pack, packing)) {
        free(packing);
        return;
    }
    input->document = input->left_out = (fb_buffer){0};
    input->packing = packing;
}

static fb_status finish_packing(fb_packing *packing, fb_graph_row *row, fb_error *error) {
    if (!packing->is_joined) pthread_join(packing->thread, NULL);
    packing->is_joined = true;
    row->graph.frame = packing->frame;
    row->graph.frame_size = packing->frame_size;
    row->graph.size = packing->size;
    memcpy(row->structure, packing->structure, sizeof row->structure);
    if (packing->status) *error = packing->error;
    return packing->status;
}

void fb_graph_input_free(fb_graph_input *input) {
    if (input->packing && !input->packing->is_joined) pthread_detach(input->packing->thread);
    if (input->packing) leave(input->packing);
    fb_share_release(input->shared);
    fb_buffer_free(&input->document);
    fb_buffer_free(&input->left_out);
    *input = (fb_graph_input){0};
}

/* ---- from the store ---- */

/* A stored document was checked when it came, or made by a pass: one that cannot be read is damage. Limits may have been
 * lowered since. */
static fb_status read_stored(const char *document, size_t size, const fb_watch *watch, fb_graph **out, fb_error *error) {
    const fb_document_limits stored = {
        .max_bytes = (size_t)4 << 30, .max_nodes = UINT32_MAX, .max_nesting = 1000, .watch = watch};
    fb_errors errors = {.limit = 1};
    fb_timing_enter(FB_TIMING_PARSE);
    fb_status status = fb_document_read(document, size, &stored, "", out, &errors);
    fb_timing_leave();
    bool is_stopped = status == FB_BUSY && errors.count;
    if (status == FB_NO_MEMORY) fb_fail_memory(error);
    else if (is_stopped) fb_fail(error, FB_BUSY, errors.items[0].code, "", "%s", errors.items[0].message);
    else if (status)
        fb_fail(error, FB_IO, "store-corrupt", "", "a stored document cannot be read: %s",
                errors.count ? errors.items[0].message : "");
    fb_errors_free(&errors);
    return status == FB_OK || status == FB_NO_MEMORY || is_stopped ? status : FB_IO;
}

/* Another replica may have deleted a graph that is still in this one's cache. */
static fb_status check_stored(const fb_app *app, const char *id, fb_error *error) {
    fb_store_summary summary;
    if (!fb_store_is_shared(app->store)) return FB_OK;
    fb_status status = fb_store_get_graph(app->store, id, &summary, error);
    if (!status) FB_STORE_FREE(&summary);
    else if (status == FB_NOT_FOUND) fb_cache_drop(app->cache, id);
    return status;
}

fb_status fb_load_graph(const fb_app *app, const fb_watch *watch, const char *id, fb_shared_graph **out, fb_error *error) {
    fb_shared_graph *shared = fb_cache_get(app->cache, id);
    if (shared) {
        fb_status gone = check_stored(app, id, error);
        if (gone) fb_share_release(shared);
        else *out = shared;
        return gone;
    }
    char *document = NULL;
    size_t size = 0;
    fb_graph *graph = NULL;
    uint64_t ticket = fb_cache_ticket(app->cache);
    fb_status status = fb_store_get_document(app->store, id, &document, &size, error);
    if (!status) status = read_stored(document, size, watch, &graph, error);
    if (!status && !(shared = fb_share_take(graph, id, size))) status = fb_fail_memory(error);
    free(document);
    if (status) return status;
    fb_cache_put(app->cache, shared, ticket);
    *out = shared;
    return FB_OK;
}

static void release(void *shared) {
    fb_share_release(shared);
}

fb_status fb_load_document(const fb_app *app, const char *id, fb_loaded_document *out, fb_error *error) {
    fb_shared_graph *shared = fb_cache_get(app->cache, id);
    const fb_buffer *kept = shared ? fb_share_document(shared) : NULL;
    char *bytes = NULL;
    size_t size = 0;
    fb_status status = kept ? check_stored(app, id, error) : fb_store_get_document(app->store, id, &bytes, &size, error);
    if (!status && shared && !kept && !(kept = fb_share_document_take(shared, bytes, size))) status = fb_fail_memory(error);
    if (status) fb_share_release(shared);
    else if (kept) *out = (fb_loaded_document){kept->data, kept->size, release, shared};
    else *out = (fb_loaded_document){bytes, size, free, bytes};
    return status;
}

/* ---- to the store ---- */

static const fb_value_row *marks_of(const fb_graph *graph, fb_node node) {
    fb_value marks = fb_node_at(graph, node)->transformations;
    return marks.id ? fb_value_at(graph, marks) : NULL;
}

static fb_status list_marks(const fb_graph *graph, fb_work *work, fb_graph_row *row, fb_error *error) {
    size_t count = 0;
    fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM);
    for (; n.id && fb_work_goes_on(work, 4); n = fb_node_at(graph, n)->next) {
        const fb_value_row *marks = marks_of(graph, n);
        count += marks ? marks->count : 0;
    }
    if (n.id) return fb_work_status(work, error);
    row->marks = calloc(count + 1, sizeof *row->marks);
    if (!row->marks) return fb_fail_memory(error);
    uint32_t position = 0;
    n = fb_first_node(graph, FB_MAIN_PROGRAM);
    for (; n.id && fb_work_goes_on(work, 8); n = fb_node_at(graph, n)->next, position++) {
        const fb_value_row *marks = marks_of(graph, n);
        for (uint32_t i = 0; marks && i < marks->count; i++) {
            const char *signature = fb_value_text(graph, marks->items[i]);
            row->marks[row->graph.mark_count++] =
                (fb_store_mark){.node = position, .name = fb_node_name(graph, n), .signature = signature};
        }
    }
    row->graph.marks = row->marks;
    return fb_work_status(work, error);
}

fb_status fb_graph_row_make(const fb_graph_input *input, const fb_watch *watch, fb_graph_row *out, fb_error *error) {
    fb_work work = {.watch = watch};
    const fb_graph *graph = input->shared->graph;
    *out = (fb_graph_row){.graph = {.id = input->shared->id,
                                    .structure = out->structure,
                                    .name = fb_graph_name(graph),
                                    .node_count = (uint32_t)fb_node_count(graph),
                                    .document = input->document.data,
                                    .size = input->document.size}};
    fb_status status = FB_OK;
    if (input->packing) status = finish_packing(input->packing, out, error);
    else if (!fb_document_structure_of(&input->document, &input->left_out, &work, out->structure))
        status = fb_work_failed(&work, error);
    if (!status) status = list_marks(graph, &work, out, error);
    if (!status) status = fb_list_blobs(graph, &out->blobs, &out->graph.blob_count, error);
    out->graph.blobs = out->blobs;
    return status;
}

void fb_graph_row_free(fb_graph_row *row) {
    free(row->marks);
    free(row->blobs);
    row->marks = NULL;
    row->blobs = NULL;
}

/* ---- the graphs of a new run ---- */

fb_status fb_new_graphs_make(fb_app *app, const fb_watch *watch, const fb_new_run *made, bool trusts_cache, fb_new_graphs *out,
                             fb_error *error) {
    const fb_graph_input *inputs[2] = {made->source, made->result};
    bool is_same = strcmp(made->run.source, made->run.result) == 0;
    fb_status status = FB_OK;
    *out = (fb_new_graphs){.ticket = fb_cache_ticket(app->cache)};
    for (size_t i = 0; i < 2 && !status; i++) {
        if ((!inputs[i]->document.size && !inputs[i]->packing) || (i == 1 && is_same)) continue;
        if (trusts_cache && is_cached(app, inputs[i])) continue;
        fb_graph_row *row = &out->rows[out->count];
        status = fb_graph_row_make(inputs[i], watch, row, error);
        out->graphs[out->count++] = row->graph;
    }
    return status;
}

void fb_new_graphs_free(fb_app *app, const fb_new_run *made, bool is_stored, fb_new_graphs *graphs) {
    const fb_graph_input *inputs[2] = {made->source, made->result};
    for (size_t i = 0; i < 2; i++) {
        if (is_stored && inputs[i]->shared) fb_cache_put(app->cache, inputs[i]->shared, graphs->ticket);
        fb_graph_row_free(&graphs->rows[i]);
    }
}
