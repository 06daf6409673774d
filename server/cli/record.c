/* foldback record: what a pass outside of foldback made of a graph. */
#include "server/cli/actions.h"
#include "server/cli/request.h"
#include "server/cli/run.h"

static int set_pass(const fb_cli_values *values, json_t *request) {
    json_t *params = values->params ? json_loads(values->params, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (values->params && !json_is_object(params)) {
        json_decref(params);
        return fb_complain(FB_EXIT_USAGE, "--params %s: write a JSON object", values->params);
    }
    if (params) json_object_set_new(request, "params", params);
    if (values->is_irreversible) json_object_set_new(request, "reversible", json_false());
    if (values->changes_computation) json_object_set_new(request, "preserves_computation", json_false());
    json_object_set_new(request, "version", json_integer(values->version));
    return fb_request_text(request, "name", values->name);
}

int fb_cli_record(fb_cli *cli) {
    const fb_cli_values *values = &cli->values;
    fb_reference source = fb_reference_read(cli->arguments.items[0]), made = fb_reference_read(cli->arguments.items[1]);
    if (!values->name) return fb_complain(FB_EXIT_USAGE, "record: what is the pass called? --name NAME");
    fb_call call = {.method = "POST"};
    json_t *request = json_object();
    int result = set_pass(values, request);
    if (!result) result = fb_request_text(request, "note", values->note);
    if (!result) result = fb_request_labels(request, &values->labels);
    if (result) {
        json_decref(request);
        return result;
    }
    result = fb_request_body(cli, request, (fb_request_graph[2]){{"source", &source}, {"result", &made}}, &call.body);
    if (result) return result;
    fb_address_path(&call.address, "/v1/runs");
    return fb_run_call(cli, &call);
}
