/* What can be said of a graph without a store: its id, its faults, its code; and storing one. */
#include <string.h>

#include "core/graph/code.h"
#include "core/json/members.h"
#include "server/cli/cli.h"

int fb_cli_id(fb_cli *cli) {
    fb_reference reference = fb_reference_read(cli->arguments.items[0]);
    fb_graph *graph;
    int result = fb_reference_graph(cli, &reference, &graph);
    if (result) return result;
    char id[FB_ID_LENGTH + 1];
    bool is_written = cli->values.wants_structure ? fb_document_structure(graph, id) : fb_document_id(graph, id);
    fb_graph_free(graph);
    if (!is_written) return fb_cli_no_memory();
    puts(id);
    return FB_EXIT_DONE;
}

/* ---- verify ------------------------------------------------------------------------------------------------------------- */

static int print_errors_json(const fb_errors *errors) {
    fb_buffer answer = {0};
    fb_buffer_string(&answer, "{\"valid\":false,\"errors\":[");
    for (size_t i = 0; i < errors->count; i++) {
        const fb_error *one = &errors->items[i];
        fb_put_comma(&answer);
        fb_buffer_char(&answer, '{');
        fb_put_text(&answer, "pointer", one->pointer);
        fb_put_text(&answer, "code", one->code);
        fb_put_text(&answer, "detail", one->message);
        fb_buffer_char(&answer, '}');
    }
    fb_buffer_string(&answer, "]");
    fb_put_int(&answer, "total", (int64_t)errors->total);
    fb_buffer_string(&answer, "}");
    const char *text = fb_buffer_text(&answer);
    if (text) puts(text);
    else fb_cli_no_memory();
    fb_buffer_free(&answer);
    return FB_EXIT_FAILED;
}

static int print_valid(const fb_cli *cli, const fb_graph *graph) {
    char id[FB_ID_LENGTH + 1];
    if (!fb_document_id(graph, id)) return fb_cli_no_memory();
    if (cli->values.wants_json) printf("{\"valid\":true,\"id\":\"%s\"}\n", id);
    else
        printf("valid: %s, %zu nodes, %zu modules, %zu tensors\n", id, fb_node_count(graph), fb_module_count(graph),
               fb_tensor_count(graph));
    return FB_EXIT_DONE;
}

int fb_cli_verify(fb_cli *cli) {
    fb_reference reference = fb_reference_read(cli->arguments.items[0]);
    fb_buffer bytes = {0};
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    int result = fb_reference_bytes(cli, &reference, &bytes);
    if (result) return result;
    fb_status status = fb_read_any_document(&bytes, &graph, &errors);
    if (!status) {
        result = print_valid(cli, graph);
    } else if (!errors.count) {
        result = fb_cli_no_memory();
    } else if (cli->values.wants_json) {
        result = print_errors_json(&errors);
    } else {
        fb_errors_print(&errors, "", stdout);
        result = FB_EXIT_FAILED;
    }
    fb_errors_free(&errors);
    fb_graph_free(graph);
    fb_buffer_free(&bytes);
    return result;
}

/* ---- code --------------------------------------------------------------------------------------------------------------- */

int fb_cli_code(fb_cli *cli) {
    fb_reference reference = fb_reference_read(cli->arguments.items[0]);
    fb_graph *graph;
    int result = fb_reference_graph(cli, &reference, &graph);
    if (result) return result;
    fb_buffer code = {0};
    if (fb_code_write(graph, &code)) fwrite(code.data, 1, code.size, stdout);
    else result = fb_cli_no_memory();
    fb_buffer_free(&code);
    fb_graph_free(graph);
    return result;
}

/* ---- put ---------------------------------------------------------------------------------------------------------------- */

static int send_document(fb_cli *cli, const fb_reference *reference, fb_answer *answer) {
    fb_call call = {.method = "POST"};
    int result = fb_reference_bytes(cli, reference, &call.body);
    if (result) return result;
    fb_address_path(&call.address, "/v1/graphs");
    return fb_cli_call(cli, &call, answer);
}

static int print_stored(fb_cli *cli, const fb_buffer *body) {
    if (cli->is_json) {
        fwrite(body->data, 1, body->size, stdout);
        putchar('\n');
        return FB_EXIT_DONE;
    }
    json_t *stored = json_loadb(body->data, body->size, 0, NULL);
    if (!stored) return fb_complain(FB_EXIT_FAILED, "the answer is not JSON: is this foldback?");
    fb_print_facts(cli, (const fb_fact[]){{"graph", fb_text_of(stored, "id")},
                                          {"name", fb_text_of(stored, "name")},
                                          {"structure", fb_text_of(stored, "structure")},
                                          {"archive", fb_text_of(stored, "archive")},
                                          {0}});
    json_decref(stored);
    return FB_EXIT_DONE;
}

int fb_cli_put(fb_cli *cli) {
    const char *model = cli->values.model;
    fb_reference reference = fb_reference_read(cli->arguments.items[0]);
    fb_answer answer;
    if (reference.kind != FB_REFERS_TO_FILE)
        return fb_complain(FB_EXIT_USAGE, "put: %s is in the store; it takes a file", reference.text);
    bool is_archive = fb_is_archive_name(reference.text);
    if (model && !is_archive)
        return fb_complain(FB_EXIT_USAGE, "put: --model is for a .pt2 archive; %s has one graph", reference.text);
    int result = is_archive ? fb_archive_put(cli, reference.text, model, &answer) : send_document(cli, &reference, &answer);
    if (result) return result;
    result = print_stored(cli, &answer.body);
    fb_answer_free(&answer);
    return result;
}
