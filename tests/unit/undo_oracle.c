#include "tests/unit/undo_oracle.h"

#include <stdlib.h>
#include <string.h>

const char *const conflict_tables[] = {
    [FB_CONFLICT_NODE] = "nodes", [FB_CONFLICT_MODULE] = "modules", [FB_CONFLICT_TENSOR] = "tensors"};

/* Whether undoing alone makes another one of it. */
static bool is_touched(const undo_case *u, const char *table, const char *name) {
    return !is_same_row(u->changed_from, u->merge_replay, table, name);
}

/* Whether undoing makes the tensor from something else. */
static bool is_tensor_touched(const undo_case *u, const char *name);

static bool is_recipe_touched(const undo_case *u, const json_t *expression) {
    size_t i;
    const json_t *item;
    if (json_is_string(expression)) return is_tensor_touched(u, json_string_value(expression));
    bool result = false;
    json_array_foreach(json_object_get(expression, "args"), i, item) result |= is_recipe_touched(u, item);
    return result;
}

static bool is_tensor_touched(const undo_case *u, const char *name) {
    return is_touched(u, "tensors", name) ||
           is_recipe_touched(u, json_object_get(find_row(u->changed_from, "tensors", name, NULL), "recipe"));
}

/* Whether undoing makes another one of it, or of what it owns. */
static bool is_module_touched(const undo_case *u, const char *path) {
    static const char *const maps[] = {"parameters", "buffers"};
    const json_t *module = find_row(u->changed_from, "modules", path, NULL), *name;
    const char *attribute;
    bool result = is_touched(u, "modules", path);
    for (int m = 0; m < 2; m++) {
        json_object_foreach(json_object_get(module, maps[m]), attribute, name) {
            result |= json_is_string(name) && is_tensor_touched(u, json_string_value(name));
        }
    }
    return result;
}

/* Whether a node depends on something that is touched, or something that is touched depends on it. */
static bool is_near_touched(const undo_case *u, const fb_graph *g, const char *name) {
    fb_node meant = fb_node_find(g, FB_MAIN_PROGRAM, name);
    bool *depends = calloc(fb_node_limit(g), sizeof *depends), *is_above = calloc(fb_node_limit(g), sizeof *is_above);
    bool result = false;
    is_above[meant.id] = true;
    for (fb_node n = meant.id ? fb_first_node(g, FB_MAIN_PROGRAM) : meant; n.id; n = fb_node_at(g, n)->next) {
        bool is_touched_itself = is_touched(u, "nodes", fb_node_name(g, n)) || is_module_touched(u, fb_node_target(g, n));
        depends[n.id] = is_touched_itself;
        for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
            depends[n.id] |= depends[fb_edge_input(g, e).id];
            is_above[n.id] |= is_above[fb_edge_input(g, e).id];
        }
        result |= (n.id == meant.id && depends[n.id]) || (is_touched_itself && is_above[n.id]);
    }
    free(depends);
    free(is_above);
    return result;
}

/* Whether passes made a tensor of the module, or made something from one: undoing may make it otherwise, or give it to another
 * module, too. */
static bool owns_made(const undo_case *u, const char *path) {
    const json_t *name, *module = find_row(u->changed_from, "modules", path, NULL), *tensor;
    const char *attribute;
    bool is_made = false;
    size_t i;
    json_object_foreach(json_object_get(module, "parameters"), attribute, name) {
        if (!json_is_string(name)) continue;
        is_made |= json_object_get(find_row(u->changed_from, "tensors", json_string_value(name), NULL), "recipe") != NULL;
        json_array_foreach(json_object_get(u->changed_from, "tensors"), i, tensor) {
            char *recipe = json_dumps(json_object_get(tensor, "recipe"), JSON_ENCODE_ANY);
            is_made |= recipe && strstr(recipe, json_string_value(name)) != NULL;
            free(recipe);
        }
    }
    return is_made;
}

bool is_conflict_due(const undo_case *u, const fb_conflict *conflict) {
    if (is_touched(u, conflict_tables[conflict->kind], conflict->name)) return true;
    if (strcmp(conflict->code, "not-topological") == 0 && is_reordered(u->changed_from, u->merge_replay)) return true;
    if (conflict->kind == FB_CONFLICT_MODULE && owns_made(u, conflict->name)) return true;
    return conflict->kind == FB_CONFLICT_NODE &&
           (is_near_touched(u, u->result, conflict->name) || is_near_touched(u, u->replay, conflict->name));
}

fb_graph *changed_replay(const undo_case *u, const json_t *ours) {
    json_t *changed = json_deep_copy(u->merge_replay);
    bool is_made = !u->is_trained;
    for (size_t i = 0; i < u->change_count && is_made; i++) is_made = make_change(&u->base, &u->changes[i], &changed);
    fb_graph *graph = is_made ? graph_of_json(changed) : NULL;
    if (graph) { /* canonical again */
        json_decref(changed);
        changed = json_of(&u->base, graph);
    }
    if (graph && !is_same_change(u->changed_from, ours, u->merge_replay, changed)) {
        fb_graph_free(graph);
        graph = NULL;
    }
    json_decref(changed);
    return graph;
}

bool stands_elsewhere(const undo_case *u, const fb_graph *oracle, const fb_graph *merged) {
    if (!is_reordered(u->changed_from, u->merge_replay)) return false;
    json_t *a = json_of(&u->base, oracle), *b = json_of(&u->base, merged);
    bool is_same = has_same_rows(a, b);
    json_decref(a);
    json_decref(b);
    return is_same;
}
