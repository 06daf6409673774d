/* Diff of random graphs: with what passes make of them, and with random changes of their documents. How many, and how one is
 * run alone: random_case.h.
 *
 * At the end every kind of edit must have been seen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/diff_pair.h"
#include "tests/unit/random_case.h"

/* ---- what was seen ------------------------------------------------------------------------------------------------------- */

static struct {
    const char *edit;
    uint64_t count;
} seen[] = {{"insert_node", 0}, {"erase_node", 0}, {"move_node", 0},   {"set_node", 0}, {"set_module", 0},
            {"move_module", 0}, {"set_tensor", 0}, {"move_tensor", 0}, {"set_graph", 0}};
enum { SEEN = sizeof seen / sizeof *seen };

static uint64_t tried, invalid;

static void count_edits(const fb_graph *from, const fb_graph *to) {
    json_t *edits = edits_between(from, to), *edit;
    size_t i;
    json_array_foreach(edits, i, edit) {
        const char *kind = json_string_value(json_object_get(edit, "edit"));
        for (size_t k = 0; k < SEEN; k++) seen[k].count += strcmp(seen[k].edit, kind) == 0;
    }
    json_decref(edits);
}

/* ---- random changes ------------------------------------------------------------------------------------------------------ */

static const char *const odd_keys[] = {"a", "b", "a/b", "~", "~1", "\"", "\\", "", "line\nbreak", "größe", "\x01", "shape_of"};

static const char *odd_key(random_source *random) {
    return odd_keys[random_below(random, sizeof odd_keys / sizeof *odd_keys)];
}

static json_t *odd_value(random_source *random) {
    switch (random_below(random, 6)) {
    case 0: return json_null();
    case 1: return json_integer((json_int_t)random_below(random, 4));
    case 2: return json_real(0.5);
    case 3: return json_string(odd_key(random));
    case 4: return json_pack("[i,{s:n}]", 1, odd_key(random));
    default: return json_pack("{s:b,s:[]}", "a", 1, odd_key(random));
    }
}

/* Sets, or takes away, a member of free JSON. */
static void change_member(json_t *object, random_source *random) {
    const char *key = odd_key(random);
    if (random_once_in(random, 3)) json_object_del(object, key);
    else json_object_set_new(object, key, odd_value(random));
}

static json_t *any_of(json_t *list, random_source *random) {
    return json_array_size(list) ? json_array_get(list, random_below(random, json_array_size(list))) : NULL;
}

/* Puts an item elsewhere; where that may be, the reader knows. */
static void move_item(json_t *list, random_source *random) {
    size_t count = json_array_size(list), from = count ? random_below(random, count) : 0;
    if (count < 2) return;
    json_t *item = json_incref(json_array_get(list, from));
    json_array_remove(list, from);
    json_array_insert_new(list, random_below(random, count), item);
}

static void shuffle(json_t *list, random_source *random) {
    for (size_t i = json_array_size(list); i > 0; i--) move_item(list, random);
}

/* Every {"$node": old} below, or {"$node": any} when `old` is NULL. */
static void rename_uses(json_t *value, const char *old, const char *name) {
    const char *key, *used;
    json_t *item;
    size_t i;
    json_object_foreach(value, key, item) {
        bool is_use = strcmp(key, "$node") == 0 && (used = json_string_value(item)) && strcmp(used, old) == 0;
        if (is_use) json_string_set(item, name);
        else rename_uses(item, old, name);
    }
    json_array_foreach(value, i, item) rename_uses(item, old, name);
}

static void rename_node(json_t *nodes, random_source *random) {
    char old[300], name[40];
    json_t *node = any_of(nodes, random), *other;
    size_t i;
    snprintf(old, sizeof old, "%s", json_string_value(json_object_get(node, "name")));
    snprintf(name, sizeof name, "renamed_%zu", random_below(random, 1000));
    json_object_set_new(node, "name", json_string(name));
    json_array_foreach(nodes, i, other) {
        rename_uses(json_object_get(other, "args"), old, name);
        rename_uses(json_object_get(other, "kwargs"), old, name);
    }
}

/* A node is taken out, and the one before it is read instead. */
static void erase_node(json_t *nodes, random_source *random) {
    size_t at = random_below(random, json_array_size(nodes)), i;
    if (at == 0) return;
    json_t *other;
    char *old = strdup(json_string_value(json_object_get(json_array_get(nodes, at), "name")));
    const char *name = json_string_value(json_object_get(json_array_get(nodes, at - 1), "name"));
    json_array_remove(nodes, at);
    json_array_foreach(nodes, i, other) rename_uses(json_object_get(other, "args"), old, name);
    free(old);
}

static void insert_node(json_t *nodes, random_source *random) {
    size_t at = random_below(random, json_array_size(nodes)) + 1;
    char name[40];
    const char *read = json_string_value(json_object_get(json_array_get(nodes, at - 1), "name"));
    snprintf(name, sizeof name, "inserted_%zu", random_below(random, 1000));
    json_array_insert_new(nodes, at,
                          json_pack("{s:s,s:s,s:s,s:[{s:s},i],s:{s:i,s:f}}", "name", name, "op", "call_function", "target",
                                    "operator.foo", "args", "$node", read, (int)random_below(random, 3), "kwargs", "a", 1, "b",
                                    2.5));
}

/* Arguments, keyword arguments and their order, meta, type. */
static void change_node(json_t *node, random_source *random) {
    json_t *args = json_object_get(node, "args"), *kwargs = json_object_get(node, "kwargs");
    static const char *const names[] = {"a", "b", "c"};
    const char *name = names[random_below(random, 3)];
    switch (random_below(random, 6)) {
    case 0: json_array_append_new(args, json_integer(7)); break;
    case 1:
        if (json_array_size(args)) json_array_set_new(args, random_below(random, json_array_size(args)), json_real(0.25));
        break;
    case 2:
        json_object_del(kwargs, name); /* so that it comes last */
        json_object_set_new(kwargs, name, json_integer((json_int_t)random_below(random, 2)));
        break;
    case 3: change_member(json_object_get(node, "meta"), random); break;
    case 4: json_object_del(json_object_get(node, "meta"), random_once_in(random, 2) ? "shape" : "dtype"); break;
    default:
        if (random_once_in(random, 2)) json_object_del(node, "type");
        else json_object_set_new(node, "type", json_string("torch.Tensor"));
    }
}

static void change_module(json_t *module, random_source *random) {
    switch (random_below(random, 4)) {
    case 0: change_member(module, random); break;
    case 1: json_object_set_new(json_object_get(module, "config"), "extra", odd_value(random)); break;
    case 2: json_object_set_new(module, "attributes", json_pack("{s:i}", "plain", (int)random_below(random, 3))); break;
    default: json_object_set_new(module, "training", json_boolean(random_once_in(random, 2)));
    }
}

static void insert_module(json_t *modules, random_source *random) {
    char path[40];
    snprintf(path, sizeof path, "inserted.%zu", random_below(random, 1000));
    json_array_insert_new(modules, 1 + random_below(random, json_array_size(modules)),
                          json_pack("{s:s,s:s,s:{s:i}}", "path", path, "type", "my.Module", "attributes", "a", 1));
}

static void change_tensor(json_t *tensor, random_source *random) {
    if (!tensor) return;
    if (random_once_in(random, 2)) change_member(tensor, random);
    else json_object_set_new(tensor, "requires_grad", json_boolean(random_once_in(random, 2)));
}

static void change_document(json_t *document, random_source *random) {
    json_t *nodes = json_object_get(document, "nodes"), *modules = json_object_get(document, "modules");
    json_t *tensors = json_object_get(document, "tensors");
    switch (random_below(random, 13)) {
    case 0: json_object_set_new(document, "name", json_string(odd_key(random))); break;
    case 1: change_member(json_object_get(document, "metadata"), random); break;
    case 2: move_item(nodes, random); break;
    case 3: rename_node(nodes, random); break;
    case 4: erase_node(nodes, random); break;
    case 5: insert_node(nodes, random); break;
    case 6: change_node(any_of(nodes, random), random); break;
    case 7: move_item(modules, random); break;
    case 8: insert_module(modules, random); break;
    case 9: change_module(any_of(modules, random), random); break;
    case 10: move_item(tensors, random); break;
    case 11: shuffle(tensors, random); break;
    default: change_tensor(any_of(tensors, random), random);
    }
}

/* The graph after some changes, those left out that make no valid graph. */
static fb_graph *changed(const random_case *c, const fb_graph *source, random_source *random) {
    fb_graph *graph = fb_graph_copy(source, &(fb_work){0});
    for (size_t left = 1 + random_below(random, 6); left > 0; left--) {
        json_t *document = json_of(c, graph);
        change_document(document, random);
        fb_graph *next = graph_of_json(document);
        json_decref(document);
        tried++;
        invalid += !next;
        if (!next) continue;
        fb_graph_free(graph);
        graph = next;
    }
    return graph;
}

/* ---- cases --------------------------------------------------------------------------------------------------------------- */

static void run_case(uint64_t seed) {
    random_case c = {.seed = seed};
    random_source random = {seed ^ 0xd1ffu};
    char label[40];
    snprintf(label, sizeof label, "seed %" PRIu64, seed);
    generate_document(seed, &c.document);
    generate_passes(seed, &c.passes);
    read_case(&c);
    fb_run run = run_passes(&c, &c.composition, c.source);
    fb_graph *other = changed(&c, random_once_in(&random, 2) ? c.source : run.result, &random);
    check_pair(c.source, run.result, label);
    check_pair(run.result, other, label);
    check_pair(c.source, other, label);
    count_edits(c.source, other);
    fb_graph_free(other);
    fb_run_free(&run);
    free_case(&c);
}

START_TEST(test_random_graphs) {
    uint64_t cases = run_random_cases(run_case);
    bool is_complete = true;
    printf("%" PRIu64 " graphs, %" PRIu64 " changes of documents, %" PRIu64 " of them invalid\n", cases, tried, invalid);
    for (size_t i = 0; i < SEEN; i++) {
        printf("%-32s %10" PRIu64 "\n", seen[i].edit, seen[i].count);
        is_complete &= seen[i].count > 0;
    }
    fflush(stdout);
    ck_assert_msg(is_complete || cases < 1000, "a kind of edit was never seen");
    ck_assert_msg(invalid < tried / 2, "most changes are invalid");
}
END_TEST

int main(void) {
    return random_main("diff of random graphs", test_random_graphs);
}
