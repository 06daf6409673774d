/* Documents: what is read is written as it was, in one form. */
#include "tests/unit/checks.h"
#include <stdlib.h>
#include <string.h>

#include "core/document/document.h"
#include "core/graph/build.h"
#include "core/json/json.h"
#include "core/json/scan.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

static char *written(const fb_graph *graph) {
    fb_buffer out = {0};
    fb_document_write(graph, &out);
    return fb_buffer_take(&out, NULL);
}

static void expect_canonical(const char *text, const char *canonical) {
    fb_graph *graph = graph_of(text, strlen(text));
    char *bytes = written(graph);
    ck_assert_str_eq(bytes, canonical);
    fb_graph_free(graph);
    graph = graph_of(bytes, strlen(bytes));
    char *again = written(graph);
    ck_assert_str_eq(again, bytes);
    fb_graph_free(graph);
    free(again);
    free(bytes);
}

/* ---- fixtures ---------------------------------------------------------------------------------------------------------- */

START_TEST(test_fixture_ids) {
    const char *name = fixture_names[_i];
    size_t size;
    char *text = read_fixture(name, "graph.json", &size);
    const fixture_ids ids = read_fixture_ids(name);
    fb_graph *graph = graph_of(text, size);
    char id[FB_ID_LENGTH + 1], structure[FB_ID_LENGTH + 1], same[FB_ID_LENGTH + 1];
    ck_assert(fb_document_id(graph, id));
    ck_assert(fb_document_structure(graph, structure));
    ck_assert_str_eq(ids.graph, id);
    ck_assert_str_eq(ids.structure, structure);

    fb_buffer bytes = {0};
    fb_buffer_string(&bytes, "before");
    ck_assert(fb_document_write_marked(graph, &(fb_work){0}, &bytes, NULL, same));
    ck_assert_str_eq(same, id);
    fb_graph *copy = graph_of(bytes.data + 6, bytes.size - 6);
    fb_buffer again = {0};
    ck_assert(fb_document_write_marked(copy, &(fb_work){0}, &again, NULL, same));
    ck_assert_str_eq(same, id);
    ck_assert_uint_eq(again.size, bytes.size - 6);
    ck_assert_mem_eq(again.data, bytes.data + 6, again.size);
    fb_buffer_free(&again);
    fb_buffer_free(&bytes);
    fb_graph_free(copy);
    fb_graph_free(graph);
    free(text);
}
END_TEST

/* ---- other spellings of one document ----------------------------------------------------------------------------------- */

static uint64_t random_state;

static size_t random_below(size_t limit) {
    random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (size_t)(random_state >> 33) % limit;
}

static void add_space(fb_buffer *out) {
    while (random_below(4) == 0) fb_buffer_char(out, " \n\t\r"[random_below(4)]);
}

/* ASCII characters are sometimes written as escapes. */
static void add_string(fb_buffer *out, const fb_json *string) {
    fb_buffer_char(out, '"');
    for (uint32_t i = 0; i < string->count; i++) {
        unsigned char c = (unsigned char)string->text[i];
        if (c < 0x20 || c == '"' || c == '\\' || (c < 0x80 && random_below(8) == 0)) {
            fb_buffer_printf(out, random_below(2) ? "\\u%04x" : "\\u%04X", c);
        } else {
            fb_buffer_char(out, (char)c);
        }
    }
    fb_buffer_char(out, '"');
}

static void add_shuffled(fb_buffer *out, const fb_json *value, bool keeps_order);

static void add_members(fb_buffer *out, const fb_json *object, bool keeps_order) {
    const fb_json **keys = calloc(object->count + 1, sizeof *keys), *key = fb_json_first(object);
    for (uint32_t i = 0; i < object->count; i++, key = fb_json_next(key + 1)) keys[i] = key;
    for (size_t i = object->count; i > 1 && !keeps_order; i--) {
        size_t j = random_below(i);
        const fb_json *moved = keys[j];
        keys[j] = keys[i - 1];
        keys[i - 1] = moved;
    }
    for (uint32_t i = 0; i < object->count; i++) {
        if (i) fb_buffer_char(out, ',');
        add_space(out);
        add_string(out, keys[i]);
        add_space(out);
        fb_buffer_char(out, ':');
        /* Of these the order of members means something. */
        bool is_ordered = fb_json_is(keys[i], "kwargs") || fb_json_is(keys[i], "parameters") || fb_json_is(keys[i], "buffers");
        add_shuffled(out, keys[i] + 1, is_ordered);
    }
    free(keys);
}

static void add_shuffled(fb_buffer *out, const fb_json *value, bool keeps_order) {
    add_space(out);
    if (value->kind == FB_JSON_STRING) {
        add_string(out, value);
    } else if (value->kind == FB_JSON_ARRAY) {
        fb_buffer_char(out, '[');
        const fb_json *item = fb_json_first(value);
        for (uint32_t i = 0; i < value->count; i++, item = fb_json_next(item)) {
            if (i) fb_buffer_char(out, ',');
            add_shuffled(out, item, false);
        }
        fb_buffer_char(out, ']');
    } else if (value->kind == FB_JSON_OBJECT) {
        fb_buffer_char(out, '{');
        add_members(out, value, keeps_order);
        fb_buffer_char(out, '}');
    } else {
        ck_assert(fb_json_canonical(value, out));
    }
    add_space(out);
}

START_TEST(test_other_spellings_have_the_same_id) {
    size_t size;
    char *text = read_fixture(fixture_names[_i], "graph.json", &size);
    fb_graph *graph = graph_of(text, size);
    char id[FB_ID_LENGTH + 1], same[FB_ID_LENGTH + 1];
    ck_assert(fb_document_id(graph, id));
    fb_graph_free(graph);
    fb_scan scan;
    fb_scan_init(&scan, text, size, 64);
    const fb_json *tree = fb_scan_value(&scan);
    ck_assert_ptr_nonnull(tree);
    for (int round = 0; round < 5; round++) {
        random_state = (uint64_t)(_i * 100 + round);
        fb_buffer shuffled = {0};
        add_shuffled(&shuffled, tree, false);
        graph = graph_of(shuffled.data, shuffled.size);
        ck_assert(fb_document_id(graph, same));
        ck_assert_str_eq(same, id);
        fb_graph_free(graph);
        fb_buffer_free(&shuffled);
    }
    fb_scan_free(&scan);
    free(text);
}
END_TEST

/* ---- canonical form ---------------------------------------------------------------------------------------------------- */

#define HEAD "{\"format\":\"foldback.graph/1\",\"name\":\"\",\"nodes\":["
#define ROOT "{\"path\":\"\",\"type\":\"torch.nn.Module\",\"config\":{},\"parameters\":{},\"buffers\":{},\"training\":false}"
#define TAIL "],\"modules\":[" ROOT "],\"tensors\":[],\"metadata\":{}}"
#define X "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\",\"args\":[],\"kwargs\":{},\"meta\":{}}"
#define OUTPUT(value)                                                                                                          \
    "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[" value "],\"kwargs\":{},\"meta\":{}}"

static const struct {
    const char *given, *canonical; /* NULL: as given */
} values[] = {
    {"null", NULL},
    {"[true,false,\"text\",[]]", NULL},
    {"0", NULL},
    {"-0", "0"},
    {"9007199254740991", NULL},
    {"-9007199254740991", NULL},
    {"9007199254740992", "{\"$int\":\"9007199254740992\"}"},
    {"-9007199254740992", "{\"$int\":\"-9007199254740992\"}"},
    {"9223372036854775807", "{\"$int\":\"9223372036854775807\"}"},
    {"-9223372036854775808", "{\"$int\":\"-9223372036854775808\"}"},
    {"{\"$int\":\"007\"}", "7"},
    {"{\"$int\":\"-0\"}", "0"},
    {"{\"$int\":\"9223372036854775808\"}", NULL},
    {"{\"$int\":\"-09223372036854775809\"}", "{\"$int\":\"-9223372036854775809\"}"},
    {"{\"$int\":\"123456789012345678901234567890\"}", NULL},
    {"0.5", NULL},
    {"1e-5", "1e-05"},
    {"5e-324", NULL},
    {"1e-400", "{\"$float\":\"0.0\"}"},
    {"8.0", "{\"$float\":\"8.0\"}"},
    {"1e5", "{\"$float\":\"100000.0\"}"},
    {"1E+16", "{\"$float\":\"1e+16\"}"},
    {"-0.0", "{\"$float\":\"-0.0\"}"},
    {"0.1000000000000000055511151231257827", "0.1"},
    {"123456789012345678901234567890.5", "{\"$float\":\"1.2345678901234568e+29\"}"},
    {"2.2250738585072011e-308", "2.225073858507201e-308"},
    {"{\"$float\":\"0.5\"}", "0.5"},
    {"{\"$float\":\"8\"}", "{\"$float\":\"8.0\"}"},
    {"{\"$float\":\"1e5\"}", "{\"$float\":\"100000.0\"}"},
    {"{\"$float\":\"inf\"}", NULL},
    {"{\"$float\":\"-inf\"}", NULL},
    {"{\"$float\":\"nan\"}", NULL},
    {"{\"$float\":\"-0.0\"}", NULL},
    {"{\"$tuple\":[{\"$node\":\"x\"},1]}", NULL},
    {"{\"$dict\":[[\"b\",1],[\"a\",{\"$node\":\"x\"}],[{\"$tuple\":[1]},2]]}", NULL},
    {"{\"$size\":[2,{\"$node\":\"x\"}]}", NULL},
    {"{\"$namedtuple\":[\"collections.Point\",[1,2]]}", NULL},
    {"{\"$slice\":[null,{\"$node\":\"x\"},null]}", NULL},
    {"{\"$ellipsis\":true}", NULL},
    {"{\"$complex\":[1,{\"$float\":\"-0.0\"}]}", NULL},
    {"{\"$complex\":[0.5,2.0]}", "{\"$complex\":[0.5,{\"$float\":\"2.0\"}]}"},
    {"{\"$dtype\":\"float32\"}", NULL},
    {"{\"$device\":\"cuda:1\"}", NULL},
    {"{\"$layout\":\"strided\"}", NULL},
    {"{\"$memory_format\":\"contiguous_format\"}", NULL},
    {"{\"$enum\":[\"module.Class\",\"NAME\"]}", NULL},
    {"{\"$ref\":\"torch.nn.functional.relu\"}", NULL},
    {"{\"$opaque\":\"<object at 0x7f>\"}", NULL},
    {"\"\\u00e9\\ud83d\\ude00\\n\\u001f\\/\\\"\\\\\"", "\"\xC3\xA9\xF0\x9F\x98\x80\\n\\u001f/\\\"\\\\\""},
    {"\"\x7F\xE2\x80\xA8\"", NULL},
};

START_TEST(test_canonical_values) {
    fb_buffer given = {0}, canonical = {0};
    fb_buffer_printf(&given, HEAD X "," OUTPUT("%s") TAIL, values[_i].given);
    fb_buffer_printf(&canonical, HEAD X "," OUTPUT("%s") TAIL, values[_i].canonical ? values[_i].canonical : values[_i].given);
    expect_canonical(fb_buffer_text(&given), fb_buffer_text(&canonical));
    fb_buffer_free(&given);
    fb_buffer_free(&canonical);
}
END_TEST

START_TEST(test_canonical_members) {
    /* Everything that has a place, in the wrong order, with defaults spelled out and left out. */
    expect_canonical(
        "{\"tensors\":[{\"z\":{\"b\":8.0,\"a\":[1e16,-0]},\"shape\":[2,3.0],\"requires_grad\":true,\"dtype\":\"float32\","
        "\"name\":\"w\"},"
        "{\"requires_grad\":false,\"dtype\":\"float16\",\"shape\":[],\"name\":\"b\",\"data\":\"AAA=\"},"
        "{\"name\":\"r\",\"dtype\":\"float32\",\"shape\":[4,3],\"recipe\":{\"axis\":0,\"args\":[\"w\",{\"op\":\"full\","
        "\"value\":1.0,"
        "\"shape\":[2,3],\"args\":[]}],\"op\":\"concat\"}},"
        "{\"name\":\"i\",\"dtype\":\"int64\",\"shape\":[0],\"offset\":24,\"requires_grad\":false,\"blob\":\"sha256:"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"digest\":\"sha256:"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}],"
        "\"modules\":[{\"type\":\"torch.nn.Module\",\"path\":\"\",\"training\":false,\"zz\":{},\"parameters\":{\"w\":\"w\","
        "\"b\":\"b\","
        "\"a\":null},\"buffers\":{\"r\":\"r\",\"i\":\"i\"},\"non_persistent\":[\"r\"],\"attributes\":{\"scale\":2.0,\"alpha\":["
        "1]},"
        "\"config\":{\"z\":1,\"a\":{\"$tuple\":[]}}},"
        "{\"graph\":{\"nodes\":[{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[null]}]},"
        "\"path\":\"inner\",\"type\":\"torch.fx.GraphModule\",\"training\":true,\"non_persistent\":[],\"attributes\":{}}],"
        "\"metadata\":{\"b\":9007199254740993,\"a\":{\"y\":1.50,\"x\":null}},\"name\":\"every\\tthing\","
        "\"nodes\":[{\"meta\":{\"transformations\":[],\"zebra\":1,\"shape\":[\"s0\",2],\"dtype\":\"float32\",\"apple\":8.0,"
        "\"is_wrapped\":false},\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"*x\",\"type\":\"torch.Tensor\"},"
        "{\"op\":\"get_attr\",\"name\":\"g\",\"target\":\"scale\"},{\"op\":\"get_attr\",\"name\":\"h\",\"target\":\"inner\"},"
        "{\"name\":\"f\",\"op\":\"call_function\",\"target\":\"torch.f\",\"kwargs\":{\"b\":{\"$node\":\"g\"},\"a\":{\"$node\":"
        "\"h\"}},"
        "\"meta\":{\"transformations\":[\"00000000000000000000000000000001\"],\"is_wrapped\":true}},"
        "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"f\"}]}],"
        "\"f\\u006frmat\":\"foldback.graph/1\"}",
        "{\"format\":\"foldback.graph/1\",\"name\":\"every\\tthing\",\"nodes\":["
        "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"*x\",\"args\":[],\"kwargs\":{},\"type\":\"torch.Tensor\",\"meta\":"
        "{\"apple\":8.0,\"dtype\":\"float32\",\"is_wrapped\":false,\"shape\":[\"s0\",2],\"zebra\":1}},"
        "{\"name\":\"g\",\"op\":\"get_attr\",\"target\":\"scale\",\"args\":[],\"kwargs\":{},\"meta\":{}},"
        "{\"name\":\"h\",\"op\":\"get_attr\",\"target\":\"inner\",\"args\":[],\"kwargs\":{},\"meta\":{}},"
        "{\"name\":\"f\",\"op\":\"call_function\",\"target\":\"torch.f\",\"args\":[],\"kwargs\":{\"b\":{\"$node\":\"g\"},\"a\":"
        "{\"$node\":\"h\"}},\"meta\":{\"is_wrapped\":true,\"transformations\":[\"00000000000000000000000000000001\"]}},"
        "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"f\"}],\"kwargs\":{},\"meta\":{}}],"
        "\"modules\":[{\"path\":\"\",\"type\":\"torch.nn.Module\",\"config\":{\"a\":{\"$tuple\":[]},\"z\":1},\"parameters\":{"
        "\"w\":\"w\","
        "\"b\":\"b\",\"a\":null},\"buffers\":{\"r\":\"r\",\"i\":\"i\"},\"non_persistent\":[\"r\"],\"attributes\":{\"alpha\":[1]"
        ",\"scale\":"
        "{\"$float\":\"2.0\"}},\"training\":false,\"zz\":{}},"
        "{\"path\":\"inner\",\"type\":\"torch.fx.GraphModule\",\"config\":{},\"parameters\":{},\"buffers\":{},\"training\":"
        "true,"
        "\"graph\":{\"nodes\":[{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[null],\"kwargs\":{},"
        "\"meta\":{}}]}}],"
        "\"tensors\":[{\"name\":\"w\",\"dtype\":\"float32\",\"shape\":[2,3],\"z\":{\"a\":[1e+16,0],\"b\":8.0}},"
        "{\"name\":\"b\",\"dtype\":\"float16\",\"shape\":[],\"requires_grad\":false,\"data\":\"AAA=\"},"
        "{\"name\":\"r\",\"dtype\":\"float32\",\"shape\":[4,3],\"recipe\":{\"op\":\"concat\",\"args\":[\"w\",{\"op\":\"full\","
        "\"args\":[],"
        "\"shape\":[2,3],\"value\":{\"$float\":\"1.0\"}}],\"axis\":0}},"
        "{\"name\":\"i\",\"dtype\":\"int64\",\"shape\":[0],\"digest\":\"sha256:"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"blob\":\"sha256:"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"offset\":24}],"
        "\"metadata\":{\"a\":{\"x\":null,\"y\":1.5},\"b\":9007199254740993}}");
}
END_TEST

static void structure_of(const char *meta, const char *name, const char *tensor, char id[FB_ID_LENGTH + 1]) {
    fb_buffer text = {0};
    fb_buffer_printf(
        &text,
        "{\"format\":\"foldback.graph/1\",\"name\":\"%s\",\"nodes\":[{\"name\":\"x\",\"op\":\"placeholder\",\"target\":"
        "\"x\",\"meta\":{%s}},{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[null]}],"
        "\"modules\":[{\"path\":\"\",\"type\":\"M\",\"parameters\":{\"w\":\"w\"}}],\"tensors\":[{\"name\":\"w\","
        "\"dtype\":\"int8\",\"shape\":[3]%s}],\"metadata\":{\"from\":\"%s\"}}",
        name, meta, tensor, name);
    fb_graph *graph = graph_of(text.data, text.size);
    ck_assert(fb_document_structure(graph, id));
    fb_graph_free(graph);
    fb_buffer_free(&text);
}

#define SHA "\"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\""

START_TEST(test_structure_leaves_out_what_differs_between_tracings) {
    char plain[FB_ID_LENGTH + 1], other[FB_ID_LENGTH + 1];
    structure_of("\"shape\":[2]", "a", "", plain);
    structure_of("\"shape\":[2],\"more\":1,\"transformations\":[\"00000000000000000000000000000001\"]", "b",
                 ",\"digest\":" SHA ",\"blob\":" SHA ",\"offset\":8", other);
    ck_assert_str_eq(plain, other);
    structure_of("\"shape\":[2]", "a", ",\"data\":\"AAAA\"", other);
    ck_assert_str_eq(plain, other);
    structure_of("\"shape\":[3]", "a", "", other);
    ck_assert_str_ne(plain, other);
    structure_of("\"shape\":[2],\"dtype\":\"int8\"", "a", "", other);
    ck_assert_str_ne(plain, other);
    structure_of("\"shape\":[2]", "a", ",\"recipe\":{\"op\":\"full\",\"args\":[],\"shape\":[3],\"value\":0}", other);
    ck_assert_str_ne(plain, other);
}
END_TEST

START_TEST(test_requires_grad_is_effective) {
    char *text = document_of(X "," OUTPUT("null"),
                             "{\"path\":\"\",\"type\":\"M\",\"parameters\":{\"a\":\"a\",\"b\":\"b\",\"c\":\"c\"},"
                             "\"buffers\":{\"d\":\"d\",\"e\":\"e\"}}",
                             "{\"name\":\"a\",\"dtype\":\"float32\",\"shape\":[]},"
                             "{\"name\":\"b\",\"dtype\":\"int8\",\"shape\":[]},"
                             "{\"name\":\"c\",\"dtype\":\"bfloat16\",\"shape\":[],\"requires_grad\":false},"
                             "{\"name\":\"d\",\"dtype\":\"float32\",\"shape\":[]},"
                             "{\"name\":\"e\",\"dtype\":\"float32\",\"shape\":[],\"requires_grad\":true}");
    fb_graph *graph = graph_of(text, strlen(text));
    const bool expected[] = {true, false, false, false, true};
    size_t i = 0;
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) {
        ck_assert_int_eq(fb_tensor_at(graph, t)->requires_grad, expected[i++]);
    }
    ck_assert_uint_eq(i, 5);
    char *bytes = written(graph);
    ck_assert_ptr_nonnull(strstr(bytes, "\"c\",\"dtype\":\"bfloat16\",\"shape\":[],\"requires_grad\":false"));
    ck_assert_ptr_nonnull(strstr(bytes, "\"e\",\"dtype\":\"float32\",\"shape\":[],\"requires_grad\":true"));
    ck_assert_ptr_nonnull(strstr(bytes, "\"a\",\"dtype\":\"float32\",\"shape\":[]}"));
    free(bytes);
    free(text);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_nested_program_has_its_own_scope) {
    /* `x` is a name in both, targets are relative to "sub", and sub's parameter is read from outside as well. */
    const char *text =
        "{\"format\":\"foldback.graph/1\",\"modules\":[{\"path\":\"\",\"type\":\"M\"},{\"path\":\"sub\",\"type\":"
        "\"torch.fx.GraphModule\",\"parameters\":{\"w\":\"w\"},\"graph\":{\"nodes\":["
        "{\"name\":\"w\",\"op\":\"get_attr\",\"target\":\"w\"},{\"name\":\"x\",\"op\":\"call_module\",\"target\":\"act\","
        "\"args\":"
        "[{\"$node\":\"w\"}]},{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"x\"}]}]}},"
        "{\"path\":\"sub.act\",\"type\":\"torch.nn.ReLU\"}],\"tensors\":[{\"name\":\"w\",\"dtype\":\"float32\",\"shape\":[1]}],"
        "\"nodes\":[{\"name\":\"x\",\"op\":\"get_attr\",\"target\":\"sub.w\"},{\"name\":\"y\",\"op\":\"call_module\","
        "\"target\":\"sub\","
        "\"args\":[{\"$node\":\"x\"}]},{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"y\"}"
        "]}]}";
    fb_graph *graph = graph_of(text, strlen(text));
    fb_module sub = fb_module_find(graph, "sub");
    fb_program program = fb_module_at(graph, sub)->program;
    fb_node inner = fb_node_find(graph, program, "x"), outer = fb_node_find(graph, FB_MAIN_PROGRAM, "x");
    ck_assert_uint_ne(inner.id, outer.id);
    ck_assert_uint_eq(fb_node_at(graph, inner)->module.id, fb_module_find(graph, "sub.act").id);
    ck_assert_uint_eq(fb_node_at(graph, outer)->module.id, sub.id);
    ck_assert_uint_eq(fb_node_at(graph, inner)->ordinal, 1);
    fb_graph_free(graph);
}
END_TEST

/* ---- free JSON and single values --------------------------------------------------------------------------------------- */

START_TEST(test_free_json_is_canonical) {
    json_t *value =
        json_loads("{\"b\": [1.0, 1e16, 0.1, -0.0, 9007199254740993], \"a\": {\"\\u00e9\": null, \"\": true}}", 0, NULL);
    fb_buffer out = {0};
    ck_assert_int_eq(fb_free_json_canonical(value, &out), FB_OK);
    ck_assert_str_eq(fb_buffer_text(&out), "{\"a\":{\"\":true,\"\xC3\xA9\":null},\"b\":[1.0,1e+16,0.1,-0.0,9007199254740993]}");
    fb_buffer_free(&out);
    json_decref(value);
    value = json_loads("\"\\u0000\"", JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    ck_assert_int_eq(fb_free_json_canonical(value, &out), FB_SYNTAX);
    fb_buffer_free(&out);
    json_decref(value);
}
END_TEST

START_TEST(test_one_value) {
    char *text = document_of(X "," OUTPUT("{\"$tuple\":[{\"$node\":\"x\"},8.0]}"), NULL, "");
    fb_graph *graph = graph_of(text, strlen(text));
    fb_node output = fb_last_node(graph, FB_MAIN_PROGRAM);
    fb_buffer out = {0};
    fb_value_write(graph, fb_node_arg(graph, output, 0), &out);
    ck_assert_str_eq(fb_buffer_text(&out), "{\"$tuple\":[{\"$node\":\"x\"},{\"$float\":\"8.0\"}]}");
    fb_buffer_free(&out);
    fb_graph_free(graph);
    free(text);
}
END_TEST

/* Several matches may ask for it: a node that one of them folds, and that another no longer reads. Its neighbours in the list,
 * which may have gone meanwhile, stay as they are. */
START_TEST(test_a_node_is_erased_once) {
    fb_graph *graph = fb_graph_new();
    const char *const names[] = {"a", "b", "c", "d"};
    fb_node nodes[4];
    for (size_t i = 0; i < 4; i++)
        nodes[i] = fb_graph_add_node(graph, FB_MAIN_PROGRAM, fb_intern(graph, names[i]), (fb_node){0});
    fb_graph_erase_node(graph, nodes[1]);
    fb_graph_erase_node(graph, nodes[2]);
    fb_graph_erase_node(graph, nodes[1]);
    size_t count = 0;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(graph, n), count++)
        ck_assert_uint_eq(n.id, count ? nodes[3].id : nodes[0].id);
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(fb_node_count(graph), 2);
    fb_graph_free(graph);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("document");
    TCase *fixtures = tcase_create("fixtures"), *canonical = tcase_create("canonical");
    tcase_set_timeout(fixtures, 600);
    tcase_add_loop_test(fixtures, test_fixture_ids, 0, fixture_count);
    tcase_add_loop_test(fixtures, test_other_spellings_have_the_same_id, 0, fixture_count);
    tcase_add_loop_test(canonical, test_canonical_values, 0, (int)(sizeof values / sizeof *values));
    tcase_add_test(canonical, test_canonical_members);
    tcase_add_test(canonical, test_structure_leaves_out_what_differs_between_tracings);
    tcase_add_test(canonical, test_requires_grad_is_effective);
    tcase_add_test(canonical, test_nested_program_has_its_own_scope);
    tcase_add_test(canonical, test_free_json_is_canonical);
    tcase_add_test(canonical, test_one_value);
    tcase_add_test(canonical, test_a_node_is_erased_once);
    suite_add_tcase(suite, fixtures);
    suite_add_tcase(suite, canonical);
    return run_suite(suite);
}
