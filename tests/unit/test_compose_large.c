/* Large graphs: passes take time in proportion, whatever the shape of the graph, and names stay short. The ratios are printed,
 * not asserted. */
#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/compose/run.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

typedef void (*row_writer)(int index, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs);

static void linear_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    fb_buffer_printf(nodes, ",{\"name\":\"fc%d\",\"op\":\"call_module\",\"target\":\"fc%d\",\"args\":[{\"$node\":\"x\"}]}", i,
                     i);
    fb_buffer_printf(modules,
                     ",{\"path\":\"fc%d\",\"type\":\"torch.nn.Linear\",\"config\":{\"in_features\":4,\"out_features\":1,"
                     "\"bias\":true},\"parameters\":{\"weight\":\"fc%d.weight\",\"bias\":\"fc%d.bias\"}}",
                     i, i, i);
    fb_buffer_printf(tensors, "%s{\"name\":\"fc%d.weight\",\"dtype\":\"float32\",\"shape\":[1,4]},", i ? "," : "", i);
    fb_buffer_printf(tensors, "{\"name\":\"fc%d.bias\",\"dtype\":\"float32\",\"shape\":[1]}", i);
    fb_buffer_printf(outputs, "%s{\"$node\":\"fc%d\"}", i ? "," : "", i);
}

/* One Linear, called again and again. */
static void refused_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    fb_buffer_printf(nodes, ",{\"name\":\"fc%d\",\"op\":\"call_module\",\"target\":\"fc\",\"args\":[{\"$node\":\"x\"}]}", i);
    if (i == 0) {
        fb_buffer_string(modules,
                         ",{\"path\":\"fc\",\"type\":\"torch.nn.Linear\",\"config\":{\"in_features\":4,"
                         "\"out_features\":1,\"bias\":false},\"parameters\":{\"weight\":\"fc.weight\",\"bias\":null}}");
        fb_buffer_string(tensors, "{\"name\":\"fc.weight\",\"dtype\":\"float32\",\"shape\":[1,4]}");
    }
    fb_buffer_printf(outputs, "%s{\"$node\":\"fc%d\"}", i ? "," : "", i);
}

static void conv_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    static const char *const vectors[] = {"weight", "bias", "running_mean", "running_var"};
    fb_buffer_printf(nodes, ",{\"name\":\"c%d\",\"op\":\"call_module\",\"target\":\"c%d\",\"args\":[{\"$node\":\"x\"}]}", i, i);
    fb_buffer_printf(nodes, ",{\"name\":\"b%d\",\"op\":\"call_module\",\"target\":\"b%d\",\"args\":[{\"$node\":\"c%d\"}]}", i,
                     i, i);
    fb_buffer_printf(
        modules,
        ",{\"path\":\"c%d\",\"type\":\"torch.nn.Conv2d\",\"config\":{\"in_channels\":1,\"out_channels\":1,"
        "\"kernel_size\":{\"$tuple\":[1,1]},\"bias\":false},\"parameters\":{\"weight\":\"c%d.weight\",\"bias\":null}}",
        i, i);
    fb_buffer_printf(modules,
                     ",{\"path\":\"b%d\",\"type\":\"torch.nn.BatchNorm2d\",\"config\":{\"num_features\":1},\"parameters\":"
                     "{\"weight\":\"b%d.weight\",\"bias\":\"b%d.bias\"},\"buffers\":{\"running_mean\":\"b%d.running_mean\","
                     "\"running_var\":\"b%d.running_var\",\"num_batches_tracked\":null}}",
                     i, i, i, i, i);
    fb_buffer_printf(tensors, "%s{\"name\":\"c%d.weight\",\"dtype\":\"float32\",\"shape\":[1,1,1,1]}", i ? "," : "", i);
    for (size_t k = 0; k < 4; k++)
        fb_buffer_printf(tensors, ",{\"name\":\"b%d.%s\",\"dtype\":\"float32\",\"shape\":[1]}", i, vectors[k]);
    fb_buffer_printf(outputs, "%s{\"$node\":\"b%d\"}", i ? "," : "", i);
}

/* A BatchNorm of its own after every call of one convolution. */
static void shared_conv_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    fb_buffer all = {0}, none = {0};
    conv_row(i, &none, &all, tensors, outputs);
    fb_buffer_printf(nodes, ",{\"name\":\"c%d\",\"op\":\"call_module\",\"target\":\"c0\",\"args\":[{\"$node\":\"x\"}]}", i);
    fb_buffer_printf(nodes, ",{\"name\":\"b%d\",\"op\":\"call_module\",\"target\":\"b%d\",\"args\":[{\"$node\":\"c%d\"}]}", i,
                     i, i);
    fb_buffer_append(modules, all.data, all.size);
    fb_buffer_free(&all);
    fb_buffer_free(&none);
}

/* A BatchNorm of its own, and all read one call. */
static void shared_call_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    fb_buffer all = {0}, none = {0};
    conv_row(i, &none, &all, tensors, outputs);
    if (i == 0)
        fb_buffer_string(nodes, ",{\"name\":\"c\",\"op\":\"call_module\",\"target\":\"c0\",\"args\":[{\"$node\":\"x\"}]}");
    fb_buffer_printf(nodes, ",{\"name\":\"b%d\",\"op\":\"call_module\",\"target\":\"b%d\",\"args\":[{\"$node\":\"c\"}]}", i, i);
    fb_buffer_append(modules, all.data, all.size);
    fb_buffer_free(&all);
    fb_buffer_free(&none);
}

static void division_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    (void)modules;
    (void)tensors;
    fb_buffer_printf(
        nodes, ",{\"name\":\"d%d\",\"op\":\"call_function\",\"target\":\"operator.truediv\",\"args\":[{\"$node\":\"x\"},%d]}",
        i, i % 2 ? 8 : 0);
    fb_buffer_printf(outputs, "%s{\"$node\":\"d%d\"}", i ? "," : "", i);
}

/* One pair, called again and again. */
static void shared_pair_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    fb_buffer none = {0};
    if (i == 0) conv_row(0, &none, modules, tensors, &none);
    const char *conv = ",{\"name\":\"c%d\",\"op\":\"call_module\",\"target\":\"c0\",\"args\":[{\"$node\":\"x\"}]}";
    const char *norm = ",{\"name\":\"b%d\",\"op\":\"call_module\",\"target\":\"b0\",\"args\":[{\"$node\":\"c%d\"}]}";
    fb_buffer_printf(nodes, conv, i);
    fb_buffer_printf(nodes, norm, i, i);
    fb_buffer_printf(outputs, "%s{\"$node\":\"b%d\"}", i ? "," : "", i);
    fb_buffer_free(&none);
}

/* Linears on one input, whose results stand in one list, and as many readers of the list. */
static void listed_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    static fb_buffer listed; /* grows until the last row, which writes the list */
    if (i == 0) fb_buffer_free(&listed);
    linear_row(i, nodes, modules, tensors, &listed);
    if ((i + 1) % 10000 == 0) {
        const char *list = fb_buffer_text(&listed);
        fb_buffer_printf(nodes, ",{\"name\":\"list%d\",\"op\":\"call_function\",\"target\":\"builtins.tuple\",\"args\":[[", i);
        fb_buffer_append(nodes, list, listed.size);
        fb_buffer_string(nodes, "]]}");
        for (int k = 0; k <= i; k++) {
            const char *row =
                ",{\"name\":\"r%d_%d\",\"op\":\"call_function\",\"target\":\"torch.cat\",\"args\":[{\"$node\":\"list%d\"}]}";
            fb_buffer_printf(nodes, row, i, k, i);
        }
        fb_buffer_printf(outputs, "%s{\"$node\":\"list%d\"}", outputs->size ? "," : "", i);
    }
}

/* Appends a call that reads the row before, or x. */
static void add_link(int i, const char *call, const char *more, fb_buffer *nodes) {
    fb_buffer_printf(nodes, ",{\"name\":\"n%d\",%s,\"args\":[{\"$node\":\"", i, call);
    if (i > 0) fb_buffer_printf(nodes, "n%d", i - 1);
    else fb_buffer_string(nodes, "x");
    fb_buffer_printf(nodes, "\"}%s],\"meta\":{\"dtype\":\"float32\"}}", more);
}

static void identity_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    (void)tensors;
    (void)outputs;
    if (i == 0) fb_buffer_string(modules, ",{\"path\":\"id\",\"type\":\"torch.nn.Identity\"}");
    add_link(i, "\"op\":\"call_module\",\"target\":\"id\"", "", nodes);
}

/* Copies of copies; some are read, and the whole of each such list is a result. */
static void copy_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    (void)modules;
    (void)tensors;
    add_link(i, "\"op\":\"call_function\",\"target\":\"operator.mul\"", ",1", nodes);
    fb_buffer_printf(
        nodes, ",{\"name\":\"t%d\",\"op\":\"call_function\",\"target\":\"torch.tanh\",\"args\":[{\"$node\":\"n%d\"}]}", i, i);
    fb_buffer_printf(outputs, "%s{\"$node\":\"t%d\"}", i ? "," : "", i);
}

/* All the same, and read by a node of its own each. */
static void equal_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    (void)modules;
    (void)tensors;
    fb_buffer_printf(nodes,
                     ",{\"name\":\"e%d\",\"op\":\"call_function\",\"target\":\"torch.exp\",\"args\":[{\"$node\":\"x\"}]}", i);
    fb_buffer_printf(nodes,
                     ",{\"name\":\"a%d\",\"op\":\"call_function\",\"target\":\"torch.add\",\"args\":[{\"$node\":\"e%d\"},%d]}",
                     i, i, i);
    fb_buffer_printf(outputs, "%s{\"$node\":\"a%d\"}", i ? "," : "", i);
}

/* Each writes into what the one before gave. */
static void in_place_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    (void)modules;
    (void)tensors;
    if (i == 0) {
        fb_buffer_string(nodes, ",{\"name\":\"r0\",\"op\":\"call_function\",\"target\":\"torch.exp\",\"args\":[{\"$node\":"
                                "\"x\"}],\"meta\":{\"dtype\":\"float32\"}}");
    }
    fb_buffer_printf(nodes,
                     ",{\"name\":\"r%d\",\"op\":\"call_method\",\"target\":\"relu_\",\"args\":[{\"$node\":\"r%d\"}],"
                     "\"meta\":{\"dtype\":\"float32\"}}",
                     i + 1, i);
    outputs->size = 0;
    fb_buffer_printf(outputs, "{\"$node\":\"r%d\"}", i + 1);
}

/* All the same, and all of them results. */
static void equal_result_row(int i, fb_buffer *nodes, fb_buffer *modules, fb_buffer *tensors, fb_buffer *outputs) {
    (void)modules;
    (void)tensors;
    fb_buffer_printf(nodes,
                     ",{\"name\":\"e%d\",\"op\":\"call_function\",\"target\":\"torch.exp\",\"args\":[{\"$node\":\"x\"}]}", i);
    fb_buffer_printf(outputs, "%s{\"$node\":\"e%d\"}", i ? "," : "", i);
}

static fb_graph *large_graph(int count, row_writer write_row) {
    fb_buffer nodes = {0}, modules = {0}, tensors = {0}, outputs = {0};
    fb_buffer_string(&nodes, "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\",\"meta\":{\"dtype\":\"float32\"}}");
    fb_buffer_string(&modules, "{\"path\":\"\",\"type\":\"torch.nn.Module\"}");
    for (int i = 0; i < count; i++) write_row(i, &nodes, &modules, &tensors, &outputs);
    fb_buffer_string(&nodes, ",{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$tuple\":[");
    fb_buffer_append(&nodes, outputs.data, outputs.size);
    fb_buffer_string(&nodes, "]}]}");
    fb_buffer_char(&tensors, ' ');
    char *text = document_of(fb_buffer_text(&nodes), fb_buffer_text(&modules), fb_buffer_text(&tensors));
    fb_graph *graph = graph_of(text, strlen(text));
    free(text);
    fb_buffer_free(&nodes);
    fb_buffer_free(&modules);
    fb_buffer_free(&tensors);
    fb_buffer_free(&outputs);
    return graph;
}

static double processor_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Runs the pass (its name, or an object with its parameters) on graphs of 10,000 and 20,000 rows and prints the ratio of the
 * times (2 = linear); gives the larger run. */
static fb_run run_large(const char *pass, const char *what, row_writer write_row) {
    double seconds[2];
    fb_run run = {0};
    char list[200];
    snprintf(list, sizeof list, *pass == '{' ? "[%s]" : "[\"%s\"]", pass);
    fb_composition composition;
    fb_error error = {0};
    json_t *json = json_loads(list, 0, NULL);
    ck_assert_int_eq(fb_composition_read(json, "", NULL, &composition, &error), FB_OK);
    json_decref(json);
    for (int i = 0; i < 2; i++) {
        if (i) fb_run_free(&run);
        fb_graph *graph = large_graph(10000 * (i + 1), write_row);
        double start = processor_seconds();
        ck_assert_msg(fb_composition_run(&composition, graph, FB_LINT_END, NULL, &run, &error) == FB_OK, "%s", error.message);
        seconds[i] = processor_seconds() - start;
        fb_graph_free(graph);
    }
    printf("%s, 20,000 %s: %.3f s, %.2f times 10,000\n", pass, what, seconds[1], seconds[1] / seconds[0]);
    fflush(stdout);
    fb_composition_free(&composition);
    return run;
}

START_TEST(test_many_linears_on_one_input) {
    fb_run run = run_large("MergeLinears", "Linears on one input", linear_row);
    ck_assert_uint_eq(run.passes[0].applied, 1);
    fb_node merged = fb_node_find(run.result, FB_MAIN_PROGRAM, "fc0_19998_more_fc19999_merged");
    ck_assert(merged.id != 0);
    ck_assert_str_eq(fb_node_target(run.result, merged), "fc0-19998-more-fc19999-merged");
    ck_assert_uint_eq(fb_node_at(run.result, merged)->user_count, 20000);
    fb_run_free(&run);
}
END_TEST

START_TEST(test_many_refusals) {
    fb_run run = run_large("MergeLinears", "refusals", refused_row);
    ck_assert_uint_eq(run.passes[0].applied, 0);
    ck_assert_uint_eq(run.passes[0].refused_count, 20000);
    fb_run_free(&run);
}
END_TEST

START_TEST(test_many_biases_on_one_input) {
    fb_run run = run_large("FuseBiasInLinear", "Linears on one input", linear_row);
    ck_assert_uint_eq(run.passes[0].applied, 20000);
    fb_run_free(&run);
}
END_TEST

START_TEST(test_many_folds_into_one_output) {
    fb_run run = run_large("FuseBatchNorm2dInConv2d", "convolutions before one output", conv_row);
    ck_assert_uint_eq(run.passes[0].applied, 20000);
    fb_run_free(&run);
}
END_TEST

START_TEST(test_many_norms_after_one_conv) {
    fb_run run = run_large("FuseBatchNorm2dInConv2d", "BatchNorms after calls of one convolution", shared_conv_row);
    ck_assert_uint_eq(run.passes[0].applied, 0);
    ck_assert_uint_eq(run.passes[0].refused_count, 20000);
    ck_assert_str_eq(run.passes[0].refused->reason, "shared-module");
    ck_assert_uint_le(run.passes[0].refused->count, 20);
    fb_run_free(&run);
}
END_TEST

START_TEST(test_many_norms_after_one_call) {
    fb_run run = run_large("FuseBatchNorm2dInConv2d", "BatchNorms on one value", shared_call_row);
    ck_assert_uint_eq(run.passes[0].applied, 0);
    ck_assert_uint_eq(run.passes[0].refused_count, 20000);
    ck_assert_str_eq(run.passes[0].refused->reason, "shared-output");
    fb_run_free(&run);
}
END_TEST

START_TEST(test_many_calls_of_one_pair) {
    fb_run run = run_large("FuseBatchNorm2dInConv2d", "calls of one pair", shared_pair_row);
    ck_assert_uint_eq(run.passes[0].applied, 1);
    ck_assert_uint_eq(run.passes[0].node_count, 20000);
    ck_assert_uint_eq(fb_node_count(run.result), 20002);
    fb_run_free(&run);
}
END_TEST

START_TEST(test_many_linears_in_one_list) {
    fb_run run = run_large("MergeLinears", "Linears in one list that as many read", listed_row);
    ck_assert_uint_eq(run.passes[0].applied, 0);
    ck_assert_uint_eq(run.passes[0].refused_count, 20000);
    ck_assert_str_eq(run.passes[0].refused->reason, "needs-contiguous");
    fb_run_free(&run);
}
END_TEST

START_TEST(test_many_divisions_of_one_value) {
    fb_run run = run_large("ChangeTrueDivToMulByInverse", "divisions of one value", division_row);
    ck_assert_uint_eq(run.passes[0].applied, 10000);
    ck_assert_uint_eq(run.passes[0].refused_count, 10000);
    fb_run_free(&run);
}
END_TEST

START_TEST(test_a_chain_of_identities) {
    fb_run run = run_large("RemoveNoOps", "Identities in a row", identity_row);
    ck_assert_uint_eq(run.passes[0].applied, 20000);
    ck_assert_uint_eq(fb_node_count(run.result), 2);
    ck_assert_uint_eq(fb_module_count(run.result), 1);
    fb_run_free(&run);
}
END_TEST

START_TEST(test_a_chain_of_copies) {
    fb_run run = run_large("RemoveNoOps", "copies in a row", copy_row);
    ck_assert_uint_eq(run.passes[0].applied, 20000);
    fb_run_free(&run);
}
END_TEST

START_TEST(test_a_dead_chain) {
    fb_run run = run_large("EliminateDeadCode", "dead nodes in a row", identity_row);
    ck_assert_uint_eq(run.passes[0].applied, 20000);
    fb_run_free(&run);
}
END_TEST

START_TEST(test_many_equal_nodes) {
    fb_run run = run_large("EliminateCommonSubexpressions", "equal nodes", equal_row);
    ck_assert_uint_eq(run.passes[0].applied, 19999);
    fb_run_free(&run);
    run = run_large("EliminateCommonSubexpressions", "equal results", equal_result_row);
    ck_assert_uint_eq(run.passes[0].applied, 0);
    ck_assert_uint_eq(run.passes[0].refused_count, 19999);
    fb_run_free(&run);
    run = run_large("cleanup", "equal nodes", equal_row);
    ck_assert_uint_eq(run.count, 3);
    fb_run_free(&run);
}
END_TEST

START_TEST(test_a_chain_of_activations_in_place) {
    fb_run run = run_large("{\"name\":\"ReplaceActivation\",\"params\":{\"from\":\"relu\",\"to\":\"gelu\"}}",
                           "activations in place, in a row", in_place_row);
    ck_assert_uint_eq(run.passes[0].applied, 20000);
    fb_run_free(&run);
}
END_TEST

START_TEST(test_many_conversions) {
    static const char pass[] =
        "{\"name\":\"ConvertPrecision\",\"params\":{\"cast_outputs\":false,\"keep\":[\"relu\"],\"to\":\"float16\"}}";
    fb_run run = run_large(pass, "Linears on one input", linear_row);
    ck_assert_uint_eq(run.passes[0].node_count, 20001);
    fb_run_free(&run);
    run = run_large(pass, "calls of one Linear", refused_row);
    ck_assert_uint_eq(run.passes[0].node_count, 20001);
    fb_run_free(&run);
    run = run_large(pass, "nodes that stay, with the values that they write", in_place_row);
    ck_assert_uint_eq(run.passes[0].applied, 0);
    fb_run_free(&run);
}
END_TEST

int main(void) {
    TCase *large = tcase_create("large");
    tcase_add_test(large, test_many_linears_on_one_input);
    tcase_add_test(large, test_many_refusals);
    tcase_add_test(large, test_many_biases_on_one_input);
    tcase_add_test(large, test_many_folds_into_one_output);
    tcase_add_test(large, test_many_norms_after_one_conv);
    tcase_add_test(large, test_many_norms_after_one_call);
    tcase_add_test(large, test_many_calls_of_one_pair);
    tcase_add_test(large, test_many_linears_in_one_list);
    tcase_add_test(large, test_many_divisions_of_one_value);
    tcase_add_test(large, test_a_chain_of_identities);
    tcase_add_test(large, test_a_chain_of_copies);
    tcase_add_test(large, test_a_dead_chain);
    tcase_add_test(large, test_many_equal_nodes);
    tcase_add_test(large, test_a_chain_of_activations_in_place);
    tcase_add_test(large, test_many_conversions);
    tcase_set_timeout(large, 600);
    return run_tests("large", large);
}
