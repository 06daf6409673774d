/* The file of a graph's weights: the very file that a graph was bound to, before and after passes. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/bind/bind.h"
#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/graph/build.h"
#include "core/graph/slot.h"
#include "core/weights/weights_file.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/memory_blobs.h"
#include "tests/unit/run_tests.h"

/* ---- helpers ------------------------------------------------------------------------------------------------------------ */

static fb_graph *read_graph(const char *name) {
    size_t size;
    char *text = read_fixture(name, "graph.json", &size);
    fb_graph *graph = graph_of(text, size);
    free(text);
    return graph;
}

static const char *put_fixture(memory_blobs *blobs, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "tests/fixtures/%s/weights.safetensors", name);
    return memory_blobs_put_file(blobs, path);
}

static fb_binding bind(fb_graph *graph, memory_blobs *blobs, const char *file) {
    fb_binding binding;
    fb_error error = {0};
    fb_status status = fb_bind(graph, &file, 1, &blobs->source, NULL, &binding, &error);
    ck_assert_msg(status == FB_OK, "%s %s", error.pointer, error.message);
    ck_assert_uint_eq(json_array_size(binding.mismatching), 0);
    return binding;
}

static fb_weights_file *open_file(const fb_graph *graph, const fb_weights_choice *choice, memory_blobs *blobs) {
    fb_weights_file *file = NULL;
    json_t *missing;
    fb_error error = {0};
    fb_status status = fb_weights_file_new(graph, choice, &blobs->source, &file, &missing, &error);
    ck_assert_msg(status == FB_OK, "%s: %s", error.code, error.message);
    ck_assert_ptr_null(missing);
    return file;
}

/* All its bytes, `step` at a time. */
static unsigned char *read_all(fb_weights_file *file, size_t step, size_t *size) {
    fb_error error = {0};
    *size = (size_t)fb_weights_file_size(file);
    unsigned char *bytes = malloc(*size + 1);
    for (size_t at = 0; at < *size; at += step) {
        size_t count = *size - at < step ? *size - at : step;
        fb_status status = fb_weights_file_read(file, at, bytes + at, count, &error);
        ck_assert_msg(status == FB_OK, "%s", error.message);
    }
    return bytes;
}

/* The whole file as a blob. */
static const char *put_weights(memory_blobs *blobs, const fb_graph *graph, const fb_weights_choice *choice) {
    size_t size;
    fb_weights_file *file = open_file(graph, choice, blobs);
    unsigned char *bytes = read_all(file, 1 << 20, &size);
    const char *digest = memory_blobs_put(blobs, bytes, size);
    free(bytes);
    fb_weights_file_free(file);
    return digest;
}

static fb_graph *optimise(const fb_graph *graph, const char *list) {
    fb_composition composition;
    fb_run run;
    fb_error error = {0};
    json_t *json = json_loads(list, 0, NULL);
    ck_assert_int_eq(fb_composition_read(json, "", NULL, &composition, &error), FB_OK);
    json_decref(json);
    ck_assert_msg(fb_composition_run(&composition, graph, FB_LINT_END, NULL, &run, &error) == FB_OK, "%s", error.message);
    fb_composition_free(&composition);
    fb_graph *result = fb_graph_copy(run.result, &(fb_work){0});
    fb_run_free(&run);
    return result;
}

static void ck_same_graph(const fb_graph *a, const fb_graph *b) {
    fb_buffer x = {0}, y = {0};
    fb_document_write(a, &x);
    fb_document_write(b, &y);
    size_t at = 0;
    while (at < x.size && at < y.size && x.data[at] == y.data[at]) at++;
    ck_assert_msg(at == x.size && at == y.size, "%.200s\n%.200s", fb_buffer_text(&x) + at, fb_buffer_text(&y) + at);
    fb_buffer_free(&x);
    fb_buffer_free(&y);
}

/* A graph whose root owns everything; `tensors` as in a document, and `parameters` the root's. */
static fb_graph *graph_with(const char *parameters, const char *tensors) {
    fb_buffer modules = {0};
    fb_buffer_printf(&modules, "{\"path\":\"\",\"type\":\"torch.nn.Module\",\"parameters\":{%s}}", parameters);
    char *text = document_of("{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\"},"
                             "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"x\"}]}",
                             fb_buffer_text(&modules), tensors);
    fb_graph *graph = graph_of(text, strlen(text));
    fb_buffer_free(&modules);
    free(text);
    return graph;
}

/* Keys and offsets of a file's tensors, "a@0 b@8 ", from the first tensor's byte. */
static void expect_keys(fb_weights_file *file, const char *expected) {
    size_t size;
    fb_safetensors header;
    fb_error error = {0};
    fb_buffer keys = {0};
    unsigned char *bytes = read_all(file, SIZE_MAX / 2, &size);
    ck_assert_msg(fb_safetensors_read(bytes, size, &header, &error) == FB_OK, "%s", error.message);
    for (size_t i = 0; i < header.count; i++)
        fb_buffer_printf(&keys, "%s@%d ", header.entries[i].name, (int)(header.entries[i].offset - header.entries[0].offset));
    ck_assert_str_eq(fb_buffer_text(&keys), expected);
    ck_assert_uint_eq(fb_weights_file_count(file), header.count);
    fb_buffer_free(&keys);
    fb_safetensors_free(&header);
    free(bytes);
}

/* ---- fixtures ----------------------------------------------------------------------------------------------------------- */

static const char *const with_weights[] = {"aten-bert", "aten-llama", "aten-resnet18", "aten-toy", "bert-tiny",
                                           "gpt2-tiny", "mobilenet",  "resnet-tiny",   "toy"};
enum { WITH_WEIGHTS = sizeof with_weights / sizeof *with_weights };

START_TEST(test_the_very_same_file) {
    memory_blobs blobs;
    memory_blobs_init(&blobs);
    fb_graph *graph = read_graph(with_weights[_i]);
    const char *digest = put_fixture(&blobs, with_weights[_i]);
    fb_binding binding = bind(graph, &blobs, digest);
    ck_assert_uint_eq(binding.bound, fb_tensor_count(graph));
    ck_assert_uint_eq(json_array_size(binding.missing) + json_array_size(binding.extra), 0);
    fb_binding_free(&binding);
    const memory_blob *blob = memory_blobs_find(&blobs, digest);
    fb_weights_file *file = open_file(graph, NULL, &blobs);
    static const size_t steps[] = {1 << 20, 4093, 64};
    for (size_t s = 0; s < 3; s++) {
        size_t size;
        unsigned char *bytes = read_all(file, steps[s], &size);
        ck_assert_uint_eq(size, blob->size);
        ck_assert_mem_eq(bytes, blob->bytes, size);
        free(bytes);
    }
    for (uint64_t at = blob->size, seed = 1; at > 0; at = at * 7 / 8) { /* backwards, and across tensors */
        unsigned char part[1000];
        seed = seed * 6364136223846793005U + 1;
        size_t count = (size_t)(seed >> 40) % sizeof part;
        if (count > blob->size - at) count = (size_t)(blob->size - at);
        ck_assert_int_eq(fb_weights_file_read(file, at, part, count, NULL), FB_OK);
        ck_assert_mem_eq(part, blob->bytes + at, count);
    }
    fb_weights_file_free(file);
    fb_graph_free(graph);
    memory_blobs_free(&blobs);
}
END_TEST

static size_t recipe_count(const fb_graph *graph) {
    size_t count = 0;
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next)
        count += fb_tensor_at(graph, t)->recipe.id != 0;
    return count;
}

/* Its own file says nothing new to an optimised graph, which stays as it is. To one whose bytes are not known it gives bytes.
 */
START_TEST(test_optimised) {
    static const char list[] =
        "[\"MergeLinears\", \"FuseBiasInLinear\", \"FuseBatchNorm2dInConv2d\", \"FuseBatchNorm1dInLinear\"]";
    memory_blobs blobs;
    memory_blobs_init(&blobs);
    fb_graph *source = read_graph(with_weights[_i]), *bound = fb_graph_copy(source, &(fb_work){0});
    const char *original = put_fixture(&blobs, with_weights[_i]);
    fb_binding binding = bind(bound, &blobs, original);
    fb_binding_free(&binding);
    fb_graph *result = optimise(bound, list), *again = fb_graph_copy(result, &(fb_work){0}), *unbound = optimise(source, list);
    const char *file = put_weights(&blobs, result, NULL);

    binding = bind(again, &blobs, file);
    ck_same_graph(again, result);
    ck_assert_uint_eq(json_array_size(binding.extra) + json_array_size(binding.missing), 0);
    fb_binding_free(&binding);

    fb_graph *late =
        fb_graph_copy(unbound, &(fb_work){0}); /* bound to the original's file: the same graph as if it had been before */
    binding = bind(late, &blobs, original);
    ck_same_graph(late, result);
    ck_assert_uint_eq(json_array_size(binding.missing), 0); /* extra: num_batches_tracked of what was folded */
    fb_binding_free(&binding);

    binding = bind(unbound, &blobs, file);
    ck_assert_uint_eq(json_array_size(binding.extra) + json_array_size(binding.missing), 0);
    fb_binding_free(&binding);
    ck_assert_uint_eq(recipe_count(unbound), 0);
    ck_assert_str_eq(put_weights(&blobs, unbound, NULL), file);

    fb_graph_free(late);
    fb_graph_free(source);
    fb_graph_free(bound);
    fb_graph_free(result);
    fb_graph_free(again);
    fb_graph_free(unbound);
    memory_blobs_free(&blobs);
}
END_TEST

/* ---- which tensors ------------------------------------------------------------------------------------------------------ */

START_TEST(test_choice) {
    static const char *const names[] = {"head.weight", "b1.running_var", "q.weight", "head.weight"};
    memory_blobs blobs;
    memory_blobs_init(&blobs);
    fb_graph *graph = read_graph("toy");
    fb_binding binding = bind(graph, &blobs, put_fixture(&blobs, "toy"));
    fb_binding_free(&binding);
    fb_weights_file *file = open_file(graph, &(fb_weights_choice){.names = names, .count = 4}, &blobs);
    const fb_tensor_row *weight = fb_tensor_at(graph, fb_tensor_find(graph, "q.weight"));
    int size = (int)(4 * fb_shape_size(graph, weight->shape, 0) * fb_shape_size(graph, weight->shape, 1));
    char expected[100];
    snprintf(expected, sizeof expected, "b1.running_var@0 head.weight@32 q.weight@%d ", 32 + size);
    expect_keys(file, expected);
    fb_weights_file_free(file);
    file = open_file(graph, &(fb_weights_choice){.tied = FB_TIED_EACH}, &blobs);
    ck_assert_uint_eq(fb_weights_file_count(file), 34);
    fb_weights_file_free(file);
    file = open_file(graph, &(fb_weights_choice){.names = names}, &blobs);
    ck_assert_uint_eq(fb_weights_file_size(file), 16);
    expect_keys(file, "");
    fb_weights_file_free(file);

    const char *tied =
        put_weights(&blobs, graph, &(fb_weights_choice){.tied = FB_TIED_EACH}); /* copies that agree can be bound */
    fb_graph *other = read_graph("toy");
    binding = bind(other, &blobs, tied);
    ck_assert_uint_eq(binding.bound, 32);
    ck_assert_uint_eq(json_array_size(binding.missing) + json_array_size(binding.extra), 0);
    fb_binding_free(&binding);
    fb_graph_free(other);

    static const char *const unknown[] = {"nothing", "q.weight", "conv", ""};
    json_t *missing;
    fb_error error = {0};
    fb_status status =
        fb_weights_file_new(graph, &(fb_weights_choice){.names = unknown, .count = 4}, &blobs.source, &file, &missing, &error);
    ck_assert_int_eq(status, FB_INVALID);
    ck_assert_str_eq(error.code, "unknown-tensor");
    ck_assert_ptr_nonnull(strstr(error.message, "conv, nothing"));
    fb_graph_free(graph);
    memory_blobs_free(&blobs);
}
END_TEST

START_TEST(test_not_persistent) {
    memory_blobs blobs;
    memory_blobs_init(&blobs);
    fb_graph *graph = read_graph("aten-bert");
    fb_binding binding = bind(graph, &blobs, put_fixture(&blobs, "aten-bert"));
    fb_binding_free(&binding);
    fb_weights_file *file = open_file(graph, NULL, &blobs); /* they came in the file, and go out again */
    ck_assert_uint_eq(fb_weights_file_count(file), fb_tensor_count(graph));
    fb_weights_file_free(file);
    fb_slot slot;
    size_t count = 0;
    for (fb_slot_cursor cursor = {0}; fb_slot_next(graph, &cursor, &slot);) {
        if (fb_slot_is_persistent(graph, &slot)) continue;
        fb_tensor_row_at(graph, slot.tensor)->blob = (fb_symbol){0}; /* the file had none of them, as usual */
        count++;
    }
    ck_assert_uint_eq(count, 2);
    file = open_file(graph, NULL, &blobs);
    ck_assert_uint_eq(fb_weights_file_count(file), fb_tensor_count(graph) - 2);
    fb_weights_file_free(file);
    fb_graph_free(graph);
    memory_blobs_free(&blobs);
}
END_TEST

/* Zero-size and 0-d tensors, tensors that overlap in a blob, and recipes that are keys of their own. */
START_TEST(test_shapes) {
    memory_blobs blobs;
    memory_blobs_init(&blobs);
    static const unsigned char raw[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const char *blob = memory_blobs_put(&blobs, raw, sizeof raw);
    fb_buffer tensors = {0};
    fb_buffer_printf(&tensors,
                     "{\"name\":\"empty\",\"dtype\":\"float32\",\"shape\":[3,0]},"
                     "{\"name\":\"scalar\",\"dtype\":\"int32\",\"shape\":[],\"blob\":\"%s\",\"offset\":4},"
                     "{\"name\":\"over\",\"dtype\":\"uint8\",\"shape\":[6],\"blob\":\"%s\",\"offset\":3},"
                     "{\"name\":\"made\",\"dtype\":\"uint8\",\"shape\":[2],\"recipe\":{\"op\":\"slice\",\"args\":[\"over\"],"
                     "\"axis\":0,\"start\":1,\"stop\":3}},"
                     "{\"name\":\"data\",\"dtype\":\"bfloat16\",\"shape\":[1],\"data\":\"gD8=\"}",
                     blob, blob);
    fb_graph *graph =
        graph_with("\"e\":\"empty\",\"s\":\"scalar\",\"o\":\"over\",\"m\":\"made\",\"d\":\"data\"", fb_buffer_text(&tensors));
    fb_weights_file *file = open_file(graph, NULL, &blobs);
    expect_keys(file, "e@0 s@0 d@4 m@6 o@8 ");
    size_t size;
    unsigned char *bytes = read_all(file, 5, &size);
    static const unsigned char expected[] = {5, 6, 7, 8, 0x80, 0x3f, 5, 6, 4, 5, 6, 7, 8, 9};
    ck_assert_mem_eq(bytes + size - sizeof expected, expected, sizeof expected);
    free(bytes);
    fb_weights_file_free(file);
    fb_buffer_free(&tensors);
    fb_graph_free(graph);
    memory_blobs_free(&blobs);
}
END_TEST

START_TEST(test_no_such_dtype) {
    memory_blobs blobs;
    memory_blobs_init(&blobs);
    fb_graph *graph = graph_with("\"c\":\"c\"", "{\"name\":\"c\",\"dtype\":\"complex128\",\"shape\":[0]}");
    fb_weights_file *file;
    json_t *missing;
    fb_error error = {0};
    ck_assert_int_eq(fb_weights_file_new(graph, NULL, &blobs.source, &file, &missing, &error), FB_INVALID);
    ck_assert_str_eq(error.code, "not-in-safetensors");
    ck_assert_ptr_null(missing);
    fb_graph_free(graph);
    memory_blobs_free(&blobs);
}
END_TEST

START_TEST(test_missing) {
    memory_blobs blobs;
    memory_blobs_init(&blobs);
    static const char away[] = "sha256:00000000000000000000000000000000000000000000000000000000000000ff";
    fb_buffer tensors = {0};
    fb_buffer_printf(&tensors,
                     "{\"name\":\"here\",\"dtype\":\"uint8\",\"shape\":[1],\"data\":\"AQ==\"},"
                     "{\"name\":\"away\",\"dtype\":\"uint8\",\"shape\":[1],\"blob\":\"%s\",\"offset\":0},"
                     "{\"name\":\"unknown\",\"dtype\":\"uint8\",\"shape\":[1]},"
                     "{\"name\":\"made\",\"dtype\":\"uint8\",\"shape\":[2],\"recipe\":{\"op\":\"concat\",\"args\":[\"unknown\","
                     "\"here\"],\"axis\":0}}",
                     away);
    fb_graph *graph = graph_with("\"h\":\"here\",\"a\":\"away\",\"m\":\"made\"", fb_buffer_text(&tensors));
    fb_weights_file *file;
    json_t *missing;
    fb_error error = {0};
    ck_assert_int_eq(fb_weights_file_new(graph, NULL, &blobs.source, &file, &missing, &error), FB_CONFLICT);
    ck_assert_str_eq(error.code, "bytes-missing");
    char *text = json_dumps(missing, JSON_COMPACT);
    ck_assert_str_eq(text, "[{\"name\":\"away\",\"code\":\"blob-missing\","
                           "\"blob\":\"sha256:00000000000000000000000000000000000000000000000000000000000000ff\"},"
                           "{\"name\":\"unknown\",\"code\":\"bytes-unknown\"}]");
    free(text);
    json_decref(missing);
    static const char *const names[] = {"h"};
    file = open_file(graph, &(fb_weights_choice){.names = names, .count = 1}, &blobs); /* what is here can be had */
    fb_weights_file_free(file);
    fb_buffer_free(&tensors);
    fb_graph_free(graph);
    memory_blobs_free(&blobs);
}
END_TEST

/* ---- metadata ----------------------------------------------------------------------------------------------------------- */

START_TEST(test_metadata) {
    memory_blobs blobs;
    memory_blobs_init(&blobs);
    const memory_tensor a = {"a", "U8", "1", "x", 1}, b = {"b", "U8", "1", "y", 1}, c = {"c", "U8", "1", "z", 1};
    const char *files[] = {memory_blobs_put_tensors(&blobs, "{\"z\":\"1\",\"format\":\"pt\"}", &a, 1),
                           memory_blobs_put_tensors(&blobs, "{\"format\":\"np\",\"more\":\"2\"}", &b, 1),
                           memory_blobs_put_tensors(&blobs, NULL, &c, 1)};
    fb_graph *graph = graph_with("\"a\":\"a\",\"b\":\"b\",\"c\":\"c\"", "{\"name\":\"a\",\"dtype\":\"uint8\",\"shape\":[1]},"
                                                                        "{\"name\":\"b\",\"dtype\":\"uint8\",\"shape\":[1]},"
                                                                        "{\"name\":\"c\",\"dtype\":\"uint8\",\"shape\":[1]}");
    fb_binding binding;
    ck_assert_int_eq(fb_bind(graph, files, 3, &blobs.source, NULL, &binding, NULL), FB_OK);
    ck_assert_uint_eq(binding.bound, 3);
    fb_binding_free(&binding);
    static const char *const all[] = {"a", "b", "c"};
    static const struct {
        const char *const *names;
        size_t count;
        const char *begin;
    } cases[] = {{NULL, 0, "{\"__metadata__\":{\"z\":\"1\",\"format\":\"pt\",\"more\":\"2\"},\"a\":"},
                 {all + 1, 2, "{\"__metadata__\":{\"format\":\"np\",\"more\":\"2\"},\"b\":"},
                 {all + 2, 1, "{\"c\":"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char begin[100];
        fb_weights_file *file =
            open_file(graph, &(fb_weights_choice){.names = cases[i].names, .count = cases[i].count}, &blobs);
        ck_assert_int_eq(fb_weights_file_read(file, 8, begin, strlen(cases[i].begin), NULL), FB_OK);
        ck_assert_mem_eq(begin, cases[i].begin, strlen(cases[i].begin));
        fb_weights_file_free(file);
    }
    fb_graph_free(graph);
    memory_blobs_free(&blobs);
}
END_TEST

/* A tensor under another name, one under the name that was left out, and one of which only a part is left. */
START_TEST(test_notes_of_tensors) {
    memory_blobs blobs;
    memory_blobs_init(&blobs);
    const memory_tensor tensors[] = {{"old", "U8", "1", "x", 1}, {"b", "U8", "1", "y", 1}, {"c", "U8", "2", "zz", 2}};
    const char *digest = memory_blobs_put_tensors(
        &blobs, "{\"gone\":\"old\",\"a\":\"b\",\"z\":\"c\",\"c\":\"of c\",\"old\":\"of old\",\"format\":\"c\"}", tensors, 3);
    fb_graph *graph =
        graph_with("\"new\":\"old\",\"a\":\"b\",\"part\":\"part\"",
                   "{\"name\":\"old\",\"dtype\":\"uint8\",\"shape\":[1]},{\"name\":\"b\",\"dtype\":\"uint8\",\"shape\":[1]},"
                   "{\"name\":\"c\",\"dtype\":\"uint8\",\"shape\":[2]},{\"name\":\"part\",\"dtype\":\"uint8\",\"shape\":[1],"
                   "\"recipe\":{\"op\":\"slice\",\"args\":[\"c\"],\"axis\":0,\"start\":1,\"stop\":2}}");
    fb_binding binding = bind(graph, &blobs, digest);
    fb_binding_free(&binding);
    fb_weights_file *file = open_file(graph, NULL, &blobs);
    fb_safetensors header;
    size_t size;
    unsigned char *bytes = read_all(file, SIZE_MAX / 2, &size);
    ck_assert_int_eq(fb_safetensors_read(bytes, size, &header, NULL), FB_OK);
    static const char *const expected[][2] = {{"gone", "new"}, {"b", "a"},  {"new", "of old"}, {"format", "c"},
                                              {"a", NULL},     {"z", NULL}, {"c", NULL},       {"old", NULL}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const char *value = json_string_value(json_object_get(header.metadata, expected[i][0]));
        ck_assert_msg(expected[i][1] ? value && !strcmp(value, expected[i][1]) : !value, "%s: %s", expected[i][0],
                      value ? value : "absent");
    }
    fb_safetensors_free(&header);
    free(bytes);
    fb_weights_file_free(file);
    fb_graph_free(graph);
    memory_blobs_free(&blobs);
}
END_TEST

/* ---- large -------------------------------------------------------------------------------------------------------------- */

/* A tensor of 5 GiB (of pages that are never touched but at its end) and one behind it. */
START_TEST(test_beyond_4_gib) {
    static const char digest[] = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
    static const char header[] = "{\"big\":{\"dtype\":\"U8\",\"shape\":[5368709120],\"data_offsets\":[0,5368709120]},"
                                 "\"last\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[5368709120,5368709124]}}";
    uint64_t begin = 8 + strlen(header), size = begin + 5368709124;
    unsigned char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert(bytes != MAP_FAILED);
    bytes[0] = (unsigned char)strlen(header);
    memcpy(bytes + 8, header, strlen(header));
    memcpy(bytes + size - 8, "12345678", 8);
    memory_blobs blobs;
    memory_blobs_init(&blobs);
    memory_blobs_lend(&blobs, digest, bytes, size);
    fb_graph *graph =
        graph_with("\"big\":\"big\",\"last\":\"last\"", "{\"name\":\"big\",\"dtype\":\"uint8\",\"shape\":[5368709120]},"
                                                        "{\"name\":\"last\",\"dtype\":\"uint8\",\"shape\":[4]}");
    fb_binding binding = bind(graph, &blobs, digest);
    ck_assert_uint_eq(binding.bound, 2);
    fb_binding_free(&binding);
    ck_assert_int_eq(fb_tensor_at(graph, fb_tensor_find(graph, "last"))->offset, (int64_t)(begin + 5368709120));
    for (int is_whole = 0; is_whole < 2; is_whole++) { /* laid out anew, and as it came */
        fb_weights_file *file =
            open_file(graph, &(fb_weights_choice){.tied = is_whole ? FB_TIED_AS_UPLOADED : FB_TIED_FIRST}, &blobs);
        char end[9] = {0};
        ck_assert_uint_eq(fb_weights_file_size(file) - 5368709124, is_whole ? begin : (begin + 7) / 8 * 8);
        ck_assert_int_eq(fb_weights_file_read(file, fb_weights_file_size(file) - 8, end, 8, NULL), FB_OK);
        ck_assert_str_eq(end, "12345678");
        fb_weights_file_free(file);
    }
    fb_graph_free(graph);
    memory_blobs_free(&blobs);
    munmap(bytes, size);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------------------- */

START_TEST(test_memory_runs_out) {
    memory_blobs blobs;
    memory_blobs_init(&blobs);
    fb_graph *graph = read_graph("toy");
    const char *digest = put_fixture(&blobs, "toy");
    fb_binding binding = bind(graph, &blobs, digest);
    fb_binding_free(&binding);
    const memory_blob *blob = memory_blobs_find(&blobs, digest);
    unsigned char *bytes = malloc(blob->size);
    const fb_weights_choice choice = {.tied = _i ? FB_TIED_FIRST : FB_TIED_AS_UPLOADED}; /* laid out anew, and as it came */
    for (long k = 0;; k++) {
        fb_weights_file *file = NULL;
        json_t *missing = NULL;
        fb_error error = {0};
        chaos_fail_after(k);
        fb_status status = fb_weights_file_new(graph, &choice, &blobs.source, &file, &missing, &error);
        if (!status) status = fb_weights_file_read(file, 0, bytes, blob->size, &error);
        bool failed = chaos_off();
        fb_weights_file_free(file);
        ck_assert_ptr_null(missing);
        ck_assert_uint_eq(blobs.open, 0);
        if (status) ck_assert_int_eq(status, FB_NO_MEMORY);
        else ck_assert_mem_eq(bytes, blob->bytes, blob->size);
        if (!failed) break;
    }
    free(bytes);
    fb_graph_free(graph);
    memory_blobs_free(&blobs);
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("weights_file");
    tcase_set_timeout(cases, 600);
    tcase_add_loop_test(cases, test_the_very_same_file, 0, WITH_WEIGHTS);
    tcase_add_loop_test(cases, test_optimised, 0, WITH_WEIGHTS);
    tcase_add_test(cases, test_choice);
    tcase_add_test(cases, test_not_persistent);
    tcase_add_test(cases, test_shapes);
    tcase_add_test(cases, test_no_such_dtype);
    tcase_add_test(cases, test_missing);
    tcase_add_test(cases, test_metadata);
    tcase_add_test(cases, test_notes_of_tensors);
    tcase_add_test(cases, test_beyond_4_gib);
    tcase_add_loop_test(cases, test_memory_runs_out, 0, 2);
    return run_tests("weights_file", cases);
}
