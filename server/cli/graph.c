/* Verbs for a graph without a store: its id, its faults, its code; and storing one. */
#include <string.h>

#include "core/graph/code.h"
#include "core/json/json.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

static int print_id(fb_cli *cli) {
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

#define COUNTED(count) (count), (count) == 1 ? "" : "s"

static int print_valid(const fb_cli *cli, const fb_graph *graph) {
    char id[FB_ID_LENGTH + 1];
    if (!fb_document_id(graph, id)) return fb_cli_no_memory();
    if (cli->values.wants_json) printf("{\"valid\":true,\"id\":\"%s\"}\n", id);
    else
        printf("valid: %s, %zu node%s, %zu module%s, %zu tensor%s\n", id, COUNTED(fb_node_count(graph)),
               COUNTED(fb_module_count(graph)), COUNTED(fb_tensor_count(graph)));
    return FB_EXIT_DONE;
}

static int verify(fb_cli *cli) {
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

static int print_code(fb_cli *cli) {
    fb_reference reference = fb_reference_read(cli->arguments.items[0]);
    fb_graph *graph;
    int result = fb_reference_graph(cli, &reference, &graph);
    if (result) return result;
    fb_buffer code = {0};
    if (fb_code_write(graph, FB_MAIN_PROGRAM, &(fb_work){0}, &code)) fwrite(code.data, 1, code.size, stdout);
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

static int put(fb_cli *cli) {
    const char *model = cli->values.model;
    fb_reference reference = fb_reference_read(cli->arguments.items[0]);
    fb_answer answer;
    if (reference.kind != FB_REFERS_TO_FILE)
        return fb_complain(FB_EXIT_USAGE, "put: %s is in the store; it takes a file", reference.text);
    bool is_archive = fb_is_archive_name(reference.text);
    if (model && (!is_archive || fb_is_onnx_name(reference.text)))
        return fb_complain(FB_EXIT_USAGE, "put: --model is for a .pt2 archive; %s has one graph", reference.text);
    int result = is_archive ? fb_archive_put(cli, reference.text, model, &answer) : send_document(cli, &reference, &answer);
    if (result) return result;
    result = print_stored(cli, &answer.body);
    fb_answer_free(&answer);
    return result;
}

/* ---- list  ------------------------------------------------------------------------------------------------------- */

static void graph_row(const json_t *graph, fb_screen_table *table) {
    fb_table_text(table, graph, "id");
    fb_table_text(table, graph, "name");
    fb_table_number(table, graph, "nodes");
    fb_table_size(table, graph, "bytes");
    fb_table_time(table, graph, "created");
}

static int list_graphs(fb_cli *cli) {
    static const char *const headings[] = {"GRAPH", "NAME", ">NODES", ">SIZE", "CREATED"};
    fb_address address = {0};
    fb_address_path(&address, "/v1/graphs");
    fb_address_query(&address, "name", cli->values.name);
    fb_address_query(&address, "structure", cli->values.structure);
    return fb_list_show(cli, &address, headings, 5, graph_row);
}

/* ---- nodes -------------------------------------------------------------------------------------------------------------- */

static void node_row(const json_t *node, fb_screen_table *table) {
    json_t *marks = json_object_get(node, "passes"), *mark; /* name_marks */
    char *shape = json_dumps(json_object_get(node, "shape"), JSON_COMPACT), shown[200] = "";
    size_t i, used = 0;
    json_array_foreach(marks, i, mark) {
        int added = snprintf(shown + used, sizeof shown - used, "%s%s", i ? ", " : "", json_string_value(mark));
        used += added > 0 ? (size_t)added : 0;
        if (used >= sizeof shown) break;
    }
    fb_table_text(table, node, "name");
    fb_table_text(table, node, "op");
    fb_table_text(table, node, "target");
    fb_table_cell(table, "%s%s", fb_text_of(node, "dtype"), shape ? shape : "");
    fb_table_cell(table, "%s", shown);
    free(shape);
}

/* The pass that has the signature in the newest run with it; without one, the signature's beginning. */
static json_t *find_pass_name(fb_cli *cli, const char *signature) {
    fb_address address = {0};
    json_t *page, *pass, *name = NULL;
    size_t i;
    fb_address_path(&address, "/v1/runs");
    fb_address_query(&address, "signature", signature);
    fb_address_query(&address, "limit", "1");
    if (fb_cli_get(cli, &address, &page, NULL)) page = NULL;
    const json_t *run = json_array_get(json_object_get(page, "items"), 0);
    json_array_foreach(json_object_get(run, "passes"), i, pass) {
        if (!name && !strcmp(fb_text_of(pass, "signature"), signature)) name = json_incref(json_object_get(pass, "name"));
    }
    json_decref(page);
    return name ? name : json_sprintf("%.8s", signature);
}

/* Gives each node the names of the passes that marked it: "passes". */
static void name_marks(fb_cli *cli, json_t *nodes) {
    json_t *names = json_object(), *node, *mark;
    size_t i, k;
    json_array_foreach(nodes, i, node) {
        json_t *list = json_array();
        json_array_foreach(json_object_get(node, "transformations"), k, mark) {
            const char *signature = json_string_value(mark);
            if (!json_object_get(names, signature)) json_object_set_new(names, signature, find_pass_name(cli, signature));
            json_array_append(list, json_object_get(names, signature));
        }
        json_object_set_new(node, "passes", list);
    }
    json_decref(names);
}

static int list_nodes(fb_cli *cli) {
    static const char *const headings[] = {"NODE", "OP", "TARGET", "VALUE", "PASSES"};
    fb_list list;
    const fb_cli_values *values = &cli->values;
    fb_reference graph = fb_reference_read(cli->arguments.items[0]);
    fb_address address = {0};
    int result = fb_reference_graph_address(cli, &graph, "/nodes", &address);
    if (result) return result;
    fb_address_query(&address, "pass", values->pass);
    fb_address_query(&address, "signature", values->signature);
    fb_address_query(&address, "op", values->op);
    fb_address_query(&address, "target", values->target);
    result = fb_list_get(cli, &address, &list);
    if (result) return result;
    if (!cli->is_json) name_marks(cli, list.items);
    return fb_list_print(cli, &list, headings, 5, node_row);
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option put_options[] = {
    TEXT("model", 0, "NAME", "which program of a .pt2 archive with several", model),
    TEXT("root", 0, "DIR", "a folder around an .onnx model, that links to its files may lead to", root),
    FLAG("absent", 0, "take an .onnx model whose files are missing: their weights are nowhere", is_absent),
    STORE,
    JSON,
    END,
};

static const fb_option graphs_options[] = {
    TEXT("name", 0, "NAME", "graphs of this name", name),
    TEXT("structure", 0, "ID", "graphs of this structure (foldback id --structure)", structure),
    LIMIT,
    STORE,
    JSON,
    END,
};

static const fb_option nodes_options[] = {
    TEXT("pass", 'p', "PASS", "nodes that this pass marked", pass),
    TEXT("signature", 0, "HEX", "nodes that carry this signature", signature),
    TEXT("op", 0, "OP", "nodes of this kind: call_module, call_function, placeholder and so on", op),
    TEXT("target", 0, "TARGET", "nodes with this target", target),
    LIMIT,
    STORE,
    JSON,
    END,
};

static const fb_option verify_options[] = {STORE, FLAG("json", 0, "the findings as JSON", wants_json), END};

static const fb_option id_options[] = {
    FLAG("structure", 0, "the id without names, metadata and weights: two tracings of one model share it", wants_structure),
    STORE,
    END,
};

const fb_verb fb_graph_verbs[] = {
    {.name = "put",
     .arguments = "FILE",
     .summary = "stores a graph: a document, a .pt2 archive or an .onnx model",
     .description =
         "An archive or a model becomes a blob of the store, unless the store has it, and its weights stay in it. The files\n"
         "that have an .onnx model's weights come along: they must be in its folder or in one below. Other verbs that take a\n"
         "graph store such a file as well.\n",
     .options = put_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = put},
    {.name = "graph list",
     .arguments = "",
     .summary = "lists the graphs of the store",
     .options = graphs_options,
     .run = list_graphs},
    {.name = "graph show",
     .arguments = "GRAPH",
     .summary = "shows the runs that made a graph and those that used it",
     .description = GRAPH_NAMES,
     .options = fb_plain_options,
     .folder = FB_FOLDER_FOR_FILES,
     .run = fb_cli_show},
    {.name = "graph nodes",
     .arguments = "GRAPH",
     .summary = "lists a graph's nodes, and the passes that marked them",
     .description = GRAPH_NAMES "The store must have the graph. A file stands for the stored graph with the same id.\n",
     .options = nodes_options,
     .folder = FB_FOLDER_FOR_FILES,
     .run = list_nodes},
    {.name = "code",
     .arguments = "GRAPH",
     .summary = "prints a graph's forward() as Python",
     .description = GRAPH_NAMES,
     .options = fb_store_options,
     .folder = FB_FOLDER_FOR_FILES,
     .run = print_code},
    {.name = "verify",
     .arguments = "GRAPH",
     .summary = "checks a graph, and lists everything that is wrong",
     .description = GRAPH_NAMES,
     .options = verify_options,
     .folder = FB_FOLDER_FOR_FILES,
     .run = verify},
    {.name = "id",
     .arguments = "GRAPH",
     .summary = "prints a graph's id",
     .description = GRAPH_NAMES,
     .options = id_options,
     .folder = FB_FOLDER_FOR_FILES,
     .run = print_id},
    {.name = "graphs", .now = "graph list", .arguments = "", .options = graphs_options, .run = list_graphs},
    {.name = "nodes", .now = "graph nodes", .arguments = "GRAPH", .options = nodes_options, .run = list_nodes},
    {.name = "validate", .now = "verify", .arguments = "GRAPH", .options = verify_options, .run = verify},
    {0},
};
