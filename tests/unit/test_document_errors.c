/* What is wrong with a document: every code, with its pointer and its node. */
#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/document/document.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

#define NODE(name, op, target, more) "{\"name\":\"" name "\",\"op\":\"" op "\",\"target\":\"" target "\"" more "}"
#define X NODE("x", "placeholder", "x", "")
#define OUT NODE("output", "output", "output", ",\"args\":[null]")
#define OUT_OF(value) NODE("output", "output", "output", ",\"args\":[" value "]")
#define CALL(value) X "," NODE("f", "call_function", "f", ",\"args\":[" value "]") "," OUT
#define META(members) NODE("x", "placeholder", "x", ",\"meta\":{" members "}") "," OUT
#define ROOT "{\"path\":\"\",\"type\":\"M\"}"
#define MODULE(members) "{\"path\":\"\",\"type\":\"M\"," members "}"
#define OWNS(name) "{\"path\":\"\",\"type\":\"M\",\"parameters\":{\"" name "\":\"" name "\"}}"
#define TENSOR(members) "{\"name\":\"w\",\"dtype\":\"float32\",\"shape\":[2]" members "}"
#define SHA "\"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\""
#define SUB(nodes) ROOT ",{\"path\":\"s\",\"type\":\"torch.fx.GraphModule\",\"graph\":{\"nodes\":[" nodes "]}}"

static const struct {
    const char *nodes, *modules, *tensors; /* NULL: x and output; the root; none */
    const char *errors;
} mistakes[] = {
    /* shape of the document */
    {"1," OUT, NULL, NULL, "wrong-type /nodes/0\n"},
    {"{}," OUT, NULL, NULL, "missing-member /nodes/0\nmissing-member /nodes/0\nmissing-member /nodes/0\n"},
    {NODE("x", "placeholder", "x", ",\"extra\":1") "," OUT, NULL, NULL, "unknown-member /nodes/0/extra x\n"},
    {NODE("x", "placeholder", "x", ",\"a/b~c\":1") "," OUT, NULL, NULL, "unknown-member /nodes/0/a~1b~0c x\n"},
    {"{\"name\":1,\"op\":\"placeholder\",\"target\":\"x\"}," OUT, NULL, NULL, "wrong-type /nodes/0/name\n"},
    {"{\"name\":\"x\",\"op\":2,\"target\":\"x\"}," OUT, NULL, NULL, "wrong-type /nodes/0/op x\n"},
    {"{\"name\":\"x\",\"op\":\"placeholder\",\"target\":[]}," OUT, NULL, NULL, "wrong-type /nodes/0/target x\n"},
    {NODE("x", "placeholder", "x", ",\"args\":{}") "," OUT, NULL, NULL, "wrong-type /nodes/0/args x\n"},
    {NODE("x", "placeholder", "x", ",\"kwargs\":[]") "," OUT, NULL, NULL, "wrong-type /nodes/0/kwargs x\n"},
    {NODE("x", "placeholder", "x", ",\"meta\":null") "," OUT, NULL, NULL, "wrong-type /nodes/0/meta x\n"},
    {NODE("x", "placeholder", "x", ",\"type\":1") "," OUT, NULL, NULL, "wrong-type /nodes/0/type x\n"},
    {NODE("x", "input", "x", "") "," OUT, NULL, NULL, "unknown-op /nodes/0/op x\n"},
    {NULL, "[]," ROOT, NULL, "root-not-first /modules/1\nwrong-type /modules/0\n"},
    {NULL, "{\"path\":\"\"}", NULL, "missing-member /modules/0\n"},
    {NULL, "{\"type\":\"M\"}," ROOT, NULL, "missing-member /modules/0\nroot-not-first /modules/1\nunused-module /modules/0\n"},
    {NULL, MODULE("\"training\":1"), NULL, "wrong-type /modules/0/training\n"},
    {NULL, MODULE("\"config\":[]"), NULL, "wrong-type /modules/0/config\n"},
    {NULL, MODULE("\"parameters\":{\"w\":[1]}"), NULL, "wrong-type /modules/0/parameters/w\n"},
    {NULL, MODULE("\"non_persistent\":{}"), NULL, "wrong-type /modules/0/non_persistent\n"},
    {NULL, MODULE("\"non_persistent\":[1]"), NULL, "wrong-type /modules/0/non_persistent/0\n"},
    {NULL, MODULE("\"attributes\":1"), NULL, "wrong-type /modules/0/attributes\n"},
    {NULL, NULL, "null", "wrong-type /tensors/0\n"},
    {NULL, OWNS("w"), "{\"name\":\"w\",\"shape\":[]}", "missing-member /tensors/0\n"},
    {NULL, OWNS("w"), "{\"name\":\"w\",\"dtype\":\"int8\"}", "missing-member /tensors/0\n"},
    {NULL, OWNS("w"), TENSOR(",\"requires_grad\":\"yes\""), "wrong-type /tensors/0/requires_grad\n"},
    {NULL, OWNS("w"), TENSOR(",\"digest\":1"), "wrong-type /tensors/0/digest\n"},
    /* names */
    {X "," X "," OUT, NULL, NULL, "duplicate-name /nodes/1/name x\nduplicate-name /nodes/1/target\n"},
    {X "," NODE("y", "placeholder", "x", "") "," OUT, NULL, NULL, "duplicate-name /nodes/1/target y\n"},
    {NULL, ROOT "," ROOT, NULL, "duplicate-name /modules/1/path\nunused-module /modules/1\n"},
    {NULL, OWNS("w"), TENSOR("") "," TENSOR(""), "duplicate-name /tensors/1/name\nunused-tensor /tensors/1\n"},
    {NULL, MODULE("\"parameters\":{\"w\":\"w\"},\"buffers\":{\"v\":null,\"w\":null}"), TENSOR(""),
     "duplicate-name /modules/0/buffers\n"},
    {NULL, MODULE("\"parameters\":{\"w\":\"w\"},\"attributes\":{\"w\":1}"), TENSOR(""),
     "duplicate-name /modules/0/attributes\n"},
    {NULL, MODULE("\"buffers\":{\"w\":\"w\"},\"non_persistent\":[\"w\",\"w\"]"), TENSOR(""),
     "duplicate-name /modules/0/non_persistent\n"},
    {NULL, MODULE("\"buffers\":{\"w\":\"w\"},\"non_persistent\":[\"v\"]"), TENSOR(""),
     "unknown-buffer /modules/0/non_persistent/0\n"},
    /* spelling: what would inject text into generated code */
    {NODE("x;import os", "placeholder", "x", "") "," OUT, NULL, NULL, "bad-identifier /nodes/0/name x;import os\n"},
    {NODE("class", "placeholder", "x", "") "," OUT, NULL, NULL, "bad-identifier /nodes/0/name class\n"},
    {NODE("1x", "placeholder", "x", "") "," OUT, NULL, NULL, "bad-identifier /nodes/0/name 1x\n"},
    {NODE("", "placeholder", "x", "") "," OUT, NULL, NULL, "bad-identifier /nodes/0/name\n"},
    {NODE("x", "placeholder", "***x", "") "," OUT, NULL, NULL, "bad-target /nodes/0/target x\n"},
    {NODE("x", "placeholder", "x):#", "") "," OUT, NULL, NULL, "bad-target /nodes/0/target x\n"},
    {NODE("x", "placeholder", "*", "") "," OUT, NULL, NULL, "bad-target /nodes/0/target x\n"},
    {NODE("x", "call_function", "os.system('x')", "") "," OUT, NULL, NULL, "bad-target /nodes/0/target x\n"},
    {NODE("x", "call_function", "a..b", "") "," OUT, NULL, NULL, "bad-target /nodes/0/target x\n"},
    {X "," NODE("y", "call_method", "a.b", ",\"args\":[{\"$node\":\"x\"}]") "," OUT, NULL, NULL,
     "bad-target /nodes/1/target y\n"},
    {X "," NODE("y", "call_method", "import", ",\"args\":[1]") "," OUT, NULL, NULL, "bad-target /nodes/1/target y\n"},
    {X "," NODE("output", "output", "x", ",\"args\":[1]"), NULL, NULL, "bad-target /nodes/1/target output\n"},
    {NODE("x", "call_module", "a\\\"b", "") "," OUT, ROOT ",{\"path\":\"a\\\"b\",\"type\":\"M\"}", NULL,
     "bad-path /modules/1/path\nbad-target /nodes/0/target x\n"},
    {NODE("x", "call_module", "a\\nb", "") "," OUT, ROOT ",{\"path\":\"a\\nb\",\"type\":\"M\"}", NULL,
     "bad-path /modules/1/path\nbad-target /nodes/0/target x\n"},
    {NODE("x", "call_module", "a..b", "") "," OUT, ROOT ",{\"path\":\"a..b\",\"type\":\"M\"}", NULL,
     "bad-path /modules/1/path\nbad-target /nodes/0/target x\n"},
    {NODE("x", "call_module", "", "") "," OUT, NULL, NULL, "bad-target /nodes/0/target x\n"},
    {X "," NODE("y", "call_function", "f", ",\"kwargs\":{\"a=1,b\":2}") "," OUT, NULL, NULL,
     "bad-identifier /nodes/1/kwargs/a=1,b y\n"},
    {NODE("x", "placeholder", "x", ",\"type\":\"f()\"") "," OUT, NULL, NULL, "bad-type /nodes/0/type x\n"},
    {NODE("x", "placeholder", "x", ",\"type\":\"a if b else c\"") "," OUT, NULL, NULL, "bad-type /nodes/0/type x\n"},
    {NODE("x", "placeholder", "x", ",\"type\":\"List[int\"") "," OUT, NULL, NULL, "bad-type /nodes/0/type x\n"},
    {NODE("x", "placeholder", "x", ",\"type\":\"\"") "," OUT, NULL, NULL, "bad-type /nodes/0/type x\n"},
    {NODE("x", "placeholder", "x", ",\"type\":\"1a\"") "," OUT, NULL, NULL, "bad-type /nodes/0/type x\n"},
    {NULL, MODULE("\"parameters\":{\"a.b\":\"w\"}"), TENSOR(""), "bad-identifier /modules/0/parameters/a.b\n"},
    {NULL, MODULE("\"attributes\":{\"a'b\":1}"), NULL, "bad-identifier /modules/0/attributes/a'b\n"},
    {NULL, "{\"path\":\"\",\"type\":\"\"}", NULL, "bad-type /modules/0/type\n"},
    {NULL, MODULE("\"parameters\":{\"w\":\"\"}"), "{\"name\":\"\",\"dtype\":\"int8\",\"shape\":[]}",
     "bad-identifier /tensors/0/name\n"},
    /* values */
    {CALL("{}"), NULL, NULL, "bad-value /nodes/1/args/0 f\n"},
    {CALL("{\"a\":1}"), NULL, NULL, "bad-value /nodes/1/args/0 f\n"},
    {CALL("{\"$tuple\":[],\"$node\":\"x\"}"), NULL, NULL, "bad-value /nodes/1/args/0 f\n"},
    {CALL("{\"$set\":[]}"), NULL, NULL, "bad-value /nodes/1/args/0/$set f\n"},
    {CALL("{\"$node\":1}"), NULL, NULL, "bad-value /nodes/1/args/0/$node f\n"},
    {CALL("[1,{\"$tuple\":[2,{\"$tuple\":3}]}]"), NULL, NULL, "bad-value /nodes/1/args/0/1/$tuple/1/$tuple f\n"},
    {CALL("{\"$dict\":{}}"), NULL, NULL, "bad-value /nodes/1/args/0/$dict f\n"},
    {CALL("{\"$dict\":[[1]]}"), NULL, NULL, "bad-value /nodes/1/args/0/$dict/0 f\n"},
    {CALL("{\"$dict\":[[{\"$node\":\"x\"},1]]}"), NULL, NULL, "bad-value /nodes/1/args/0/$dict/0/0 f\n"},
    {CALL("{\"$dict\":[[1,1],[1,2]]}"), NULL, NULL, "bad-value /nodes/1/args/0/$dict f\n"},
    {CALL("{\"$size\":[1,\"a\"]}"), NULL, NULL, "bad-value /nodes/1/args/0/$size/1 f\n"},
    {CALL("{\"$size\":1}"), NULL, NULL, "bad-value /nodes/1/args/0/$size f\n"},
    {CALL("{\"$namedtuple\":[\"a\"]}"), NULL, NULL, "bad-value /nodes/1/args/0/$namedtuple f\n"},
    {CALL("{\"$namedtuple\":[]}"), NULL, NULL, "bad-value /nodes/1/args/0/$namedtuple f\n"},
    {CALL("{\"$namedtuple\":[\"a b\",[]]}"), NULL, NULL, "bad-identifier /nodes/1/args/0/$namedtuple/0 f\n"},
    {CALL("{\"$slice\":[1,2]}"), NULL, NULL, "bad-value /nodes/1/args/0/$slice f\n"},
    {CALL("{\"$ellipsis\":false}"), NULL, NULL, "bad-value /nodes/1/args/0/$ellipsis f\n"},
    {CALL("{\"$float\":8.0}"), NULL, NULL, "bad-value /nodes/1/args/0/$float f\n"},
    {CALL("{\"$float\":\"0x1\"}"), NULL, NULL, "bad-value /nodes/1/args/0/$float f\n"},
    {CALL("{\"$float\":\" 1\"}"), NULL, NULL, "bad-value /nodes/1/args/0/$float f\n"},
    {CALL("{\"$float\":\"\"}"), NULL, NULL, "bad-value /nodes/1/args/0/$float f\n"},
    {CALL("{\"$float\":\"1e400\"}"), NULL, NULL, "bad-value /nodes/1/args/0/$float f\n"},
    {CALL("{\"$float\":\"1.\"}"), NULL, NULL, "bad-value /nodes/1/args/0/$float f\n"},
    {CALL("{\"$float\":\"1e\"}"), NULL, NULL, "bad-value /nodes/1/args/0/$float f\n"},
    {CALL("{\"$float\":\"Infinity\"}"), NULL, NULL, "bad-value /nodes/1/args/0/$float f\n"},
    {CALL("{\"$int\":7}"), NULL, NULL, "bad-value /nodes/1/args/0/$int f\n"},
    {CALL("{\"$int\":\"\"}"), NULL, NULL, "bad-value /nodes/1/args/0/$int f\n"},
    {CALL("{\"$int\":\"-\"}"), NULL, NULL, "bad-value /nodes/1/args/0/$int f\n"},
    {CALL("{\"$int\":\"1.0\"}"), NULL, NULL, "bad-value /nodes/1/args/0/$int f\n"},
    {CALL("{\"$complex\":[1]}"), NULL, NULL, "bad-value /nodes/1/args/0/$complex f\n"},
    {CALL("{\"$complex\":[1,true]}"), NULL, NULL, "bad-value /nodes/1/args/0/$complex f\n"},
    {CALL("{\"$dtype\":\"float32)\"}"), NULL, NULL, "bad-identifier /nodes/1/args/0/$dtype f\n"},
    {CALL("{\"$dtype\":1}"), NULL, NULL, "bad-value /nodes/1/args/0/$dtype f\n"},
    {CALL("{\"$layout\":\"a.b\"}"), NULL, NULL, "bad-identifier /nodes/1/args/0/$layout f\n"},
    {CALL("{\"$memory_format\":\"\"}"), NULL, NULL, "bad-identifier /nodes/1/args/0/$memory_format f\n"},
    {CALL("{\"$device\":\"cuda:\"}"), NULL, NULL, "bad-identifier /nodes/1/args/0/$device f\n"},
    {CALL("{\"$device\":\"cuda:1'\"}"), NULL, NULL, "bad-identifier /nodes/1/args/0/$device f\n"},
    {CALL("{\"$enum\":[\"a.B\",\"c d\"]}"), NULL, NULL, "bad-identifier /nodes/1/args/0/$enum/1 f\n"},
    {CALL("{\"$enum\":\"a.B\"}"), NULL, NULL, "bad-value /nodes/1/args/0/$enum f\n"},
    {CALL("{\"$ref\":\"f()\"}"), NULL, NULL, "bad-identifier /nodes/1/args/0/$ref f\n"},
    {CALL("{\"$opaque\":null}"), NULL, NULL, "bad-value /nodes/1/args/0/$opaque f\n"},
    {NULL, MODULE("\"config\":{\"a\":{\"$node\":\"x\"}}"), NULL, "bad-value /modules/0/config/a/$node\n"},
    {NULL, MODULE("\"attributes\":{\"a\":[{\"$node\":\"x\"}]}"), NULL, "bad-value /modules/0/attributes/a/0/$node\n"},
    {META("\"shape\":3"), NULL, NULL, "bad-shape /nodes/0/meta/shape x\n"},
    {META("\"shape\":[2,-1]"), NULL, NULL, "bad-shape /nodes/0/meta/shape/1 x\n"},
    {META("\"shape\":[2.5]"), NULL, NULL, "bad-shape /nodes/0/meta/shape/0 x\n"},
    {META("\"shape\":[\"\"]"), NULL, NULL, "bad-shape /nodes/0/meta/shape/0 x\n"},
    {META("\"shape\":[\"s0;\"]"), NULL, NULL, "bad-shape /nodes/0/meta/shape/0 x\n"},
    {META("\"dtype\":\"float 32\""), NULL, NULL, "unknown-dtype /nodes/0/meta/dtype x\n"},
    {META("\"dtype\":\"\""), NULL, NULL, "unknown-dtype /nodes/0/meta/dtype x\n"},
    {META("\"dtype\":null"), NULL, NULL, "wrong-type /nodes/0/meta/dtype x\n"},
    {META("\"is_wrapped\":1"), NULL, NULL, "wrong-type /nodes/0/meta/is_wrapped x\n"},
    {META("\"is_wrapped\":true"), NULL, NULL, "bad-wrap /nodes/0/meta/is_wrapped x\n"},
    {META("\"transformations\":[\"abc\"]"), NULL, NULL, "bad-signature /nodes/0/meta/transformations/0 x\n"},
    {META("\"transformations\":[1]"), NULL, NULL, "wrong-type /nodes/0/meta/transformations/0 x\n"},
    {META("\"transformations\":[\"00000000000000000000000000000001\",\"00000000000000000000000000000001\"]"), NULL, NULL,
     "duplicate-name /nodes/0/meta/transformations x\n"},
    /* programs */
    {CALL("{\"$node\":\"z\"}"), NULL, NULL, "unknown-node /nodes/1/args/0 f\n"},
    {CALL("{\"$node\":\"f\"}"), NULL, NULL, "forward-reference /nodes/1/args/0 f\n"},
    {CALL("[{\"$node\":\"output\"},{\"$node\":\"q\"}]"), NULL, NULL,
     "forward-reference /nodes/1/args/0/0 f\nunknown-node /nodes/1/args/0/1 f\n"},
    {"", NULL, NULL, "missing-output /nodes\n"},
    {X, NULL, NULL, "missing-output /nodes\n"},
    {OUT "," X, NULL, NULL, "output-not-last /nodes/0 output\n"},
    {OUT "," NODE("o", "output", "output", ",\"args\":[1]"), NULL, NULL,
     "duplicate-output /nodes/1 o\noutput-not-last /nodes/0 output\n"},
    {NODE("x", "placeholder", "x", ",\"args\":[1,2]") "," OUT, NULL, NULL, "bad-arguments /nodes/0/args x\n"},
    {NODE("x", "placeholder", "x", ",\"kwargs\":{\"a\":1}") "," OUT, NULL, NULL, "bad-arguments /nodes/0/kwargs x\n"},
    {NODE("x", "call_method", "view", "") "," OUT, NULL, NULL, "bad-arguments /nodes/0/args x\n"},
    {X "," NODE("output", "output", "output", ""), NULL, NULL, "bad-arguments /nodes/1/args output\n"},
    {X "," NODE("output", "output", "output", ",\"args\":[1],\"kwargs\":{\"a\":1}"), NULL, NULL,
     "bad-arguments /nodes/1/kwargs output\n"},
    {NODE("x", "get_attr", "w", ",\"args\":[1]") "," OUT, OWNS("w"), TENSOR(""), "bad-arguments /nodes/0/args x\n"},
    {NODE("x", "call_module", "a", "") "," OUT, NULL, NULL, "unknown-module /nodes/0/target x\n"},
    {NODE("x", "get_attr", "a.w", "") "," OUT, NULL, NULL, "unknown-module /nodes/0/target x\n"},
    {NODE("x", "get_attr", "v", "") "," OUT, OWNS("w"), TENSOR(""), "unknown-attribute /nodes/0/target x\n"},
    {NULL, SUB(CALL("{\"$node\":\"y\"}")), NULL, "unknown-node /modules/1/graph/nodes/1/args/0 f\n"},
    {NULL, SUB(NODE("x", "call_module", "a", "") "," OUT), NULL, "unknown-module /modules/1/graph/nodes/0/target x\n"},
    {NULL, SUB(X), NULL, "missing-output /modules/1/graph/nodes\n"},
    {NULL, SUB("1," OUT), NULL, "wrong-type /modules/1/graph/nodes/0\n"},
    {X "," OUT_OF("{\"$node\":\"f\"}"), SUB(CALL("1")), NULL, "unknown-node /nodes/1/args/0 output\n"},
    {NULL, MODULE("\"graph\":{\"nodes\":[" OUT "]}"), NULL, "bad-program /modules/0/graph\n"},
    {NULL, ROOT ",{\"path\":\"s\",\"type\":\"torch.fx.GraphModule\",\"attributes\":{\"a\":1},\"graph\":{\"node\":[]}}", NULL,
     "missing-member /modules/1/graph\nunknown-member /modules/1/graph/node\n"},
    /* modules and tensors */
    {NULL, "", NULL, "missing-root /modules\n"},
    {NODE("x", "call_module", "a", "") "," OUT, "{\"path\":\"a\",\"type\":\"M\"}," ROOT, NULL, "root-not-first /modules/1\n"},
    {NULL, ROOT ",{\"path\":\"a\",\"type\":\"M\"}", NULL, "unused-module /modules/1\n"},
    {NULL, OWNS("w"), NULL, "unknown-tensor /modules/0/parameters/w\n"},
    {NULL, NULL, TENSOR(""), "unused-tensor /tensors/0\n"},
    {NULL, OWNS("w"), "{\"name\":\"w\",\"dtype\":\"4bit\",\"shape\":[]}", "unknown-dtype /tensors/0/dtype\n"},
    {NULL, OWNS("w"), "{\"name\":\"w\",\"dtype\":\"float5\",\"shape\":[2],\"blob\":" SHA "}",
     "unknown-dtype /tensors/0/dtype\n"},
    {NULL, OWNS("w"), "{\"name\":\"w\",\"dtype\":\"float5\",\"shape\":[2],\"data\":\"AAAA\"}", "bad-data /tensors/0/data\n"},
    {NULL, OWNS("w"), "{\"name\":\"w\",\"dtype\":\"float5\",\"shape\":[2],\"data\":\"\"}", "bad-data /tensors/0/data\n"},
    {NULL, OWNS("w"), "{\"name\":\"w\",\"dtype\":\"float5\",\"shape\":[0],\"data\":\"AAAA\"}", "bad-data /tensors/0/data\n"},
    {NULL, OWNS("w"), "{\"name\":\"w\",\"dtype\":\"float5\",\"shape\":[4611686018427387904,2]}",
     "bad-shape /tensors/0/shape\n"},
    {NULL, "{\"path\":\"\",\"type\":\"M\",\"parameters\":{\"v\":\"v\",\"w\":\"w\"}}",
     "{\"name\":\"w\",\"dtype\":\"float5\",\"shape\":[2]},{\"name\":\"v\",\"dtype\":\"float5\",\"shape\":[2],\"recipe\":\"w\"}",
     "bad-recipe /tensors/1/recipe\n"},
    {NULL, OWNS("w"), "{\"name\":\"w\",\"dtype\":\"int8\",\"shape\":[\"s0\"]}", "bad-shape /tensors/0/shape/0\n"},
    {NULL, OWNS("w"), "{\"name\":\"w\",\"dtype\":\"int8\",\"shape\":[-2]}", "bad-shape /tensors/0/shape/0\n"},
    {NULL, OWNS("w"), "{\"name\":\"w\",\"dtype\":\"int8\",\"shape\":[4294967296,2147483648]}", "bad-shape /tensors/0/shape\n"},
    {NULL, OWNS("w"), "{\"name\":\"w\",\"dtype\":\"int16\",\"shape\":[4611686018427387904]}", "bad-shape /tensors/0/shape\n"},
    {NULL, OWNS("w"), TENSOR(",\"digest\":\"sha256:00\""), "bad-digest /tensors/0/digest\n"},
    {NULL, OWNS("w"), TENSOR(",\"digest\":" SHA ",\"data\":\"AAAAAAAAAAA=\""), "bad-digest /tensors/0/digest\n"},
    {NULL, OWNS("w"), TENSOR(",\"blob\":\"md5\""), "bad-digest /tensors/0/blob\n"},
    {NULL, OWNS("w"), TENSOR(",\"offset\":8"), "bad-offset /tensors/0/offset\n"},
    {NULL, OWNS("w"), TENSOR(",\"blob\":" SHA ",\"offset\":-8"), "bad-offset /tensors/0/offset\n"},
    {NULL, OWNS("w"), TENSOR(",\"blob\":" SHA ",\"offset\":9223372036854775800"), "bad-offset /tensors/0/offset\n"},
    {NULL, OWNS("w"), TENSOR(",\"blob\":" SHA ",\"data\":\"AAAAAAAAAAA=\""), "contradictory-source /tensors/0\n"},
    {NULL, OWNS("w"), TENSOR(",\"data\":\"AAAA\""), "bad-data /tensors/0/data\n"},
    {NULL, OWNS("w"), TENSOR(",\"data\":\"AAAAAAAAAA*=\""), "bad-data /tensors/0/data\n"},
    {NULL, OWNS("w"), TENSOR(",\"data\":\"AAAAAAAAAAB=\""), "bad-data /tensors/0/data\n"},
    {NULL, OWNS("w"), TENSOR(",\"data\":\"=\""), "bad-data /tensors/0/data\n"},
    {NULL, OWNS("w"), TENSOR(",\"data\":\"====\""), "bad-data /tensors/0/data\n"},
    {NODE("x", "call_module", "l", "") "," OUT,
     ROOT ",{\"path\":\"l\",\"type\":\"torch.nn.Linear\",\"config\":{\"in_features\":3,\"out_features\":2,\"bias\":false},"
          "\"parameters\":{\"weight\":\"w\",\"bias\":null}}",
     "{\"name\":\"w\",\"dtype\":\"float32\",\"shape\":[2,4]}", "config-contradicts-tensor /modules/1/parameters/weight\n"},
    {NULL, OWNS("w"), TENSOR(",\"recipe\":1"), "bad-recipe /tensors/0/recipe\nbad-value /tensors/0/recipe\n"},
    {NULL, OWNS("w"), TENSOR(",\"recipe\":\"v\""), "bad-recipe /tensors/0/recipe\nunknown-tensor /tensors/0/recipe\n"},
    {NULL, OWNS("w"), TENSOR(",\"recipe\":{\"op\":\"shuffle\",\"args\":[]}"), "bad-recipe /tensors/0/recipe/op\n"},
    {NULL, OWNS("w"), TENSOR(",\"recipe\":\"w\""), "recipe-cycle /tensors/0/recipe\n"},
};

static char *errors_of(const char *text, const char *prefix, fb_status *status) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    *status = fb_document_read(text, strlen(text), NULL, prefix, &graph, &errors);
    ck_assert_ptr_null(graph);
    char *found = errors_text(&errors);
    fb_errors_free(&errors);
    return found;
}

START_TEST(test_mistakes) {
    const char *tensors = mistakes[_i].tensors ? mistakes[_i].tensors : "";
    char *text = document_of(mistakes[_i].nodes ? mistakes[_i].nodes : X "," OUT, mistakes[_i].modules, tensors);
    fb_status status;
    char *found = errors_of(text, "", &status);
    ck_assert_msg(strcmp(found, mistakes[_i].errors) == 0, "%s\nfound:\n%sexpected:\n%s", text, found, mistakes[_i].errors);
    ck_assert_int_eq(status, FB_INVALID);
    free(found);
    free(text);
}
END_TEST

/* ---- outer members ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *text, *errors;
    fb_status status;
} documents[] = {
    {"[]", "wrong-type \n", FB_INVALID},
    {"1", "wrong-type \n", FB_INVALID},
    {"{}", "missing-member \nmissing-member \nmissing-member \nmissing-member \n", FB_INVALID},
    {"{\"format\":\"foldback.graph/2\",\"nodes\":[" OUT "],\"modules\":[" ROOT "],\"tensors\":[]}", "unknown-format /format\n",
     FB_INVALID},
    {"{\"format\":1,\"nodes\":[" OUT "],\"modules\":[" ROOT "],\"tensors\":[],\"name\":null,\"metadata\":[]}",
     "wrong-type /format\nwrong-type /metadata\nwrong-type /name\n", FB_INVALID},
    {"{\"format\":\"foldback.graph/1\",\"nodes\":{},\"modules\":1,\"tensors\":\"\"}",
     "wrong-type /modules\nwrong-type /nodes\nwrong-type /tensors\n", FB_INVALID},
    {"{\"format\":\"foldback.graph/1\",\"nodes\":[" OUT "],\"modules\":[" ROOT "],\"tensors\":[],\"extra/member\":{\"a\":[1]}}",
     "unknown-member /extra~1member\n", FB_INVALID},
    /* syntax: one error */
    {"", "invalid-json \n", FB_SYNTAX},
    {"{", "invalid-json \n", FB_SYNTAX},
    {"\xEF\xBB\xBF{}", "invalid-json \n", FB_SYNTAX},
    {"{} {}", "invalid-json \n", FB_SYNTAX},
    {"[] 1", "invalid-json \n", FB_SYNTAX},
    {"{\"nodes\":[1,]}", "invalid-json /nodes/1\n", FB_SYNTAX},
    {"{\"nodes\":[1 2]}", "invalid-json /nodes\n", FB_SYNTAX},
    {"{\"nodes\":[1,{\"args\":[0,{\"$tuple\":[tru]}]}]}", "invalid-json /nodes/1/args/1/$tuple/0\n", FB_SYNTAX},
    {"{\"nodes\":[{\"a\":1,}]}", "invalid-json /nodes/0\n", FB_SYNTAX},
    {"{\"nodes\":[{\"a\" 1}]}", "invalid-json /nodes/0/a\n", FB_SYNTAX},
    {"{\"nodes\":[{\"a\":1 \"b\":2}]}", "invalid-json /nodes/0\n", FB_SYNTAX},
    {"{\"nodes\":[{a:1}]}", "invalid-json /nodes/0\n", FB_SYNTAX},
    {"{\"format\":\"x\",}", "invalid-json \n", FB_SYNTAX},
    {"{\"format\":\"x\" \"name\":1}", "invalid-json \n", FB_SYNTAX},
    {"{\"format\":\"x}", "invalid-json /format\n", FB_SYNTAX},
    {"{\"metadata\":NaN}", "invalid-json /metadata\n", FB_SYNTAX},
    {"{\"metadata\":-Infinity}", "invalid-json /metadata\n", FB_SYNTAX},
    {"{\"metadata\":01}", "invalid-json /metadata\n", FB_SYNTAX},
    {"{\"metadata\":+1}", "invalid-json /metadata\n", FB_SYNTAX},
    {"{\"metadata\":1.}", "invalid-json /metadata\n", FB_SYNTAX},
    {"{\"metadata\":.5}", "invalid-json /metadata\n", FB_SYNTAX},
    {"{\"metadata\":1e}", "invalid-json /metadata\n", FB_SYNTAX},
    {"{\"metadata\":-}", "invalid-json /metadata\n", FB_SYNTAX},
    {"{\"metadata\":'a'}", "invalid-json /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"a\nb\"}", "invalid-json /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"\\x\"}", "invalid-json /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"\\u12g4\"}", "invalid-json /metadata\n", FB_SYNTAX},
    {"{\"metadata\":1e400}", "number-out-of-range /metadata\n", FB_SYNTAX},
    {"{\"metadata\":{\"a\":[9223372036854775808]}}", "number-out-of-range /metadata/a/0\n", FB_SYNTAX},
    {"{\"metadata\":-9223372036854775809}", "number-out-of-range /metadata\n", FB_SYNTAX},
    {"{\"metadata\":18446744073709551617}", "number-out-of-range /metadata\n", FB_SYNTAX},
    {"{\"metadata\":100000000000000000000000000000000000000}", "number-out-of-range /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"a\\u0000b\"}", "nul-character /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"\\ud800\"}", "lone-surrogate /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"\\udc00\\ud800\"}", "lone-surrogate /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"\\ud800\\u0041\"}", "lone-surrogate /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"\xFF\"}", "invalid-utf8 /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"\xC0\x80\"}", "invalid-utf8 /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"\xE0\x80\x80\"}", "invalid-utf8 /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"\xED\xA0\x80\"}", "invalid-utf8 /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"\xF4\x90\x80\x80\"}", "invalid-utf8 /metadata\n", FB_SYNTAX},
    {"{\"metadata\":\"\xF0\x9F\x98\"}", "invalid-utf8 /metadata\n", FB_SYNTAX},
    {"{\"metadata\":{\"\xE9\":1}}", "invalid-utf8 /metadata\n", FB_SYNTAX},
    {"{\"nodes\":[],\"nodes\":[]}", "duplicate-member /nodes\n", FB_SYNTAX},
    {"{\"nodes\":[],\"n\\u006fdes\":[]}", "duplicate-member /nodes\n", FB_SYNTAX},
    {"{\"z\":1,\"z\":1}", "duplicate-member /z\n", FB_SYNTAX},
    {"{\"nodes\":[{\"name\":1,\"\\u006eame\":2}]}", "duplicate-member /nodes/0/name\n", FB_SYNTAX},
    {"{\"metadata\":{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9,\"j\":1,\"k\":1,\"l\":1,\"m\":1,"
     "\"n\":1,\"o\":1,\"p\":1,\"q\":1,\"c\":1,\"r\":1}}",
     "duplicate-member /metadata/c\n", FB_SYNTAX},
    /* a fault of syntax hides the others, and one in modules that had to wait for their tensors is found as well */
    {"{\"nodes\":[1,2,3],\"modules\":[{\"path\":}]}", "invalid-json /modules/0/path\n", FB_SYNTAX},
};

START_TEST(test_documents) {
    fb_status status;
    char *found = errors_of(documents[_i].text, "", &status);
    ck_assert_msg(strcmp(found, documents[_i].errors) == 0, "%s\nfound:\n%sexpected:\n%s", documents[_i].text, found,
                  documents[_i].errors);
    ck_assert_int_eq(status, documents[_i].status);
    free(found);
    if (documents[_i].text[0] != '{') return;
    /* The prefix comes before every pointer. */
    found = errors_of(documents[_i].text, "/graph", &status);
    for (char *line = found; *line; line = strchr(line, '\n') + 1) {
        ck_assert_int_eq(strncmp(strchr(line, ' '), " /graph", 7), 0);
    }
    free(found);
}
END_TEST

START_TEST(test_syntax_error_says_where) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    const char *text = "{\n  \"name\": \"\xC3\xA9\",\n  \"metadata\": {\"\xC3\xA9\": nil}}";
    ck_assert_int_eq(fb_document_read(text, strlen(text), NULL, "", &graph, &errors), FB_SYNTAX);
    ck_assert_uint_eq(errors.total, 1);
    ck_assert_int_eq(errors.items[0].status, FB_SYNTAX);
    ck_assert_str_eq(errors.items[0].pointer, "/metadata/\xC3\xA9");
    ck_assert_ptr_nonnull(strstr(errors.items[0].message, "(line 3, column 21, offset 39)"));
    fb_errors_free(&errors);
}
END_TEST

START_TEST(test_all_errors_are_reported_together) {
    /* 300 nodes that each read an unknown one, and an unused module: 100 are kept, 301 are counted. */
    fb_buffer nodes = {0};
    for (int i = 0; i < 300; i++) {
        fb_buffer_printf(&nodes, NODE("n%d", "call_function", "f", ",\"args\":[{\"$node\":\"n%d\"}]") ",", i, i + 1000);
    }
    fb_buffer_string(&nodes, OUT);
    char *text = document_of(fb_buffer_text(&nodes), ROOT ",{\"path\":\"a\",\"type\":\"M\"}", "");
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    ck_assert_int_eq(fb_document_read(text, strlen(text), NULL, "", &graph, &errors), FB_INVALID);
    ck_assert_uint_eq(errors.count, 100);
    ck_assert_uint_eq(errors.total, 301);
    ck_assert_str_eq(errors.items[99].pointer, "/nodes/99/args/0");
    ck_assert_str_eq(errors.items[99].node, "n99");
    fb_errors_free(&errors);
    free(text);
    fb_buffer_free(&nodes);
}
END_TEST

START_TEST(test_long_names_are_cut_between_characters) {
    fb_buffer name = {0};
    for (int i = 0; i < 1000; i++) fb_buffer_string(&name, "\xE2\x82\xAC");
    fb_buffer nodes = {0};
    fb_buffer_printf(&nodes, NODE("x%s", "call_module", "%s", "") "," OUT, fb_buffer_text(&name), fb_buffer_text(&name));
    char *text = document_of(fb_buffer_text(&nodes), NULL, "");
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    ck_assert_int_eq(fb_document_read(text, strlen(text), NULL, "", &graph, &errors), FB_INVALID);
    ck_assert_uint_eq(errors.total, 2);
    for (size_t i = 0; i < errors.count; i++) {
        const char *texts[] = {errors.items[i].node, errors.items[i].message};
        for (size_t j = 0; j < 2; j++) {
            json_t *valid = json_string(texts[j]);
            ck_assert_msg(valid != NULL, "no UTF-8: %s", texts[j]);
            json_decref(valid);
        }
    }
    fb_errors_free(&errors);
    free(text);
    fb_buffer_free(&nodes);
    fb_buffer_free(&name);
}
END_TEST

START_TEST(test_late_modules_are_reported_once) {
    fb_status status;
    char *found =
        errors_of("{\"format\":\"foldback.graph/1\",\"modules\":[" ROOT ",3],\"nodes\":[" OUT "],\"tensors\":[]}", "", &status);
    ck_assert_str_eq(found, "wrong-type /modules/1\n");
    free(found);
}
END_TEST

/* In the order of nodes, tensors and modules, wherever the modules are; a tensor that only comes later is there. */
START_TEST(test_errors_are_in_one_order) {
    static const char modules[] = "\"modules\":[" OWNS("w") ",3,{\"path\":\"a\",\"type\":\"M\",\"buffers\":{\"v\":\"v\"}}]";
    static const char tensors[] = "\"tensors\":[" TENSOR("") ",{\"name\":1}]";
    static const char *const expected[] = {"/tensors/1/name", "/tensors/1", "/tensors/1", "/modules/1", "/modules/2/buffers/v"};
    static const char nodes[] = "\"nodes\":[" OUT "]";
    const char *const orders[][3] = {{nodes, modules, tensors}, {nodes, tensors, modules}, {modules, nodes, tensors}};
    for (size_t order = 0; order < sizeof orders / sizeof *orders; order++) {
        const char *const *lists = orders[order];
        char text[1000];
        snprintf(text, sizeof text, "{\"format\":\"foldback.graph/1\",%s,%s,%s}", lists[0], lists[1], lists[2]);
        fb_graph *graph = NULL;
        fb_errors errors = {0};
        ck_assert_int_eq(fb_document_read(text, strlen(text), NULL, "", &graph, &errors), FB_INVALID);
        ck_assert_uint_ge(errors.count, sizeof expected / sizeof *expected);
        for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
            ck_assert_msg(strcmp(errors.items[i].pointer, expected[i]) == 0, "%s\n%zu: %s", text, i, errors.items[i].pointer);
        fb_errors_free(&errors);
    }
}
END_TEST

/* ---- limits ------------------------------------------------------------------------------------------------------------ */

static void expect_limit(const char *text, fb_document_limits limits, fb_status status, const char *expected) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    ck_assert_int_eq(fb_document_read(text, strlen(text), &limits, "", &graph, &errors), status);
    char *found = errors_text(&errors);
    ck_assert_str_eq(found, expected);
    if (errors.count) ck_assert_int_eq(errors.items[0].status, status);
    free(found);
    fb_errors_free(&errors);
    if (status == FB_OK) fb_graph_free(graph);
}

START_TEST(test_limits) {
    char *text = document_of(X "," OUT_OF("[[[]]]"), SUB(OUT), "");
    expect_limit(text, (fb_document_limits){.max_bytes = strlen(text), .max_nodes = 3, .max_nesting = 7}, FB_OK, "");
    expect_limit(text, (fb_document_limits){.max_bytes = strlen(text) - 1}, FB_TOO_LARGE, "document-too-large \n");
    expect_limit(text, (fb_document_limits){.max_nodes = 2}, FB_TOO_LARGE, "too-many-nodes /modules/1\n");
    expect_limit(text, (fb_document_limits){.max_nodes = 1}, FB_TOO_LARGE, "too-many-nodes /nodes/1\n");
    expect_limit(text, (fb_document_limits){.max_nesting = 6}, FB_INVALID, "nesting-too-deep /nodes/1/args/0/0/0\n");
    expect_limit(text, (fb_document_limits){.max_nesting = 1}, FB_INVALID, "nesting-too-deep /nodes\n");
    free(text);

    fb_buffer bomb = {0};
    for (int i = 0; i < 1000000; i++) fb_buffer_char(&bomb, '[');
    expect_limit(fb_buffer_text(&bomb), (fb_document_limits){0}, FB_INVALID,
                 "nesting-too-deep /0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0"
                 "/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0\n");
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    fb_document_limits deepest = {.max_nesting = SIZE_MAX}; /* never more than the stack can take */
    ck_assert_int_eq(fb_document_read(bomb.data, bomb.size, &deepest, "", &graph, &errors), FB_INVALID);
    ck_assert_str_eq(errors.items[0].code, "nesting-too-deep");
    fb_errors_free(&errors);
    fb_buffer_free(&bomb);
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("errors");
    tcase_add_loop_test(cases, test_mistakes, 0, (int)(sizeof mistakes / sizeof *mistakes));
    tcase_add_loop_test(cases, test_documents, 0, (int)(sizeof documents / sizeof *documents));
    tcase_add_test(cases, test_syntax_error_says_where);
    tcase_add_test(cases, test_all_errors_are_reported_together);
    tcase_add_test(cases, test_long_names_are_cut_between_characters);
    tcase_add_test(cases, test_late_modules_are_reported_once);
    tcase_add_test(cases, test_errors_are_in_one_order);
    tcase_add_test(cases, test_limits);
    return run_tests("document errors", cases);
}
