/* libFuzzer: whatever JSON comes, the reader of rules answers, an error has a place in it, and a rule that is taken can be
 * applied: the graph is valid afterwards. `make fuzz` builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/compose/run.h"
#include "core/pass/pass.h"
#include "core/rules/rule.h"

#define SHAPED "\"meta\":{\"shape\":[2,4],\"dtype\":\"float32\"}"
static const char document[] =
    "{\"format\":\"foldback.graph/1\",\"nodes\":["
    "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\"," SHAPED "},"
    "{\"name\":\"a\",\"op\":\"call_function\",\"target\":\"operator.mul\",\"args\":[{\"$node\":\"x\"},2]," SHAPED "},"
    "{\"name\":\"b\",\"op\":\"call_function\",\"target\":\"torch.sigmoid\",\"args\":[{\"$node\":\"x\"}]," SHAPED "},"
    "{\"name\":\"c\",\"op\":\"call_method\",\"target\":\"mul\",\"args\":[{\"$node\":\"b\"},{\"$node\":\"x\"}]," SHAPED "},"
    "{\"name\":\"d\",\"op\":\"call_module\",\"target\":\"m\",\"args\":[{\"$node\":\"c\"}]," SHAPED "},"
    "{\"name\":\"e\",\"op\":\"call_function\",\"target\":\"torch.ops.aten.add.Tensor\",\"args\":[{\"$node\":\"d\"},{\"$node\":"
    "\"a\"}]," SHAPED "},"
    "{\"name\":\"f\",\"op\":\"call_function\",\"target\":\"torch.div\",\"args\":[{\"$node\":\"e\"}],\"kwargs\":{\"other\":4}"
    "," SHAPED "},"
    "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$tuple\":[{\"$node\":\"f\"},{\"$node\":\"b\"}]}]"
    "}],"
    "\"modules\":[{\"path\":\"\",\"type\":\"torch.nn.Module\"},{\"path\":\"m\",\"type\":\"torch.nn.ReLU\"}],\"tensors\":[]}";

static void apply(const fb_rule *rule) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    fb_error error = {0};
    fb_arena arena = {0};
    require(fb_document_read(document, sizeof document - 1, NULL, "", &graph, &errors) == FB_OK);
    fb_graph *source = fb_graph_copy(graph, &(fb_work){0});
    fb_namespace *names = fb_namespace_of(source, &(fb_work){0});
    fb_graph_state work = {.graph = graph, .names = names};
    fb_pass_report report = {.pass = fb_rule_pass(rule), .params = "{}", .signature = "fuzz"};
    require(fb_pass_apply(&work, NULL, &report, &arena, &error) == FB_OK);
    require(fb_lint_graph(graph, &(fb_work){0}, &error) == FB_OK);
    fb_graph_state_forget(&work);
    fb_namespace_free(names);
    fb_graph_free(graph);
    fb_graph_free(source);
    fb_arena_free(&arena);
    fb_errors_free(&errors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_t *json = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    fb_rule *rule = NULL, *again = NULL;
    fb_error error = {0};
    if (!json) return 0;
    fb_status status = fb_rule_read(json, "/rule", 1, &rule, &error);
    json_decref(json);
    require((status == FB_OK) == (rule != NULL));
    require(status == FB_OK || (status == FB_INVALID && strncmp(error.pointer, "/rule", 5) == 0));
    if (!rule) return 0;
    status = fb_rule_check(rule, &error);
    require(status == FB_OK || (status == FB_INVALID && strncmp(error.pointer, "/rule/", 6) == 0));
    json_t *stored = json_loads(fb_rule_document(rule), 0, NULL);
    require(stored && fb_rule_read(stored, "", 1, &again, &error) == FB_OK);
    require(strcmp(fb_rule_pass(rule)->digest, fb_rule_pass(again)->digest) == 0);
    json_decref(stored);
    apply(rule);
    fb_rule_free(rule);
    fb_rule_free(again);
    return 0;
}
