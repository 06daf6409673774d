/* Archives of torch.export: the document has the structure that the Python client's exporter gives the loaded program, and
 * what is broken is refused by name. tests/fixtures/archives/make.py made the archives and the documents. */
#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/archive/archive.h"
#include "core/archive/internal.h"
#include "core/document/document.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

#define BLOB "sha256:00000000000000000000000000000000000000000000000000000000000000aa"

/* ---- helpers ------------------------------------------------------------------------------------------------------------ */

static fb_status document_in(const void *bytes, size_t size, const char *model, fb_buffer *out, fb_error *error) {
    fb_archive archive;
    fb_work work = {0};
    fb_status status = fb_archive_open(bytes, size, NULL, &(fb_work){0}, &archive, error);
    if (!status) status = fb_archive_check(&archive, &work, error);
    if (!status) status = fb_archive_document(&archive, model, BLOB, &work, out, error);
    fb_archive_close(&archive);
    return status;
}

static fb_graph *graph_in(const void *bytes, size_t size, const char *model) {
    fb_buffer text = {0};
    fb_error error = {0};
    fb_status status = document_in(bytes, size, model, &text, &error);
    ck_assert_msg(status == FB_OK, "%s", error.message);
    fb_graph *graph = graph_of(text.data, text.size);
    fb_buffer_free(&text);
    return graph;
}

static void expect_refusal(const void *bytes, size_t size, const char *code, const char *message) {
    fb_buffer text = {0};
    fb_error error = {0};
    fb_status status = document_in(bytes, size, NULL, &text, &error);
    ck_assert_msg(status == FB_INVALID, "not refused; should say \"%s\"", message);
    ck_assert_str_eq(error.code, code);
    ck_assert_msg(strstr(error.message, message), "\"%s\" lacks \"%s\"", error.message, message);
    fb_buffer_free(&text);
}

/* ---- what PyTorch wrote ------------------------------------------------------------------------------------------------- */

static const struct {
    const char *archive, *model, *wanted;
} fixtures[] = {
    {"conv", "model", NULL},
    {"conv-core", "model", NULL},
    {"constants", "model", NULL},
    {"deflated", "model", NULL},
    {"empty", "model", NULL},
    {"half", "model", NULL},
    {"kinds", "model", NULL},
    {"mlp", "model", NULL},
    {"mutated", "model", NULL},
    {"nested", "model", NULL},
    {"mutated-training", "model", NULL},
    {"mutated-core", "model", NULL},
    {"shared", "model", NULL},
    {"sizes", "model", NULL},
    {"nested-core", "model", NULL},
    {"tied", "model", NULL},
    {"unbacked", "model", NULL},
    {"several", "one", "one"},
    {"writes-input", "model", NULL},
    {"several", "two", "two"},
};

START_TEST(test_same_structure) {
    char name[64], ours[FB_ID_LENGTH + 1], its[FB_ID_LENGTH + 1];
    size_t size;
    snprintf(name, sizeof name, "%s.pt2", fixtures[_i].archive);
    char *bytes = read_fixture("archives", name, &size);
    json_t *documents = json_load_file("tests/fixtures/archives/documents.json", 0, NULL);
    const json_t *models = json_object_get(documents, fixtures[_i].archive);
    char *text = json_dumps(json_object_get(models, fixtures[_i].model), 0);
    fb_graph *graph = graph_in(bytes, size, fixtures[_i].wanted), *exported = graph_of(text, strlen(text));
    ck_assert(fb_document_structure(graph, ours) && fb_document_structure(exported, its));
    ck_assert_msg(strcmp(ours, its) == 0, "%s has another structure", name);
    fb_graph_free(graph);
    fb_graph_free(exported);
    json_decref(documents);
    free(bytes);
    free(text);
}
END_TEST

/* A tensor's bytes are those of its record. */
START_TEST(test_tensors_point_into_the_archive) {
    size_t size;
    char *bytes = read_fixture("archives", "shared.pt2", &size);
    fb_graph *graph = graph_in(bytes, size, NULL);
    size_t seen = 0;
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) {
        const fb_tensor_row *row = fb_tensor_at(graph, t);
        float values[24];
        if (strcmp(fb_text(graph, row->name), "whole") == 0) {
            ck_assert_str_eq(fb_text(graph, row->blob), BLOB);
            memcpy(values, bytes + row->offset, sizeof values);
            for (int i = 0; i < 24; i++) ck_assert(values[i] == (float)i);
            seen++;
        }
        if (strcmp(fb_text(graph, row->name), "lone") == 0) { /* rows 2 and 3 of a record of 8 */
            memcpy(values, bytes + row->offset, 10 * sizeof *values);
            for (int i = 0; i < 10; i++) ck_assert(values[i] == (float)(10 + i));
            seen++;
        }
        if (strcmp(fb_text(graph, row->name), "strided") == 0) {
            ck_assert_msg(row->data.id, "a transposed tensor is no range of bytes");
            seen++;
        }
    }
    ck_assert_uint_eq(seen, 3);
    fb_graph_free(graph);
    free(bytes);
}
END_TEST

START_TEST(test_a_model_must_be_named) {
    size_t size;
    char *bytes = read_fixture("archives", "several.pt2", &size);
    expect_refusal(bytes, size, "bad-archive", "2 models, so one must be named: one, two");
    fb_buffer text = {0};
    fb_error error = {0};
    ck_assert_int_eq(document_in(bytes, size, "three", &text, &error), FB_INVALID);
    ck_assert(strstr(error.message, "no model \"three\"; it has one, two"));
    fb_buffer_free(&text);
    free(bytes);
}
END_TEST

/* ---- damaged containers ------------------------------------------------------------------------------------------------- */

/* No byte may be lost or changed without being told. */
START_TEST(test_cut_off) {
    size_t size;
    char *bytes = read_fixture("archives", "tied.pt2", &size);
    for (size_t length = 0; length < size; length += length + 64 < size ? 61 : 1) {
        char *part = malloc(length + 1); /* no more, so that reading beyond it is seen */
        if (!part) abort();
        memcpy(part, bytes, length);
        expect_refusal(part, length, "bad-archive", "");
        free(part);
    }
    free(bytes);
}
END_TEST

START_TEST(test_flipped_bytes) {
    size_t size;
    char *bytes = read_fixture("archives", "mlp.pt2", &size);
    fb_archive archive;
    fb_error error = {0};
    ck_assert_int_eq(fb_archive_open(bytes, size, NULL, &(fb_work){0}, &archive, &error), FB_OK);
    size_t count = archive.zip.count;
    for (size_t i = 0; i < count; i++) {
        fb_zip_entry entry = archive.zip.entries[i];
        char name[200];
        snprintf(name, sizeof name, "\"%s\"", entry.name);
        bytes[entry.offset + entry.size / 2] ^= 1;
        expect_refusal(bytes, size, "bad-archive", name);
        bytes[entry.offset + entry.size / 2] ^= 1;
    }
    fb_archive_close(&archive);
    free(bytes);
}
END_TEST

typedef struct file {
    const char *name, *content;
    uint32_t flags, method, size; /* a size of 0 is that of the content */
    int64_t at;                   /* another place than its own; 0 = its own */
} file;

static void put(fb_buffer *out, uint64_t value, int size) {
    for (int i = 0; i < size; i++) fb_buffer_char(out, (char)(unsigned char)(i < 8 ? value >> (8 * i) : 0));
}

static void put_header(fb_buffer *out, const file *f, bool is_central, size_t at) {
    size_t length = strlen(f->content);
    fb_buffer_append(out, is_central ? "PK\1\2\24\0" : "PK\3\4", is_central ? 6 : 4);
    put(out, 20, 2);
    put(out, f->flags, 2);
    put(out, f->method, 2);
    put(out, 0, 4);
    put(out, crc32(0, (const unsigned char *)f->content, (unsigned)length), 4);
    put(out, length, 4);
    put(out, f->size ? f->size : length, 4);
    put(out, strlen(f->name), 2);
    put(out, 0, 2);
    if (is_central) put(out, 0, 10);
    if (is_central) put(out, f->at ? (uint64_t)f->at : at, 4);
    fb_buffer_string(out, f->name);
}

static void zip_of(const file *files, size_t count, fb_buffer *out) {
    size_t at[16];
    for (size_t i = 0; i < count; i++) {
        at[i] = out->size;
        put_header(out, &files[i], false, 0);
        fb_buffer_string(out, files[i].content);
    }
    size_t directory = out->size;
    for (size_t i = 0; i < count; i++) put_header(out, &files[i], true, at[i]);
    size_t end = out->size;
    fb_buffer_append(out, "PK\5\6\0\0\0\0", 8);
    put(out, count, 2);
    put(out, count, 2);
    put(out, end - directory, 4);
    put(out, directory, 4);
    put(out, 0, 2);
}

#define MARKS                                                                                                                  \
    {.name = "a/archive_format", .content = "pt2"}, {"a/archive_version", "0"}, {                                              \
        "a/.data/version", "6"                                                                                                 \
    }

/* Fields that are not given are 0 on purpose. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
static const struct {
    file files[6];
    const char *code, *message;
} containers[] = {
    {{MARKS, {.name = "a/x", .content = "1"}, {.name = "a/x", .content = "2"}},
     "bad-archive",
     "\"a/x\" of the zip archive is there twice"},
    {{MARKS, {.name = "a/../x", .content = "1"}}, "bad-archive", "leaves its folder"},
    {{{.name = "/a/x", .content = "1"}}, "bad-archive", "absolute name"},
    {{MARKS, {.name = "a\\x", .content = "1"}}, "bad-archive", "a character in its name"},
    {{MARKS, {.name = "a/\xff", .content = "1"}}, "bad-archive", "not UTF-8"},
    {{MARKS, {.name = "b/x", .content = "1"}}, "bad-archive", "\"b/x\" is not in the folder a/"},
    {{{.name = "x", .content = "1"}}, "bad-archive", "not in a folder"},
    {{MARKS, {.name = "a/x", .content = "1", .flags = 1}}, "bad-archive", "encrypted"},
    {{MARKS, {.name = "a/x", .content = "1", .method = 12}}, "bad-archive", "not supported"},
    {{MARKS, {.name = "a/x", .content = "1", .size = 2}}, "bad-archive", "two sizes"},
    {{MARKS, {.name = "a/x", .content = "1", .method = 8, .size = 100000}}, "bad-archive", "promises more"},
    {{{.name = "a/archive_format", .content = "1", .method = 8}}, "bad-archive", "cannot be inflated"},
    {{MARKS, {.name = "a/x", .content = "1", .at = 7}}, "bad-archive", "is not where the directory says"},
    {{MARKS, {.name = "a/x", .content = "1", .at = 1 << 30}}, "bad-archive", "lies beyond its end"},
    {{{.name = "a/x", .content = "1"}}, "bad-archive", "this is a zip archive"},
    {{{.name = "a/archive_format", .content = "pt3"}}, "unsupported-archive", "does not say \"pt2\""},
    {{MARKS, {.name = "a/byteorder", .content = "big"}}, "unsupported-archive", "does not say \"little\""},
    {{{"a/archive_format", "pt2"}, {"a/archive_version", "0"}}, "bad-archive", ".data/version is missing"},
    {{MARKS}, "bad-archive", "no models/*.json"},
    {{MARKS, {.name = "a/models/m.json", .content = "{"}}, "bad-archive", "models/m.json: it is not valid JSON"},
    {{MARKS, {.name = "a/models/m.json", .content = "[]"}}, "bad-archive", "models/m.json: it is not a JSON object"},
    {{MARKS, {.name = "a/models/m.json", .content = "{}"}}, "bad-archive", "the schema_version is missing"},
    {{MARKS, {.name = "a/models/m.json", .content = "{\"schema_version\":{\"major\":9}}"}},
     "unsupported-archive",
     "schema_version is 9"},
    {{MARKS, {.name = "a/models/m.json", .content = "{\"schema_version\":{\"major\":8}}"}},
     "bad-archive",
     "data/sample_inputs/m.pt is missing"},
};

START_TEST(test_containers) {
    fb_buffer bytes = {0};
    size_t count = 0;
    while (count < 6 && containers[_i].files[count].name) count++;
    zip_of(containers[_i].files, count, &bytes);
    expect_refusal(bytes.data, bytes.size, containers[_i].code, containers[_i].message);
    fb_buffer_free(&bytes);
}
END_TEST

/* ---- changed programs --------------------------------------------------------------------------------------------------- */

/* The archive with one text of one entry replaced by another. */
static void replace_in(const char *fixture, const char *entry_name, const char *from, const char *to, fb_buffer *out) {
    size_t size;
    char *bytes = read_fixture("archives", fixture, &size);
    fb_archive archive;
    fb_error error = {0};
    fb_work work = {0};
    ck_assert_int_eq(fb_archive_open(bytes, size, NULL, &(fb_work){0}, &archive, &error), FB_OK);
    file files[16] = {{0}};
    char *contents[16] = {0};
    size_t count = 0;
    for (size_t i = 0; i < archive.zip.count; i++) {
        const fb_zip_entry *entry = &archive.zip.entries[i];
        ck_assert_int_eq(fb_zip_read(&archive.zip, entry, 1 << 20, &work, &contents[count], &error), FB_OK);
        bool is_text = strlen(contents[count]) == entry->size;
        char *at = is_text && strstr(entry->name, entry_name) ? strstr(contents[count], from) : NULL;
        ck_assert_msg(!strstr(entry->name, entry_name) || at, "%s lacks %s", entry->name, from);
        if (at) {
            char *changed = malloc(entry->size + strlen(to) + 1);
            if (!changed) abort();
            sprintf(changed, "%.*s%s%s", (int)(at - contents[count]), contents[count], to, at + strlen(from));
            free(contents[count]);
            contents[count] = changed;
        } else if (!is_text) { /* of a record only the size matters */
            memset(contents[count], 'x', entry->size);
        }
        files[count].name = entry->name;
        files[count].content = contents[count];
        count++;
    }
    zip_of(files, count, out);
    fb_archive_close(&archive);
    for (size_t i = 0; i < count; i++) free(contents[i]);
    free(bytes);
}

static const struct {
    const char *fixture, *entry, *from, *to, *code, *message;
} changes[] = {
    {"tied.pt2", "models/", "\"major\": 8", "\"major\": 7", "unsupported-archive", "the schema_version is 7"},
    {"tied.pt2", "models/", "\"as_tensor\": {\"name\": \"embedding\"}", "\"as_tensor\": {\"name\": \"nothing\"}", "bad-archive",
     "\"nothing\""},
    {"tied.pt2", "models/", "torch.ops.aten.linear.default", "os.system", "unsupported-archive", "\"linear\" calls os.system"},
    {"tied.pt2", "models/", "torch.ops.aten.linear.default", "_operator.call", "unsupported-archive", "calls _operator.call"},
    {"tied.pt2", "models/", "\"embedding\": {\"dtype\"", "\"other\": {\"dtype\"", "bad-archive",
     "tensor_values lacks \"embedding\""},
    {"tied.pt2", "models/", "{\"parameter\": {\"arg\"", "{\"token\": {\"arg\"", "unsupported-archive",
     "an input of the kind token"},
    {"tied.pt2", "models/", "\"name\": \"input\", \"arg\"", "\"name\": \"weight\", \"arg\"", "unsupported-archive",
     "another order"},
    {"tied.pt2", "models/", "\"verifiers\": [\"TRAINING\"]", "\"verifiers\": []", "bad-archive", "verifiers are missing"},
    {"tied.pt2", "models/", "\"parameter_name\": \"head.weight\"", "\"parameter_name\": \"gone\"", "bad-archive",
     "\"gone\" is missing"},
    {"mlp.pt2", "models/", "Symbol('s", "Strange('s", "unsupported-archive", "has the size Strange('s"},
    {"tied.pt2", "models/", "[{\"as_tensor\": {\"name\": \"embedding\"",
     "[{\"as_custom_obj\": {\"class_fqn\": \"x\", \"name\": \"embedding\"", "unsupported-archive",
     "the result of \"embedding\" is of the kind as_custom_obj"},
    {"mlp.pt2", "models/", "\"outputs\": [{\"as_tensors\"", "\"outputs\": [{\"as_custom_obj\"", "bad-archive",
     "as_custom_obj is not an object of \"CustomObjArgument\""},
    {"tied.pt2", "models/", "\"requires_grad\": true", "\"requires_grad\": 1", "bad-archive",
     "/requires_grad is not of the kind \"bool\""},
    {"tied.pt2", "models/", "\"strides\": [{\"as_int\"", "\"strides\": [{\"as_none\"", "bad-archive",
     "/strides/0 is of an unknown kind, \"as_none\""},
    {"tied.pt2", "models/", "\"strides\": [{", "\"strides\": [{\"as_int\": 1}, {", "bad-archive", "are incomplete"},
    {"tied.pt2", "weights_config", "\"strides\": [{", "\"strides\": [{\"as_int\": 1}, {", "bad-archive", "is incomplete"},
    {"tied.pt2", "weights_config", "\"type\": \"cpu\"", "\"type\": 3", "bad-archive",
     "/device/type is not of the kind \"str\""},
    {"tied.pt2", "weights_config", "\"use_pickle\": false", "\"use_pickle\": true", "unsupported-archive",
     "\"embed.weight\" is a Python pickle"},
    {"tied.pt2", "weights_config", "\"as_int\": 6", "\"as_int\": 7", "bad-archive",
     "larger than its record data/weights/weight_0"},
    {"tied.pt2", "weights_config", "\"as_int\": 6", "\"as_int\": 4611686018427387904", "bad-archive", "larger than its record"},
    {"tied.pt2", "weights_config", "\"as_int\": 6", "\"as_int\": -6", "bad-archive", "not whole numbers"},
    {"tied.pt2", "weights_config", "\"layout\": 7", "\"layout\": 1", "unsupported-archive", "not strided"},
    {"tied.pt2", "weights_config", "\"dtype\": 7", "\"dtype\": 99", "unsupported-archive", "has the dtype 99"},
    {"tied.pt2", "weights_config", "weight_0", "../../x", "bad-archive", "the record data/weights/../../x"},
    {"tied.pt2", "weights_config", "\"config\"", "\"confix\"", "bad-archive", "it lacks \"config\""},
    /* What is only kept here, and torch.export.load refuses. */
    {"tied.pt2", "models/", "\"module_call_graph\"", "\"call_graph\"", "bad-archive",
     "/graph_module lacks \"module_call_graph\""},
    {"tied.pt2", "models/", "\"opset_version\"", "\"opsets\"", "bad-archive", "it lacks \"opset_version\""},
    {"tied.pt2", "models/", "\"range_constraints\": {", "\"range_constraints\": [], \"x\": {", "bad-archive",
     "/range_constraints is not an object of \"RangeConstraint\""},
    {"tied.pt2", "models/", "\"minor\": 20", "\"minor\": \"20\"", "bad-archive",
     "/schema_version/minor is not of the kind \"int\""},
    {"tied.pt2", "models/", "\"sym_bool_values\"", "\"bools\"", "bad-archive", "/graph_module/graph lacks \"sym_bool_values\""},
    {"tied.pt2", "models/", "\"metadata\": {\"nn_module_stack\"", "\"metadata\": {\"mark\": 1, \"nn_module_stack\"",
     "bad-archive", "/graph_module/graph/nodes/0/metadata/mark is not of the kind \"str\""},
    {"tied.pt2", "models/", "{\"user_input\": {\"arg\"", "{\"user_input\": {\"argument\"", "bad-archive", "lacks \"arg\""},
    {"tied.pt2", "models/", "\"out_spec\": \"", "\"out_spec\": 1, \"x\": \"", "bad-archive",
     "/graph_module/module_call_graph/0/signature/out_spec is not of the kind \"str\""},
    {"unbacked.pt2", "models/", "\"sym_int_values\": {\"", "\"sym_int_values\": {\"no_", "bad-archive",
     "in none of the graph's tables of values"},
    {"kinds.pt2", "models/", "\"as_float\": ", "\"as_float\": \"text\", \"x\": ", "bad-archive", ""},
    {"tied.pt2", "weights_config", "\"use_pickle\": false", "\"pickle\": false", "bad-archive", "lacks \"use_pickle\""},
    {"tied.pt2", "weights_config", "\"requires_grad\"", "\"grad\"", "bad-archive", "lacks \"requires_grad\""},
};

START_TEST(test_changed_programs) {
    fb_buffer bytes = {0};
    replace_in(changes[_i].fixture, changes[_i].entry, changes[_i].from, changes[_i].to, &bytes);
    expect_refusal(bytes.data, bytes.size, changes[_i].code, changes[_i].message);
    fb_buffer_free(&bytes);
}
END_TEST

/* What PyTorch's loader accepts is read: a newer minor version, members that are not known. */
START_TEST(test_accepted_changes) {
    static const char *const accepted[][2] = {
        {"\"minor\": 20", "\"minor\": 21, \"more\": [1]"},
        {"\"metadata\": {\"nn_module_stack\"", "\"metadata\": {\"mark\": \"x\", \"nn_module_stack\""}};
    for (size_t i = 0; i < 2; i++) {
        fb_buffer bytes = {0};
        replace_in("tied.pt2", "models/", accepted[i][0], accepted[i][1], &bytes);
        fb_graph_free(graph_in(bytes.data, bytes.size, NULL));
        fb_buffer_free(&bytes);
    }
}
END_TEST

START_TEST(test_a_record_of_two_dtypes) {
    fb_buffer bytes = {0};
    replace_in("tied.pt2", "weights_config", "\"dtype\": 7", "\"dtype\": 4", &bytes);
    fb_graph *graph = graph_in(bytes.data, bytes.size, NULL);
    int carried = 0;
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) {
        ck_assert(!fb_tensor_at(graph, t)->recipe.id);
        carried += fb_tensor_is_carried(graph, t);
    }
    ck_assert_int_eq(carried, 2);
    fb_graph_free(graph);
    fb_buffer_free(&bytes);
}
END_TEST

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

#define S "Symbol('s0', positive=True, integer=True)"
#define T "Symbol('s1', positive=True, integer=True)"
#define U "Symbol('u0', integer=True)"

/* Printed by sympy 1.14 with PyTorch 2.13; NULL for what is not told. */
static const char *const sizes[][2] = {
    {S, "s0"},
    {"Integer(-3)", "-3"},
    {"Mul(Integer(2), " S ")", "2*s0"},
    {"Mul(Integer(-1), " S ")", "-s0"},
    {"Add(Mul(" S ", " T "), Mul(Integer(-1), " T "), Integer(1))", "s0*s1 - s1 + 1"},
    {"Add(Mul(Integer(-1), Integer(2), " S ", " T "), Integer(-3))", "-2*s0*s1 - 3"},
    {"Pow(Add(" S ", Integer(1)), Integer(2))", "(s0 + 1)**2"},
    {"Mul(Add(" S ", Integer(1)), Add(" T ", Integer(-1)))", "(s0 + 1)*(s1 - 1)"},
    {"FloorDiv(" S ", Integer(2))", "(s0//2)"},
    {"Add(FloorDiv(Add(" S ", Integer(1)), Integer(2)), Integer(1))", "(((s0 + 1)//2)) + 1"},
    {"Mul(Integer(3), " T ", FloorDiv(Mul(" S ", " T "), Integer(2)))", "3*s1*(((s0*s1)//2))"},
    {"Add(Mod(" S ", Integer(3)), Integer(1))", "(Mod(s0, 3)) + 1"},
    {"Mul(Integer(2), PythonMod(" S ", Integer(3)))", "2*(PythonMod(s0, 3))"},
    {"Max(Integer(1), " U ")", "Max(1, u0)"},
    {"Min(Integer(3), Add(" U ", Integer(1)))", "Min(3, u0 + 1)"},
    {"Mul(Integer(2), Pow(" U ", Integer(3)))", "2*u0**3"},
    {"Add(" S ", Mul(Integer(-1), " T ", Add(" U ", Integer(1))))", "s0 - s1*(u0 + 1)"},
    {"Add(" S ", Mul(Integer(-1), FloorDiv(" U ", Integer(3))))", "s0 - ((u0//3))"},
    {"FloorDiv(Mul(Integer(-1), " U "), Integer(3))", "((-u0)//3)"},
    {"Mul(" T ", Add(Mul(Integer(-1), " S "), Integer(-1)))", "s1*(-s0 - 1)"},
    {"Pow(FloorDiv(" S ", Integer(2)), Integer(2))", "((s0//2))**2"},
    {"FloorDiv(Add(" S ", Integer(-1)), FloorDiv(" T ", Integer(2)))", "((s0 - 1)//((s1//2)))"},
    {"CeilToInt(IntTrueDiv(" S ", Integer(2)))", "CeilToInt(IntTrueDiv(s0, 2))"},
    {"Mul(Rational(1, 2), " S ")", NULL},
    {"Max(" S ", " U ")", NULL},
    {"Pow(" S ", Integer(-1))", NULL},
    {"__import__('os')", NULL},
    {"Mul(Integer(2), " S, NULL},
    {"Mul()", NULL},
    {"", NULL},
};

START_TEST(test_sizes) {
    fb_buffer out = {0};
    bool ok = fb_print_size(sizes[_i][0], strlen(sizes[_i][0]), &out);
    ck_assert_msg(ok == (sizes[_i][1] != NULL), "%s", sizes[_i][0]);
    if (ok) ck_assert_str_eq(fb_buffer_text(&out), sizes[_i][1]);
    fb_buffer_free(&out);
}
END_TEST

START_TEST(test_memory_runs_out) {
    static const char *const names[] = {"nested.pt2", "shared.pt2", "deflated.pt2"};
    size_t size;
    char *bytes = read_fixture("archives", names[_i], &size);
    for (long k = 0;; k++) {
        fb_buffer text = {0};
        fb_error error = {0};
        chaos_fail_after(k);
        fb_status status = document_in(bytes, size, NULL, &text, &error);
        bool has_failed = chaos_off();
        fb_buffer_free(&text);
        if (!has_failed) break;
        ck_assert_msg(status == FB_NO_MEMORY, "allocation %ld: %d %s", k, status, error.message);
    }
    free(bytes);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("archives");
    tcase_add_loop_test(tests, test_same_structure, 0, sizeof fixtures / sizeof *fixtures);
    tcase_add_test(tests, test_tensors_point_into_the_archive);
    tcase_add_test(tests, test_a_model_must_be_named);
    tcase_add_test(tests, test_cut_off);
    tcase_add_test(tests, test_flipped_bytes);
    tcase_add_loop_test(tests, test_containers, 0, sizeof containers / sizeof *containers);
    tcase_add_loop_test(tests, test_changed_programs, 0, sizeof changes / sizeof *changes);
    tcase_add_test(tests, test_accepted_changes);
    tcase_add_test(tests, test_a_record_of_two_dtypes);
    tcase_add_loop_test(tests, test_sizes, 0, sizeof sizes / sizeof *sizes);
    tcase_add_loop_test(tests, test_memory_runs_out, 0, 3);
    tcase_set_timeout(tests, 600);
    return run_tests("archive", tests);
}
