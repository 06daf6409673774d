#include "core/analysis/memory_layout.h"

#include <string.h>

#include "core/analysis/infer.h"
#include "core/analysis/rearrange.h"
#include "core/analysis/view.h"

enum {
    MAX_STEPS = 200,    /* back through views, and what is computed element by element */
    MAX_READERS = 1000, /* looked at for one value; with more the answer is yes */
};

static fb_shape_rule shape_rule(const fb_graph *graph, fb_node node) {
    return (fb_shape_rule)fb_op_facts_of(fb_node_op(graph, node))->shape;
}

/* With one dimension or none no other order exists. */
static bool has_no_order(const fb_graph *graph, fb_node node) {
    int rank = fb_node_rank(graph, node);
    return rank == 0 || rank == 1;
}

fb_memory_format fb_memory_format_of(const fb_graph *graph, fb_node node) {
    static const char *const names[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};
    const fb_value_row *args = fb_value_at(graph, fb_node_at(graph, node)->args);
    fb_value value = fb_node_kwarg(graph, node, "memory_format");
    int64_t number = -1;
    /* Elsewhere the position is another one in each overload. */
    if (!value.id && fb_is_aten(graph, node)) value = fb_call_argument(graph, node, "memory_format");
    for (uint32_t i = 0; i < args->count; i++)
        if (fb_value_kind(graph, args->items[i]) == FB_MEMORY_FORMAT) value = args->items[i];
    bool is_named = value.id && fb_value_kind(graph, value) == FB_MEMORY_FORMAT;
    if (fb_is_absent(graph, value)) return FB_FORMAT_UNSAID;
    if (!is_named && !(fb_is_aten(graph, node) && fb_value_is_int(graph, value, &number))) return FB_FORMAT_UNKNOWN;
    for (int i = 0; i < 4; i++) {
        if (is_named ? strcmp(fb_value_text(graph, value), names[i]) == 0 : number == i)
            return (fb_memory_format)(FB_FORMAT_CONTIGUOUS + i);
    }
    return FB_FORMAT_UNKNOWN;
}

fb_memory_format fb_tensor_format(const fb_graph *graph, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    const char *said = row->rest.id ? fb_value_text(graph, fb_map_value(graph, row->rest, "memory_format")) : NULL;
    int rank = said ? fb_shape_rank(graph, row->shape) : 0;
    int64_t behind = 1;
    for (int i = 2; i < rank; i++) behind *= fb_shape_size(graph, row->shape, i);
    if (rank < 4 || behind < 2 || fb_shape_size(graph, row->shape, 1) < 2) return FB_FORMAT_UNSAID;
    if (rank == 4 && strcmp(said, "\"channels_last\"") == 0) return FB_FORMAT_CHANNELS_LAST;
    return rank == 5 && strcmp(said, "\"channels_last_3d\"") == 0 ? FB_FORMAT_CHANNELS_LAST_3D : FB_FORMAT_UNSAID;
}

fb_tensor fb_convolution_weight(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    fb_shape_rule rule = shape_rule(graph, node);
    if (rule != FB_SHAPE_CONV && rule != FB_SHAPE_CONV_TRANSPOSE && rule != FB_SHAPE_ANY_CONV) return (fb_tensor){0};
    if (row->opcode == FB_CALL_MODULE) return fb_module_tensor(graph, row->module, "weight");
    fb_node read = fb_call_argument_node(graph, node, "weight");
    const fb_node_row *from = read.id ? fb_node_at(graph, read) : NULL;
    bool is_read = from && from->opcode == FB_GET_ATTR && from->module.id && from->attribute.id;
    return is_read ? fb_module_tensor(graph, from->module, fb_text(graph, from->attribute)) : (fb_tensor){0};
}

/* As memory_format= says; `otherwise` where it says nothing. */
static fb_memory_layout layout_asked_for(fb_memory_format format, fb_memory_layout otherwise) {
    if (format == FB_FORMAT_UNSAID || format == FB_FORMAT_PRESERVE) return otherwise;
    return format == FB_FORMAT_CONTIGUOUS ? FB_LAYOUT_ROWS : FB_LAYOUT_FREE;
}

/* The input, or the result of a list, is an image without a batch; or may be, where then the call may fail. */
static bool is_unbatched(const fb_graph *graph, fb_node node, const fb_op_facts *facts) {
    fb_node input = fb_call_argument_node(graph, node, "input");
    bool may_fail = facts->unbatched == FB_LAYOUT_ROWS_OF_ROWS; /* a max pool of volumes */
    bool is_volume = facts->spatial == 3 || strstr(fb_node_target(graph, node), "max_pool3d");
    int rank = fb_shape_rank(graph, fb_node_at(graph, input.id ? input : node)->shape);
    return may_fail ? is_volume && !(input.id && rank == 5) : rank >= 0 && rank < 4;
}

fb_memory_layout fb_layout_of(const fb_graph *graph, fb_node node) {
    fb_op op = fb_node_op(graph, node);
    const fb_op_facts *facts = fb_op_facts_of(op);
    fb_memory_layout layout = (fb_memory_layout)facts->layout;
    if (layout <= FB_LAYOUT_NONE || fb_is_layout_of_view(layout)) return layout;
    if (fb_op_effects(graph, node).mutates_input) return FB_LAYOUT_AS_FIRST; /* it is the first */
    if (facts->unbatched) return is_unbatched(graph, node, facts) ? (fb_memory_layout)facts->unbatched : layout;
    bool is_of_number = facts->flags & FB_FACT_ROWS_OF_NUMBER && !fb_leading_input(graph, node).id;
    if (is_of_number || (op == FB_OP_TAKE_ALONG_DIM && fb_call_argument(graph, node, "dim").id)) return FB_LAYOUT_ROWS;
    return layout_asked_for(fb_memory_format_of(graph, node), layout);
}

fb_node fb_leading_input(const fb_graph *graph, fb_node node) {
    bool is_where = fb_op_is(graph, node, FB_OP_WHERE),
         is_reversed = fb_op_facts_of(fb_node_op(graph, node))->flags & FB_FACT_SECOND_LEADS;
    if (!is_where && !is_reversed) return fb_value_node(graph, fb_first_argument(graph, node));
    return fb_call_argument_node(graph, node, is_where ? "condition" : "other");
}

/* ---- layouts that passes count on ---------------------------------------------------------------------------------------- */

/* The layout of operators that the questions below have always known. The column knows more: softmax gives rows. But passes
 * that asked for that would change more than they did, and so need a new version each. */
static fb_memory_layout counted_on(const fb_graph *graph, fb_node node) {
    switch (shape_rule(graph, node)) {
    case FB_SHAPE_MATMUL:
    case FB_SHAPE_ADDMM:
    case FB_SHAPE_LINEAR:
    case FB_SHAPE_FACTORY:
    case FB_SHAPE_NEW:
    case FB_SHAPE_ARANGE:
    case FB_SHAPE_EMBEDDING:
    case FB_SHAPE_GATHER:
    case FB_SHAPE_STACK:
    case FB_SHAPE_VIEW:
    case FB_SHAPE_FLATTEN:
    case FB_SHAPE_UNFLATTEN:
    case FB_SHAPE_UNSQUEEZE:
    case FB_SHAPE_SQUEEZE:
    case FB_SHAPE_PERMUTE:
    case FB_SHAPE_TRANSPOSE:
    case FB_SHAPE_T:
    case FB_SHAPE_MOVEDIM: return fb_layout_of(graph, node);
    default: return FB_LAYOUT_UNKNOWN;
    }
}

/* A call of a known operator that gives one new tensor, without gaps. */
static bool makes_tensor(const fb_graph *graph, fb_node node) {
    fb_effects effects = fb_op_effects(graph, node);
    fb_memory_layout layout = fb_layout_of(graph, node);
    return layout != FB_LAYOUT_UNKNOWN && layout != FB_LAYOUT_AS_FIRST_WITH_GAPS && !effects.is_unknown &&
           !effects.may_alias_input && shape_rule(graph, node) != FB_SHAPE_UNKNOWN;
}

/* A view that is row-major when its input is. */
static bool keeps_rows(fb_memory_layout layout) {
    return layout == FB_LAYOUT_ORDERED_VIEW || layout == FB_LAYOUT_FIXED_VIEW || layout == FB_LAYOUT_MAYBE_VIEW;
}

/* The input itself, a copy of it with its gaps, or a view of all of it. */
static bool keeps_density(const fb_graph *graph, fb_node node) {
    fb_shape_rule rule = shape_rule(graph, node);
    bool is_counted_on = rule == FB_SHAPE_SAME || rule == FB_SHAPE_SECOND || fb_is_layout_of_view(counted_on(graph, node));
    fb_memory_layout layout = fb_layout_of(graph, node);
    return is_counted_on && layout != FB_LAYOUT_UNKNOWN && layout != FB_LAYOUT_VIEW;
}

static bool is_reshaped_by_readers(const fb_graph *graph, fb_node node, int *readers) {
    for (uint32_t e = fb_user_first(graph, node); e; e = fb_user_next(graph, e)) {
        fb_node user = fb_edge_user(graph, e);
        if (++*readers > MAX_READERS) return true;
        if (fb_value_node(graph, fb_first_argument(graph, user)).id != node.id) continue;
        if (fb_reshapes_in_place(graph, user)) return true;
        bool is_itself = shape_rule(graph, user) == FB_SHAPE_SAME && fb_op_effects(graph, user).may_alias_input;
        if (is_itself && is_reshaped_by_readers(graph, user, readers)) return true;
    }
    return false;
}

/* May the value have other strides than its node says, because a reader transposes or resizes it in place (x.t_()), under this
 * name or as what x.add_(1) and x.contiguous() give? */
static bool is_reshaped(const fb_graph *graph, fb_node node) {
    int readers = 0;
    return is_reshaped_by_readers(graph, node, &readers);
}

bool fb_is_dense(const fb_graph *graph, fb_node node) {
    if (fb_graph_is_onnx(graph)) return true;
    for (int step = 0; node.id && step < MAX_STEPS && !is_reshaped(graph, node); step++) {
        if (makes_tensor(graph, node)) return true;
        if (!keeps_density(graph, node) || fb_op_effects(graph, node).is_unknown) return false;
        node = fb_value_node(graph, fb_first_argument(graph, node));
    }
    return false;
}

static bool is_contiguous(const fb_graph *graph, fb_node node, int *steps);

/* Where a result is computed element by element of several, each in turn is asked which of two axes goes first, until one can
 * tell. A first one of the result's shape that is row-major tells of all. */
static bool leads_with_rows(const fb_graph *graph, fb_node node, int *steps) {
    unsigned flags = fb_op_facts_of(fb_node_op(graph, node))->flags;
    fb_node first = fb_leading_input(graph, node);
    if (!first.id || !(flags & FB_FACT_ELEMENTWISE) || (flags & FB_FACT_SECOND_LEADS)) return false;
    fb_value shape = fb_node_at(graph, node)->shape;
    return shape.id && shape.id == fb_node_at(graph, first)->shape.id && is_contiguous(graph, first, steps);
}

/* A result that is computed element by element, or stacked, is row-major where all that it is made from is. */
static bool maps_rows(const fb_graph *graph, fb_node node, int *steps) {
    uint32_t first = fb_node_at(graph, node)->first_input;
    bool is_mapped = fb_op_facts_of(fb_node_op(graph, node))->flags & FB_FACT_ELEMENTWISE;
    if (!first || (!is_mapped && shape_rule(graph, node) != FB_SHAPE_STACK)) return false;
    bool is_alone = !fb_input_next(graph, first);
    for (uint32_t e = first; e; e = fb_input_next(graph, e)) {
        fb_node input = fb_edge_input(graph, e);
        bool is_harmless = !is_alone && (fb_is_python_number(graph, input) || has_no_order(graph, input));
        if (!is_harmless && !is_contiguous(graph, input, steps)) return false;
    }
    return true;
}

static bool is_contiguous(const fb_graph *graph, fb_node node, int *steps) {
    while (node.id && ++*steps < MAX_STEPS && !is_reshaped(graph, node)) {
        if (fb_op_effects(graph, node).is_unknown) return false;
        fb_memory_layout layout = counted_on(graph, node);
        bool has_one_argument = fb_call_has_only(graph, node, "input");
        if (layout == FB_LAYOUT_ROWS || (fb_op_is(graph, node, FB_OP_CONTIGUOUS) && has_one_argument)) return true;
        if (!keeps_rows(layout)) return leads_with_rows(graph, node, steps) || maps_rows(graph, node, steps);
        node = fb_value_node(graph, fb_first_argument(graph, node));
    }
    return false;
}

bool fb_is_contiguous(const fb_graph *graph, fb_node node) {
    int steps = 0;
    return fb_graph_is_onnx(graph) || is_contiguous(graph, node, &steps);
}

/* Its result has the strides of its input, which is its only tensor with dimensions. */
static bool maps_one(const fb_graph *graph, fb_node node) {
    bool is_mapped = fb_op_facts_of(fb_node_op(graph, node))->flags & FB_FACT_ELEMENTWISE;
    uint32_t first = fb_node_at(graph, node)->first_input;
    return is_mapped && first && !fb_input_next(graph, first);
}

/* A convolution or pool that gives images. */
static bool makes_images(const fb_graph *graph, fb_node node) {
    fb_shape_rule rule = shape_rule(graph, node);
    bool is_counted_on = rule == FB_SHAPE_CONV || rule == FB_SHAPE_MAX_POOL || rule == FB_SHAPE_AVG_POOL;
    return is_counted_on && fb_layout_of(graph, node) == FB_LAYOUT_IMAGE;
}

bool fb_lies_as_image(const fb_graph *graph, fb_node node) {
    for (int step = 0; node.id && step < MAX_STEPS && !is_reshaped(graph, node); step++) {
        if (fb_op_effects(graph, node).is_unknown || fb_node_rank(graph, node) != 4) return false;
        if (makes_images(graph, node)) return true;
        if (!maps_one(graph, node)) return false;
        node = fb_value_node(graph, fb_first_argument(graph, node));
    }
    return false;
}

/* A call that fails for some layouts of its input. */
static bool may_fail(fb_memory_layout layout) {
    return layout == FB_LAYOUT_FIXED_VIEW || layout == FB_LAYOUT_ROWS_OF_ROWS;
}

/* Does this reader mind? Where it passes the memory on, `passes_on`. */
static bool minds(const fb_graph *graph, fb_node reader, bool *passes_on) {
    if (fb_node_at(graph, reader)->opcode == FB_OUTPUT) return true;
    fb_effects effects = fb_op_effects(graph, reader);
    fb_op op = fb_node_op(graph, reader);
    *passes_on = effects.may_alias_input;
    if (op == FB_OP_UNKNOWN || effects.is_unknown || effects.mutates_input || fb_runs_inside(graph, reader)) return true;
    return may_fail(fb_layout_of(graph, reader)) || (fb_op_facts_of(op)->flags & FB_FACT_READS_LAYOUT);
}

/* ---- the second and third of four dimensions exchanged ------------------------------------------------------------------- */

/* A view of some rows or columns. */
static bool is_cut(const fb_graph *graph, fb_node node) {
    fb_shape_rule rule = shape_rule(graph, node);
    bool is_part = rule == FB_SHAPE_GETITEM || rule == FB_SHAPE_SLICE || rule == FB_SHAPE_NARROW;
    return is_part || (fb_op_facts_of(fb_node_op(graph, node))->flags & FB_FACT_PARTS);
}

/* Are its dimensions in memory in the order of rows, perhaps with gaps? */
static bool is_ordered(const fb_graph *graph, fb_node node) {
    for (int step = 0; node.id && step < MAX_STEPS && !is_reshaped(graph, node); step++) {
        if (fb_is_contiguous(graph, node)) return true;
        if (!keeps_rows(counted_on(graph, node)) && !is_cut(graph, node)) return false;
        if (fb_op_effects(graph, node).is_unknown) return false;
        node = fb_value_node(graph, fb_first_argument(graph, node));
    }
    return false;
}

/* Leaves the first and the last of four dimensions where they are. */
static bool exchanges_middle(const fb_graph *graph, fb_node node) {
    fb_rearrange turned;
    return fb_permutation_at(graph, node, &turned) && turned.rank == 4 && turned.dims[0] == 0 && turned.dims[3] == 3;
}

bool fb_middle_is_ordered(const fb_graph *graph, fb_node node) {
    if (exchanges_middle(graph, node) && !is_reshaped(graph, node)) node = fb_value_node(graph, fb_first_argument(graph, node));
    return is_ordered(graph, node);
}

static int64_t size_at(const fb_graph *graph, fb_node node, int from_last) {
    fb_value shape = fb_node_at(graph, node)->shape;
    int rank = fb_shape_rank(graph, shape);
    return rank > from_last ? fb_shape_size(graph, shape, rank - 1 - from_last) : -1;
}

/* Does the reader give rows of either order? A reshape that joins the last two dimensions, which have several elements each,
 * copies unless they are beside each other in memory, and then all of it is rows. An image whose last dimension has several
 * elements, beside each other, is not in channels_last. */
static bool gives_rows_of_either(const fb_graph *graph, fb_node reader, fb_node value) {
    fb_memory_layout layout = fb_layout_of(graph, reader);
    int64_t last = size_at(graph, value, 0);
    if (layout == FB_LAYOUT_ROWS) return true;
    if (layout == FB_LAYOUT_IMAGE) return last > 1;
    bool joins = last > 1 && size_at(graph, value, 1) > 1 && size_at(graph, reader, 0) > last;
    return layout == FB_LAYOUT_MAYBE_VIEW && joins && fb_memory_format_of(graph, reader) == FB_FORMAT_UNSAID;
}

/* ---- readers of a value's layout ---------------------------------------------------------------------------------------- */

typedef enum reach {
    OF_MEMORY, /* readers of the value, and of what shares its memory */
    OF_LAYOUT, /* and of what is computed of it, which may have its layout */
    OF_MIDDLE, /* the same, of a value in one of two orders: the middle two of its four dimensions may be exchanged */
} reach;

typedef struct follower {
    fb_node node;
    bool is_middle; /* it is in one of the two orders */
} follower;

static bool are_read(const fb_graph *graph, fb_node node, reach how_far) {
    follower queue[MAX_READERS];
    size_t count = 0, shown = 0;
    queue[count++] = (follower){node, how_far == OF_MIDDLE};
    for (size_t i = 0; i < count; i++) {
        for (uint32_t edge = fb_user_first(graph, queue[i].node); edge; edge = fb_user_next(graph, edge)) {
            bool passes_on = false;
            fb_node reader = fb_edge_user(graph, edge);
            if (minds(graph, reader, &passes_on)) return true;
            if (how_far && fb_op_is(graph, reader, FB_OP_CONTIGUOUS) && fb_call_has_only(graph, reader, "input")) continue;
            if (queue[i].is_middle && gives_rows_of_either(graph, reader, queue[i].node)) {
                if (passes_on && are_read(graph, reader, OF_MEMORY) && ++shown > 1) return true;
                continue;
            }
            bool is_ordered = counted_on(graph, reader) != FB_LAYOUT_ROWS && !has_no_order(graph, reader);
            passes_on |= how_far && is_ordered && fb_result_kind_of(graph, reader) != FB_A_NUMBER;
            if (passes_on && count == MAX_READERS) return true;
            if (passes_on) queue[count++] = (follower){reader, queue[i].is_middle && exchanges_middle(graph, reader)};
        }
    }
    return false;
}

bool fb_strides_are_read(const fb_graph *graph, fb_node node) {
    return !fb_graph_is_onnx(graph) && are_read(graph, node, OF_MEMORY);
}

bool fb_layout_is_read(const fb_graph *graph, fb_node node) {
    return !fb_graph_is_onnx(graph) && are_read(graph, node, OF_LAYOUT);
}

bool fb_middle_order_is_read(const fb_graph *graph, fb_node node) {
    bool has_middle = fb_node_rank(graph, node) == 4;
    return !fb_graph_is_onnx(graph) && are_read(graph, node, has_middle ? OF_MIDDLE : OF_LAYOUT);
}

/* ---- a value cut out of a wider one ------------------------------------------------------------------------------------- */

/* Tensors looked at for one result, and readers of those that share its memory; with more, the answer is yes. Its own readers
 * are not limited: each is the reader of few, but a list of 20,000 results may have as many readers. */
#define MAX_SHARERS 1000
#define MAX_READERS 1000

typedef enum arrangement {
    ONE_ROW, /* still contiguous */
    ROWS,    /* whole rows, with gaps between them */
    UNKNOWN,
} arrangement;

typedef struct sharer {
    fb_node node;
    arrangement layout;
} sharer;

typedef struct walk {
    const fb_graph *graph;
    const fb_alias *alias;
    int64_t row;
    sharer sharers[MAX_SHARERS];
    size_t count;
} walk;

/* ---- shapes ------------------------------------------------------------------------------------------------------------ */

static fb_value shape_of(const fb_graph *graph, fb_node node) {
    return fb_node_at(graph, node)->shape;
}

/* Some of the last sizes multiply to exactly one row: a view can split a row or group whole rows. (PyTorch:
 * at::detail::computeStride.) */
static bool shape_keeps_cut_rows(const fb_graph *graph, fb_value shape, int64_t row) {
    int64_t product = 1;
    for (int axis = fb_shape_rank(graph, shape) - 1; product < row && axis >= 0; axis--) {
        int64_t size = fb_shape_size(graph, shape, axis);
        if (size < 1 || size > INT64_MAX / product) return size == 0;
        product *= size;
    }
    return product == row;
}

/* The same by the sizes as they are written: view(batch, -1, 12, 64). */
static bool arguments_keep_rows(const fb_graph *graph, fb_node view, int64_t row) {
    const fb_value_row *sizes = fb_value_at(graph, fb_node_at(graph, view)->args);
    uint32_t first = 1;
    if (sizes->count == 2) {
        const fb_value_row *only = fb_value_at(graph, sizes->items[1]);
        bool is_sequence = only->kind == FB_LIST || only->kind == FB_TUPLE || only->kind == FB_SIZE;
        if (is_sequence) sizes = only;
        first = is_sequence ? 0 : 1;
    }
    int64_t product = 1, size;
    for (uint32_t i = sizes->count; product < row && i > first; i--) {
        if (!fb_value_is_int(graph, sizes->items[i - 1], &size) || size < 1 || size > INT64_MAX / product) return false;
        product *= size;
    }
    return product == row;
}

static bool is_known(const fb_graph *graph, fb_node node) {
    return fb_shape_rank(graph, shape_of(graph, node)) >= 0;
}

static bool keeps_cut_rows(const walk *w, fb_node view) {
    if (is_known(w->graph, view)) return shape_keeps_cut_rows(w->graph, shape_of(w->graph, view), w->row);
    bool takes_sizes = fb_op_is(w->graph, view, FB_OP_VIEW) || fb_op_is(w->graph, view, FB_OP_RESHAPE);
    return takes_sizes && arguments_keep_rows(w->graph, view, w->row);
}

bool fb_view_only_splits(const fb_graph *graph, fb_node from, fb_node to) {
    fb_value whole = shape_of(graph, from), parts = shape_of(graph, to);
    int rank = fb_shape_rank(graph, parts), axis = 0;
    for (int i = 0; i < fb_shape_rank(graph, whole); i++) {
        int64_t size = fb_shape_size(graph, whole, i), product = 1;
        while (axis < rank && product < size) {
            int64_t part = fb_shape_size(graph, parts, axis++);
            if (part < 1 || part > size) return false;
            product *= part;
        }
        if (size < 1 || product != size) return false;
    }
    while (axis < rank && fb_shape_size(graph, parts, axis) == 1) axis++;
    return rank >= 0 && axis == rank && fb_shape_rank(graph, whole) >= 0;
}

static bool has_one_row(const fb_graph *graph, fb_value shape) {
    for (int axis = 0; axis + 1 < fb_shape_rank(graph, shape); axis++) {
        if (fb_shape_size(graph, shape, axis) != 1) return false;
    }
    return fb_shape_rank(graph, shape) >= 0;
}

/* ---- readers ----------------------------------------------------------------------------------------------------------- */

static bool is_written_later(const walk *w, fb_node node) {
    return fb_mutated_after(w->alias, node, fb_node_at(w->graph, node)->ordinal);
}

static bool add(walk *w, fb_node node, arrangement layout) {
    if (w->count == MAX_SHARERS) return false;
    w->sharers[w->count++] = (sharer){node, layout};
    return true;
}

static bool is_among_shared(const fb_graph *graph, fb_node user, fb_node input, const fb_effects *effects) {
    if (effects->may_alias_all) return true;
    fb_value first = fb_first_argument(graph, user);
    return !first.id || fb_value_node(graph, first).id == input.id || fb_value_kind(graph, first) != FB_NODE;
}

bool fb_is_view_of_dtype(const fb_graph *graph, fb_node view) {
    fb_value second = fb_node_arg(graph, view, 1);
    bool is_computed = second.id && fb_value_kind(graph, second) == FB_NODE && !fb_op_is(graph, view, FB_OP_VIEW_AS) &&
                       !fb_is_python_number(graph, fb_value_node(graph, second));
    return fb_node_kwarg(graph, view, "dtype").id || is_computed || (second.id && fb_value_kind(graph, second) == FB_DTYPE);
}

static bool view_works(walk *w, fb_node view, sharer of) {
    if (fb_is_view_of_dtype(w->graph, view)) return false;
    bool works =
        of.layout == ONE_ROW || (of.layout == ROWS && keeps_cut_rows(w, view)) || fb_view_only_splits(w->graph, of.node, view);
    return works && add(w, view, of.layout);
}

/* It gives a view where that exists, and otherwise a copy. */
static bool reshape_works(walk *w, fb_node reshape, sharer of) {
    if (of.layout == ONE_ROW || (of.layout == ROWS && keeps_cut_rows(w, reshape))) return add(w, reshape, of.layout);
    bool is_copy = of.layout == ROWS && is_known(w->graph, reshape);
    return !is_written_later(w, reshape) && (is_copy || add(w, reshape, UNKNOWN));
}

/* False when this reader would notice. */
static bool reader_works(walk *w, fb_node user, sharer of) {
    const fb_graph *graph = w->graph;
    if (fb_node_at(graph, user)->opcode == FB_OUTPUT) return true;
    fb_effects effects = fb_op_effects(graph, user);
    fb_op op = fb_node_op(graph, user);
    const fb_op_facts *facts = fb_op_facts_of(op);
    if (op == FB_OP_UNKNOWN || effects.is_unknown || fb_runs_inside(graph, user) || (facts->flags & FB_FACT_READS_LAYOUT))
        return false;
    if (facts->flags & FB_FACT_ASSERTS && !fb_asserts_type_only(graph, user)) return false; /* perhaps strides */
    if (effects.mutates_input && effects.may_alias_all) return false; /* put into a list that others read */
    /* Random numbers are drawn in the order of memory, and by another algorithm where that is not contiguous. */
    if (effects.mutates_input && effects.is_random && of.layout != ONE_ROW) return false;
    bool may_fail = facts->layout == FB_LAYOUT_ROWS_OF_ROWS || facts->unbatched == FB_LAYOUT_ROWS_OF_ROWS;
    if (may_fail && of.layout != ONE_ROW && fb_layout_of(graph, user) == FB_LAYOUT_ROWS_OF_ROWS) return false;
    if (!effects.may_alias_input || !is_among_shared(graph, user, of.node, &effects)) return true;
    bool is_view = (facts->flags & FB_FACT_ALIASES) || effects.may_alias_all, keeps_shape = facts->shape == FB_SHAPE_SAME;
    if ((op & FB_OP_IN_PLACE) && is_view && !keeps_shape) return false; /* t_ and the like: later readers see it so as well */
    if (op == (FB_OP_DETACH | FB_OP_IN_PLACE)) return false;            /* PyTorch detaches no view in place */
    if (op == FB_OP_CONTIGUOUS) return of.layout == ONE_ROW ? add(w, user, ONE_ROW) : !is_written_later(w, user);
    switch (facts->layout) {
    case FB_LAYOUT_FIXED_VIEW: return view_works(w, user, of);
    case FB_LAYOUT_MAYBE_VIEW: return reshape_works(w, user, of);
    default: return add(w, user, of.layout == ONE_ROW || (keeps_shape || !is_view) ? of.layout : UNKNOWN);
    }
}

bool fb_needs_contiguous(const fb_graph *graph, const fb_alias *alias, fb_node node, int64_t row) {
    walk w; /* whose list of sharers is long, and starts empty */
    if (fb_graph_is_onnx(graph)) return false;
    w.graph = graph;
    w.alias = alias;
    w.row = row;
    w.count = 0;
    add(&w, node, row < 0 ? UNKNOWN : has_one_row(graph, shape_of(graph, node)) ? ONE_ROW : ROWS);
    size_t readers = 0;
    for (size_t i = 0; i < w.count; i++) {
        if (i > 0 && (readers += fb_node_at(graph, w.sharers[i].node)->user_count) > MAX_READERS) return true;
        for (uint32_t e = fb_user_first(graph, w.sharers[i].node); e; e = fb_user_next(graph, e)) {
            if (!reader_works(&w, fb_edge_user(graph, e), w.sharers[i])) return true;
        }
    }
    return false;
}
