/* InlinePrograms: a nested program that runs without gradients, or without autocast, becomes part of the program.
 *
 *     x ── wrap_with_set_grad_enabled(False, program, ·) ── [0] ── y          x ── cos ── y
 *     program: x ── cos
 *
 * torch.export writes nested programs for regions under torch.no_grad() and torch.autocast(enabled=False), which is how models
 * of transformers make their rotary embeddings. Other passes do not look into them. The calls of the program, and of those
 * within it, take the place of the call that runs it, and the program goes.
 *
 * Values stay. Gradients do not: they flow through what was computed without them. So the parameter `gradients` must allow
 * it, or gradients must be on in the program. A backward pass then raises if a value that it needs is written in place. dtypes
 * are taken to be as recorded, as every pass does: run the result outside of autocast.
 *
 * Kept:
 *   - a program that is run twice, that calls modules, reads weights or runs a program of another kind
 *   - one that is given something by keyword, or takes its inputs in a tuple or dict
 *   - one whose results are read otherwise than one by one
 *   - one without autocast, where the program around it switches autocast
 *
 * Exactness: moves. Reversible.
 */
#include "core/analysis/onnx.h"
#include "core/analysis/onnx_types.h"
#include "core/base/map.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"
#include "core/pass/pass.h"

enum { DEPTH_MAX = 8 };

/* A call that runs a nested program. */
typedef struct run_call {
    fb_node node, read; /* read: the get_attr node of the program */
    fb_module module;
    fb_program program;
    uint32_t first; /* of the program's inputs among the arguments */
    bool stops_gradients, stops_autocast;
} run_call;

static bool is_false(const fb_graph *g, fb_value value) {
    return value.id && fb_value_kind(g, value) == FB_FALSE;
}

static bool is_true(const fb_graph *g, fb_value value) {
    return value.id && fb_value_kind(g, value) == FB_TRUE;
}

/* Does it run a program in a way that is known for any program and inputs? */
static bool is_run(const fb_graph *g, fb_node node) {
    return fb_op_is(g, node, FB_OP_RUN_WITH_GRAD) ||
           (fb_op_is(g, node, FB_OP_RUN_IN_AUTOCAST) && is_false(g, fb_node_arg(g, node, 2)));
}

/* Does the node run a nested program as it is, but for gradients or autocast? All that it is given is given by position. */
static bool run_call_at(const fb_graph *g, fb_node node, run_call *out) {
    bool is_grad = fb_op_is(g, node, FB_OP_RUN_WITH_GRAD);
    if (!is_run(g, node)) return false;
    uint32_t at = is_grad ? 1 : 4;
    fb_node read = fb_arg_node(g, node, at);
    if (!read.id || fb_value_at(g, fb_node_at(g, node)->kwargs)->count) return false;
    const fb_node_row *row = fb_node_at(g, read);
    if (row->opcode != FB_GET_ATTR || !row->module.id || row->attribute.id) return false;
    *out = (run_call){.node = node,
                      .read = read,
                      .module = row->module,
                      .program = fb_module_at(g, row->module)->program,
                      .first = at + 1,
                      .stops_gradients = is_grad && !is_true(g, fb_node_arg(g, node, 0)),
                      .stops_autocast = !is_grad};
    return out->program.id != 0;
}

static fb_value results_of(const fb_graph *g, fb_program program) {
    fb_node output = fb_last_node(g, program);
    fb_value results = fb_node_arg(g, output, 0);
    fb_kind kind = fb_value_kind(g, results);
    return kind == FB_TUPLE || kind == FB_LIST ? results : (fb_value){0};
}

static bool is_item(const fb_graph *g, fb_node reader, fb_node of, size_t count) {
    int64_t index;
    bool is_getitem = fb_op_is(g, reader, FB_OP_GETITEM) && fb_arg_node(g, reader, 0).id == of.id;
    return is_getitem && fb_value_is_int(g, fb_node_arg(g, reader, 1), &index) && index >= 0 && (size_t)index < count;
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

typedef struct search {
    fb_matcher *m;
    const uint8_t *reads; /* by module: how many get_attr nodes read its program; 2: or more */
    bool switches_autocast, may_flow;
} search;

static fb_obstacle obstacle_of_results(const fb_graph *g, const run_call *call) {
    fb_value results = results_of(g, call->program);
    for (uint32_t e = fb_user_first(g, call->node); e; e = fb_user_next(g, e)) {
        if (!results.id || !is_item(g, fb_edge_user(g, e), call->node, fb_value_at(g, results)->count))
            return (fb_obstacle){"unsupported-arguments", "what it gives is not read one by one"};
    }
    return FB_NO_OBSTACLE;
}

static fb_obstacle obstacle_of(const search *s, const run_call *call, int depth);

/* The obstacle of one node of the nested program. */
static fb_obstacle obstacle_of_node(const search *s, const fb_graph *g, fb_node n, int depth) {
    run_call inner;
    const fb_node_row *row = fb_node_at(g, n);
    if (row->opcode == FB_CALL_MODULE) return (fb_obstacle){"nested-call", "its program calls a module"};
    if (row->opcode == FB_PLACEHOLDER && *fb_node_target(g, n) == '*')
        return (fb_obstacle){"unsupported-arguments", "its program takes its inputs in a tuple or dict"};
    if (row->opcode == FB_GET_ATTR && row->attribute.id)
        return (fb_obstacle){"module-read", "its program reads what a module owns"};
    if (!(fb_op_facts_of(fb_node_op(g, n))->flags & FB_FACT_RUNS_PROGRAMS)) return FB_NO_OBSTACLE;
    if (depth && run_call_at(g, n, &inner)) return obstacle_of(s, &inner, depth - 1);
    return (fb_obstacle){"unsupported-operator", "its program runs another one"};
}

static fb_obstacle obstacle_of(const search *s, const run_call *call, int depth) {
    const fb_graph *g = s->m->graph;
    uint32_t inputs = 0, calls = 0;
    if (call->stops_gradients && !s->may_flow)
        return (fb_obstacle){"gradient", "gradients would flow through it; the parameter gradients allows that"};
    if (call->stops_autocast && s->switches_autocast)
        return (fb_obstacle){"mode-switched", "autocast is on around it, or may be"};
    if (s->reads[call->module.id] > 1 || fb_node_at(g, call->read)->user_count > 1)
        return (fb_obstacle){"shared-module", "its program is run elsewhere as well"};
    for (fb_node n = fb_first_node(g, call->program); n.id && fb_matcher_goes_on(s->m); n = fb_next_node(g, n)) {
        inputs += fb_node_at(g, n)->opcode == FB_PLACEHOLDER;
        calls += fb_node_at(g, n)->opcode == FB_CALL_FUNCTION || fb_node_at(g, n)->opcode == FB_CALL_METHOD;
        fb_obstacle stands = obstacle_of_node(s, g, n, depth);
        if (stands.code) return stands;
    }
    if (!calls) return (fb_obstacle){"unsupported-arguments", "its program computes nothing"};
    if (inputs + call->first != fb_value_at(g, fb_node_at(g, call->node)->args)->count)
        return (fb_obstacle){"unsupported-arguments", "it gives its program more or fewer inputs than that takes"};
    return obstacle_of_results(g, call);
}

/* How often programs are read, in all programs; is autocast switched in any? */
static void look_at_all(search *s, uint8_t *reads) {
    const fb_graph *g = s->m->graph;
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_program_limit(g); p++) {
        for (fb_node n = fb_first_node(g, (fb_program){p}); n.id && fb_matcher_goes_on(s->m); n = fb_next_node(g, n)) {
            const fb_node_row *row = fb_node_at(g, n);
            bool is_read = row->opcode == FB_GET_ATTR && row->module.id && !row->attribute.id;
            if (is_read) reads[row->module.id] = (uint8_t)(reads[row->module.id] ? 2 : 1);
            bool is_autocast = fb_op_is(g, n, FB_OP_RUN_IN_AUTOCAST);
            s->switches_autocast |= fb_op_is(g, n, FB_OP_ENTER_AUTOCAST) || (is_autocast && !is_false(g, fb_node_arg(g, n, 2)));
        }
    }
}

/* ---- ONNX ---------------------------------------------------------------------------------------------------------------- */

enum { COPIES_MAX = 100000 }; /* nodes that one call may become */

/* An If whose condition is known, or the call of a function. Begins with the node, as matches do. */
typedef struct onnx_call {
    fb_node node;
    fb_program program;
    fb_value captures;         /* what a branch reads from around it: a list, or none */
    fb_value kwargs, defaults; /* of a function: its attributes */
    bool is_function;
} onnx_call;

static const char *const branches[] = {"else_branch", "then_branch"};

static bool is_function_call(const fb_graph *g, fb_node n) {
    return fb_node_at(g, n)->opcode == FB_CALL_FUNCTION && fb_is_spelled(fb_node_target(g, n), FB_ONNX_FUNCTION);
}

static bool function_at(const fb_graph *g, fb_node n, onnx_call *out) {
    fb_module module = is_function_call(g, n) ? fb_module_find(g, fb_node_target(g, n)) : (fb_module){0};
    if (!module.id) return false;
    *out = (onnx_call){.node = n,
                       .program = fb_module_at(g, module)->program,
                       .kwargs = fb_node_at(g, n)->kwargs,
                       .defaults = fb_module_at(g, module)->config,
                       .is_function = true};
    return out->program.id != 0;
}

/* The branch that is taken, of an If. */
static bool branch_at(const fb_graph *g, fb_node n, bool is_true, onnx_call *out) {
    const fb_value_row *kwargs = fb_value_at(g, fb_node_at(g, n)->kwargs);
    fb_value captures = fb_node_kwarg(g, n, "captures");
    size_t at = 0;
    *out = (onnx_call){.node = n};
    for (uint32_t i = 0; i + 1 < kwargs->count; i += 2) { /* captures are in the order of the programs */
        fb_program program = fb_onnx_program_read_by(g, fb_value_node(g, kwargs->items[i + 1]));
        if (strcmp(fb_value_text(g, kwargs->items[i]), branches[is_true]) == 0) {
            out->program = program;
            out->captures = captures.id ? fb_value_item(g, captures, at) : captures;
        }
        at += program.id != 0;
    }
    return out->program.id != 0;
}

static bool is_if(const fb_graph *g, fb_node n) {
    return fb_node_at(g, n)->opcode == FB_CALL_FUNCTION && fb_is_spelled(fb_node_target(g, n), FB_ONNX_IF);
}

/* Counts what the program becomes, and looks for what cannot be copied. */
static fb_obstacle obstacle_of_copies(fb_matcher *m, fb_program program, bool is_function, int depth, int64_t *left) {
    const fb_graph *g = m->graph;
    for (fb_node n = fb_first_node(g, program); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        onnx_call inner;
        if (--*left < 0) return (fb_obstacle){"too-large", "it would become too many calls"};
        if (fb_onnx_program_read_by(g, n).id && is_function)
            return (fb_obstacle){"unsupported-operator",
                                 "a function runs a program of its own, which each of its calls would need"};
        if (!function_at(g, n, &inner)) continue;
        if (!depth) return (fb_obstacle){"too-large", "too many functions call each other"};
        fb_obstacle stands = obstacle_of_copies(m, inner.program, true, depth - 1, left);
        if (stands.code) return stands;
    }
    return FB_NO_OBSTACLE;
}

/* Is each result a call's? A program within gives what it computes, and not what it is given. */
static bool are_results_computed(const fb_graph *g, fb_program program) {
    const fb_value_row *results = fb_value_at(g, results_of(g, program));
    bool are_it = true;
    for (uint32_t i = 0; i < results->count; i++) {
        fb_node node = fb_value_node(g, results->items[i]);
        are_it &= node.id && fb_node_at(g, node)->opcode == FB_CALL_FUNCTION;
    }
    return are_it;
}

/* True: its programs are no matter for others. */
static bool match_onnx_call(fb_matcher *m, fb_onnx_types **types, fb_node n) {
    const fb_graph *g = m->graph;
    onnx_call call;
    bool is_found = function_at(g, n, &call);
    int64_t left = COPIES_MAX, is_true;
    if (is_if(g, n)) {
        if (!*types) *types = fb_onnx_types_find(g, m->work);
        m->failed |= !*types;
        const fb_onnx_type *of = *types ? fb_onnx_type_of(*types, fb_arg_node(g, n, 0)) : NULL;
        is_found = of && of->elements && of->count == 1 && fb_onnx_numbers(*types, of, &is_true) &&
                   branch_at(g, n, is_true != 0, &call);
    }
    bool is_main = !fb_is_nested(g, n);
    if (!is_found || fb_op_effects(g, n).is_named || (!is_main && !are_results_computed(g, call.program))) return false;
    fb_obstacle stands = obstacle_of_copies(m, call.program, call.is_function, DEPTH_MAX, &left);
    if (stands.code) fb_refuse_for(m, stands, &n, 1);
    else fb_match_found_as(m, &call, sizeof call);
    return !stands.code;
}

/* Of the programs that calls run, those of which none is put in place now. */
static void match_onnx_program(fb_matcher *m, fb_onnx_types **types, fb_program program) {
    const fb_graph *g = m->graph;
    for (fb_node n = fb_first_node(g, program); n.id && !m->failed && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        if (fb_node_at(g, n)->opcode != FB_CALL_FUNCTION || match_onnx_call(m, types, n)) continue;
        for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
            fb_program within = fb_onnx_program_read_by(g, fb_edge_input(g, e));
            if (within.id) match_onnx_program(m, types, within);
        }
    }
}

static void match_onnx(fb_matcher *m) {
    fb_onnx_types *types = NULL;
    match_onnx_program(m, &types, FB_MAIN_PROGRAM);
    fb_onnx_types_free(types);
}

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    if (fb_program_limit(g) <= FB_MAIN_PROGRAM.id + 1) return;
    uint8_t *reads = fb_arena_alloc(m->arena, fb_module_limit(g) + (size_t)1);
    m->failed |= !reads;
    if (m->failed) return;
    memset(reads, 0, fb_module_limit(g) + (size_t)1);
    search s = {.m = m, .reads = reads, .may_flow = json_is_true(json_object_get(m->params, "gradients"))};
    look_at_all(&s, reads);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        run_call call;
        if (!is_run(g, n)) continue;
        fb_obstacle stands = {"unsupported-arguments", "it takes something else than a nested program and inputs by position"};
        if (run_call_at(g, n, &call)) stands = obstacle_of(&s, &call, DEPTH_MAX);
        if (stands.code) fb_refuse_for(m, stands, &n, 1);
        else fb_match_found(m, &n, 1);
    }
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

/* Maps the nodes of one nested program to the main one. */
typedef struct copying {
    fb_rewrite *rw;
    fb_node before, of; /* of: the call that it becomes, in ONNX */
    fb_map now;         /* node of the program -> value: what it gives; of a call that runs a program, its results */
} copying;

static fb_value value_now(void *context, fb_node node) {
    const copying *c = context;
    return (fb_value){fb_map_get(&c->now, node.id)};
}

static fb_value translated(copying *c, fb_value value) {
    return fb_value_substitute(fb_rewrite_graph(c->rw), value, value_now, c);
}

static fb_value put_program(fb_rewrite *rw, const run_call *call, fb_node before, fb_value inputs, int depth);

/* The inputs that a call gives its program. */
static fb_value inputs_of(fb_graph *g, const run_call *call) {
    const fb_value_row *args = fb_value_at(g, fb_node_at(g, call->node)->args);
    return fb_make_list(g, args->items + call->first, args->count - call->first);
}

/* Copies a call of the nested program into the main one; gives its result. */
static fb_value put_call(copying *c, fb_node n, int depth) {
    fb_graph *g = fb_rewrite_graph(c->rw);
    const fb_node_row *row = fb_node_at(g, n);
    run_call inner;
    int64_t index;
    if (depth && run_call_at(g, n, &inner))
        return put_program(c->rw, &inner, c->before, translated(c, inputs_of(g, &inner)), depth - 1);
    fb_node from = fb_op_is(g, n, FB_OP_GETITEM) ? fb_arg_node(g, n, 0) : (fb_node){0};
    if (from.id && run_call_at(g, from, &inner) && fb_value_is_int(g, fb_node_arg(g, n, 1), &index))
        return fb_value_item(g, value_now(c, from), (size_t)index);
    fb_node made = fb_insert_copy(c->rw, c->before, n, translated(c, row->args), translated(c, row->kwargs));
    fb_mark(c->rw, made);
    return fb_make_node(g, made);
}

/* The program's calls before `before`, and the program away. Its results. */
static fb_value put_program(fb_rewrite *rw, const run_call *call, fb_node before, fb_value inputs, int depth) {
    fb_graph *g = fb_rewrite_graph(rw);
    copying c = {.rw = rw, .before = before};
    size_t input = 0;
    bool is_kept = true;
    for (fb_node n = fb_first_node(g, call->program); n.id && is_kept; n = fb_next_node(g, n)) {
        fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
        fb_value value = {0};
        if (opcode == FB_PLACEHOLDER) value = fb_value_item(g, inputs, input++);
        else if (opcode != FB_OUTPUT && opcode != FB_GET_ATTR) value = put_call(&c, n, depth);
        is_kept = !value.id || fb_map_put(&c.now, n.id, value.id);
    }
    fb_value results = is_kept ? translated(&c, results_of(g, call->program)) : fb_graph_fail_memory(g);
    fb_map_free(&c.now);
    fb_drop_program(rw, call->module);
    return results;
}

/* ---- edit of ONNX -------------------------------------------------------------------------------------------------------- */

/* An attribute of a function's node that refers to one of the function's. None: it is not given. */
static fb_value resolved(const fb_graph *g, const onnx_call *call, fb_value value) {
    const char *name = fb_value_kind(g, value) == FB_OPAQUE ? fb_value_text(g, value) : NULL;
    if (!name || !call->is_function) return value;
    fb_value given = fb_map_value(g, call->kwargs, name);
    return given.id ? given : fb_map_value(g, call->defaults, name);
}

static fb_value attributes_now(copying *c, const onnx_call *call, fb_value kwargs) {
    fb_graph *g = fb_rewrite_graph(c->rw);
    fb_value made = translated(c, kwargs);
    uint32_t count = fb_value_at(g, made)->count;
    for (uint32_t i = 0; i + 1 < count; i += 2) {
        const fb_value_row *row = fb_value_at(g, translated(c, kwargs));
        fb_value value = row->items[i + 1], now = resolved(g, call, value);
        if (now.id != value.id) made = fb_map_with(g, made, fb_value_text(g, row->items[i]), now);
    }
    return made;
}

/* The module whose program the copies go into: the root, or a branch's or body's. */
static fb_module owner_around(const copying *c) {
    const fb_graph *g = fb_rewrite_graph(c->rw);
    fb_module owner = fb_program_at(g, fb_node_at(g, c->before)->program)->owner;
    return owner.id ? owner : fb_module_find(g, "");
}

static bool is_name_taken(const fb_graph *g, fb_module owner, const char *name) {
    const fb_module_row *its = fb_module_at(g, owner);
    const char *around = fb_text(g, its->path);
    fb_buffer path = {0};
    fb_buffer_printf(&path, "%s%s%s", around, *around ? "." : "", name);
    bool is_module = fb_buffer_text(&path) && fb_module_find(g, path.data).id;
    fb_buffer_free(&path);
    return is_module || fb_map_value(g, its->buffers, name).id || fb_map_value(g, its->parameters, name).id;
}

/* The tensor is that module's from now on. */
static fb_node put_tensor(copying *c, fb_node n) {
    const fb_graph *g = fb_rewrite_graph(c->rw);
    const fb_node_row *row = fb_node_at(g, n);
    fb_module owner = owner_around(c);
    fb_tensor tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
    fb_buffer name = {0};
    fb_node read = {0};
    fb_buffer_printf(&name, "%s_%s", fb_node_name(g, c->of), fb_node_name(g, n));
    size_t length = name.size;
    for (unsigned i = 1; fb_buffer_text(&name) && is_name_taken(g, owner, name.data); i++) {
        name.size = length;
        fb_buffer_printf(&name, "_%u", i);
    }
    if (!name.failed && tensor.id) {
        fb_tie_parameter(c->rw, owner, name.data, tensor);
        read = fb_insert_read(c->rw, c->before, owner, name.data);
    }
    fb_buffer_free(&name);
    return read;
}

/* The program that a call within a branch runs stays where it is, and is read from around that. */
static fb_node put_read(copying *c, fb_node n) {
    const fb_graph *g = fb_rewrite_graph(c->rw);
    const char *path = fb_text(g, fb_module_at(g, fb_node_at(g, n)->module)->path);
    size_t around = fb_text_length(g, fb_module_at(g, owner_around(c))->path);
    return fb_insert_typed(c->rw, c->before, FB_GET_ATTR, path + around + (around > 0), FB_VALUE_EMPTY_LIST, (fb_value){0},
                           (fb_value){0}, 0);
}

static fb_value put_copies(fb_rewrite *rw, const onnx_call *call, fb_node before, fb_node of, fb_value args, fb_value captures,
                           int depth);

static fb_value put_onnx_call(copying *c, const onnx_call *call, fb_node n, int depth) {
    fb_graph *g = fb_rewrite_graph(c->rw);
    const fb_node_row *row = fb_node_at(g, n);
    fb_node from = fb_op_is(g, n, FB_OP_GETITEM) ? fb_arg_node(g, n, 0) : (fb_node){0};
    int64_t index;
    onnx_call inner;
    if (from.id && is_function_call(g, from) && fb_value_is_int(g, fb_node_arg(g, n, 1), &index))
        return fb_value_item(g, value_now(c, from), (size_t)index);
    fb_value args = translated(c, row->args), kwargs = attributes_now(c, call, row->kwargs);
    if (function_at(g, n, &inner) && depth) {
        inner.kwargs = kwargs;
        fb_value results = put_copies(c->rw, &inner, c->before, c->of, args, (fb_value){0}, depth - 1);
        return fb_onnx_results(g, n) < 0 ? fb_value_item(g, results, 0) : results;
    }
    fb_node made = fb_insert_copy(c->rw, c->before, n, args, kwargs);
    fb_mark(c->rw, made);
    return fb_make_node(g, made);
}

/* The program's calls before `before`, named for the call `of`; their results as a list. */
static fb_value put_copies(fb_rewrite *rw, const onnx_call *call, fb_node before, fb_node of, fb_value args, fb_value captures,
                           int depth) {
    fb_graph *g = fb_rewrite_graph(rw);
    copying c = {.rw = rw, .before = before, .of = of};
    size_t input = 0;
    bool is_kept = true;
    fb_value inputs = call->is_function ? args : captures;
    for (fb_node n = fb_first_node(g, call->program); n.id && is_kept; n = fb_next_node(g, n)) {
        const fb_node_row *row = fb_node_at(g, n);
        fb_value value = {0};
        if (row->opcode == FB_PLACEHOLDER) {
            value = inputs.id ? fb_value_item(g, inputs, input++) : value;
            if (!value.id) value = FB_VALUE_NONE;
        } else if (row->opcode == FB_GET_ATTR) {
            value = fb_make_node(g, fb_onnx_program_read_by(g, n).id ? put_read(&c, n) : put_tensor(&c, n));
        } else if (row->opcode != FB_OUTPUT) {
            value = put_onnx_call(&c, call, n, depth);
        }
        is_kept = !value.id || fb_map_put(&c.now, n.id, value.id);
    }
    fb_value results = is_kept ? translated(&c, results_of(g, call->program)) : fb_graph_fail_memory(g);
    fb_map_free(&c.now);
    return results;
}

/* A nested program that nothing runs any more, and those within it. */
static void drop_nested(fb_rewrite *rw, fb_module module) {
    const fb_graph *g = fb_rewrite_graph(rw);
    for (fb_node n = fb_first_node(g, fb_module_at(g, module)->program); n.id; n = fb_next_node(g, n))
        if (fb_onnx_program_read_by(g, n).id) drop_nested(rw, fb_node_at(g, n)->module);
    fb_drop_program(rw, module);
}

/* Keeps the programs that the branch that was taken runs: others read them now. */
static void drop_branches(fb_rewrite *rw, fb_node n, fb_program taken) {
    const fb_graph *g = fb_rewrite_graph(rw);
    for (int i = 0; i < 2; i++) {
        fb_value value = fb_node_kwarg(g, n, branches[i]);
        fb_node read = fb_value_node(g, value);
        if (!fb_onnx_program_read_by(g, read).id) continue;
        fb_module module = fb_node_at(g, read)->module;
        if (fb_module_at(g, module)->program.id == taken.id) fb_drop_program(rw, module);
        else drop_nested(rw, module);
        fb_release_read(rw, read);
    }
}

static void edit_onnx(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    const onnx_call *call = match->data;
    fb_node n = call->node;
    fb_value results = put_copies(rw, call, n, n, fb_node_at(g, n)->args, call->captures, DEPTH_MAX);
    if (!results.id) return;
    fb_release_reads(rw, n);
    if (fb_onnx_results(g, n) < 0) {
        fb_absorb(rw, n, fb_value_node(g, fb_value_item(g, results, 0)));
    } else {
        fb_erase(rw, n);
        for (uint32_t e = fb_user_first(g, n); e; e = fb_user_next(g, e)) {
            int64_t index = 0;
            fb_node item = fb_edge_user(g, e);
            fb_value_is_int(g, fb_node_arg(g, item, 1), &index);
            fb_absorb(rw, item, fb_value_node(g, fb_value_item(g, results, (size_t)index)));
        }
    }
    if (!call->is_function) drop_branches(rw, n, call->program);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    run_call call;
    fb_node n = match->nodes[0];
    if (!run_call_at(g, n, &call)) return;
    fb_value results = put_program(rw, &call, n, inputs_of(g, &call), DEPTH_MAX);
    fb_erase(rw, n);
    for (uint32_t e = fb_user_first(g, n); e && results.id; e = fb_user_next(g, e)) {
        fb_node item = fb_edge_user(g, e);
        int64_t index = 0;
        fb_value_is_int(g, fb_node_arg(g, item, 1), &index);
        fb_value result = fb_value_item(g, results, (size_t)index);
        fb_node by = fb_value_node(g, result);
        if (by.id) fb_absorb(rw, item, by);
        else fb_write_literal(rw, item, result);
    }
    fb_release_read(rw, call.read);
}

const fb_pass fb_inline_programs = {
    .name = "InlinePrograms",
    .version = 1,
    .summary = "Replaces a nested program with its calls, if it runs without gradients or autocast.",
    .parameters = "{\"additionalProperties\":false,\"properties\":{\"gradients\":{\"default\":false,\"description\":\"also "
                  "where gradients are switched off: values stay, and gradients flow\",\"type\":\"boolean\"}},"
                  "\"type\":\"object\"}",
    .exactness = FB_MOVES,
    .gain = FB_GAIN_SAME,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match_graph = match_graph,
    .edit = edit,
    .match_onnx = match_onnx,
    .edit_onnx = edit_onnx,
};
