#include "core/analysis/scopes.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/onnx.h"
#include "core/analysis/view.h"

typedef struct finder {
    const fb_graph *graph;
    fb_scopes *scopes;
    fb_node *readers; /* by program: the get_attr node that reads it */
    bool *is_listed;  /* by program */
} finder;

/* The call that runs a program, which its reader alone reads; none for the main program and functions. */
static fb_node caller_of(const finder *f, fb_program program) {
    fb_node reader = f->readers[program.id];
    return reader.id && fb_node_at(f->graph, reader)->user_count == 1 ? fb_edge_user(f->graph, fb_user_first(f->graph, reader))
                                                                      : (fb_node){0};
}

/* The values that a call hands to one of its programs: an item of its `captures`, which has one for each. */
static fb_value captures_of(const finder *f, fb_node call, fb_node reader) {
    const fb_graph *g = f->graph;
    const fb_value_row *kwargs = fb_value_at(g, fb_node_at(g, call)->kwargs);
    fb_value all = fb_node_kwarg(g, call, "captures");
    uint32_t place = 0;
    for (uint32_t i = 0; i + 1 < kwargs->count; i += 2) {
        fb_node given = fb_value_node(g, kwargs->items[i + 1]);
        bool is_list_of_programs =
            !given.id && kwargs->items[i + 1].id != all.id && fb_value_at(g, kwargs->items[i + 1])->has_nodes;
        if (given.id == reader.id) return fb_value_item(g, all, place);
        if (is_list_of_programs) return (fb_value){0};
        place += fb_onnx_program_read_by(g, given).id != 0;
    }
    return (fb_value){0};
}

static void find_captured(const finder *f, fb_program program) {
    const fb_graph *g = f->graph;
    fb_node call = caller_of(f, program);
    fb_value list = call.id ? captures_of(f, call, f->readers[program.id]) : (fb_value){0};
    size_t at = 0;
    for (fb_node n = fb_first_node(g, program); n.id && list.id; n = fb_next_node(g, n)) {
        bool is_it = fb_node_at(g, n)->opcode == FB_PLACEHOLDER && fb_onnx_is_captured(g, n);
        fb_value item = is_it ? fb_value_item(g, list, at++) : (fb_value){0};
        if (item.id) f->scopes->outer[n.id] = fb_value_node(g, item);
    }
}

/* Programs are no deeper in each other than a reader of models allows. */
static void list(finder *f, fb_program program) {
    fb_node call = caller_of(f, program);
    if (f->is_listed[program.id]) return;
    f->is_listed[program.id] = true;
    if (call.id) list(f, fb_node_at(f->graph, call)->program);
    f->scopes->programs[f->scopes->program_count++] = program;
    for (fb_node n = fb_first_node(f->graph, program); n.id; n = fb_next_node(f->graph, n))
        f->scopes->place[n.id] = f->scopes->count, f->scopes->nodes[f->scopes->count++] = n;
}

bool fb_scopes_find(const fb_graph *graph, fb_scopes *out) {
    uint32_t end = fb_programs_to_clean(graph);
    bool is_nested = end > FB_MAIN_PROGRAM.id + 1;
    size_t nodes = (size_t)fb_node_limit(graph) + 1, programs = (size_t)fb_program_limit(graph) + 1;
    *out = (fb_scopes){.nodes = malloc(nodes * sizeof *out->nodes),
                       .place = malloc(nodes * sizeof *out->place),
                       .programs = malloc(programs * sizeof *out->programs)};
    if (is_nested) out->outer = calloc(nodes, sizeof *out->outer);
    finder f = {graph, out, calloc(programs, sizeof *f.readers), calloc(programs, sizeof *f.is_listed)};
    bool ok = out->nodes && out->place && out->programs && (out->outer || !is_nested) && f.readers && f.is_listed;
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < end && ok && is_nested; p++)
        for (fb_node n = fb_first_node(graph, (fb_program){p}); n.id; n = fb_next_node(graph, n)) {
            fb_program program = fb_onnx_program_read_by(graph, n);
            if (program.id) f.readers[program.id] = n;
        }
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < end && ok; p++) {
        list(&f, (fb_program){p});
        if (is_nested) find_captured(&f, (fb_program){p});
    }
    free(f.readers);
    free(f.is_listed);
    return ok;
}

void fb_scopes_free(fb_scopes *scopes) {
    free(scopes->nodes);
    free(scopes->place);
    free(scopes->programs);
    free(scopes->outer);
}
