/* Reading one node. */
#include <stdlib.h>
#include <string.h>

#include "core/document/read.h"

enum { NAME, OP, TARGET, ARGS, KWARGS, TYPE, META, MEMBER_COUNT };
static const char *const member_names[] = {"name", "op", "target", "args", "kwargs", "type", "meta"};

enum { SHAPE, DTYPE, TRANSFORMATIONS, IS_WRAPPED, DEVICE, META_COUNT };
static const char *const meta_names[] = {"shape", "dtype", "transformations", "is_wrapped", "device"};
#define META_KEPT_APART 3 /* is_wrapped and device stay with the unknown members */

static const char *wrong_signature(const char *text, size_t length) {
    bool is_right = length == 32;
    for (size_t i = 0; i < length; i++) is_right &= (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    return is_right ? NULL : "is not a signature: 32 lower-case hexadecimal digits";
}

static void read_meta(fb_reader *reader, const fb_json *meta, fb_node_row *row) {
    const fb_json *found[META_COUNT];
    size_t unknown = fb_find_members(meta, meta_names, META_COUNT, found);
    if (found[SHAPE]) row->shape = fb_read_shape(reader, found[SHAPE], true);
    if (found[DTYPE]) row->dtype = (uint8_t)fb_read_dtype(reader, found[DTYPE]);
    const fb_json *list = fb_optional(reader, found[TRANSFORMATIONS], FB_JSON_ARRAY);
    if (list) {
        const fb_json *item = fb_json_first(list);
        for (uint32_t i = 0; i < list->count; i++, item = fb_json_next(item)) {
            if (item->kind == FB_JSON_STRING) fb_check_spelling(reader, item, wrong_signature, "bad-signature");
        }
        row->transformations = fb_read_strings(reader, list);
    }
    fb_optional_bool(reader, found[IS_WRAPPED]);
    const fb_json *device = fb_optional(reader, found[DEVICE], FB_JSON_STRING);
    if (device) fb_check_spelling(reader, device, fb_wrong_device, "bad-value");
    if (unknown || found[IS_WRAPPED] || found[DEVICE]) row->meta_rest = fb_read_rest(reader, meta, meta_names, META_KEPT_APART);
}

/* The placeholder's name in the signature: `*args` and `**kwargs` have stars before it. */
static const char *wrong_input(const char *text, size_t length) {
    size_t stars = 0;
    while (stars < 2 && stars < length && text[stars] == '*') stars++;
    return fb_wrong_identifier(text + stars, length - stars);
}

static const char *wrong_output(const char *text, size_t length) {
    return length == 6 && memcmp(text, "output", 6) == 0 ? NULL : "is not a target of an output node, which is \"output\"";
}

static fb_spelling *const target_spelling[] = {
    [FB_PLACEHOLDER] = wrong_input,       [FB_GET_ATTR] = fb_wrong_path,          [FB_CALL_MODULE] = fb_wrong_path,
    [FB_CALL_FUNCTION] = fb_wrong_dotted, [FB_CALL_METHOD] = fb_wrong_identifier, [FB_OUTPUT] = wrong_output,
};

static fb_opcode read_opcode(fb_reader *reader, const fb_json *op) {
    char name[16] = "";
    if (op->count < sizeof name) memcpy(name, op->text, op->count);
    fb_opcode opcode = fb_opcode_find(name);
    if (!opcode) {
        fb_reader_error(reader, op, "unknown-op",
                        "op is one of placeholder, get_attr, call_module, call_function, call_method, output");
    }
    return opcode;
}

/* Makes the name known to the nodes that follow. */
static bool remember_name(fb_reader *reader, fb_symbol name, fb_node node) {
    if (name.id >= reader->named_capacity) {
        size_t capacity = reader->named_capacity * 2 > name.id ? reader->named_capacity * 2 : (size_t)name.id + 256;
        fb_node *named = realloc(reader->named, capacity * sizeof *named);
        if (!named) return false;
        memset(named + reader->named_capacity, 0, (capacity - reader->named_capacity) * sizeof *named);
        reader->named = named;
        reader->named_capacity = capacity;
    }
    reader->named[name.id] = node;
    return true;
}

static bool is_taken(const fb_reader *reader, fb_symbol name) {
    fb_node node = name.id < reader->named_capacity ? reader->named[name.id] : (fb_node){0};
    return node.id && fb_node_at(reader->graph, node)->program.id == reader->program.id;
}

/* The node's name, or a stand-in when there is none to use. */
static fb_symbol read_name(fb_reader *reader, const fb_json *tree, const fb_json *member) {
    const fb_json *text = fb_require(reader, tree, member, "name", FB_JSON_STRING);
    if (text) {
        fb_symbol name = reader->node_name = fb_read_symbol(reader, text);
        fb_check_spelling(reader, text, fb_wrong_identifier, "bad-identifier");
        if (!is_taken(reader, name)) return name;
        fb_reader_error(reader, text, "duplicate-name", "there are two nodes \"%s\"", fb_text(reader->graph, name));
    }
    return fb_stand_in_name(reader, fb_node_limit(reader->graph));
}

static void read_members(fb_reader *reader, const fb_json *tree, const fb_json *const *found, fb_node_row *row, fb_value *args,
                         fb_value *kwargs) {
    reader->nodes_are_allowed = true;
    const fb_json *list = fb_optional(reader, found[ARGS], FB_JSON_ARRAY);
    if (list) *args = fb_read_list(reader, list);
    const fb_json *map = fb_optional(reader, found[KWARGS], FB_JSON_OBJECT);
    if (map) {
        const fb_json *key = fb_json_first(map);
        for (uint32_t i = 0; i < map->count; i++, key = fb_json_next(key + 1)) {
            fb_check_spelling(reader, key, fb_wrong_identifier, "bad-identifier");
        }
        *kwargs = fb_read_map_as_given(reader, map);
    }
    reader->nodes_are_allowed = false;
    const fb_json *type = fb_optional(reader, found[TYPE], FB_JSON_STRING);
    if (type && fb_check_spelling(reader, type, fb_wrong_annotation, "bad-type")) row->type = fb_read_symbol(reader, type);
    const fb_json *meta = fb_optional(reader, found[META], FB_JSON_OBJECT);
    if (meta) read_meta(reader, meta, row);
    if (fb_require(reader, tree, found[OP], "op", FB_JSON_STRING)) row->opcode = (uint8_t)read_opcode(reader, found[OP]);
    const fb_json *target = fb_require(reader, tree, found[TARGET], "target", FB_JSON_STRING);
    if (target) {
        row->target = fb_read_symbol(reader, target);
        if (row->opcode) fb_check_spelling(reader, target, target_spelling[row->opcode], "bad-target");
    }
}

void fb_read_node(fb_reader *reader, const fb_json *tree) {
    if (++reader->node_count > reader->max_nodes) {
        fb_scan_fail(&reader->scan, FB_TOO_LARGE, "too-many-nodes", "the document has more nodes than this service takes",
                     reader->scan.at);
        return;
    }
    fb_graph *graph = reader->graph;
    const fb_json *found[MEMBER_COUNT] = {NULL};
    fb_symbol name;
    fb_node_row read = {0};
    fb_value args = {0}, kwargs = {0};
    reader->node_name = (fb_symbol){0};
    if (fb_expect(reader, tree, FB_JSON_OBJECT)) {
        bool has_unknown = fb_find_members(tree, member_names, MEMBER_COUNT, found) > 0;
        name = read_name(reader, tree, found[NAME]);
        if (has_unknown) fb_refuse_unknown(reader, tree, member_names, MEMBER_COUNT);
        read_members(reader, tree, found, &read, &args, &kwargs);
    } else {
        name = fb_stand_in_name(reader, fb_node_limit(graph));
    }
    reader->node_name = (fb_symbol){0};

    fb_node node = name.id && !reader->failed ? fb_graph_add_node(graph, reader->program, name, (fb_node){0}) : (fb_node){0};
    if (!node.id || !remember_name(reader, name, node)) {
        fb_reader_no_memory(reader);
        return;
    }
    fb_node_row *row = fb_node_row_at(graph, node);
    row->shape = read.shape;
    row->dtype = read.dtype;
    row->transformations = read.transformations;
    row->meta_rest = read.meta_rest;
    row->type = read.type;
    if (read.opcode && read.target.id) fb_graph_set_target(graph, node, (fb_opcode)read.opcode, read.target);
    if (!args.id) args = row->args;
    if (!kwargs.id) kwargs = row->kwargs;
    if (!fb_graph_set_args(graph, node, args, kwargs)) fb_reader_no_memory(reader);
}

void fb_end_program(fb_reader *reader) {
    for (size_t i = 0; i < reader->unknown_count; i++) {
        fb_unknown_node unknown = reader->unknown_nodes[i];
        if (!is_taken(reader, unknown.name)) continue;
        fb_error *error = &reader->errors->items[unknown.error];
        error->status = FB_OK; /* so that it can be written again */
        char pointer[FB_POINTER_MAX], node[sizeof error->node];
        memcpy(pointer, error->pointer, sizeof pointer);
        memcpy(node, error->node, sizeof node);
        fb_fail(error, FB_INVALID, "forward-reference", pointer, "node \"%s\" is read before it is defined",
                fb_text(reader->graph, unknown.name));
        memcpy(error->node, node, sizeof node);
    }
    reader->unknown_count = 0;
}
