#include "tests/unit/client_changes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- nodes of documents ------------------------------------------------------------------------------------------------- */

static json_t *node_of(const json_t *graph, const char *name) {
    return find_row(graph, "nodes", name, NULL);
}

static json_t *parsed(const char *format, ...) __attribute__((format(printf, 1, 2)));
static json_t *parsed(const char *format, ...) {
    char text[4 * CHANGE_NAME];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_t *made = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!made) {
        fprintf(stderr, "no JSON: %s\n", text);
        abort();
    }
    return made;
}

/* The first node that a tree reads; NULL when it reads none. */
static const char *first_reference(const json_t *tree) {
    const char *name = referred_node(tree), *key;
    size_t i;
    json_t *item;
    if (name) return name;
    if (json_is_array(tree)) {
        json_array_foreach(tree, i, item) if ((name = first_reference(item))) return name;
    } else if (json_is_object(tree)) {
        json_object_foreach((json_t *)(uintptr_t)tree, key, item) if ((name = first_reference(item))) return name;
    }
    return NULL;
}

static const char *input_of(const json_t *node) {
    const char *name = first_reference(json_object_get(node, "args"));
    return name ? name : first_reference(json_object_get(node, "kwargs"));
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------- */

static void insert_node(json_t *graph, size_t place, json_t *node) {
    if (json_array_insert_new(json_object_get(graph, "nodes"), place, node)) abort();
}

static json_t *outputs_of(const json_t *graph) {
    const json_t *nodes = json_object_get(graph, "nodes");
    const json_t *output = json_array_get(nodes, json_array_size(nodes) - 1);
    return json_object_get(json_array_get(json_object_get(output, "args"), 0), "$tuple");
}

static void add_output(const json_t *graph, const char *node) {
    json_array_append_new(outputs_of(graph), parsed("{\"$node\":\"%s\"}", node));
}

/* The meta of an elementwise operation on `node`. */
static json_t *meta_like(const json_t *node) {
    json_t *meta = json_object();
    static const char *const keys[] = {"shape", "dtype"};
    for (int i = 0; i < 2; i++) {
        json_t *value = json_object_get(json_object_get(node, "meta"), keys[i]);
        if (value) json_object_set_new(meta, keys[i], json_deep_copy(value));
    }
    return meta;
}

static json_t *new_node(const char *name, const char *reads, uint64_t choice, bool may_write) {
    static const char *const calls[] = {
        "\"op\":\"call_function\",\"target\":\"torch.tanh\",\"args\":[{\"$node\":\"%s\"}]",
        "\"op\":\"call_function\",\"target\":\"operator.add\",\"args\":[{\"$node\":\"%s\"},0.25]",
        "\"op\":\"call_method\",\"target\":\"relu\",\"args\":[{\"$node\":\"%s\"}]",
        "\"op\":\"call_function\",\"target\":\"operator.truediv\",\"args\":[{\"$node\":\"%s\"},8]",
        "\"op\":\"call_method\",\"target\":\"add_\",\"args\":[{\"$node\":\"%s\"},0.5]",
        "\"op\":\"call_function\",\"target\":\"custom.kernel\",\"args\":[{\"$node\":\"%s\"}]",
    };
    char call[2 * CHANGE_NAME];
    const char *format = calls[choice % (may_write ? 6 : 4)], *hole = strstr(format, "%s");
    snprintf(call, sizeof call, "%.*s%s%s", (int)(hole - format), format, reads, hole + 2);
    return parsed("{\"name\":\"%s\",%s,\"kwargs\":{}}", name, call);
}

static bool add_reader(const client_change *change, json_t *graph) {
    const json_t *read = node_of(graph, change->name);
    size_t place = place_of(graph, change->other);
    if (!read || place <= place_of(graph, change->name) || node_of(graph, change->fresh)) return false;
    json_t *node = new_node(change->fresh, change->name, change->choice >> 1, true);
    json_object_set_new(node, "meta", meta_like(read));
    insert_node(graph, place, node);
    if (change->choice % 2) add_output(graph, change->fresh);
    return true;
}

static bool add_between(const client_change *change, json_t *graph) {
    const json_t *read = node_of(graph, change->name);
    if (!read || node_of(graph, change->fresh)) return false;
    size_t place = place_of(graph, change->name) + 1;
    json_t *node = new_node(change->fresh, change->name, change->choice, false);
    json_object_set_new(node, "meta", meta_like(read));
    if (!exchange_references(graph, change->name, change->fresh)) {
        json_decref(node);
        return false;
    }
    while (is_op(json_array_get(json_object_get(graph, "nodes"), place), "placeholder")) place++;
    insert_node(graph, place, node);
    return true;
}

/* A nested program above the module, which calls it. */
static bool add_program(const client_change *change, json_t *graph, const char *path, json_t *call) {
    const char *dot = strrchr(path, '.');
    int length = dot ? (int)(dot - path) : 0;
    char above[CHANGE_NAME];
    snprintf(above, sizeof above, "%.*s", length, path);
    if (!dot || find_row(graph, "modules", above, NULL)) return false;
    json_array_append_new(
        json_object_get(graph, "modules"),
        parsed(
            "{\"path\":\"%s\",\"type\":\"torch.fx.GraphModule\",\"graph\":{\"nodes\":[{\"name\":\"y\",\"op\":\"placeholder\","
            "\"target\":\"y\"},{\"name\":\"%s\",\"op\":\"call_module\",\"target\":\"%s\",\"args\":[{\"$node\":\"y\"}]},{"
            "\"name\":"
            "\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"%s\"}]}]}}",
            above, change->fresh, dot + 1, change->fresh));
    json_object_set_new(call, "target", json_string(above));
    return true;
}

/* The same call once more, by itself or in a nested program; or the module's weight is read. */
static bool add_call(const client_change *change, json_t *graph) {
    const json_t *call = node_of(graph, change->name);
    if (!call || !is_op(call, "call_module") || node_of(graph, change->fresh)) return false;
    const char *path = json_string_value(json_object_get(call, "target"));
    json_t *node;
    if (change->choice % 3) {
        node = json_deep_copy(call);
        json_object_set_new(node, "name", json_string(change->fresh));
        json_object_del(json_object_get(node, "meta"), "transformations");
    } else {
        node = parsed("{\"name\":\"%s\",\"op\":\"get_attr\",\"target\":\"%s.weight\"}", change->fresh, path);
    }
    insert_node(graph, place_of(graph, change->name) + 1, node);
    add_output(graph, change->fresh);
    return change->choice % 3 != 2 || add_program(change, graph, path, node);
}

/* The first number becomes another one, or `reads` is read instead. */
static bool change_number(json_t *list, const char *reads) {
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        json_t *real = json_object_get(item, "$float");
        bool is_number = json_is_number(item) || real;
        if (is_number && reads) return json_array_set_new(list, i, parsed("{\"$node\":\"%s\"}", reads)) == 0;
        if (json_is_integer(item)) return json_array_set_new(list, i, json_integer(json_integer_value(item) * 2 + 1)) == 0;
        if (json_is_real(item)) return json_array_set_new(list, i, json_real(json_real_value(item) * 0.5)) == 0;
        if (real) return json_array_set_new(list, i, json_real(3.25)) == 0;
    }
    return false;
}

/* Else what is said of shapes behind them would not hold. */
static bool has_same_shape(const json_t *a, const json_t *b) {
    const json_t *x = json_object_get(json_object_get(a, "meta"), "shape"),
                 *y = json_object_get(json_object_get(b, "meta"), "shape");
    return x && y && json_equal(x, y);
}

static bool change_arguments(const client_change *change, json_t *graph) {
    json_t *node = node_of(graph, change->name);
    if (!node || is_op(node, "placeholder")) return false;
    const char *input = input_of(node);
    switch (change->choice % 4) {
    case 0: return change_number(json_object_get(node, "args"), change->choice / 4 % 2 ? input : NULL);
    case 1:
        if (is_op(node, "get_attr")) return false;
        return json_object_set_new(json_object_get(node, "kwargs"), "dim", json_integer(-1)) == 0;
    case 2: return json_object_del(json_object_get(node, "kwargs"), "dim") == 0;
    default:
        if (!input || strcmp(input, change->other) == 0 || strcmp(change->name, change->other) == 0) return false;
        return has_same_shape(node_of(graph, change->other), node_of(graph, input)) &&
               exchange_references_in(node, input, change->other);
    }
}

static bool is_called(const json_t *graph, const char *path) {
    size_t i;
    const json_t *node;
    json_array_foreach(json_object_get(graph, "nodes"), i, node) {
        if (is_op(node, "call_module") && strcmp(json_string_value(json_object_get(node, "target")), path) == 0) return true;
    }
    return false;
}

static bool erase_node(const client_change *change, json_t *graph) {
    size_t place;
    json_t *node = node_of(graph, change->name);
    if (!node || is_op(node, "placeholder") || is_op(node, "output")) return false;
    const char *input = input_of(node);
    if (!input && exchange_references(graph, change->name, NULL)) return false;
    if (input) exchange_references(graph, change->name, input);
    json_t *kept = json_incref(node);
    place = place_of(graph, change->name);
    json_array_remove(json_object_get(graph, "nodes"), place);
    const char *path = json_string_value(json_object_get(kept, "target"));
    size_t at;
    if (is_op(kept, "call_module") && change->choice % 2 && !is_called(graph, path) && find_row(graph, "modules", path, &at))
        json_array_remove(json_object_get(graph, "modules"), at);
    json_decref(kept);
    return true;
}

static bool rename_node(const client_change *change, json_t *graph) {
    if (!node_of(graph, change->name) || node_of(graph, change->fresh)) return false;
    rename_in_document(graph, change->name, change->fresh);
    return true;
}

static bool move_node(const client_change *change, json_t *graph) {
    json_t *nodes = json_object_get(graph, "nodes"), *node = node_of(graph, change->name);
    if (!node || !node_of(graph, change->other) || strcmp(change->name, change->other) == 0) return false;
    size_t from = place_of(graph, change->name);
    json_incref(node);
    json_array_remove(nodes, from);
    size_t to = place_of(graph, change->other);
    insert_node(graph, to, node);
    return to != from;
}

static bool change_meta(const client_change *change, json_t *graph) {
    json_t *meta = json_object_get(node_of(graph, change->name), "meta");
    if (!meta) return false;
    switch (change->choice % 3) {
    case 0: return json_object_set_new(meta, "note", json_string("seen")) == 0;
    case 1: return json_object_del(meta, "shape") == 0;
    default: return json_object_set_new(meta, "k", json_integer(2)) == 0;
    }
}

static bool change_target(const client_change *change, json_t *graph) {
    static const char *const functions[] = {"torch.tanh", "torch.neg", "operator.mul", "torch.nn.functional.relu"};
    static const char *const methods[] = {"tanh", "neg", "mul", "relu"};
    json_t *node = node_of(graph, change->name);
    bool is_method = node && is_op(node, "call_method");
    if (!node || (!is_method && !is_op(node, "call_function"))) return false;
    const char *target = (is_method ? methods : functions)[change->choice % 4];
    if (strcmp(json_string_value(json_object_get(node, "target")), target) == 0) return false;
    return json_object_set_new(node, "target", json_string(target)) == 0;
}

static bool change_marks(const client_change *change, json_t *graph) {
    size_t i, changed = 0;
    json_t *node;
    json_array_foreach(json_object_get(graph, "nodes"), i, node) {
        bool is_meant = change->choice % 3 == 0 || strcmp(row_name("nodes", node), change->name) == 0;
        json_t *meta = json_object_get(node, "meta"), *marks = json_object_get(meta, "transformations");
        if (!is_meant || !marks) continue;
        if (change->choice % 3 < 2) json_object_del(meta, "transformations");
        else json_array_append_new(marks, json_string("0123456789abcdef0123456789abcdef")); /* of a pass of the client's */
        changed++;
    }
    return changed > 0;
}

static bool change_output(const client_change *change, json_t *graph) {
    json_t *outputs = outputs_of(graph);
    if (!outputs || !node_of(graph, change->name)) return false;
    if (change->choice % 2) add_output(graph, change->name);
    else if (json_array_size(outputs) < 2) return false;
    else json_array_remove(outputs, change->choice / 2 % json_array_size(outputs));
    return true;
}

/* ---- modules and tensors ------------------------------------------------------------------------------------------------- */

static bool change_module(const client_change *change, json_t *graph) {
    json_t *module = find_row(graph, "modules", change->name, NULL), *config = json_object_get(module, "config");
    if (!module) return false;
    switch (change->choice % 6) {
    case 0: return json_object_set_new(module, "owner", json_string("me")) == 0;
    case 1: return json_object_set_new(config, "note", json_integer(1)) == 0;
    case 2: return json_object_get(config, "eps") && json_object_set_new(config, "eps", json_real(0.25)) == 0;
    case 3:
        return json_object_set_new(module, "training", json_boolean(!json_is_true(json_object_get(module, "training")))) == 0;
    case 4: return json_object_get(config, "padding") && json_object_set_new(config, "stride", json_integer(2)) == 0;
    default: return json_object_set_new(module, "type", json_string("my.Block")) == 0;
    }
}

static bool add_module_and_call(const client_change *change, json_t *graph) {
    const json_t *read = node_of(graph, change->name);
    const char *path = change->other, *node = change->fresh;
    const json_t *shape = json_object_get(json_object_get(read, "meta"), "shape");
    const json_t *last = json_array_get(shape, json_array_size(shape) - 1);
    const char *dtype = json_string_value(json_object_get(json_object_get(read, "meta"), "dtype"));
    if (!json_is_integer(last) || !dtype || find_row(graph, "modules", path, NULL) || node_of(graph, node)) return false;
    char weight[CHANGE_NAME + 10];
    snprintf(weight, sizeof weight, "%s.weight", path);
    if (find_row(graph, "tensors", weight, NULL)) return false;
    long long inputs = json_integer_value(last);
    json_array_append_new(json_object_get(graph, "tensors"),
                          parsed("{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":[2,%lld]}", weight, dtype, inputs));
    json_array_append_new(
        json_object_get(graph, "modules"),
        parsed("{\"path\":\"%s\",\"type\":\"torch.nn.Linear\",\"config\":{\"bias\":false,\"in_features\":%lld,"
               "\"out_features\":2},\"parameters\":{\"weight\":\"%s\",\"bias\":null}}",
               path, inputs, weight));
    size_t end = json_array_size(json_object_get(graph, "nodes")) - 1;
    insert_node(graph, end,
                parsed("{\"name\":\"%s\",\"op\":\"call_module\",\"target\":\"%s\",\"args\":[{\"$node\":\"%s\"}]}", node, path,
                       change->name));
    add_output(graph, node);
    return true;
}

/* The text with `from` at its beginning exchanged, when it stands there as a whole path. */
static json_t *renamed_path(const char *text, const char *from, const char *to) {
    size_t length = strlen(from);
    if (strncmp(text, from, length) || (text[length] && text[length] != '.')) return NULL;
    char renamed[2 * CHANGE_NAME];
    snprintf(renamed, sizeof renamed, "%s%s", to, text + length);
    return json_string(renamed);
}

static bool rename_module(const client_change *change, json_t *graph) {
    size_t i;
    json_t *row;
    if (!find_row(graph, "modules", change->name, NULL) || find_row(graph, "modules", change->fresh, NULL)) return false;
    json_array_foreach(json_object_get(graph, "modules"), i, row) {
        json_t *path = renamed_path(row_name("modules", row), change->name, change->fresh);
        if (path) json_object_set_new(row, "path", path);
    }
    json_array_foreach(json_object_get(graph, "nodes"), i, row) {
        if (!is_op(row, "call_module") && !is_op(row, "get_attr")) continue;
        json_t *target = renamed_path(json_string_value(json_object_get(row, "target")), change->name, change->fresh);
        if (target) json_object_set_new(row, "target", target);
    }
    return true;
}

static void rename_in_expression(json_t *holder, const char *key, const char *from, const char *to) {
    json_t *expression = json_object_get(holder, key), *args = json_object_get(expression, "args"), *item;
    size_t i;
    if (json_is_string(expression) && strcmp(json_string_value(expression), from) == 0)
        json_object_set_new(holder, key, json_string(to));
    json_array_foreach(args, i, item) {
        if (json_is_string(item) && strcmp(json_string_value(item), from) == 0) json_array_set_new(args, i, json_string(to));
        json_t *wrapped = json_pack("{s:O}", "args", json_array_get(args, i));
        rename_in_expression(wrapped, "args", from, to);
        json_decref(wrapped);
    }
}

static bool rename_tensor(const client_change *change, json_t *graph) {
    static const char *const maps[] = {"parameters", "buffers"};
    json_t *tensor = find_row(graph, "tensors", change->name, NULL), *row, *owned;
    const char *key;
    size_t i;
    /* In the evaluator a tensor without bytes is what its name says. */
    bool is_known = json_object_get(tensor, "digest") || json_object_get(tensor, "data") || json_object_get(tensor, "recipe");
    if (!is_known || find_row(graph, "tensors", change->fresh, NULL)) return false;
    json_object_set_new(tensor, "name", json_string(change->fresh));
    json_array_foreach(json_object_get(graph, "modules"), i, row) {
        for (int m = 0; m < 2; m++) {
            json_t *map = json_object_get(row, maps[m]);
            json_object_foreach(map, key, owned) {
                if (json_is_string(owned) && strcmp(json_string_value(owned), change->name) == 0)
                    json_object_set_new(map, key, json_string(change->fresh));
            }
        }
    }
    json_array_foreach(json_object_get(graph, "tensors"), i, row)
        rename_in_expression(row, "recipe", change->name, change->fresh);
    return true;
}

/* ---- the whole graph ----------------------------------------------------------------------------------------------------- */

static bool run_on_top(const random_case *c, const client_change *change, json_t **document) {
    fb_buffer list = {0};
    fb_graph *graph = graph_of_json(*document);
    if (!graph) return false;
    generate_passes(change->choice, &list);
    fb_composition composition = read_passes(c, &list);
    fb_run run = run_passes(c, &composition, graph);
    size_t applied = 0;
    for (size_t i = 0; i < run.count; i++) applied += run.passes[i].applied;
    json_decref(*document);
    *document = json_of(c, run.result);
    fb_run_free(&run);
    fb_composition_free(&composition);
    fb_buffer_free(&list);
    fb_graph_free(graph);
    return applied > 0;
}

static bool change_about(const client_change *change, json_t *graph) {
    if (change->choice % 2) return json_object_set_new(graph, "name", json_string("mine")) == 0;
    return json_object_set_new(json_object_get(graph, "metadata"), "owner", json_string("me")) == 0;
}

bool make_change(const random_case *c, const client_change *change, json_t **graph) {
    switch (change->kind) {
    case CHANGE_ADD_READER: return outputs_of(*graph) && add_reader(change, *graph);
    case CHANGE_ADD_BETWEEN: return add_between(change, *graph);
    case CHANGE_ADD_CALL: return outputs_of(*graph) && add_call(change, *graph);
    case CHANGE_ARGUMENTS: return change_arguments(change, *graph);
    case CHANGE_ERASE: return erase_node(change, *graph);
    case CHANGE_RENAME: return rename_node(change, *graph);
    case CHANGE_MOVE: return move_node(change, *graph);
    case CHANGE_META: return change_meta(change, *graph);
    case CHANGE_TARGET: return change_target(change, *graph);
    case CHANGE_MODULE: return change_module(change, *graph);
    case CHANGE_ADD_MODULE: return outputs_of(*graph) && add_module_and_call(change, *graph);
    case CHANGE_RENAME_MODULE: return rename_module(change, *graph);
    case CHANGE_RENAME_TENSOR: return rename_tensor(change, *graph);
    case CHANGE_MARKS: return change_marks(change, *graph);
    case CHANGE_OUTPUT: return change_output(change, *graph);
    case CHANGE_RUN: return run_on_top(c, change, graph);
    case CHANGE_ABOUT: return change_about(change, *graph);
    default: return false;
    }
}
