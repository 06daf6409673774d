/* Validation of rewrites: what passes do is passed, and each of these ways to do it wrong is caught. */
#include "tests/unit/checks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/evaluator/internal.h"
#include "core/validation/validation.h"
#include "core/weights/dtype.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

/* What a pass makes of a fixture, as text. */
static char *result_of(const char *fixture, const char *pass, fb_graph **source) {
    size_t size;
    char list[80], *text = read_fixture(fixture, "graph.json", &size);
    *source = graph_of(text, size);
    free(text);
    snprintf(list, sizeof list, "[\"%s\"]", pass);
    json_t *json = json_loads(list, 0, NULL);
    fb_composition composition;
    fb_error error = {0};
    fb_run run;
    ck_assert_int_eq(fb_composition_read(json, "", NULL, &composition, &error), FB_OK);
    ck_assert_int_eq(fb_composition_run(&composition, *source, FB_LINT_EACH, NULL, &run, &error), FB_OK);
    fb_buffer out = {0};
    fb_document_write(run.result, &out);
    char *result = fb_buffer_take(&out, &size);
    ck_assert_ptr_nonnull(result);
    fb_run_free(&run);
    fb_composition_free(&composition);
    json_decref(json);
    return result;
}

static fb_validation validate(const fb_graph *before, const fb_graph *after, bool only_moves, uint64_t seed) {
    fb_eval_options options = {.seed = seed};
    fb_validation found;
    fb_error error = {0};
    fb_status status = fb_validate_rewrite(before, after, &options, only_moves, NULL, &found, &error);
    ck_assert_msg(status == FB_OK, "%s: %s", error.code, error.message);
    return found;
}

static const char *const fixtures[] = {"toy", "bert-tiny", "gpt2-tiny", "resnet-tiny", "mobilenet"};
static const char *const passes[] = {"MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse",
                                     "FuseBatchNorm2dInConv2d", "FuseBatchNorm1dInLinear"};

START_TEST(what_passes_do_is_passed) {
    size_t regions = 0;
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        fb_graph *before;
        char *text = result_of(fixtures[_i], passes[i], &before);
        fb_graph *after = graph_of(text, strlen(text));
        for (uint64_t seed = 0; seed < 3; seed++) {
            fb_validation found = validate(before, after, i < 2, seed);
            ck_assert_msg(found.passes && found.is_complete, "%s: %s with seed %d", fixtures[_i], passes[i], (int)seed);
            ck_assert(isfinite(found.worst.absolute) && isfinite(found.before_exact.ulp) && isfinite(found.after_exact.ulp));
            regions += found.count;
            fb_validation_free(&found);
        }
        fb_graph_free(before);
        fb_graph_free(after);
        free(text);
    }
    ck_assert(regions > 0 || strcmp(fixtures[_i], "gpt2-tiny") == 0);
}
END_TEST

/* ---- done wrong ---------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *what, *fixture, *pass, *right, *wrong; /* the first `right` in the result becomes `wrong` */
} mistakes[] = {
    {"weights in another order", "toy", "MergeLinears", "[\"q.weight\",\"k.weight\",", "[\"k.weight\",\"q.weight\","},
    {"biases in another order", "toy", "MergeLinears", "[\"q.bias\",\"k.bias\",", "[\"k.bias\",\"q.bias\","},
    {"a missing bias filled with 1", "toy", "MergeLinears", "\"shape\":[8],\"value\":{\"$float\":\"0.0\"}",
     "\"shape\":[8],\"value\":{\"$float\":\"1.0\"}"},
    {"a slice one too low", "toy", "MergeLinears", "[16,32,null]", "[15,31,null]"},
    {"the slice of another Linear", "toy", "MergeLinears", "[16,32,null]", "[0,16,null]"},
    {"a weight transposed", "toy", "MergeLinears", "[\"q.weight\",",
     "[{\"op\":\"permute\",\"args\":[\"q.weight\"],\"dims\":[1,0]},"},
    {"another input", "toy", "MergeLinears", "\"target\":\"q-k-v-merged\",\"args\":[{\"$node\":\"id_1\"}]",
     "\"target\":\"q-k-v-merged\",\"args\":[{\"$node\":\"l1\"}]"},
    {"half of the merged bias", "toy", "MergeLinears", "[\"q.bias\",",
     "[{\"op\":\"concat\",\"args\":[{\"op\":\"slice\",\"args\":[\"q.bias\"],"
     "\"axis\":0,\"start\":8,\"stop\":16},{\"op\":\"slice\",\"args\":[\"q.bias\"],\"axis\":0,\"start\":0,\"stop\":8}],\"axis\":"
     "0},"},
    {"zeros for the column of ones", "toy", "FuseBiasInLinear", "\"target\":\"torch.ones\"", "\"target\":\"torch.zeros\""},
    {"the column on the other side", "toy", "FuseBiasInLinear", "[[{\"$node\":\"mean\"},{\"$node\":\"ones\"}]]",
     "[[{\"$node\":\"ones\"},{\"$node\":\"mean\"}]]"},
    {"the bias off by one", "toy", "FuseBiasInLinear", "{\"op\":\"reshape\",\"args\":[\"q.bias\"],\"shape\":[16,1]}",
     "{\"op\":\"reshape\",\"args\":[{\"op\":\"concat\",\"args\":[{\"op\":\"slice\",\"args\":[\"q.bias\"],\"axis\":0,\"start\":"
     "1,\"stop\":16},"
     "{\"op\":\"slice\",\"args\":[\"q.bias\"],\"axis\":0,\"start\":0,\"stop\":1}],\"axis\":0}],\"shape\":[16,1]}"},
    {"the bias negated", "toy", "FuseBiasInLinear", "\"args\":[\"q.bias\"]",
     "\"args\":[{\"op\":\"neg\",\"args\":[\"q.bias\"]}]"},
    {"a factor a little too large", "toy", "ChangeTrueDivToMulByInverse", "0.25", "0.2501"},
    {"a factor in place of its inverse", "toy", "ChangeTrueDivToMulByInverse", "0.25", "{\"$float\":\"4.0\"}"},
    {"another epsilon", "toy", "FuseBatchNorm2dInConv2d", "\"value\":1e-05", "\"value\":0.001"},
    {"sqrt for rsqrt", "toy", "FuseBatchNorm2dInConv2d", "\"op\":\"rsqrt\"", "\"op\":\"sqrt\""},
    {"the scale on another axis", "toy", "FuseBatchNorm2dInConv2d",
     "{\"op\":\"mul\",\"args\":[\"c2.weight\",{\"op\":\"reshape\",\"args\":[{\"op\":\"mul\",\"args\":[\"b3.weight\","
     "{\"op\":\"rsqrt\",\"args\":[{\"op\":\"add\",\"args\":[\"b3.running_var\",{\"op\":\"full\",\"args\":[],\"shape\":[],"
     "\"value\":1e-05}]}]}]}],\"shape\":[8,1,1,1]}]}",
     "{\"op\":\"mul\",\"args\":[\"c2.weight\",{\"op\":\"reshape\",\"args\":[{\"op\":\"mul\",\"args\":[\"b3.weight\","
     "{\"op\":\"rsqrt\",\"args\":[{\"op\":\"add\",\"args\":[\"b3.running_var\",{\"op\":\"full\",\"args\":[],\"shape\":[],"
     "\"value\":1e-05}]}]}]}],\"shape\":[1,8,1,1]}]}"},
    {"the mean added", "toy", "FuseBatchNorm2dInConv2d", "\"op\":\"sub\",\"args\":[\"c3.bias\",",
     "\"op\":\"add\",\"args\":[\"c3.bias\","},
    {"half the mean", "toy", "FuseBatchNorm2dInConv2d", "[\"c3.bias\",\"b3.running_mean\"]",
     "[\"c3.bias\",{\"op\":\"mul\",\"args\":[\"b3.running_mean\",{\"op\":\"full\",\"args\":[],\"shape\":[],\"value\":0.5}]}]"},
    {"a shift too much", "toy", "FuseBatchNorm2dInConv2d", "\"op\":\"sub\",\"args\":[\"b1.bias\",",
     "\"op\":\"sub\",\"args\":[{\"op\":\"add\",\"args\":[\"b1.bias\",{\"op\":\"full\",\"args\":[],\"shape\":[],\"value\":{\"$"
     "float\":\"1.0\"}}]},"},
    {"a tied weight overwritten", "toy", "FuseBatchNorm2dInConv2d", "\"parameters\":{\"weight\":\"c2.weight\"",
     "\"parameters\":{\"weight\":\"c3.weight\""},
    {"no scale", "toy", "FuseBatchNorm1dInLinear", "\"args\":[\"bn.weight\",{\"op\":\"rsqrt\"",
     "\"args\":[\"bn.bias\",{\"op\":\"rsqrt\""},
    {"another reader", "toy", "FuseBatchNorm1dInLinear", "\"target\":\"drop\",\"args\":[{\"$node\":\"l1\"}]",
     "\"target\":\"drop\",\"args\":[{\"$node\":\"mean\"}]"},
    {"queries and values exchanged", "bert-tiny", "MergeLinears",
     "[\"encoder.layer.0.attention.self.query.weight\",\"encoder.layer.0.attention.self.key.weight\"",
     "[\"encoder.layer.0.attention.self.key.weight\",\"encoder.layer.0.attention.self.query.weight\""},
};

/* A mistake of the second layer alone is found as well as one of the first, and the right regions are told. */
START_TEST(mistakes_are_caught) {
    fb_graph *before;
    char *text = result_of(mistakes[_i].fixture, mistakes[_i].pass, &before);
    const char *at = strstr(text, mistakes[_i].right);
    ck_assert_msg(at != NULL, "%s: the result has no %s", mistakes[_i].what, mistakes[_i].right);
    size_t head = (size_t)(at - text), size = strlen(text) - strlen(mistakes[_i].right) + strlen(mistakes[_i].wrong);
    char *wrong = malloc(size + 1);
    ck_assert_ptr_nonnull(wrong);
    memcpy(wrong, text, head);
    strcpy(wrong + head, mistakes[_i].wrong);
    strcat(wrong, at + strlen(mistakes[_i].right));
    fb_graph *after = graph_of(wrong, size);
    for (uint64_t seed = 0; seed < 5; seed++) {
        fb_validation found = validate(before, after, _i < 12, seed);
        ck_assert_msg(!found.passes, "%s is not caught with seed %d: %zu regions, worst %g", mistakes[_i].what, (int)seed,
                      found.count, found.worst.absolute);
        size_t named = 0;
        for (size_t i = 0; i < found.count; i++) named += found.regions[i].passes ? 0 : found.regions[i].node_count;
        ck_assert_msg(named > 0 || strcmp(mistakes[_i].what, "another reader") == 0, "%s: no node is named", mistakes[_i].what);
        fb_validation_free(&found);
    }
    fb_graph_free(before);
    fb_graph_free(after);
    free(text);
    free(wrong);
}
END_TEST

/* What cannot be evaluated is told, and fails nothing. */
START_TEST(unknown_operators_are_told) {
    char *text =
        document_of("{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\",\"meta\":{\"shape\":[2,3],\"dtype\":\"float32\"}},"
                    "{\"name\":\"y\",\"op\":\"call_function\",\"target\":\"my.function\",\"args\":[{\"$node\":\"x\"}]},"
                    "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"y\"}]}",
                    NULL, "");
    fb_graph *before = graph_of(text, strlen(text));
    char *target = strstr(text, "my.function");
    memcpy(target, "my.funktion", 11);
    fb_graph *after = graph_of(text, strlen(text));
    fb_validation found = validate(before, after, false, 1);
    ck_assert(found.passes && !found.is_complete);
    ck_assert_uint_eq(found.count, 1);
    ck_assert_str_eq(found.regions[0].unsupported, "unsupported-operator");
    ck_assert_msg(strstr(found.regions[0].detail, "y (my.function)") != NULL, "%s", found.regions[0].detail);
    ck_assert_uint_eq(found.regions[0].node_count, 1);
    ck_assert_str_eq(found.regions[0].nodes[0], "y");
    fb_validation_free(&found);
    fb_graph_free(before);
    fb_graph_free(after);
    free(text);
}
END_TEST

#define FLOATS ",\"meta\":{\"shape\":[2,3],\"dtype\":\"float32\"}}"
#define NODE(name, op, target, args)                                                                                           \
    "{\"name\":\"" name "\",\"op\":\"" op "\",\"target\":\"" target "\",\"args\":[" args "]" FLOATS ","
#define CALL(name, target, args) NODE(name, "call_function", target, args)
#define REF(name) "{\"$node\":\"" name "\"}"
#define X NODE("x", "placeholder", "x", "")
#define INNER X CALL("h", "torch.relu", REF("x")) CALL("a", "torch.neg", REF("h"))
#define OUTPUT(args) "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[[" args "]]}"
#define KEEPS_A CALL("c", "torch.tanh", REF("b")) CALL("d", "torch.exp", REF("a")) OUTPUT(REF("c") "," REF("d"))

/* h, written after it was made: its readers see 1.5 more. */
#define UNTYPED(name, target, args)                                                                                            \
    "{\"name\":\"" name "\",\"op\":\"call_function\",\"target\":\"" target "\",\"args\":[" args "]},"
#define WRITTEN UNTYPED("h", "torch.relu", REF("x")) UNTYPED("w", "torch.Tensor.add_", REF("h") ",1.5")
#define KEPT(name, of) UNTYPED(name, "torch.nn.functional.dropout", REF(of) ",0.5,false")

/* What is rewritten away was read by others, too, so it stays, and depends on what the rewrite reads now. */
static const struct {
    const char *before, *after;
    bool is_right;
} keeping[] = {
    {INNER CALL("b", "torch.neg", REF("a")) KEEPS_A,
     INNER CALL("c", "torch.tanh", REF("h")) CALL("d", "torch.exp", REF("a")) OUTPUT(REF("c") "," REF("d")), true},
    {INNER CALL("b", "torch.add", REF("a") "," REF("h")) KEEPS_A, INNER CALL("b", "torch.zeros_like", REF("x")) KEEPS_A, true},
    {INNER CALL("b", "torch.add", REF("a") "," REF("h")) KEEPS_A, /* of this only x is known, three calls above */
     INNER CALL("b", "torch.mul", REF("x") ",0") KEEPS_A, true},
    {INNER CALL("b", "torch.neg", REF("a")) KEEPS_A,
     INNER CALL("c", "torch.tanh", REF("a")) CALL("d", "torch.exp", REF("a")) OUTPUT(REF("c") "," REF("d")), false},
    {INNER CALL("b", "torch.neg", REF("a")) KEEPS_A, /* as if relu changed nothing */
     INNER CALL("c", "torch.tanh", REF("x")) CALL("d", "torch.exp", REF("a")) OUTPUT(REF("c") "," REF("d")), false},
    {INNER CALL("u", "my.function", REF("h")) CALL("b", "torch.add", REF("u") "," REF("h")) /* nobody knows how u follows */
     CALL("c", "torch.tanh", REF("b")) OUTPUT(REF("c") "," REF("u")),
     INNER CALL("u", "my.function", REF("h")) CALL("b", "torch.sub", REF("u") "," REF("h")) CALL("c", "torch.tanh", REF("b"))
         OUTPUT(REF("c") "," REF("u")),
     false},
    {X WRITTEN KEPT("b", "h") KEPT("c", "w") OUTPUT(REF("b") "," REF("c")), X WRITTEN OUTPUT(REF("h") "," REF("w")), true},
    {X WRITTEN KEPT("b", "h") KEPT("c", "w") OUTPUT(REF("b") "," REF("c")),
     X UNTYPED("e", "torch.relu", REF("x")) WRITTEN OUTPUT(REF("e") "," REF("w")), false},
};

START_TEST(what_stays_may_be_related) {
    char *text = document_of(keeping[_i].before, NULL, ""), *result = document_of(keeping[_i].after, NULL, "");
    fb_graph *before = graph_of(text, strlen(text)), *after = graph_of(result, strlen(result));
    for (uint64_t seed = 0; seed < 3; seed++) {
        fb_validation found = validate(before, after, false, seed);
        ck_assert_msg(found.passes == keeping[_i].is_right, "seed %d: worst %g", (int)seed, found.worst.absolute);
        ck_assert(!keeping[_i].is_right || found.is_complete);
        fb_validation_free(&found);
    }
    fb_graph_free(before);
    fb_graph_free(after);
    free(text);
    free(result);
}
END_TEST

#define EXPORTED "torch._functorch.predispatch."
#define IN_C "torch._C._functorch."
#define IN_VMAP(home, call)                                                                                                    \
    NODE("x", "placeholder", "x", "")                                                                                          \
    UNTYPED("outer", home "_vmap_increment_nesting", "2,\"error\"")                                                            \
    UNTYPED("inner", home "_vmap_increment_nesting", "3,\"error\"")                                                            \
    UNTYPED("n", "torch.arange", "3")                                                                                          \
    UNTYPED("e", home "_add_batch_dim", REF("n") ",0,2")                                                                       \
    call UNTYPED("d", home "_remove_batch_dim", REF("c") ",2,3,0") UNTYPED("end_inner", home "_vmap_decrement_nesting", "")    \
        UNTYPED("end_outer", home "_vmap_decrement_nesting", "") OUTPUT(REF("d"))

/* What opens and closes the levels of torch.vmap is read by nobody, and those who compute in them need it. */
START_TEST(what_is_inside_of_vmap_is_evaluated) {
    static const char *const afters[] = {IN_VMAP(EXPORTED, UNTYPED("c", "torch.mul", REF("e") ",2")),
                                         IN_VMAP(EXPORTED, UNTYPED("c", "torch.mul", REF("e") ",3")),
                                         IN_VMAP(IN_C, UNTYPED("c", "torch.mul", REF("e") ",2"))};
    char *text = document_of(IN_VMAP(EXPORTED, UNTYPED("c", "torch.add", REF("e") "," REF("e"))), NULL, "");
    char *result = document_of(afters[_i], NULL, "");
    fb_graph *before = graph_of(text, strlen(text)), *after = graph_of(result, strlen(result));
    fb_validation found = validate(before, after, false, 1);
    ck_assert_uint_eq(found.count, 1);
    ck_assert_msg(found.is_complete, "%s", found.regions[0].detail);
    ck_assert(found.passes == (_i != 1));
    fb_validation_free(&found);
    fb_graph_free(before);
    fb_graph_free(after);
    free(text);
    free(result);
}
END_TEST

#define MANY 65536
#define VECTOR ",\"meta\":{\"shape\":[65536],\"dtype\":\"float32\"}},"

/* Of a graph with one call of one input, after whose end its result is held. */
static fb_graph *graph_of_one_call(const char *target, const char *rest) {
    char nodes[600];
    snprintf(
        nodes, sizeof nodes,
        "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\"" VECTOR
        "{\"name\":\"b\",\"op\":\"call_function\",\"target\":\"%s\",\"args\":[{\"$node\":\"x\"}%s]" VECTOR OUTPUT(REF("b")),
        target, rest);
    char *text = document_of(nodes, NULL, "");
    fb_graph *graph = graph_of(text, strlen(text));
    free(text);
    return graph;
}

/* One limit for all that is held at a time: what an evaluation leaves to be compared counts while the next one runs. */
START_TEST(the_limit_of_memory_holds_for_the_whole) {
    const size_t kept = sizeof(float) * MANY, exact = 2 * sizeof(double) * MANY, rest = 16384;
    fb_graph *before = graph_of_one_call("torch.neg", ""), *after = graph_of_one_call("torch.mul", ",-1");
    fb_error error = {0};
    fb_eval_options options = {.memory_limit = exact + kept + rest};
    fb_validation found;
    fb_comparison compared;
    fb_comparison_inputs none = {0};
    ck_assert_int_eq(fb_validate_rewrite(before, after, &options, false, NULL, &found, &error), FB_TOO_LARGE);
    ck_assert_str_eq(error.code, "evaluation-too-large");
    error = (fb_error){0};
    ck_assert_int_eq(fb_compare_graphs(before, after, &none, &options, NULL, &compared, &error), FB_TOO_LARGE);
    error = (fb_error){0};
    options.memory_limit = exact + 2 * kept + rest;
    ck_assert_int_eq(fb_validate_rewrite(before, after, &options, false, NULL, &found, &error), FB_OK);
    ck_assert(found.passes && found.count == 1);
    fb_validation_free(&found);
    options.memory_limit = exact + 2 * kept + sizeof(double) * MANY + rest; /* also the first graph's outputs in float64 */
    ck_assert_int_eq(fb_compare_graphs(before, after, &none, &options, NULL, &compared, &error), FB_OK);
    ck_assert(compared.passes);
    fb_comparison_free(&compared);
    fb_graph_free(before);
    fb_graph_free(after);
}
END_TEST

START_TEST(graphs_are_compared_whole) {
    fb_graph *before;
    char *text = result_of("toy", "FuseBatchNorm2dInConv2d", &before);
    fb_graph *after = graph_of(text, strlen(text));
    fb_eval_options options = {.seed = 7, .random_weights = true};
    fb_comparison_inputs none = {0};
    fb_comparison found;
    fb_error error = {0};
    ck_assert_msg(fb_compare_graphs(before, after, &none, &options, NULL, &found, &error) == FB_OK, "%s", error.message);
    ck_assert(found.passes);
    ck_assert_uint_eq(found.count, 2);
    ck_assert_str_eq(found.outputs[1].name, "output.1");
    ck_assert_str_eq(found.first_node, "");
    ck_assert(found.outputs[0].a_exact.absolute > 0);
    fb_comparison_free(&found);
    /* The first node that differs, of several: another epsilon in the first BatchNorm. */
    char *eps = strstr(text, "\"value\":1e-05");
    memcpy(eps, "\"value\":2e-01", 13);
    fb_graph *wrong = graph_of(text, strlen(text));
    ck_assert_int_eq(fb_compare_graphs(before, wrong, &none, &options, NULL, &found, &error), FB_OK);
    ck_assert(!found.passes);
    ck_assert_str_eq(found.first_node, "c1");
    fb_comparison_free(&found);
    fb_graph_free(before);
    fb_graph_free(after);
    fb_graph_free(wrong);
    free(text);
}
END_TEST

/* The numbers of a seed and a name are part of what a report says, so they are written down here once more, one at a time. */
static double number_at(uint64_t seed, const char *name, int64_t i) {
    uint64_t z = 0xcbf29ce484222325U ^ seed;
    for (; *name; name++) z = (z ^ (unsigned char)*name) * 0x100000001b3U;
    z += (uint64_t)(i / 2 + 1) * 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    z ^= z >> 31;
    return (double)(int32_t)(uint32_t)(i % 2 ? z >> 32 : z) * (1.7320508075688772 / 0x1p31);
}

START_TEST(random_numbers_are_the_same_everywhere) {
    static const int64_t sizes[] = {0, 1, 5, 1023, 1024, 1025, 3001};
    int64_t size = sizes[_i / 2];
    fb_array_memory memory = {.precision = _i % 2 ? FB_PRECISION_DOUBLE : FB_PRECISION_RECORDED};
    memory.limit = (size_t)1 << 20;
    fb_array *array;
    ck_assert_int_eq(fb_random_array(&memory, FB_FLOAT32, 1, &size, 7, "x", 1, 2, &array, NULL), FB_OK);
    for (int64_t i = 0; i < size; i++) ck_assert(fb_array_number(array, i) == (double)(float)number_at(7, "x", i));
    fb_array_drop(array);
}
END_TEST

/* A weight's bytes are drawn in its dtype, and rounded once. */
START_TEST(random_weights_are_the_same_everywhere) {
    static const fb_dtype dtypes[] = {FB_FLOAT64, FB_FLOAT32, FB_FLOAT16, FB_BFLOAT16, FB_FLOAT8_E4M3FN, FB_FLOAT8_E5M2};
    enum { COUNT = 3001 };
    fb_dtype dtype = dtypes[_i];
    size_t element = fb_dtype_size(dtype);
    char tensor[100];
    snprintf(tensor, sizeof tensor, "{\"name\":\"b\",\"dtype\":\"%s\",\"shape\":[%d]}", fb_dtype_name(dtype), COUNT);
    char *text = document_of(OUTPUT(""), "{\"path\":\"\",\"type\":\"M\",\"buffers\":{\"b\":\"b\"}}", tensor);
    fb_graph *graph = graph_of(text, strlen(text));
    unsigned char *bytes = calloc(COUNT, element), one[8];
    fb_work work = {0};
    fb_random_weight(graph, fb_tensor_find(graph, "b"), 7, 0, COUNT, bytes, &work);
    fb_random_weight(graph, fb_tensor_find(graph, "b"), 7, 1001, 501, bytes + 1001 * element, &work); /* any part is the same */
    for (int64_t i = 0; i < COUNT; i++) {
        fb_dtype_encode(dtype, 0.25 * number_at(7, "b", i), one);
        ck_assert_mem_eq(bytes + (size_t)i * element, one, element);
    }
    free(bytes);
    free(text);
    fb_graph_free(graph);
}
END_TEST

/* ---- weights ------------------------------------------------------------------------------------------------------------ */

#define WEIGHTS 16
#define WEIGHT_SIZE 64 /* its rows and columns */

/* All get_attr nodes come first, as torch.export writes them; `call` reads the value so far and one weight. Weight 15 is read
 * by nobody, and weight 14 has a dtype that is not evaluated if `has_fp8`. */
static fb_graph *graph_of_weights(const char *call, bool has_fp8) {
    fb_buffer nodes = {0}, modules = {0}, tensors = {0};
    fb_buffer_printf(&modules, "{\"path\":\"\",\"type\":\"M\",\"buffers\":{");
    for (int i = 0; i < WEIGHTS; i++) {
        const char *dtype = has_fp8 && i == WEIGHTS - 2 ? "float8_e5m2" : "float32", *comma = i ? "," : "";
        fb_buffer_printf(&nodes, "{\"name\":\"g%d\",\"op\":\"get_attr\",\"target\":\"w%d\"},", i, i);
        fb_buffer_printf(&modules, "%s\"w%d\":\"w%d\"", comma, i, i);
        fb_buffer_printf(&tensors, "%s{\"name\":\"w%d\",\"dtype\":\"%s\",\"shape\":[%d,%d]}", comma, i, dtype, WEIGHT_SIZE,
                         WEIGHT_SIZE);
    }
    fb_buffer_printf(&modules, "}}");
    for (int i = 0; i < WEIGHTS - 1; i++)
        fb_buffer_printf(&nodes,
                         "{\"name\":\"a%d\",\"op\":\"call_function\",\"target\":\"%s\",\"args\":[{\"$node\":\"%c%d\"},"
                         "{\"$node\":\"g%d\"}]},",
                         i, call, i ? 'a' : 'g', i ? i - 1 : 0, i);
    fb_buffer_printf(&nodes, "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"a%d\"}]}",
                     WEIGHTS - 2);
    fb_buffer *parts[] = {&nodes, &modules, &tensors};
    for (int i = 0; i < 3; i++) fb_buffer_append(parts[i], "", 1);
    char *text = document_of((char *)nodes.data, (char *)modules.data, (char *)tensors.data);
    fb_graph *graph = graph_of(text, strlen(text));
    free(text);
    for (int i = 0; i < 3; i++) fb_buffer_free(parts[i]);
    return graph;
}

typedef struct told {
    const fb_graph *graph;
    fb_buffer names; /* of nodes that were computed, with a blank behind each */
} told;

static fb_status tell(void *context, fb_node node, const fb_object *object, fb_error *error) {
    told *t = context;
    ck_assert(object->kind != FB_OBJECT_NONE && !error->status);
    fb_buffer_printf(&t->names, "%s ", fb_node_name(t->graph, node));
    return FB_OK;
}

static fb_status evaluate_weights(const fb_graph *graph, told *t, fb_array_memory *memory, fb_error *error) {
    fb_eval_options options = {.random_weights = true};
    fb_eval_hooks hooks = {.context = t, .computed = tell};
    fb_object output;
    t->graph = graph;
    fb_status status = fb_evaluate_graph(graph, &options, &hooks, memory, &output, error);
    fb_object_drop(&output);
    ck_assert_uint_eq(memory->used, 0);
    return status;
}

/* A weight is held from its first reader to its last, and each is told, also one that nobody reads. */
START_TEST(weights_are_held_while_they_are_read) {
    const size_t weight = sizeof(float) * WEIGHT_SIZE * WEIGHT_SIZE;
    fb_graph *graph = graph_of_weights("torch.add", false);
    fb_array_memory memory;
    fb_error error = {0};
    told t = {0};
    ck_assert_int_eq(evaluate_weights(graph, &t, &memory, &error), FB_OK);
    ck_assert_msg(memory.peak < 5 * weight, "%zu bytes, of weights of %zu", memory.peak, weight);
    fb_buffer_append(&t.names, "", 1);
    for (fb_node node = fb_first_node(graph, FB_MAIN_PROGRAM); node.id; node = fb_next_node(graph, node)) {
        char name[40];
        snprintf(name, sizeof name, "%s ", fb_node_name(graph, node));
        ck_assert_msg(strstr((const char *)t.names.data, name) != NULL, "%s is not told", name);
    }
    fb_buffer_free(&t.names);
    fb_graph_free(graph);
}
END_TEST

/* A weight that is written is what it was when its node came up; the others wait for their readers. */
START_TEST(weights_that_are_written_are_loaded_in_order) {
    fb_graph *graph = graph_of_weights("torch.Tensor.add_", false);
    fb_array_memory memory;
    fb_error error = {0};
    told t = {0};
    ck_assert_msg(evaluate_weights(graph, &t, &memory, &error) == FB_OK, "%s", error.message);
    ck_assert_msg(strncmp((const char *)t.names.data, "g0 g15 a0 g1 a1 ", 16) == 0, "%s", (const char *)t.names.data);
    fb_buffer_free(&t.names);
    fb_graph_free(graph);
}
END_TEST

START_TEST(a_weight_that_cannot_be_loaded_is_named) {
    fb_graph *graph = graph_of_weights("torch.add", true);
    fb_array_memory memory;
    fb_error error = {0};
    told t = {0};
    ck_assert_int_eq(evaluate_weights(graph, &t, &memory, &error), FB_INVALID);
    ck_assert_str_eq(error.code, "unsupported-operator");
    ck_assert_str_eq(error.node, "g14");
    fb_buffer_free(&t.names);
    fb_graph_free(graph);
}
END_TEST

/* Calls that read a weight in parts; `rows` is not always a multiple of what fb_gemm makes at once. */
static const struct {
    const char *call, *dtype, *input, *recipe; /* of the weight; "" = it is drawn itself */
    int rows, inputs;
    fb_precision precision;
} parts[] = {
    {"linear", "float32", "[4,300]", "", 14000, 300, FB_PRECISION_RECORDED},
    {"linear", "float32", "[4,300]", "", 13990, 300, FB_PRECISION_RECORDED}, /* 9 rows are left */
    {"linear", "float32", "[2,3,20,300]", "", 28001, 300, FB_PRECISION_DOUBLE},
    {"linear", "bfloat16", "[1,64,5000]", "", 2500, 5000, FB_PRECISION_RECORDED},
    {"linear", "float16", "[5000]", "", 2000, 5000, FB_PRECISION_DOUBLE},
    {"linear", "float32", "[0,300]", "", 5000, 300, FB_PRECISION_RECORDED},
    {"linear", "float64", "[3,0]", "", 700, 0, FB_PRECISION_RECORDED},
    {"linear", "float32", "[70,200]", "{\"op\":\"permute\",\"args\":[\"b\"],\"dims\":[1,0]}", 6000, 200, FB_PRECISION_RECORDED},
    {"linear", "float32", "[70,200]", "{\"op\":\"mul\",\"args\":[{\"op\":\"permute\",\"args\":[\"b\"],\"dims\":[1,0]},\"s\"]}",
     6000, 200, FB_PRECISION_RECORDED},
    {"linear", "bfloat16", "[70,200]",
     "{\"op\":\"concat\",\"args\":[{\"op\":\"slice\",\"args\":[\"a\"],\"axis\":0,\"start\":7,\"stop\":5000},{\"op\":\"slice\","
     "\"args\":"
     "[\"a\"],\"axis\":0,\"start\":0,\"stop\":1007}],\"axis\":0}",
     6000, 200, FB_PRECISION_DOUBLE},
    {"embedding", "float32", "[3,50]", "", 5000, 300, FB_PRECISION_RECORDED},
    {"embedding", "bfloat16", "[3,50]", "", 5000, 300, FB_PRECISION_DOUBLE},
};

typedef struct reading_of {
    fb_eval_inputs inputs;
    bool is_in_parts;
} reading_of;

static fb_status give_input(void *context, fb_node node, fb_object *out, fb_error *error) {
    return fb_give_input(&((reading_of *)context)->inputs, node, out, error);
}

static fb_status note_kind(void *context, fb_node node, const fb_object *object, fb_error *error) {
    ((reading_of *)context)->is_in_parts |= object->kind == FB_OBJECT_WEIGHT;
    (void)node, (void)error;
    return FB_OK;
}

static bool is_not_looked_at(void *context, fb_node node) {
    (void)context, (void)node;
    return false;
}

/* What a weight that is read in parts gives is what the whole gives, bit by bit. */
START_TEST(parts_give_what_the_whole_gives) {
    bool is_linear = strcmp(parts[_i].call, "linear") == 0;
    const char *dtype = parts[_i].dtype, *recipe = *parts[_i].recipe ? ",\"recipe\":" : "";
    char nodes[1000], tensors[2000];
    int rows = parts[_i].rows, inputs = parts[_i].inputs;
    snprintf(nodes, sizeof nodes,
             "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\",\"meta\":{\"shape\":%s,\"dtype\":\"%s\"}},"
             "{\"name\":\"w\",\"op\":\"get_attr\",\"target\":\"w\"},"
             "{\"name\":\"y\",\"op\":\"call_function\",\"target\":\"torch.nn.functional.%s\",\"args\":[" REF("x") "," REF(
                 "w") "]},{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[" REF("y") "]}",
             parts[_i].input, is_linear ? dtype : "int64", parts[_i].call);
    snprintf(tensors, sizeof tensors,
             "{\"name\":\"w\",\"dtype\":\"%s\",\"shape\":[%d,%d]%s%s},{\"name\":\"a\",\"dtype\":\"%s\",\"shape\":[%d,%d]},"
             "{\"name\":\"b\",\"dtype\":\"%s\",\"shape\":[%d,%d]},{\"name\":\"s\",\"dtype\":\"%s\",\"shape\":[%d]}",
             dtype, rows, inputs, recipe, parts[_i].recipe, dtype, rows, inputs, dtype, inputs, rows, dtype, inputs);
    char *text = document_of(
        nodes, "{\"path\":\"\",\"type\":\"M\",\"buffers\":{\"w\":\"w\",\"a\":\"a\",\"b\":\"b\",\"s\":\"s\"}}", tensors);
    fb_graph *graph = graph_of(text, strlen(text));
    fb_eval_options options = {.random_weights = true, .precision = parts[_i].precision, .seed = 3};
    fb_array_memory memory[2];
    fb_object found[2];
    for (int i = 0; i < 2; i++) {
        reading_of reading = {{.graph = graph, .memory = &memory[i], .is_drawn = true, .seed = 5}, false};
        fb_eval_hooks hooks = {
            .context = &reading, .given = give_input, .computed = note_kind, .looks = i ? NULL : is_not_looked_at};
        fb_error error = {0};
        ck_assert_msg(fb_evaluate_graph(graph, &options, &hooks, &memory[i], &found[i], &error) == FB_OK, "%s", error.message);
        ck_assert(reading.is_in_parts == (i == 0));
    }
    size_t size = (size_t)fb_array_count(found[0].array) * fb_held_size(found[0].array->held);
    ck_assert_int_eq(fb_array_count(found[0].array), fb_array_count(found[1].array));
    ck_assert(memcmp(fb_array_data(found[0].array), fb_array_data(found[1].array), size) == 0);
    for (int i = 0; i < 2; i++) fb_object_drop(&found[i]);
    fb_graph_free(graph);
    free(text);
}
END_TEST

#define WEIGHT(name, rows, rest) "{\"name\":\"" name "\",\"dtype\":\"float32\",\"shape\":[" rows ",1024]" rest "}"
#define LINEAR(name, weight) UNTYPED(name, "torch.nn.functional.linear", REF("x") "," REF(weight))
#define LAYER(i, target, rest) LINEAR("a" i, "w" i) UNTYPED("b" i, target, REF("a" i) rest)
#define TIMES(i, factor) LAYER(i, "torch.mul", "," factor)
#define ALL_NEG LAYER("0", "torch.neg", "") LAYER("1", "torch.neg", "") LAYER("2", "torch.neg", "")
#define MINUS_ONE TIMES("0", "-1") TIMES("1", "-1") TIMES("2", "-1")
#define WEIGHTS_OF(rows, rest) WEIGHT("w0", "1024", "") "," WEIGHT("w1", rows, rest) "," WEIGHT("w2", "1024", "")
#define ALIKE WEIGHTS_OF("1024", "")
#define TWO(i, first, second, target)                                                                                          \
    LINEAR("a" i, first) LINEAR("c" i, second) UNTYPED("b" i, target, REF("a" i) "," REF("c" i))
#define BLOB ",\"blob\":\"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\"offset\":0"

#define NEG_OF_W0 "{\"op\":\"neg\",\"args\":[\"w0\"]}"
#define MADE_BY(second, third)                                                                                                 \
    WEIGHT("w0", "1024", "") "," WEIGHT("w1", "1024", ",\"recipe\":" second) "," WEIGHT("w2", "1024", ",\"recipe\":" third)

/* Regions of which some are equal but for names, and some only look so. */
static const struct {
    const char *what, *before, *after, *tensors;
    size_t equal, failed; /* regions */
} layers[] = {
    {"three layers", ALL_NEG, MINUS_ONE, ALIKE, 2, 0},
    {"few weights", ALL_NEG, MINUS_ONE, WEIGHT("w0", "1023", "") "," WEIGHT("w1", "1023", "") "," WEIGHT("w2", "1023", ""), 0,
     0},
    {"the last is wrong", ALL_NEG, TIMES("0", "-1") TIMES("1", "-1") TIMES("2", "-2"), ALIKE, 1, 1},
    {"the last two are wrong", ALL_NEG, TIMES("0", "-1") TIMES("1", "-2") TIMES("2", "-2"), ALIKE, 1, 2},
    {"all are wrong", ALL_NEG, TIMES("0", "-2") TIMES("1", "-2") TIMES("2", "-2"), ALIKE, 2, 3},
    {"another number on both sides", TIMES("0", "2") TIMES("1", "2") TIMES("2", "4"),
     LAYER("0", "torch.div", ",0.5") LAYER("1", "torch.div", ",0.5") LAYER("2", "torch.div", ",0.25"), ALIKE, 1, 0},
    {"another shape", ALL_NEG, MINUS_ONE, WEIGHTS_OF("1025", ""), 1, 0},
    {"known bytes", ALL_NEG, MINUS_ONE, WEIGHTS_OF("1024", BLOB), 1, 0},
    {"a recipe", ALL_NEG, MINUS_ONE, WEIGHTS_OF("1024", ",\"recipe\":{\"op\":\"neg\",\"args\":[\"w0\"]}"), 1, 0},
    {"one recipe twice", ALL_NEG, MINUS_ONE, MADE_BY(NEG_OF_W0, NEG_OF_W0), 1, 0},
    {"two recipes", ALL_NEG, MINUS_ONE, MADE_BY(NEG_OF_W0, "{\"op\":\"add\",\"args\":[\"w0\",\"w0\"]}"), 0, 0},
    {"one weight twice", TWO("0", "w0", "w1", "torch.add") TWO("1", "w2", "w2", "torch.add"),
     TWO("0", "w0", "w1", "operator.add") TWO("1", "w2", "w2", "operator.add"), ALIKE, 0, 0},
    {"two weights in another order", TWO("0", "w0", "w1", "torch.sub") TWO("1", "w1", "w2", "torch.sub"),
     TWO("0", "w0", "w1", "operator.sub") TWO("1", "w2", "w1", "operator.sub"), ALIKE, 0, 1},
};

static fb_graph *graph_of_layers(const char *calls, const char *tensors) {
    int count = strstr(calls, "\"b2\"") ? 3 : 2;
    fb_buffer nodes = {0};
    fb_buffer_printf(&nodes, "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\","
                             "\"meta\":{\"shape\":[2,1024],\"dtype\":\"float32\"}},");
    for (int i = 0; i < 3; i++) fb_buffer_printf(&nodes, "{\"name\":\"w%d\",\"op\":\"get_attr\",\"target\":\"w%d\"},", i, i);
    fb_buffer_printf(&nodes, "%s", calls);
    for (int i = 0; i < count; i++) /* what reads them, and did not change */
        fb_buffer_printf(&nodes,
                         "{\"name\":\"r%d\",\"op\":\"call_function\",\"target\":\"torch.exp\",\"args\":[{\"$node\":\"b%d\"}]},",
                         i, i);
    fb_buffer_printf(&nodes, "%s",
                     count == 3 ? OUTPUT(REF("r0") "," REF("r1") "," REF("r2")) : OUTPUT(REF("r0") "," REF("r1")));
    fb_buffer_append(&nodes, "", 1);
    char *text = document_of(
        nodes.data, "{\"path\":\"\",\"type\":\"M\",\"parameters\":{\"w0\":\"w0\",\"w1\":\"w1\",\"w2\":\"w2\"}}", tensors);
    fb_graph *graph = graph_of(text, strlen(text));
    fb_buffer_free(&nodes);
    free(text);
    return graph;
}

START_TEST(equal_regions_are_evaluated_once) {
    fb_graph *before = graph_of_layers(layers[_i].before, layers[_i].tensors);
    fb_graph *after = graph_of_layers(layers[_i].after, layers[_i].tensors);
    fb_validation found = validate(before, after, false, 1);
    size_t equal = 0, failed = 0;
    for (size_t i = 0; i < found.count; i++) {
        equal += found.regions[i].is_equal;
        failed += !found.regions[i].passes;
        ck_assert_uint_ge(found.regions[i].node_count, 1); /* its own */
        ck_assert_int_eq(found.regions[i].nodes[0][1], '0' + (int)i);
    }
    ck_assert_msg(found.is_complete && found.passes == (failed == 0), "%s", layers[_i].what);
    ck_assert_msg(equal == layers[_i].equal, "%s: %zu of %zu regions are equal", layers[_i].what, equal, found.count);
    ck_assert_msg(failed == layers[_i].failed, "%s: %zu of %zu regions fail", layers[_i].what, failed, found.count);
    fb_validation_free(&found);
    fb_graph_free(before);
    fb_graph_free(after);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("validate");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, random_numbers_are_the_same_everywhere, 0, 14);
    tcase_add_loop_test(tests, random_weights_are_the_same_everywhere, 0, 6);
    tcase_add_loop_test(tests, what_passes_do_is_passed, 0, (int)(sizeof fixtures / sizeof *fixtures));
    tcase_add_loop_test(tests, mistakes_are_caught, 0, (int)(sizeof mistakes / sizeof *mistakes));
    tcase_add_test(tests, unknown_operators_are_told);
    tcase_add_loop_test(tests, what_stays_may_be_related, 0, (int)(sizeof keeping / sizeof *keeping));
    tcase_add_loop_test(tests, what_is_inside_of_vmap_is_evaluated, 0, 3);
    tcase_add_test(tests, the_limit_of_memory_holds_for_the_whole);
    tcase_add_test(tests, graphs_are_compared_whole);
    tcase_add_loop_test(tests, parts_give_what_the_whole_gives, 0, (int)(sizeof parts / sizeof *parts));
    tcase_add_loop_test(tests, equal_regions_are_evaluated_once, 0, (int)(sizeof layers / sizeof *layers));
    tcase_add_test(tests, weights_are_held_while_they_are_read);
    tcase_add_test(tests, weights_that_are_written_are_loaded_in_order);
    tcase_add_test(tests, a_weight_that_cannot_be_loaded_is_named);
    return run_tests("validate", tests);
}
