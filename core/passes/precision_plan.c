/* Which nodes stay in float32 (precision.h): those with a reason of their own, and what hangs together with them. */
#include <stdlib.h>

#include "core/passes/precision.h"

typedef struct search {
    fb_matcher *matcher;
    const fb_graph *graph;
    const fb_alias *alias;
    bool *stays, *is_number;           /* by node; a number is any value that is no tensor and holds none */
    fb_node *next_written, *next_read; /* by node: chains of … */
    fb_node *first_written;            /* by memory that is written: what shares or writes it */
    fb_node *first_read;               /* by deciding module: get_attr nodes of its tensors */
    bool *module_stays, *tensor_stays; /* by module, by tensor */
    fb_node *stack;                    /* nodes that stay, and whose consequences are still to be drawn */
    size_t depth;
    unsigned char *shares; /* by memory: is it returned, does it come from outside */
    bool *is_used;         /* patterns of `keep` */
    uint32_t autocasts;    /* entered and not yet left */
} search;

static void stay(search *s, fb_node n) {
    if (s->stays[n.id]) return;
    s->stays[n.id] = true;
    s->stack[s->depth++] = n;
}

/* ---- what hangs together ------------------------------------------------------------------------------------------------- */

/* The memory that the node shares or writes, when that is written at all; 0 = none. */
static uint32_t written_memory(const search *s, fb_node n) {
    const fb_graph *g = s->graph;
    fb_node value = n;
    if (fb_node_op(g, n) && fb_op_effects(g, n).mutates_input) value = fb_value_node(g, fb_first_argument(g, n));
    return value.id && fb_is_mutated(s->alias, value) ? fb_memory_of(s->alias, value) + 1 : 0;
}

static fb_module deciding(const search *s, fb_node n) {
    fb_opcode opcode = (fb_opcode)fb_node_at(s->graph, n)->opcode;
    if (opcode == FB_CALL_MODULE) return fb_node_at(s->graph, n)->module;
    return opcode == FB_GET_ATTR ? fb_deciding_module(s->graph, s->matcher->usage, fb_node_at(s->graph, n)->module)
                                 : (fb_module){0};
}

static void stay_module(search *s, fb_module module) {
    if (!module.id || s->module_stays[module.id]) return;
    s->module_stays[module.id] = true;
    for (fb_node n = fb_first_call(s->matcher->usage, module); n.id; n = fb_next_call(s->matcher->usage, n)) stay(s, n);
    for (fb_node n = s->first_read[module.id]; n.id; n = s->next_read[n.id]) stay(s, n);
    stay_module(s, fb_called_around(s->graph, s->matcher->usage, module));
}

/* A tensor, or several, of unknown dtype. */
static bool is_untyped(const search *s, fb_node n) {
    fb_opcode opcode = (fb_opcode)fb_node_at(s->graph, n)->opcode;
    return opcode != FB_PLACEHOLDER && opcode != FB_OUTPUT && !fb_value_dtype(s->graph, n) && !s->is_number[n.id];
}

static void stay_around(search *s, fb_node n) {
    const fb_graph *g = s->graph;
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        bool is_asked = fb_op_is(g, input, FB_OP_GETATTR) && !fb_value_dtype(g, input);
        bool asks_dtype = is_asked && fb_reads_dtype(g, input); /* and is told what it was told */
        if (asks_dtype || is_untyped(s, input)) stay(s, input);
    }
    for (uint32_t e = is_untyped(s, n) ? fb_user_first(g, n) : 0; e; e = fb_user_next(g, e)) {
        fb_node user = fb_edge_user(g, e);
        bool takes_out = fb_op_is(g, user, FB_OP_GETITEM) && fb_value_dtype(g, user);
        if (!takes_out && fb_node_at(g, user)->opcode != FB_OUTPUT) stay(s, user);
    }
}

static void follow(search *s) {
    while (s->depth) {
        fb_node n = s->stack[--s->depth];
        if (fb_node_at(s->graph, n)->program.id != FB_MAIN_PROGRAM.id) continue;
        stay_module(s, deciding(s, n));
        uint32_t memory = written_memory(s, n);
        fb_node member = memory ? s->first_written[memory] : (fb_node){0};
        if (memory) s->first_written[memory] = (fb_node){0}; /* once */
        for (; member.id; member = s->next_written[member.id]) stay(s, member);
        stay_around(s, n);
    }
}

/* ---- reasons of a node's own -------------------------------------------------------------------------------------------- */

static bool reads_untyped(const search *s, fb_node n) {
    bool reads = false;
    for (uint32_t e = fb_input_first(s->graph, n); e && !reads; e = fb_input_next(s->graph, e))
        reads = is_untyped(s, fb_edge_input(s->graph, e));
    return reads;
}

static void look_at(search *s, fb_node n) {
    const fb_graph *g = s->graph;
    if (fb_op_is(g, n, FB_OP_ENTER_AUTOCAST)) s->autocasts++;
    if (fb_op_is(g, n, FB_OP_EXIT_AUTOCAST) && s->autocasts) s->autocasts--;
    const fb_node_row *row = fb_node_at(g, n);
    fb_tensor tensor = row->opcode == FB_GET_ATTR && row->attribute.id
                           ? fb_module_tensor(g, row->module, fb_text(g, row->attribute))
                           : (fb_tensor){0};
    if (row->opcode == FB_OUTPUT && fb_casts_outputs(s->matcher->params)) stay_around(s, n); /* what cannot be cast */
    if (row->opcode == FB_PLACEHOLDER || (tensor.id && s->tensor_stays[tensor.id])) stay(s, n);
    if (row->opcode == FB_PLACEHOLDER || row->opcode == FB_GET_ATTR || row->opcode == FB_OUTPUT) return;
    const char *detail, *reason = fb_precision_obstacle(s->matcher, n, reads_untyped(s, n), s->autocasts > 0, &detail);
    if (reason) fb_refuse_node(s->matcher, reason, n, "%s", detail);
    if (fb_gives_float32(g, n) || fb_value_dtype(g, n) == FB_FLOAT64) stay(s, n);
    if (reason || fb_is_kept(g, n, json_object_get(s->matcher->params, "keep"), s->is_used)) stay(s, n);
}

/* What nested programs call and read stays, because they do. */
static void look_at_nested(search *s) {
    const fb_graph *g = s->graph;
    for (uint32_t p = FB_MAIN_PROGRAM.id + 1; p < fb_program_limit(g); p++) {
        for (fb_node n = fb_first_node(g, (fb_program){p}); n.id; n = fb_next_node(g, n)) {
            const fb_node_row *row = fb_node_at(g, n);
            fb_module module = row->module.id ? fb_deciding_module(g, s->matcher->usage, row->module) : row->module;
            fb_tensor tensor =
                row->attribute.id ? fb_module_tensor(g, row->module, fb_text(g, row->attribute)) : (fb_tensor){0};
            if (tensor.id) s->tensor_stays[tensor.id] = true;
            stay_module(s, module);
        }
    }
}

/* ---- weights that are read ----------------------------------------------------------------------------------------------- */

/* A weight that something in float32 reads is not rounded, unless a called module owns it or it is written in place. */
static void keep_read_weights(search *s) {
    const fb_graph *g = s->graph;
    for (int round = 0; round < 2; round++) { /* several nodes may read one tensor */
        for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
            const fb_node_row *row = fb_node_at(g, n);
            if (row->opcode != FB_GET_ATTR || !row->attribute.id || deciding(s, n).id || written_memory(s, n)) continue;
            fb_tensor tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
            for (uint32_t e = s->stays[n.id] ? 0 : fb_user_first(g, n); e; e = fb_user_next(g, e)) {
                if (tensor.id && s->stays[fb_edge_user(g, e).id]) s->tensor_stays[tensor.id] = true;
            }
            if (tensor.id && s->tensor_stays[tensor.id]) s->stays[n.id] = true;
        }
    }
}

/* ---- results that share memory ------------------------------------------------------------------------------------------- */

static bool is_from_outside(const fb_graph *g, fb_node n) {
    fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
    return opcode == FB_PLACEHOLDER || opcode == FB_GET_ATTR;
}

/* A result that is an input or weight, or a view of one, still shares its memory: a cast would copy it. */
static void keep_shared_results(search *s) {
    enum { RETURNED = 1, OUTSIDE = 2 };
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
        if (is_from_outside(g, n)) s->shares[fb_memory_of(s->alias, n)] |= OUTSIDE;
        bool is_output = fb_node_at(g, n)->opcode == FB_OUTPUT;
        for (uint32_t e = is_output ? fb_input_first(g, n) : 0; e; e = fb_input_next(g, e))
            s->shares[fb_memory_of(s->alias, fb_edge_input(g, e))] |= RETURNED;
    }
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
        const fb_node_row *row = fb_node_at(g, n);
        bool is_tensor = row->opcode != FB_OUTPUT && !s->is_number[n.id];
        if (!is_tensor || s->shares[fb_memory_of(s->alias, n)] != (RETURNED | OUTSIDE)) continue;
        stay(s, n);
        if (row->opcode == FB_GET_ATTR && row->attribute.id)
            s->tensor_stays[fb_module_tensor(g, row->module, fb_text(g, row->attribute)).id] = true;
    }
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static void prepare(search *s) {
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
        fb_numberhood hood = fb_numberhood_of(g, n);
        bool reads_tensor = false;
        for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e))
            reads_tensor |= !s->is_number[fb_edge_input(g, e).id];
        s->is_number[n.id] = hood == FB_A_NUMBER || (hood == FB_A_NUMBER_IF_INPUTS_ARE && !reads_tensor);
        uint32_t memory = written_memory(s, n);
        if (memory) s->next_written[n.id] = s->first_written[memory];
        if (memory) s->first_written[memory] = n;
        fb_module module = fb_node_at(g, n)->opcode == FB_GET_ATTR ? deciding(s, n) : (fb_module){0};
        if (module.id) s->next_read[n.id] = s->first_read[module.id];
        if (module.id) s->first_read[module.id] = n;
    }
}

static void refuse_unused(const search *s, const json_t *keep) {
    for (size_t i = 0; i < json_array_size(keep); i++) {
        if (s->is_used[i]) continue;
        fb_refuse(s->matcher, "keeps-nothing", NULL, 0, "keep names \"%.80s\", and nothing is called so",
                  json_string_value(json_array_get(keep, i)));
    }
}

static void find(search *s) {
    const fb_graph *g = s->graph;
    prepare(s);
    look_at_nested(s);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && !s->matcher->is_too_much; n = fb_next_node(g, n)) look_at(s, n);
    if (fb_casts_outputs(s->matcher->params)) keep_shared_results(s);
    follow(s);
    keep_read_weights(s);
    refuse_unused(s, json_object_get(s->matcher->params, "keep"));
}

bool *fb_find_staying(fb_matcher *m, const fb_alias *alias) {
    const fb_graph *g = m->graph;
    size_t nodes = fb_node_limit(g), modules = fb_module_limit(g);
    search s = {.matcher = m, .graph = g, .alias = alias};
    s.stays = calloc(nodes, sizeof *s.stays);
    s.is_number = calloc(nodes, sizeof *s.is_number);
    s.next_written = calloc(nodes, sizeof *s.next_written);
    s.next_read = calloc(nodes, sizeof *s.next_read);
    s.stack = calloc(nodes, sizeof *s.stack);
    s.first_written = calloc((size_t)fb_memory_limit(alias) + 1, sizeof *s.first_written);
    s.shares = calloc((size_t)fb_memory_limit(alias) + 1, 1);
    s.first_read = calloc(modules, sizeof *s.first_read);
    s.module_stays = calloc(modules, sizeof *s.module_stays);
    s.tensor_stays = calloc(fb_tensor_limit(g), sizeof *s.tensor_stays);
    s.is_used = calloc(json_array_size(json_object_get(m->params, "keep")) + 1, sizeof *s.is_used);
    bool ok = s.stays && s.is_number && s.next_written && s.next_read && s.stack && s.first_written && s.first_read &&
              s.shares && s.module_stays && s.tensor_stays && s.is_used;
    if (ok) find(&s);
    void *const helpers[] = {s.is_number, s.next_written, s.next_read,    s.stack,        s.first_written,
                             s.shares,    s.first_read,   s.module_stays, s.tensor_stays, s.is_used};
    for (size_t i = 0; i < sizeof helpers / sizeof *helpers; i++) free(helpers[i]);
    if (!ok) free(s.stays);
    return ok ? s.stays : NULL;
}
