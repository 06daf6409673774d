/* The files of a changed graph's archive: its program, its weights and their configs, from the same files of the archive that
 * it was read from. The written archive is read again as any archive is, and must equal the graph. */
#include "core/archive/rewrite.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/memory_layout.h"
#include "core/archive/internal.h"
#include "core/base/sort.h"
#include "core/document/document.h"
#include "core/graph/write.h"
#include "core/json/json.h"

/* ---- failures ----------------------------------------------------------------------------------------------------------- */

static json_t *load(pt_rewriting *r, const char *text, size_t size, const char *what) {
    json_error_t failure;
    json_t *made = fb_load_json_bytes(text, size, 0, &failure);
    if (!made && failure.text[0]) pt_refuse(r, "%s has what is not understood: %s", what, failure.text);
    return made;
}

/* A document in canonical form. `keep`, which may be NULL, gets its graph. */
static json_t *load_document(pt_rewriting *r, const char *text, size_t size, fb_graph **keep) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    fb_buffer canonical = {0};
    json_t *made = NULL;
    fb_document_limits limits = {.watch = r->m->work->watch};
    if (fb_document_read(text, size, &limits, "", &graph, &errors)) {
        if (errors.count) pt_refuse(r, "%s", errors.items[0].message);
    } else {
        fb_document_write(graph, &canonical);
        if (!canonical.failed) made = load(r, canonical.data, canonical.size, "the document");
    }
    fb_buffer_free(&canonical);
    if (keep) *keep = graph;
    else fb_graph_free(graph);
    fb_errors_free(&errors);
    return made;
}

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

/* The placeholders of the state, in tensor_values. */
static bool describe_input(pt_rewriting *r, const char *owner, const json_t *meta, const char *dtype) {
    const char *recorded = fb_dtype_name(pt_exported_as(r->m, fb_dtype_find(dtype)));
    json_t *name;
    size_t i;
    json_array_foreach(json_object_get(r->inputs_of, owner), i, name) {
        const char *text = json_string_value(name);
        if (!json_object_get(r->main.values, text)) continue;
        json_t *made = json_deep_copy(meta);
        if (!pt_set(r->main.values, text, made) || !pt_set(made, "dtype", json_integer(pt_scalar_type(recorded)))) return false;
    }
    return true;
}

/* The record that the tensor goes into, among weights or constants: one for all its owners. */
static const char *record_of(pt_rewriting *r, const char *tensor, bool is_constant) {
    const char *folder = is_constant ? "data/constants/" : "data/weights/", *known = pt_format(r->m, "%s%s", folder, tensor);
    const json_t *record = known ? json_object_get(r->record_of, known) : NULL;
    if (!known || record) return json_string_value(record);
    for (;; r->next_record++) {
        const char *entry = pt_format(r->m, "%s%s_%zu", folder, is_constant ? "tensor" : "weight", r->next_record);
        if (!entry) return NULL;
        if (fb_archive_find(r->m->archive, entry) || json_object_get(r->records, entry)) continue;
        const char *name = entry + strlen(folder);
        return pt_set(r->records, entry, json_string(tensor)) && pt_set(r->record_of, known, json_string(name)) ? name : NULL;
    }
}

/* The strides of a weight that its row lays out in channels_last. */
static bool lay_out(pt_rewriting *r, json_t *meta, const json_t *row) {
    fb_tensor tensor = fb_tensor_find(r->graph, pt_text_of(row, "name"));
    if (!tensor.id || fb_tensor_format(r->graph, tensor) == FB_FORMAT_UNSAID) return true;
    const json_t *sizes = json_object_get(row, "shape");
    size_t rank = json_array_size(sizes);
    json_int_t strides[5], step = 1;
    for (size_t i = 0; i < rank; i++) { /* channels first, then from the last one back, and the batch */
        size_t dimension = i == 0 ? 1 : i + 1 == rank ? 0 : rank - i;
        strides[dimension] = step;
        step *= json_integer_value(json_array_get(sizes, dimension));
    }
    json_t *made = json_array();
    bool ok = made != NULL;
    for (size_t i = 0; i < rank && ok; i++) ok = json_array_append_new(made, json_pack("{s:I}", "as_int", strides[i])) == 0;
    if (ok) return pt_set(meta, "strides", made);
    json_decref(made);
    return false;
}

static bool put_weight(pt_rewriting *r, const char *owner, const json_t *owned) {
    json_t *constants = json_object_get(r->constants, "config"), *weights = json_object_get(r->weights, "config");
    const json_t *row = json_array_get(owned, 0), *old = json_object_get(constants, owner);
    bool is_constant = old != NULL;
    if (!old) old = json_object_get(weights, owner);
    bool is_parameter = old ? json_is_true(json_array_get(owned, 1)) : pt_is_parameter(owned);
    const json_t *device = old ? json_object_get(json_object_get(old, "tensor_meta"), "device") : pt_some_device(&r->main);
    if (!row || (!old && !pt_are_on_one_device(&r->main)))
        return pt_refuse(r, "\"%s\" is a new weight of a program of several devices", owner);
    json_t *meta =
        pt_make_meta(&r->main, json_object_get(row, "shape"), pt_text_of(row, "dtype"), pt_requires_grad(owned), device);
    const char *record = meta && lay_out(r, meta, row) ? record_of(r, pt_text_of(row, "name"), is_constant) : NULL;
    json_t *made = record ? json_pack("{s:s,s:b,s:b,s:O}", "path_name", record, "is_param", is_parameter, "use_pickle", false,
                                      "tensor_meta", meta)
                          : NULL;
    bool ok = made && pt_set(is_constant ? constants : weights, owner, made) &&
              describe_input(r, owner, meta, pt_text_of(row, "dtype"));
    json_decref(meta);
    return ok;
}

/* Are all tensors that the recipe reads owned still? `names`: of those that are. */
static bool reads_only(const json_t *recipe, const json_t *names) {
    const json_t *args = json_object_get(recipe, "args");
    size_t i;
    json_t *item;
    if (json_is_string(recipe)) return json_object_get(names, json_string_value(recipe)) != NULL;
    json_array_foreach(args, i, item) if (!reads_only(item, names)) return false;
    return true;
}

static bool is_written(const pt_rewriting *r, const char *owner) {
    const json_t *module = json_object_get(r->program, "graph_module"), *signature = json_object_get(module, "signature");
    size_t i;
    json_t *spec;
    json_array_foreach(json_object_get(signature, "output_specs"), i, spec) {
        const json_t *mutation = json_object_get(spec, "buffer_mutation"), *other = json_object_get(spec, "parameter_mutation");
        if (strcmp(pt_text_of(mutation, "buffer_name"), owner) == 0 || strcmp(pt_text_of(other, "parameter_name"), owner) == 0)
            return true;
    }
    return false;
}

/* Names of the tensors that the graph's modules own. */
static json_t *list_owned(pt_rewriting *r) {
    json_t *names = json_object(), *owned;
    const char *owner;
    bool ok = names;
    json_object_foreach(r->owners, owner, owned) ok =
        ok && pt_set(names, pt_text_of(json_array_get(owned, 0), "name"), json_true());
    if (ok) return names;
    json_decref(names);
    return NULL;
}

/* Writes records for changed weights, and for views of tensors that are gone. */
static bool rewrite_weights(pt_rewriting *r) {
    json_t *before = pt_owners_of(r->before), *names = list_owned(r), *owned;
    const char *owner;
    bool ok = before && names;
    json_object_foreach(r->owners, owner, owned) {
        bool is_same = json_equal(owned, json_object_get(before, owner));
        const json_t *recipe = json_object_get(json_array_get(owned, 0), "recipe");
        bool is_orphan = is_same && recipe && !reads_only(recipe, names);
        if (ok && is_orphan && is_written(r, owner))
            ok = pt_refuse(r, "\"%s\", which is written, was a part of a weight that is gone", owner);
        if (ok && (!is_same || is_orphan)) ok = put_weight(r, owner, owned);
    }
    json_decref(names);
    json_object_foreach(before, owner, owned) {
        if (json_object_get(r->owners, owner)) continue;
        json_object_del(json_object_get(r->weights, "config"), owner);
        json_object_del(json_object_get(r->constants, "config"), owner);
    }
    json_decref(before);
    return ok;
}

/* ---- what was written, read again ---------------------------------------------------------------------------------------- */

static bool is_the_graph(pt_rewriting *r, const char *document, size_t size) {
    json_t *read = load_document(r, document, size, NULL);
    json_t *wanted = read ? pt_meaning_of(r->after, true) : NULL, *found = wanted ? pt_meaning_of(read, true) : NULL;
    bool is_same = found && json_equal(wanted, found);
    size_t i = 0;
    while (found && !is_same && i < json_array_size(wanted) && json_equal(json_array_get(wanted, i), json_array_get(found, i)))
        i++;
    const char *what = json_string_value(json_array_get(json_array_get(wanted, i), 1));
    if (found && !is_same)
        pt_refuse(r, "the archive written for it reads back as another graph, from %s on", what ? what : "its end");
    json_decref(read);
    json_decref(wanted);
    json_decref(found);
    return is_same;
}

static int order_of_entries(const void *a, const void *b) {
    return strcmp(((const fb_zip_entry *)a)->name, ((const fb_zip_entry *)b)->name);
}

/* The archive's records and the new ones, whose bytes are not read. */
static bool check_again(pt_rewriting *r, const char *const *texts) {
    fb_archive archive = *r->m->archive;
    const pt_given given[] = {
        {r->m->program_file.name, texts[0]}, {r->m->weights_file.name, texts[1]}, {r->m->constants_file.name, texts[2]}};
    size_t count = archive.zip.count, added = json_object_size(r->records);
    fb_zip_entry *entries = malloc((count + added + 1) * sizeof *entries);
    pt_model *m = calloc(1, sizeof *m);
    fb_buffer document = {0};
    const char *path;
    json_t *tensor;
    bool ok = entries && m;
    if (ok) memcpy(entries, archive.zip.entries, count * sizeof *entries);
    json_object_foreach(r->records, path, tensor) {
        const char *name = ok ? pt_format(r->m, "%s%s", archive.root, path) : NULL;
        ok = name != NULL;
        if (!ok) break;
        entries[count++] = (fb_zip_entry){.name = name, .size = INT64_MAX, .stored = INT64_MAX};
    }
    if (ok) fb_sort(entries, count, sizeof *entries, order_of_entries);
    if (ok) {
        archive.zip.entries = entries;
        archive.zip.count = count;
        *m = (pt_model){.archive = &archive,
                        .blob = r->m->blob,
                        .work = r->m->work,
                        .error = r->m->error,
                        .given = given,
                        .given_count = 3};
        r->m->status = pt_model_document(m, r->m->name, &document);
        ok = !r->m->status && is_the_graph(r, document.data, document.size);
    }
    if (m) pt_close_model(m);
    free(m);
    free(entries);
    fb_buffer_free(&document);
    return ok;
}

/* ---- entries ------------------------------------------------------------------------------------------------------------- */

/* The records that the program's weights and constants were in and are in no more, by their names. NULL: memory is out. */
static json_t *list_left_out(pt_rewriting *r) {
    const json_t *configs[] = {r->weights, r->constants};
    json_t *made = json_object(), *row;
    const char *owner;
    bool ok = made != NULL;
    if (r->m->archive->model_count != 1) return made;
    for (uint32_t i = 0; ok && i < r->m->tensor_count; i++)
        ok = json_object_set_new(made, r->m->tensors[i].record->name, json_true()) == 0;
    for (int i = 0; ok && i < 2; i++) {
        json_object_foreach(json_object_get(configs[i], "config"), owner, row) {
            const char *name =
                pt_format(r->m, "%sdata/%s/%s", r->m->archive->root, i ? "constants" : "weights", pt_text_of(row, "path_name"));
            if (name) json_object_del(made, name);
        }
    }
    if (ok && !r->m->status) return made;
    json_decref(made);
    return NULL;
}

static const char *text_for(const pt_rewriting *r, const char *name, const char *const *texts) {
    const pt_file *files[] = {&r->m->program_file, &r->m->weights_file, &r->m->constants_file};
    for (int i = 0; i < 3; i++) {
        if (strcmp(files[i]->name, name) == 0) return texts[i];
    }
    return NULL;
}

/* The entry that says which graph the archive is of. */
static bool add_graph(pt_rewriting *r, pt_add_entry *add, void *context) {
    char id[FB_ID_LENGTH + 1];
    pt_entry entry = {.name = pt_format(r->m, "%s%s", r->m->archive->root, FB_ARCHIVE_GRAPH_ENTRY), .text = id};
    if (!entry.name || !fb_document_id_metered(r->graph, r->m->work, id)) return false;
    r->m->status = add(context, &entry);
    return !r->m->status;
}

static bool add_entries(pt_rewriting *r, const char *const *texts, pt_add_entry *add, void *context) {
    const fb_archive *archive = r->m->archive;
    const char *path;
    json_t *tensor, *left_out = list_left_out(r);
    if (!left_out) return false;
    for (size_t i = 0; i < archive->zip.count && !r->m->status; i++) {
        const fb_zip_entry *from = &archive->zip.entries[i];
        const char *name = from->name + strlen(archive->root);
        pt_entry entry = {.name = from->name,
                          .stored = from->stored,
                          .size = from->size,
                          .crc = from->crc,
                          .is_deflated = from->is_deflated,
                          .range = archive->zip.bytes + from->offset};
        if (json_object_get(left_out, from->name) || strcmp(name, FB_ARCHIVE_GRAPH_ENTRY) == 0) continue;
        const char *text = text_for(r, name, texts);
        if (text) entry = (pt_entry){.name = from->name, .text = text};
        r->m->status = add(context, &entry);
    }
    json_decref(left_out);
    json_object_foreach(r->records, path, tensor) {
        pt_entry entry = {.name = pt_format(r->m, "%s%s", archive->root, path),
                          .tensor = fb_tensor_find(r->graph, json_string_value(tensor))};
        if (!r->m->status) r->m->status = add(context, &entry);
    }
    return !r->m->status && add_graph(r, add, context);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static bool load_all(pt_rewriting *r, const char *document, size_t size) {
    fb_buffer changed = {0};
    const pt_file *constants = &r->m->constants_file, *program = &r->m->program_file, *weights = &r->m->weights_file;
    fb_document_write(r->graph, &changed);
    bool ok = !changed.failed;
    if (ok) r->after = load(r, changed.data, changed.size, "the graph");
    fb_buffer_free(&changed);
    if (r->after) r->before = load_document(r, document, size, &r->graph_before);
    if (r->before) r->program = load(r, program->text, strlen(program->text), program->name);
    if (r->program) r->weights = load(r, weights->text, strlen(weights->text), weights->name);
    if (r->weights) r->constants = load(r, constants->text, strlen(constants->text), constants->name);
    if (!r->constants) return false;
    r->owners = pt_owners_of(r->after);
    json_t **const tables[] = {&r->sizes, &r->records, &r->record_of, &r->inputs_of};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) ok = (*tables[i] = json_object()) && ok;
    r->states = json_array();
    r->state_inputs = json_array();
    return ok && r->states && r->state_inputs && r->owners;
}

static bool write_all(pt_rewriting *r, const char *document, size_t size, pt_add_entry *add, void *context) {
    if (!load_all(r, document, size) || !pt_rewrite_program(r) || !rewrite_weights(r)) return false;
    json_t *const files[] = {r->program, r->weights, r->constants};
    char *texts[3] = {0};
    bool ok = true;
    for (int i = 0; i < 3; i++) ok = (texts[i] = fb_dump_json(files[i], JSON_ENSURE_ASCII)) && ok;
    const char *const given[] = {texts[0], texts[1], texts[2]};
    ok = ok && check_again(r, given) && add_entries(r, given, add, context);
    for (int i = 0; i < 3; i++) free(texts[i]);
    return ok;
}

static void free_rewriting(pt_rewriting *r) {
    json_t *const all[] = {r->program, r->weights, r->constants, r->before,       r->after,     r->sizes,
                           r->owners,  r->states,  r->inputs_of, r->state_inputs, r->record_of, r->records};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) json_decref(all[i]);
    pt_scope_free(&r->main);
    fb_graph_free(r->graph_before);
}

fb_status pt_rewrite(const fb_archive *archive, const char *model, const char *blob, const fb_graph *graph,
                     const json_t *makers, fb_work *work, pt_add_entry *add, void *context, fb_error *error) {
    pt_model *m = calloc(1, sizeof *m);
    fb_buffer document = {0};
    pt_rewriting r = {.m = m, .graph = graph, .makers = makers};
    if (!m) return fb_fail_memory(error);
    *m = (pt_model){.archive = archive, .blob = blob, .work = work, .error = error};
    fb_status status = pt_model_document(m, model, &document);
    bool ok = !status && write_all(&r, document.data, document.size, add, context);
    status = pt_end(m, ok);
    free_rewriting(&r);
    fb_buffer_free(&document);
    pt_close_model(m);
    free(m);
    return status;
}
