#include "tests/unit/functional.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static json_t *ref(const char *name) {
    return json_pack("{s:s}", "$node", name);
}

static json_t *module_at(json_t *document, const char *path) {
    size_t i;
    json_t *module;
    json_array_foreach(json_object_get(document, "modules"), i, module) {
        if (strcmp(json_string_value(json_object_get(module, "path")), path) == 0) return module;
    }
    return NULL;
}

static bool is_type(const json_t *module, const char *type) {
    return strcmp(json_string_value(json_object_get(module, "type")), type) == 0;
}

static bool is_convertible(const json_t *module, const json_t *call) {
    bool is_known = is_type(module, "torch.nn.Linear") || is_type(module, "torch.nn.Conv2d") ||
                    is_type(module, "torch.nn.BatchNorm1d") || is_type(module, "torch.nn.BatchNorm2d");
    const json_t *args = json_object_get(call, "args"), *mean = NULL;
    bool is_norm = strstr(json_string_value(json_object_get(module, "type")), "BatchNorm") != NULL;
    if (is_norm) mean = json_object_get(json_object_get(module, "buffers"), "running_mean");
    return is_known && !json_is_true(json_object_get(module, "training")) && json_array_size(args) == 1 &&
           json_object_size(json_object_get(call, "kwargs")) == 0 && json_object_get(json_array_get(args, 0), "$node") &&
           (!is_norm || json_is_string(mean));
}

/* Inserts a get_attr node at *at for an attribute that the module has; null for one that it has not. */
static json_t *read_attribute(json_t *nodes, size_t *at, const json_t *module, const char *call, const char *attribute) {
    const char *path = json_string_value(json_object_get(module, "path"));
    json_t *tensor = json_object_get(json_object_get(module, "parameters"), attribute);
    if (!tensor) tensor = json_object_get(json_object_get(module, "buffers"), attribute);
    if (!json_is_string(tensor)) return json_null();
    char name[300], target[300];
    snprintf(name, sizeof name, "%s_get_%s", call, attribute);
    snprintf(target, sizeof target, "%s%s%s", path, *path ? "." : "", attribute);
    json_array_insert_new(
        nodes, (*at)++,
        json_pack("{s:s,s:s,s:s,s:[],s:{}}", "name", name, "op", "get_attr", "target", target, "args", "kwargs"));
    return ref(name);
}

static json_t *option(const json_t *module, const char *key, json_t *fallback) {
    json_t *given = json_object_get(json_object_get(module, "config"), key);
    if (!given) return fallback;
    json_decref(fallback);
    return json_incref(given);
}

static void convert(json_t *nodes, size_t *at, json_t *call, const json_t *module) {
    const char *name = json_string_value(json_object_get(call, "name"));
    json_t *args = json_array(), *kwargs = json_object();
    const char *target = "torch.nn.functional.linear";
    json_array_append(args, json_array_get(json_object_get(call, "args"), 0));
    bool is_norm = strstr(json_string_value(json_object_get(module, "type")), "BatchNorm") != NULL;
    if (is_norm) {
        target = "torch.nn.functional.batch_norm";
        json_array_append_new(args, read_attribute(nodes, at, module, name, "running_mean"));
        json_array_append_new(args, read_attribute(nodes, at, module, name, "running_var"));
        json_object_set_new(kwargs, "eps", option(module, "eps", json_real(1e-5)));
    }
    json_t *weight = read_attribute(nodes, at, module, name, "weight"), *bias = read_attribute(nodes, at, module, name, "bias");
    if (is_norm) {
        json_object_set_new(kwargs, "weight", weight);
        json_object_set_new(kwargs, "bias", bias);
    } else {
        json_array_append_new(args, weight);
        json_array_append_new(args, bias);
    }
    if (is_type(module, "torch.nn.Conv2d")) {
        target = "torch.conv2d";
        json_array_append_new(args, option(module, "stride", json_integer(1)));
        json_array_append_new(args, option(module, "padding", json_integer(0)));
        json_array_append_new(args, option(module, "dilation", json_integer(1)));
        json_array_append_new(args, option(module, "groups", json_integer(1)));
    }
    json_object_set_new(call, "op", json_string("call_function"));
    json_object_set_new(call, "target", json_string(target));
    json_object_set_new(call, "args", args);
    json_object_set_new(call, "kwargs", kwargs);
}

/* The modules that nobody calls any more own tensors, and nothing else. */
static void forget_types(json_t *document, json_t *converted, const json_t *called) {
    const char *path;
    json_t *value;
    json_object_foreach(converted, path, value) {
        json_t *module = module_at(document, path);
        if (json_object_get(called, path)) continue;
        json_object_set_new(module, "type", json_string("torch.nn.Module"));
        json_object_set_new(module, "config", json_object());
    }
}

/* Modules that nested programs call stay as they are. */
static void note_nested(const json_t *document, json_t *called) {
    size_t i, k;
    const json_t *module, *node;
    json_array_foreach(json_object_get(document, "modules"), i, module) {
        const char *base = json_string_value(json_object_get(module, "path"));
        json_array_foreach(json_object_get(json_object_get(module, "graph"), "nodes"), k, node) {
            char path[300];
            snprintf(path, sizeof path, "%s.%s", base, json_string_value(json_object_get(node, "target")));
            json_object_set_new(called, path, json_true());
        }
    }
}

size_t make_functional(json_t *document) {
    json_t *nodes = json_object_get(document, "nodes"), *converted = json_object(), *called = json_object();
    size_t count = 0, calls = 0;
    note_nested(document, called);
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        json_t *node = json_array_get(nodes, i);
        if (strcmp(json_string_value(json_object_get(node, "op")), "call_module") != 0) continue;
        const char *path = json_string_value(json_object_get(node, "target"));
        json_t *module = module_at(document, path);
        bool is_one_in_two = calls++ % 2 == 0 || !json_object_get(called, path);
        if (!module || !is_convertible(module, node) || !is_one_in_two) {
            json_object_set_new(called, path, json_true());
            continue;
        }
        json_object_set_new(converted, path, json_true());
        convert(nodes, &i, node, module);
        count++;
    }
    forget_types(document, converted, called);
    json_decref(converted);
    json_decref(called);
    return count;
}
