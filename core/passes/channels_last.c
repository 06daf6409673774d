/* ChannelsLast: images that go into convolutions get the memory format channels_last.
 *
 *     x ── Conv ── …          x ── contiguous(memory_format=channels_last) ── Conv ── …
 *
 * One node in front of the first convolutions of a network, in both dialects. Convolutions, pools, norms and arithmetic give
 * images in the memory format of their inputs. So all that follows is in channels_last as well, and PyTorch on a CPU need not
 * rearrange images around each convolution. Weights stay as they are.
 *
 * Convolutions that hand each other images, also through pools, norms, arithmetic and concatenations, are decided on together.
 * Left alone: images of one channel or one pixel, where both orders are one, and images that are in channels_last already.
 *
 * The time that is saved is estimated by recorded sizes, from what PyTorch took on one thread. Max pools gain most, then
 * average pools, interpolations, convolutions by channel, and others with a window. But a convolution copies its weight at each
 * call, unless it has one pixel and no stride, or is by channel. In ResNets at batch 1 that costs more than is saved.
 *
 * Refused:
 *   - more-work: it would take longer, by that estimate
 *   - needs-contiguous: something behind may need rows: a view of an image of more than one pixel, as_strided, stride()
 *   - graph-output: an image is returned, and would have other strides
 *   - mutated: a reshape shows memory that is written later, and would copy it from now on
 *   - input-mutated, mode-switched: between two convolutions that would read one copy
 *   - random, mutates, unknown-operator: what comes behind may depend on the order, for all that is known
 *   - unknown-shape, unknown-dtype: of the image
 *
 * Exactness: rounds. A convolution may add in another order. Reversible.
 */
#include <stdlib.h>

#include "core/analysis/memory_format.h"
#include "core/analysis/rearrange.h"
#include "core/operators/spelling.h"
#include "core/pass/pass.h"

/* The time that PyTorch 2.13 saves on one thread of a CPU, in picoseconds; negative: time that it needs more. */
enum {
    CONVOLUTION = 150, /* with a window: for each element that it reads or gives */
    WEIGHT = -900,     /* for each that is copied */
    MAX_POOL = 2500,   /* for each element of each window */
    AVERAGE_POOL = 800,
    INTERPOLATION = 1000, /* for each element that it gives */
    CALL = -5000000,      /* of the node that is put in front */
    COPY = -600,          /* for each element of an image that is laid out anew */
    RESHAPE = -900,       /* for each element that is laid out in rows again */
    LEAST_CHANNELS = 8,   /* with fewer, pools and interpolations are slower */
};

/* The role of a node. Convolutions that hand each other images are a group, with all nodes between them. */
typedef struct role {
    uint32_t parent;   /* of the union; 0: it is of no group */
    bool begins;       /* a convolution that reads an image from outside its group */
    bool is_given;     /* an image that such a convolution reads: counted */
    bool is_reported;  /* the same: matched or refused; of a group: refused */
    double saved;      /* of a group, at its root: picoseconds */
    bool lies_already; /* … one of which is in channels_last */
    fb_obstacle why;   /* … why it must stay */
    fb_node nodes[2];  /* … those that are to blame */
} role;

typedef struct search {
    fb_matcher *m;
    const fb_graph *graph;
    role *roles; /* by node */
} search;

/* ---- what is saved ------------------------------------------------------------------------------------------------------- */

static int rank_of(const fb_graph *g, fb_node n) {
    return fb_shape_rank(g, fb_node_at(g, n)->shape);
}

/* All but the first, which may be the number of images. */
static bool are_sizes_known(const fb_graph *g, fb_node n) {
    bool are_known = true;
    for (int i = 1; i < rank_of(g, n); i++) are_known &= fb_shape_size(g, fb_node_at(g, n)->shape, i) >= 0;
    return are_known;
}

/* The elements of a shape of which all sizes but the first are known; that counts as one when it is not. */
static double elements_of(const fb_graph *g, fb_node n) {
    double count = 1;
    for (int i = 0; i < rank_of(g, n); i++) {
        int64_t size = fb_shape_size(g, fb_node_at(g, n)->shape, i);
        if (size >= 0) count *= (double)size;
    }
    return count;
}

static fb_shape_call shape_call_of(const fb_graph *g, fb_node n) {
    fb_op op = fb_node_op(g, n) & (fb_op)~FB_OP_IN_PLACE;
    return (fb_shape_call){.graph = g, .node = n, .op = op, .is_module = fb_node_at(g, n)->opcode == FB_CALL_MODULE};
}

/* The product of two ints of a call; 1 when they are not known. */
static double product_of(const fb_shape_call *call, const char *option) {
    int64_t sizes[2];
    return fb_option_ints(call, option, 1, 2, sizes) ? (double)sizes[0] * (double)sizes[1] : 1;
}

static double saved_by_convolution(const fb_shape_call *call, fb_node image) {
    fb_operand weight = fb_operand_named(call, "weight");
    if (weight.kind != FB_OPERAND_TENSOR || weight.type.rank != 4 || weight.type.sizes[0].size < 0) return 0;
    double count = 1, window = (double)weight.type.sizes[2].size * (double)weight.type.sizes[3].size;
    for (int i = 0; i < 4; i++) count *= (double)weight.type.sizes[i].size;
    bool is_by_channel = fb_dim_is(weight.type.sizes[1], 1), is_copied = window > 1 || product_of(call, "stride") > 1;
    double images = window > 1 ? elements_of(call->graph, image) + elements_of(call->graph, call->node) : 0;
    return CONVOLUTION * images + (is_copied && !is_by_channel ? WEIGHT * count : 0);
}

/* The time that a node saves; of a tuple, the reader of its first item counts. */
static double saved_by(const fb_graph *g, fb_node n) {
    fb_shape_call call = shape_call_of(g, fb_call_of_value(g, n));
    double count = elements_of(g, n);
    bool has_few = fb_shape_size(g, fb_node_at(g, n)->shape, 1) < LEAST_CHANNELS;
    if (rank_of(g, n) != 4) return 0;
    switch (call.op) {
    case FB_OP_CONV2D:
    case FB_OP_CONV_TRANSPOSE2D:
    case FB_OP_CONVOLUTION: return saved_by_convolution(&call, fb_call_argument_node(g, n, "input"));
    case FB_OP_MAX_POOL2D:
    case FB_OP_MAX_POOL_WITH_INDICES: return (has_few ? -MAX_POOL : MAX_POOL) * count * product_of(&call, "kernel_size");
    case FB_OP_AVG_POOL2D: return (has_few ? -AVERAGE_POOL : AVERAGE_POOL) * count * product_of(&call, "kernel_size");
    case FB_OP_INTERPOLATE:
    case FB_OP_UPSAMPLE_NEAREST:
    case FB_OP_UPSAMPLE_NEAREST2D_TO:
    case FB_OP_UPSAMPLE_BILINEAR:
    case FB_OP_UPSAMPLE_LINEAR2D_TO: return (has_few ? -INTERPOLATION : INTERPOLATION) * count;
    default: return 0;
    }
}

/* ---- groups -------------------------------------------------------------------------------------------------------------- */

static role *group_of(const search *s, fb_node n) {
    uint32_t id = n.id;
    while (s->roles[id].parent != id) {
        s->roles[id].parent = s->roles[s->roles[id].parent].parent;
        id = s->roles[id].parent;
    }
    return &s->roles[id];
}

static void unite(const search *s, fb_node one, fb_node other) {
    role *into = group_of(s, one), *from = group_of(s, other);
    if (into == from) return;
    from->parent = into->parent;
    into->saved += from->saved;
    into->lies_already |= from->lies_already;
    if (into->why.code) return;
    into->why = from->why;
    memcpy(into->nodes, from->nodes, sizeof into->nodes);
}

static void blame(role *group, fb_obstacle why, fb_node one, fb_node other) {
    if (group->why.code) return;
    group->why = why;
    group->nodes[0] = one;
    group->nodes[1] = other;
}

static bool is_convolution(const fb_graph *g, fb_node n) {
    fb_op op = fb_node_op(g, n);
    return op == FB_OP_CONV2D || op == FB_OP_CONV_TRANSPOSE2D || op == FB_OP_CONVOLUTION;
}

static bool lies_in_channels_last(const fb_graph *g, fb_node image) {
    fb_value format = fb_node_kwarg(g, image, "memory_format");
    if (format.id && fb_value_kind(g, format) == FB_MEMORY_FORMAT)
        return strcmp(fb_value_text(g, format), "channels_last") == 0;
    fb_rearrange turned;
    if (!fb_rearrange_at(g, image, &turned) || turned.form != FB_REARRANGE_PERMUTE || turned.rank != 4) return false;
    return turned.dims[0] == 0 && turned.dims[1] == 3 && turned.dims[2] == 1 && turned.dims[3] == 2;
}

/* A convolution that reads an image from outside. */
static void begin(search *s, const fb_layout_effects *layouts, fb_node n, fb_node image) {
    const fb_graph *g = s->graph;
    role *group = group_of(s, n);
    fb_dtype dtype = (fb_dtype)fb_node_at(g, image)->dtype;
    fb_dependent dependent = fb_layout_dependent(layouts, n);
    s->roles[n.id].begins = true;
    if (!s->roles[image.id].is_given) group->saved += CALL + COPY * elements_of(g, image);
    s->roles[image.id].is_given = true;
    group->lies_already |= lies_in_channels_last(g, image);
    if (!fb_dtype_is_floating(dtype))
        blame(group, (fb_obstacle){"unknown-dtype", "the image has no floating dtype, or none is recorded" FB_RECORD_DTYPE}, n,
              image);
    if (dependent.reader.id) blame(group, dependent.why, n, dependent.reader);
}

/* A reshape behind a group, which copies then. */
static void count_reshape(const search *s, fb_node n) {
    fb_node image = fb_value_node(s->graph, fb_first_argument(s->graph, n));
    bool is_behind = image.id && s->roles[image.id].parent && rank_of(s->graph, image) == 4;
    if (is_behind) group_of(s, image)->saved += RESHAPE * elements_of(s->graph, image);
}

/* Joins the groups of the images that it reads. */
static void look_at(search *s, const fb_layout_effects *layouts, fb_node n) {
    const fb_graph *g = s->graph;
    if (fb_lays_out_in_rows(layouts, n)) count_reshape(s, n);
    fb_node image = is_convolution(g, n) ? fb_call_argument_node(g, n, "input") : (fb_node){0};
    bool is_candidate = image.id && rank_of(g, n) == 4 && rank_of(g, image) == 4 && !fb_image_is_line(g, image);
    if (!is_candidate && !fb_hands_image_on(layouts, n)) return;
    s->roles[n.id].parent = is_candidate ? n.id : 0;
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        if (!s->roles[input.id].parent || (is_candidate && input.id != image.id)) continue;
        if (!s->roles[n.id].parent) s->roles[n.id].parent = n.id;
        unite(s, input, n);
    }
    if (s->roles[n.id].parent) group_of(s, n)->saved += saved_by(g, n);
    if (!is_candidate) return;
    if (!are_sizes_known(g, n) || !are_sizes_known(g, image))
        blame(group_of(s, n), (fb_obstacle){"unknown-shape", "not all sizes but the first are recorded as numbers"}, n,
              (fb_node){0});
    if (!s->roles[image.id].parent) begin(s, layouts, n, image);
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* Reports a group that must stay, once; true when it may be changed. */
static bool may_change(search *s, fb_node n) {
    role *group = group_of(s, n);
    if (group->lies_already) return false;
    if (group->saved <= 0)
        blame(group, (fb_obstacle){"more-work", "by the sizes of images and weights, it would take longer"}, n, (fb_node){0});
    if (group->why.code && !group->is_reported) fb_refuse_for(s->m, group->why, group->nodes, group->nodes[1].id ? 2 : 1);
    group->is_reported = true;
    return !group->why.code;
}

/* Why the convolutions at these ordinals cannot read one copy of the image. */
static fb_obstacle obstacle_between(const fb_alias *alias, fb_node image, uint32_t first, uint32_t last) {
    if (fb_mutated_between(alias, image, first, last))
        return (fb_obstacle){"input-mutated", "the image is written between the convolutions that read it"};
    if (fb_mode_switched_between(alias, first, last))
        return (fb_obstacle){"mode-switched", "autograd or another mode is switched between the convolutions that read it"};
    return FB_NO_OBSTACLE;
}

/* The convolutions that would read a copy of the image, which is put in front of the first. */
static void match_image(search *s, fb_node image) {
    const fb_graph *g = s->graph;
    fb_buffer found = {0};
    uint32_t first = UINT32_MAX, last = 0;
    for (uint32_t e = fb_user_first(g, image); e && fb_matcher_goes_on(s->m); e = fb_user_next(g, e)) {
        fb_node reader = fb_edge_user(g, e);
        if (!s->roles[reader.id].begins || fb_call_argument_node(g, reader, "input").id != image.id || !may_change(s, reader))
            continue;
        uint32_t ordinal = fb_node_at(g, reader)->ordinal;
        fb_buffer_append(&found, &reader, sizeof reader);
        if (ordinal < first) first = ordinal;
        if (ordinal > last) last = ordinal;
    }
    const fb_node *nodes = (const fb_node *)(const void *)found.data;
    size_t count = found.size / sizeof *nodes;
    s->m->failed |= found.failed;
    if (!s->m->failed && count) {
        fb_obstacle why = obstacle_between(fb_matcher_alias(s->m), image, first, last);
        if (why.code) fb_refuse_for(s->m, why, nodes, count);
        else fb_match_found(s->m, nodes, count);
    }
    fb_buffer_free(&found);
}

static bool has_convolution(const fb_graph *g) {
    fb_node n = fb_first_node(g, FB_MAIN_PROGRAM);
    while (n.id && !is_convolution(g, n)) n = fb_next_node(g, n);
    return n.id;
}

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    if (!has_convolution(g)) return; /* as most have none, nothing is asked about their memory */
    const fb_alias *alias = fb_matcher_alias(m);
    fb_layout_effects *layouts = alias ? fb_layout_effects_new(g, alias, m->work, m->report->pass->version) : NULL;
    search s = {m, g, calloc(fb_node_limit(g), sizeof *s.roles)};
    m->failed |= !layouts || !s.roles;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n))
        look_at(&s, layouts, n);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        fb_node image = is_convolution(g, n) ? fb_call_argument_node(g, n, "input") : (fb_node){0};
        if (image.id && (rank_of(g, image) < 0 || rank_of(g, n) < 0))
            fb_refuse_node(m, "unknown-shape", n,
                           "the shape of what it reads, or of what it gives, is not recorded" FB_RECORD_SHAPE);
        if (!s.roles[n.id].begins || s.roles[image.id].is_reported) continue;
        s.roles[image.id].is_reported = true;
        match_image(&s, image);
    }
    fb_layout_effects_free(layouts);
    free(s.roles);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static fb_node first_of(const fb_graph *g, const fb_match *match) {
    fb_node first = match->nodes[0];
    for (size_t i = 1; i < match->count; i++) {
        if (fb_node_at(g, match->nodes[i])->ordinal < fb_node_at(g, first)->ordinal) first = match->nodes[i];
    }
    return first;
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node first = first_of(g, match);
    bool is_aten = fb_is_aten(g, first);
    fb_value image = fb_call_argument(g, first, "input");
    fb_value format = FB_TEXT(g, FB_MEMORY_FORMAT, "channels_last");
    fb_node copy = fb_insert_before(rw, first, is_aten ? FB_CALL_FUNCTION : FB_CALL_METHOD,
                                    is_aten ? FB_TARGET_CONTIGUOUS_ATEN : FB_TARGET_CONTIGUOUS, FB_ARGS(g, image),
                                    fb_map_with(g, FB_VALUE_EMPTY_MAP, "memory_format", format));
    fb_mark(rw, copy);
    for (size_t i = 0; i < match->count; i++) fb_set_argument(rw, match->nodes[i], "input", fb_make_node(g, copy));
}

/* Version 1 knew fewer operators, and refused what others read. */
#define CHANNELS_LAST(number, before)                                                                                          \
    {                                                                                                                          \
        .name = "ChannelsLast", .version = number, .earlier = before,                                                          \
        .summary = "Lays images that go into convolutions out in `channels_last`, where that saves time, with one node at "    \
                   "the input.",                                                                                               \
        .parameters = FB_NO_PARAMETERS, .exactness = FB_ROUNDS, .gain = FB_GAIN_FASTER, .reversible = true,                    \
        .preserves_computation = true, .match_graph = match_graph, .edit = edit,                                               \
    }

static const fb_pass version_1 = CHANNELS_LAST(1, NULL);
const fb_pass fb_channels_last = CHANNELS_LAST(2, &version_1);
