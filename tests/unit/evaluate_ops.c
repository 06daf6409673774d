#include "tests/unit/evaluate_ops.h"

#include <math.h>
#include <string.h>

static double floor_divide(double a, double b) {
    return floor(a / b);
}
static double truncate_divide(double a, double b) {
    return trunc(a / b);
}
static double second(double a, double b) {
    (void)a;
    return b;
}
static double at_most(double a, double b) {
    return a <= b;
}
double relu_of(double x) {
    return x > 0 ? x : 0;
}
double sigmoid_of(double x) {
    return 1 / (1 + exp(-x));
}
static double silu_of(double x) {
    return x * sigmoid_of(x);
}

static double softplus_of(double x) {
    return x > 20 ? x : log1p(exp(x));
}
static double mish_of(double x) {
    return x * tanh(softplus_of(x));
}
static double relu6_of(double x) {
    return fmin(relu_of(x), 6);
}
static double hardswish_of(double x) {
    return x * relu6_of(x + 3) / 6;
}
static double erf_gelu_of(double x) {
    return x * (1 + erf(x / sqrt(2))) / 2;
}
static double tanh_gelu_of(double x) {
    return x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x))) / 2;
}

static const struct {
    const char *targets;
    binary_function function;
    bool is_in_place;
} binary[] = {
    {" operator.add torch.add .add ", sum_of, false},
    {" operator.sub torch.sub .sub ", difference_of, false},
    {" operator.mul torch.mul .mul ", product_of, false},
    {" operator.truediv torch.div torch.divide torch.true_divide torch.Tensor.div .div .divide .true_divide ", quotient_of,
     false},
    {" operator.floordiv ", floor_divide, false},
    {" operator.le torch.le .le ", at_most, false},
    {" operator.pow torch.pow .pow ", pow, false},
    {" operator.iadd .add_ ", sum_of, true},
    {" operator.imul .mul_ ", product_of, true},
    {" operator.itruediv .div_ ", quotient_of, true},
    {" .copy_ .fill_ ", second, true},
};

static const struct {
    const char *targets;
    unary_function function;
    bool is_in_place;
    size_t takes; /* positional arguments: PyTorch fails when there are more */
} unary[] = {
    {" torch.nn.functional.relu ", relu_of, false, 2},
    {" torch.relu .relu ", relu_of, false, 1},
    {" torch.tanh .tanh ", tanh, false, 1},
    {" torch.abs .abs ", fabs, false, 1},
    {" torch.neg .neg operator.neg ", negative_of, false, 1},
    {" torch.sigmoid .sigmoid ", sigmoid_of, false, 1},
    {" torch.nn.functional.silu ", silu_of, false, 1},
    {" torch.nn.functional.mish ", mish_of, false, 1},
    {" torch.nn.functional.relu6 ", relu6_of, false, 1},
    {" torch.nn.functional.hardswish ", hardswish_of, false, 1},
    {" torch.nn.functional.softplus ", softplus_of, false, 1},
    {" torch.erf .erf ", erf, false, 1},
    {" torch.exp .exp ", exp, false, 1},
    {" torch.log .log ", log, false, 1},
    {" torch.sin .sin ", sin, false, 1},
    {" torch.sqrt .sqrt ", sqrt, false, 1},
    {" torch.rsqrt .rsqrt ", inverse_root_of, false, 1},
    {" torch.relu_ .relu_ ", relu_of, true, 1},
    {" .tanh_ ", tanh, true, 1},
};

static bool is_listed(const char *targets, const char *target) {
    size_t length = strlen(target);
    for (const char *at = targets; (at = strstr(at, target)); at++) {
        if (at[-1] == ' ' && at[length] == ' ') return true;
    }
    return false;
}

value argument(const call *c, size_t index, const char *name) {
    for (size_t i = 0; i < c->named_count; i++) {
        if (strcmp(c->keywords[i], name) == 0) return c->named[i];
    }
    return index < c->count ? c->args[index] : (value){0};
}

static value argument_or_self(const call *c, size_t index, const char *name) {
    value found = argument(c, index, name);
    return found.kind == V_UNUSABLE ? argument(c, index, "self") : found;
}

static bool has_keyword(const call *c, const char *name) {
    for (size_t i = 0; i < c->named_count; i++) {
        if (strcmp(c->keywords[i], name) == 0) return true;
    }
    return false;
}

static value evaluate_binary(const call *c, binary_function function, bool is_in_place) {
    value a = argument_or_self(c, 0, "input"), b = argument(c, 1, "other"), unusable = {0};
    if (b.kind == V_UNUSABLE) b = argument(c, 1, "exponent");
    value mode = argument(c, 9, "rounding_mode"), out = argument(c, 9, "out");
    if (mode.kind == V_TEXT) function = strcmp(mode.text, "floor") == 0 ? floor_divide : truncate_divide;
    if (a.kind == V_TUPLE && b.kind == V_TUPLE && function == sum_of) {
        value joined = tuple_value(c->arena, a.count + b.count);
        memcpy(joined.items, a.items, a.count * sizeof a);
        memcpy(joined.items + a.count, b.items, b.count * sizeof b);
        return joined;
    }
    if (a.kind != V_TENSOR && a.kind != V_NUMBER && a.kind != V_BOOL) return unusable;
    if (b.kind != V_TENSOR && b.kind != V_NUMBER && b.kind != V_BOOL) return unusable;
    value result = map_binary(c->arena, &a, &b, function);
    if (is_in_place && a.kind == V_TENSOR) out = a;
    if (out.kind != V_TENSOR || result.kind == V_UNUSABLE) return result;
    return write_into(&out, &result) ? out : unusable;
}

/* Sizes given as one tuple or as so many ints, from `from` on. */
static bool sizes_of(const call *c, size_t from, int64_t *sizes, int *rank) {
    const value *items = c->args + from;
    size_t count = c->count > from ? c->count - from : 0;
    if (count == 1 && items->kind == V_TUPLE) {
        count = items->count;
        items = items->items;
    }
    if (count > MAX_DIMS) return false;
    for (size_t i = 0; i < count; i++) {
        if (items[i].kind != V_NUMBER) return false;
        sizes[i] = (int64_t)items[i].number;
    }
    *rank = (int)count;
    return true;
}

static value filled(const call *c, double number) {
    int64_t sizes[MAX_DIMS];
    int rank;
    if (!sizes_of(c, 0, sizes, &rank)) return (value){0};
    value result = tensor_value(c->arena, rank, sizes);
    int64_t count = result.kind == V_TENSOR ? element_count(&result) : 0;
    for (int64_t i = 0; i < count; i++) result.data[i] = number;
    return result;
}

static value shape_of(const call *c, const value *tensor) {
    value shape = tuple_value(c->arena, (size_t)tensor->rank);
    for (int i = 0; i < tensor->rank; i++) shape.items[i] = number_value((double)tensor->sizes[i], true);
    return shape;
}

static value get_item(const call *c, const value *from, const value *index) {
    value unusable = {0};
    if (from->kind == V_TENSOR) return indexed(c->arena, from, index);
    if (from->kind != V_TUPLE) return unusable;
    int64_t count = (int64_t)from->count;
    if (index->kind == V_NUMBER) {
        int64_t at = (int64_t)index->number;
        at = at < 0 ? at + count : at;
        return at >= 0 && at < count ? from->items[at] : unusable;
    }
    if (index->kind != V_SLICE || index->items[2].kind == V_NUMBER) return unusable;
    int64_t start = index->items[0].kind == V_NUMBER ? (int64_t)index->items[0].number : 0;
    int64_t stop = index->items[1].kind == V_NUMBER ? (int64_t)index->items[1].number : count;
    stop = stop < 0 ? stop + count : stop > count ? count : stop;
    start = start < 0 ? start + count : start;
    if (start < 0 || start > stop) return unusable;
    value part = tuple_value(c->arena, (size_t)(stop - start));
    memcpy(part.items, from->items + start, part.count * sizeof part);
    return part;
}

static value reversed(const value *x) {
    int64_t dims[MAX_DIMS];
    for (int i = 0; i < x->rank; i++) dims[i] = x->rank - 1 - i;
    return x->kind == V_TENSOR ? permuted(x, dims) : (value){0};
}

static value get_attribute(const call *c, const value *from, const value *name) {
    if (from->kind != V_TENSOR || name->kind != V_TEXT) return (value){0};
    if (strcmp(name->text, "shape") == 0) return shape_of(c, from);
    if (strcmp(name->text, "ndim") == 0) return number_value(from->rank, true);
    if (strcmp(name->text, "T") == 0) return reversed(from);
    return (value){.kind = V_TEXT, .text = name->text}; /* device, dtype */
}

static value size_of(const call *c, const value *tensor) {
    value shape = shape_of(c, tensor), at = argument(c, 1, "dim");
    return at.kind == V_NUMBER ? get_item(c, &shape, &at) : shape;
}

static value flattened(const call *c, const value *x) {
    value first = argument(c, 1, "start_dim"), last = argument(c, 2, "end_dim");
    int start = first.kind == V_NUMBER ? (int)first.number : 0, stop = last.kind == V_NUMBER ? (int)last.number : -1, rank = 0;
    start = start < 0 ? start + x->rank : start;
    stop = stop < 0 ? stop + x->rank : stop;
    if (x->rank == 0 || start < 0 || stop < start || stop >= x->rank) return (value){0};
    int64_t sizes[MAX_DIMS];
    for (int i = 0; i < x->rank; i++) {
        if (i <= start || i > stop) sizes[rank++] = x->sizes[i];
        else sizes[rank - 1] *= x->sizes[i];
    }
    return reshaped(c->arena, x, rank, sizes);
}

static value transposed(const value *x, const value *a, const value *b) {
    int64_t dims[MAX_DIMS], i = (int64_t)a->number, j = (int64_t)b->number;
    i = i < 0 ? i + x->rank : i;
    j = j < 0 ? j + x->rank : j;
    if (a->kind != V_NUMBER || b->kind != V_NUMBER || i < 0 || j < 0 || i >= x->rank || j >= x->rank) return (value){0};
    for (int k = 0; k < x->rank; k++) dims[k] = k == i ? j : k == j ? i : k;
    return permuted(x, dims);
}

/* NumPy's; -1 keeps a size. */
static value expanded(const value *x, int rank, const int64_t *sizes) {
    value result = *x;
    if (rank < x->rank) return (value){0};
    result.rank = rank;
    for (int i = 0; i < rank; i++) {
        int from = i - (rank - x->rank);
        int64_t size = from >= 0 ? x->sizes[from] : 1;
        bool keeps = sizes[i] == size || (sizes[i] == -1 && from >= 0);
        if (!keeps && size != 1) return (value){0};
        result.sizes[i] = keeps ? size : sizes[i];
        result.strides[i] = keeps && from >= 0 ? x->strides[from] : 0;
    }
    return result;
}

static value contiguous(const call *c, const value *x) {
    int64_t count = element_count(x);
    for (int64_t i = 0; i < count; i++) {
        if (element(x, i) != x->data + i) return copy_of(c->arena, x);
    }
    return *x;
}

/* In training a half is dropped: every number becomes its half. */
static value dropped(const call *c, const value *x) {
    value training = argument(c, 2, "training"), half = number_value(0.5, false);
    bool drops = training.kind == V_UNUSABLE || (training.kind == V_BOOL && training.number != 0);
    return drops ? map_binary(c->arena, x, &half, product_of) : *x;
}

/* Numbers have no dtype here: these are for casts to the dtype that a tensor has, which give the tensor itself, and for those
 * that give another one. */
static bool evaluate_cast(const call *c, const value *x, value *out) {
    if (is_listed(" .float .to .type .long .detach torch.detach ", c->target)) *out = *x;
    else if (is_listed(" .double .half ", c->target)) *out = x->kind == V_TENSOR ? clone_of(c->arena, x) : (value){0};
    else return false;
    return true;
}

/* The dimensions named by so many ints, the first at args[1]. */
static value permuted_by(const call *c, const value *x) {
    int64_t dims[MAX_DIMS];
    int rank;
    if (x->kind != V_TENSOR || !sizes_of(c, 1, dims, &rank) || rank != x->rank) return (value){0};
    return permuted(x, dims);
}

static value unsqueezed(const value *x, const value *at) {
    int axis = (int)at->number;
    if (x->kind != V_TENSOR || at->kind != V_NUMBER || x->rank == MAX_DIMS) return (value){0};
    if (axis < 0) axis += x->rank + 1;
    value result = *x;
    for (int i = axis; i <= x->rank; i++) {
        result.sizes[i] = i == axis ? 1 : x->sizes[i - 1];
        result.strides[i] = i == axis ? 0 : x->strides[i - 1];
    }
    result.rank = x->rank + 1;
    return result;
}

static value stacked(const call *c) {
    value tensors = argument(c, 0, "tensors"), dim = argument(c, 1, "dim");
    if (dim.kind != V_NUMBER) dim = number_value(0, true);
    if (tensors.kind != V_TUPLE || tensors.count == 0) return (value){0};
    value parts = tuple_value(c->arena, tensors.count);
    for (size_t i = 0; i < parts.count; i++) parts.items[i] = unsqueezed(&tensors.items[i], &dim);
    return concatenate(c->arena, parts.items, parts.count, (int64_t)dim.number);
}

/* What are stacked here are matrices at least. */
static value joined(const call *c, int64_t axis) {
    value tensors = argument(c, 0, "tensors"), dim = argument(c, 1, "dim");
    if (dim.kind == V_NUMBER) axis = (int64_t)dim.number;
    return tensors.kind == V_TUPLE ? concatenate(c->arena, tensors.items, tensors.count, axis) : (value){0};
}

static bool evaluate_view(const call *c, value *out) {
    const char *t = c->target;
    value x = argument_or_self(c, 0, "input");
    int64_t sizes[MAX_DIMS];
    int rank;
    if (is_listed(" .view .reshape torch.reshape ", t)) {
        *out = x.kind == V_TENSOR && sizes_of(c, 1, sizes, &rank) ? reshaped(c->arena, &x, rank, sizes) : (value){0};
        if (strcmp(t, ".view") == 0 && out->data != x.data) *out = (value){0}; /* no such view: PyTorch fails */
    } else if (is_listed(" torch.flatten .flatten ", t)) {
        *out = x.kind == V_TENSOR ? flattened(c, &x) : (value){0};
    } else if (is_listed(" .transpose torch.transpose ", t)) {
        value a = argument(c, 1, "dim0"), b = argument(c, 2, "dim1");
        *out = x.kind == V_TENSOR ? transposed(&x, &a, &b) : (value){0};
    } else if (strcmp(t, ".permute") == 0) {
        *out = permuted_by(c, &x);
    } else if (strcmp(t, ".t") == 0) {
        *out = reversed(&x);
    } else if (strcmp(t, ".unsqueeze") == 0) {
        value at = argument(c, 1, "dim");
        *out = unsqueezed(&x, &at);
    } else if (strcmp(t, "torch.stack") == 0) {
        *out = stacked(c);
    } else if (is_listed(" .clone torch.clone ", t)) {
        *out = x.kind == V_TENSOR ? clone_of(c->arena, &x) : (value){0};
    } else if (is_listed(" .expand ", t)) {
        *out = x.kind == V_TENSOR && sizes_of(c, 1, sizes, &rank) ? expanded(&x, rank, sizes) : (value){0};
    } else if (is_listed(" .contiguous ", t)) {
        *out = x.kind == V_TENSOR ? contiguous(c, &x) : (value){0};
    } else if (is_listed(" torch.nn.functional.dropout ", t)) {
        *out = x.kind == V_TENSOR ? dropped(c, &x) : (value){0};
    } else {
        return evaluate_cast(c, &x, out);
    }
    return true;
}

static value set_item(const call *c, const value *x, const value *index, const value *item) {
    value place = x->kind == V_TENSOR ? indexed(c->arena, x, index) : (value){0};
    bool is_written = place.kind == V_TENSOR && (item->kind == V_NUMBER || item->kind == V_TENSOR) && write_into(&place, item);
    return is_written ? *x : (value){0};
}

static value add_product(const call *c) {
    value bias = argument(c, 0, "input"), a = argument(c, 1, "mat1"), b = argument(c, 2, "mat2"),
          alpha = argument(c, 9, "alpha");
    value product = matmul(c->arena, &a, &b);
    if (alpha.kind == V_NUMBER && product.kind == V_TENSOR) product = map_binary(c->arena, &product, &alpha, product_of);
    return product.kind == V_TENSOR && bias.kind == V_TENSOR ? map_binary(c->arena, &bias, &product, sum_of) : (value){0};
}

static value linear_of(const call *c) {
    value x = argument(c, 0, "input"), weight = argument(c, 1, "weight"), bias = argument(c, 2, "bias");
    return linear(c->arena, &x, &weight, &bias);
}

/* An int, or one for each dimension. */
static void two_of(const call *c, size_t index, const char *name, int64_t fallback, int64_t out[2]) {
    value given = argument(c, index, name);
    out[0] = out[1] = given.kind == V_NUMBER ? (int64_t)given.number : fallback;
    for (size_t i = 0; given.kind == V_TUPLE && i < given.count && i < 2; i++) out[i] = (int64_t)given.items[i].number;
}

static value convolved(const call *c) {
    value x = argument(c, 0, "input"), weight = argument(c, 1, "weight"), bias = argument(c, 2, "bias");
    convolution options;
    int64_t groups[2];
    two_of(c, 3, "stride", 1, options.stride);
    two_of(c, 4, "padding", 0, options.padding);
    two_of(c, 5, "dilation", 1, options.dilation);
    two_of(c, 6, "groups", 1, groups);
    options.groups = groups[0];
    return convolve(c->arena, &x, &weight, &bias, &options);
}

/* What oneDNN's calls do behind the layer. */
static value activated(const call *c, const value *x, size_t index) {
    value word = argument(c, index, "attr"), scalars = argument(c, index + 1, "scalars"),
          how = argument(c, index + 2, "algorithm");
    static const struct {
        const char *word;
        unary_function function;
    } known[] = {{"relu", relu_of}, {"swish", silu_of}, {"hardswish", hardswish_of}};
    if (word.kind == V_NONE || (word.kind == V_TEXT && strcmp(word.text, "none") == 0)) return *x;
    if (word.kind != V_TEXT || x->kind != V_TENSOR) return (value){0};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(word.text, known[i].word) == 0) return map_unary(c->arena, x, known[i].function);
    if (strcmp(word.text, "gelu") == 0 && how.kind == V_TEXT)
        return map_unary(c->arena, x, strcmp(how.text, "tanh") == 0 ? tanh_gelu_of : erf_gelu_of);
    if (strcmp(word.text, "hardtanh") != 0 || scalars.kind != V_TUPLE || scalars.count != 2) return (value){0};
    value least = map_binary(c->arena, x, &scalars.items[0], maximum_of);
    return map_binary(c->arena, &least, &scalars.items[1], minimum_of);
}

/* torch.ops.mkldnn._convolution_pointwise: `first` is the place of the weight. */
static value convolved_pointwise(const call *c, size_t first) {
    value x = argument(c, 0, "X"), weight = argument(c, first, "W"), bias = argument(c, first + 1, "B");
    convolution options;
    int64_t groups[2];
    two_of(c, first + 2, "padding", 0, options.padding);
    two_of(c, first + 3, "stride", 1, options.stride);
    two_of(c, first + 4, "dilation", 1, options.dilation);
    two_of(c, first + 5, "groups", 1, groups);
    options.groups = groups[0];
    return convolve(c->arena, &x, &weight, &bias, &options);
}

static bool evaluate_pointwise(const call *c, value *out) {
    value result;
    if (strcmp(c->target, "torch.ops.mkldnn._convolution_pointwise.default") == 0) {
        result = convolved_pointwise(c, 1);
        *out = activated(c, &result, 7);
    } else if (strcmp(c->target, "torch.ops.mkldnn._convolution_pointwise.binary") == 0) {
        value other = argument(c, 1, "other");
        result = convolved_pointwise(c, 2);
        bool is_sum = result.kind == V_TENSOR && other.kind == V_TENSOR;
        result = is_sum ? map_binary(c->arena, &result, &other, sum_of) : (value){0};
        *out = activated(c, &result, 10);
    } else if (strcmp(c->target, "torch.ops.mkldnn._linear_pointwise.default") == 0) {
        result = linear_of(c);
        *out = activated(c, &result, 3);
    } else {
        return false;
    }
    return true;
}

/* batch_norm in eval mode. */
static value normalised(const call *c) {
    value x = argument(c, 0, "input"), mean = argument(c, 1, "running_mean"), var = argument(c, 2, "running_var");
    value weight = argument(c, 3, "weight"), bias = argument(c, 4, "bias"), eps = argument(c, 7, "eps");
    if (x.kind != V_TENSOR || x.rank < 2 || mean.kind != V_TENSOR || var.kind != V_TENSOR) return (value){0};
    if (element_count(&mean) != x.sizes[1]) return (value){0};
    value result = copy_of(c->arena, &x);
    int64_t inner = 1, count = element_count(&x);
    for (int i = 2; i < x.rank; i++) inner *= x.sizes[i];
    for (int64_t i = 0; i < count; i++) {
        int64_t channel = i / inner % x.sizes[1];
        double scale = 1 / sqrt(*element(&var, channel) + (eps.kind == V_NUMBER ? eps.number : 1e-5));
        if (weight.kind == V_TENSOR) scale *= *element(&weight, channel);
        result.data[i] = (result.data[i] - *element(&mean, channel)) * scale;
        if (bias.kind == V_TENSOR) result.data[i] += *element(&bias, channel);
    }
    return result;
}

/* rms_norm(x, shape, weight, eps). */
static value rms_norm(const call *c, const value *x) {
    value shape = argument(c, 1, "normalized_shape"), weight = argument(c, 2, "weight"), eps = argument(c, 3, "eps"),
          bias = {0};
    if (shape.kind != V_TUPLE || eps.kind != V_NUMBER) return (value){0};
    return layer_normalised(c->arena, x, (int)shape.count, &weight, &bias, eps.number, false);
}

/* mean, sum and amax along the last dimension, which stays with size 1. */
static value reduced(const call *c, const value *x, char kind) {
    value dim = argument(c, 1, "dim"), keep = argument(c, 2, "keepdim");
    if (dim.kind == V_TUPLE && dim.count == 1) dim = dim.items[0];
    if (x->kind != V_TENSOR || dim.kind != V_NUMBER || dim.number != -1 || keep.kind != V_BOOL || keep.number == 0)
        return (value){0};
    int64_t sizes[MAX_DIMS], inner = x->sizes[x->rank - 1], count = element_count(x);
    memcpy(sizes, x->sizes, sizeof *sizes * (size_t)x->rank);
    sizes[x->rank - 1] = 1;
    value result = tensor_value(c->arena, x->rank, sizes);
    for (int64_t row = 0; result.kind == V_TENSOR && row < count / inner; row++) {
        double number = kind == 'a' ? -INFINITY : 0;
        for (int64_t i = 0; i < inner; i++) {
            double at = *element(x, row * inner + i);
            number = kind == 'a' ? fmax(number, at) : number + at;
        }
        result.data[row] = kind == 'm' ? number / (double)inner : number;
    }
    return result;
}

static value layer_norm(const call *c, const value *x) {
    value shape = argument(c, 1, "normalized_shape"), weight = argument(c, 2, "weight"), bias = argument(c, 3, "bias");
    value eps = argument(c, 4, "eps");
    int axes = shape.kind == V_TUPLE ? (int)shape.count : 1;
    return layer_normalised(c->arena, x, axes, &weight, &bias, eps.kind == V_NUMBER ? eps.number : 1e-5, true);
}

/* Of four dimensions, with a mask that is added, and a scale. */
static value attention(const call *c) {
    value q = argument(c, 0, "query"), k = argument(c, 1, "key"), v = argument(c, 2, "value");
    value mask = argument(c, 3, "attn_mask"), scale = argument(c, 6, "scale");
    if (q.kind != V_TENSOR || k.kind != V_TENSOR || q.rank != 4 || k.rank != 4 || scale.kind != V_NUMBER) return (value){0};
    value turned = permuted(&k, (int64_t[]){0, 1, 3, 2}), scores = matmul(c->arena, &q, &turned);
    if (scores.kind == V_TENSOR) scores = map_binary(c->arena, &scores, &scale, product_of);
    if (scores.kind == V_TENSOR && mask.kind == V_TENSOR) scores = map_binary(c->arena, &scores, &mask, sum_of);
    value weights = softmax(c->arena, &scores);
    return matmul(c->arena, &weights, &v);
}

/* softmax(x, dim=-1), or its logarithm. */
static value softmax_of(const call *c, const value *x, bool takes_log) {
    value dim = argument(c, 1, "dim"), result = {0};
    if (dim.kind == V_NUMBER && dim.number == -1) result = softmax(c->arena, x);
    return takes_log && result.kind == V_TENSOR ? map_unary(c->arena, &result, log) : result;
}

/* arange(end). */
static value positions(const call *c) {
    value end = argument(c, 0, "end");
    if (end.kind != V_NUMBER || end.number < 0 || c->count != 1) return (value){0};
    value result = tensor_value(c->arena, 1, (int64_t[]){(int64_t)end.number});
    for (int64_t i = 0; result.kind == V_TENSOR && i < result.sizes[0]; i++) result.data[i] = (double)i;
    return result;
}

static bool evaluate_other(const call *c, value *out) {
    const char *t = c->target;
    value x = argument_or_self(c, 0, "input"), y = argument(c, 1, "other"), z = argument(c, 2, "value");
    if (strcmp(t, "operator.getitem") == 0) *out = get_item(c, &x, &y);
    else if (strcmp(t, "operator.setitem") == 0) *out = set_item(c, &x, &y, &z);
    else if (strcmp(t, "builtins.getattr") == 0) *out = get_attribute(c, &x, &y);
    else if (strcmp(t, ".size") == 0) *out = x.kind == V_TENSOR ? size_of(c, &x) : (value){0};
    else if (strcmp(t, "torch.ones") == 0) *out = filled(c, 1);
    else if (strcmp(t, "torch.zeros") == 0) *out = filled(c, 0);
    else if (strcmp(t, "torch.arange") == 0) *out = positions(c);
    else if (strcmp(t, "torch.matmul") == 0) *out = matmul(c->arena, &x, &y);
    else if (is_listed(" torch.nn.functional.linear torch._C._nn.linear ", t)) *out = linear_of(c);
    else if (strcmp(t, "torch.addmm") == 0) *out = add_product(c);
    else if (is_listed(" torch.softmax .softmax torch.nn.functional.softmax ", t)) *out = softmax_of(c, &x, false);
    else if (strcmp(t, "torch._C._nn.scaled_dot_product_attention") == 0) *out = attention(c);
    else if (strcmp(t, "torch.conv2d") == 0) *out = convolved(c);
    else if (strcmp(t, "torch.nn.functional.batch_norm") == 0) *out = normalised(c);
    else if (strcmp(t, "torch._C._nn.gelu") == 0)
        *out = map_unary(c->arena, &x, has_keyword(c, "approximate") ? tanh_gelu_of : erf_gelu_of);
    else if (strcmp(t, "torch.nn.functional.layer_norm") == 0) *out = layer_norm(c, &x);
    else if (strcmp(t, "torch.nn.functional.rms_norm") == 0) *out = rms_norm(c, &x);
    else if (strcmp(t, ".mean") == 0 || strcmp(t, ".sum") == 0 || strcmp(t, "torch.amax") == 0)
        *out = reduced(c, &x, strchr(t, '.')[1]);
    else if (strcmp(t, "torch.nn.functional.log_softmax") == 0) *out = softmax_of(c, &x, true);
    else if (is_listed(" torch.cat torch.concat torch.vstack ", t)) *out = joined(c, 0);
    else if (is_listed(" torch.hstack torch.column_stack ", t)) *out = joined(c, 1);
    else return false;
    return true;
}

bool evaluate_call(const call *c, value *out) {
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++) {
        if (!is_listed(binary[i].targets, c->target)) continue;
        *out = evaluate_binary(c, binary[i].function, binary[i].is_in_place);
        return true;
    }
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++) {
        if (!is_listed(unary[i].targets, c->target)) continue;
        value x = argument_or_self(c, 0, "input"), inplace = argument(c, 1, "inplace");
        *out = c->count > unary[i].takes ? (value){0} : map_unary(c->arena, &x, unary[i].function);
        if (out->kind == V_UNUSABLE) return true;
        bool writes = unary[i].is_in_place || (inplace.kind == V_BOOL && inplace.number != 0);
        if (x.kind == V_TENSOR && writes) {
            write_into(&x, out);
            *out = x;
        }
        return true;
    }
    return evaluate_view(c, out) || evaluate_other(c, out) || evaluate_pointwise(c, out);
}

static void disturb(const value *v, double with, value *first) {
    if (v->kind == V_TUPLE) {
        for (size_t i = 0; i < v->count; i++) disturb(&v->items[i], with, first);
    }
    if (v->kind != V_TENSOR) return;
    int64_t count = element_count(v);
    for (int64_t i = 0; i < count; i++) *element(v, i) = *element(v, i) * 0.9 + 0.01 * with;
    if (first->kind == V_UNUSABLE) *first = *v;
}

value of_recorded_sizes(const call *c, const value *given) {
    if (given->kind != V_TENSOR || !c->recorded) return *given;
    int64_t sizes[MAX_DIMS], count = element_count(given);
    bool is_same = c->recorded_rank == given->rank;
    for (int i = 0; i < c->recorded_rank; i++) {
        int64_t own = i < given->rank ? given->sizes[i] : 2;
        sizes[i] = c->recorded[i] < 0 ? own : c->recorded[i];
        is_same &= sizes[i] == own;
    }
    if (is_same || !count) return *given;
    value result = tensor_value(c->arena, c->recorded_rank, sizes);
    int64_t made = result.kind == V_TENSOR ? element_count(&result) : 0;
    for (int64_t i = 0; i < made; i++) result.data[i] = *element(given, i % count);
    return result;
}

value do_anything(const call *c, double with) {
    value first = {0};
    ++*c->unknown;
    for (size_t i = 0; i < c->count; i++) disturb(&c->args[i], with, &first);
    for (size_t i = 0; i < c->named_count; i++) disturb(&c->named[i], with, &first);
    if (has_keyword(c, "out")) return argument(c, 0, "out");
    return of_recorded_sizes(c, &first);
}
