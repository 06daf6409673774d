#include "core/archive/rewrite.h"

#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/operators/op.h"
#include "core/operators/spelling.h"

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

static bool as_int(const json_t *size, int64_t *value) {
    const json_t *known = json_object_get(size, "as_int");
    if (known) *value = json_integer_value(known);
    return known != NULL;
}

/* The size in the program's example. */
static bool hint_of(const json_t *size, int64_t *value) {
    return as_int(size, value) || as_int(json_object_get(json_object_get(size, "as_expr"), "hint"), value);
}

static json_t *make_int(int64_t value) {
    return json_pack("{s:I}", "as_int", (json_int_t)value);
}

static void put_size(const json_t *size, fb_buffer *out) {
    int64_t value;
    const char *text = json_string_value(json_object_get(json_object_get(size, "as_expr"), "expr_str"));
    if (as_int(size, &value)) fb_buffer_printf(out, "Integer(%lld)", (long long)value);
    else fb_buffer_string(out, text ? text : "");
}

static json_t *size_product(const json_t *a, const json_t *b) {
    int64_t x, y, product;
    bool a_is_known = as_int(a, &x), b_is_known = as_int(b, &y);
    if ((a_is_known && x == 1) || (b_is_known && y == 0)) return json_deep_copy(b);
    if ((b_is_known && y == 1) || (a_is_known && x == 0)) return json_deep_copy(a);
    if (a_is_known && b_is_known) return make_int(x * y);
    fb_buffer text = {0};
    fb_buffer_string(&text, "Mul(");
    put_size(a, &text);
    fb_buffer_string(&text, ", ");
    put_size(b, &text);
    fb_buffer_char(&text, ')');
    json_t *hint =
        hint_of(a, &x) && hint_of(b, &y) && !__builtin_mul_overflow(x, y, &product) ? make_int(product) : json_null();
    json_t *made = fb_buffer_text(&text) ? json_pack("{s:{s:s,s:O}}", "as_expr", "expr_str", text.data, "hint", hint) : NULL;
    json_decref(hint);
    fb_buffer_free(&text);
    return made;
}

json_t *pt_row_major(const json_t *sizes) {
    json_t *strides = json_array(), *step = make_int(1), *next;
    for (size_t i = json_array_size(sizes); strides && step && i-- > 0; step = next) {
        const json_t *size = json_array_get(sizes, i);
        int64_t value;
        bool ok = json_array_insert(strides, 0, step) == 0;
        next = !ok ? NULL : as_int(size, &value) && value == 0 ? json_incref(step) : size_product(size, step);
        json_decref(step);
    }
    if (step) {
        json_decref(step);
        return strides;
    }
    json_decref(strides);
    return NULL;
}

/* ---- arguments ---------------------------------------------------------------------------------------------------------- */

static const json_t *argument(const json_t *node, size_t place, const char *name) {
    const json_t *given = json_array_get(json_object_get(node, "args"), place);
    return given ? given : json_object_get(json_object_get(node, "kwargs"), name);
}

/* A dimension of `rank`; false where it is not a number within. */
static bool dimension(const json_t *value, int64_t rank, int64_t fallback, size_t *out) {
    int64_t at = json_is_integer(value) ? json_integer_value(value) : fallback;
    if (value && !json_is_integer(value)) return false;
    if (at < 0) at += rank;
    *out = (size_t)at;
    return at >= 0 && at < rank;
}

/* ---- views -------------------------------------------------------------------------------------------------------------- */

typedef struct view {
    const json_t *node, *from, *strides, *sizes; /* sizes of `from`; its strides; sizes of the result */
    size_t rank;
    bool *is_known;
} view;

static json_t *unknown(const view *v) {
    *v->is_known = false;
    return NULL;
}

static json_t *same(const view *v) {
    return json_copy((json_t *)(uintptr_t)v->strides);
}

static json_t *slice(const view *v) {
    const json_t *step = argument(v->node, 4, "step");
    size_t at;
    if (!dimension(argument(v->node, 1, "dim"), (int64_t)v->rank, 0, &at) || (step && !json_is_integer(step)))
        return unknown(v);
    json_t *made = same(v), *size = make_int(step ? json_integer_value(step) : 1);
    json_t *stride = made && size ? size_product(json_array_get(v->strides, at), size) : NULL;
    json_decref(size);
    if (stride && json_array_set_new(made, at, stride) == 0) return made;
    json_decref(made);
    return NULL;
}

static json_t *without(const view *v) {
    size_t at;
    if (!dimension(argument(v->node, 1, "dim"), (int64_t)v->rank, 0, &at)) return unknown(v);
    json_t *made = same(v);
    if (made) json_array_remove(made, at);
    return made;
}

static json_t *exchange(const view *v, size_t a, size_t b) {
    json_t *made = same(v);
    if (made) json_array_set(made, a, json_array_get(v->strides, b)), json_array_set(made, b, json_array_get(v->strides, a));
    return made;
}

static json_t *turn(const view *v) {
    return v->rank == 2 ? exchange(v, 0, 1) : same(v);
}

static json_t *transpose(const view *v) {
    size_t a, b;
    if (!dimension(argument(v->node, 1, "dim0"), (int64_t)v->rank, 0, &a) ||
        !dimension(argument(v->node, 2, "dim1"), (int64_t)v->rank, 0, &b))
        return unknown(v);
    return exchange(v, a, b);
}

static json_t *permute(const view *v) {
    const json_t *order = argument(v->node, 1, "dims");
    json_t *made = json_array();
    for (size_t i = 0; made && i < v->rank; i++) {
        size_t at;
        if (dimension(json_array_get(order, i), (int64_t)v->rank, (int64_t)v->rank, &at))
            json_array_append(made, json_array_get(v->strides, at));
    }
    if (json_array_size(made) == v->rank) return made;
    json_decref(made);
    return unknown(v);
}

static json_t *unsqueeze(const view *v) {
    size_t at;
    if (!dimension(argument(v->node, 1, "dim"), (int64_t)v->rank + 1, 0, &at)) return unknown(v);
    json_t *made = same(v),
           *stride = at == v->rank ? make_int(1) : size_product(json_array_get(v->from, at), json_array_get(v->strides, at));
    if (made && stride && json_array_insert_new(made, at, stride) == 0) return made;
    json_decref(made);
    return NULL;
}

/* Drops sizes of 1, of which the result tells how many. */
static json_t *squeeze(const view *v) {
    const json_t *dims = argument(v->node, 1, "dim");
    json_t *made = json_array();
    for (size_t i = 0; made && i < v->rank; i++) {
        int64_t size;
        size_t at;
        bool is_named = !dims;
        if (json_is_integer(dims)) is_named = dimension(dims, (int64_t)v->rank, 0, &at) && at == i;
        for (size_t k = 0; k < json_array_size(dims); k++)
            is_named = is_named || (dimension(json_array_get(dims, k), (int64_t)v->rank, 0, &at) && at == i);
        bool is_one = as_int(json_array_get(v->from, i), &size) && size == 1;
        if (!is_named || !is_one) json_array_append(made, json_array_get(v->strides, i));
    }
    if (json_array_size(made) == json_array_size(v->sizes)) return made;
    json_decref(made);
    return unknown(v);
}

static json_t *expand(const view *v) {
    size_t rank = json_array_size(v->sizes), more = rank - v->rank;
    json_t *made = json_array(), *stride = NULL, *one = make_int(1);
    if (rank < v->rank) more = 0;
    for (size_t i = rank; made && one && i-- > 0;) {
        const json_t *from = i >= more ? json_array_get(v->from, i - more) : one, *size = json_array_get(v->sizes, i);
        int64_t value;
        bool is_expanded = as_int(from, &value) && value == 1 && !json_equal(from, size);
        if (is_expanded) stride = make_int(0);
        else if (i >= more) stride = json_deep_copy(json_array_get(v->strides, i - more));
        else stride = size_product(json_array_get(v->sizes, i + 1), json_array_get(made, 0));
        if (!stride || json_array_insert_new(made, 0, stride) != 0) break;
    }
    json_decref(one);
    if (made && json_array_size(made) == rank) return made;
    json_decref(made);
    return NULL;
}

/* As at::detail::computeStride does it, comparing by the sizes of the example. NULL where such a view does not exist. */
static json_t *compute_view(const view *v, bool *exists) {
    size_t rank = json_array_size(v->sizes), next = rank;
    json_t *made = json_array(), *step = NULL;
    int64_t base = 1, numel = 1, view_numel = 1, size, before, stride;
    *exists = true;
    for (size_t i = v->rank; made && i-- > 0;) {
        if (!step) step = json_deep_copy(json_array_get(v->strides, i));
        if (!step || !hint_of(json_array_get(v->from, i), &size) || !hint_of(step, &base)) break;
        numel *= size;
        bool goes_on = false;
        if (i) {
            if (!hint_of(json_array_get(v->from, i - 1), &before) || !hint_of(json_array_get(v->strides, i - 1), &stride))
                break;
            goes_on = before == 1 || stride == numel * base;
        }
        if (goes_on) continue;
        while (next && hint_of(json_array_get(v->sizes, next - 1), &size) && (view_numel < numel || size == 1)) {
            json_t *wider = size_product(json_array_get(v->sizes, --next), step);
            if (!wider || json_array_insert_new(made, 0, step) != 0) break;
            step = wider;
            view_numel *= size;
        }
        if (view_numel != numel) break;
        json_decref(step);
        step = NULL;
        numel = view_numel = 1;
    }
    json_decref(step);
    if (made && next == 0 && json_array_size(made) == rank) return made;
    json_decref(made);
    *exists = false;
    return NULL;
}

static json_t *reshape(const view *v) {
    bool exists;
    json_t *made = compute_view(v, &exists);
    return exists ? made : pt_row_major(v->sizes);
}

static json_t *rows(const view *v) {
    return pt_row_major(v->sizes);
}

/* ---- element by element ------------------------------------------------------------------------------------------------- */

/* As large as the result, in the program's example. */
static bool is_whole(const json_t *tensor, const json_t *sizes) {
    const json_t *own = json_object_get(tensor, "sizes");
    int64_t a, b;
    for (size_t i = 0; i < json_array_size(sizes); i++) {
        const json_t *size = json_array_get(own, i), *wanted = json_array_get(sizes, i);
        bool are_known = hint_of(size, &a) && hint_of(wanted, &b);
        if (are_known ? a != b : !json_equal(size, wanted)) return false;
    }
    return json_array_size(own) == json_array_size(sizes);
}

/* The order of axes of the first tensor that is as large as the result, without gaps: as TensorIterator lays results out. */
static json_t *like_first(const json_t *tensors, const json_t *sizes, bool second_leads) {
    size_t rank = json_array_size(sizes), i, order[PT_MOST_DIMENSIONS];
    int64_t strides[PT_MOST_DIMENSIONS], size;
    const json_t *like = NULL;
    json_t *tensor;
    json_array_foreach(tensors, i, tensor) {
        bool is_asked = is_whole(tensor, sizes) && (!like || (second_leads && i == 1));
        if (is_asked) like = json_object_get(tensor, "strides");
    }
    if (!like || rank > PT_MOST_DIMENSIONS || json_array_size(like) != rank) return pt_row_major(sizes);
    for (i = 0; i < rank; i++) {
        if (!hint_of(json_array_get(like, i), &strides[i])) return pt_row_major(sizes);
        size_t at = i;
        bool is_one = hint_of(json_array_get(sizes, i), &size) && size == 1;
        for (; at && !is_one && strides[order[at - 1]] < strides[i] && strides[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    json_t *made = json_array(), *step = make_int(1), *next;
    for (i = 0; made && i < rank; i++) json_array_append_new(made, json_null());
    for (i = rank; made && step && i-- > 0; step = next) {
        json_array_set(made, order[i], step);
        next = size_product(json_array_get(sizes, order[i]), step);
        json_decref(step);
    }
    json_decref(step);
    return made;
}

/* Of a new tensor, by its operator's row; 2.0 ** x gives rows (fb_layout_of). */
static json_t *of_new(const view *v, const char *target, const json_t *tensors) {
    const fb_op_facts *facts = fb_op_facts_of(fb_op_of_function(target, strlen(target)));
    bool is_asked_for = json_object_get(json_object_get(v->node, "kwargs"), "memory_format"),
         is_power_of_number = strcmp(target, FB_ATEN "pow.Scalar") == 0;
    bool follows = facts->layout == FB_LAYOUT_AS_ALL ||
                   (facts->layout == FB_LAYOUT_AS_FIRST && is_whole(json_array_get(tensors, 0), v->sizes));
    if (facts->flags & (FB_FACT_ALIASES | FB_FACT_COMPLEX_ROWS) || is_asked_for) return unknown(v);
    if (is_power_of_number || (facts->layout == FB_LAYOUT_ROWS && facts->flags & FB_FACT_ELEMENTWISE))
        return pt_row_major(v->sizes);
    return follows ? like_first(tensors, v->sizes, facts->flags & FB_FACT_SECOND_LEADS) : unknown(v);
}

/* ---- all ---------------------------------------------------------------------------------------------------------------- */

json_t *pt_strides_of(const char *target, const json_t *node, const json_t *tensors, const json_t *sizes, bool *is_known) {
    static const struct {
        const char *name;
        json_t *(*strides)(const view *);
    } views[] = {
        {"slice.Tensor", slice},
        {"narrow.default", same},
        {"alias.default", same},
        {"detach.default", same},
        {"select.int", without},
        {"unbind.int", without},
        {"t.default", turn},
        {"transpose.int", transpose},
        {"permute.default", permute},
        {"unsqueeze.default", unsqueeze},
        {"squeeze.default", squeeze},
        {"squeeze.dim", squeeze},
        {"squeeze.dims", squeeze},
        {"expand.default", expand},
        {"view.default", reshape},
        {"reshape.default", reshape},
        {"_unsafe_view.default", reshape},
        {"flatten.using_ints", reshape},
        {"unflatten.int", reshape},
        {"split.Tensor", same},
        {"split_with_sizes.default", same},
        {"chunk.default", same},
        {"contiguous.default", rows},
    };
    const json_t *first = json_array_get(tensors, 0);
    view v = {.node = node,
              .from = json_object_get(first, "sizes"),
              .strides = json_object_get(first, "strides"),
              .sizes = sizes,
              .rank = json_array_size(json_object_get(first, "sizes")),
              .is_known = is_known};
    *is_known = first && fb_is_spelled(target, FB_ATEN);
    if (!*is_known) return NULL;
    const char *name = target + strlen(FB_ATEN);
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        if (strcmp(views[i].name, name) == 0) return views[i].strides(&v);
    }
    bool is_itself = strcmp(name, "dropout.default") == 0 && json_is_false(argument(node, 2, "train"));
    if (is_itself || (strchr(name, '.') && strchr(name, '.')[-1] == '_')) return same(&v);
    return of_new(&v, target, tensors);
}
