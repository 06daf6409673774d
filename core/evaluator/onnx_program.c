/* ONNX's control flow: nested programs, whose values from around them are in the call's `captures`. */
#include <stdlib.h>
#include <string.h>

#include "core/evaluator/onnx.h"
#include "core/json/json.h"

/* Which of the call's graph attributes `name` is; -1: none of them. */
static int place_of(const onnx_op *op, const char *name) {
    int place = 0;
    for (uint32_t i = 0; i + 1 < op->kwargs->count; i += 2) {
        const fb_graph *graph = op->call->graph;
        const char *key = fb_text(graph, fb_value_at(graph, op->kwargs->items[i])->symbol);
        bool is_node = fb_value_kind(graph, op->kwargs->items[i + 1]) == FB_NODE;
        const fb_node_row *row = is_node ? fb_node_at(graph, fb_value_node(graph, op->kwargs->items[i + 1])) : NULL;
        bool is_program = row && row->opcode == FB_GET_ATTR && !row->attribute.id;
        if (is_program && strcmp(key, name) == 0) return place;
        place += is_program;
    }
    return -1;
}

bool onnx_run(onnx_op *op, const char *name, const fb_object *inputs, size_t count, fb_object *out) {
    fb_kernel_call *call = op->call;
    const fb_graph *graph = call->graph;
    int place = place_of(op, name);
    fb_value value = onnx_attribute(op, name), captures = onnx_attribute(op, "captures");
    fb_object program, all;
    *out = (fb_object){.kind = FB_OBJECT_NONE};
    if (!onnx_ok(op)) return false;
    bool has_captures = captures.id && fb_value_kind(graph, captures) == FB_LIST;
    fb_value own = has_captures && place >= 0 ? fb_value_item(graph, captures, (uint32_t)place) : (fb_value){0};
    if (place < 0 || !own.id || fb_value_kind(graph, own) != FB_LIST)
        return onnx_refuse(op, "it has no program %s", name) != NULL;
    const fb_value_row *captured = fb_value_at(graph, own);
    call->status = fb_evaluate_value(call->evaluator, value, &program);
    if (!onnx_ok(op)) return false;
    if (program.kind != FB_OBJECT_PROGRAM) {
        fb_object_drop(&program);
        return onnx_refuse(op, "its %s is not a program", name) != NULL;
    }
    call->status = fb_object_sequence(FB_OBJECT_TUPLE, count + captured->count, &all, call->error);
    if (!onnx_ok(op)) return false;
    for (size_t i = 0; i < count; i++) {
        all.items->objects[i] = inputs[i];
        fb_object_keep(&inputs[i]);
    }
    for (uint32_t i = 0; i < captured->count && onnx_ok(op); i++)
        call->status = fb_evaluate_value(call->evaluator, captured->items[i], &all.items->objects[count + i]);
    if (onnx_ok(op))
        call->status = fb_evaluate_program(call->evaluator, program.program, all.items->objects, count + captured->count, out);
    fb_object_drop(&all);
    return onnx_ok(op);
}

bool onnx_take(onnx_op *op, fb_object *given, size_t count, fb_array **out) {
    bool fits = fb_object_is_sequence(given) && given->items->count == count;
    for (size_t i = 0; i < count && fits; i++) {
        fits = given->items->objects[i].kind == FB_OBJECT_ARRAY;
        if (fits) out[i] = fb_array_keep(given->items->objects[i].array);
        else
            while (i) fb_array_drop(out[--i]);
    }
    fb_object_drop(given);
    return fits || onnx_refuse(op, "its program gives something else than tensors") != NULL;
}

static bool truth_of(onnx_op *op, const fb_array *array) {
    if (array && fb_array_count(array) == 1 && array->held == FB_HELD_BOOL) return fb_array_int(array, 0);
    onnx_fail(op, "its condition is not a bool");
    return false;
}

static fb_array *op_if(onnx_op *op) {
    fb_array *condition = onnx_in(op, 0);
    fb_object made;
    bool is_true = condition && truth_of(op, condition);
    onnx_ignore(op, is_true ? "else_branch" : "then_branch");
    if (!onnx_ok(op) || !onnx_run(op, is_true ? "then_branch" : "else_branch", NULL, 0, &made)) return NULL;
    fb_array *arrays[ONNX_RESULTS];
    if (!onnx_take(op, &made, op->wanted, arrays)) return NULL;
    for (size_t i = 0; i < op->wanted; i++) op->results[i] = onnx_keep(op, arrays[i]);
    return op->results[0];
}

typedef struct looping {
    size_t state_count, scan_count;
    fb_array *states[ONNX_RESULTS];
    fb_array **scans[ONNX_RESULTS]; /* of each turn */
    size_t turns, capacity;
} looping;

static void end_loop(looping *l) {
    for (size_t i = 0; i < l->state_count; i++) fb_array_drop(l->states[i]);
    for (size_t i = 0; i < l->scan_count; i++) {
        for (size_t t = 0; t < l->turns && l->scans[i]; t++) fb_array_drop(l->scans[i][t]);
        free(l->scans[i]);
    }
}

static bool grow(onnx_op *op, looping *l) {
    if (l->turns < l->capacity) return true;
    size_t capacity = l->capacity ? 2 * l->capacity : 16;
    for (size_t i = 0; i < l->scan_count; i++) {
        fb_array **grown = realloc(l->scans[i], capacity * sizeof *grown);
        if (!grown) {
            op->call->status = fb_fail_memory(op->call->error);
            return false;
        }
        l->scans[i] = grown;
    }
    l->capacity = capacity;
    return true;
}

static bool turn(onnx_op *op, looping *l, bool *goes_on) {
    fb_object inputs[ONNX_RESULTS + 2], made;
    fb_array *iteration = onnx_new(op, FB_INT64, 0, NULL), *condition = onnx_new(op, FB_BOOL, 0, NULL), *out[ONNX_RESULTS + 1];
    if (!condition || !iteration || !grow(op, l) || !onnx_goes_on(op, 1000)) return false;
    onnx_put_int(iteration, 0, (int64_t)l->turns);
    onnx_put_int(condition, 0, 1);
    inputs[0] = (fb_object){.kind = FB_OBJECT_ARRAY, .array = iteration};
    inputs[1] = (fb_object){.kind = FB_OBJECT_ARRAY, .array = condition};
    for (size_t i = 0; i < l->state_count; i++) inputs[i + 2] = (fb_object){.kind = FB_OBJECT_ARRAY, .array = l->states[i]};
    if (!onnx_run(op, "body", inputs, l->state_count + 2, &made)) return false;
    if (!onnx_take(op, &made, 1 + l->state_count + l->scan_count, out)) return false;
    *goes_on = truth_of(op, out[0]);
    fb_array_drop(out[0]);
    for (size_t i = 0; i < l->state_count; i++) {
        fb_array_drop(l->states[i]);
        l->states[i] = out[1 + i];
    }
    for (size_t i = 0; i < l->scan_count; i++) l->scans[i][l->turns] = out[1 + l->state_count + i];
    l->turns++;
    /* what a turn has made of its own is not kept to the end */
    for (int i = 0; i < 2; i++) fb_object_drop(&op->kept[--op->kept_count]);
    return onnx_ok(op);
}

/* The metadata of a graph of an attribute about one of its outputs; NULL: none. */
static json_t *declared(onnx_op *op, const char *name, size_t index) {
    const fb_graph *graph = op->call->graph;
    fb_value value = onnx_attribute(op, name);
    fb_program program = fb_module_at(graph, fb_node_at(graph, fb_value_node(graph, value))->module)->program;
    fb_value rest = {0};
    for (fb_node n = fb_first_node(graph, program); n.id; n = fb_next_node(graph, n))
        if (fb_node_at(graph, n)->opcode == FB_OUTPUT) rest = fb_node_at(graph, n)->meta_rest;
    const char *text = rest.id ? fb_value_text(graph, fb_map_value(graph, rest, "onnx")) : NULL;
    json_error_t failure;
    json_t *said = text ? fb_load_json_bytes(text, strlen(text), 0, &failure) : NULL;
    json_t *found = json_incref(json_array_get(json_object_get(said, "outputs"), index));
    json_decref(said);
    return found;
}

/* The result of a scan without turns: empty, of the shape that the body says. */
static fb_array *nothing_of(onnx_op *op, size_t index) {
    json_t *said = place_of(op, "body") < 0 ? NULL : declared(op, "body", index), *size;
    const json_t *shape = json_object_get(said, "shape");
    const char *word = json_string_value(json_object_get(said, "dtype"));
    fb_dtype dtype = word ? fb_dtype_find(word) : FB_DTYPE_UNKNOWN;
    size_t rank = 1, i;
    int64_t sizes[FB_MAX_RANK] = {0};
    bool is_known = json_is_array(shape) && json_array_size(shape) < FB_MAX_RANK && dtype;
    json_array_foreach(is_known ? shape : NULL, i, size) {
        is_known &= json_is_integer(size);
        sizes[rank++] = json_integer_value(size);
    }
    json_decref(said);
    return is_known ? onnx_new(op, dtype, (int)rank, sizes)
                    : onnx_undefined(op, "it makes no turn, so the shape of what it gathers is not known");
}

static fb_array *op_loop(onnx_op *op) {
    fb_array *most = onnx_maybe(op, 0), *condition = onnx_maybe(op, 1);
    looping l = {.state_count = onnx_in_count(op) < 2 ? 0 : onnx_in_count(op) - 2};
    if (!onnx_ok(op)) return NULL;
    if (l.state_count > op->wanted || op->wanted + 2 > ONNX_RESULTS) return onnx_refuse(op, "its results are not so many");
    l.scan_count = op->wanted - l.state_count;
    int64_t turns = most ? (fb_array_count(most) == 1 && most->held == FB_HELD_INT ? fb_array_int(most, 0) : -1) : INT64_MAX;
    if (turns < 0 && most && fb_array_count(most) != 1) return onnx_fail(op, "its number of turns is not one");
    bool goes_on = !condition || truth_of(op, condition);
    size_t given = 0;
    for (; given < l.state_count; given++) {
        fb_array *state = onnx_in(op, given + 2);
        if (!state) break;
        l.states[given] = fb_array_keep(state);
    }
    l.state_count = given;
    while (onnx_ok(op) && goes_on && (int64_t)l.turns < turns) {
        if (!turn(op, &l, &goes_on)) break;
        if (!goes_on && !condition && (int64_t)l.turns < turns)
            onnx_refuse(op, "it has no condition, so what its body says of one is left open");
    }
    onnx_ignore(op, "body");
    onnx_ignore(op, "captures");
    for (size_t i = 0; i < l.state_count && onnx_ok(op); i++) op->results[i] = onnx_keep(op, fb_array_keep(l.states[i]));
    for (size_t i = 0; i < l.scan_count && onnx_ok(op); i++) {
        op->results[l.state_count + i] =
            l.turns ? ONNX_PART(STACK, "stack", ONNX_O("tensors", onnx_arrays(op, l.scans[i], l.turns)), ONNX_I("dim", 0))
                    : nothing_of(op, 1 + l.state_count + i);
    }
    end_loop(&l);
    return onnx_ok(op) ? op->results[0] : NULL;
}

/* ---- Scan --------------------------------------------------------------------------------------------------------------- */

typedef struct scan {
    looping loop;
    size_t input_count;
    fb_array *inputs[ONNX_RESULTS];
    int64_t axes[FB_MAX_RANK], is_backward[FB_MAX_RANK];
    int64_t length;
} scan;

/* A list of ints, one for each; 0 where it is not given. */
static bool read_each(onnx_op *op, const char *name, size_t count, int64_t out[FB_MAX_RANK]) {
    memset(out, 0, FB_MAX_RANK * sizeof *out);
    int given = onnx_ints(op, name, out);
    if (count > FB_MAX_RANK) return onnx_refuse(op, "it scans too many") != NULL;
    return given < 0 || (size_t)given == count || onnx_fail(op, "%s is not one number for each", name) != NULL;
}

static bool open_scan(onnx_op *op, scan *s) {
    int64_t count = onnx_int(op, "num_scan_inputs", 0);
    if (count < 1 || (size_t)count > onnx_in_count(op) || onnx_in_count(op) > ONNX_RESULTS)
        return onnx_refuse(op, "its inputs are not so many") != NULL;
    s->input_count = (size_t)count;
    size_t states = onnx_in_count(op) - s->input_count;
    if (states > op->wanted) return onnx_refuse(op, "its results are not so many") != NULL;
    if (!read_each(op, "scan_input_axes", s->input_count, s->axes) ||
        !read_each(op, "scan_input_directions", s->input_count, s->is_backward))
        return false;
    for (size_t i = 0; i < s->input_count && onnx_ok(op); i++) {
        fb_array *x = s->inputs[i] = onnx_in(op, states + i);
        if (!x || !x->rank) return onnx_fail(op, "what it scans has no dimension") != NULL;
        s->axes[i] = onnx_axis_of(op, s->axes[i], x->rank);
        if (i && x->sizes[s->axes[i]] != s->length) return onnx_fail(op, "what it scans has several lengths") != NULL;
        s->length = x->sizes[s->axes[i]];
    }
    for (size_t i = 0; i < states && onnx_ok(op); i++) {
        fb_array *state = onnx_in(op, i);
        if (state) s->loop.states[s->loop.state_count++] = fb_array_keep(state);
    }
    s->loop.scan_count = op->wanted - states;
    return onnx_ok(op);
}

/* The part of an input that one turn reads: without the axis. */
static fb_array *slice_of(onnx_op *op, const scan *s, size_t i, int64_t turn) {
    const fb_array *x = s->inputs[i];
    int axis = (int)s->axes[i];
    int64_t at = s->is_backward[i] ? s->length - 1 - turn : turn;
    fb_array *view = fb_make_view(op->call, x, x->rank);
    if (!view) return NULL;
    memcpy(view->sizes, x->sizes, sizeof view->sizes);
    memcpy(view->strides, x->strides, sizeof view->strides);
    fb_array_slice(view, axis, at, at + 1, 1);
    fb_array_remove_dim(view, axis);
    return view;
}

static bool scan_turn(onnx_op *op, scan *s) {
    looping *l = &s->loop;
    fb_object inputs[ONNX_RESULTS], made;
    fb_array *out[ONNX_RESULTS];
    size_t count = l->state_count;
    if (!grow(op, l) || !onnx_goes_on(op, 1000)) return false;
    for (size_t i = 0; i < count; i++) inputs[i] = (fb_object){.kind = FB_OBJECT_ARRAY, .array = fb_array_keep(l->states[i])};
    for (size_t i = 0; i < s->input_count && onnx_ok(op); i++) {
        fb_array *slice = slice_of(op, s, i, (int64_t)l->turns);
        if (slice) inputs[count++] = (fb_object){.kind = FB_OBJECT_ARRAY, .array = slice};
    }
    bool ok = onnx_ok(op) && onnx_run(op, "body", inputs, count, &made) && onnx_take(op, &made, op->wanted, out);
    for (size_t i = 0; i < count; i++) fb_object_drop(&inputs[i]);
    for (size_t i = 0; i < l->state_count && ok; i++) {
        fb_array_drop(l->states[i]);
        l->states[i] = out[i];
    }
    for (size_t i = 0; i < l->scan_count && ok; i++) l->scans[i][l->turns] = out[l->state_count + i];
    l->turns += ok;
    return ok;
}

/* Each turn reads the next slice of what is scanned, and gives slices of what is gathered. */
static fb_array *op_scan(onnx_op *op) {
    scan s = {0};
    int64_t axes[FB_MAX_RANK], is_backward[FB_MAX_RANK];
    bool ok = open_scan(op, &s) && read_each(op, "scan_output_axes", s.loop.scan_count, axes) &&
              read_each(op, "scan_output_directions", s.loop.scan_count, is_backward);
    if (ok && !s.length && s.loop.scan_count)
        onnx_undefined(op, "it makes no turn, so the shape of what it gathers is not known");
    while (ok && onnx_ok(op) && (int64_t)s.loop.turns < s.length) ok = scan_turn(op, &s);
    onnx_ignore(op, "body");
    onnx_ignore(op, "captures");
    for (size_t i = 0; i < s.loop.state_count && onnx_ok(op); i++)
        op->results[i] = onnx_keep(op, fb_array_keep(s.loop.states[i]));
    for (size_t i = 0; i < s.loop.scan_count && onnx_ok(op); i++) {
        fb_array **items = s.loop.scans[i];
        for (size_t a = 0, b = s.loop.turns; is_backward[i] && a + 1 < b; a++) {
            fb_array *last = items[--b];
            items[b] = items[a];
            items[a] = last;
        }
        int axis = onnx_axis_of(op, axes[i], items[0]->rank + 1);
        op->results[s.loop.state_count + i] =
            ONNX_PART(STACK, "stack", ONNX_O("tensors", onnx_arrays(op, items, s.loop.turns)), ONNX_I("dim", axis));
    }
    end_loop(&s.loop);
    return onnx_ok(op) ? op->results[0] : NULL;
}

const onnx_row onnx_rows_program[] = {
    {"If", 1, 28, op_if, 0, NULL},
    {"Loop", 1, 28, op_loop, 0, NULL},
    {"Scan", 9, 28, op_scan, 0, NULL},
    {0},
};
