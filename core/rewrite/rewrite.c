/* Begin, commit, abort; nodes. Modules and tensors are in parts.c. */
#include "core/rewrite/rewrite.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/calls.h"
#include "core/analysis/infer.h"
#include "core/analysis/view.h"
#include "core/rewrite/internal.h"

static fb_rewrite *new_rewrite(fb_graph *graph, const char *signature) {
    fb_rewrite *rewrite = calloc(1, sizeof *rewrite);
    if (!rewrite) return NULL;
    rewrite->graph = graph;
    strncpy(rewrite->signature, signature, FB_SIGNATURE_LENGTH);
    return rewrite;
}

fb_rewrite *fb_rewrite_begin(fb_graph *graph, fb_namespace *names, const char *signature) {
    fb_rewrite *rewrite = new_rewrite(graph, signature);
    if (!rewrite) return NULL;
    rewrite->names = names;
    if (fb_journal_begin(&rewrite->journal, graph)) return rewrite;
    free(rewrite);
    return NULL;
}

/* Its journal, which has not begun, takes every row for a new one, and saves none. */
fb_rewrite *fb_rewrite_begin_trial(const fb_graph *graph, const char *signature) {
    fb_graph *copy = fb_graph_copy(graph, &(fb_work){0});
    fb_rewrite *rewrite = copy ? new_rewrite(copy, signature) : NULL;
    if (rewrite) rewrite->is_trial = true;
    else fb_graph_free(copy);
    return rewrite;
}

static void rewrite_free(fb_rewrite *rewrite) {
    fb_journal_free(&rewrite->journal);
    fb_map_free(&rewrite->wanted_names);
    fb_map_free(&rewrite->replaced);
    fb_map_free(&rewrite->literals);
    fb_map_free(&rewrite->readers);
    fb_map_free(&rewrite->reshaped);
    fb_buffer_free(&rewrite->released);
    fb_buffer_free(&rewrite->uncalled);
    fb_buffer_free(&rewrite->unowned);
    fb_buffer_free(&rewrite->name);
    fb_buffer_free(&rewrite->pending);
    fb_buffer_free(&rewrite->absorbed);
    fb_buffer_free(&rewrite->made);
    fb_buffer_free(&rewrite->inserted);
    free(rewrite);
}

void fb_rewrite_abort(fb_rewrite *rewrite) {
    if (rewrite->is_trial) {
        fb_graph_free(rewrite->graph);
    } else if (!fb_journal_is_empty(&rewrite->journal)) {
        fb_journal_undo(&rewrite->journal);
        fb_graph_number(rewrite->graph);
    }
    rewrite_free(rewrite);
}

fb_graph *fb_rewrite_graph(fb_rewrite *rewrite) {
    return rewrite->graph;
}

void fb_rewrite_watch(fb_rewrite *rewrite, const fb_watch *watch) {
    rewrite->watch = watch;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------------- */

static void note_reshaped(fb_rewrite *rewrite, fb_node node) {
    if (node.id && !fb_map_put(&rewrite->reshaped, node.id, 1)) fb_fail_memory(&rewrite->error);
}

static void note_inputs_reshaped(fb_rewrite *rewrite, fb_node node) {
    for (uint32_t e = fb_input_first(rewrite->graph, node); e; e = fb_input_next(rewrite->graph, e))
        note_reshaped(rewrite, fb_edge_input(rewrite->graph, e));
}

/* True if the node's value may be an input or a view of one, although it has a name of its own. */
static bool may_be_an_input(const fb_graph *graph, fb_node node) {
    fb_effects effects = fb_op_effects(graph, node);
    return effects.may_alias_input || effects.may_alias_all;
}

/* Back: x.contiguous() may be x, so x.contiguous().t_() may reshape x. A tensor that is given as out= gets the shape of the
 * result. */
static void find_reshaped_names(fb_rewrite *rewrite) {
    const fb_graph *graph = rewrite->graph;
    fb_node n = fb_last_node(graph, FB_MAIN_PROGRAM);
    for (; n.id && !rewrite->error.status; n = fb_node_at(graph, n)->previous) {
        fb_op op = fb_node_op(graph, n);
        bool may_reshape =
            op == FB_OP_UNKNOWN || op & FB_OP_IN_PLACE || fb_node_at(graph, n)->kwargs.id != FB_VALUE_EMPTY_MAP.id;
        if (!may_reshape && !rewrite->reshaped.used) continue;
        fb_value out = fb_node_kwarg(graph, n, "out");
        bool has_many = out.id && !fb_value_node(graph, out).id && fb_value_kind(graph, out) != FB_NONE;
        if (fb_reshapes_in_place(graph, n)) note_reshaped(rewrite, fb_value_node(graph, fb_first_argument(graph, n)));
        if (out.id) note_reshaped(rewrite, fb_value_node(graph, out));
        if (has_many || (fb_map_get(&rewrite->reshaped, n.id) && may_be_an_input(graph, n))) note_inputs_reshaped(rewrite, n);
    }
}

/* Values that calls reshape in place, under any name. And on: x.float() may be the x that is reshaped later. */
static void find_reshaped(fb_rewrite *rewrite) {
    const fb_graph *graph = rewrite->graph;
    find_reshaped_names(rewrite);
    fb_node n = rewrite->reshaped.used ? fb_first_node(graph, FB_MAIN_PROGRAM) : (fb_node){0};
    for (; n.id && !rewrite->error.status; n = fb_next_node(graph, n)) {
        bool is_reshaped = false;
        for (uint32_t e = may_be_an_input(graph, n) ? fb_input_first(graph, n) : 0; e; e = fb_input_next(graph, e))
            is_reshaped |= fb_map_get(&rewrite->reshaped, fb_edge_input(graph, e).id) != 0;
        if (is_reshaped) note_reshaped(rewrite, n);
    }
    rewrite->reshaped_known = true;
}

/* One of its inputs was reshaped; what is given as out= gives its dtype alone. */
static bool has_reshaped_input(fb_rewrite *rewrite, fb_node node) {
    const fb_graph *graph = rewrite->graph;
    fb_node out = fb_value_node(graph, fb_node_kwarg(graph, node, "out"));
    for (uint32_t e = fb_input_first(graph, node); e; e = fb_input_next(graph, e)) {
        fb_node input = fb_edge_input(graph, e);
        if (input.id != out.id && fb_map_get(&rewrite->reshaped, input.id)) return true;
    }
    return false;
}

/* The call of which this node is one of several results. */
static fb_node whole_of(const fb_graph *graph, fb_node node) {
    return fb_op_is(graph, node, FB_OP_GETITEM) ? fb_value_node(graph, fb_first_argument(graph, node)) : (fb_node){0};
}

/* Its shape would follow from one that is not any more. */
static bool reads_reshaped(fb_rewrite *rewrite, fb_node node) {
    const fb_graph *graph = rewrite->graph;
    if (!rewrite->reshaped_known) find_reshaped(rewrite);
    if (!rewrite->reshaped.used) return false;
    fb_node whole = whole_of(graph, node);
    if (has_reshaped_input(rewrite, node) || (whole.id && has_reshaped_input(rewrite, whole))) return true;
    for (uint32_t e = fb_input_first(graph, node); e; e = fb_input_next(graph, e)) {
        whole = whole_of(graph, fb_edge_input(graph, e));
        if (whole.id && has_reshaped_input(rewrite, whole)) return true;
    }
    return false;
}

/* Records the inferred type of a result, or none when it is not known. */
static void infer_result(fb_rewrite *rewrite, fb_node node) {
    fb_graph *graph = rewrite->graph;
    fb_shape_result result;
    bool is_known = !reads_reshaped(rewrite, node) && fb_infer(graph, node, &result);
    fb_node_row *row = fb_node_row_at(graph, node);
    if (!is_known && fb_graph_is_onnx(graph)) return; /* the rules are PyTorch's; what replaces a call gives what that gave */
    row->shape = is_known ? fb_make_result_shape(graph, &result) : (fb_value){0};
    row->dtype = is_known ? (uint8_t)result.dtype : FB_DTYPE_UNKNOWN;
}

static void touch(fb_rewrite *rewrite, fb_node node) {
    if (!rewrite->touched.id) rewrite->touched = node;
}

void fb_rewrite_begin_match(fb_rewrite *rewrite, const fb_made_name *names, size_t count) {
    rewrite->notes_names = true;
    rewrite->given = names;
    rewrite->given_count = count;
    rewrite->marked = rewrite->touched = (fb_node){0};
}

fb_node fb_rewrite_first_node(const fb_rewrite *rewrite) {
    return rewrite->marked.id ? rewrite->marked : rewrite->touched;
}

fb_status fb_rewrite_status(const fb_rewrite *rewrite, fb_error *error) {
    const fb_error *own = &rewrite->error;
    return own->status ? fb_fail(error, own->status, own->code, own->pointer, "%s", own->message) : FB_OK;
}

const fb_buffer *fb_rewrite_made_names(const fb_rewrite *rewrite) {
    return &rewrite->made;
}

/* A name that the same match got before; NULL: there is none. */
static const char *take_given_name(fb_rewrite *rewrite, uint64_t wanted) {
    if (!rewrite->given_count || rewrite->given->wanted != wanted) return NULL;
    rewrite->given_count--;
    return rewrite->given++->name;
}

/* A new node's name: NULL when memory is out. */
static const char *make_name(fb_rewrite *rewrite, fb_opcode opcode, fb_symbol target) {
    uint64_t key = (uint64_t)opcode << 32 | target.id;
    const char *given = take_given_name(rewrite, key);
    if (given) return given;
    fb_wanted_name wanted = {fb_map_get(&rewrite->wanted_names, key)};
    if (!wanted.id) {
        fb_buffer candidate = {0};
        fb_candidate_name(&candidate, opcode, fb_text(rewrite->graph, target));
        const char *text = fb_buffer_text(&candidate);
        if (text) wanted = fb_namespace_want(rewrite->names, text);
        fb_buffer_free(&candidate);
        if (!wanted.id || !fb_map_put(&rewrite->wanted_names, key, wanted.id)) return NULL;
    }
    fb_made_name made = {key, fb_namespace_next(rewrite->names, wanted)};
    if (rewrite->notes_names) fb_buffer_append(&rewrite->made, &made, sizeof made);
    return rewrite->made.failed ? NULL : made.name;
}

static void note_inserted(fb_rewrite *rewrite, fb_node node) {
    static const char zeros[256];
    fb_buffer *bits = &rewrite->inserted;
    while (bits->size <= node.id / 8 && !bits->failed) fb_buffer_append(bits, zeros, sizeof zeros);
    if (bits->failed) fb_fail_memory(&rewrite->error);
    else bits->data[node.id / 8] |= (char)(1 << node.id % 8);
}

fb_node fb_insert_typed(fb_rewrite *rewrite, fb_node before, fb_opcode opcode, const char *target, fb_value args,
                        fb_value kwargs, fb_value shape, fb_dtype dtype) {
    fb_node none = {0};
    fb_graph *graph = rewrite->graph;
    if (fb_rewrite_is_failed(rewrite)) return none;
    fb_symbol target_symbol = fb_intern(graph, target);
    const char *text = target_symbol.id ? make_name(rewrite, opcode, target_symbol) : NULL;
    fb_symbol name = text ? fb_intern_bytes(graph, text, strlen(text)) : (fb_symbol){0};
    if (!name.id) {
        fb_fail_memory(&rewrite->error);
        return none;
    }
    if (!fb_rewrite_save(rewrite, fb_journal_node(&rewrite->journal, before) &&
                                      fb_journal_node(&rewrite->journal, fb_node_at(graph, before)->previous))) {
        return none;
    }
    fb_node node = fb_graph_add_node(graph, fb_node_at(graph, before)->program, name, before);
    if (!node.id) return none;
    rewrite->is_renumbered = true;
    touch(rewrite, node);
    note_inserted(rewrite, node);
    fb_graph_set_target(graph, node, opcode, target_symbol);
    fb_graph_set_args(graph, node, args, kwargs.id ? kwargs : FB_VALUE_EMPTY_MAP);
    fb_node_row *row = fb_node_row_at(graph, node);
    row->shape = reads_reshaped(rewrite, node) ? (fb_value){0} : shape;
    row->dtype = (uint8_t)dtype;
    return fb_rewrite_is_failed(rewrite) ? none : node;
}

fb_node fb_insert_before(fb_rewrite *rewrite, fb_node before, fb_opcode opcode, const char *target, fb_value args,
                         fb_value kwargs) {
    fb_node node = fb_insert_typed(rewrite, before, opcode, target, args, kwargs, (fb_value){0}, FB_DTYPE_UNKNOWN);
    if (node.id) infer_result(rewrite, node);
    return fb_rewrite_is_failed(rewrite) ? (fb_node){0} : node;
}

fb_node fb_insert_copy(fb_rewrite *rewrite, fb_node before, fb_node call, fb_value args, fb_value kwargs) {
    const fb_node_row *of = fb_node_at(rewrite->graph, call);
    fb_node node = fb_insert_typed(rewrite, before, (fb_opcode)of->opcode, fb_node_target(rewrite->graph, call), args, kwargs,
                                   of->shape, (fb_dtype)of->dtype);
    fb_node_row *row = node.id ? fb_node_row_at(rewrite->graph, node) : NULL;
    if (!row) return node;
    row->type = of->type;
    row->meta_rest = of->meta_rest;
    return node;
}

/* The row to write to, journalled; NULL after a failure. */
static fb_node_row *change(fb_rewrite *rewrite, fb_node node) {
    if (fb_rewrite_is_failed(rewrite) || !node.id) return NULL;
    if (!fb_rewrite_save(rewrite, fb_journal_node(&rewrite->journal, node))) return NULL;
    touch(rewrite, node);
    return fb_node_row_at(rewrite->graph, node);
}

void fb_forget_meta(fb_rewrite *rewrite, fb_node node, const char *key) {
    fb_value rest = fb_node_at(rewrite->graph, node)->meta_rest;
    if (!rest.id || !fb_map_value(rewrite->graph, rest, key).id || !change(rewrite, node)) return;
    fb_value now = fb_map_with(rewrite->graph, rest, key, (fb_value){0});
    if (now.id) fb_node_row_at(rewrite->graph, node)->meta_rest = now.id == FB_VALUE_EMPTY_MAP.id ? (fb_value){0} : now;
    else fb_fail_memory(&rewrite->error);
}

void fb_put_meta(fb_rewrite *rewrite, fb_node node, const char *key, const char *json) {
    fb_graph *graph = rewrite->graph;
    if (!change(rewrite, node)) return;
    fb_value rest = fb_node_at(graph, node)->meta_rest, text = fb_make_text(graph, FB_RAW, json, strlen(json));
    rest = fb_sorted_map_with(graph, rest.id ? rest : FB_VALUE_EMPTY_MAP, key, text);
    if (rest.id) fb_node_row_at(graph, node)->meta_rest = rest;
    else fb_fail_memory(&rewrite->error);
}

void fb_set_opset(fb_rewrite *rewrite, int64_t opset) {
    fb_graph *graph = rewrite->graph;
    if (fb_rewrite_is_failed(rewrite)) return;
    fb_value metadata = fb_graph_metadata(graph);
    const char *said = fb_value_text(graph, fb_map_value(graph, metadata, "onnx")), *number = fb_opset_said(said);
    fb_buffer text = {0};
    fb_buffer_append(&text, said, (size_t)(number - said));
    fb_buffer_printf(&text, "%lld%s", (long long)opset, number + strspn(number, "0123456789"));
    const char *now = fb_buffer_text(&text);
    if (now) metadata = fb_sorted_map_with(graph, metadata, "onnx", fb_make_text(graph, FB_RAW, now, strlen(now)));
    if (now && metadata.id) fb_graph_set_metadata(graph, metadata);
    else fb_fail_memory(&rewrite->error);
    fb_buffer_free(&text);
}

void fb_set_target(fb_rewrite *rewrite, fb_node node, fb_opcode opcode, const char *target) {
    if (!change(rewrite, node)) return;
    fb_symbol symbol = fb_intern(rewrite->graph, target);
    note_inserted(rewrite, node);
    if (symbol.id) fb_graph_set_target(rewrite->graph, node, opcode, symbol);
}

void fb_set_args(fb_rewrite *rewrite, fb_node node, fb_value args, fb_value kwargs) {
    if (!change(rewrite, node)) return;
    if (!fb_graph_set_args(rewrite->graph, node, args, kwargs)) fb_fail_memory(&rewrite->error);
}

void fb_choose_overload(fb_rewrite *rewrite, fb_node node) {
    const fb_node_row *row = change(rewrite, node);
    const char *target = row ? fb_node_target(rewrite->graph, node) : "", *own = strrchr(target, '.');
    size_t length = 0;
    if (!row || !own || !fb_is_aten(rewrite->graph, node)) return;
    const char *found =
        fb_aten_overload(rewrite->graph, fb_node_op(rewrite->graph, node), row->args, row->kwargs, own + 1, &length);
    fb_buffer now = {0};
    fb_buffer_append(&now, target, (size_t)(own + 1 - target));
    fb_buffer_append(&now, found, found ? length : 0);
    if (!fb_buffer_text(&now)) fb_fail_memory(&rewrite->error);
    else if (found) fb_set_target(rewrite, node, FB_CALL_FUNCTION, fb_buffer_text(&now));
    fb_buffer_free(&now);
}

void fb_set_argument(fb_rewrite *rewrite, fb_node node, const char *parameter, fb_value value) {
    const fb_node_row *row = change(rewrite, node);
    fb_argument_place place;
    if (!row || !fb_call_argument_place(rewrite->graph, node, parameter, &place)) return;
    fb_value args = row->args, kwargs = row->kwargs;
    if (place.is_keyword) kwargs = fb_map_with(rewrite->graph, kwargs, place.keyword, value);
    else args = fb_list_with(rewrite->graph, args, place.index, value);
    fb_set_args(rewrite, node, args, kwargs);
}

void fb_remove_argument(fb_rewrite *rewrite, fb_node node, const char *keyword) {
    const fb_node_row *row = change(rewrite, node);
    if (row) fb_set_args(rewrite, node, row->args, fb_map_with(rewrite->graph, row->kwargs, keyword, (fb_value){0}));
}

void fb_set_result_type(fb_rewrite *rewrite, fb_node node, fb_value shape, fb_dtype dtype) {
    fb_node_row *row = change(rewrite, node);
    if (!row) return;
    row->shape = shape;
    row->dtype = (uint8_t)dtype;
}

void fb_infer_result_type(fb_rewrite *rewrite, fb_node node) {
    if (change(rewrite, node)) infer_result(rewrite, node);
}

bool fb_infer_what_is_missing(fb_rewrite *rewrite, fb_node node) {
    fb_node_row *row = fb_node_row_at(rewrite->graph, node);
    fb_value shape = row->shape;
    fb_dtype dtype = (fb_dtype)row->dtype;
    fb_infer_result_type(rewrite, node);
    fb_value new_shape = row->shape;
    fb_dtype new_dtype = (fb_dtype)row->dtype;
    bool is_more = (!shape.id && new_shape.id) || (!dtype && new_dtype);
    fb_set_result_type(rewrite, node, shape.id ? shape : new_shape, dtype ? dtype : new_dtype);
    return is_more;
}

void fb_replace_uses(fb_rewrite *rewrite, fb_node old, fb_node now) {
    if (fb_rewrite_is_failed(rewrite)) return;
    fb_buffer_append(&rewrite->pending, &(pending_node){old, now}, sizeof(pending_node));
    if (rewrite->pending.failed || !fb_map_put(&rewrite->replaced, old.id, now.id)) fb_fail_memory(&rewrite->error);
}

static void note_absorbed(fb_rewrite *rewrite, fb_node node, fb_node by) {
    fb_buffer_append(&rewrite->absorbed, &(pending_node){node, by}, sizeof(pending_node));
    if (rewrite->absorbed.failed) fb_fail_memory(&rewrite->error);
}

void fb_absorb(fb_rewrite *rewrite, fb_node node, fb_node by) {
    fb_replace_uses(rewrite, node, by);
    fb_erase(rewrite, node);
    note_absorbed(rewrite, node, by);
}

void fb_note_new_value(fb_rewrite *rewrite, fb_node node) {
    note_absorbed(rewrite, node, node);
}

const fb_buffer *fb_rewrite_absorbed(const fb_rewrite *rewrite) {
    return &rewrite->absorbed;
}

bool fb_rewrite_has_changed(const fb_rewrite *rewrite, fb_node node) {
    return node.id >= rewrite->journal.start.nodes || rewrite->journal.nodes_saved[node.id];
}

bool fb_rewrite_has_inserted(const fb_rewrite *rewrite, fb_node node) {
    const fb_buffer *bits = &rewrite->inserted;
    return node.id / 8 < bits->size && bits->data[node.id / 8] >> node.id % 8 & 1;
}

void fb_erase(fb_rewrite *rewrite, fb_node node) {
    if (fb_rewrite_is_failed(rewrite)) return;
    touch(rewrite, node);
    fb_buffer_append(&rewrite->pending, &(pending_node){node, {0}}, sizeof(pending_node));
    if (rewrite->pending.failed) fb_fail_memory(&rewrite->error);
}

void fb_write_literal(fb_rewrite *rewrite, fb_node node, fb_value literal) {
    if (fb_rewrite_is_failed(rewrite)) return;
    if (!fb_map_put(&rewrite->literals, node.id, literal.id)) fb_fail_memory(&rewrite->error);
    fb_erase(rewrite, node);
}

bool fb_node_add_mark(fb_graph *graph, fb_node node, fb_value mark) {
    fb_node_row *row = fb_node_row_at(graph, node);
    size_t count = row->transformations.id ? fb_value_at(graph, row->transformations)->count : 0;
    fb_value small[8], *marks = count < 8 ? small : malloc((count + 1) * sizeof *marks);
    if (!marks) return false;
    for (size_t i = 0; i < count; i++) marks[i] = fb_value_item(graph, row->transformations, i);
    marks[count] = mark;
    row->transformations = fb_make_list(graph, marks, count + 1);
    if (marks != small) free(marks);
    return mark.id && row->transformations.id;
}

void fb_mark(fb_rewrite *rewrite, fb_node node) {
    fb_graph *graph = rewrite->graph;
    if (!rewrite->marked.id) rewrite->marked = node;
    if (fb_node_is_marked(graph, node, rewrite->signature) || !change(rewrite, node)) return;
    if (!rewrite->mark.id) rewrite->mark = fb_make_string(graph, rewrite->signature);
    if (!fb_node_add_mark(graph, node, rewrite->mark)) fb_fail_memory(&rewrite->error);
}

/* ---- commit ------------------------------------------------------------------------------------------------------------ */

static fb_node follow(void *context, fb_node node) {
    const fb_rewrite *rewrite = context;
    uint32_t now;
    while ((now = fb_map_get(&rewrite->replaced, node.id))) node.id = now;
    return node;
}

static fb_value read_instead(void *context, fb_node node) {
    fb_rewrite *rewrite = context;
    fb_node now = follow(rewrite, node);
    fb_value literal = {fb_map_get(&rewrite->literals, now.id)};
    return literal.id ? literal : fb_make_node(rewrite->graph, now);
}

static const pending_node *pending_nodes(const fb_rewrite *rewrite, size_t *count) {
    *count = rewrite->pending.size / sizeof(pending_node);
    return (const pending_node *)(const void *)rewrite->pending.data;
}

/* Rebuilds the arguments of every reader of a replaced node. There is one edge for each reader, and rebuilding one reader's
 * arguments leaves the edges of the others alone, so the next edge can be taken first. A node that replaces its own input
 * ("y = f(x); uses of x become y") keeps reading it. */
static void apply_replacements(fb_rewrite *rewrite) {
    size_t count;
    const pending_node *pending = pending_nodes(rewrite, &count);
    for (size_t i = 0; i < count; i++) {
        bool is_literal = !pending[i].now.id && fb_map_get(&rewrite->literals, pending[i].old.id);
        if (!is_literal && (!pending[i].now.id || pending[i].now.id == pending[i].old.id)) continue;
        uint32_t edge = fb_user_first(rewrite->graph, pending[i].old), next;
        for (; edge && !fb_rewrite_is_failed(rewrite); edge = next) {
            fb_node user = fb_edge_user(rewrite->graph, edge);
            next = fb_user_next(rewrite->graph, edge);
            if (!is_literal && user.id == follow(rewrite, pending[i].old).id) continue;
            const fb_node_row *row = fb_node_at(rewrite->graph, user);
            fb_set_args(rewrite, user, fb_value_substitute(rewrite->graph, row->args, read_instead, rewrite),
                        fb_value_substitute(rewrite->graph, row->kwargs, read_instead, rewrite));
        }
    }
}

static void apply_erasures(fb_rewrite *rewrite) {
    fb_graph *graph = rewrite->graph;
    size_t count;
    const pending_node *pending = pending_nodes(rewrite, &count);
    for (size_t i = count; i-- > 0;) { /* last first: a chain is erased from its end */
        bool is_optional = pending[i].now.id == pending[i].old.id;
        const fb_node_row *row = is_optional || !pending[i].now.id ? change(rewrite, pending[i].old) : NULL;
        if (!row || (is_optional && (row->user_count || row->is_erased))) continue;
        if (row->user_count) {
            fb_fail(&rewrite->error, FB_IO, "erased-node-in-use", "", "a pass erased node %s, which still has readers",
                    fb_node_name(graph, pending[i].old));
            return;
        }
        if (!fb_rewrite_save(rewrite, fb_journal_node(&rewrite->journal, row->previous) &&
                                          fb_journal_node(&rewrite->journal, row->next))) {
            return;
        }
        rewrite->is_renumbered = true;
        fb_graph_erase_node(graph, pending[i].old);
    }
}

fb_status fb_rewrite_commit(fb_rewrite *rewrite, fb_error *error) {
    if (!fb_rewrite_is_failed(rewrite)) apply_replacements(rewrite);
    if (!fb_rewrite_is_failed(rewrite)) apply_erasures(rewrite);
    if (!fb_rewrite_is_failed(rewrite)) fb_drop_released(rewrite);
    if (!fb_rewrite_is_failed(rewrite)) fb_drop_uncalled(rewrite);
    if (!fb_rewrite_is_failed(rewrite)) fb_drop_unread_tensors(rewrite);
    if (fb_rewrite_is_failed(rewrite)) {
        fb_status status = fb_rewrite_status(rewrite, error);
        fb_rewrite_abort(rewrite);
        return status;
    }
    if (rewrite->is_renumbered) fb_graph_number(rewrite->graph);
    rewrite_free(rewrite);
    return FB_OK;
}
