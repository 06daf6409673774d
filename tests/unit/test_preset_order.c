/* The order of the passes in a preset hides no match. On each golden input and fixture that both of two passes change, the two
 * run in the order of the preset and in the other one, again and again as a preset does, and then EliminateDeadCode runs. The
 * order of the preset must not leave more nodes, unless `known` says why. The golden input of one pass has seldom a match of
 * another, so each is also tried with a Linear or convolution behind its result, before its last call, and behind its first
 * input. */
#include "tests/unit/checks.h"
#include <glob.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

enum { MAX_PASSES = 32, ROUNDS = 4 };

typedef struct exception {
    const char *first, *second, *why;
} exception;

static const exception known[] = {
    {"EliminateCommonSubexpressions", "FuseBatchNorm",
     "One convolution for two BatchNorms costs less than two that are folded"},
    {"EliminateCommonSubexpressions", "MergeBranches", "One convolution added to itself is less than two that are merged"},
    {"EliminateCommonSubexpressions", "MergeAdapters", "A Linear that is half of its own adapter is called once instead"},
    {"ChannelsLast", "FusePointwise",
     "The node that lays an image out saves time; behind FusePointwise no convolution is left"},
    {"FuseLinear", "FoldScaleIntoLinear", "The sum is part of a Linear in both orders; one get_attr more reads its bias"},
    {NULL, NULL, NULL},
};

static const char *name_of(const json_t *pass) {
    return json_string_value(json_is_string(pass) ? pass : json_object_get(pass, "name"));
}

/* How many nodes are left, and where `applied` is given, whether a pass found something. */
static size_t nodes_after(const fb_graph *before, json_t *list, bool *applied) {
    fb_composition passes;
    fb_run run;
    fb_error error = {0};
    ck_assert_int_eq(fb_composition_read(list, "", NULL, &passes, &error), FB_OK);
    fb_status status = fb_composition_run(&passes, before, FB_LINT_NONE, NULL, &run, &error);
    ck_assert_msg(status == FB_OK, "%s: %s", error.code, error.message);
    size_t count = fb_node_count(run.result);
    for (size_t i = 0; applied && i < run.count; i++) *applied |= run.passes[i].applied > 0;
    fb_run_free(&run);
    fb_composition_free(&passes);
    return count;
}

static size_t nodes_after_pair(const fb_graph *before, json_t *first, json_t *second) {
    json_t *list = json_array();
    for (int i = 0; i < ROUNDS; i++) {
        json_array_append(list, first);
        json_array_append(list, second);
    }
    json_array_append_new(list, json_string("EliminateDeadCode"));
    size_t count = nodes_after(before, list, NULL);
    json_decref(list);
    return count;
}

static bool applies(const fb_graph *graph, json_t *pass) {
    json_t *list = json_pack("[O]", pass);
    bool applied = false;
    nodes_after(graph, list, &applied);
    json_decref(list);
    return applied;
}

static bool is_known(const json_t *first, const json_t *second) {
    for (const exception *one = known; one->first; one++)
        if (strcmp(one->first, name_of(first)) == 0 && strcmp(one->second, name_of(second)) == 0) return true;
    return false;
}

/* Prints each pair whose other order leaves fewer nodes; gives how many are not known. */
static size_t look_at(const char *name, const fb_graph *graph, json_t *passes) {
    size_t worse = 0;
    json_t *found = json_array(), *one;
    size_t i;
    json_array_foreach(passes, i, one) if (applies(graph, one)) json_array_append(found, one);
    for (size_t second = 1; second < json_array_size(found); second++) {
        for (size_t first = 0; first < second; first++) {
            json_t *a = json_array_get(found, first), *b = json_array_get(found, second);
            size_t as_it_is = nodes_after_pair(graph, a, b), otherwise = nodes_after_pair(graph, b, a);
            if (otherwise >= as_it_is) continue;
            printf("%s: %s before %s leaves %zu nodes, and behind it %zu%s\n", name, name_of(a), name_of(b), as_it_is,
                   otherwise, is_known(a, b) ? " (known)" : "");
            worse += !is_known(a, b);
        }
    }
    json_decref(found);
    return worse;
}

/* ---- golden inputs with a layer more ------------------------------------------------------------------------------------- */

static json_t *row_named(const json_t *rows, const char *member, const char *name) {
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        const char *found = json_string_value(json_object_get(row, member));
        if (found && strcmp(found, name) == 0) return row;
    }
    return NULL;
}

/* Lets all that reads the node `from` read `to`. */
static void read_instead(json_t *value, const char *from, const char *to) {
    const char *key, *name = json_string_value(json_object_get(value, "$node"));
    size_t i;
    json_t *part;
    if (name && strcmp(name, from) == 0) json_object_set_new(value, "$node", json_string(to));
    json_array_foreach(value, i, part) read_instead(part, from, to);
    json_object_foreach(value, key, part) read_instead(part, from, to);
}

/* Puts a layer behind the node, which must give a tensor of float32: a convolution behind an image, else a Linear. All that
 * read the node read the layer. */
static bool add_layer(json_t *document, const char *node) {
    json_t *nodes = json_object_get(document, "nodes"), *row = row_named(nodes, "name", node),
           *meta = json_object_get(row, "meta");
    json_t *shape = json_object_get(meta, "shape");
    const char *dtype = json_string_value(json_object_get(meta, "dtype"));
    size_t rank = json_array_size(shape);
    bool is_image = rank == 4;
    const json_t *size = rank > 1 ? json_array_get(shape, is_image ? 1 : rank - 1) : NULL;
    if (!json_is_integer(size) || !dtype || strcmp(dtype, "float32") != 0 || row_named(nodes, "name", "added")) return false;
    json_int_t features = json_integer_value(size);
    for (size_t i = 0; i < json_array_size(nodes); i++) read_instead(json_array_get(nodes, i), node, "added");
    size_t place = 0;
    while (json_array_get(nodes, place) != row) place++;
    json_array_insert_new(nodes, place + 1,
                          json_pack("{s:s, s:s, s:s, s:[{s:s}], s:{s:O, s:s}}", "name", "added", "op", "call_module", "target",
                                    "added", "args", "$node", node, "meta", "shape", shape, "dtype", "float32"));
    json_t *config = is_image ? json_pack("{s:I, s:I, s:[i, i], s:b}", "in_channels", features, "out_channels", features,
                                          "kernel_size", 1, 1, "bias", true)
                              : json_pack("{s:I, s:I, s:b}", "in_features", features, "out_features", features, "bias", true);
    if (is_image) json_object_set_new(config, "kernel_size", json_pack("{s:[i, i]}", "$tuple", 1, 1));
    json_array_append_new(json_object_get(document, "modules"),
                          json_pack("{s:s, s:s, s:o, s:{s:s, s:s}, s:{}, s:b}", "path", "added", "type",
                                    is_image ? "torch.nn.Conv2d" : "torch.nn.Linear", "config", config, "parameters", "weight",
                                    "added.weight", "bias", "added.bias", "buffers", "training", false));
    json_t *tensors = json_object_get(document, "tensors");
    json_t *sizes = is_image ? json_pack("[I, I, i, i]", features, features, 1, 1) : json_pack("[I, I]", features, features);
    json_array_append_new(tensors, json_pack("{s:s, s:s, s:o}", "name", "added.weight", "dtype", "float32", "shape", sizes));
    json_array_append_new(tensors, json_pack("{s:s, s:s, s:[I]}", "name", "added.bias", "dtype", "float32", "shape", features));
    return true;
}

static const char *result_of(const json_t *document) {
    const json_t *output = row_named(json_object_get(document, "nodes"), "op", "output");
    return json_string_value(json_object_get(json_array_get(json_object_get(output, "args"), 0), "$node"));
}

/* Many golden inputs end with a relu. */
static const char *before_result_of(const json_t *document) {
    const char *result = result_of(document);
    const json_t *row = result ? row_named(json_object_get(document, "nodes"), "name", result) : NULL;
    return json_string_value(json_object_get(json_array_get(json_object_get(row, "args"), 0), "$node"));
}

static const char *first_input_of(const json_t *document) {
    return json_string_value(json_object_get(row_named(json_object_get(document, "nodes"), "op", "placeholder"), "name"));
}

static size_t look_with_layer(const char *path, const json_t *document, const char *where, const char *node, json_t *passes) {
    json_t *copy = json_deep_copy(document);
    size_t worse = 0;
    if (node && add_layer(copy, node)) {
        char *text = json_dumps(copy, JSON_COMPACT), *name = NULL;
        fb_graph *graph = graph_of(text, strlen(text));
        ck_assert_int_gt(asprintf(&name, "%s, a layer %s", path, where), 0);
        worse = look_at(name, graph, passes);
        fb_graph_free(graph);
        free(name);
        free(text);
    }
    json_decref(copy);
    return worse;
}

static size_t look_at_files(const char *pattern, json_t *passes) {
    glob_t files;
    size_t worse = 0;
    ck_assert_int_eq(glob(pattern, 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        const char *path = files.gl_pathv[i];
        size_t size;
        char *text = read_file(path, &size);
        fb_graph *graph = graph_of(text, size);
        json_t *document = json_loadb(text, size, 0, NULL);
        worse += look_at(path, graph, passes);
        worse += look_with_layer(path, document, "behind", result_of(document), passes);
        worse += look_with_layer(path, document, "before the last call", before_result_of(document), passes);
        worse += look_with_layer(path, document, "in front", first_input_of(document), passes);
        json_decref(document);
        fb_graph_free(graph);
        free(text);
    }
    globfree(&files);
    return worse;
}

START_TEST(test_no_order_hides_a_match) {
    const fb_preset *preset = fb_preset_at((size_t)_i);
    json_t *passes = json_loads(preset->passes, 0, NULL);
    if (preset->at_one_token) {
        json_t *more = json_loads(preset->at_one_token, 0, NULL);
        json_array_extend(passes, more);
        json_decref(more);
    }
    size_t worse = look_at_files("build/golden/*/*/before.json", passes);
    worse += look_at_files("tests/fixtures/*/graph.json", passes);
    ck_assert_msg(!worse, "%zu orders of %s hide a match, see above", worse, preset->name);
    json_decref(passes);
}
END_TEST

int main(void) {
    setenv("CK_FORK", "no", 0);
    TCase *tests = tcase_create("preset order");
    int count = 0;
    while (fb_preset_at((size_t)count)) count++;
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, test_no_order_hides_a_match, 0, count);
    return run_tests("preset order", tests);
}
