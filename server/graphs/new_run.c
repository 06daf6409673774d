#include "server/graphs/graphs.h"

#include <string.h>

bool fb_graph_is_cached(const fb_app *app, const fb_graph_input *input) {
    fb_shared_graph *cached = fb_cache_get(app->cache, input->shared->id);
    fb_share_release(cached);
    return cached != NULL;
}

fb_status fb_new_graphs_make(fb_app *app, const fb_watch *watch, const fb_new_run *made, bool trusts_cache, fb_new_graphs *out,
                             fb_error *error) {
    const fb_graph_input *inputs[2] = {made->source, made->result};
    bool is_same = strcmp(made->run.source, made->run.result) == 0;
    fb_status status = FB_OK;
    *out = (fb_new_graphs){.ticket = fb_cache_ticket(app->cache)};
    for (size_t i = 0; i < 2 && !status; i++) {
        if ((!inputs[i]->document.size && !inputs[i]->packing) || (i == 1 && is_same)) continue;
        if (trusts_cache && fb_graph_is_cached(app, inputs[i])) continue;
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
