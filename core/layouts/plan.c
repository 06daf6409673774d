/* Plans: what a layout copies, for software that has the tensors in its own memory. */
#include <stdlib.h>
#include <string.h>

#include "core/graph/slot.h"
#include "core/graph/write.h"
#include "core/json/json.h"
#include "core/layouts/internal.h"
#include "core/weights/invert.h"

typedef struct planning {
    fb_graph *graph; /* the result; its recipes' inverses are made in it */
    fb_buffer *copies, *fills;
    json_t *seen; /* parts of sources, of which one may be there twice */
    fb_error *error;
} planning;

/* ---- what a part of a tensor is ------------------------------------------------------------------------------------------ */

typedef struct step {
    fb_recipe_op op;
    fb_value expression;
} step;

static void put_list(fb_buffer *out, const int64_t *numbers, int count) {
    fb_buffer_char(out, '[');
    for (int i = 0; i < count; i++) fb_buffer_printf(out, i ? ",%lld" : "%lld", (long long)numbers[i]);
    fb_buffer_char(out, ']');
}

/* Slices one after the other: as one range for each dimension. */
static void put_ranges(fb_buffer *out, const int64_t *starts, const int64_t *stops, int rank) {
    fb_buffer_string(out, "{\"slice\":[");
    for (int i = 0; i < rank; i++)
        fb_buffer_printf(out, "%s[%lld,%lld]", i ? "," : "", (long long)starts[i], (long long)stops[i]);
    fb_buffer_string(out, "]}");
}

static size_t put_slices(const planning *p, const step *steps, size_t count, fb_buffer *out) {
    fb_recipe_type type;
    int64_t starts[FB_RECIPE_MAX_RANK] = {0}, stops[FB_RECIPE_MAX_RANK];
    size_t taken = 0;
    if (fb_recipe_type_of(p->graph, fb_recipe_arg(p->graph, steps[0].expression, 0), &type, p->error)) return count;
    memcpy(stops, type.sizes, sizeof stops);
    for (; taken < count && steps[taken].op == FB_RECIPE_SLICE; taken++) {
        int axis = (int)fb_recipe_int(p->graph, steps[taken].expression, "axis");
        stops[axis] = starts[axis] + fb_recipe_int(p->graph, steps[taken].expression, "stop");
        starts[axis] += fb_recipe_int(p->graph, steps[taken].expression, "start");
    }
    put_ranges(out, starts, stops, type.rank);
    return taken;
}

/* A dimension that is taken apart, its parts permuted and joined again: the others stay. Gives how many steps that is, or 0. */
static size_t put_index(const planning *p, const step *steps, size_t count, fb_buffer *out) {
    fb_recipe_type before, apart, after;
    int64_t dims[FB_RECIPE_MAX_RANK];
    if (count < 3 || steps[0].op != FB_RECIPE_RESHAPE || steps[1].op != FB_RECIPE_PERMUTE || steps[2].op != FB_RECIPE_RESHAPE)
        return 0;
    if (fb_recipe_type_of(p->graph, fb_recipe_arg(p->graph, steps[0].expression, 0), &before, p->error) ||
        fb_recipe_type_of(p->graph, steps[0].expression, &apart, p->error) ||
        fb_recipe_type_of(p->graph, steps[2].expression, &after, p->error))
        return 0;
    int more = apart.rank - before.rank, axis = 0;
    bool is_same = after.rank == before.rank && more > 0;
    for (int i = 0; is_same && i < before.rank; i++) is_same = after.sizes[i] == before.sizes[i];
    while (is_same && axis < before.rank && apart.sizes[axis] == before.sizes[axis]) axis++;
    for (int i = axis + 1; is_same && i < before.rank; i++) is_same = apart.sizes[i + more] == before.sizes[i];
    fb_value permuted = fb_recipe_value(p->graph, steps[1].expression, "dims");
    for (int i = 0; is_same && i < apart.rank; i++) {
        bool is_part = i >= axis && i <= axis + more;
        dims[i] = fb_shape_size(p->graph, permuted, i);
        is_same = is_part ? dims[i] >= axis && dims[i] <= axis + more : dims[i] == i;
        if (is_part) dims[i] -= axis;
    }
    if (!is_same || axis == before.rank) return 0;
    fb_buffer_printf(out, "{\"index\":{\"axis\":%d,\"reshape\":", axis);
    put_list(out, apart.sizes + axis, more + 1);
    fb_buffer_string(out, ",\"permute\":");
    put_list(out, dims + axis, more + 1);
    fb_buffer_string(out, "}}");
    return 3;
}

static size_t put_step(const planning *p, const step *steps, size_t count, fb_buffer *out) {
    int64_t numbers[FB_RECIPE_MAX_RANK];
    if (steps[0].op == FB_RECIPE_SLICE) return put_slices(p, steps, count, out);
    size_t taken = put_index(p, steps, count, out);
    if (taken) return taken;
    bool is_reshape = steps[0].op == FB_RECIPE_RESHAPE;
    fb_value list = fb_recipe_value(p->graph, steps[0].expression, is_reshape ? "shape" : "dims");
    int rank = fb_shape_rank(p->graph, list);
    for (int i = 0; i < rank; i++) numbers[i] = fb_shape_size(p->graph, list, i);
    fb_buffer_string(out, is_reshape ? "{\"reshape\":" : "{\"permute\":");
    put_list(out, numbers, rank);
    fb_buffer_char(out, '}');
    return 1;
}

/* Steps on the made tensor, in order. */
static void put_steps(planning *p, fb_value from, fb_buffer *out) {
    step steps[FB_RECIPE_MAX_DEPTH];
    size_t count = 0;
    for (fb_recipe_op op; (op = fb_recipe_op_of(p->graph, from)) && count < FB_RECIPE_MAX_DEPTH;
         from = fb_recipe_arg(p->graph, from, 0))
        steps[count++] = (step){op, from};
    for (size_t i = 0; i < count / 2; i++) {
        step other = steps[i];
        steps[i] = steps[count - 1 - i];
        steps[count - 1 - i] = other;
    }
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < count;) {
        if (i) fb_buffer_char(out, ',');
        i += put_step(p, steps + i, count - i, out);
    }
    fb_buffer_char(out, ']');
}

/* ---- the copies ---------------------------------------------------------------------------------------------------------- */

/* True if the same part of the source was copied before. */
static bool is_there(planning *p, const fb_piece *piece) {
    fb_buffer key = {0};
    fb_buffer_printf(&key, "%u", piece->source.id);
    put_list(&key, piece->start, piece->rank);
    put_list(&key, piece->stop, piece->rank);
    const char *text = fb_buffer_text(&key);
    bool was_there = text && json_object_get(p->seen, text);
    if (!text || json_object_set_new(p->seen, text, json_true())) fb_fail_memory(p->error);
    fb_buffer_free(&key);
    return was_there;
}

static void put_piece(planning *p, const char *made, const fb_piece *piece) {
    fb_buffer *out = piece->source.id ? p->copies : p->fills;
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "made", made);
    fb_put_name(out, "part");
    put_steps(p, piece->from, out);
    if (!piece->source.id) {
        int64_t whole;
        bool is_int = fb_value_is_int(p->graph, piece->number, &whole);
        double number = is_int ? (double)whole : fb_value_at(p->graph, piece->number)->real;
        fb_put_name(out, "value");
        fb_buffer_printf(out, "%.17g}", number);
        return;
    }
    fb_value shape = fb_tensor_at(p->graph, piece->source)->shape;
    bool is_whole = true;
    for (int i = 0; i < piece->rank; i++)
        is_whole &= piece->start[i] == 0 && piece->stop[i] == fb_shape_size(p->graph, shape, i);
    fb_put_text(out, "source", fb_tensor_name(p->graph, piece->source));
    fb_put_name(out, "of");
    fb_buffer_char(out, '[');
    if (!is_whole) put_ranges(out, piece->start, piece->stop, piece->rank);
    fb_buffer_char(out, ']');
    if (is_there(p, piece)) fb_buffer_string(out, ",\"again\":true");
    fb_buffer_char(out, '}');
}

static void put_tensor(const fb_graph *graph, const char *name, fb_tensor tensor, fb_buffer *out) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    fb_put_comma(out);
    fb_buffer_json_string(out, name, strlen(name));
    fb_buffer_char(out, ':');
    fb_buffer_char(out, '{');
    fb_put_text(out, "dtype", fb_dtype_name((fb_dtype)row->dtype));
    fb_put_name(out, "shape");
    fb_value_write(graph, row->shape, out);
    fb_buffer_char(out, '}');
}

static fb_status put_made(planning *p, const char *name, fb_tensor tensor) {
    fb_pieces pieces = {0};
    bool is_computed = false;
    fb_status status = fb_recipe_invert(p->graph, tensor, tensor, &pieces, &is_computed, p->error);
    if (!status && is_computed)
        status = fb_fail(p->error, FB_INVALID, "computed", NULL, "%s is moved in a way that copies cannot follow", name);
    for (size_t i = 0; i < pieces.count && !status; i++) {
        put_piece(p, name, &pieces.items[i]);
        status = p->error->status;
    }
    fb_pieces_free(&pieces);
    return status;
}

fb_status fb_layout_plan_write(fb_graph *result, fb_buffer *out, fb_error *error) {
    fb_error ignored = {0};
    fb_buffer copies = {0}, fills = {0}, path = {0};
    planning p = {
        .graph = result, .copies = &copies, .fills = &fills, .seen = json_object(), .error = error ? error : &ignored};
    bool *is_owned = calloc(fb_tensor_limit(result) + 1, sizeof *is_owned);
    size_t limit = fb_tensor_limit(result);
    fb_status status = is_owned && p.seen ? FB_OK : fb_fail_memory(p.error);
    fb_slot slot;
    fb_buffer_string(&copies, "[");
    fb_buffer_string(&fills, "[");
    fb_buffer_string(out, "{\"made\":{");
    for (fb_slot_cursor cursor = {0}; !status && fb_slot_next(result, &cursor, &slot);) {
        is_owned[slot.tensor.id] = true;
        if (!fb_tensor_at(result, slot.tensor)->recipe.id) continue;
        path.size = 0;
        fb_slot_path(result, &slot, &path);
        const char *name = fb_buffer_text(&path);
        status = name ? put_made(&p, name, slot.tensor) : fb_fail_memory(p.error);
        if (!status) put_tensor(result, name, slot.tensor, out);
    }
    fb_buffer_string(out, "},\"sources\":{");
    for (fb_tensor t = fb_first_tensor(result); t.id && !status; t = fb_tensor_at(result, t)->next) {
        if (t.id < limit && !is_owned[t.id] && !fb_tensor_at(result, t)->recipe.id)
            put_tensor(result, fb_tensor_name(result, t), t, out);
    }
    fb_buffer_string(out, "},\"copies\":");
    fb_buffer_append(out, copies.data, copies.size);
    fb_buffer_string(out, "],\"fills\":");
    fb_buffer_append(out, fills.data, fills.size);
    fb_buffer_string(out, "]}");
    if (!status && (out->failed || copies.failed || fills.failed || fb_graph_out_of_memory(result)))
        status = fb_fail_memory(p.error);
    free(is_owned);
    fb_buffer_free(&copies);
    fb_buffer_free(&fills);
    fb_buffer_free(&path);
    json_decref(p.seen);
    return status;
}
