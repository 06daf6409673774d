/* Reading values: args, kwargs, config, attributes, shapes, recipes, free JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/map.h"
#include "core/base/sort.h"
#include "core/document/read.h"

#define MAX_INT_DIGITS 4000 /* of $int; Python itself refuses more than 4,300 */
#define FEW 16

/* ---- the stack of items ------------------------------------------------------------------------------------------------ */

#define STEPS_OF_AN_ITEM 8

void fb_push(fb_reader *reader, fb_value value) {
    if (!FB_GROW(reader->items, reader->item_count, reader->item_capacity)) {
        fb_reader_no_memory(reader);
        return;
    }
    reader->items[reader->item_count++] = value;
    if (!fb_work_goes_on(&reader->work, STEPS_OF_AN_ITEM)) reader->failed = true;
}

static const fb_value *items_since(const fb_reader *reader, size_t base) {
    return reader->items ? reader->items + base : NULL; /* no item has been pushed yet */
}

fb_value fb_pop_items(fb_reader *reader, fb_kind kind, fb_symbol symbol, size_t base) {
    fb_value value = {0};
    bool is_empty = reader->item_count == base;
    if (is_empty && kind == FB_LIST) value = FB_VALUE_EMPTY_LIST;
    else if (is_empty && kind == FB_MAP) value = FB_VALUE_EMPTY_MAP;
    else if (!reader->failed)
        value = fb_make_items(reader->graph, kind, symbol, items_since(reader, base), reader->item_count - base);
    reader->item_count = base;
    if (!value.id) fb_reader_no_memory(reader);
    return value;
}

static void push_string(fb_reader *reader, const fb_json *string) {
    fb_push(reader, fb_make_text(reader->graph, FB_STRING, string->text, string->count));
}

/* Keys come again and again. */
void fb_push_key(fb_reader *reader, const fb_json *key) {
    fb_value known = reader->keys[key->name];
    if (!known.id) known = fb_make_text(reader->graph, FB_STRING, key->text, key->count);
    uint8_t name = key->name ? key->name : fb_scan_names_add(&reader->names, key->text, key->count);
    if (name) reader->keys[name] = known;
    fb_push(reader, known);
}

static int compare_keys(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

size_t fb_find_repeat(fb_reader *reader, size_t base, size_t step) {
    const fb_value *ids = items_since(reader, base);
    size_t count = reader->item_count - base, found = SIZE_MAX;
    if (count <= FEW * step) {
        for (size_t i = 0; i < count; i += step) {
            for (size_t j = 0; j < i; j += step) {
                if (ids[j].id == ids[i].id) return i;
            }
        }
        return found;
    }
    uint64_t *keys = malloc((count / step + 1) * sizeof *keys);
    if (!keys) {
        fb_reader_no_memory(reader);
        return found;
    }
    size_t n = 0;
    for (size_t i = 0; i < count; i += step) keys[n++] = (uint64_t)ids[i].id << 32 | i;
    fb_sort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 1; i < n; i++) {
        if (keys[i] >> 32 == keys[i - 1] >> 32 && (keys[i] & UINT32_MAX) < found) found = keys[i] & UINT32_MAX;
    }
    free(keys);
    return found;
}

/* ---- the $ forms ------------------------------------------------------------------------------------------------------- */

static fb_value bad_value(fb_reader *reader, const fb_json *at, const char *message) {
    fb_reader_error(reader, at, "bad-value", "%s", message);
    return fb_make_none(reader->graph);
}

static fb_value read_value(fb_reader *reader, const fb_json *tree);

static fb_value read_items(fb_reader *reader, fb_kind kind, fb_symbol symbol, const fb_json *array) {
    size_t base = reader->item_count;
    const fb_json *item = fb_json_first(array);
    for (uint32_t i = 0; i < array->count && !reader->failed; i++, item = fb_json_next(item)) {
        fb_push(reader, read_value(reader, item));
    }
    return fb_pop_items(reader, kind, symbol, base);
}

static fb_value read_list(fb_reader *reader, const fb_json *array) {
    return read_items(reader, FB_LIST, (fb_symbol){0}, array);
}

/* The value of an object's only member if that has this name. */
static const fb_json *form_content(const fb_json *tree, fb_member name) {
    return tree->kind == FB_JSON_OBJECT && tree->count == 1 && tree[1].name == name ? tree + 2 : NULL;
}

/* The object `{"$node": …}` around its content: it and the key come right before the content in the tree. */
static const fb_json *form_around(const fb_json *content) {
    return content - 2;
}

static fb_value unknown_node(fb_reader *reader, const fb_json *name, fb_symbol symbol) {
    if (!FB_GROW(reader->unknown_nodes, reader->unknown_count, reader->unknown_capacity)) {
        fb_reader_no_memory(reader);
        return (fb_value){0};
    }
    fb_error *error =
        fb_reader_error(reader, form_around(name), "unknown-node", "there is no node \"%s\"", fb_text(reader->graph, symbol));
    if (error) {
        size_t index = (size_t)(error - reader->errors->items);
        reader->unknown_nodes[reader->unknown_count++] = (fb_unknown_node){index, symbol};
    }
    return fb_make_none(reader->graph);
}

static fb_value read_node_form(fb_reader *reader, const fb_json *name) {
    if (!reader->nodes_are_allowed) return bad_value(reader, name, "a node cannot be read here");
    if (name->kind != FB_JSON_STRING) return bad_value(reader, name, "$node holds a node's name");
    fb_symbol symbol = fb_read_symbol(reader, name);
    fb_node node = fb_graph_node_named(reader->graph, reader->program, symbol);
    return node.id ? fb_make_node(reader->graph, node) : unknown_node(reader, name, symbol);
}

static fb_value read_tuple_form(fb_reader *reader, const fb_json *array) {
    if (array->kind != FB_JSON_ARRAY) return bad_value(reader, array, "$tuple holds an array");
    return read_items(reader, FB_TUPLE, (fb_symbol){0}, array);
}

static fb_value read_size_form(fb_reader *reader, const fb_json *array) {
    if (array->kind != FB_JSON_ARRAY) return bad_value(reader, array, "$size holds an array");
    const fb_json *item = fb_json_first(array);
    for (uint32_t i = 0; i < array->count; i++, item = fb_json_next(item)) {
        if (item->kind == FB_JSON_INT || form_content(item, FB_FORM_int) || form_content(item, FB_FORM_node)) continue;
        fb_reader_error(reader, item, "bad-value", "$size holds ints and nodes");
    }
    return read_items(reader, FB_SIZE, (fb_symbol){0}, array);
}

static fb_value read_dict_form(fb_reader *reader, const fb_json *array) {
    if (array->kind != FB_JSON_ARRAY) return bad_value(reader, array, "$dict holds an array of pairs");
    size_t base = reader->item_count;
    const fb_json *pair = fb_json_first(array);
    for (uint32_t i = 0; i < array->count && !reader->failed; i++, pair = fb_json_next(pair)) {
        if (pair->kind != FB_JSON_ARRAY || pair->count != 2) {
            fb_reader_error(reader, pair, "bad-value", "$dict holds pairs [key, value]");
            continue;
        }
        const fb_json *key = fb_json_first(pair);
        fb_value value = read_value(reader, key);
        if (!value.id) break;
        const fb_value_row *row = fb_value_at(reader->graph, value);
        if (row->has_nodes || row->kind == FB_LIST || row->kind == FB_DICT) {
            fb_reader_error(reader, key, "bad-value", "a node, a list or a dict cannot be the key of a dict");
        }
        fb_push(reader, value);
        fb_push(reader, read_value(reader, fb_json_next(key)));
    }
    size_t repeat = reader->failed ? SIZE_MAX : fb_find_repeat(reader, base, 2);
    if (repeat != SIZE_MAX) fb_reader_error(reader, array, "bad-value", "key %zu of the $dict came before", repeat / 2);
    return fb_pop_items(reader, FB_DICT, (fb_symbol){0}, base);
}

static fb_value read_named_tuple_form(fb_reader *reader, const fb_json *content) {
    const fb_json *type = fb_json_first(content);
    if (content->kind != FB_JSON_ARRAY || content->count != 2 || type->kind != FB_JSON_STRING ||
        fb_json_next(type)->kind != FB_JSON_ARRAY) {
        return bad_value(reader, content, "$namedtuple holds a class and an array");
    }
    fb_check_spelling(reader, type, fb_wrong_dotted, "bad-identifier");
    return read_items(reader, FB_NAMED_TUPLE, fb_read_symbol(reader, type), fb_json_next(type));
}

static fb_value read_slice_form(fb_reader *reader, const fb_json *array) {
    if (array->kind != FB_JSON_ARRAY || array->count != 3) return bad_value(reader, array, "$slice holds [start, stop, step]");
    return read_items(reader, FB_SLICE, (fb_symbol){0}, array);
}

static fb_value read_ellipsis_form(fb_reader *reader, const fb_json *content) {
    if (content->kind != FB_JSON_TRUE) return bad_value(reader, content, "$ellipsis holds true");
    return fb_make_text(reader->graph, FB_ELLIPSIS, "", 0);
}

/* The digits at text[*at] are stepped over; false when there are none. */
static bool skip_digits(const char *text, size_t length, size_t *at) {
    size_t begin = *at;
    while (*at < length && text[*at] >= '0' && text[*at] <= '9') ++*at;
    return *at > begin;
}

static bool is_float_spelling(const char *text, size_t length) {
    size_t at = length > 0 && text[0] == '-';
    if (!skip_digits(text, length, &at)) return false;
    if (at < length && text[at] == '.') {
        at++;
        if (!skip_digits(text, length, &at)) return false;
    }
    if (at < length && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        if (at < length && (text[at] == '+' || text[at] == '-')) at++;
        if (!skip_digits(text, length, &at)) return false;
    }
    return at == length;
}

static fb_value read_float_form(fb_reader *reader, const fb_json *content) {
    if (fb_json_is(content, "inf")) return fb_make_float(reader->graph, (double)INFINITY);
    if (fb_json_is(content, "-inf")) return fb_make_float(reader->graph, -(double)INFINITY);
    if (fb_json_is(content, "nan")) return fb_make_float(reader->graph, (double)NAN);
    if (content->kind != FB_JSON_STRING || !is_float_spelling(content->text, content->count)) {
        return bad_value(reader, content,
                         "$float holds a float as Python prints it: \"8.0\", \"1e-05\", \"inf\", \"-inf\", \"nan\"");
    }
    reader->text.size = 0;
    fb_buffer_append(&reader->text, content->text, content->count);
    const char *text = fb_buffer_text(&reader->text);
    if (!text) {
        fb_reader_no_memory(reader);
        return (fb_value){0};
    }
    double real = strtod(text, NULL);
    if (!isfinite(real)) return bad_value(reader, content, "the number is too large for a 64-bit float");
    return fb_make_float(reader->graph, real);
}

static fb_value read_int_form(fb_reader *reader, const fb_json *content) {
    static const char usage[] = "$int holds a decimal integer of at most 4,000 digits";
    if (content->kind != FB_JSON_STRING) return bad_value(reader, content, usage);
    const char *text = content->text;
    size_t length = content->count, at = length > 0 && text[0] == '-';
    bool is_negative = at == 1;
    if (!skip_digits(text, length, &at) || at != length || length > MAX_INT_DIGITS + 1)
        return bad_value(reader, content, usage);
    text += is_negative;
    length -= is_negative;
    while (length > 1 && *text == '0') {
        text++;
        length--;
    }
    uint64_t magnitude = 0;
    bool fits = length <= 19;
    for (size_t i = 0; i < length && fits; i++) magnitude = magnitude * 10 + (uint64_t)(text[i] - '0');
    if (fits && magnitude <= (uint64_t)INT64_MAX + is_negative) {
        return fb_make_int(reader->graph, (int64_t)(is_negative ? 0 - magnitude : magnitude));
    }
    char digits[MAX_INT_DIGITS + 1] = "-";
    memcpy(digits + is_negative, text, length);
    return fb_make_text(reader->graph, FB_BIG_INT, digits, length + is_negative);
}

static fb_value read_complex_form(fb_reader *reader, const fb_json *array) {
    bool is_pair = array->kind == FB_JSON_ARRAY && array->count == 2;
    const fb_json *item = fb_json_first(array);
    for (uint32_t i = 0; is_pair && i < 2; i++, item = fb_json_next(item)) {
        is_pair = item->kind == FB_JSON_INT || item->kind == FB_JSON_REAL || form_content(item, FB_FORM_float) ||
                  form_content(item, FB_FORM_int);
    }
    if (!is_pair) return bad_value(reader, array, "$complex holds two numbers");
    return read_items(reader, FB_COMPLEX, (fb_symbol){0}, array);
}

static fb_value read_enum_form(fb_reader *reader, const fb_json *pair) {
    const fb_json *type = fb_json_first(pair);
    if (pair->kind != FB_JSON_ARRAY || pair->count != 2 || type->kind != FB_JSON_STRING ||
        fb_json_next(type)->kind != FB_JSON_STRING) {
        return bad_value(reader, pair, "$enum holds a class and a member's name");
    }
    fb_check_spelling(reader, type, fb_wrong_dotted, "bad-identifier");
    fb_check_spelling(reader, fb_json_next(type), fb_wrong_identifier, "bad-identifier");
    size_t base = reader->item_count;
    push_string(reader, fb_json_next(type));
    return fb_pop_items(reader, FB_ENUM, fb_read_symbol(reader, type), base);
}

static const struct {
    uint8_t name;
    fb_value (*read)(fb_reader *reader, const fb_json *content);
} forms[] = {
    {FB_FORM_node, read_node_form},
    {FB_FORM_tuple, read_tuple_form},
    {FB_FORM_float, read_float_form},
    {FB_FORM_slice, read_slice_form},
    {FB_FORM_int, read_int_form},
    {FB_FORM_dict, read_dict_form},
    {FB_FORM_size, read_size_form},
    {FB_FORM_ellipsis, read_ellipsis_form},
    {FB_FORM_complex, read_complex_form},
    {FB_FORM_enum, read_enum_form},
    {FB_FORM_namedtuple, read_named_tuple_form},
};

static const struct {
    uint8_t name;
    fb_kind kind;
    fb_spelling *wrong; /* NULL: any text */
} text_forms[] = {
    {FB_FORM_dtype, FB_DTYPE, fb_wrong_word},   {FB_FORM_device, FB_DEVICE, fb_wrong_device},
    {FB_FORM_layout, FB_LAYOUT, fb_wrong_word}, {FB_FORM_memory_format, FB_MEMORY_FORMAT, fb_wrong_word},
    {FB_FORM_ref, FB_REF, fb_wrong_dotted},     {FB_FORM_opaque, FB_OPAQUE, NULL},
};

static fb_value read_form(fb_reader *reader, const fb_json *object) {
    const fb_json *key = fb_json_first(object), *content = key + 1;
    if (object->count != 1 || key->count == 0 || key->text[0] != '$') {
        return bad_value(reader, object,
                         "an object here has one member, whose name begins with $; a dict is {\"$dict\": [[key, value]]}");
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (key->name == forms[i].name) return forms[i].read(reader, content);
    }
    for (size_t i = 0; i < sizeof text_forms / sizeof *text_forms; i++) {
        if (key->name != text_forms[i].name) continue;
        if (content->kind != FB_JSON_STRING) return bad_value(reader, content, "a string is expected here");
        if (text_forms[i].wrong) fb_check_spelling(reader, content, text_forms[i].wrong, "bad-identifier");
        return fb_make_text(reader->graph, text_forms[i].kind, content->text, content->count);
    }
    return bad_value(reader, key, "this $ form is not known");
}

static fb_value read_value(fb_reader *reader, const fb_json *tree) {
    fb_graph *graph = reader->graph;
    switch (tree->kind) {
    case FB_JSON_NULL: return fb_make_none(graph);
    case FB_JSON_FALSE:
    case FB_JSON_TRUE: return fb_make_bool(graph, tree->kind == FB_JSON_TRUE);
    case FB_JSON_INT: return fb_make_int(graph, tree->integer);
    case FB_JSON_REAL: return fb_make_float(graph, tree->real);
    case FB_JSON_STRING: return fb_make_text(graph, FB_STRING, tree->text, tree->count);
    case FB_JSON_ARRAY: return read_list(reader, tree);
    default: return read_form(reader, tree);
    }
}

/* ---- maps and lists ---------------------------------------------------------------------------------------------------- */

/* An object as FB_MAP. */
static fb_value read_map_as_given(fb_reader *reader, const fb_json *object) {
    size_t base = reader->item_count;
    const fb_json *key = fb_json_first(object);
    for (uint32_t i = 0; i < object->count && !reader->failed; i++, key = fb_json_next(key + 1)) {
        fb_push_key(reader, key);
        fb_push(reader, read_value(reader, key + 1));
    }
    return fb_pop_items(reader, FB_MAP, (fb_symbol){0}, base);
}

/* An object without these members, sorted, as values or as free JSON. */
static fb_value read_sorted(fb_reader *reader, const fb_json *object, const uint8_t *members, size_t count, bool is_free) {
    const fb_json *few[FEW], **keys = object->count <= FEW ? few : malloc(object->count * sizeof *keys);
    if (!keys) {
        fb_reader_no_memory(reader);
        return (fb_value){0};
    }
    fb_json_sort_keys(object, keys);
    size_t base = reader->item_count;
    for (uint32_t i = 0; i < object->count && !reader->failed; i++) {
        if (fb_find_member(keys[i], members, count, 0) < count) continue;
        fb_push_key(reader, keys[i]);
        if (is_free) {
            reader->text.size = 0;
            if (!fb_json_canonical(keys[i] + 1, &reader->text)) fb_reader_no_memory(reader);
            else fb_push(reader, fb_make_text(reader->graph, FB_RAW, reader->text.data, reader->text.size));
        } else {
            fb_push(reader, read_value(reader, keys[i] + 1));
        }
    }
    if (keys != few) free(keys);
    return fb_pop_items(reader, FB_MAP, (fb_symbol){0}, base);
}

/* Finds the place for arrays and objects of that text. */
static fb_known_value *find_known(fb_reader *reader, const fb_json *tree, bool symbols_are_allowed) {
    fb_known_value wanted = {reader->scan.start + tree->offset, tree->size, symbols_are_allowed, {0}};
    uint64_t hash = fb_hash(wanted.text, wanted.size, symbols_are_allowed);
    fb_known_value *known = &reader->known[hash % (sizeof reader->known / sizeof *reader->known)];
    bool is_same = known->size == wanted.size && known->symbols_are_allowed == symbols_are_allowed &&
                   memcmp(known->text, wanted.text, wanted.size) == 0;
    if (!is_same) *known = wanted;
    return known;
}

fb_value fb_read_map_sorted(fb_reader *reader, const fb_json *object) {
    fb_known_value *known = find_known(reader, object, false);
    if (known->value.id) return known->value;
    size_t errors = reader->errors->total;
    fb_value map = read_sorted(reader, object, NULL, 0, false);
    if (reader->errors->total == errors) known->value = map;
    return map;
}

fb_value fb_read_rest(fb_reader *reader, const fb_json *object, const uint8_t *members, size_t count) {
    fb_value rest = read_sorted(reader, object, members, count, true);
    return rest.id && fb_value_at(reader->graph, rest)->count ? rest : (fb_value){0};
}

fb_value fb_read_strings(fb_reader *reader, const fb_json *array) {
    size_t base = reader->item_count;
    const fb_json *item = fb_json_first(array);
    for (uint32_t i = 0; i < array->count && !reader->failed; i++, item = fb_json_next(item)) {
        if (fb_expect(reader, item, FB_JSON_STRING)) push_string(reader, item);
    }
    if (reader->failed || reader->item_count == base) return (fb_value){0};
    size_t repeat = fb_find_repeat(reader, base, 1);
    if (repeat != SIZE_MAX) {
        fb_reader_error(reader, array, "duplicate-name", "\"%s\" is there twice",
                        fb_value_text(reader->graph, reader->items[base + repeat]));
    }
    return fb_pop_items(reader, FB_LIST, (fb_symbol){0}, base);
}

/* ---- shapes and recipes ------------------------------------------------------------------------------------------------ */

fb_value fb_read_shape(fb_reader *reader, const fb_json *tree, bool symbols_are_allowed) {
    if (tree->kind != FB_JSON_ARRAY) {
        fb_reader_error(reader, tree, "bad-shape", "a shape is an array of sizes, not %s", fb_json_kind_name(tree));
        return (fb_value){0};
    }
    fb_known_value *known = find_known(reader, tree, symbols_are_allowed);
    if (known->value.id) return known->value;
    size_t base = reader->item_count;
    const fb_json *item = fb_json_first(tree);
    bool is_right = true;
    for (uint32_t i = 0; i < tree->count && !reader->failed; i++, item = fb_json_next(item)) {
        int64_t size;
        if (fb_json_is_count(item, &size)) {
            fb_push(reader, fb_make_int(reader->graph, size));
        } else if (symbols_are_allowed && item->kind == FB_JSON_STRING) {
            is_right &= fb_check_spelling(reader, item, fb_wrong_symbolic_size, "bad-shape");
            push_string(reader, item);
        } else {
            is_right = false;
            fb_reader_error(reader, item, "bad-shape", "a size is an integer that is not negative%s",
                            symbols_are_allowed ? ", or a symbolic size in quotes" : "");
        }
    }
    fb_value shape = fb_pop_items(reader, FB_LIST, (fb_symbol){0}, base);
    return is_right ? known->value = shape : (fb_value){0};
}

fb_dtype fb_read_dtype(fb_reader *reader, const fb_json *tree) {
    if (!fb_expect(reader, tree, FB_JSON_STRING)) return FB_DTYPE_UNKNOWN;
    char name[24] = "";
    if (tree->count < sizeof name) memcpy(name, tree->text, tree->count);
    fb_dtype dtype = fb_dtype_find(name);
    if (dtype) return dtype;
    return fb_check_spelling(reader, tree, fb_wrong_word, "unknown-dtype") ? FB_DTYPE_OTHER : FB_DTYPE_UNKNOWN;
}

static fb_value read_tensor_name(fb_reader *reader, const fb_json *name) {
    fb_tensor tensor = fb_read_tensor_reference(reader, name);
    return tensor.id ? fb_make_tensor(reader->graph, tensor) : fb_make_none(reader->graph);
}

fb_value fb_read_recipe(fb_reader *reader, const fb_json *tree) {
    static const uint8_t members[] = {FB_MEMBER_op, FB_MEMBER_args};
    if (tree->kind == FB_JSON_STRING) return read_tensor_name(reader, tree);
    if (tree->kind != FB_JSON_OBJECT) {
        return bad_value(reader, tree, "an expression is a tensor's name or an object with op and args");
    }
    const fb_json *found[2];
    fb_find_members(tree, members, 2, found);
    const fb_json *op = fb_require(reader, tree, found[0], "op", FB_JSON_STRING);
    const fb_json *args = fb_require(reader, tree, found[1], "args", FB_JSON_ARRAY);
    if (!op || !args) return fb_make_none(reader->graph);
    size_t base = reader->item_count;
    const fb_json *item = fb_json_first(args);
    for (uint32_t i = 0; i < args->count && !reader->failed; i++, item = fb_json_next(item)) {
        fb_push(reader, fb_read_recipe(reader, item));
    }
    fb_value list = fb_pop_items(reader, FB_LIST, (fb_symbol){0}, base);
    fb_value rest = read_sorted(reader, tree, members, 2, false);
    base = reader->item_count;
    fb_push(reader, list);
    fb_push(reader, rest);
    return fb_pop_items(reader, FB_EXPRESSION, fb_read_symbol(reader, op), base);
}

/* ---- one node ------------------------------------------------------------------------------------------------------------ */

enum { NAME, OP, TARGET, ARGS, KWARGS, TYPE, META, MEMBER_COUNT };
static const uint8_t node_members[] = {FB_MEMBER_name,   FB_MEMBER_op,   FB_MEMBER_target, FB_MEMBER_args,
                                       FB_MEMBER_kwargs, FB_MEMBER_type, FB_MEMBER_meta};

enum { SHAPE, DTYPE, TRANSFORMATIONS, IS_WRAPPED, DEVICE, META_COUNT };
static const uint8_t meta_members[] = {FB_MEMBER_shape, FB_MEMBER_dtype, FB_MEMBER_transformations, FB_MEMBER_is_wrapped,
                                       FB_MEMBER_device};
#define META_KEPT_APART 3 /* is_wrapped and device stay with the unknown members; and so does a dtype that is not known */
static const uint8_t meta_without_dtype[] = {FB_MEMBER_shape, FB_MEMBER_transformations};

static const char *wrong_signature(const char *text, size_t length) {
    bool is_right = length == 32;
    for (size_t i = 0; i < length; i++) is_right &= (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    return is_right ? NULL : "is not a signature: 32 lower-case hexadecimal digits";
}

static void read_meta(fb_reader *reader, const fb_json *meta, fb_node_row *row) {
    const fb_json *found[META_COUNT];
    size_t unknown = fb_find_members(meta, meta_members, META_COUNT, found);
    if (found[SHAPE]) row->shape = fb_read_shape(reader, found[SHAPE], true);
    fb_dtype dtype = found[DTYPE] ? fb_read_dtype(reader, found[DTYPE]) : FB_DTYPE_UNKNOWN;
    bool is_other = dtype == FB_DTYPE_OTHER;
    row->dtype = is_other ? FB_DTYPE_UNKNOWN : (uint8_t)dtype;
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
    if (is_other) row->meta_rest = fb_read_rest(reader, meta, meta_without_dtype, 2);
    else if (unknown || found[IS_WRAPPED] || found[DEVICE])
        row->meta_rest = fb_read_rest(reader, meta, meta_members, META_KEPT_APART);
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

static bool is_taken(const fb_reader *reader, fb_symbol name) {
    return fb_graph_node_named(reader->graph, reader->program, name).id;
}

/* The node's name, or a stand-in for one that cannot be used. */
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
    if (list) *args = read_list(reader, list);
    const fb_json *map = fb_optional(reader, found[KWARGS], FB_JSON_OBJECT);
    if (map) {
        const fb_json *key = fb_json_first(map);
        for (uint32_t i = 0; i < map->count; i++, key = fb_json_next(key + 1)) {
            fb_check_spelling(reader, key, fb_wrong_identifier, "bad-identifier");
        }
        *kwargs = read_map_as_given(reader, map);
    }
    reader->nodes_are_allowed = false;
    const fb_json *type = fb_optional(reader, found[TYPE], FB_JSON_STRING);
    fb_symbol annotation;
    if (type && fb_read_spelled(reader, type, fb_wrong_annotation, "bad-type", &annotation)) row->type = annotation;
    const fb_json *meta = fb_optional(reader, found[META], FB_JSON_OBJECT);
    if (meta) read_meta(reader, meta, row);
    if (fb_require(reader, tree, found[OP], "op", FB_JSON_STRING)) row->opcode = (uint8_t)read_opcode(reader, found[OP]);
    const fb_json *target = fb_require(reader, tree, found[TARGET], "target", FB_JSON_STRING);
    if (target && row->opcode) fb_read_spelled(reader, target, target_spelling[row->opcode], "bad-target", &row->target);
    if (row->opcode == FB_CALL_MODULE) fb_expect_name(reader, &reader->modules, row->target);
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
        bool has_unknown = fb_find_members(tree, node_members, MEMBER_COUNT, found) > 0;
        name = read_name(reader, tree, found[NAME]);
        if (has_unknown) fb_refuse_unknown(reader, tree, node_members, MEMBER_COUNT);
        read_members(reader, tree, found, &read, &args, &kwargs);
    } else {
        name = fb_stand_in_name(reader, fb_node_limit(graph));
    }
    reader->node_name = (fb_symbol){0};

    fb_node node = name.id && !reader->failed ? fb_graph_add_node(graph, reader->program, name, (fb_node){0}) : (fb_node){0};
    if (!node.id) {
        fb_reader_no_memory(reader);
        return;
    }
    fb_node_row *row = fb_node_row_at(graph, node);
    row->ordinal = fb_program_at(graph, reader->program)->node_count - 1;
    row->shape = read.shape;
    row->dtype = read.dtype;
    row->transformations = read.transformations;
    row->meta_rest = read.meta_rest;
    row->type = read.type;
    row->opcode = read.opcode; /* fb_graph_resolve will find what its target means */
    row->target = read.opcode ? read.target : (fb_symbol){0};
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
