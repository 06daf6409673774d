/* The messages of a changed graph: those that nothing touched are as they were, and only what is new is made.
 *
 * A node of the graph is the file's where the document of the file has one of that name that calls the same; then its message
 * is taken, with other names of values where these have changed, and with other attributes where these are not the same. */
#include "core/onnx/rewrite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/onnx.h"
#include "core/analysis/view.h"
#include "core/graph/write.h"
#include "core/json/json.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"
#include "core/weights/evaluate.h"

#define GRAPH_KEY "foldback.graph"

/* A graph of the file, or a function, and the programs that are its. */
typedef struct scope {
    fb_program was, is;
    const onnx_graph *graph; /* NULL: it is a function's */
    const onnx_node *nodes;  /* of the file */
    size_t node_count;
    const onnx_opset *imports;
    size_t import_count;
    const fb_value_row *captures; /* what its captured placeholders are, in order; or NULL */
    fb_map taken;                 /* by the hash of a name that a value of it has: the node, or UINT32_MAX */
    fb_map by_initializer;        /* by hash, index + 1; sparse ones behind the others */
    bool is_main;
} scope;

/* ---- failures and small things ------------------------------------------------------------------------------------------- */

bool onnx_writer_no_memory(onnx_writer *w) {
    if (!w->status) w->status = fb_fail_memory(w->error);
    return false;
}

bool onnx_refuse_change(onnx_writer *w, const char *format, ...) {
    char reason[400];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (!w->status)
        w->status = fb_fail(w->error, FB_CONFLICT, "archive-changed", "",
                            "the graph differs from its ONNX model in a way that cannot be written yet: %s", reason);
    return false;
}

static void *make(onnx_writer *w, size_t count, size_t size) {
    size_t bytes = (count ? count : 1) * size;
    void *made = w->status ? NULL : fb_arena_alloc(&w->arena, bytes);
    if (made) memset(made, 0, bytes);
    else onnx_writer_no_memory(w);
    return made;
}

static onnx_bytes keep(onnx_writer *w, const char *text, size_t size) {
    char *made = w->status ? NULL : fb_arena_text(&w->arena, text, size);
    if (!made) onnx_writer_no_memory(w);
    return (onnx_bytes){made, made ? size : 0};
}

static onnx_bytes literal(const char *text) {
    return (onnx_bytes){text, strlen(text)};
}

static uint64_t hash_of(onnx_bytes name) {
    return fb_hash(name.text, name.size, 0);
}

/* The text after a member, or NULL: quotes within a text have a backslash. */
static const char *find_member(const char *text, const char *member) {
    const char *found = strstr(text, member);
    return found ? found + strlen(member) : NULL;
}

/* A text up to its quote; one that has a backslash is read as JSON. */
static onnx_bytes read_name(onnx_writer *w, const char *text, const char *said, const char *key) {
    size_t size = strcspn(text, "\\\"");
    if (text[size] == '"') return (onnx_bytes){text, size};
    json_error_t failure;
    json_t *all = fb_load_json_bytes(said, strlen(said), 0, &failure);
    const json_t *value = json_object_get(all, key);
    onnx_bytes made = {0};
    if (!all && !failure.text[0]) onnx_writer_no_memory(w);
    if (json_is_string(value)) made = keep(w, json_string_value(value), json_string_length(value));
    json_decref(all);
    return made;
}

onnx_note onnx_note_of(onnx_writer *w, const fb_graph *graph, fb_node node) {
    onnx_note note = {.node = -1, .results = -1};
    fb_value rest = node.id ? fb_node_at(graph, node)->meta_rest : (fb_value){0};
    const char *text = rest.id ? fb_value_text(graph, fb_map_value(graph, rest, "onnx")) : NULL;
    if (!text || *text != '{' || w->status) return note;
    const char *index = find_member(text, "\"node\":"), *results = find_member(text, "\"results\":"),
               *captured = find_member(text, "\"captured\":\""),
               *value = captured ? captured : find_member(text, "\"value\":\"");
    note.is_there = true;
    if (index) note.node = atoll(index);
    if (results) note.results = atoll(results);
    note.is_captured = captured != NULL;
    note.has_name = value != NULL;
    if (value) note.value = read_name(w, value, text, captured ? "captured" : "value");
    return note;
}

static bool is_same_text(onnx_writer *w, fb_value a, fb_value b) {
    fb_buffer one = {0}, other = {0};
    fb_value_write(w->graph, a, &one);
    fb_value_write(w->before, b, &other);
    bool is_same = one.size == other.size && (!one.size || memcmp(one.data, other.data, one.size) == 0);
    if (one.failed || other.failed) is_same = onnx_writer_no_memory(w);
    fb_buffer_free(&one);
    fb_buffer_free(&other);
    return is_same;
}

static fb_tensor tensor_read_by(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    bool reads = row->opcode == FB_GET_ATTR && row->attribute.id;
    return reads ? fb_module_tensor(graph, row->module, fb_text(graph, row->attribute)) : (fb_tensor){0};
}

/* The same bytes of the same dtype and shape, as far as the documents say. */
static bool is_same_tensor(onnx_writer *w, fb_node now, fb_node was) {
    fb_tensor a = tensor_read_by(w->graph, now), b = tensor_read_by(w->before, was);
    fb_buffer one = {0}, other = {0};
    if (!a.id || !b.id) return false;
    fb_tensor_write(w->graph, a, &one);
    fb_tensor_write(w->before, b, &other);
    bool is_same = one.size == other.size && memcmp(one.data, other.data, one.size) == 0;
    if (one.failed || other.failed) is_same = onnx_writer_no_memory(w);
    fb_buffer_free(&one);
    fb_buffer_free(&other);
    return is_same;
}

/* ---- which nodes are values ---------------------------------------------------------------------------------------------- */

static void mark_value(void *context, fb_node node) {
    ((bool *)context)[node.id] = true;
}

static bool is_captures(const fb_graph *graph, fb_value key) {
    return strcmp(fb_value_text(graph, key), "captures") == 0;
}

/* Of a program: `values` gets what is read as an input of a node, `attributes` what is an attribute; each may be NULL. */
static void mark_reads(const fb_graph *graph, fb_program program, bool *values, bool *attributes) {
    for (fb_node n = fb_first_node(graph, program); n.id; n = fb_next_node(graph, n)) {
        const fb_node_row *row = fb_node_at(graph, n);
        const fb_value_row *kwargs = fb_value_at(graph, row->kwargs);
        if (values) fb_value_visit_nodes(graph, row->args, mark_value, values);
        for (uint32_t i = 0; i + 1 < kwargs->count; i += 2) {
            bool *marks = is_captures(graph, kwargs->items[i]) ? values : attributes;
            if (marks) fb_value_visit_nodes(graph, kwargs->items[i + 1], mark_value, marks);
        }
    }
}

/* ---- names --------------------------------------------------------------------------------------------------------------- */

static bool know(onnx_writer *w, onnx_bytes name) {
    return !name.size || fb_map_put(&w->known, hash_of(name), 1) || onnx_writer_no_memory(w);
}

static bool know_graph(onnx_writer *w, const onnx_graph *graph);

static bool know_nodes(onnx_writer *w, const onnx_node *nodes, size_t count) {
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) {
        for (size_t k = 0; k < nodes[i].input.count && ok; k++) ok = know(w, nodes[i].input.items[k]);
        for (size_t k = 0; k < nodes[i].output.count && ok; k++) ok = know(w, nodes[i].output.items[k]);
        for (size_t k = 0; k < nodes[i].attribute.count && ok; k++) {
            if (nodes[i].attribute.items[k].g) ok = know_graph(w, nodes[i].attribute.items[k].g);
        }
    }
    return ok;
}

static bool know_graph(onnx_writer *w, const onnx_graph *graph) {
    bool ok = know_nodes(w, graph->node.items, graph->node.count);
    for (size_t i = 0; i < graph->input.count && ok; i++) ok = know(w, graph->input.items[i].name);
    for (size_t i = 0; i < graph->output.count && ok; i++) ok = know(w, graph->output.items[i].name);
    for (size_t i = 0; i < graph->value_info.count && ok; i++) ok = know(w, graph->value_info.items[i].name);
    for (size_t i = 0; i < graph->initializer.count && ok; i++) ok = know(w, graph->initializer.items[i].name);
    for (size_t i = 0; i < graph->sparse_initializer.count && ok; i++)
        if (graph->sparse_initializer.items[i].values) ok = know(w, graph->sparse_initializer.items[i].values->name);
    return ok;
}

/* A name like this one that the file has nowhere. */
static onnx_bytes fresh(onnx_writer *w, onnx_bytes like) {
    fb_buffer text = {0};
    for (unsigned i = 0; !w->status; i++) {
        text.size = 0;
        fb_buffer_append(&text, like.text, like.size);
        if (i) fb_buffer_printf(&text, "_%u", i);
        if (text.failed) onnx_writer_no_memory(w);
        else if (!fb_map_get(&w->known, fb_hash(text.data, text.size, 0))) break;
    }
    onnx_bytes made = w->status ? (onnx_bytes){0} : keep(w, text.data, text.size);
    fb_buffer_free(&text);
    know(w, made);
    return made;
}

/* The call of which the node is a result, or none. */
static fb_node call_of_item(const fb_graph *graph, fb_node node) {
    return onnx_is_item(graph, node) ? fb_value_node(graph, fb_node_arg(graph, node, 0)) : (fb_node){0};
}

bool onnx_is_constant(onnx_writer *w, fb_node node) {
    const fb_node_row *row = fb_node_at(w->graph, node);
    fb_node twin = w->twins[node.id];
    if (row->opcode != FB_GET_ATTR) return false;
    if (twin.id) return onnx_note_of(w, w->before, twin).node >= 0 && onnx_note_of(w, w->graph, node).node >= 0;
    return w->is_function[row->program.id] || (row->program.id != FB_MAIN_PROGRAM.id && w->file->model->ir_version < 4);
}

static bool is_initializer(onnx_writer *w, fb_node node) {
    return fb_node_at(w->graph, node)->opcode == FB_GET_ATTR && !onnx_is_constant(w, node);
}

static bool is_given(onnx_writer *w, fb_node node) {
    return fb_node_at(w->graph, node)->opcode == FB_PLACEHOLDER || is_initializer(w, node);
}

static bool take_name(onnx_writer *w, scope *s, fb_node node, onnx_bytes name) {
    w->names[node.id] = name;
    return fb_map_put(&s->taken, hash_of(name), node.id) || onnx_writer_no_memory(w);
}

/* A result of a call that another node reads as well is one value: it gets the name of that. */
static void share_name(onnx_writer *w, fb_node item) {
    fb_node call = call_of_item(w->graph, item);
    int64_t index, its;
    if (!call.id || w->names[item.id].size || !fb_value_is_int(w->graph, fb_node_arg(w->graph, item, 1), &index)) return;
    for (uint32_t e = fb_user_first(w->graph, call); e; e = fb_user_next(w->graph, e)) {
        fb_node other = fb_edge_user(w->graph, e);
        bool is_same = w->names[other.id].size && call_of_item(w->graph, other).id == call.id &&
                       fb_value_is_int(w->graph, fb_node_arg(w->graph, other, 1), &its) && its == index;
        if (is_same) w->names[item.id] = w->names[other.id];
    }
}

/* The name that it has in the file, unless another value took it; for a new node one that is like its own. */
static bool name_node(onnx_writer *w, scope *s, fb_node node) {
    share_name(w, node);
    if (w->names[node.id].size || w->status) return !w->status;
    fb_node twin = w->twins[node.id];
    onnx_note note = twin.id ? onnx_note_of(w, w->before, twin) : (onnx_note){0};
    const char *own = fb_node_name(w->graph, node);
    if (note.has_name && !fb_map_get(&s->taken, hash_of(note.value))) return take_name(w, s, node, note.value);
    return take_name(w, s, node, fresh(w, note.has_name ? note.value : literal(own)));
}

static bool name_placeholders(onnx_writer *w, scope *s) {
    size_t captured = 0;
    for (fb_node n = fb_first_node(w->graph, s->is); n.id && !w->status; n = fb_next_node(w->graph, n)) {
        if (fb_node_at(w->graph, n)->opcode != FB_PLACEHOLDER) continue;
        onnx_note note = onnx_note_of(w, w->graph, n);
        if (!note.has_name) return onnx_refuse_change(w, "the input %s is not the model's", fb_node_name(w->graph, n));
        if (!note.is_captured) {
            if (!take_name(w, s, n, note.value)) return false;
            continue;
        }
        fb_value from = s->captures && captured < s->captures->count ? s->captures->items[captured] : (fb_value){0};
        fb_node outer = from.id ? fb_value_node(w->graph, from) : (fb_node){0};
        if (!outer.id || !w->names[outer.id].size)
            return onnx_refuse_change(w, "%s of a nested graph is a value that is not known", fb_node_name(w->graph, n));
        captured++;
        if (!take_name(w, s, n, w->names[outer.id])) return false;
    }
    return !w->status;
}

static const fb_value_row *outputs_of(onnx_writer *w, fb_program program) {
    fb_node last = fb_last_node(w->graph, program);
    fb_value list = last.id && fb_node_at(w->graph, last)->opcode == FB_OUTPUT ? fb_node_arg(w->graph, last, 0) : (fb_value){0};
    return list.id ? fb_value_at(w->graph, list) : NULL;
}

static onnx_bytes output_name(const scope *s, const onnx_function *function, size_t index) {
    return s->graph ? s->graph->output.items[index].name : function->output.items[index];
}

/* Outputs keep their names: the values that they are get these, but for inputs, initializers and what another output is
 * already: `is_copied`, which has an item for each, says that it takes an Identity. */
static bool name_outputs(onnx_writer *w, scope *s, const onnx_function *function, bool *is_copied) {
    size_t count = s->graph ? s->graph->output.count : function->output.count;
    const fb_value_row *list = outputs_of(w, s->is);
    if (!list || list->count != count) return onnx_refuse_change(w, "it has other outputs");
    for (size_t i = 0; i < count && !w->status; i++) {
        fb_node n = fb_value_node(w->graph, list->items[i]);
        onnx_bytes name = output_name(s, function, i);
        if (!n.id) return onnx_refuse_change(w, "an output is not a value");
        share_name(w, n);
        bool is_named = w->names[n.id].size != 0;
        if (!is_named && is_initializer(w, n) && !name_node(w, s, n)) return false;
        if (!is_named && !is_given(w, n) && !take_name(w, s, n, name)) return false;
        is_copied[i] = !onnx_same(w->names[n.id], name);
    }
    return !w->status;
}

static bool name_values(onnx_writer *w, scope *s) {
    bool ok = true;
    for (fb_node n = fb_first_node(w->graph, s->is); n.id && ok; n = fb_next_node(w->graph, n)) {
        const fb_node_row *row = fb_node_at(w->graph, n);
        if (row->opcode == FB_PLACEHOLDER || row->opcode == FB_OUTPUT) continue;
        bool is_attribute = row->opcode == FB_GET_ATTR && !w->is_value[n.id] &&
                            (row->user_count || fb_onnx_program_read_by(w->graph, n).id ||
                             (w->twins[n.id].id && w->was_attribute[w->twins[n.id].id]));
        if (!is_attribute) ok = name_node(w, s, n);
    }
    return ok;
}

/* The same operator, also in another version where the model has another opset now. */
static bool is_same_operator(const onnx_writer *w, const char *now, const char *before) {
    if (strcmp(now, before) == 0) return true;
    const char *version = strrchr(now, '.');
    return version && fb_graph_opset(w->graph) != fb_graph_opset(w->before) &&
           strncmp(now, FB_ONNX_DEFAULT, strlen(FB_ONNX_DEFAULT)) == 0 &&
           strncmp(now, before, (size_t)(version - now) + 1) == 0 && !strchr(before + (version - now) + 1, '.');
}

/* Pairs the nodes of a program with those of the document of the file. */
static bool find_twins(onnx_writer *w, const scope *s) {
    fb_map by_name = {0};
    bool ok = true;
    if (!s->was.id) return true;
    for (fb_node n = fb_first_node(w->before, s->was); n.id && ok; n = fb_next_node(w->before, n))
        ok = fb_map_put(&by_name, fb_hash_text(fb_node_name(w->before, n), 0), n.id);
    for (fb_node n = fb_first_node(w->graph, s->is); n.id && ok; n = fb_next_node(w->graph, n)) {
        fb_node twin = {fb_map_get(&by_name, fb_hash_text(fb_node_name(w->graph, n), 0))};
        if (!twin.id || strcmp(fb_node_name(w->before, twin), fb_node_name(w->graph, n)) != 0) continue;
        const fb_node_row *a = fb_node_at(w->graph, n), *b = fb_node_at(w->before, twin);
        const char *now = fb_node_target(w->graph, n), *before = fb_node_target(w->before, twin);
        if (a->opcode == b->opcode && is_same_operator(w, now, before)) w->twins[n.id] = twin;
    }
    fb_map_free(&by_name);
    mark_reads(w->before, s->was, NULL, w->was_attribute);
    mark_reads(w->graph, s->is, w->is_value, NULL);
    return ok || onnx_writer_no_memory(w);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------- */

static int32_t dtype_number(const char *word) {
    for (int32_t i = 1; onnx_is_dtype(i); i++)
        if (strcmp(onnx_dtype_word(i), word) == 0) return i;
    return 0;
}

static bool make_dims(onnx_writer *w, fb_value shape, onnx_numbers *out) {
    const fb_value_row *row = fb_value_at(w->graph, shape);
    uint64_t *bits = make(w, row->count, sizeof *bits);
    int64_t size;
    for (uint32_t i = 0; bits && i < row->count; i++) {
        if (!fb_value_is_int(w->graph, row->items[i], &size)) return onnx_refuse_change(w, "a weight's size is not a number");
        bits[i] = (uint64_t)size;
    }
    if (!bits || !onnx_make_numbers(&w->arena, ONNX_VARINT, bits, row->count, out)) return onnx_writer_no_memory(w);
    return true;
}

static bool put_entry(onnx_writer *w, onnx_entry *entry, const char *key, const char *value) {
    entry->key = keep(w, key, strlen(key));
    entry->value = keep(w, value, strlen(value));
    onnx_set(&entry->head, ONNX_entry_key);
    onnx_set(&entry->head, ONNX_entry_value);
    return !w->status;
}

static bool put_external(onnx_writer *w, onnx_tensor *made, const onnx_new_tensor *added) {
    char number[2][24];
    onnx_entry *entries = make(w, 3, sizeof *entries);
    snprintf(number[0], sizeof number[0], "%llu", (unsigned long long)added->offset);
    snprintf(number[1], sizeof number[1], "%llu", (unsigned long long)added->size);
    bool ok = entries && put_entry(w, &entries[0], "location", w->data_name) &&
              put_entry(w, &entries[1], "offset", number[0]) && put_entry(w, &entries[2], "length", number[1]);
    made->external_data.items = entries;
    made->external_data.count = 3;
    made->data_location = 1;
    onnx_set(&made->head, ONNX_tensor_external_data);
    onnx_set(&made->head, ONNX_tensor_data_location);
    return ok;
}

static bool put_bytes(onnx_writer *w, onnx_tensor *made, fb_tensor tensor, uint64_t size) {
    onnx_new_tensor *added = make(w, 1, sizeof *added);
    fb_evaluation *evaluation = NULL;
    if (!added) return false;
    *added = (onnx_new_tensor){.tensor = tensor, .size = size};
    onnx_set(&made->head, ONNX_tensor_raw_data);
    made->raw_data = (onnx_bytes){(const char *)added, size};
    if (size <= ONNX_LARGE) { /* now; in the model also where others are in a file */
        char *bytes = make(w, size, 1);
        if (bytes) w->status = fb_evaluation_new(w->graph, tensor, w->blobs, &evaluation, w->error);
        if (bytes && !w->status) w->status = fb_evaluation_refuse_overflow(evaluation, NULL, w->error);
        if (bytes && !w->status) w->status = fb_evaluation_read(evaluation, 0, bytes, size, w->error);
        fb_evaluation_free(evaluation);
        made->raw_data.text = bytes;
        return !w->status;
    }
    if (w->data_name) {
        onnx_unset(&made->head, ONNX_tensor_raw_data);
        added->is_external = true;
        added->offset = w->data_size;
        w->data_size += size;
        if (!put_external(w, made, added)) return false;
    }
    *(w->last_tensor ? &w->last_tensor->next : &w->tensors) = added;
    w->last_tensor = added;
    return true;
}

/* `made` stays where it is. */
static bool make_tensor(onnx_writer *w, fb_tensor tensor, onnx_bytes name, onnx_tensor *made) {
    const fb_tensor_row *row = fb_tensor_at(w->graph, tensor);
    *made = (onnx_tensor){.name = name, .data_type = dtype_number(fb_tensor_dtype_name(w->graph, tensor))};
    if (!made->data_type)
        return onnx_refuse_change(w, "the weight %s is of %s, which ONNX has not", fb_tensor_name(w->graph, tensor),
                                  fb_tensor_dtype_name(w->graph, tensor));
    if (fb_tensor_is_carried(w->graph, tensor))
        return onnx_refuse_change(w, "the weight %s has no bytes of its own", fb_tensor_name(w->graph, tensor));
    onnx_set(&made->head, ONNX_tensor_data_type);
    if (name.size) onnx_set(&made->head, ONNX_tensor_name);
    if (!make_dims(w, row->shape, &made->dims)) return false;
    if (made->dims.count) onnx_set(&made->head, ONNX_tensor_dims);
    return put_bytes(w, made, tensor, fb_tensor_bytes(w->graph, tensor));
}

/* ---- attributes ---------------------------------------------------------------------------------------------------------- */

static bool make_graph(onnx_writer *w, const scope *outer, fb_node node, fb_node twin, const onnx_graph *was,
                       const fb_value_row *captures, onnx_graph *made, bool *is_changed);

static uint64_t float_bits(double number) {
    float narrow = (float)number;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return bits;
}

/* The text of a dotted name's part, as the file has it: `_xx` is a letter in hex where no identifier has that letter. */
static onnx_bytes decode(onnx_writer *w, const char *text, size_t size) {
    fb_buffer out = {0};
    for (size_t i = 0; i < size; i++) {
        unsigned code = 0;
        bool is_hex = text[i] == '_' && i + 2 < size && sscanf(text + i + 1, "%2x", &code) == 1 &&
                      strspn(text + i + 1, "0123456789abcdef") >= 2;
        bool is_plain = (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || code == '_';
        if (!is_hex || is_plain || (code >= '0' && code <= '9' && i)) {
            fb_buffer_char(&out, text[i]);
            continue;
        }
        fb_buffer_char(&out, (char)code);
        i += 2;
    }
    onnx_bytes made = keep(w, out.data ? out.data : "", out.size);
    if (out.failed) onnx_writer_no_memory(w);
    fb_buffer_free(&out);
    return made;
}

static bool put_strings(onnx_writer *w, const fb_value_row *list, onnx_attribute *made) {
    made->strings.items = make(w, list->count, sizeof *made->strings.items);
    made->strings.count = list->count;
    for (uint32_t i = 0; i < list->count && !w->status; i++) {
        const char *text = fb_value_text(w->graph, list->items[i]);
        if (fb_value_kind(w->graph, list->items[i]) != FB_STRING) return onnx_refuse_change(w, "an attribute is a mixed list");
        made->strings.items[i] = keep(w, text, strlen(text));
    }
    made->type = 8;
    onnx_set(&made->head, ONNX_attribute_strings);
    return !w->status;
}

static bool put_list(onnx_writer *w, const char *name, const fb_value_row *list, onnx_attribute *made) {
    fb_kind kind = list->count ? fb_value_kind(w->graph, list->items[0]) : FB_NONE;
    uint64_t *bits = make(w, list->count, sizeof *bits);
    if (kind == FB_STRING) return put_strings(w, list, made);
    if (!bits) return false;
    for (uint32_t i = 0; i < list->count; i++) {
        int64_t number;
        double real;
        bool is_it = fb_value_kind(w->graph, list->items[i]) == kind;
        if (is_it && kind == FB_INT && fb_value_is_int(w->graph, list->items[i], &number)) bits[i] = (uint64_t)number;
        else if (is_it && kind == FB_FLOAT && fb_value_is_number(w->graph, list->items[i], &real)) bits[i] = float_bits(real);
        else return onnx_refuse_change(w, "the new attribute %s is a list of another kind", name);
    }
    if (kind != FB_INT && kind != FB_FLOAT) return onnx_refuse_change(w, "the new attribute %s is an empty list", name);
    bool is_float = kind == FB_FLOAT;
    made->type = is_float ? 6 : 7;
    onnx_set(&made->head, is_float ? ONNX_attribute_floats : ONNX_attribute_ints);
    return onnx_make_numbers(&w->arena, is_float ? ONNX_FIXED32 : ONNX_VARINT, bits, list->count,
                             is_float ? &made->floats : &made->ints) ||
           onnx_writer_no_memory(w);
}

static bool put_new_value(onnx_writer *w, const char *name, fb_value value, onnx_attribute *made) {
    double real = 0;
    fb_node node = fb_value_node(w->graph, value);
    fb_tensor tensor = node.id ? tensor_read_by(w->graph, node) : (fb_tensor){0};
    onnx_set(&made->head, ONNX_attribute_type);
    switch (fb_value_kind(w->graph, value)) {
    case FB_INT:
        made->type = 2;
        fb_value_is_int(w->graph, value, &made->i);
        onnx_set(&made->head, ONNX_attribute_i);
        return true;
    case FB_FLOAT:
        made->type = 1;
        fb_value_is_number(w->graph, value, &real);
        made->f = (float)real;
        onnx_set(&made->head, ONNX_attribute_f);
        return (double)made->f == real || real != real || onnx_refuse_change(w, "the new attribute %s is no float32", name);
    case FB_STRING:
        made->type = 3;
        made->s = keep(w, fb_value_text(w->graph, value), strlen(fb_value_text(w->graph, value)));
        onnx_set(&made->head, ONNX_attribute_s);
        return !w->status;
    case FB_LIST: return put_list(w, name, fb_value_at(w->graph, value), made);
    case FB_NODE:
        if (!tensor.id) break;
        made->type = 4;
        made->t = make(w, 1, sizeof *made->t);
        onnx_set(&made->head, ONNX_attribute_t);
        return made->t && make_tensor(w, tensor, (onnx_bytes){0}, made->t);
    default: break;
    }
    return onnx_refuse_change(w, "the new attribute %s is of a kind that is not written", name);
}

/* An attribute whose value has changed: it keeps its name and doc_string. */
static bool make_attribute(onnx_writer *w, const char *key, fb_value value, const onnx_attribute *was, onnx_attribute *made) {
    *made = (onnx_attribute){.name = was ? was->name : decode(w, key, strlen(key))};
    onnx_set(&made->head, ONNX_attribute_name);
    if (was && was->doc_string.size) made->doc_string = was->doc_string, onnx_set(&made->head, ONNX_attribute_doc_string);
    return put_new_value(w, key, value, made);
}

typedef struct attribute_reading {
    onnx_writer *w;
    const scope *s;
    bool is_same;
} attribute_reading;

/* Compares the tensors that an attribute's value reads with those that it read. */
static void compare_tensor(void *context, fb_node node) {
    attribute_reading *r = context;
    fb_node twin = r->w->twins[node.id];
    if (tensor_read_by(r->w->graph, node).id) r->is_same &= twin.id && is_same_tensor(r->w, node, twin);
}

/* The node of the file's document that reads the program of the module with that path; or none. */
static fb_node read_before(onnx_writer *w, const char *path) {
    fb_map *known = &w->reads_before;
    bool is_filled = known->used > 0;
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_program_limit(w->before) && !is_filled && !w->status; p++)
        for (fb_node n = fb_first_node(w->before, (fb_program){p}); n.id; n = fb_next_node(w->before, n)) {
            if (!fb_onnx_program_read_by(w->before, n).id) continue;
            fb_symbol of = fb_module_at(w->before, fb_node_at(w->before, n)->module)->path;
            if (!fb_map_put(known, fb_hash_text(fb_text(w->before, of), 0), n.id)) onnx_writer_no_memory(w);
        }
    fb_node found = {fb_map_get(known, fb_hash_text(path, 0))};
    fb_module module = found.id ? fb_node_at(w->before, found)->module : (fb_module){0};
    return found.id && strcmp(fb_text(w->before, fb_module_at(w->before, module)->path), path) == 0 ? found : (fb_node){0};
}

/* The message of the nested graph that this node of the file's document reads; NULL where the file has none. */
static const onnx_graph *graph_read_before(onnx_writer *w, fb_node read) {
    fb_program program = read.id ? fb_node_at(w->before, read)->program : (fb_program){0};
    const onnx_graph *around = w->file->model->graph;
    if (program.id > FB_MAIN_PROGRAM.id) {
        fb_module owner = fb_program_at(w->before, program)->owner;
        around = graph_read_before(w, read_before(w, fb_text(w->before, fb_module_at(w->before, owner)->path)));
    }
    uint32_t user = read.id ? fb_user_first(w->before, read) : 0;
    if (!around || !user) return NULL;
    fb_node call = fb_edge_user(w->before, user);
    onnx_note note = onnx_note_of(w, w->before, call);
    const fb_value_row *kwargs = fb_value_at(w->before, fb_node_at(w->before, call)->kwargs);
    if (note.node < 0 || (size_t)note.node >= around->node.count) return NULL;
    const onnx_node *was = &around->node.items[note.node];
    for (uint32_t i = 0; i + 1 < kwargs->count && i / 2 < was->attribute.count; i += 2)
        if (fb_value_node(w->before, kwargs->items[i + 1]).id == read.id) return was->attribute.items[i / 2].g;
    return NULL;
}

/* The graphs of a node's attributes: `captures` has an item for each, of which `at` have been met. */
typedef struct graph_list {
    const fb_value_row *captures; /* or NULL */
    size_t at;
} graph_list;

static bool put_graph(onnx_writer *w, const scope *s, const char *name, fb_value value, const onnx_graph *was, graph_list *list,
                      onnx_graph *made, bool *is_changed) {
    fb_node node = fb_value_node(w->graph, value);
    fb_value own = list->captures && list->at < list->captures->count ? list->captures->items[list->at] : (fb_value){0};
    list->at++;
    if (!was || !own.id || !node.id) return onnx_refuse_change(w, "%s is a nested graph that is new", name);
    return make_graph(w, s, node, w->twins[node.id], was, fb_value_at(w->graph, own), made, is_changed);
}

/* A nested graph of the file that another call runs now. */
static const onnx_graph *moved_graph(onnx_writer *w, fb_node read) {
    fb_symbol path = fb_module_at(w->graph, fb_node_at(w->graph, read)->module)->path;
    fb_node twin = read_before(w, fb_text(w->graph, path));
    w->twins[read.id] = twin;
    return graph_read_before(w, twin);
}

/* All of an attribute: one graph, or several. */
static bool put_graphs(onnx_writer *w, const scope *s, const char *name, fb_value value, const onnx_attribute *from,
                       graph_list *list, onnx_attribute *made, bool *is_changed) {
    bool is_one = fb_value_kind(w->graph, value) == FB_NODE;
    const fb_value_row *items = is_one ? NULL : fb_value_at(w->graph, value);
    size_t count = is_one ? 1 : items->count;
    onnx_graph *graphs = make(w, count, sizeof *graphs);
    bool is_any = false;
    const onnx_graph *moved = graphs && !from && is_one ? moved_graph(w, fb_value_node(w->graph, value)) : NULL;
    if (!graphs || (!from && !moved) || (from && (is_one ? !from->g : from->graphs.count != count)))
        return onnx_refuse_change(w, "%s has nested graphs that are new", name);
    if (moved) {
        *made = (onnx_attribute){.name = decode(w, name, strlen(name)), .type = 5};
        onnx_set(&made->head, ONNX_attribute_name);
        onnx_set(&made->head, ONNX_attribute_type);
        is_any = true;
    }
    for (size_t i = 0; i < count; i++) {
        bool is_other = false;
        const onnx_graph *was = moved ? moved : is_one ? from->g : &from->graphs.items[i];
        if (!put_graph(w, s, name, is_one ? value : items->items[i], was, list, &graphs[i], &is_other)) return false;
        is_any |= is_other;
    }
    if (!is_any) return true;
    *is_changed = true;
    if (is_one) made->g = graphs;
    else made->graphs.items = graphs;
    onnx_set(&made->head, is_one ? ONNX_attribute_g : ONNX_attribute_graphs);
    return true;
}

static bool has_programs(onnx_writer *w, fb_value value) {
    fb_kind kind = fb_value_kind(w->graph, value);
    fb_value first = kind == FB_LIST && fb_value_at(w->graph, value)->count ? fb_value_item(w->graph, value, 0) : value;
    fb_node node = fb_value_node(w->graph, first);
    return node.id && fb_onnx_program_read_by(w->graph, node).id;
}

static bool put_attribute(onnx_writer *w, const scope *s, fb_value key, fb_value value, fb_value was,
                          const onnx_attribute *from, graph_list *list, onnx_attribute *made, bool *is_changed) {
    const char *name = fb_value_text(w->graph, key);
    attribute_reading reading = {w, s, true};
    bool is_same = from && was.id && is_same_text(w, value, was);
    if (is_same) *made = *from;
    if (has_programs(w, value)) return put_graphs(w, s, name, value, is_same ? from : NULL, list, made, is_changed);
    fb_value_visit_nodes(w->graph, value, compare_tensor, &reading);
    if (is_same && reading.is_same) return !w->status;
    *is_changed = true;
    return make_attribute(w, name, value, from, made);
}

static bool put_attributes(onnx_writer *w, const scope *s, fb_node node, fb_node twin, const onnx_node *was, onnx_node *made) {
    const fb_value_row *kwargs = fb_value_at(w->graph, fb_node_at(w->graph, node)->kwargs);
    const fb_value_row *before = twin.id ? fb_value_at(w->before, fb_node_at(w->before, twin)->kwargs) : NULL;
    fb_value given = fb_node_kwarg(w->graph, node, "captures");
    bool has_captures = given.id && fb_value_kind(w->graph, given) == FB_LIST;
    graph_list list = {.captures = has_captures ? fb_value_at(w->graph, given) : NULL};
    onnx_attribute *items = make(w, kwargs->count / 2, sizeof *items);
    size_t count = 0;
    bool is_changed = false, ok = items != NULL;
    for (uint32_t i = 0; i + 1 < kwargs->count && ok; i += 2) {
        const char *key = fb_value_text(w->graph, kwargs->items[i]);
        if (has_captures && i + 2 == kwargs->count && is_captures(w->graph, kwargs->items[i]) && list.at) break;
        const onnx_attribute *from = NULL;
        fb_value old = {0};
        for (uint32_t k = 0; before && k + 1 < before->count && !from; k += 2) {
            if (strcmp(fb_value_text(w->before, before->items[k]), key) != 0 || k / 2 >= was->attribute.count) continue;
            from = &was->attribute.items[k / 2];
            old = before->items[k + 1];
            is_changed |= k != i;
        }
        is_changed |= !from;
        ok = put_attribute(w, s, kwargs->items[i], kwargs->items[i + 1], old, from, &list, &items[count], &is_changed);
        count++;
    }
    if (!ok || (was && !is_changed && count == was->attribute.count)) return ok;
    made->attribute.items = items;
    made->attribute.count = count;
    if (count) onnx_set(&made->head, ONNX_node_attribute);
    else onnx_unset(&made->head, ONNX_node_attribute);
    return true;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------- */

static bool put_names(onnx_writer *w, const onnx_bytes *names, size_t count, onnx_head *head, int field, onnx_list *list) {
    bool is_same = head->first && list->count == count;
    for (size_t i = 0; i < count && is_same; i++) is_same = onnx_same(list->items[i], names[i]);
    if (is_same) return true;
    *list = (onnx_list){make(w, count, sizeof *names), count};
    if (!list->items) return false;
    if (count) memcpy(list->items, names, count * sizeof *names);
    if (count) onnx_set(head, field);
    else onnx_unset(head, field);
    return true;
}

static bool put_inputs(onnx_writer *w, fb_node node, onnx_node *made) {
    const fb_value_row *args = fb_value_at(w->graph, fb_node_at(w->graph, node)->args);
    onnx_bytes *names = make(w, args->count, sizeof *names);
    for (uint32_t i = 0; i < args->count && names; i++) {
        fb_node read = fb_value_node(w->graph, args->items[i]);
        if (fb_value_kind(w->graph, args->items[i]) == FB_NONE) continue;
        if (!read.id || !w->names[read.id].size)
            return onnx_refuse_change(w, "an input of %s is not a value", fb_node_name(w->graph, node));
        names[i] = w->names[read.id];
    }
    return names && put_names(w, names, args->count, &made->head, ONNX_node_input, &made->input);
}

/* Names of the results: those that nothing reads keep theirs, as they are a part of the message. */
static bool put_outputs(onnx_writer *w, scope *s, fb_node node, const onnx_node *was, int64_t results, onnx_node *made) {
    if (results < 0) return put_names(w, &w->names[node.id], 1, &made->head, ONNX_node_output, &made->output);
    onnx_bytes *names = make(w, (size_t)results, sizeof *names);
    if (!names) return false;
    for (uint32_t e = fb_user_first(w->graph, node); e; e = fb_user_next(w->graph, e)) {
        fb_node item = fb_edge_user(w->graph, e);
        int64_t index = -1;
        if (call_of_item(w->graph, item).id != node.id || !fb_value_is_int(w->graph, fb_node_arg(w->graph, item, 1), &index) ||
            index < 0 || index >= results)
            return onnx_refuse_change(w, "%s reads a result that %s has not", fb_node_name(w->graph, item),
                                      fb_node_name(w->graph, node));
        if (names[index].size && !onnx_same(names[index], w->names[item.id]))
            return onnx_refuse_change(w, "%s is read twice", fb_node_name(w->graph, item));
        names[index] = w->names[item.id];
    }
    for (int64_t i = 0; was && i < results; i++) {
        onnx_bytes own = was->output.items[i];
        if (names[i].size || !own.size) continue;
        names[i] = fb_map_get(&s->taken, hash_of(own)) ? fresh(w, own) : own;
        if (!fb_map_put(&s->taken, hash_of(names[i]), UINT32_MAX)) return onnx_writer_no_memory(w);
    }
    return put_names(w, names, (size_t)results, &made->head, ONNX_node_output, &made->output);
}

/* How many results a call has that the file does not: -1 of one that is read as a value. */
static int64_t count_results(onnx_writer *w, fb_node node) {
    int64_t most = -1, index;
    for (uint32_t e = fb_user_first(w->graph, node); e; e = fb_user_next(w->graph, e)) {
        fb_node item = fb_edge_user(w->graph, e);
        if (call_of_item(w->graph, item).id == node.id && fb_value_is_int(w->graph, fb_node_arg(w->graph, item, 1), &index))
            most = index + 1 > most ? index + 1 : most;
    }
    return most;
}

static const onnx_function *find_function(onnx_writer *w, const char *target) {
    const onnx_function *found = NULL;
    for (size_t i = 0; i < w->file->model->functions.count && !found; i++) {
        fb_buffer path = {0};
        onnx_put_function(&path, &w->file->model->functions.items[i]);
        if (fb_buffer_text(&path) && strcmp(path.data, target) == 0) found = &w->file->model->functions.items[i];
        fb_buffer_free(&path);
    }
    return found;
}

static bool is_default(onnx_bytes domain) {
    return !domain.size || onnx_is(domain, "ai.onnx");
}

/* Its type, domain and overload, from a target such as `onnx.Softmax.v13`, `com.microsoft.Gelu.v1`, `onnx.function.own.Act`. */
static bool put_operator(onnx_writer *w, const scope *s, const char *target, onnx_node *made) {
    const onnx_function *function = find_function(w, target);
    const char *version = strrchr(target, '.'), *name = version;
    while (name && name > target && name[-1] != '.') name--;
    if (function) {
        made->op_type = function->name;
        made->domain = function->domain;
        made->overload = function->overload;
    } else if (name && name > target && version[1] == 'v') {
        made->op_type = decode(w, name, (size_t)(version - name));
        made->domain = decode(w, target, (size_t)(name - 1 - target));
        int64_t wanted = atoll(version + 2), found = 0;
        bool is_standard = onnx_is(made->domain, "onnx");
        if (is_standard) made->domain = (onnx_bytes){0};
        for (size_t i = 0; i < s->import_count; i++) {
            onnx_bytes domain = s->imports[i].domain;
            if (is_standard ? is_default(domain) : onnx_same(domain, made->domain)) found = s->imports[i].version;
        }
        if (is_standard && found) found = fb_onnx_version(made->op_type.text, made->op_type.size, found);
        if (found != wanted) return onnx_refuse_change(w, "the model's opset has no %s", target);
    } else {
        return onnx_refuse_change(w, "%s is not an operator of ONNX", target);
    }
    onnx_set(&made->head, ONNX_node_op_type);
    if (made->domain.size) onnx_set(&made->head, ONNX_node_domain);
    if (made->overload.size) onnx_set(&made->head, ONNX_node_overload);
    return !w->status;
}

/* The pass that made a new node, and its sources: nodes have metadata from IR 10 on. */
static bool put_provenance(onnx_writer *w, const scope *s, fb_node node, onnx_node *made) {
    const json_t *maker = json_object_get(w->makers, fb_node_name(w->graph, node));
    const char *pass = json_is_string(maker) ? json_string_value(maker) : "foldback", *space = strchr(pass, ' ');
    fb_buffer from = {0}, name = {0};
    if (w->model.ir_version < 10 || !s->is_main) return true;
    const fb_ancestors *ancestors = w->has_ancestry ? &w->ancestry.of[node.id] : NULL;
    for (uint32_t i = 0; ancestors && i < ancestors->count; i++) {
        onnx_note note = onnx_note_of(w, w->before, ancestors->nodes[i]);
        const char *own = fb_node_name(w->before, ancestors->nodes[i]);
        if (from.size) fb_buffer_string(&from, ", ");
        fb_buffer_append(&from, note.has_name ? note.value.text : own, note.has_name ? note.value.size : strlen(own));
    }
    fb_buffer_append(&name, pass, space ? (size_t)(space - pass) : strlen(pass));
    onnx_entry *entries = make(w, 3, sizeof *entries);
    size_t count = 0;
    bool ok = entries && fb_buffer_text(&name) && fb_buffer_text(&from);
    if (ok) ok = put_entry(w, &entries[count++], "foldback.pass", name.data);
    if (ok && space) ok = put_entry(w, &entries[count++], "foldback.signature", space + 1);
    if (ok && from.size) ok = put_entry(w, &entries[count++], "foldback.from", from.data);
    fb_buffer_free(&from);
    fb_buffer_free(&name);
    made->metadata_props.items = entries;
    made->metadata_props.count = count;
    onnx_set(&made->head, ONNX_node_metadata_props);
    return ok || onnx_writer_no_memory(w);
}

static bool is_as_noted(onnx_writer *w, fb_node node, fb_node twin) {
    fb_value a = fb_node_at(w->graph, node)->meta_rest, b = fb_node_at(w->before, twin)->meta_rest;
    fb_value now = a.id ? fb_map_value(w->graph, a, "onnx") : a, was = b.id ? fb_map_value(w->before, b, "onnx") : b;
    return now.id && was.id && is_same_text(w, now, was);
}

/* `index` gets the place of the message in the file; -1: it is a new one. */
static bool put_call(onnx_writer *w, scope *s, fb_node node, onnx_node *made, int64_t *index) {
    fb_node twin = w->twins[node.id];
    onnx_note note = twin.id ? onnx_note_of(w, w->before, twin) : (onnx_note){.node = -1};
    bool is_known = note.node >= 0 && (size_t)note.node < s->node_count && is_as_noted(w, node, twin);
    const onnx_node *was = is_known ? &s->nodes[note.node] : NULL;
    *made = was ? *was : (onnx_node){0};
    *index = was ? note.node : -1;
    int64_t results = was ? note.results : count_results(w, node);
    if (!put_inputs(w, node, made) || !put_outputs(w, s, node, was, results, made)) return false;
    if (!was && !put_operator(w, s, fb_node_target(w->graph, node), made)) return false;
    if (!put_attributes(w, s, node, was ? twin : (fb_node){0}, was, made)) return false;
    if (was) return true;
    made->name = w->names[node.id].size && results < 0 ? w->names[node.id] : literal(fb_node_name(w->graph, node));
    onnx_set(&made->head, ONNX_node_name);
    return put_provenance(w, s, node, made);
}

/* A Constant is a node; so is a new weight of what has no initializers. */
static bool put_constant(onnx_writer *w, const scope *s, fb_node node, onnx_node *made, int64_t *index) {
    fb_node twin = w->twins[node.id];
    onnx_note note = twin.id ? onnx_note_of(w, w->before, twin) : (onnx_note){.node = -1};
    bool is_new = note.node < 0 || (size_t)note.node >= s->node_count;
    *made = is_new ? (onnx_node){.op_type = literal("Constant")} : s->nodes[note.node];
    if (is_new) onnx_set(&made->head, ONNX_node_op_type);
    *index = is_new ? -1 : note.node;
    if (!put_names(w, &w->names[node.id], 1, &made->head, ONNX_node_output, &made->output)) return false;
    if (!is_new && is_same_tensor(w, node, twin)) return !w->status;
    onnx_attribute *attribute = make(w, 1, sizeof *attribute);
    if (!attribute) return false;
    *attribute = (onnx_attribute){.name = literal("value"), .type = 4, .t = make(w, 1, sizeof *attribute->t)};
    onnx_set(&attribute->head, ONNX_attribute_name);
    onnx_set(&attribute->head, ONNX_attribute_type);
    onnx_set(&attribute->head, ONNX_attribute_t);
    made->attribute.items = attribute;
    made->attribute.count = 1;
    onnx_set(&made->head, ONNX_node_attribute);
    return attribute->t && make_tensor(w, tensor_read_by(w->graph, node), (onnx_bytes){0}, attribute->t);
}

static bool put_identity(onnx_writer *w, onnx_bytes from, onnx_bytes to, onnx_node *made) {
    *made = (onnx_node){.op_type = literal("Identity"), .name = fresh(w, to)};
    onnx_set(&made->head, ONNX_node_op_type);
    onnx_set(&made->head, ONNX_node_name);
    return put_names(w, &from, 1, &made->head, ONNX_node_input, &made->input) &&
           put_names(w, &to, 1, &made->head, ONNX_node_output, &made->output);
}

/* All nodes of a graph or function. `is_changed`: they are not those of the file. */
static bool put_nodes(onnx_writer *w, scope *s, const onnx_function *function, const bool *is_copied, onnx_node **items,
                      size_t *count, bool *is_changed) {
    const fb_value_row *outputs = outputs_of(w, s->is);
    *items = make(w, fb_program_at(w->graph, s->is)->node_count + outputs->count, sizeof **items);
    *count = 0;
    *is_changed = false;
    for (fb_node n = fb_first_node(w->graph, s->is); n.id && !w->status; n = fb_next_node(w->graph, n)) {
        const fb_node_row *row = fb_node_at(w->graph, n);
        int64_t index = -1;
        bool ok = true, is_attribute = row->opcode == FB_GET_ATTR && !w->names[n.id].size;
        if (!fb_work_goes_on(w->work, FB_WORK_NODE)) w->status = fb_work_status(w->work, w->error);
        if (row->opcode == FB_PLACEHOLDER || row->opcode == FB_OUTPUT || is_attribute) continue;
        if (row->opcode == FB_CALL_FUNCTION && call_of_item(w->graph, n).id) continue;
        if (row->opcode == FB_GET_ATTR && s->graph && is_initializer(w, n)) continue;
        if (row->opcode == FB_GET_ATTR) ok = put_constant(w, s, n, &(*items)[*count], &index);
        else if (row->opcode == FB_CALL_FUNCTION) ok = put_call(w, s, n, &(*items)[*count], &index);
        else ok = onnx_refuse_change(w, "%s is not a call of an operator", fb_node_name(w->graph, n));
        if (!ok) return false;
        *is_changed |= index != (int64_t)*count || (*items)[*count].head.is_set;
        ++*count;
    }
    for (uint32_t i = 0; i < outputs->count && !w->status; i++) {
        if (!is_copied[i]) continue;
        fb_node n = fb_value_node(w->graph, outputs->items[i]);
        if (!put_identity(w, w->names[n.id], output_name(s, function, i), &(*items)[*count])) return false;
        ++*count;
    }
    *is_changed |= *count != s->node_count;
    return !w->status;
}

/* ---- graphs -------------------------------------------------------------------------------------------------------------- */

static bool index_initializers(onnx_writer *w, scope *s) {
    bool ok = true;
    size_t dense = s->graph->initializer.count;
    for (size_t i = 0; i < dense && ok; i++)
        ok = fb_map_put(&s->by_initializer, hash_of(s->graph->initializer.items[i].name), (uint32_t)i + 1);
    for (size_t i = 0; i < s->graph->sparse_initializer.count && ok; i++)
        ok = fb_map_put(&s->by_initializer, hash_of(s->graph->sparse_initializer.items[i].values->name),
                        (uint32_t)(dense + i) + 1);
    return ok || onnx_writer_no_memory(w);
}

typedef struct initializers {
    bool *is_kept; /* by index, sparse ones behind the others */
    onnx_tensor *added;
    size_t added_count;
    onnx_tensor *changed; /* by index; of those with other bytes */
    bool *is_changed;
} initializers;

static bool sort_initializer(onnx_writer *w, scope *s, fb_node node, initializers *all) {
    fb_node twin = w->twins[node.id];
    onnx_note note = twin.id ? onnx_note_of(w, w->before, twin) : (onnx_note){0};
    uint32_t at = note.has_name && !w->was_attribute[twin.id] ? fb_map_get(&s->by_initializer, hash_of(note.value)) : 0;
    fb_tensor tensor = tensor_read_by(w->graph, node);
    if (!tensor.id) return onnx_refuse_change(w, "%s reads no tensor", fb_node_name(w->graph, node));
    if (at && !onnx_same(w->names[node.id], note.value)) at = 0;
    if (!at) return make_tensor(w, tensor, w->names[node.id], &all->added[all->added_count++]);
    all->is_kept[at - 1] = true;
    if (is_same_tensor(w, node, twin) || w->status) return !w->status;
    if (at > s->graph->initializer.count) return onnx_refuse_change(w, "a sparse weight has changed");
    all->is_changed[at - 1] = true;
    return make_tensor(w, tensor, w->names[node.id], &all->changed[at - 1]);
}

/* The default of an input stays with it. */
static bool keep_defaults(onnx_writer *w, const scope *s, initializers *all) {
    if (s->is_main && w->model.ir_version < 4) return true;
    for (size_t i = 0; i < s->graph->input.count; i++) {
        uint32_t at = fb_map_get(&s->by_initializer, hash_of(s->graph->input.items[i].name));
        if (at) all->is_kept[at - 1] = true;
    }
    return true;
}

static bool put_initializers(onnx_writer *w, scope *s, onnx_graph *made, initializers *all) {
    size_t dense = s->graph->initializer.count, sparse = s->graph->sparse_initializer.count, kept = 0, kept_sparse = 0;
    size_t most = fb_program_at(w->graph, s->is)->node_count;
    *all = (initializers){.is_kept = make(w, dense + sparse, sizeof(bool)),
                          .added = make(w, most, sizeof(onnx_tensor)),
                          .changed = make(w, dense, sizeof(onnx_tensor)),
                          .is_changed = make(w, dense, sizeof(bool))};
    if (w->status || !index_initializers(w, s) || !keep_defaults(w, s, all)) return false;
    for (fb_node n = fb_first_node(w->graph, s->is); n.id; n = fb_next_node(w->graph, n)) {
        bool is_it = fb_node_at(w->graph, n)->opcode == FB_GET_ATTR && w->names[n.id].size && is_initializer(w, n);
        if (is_it && !sort_initializer(w, s, n, all)) return false;
    }
    bool is_any_changed = all->added_count > 0;
    onnx_tensor *items = make(w, dense + all->added_count, sizeof *items);
    onnx_sparse *others = make(w, sparse, sizeof *others);
    for (size_t i = 0; i < dense && !w->status; i++) {
        is_any_changed |= !all->is_kept[i] || all->is_changed[i];
        if (all->is_kept[i]) items[kept++] = all->is_changed[i] ? all->changed[i] : s->graph->initializer.items[i];
    }
    for (size_t i = 0; i < all->added_count && !w->status; i++) items[kept++] = all->added[i];
    for (size_t i = 0; i < sparse && !w->status; i++)
        if (all->is_kept[dense + i]) others[kept_sparse++] = s->graph->sparse_initializer.items[i];
    if (w->status) return false;
    if (is_any_changed) {
        made->initializer.items = items;
        made->initializer.count = kept;
        if (kept) onnx_set(&made->head, ONNX_graph_initializer);
        else onnx_unset(&made->head, ONNX_graph_initializer);
    }
    if (kept_sparse != sparse) {
        made->sparse_initializer.items = others;
        made->sparse_initializer.count = kept_sparse;
        if (kept_sparse) onnx_set(&made->head, ONNX_graph_sparse_initializer);
        else onnx_unset(&made->head, ONNX_graph_sparse_initializer);
    }
    return true;
}

static bool put_type(onnx_writer *w, const onnx_tensor *tensor, onnx_value_info *made) {
    onnx_number_cursor cursor = onnx_numbers_from(&tensor->dims, ONNX_VARINT);
    uint64_t bits;
    onnx_shape *shape = make(w, 1, sizeof *shape);
    onnx_tensor_type *type = make(w, 1, sizeof *type);
    made->type = make(w, 1, sizeof *made->type);
    if (shape) shape->dim.items = make(w, (size_t)tensor->dims.count, sizeof *shape->dim.items);
    if (w->status) return false;
    while (onnx_numbers_next(&cursor, &bits)) {
        onnx_dimension *dim = &shape->dim.items[shape->dim.count++];
        dim->dim_value = (int64_t)bits;
        onnx_set(&dim->head, ONNX_dimension_dim_value);
    }
    onnx_set(&shape->head, ONNX_shape_dim);
    *type = (onnx_tensor_type){.elem_type = tensor->data_type, .shape = shape};
    onnx_set(&type->head, ONNX_tensor_type_elem_type);
    onnx_set(&type->head, ONNX_tensor_type_shape);
    made->type->tensor_type = type;
    onnx_set(&made->type->head, ONNX_type_tensor_type);
    made->name = tensor->name;
    onnx_set(&made->head, ONNX_value_info_name);
    onnx_set(&made->head, ONNX_value_info_type);
    return true;
}

/* Before IR 4 each initializer is listed as an input. */
static bool put_listed_inputs(onnx_writer *w, const scope *s, const initializers *all, onnx_graph *made) {
    size_t count = 0;
    bool is_changed = all->added_count > 0;
    if (!s->is_main || w->model.ir_version >= 4) return true;
    onnx_value_info *items = make(w, s->graph->input.count + all->added_count, sizeof *items);
    if (!items) return false;
    for (size_t i = 0; i < s->graph->input.count; i++) {
        uint32_t at = fb_map_get(&s->by_initializer, hash_of(s->graph->input.items[i].name));
        bool is_gone = at && !all->is_kept[at - 1];
        is_changed |= is_gone;
        if (!is_gone) items[count++] = s->graph->input.items[i];
    }
    for (size_t i = 0; i < all->added_count; i++)
        if (!put_type(w, &all->added[i], &items[count++])) return false;
    if (!is_changed) return true;
    made->input.items = items;
    made->input.count = count;
    if (count) onnx_set(&made->head, ONNX_graph_input);
    else onnx_unset(&made->head, ONNX_graph_input);
    return true;
}

/* Does a pass give the value another dtype, or another shape than the entry says? */
static bool is_outdated(onnx_writer *w, const onnx_value_info *entry, fb_node node) {
    const onnx_tensor_type *type = entry->type ? entry->type->tensor_type : NULL;
    fb_node twin = node.id < UINT32_MAX ? w->twins[node.id] : (fb_node){0};
    fb_value shape = twin.id ? fb_node_at(w->graph, node)->shape : (fb_value){0};
    fb_dtype was = twin.id ? (fb_dtype)fb_node_at(w->before, twin)->dtype : FB_DTYPE_UNKNOWN;
    fb_dtype is = twin.id ? (fb_dtype)fb_node_at(w->graph, node)->dtype : FB_DTYPE_UNKNOWN;
    if (type && !was) was = fb_onnx_dtype(type->elem_type);
    if (type && is && was && is != was) return true;
    if (!shape.id || !type || !type->shape) return false;
    if (is_same_text(w, fb_node_at(w->graph, node)->args, fb_node_at(w->before, twin)->args)) return false;
    bool is_it = fb_shape_rank(w->graph, shape) != (int)type->shape->dim.count;
    for (size_t i = 0; i < type->shape->dim.count && !is_it; i++) {
        int64_t said = type->shape->dim.items[i].dim_value, found = fb_shape_size(w->graph, shape, (int)i);
        is_it = said > 0 && found >= 0 && said != found;
    }
    return is_it;
}

/* Entries of values that are gone, or have another dtype or shape now, are dropped. */
static bool put_value_info(onnx_writer *w, const scope *s, onnx_graph *made) {
    size_t kept = 0;
    onnx_value_info *items = make(w, s->graph->value_info.count, sizeof *items);
    if (!items) return false;
    for (size_t i = 0; i < s->graph->value_info.count; i++) {
        const onnx_value_info *one = &s->graph->value_info.items[i];
        fb_node node = {fb_map_get(&s->taken, hash_of(one->name))};
        if (node.id && !is_outdated(w, one, node)) items[kept++] = *one;
    }
    if (kept == s->graph->value_info.count) return true;
    made->value_info.items = items;
    made->value_info.count = kept;
    if (kept) onnx_set(&made->head, ONNX_graph_value_info);
    else onnx_unset(&made->head, ONNX_graph_value_info);
    return true;
}

/* Refuses a name that the model mentions elsewhere, where its value is gone. */
static bool check_named(onnx_writer *w, const scope *s, onnx_bytes name, const char *where) {
    char shown[96];
    fb_map_slot slot = {.key = hash_of(name)};
    if (!name.size || fb_map_get(&s->taken, slot.key) || !fb_map_get(&w->known, slot.key)) return true;
    return onnx_refuse_change(w, "the model's %s names the value \"%s\", which is gone", where, onnx_shown(name, shown));
}

static bool check_annotations(onnx_writer *w, const scope *s) {
    bool ok = true;
    for (size_t i = 0; i < s->graph->quantization_annotation.count && ok; i++) {
        const onnx_annotation *one = &s->graph->quantization_annotation.items[i];
        ok = check_named(w, s, one->tensor_name, "quantization_annotation");
        for (size_t k = 0; k < one->quant_parameter_tensor_names.count && ok; k++)
            ok = check_named(w, s, one->quant_parameter_tensor_names.items[k].value, "quantization_annotation");
    }
    return ok;
}

static bool check_bindings(onnx_writer *w, const scope *s, const onnx_entry *items, size_t count) {
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++)
        ok = check_named(w, s, items[i].key, "training_info") && check_named(w, s, items[i].value, "training_info");
    return ok;
}

static bool check_training(onnx_writer *w, const scope *s) {
    bool ok = true;
    if (w->model.training_info.count && fb_graph_opset(w->graph) != fb_graph_opset(w->before))
        return onnx_refuse_change(w, "the nodes of its training_info are of the old opset");
    for (size_t i = 0; i < w->model.training_info.count && ok; i++) {
        const onnx_training *one = &w->model.training_info.items[i];
        const onnx_graph *graphs[] = {one->initialization, one->algorithm};
        ok = check_bindings(w, s, one->initialization_binding.items, one->initialization_binding.count) &&
             check_bindings(w, s, one->update_binding.items, one->update_binding.count);
        for (int k = 0; k < 2 && ok; k++)
            for (size_t n = 0; graphs[k] && n < graphs[k]->node.count && ok; n++)
                for (size_t x = 0; x < graphs[k]->node.items[n].input.count && ok; x++)
                    ok = check_named(w, s, graphs[k]->node.items[n].input.items[x], "training_info");
    }
    return ok;
}

static void free_scope(scope *s) {
    fb_map_free(&s->taken);
    fb_map_free(&s->by_initializer);
}

static bool fill_graph(onnx_writer *w, scope *s, onnx_graph *made, bool *is_changed) {
    bool *is_copied = make(w, s->graph->output.count, sizeof *is_copied);
    onnx_node *nodes;
    size_t count;
    bool are_others;
    initializers all;
    *made = *s->graph;
    if (!is_copied || !find_twins(w, s) || !name_placeholders(w, s) || !name_outputs(w, s, NULL, is_copied) ||
        !name_values(w, s) || !put_nodes(w, s, NULL, is_copied, &nodes, &count, &are_others) ||
        !put_initializers(w, s, made, &all) || !put_listed_inputs(w, s, &all, made) || !put_value_info(w, s, made) ||
        !check_annotations(w, s))
        return false;
    if (are_others) {
        made->node.items = nodes;
        made->node.count = count;
        if (count) onnx_set(&made->head, ONNX_graph_node);
        else onnx_unset(&made->head, ONNX_graph_node);
    }
    *is_changed = made->head.is_set;
    return !s->is_main || check_training(w, s);
}

static bool make_graph(onnx_writer *w, const scope *outer, fb_node node, fb_node twin, const onnx_graph *was,
                       const fb_value_row *captures, onnx_graph *made, bool *is_changed) {
    scope s = {.was = twin.id ? fb_onnx_program_read_by(w->before, twin) : (fb_program){0},
               .is = fb_onnx_program_read_by(w->graph, node),
               .graph = was,
               .nodes = was->node.items,
               .node_count = was->node.count,
               .imports = outer->imports,
               .import_count = outer->import_count,
               .captures = captures};
    bool ok = fill_graph(w, &s, made, is_changed);
    free_scope(&s);
    return ok;
}

/* The model's or a function's imports with the opset that the graph has now; NULL: it is the same. */
static onnx_opset *put_imports(onnx_writer *w, const onnx_opset *was, size_t count) {
    int64_t opset = fb_graph_opset(w->graph);
    onnx_opset *items = make(w, count, sizeof *items);
    if (!items || opset == fb_graph_opset(w->before)) return NULL;
    memcpy(items, was, count * sizeof *items);
    for (size_t i = 0; i < count; i++) {
        if (!is_default(was[i].domain)) continue;
        items[i].head = (onnx_head){0};
        items[i].version = opset;
        if (was[i].domain.size) onnx_set(&items[i].head, ONNX_opset_domain);
        onnx_set(&items[i].head, ONNX_opset_version);
    }
    return items;
}

/* ---- functions ----------------------------------------------------------------------------------------------------------- */

static bool put_function(onnx_writer *w, fb_module module, const onnx_function *was, onnx_function *made) {
    fb_module before = fb_module_find(w->before, fb_text(w->graph, fb_module_at(w->graph, module)->path));
    scope s = {.was = before.id ? fb_module_at(w->before, before)->program : (fb_program){0},
               .is = fb_module_at(w->graph, module)->program,
               .nodes = was->node.items,
               .node_count = was->node.count,
               .imports = was->opset_import.items,
               .import_count = was->opset_import.count};
    onnx_opset *imports = put_imports(w, s.imports, s.import_count);
    if (imports) s.imports = imports;
    bool *is_copied = make(w, was->output.count, sizeof *is_copied);
    onnx_node *nodes = NULL;
    size_t count = 0;
    bool are_others = false;
    bool ok = is_copied && find_twins(w, &s) && name_placeholders(w, &s) && name_outputs(w, &s, was, is_copied) &&
              name_values(w, &s) && put_nodes(w, &s, was, is_copied, &nodes, &count, &are_others);
    free_scope(&s);
    *made = *was;
    if (imports) {
        made->opset_import.items = imports;
        onnx_set(&made->head, ONNX_function_opset_import);
    }
    if (!ok || !are_others) return ok;
    made->node.items = nodes;
    made->node.count = count;
    onnx_set(&made->head, ONNX_function_node);
    return true;
}

/* The module of a function of the file; none: the graph does not have it any more. */
static fb_module module_of(onnx_writer *w, const onnx_function *function) {
    fb_buffer path = {0};
    onnx_put_function(&path, function);
    const char *text = fb_buffer_text(&path);
    fb_module module = text ? fb_module_find(w->graph, text) : (fb_module){0};
    if (!text) onnx_writer_no_memory(w);
    fb_buffer_free(&path);
    return module.id && fb_module_at(w->graph, module)->program.id ? module : (fb_module){0};
}

static bool know_functions(onnx_writer *w) {
    const onnx_model *model = w->file->model;
    for (size_t i = 0; i < model->functions.count && !w->status; i++) {
        fb_module module = module_of(w, &model->functions.items[i]);
        if (module.id) w->is_function[fb_module_at(w->graph, module)->program.id] = true;
    }
    return !w->status;
}

static bool put_functions(onnx_writer *w) {
    const onnx_model *model = w->file->model;
    onnx_function *items = make(w, model->functions.count, sizeof *items);
    size_t kept = 0;
    bool is_changed = false;
    for (size_t i = 0; i < model->functions.count && !w->status; i++) {
        fb_module module = module_of(w, &model->functions.items[i]);
        bool is_there = module.id != 0;
        is_changed |= !is_there;
        if (!is_there) continue;
        if (!put_function(w, module, &model->functions.items[i], &items[kept])) return false;
        is_changed |= items[kept++].head.is_set;
    }
    if (w->status || !is_changed) return !w->status;
    w->model.functions.items = items;
    w->model.functions.count = kept;
    if (kept) onnx_set(&w->model.head, ONNX_model_functions);
    else onnx_unset(&w->model.head, ONNX_model_functions);
    return true;
}

/* ---- the model ----------------------------------------------------------------------------------------------------------- */

static bool put_id(onnx_writer *w) {
    const onnx_model *model = w->file->model;
    size_t count = model->metadata_props.count, at = 0;
    char id[FB_ID_LENGTH + 1];
    onnx_entry *items = make(w, count + 1, sizeof *items);
    if (!items) return false;
    if (!fb_document_id_metered(w->graph, w->work, id)) {
        w->status = fb_work_failed(w->work, w->error);
        return false;
    }
    if (count) memcpy(items, model->metadata_props.items, count * sizeof *items);
    while (at < count && !onnx_is(items[at].key, GRAPH_KEY)) at++;
    items[at].head = (onnx_head){0};
    if (!put_entry(w, &items[at], GRAPH_KEY, id)) return false;
    w->model.metadata_props.items = items;
    w->model.metadata_props.count = at == count ? count + 1 : count;
    onnx_set(&w->model.head, ONNX_model_metadata_props);
    return true;
}

bool onnx_rewrite_model(onnx_writer *w) {
    const onnx_model *model = w->file->model;
    size_t nodes = fb_node_limit(w->graph) + 1;
    bool is_changed;
    scope s = {.was = FB_MAIN_PROGRAM,
               .is = FB_MAIN_PROGRAM,
               .graph = model->graph,
               .nodes = model->graph->node.items,
               .node_count = model->graph->node.count,
               .imports = model->opset_import.items,
               .import_count = model->opset_import.count,
               .is_main = true};
    w->model = *model;
    w->names = make(w, nodes, sizeof *w->names);
    w->twins = make(w, nodes, sizeof *w->twins);
    w->is_value = make(w, nodes, sizeof *w->is_value);
    w->was_attribute = make(w, fb_node_limit(w->before) + 1, sizeof *w->was_attribute);
    w->model.graph = make(w, 1, sizeof *w->model.graph);
    w->is_function = make(w, fb_program_limit(w->graph) + 1, sizeof *w->is_function);
    if (w->status || !know_functions(w) || !know_graph(w, model->graph)) return false;
    w->status = fb_ancestry_find(w->before, FB_MAIN_PROGRAM, w->graph, FB_MAIN_PROGRAM, w->work, &w->ancestry, w->error);
    w->has_ancestry = !w->status;
    onnx_opset *imports = put_imports(w, s.imports, s.import_count);
    if (imports) s.imports = imports;
    bool ok = !w->status && fill_graph(w, &s, w->model.graph, &is_changed);
    if (imports) {
        w->model.opset_import.items = imports;
        onnx_set(&w->model.head, ONNX_model_opset_import);
    }
    free_scope(&s);
    onnx_set(&w->model.head, ONNX_model_graph);
    onnx_bytes name = literal(fb_graph_name(w->graph));
    if (ok && !onnx_same(name, model->graph->name)) {
        w->model.graph->name = name;
        onnx_set(&w->model.graph->head, ONNX_graph_name);
    }
    return ok && put_functions(w) && put_id(w);
}

void onnx_written_for(const onnx_file *file, char id[FB_ID_LENGTH + 1]) {
    *id = '\0';
    for (size_t i = 0; i < file->model->metadata_props.count; i++) {
        const onnx_entry *one = &file->model->metadata_props.items[i];
        if (!onnx_is(one->key, GRAPH_KEY) || one->value.size != FB_ID_LENGTH) continue;
        memcpy(id, one->value.text, FB_ID_LENGTH);
        id[FB_ID_LENGTH] = '\0';
        if (!fb_is_sha256_id(id)) *id = '\0';
    }
}
