/* Weights that were trained after Linears were merged and their biases fused, carried back by hand: the rows of the merged
 * weight are those of the Linears, the last column of a fused one is the bias. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/undo.h"
#include "tests/unit/document_rows.h"
#include "tests/unit/evaluate.h"
#include "tests/unit/fine_tuning.h"
#include "tests/unit/movements.h"
#include "tests/unit/numbers.h"
#include "tests/unit/run_tests.h"

enum { LINEARS = 4, MAX_ROWS = 4 * LINEARS };

typedef struct layers {
    random_case base;
    size_t count, inputs, outputs[LINEARS];
    bool has_bias[LINEARS];
    size_t rows;
    double weight[MAX_ROWS][8], bias[MAX_ROWS]; /* what they were trained to be, one above the other */
    bool is_filler_kept;                        /* the zeros between the biases stay */
} layers;

static void write_tensor(layers *l, random_source *random, size_t layer, const char *name, bool is_vector, fb_buffer *out) {
    fb_buffer bytes = {0};
    size_t count = l->outputs[layer] * (is_vector ? 1 : l->inputs);
    double numbers[8 * MAX_ROWS] = {0};
    for (size_t i = 0; i < count; i++) numbers[i] = (double)random_below(random, 1000) / 8;
    encode_numbers(FB_FLOAT32, numbers, count, &bytes);
    fb_buffer_printf(out, "%s{\"name\":\"fc%zu.%s\",\"dtype\":\"float32\",\"shape\":[%zu", layer || is_vector ? "," : "", layer,
                     name, l->outputs[layer]);
    if (!is_vector) fb_buffer_printf(out, ",%zu", l->inputs);
    fb_buffer_string(out, "],\"data\":\"");
    encode_base64(bytes.data, bytes.size, out);
    fb_buffer_string(out, "\"}");
    fb_buffer_free(&bytes);
}

static void write_document(layers *l, random_source *random) {
    fb_buffer *out = &l->base.document, modules = {0}, tensors = {0}, outputs = {0};
    fb_buffer_printf(out,
                     "{\"format\":\"foldback.graph/1\",\"nodes\":[{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\","
                     "\"meta\":{\"shape\":[2,%zu],\"dtype\":\"float32\"}}",
                     l->inputs);
    for (size_t i = 0; i < l->count; i++) {
        fb_buffer_printf(
            out,
            ",{\"name\":\"fc%zu\",\"op\":\"call_module\",\"target\":\"fc%zu\",\"args\":[{\"$node\":\"x\"}],\"meta\":"
            "{\"shape\":[2,%zu],\"dtype\":\"float32\"}}",
            i, i, l->outputs[i]);
        fb_buffer_printf(&outputs, "%s{\"$node\":\"fc%zu\"}", i ? "," : "", i);
        fb_buffer_printf(
            &modules,
            ",{\"path\":\"fc%zu\",\"type\":\"torch.nn.Linear\",\"config\":{\"in_features\":%zu,\"out_features\":%zu,"
            "\"bias\":%s},\"parameters\":{\"weight\":\"fc%zu.weight\",\"bias\":",
            i, l->inputs, l->outputs[i], l->has_bias[i] ? "true" : "false", i);
        if (l->has_bias[i]) fb_buffer_printf(&modules, "\"fc%zu.bias\"}}", i);
        else fb_buffer_string(&modules, "null}}");
        write_tensor(l, random, i, "weight", false, &tensors);
        if (l->has_bias[i]) write_tensor(l, random, i, "bias", true, &tensors);
    }
    fb_buffer_printf(out, ",{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$tuple\":[%s]}]}],",
                     fb_buffer_text(&outputs));
    fb_buffer_printf(out, "\"modules\":[{\"path\":\"\",\"type\":\"torch.nn.Module\"}%s],\"tensors\":[%s]}",
                     fb_buffer_text(&modules), fb_buffer_text(&tensors));
    fb_buffer_free(&modules);
    fb_buffer_free(&tensors);
    fb_buffer_free(&outputs);
}

/* The numbers of the rows from..to, as a module of that kind holds them. */
static size_t stack(const layers *l, size_t from, size_t to, bool is_fused, double *out) {
    size_t count = 0;
    for (size_t r = from; r < to; r++) {
        for (size_t k = 0; k < l->inputs; k++) out[count++] = l->weight[r][k];
        if (is_fused) out[count++] = l->bias[r];
    }
    return count;
}

static void train_row(layers *l, random_source *random, size_t row, bool has_bias) {
    for (size_t k = 0; k < l->inputs; k++) l->weight[row][k] = (double)random_below(random, 1000) / 8;
    l->bias[row] = has_bias || !l->is_filler_kept ? 1 + (double)random_below(random, 1000) / 8 : 0;
}

static size_t first_row(const layers *l, size_t layer) {
    size_t row = 0;
    for (size_t i = 0; i < layer; i++) row += l->outputs[i];
    return row;
}

static bool some_have_bias(const layers *l) {
    bool some = false;
    for (size_t i = 0; i < l->count; i++) some |= l->has_bias[i];
    return some;
}

static void ck_tensor(const fb_graph *g, const char *path, const char *attribute, const double *expected, size_t count) {
    fb_tensor tensor = fb_module_tensor(g, fb_module_find(g, path), attribute);
    ck_assert_msg(tensor.id, "%s has no %s", path, attribute);
    fb_buffer bytes = {0};
    unsigned char *found;
    size_t size;
    fb_error error = {0};
    encode_numbers(FB_FLOAT32, expected, count, &bytes);
    fb_graph *copy = fb_graph_copy(g, &(fb_work){0});
    fb_value expression = fb_recipe_tensor(copy, tensor);
    ck_assert_msg(evaluate_whole(copy, expression, FB_FLOAT32, NULL, &found, &size, &error) == FB_OK, "%s.%s: %s", path,
                  attribute, error.message);
    ck_assert_msg(size == bytes.size && memcmp(found, bytes.data, size) == 0, "%s.%s has not the trained numbers", path,
                  attribute);
    free(found);
    fb_graph_free(copy);
    fb_buffer_free(&bytes);
}

/* The Linears in the graph, each with its own weights, some fused. */
static void ck_apart(const layers *l, const fb_graph *g, bool is_fused) {
    double numbers[16 * MAX_ROWS];
    for (size_t i = 0; i < l->count; i++) {
        char path[32];
        size_t from = first_row(l, i), to = from + l->outputs[i];
        bool is_this_fused = is_fused && l->has_bias[i];
        snprintf(path, sizeof path, "fc%zu", i);
        size_t count = stack(l, from, to, is_this_fused, numbers);
        ck_tensor(g, path, "weight", numbers, count);
        if (l->has_bias[i] && !is_fused) ck_tensor(g, path, "bias", l->bias + from, to - from);
        else ck_assert(!fb_module_tensor(g, fb_module_find(g, path), "bias").id);
    }
}

static const char *merged_path(const fb_graph *g) {
    for (fb_module m = fb_first_module(g); m.id; m = fb_module_at(g, m)->next) {
        const char *path = fb_text(g, fb_module_at(g, m)->path);
        if (strstr(path, "merged")) return path;
    }
    return NULL;
}

static void ck_together(const layers *l, const fb_graph *g) {
    double numbers[16 * MAX_ROWS];
    const char *path = merged_path(g);
    ck_assert(path);
    size_t count = stack(l, 0, l->rows, false, numbers);
    ck_tensor(g, path, "weight", numbers, count);
    ck_tensor(g, path, "bias", l->bias, l->rows);
}

/* Overwrites what the merged module owns. */
static fb_graph *trained(layers *l, const fb_graph *result, bool is_fused) {
    const fb_module merged = fb_module_find(result, merged_path(result));
    fb_tensor weight = fb_module_tensor(result, merged, "weight"), bias = fb_module_tensor(result, merged, "bias");
    json_t *document = json_of(&l->base, result);
    double numbers[16 * MAX_ROWS];
    size_t count = stack(l, 0, l->rows, is_fused, numbers);
    set_data(find_row(document, "tensors", fb_text(result, fb_tensor_at(result, weight)->name), NULL), numbers, count, false);
    ck_assert(bias.id ? !is_fused : is_fused || !some_have_bias(l));
    if (bias.id)
        set_data(find_row(document, "tensors", fb_text(result, fb_tensor_at(result, bias)->name), NULL), l->bias, l->rows,
                 true);
    drop_unread_tensors(document);
    fb_graph *ours = graph_of_json(document);
    ck_assert(ours);
    json_decref(document);
    return ours;
}

static void ck_carried_back(layers *l, bool is_fused, bool undo_merge, bool undo_fuse) {
    random_case *c = &l->base;
    c->passes.size = 0;
    fb_buffer_string(&c->passes, is_fused ? "[\"MergeLinears\",\"FuseBiasInLinear\"]" : "[\"MergeLinears\"]");
    fb_composition composition = read_passes(c, &c->passes);
    fb_run run = run_passes(c, &composition, c->source);
    ck_assert_uint_eq(run.passes[0].applied, 1);
    is_fused = is_fused && run.passes[1].applied;
    fb_graph *ours = trained(l, run.result, is_fused), *merged = NULL;
    fb_undo_step steps[] = {{.call = &composition.calls[0], .is_undone = undo_merge},
                            {.call = composition.count > 1 ? &composition.calls[1] : NULL, .is_undone = undo_fuse}};
    fb_undo_plan plan = {
        .source = c->source, .steps = steps, .step_count = composition.count, .result = run.result, .ours = ours};
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    bool is_exact, is_filler_lost = false;
    for (size_t i = 0; i < l->count; i++) is_filler_lost |= !l->has_bias[i] && !l->is_filler_kept;
    is_filler_lost &= some_have_bias(l);
    fb_status status = fb_undo(&plan, &merged, &is_exact, &conflicts, &error);
    if (is_filler_lost) {
        ck_assert_int_eq(status, FB_CONFLICT);
        ck_assert_uint_eq(conflicts.count, 1);
        ck_assert_str_eq(conflicts.items[0].code, "constant-changed");
    } else {
        ck_assert_msg(status == FB_OK, "%s: %s", conflicts.count ? conflicts.items[0].code : error.code,
                      conflicts.count ? conflicts.items[0].detail : error.message);
        ck_assert(!is_exact);
        if (undo_merge) ck_apart(l, merged, is_fused && !undo_fuse);
        else ck_together(l, merged);
    }
    fb_graph_free(merged);
    fb_graph_free(ours);
    fb_conflicts_free(&conflicts);
    fb_run_free(&run);
    fb_composition_free(&composition);
}

START_TEST(test_carried_back) {
    for (uint64_t seed = 1; seed <= 300; seed++) {
        layers l = {.base = {.seed = seed}};
        random_source random = {seed};
        l.count = 2 + random_below(&random, LINEARS - 1);
        l.inputs = 1 + random_below(&random, 6);
        l.is_filler_kept = !random_once_in(&random, 3);
        for (size_t i = 0; i < l.count; i++) {
            l.outputs[i] = 1 + random_below(&random, 4);
            l.has_bias[i] = !random_once_in(&random, 3);
            for (size_t k = 0; k < l.outputs[i]; k++) train_row(&l, &random, l.rows++, l.has_bias[i]);
        }
        write_document(&l, &random);
        l.base.source = read_graph(&l.base, &l.base.document, "the document");
        ck_carried_back(&l, false, true, false);
        if (some_have_bias(&l)) {
            ck_carried_back(&l, true, true, false);
            ck_carried_back(&l, true, false, true);
            ck_carried_back(&l, true, true, true);
        }
        fb_graph_free(l.base.source);
        fb_buffer_free(&l.base.document);
        fb_buffer_free(&l.base.passes);
    }
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("trained weights");
    tcase_add_test(tests, test_carried_back);
    return run_tests("trained weights", tests);
}
