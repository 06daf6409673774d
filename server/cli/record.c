/* foldback record: what a pass outside of foldback made of a graph. */
#include "core/json/members.h"
#include "server/cli/cli.h"

static int make_request(fb_cli *cli, fb_buffer *out) {
    const fb_cli_values *values = &cli->values;
    fb_reference source = fb_reference_read(cli->arguments.items[0]), made = fb_reference_read(cli->arguments.items[1]);
    fb_request_begin(out);
    fb_put_int(out, "version", values->version);
    if (values->is_irreversible) fb_put_bool(out, "reversible", false);
    if (values->changes_computation) fb_put_bool(out, "preserves_computation", false);
    int result = fb_request_text(out, "name", values->name);
    if (!result) result = fb_request_object(out, "params", values->params);
    if (!result) result = fb_request_text(out, "note", values->note);
    if (!result) result = fb_request_labels(out, &values->labels);
    if (!result) result = fb_request_graph(cli, out, "source", &source);
    if (!result) result = fb_request_graph(cli, out, "result", &made);
    return result ? result : fb_request_end(out);
}

int fb_cli_record(fb_cli *cli) {
    fb_call call = {.method = "POST"};
    if (!cli->values.name) return fb_complain(FB_EXIT_USAGE, "record: what is the pass called? --name NAME");
    fb_address_path(&call.address, "/v1/runs");
    int result = make_request(cli, &call.body);
    if (!result) return fb_run_call(cli, &call);
    fb_call_free(&call);
    return result;
}
