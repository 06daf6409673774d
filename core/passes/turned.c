/* A value is followed through its readers. It lies as before, or so apart from the strides of dimensions of one element, which
 * nothing but a question about strides sees; or otherwise, in whatever order. What is not listed here is taken to notice. */
#include "core/passes/turned.h"

#include <stdlib.h>

#include "core/ops/shape.h"
#include "core/ops/strides.h"

typedef enum lie {
    AS_BEFORE,
    AS_A_LINE, /* the same, apart from strides of dimensions of one element */
    OTHERWISE,
    LIES,
} lie;

struct fb_turned {
    const fb_graph *graph;
    const fb_alias *alias;
    fb_notice *notices; /* by node, LIES of each: the first who would notice when it lies so */
};

#define LAYOUT(detail) ((fb_obstacle){"needs-contiguous", detail})

/* ---- what operators do --------------------------------------------------------------------------------------------------- */

typedef enum manner {
    UNKNOWN,     /* may do anything */
    IMAGES,      /* gives images that lie row by row or in channels_last */
    ROWS,        /* gives rows, whatever it is given */
    ELEMENTS,    /* element by element: its result lies as what it is given */
    IMAGE_WISE,  /* gives images as it is given them, as a rule; what is no image it gives in any order */
    FREE,        /* gives the same numbers, in any order */
    VIEWS,       /* shows the same memory with any strides */
    FIXED_VIEWS, /* shows it, or fails where that cannot be done */
    MAYBE_VIEWS, /* shows it where that can be done, and copies otherwise */
} manner;

static manner manner_of(const fb_op_facts *facts, fb_op op) {
    switch (op) {
    case FB_OP_CONV2D:
    case FB_OP_CONV_TRANSPOSE2D:
    case FB_OP_CONVOLUTION:
    case FB_OP_MAX_POOL2D:
    case FB_OP_AVG_POOL2D:
    case FB_OP_ADAPTIVE_AVG_POOL2D: return IMAGES;
    case FB_OP_LINEAR:
    case FB_OP_ADDMM:
    case FB_OP_MM:
    case FB_OP_SUM:
    case FB_OP_MEAN:
    case FB_OP_PROD:
    case FB_OP_AMAX:
    case FB_OP_AMIN:
    case FB_OP_ARGMAX:
    case FB_OP_ARGMIN: return ROWS;
    case FB_OP_BATCH_NORM:
    case FB_OP_BATCH_NORM1D:
    case FB_OP_BATCH_NORM2D:
    case FB_OP_PRELU:
    case FB_OP_IDENTITY:
    case FB_OP_DROPOUT:
    case FB_OP_FEATURE_DROPOUT:
    case FB_OP_DETACH:
    case FB_OP_ALIAS:
    case FB_OP_CLONE:
    case FB_OP_TO:
    case FB_OP_CAST_FLOAT:
    case FB_OP_CAST_DOUBLE:
    case FB_OP_CAST_HALF:
    case FB_OP_CAST_BFLOAT16:
    case FB_OP_ZEROS_LIKE:
    case FB_OP_ONES_LIKE:
    case FB_OP_FULL_LIKE:
    case FB_OP_MASKED_FILL:
    case FB_OP_COPY:
    case FB_OP_FILL:
    case FB_OP_ZERO: return ELEMENTS;
    case FB_OP_BATCH_NORM_INFERENCE:
    case FB_OP_GROUP_NORM:
    case FB_OP_MAX_POOL_WITH_INDICES:
    case FB_OP_UPSAMPLE_NEAREST:
    case FB_OP_UPSAMPLE_NEAREST2D_TO:
    case FB_OP_UPSAMPLE_BILINEAR:
    case FB_OP_UPSAMPLE_LINEAR2D_TO:
    case FB_OP_INTERPOLATE:
    case FB_OP_PIXEL_SHUFFLE:
    case FB_OP_PIXEL_UNSHUFFLE:
    case FB_OP_PAD:
    case FB_OP_CONSTANT_PAD:
    case FB_OP_ZERO_PAD_LAYER:
    case FB_OP_CONSTANT_PAD_LAYER:
    case FB_OP_PAD_LAYER:
    case FB_OP_EDGE_PAD:
    case FB_OP_CAT: return IMAGE_WISE;
    case FB_OP_CONV1D:
    case FB_OP_CONV3D:
    case FB_OP_LAYER_NORM:
    case FB_OP_NATIVE_LAYER_NORM:
    case FB_OP_ADAPTIVE_AVG_POOL1D:
    case FB_OP_ADAPTIVE_AVG_POOL3D:
    case FB_OP_AVG_POOL1D:
    case FB_OP_AVG_POOL3D:
    case FB_OP_MAX_POOL1D:
    case FB_OP_MAX_POOL3D:
    case FB_OP_STACK:
    case FB_OP_INDEX:
    case FB_OP_SOFTMAX:
    case FB_OP_NATIVE_SOFTMAX:
    case FB_OP_LOG_SOFTMAX:
    case FB_OP_MATMUL:
    case FB_OP_BMM:
    case FB_OP_VAR:
    case FB_OP_STD: return FREE;
    case FB_OP_PERMUTE:
    case FB_OP_TRANSPOSE:
    case FB_OP_T:
    case FB_OP_UNSQUEEZE:
    case FB_OP_SQUEEZE:
    case FB_OP_EXPAND:
    case FB_OP_EXPAND_AS:
    case FB_OP_SELECT:
    case FB_OP_SLICE:
    case FB_OP_NARROW:
    case FB_OP_SPLIT:
    case FB_OP_SPLIT_WITH_SIZES:
    case FB_OP_CHUNK:
    case FB_OP_UNBIND:
    case FB_OP_GETITEM:
    case FB_OP_UNFLATTEN: return VIEWS;
    case FB_OP_VIEW:
    case FB_OP_UNSAFE_VIEW:
    case FB_OP_VIEW_AS: return FIXED_VIEWS;
    case FB_OP_RESHAPE:
    case FB_OP_FLATTEN:
    case FB_OP_RAVEL:
    case FB_OP_CONTIGUOUS: return MAYBE_VIEWS;
    default: return facts->flags & FB_FACT_ELEMENTWISE ? ELEMENTS : UNKNOWN;
    }
}

static manner manner_of_call(const fb_graph *g, fb_node n) {
    fb_op op = fb_node_op(g, n) & (fb_op)~FB_OP_IN_PLACE;
    return manner_of(fb_op_facts_of(op), op);
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
    switch (fb_node_op(g, n)) {
    case FB_OP_SPLIT:
    case FB_OP_SPLIT_WITH_SIZES:
    case FB_OP_CHUNK: return true;
    case FB_OP_GETITEM:
    case FB_OP_SLICE:
    case FB_OP_NARROW: return is_image(g, n);
    default: return fb_op_facts_of(fb_node_op(g, n))->flags & FB_FACT_TUPLE;
    }
}

bool fb_hands_image_on(const fb_graph *g, fb_node n) {
    manner how = manner_of_call(g, n);
    if (how == VIEWS || fb_op_facts_of(fb_node_op(g, n))->flags & FB_FACT_TUPLE) return gives_parts(g, n);
    return (how == IMAGES || how == IMAGE_WISE || how == ELEMENTS) && is_image(g, n) && !fb_image_is_line(g, n);
}

bool fb_lays_out_in_rows(const fb_graph *g, fb_node n) {
    return manner_of_call(g, n) == MAYBE_VIEWS;
}

/* No dimension that may have one element stands in it, or at most two dimensions, whose strides a view sets anew. */
static bool has_plain_strides(const fb_graph *g, fb_node n) {
    fb_value shape = shape_of(g, n);
    int rank = fb_shape_rank(g, shape);
    bool is_plain = rank >= 0;
    for (int i = 0; i < rank && rank > 2; i++) is_plain &= fb_shape_size(g, shape, i) > 1;
    return is_plain;
}

/* ---- one reader ---------------------------------------------------------------------------------------------------------- */

typedef enum format {
    FORMAT_KEPT,
    FORMAT_ROWS,
    FORMAT_OTHER,
} format;

static format format_of(const fb_graph *g, fb_node n) {
    fb_value given = fb_call_argument(g, n, "memory_format");
    if (!given.id) given = fb_node_kwarg(g, n, "memory_format");
    if (!given.id || fb_value_kind(g, given) == FB_NONE) return fb_op_is(g, n, FB_OP_CONTIGUOUS) ? FORMAT_ROWS : FORMAT_KEPT;
    const char *name = fb_value_kind(g, given) == FB_MEMORY_FORMAT ? fb_value_text(g, given) : "";
    if (strcmp(name, "preserve_format") == 0) return FORMAT_KEPT;
    return strcmp(name, "contiguous_format") == 0 ? FORMAT_ROWS : FORMAT_OTHER;
}

/* The call gives a Python value that does not depend on strides. */
static bool gives_no_tensor(const fb_graph *g, fb_node n) {
    unsigned flags = fb_op_facts_of(fb_node_op(g, n))->flags;
    bool is_number = fb_numberhood_of(g, n) == FB_A_NUMBER && !(flags & (FB_FACT_READS_LAYOUT | FB_FACT_EFFECT));
    return fb_reads_type_only(g, n) || (is_number && fb_node_op(g, n) != FB_OP_UNKNOWN);
}

static bool is_written_later(const fb_turned *t, fb_node n) {
    return fb_mutated_after(t->alias, n, fb_node_at(t->graph, n)->ordinal);
}

static bool is_first(const fb_graph *g, fb_node reader, fb_node input) {
    fb_value first = fb_first_argument(g, reader);
    return first.id && fb_value_node(g, first).id == input.id;
}

static fb_obstacle obstacle_to_show(const fb_turned *t, fb_node reader, manner how, fb_node input, lie from) {
    const fb_graph *g = t->graph;
    if (how == FIXED_VIEWS && fb_is_view_of_dtype(g, reader)) return LAYOUT("it shows the memory in another dtype");
    if (from != OTHERWISE || how == VIEWS) return FB_NO_OBSTACLE;
    if (how == FIXED_VIEWS && !fb_view_only_splits(g, input, reader))
        return LAYOUT("it is a view, which fails where its input does not lie row by row");
    if (how == MAYBE_VIEWS && is_written_later(t, reader))
        return (fb_obstacle){"mutated", "it would copy what it shows so far, and the memory is written later"};
    return FB_NO_OBSTACLE;
}

static fb_obstacle obstacle_of_write(const fb_graph *g, fb_node reader, const fb_effects *effects) {
    fb_op op = fb_node_op(g, reader) & (fb_op)~FB_OP_IN_PLACE;
    bool is_store = op == FB_OP_SETITEM && !effects->may_alias_all &&
                    fb_shape_rank(g, shape_of(g, fb_value_node(g, fb_first_argument(g, reader)))) >= 0;
    bool is_known = is_store || (manner_of_call(g, reader) == ELEMENTS && op != FB_OP_DETACH && op != FB_OP_TO);
    return is_known && !effects->may_alias_all
               ? FB_NO_OBSTACLE
               : (fb_obstacle){"mutates", "it may write into it in another way than element by element"};
}

/* Why `reader` would notice. */
static fb_obstacle obstacle_of(const fb_turned *t, fb_node reader, fb_node input, lie from) {
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
    if (effects.mutates_input) return obstacle_of_write(g, reader, &effects);
    manner how = manner_of_call(g, reader);
    if (how == UNKNOWN || effects.may_alias_all || effects.has_effect)
        return LAYOUT("it may depend on how its input lies in memory");
    if (format_of(g, reader) == FORMAT_OTHER && how != MAYBE_VIEWS) return LAYOUT("it asks for a memory format");
    return obstacle_to_show(t, reader, how, input, from);
}

static lie lie_of_result(const fb_graph *g, fb_node reader, manner how, lie from) {
    bool has_no_order = fb_shape_rank(g, shape_of(g, reader)) == 0 || fb_shape_rank(g, shape_of(g, reader)) == 1;
    if (how == ROWS || has_no_order) return AS_BEFORE;
    if (how == IMAGES) return fb_image_is_line(g, reader) ? AS_A_LINE : OTHERWISE;
    bool makes_rows = format_of(g, reader) == FORMAT_ROWS && (how == MAYBE_VIEWS || fb_op_is(g, reader, FB_OP_CLONE));
    if (makes_rows && from == OTHERWISE) return AS_BEFORE;
    return how == FREE || how == IMAGE_WISE ? OTHERWISE : from;
}

/* How its result lies then, and whatever else shows the memory that it writes. */
static lie lie_after(const fb_graph *g, fb_node reader, fb_node input, lie from) {
    bool is_written = fb_op_effects(g, reader).mutates_input;
    if (gives_no_tensor(g, reader)) return AS_BEFORE;
    if (is_written) return is_first(g, reader, input) ? from : AS_BEFORE;
    return lie_of_result(g, reader, manner_of_call(g, reader), from);
}

/* ---- all readers, last first --------------------------------------------------------------------------------------------- */

static fb_notice *notice_at(const fb_turned *t, fb_node n, lie how) {
    return &t->notices[(size_t)n.id * LIES + how];
}

static fb_notice first_to_notice(const fb_turned *t, fb_node n, lie how) {
    const fb_graph *g = t->graph;
    for (uint32_t e = fb_user_first(g, n); e; e = fb_user_next(g, e)) {
        fb_node reader = fb_edge_user(g, e);
        fb_obstacle why = obstacle_of(t, reader, n, how);
        if (why.code) return (fb_notice){reader, why};
        lie next = fb_node_at(g, reader)->opcode == FB_OUTPUT ? AS_BEFORE : lie_after(g, reader, n, how);
        if (notice_at(t, reader, next)->reader.id) return *notice_at(t, reader, next);
    }
    return (fb_notice){0};
}

fb_turned *fb_turned_new(const fb_graph *graph, const fb_alias *alias, fb_work *work) {
    fb_turned *t = malloc(sizeof *t);
    if (!t) return NULL;
    *t = (fb_turned){graph, alias, calloc(fb_node_limit(graph), LIES * sizeof *t->notices)};
    fb_node n = fb_last_node(graph, FB_MAIN_PROGRAM);
    for (; t->notices && n.id && fb_work_goes_on(work, 16); n = fb_node_at(graph, n)->previous) {
        *notice_at(t, n, AS_A_LINE) = first_to_notice(t, n, AS_A_LINE);
        *notice_at(t, n, OTHERWISE) = first_to_notice(t, n, OTHERWISE);
    }
    if (t->notices && !n.id) return t;
    fb_turned_free(t);
    return NULL;
}

void fb_turned_free(fb_turned *t) {
    if (!t) return;
    free(t->notices);
    free(t);
}

fb_notice fb_turned_notice(const fb_turned *t, fb_node convolution) {
    return *notice_at(t, convolution, fb_image_is_line(t->graph, convolution) ? AS_A_LINE : OTHERWISE);
}
