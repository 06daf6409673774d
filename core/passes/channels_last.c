/* ChannelsLast: images that go into convolutions, and their weights, get the memory format channels_last.
 *
 *     x ── Conv ── …          x ── contiguous(memory_format=channels_last) ── Conv ── …
 *
 * One node in front of the first convolutions of a network, in both dialects. Convolutions, pools, norms and arithmetic give
 * images in the memory format of their inputs. So all that follows is in channels_last as well, and PyTorch on a CPU need not
 * rearrange images around each convolution. The weights of these convolutions get `"memory_format": "channels_last"`, by which
 * all who load them lay them out; otherwise PyTorch copies them at each call. Their numbers, bytes and digests stay.
 *
 * Convolutions that hand each other images, also through pools, norms, arithmetic and concatenations, are decided on together.
 * Left alone: images of one channel or one pixel, where both orders are one, and images that are in channels_last already. A
 * weight stays row-major if anything else reads it or shares its memory, or where both orders are one. So do volumes and the
 * weights of conv3d, for which PyTorch takes no less time in channels_last_3d.
 *
 * The time that is saved is estimated by recorded sizes, from what PyTorch took on one thread. Max pools gain most, then
 * average pools, interpolations, convolutions by channel, and others with a window. A convolution whose weight stays row-major
 * copies that at each call, unless it has one pixel and no stride, or is by channel.
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

#include "core/analysis/layout_effects.h"
#include "core/analysis/memory_layout.h"
#include "core/analysis/rearrange.h"
#include "core/graph/slot.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/pass/layer.h"
#include "core/pass/pass.h"

/* The time that PyTorch 2.13 saves on one thread of a CPU, in picoseconds; negative: time that it needs more. */
enum {
    CONVOLUTION = 150, /* with a window: for each element that it reads or gives */
    LAID_OUT = 300,    /* … if its weight gets the format, too */
    WEIGHT = -900,     /* for each that is copied */
    MAX_POOL = 2500,   /* for each element of each window */
    AVERAGE_POOL = 800,
    INTERPOLATION = 1000, /* for each element that it gives */
    CALL = -5000000,      /* of the node that is put in front */
    COPY = -600,          /* for each element of an image that is laid out anew */
    RESHAPE = -900,       /* for each element that is laid out in rows again */
    LEAST_CHANNELS = 8,   /* with fewer, pools and interpolations are slower */
    SMALL_IMAGE = 20480,  /* elements: up to here one image is convolved by PyTorch itself, not by oneDNN … */
    FEW_CHANNELS = 32,    /* … which with fewer channels, and step by step, … */
    PIXEL = -40000,       /* … takes so much longer for each pixel that it gives */
};

/* The role of a node. Convolutions that hand each other images are a group, with all nodes between them. */
typedef struct role {
    uint32_t parent;   /* of the union; 0: it is of no group */
    bool begins;       /* a convolution that reads an image from outside its group */
    bool is_given;     /* an image that such a convolution reads: counted */
    bool is_reported;  /* the same: matched or refused; of a group: refused */
    double saved;      /* of a group, at its root: picoseconds */
    bool lies_already; /* … one of which is in channels_last */
    uint32_t first;    /* … the first of its convolutions whose weights are laid out, or 0 … */
    uint32_t next;     /* of such a convolution: the next one */
    fb_obstacle why;   /* … why it must stay */
    fb_node nodes[2];  /* … those that are to blame */
} role;

/* A tensor that may be the weight of convolutions. */
typedef struct reading {
    uint32_t owners, readers; /* modules' attributes; nodes, or calls of a module that owns it */
    uint32_t convolutions;    /* of the readers: those that take it in channels_last as well as in rows */
    bool is_read_by_recipe;   /* another tensor is computed from it, or is a view of it */
} reading;

typedef struct search {
    fb_matcher *m;
    const fb_graph *graph;
    const fb_layout_effects *layouts;
    role *roles;      /* by node */
    reading *weights; /* by tensor; NULL: weights stay as they are */
} search;

/* The input of edit besides the nodes of a match: the convolutions that read the image that is laid out, then others of their
 * group. */
typedef struct layout_plan {
    const bool *is_laid_out; /* by tensor: a weight that gets the format */
    const bool *lies_so;     /* by node: a convolution whose images are in channels_last already */
} layout_plan;

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

static void count_reader(void *context, fb_tensor tensor) {
    ((reading *)context)[tensor.id].readers++;
}

static void count_reading_recipe(void *context, fb_tensor tensor) {
    ((reading *)context)[tensor.id].is_read_by_recipe = true;
}

static void count_readers(const search *s, fb_program program) {
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, program); n.id && fb_matcher_goes_on(s->m); n = fb_next_node(g, n)) {
        const fb_node_row *row = fb_node_at(g, n);
        if (row->opcode == FB_CALL_MODULE) {
            fb_value_visit_tensors(g, fb_module_at(g, row->module)->parameters, count_reader, s->weights);
            fb_value_visit_tensors(g, fb_module_at(g, row->module)->buffers, count_reader, s->weights);
        } else if (row->opcode == FB_GET_ATTR && row->module.id && row->attribute.id) {
            fb_tensor tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
            s->weights[tensor.id].readers += row->user_count;
        }
    }
}

/* Of all tensors: who owns and reads them. */
static void look_at_weights(const search *s) {
    const fb_graph *g = s->graph;
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; fb_slot_next(g, &cursor, &slot);) s->weights[slot.tensor.id].owners++;
    for (fb_tensor t = fb_first_tensor(g); t.id; t = fb_tensor_at(g, t)->next) {
        fb_value recipe = fb_tensor_at(g, t)->recipe;
        if (recipe.id) fb_value_visit_tensors(g, recipe, count_reading_recipe, s->weights);
    }
    count_readers(s, FB_MAIN_PROGRAM);
    for (fb_module module = fb_first_module(g); module.id; module = fb_module_at(g, module)->next)
        if (fb_module_at(g, module)->program.id) count_readers(s, fb_module_at(g, module)->program);
}

typedef struct owned_search {
    const reading *weights;
    bool is_any;
} owned_search;

static void look_for_owned(void *context, fb_tensor tensor) {
    owned_search *found = context;
    found->is_any |= found->weights[tensor.id].owners > 0;
}

/* Only the layer owns it, and no other tensor shares its memory. */
static bool is_alone(const search *s, fb_tensor tensor) {
    const reading *found = &s->weights[tensor.id];
    owned_search made_from = {s->weights, false};
    fb_value recipe = fb_tensor_at(s->graph, tensor)->recipe;
    if (recipe.id) fb_value_visit_tensors(s->graph, recipe, look_for_owned, &made_from);
    return found->owners == 1 && !found->is_read_by_recipe && !made_from.is_any;
}

/* Nothing but these layers reads it, by its module or by get_attr, and nothing writes to it. */
static bool is_within_reach(const search *s, fb_node convolution, fb_tensor tensor) {
    const fb_node_row *row = fb_node_at(s->graph, convolution);
    const fb_alias *alias = fb_matcher_writes(s->m);
    fb_obstacle why = row->opcode == FB_CALL_MODULE
                          ? fb_module_obstacle(s->m, row->module)
                          : fb_read_obstacle(s->m, fb_call_argument_node(s->graph, convolution, "weight"));
    return alias && !why.code && !fb_tensor_is_mutated(alias, tensor);
}

/* Has it two orders: several channels, and a window? */
static bool has_two_orders(const fb_graph *g, fb_tensor tensor) {
    fb_value shape = fb_tensor_at(g, tensor)->shape;
    int64_t window = fb_shape_size(g, shape, 2) * fb_shape_size(g, shape, 3);
    return fb_shape_rank(g, shape) == 4 && fb_shape_size(g, shape, 0) > 0 && fb_shape_size(g, shape, 1) > 1 && window > 1;
}

/* Could its weight get the format, if all that read it do? */
static bool may_lay_out(const search *s, fb_node convolution, fb_tensor tensor) {
    return tensor.id && has_two_orders(s->graph, tensor) && is_alone(s, tensor) && is_within_reach(s, convolution, tensor) &&
           !fb_layout_dependent(s->layouts, convolution).reader.id;
}

static bool is_laid_out(const fb_graph *g, fb_tensor tensor) {
    return tensor.id && fb_tensor_format(g, tensor) == FB_FORMAT_CHANNELS_LAST;
}

/* ---- what is saved ------------------------------------------------------------------------------------------------------- */

/* All but the first, which may be the number of images. */
static bool are_sizes_known(const fb_graph *g, fb_node n) {
    bool are_known = true;
    for (int i = 1; i < fb_node_rank(g, n); i++) are_known &= fb_shape_size(g, fb_node_at(g, n)->shape, i) >= 0;
    return are_known;
}

/* The elements of a shape of which all sizes but the first are known; that counts as one when it is not. */
static double elements_of(const fb_graph *g, fb_node n) {
    double count = 1;
    for (int i = 0; i < fb_node_rank(g, n); i++) {
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

static double pixels_of(const fb_graph *g, fb_node image) {
    fb_value shape = fb_node_at(g, image)->shape;
    return (double)fb_shape_size(g, shape, 2) * (double)fb_shape_size(g, shape, 3);
}

/* A small image that PyTorch convolves itself. */
static bool is_slow_by_pixel(const fb_shape_call *call, fb_node image) {
    fb_value shape = fb_node_at(call->graph, image)->shape;
    int64_t groups;
    bool is_one = fb_shape_size(call->graph, shape, 0) == 1 && elements_of(call->graph, image) <= SMALL_IMAGE;
    bool is_whole = fb_option_int(call, "groups", 1, &groups) && groups == 1 && product_of(call, "stride") == 1;
    return is_one && is_whole && fb_shape_size(call->graph, shape, 1) < FEW_CHANNELS;
}

static double saved_by_convolution(const search *s, const fb_shape_call *call, fb_node image) {
    const fb_graph *g = s->graph;
    fb_operand weight = fb_operand_named(call, "weight");
    if (weight.kind != FB_OPERAND_TENSOR || weight.type.rank != 4 || weight.type.sizes[0].size < 0) return 0;
    double count = 1, window = (double)weight.type.sizes[2].size * (double)weight.type.sizes[3].size;
    for (int i = 0; i < 4; i++) count *= (double)weight.type.sizes[i].size;
    bool is_by_channel = fb_dim_is(weight.type.sizes[1], 1), is_copied = window > 1 || product_of(call, "stride") > 1;
    double images = window > 1 ? elements_of(g, image) + elements_of(g, call->node) : 0;
    double saved = CONVOLUTION * images;
    if (s->weights) {
        fb_tensor tensor = fb_convolution_weight(g, call->node);
        bool gets_format = is_laid_out(g, tensor) || may_lay_out(s, call->node, tensor);
        is_copied = window > 1 && !gets_format;
        if (gets_format) saved = LAID_OUT * images;
        if (window > 1 && is_slow_by_pixel(call, image)) saved = PIXEL * pixels_of(g, call->node);
    }
    return saved + (is_copied && !is_by_channel ? WEIGHT * count : 0);
}

/* The time that a node saves; of a tuple, the reader of its first item counts. */
static double saved_by(const search *s, fb_node n) {
    const fb_graph *g = s->graph;
    fb_shape_call call = shape_call_of(g, fb_call_of_value(g, n));
    double count = elements_of(g, n);
    bool has_few = fb_shape_size(g, fb_node_at(g, n)->shape, 1) < LEAST_CHANNELS;
    if (fb_node_rank(g, n) != 4) return 0;
    switch (call.op) {
    case FB_OP_CONV2D:
    case FB_OP_CONV_TRANSPOSE2D:
    case FB_OP_CONVOLUTION: return saved_by_convolution(s, &call, fb_call_argument_node(g, n, "input"));
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
static void begin(search *s, fb_node n, fb_node image) {
    const fb_graph *g = s->graph;
    role *group = group_of(s, n);
    fb_dtype dtype = (fb_dtype)fb_node_at(g, image)->dtype;
    fb_dependent dependent = fb_layout_dependent(s->layouts, n);
    s->roles[n.id].begins = true;
    if (!s->roles[image.id].is_given) group->saved += CALL + COPY * elements_of(g, image);
    s->roles[image.id].is_given = true;
    group->lies_already |= lies_in_channels_last(g, image) || (s->weights && is_laid_out(g, fb_convolution_weight(g, n)));
    if (!fb_dtype_is_floating(dtype))
        blame(group, (fb_obstacle){"unknown-dtype", "the image has no floating dtype, or none is recorded" FB_RECORD_DTYPE}, n,
              image);
    if (dependent.reader.id) blame(group, dependent.why, n, dependent.reader);
}

/* A reshape behind a group, which copies then. */
static void count_reshape(const search *s, fb_node n) {
    fb_node image = fb_value_node(s->graph, fb_first_argument(s->graph, n));
    bool is_behind = image.id && s->roles[image.id].parent && fb_node_rank(s->graph, image) == 4;
    if (is_behind) group_of(s, image)->saved += RESHAPE * elements_of(s->graph, image);
}

/* Joins the groups of the images that it reads. */
static void look_at(search *s, fb_node n) {
    const fb_graph *g = s->graph;
    if (fb_lays_out_in_rows(s->layouts, n)) count_reshape(s, n);
    fb_node image = is_convolution(g, n) ? fb_call_argument_node(g, n, "input") : (fb_node){0};
    bool is_candidate = image.id && fb_node_rank(g, n) == 4 && fb_node_rank(g, image) == 4 && !fb_image_is_line(g, image);
    if (!is_candidate && !fb_hands_image_on(s->layouts, n)) return;
    s->roles[n.id].parent = is_candidate ? n.id : 0;
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        if (!s->roles[input.id].parent || (is_candidate && input.id != image.id)) continue;
        if (!s->roles[n.id].parent) s->roles[n.id].parent = n.id;
        unite(s, input, n);
    }
    if (s->roles[n.id].parent) group_of(s, n)->saved += saved_by(s, n);
    if (!is_candidate) return;
    if (!are_sizes_known(g, n) || !are_sizes_known(g, image))
        blame(group_of(s, n), (fb_obstacle){"unknown-shape", "not all sizes but the first are recorded as numbers"}, n,
              (fb_node){0});
    if (!s->roles[image.id].parent) begin(s, n, image);
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

/* The convolutions of a group whose weights are laid out, when it is first asked for them. */
static void append_group(const search *s, fb_node n, fb_buffer *out) {
    role *group = group_of(s, n);
    for (uint32_t id = group->first; id; id = s->roles[id].next) fb_buffer_append(out, &(fb_node){id}, sizeof(fb_node));
    group->first = 0;
}

static void found_with_weights(const search *s, fb_buffer *nodes) {
    for (size_t i = 0, count = nodes->size / sizeof(fb_node); i < count; i++) {
        fb_node n;
        memcpy(&n, nodes->data + i * sizeof n, sizeof n);
        append_group(s, n, nodes);
    }
    s->m->failed |= nodes->failed;
    if (!s->m->failed) fb_match_found(s->m, (const fb_node *)(const void *)nodes->data, nodes->size / sizeof(fb_node));
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
        fb_obstacle why = obstacle_between(fb_matcher_writes(s->m), image, first, last);
        if (why.code) fb_refuse_for(s->m, why, nodes, count);
        else found_with_weights(s, &found);
    }
    fb_buffer_free(&found);
}

static bool has_convolution(const fb_graph *g) {
    fb_node n = fb_first_node(g, FB_MAIN_PROGRAM);
    while (n.id && !is_convolution(g, n)) n = fb_next_node(g, n);
    return n.id;
}

/* The convolution's weight, where its group changes, or is in channels_last already; else none. */
static fb_tensor weight_to_lay_out(const search *s, fb_node n) {
    fb_tensor none = {0};
    if (!is_convolution(s->graph, n) || !s->roles[n.id].parent) return none;
    const role *group = group_of(s, n);
    fb_tensor tensor = fb_convolution_weight(s->graph, n);
    bool changes = !group->why.code && (group->saved > 0 || group->lies_already);
    return changes && !is_laid_out(s->graph, tensor) && may_lay_out(s, n, tensor) ? tensor : none;
}

/* Chooses the weights that are laid out: those of which each reader is a convolution of a group that changes. */
static void choose_weights(search *s, bool *is_chosen) {
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(s->m); n = fb_next_node(g, n)) {
        fb_tensor tensor = weight_to_lay_out(s, n);
        if (tensor.id) s->weights[tensor.id].convolutions++;
    }
    for (fb_node n = fb_last_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(s->m); n = fb_node_at(g, n)->previous) {
        fb_tensor tensor = is_convolution(g, n) ? fb_convolution_weight(g, n) : (fb_tensor){0};
        const reading *found = &s->weights[tensor.id];
        if (!tensor.id || !found->convolutions || found->convolutions != found->readers) continue;
        is_chosen[tensor.id] = true;
        s->roles[n.id].next = group_of(s, n)->first;
        group_of(s, n)->first = n.id;
    }
}

/* Groups whose images are in channels_last already: their weights alone are laid out. */
static void match_weights(const search *s, bool *lies_so) {
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(s->m); n = fb_next_node(g, n)) {
        fb_buffer found = {0};
        bool is_one = s->roles[n.id].parent && group_of(s, n)->lies_already && group_of(s, n)->first;
        if (is_one) lies_so[group_of(s, n)->first] = true;
        if (is_one) append_group(s, n, &found);
        if (is_one) found_with_weights(s, &found);
        fb_buffer_free(&found);
    }
}

static void match_images(search *s) {
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(s->m); n = fb_next_node(g, n)) {
        fb_node image = is_convolution(g, n) ? fb_call_argument_node(g, n, "input") : (fb_node){0};
        if (image.id && (fb_node_rank(g, image) < 0 || fb_node_rank(g, n) < 0))
            fb_refuse_node(s->m, "unknown-shape", n,
                           "the shape of what it reads, or of what it gives, is not recorded" FB_RECORD_SHAPE);
        if (!s->roles[n.id].begins || s->roles[image.id].is_reported) continue;
        s->roles[image.id].is_reported = true;
        match_image(s, image);
    }
}

static void *plan_array(fb_matcher *m, size_t count, size_t size) {
    void *made = fb_arena_alloc(m->arena, count * size);
    if (made) memset(made, 0, count * size);
    else m->failed = true;
    return made;
}

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    if (!has_convolution(g)) return; /* as most have none, nothing is asked about their memory */
    int version = m->report->pass->version;
    const fb_alias *alias = fb_matcher_writes(m);
    fb_layout_effects *layouts = alias ? fb_layout_effects_new(g, alias, m->work, version) : NULL;
    bool *is_chosen = version > 2 ? plan_array(m, fb_tensor_limit(g), sizeof(bool)) : NULL;
    bool *lies_so = version > 2 ? plan_array(m, fb_node_limit(g), sizeof(bool)) : NULL;
    layout_plan *made = version > 2 ? plan_array(m, 1, sizeof *made) : NULL;
    search s = {.m = m, .graph = g, .layouts = layouts, .roles = calloc(fb_node_limit(g), sizeof *s.roles)};
    if (version > 2) s.weights = calloc(fb_tensor_limit(g), sizeof *s.weights);
    m->failed |= !layouts || !s.roles || (version > 2 && !s.weights);
    if (made) *made = (layout_plan){is_chosen, lies_so};
    m->plan = made;
    if (!m->failed && s.weights) look_at_weights(&s);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) look_at(&s, n);
    if (!m->failed && s.weights) choose_weights(&s, is_chosen);
    match_images(&s);
    if (!m->failed && s.weights) match_weights(&s, lies_so);
    fb_layout_effects_free(layouts);
    free(s.roles);
    free(s.weights);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static fb_node first_of(const fb_graph *g, const fb_match *match, fb_value image) {
    fb_node first = match->nodes[0];
    for (size_t i = 1; i < match->count; i++) {
        bool reads = fb_call_argument(g, match->nodes[i], "input").id == image.id;
        if (reads && fb_node_at(g, match->nodes[i])->ordinal < fb_node_at(g, first)->ordinal) first = match->nodes[i];
    }
    return first;
}

/* Puts a copy of the image that the first of them reads before them. */
static void lay_out_image(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value image = fb_call_argument(g, match->nodes[0], "input");
    fb_node first = first_of(g, match, image);
    fb_value format = FB_TEXT(g, FB_MEMORY_FORMAT, "channels_last");
    fb_node copy =
        fb_build(rw, first, FB_MADE_CONTIGUOUS, FB_ARGS(g, image), fb_map_with(g, FB_VALUE_EMPTY_MAP, "memory_format", format));
    fb_mark(rw, copy);
    for (size_t i = 0; i < match->count; i++)
        if (fb_call_argument(g, match->nodes[i], "input").id == image.id)
            fb_set_argument(rw, match->nodes[i], "input", fb_make_node(g, copy));
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    const layout_plan *plan = match->plan;
    if (plan && plan->lies_so[match->nodes[0].id]) fb_mark(rw, match->nodes[0]);
    else lay_out_image(rw, match);
    for (size_t i = 0; plan && i < match->count; i++) {
        fb_tensor tensor = fb_convolution_weight(g, match->nodes[i]);
        if (plan->is_laid_out[tensor.id]) fb_set_memory_format(rw, tensor, "channels_last");
    }
}

/* Version 1 knew fewer operators, and refused what others read. Version 2 left weights as they were. */
#define CHANNELS_LAST(number, before)                                                                                          \
    {                                                                                                                          \
        .name = "ChannelsLast", .version = number, .earlier = before,                                                          \
        .summary = "Lays images that go into convolutions out in `channels_last`, and their weights, where that saves time, "  \
                   "with one node at the input.",                                                                              \
        .parameters = FB_NO_PARAMETERS, .exactness = FB_ROUNDS, .gain = FB_GAIN_FASTER, .reversible = true,                    \
        .preserves_computation = true, .match_graph = match_graph, .edit = edit,                                               \
    }

static const fb_pass version_1 = CHANNELS_LAST(1, NULL);
static const fb_pass version_2 = CHANNELS_LAST(2, &version_1);
const fb_pass fb_channels_last = CHANNELS_LAST(3, &version_2);
