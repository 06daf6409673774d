#include "core/bind/bind.h"

#include <stdlib.h>
#include <string.h>

#include "core/bind/bind_internal.h"
#include "core/graph/slot.h"
#include "core/rewrite/journal.h"
#include "core/weights/evaluate.h"
#include "core/weights/inputs.h"
#include "core/weights/weights_source.h"

typedef struct change {
    fb_binder *b;
    fb_journal journal;
    fb_buffer order;    /* every tensor, inputs first */
    bool *is_changed;   /* by tensor: it has other bytes than before, or may have */
    bool reads_changed; /* the recipe in hand reads one of these */
    bool *is_needed;    /* by tensor: a module owns it, or a recipe of such a one reads it */
    bool *is_demanded;  /* by tensor: the same of what a checkpoint has */
} change;

/* ---- one tensor --------------------------------------------------------------------------------------------------------- */

/* The row to write to, without its bytes and without its digest; NULL when memory is out. */
static fb_tensor_row *empty_row(change *c, fb_tensor tensor) {
    if (!fb_journal_tensor(&c->journal, tensor)) return NULL;
    fb_tensor_row *row = fb_tensor_row_at(c->b->graph, tensor);
    row->blob = row->data = row->digest = (fb_symbol){0};
    row->recipe = (fb_value){0};
    row->offset = 0;
    return row;
}

/* Gives back the digest `was` if the tensor's bytes have it, as far as these can be known. */
static fb_status restore_digest(change *c, fb_tensor tensor, fb_symbol was) {
    const fb_binder *b = c->b;
    char digest[FB_ID_LENGTH + 1];
    fb_error error = {0};
    fb_status status = fb_evaluation_digest(b->graph, tensor, b->blobs, digest, &error);
    if (status && status != FB_NOT_FOUND) return fb_fail(b->error, status, error.code, error.pointer, "%s", error.message);
    if (status || strcmp(digest, fb_text(b->graph, was)) == 0) fb_tensor_row_at(b->graph, tensor)->digest = was;
    return FB_OK;
}

static bool is_of_file(const fb_binder *b, const fb_tensor_row *row, const fb_given *given) {
    return row->blob.id && row->offset == (int64_t)given->entry->offset &&
           strcmp(fb_text(b->graph, row->blob), b->files[given->file].blob) == 0;
}

static fb_status take_bytes(change *c, fb_tensor tensor, const fb_given *given) {
    fb_binder *b = c->b;
    const fb_tensor_row *old = fb_tensor_at(b->graph, tensor);
    fb_symbol digest = old->digest, blob = fb_intern(b->graph, b->files[given->file].blob);
    bool had_bytes = old->blob.id || old->data.id || old->recipe.id;
    fb_tensor_row *row = blob.id ? empty_row(c, tensor) : NULL;
    if (!row) return fb_fail_memory(b->error);
    row->blob = blob;
    row->offset = (int64_t)given->entry->offset;
    fb_status status = digest.id ? restore_digest(c, tensor, digest) : FB_OK;
    c->is_changed[tensor.id] = !digest.id || !row->digest.id;
    if (!status && digest.id && !row->digest.id && !had_bytes)
        status = fb_bind_mismatch(b, given->entry->name, given, tensor, "the graph says that its digest is %s",
                                  fb_text(b->graph, digest));
    return status;
}

static void look_for_changed(void *context, fb_tensor tensor) {
    change *c = context;
    c->reads_changed |= c->is_changed[tensor.id];
}

/* Inputs come first, so that what a recipe makes is known when it is compared. */
static fb_status change_tensor(change *c, fb_tensor tensor) {
    fb_binder *b = c->b;
    const fb_tensor_row *row = fb_tensor_at(b->graph, tensor);
    const fb_given *given = b->of_tensor[tensor.id] ? &b->given[b->of_tensor[tensor.id] - 1] : NULL;
    bool same = !given, has_bytes = row->blob.id || row->recipe.id; /* inline data gives way */
    if (given ? is_of_file(b, row, given) : !row->recipe.id) return FB_OK;
    fb_status status = given && has_bytes ? fb_bind_has_already(b, tensor, given, &same) : FB_OK;
    if (status) return status;
    if (!same) return take_bytes(c, tensor, given);
    if (!row->recipe.id) return FB_OK;
    c->reads_changed = false;
    fb_value_visit_tensors(b->graph, row->recipe, look_for_changed, c);
    c->is_changed[tensor.id] = c->reads_changed;
    if (!c->reads_changed || !row->digest.id) return FB_OK;
    fb_symbol digest = row->digest;
    if (!fb_journal_tensor(&c->journal, tensor)) return fb_fail_memory(b->error);
    fb_tensor_row_at(b->graph, tensor)->digest = (fb_symbol){0};
    return restore_digest(c, tensor, digest);
}

/* ---- all of them -------------------------------------------------------------------------------------------------------- */

static void append(void *context, fb_tensor tensor) {
    fb_buffer_append(&((change *)context)->order, &tensor, sizeof tensor);
}

static bool find_order(change *c) {
    const fb_graph *graph = c->b->graph;
    fb_inputs_walk walk;
    if (fb_inputs_begin(&walk, graph)) {
        for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) fb_inputs_visit(&walk, t, append, c);
    }
    return fb_inputs_end(&walk) && !c->order.failed;
}

/* Marks the tensors that are still needed: not the inputs of a recipe that bytes have replaced. */
static bool find_needed(change *c) {
    const fb_graph *graph = c->b->graph;
    fb_inputs_walk needed, demanded;
    fb_slot slot;
    bool ok = fb_inputs_begin(&needed, graph);
    ok &= fb_inputs_begin(&demanded, graph);
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(graph, &cursor, &slot);) {
        fb_inputs_visit(&needed, slot.tensor, fb_mark_tensor, c->is_needed);
        if (fb_slot_is_persistent(graph, &slot)) fb_inputs_visit(&demanded, slot.tensor, fb_mark_tensor, c->is_demanded);
    }
    ok &= fb_inputs_end(&needed);
    ok &= fb_inputs_end(&demanded);
    return ok;
}

static fb_status report(change *c) {
    fb_binder *b = c->b;
    for (fb_tensor t = fb_first_tensor(b->graph); t.id; t = fb_tensor_at(b->graph, t)->next) {
        const fb_tensor_row *row = fb_tensor_at(b->graph, t);
        bool is_told = row->blob.id || row->data.id || row->recipe.id || b->is_mismatching[t.id];
        b->binding->bound += b->of_tensor[t.id] && c->is_needed[t.id];
        if (!c->is_demanded[t.id] || is_told) continue;
        if (json_array_append_new(b->binding->missing, json_string(fb_tensor_name(b->graph, t))))
            return fb_fail_memory(b->error);
    }
    return FB_OK;
}

static void drop_unneeded(change *c) {
    fb_graph *graph = c->b->graph;
    for (fb_tensor t = fb_first_tensor(graph), next; t.id; t = next) {
        next = fb_tensor_at(graph, t)->next;
        if (!c->is_needed[t.id]) fb_graph_erase_tensor(graph, t);
    }
}

static fb_status change_graph(fb_binder *b) {
    change c = {.b = b};
    if (!fb_journal_begin(&c.journal, b->graph)) return fb_fail_memory(b->error);
    c.is_changed = calloc(fb_tensor_limit(b->graph), sizeof *c.is_changed);
    c.is_needed = calloc(fb_tensor_limit(b->graph), sizeof *c.is_needed);
    c.is_demanded = calloc(fb_tensor_limit(b->graph), sizeof *c.is_demanded);
    fb_status status = c.is_changed && c.is_needed && c.is_demanded && find_order(&c) ? FB_OK : fb_fail_memory(b->error);
    const fb_tensor *order = (const fb_tensor *)(const void *)c.order.data;
    for (size_t i = 0; i < c.order.size / sizeof *order && !status; i++) status = change_tensor(&c, order[i]);
    if (!status && !find_needed(&c)) status = fb_fail_memory(b->error);
    if (!status) status = report(&c);
    if (status || json_array_size(b->binding->mismatching)) fb_journal_undo(&c.journal);
    else drop_unneeded(&c);
    fb_journal_free(&c.journal);
    fb_buffer_free(&c.order);
    free(c.is_changed);
    free(c.is_needed);
    free(c.is_demanded);
    return status;
}

static bool is_from(const fb_graph *graph, const fb_slot *slot, const char *blob, const bool *is_owned) {
    const fb_tensor_row *row = fb_tensor_at(graph, slot->tensor);
    if (row->blob.id) return strcmp(fb_text(graph, row->blob), blob) == 0;
    return row->recipe.id ? !fb_tensor_is_made(graph, slot->tensor, is_owned) : !fb_slot_is_persistent(graph, slot);
}

/* Finds out if all weights of the graph's checkpoint come from that file. */
static fb_status is_all_from(const fb_graph *graph, const char *blob, bool *is_all, fb_error *error) {
    fb_slot slot;
    bool *is_owned = fb_owned_tensors(graph);
    *is_all = is_owned != NULL;
    for (fb_slot_cursor cursor = {0}; *is_all && fb_slot_next(graph, &cursor, &slot);)
        *is_all = is_from(graph, &slot, blob, is_owned);
    if (!is_owned) return fb_fail_memory(error);
    free(is_owned);
    return FB_OK;
}

/* The one file that is not an index; NULL: there are more, or none. */
static const char *find_single(const fb_binder *b) {
    const char *single = NULL;
    for (size_t i = 0; i < b->file_count; i++) {
        if (b->files[i].is_index) continue;
        if (single) return NULL;
        single = b->files[i].blob;
    }
    return single;
}

/* So that weights_file.c knows this file again, though it has more than the graph. */
static fb_status note_extra(fb_binder *b) {
    const char *blob = find_single(b);
    size_t count = json_array_size(b->binding->extra);
    bool is_all = false;
    fb_status status = blob ? is_all_from(b->graph, blob, &is_all, b->error) : FB_OK;
    if (status || !is_all) return status;
    const char **names = malloc((count + 1) * sizeof *names);
    for (size_t i = 0; names && i < count; i++) names[i] = json_string_value(json_array_get(b->binding->extra, i));
    bool ok = names && fb_weights_note_extra(b->graph, blob, names, count);
    free(names);
    return ok ? FB_OK : fb_fail_memory(b->error);
}

/* Names that are the graph's, bound or mismatching. */
static size_t count_known(const fb_binder *b) {
    size_t known = 0;
    for (size_t i = 0; i < b->given_count; i++) known += b->given[i].by_name.id || b->given[i].by_path.id;
    return known;
}

static fb_status judge_names(fb_binder *b) {
    size_t known = count_known(b);
    b->binding->fits_nothing = !known && b->given_count;
    return known < b->given_count ? fb_bind_suggest_prefix(b, known) : FB_OK;
}

fb_status fb_bind(fb_graph *graph, const char *const *files, size_t count, const fb_blobs *blobs,
                  const fb_bind_options *options, fb_binding *binding, fb_error *error) {
    fb_binding made = {.missing = json_array(), .extra = json_array(), .mismatching = json_array()};
    fb_binder b = {.graph = graph, .blobs = blobs, .binding = &made, .error = error};
    if (options) b.options = *options;
    b.of_tensor = calloc(fb_tensor_limit(graph), sizeof *b.of_tensor);
    b.is_mismatching = calloc(fb_tensor_limit(graph), sizeof *b.is_mismatching);
    bool ok = made.missing && made.extra && made.mismatching && b.of_tensor && b.is_mismatching;
    fb_status status = ok ? fb_bind_open(&b, files, count) : fb_fail_memory(error);
    if (!status) status = fb_bind_check_files(&b);
    if (!status) status = fb_bind_apply_prefix(&b);
    if (!status) status = fb_bind_choose(&b);
    if (!status) status = judge_names(&b);
    if (!status) status = change_graph(&b);
    if (!status && !json_array_size(made.mismatching)) status = note_extra(&b);
    fb_bind_close(&b);
    fb_arena_free(&b.arena);
    free(b.of_tensor);
    free(b.is_mismatching);
    if (status) fb_binding_free(&made);
    else *binding = made;
    return status;
}

void fb_binding_free(fb_binding *binding) {
    json_decref(binding->missing);
    json_decref(binding->extra);
    json_decref(binding->mismatching);
    free(binding->prefix);
    *binding = (fb_binding){0};
}
