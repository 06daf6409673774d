/* RemoveNoOps: removes calls that return their input.
 *
 *     x ── Identity ── y ── …          x ── …
 *
 *     x ── clone ── add_(y)           x ── add(y)
 *
 * Removes Identity and dropout in eval mode; x + 0, x - 0, x * 1, x / 1; views and expansions to the same sizes; casts to the
 * same dtype; contiguous of a tensor that is contiguous for certain; detach, alias, clone; pads by nothing; a concatenation
 * of one tensor; copy_ into all of a tensor of the graph's own. The recorded dtype and shape must show that they stay the same.
 * Of a recurrent layer of ONNX go states that are zeros, which they are where nothing gives them.
 * A copy goes as well where only one call reads it, which writes into it element by element: that call then makes a result of
 * its own, if this has the same dtype.
 *
 * Kept, with the reason:
 *   - a copy (x * 1, clone) if either of the two is written later in another way, if a result of the graph would start to
 *     share memory with an input or another result (core/analysis/alias.h), or if a reader needs the copy's memory layout
 *   - a view, if anything writes their memory: x.t_() would change the sizes of x
 *   - copy_, if what it writes is read later otherwise than through its result, or written again, or is an input or a weight
 *   - x + 0.0, which turns -0.0 into 0.0, and the mean of one element, unless `float_zeros` allows them
 *   - assertions, unless `asserts` allows removing them
 *   - detach, if a gradient may reach it from an input or a trained tensor, unless `detach` allows removing it; a backward
 *     pass then raises if a value that it needs is written in place
 *
 * If the recorded sizes are ints, the result is valid only for inputs of these sizes. Marks nothing, because nothing of the
 * removed call is left.
 * Exactness: moves. Reversible.
 */
#include <stdlib.h>

#include "core/analysis/alias.h"
#include "core/analysis/calls.h"
#include "core/analysis/identity.h"
#include "core/analysis/memory_layout.h"
#include "core/analysis/onnx.h"
#include "core/analysis/view.h"
#include "core/pass/pass.h"

/* A call that only checks something, and gives nothing. */
static bool assertion_at(const fb_graph *graph, fb_node node) {
    return fb_op_facts_of(fb_node_op(graph, node))->flags & FB_FACT_ASSERTS;
}

/* The values of the main program that autograd may carry a gradient into, as far as the document shows. */

typedef struct gradient_flow {
    const fb_graph *graph;
    const fb_alias *alias;
    bool *values;   /* by node */
    bool *memories; /* by memory that is written: something that carries a gradient is written into it */
} gradient_flow;

static void gradients_free(gradient_flow *made) {
    if (!made) return;
    free(made->values);
    free(made->memories);
    free(made);
}

/* False only for a value that depends neither on an input of floating or complex numbers, nor on a tensor with requires_grad,
 * nor on a module or operator that may have such a tensor, unless detach is in between. */
static bool may_carry_gradient(const gradient_flow *gradients, fb_node value) {
    return gradients->values[value.id] || gradients->memories[fb_memory_of(gradients->alias, value)];
}

static bool reads_gradient(const gradient_flow *gradients, fb_node n) {
    for (uint32_t e = fb_input_first(gradients->graph, n); e; e = fb_input_next(gradients->graph, e)) {
        if (may_carry_gradient(gradients, fb_edge_input(gradients->graph, e))) return true;
    }
    return false;
}

/* True if the node's value may carry a gradient: a caller's inputs may be trained, and so may a called module's parameters. */
static bool carries(const gradient_flow *gradients, fb_node n) {
    const fb_graph *g = gradients->graph;
    const fb_node_row *row = fb_node_at(g, n);
    if (row->dtype && fb_dtype_is_integer((fb_dtype)row->dtype)) return false;
    if (row->opcode == FB_PLACEHOLDER || row->opcode == FB_CALL_MODULE) return true;
    if (row->opcode == FB_GET_ATTR) {
        fb_tensor tensor = row->attribute.id ? fb_module_tensor(g, row->module, fb_text(g, row->attribute)) : (fb_tensor){0};
        return !tensor.id || fb_tensor_at(g, tensor)->requires_grad;
    }
    if (fb_op_effects(g, n).is_unknown || fb_node_kwarg(g, n, "requires_grad").id) return true;
    return !fb_op_is(g, n, FB_OP_DETACH) && reads_gradient(gradients, n);
}

static void look_at(gradient_flow *gradients, fb_node n) {
    const fb_graph *g = gradients->graph;
    gradients->values[n.id] = carries(gradients, n);
    if (!gradients->values[n.id]) return;
    bool is_call = fb_node_at(g, n)->opcode == FB_CALL_FUNCTION || fb_node_at(g, n)->opcode == FB_CALL_METHOD;
    fb_node written = is_call && fb_op_effects(g, n).mutates_input ? fb_value_node(g, fb_first_argument(g, n)) : (fb_node){0};
    const fb_node both[] = {n, written};
    for (size_t i = 0; i < 2; i++) {
        if (both[i].id && fb_is_mutated(gradients->alias, both[i]))
            gradients->memories[fb_memory_of(gradients->alias, both[i])] = true;
    }
}

/* In O(nodes + edges). NULL: fb_work_failed says why. */
static gradient_flow *gradients_new(const fb_graph *graph, const fb_alias *alias, fb_work *work) {
    gradient_flow *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    *made = (gradient_flow){.graph = graph, .alias = alias};

    made->values = calloc(fb_node_limit(graph), sizeof *made->values);
    made->memories = calloc((size_t)fb_memory_limit(alias) + 1, sizeof *made->memories);
    if (!made->values || !made->memories) {
        gradients_free(made);
        return NULL;
    }
    fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM);
    for (; n.id && fb_work_goes_on(work, 16); n = fb_next_node(graph, n)) look_at(made, n);
    if (!n.id) return made;
    gradients_free(made);
    return NULL;
}

/* The last reader of each memory before its last write, and the memory's owner. */
typedef struct written_memory {
    uint32_t read_until; /* the ordinal of the last reader of what was there before the last write */
    bool is_foreign;     /* it is an input's, a weight's, or not known */
    bool is_turned;      /* a write may change a tensor's strides in it: it is not element by element */
} written_memory;

static bool is_element_by_element(const fb_graph *g, fb_node n) {
    return fb_op_facts_of(fb_node_op(g, n))->flags & FB_FACT_ELEMENTWISE;
}

/* By memory, in O(nodes + edges); NULL when memory is out. */
static written_memory *find_written(const fb_graph *g, const fb_alias *alias, fb_work *work) {
    written_memory *made = calloc((size_t)fb_memory_limit(alias) + 1, sizeof *made);
    fb_node n = fb_first_node(g, FB_MAIN_PROGRAM);
    for (; made && n.id && fb_work_goes_on(work, 16); n = fb_next_node(g, n)) {
        const fb_node_row *row = fb_node_at(g, n);
        written_memory *memory = &made[fb_memory_of(alias, n)];
        bool is_call = row->opcode == FB_CALL_FUNCTION || row->opcode == FB_CALL_METHOD;
        memory->is_foreign |= !is_call || fb_op_effects(g, n).is_unknown;
        memory->is_turned |= fb_op_effects(g, n).mutates_input && !is_element_by_element(g, n);
        if (row->ordinal + 1 >= fb_last_write(alias, n)) continue;
        for (uint32_t e = fb_user_first(g, n); e; e = fb_user_next(g, e)) {
            uint32_t ordinal = fb_node_at(g, fb_edge_user(g, e))->ordinal;
            if (ordinal > memory->read_until) memory->read_until = ordinal;
        }
    }
    return made;
}

/* Why a copy_ must write. */
static fb_obstacle obstacle_to_leave_out(const fb_graph *g, const fb_alias *alias, const written_memory *memories,
                                         fb_node copy) {
    const written_memory *memory = &memories[fb_memory_of(alias, copy)];
    uint32_t ordinal = fb_node_at(g, copy)->ordinal;
    if (memory->is_foreign) return (fb_obstacle){"mutated", "it writes what may be an input or a weight"};
    if (fb_last_write(alias, copy) != ordinal + 1 || memory->read_until > ordinal)
        return (fb_obstacle){"mutated", "what it writes is read later otherwise than through its result, or written again"};
    return fb_layout_is_read(g, copy) ? (fb_obstacle){"needs-contiguous", "a reader may notice how its result lies in memory"}
                                      : FB_NO_OBSTACLE;
}

/* False when it is not given. */
static bool parameter_flag(const json_t *params, const char *name) {
    return json_is_true(json_object_get(params, name));
}

/* A call to remove, and what its readers read instead; none: it has no readers. */
typedef struct removal {
    fb_node node, instead;
    fb_node writer; /* that wrote into it, and makes a result of its own now; or none */
    size_t inputs;  /* it stays, and these go, from this index on; or 0 */
} removal;

typedef struct search {
    fb_matcher *m;
    const fb_alias *alias;
    gradient_flow *gradients; /* NULL: not computed yet; the same for `memories` */
    written_memory *memories;
    fb_node *left; /* by node: its replacement, which for a chain is its beginning */
} search;

/* NULL when memory is out. */
static const gradient_flow *gradients(search *s) {
    if (!s->gradients) s->gradients = gradients_new(s->m->graph, s->alias, s->m->work);
    s->m->failed |= !s->gradients;
    return s->gradients;
}

static const written_memory *written(search *s) {
    if (!s->memories) s->memories = find_written(s->m->graph, s->alias, s->m->work);
    s->m->failed |= !s->memories;
    return s->memories;
}

static fb_obstacle obstacle_to_leave_out_of(search *s, fb_node copy) {
    const written_memory *memories = written(s);
    return memories ? obstacle_to_leave_out(s->m->graph, s->alias, memories, copy) : FB_OUT_OF_MEMORY;
}

/* ---- a copy that one call writes into ----------------------------------------------------------------------------------- */

/* Would what a call writes in place have the same dtype and sizes as a result of its own? The operands broadcast to what it
 * writes, and Python's numbers are of no higher kind: otherwise PyTorch refuses to write. */
static bool gives_what_it_writes(const fb_graph *g, fb_node writer) {
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, writer));
    fb_dtype dtype = (fb_dtype)fb_node_at(g, writer)->dtype;
    if (facts->shape != FB_SHAPE_SAME && facts->shape != FB_SHAPE_BROADCAST) return false;
    if (facts->dtype == FB_DTYPE_RULE_SAME || facts->dtype == FB_DTYPE_RULE_REAL) return true;
    if (facts->dtype != FB_DTYPE_RULE_PROMOTE && !(facts->dtype == FB_DTYPE_RULE_FLOAT && fb_dtype_is_floating(dtype)))
        return false;
    for (uint32_t e = fb_input_first(g, writer); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        if (!fb_is_python_number(g, input) && fb_node_at(g, input)->dtype != dtype) return false;
    }
    return true;
}

/* Is the result row-major as before, where a reader may notice? */
static bool lies_as_written(search *s, fb_node instead, fb_node copy, fb_node writer) {
    const fb_graph *g = s->m->graph;
    if (!fb_layout_is_read(g, writer)) return true;
    for (uint32_t e = fb_input_first(g, writer); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e).id == copy.id ? instead : fb_edge_input(g, e);
        bool has_order = !fb_is_python_number(g, input) && (unsigned)fb_node_rank(g, input) > 1;
        if (has_order && (!fb_is_contiguous(g, input) || fb_is_mutated(s->alias, input))) return false;
    }
    return true;
}

/* The call that alone reads a copy, and writes into it what it could as well give as a result of its own; or none. */
static fb_node writer_of(search *s, const fb_identity *found, fb_node instead) {
    const fb_graph *g = s->m->graph;
    const fb_node_row *row = fb_node_at(g, found->node);
    fb_node writer = row->user_count == 1 ? fb_edge_user(g, fb_user_first(g, found->node)) : (fb_node){0}, none = {0};
    if (!writer.id || found->form != FB_IDENTITY_COPY || found->overwrites) return none;
    const fb_node_row *reader = fb_node_at(g, writer);
    fb_op op = fb_node_op(g, writer);
    fb_effects effects = fb_op_effects(g, writer);
    bool writes = (op & FB_OP_IN_PLACE) && is_element_by_element(g, writer) && effects.mutates_input && !effects.is_unknown &&
                  !effects.is_random && fb_value_node(g, fb_first_argument(g, writer)).id == found->node.id &&
                  fb_mentions_of(g, writer, found->node) == 1;
    bool is_typed = row->dtype && row->shape.id && reader->dtype == row->dtype && reader->shape.id == row->shape.id;
    if (!writes || !is_typed || !gives_what_it_writes(g, writer)) return none;
    /* Nor behind it: from now on it may keep for its gradient what it kept a copy of. */
    if (fb_mutated_after(s->alias, found->input, row->ordinal) || fb_mutated_after(s->alias, instead, row->ordinal) ||
        fb_mode_switched_between(s->alias, 0, reader->ordinal))
        return none;
    fb_buffer target = {0};
    bool is_there = fb_spell_without_write(g, writer, &target);
    s->m->failed |= target.failed;
    fb_buffer_free(&target);
    return is_there && lies_as_written(s, instead, found->node, writer) ? writer : none;
}

/* ---- match -------------------------------------------------------------------------------------------------------------- */

/* Does a reader of a row-major copy notice that its source has other strides? */
static bool needs_rows(search *s, const fb_identity *found, fb_node instead) {
    const fb_graph *g = s->m->graph;
    if (!fb_layout_is_read(g, found->node)) return false;
    bool is_turned = !written(s) || written(s)[fb_memory_of(s->alias, instead)].is_turned;
    bool lies_so = fb_is_contiguous(g, instead) || (found->layout == FB_LAYS_IMAGES && fb_lies_as_image(g, instead));
    return is_turned || !lies_so;
}

/* Why the input cannot take the place of a copy of it; `instead` is what is left of the input when other calls go. */
static fb_obstacle obstacle_to_share(search *s, const fb_identity *found, fb_node instead) {
    const fb_graph *g = s->m->graph;
    switch (fb_may_share(s->m->sharing, found->input, found->node, fb_node_at(g, found->node)->ordinal)) {
    case FB_SHARE_WRITTEN: return (fb_obstacle){"mutated", "it is a copy, and the copy or what it is made of is written later"};
    case FB_SHARE_RETURNED:
        return (fb_obstacle){"graph-output",
                             "it is a copy, and without it a result would share the memory of an input or of another result"};
    case FB_MAY_SHARE: break;
    }
    if (found->layout != FB_LAYS_ALIKE && needs_rows(s, found, instead))
        return (fb_obstacle){"needs-contiguous",
                             "it gives a row-major result, its input may have other strides, and a reader may depend on that"};
    return !fb_is_dense(g, instead) && fb_strides_are_read(g, found->node)
               ? (fb_obstacle){"needs-contiguous",
                               "it is a copy without gaps, its input may have gaps in memory, and a reader may depend on that"}
               : FB_NO_OBSTACLE;
}

/* Why the call must stay. `writer` as in a removal. */
static fb_obstacle obstacle(search *s, const fb_identity *found, fb_node instead, fb_node writer) {
    const fb_matcher *m = s->m;
    const fb_graph *g = m->graph;
    if (found->doubt.code) return found->doubt;
    if (found->turns_minus_zero && !parameter_flag(m->params, "float_zeros"))
        return (fb_obstacle){"float-zero", "it makes 0.0 of -0.0; the parameter float_zeros allows that"};
    bool is_detach = (fb_node_op(g, found->node) & ~(unsigned)FB_OP_IN_PLACE) == FB_OP_DETACH;
    if (is_detach && !parameter_flag(m->params, "detach") && (!gradients(s) || may_carry_gradient(s->gradients, found->input)))
        return (fb_obstacle){"gradient", "a gradient may reach it, and ends here; the parameter detach allows to leave it out"};
    bool is_written = fb_is_mutated(s->alias, found->input);
    if (found->needs_contiguous && (is_written || !fb_is_contiguous(g, found->input)))
        return (fb_obstacle){"unknown-layout", "what it is given may not be contiguous"};
    if (found->form == FB_IDENTITY_VIEW && is_written)
        return (fb_obstacle){"mutated", "it gives another tensor over the same memory, which is written in place"};
    fb_obstacle stands = found->overwrites ? obstacle_to_leave_out_of(s, found->node) : FB_NO_OBSTACLE;
    if (stands.code || found->form != FB_IDENTITY_COPY || writer.id) return stands;
    return obstacle_to_share(s, found, instead);
}

static void match_identity(search *s, const fb_identity *found) {
    if (!fb_matcher_sharing(s->m)) return;
    s->alias = fb_matcher_alias(s->m);
    fb_node instead = s->left[found->input.id].id ? s->left[found->input.id] : found->input;
    fb_node writer = writer_of(s, found, instead);
    fb_obstacle stands = obstacle(s, found, instead, writer);
    if (stands.code) {
        fb_refuse_for(s->m, stands, &found->node, 1);
        return;
    }
    s->left[found->node.id] = instead;
    fb_match_found_as(s->m, &(removal){.node = found->node, .instead = instead, .writer = writer}, sizeof(removal));
    if (!writer.id) fb_share(s->m->sharing, found->input, found->node);
}

static void match_assertion(fb_matcher *m, fb_node n) {
    if (fb_node_at(m->graph, n)->user_count) return;
    if (parameter_flag(m->params, "asserts")) fb_match_found_as(m, &(removal){.node = n}, sizeof(removal));
    else fb_refuse_node(m, "assertion", n, "it checks something; the parameter asserts allows to leave it out");
}

static void match_inputs(fb_matcher *m, fb_node n) {
    size_t first = fb_onnx_needless_inputs(m->graph, n);
    if (first) fb_match_found_as(m, &(removal){.node = n, .inputs = first}, sizeof(removal));
}

/* Of ONNX's operators most say it of some arguments, also those that have no row. */
static bool may_be_no_op(fb_op op) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    return op == FB_OP_UNKNOWN || facts->onnx || facts->identity != FB_IDENTITY_RULE_NEVER || facts->flags & FB_FACT_ASSERTS;
}

static void match_node(search *s, fb_node n) {
    const fb_graph *g = s->m->graph;
    fb_identity found;
    if (fb_identity_at(g, n, &found)) match_identity(s, &found);
    else if (assertion_at(g, n)) match_assertion(s->m, n);
    else match_inputs(s->m, n);
}

/* In order, because each removal lets memory be shared that the next one has to respect. */
static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    search s = {.m = m, .left = calloc(fb_node_limit(g), sizeof *s.left)};
    m->failed |= !s.left;
    fb_candidates all = {.matcher = m, .begins_at = may_be_no_op};
    for (fb_node n; (n = fb_next_candidate(&all)).id;) match_node(&s, n);
    for (uint32_t p = FB_MAIN_PROGRAM.id + 1; p < fb_programs_to_clean(g); p++) {
        for (fb_node n = fb_first_node(g, (fb_program){p}); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n))
            if (fb_node_at(g, n)->user_count) match_node(&s, n); /* with it goes what it captures */
    }
    free(s.left);
    free(s.memories);
    gradients_free(s.gradients);
}

static void stop_writing(fb_rewrite *rw, fb_node writer) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_buffer target = {0};
    bool is_there = fb_spell_without_write(g, writer, &target) && fb_buffer_text(&target);
    if (is_there) fb_set_target(rw, writer, (fb_opcode)fb_node_at(g, writer)->opcode, fb_buffer_text(&target));
    else fb_graph_fail_memory(g);
    fb_buffer_free(&target);
}

/* With what is left absent before them. */
static void drop_inputs(fb_rewrite *rw, fb_node node, size_t first) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_node_row *row = fb_node_at(g, node);
    fb_buffer kept = {0};
    while (first && fb_value_kind(g, fb_node_arg(g, node, first - 1)) == FB_NONE) first--;
    fb_buffer_append(&kept, fb_value_at(g, row->args)->items, first * sizeof(fb_value));
    fb_release_reads(rw, node);
    if (kept.failed) fb_graph_fail_memory(g);
    else fb_set_args(rw, node, fb_make_list(g, (const fb_value *)(const void *)kept.data, first), row->kwargs);
    fb_buffer_free(&kept);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    const removal *found = match->data;
    if (found->inputs) {
        drop_inputs(rw, found->node, found->inputs);
        return;
    }
    if (found->writer.id) stop_writing(rw, found->writer);
    if (found->instead.id) fb_replace_uses(rw, found->node, found->instead);
    fb_erase_call(rw, found->node);
}

const fb_pass fb_remove_no_ops = {
    .name = "RemoveNoOps",
    .version = 1,
    .summary =
        "Removes calls that return their input: Identity, dropout in eval mode, `x * 1`, a view to the same sizes, a cast to "
        "the same dtype.",
    .parameters = "{\"additionalProperties\":false,\"properties\":{"
                  "\"asserts\":{\"default\":false,\"description\":\"also remove assertions\",\"type\":\"boolean\"},"
                  "\"detach\":{\"default\":false,\"description\":\"remove detach where a gradient may reach it; values stay, "
                  "gradients change\",\"type\":\"boolean\"},"
                  "\"float_zeros\":{\"default\":false,\"description\":\"remove `x + 0` in floating point, which makes 0.0 of "
                  "-0.0\",\"type\":\"boolean\"}},\"type\":\"object\"}",
    .exactness = FB_MOVES,
    .gain = FB_GAIN_FEWER_NODES,
    .reversible = true,
    .preserves_computation = true,
    .only_removes = true,
    .reads_onnx = true,
    .match_graph = match_graph,
    .edit = edit,
};
