/* Reads documents for the writer of archives: see rewrite.h. */
#include "core/archive/rewrite.h"

#include <string.h>

#include "core/archive/internal.h"
#include "core/base/buffer.h"

bool pt_list_reads(const json_t *value, json_t *out) {
    size_t i;
    const char *key;
    json_t *item;
    if (json_is_array(value)) {
        json_array_foreach(value, i, item) if (!pt_list_reads(item, out)) return false;
    } else if (json_is_object(value)) {
        const json_t *name = json_object_get(value, "$node");
        if (json_is_string(name)) return json_array_append_new(out, json_string(json_string_value(name))) == 0;
        json_object_foreach((json_t *)(uintptr_t)value, key, item) if (!pt_list_reads(item, out)) return false;
    }
    return true;
}

json_t *pt_owners_of(const json_t *document) {
    json_t *by_name = json_object(), *made = json_object(), *row, *module, *tensor;
    size_t i;
    const char *attribute;
    fb_buffer key = {0};
    bool ok = by_name && made;
    json_array_foreach(json_object_get(document, "tensors"), i, row) ok =
        ok && json_object_set(by_name, pt_text_of(row, "name"), row) == 0;
    json_array_foreach(json_object_get(document, "modules"), i, module) {
        for (int kind = 0; kind < 2; kind++) {
            json_object_foreach(json_object_get(module, kind ? "parameters" : "buffers"), attribute, tensor) {
                const char *path = pt_text_of(module, "path"), *name = json_string_value(tensor);
                if (!ok || !name) continue;
                key.size = 0;
                fb_buffer_printf(&key, "%s%s%s", path, *path ? "." : "", attribute);
                ok = fb_buffer_text(&key) && json_object_set_new(made, fb_buffer_text(&key),
                                                                 json_pack("[O,b]", json_object_get(by_name, name), kind)) == 0;
            }
        }
    }
    json_decref(by_name);
    fb_buffer_free(&key);
    if (ok) return made;
    json_decref(made);
    return NULL;
}

bool pt_requires_grad(const json_t *owned) {
    const json_t *row = json_array_get(owned, 0), *said = json_object_get(row, "requires_grad");
    bool is_parameter = json_is_true(json_array_get(owned, 1));
    return said ? json_is_true(said) : is_parameter && fb_dtype_is_floating(fb_dtype_find(pt_text_of(row, "dtype")));
}

bool pt_is_parameter(const json_t *owned) {
    fb_dtype dtype = fb_dtype_find(pt_text_of(json_array_get(owned, 0), "dtype"));
    return json_is_true(json_array_get(owned, 1)) && (fb_dtype_is_floating(dtype) || fb_dtype_is_complex(dtype));
}

/* The value with what its nodes are in the place of their names. */
static json_t *with_names(const json_t *value, const json_t *names) {
    size_t i;
    const char *key, *node = json_string_value(json_object_get(value, "$node"));
    json_t *item, *made;
    bool ok = true;
    if (node) return json_pack("{s:O?}", "$node", json_object_get(names, node));
    if (json_is_array(value)) {
        made = json_array();
        json_array_foreach(value, i, item) ok &= json_array_append_new(made, with_names(item, names)) == 0;
    } else if (json_is_object(value)) {
        made = json_object();
        json_object_foreach((json_t *)(uintptr_t)value, key, item) ok &=
            json_object_set_new(made, key, with_names(item, names)) == 0;
    } else {
        made = json_deep_copy(value);
    }
    if (ok) return made;
    json_decref(made);
    return NULL;
}

/* Nothing reads it and it does nothing else, such as the arithmetic of sizes: ExportedProgram.module() leaves it out of
 * programs in core ATen, and so does the reader of archives. */
static bool is_idle(const json_t *node, const json_t *needed) {
    const char *target = pt_text_of(node, "target");
    bool is_call = strcmp(pt_text_of(node, "op"), "call_function") == 0;
    return is_call && !json_object_get(needed, pt_text_of(node, "name")) && pt_is_pure(target);
}

/* The nodes that something reads, other than idle ones. NULL: memory is out. */
static json_t *list_needed(const json_t *nodes) {
    json_t *needed = json_object(), *reads = json_array(), *read;
    bool ok = needed && reads;
    size_t k;
    for (size_t i = json_array_size(nodes); ok && i-- > 0;) {
        const json_t *node = json_array_get(nodes, i);
        if (is_idle(node, needed)) continue;
        json_array_clear(reads);
        ok = pt_list_reads(json_object_get(node, "args"), reads) && pt_list_reads(json_object_get(node, "kwargs"), reads);
        json_array_foreach(reads, k, read) ok = ok && json_object_set_new(needed, json_string_value(read), json_true()) == 0;
    }
    json_decref(reads);
    if (ok) return needed;
    json_decref(needed);
    return NULL;
}

/* The inputs and calls of a program. */
static json_t *meaning_of_nodes(const json_t *nodes, const json_t *owners, bool records) {
    json_t *names = json_object(), *made = json_array(), *needed = list_needed(nodes), *node;
    size_t i, calls = 0;
    bool ok = names && made && needed;
    json_array_foreach(nodes, i, node) {
        const char *op = pt_text_of(node, "op"), *target = pt_text_of(node, "target");
        const json_t *owned = json_object_get(owners, target), *row = json_array_get(owned, 0);
        const json_t *meta = records ? json_object_get(node, "meta") : NULL;
        bool is_state = strcmp(op, "get_attr") == 0;
        if (is_idle(node, needed)) continue;
        json_t *name = is_state ? json_pack("[s,s,O?,O?,b]", op, target, json_object_get(row, "dtype"),
                                            json_object_get(row, "shape"), records && pt_requires_grad(owned))
                                : json_pack("[s,I]", strcmp(op, "placeholder") == 0 ? target : "", (json_int_t)calls++);
        ok = ok && name && json_object_set_new(names, pt_text_of(node, "name"), name) == 0;
        if (!ok || is_state) continue;
        json_t *call = json_pack("[s,s,o,o,O?,O?]", op, target, with_names(json_object_get(node, "args"), names),
                                 with_names(json_object_get(node, "kwargs"), names), json_object_get(meta, "shape"),
                                 json_object_get(meta, "dtype"));
        ok = json_array_append_new(made, call) == 0;
    }
    json_decref(names);
    json_decref(needed);
    if (ok) return made;
    json_decref(made);
    return NULL;
}

json_t *pt_meaning_of(const json_t *document, bool records) {
    json_t *owners = pt_owners_of(document), *module, *made = NULL;
    size_t i;
    if (owners) made = meaning_of_nodes(json_object_get(document, "nodes"), owners, records);
    bool ok = made != NULL;
    json_array_foreach(json_object_get(document, "modules"), i, module) {
        const json_t *program = json_object_get(module, "graph");
        if (!ok || !program) continue;
        json_t *nested = meaning_of_nodes(json_object_get(program, "nodes"), owners, records);
        ok = nested && json_array_append_new(made, json_pack("[s,s,o]", "nested", pt_text_of(module, "path"), nested)) == 0;
    }
    json_decref(owners);
    if (ok) return made;
    json_decref(made);
    return NULL;
}
