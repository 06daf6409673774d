/* The files of a changed graph's model: what was not touched are ranges of the old one, new weights are evaluated while a file
 * is read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/archive/parts.h"
#include "core/document/document.h"
#include "core/onnx/rewrite.h"

#define MOST_IN_MODEL ((uint64_t)1 << 31) /* bytes: no library reads a larger message */

struct onnx_written {
    fb_graph *graph; /* a copy, for expressions over its tensors */
    onnx_pieces pieces;
    fb_parts model, data;
    char *data_name; /* NULL: it has no new file */
};

void onnx_written_free(onnx_written *written) {
    if (!written) return;
    fb_parts_free(&written->model);
    fb_parts_free(&written->data);
    onnx_pieces_free(&written->pieces);
    free(written->data_name);
    fb_graph_free(written->graph);
    free(written);
}

uint64_t onnx_written_size(const onnx_written *written, bool is_data) {
    return is_data ? written->data.size : written->model.size;
}

const char *onnx_written_data_name(const onnx_written *written) {
    return written->data.size ? written->data_name : NULL;
}

fb_status onnx_written_read(onnx_written *written, bool is_data, uint64_t offset, void *to, size_t size, fb_error *error) {
    return fb_parts_read(is_data ? &written->data : &written->model, offset, to, size, error);
}

/* ---- parts --------------------------------------------------------------------------------------------------------------- */

/* The hole of a new tensor has the address of what is known of it. */
static bool list_parts(onnx_writer *w, onnx_written *out) {
    fb_map added = {0};
    size_t at = 0;
    for (const onnx_new_tensor *t = w->tensors; t && !w->status; t = t->next) {
        if (t->is_external) w->status = fb_parts_add(&out->data, (fb_part){.tensor = t->tensor, .size = t->size}, w->error);
        else if (!fb_map_put(&added, (uint64_t)(uintptr_t)t, t->tensor.id)) onnx_writer_no_memory(w);
    }
    for (size_t i = 0; i <= out->pieces.count && !w->status; i++) {
        const onnx_hole *hole = i < out->pieces.count ? &out->pieces.holes[i] : NULL;
        size_t end = hole ? hole->at : out->pieces.text.size;
        fb_part text = {.range = (const unsigned char *)out->pieces.text.data + at, .size = end - at};
        if (text.size) w->status = fb_parts_add(&out->model, text, w->error);
        at = end;
        if (!hole || w->status) continue;
        fb_part part = {.size = hole->size, .tensor = {fb_map_get(&added, (uint64_t)(uintptr_t)hole->bytes)}};
        if (!part.tensor.id) part.range = hole->bytes;
        w->status = fb_parts_add(&out->model, part, w->error);
    }
    fb_map_free(&added);
    return !w->status;
}

/* All numbers that are new are looked at before the first byte. */
static bool check_numbers(onnx_writer *w, onnx_written *out) {
    uint64_t left = FB_OVERFLOW_LOOK;
    for (const onnx_new_tensor *t = w->tensors; t && !w->status; t = t->next) {
        fb_evaluation *evaluation = NULL;
        w->status = fb_parts_evaluate(&out->model, t->tensor, &evaluation, w->error);
        if (!w->status) w->status = fb_evaluation_refuse_overflow(evaluation, &left, w->error);
        if (!w->status && fb_evaluation_size(evaluation) != t->size) onnx_refuse_change(w, "a new weight has another size");
        fb_evaluation_free(evaluation);
    }
    return !w->status;
}

/* ---- what was written, read again ---------------------------------------------------------------------------------------- */

static bool find_any(void *context, const char *location, uint64_t *size, const char **blob) {
    (void)context;
    (void)location;
    *size = INT64_MAX;
    *blob = NULL;
    return true;
}

/* The text with zeros for weights, which are not read here: the pages of these are never touched. */
static unsigned char *lay_out(const onnx_pieces *pieces) {
    unsigned char *made = calloc(pieces->text.size + (size_t)pieces->in_holes + 1, 1);
    size_t at = 0;
    uint64_t to = 0;
    for (size_t i = 0; made && i <= pieces->count; i++) {
        size_t end = i < pieces->count ? pieces->holes[i].at : pieces->text.size;
        memcpy(made + to, pieces->text.data + at, end - at);
        to += end - at;
        if (i < pieces->count) to += pieces->holes[i].size;
        at = end;
    }
    return made;
}

static bool check_again(onnx_writer *w, const onnx_pieces *pieces) {
    onnx_file file = {0};
    fb_buffer document = {0};
    fb_errors errors = {0};
    fb_graph *again = NULL;
    const onnx_files files = {.may_lack = true, .find = find_any};
    const fb_document_limits limits = {.watch = w->work->watch};
    static const char no_digest[] = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    unsigned char *bytes = lay_out(pieces);
    fb_error error = {0};
    if (!bytes) return onnx_writer_no_memory(w);
    fb_status status = onnx_open(bytes, pieces->text.size + pieces->in_holes, NULL, w->work, &file, &error);
    if (!status) status = onnx_check(&file, &files, w->work, &error);
    if (!status) status = onnx_document(&file, no_digest, NULL, w->work, &document, &error);
    if (status == FB_INVALID) onnx_refuse_change(w, "the model written for it is not read: %s", error.message);
    else if (status) {
        w->status = status;
        *w->error = error;
    }
    if (!status && fb_document_read(document.data, document.size, &limits, "", &again, &errors)) {
        if (errors.count) onnx_refuse_change(w, "the model written for it is not read: %s", errors.items[0].message);
        else onnx_writer_no_memory(w);
    }
    bool ok = again && onnx_is_written(w, again);
    fb_graph_free(again);
    fb_errors_free(&errors);
    fb_buffer_free(&document);
    onnx_close(&file);
    free(bytes);
    return ok;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static bool read_before(onnx_writer *w, const onnx_bundle *bundle) {
    fb_buffer document = {0};
    fb_errors errors = {0};
    const fb_document_limits limits = {.watch = w->work->watch};
    w->status = onnx_document(w->file, bundle->blob, bundle->model, w->work, &document, w->error);
    if (!w->status && fb_document_read(document.data, document.size, &limits, "", &w->before, &errors)) {
        if (errors.count) onnx_refuse_change(w, "%s", errors.items[0].message);
        else onnx_writer_no_memory(w);
    }
    fb_errors_free(&errors);
    fb_buffer_free(&document);
    return !w->status;
}

/* Does the model come with files, or would it be too large as one? */
static bool has_file(const onnx_writer *w, const onnx_bundle *bundle) {
    uint64_t size = w->file->size;
    for (fb_tensor t = fb_first_tensor(w->graph); t.id; t = fb_tensor_at(w->graph, t)->next)
        if (fb_tensor_at(w->graph, t)->recipe.id || fb_tensor_at(w->graph, t)->data.id) size += fb_tensor_bytes(w->graph, t);
    return bundle->count || size >= MOST_IN_MODEL;
}

/* MODEL.foldback.data, or another name like it where the model has that file. */
static char *name_data(const onnx_bundle *bundle) {
    fb_buffer name = {0};
    for (unsigned i = 0;; i++) {
        name.size = 0;
        fb_buffer_printf(&name, "%s.foldback.data", bundle->model);
        if (i) fb_buffer_printf(&name, ".%u", i);
        const char *text = fb_buffer_text(&name);
        if (!text || !onnx_bundle_find(bundle, text)) break;
    }
    return fb_buffer_take(&name, NULL);
}

/* A document may say what it wants: the files beside a model are those that its tensors name. */
static bool check_bundle(onnx_writer *w, const onnx_bundle *bundle) {
    for (size_t i = 0; i < bundle->count; i++) {
        bool is_its = false;
        for (uint32_t k = 0; k < w->file->location_count && !is_its; k++)
            is_its = strcmp(w->file->locations[k]->name, bundle->files[i].name) == 0;
        if (!is_its)
            return onnx_refuse_change(w, "its metadata name the file %.100s, and the model does not", bundle->files[i].name);
    }
    return true;
}

static bool write_all(onnx_writer *w, const onnx_bundle *bundle, onnx_written *out) {
    if (!check_bundle(w, bundle) || !read_before(w, bundle)) return false;
    if (has_file(w, bundle)) {
        out->data_name = name_data(bundle);
        if (!out->data_name) return onnx_writer_no_memory(w);
        w->data_name = out->data_name;
    }
    if (!onnx_rewrite_model(w)) return false;
    onnx_write_pieces(ONNX_IS_model, &w->model, &out->pieces);
    if (out->pieces.text.failed) return onnx_writer_no_memory(w);
    if (out->pieces.text.size + out->pieces.in_holes >= MOST_IN_MODEL)
        return onnx_refuse_change(w, "the model's file would have 2 GiB or more");
    return check_again(w, &out->pieces) && list_parts(w, out) && check_numbers(w, out);
}

fb_status onnx_written_new(onnx_file *file, const onnx_bundle *bundle, const fb_graph *graph, const json_t *makers,
                           const fb_blobs *blobs, fb_work *work, onnx_written **out, fb_error *error) {
    onnx_written *made = calloc(1, sizeof *made);
    if (!made) return fb_fail_memory(error);
    made->graph = fb_graph_copy(graph, work);
    made->model = made->data = (fb_parts){.graph = made->graph, .blobs = blobs};
    onnx_writer w = {.file = file, .graph = made->graph, .makers = makers, .blobs = blobs, .work = work, .error = error};
    if (!made->graph) w.status = fb_work_failed(work, error);
    if (!w.status && !write_all(&w, bundle, made) && !w.status) w.status = fb_fail_memory(error);
    fb_graph_free(w.before);
    fb_map_free(&w.known);
    fb_map_free(&w.reads_before);
    if (w.has_ancestry) fb_ancestry_free(&w.ancestry);
    fb_arena_free(&w.arena);
    if (w.status) onnx_written_free(made);
    else *out = made;
    return w.status;
}
