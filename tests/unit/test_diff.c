/* Two-way diff: which edits it gives, that they apply both ways, and what is refused. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/document/document.h"
#include "tests/unit/chaos.h"
#include "tests/unit/diff_apply.h"
#include "tests/unit/diff_pair.h"
#include "tests/unit/documents.h"
#include "tests/unit/generator.h"
#include "tests/unit/quoted.h"
#include "tests/unit/random_case.h"
#include "tests/unit/run_tests.h"

/* ---- which edits --------------------------------------------------------------------------------------------------------- */

#define X "{'name':'x','op':'placeholder','target':'x'}"
#define NEG(name, of) ",{'name':'" name "','op':'call_function','target':'torch.neg','args':[{'$node':'" of "'}]}"
#define CALL(rest) ",{'name':'c','op':'call_function','target':'operator.foo'," rest "}"
#define M(rest) "{'path':'','type':'torch.nn.Module'},{'path':'m','type':'my.M','attributes':{'q':0}" rest "}"
#define TENSOR(name, rest) "{'name':'" name "','dtype':'float32','shape':[2]" rest "}"
#define SIGNATURE "0123456789abcdef0123456789abcdef"
#define BLOB "sha256:0000000000000000000000000000000000000000000000000000000000000000"

static const struct {
    const char *from[3], *to[3]; /* nodes without the output, modules, tensors; NULL for those of no account */
    const char *edits;           /* with ' for " */
} known[] = {
    {{X NEG("a", "x") NEG("b", "x") NEG("c", "x")},
     {X NEG("c", "x") NEG("a", "x") NEG("b", "x")},
     "[{'edit':'move_node','name':'c','before':'a','was':'output'}]"},
    {{X NEG("a", "x") NEG("b", "x") NEG("c", "x")},
     {X NEG("b", "x") NEG("c", "x") NEG("a", "x")},
     "[{'edit':'move_node','name':'a','before':'output','was':'b'}]"},
    {{X NEG("a", "x")},
     {X NEG("b", "x")},
     "[{'edit':'erase_node','node':{'name':'a','op':'call_function','target':'torch.neg','args':[{'$node':'x'}],'kwargs':{},"
     "'meta':{}},'before':'output'},"
     "{'edit':'insert_node','node':{'name':'b','op':'call_function','target':'torch.neg','args':[{'$node':'x'}],'kwargs':{},"
     "'meta':{}},'before':'output'}]"},
    {{X CALL("'args':[{'$node':'x'},8,[1,2]]")},
     {X CALL("'args':[{'$node':'x'},0.125,[1,2]]")},
     "[{'edit':'set_node','name':'c','was':{'/args/1':8},'now':{'/args/1':0.125}}]"},
    {{X CALL("'args':[8]")},
     {X CALL("'args':[80]")},
     "[{'edit':'set_node','name':'c','was':{'/args/0':8},'now':{'/args/0':80}}]"},
    {{X CALL("'args':[1,2]")},
     {X CALL("'args':[1,2,3]")},
     "[{'edit':'set_node','name':'c','was':{'/args':[1,2]},'now':{'/args':[1,2,3]}}]"},
    {{X CALL("'kwargs':{'a':1,'b':2}")},
     {X CALL("'kwargs':{'a':1,'b':3}")},
     "[{'edit':'set_node','name':'c','was':{'/kwargs/b':2},'now':{'/kwargs/b':3}}]"},
    {{X CALL("'kwargs':{'a':1,'b':2}")},
     {X CALL("'kwargs':{'b':2,'a':1}")},
     "[{'edit':'set_node','name':'c','was':{'/kwargs':{'a':1,'b':2}},'now':{'/kwargs':{'b':2,'a':1}}}]"},
    {{X CALL("'meta':{'a/b~':1,'k':1,'shape':[2],'dtype':'float32'}")},
     {X CALL("'type':'int','meta':{'a/b~':2,'dtype':'float32','z':{},'transformations':['" SIGNATURE "']}")},
     "[{'edit':'set_node','name':'c','was':{'/meta/a~1b~0':1,'/meta/k':1,'/meta/shape':[2]},"
     "'now':{'/meta/a~1b~0':2,'/meta/transformations':['" SIGNATURE "'],'/meta/z':{},'/type':'int'}}]"},
    {{X, M(",'config':{'a':1,'bias':true},'training':true,'note':{}")},
     {X, M(",'config':{'bias':false,'c':2},'note':[1]")},
     "[{'edit':'set_module','path':'m','was':{'/config/a':1,'/config/bias':true,'/training':true,'/note':{}},"
     "'now':{'/config/bias':false,'/config/c':2,'/training':false,'/note':[1]}}]"},
    {{X},
     {X, M(",'training':true")},
     "[{'edit':'set_module','path':'m','was':null,'now':{'path':'m','type':'my.M','config':{},'parameters':{},'buffers':{},"
     "'attributes':{'q':0},'training':true},'before':null}]"},
    {{X, M(",'parameters':{'w':'t','v':'u'}"), TENSOR("t", "") "," TENSOR("u", ",'requires_grad':false")},
     {X, M(",'parameters':{'w':'u','v':'t'}"), TENSOR("u", "") "," TENSOR("t", "")},
     "[{'edit':'set_module','path':'m','was':{'/parameters/w':'t','/parameters/v':'u'},"
     "'now':{'/parameters/w':'u','/parameters/v':'t'}},"
     "{'edit':'move_tensor','name':'u','before':'t','was':null},"
     "{'edit':'set_tensor','name':'u','was':{'/requires_grad':false},'now':{'/requires_grad':true}}]"},
    {{X, M(",'parameters':{'w':'t'}"), TENSOR("t", ",'data':'AAAAAAAAAAA='")},
     {X, M(",'parameters':{'w':'t'}"), TENSOR("t", ",'offset':4,'blob':'" BLOB "'")},
     "[{'edit':'set_tensor','name':'t','was':{'/data':'AAAAAAAAAAA='},'now':{'/blob':'" BLOB "','/offset':4}}]"},
    /* Who owns a tensor is no matter of its own row, though it is its default of requires_grad. */
    {{X, M(",'parameters':{'w':'t'}"), TENSOR("t", ",'requires_grad':false")},
     {X, M(",'buffers':{'w':'t'}"), TENSOR("t", "")},
     "[{'edit':'set_module','path':'m','was':{'/parameters':{'w':'t'},'/buffers':{}},"
     "'now':{'/parameters':{},'/buffers':{'w':'t'}}}]"},
};

static fb_graph *known_graph(const char *const parts[3]) {
    char nodes[2000];
    snprintf(nodes, sizeof nodes, "%s,{'name':'output','op':'output','target':'output','args':[{'$node':'x'}]}", parts[0]);
    return quoted_graph(nodes, parts[1], parts[2] ? parts[2] : "");
}

START_TEST(test_known_edits) {
    fb_graph *from = known_graph(known[_i].from), *to = known_graph(known[_i].to);
    char *edits = quoted_edits(from, to);
    ck_assert_str_eq(edits, known[_i].edits);
    check_pair(from, to, "known");
    free(edits);
    fb_graph_free(from);
    fb_graph_free(to);
}
END_TEST

#define OUTPUT_ALONE "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[null]}"

static fb_graph *graph_with(const char *members) {
    char text[1000];
    snprintf(text, sizeof text,
             "{\"format\":\"foldback.graph/1\",\"nodes\":[" OUTPUT_ALONE "],"
             "\"modules\":[{\"path\":\"\",\"type\":\"t.M\"}],\"tensors\":[]%s}",
             members);
    return graph_of(text, strlen(text));
}

START_TEST(test_name_and_metadata) {
    fb_graph *from = graph_with(",\"name\":\"a\",\"metadata\":{\"k/~\\\"\\\\\\n\":1,\"same\":[1]}");
    fb_graph *to = graph_with(",\"name\":\"b\\\"\",\"metadata\":{\"\":null,\"same\":[1]}"), *none = graph_with("");
    json_t *edits = edits_between(from, to);
    json_t *expected = json_pack("[{s:s,s:{s:s,s:i},s:{s:s,s:n}}]", "edit", "set_graph", "was", "/name", "a",
                                 "/metadata/k~1~0\"\\\n", 1, "now", "/name", "b\"", "/metadata/");
    ck_assert_msg(json_equal(edits, expected), "%s", json_dumps(edits, 0));
    ck_assert_uint_eq(check_pair(from, to, "name and metadata"), 1);
    ck_assert_uint_eq(check_pair(from, none, "no metadata"), 1);
    ck_assert_uint_eq(check_pair(none, none, "no difference"), 0);
    json_decref(edits);
    json_decref(expected);
    fb_graph_free(from);
    fb_graph_free(to);
    fb_graph_free(none);
}
END_TEST

/* A document without name and metadata has the empty ones. */
START_TEST(test_name_and_metadata_taken_away) {
    fb_graph *named = graph_with(",\"name\":\"a\""), *plain = graph_with(""), *result = NULL;
    fb_member_edit members[] = {{"/name", {"\"a\"", 3}, {NULL, 0}}, {"/metadata", {"{}", 2}, {NULL, 0}}};
    fb_edit edit = {.table = FB_GRAPH_TABLE, .kind = FB_EDIT_SET, .name = "", .members = members, .member_count = 2};
    char id[FB_ID_LENGTH + 1], expected[FB_ID_LENGTH + 1];
    ck_assert_int_eq(fb_diff_apply(&(fb_diff){.edits = &edit, .count = 1}, named, &result, NULL), FB_OK);
    ck_assert(fb_document_id(result, id) && fb_document_id(plain, expected));
    ck_assert_str_eq(id, expected);
    fb_graph_free(named);
    fb_graph_free(plain);
    fb_graph_free(result);
}
END_TEST

/* ---- fixtures ------------------------------------------------------------------------------------------------------------ */

static fb_graph *fixture(const char *name) {
    size_t size;
    char *text = read_fixture(name, "graph.json", &size);
    fb_graph *graph = graph_of(text, size);
    free(text);
    return graph;
}

static fb_graph *optimised(const fb_graph *source, const char *passes) {
    fb_composition composition;
    fb_run run;
    json_t *list = json_loads(passes, 0, NULL);
    ck_assert_int_eq(fb_composition_read(list, "", NULL, &composition, NULL), FB_OK);
    ck_assert_int_eq(fb_composition_run(&composition, source, FB_LINT_NONE, NULL, &run, NULL), FB_OK);
    fb_graph *result = run.result;
    run.result = NULL;
    fb_run_free(&run);
    fb_composition_free(&composition);
    json_decref(list);
    return result;
}

static const char *const compositions[] = {
    "[\"MergeLinears\"]",
    "[\"FuseBiasInLinear\"]",
    "[\"ChangeTrueDivToMulByInverse\"]",
    "[\"FuseBatchNorm2dInConv2d\", \"FuseBatchNorm1dInLinear\"]",
    "[\"ChangeTrueDivToMulByInverse\", \"MergeLinears\", \"FuseBiasInLinear\"]",
};
enum { COMPOSITIONS = sizeof compositions / sizeof *compositions };

START_TEST(test_fixture_and_its_results) {
    const char *name = fixture_names[_i];
    fb_graph *source = fixture(name), *results[COMPOSITIONS];
    for (size_t i = 0; i < COMPOSITIONS; i++) {
        results[i] = optimised(source, compositions[i]);
        size_t count = check_pair(source, results[i], name);
        ck_assert_msg(count > 0 || fb_node_count(source) == fb_node_count(results[i]), "%s: no edits", name);
        if (i > 0) check_pair(results[i - 1], results[i], name);
    }
    for (size_t i = 0; i < COMPOSITIONS; i++) fb_graph_free(results[i]);
    fb_graph_free(source);
}
END_TEST

START_TEST(test_unrelated_fixtures) {
    fb_graph *from = fixture(fixture_names[_i]), *to;
    for (size_t i = 0; fixture_names[i]; i++) {
        to = fixture(fixture_names[i]);
        size_t count = check_pair(from, to, fixture_names[i]);
        ck_assert((count == 0) == ((int)i == _i));
        fb_graph_free(to);
    }
    fb_graph_free(from);
}
END_TEST

/* ---- edits that do not fit ----------------------------------------------------------------------------------------------- */

#define HERE X NEG("a", "x") NEG("b", "x") CALL("'args':[{'$node':'x'},8]")
#define OWNS(rest) M(",'parameters':{" rest "}")

static const struct {
    const char *from[3], *to[3]; /* the edits */
    const char *graph[3];        /* what they are applied to */
    const char *says;
} unfitting[] = {
    {{X}, {X NEG("a", "x")}, {HERE}, "node \"a\" is there already"},
    {{X NEG("y", "x")}, {X NEG("new", "x") NEG("y", "x")}, {HERE}, "node \"new\" would stand before one that is not there"},
    {{X NEG("y", "x")}, {X}, {HERE}, "node \"y\" is not there"},
    {{X NEG("y", "x") NEG("a", "y") NEG("b", "x")}, {X NEG("y", "x") NEG("b", "x")}, {HERE}, "node \"a\" is another one"},
    {{X NEG("a", "x")}, {X}, {HERE}, "node \"a\" stands elsewhere"},
    {{X NEG("y", "x") NEG("b", "x") NEG("c", "x")},
     {X NEG("b", "x") NEG("c", "x") NEG("y", "x")},
     {HERE},
     "node \"y\" is not there"},
    {{X NEG("a", "x") NEG("c", "x") NEG("b", "x")},
     {X NEG("c", "x") NEG("a", "x") NEG("b", "x")},
     {HERE},
     "node \"c\" stands elsewhere"},
    {{X NEG("y", "x") NEG("a", "x") NEG("b", "x")},
     {X NEG("a", "x") NEG("y", "x") NEG("b", "x")},
     {HERE},
     "node \"a\" would stand before one that is not there"},
    {{X NEG("z", "x") NEG("y", "x")}, {X NEG("z", "x") NEG("y", "z")}, {HERE}, "node \"y\" is not there"},
    {{X CALL("'args':[{'$node':'x'},9]")}, {X CALL("'args':[{'$node':'x'},10]")}, {HERE}, "node \"c\" has another value"},
    {{X CALL("'args':[{'$node':'x'},8.5]")}, {X CALL("'args':[{'$node':'x'},8]")}, {HERE}, "node \"c\" has another value"},
    {{X CALL("'meta':{'k':1}")}, {X CALL("'meta':{'k':2}")}, {HERE}, "node \"c\" has another value"},
    {{X CALL("'meta':{'k':1}")}, {X CALL("'meta':{}")}, {HERE}, "node \"c\" has another value"},
    {{X CALL("'meta':{}")}, {X CALL("'meta':{'k':1}")}, {X CALL("'meta':{'k':1}")}, "node \"c\" has another value"},
    {{X CALL("'args':[1,2,3]")}, {X CALL("'args':[1,2,4]")}, {HERE}, "node \"c\" has another value"},
    {{X CALL("'type':'int'")}, {X CALL("'type':'str'")}, {HERE}, "node \"c\" has another value"},
    {{X}, {X, M("")}, {X, M("")}, "module \"m\" is there already"},
    {{X, M("")}, {X}, {X}, "module \"m\" is not there"},
    {{X, M("")}, {X}, {X, M(",'training':true")}, "module \"m\" is another one"},
    {{X, M(",'training':true")}, {X, M("")}, {X, M("")}, "module \"m\" has another value"},
    {{X, M("")},
     {X, OWNS("'w':'t'"), TENSOR("t", "")},
     {X, M("") ",{'path':'n','type':'t.N','parameters':{'w':'t'}}", TENSOR("t", "")},
     "tensor \"t\" is there already"},
    {{X, OWNS("'w':'t'"), TENSOR("t", "")},
     {X, M("")},
     {X, OWNS("'w':'t'"), TENSOR("t", ",'note':1")},
     "tensor \"t\" is another one"},
    {{X, OWNS("'w':'t'"), TENSOR("t", ",'note':1")},
     {X, OWNS("'w':'t'"), TENSOR("t", "")},
     {X, OWNS("'w':'t'"), TENSOR("t", "")},
     "tensor \"t\" has another value"},
    {{X, OWNS("'v':'t','w':'u'"), TENSOR("t", "") "," TENSOR("u", "")},
     {X, OWNS("'v':'t','w':'u'"), TENSOR("u", "") "," TENSOR("t", "")},
     {X, OWNS("'v':'t','w':'u'"), TENSOR("u", "") "," TENSOR("t", "")},
     "tensor \"u\" stands elsewhere"},
};

/* Applies the edits between two graphs to a third one, which must be refused. */
static fb_error refused(const fb_graph *from, const fb_graph *to, const fb_graph *graph) {
    fb_diff diff;
    fb_graph *result = NULL;
    fb_error error = {0};
    ck_assert_int_eq(fb_diff_make(from, to, &(fb_work){0}, &diff, NULL), FB_OK);
    ck_assert_int_eq(fb_diff_apply(&diff, graph, &result, &error), FB_CONFLICT);
    ck_assert_ptr_null(result);
    ck_assert_str_eq(error.code, "edit-does-not-fit");
    fb_diff_free(&diff);
    return error;
}

START_TEST(test_edit_does_not_fit) {
    fb_graph *from = known_graph(unfitting[_i].from), *to = known_graph(unfitting[_i].to);
    fb_graph *graph = known_graph(unfitting[_i].graph);
    fb_error error = refused(from, to, graph);
    ck_assert_msg(strstr(error.message, unfitting[_i].says), "%s", error.message);
    ck_assert((error.node[0] != 0) == (strncmp(unfitting[_i].says, "node", 4) == 0));
    fb_graph_free(from);
    fb_graph_free(to);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_name_does_not_fit) {
    fb_graph *from = graph_with(",\"name\":\"a\""), *to = graph_with(",\"name\":\"b\"");
    ck_assert(strstr(refused(from, to, to).message, "the graph \"\" has another value"));
    fb_graph_free(from);
    fb_graph_free(to);
}
END_TEST

/* What fits, but makes no valid graph: a node that others read is erased. */
START_TEST(test_invalid_result) {
    static const char *const parts[][3] = {
        {X NEG("a", "x") NEG("b", "x")}, {X NEG("b", "x")}, {X NEG("a", "x") NEG("b", "x") NEG("c", "a")}};
    fb_graph *from = known_graph(parts[0]), *to = known_graph(parts[1]), *graph = known_graph(parts[2]), *result = NULL;
    fb_diff diff;
    fb_error error = {0};
    ck_assert_int_eq(fb_diff_make(from, to, &(fb_work){0}, &diff, &error), FB_OK);
    ck_assert_int_eq(fb_diff_apply(&diff, graph, &result, &error), FB_INVALID);
    ck_assert_ptr_null(result);
    ck_assert_str_eq(error.pointer, "/nodes/2/args/0");
    fb_diff_free(&diff);
    fb_graph_free(from);
    fb_graph_free(to);
    fb_graph_free(graph);
}
END_TEST

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

/* There and back, as JSON too. */
static fb_status there_and_back(const fb_graph *from, const fb_graph *to, fb_graph **back) {
    fb_diff diff = {0};
    fb_graph *result = NULL;
    fb_error error = {0};
    fb_buffer text = {0};
    fb_status status = fb_diff_make(from, to, &(fb_work){0}, &diff, &error);
    if (!status) fb_diff_write(&diff, &(fb_work){0}, &text);
    if (!status && text.failed) status = FB_NO_MEMORY;
    if (!status) status = fb_diff_apply(&diff, from, &result, &error);
    if (!status) fb_diff_invert(&diff);
    if (!status) status = fb_diff_apply(&diff, result, back, &error);
    fb_buffer_free(&text);
    fb_diff_free(&diff);
    fb_graph_free(result);
    return status;
}

START_TEST(test_memory_runs_out) {
    static void (*const failures[])(long count) = {chaos_fail_after, chaos_fail_once};
    fb_buffer text = {0};
    generate_document((uint64_t)_i, &text);
    fb_graph *from = graph_of(text.data, text.size), *to = _i % 2 ? optimised(from, compositions[4]) : fixture("toy");
    char id[FB_ID_LENGTH + 1], expected[FB_ID_LENGTH + 1];
    ck_assert(fb_document_id(from, expected));
    for (size_t kind = 0; kind < 2; kind++) {
        for (long k = 0;; k += fault_step()) {
            failures[kind](k);
            fb_graph *back = NULL;
            fb_status status = there_and_back(from, to, &back);
            bool has_failed = chaos_off();
            ck_assert_msg(status == (has_failed ? FB_NO_MEMORY : FB_OK), "status %d at allocation %ld", status, k);
            ck_assert((back == NULL) == (status != FB_OK));
            ck_assert(!back || (fb_document_id(back, id) && strcmp(id, expected) == 0));
            fb_graph_free(back);
            if (!has_failed) break;
        }
    }
    fb_graph_free(from);
    fb_graph_free(to);
    fb_buffer_free(&text);
}
END_TEST

/* ---- size ---------------------------------------------------------------------------------------------------------------- */

/* A graph of `count` nodes, in which every third one is missing or another, and, when `is_turned`, in the opposite order. */
static fb_graph *large_graph(size_t count, size_t missing, bool is_turned) {
    fb_buffer nodes = {0};
    fb_buffer_string(&nodes, "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\"}");
    for (size_t i = 0; i < count; i++) {
        size_t number = is_turned ? count - 1 - i : i;
        if (number % 3 == missing) continue;
        fb_buffer_printf(&nodes,
                         ",{\"name\":\"n%zu\",\"op\":\"call_function\",\"target\":\"torch.neg\","
                         "\"args\":[{\"$node\":\"x\"},%zu]}",
                         number, missing);
    }
    fb_buffer_string(&nodes, "," OUTPUT_ALONE);
    char *text = document_of(fb_buffer_text(&nodes), NULL, "");
    fb_graph *graph = graph_of(text, strlen(text));
    free(text);
    fb_buffer_free(&nodes);
    return graph;
}

/* Anything quadratic would not come to an end here; make test tries fewer. */
static size_t large(void) {
    return random_setting("FOLDBACK_COMPARED_NODES", 100000);
}

START_TEST(test_large_graphs) {
    size_t count = large();
    fb_graph *graph = large_graph(count, 0, false), *other = large_graph(count, 1, false),
             *turned = large_graph(count, 0, true);
    fb_graph *same = fb_graph_copy(graph, &(fb_work){0});
    ck_assert_uint_eq(check_pair(graph, same, "the same"), 0);
    ck_assert_uint_eq(check_pair(graph, other, "a third erased, a third inserted, a third changed"), count);
    ck_assert_uint_eq(check_pair(graph, turned, "turned round"), fb_node_count(graph) - 3);
    fb_graph_free(graph);
    fb_graph_free(same);
    fb_graph_free(other);
    fb_graph_free(turned);
}
END_TEST

/* One row with very many members, all of them others. */
START_TEST(test_large_row) {
    size_t count = large();
    fb_buffer members[2] = {0};
    fb_graph *graphs[2];
    for (size_t g = 0; g < 2; g++) {
        fb_buffer_string(&members[g], "{\"format\":\"foldback.graph/1\",\"nodes\":[" OUTPUT_ALONE "],"
                                      "\"modules\":[{\"path\":\"\",\"type\":\"t.M\"}],\"tensors\":[],\"metadata\":{\"k\":0");
        for (size_t i = g; i < count + g; i++) fb_buffer_printf(&members[g], ",\"k%zu\":%zu", i, i % 2 + g);
        fb_buffer_string(&members[g], "}}");
        graphs[g] = graph_of(members[g].data, members[g].size);
        fb_buffer_free(&members[g]);
    }
    ck_assert_uint_eq(check_pair(graphs[0], graphs[1], "metadata"), 1);
    fb_graph_free(graphs[0]);
    fb_graph_free(graphs[1]);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("diff");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, test_known_edits, 0, sizeof known / sizeof *known);
    tcase_add_test(tests, test_name_and_metadata);
    tcase_add_test(tests, test_name_and_metadata_taken_away);
    tcase_add_loop_test(tests, test_fixture_and_its_results, 0, fixture_count);
    tcase_add_loop_test(tests, test_unrelated_fixtures, 0, fixture_count);
    tcase_add_loop_test(tests, test_edit_does_not_fit, 0, sizeof unfitting / sizeof *unfitting);
    tcase_add_test(tests, test_name_does_not_fit);
    tcase_add_test(tests, test_invalid_result);
    tcase_add_loop_test(tests, test_memory_runs_out, 0, 6);
    tcase_add_test(tests, test_large_graphs);
    tcase_add_test(tests, test_large_row);
    return run_tests("diff", tests);
}
