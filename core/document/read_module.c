/* Reading one module (with its nested program) and one tensor. */
#include <string.h>

#include "core/base/base64.h"
#include "core/base/map.h"
#include "core/base/sha256.h"
#include "core/document/read.h"
#include "core/operators/spelling.h"

/* ---- modules ----------------------------------------------------------------------------------------------------------- */

enum { PATH, TYPE, CONFIG, PARAMETERS, BUFFERS, NON_PERSISTENT, ATTRIBUTES, TRAINING, GRAPH, MODULE_MEMBERS };
static const uint8_t module_members[] = {FB_MEMBER_path,       FB_MEMBER_type,     FB_MEMBER_config,
                                         FB_MEMBER_parameters, FB_MEMBER_buffers,  FB_MEMBER_non_persistent,
                                         FB_MEMBER_attributes, FB_MEMBER_training, FB_MEMBER_graph};

static fb_symbol read_path(fb_reader *reader, const fb_json *tree, const fb_json *member) {
    fb_graph *graph = reader->graph;
    const fb_json *text = fb_require(reader, tree, member, "path", FB_JSON_STRING);
    if (text) {
        fb_symbol path = fb_read_expected(reader, &reader->modules, text);
        bool is_root = text->count == 0;
        if (!is_root) fb_check_spelling(reader, text, fb_wrong_path, "bad-path");
        if (!fb_graph_module_named(graph, path).id) return path;
        fb_reader_error(reader, text, "duplicate-name", "there are two modules \"%s\"", fb_text(graph, path));
    }
    return fb_stand_in_name(reader, fb_module_limit(graph));
}

/* parameters or buffers: attribute -> tensor or null. */
static fb_value read_owned(fb_reader *reader, const fb_json *map) {
    fb_graph *graph = reader->graph;
    size_t base = reader->item_count;
    const fb_json *key = fb_json_first(map);
    for (uint32_t i = 0; i < map->count && !reader->failed; i++, key = fb_json_next(key + 1)) {
        fb_check_spelling(reader, key, fb_wrong_attribute, "bad-identifier");
        const fb_json *name = key + 1;
        fb_value tensor = {0};
        if (name->kind == FB_JSON_STRING && reader->tensors_are_late) {
            fb_symbol late = fb_read_symbol(reader, name);
            fb_expect_name(reader, &reader->tensors, late);
            tensor = fb_make_tensor_named(late);
        } else if (name->kind == FB_JSON_STRING) {
            tensor = fb_make_tensor(graph, fb_read_tensor_reference(reader, name));
        } else if (name->kind != FB_JSON_NULL) {
            fb_reader_error(reader, name, "wrong-type", "a tensor's name or null is expected here, not %s",
                            fb_json_kind_name(name));
        }
        fb_push_key(reader, key);
        fb_push(reader, tensor.id ? tensor : fb_make_none(graph));
    }
    return fb_pop_items(reader, FB_MAP, (fb_symbol){0}, base);
}

/* An attribute is one thing: a parameter, a buffer or a plain value. */
static void check_attributes_differ(fb_reader *reader, const fb_module_row *row, const fb_json *const *found) {
    const fb_value maps[] = {row->parameters, row->buffers, row->attributes};
    const fb_json *const trees[] = {found[PARAMETERS], found[BUFFERS], found[ATTRIBUTES]};
    size_t base = reader->item_count;
    for (size_t m = 0; m < 3; m++) {
        uint32_t count = maps[m].id ? fb_value_at(reader->graph, maps[m])->count : 0;
        for (uint32_t i = 0; i < count; i += 2) fb_push(reader, fb_value_item(reader->graph, maps[m], i));
    }
    size_t repeat = reader->failed ? SIZE_MAX : fb_find_repeat(reader, base, 1);
    if (repeat != SIZE_MAX) {
        const char *attribute = fb_value_text(reader->graph, reader->items[base + repeat]);
        size_t m = 0;
        for (size_t before = repeat; trees[m] == NULL || before >= trees[m]->count; m++)
            before -= trees[m] ? trees[m]->count : 0;
        fb_reader_error(reader, trees[m], "duplicate-name", "attribute \"%s\" is there twice", attribute);
    }
    reader->item_count = base;
}

static void check_non_persistent(fb_reader *reader, const fb_module_row *row, const fb_json *list) {
    const fb_value_row *buffers = fb_value_at(reader->graph, row->buffers);
    fb_map names = {0};
    for (uint32_t i = 0; i < buffers->count; i += 2) {
        if (!fb_map_put(&names, fb_value_at(reader->graph, buffers->items[i])->symbol.id, 1)) fb_reader_no_memory(reader);
    }
    const fb_json *item = fb_json_first(list);
    for (uint32_t i = 0; i < list->count && !reader->failed; i++, item = fb_json_next(item)) {
        if (item->kind != FB_JSON_STRING) continue;
        fb_symbol name = fb_read_symbol(reader, item);
        if (fb_map_get(&names, name.id)) continue;
        fb_reader_error(reader, item, "unknown-buffer", "the module has no buffer \"%s\"", fb_text(reader->graph, name));
    }
    fb_map_free(&names);
}

static void read_program(fb_reader *reader, fb_module module, const fb_json *tree, const fb_json *type) {
    static const uint8_t members[] = {FB_MEMBER_nodes};
    const fb_json *found[1];
    if (fb_find_members(tree, members, 1, found) > 0) fb_refuse_unknown(reader, tree, members, 1);
    if (!type || !fb_json_is(type, FB_TYPE_GRAPH_MODULE)) {
        fb_reader_error(reader, tree, "bad-program", "only a module of type torch.fx.GraphModule has a graph");
    }
    const fb_json *nodes = fb_require(reader, tree, found[0], "nodes", FB_JSON_ARRAY);
    fb_program program = nodes ? fb_graph_add_program(reader->graph, module) : (fb_program){0};
    if (!program.id) return;
    fb_module_row_at(reader->graph, module)->program = program;
    reader->program = program;
    const fb_json *node = fb_json_first(nodes);
    for (uint32_t i = 0; i < nodes->count && !reader->failed && reader->scan.status == FB_OK; i++, node = fb_json_next(node)) {
        fb_read_node(reader, node);
    }
    fb_end_program(reader);
}

void fb_read_module(fb_reader *reader, const fb_json *tree) {
    const fb_json *found[MODULE_MEMBERS] = {NULL};
    fb_graph *graph = reader->graph;
    bool is_object = fb_expect(reader, tree, FB_JSON_OBJECT);
    size_t unknown = is_object ? fb_find_members(tree, module_members, MODULE_MEMBERS, found) : 0;
    fb_symbol path = is_object ? read_path(reader, tree, found[PATH]) : fb_stand_in_name(reader, fb_module_limit(graph));
    fb_module module = path.id ? fb_graph_add_module(graph, path, (fb_module){0}) : (fb_module){0};
    if (!module.id) fb_reader_no_memory(reader);
    if (!module.id || !is_object) return;

    fb_module_row *row = fb_module_row_at(graph, module);
    const fb_json *type = fb_require(reader, tree, found[TYPE], "type", FB_JSON_STRING);
    fb_symbol type_name;
    if (type && fb_read_spelled(reader, type, fb_wrong_label, "bad-type", &type_name) && type_name.id)
        fb_graph_set_module_type(graph, module, type_name);
    const fb_json *config = fb_optional(reader, found[CONFIG], FB_JSON_OBJECT);
    if (config) row->config = fb_read_map_sorted(reader, config);
    const fb_json *parameters = fb_optional(reader, found[PARAMETERS], FB_JSON_OBJECT);
    if (parameters) row->parameters = read_owned(reader, parameters);
    const fb_json *buffers = fb_optional(reader, found[BUFFERS], FB_JSON_OBJECT);
    if (buffers) row->buffers = read_owned(reader, buffers);
    const fb_json *list = fb_optional(reader, found[NON_PERSISTENT], FB_JSON_ARRAY);
    if (list) row->non_persistent = fb_read_strings(reader, list);
    const fb_json *attributes = fb_optional(reader, found[ATTRIBUTES], FB_JSON_OBJECT);
    if (attributes && attributes->count) {
        const fb_json *key = fb_json_first(attributes);
        for (uint32_t i = 0; i < attributes->count; i++, key = fb_json_next(key + 1)) {
            fb_check_spelling(reader, key, fb_wrong_attribute, "bad-identifier");
        }
        row->attributes = fb_read_map_sorted(reader, attributes);
    }
    row->training = fb_optional_bool(reader, found[TRAINING]);
    if (unknown) row->rest = fb_read_rest(reader, tree, module_members, MODULE_MEMBERS);
    if (reader->failed) return;
    if (list) check_non_persistent(reader, row, list);
    if (parameters || buffers || attributes) {
        check_attributes_differ(
            reader, row,
            (const fb_json *[MODULE_MEMBERS]){[PARAMETERS] = parameters, [BUFFERS] = buffers, [ATTRIBUTES] = attributes});
    }
    const fb_json *program = fb_optional(reader, found[GRAPH], FB_JSON_OBJECT);
    if (program) read_program(reader, module, program, type);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------------- */

enum { NAME, DTYPE, SHAPE, REQUIRES_GRAD, DIGEST, BLOB, OFFSET, DATA, RECIPE, TENSOR_MEMBERS };
static const uint8_t tensor_members[] = {FB_MEMBER_name,          FB_MEMBER_dtype,  FB_MEMBER_shape,
                                         FB_MEMBER_requires_grad, FB_MEMBER_digest, FB_MEMBER_blob,
                                         FB_MEMBER_offset,        FB_MEMBER_data,   FB_MEMBER_recipe};

static fb_symbol read_tensor_name(fb_reader *reader, const fb_json *tree, const fb_json *member) {
    fb_graph *graph = reader->graph;
    const fb_json *text = fb_require(reader, tree, member, "name", FB_JSON_STRING);
    if (text) {
        bool is_expected = reader->tensors_are_late;
        fb_symbol name = is_expected ? fb_read_expected(reader, &reader->tensors, text) : fb_read_symbol(reader, text);
        if (!is_expected) fb_expect_name(reader, &reader->tensors, name);
        fb_check_spelling(reader, text, fb_wrong_label, "bad-identifier");
        if (!fb_graph_tensor_named(graph, name).id) return name;
        fb_reader_error(reader, text, "duplicate-name", "there are two tensors \"%s\"", fb_text(graph, name));
    }
    return fb_stand_in_name(reader, fb_tensor_limit(graph));
}

static const char *wrong_id(const char *text, size_t length) {
    char id[FB_ID_LENGTH + 1] = "";
    if (length == FB_ID_LENGTH) memcpy(id, text, length);
    return fb_is_sha256_id(id) ? NULL : "is not \"sha256:\" and 64 lower-case hexadecimal digits";
}

static const char *wrong_base64(const char *text, size_t length) {
    return fb_is_base64(text, length) ? NULL : "is not base64 (RFC 4648, section 4, with padding)";
}

const fb_json *fb_read_tensor(fb_reader *reader, const fb_json *tree) {
    const fb_json *found[TENSOR_MEMBERS] = {NULL};
    fb_graph *graph = reader->graph;
    bool is_object = fb_expect(reader, tree, FB_JSON_OBJECT);
    size_t unknown = is_object ? fb_find_members(tree, tensor_members, TENSOR_MEMBERS, found) : 0;
    fb_symbol name = is_object ? read_tensor_name(reader, tree, found[NAME]) : fb_stand_in_name(reader, fb_tensor_limit(graph));
    fb_tensor tensor = name.id ? fb_graph_add_tensor(graph, name, (fb_tensor){0}) : (fb_tensor){0};
    fb_buffer_char(&reader->requires_grad_given, found[REQUIRES_GRAD] != NULL);
    if (!tensor.id || reader->requires_grad_given.failed) fb_reader_no_memory(reader);
    if (!tensor.id || !is_object) return NULL;

    fb_tensor_row *row = fb_tensor_row_at(graph, tensor);
    const fb_json *dtype = fb_require(reader, tree, found[DTYPE], "dtype", FB_JSON_STRING);
    if (dtype) row->dtype = (uint8_t)fb_read_dtype(reader, dtype);
    if (row->dtype == FB_DTYPE_OTHER) row->other_dtype = fb_read_symbol(reader, dtype);
    const fb_json *shape = fb_require(reader, tree, found[SHAPE], "shape", FB_JSON_ARRAY);
    fb_value sizes = shape ? fb_read_shape(reader, shape, false) : (fb_value){0};
    if (sizes.id) row->shape = sizes;
    else row->dtype = FB_DTYPE_UNKNOWN; /* nothing that depends on the shape is checked */
    row->requires_grad = fb_optional_bool(reader, found[REQUIRES_GRAD]);

    const struct {
        const fb_json *value;
        fb_spelling *wrong;
        const char *code;
        fb_symbol *symbol;
    } texts[] = {
        {found[DIGEST], wrong_id, "bad-digest", &row->digest},
        {found[BLOB], wrong_id, "bad-digest", &row->blob},
        {found[DATA], wrong_base64, "bad-data", &row->data},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const fb_json *text = fb_optional(reader, texts[i].value, FB_JSON_STRING);
        if (text && fb_check_spelling(reader, text, texts[i].wrong, texts[i].code))
            *texts[i].symbol = fb_read_symbol(reader, text);
    }
    if (found[OFFSET] && !fb_json_is_count(found[OFFSET], &row->offset)) {
        fb_reader_error(reader, found[OFFSET], "bad-offset", "an offset is an integer that is not negative");
    } else if (found[OFFSET] && !found[BLOB]) {
        fb_reader_error(reader, found[OFFSET], "bad-offset", "an offset needs a blob that it counts into");
    }
    if (unknown) row->rest = fb_read_rest(reader, tree, tensor_members, TENSOR_MEMBERS);
    return found[RECIPE];
}
