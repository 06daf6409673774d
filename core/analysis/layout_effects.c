/* A value is followed through its readers. Its layout is as before, or so apart from the strides of dimensions of one element,
 * which nothing but a question about strides sees; or another one, in any order. An operator of unknown layout is taken to
 * notice.
 */
#include "core/analysis/layout_effects.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/memory_layout.h"
#include "core/analysis/view.h"

typedef enum layout_effect {
    AS_BEFORE,
    AS_A_LINE, /* the same, apart from strides of dimensions of one element */
    OTHERWISE,
    LAYOUT_EFFECTS,
} layout_effect;

struct fb_layout_effects {
    const fb_graph *graph;
    const fb_alias *alias;
    int version;              /* of ChannelsLast */
    fb_dependent *dependents; /* by node, LAYOUT_EFFECTS of each: the first reader that would notice that layout */
};

#define LAYOUT(detail) ((fb_obstacle){"needs-contiguous", detail})

/* ---- layouts ------------------------------------------------------------------------------------------------------------- */

/* As version 1 of ChannelsLast took it. */
static fb_memory_layout layout_in_version_1(fb_op op) {
    static const uint8_t known[FB_OP_COUNT] = {
#define FB_OP_LAYOUT_1(id, layout) [FB_OP_##id] = FB_LAYOUT_##layout,
#include "core/operators/ops_layout_1.def"
#undef FB_OP_LAYOUT_1
    };
    op &= (fb_op)~FB_OP_IN_PLACE;
    if (op < FB_OP_COUNT && known[op]) return (fb_memory_layout)known[op];
    return fb_op_facts_of(op)->flags & FB_FACT_ELEMENTWISE ? FB_LAYOUT_AS_FIRST : FB_LAYOUT_UNKNOWN;
}

static fb_memory_layout layout_of(const fb_layout_effects *t, fb_node n) {
    fb_memory_layout layout = fb_layout_of(t->graph, n);
    bool is_known_as_it_is = t->version > 1 || layout == FB_LAYOUT_ROWS_OF_ROWS;
    return is_known_as_it_is ? layout : layout_in_version_1(fb_node_op(t->graph, n));
}

static bool follows_inputs(fb_memory_layout layout) {
    return layout == FB_LAYOUT_AS_FIRST || layout == FB_LAYOUT_AS_FIRST_WITH_GAPS || layout == FB_LAYOUT_AS_ALL;
}

/* A view of any strides. */
static bool is_view(fb_memory_layout layout) {
    return layout == FB_LAYOUT_VIEW || layout == FB_LAYOUT_ORDERED_VIEW || layout == FB_LAYOUT_TURNED_VIEW;
}

/* ---- shapes -------------------------------------------------------------------------------------------------------------- */

static fb_value shape_of(const fb_graph *g, fb_node n) {
    return fb_node_at(g, n)->shape;
}

static bool is_image(const fb_graph *g, fb_node n) {
    return fb_shape_rank(g, shape_of(g, n)) == 4;
}

bool fb_image_is_line(const fb_graph *g, fb_node n) {
    fb_value shape = shape_of(g, n);
    bool has_one_pixel = fb_shape_size(g, shape, 2) == 1 && fb_shape_size(g, shape, 3) == 1;
    return is_image(g, n) && (has_one_pixel || fb_shape_size(g, shape, 1) == 1);
}

/* Parts of an image along a dimension, or the tuple that such a call gives. */
static bool gives_parts(const fb_graph *g, fb_node n) {
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, n));
    bool is_part = facts->shape == FB_SHAPE_GETITEM || facts->shape == FB_SHAPE_SLICE || facts->shape == FB_SHAPE_NARROW;
    return is_part ? is_image(g, n) : facts->flags & (FB_FACT_TUPLE | FB_FACT_PARTS);
}

bool fb_hands_image_on(const fb_layout_effects *t, fb_node n) {
    const fb_graph *g = t->graph;
    fb_memory_layout layout = layout_of(t, n);
    if (is_view(layout) || fb_op_facts_of(fb_node_op(g, n))->flags & FB_FACT_TUPLE) return gives_parts(g, n);
    bool is_handed_on = follows_inputs(layout) || layout == FB_LAYOUT_IMAGE || layout == FB_LAYOUT_FREE_IMAGE;
    return is_handed_on && is_image(g, n) && !fb_image_is_line(g, n);
}

bool fb_lays_out_in_rows(const fb_layout_effects *t, fb_node n) {
    return layout_of(t, n) == FB_LAYOUT_MAYBE_VIEW;
}

/* No dimension that may have one element is in it, or at most two dimensions, whose strides a view sets anew. */
static bool has_plain_strides(const fb_graph *g, fb_node n) {
    fb_value shape = shape_of(g, n);
    int rank = fb_shape_rank(g, shape);
    bool is_plain = rank >= 0;
    for (int i = 0; i < rank && rank > 2; i++) is_plain &= fb_shape_size(g, shape, i) > 1;
    return is_plain;
}

/* ---- one reader ---------------------------------------------------------------------------------------------------------- */

/* contiguous() is row-major unless it says otherwise; others keep the format. */
static bool asks_for_format(const fb_graph *g, fb_node n) {
    return fb_memory_format_of(g, n) > FB_FORMAT_PRESERVE;
}

static bool asks_for_rows(const fb_graph *g, fb_node n) {
    fb_memory_format format = fb_memory_format_of(g, n);
    return format == FB_FORMAT_CONTIGUOUS || (format == FB_FORMAT_UNSAID && fb_op_is(g, n, FB_OP_CONTIGUOUS));
}

/* The call gives a Python value that does not depend on strides. */
static bool gives_no_tensor(const fb_graph *g, fb_node n) {
    unsigned flags = fb_op_facts_of(fb_node_op(g, n))->flags;
    bool is_number = fb_result_kind_of(g, n) == FB_A_NUMBER && !(flags & (FB_FACT_READS_LAYOUT | FB_FACT_EFFECT));
    return fb_reads_type_only(g, n) || (is_number && fb_node_op(g, n) != FB_OP_UNKNOWN);
}

static bool is_written_later(const fb_layout_effects *t, fb_node n) {
    return fb_mutated_after(t->alias, n, fb_node_at(t->graph, n)->ordinal);
}

static bool is_first(const fb_graph *g, fb_node reader, fb_node input) {
    fb_value first = fb_first_argument(g, reader);
    return first.id && fb_value_node(g, first).id == input.id;
}

static fb_obstacle obstacle_to_show(const fb_layout_effects *t, fb_node reader, fb_node input, layout_effect from) {
    const fb_graph *g = t->graph;
    fb_memory_layout layout = layout_of(t, reader);
    if (layout == FB_LAYOUT_FIXED_VIEW && fb_is_view_of_dtype(g, reader)) return LAYOUT("it shows the memory in another dtype");
    if (from != OTHERWISE) return FB_NO_OBSTACLE;
    if (layout == FB_LAYOUT_FIXED_VIEW && !fb_view_only_splits(g, input, reader))
        return LAYOUT("it is a view, which fails where its input does not lie row by row");
    if (layout == FB_LAYOUT_MAYBE_VIEW && is_written_later(t, reader))
        return (fb_obstacle){"mutated", "it would copy what it shows so far, and the memory is written later"};
    return FB_NO_OBSTACLE;
}

static fb_obstacle obstacle_of_write(const fb_layout_effects *t, fb_node reader, const fb_effects *effects) {
    const fb_graph *g = t->graph;
    fb_op op = fb_node_op(g, reader) & (fb_op)~FB_OP_IN_PLACE;
    bool is_store = op == FB_OP_SETITEM && !effects->may_alias_all &&
                    fb_shape_rank(g, shape_of(g, fb_value_node(g, fb_first_argument(g, reader)))) >= 0;
    bool is_known = is_store || (follows_inputs(layout_of(t, reader)) && op != FB_OP_DETACH);
    return is_known && !effects->may_alias_all
               ? FB_NO_OBSTACLE
               : (fb_obstacle){"mutates", "it may write into it in another way than element by element"};
}

/* Why `reader` would notice. */
static fb_obstacle obstacle_of(const fb_layout_effects *t, fb_node reader, fb_node input, layout_effect from) {
    const fb_graph *g = t->graph;
    if (fb_node_at(g, reader)->opcode == FB_OUTPUT) {
        bool is_seen = from == OTHERWISE || !has_plain_strides(g, input);
        return is_seen ? (fb_obstacle){"graph-output", "it is returned, and whoever called the graph may read its strides"}
                       : FB_NO_OBSTACLE;
    }
    if (gives_no_tensor(g, reader)) return FB_NO_OBSTACLE;
    fb_effects effects = fb_op_effects(g, reader);
    unsigned flags = fb_op_facts_of(fb_node_op(g, reader))->flags;
    if (effects.is_unknown || fb_runs_inside(g, reader)) return (fb_obstacle){"unknown-operator", "what it does is not known"};
    if (flags & FB_FACT_READS_LAYOUT) return LAYOUT("it reads how its input lies in memory");
    if (effects.is_random) return (fb_obstacle){"random", "it draws random numbers in the order of memory"};
    if (effects.mutates_input) return obstacle_of_write(t, reader, &effects);
    fb_memory_layout layout = layout_of(t, reader);
    if (layout == FB_LAYOUT_UNKNOWN || layout == FB_LAYOUT_ROWS_OF_ROWS || effects.may_alias_all || effects.has_effect)
        return LAYOUT("it may depend on how its input lies in memory");
    if (asks_for_format(g, reader) && layout != FB_LAYOUT_MAYBE_VIEW) return LAYOUT("it asks for a memory format");
    return obstacle_to_show(t, reader, input, from);
}

/* An image; or what another normalisation than one of images gives, which follows its input on some devices. */
static layout_effect effect_on_image(const fb_graph *g, fb_node reader, layout_effect from) {
    int rank = fb_shape_rank(g, shape_of(g, reader));
    bool is_norm = fb_op_facts_of(fb_node_op(g, reader))->shape == FB_SHAPE_SAME;
    if (is_norm && rank >= 0 && !is_image(g, reader)) return from;
    return fb_image_is_line(g, reader) ? AS_A_LINE : OTHERWISE;
}

static layout_effect effect_on_result(const fb_layout_effects *t, fb_node reader, layout_effect from) {
    const fb_graph *g = t->graph;
    fb_memory_layout layout = layout_of(t, reader);
    int rank = fb_shape_rank(g, shape_of(g, reader));
    bool may_copy = layout == FB_LAYOUT_MAYBE_VIEW || fb_op_is(g, reader, FB_OP_CLONE);
    bool copies = from == OTHERWISE && may_copy && asks_for_rows(g, reader);
    if (layout == FB_LAYOUT_ROWS || rank == 0 || rank == 1 || copies) return AS_BEFORE;
    if (layout == FB_LAYOUT_IMAGE) return effect_on_image(g, reader, from);
    return layout == FB_LAYOUT_FREE || layout == FB_LAYOUT_FREE_IMAGE ? OTHERWISE : from;
}

/* The layout of its result then, and of all that shows the memory that it writes. */
static layout_effect effect_after(const fb_layout_effects *t, fb_node reader, fb_node input, layout_effect from) {
    const fb_graph *g = t->graph;
    bool is_written = fb_op_effects(g, reader).mutates_input;
    if (gives_no_tensor(g, reader)) return AS_BEFORE;
    if (is_written) return is_first(g, reader, input) ? from : AS_BEFORE;
    return effect_on_result(t, reader, from);
}

/* ---- all readers, last first --------------------------------------------------------------------------------------------- */

static fb_dependent *dependent_at(const fb_layout_effects *t, fb_node n, layout_effect how) {
    return &t->dependents[(size_t)n.id * LAYOUT_EFFECTS + how];
}

static fb_dependent first_dependent(const fb_layout_effects *t, fb_node n, layout_effect how) {
    const fb_graph *g = t->graph;
    for (uint32_t e = fb_user_first(g, n); e; e = fb_user_next(g, e)) {
        fb_node reader = fb_edge_user(g, e);
        fb_obstacle why = obstacle_of(t, reader, n, how);
        if (why.code) return (fb_dependent){reader, why};
        layout_effect next = fb_node_at(g, reader)->opcode == FB_OUTPUT ? AS_BEFORE : effect_after(t, reader, n, how);
        if (dependent_at(t, reader, next)->reader.id) return *dependent_at(t, reader, next);
    }
    return (fb_dependent){0};
}

fb_layout_effects *fb_layout_effects_new(const fb_graph *graph, const fb_alias *alias, fb_work *work, int version) {
    fb_layout_effects *t = malloc(sizeof *t);
    if (!t) return NULL;
    *t = (fb_layout_effects){graph, alias, version, calloc(fb_node_limit(graph), LAYOUT_EFFECTS * sizeof *t->dependents)};
    fb_node n = fb_last_node(graph, FB_MAIN_PROGRAM);
    for (; t->dependents && n.id && fb_work_goes_on(work, 16); n = fb_node_at(graph, n)->previous) {
        *dependent_at(t, n, AS_A_LINE) = first_dependent(t, n, AS_A_LINE);
        *dependent_at(t, n, OTHERWISE) = first_dependent(t, n, OTHERWISE);
    }
    if (t->dependents && !n.id) return t;
    fb_layout_effects_free(t);
    return NULL;
}

void fb_layout_effects_free(fb_layout_effects *t) {
    if (!t) return;
    free(t->dependents);
    free(t);
}

fb_dependent fb_layout_dependent(const fb_layout_effects *t, fb_node convolution) {
    return *dependent_at(t, convolution, fb_image_is_line(t->graph, convolution) ? AS_A_LINE : OTHERWISE);
}
