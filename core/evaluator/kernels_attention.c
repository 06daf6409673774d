/* Attention and embedding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/evaluator/internal.h"

#define STEPS_OF_A_SCORE 20

/* ---- embedding ---------------------------------------------------------------------------------------------------------- */

/* A row of the table, or of the weight where that is not in memory. */
static void copy_row(fb_kernel_call *call, const fb_array *table, const fb_weight *weight, int64_t from, const fb_array *out,
                     int64_t to) {
    fb_array row = *out;
    int64_t width = out->sizes[out->rank - 1];
    row.rank = 1;
    row.sizes[0] = width;
    row.strides[0] = 1;
    row.offset += to * width;
    size_t size = (size_t)width * fb_held_size(out->held);
    if (weight) fb_read_weight(call, weight, from * width, &row);
    else fb_array_copy_bytes(fb_call_work(call), fb_array_data(&row), (char *)fb_array_data(table) + (size_t)from * size, size);
}

/* Rows of the weight by index. `padding_idx` matters to gradients alone. */
static fb_status kernel_embedding(fb_kernel_call *call, fb_object *result) {
    fb_array *whole, *indices;
    const fb_weight *weight;
    bool is_native = !fb_argument_is_given(call, "input"); /* torch.embedding and ATen: weight, indices */
    if (!fb_argument_weight(call, &whole, &weight) || !fb_argument_index(call, is_native ? "indices" : "input", &indices))
        return call->status;
    double norm_type; /* says which norm max_norm limits: without that, nothing */
    int64_t padding;
    if (!fb_argument_number(call, "norm_type", 2, &norm_type) || !fb_argument_int(call, "padding_idx", 0, &padding))
        return call->status;
    int rank = whole ? whole->rank : 2;
    int64_t rows = rank == 2 ? (whole ? whole->sizes : weight->sizes)[0] : 0;
    bool has_row = rank != 2 || !fb_argument_is_given(call, "padding_idx") || (padding >= -rows && padding < rows);
    if (!has_row && fb_call_is_of_nn(call))
        return fb_kernel_fail(call, "the table has no row %lld, which padding_idx names", (long long)padding);
    if (fb_argument_is_given(call, "max_norm")) return fb_kernel_unsupported(call, "max_norm writes to its weight");
    if (rank != 2) return fb_kernel_fail(call, "it takes a matrix");
    if (indices->rank + 1 > FB_MAX_RANK) return fb_kernel_unsupported(call, "it has too many dimensions");
    int64_t sizes[FB_MAX_RANK], width = (whole ? whole->sizes : weight->sizes)[1], count = fb_array_count(indices);
    memcpy(sizes, indices->sizes, sizeof sizes);
    sizes[indices->rank] = width;
    fb_array *table = whole ? fb_make_contiguous(call, whole) : NULL, *flat = fb_make_contiguous(call, indices);
    fb_array *out = flat ? fb_make_array(call, whole ? whole->dtype : weight->dtype, indices->rank + 1, sizes) : NULL;
    for (int64_t i = 0; i < count && out && fb_kernel_goes_on(call, 4); i++) {
        int64_t at = ((int64_t *)fb_array_data(flat))[i];
        if (at < 0 || at >= rows) fb_kernel_fail(call, "index %lld is out of %lld rows", (long long)at, (long long)rows);
        else copy_row(call, table, weight, at, out, i);
    }
    fb_array_drop(table);
    fb_array_drop(flat);
    return fb_return_array(call, out, result);
}

/* ---- one_hot ------------------------------------------------------------------------------------------------------------ */

/* A row of zeros with a single 1 for each class; as many classes as the largest says where num_classes is -1. */
static fb_status kernel_one_hot(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t classes, largest = -1, sizes[FB_MAX_RANK];
    if (!fb_argument_array(call, "input", &input) || !fb_argument_int(call, "num_classes", -1, &classes)) return call->status;
    if (input->dtype != FB_INT64) return fb_kernel_fail(call, "it takes classes of int64");
    if (input->rank + 1 > FB_MAX_RANK) return fb_kernel_unsupported(call, "it has too many dimensions");
    int64_t count = fb_array_count(input);
    if (!count && classes <= 0) return fb_kernel_fail(call, "nothing does not tell how many classes there are");
    fb_array *flat = fb_make_contiguous(call, input);
    const int64_t *class = flat ? fb_array_data(flat) : NULL;
    for (int64_t i = 0; i < count && flat && !call->status && fb_work_at(fb_call_work(call), i, count); i++) {
        if (class[i] < 0 || (classes != -1 && class[i] >= classes))
            fb_kernel_fail(call, "class %lld is not one of %lld", (long long)class[i], (long long)classes);
        if (class[i] > largest) largest = class[i];
    }
    if (classes == -1 && __builtin_add_overflow(largest, 1, &classes)) fb_kernel_fail(call, "a class is too large");
    memcpy(sizes, input->sizes, sizeof sizes);
    sizes[input->rank] = classes;
    fb_array *out = flat && !call->status ? fb_make_array(call, FB_INT64, input->rank + 1, sizes) : NULL;
    if (out) fb_array_fill(out, 0, 0);
    for (int64_t i = 0; i < count && out && fb_work_at(fb_call_work(call), i, count); i++)
        ((int64_t *)fb_array_data(out))[i * classes + class[i]] = 1;
    fb_array_drop(flat);
    return fb_return_array(call, out, result);
}

/* ---- scaled dot product attention --------------------------------------------------------------------------------------- */

typedef struct attention {
    fb_array *query, *key, *value, *mask; /* contiguous (…, L, E), (…, S, E), (…, S, Ev); mask broadcast to (…, L, S) or NULL */
    int lead;                             /* dimensions before the matrices, of which the last are heads */
    int64_t leading[FB_MAX_RANK];         /* of the result: the three broadcast to each other */
    bool shares_keys;                     /* several heads of the query read one of key or value */
    int64_t rows, columns, width, value_width;
    double scale;
    bool is_causal, is_fused;
} attention;

/* Which matrix of one of the three (contiguous) the result's matrix reads. */
static int64_t matrix_of(const attention *a, const fb_array *part, int64_t matrix) {
    int64_t found = 0, stride = 1;
    for (int i = a->lead - 1, d = part->rank - 3; d >= 0; i--, d--) {
        int64_t at = matrix % a->leading[i], size = part->sizes[d];
        bool is_shared = i == a->lead - 1 && a->shares_keys;
        found += stride * (is_shared ? at / (a->leading[i] / size) : size == 1 ? 0 : at);
        stride *= size;
        matrix /= a->leading[i];
    }
    return found;
}

/* Softmax of each row of scores, masked; a row that is masked whole is 0, as PyTorch's gives it. */
static void weigh(fb_work *work, const attention *a, void *scores, fb_held held, int64_t matrix) {
    int64_t mask_at = 0;
    if (a->mask) { /* where this matrix begins in the broadcast mask */
        int64_t rest = matrix;
        mask_at = a->mask->offset;
        for (int i = a->mask->rank - 3; i >= 0; i--) {
            mask_at += rest % a->mask->sizes[i] * a->mask->strides[i];
            rest /= a->mask->sizes[i];
        }
    }
    for (int64_t l = 0; l < a->rows; l++) {
        double top = -INFINITY, total = 0;
        for (int64_t s = 0; s < a->columns && fb_work_at(work, s, a->columns); s++) {
            int64_t at = l * a->columns + s;
            double score = (held == FB_HELD_FLOAT ? (double)((float *)scores)[at] : ((double *)scores)[at]) * a->scale;
            if (a->mask) {
                int64_t m = mask_at + l * a->mask->strides[a->mask->rank - 2] + s * a->mask->strides[a->mask->rank - 1];
                if (a->mask->held == FB_HELD_BOOL) score = ((unsigned char *)a->mask->storage->bytes)[m] ? score : -INFINITY;
                else score += fb_array_get(a->mask, m - a->mask->offset);
            }
            if (a->is_causal && s > l) score = -INFINITY;
            if (score > top || score != score) top = score;
            if (held == FB_HELD_FLOAT) ((float *)scores)[at] = (float)score;
            else ((double *)scores)[at] = score;
        }
        for (int64_t s = 0; s < a->columns && fb_work_at(work, s, a->columns); s++) {
            int64_t at = l * a->columns + s;
            double score = held == FB_HELD_FLOAT ? (double)((float *)scores)[at] : ((double *)scores)[at];
            double weight = top == -INFINITY ? 0 : exp(score - top);
            total += weight;
            if (held == FB_HELD_FLOAT) ((float *)scores)[at] = (float)weight;
            else ((double *)scores)[at] = weight;
        }
        for (int64_t s = 0; s < a->columns && total != 0 && fb_work_at(work, s, a->columns); s++) {
            int64_t at = l * a->columns + s;
            if (held == FB_HELD_FLOAT) ((float *)scores)[at] = (float)((double)((float *)scores)[at] / total);
            else ((double *)scores)[at] /= total;
        }
    }
}

static void attend(fb_kernel_call *call, const attention *a, const fb_array *out, void *scores) {
    fb_held held = out->held;
    int64_t element = (int64_t)fb_held_size(held), matrices = fb_array_count(out) / (a->rows * a->value_width);
    double scored = (double)matrices * (double)a->rows * (double)a->columns;
    double steps = scored * STEPS_OF_A_SCORE + fb_gemm_steps(scored * ((double)a->width + (double)a->value_width));
    if (!fb_kernel_takes(call, steps)) return;
    for (int64_t matrix = 0; matrix < matrices && fb_kernel_goes_on(call, 1); matrix++) {
        fb_gemm(call, held, false, true, a->rows, a->columns, a->width,
                (char *)fb_array_data(a->query) + matrix_of(a, a->query, matrix) * a->rows * a->width * element, a->width,
                (char *)fb_array_data(a->key) + matrix_of(a, a->key, matrix) * a->columns * a->width * element, a->width,
                scores, a->columns, false);
        weigh(fb_call_work(call), a, scores, held, matrix);
        fb_gemm(call, held, false, false, a->rows, a->value_width, a->columns, scores, a->columns,
                (char *)fb_array_data(a->value) + matrix_of(a, a->value, matrix) * a->columns * a->value_width * element,
                a->value_width, (char *)fb_array_data(out) + matrix * a->rows * a->value_width * element, a->value_width,
                false);
    }
}

/* The dimensions before the matrices, broadcast; with shared keys the heads are the query's. */
static bool join_leading(fb_kernel_call *call, attention *a, const fb_array *query, const fb_array *key,
                         const fb_array *value) {
    const fb_array *parts[] = {query, key, value};
    if (a->shares_keys) {
        if (query->rank != key->rank || key->rank != value->rank || query->rank < 3)
            return fb_kernel_fail(call, "shared keys need heads in all three tensors") == FB_OK;
        int64_t heads = query->sizes[query->rank - 3], of_key = key->sizes[key->rank - 3],
                of_value = value->sizes[key->rank - 3];
        if (of_key < 1 || of_value < 1 || heads % of_key || heads % of_value)
            return fb_kernel_fail(call, "its heads are not shared evenly") == FB_OK;
    }
    for (int k = 0; k < 3; k++) {
        fb_array lead = *parts[k];
        lead.rank -= 2;
        if (a->shares_keys) lead.sizes[lead.rank - 1] = query->sizes[lead.rank - 1];
        if (!fb_array_join_sizes(&lead, &a->lead, a->leading))
            return fb_kernel_fail(call, "the batches of its tensors do not fit each other") == FB_OK;
    }
    return true;
}

/* Does PyTorch compute it by its fused kernel? Then the result has the query's strides; otherwise it is row-major. See
 * use_flash_attention_cpp in ATen/native/transformers/sdp_utils_cpp.cpp. */
static bool is_fused(const attention *a, const fb_array *query, const fb_array *key, const fb_array *value,
                     const fb_array *mask) {
    const fb_array *parts[] = {query, key, value};
    if (query->rank != 4 || key->rank != 4 || value->rank != 4) return false;
    if (!a->rows || !a->columns || a->value_width != a->width) return false;
    for (int k = 0; k < 3; k++) {
        if (parts[k]->strides[3] != 1 || parts[k]->sizes[0] != query->sizes[0]) return false;
        if (parts[k]->sizes[1] != query->sizes[1] && !a->shares_keys) return false;
    }
    return key->sizes[1] == value->sizes[1] && (!mask || mask->rank == 2 || mask->rank == 4);
}

static bool open_attention(fb_kernel_call *call, attention *a) {
    fb_array *query, *key, *value, *mask;
    double dropout;
    *a = (attention){0};
    if (!fb_argument_array(call, "query", &query) || !fb_argument_array(call, "key", &key) ||
        !fb_argument_array(call, "value", &value) || !fb_argument_optional(call, "attn_mask", &mask) ||
        !fb_argument_number(call, "dropout_p", 0, &dropout) || !fb_argument_bool(call, "is_causal", false, &a->is_causal) ||
        !fb_argument_bool(call, "enable_gqa", false, &a->shares_keys))
        return false;
    if (dropout != 0) return fb_kernel_unsupported(call, "its dropout is on") == FB_OK;
    if (mask && (a->is_causal || mask->rank < 2))
        return fb_kernel_fail(call, "its mask does not fit, or is one too many") == FB_OK;
    if (query->rank < 2 || key->rank < 2 || value->rank < 2)
        return fb_kernel_fail(call, "its tensors need two dimensions at least") == FB_OK;
    if (query->dtype != key->dtype || key->dtype != value->dtype || !fb_dtype_is_floating(query->dtype))
        return fb_kernel_fail(call, "its tensors have several dtypes") == FB_OK;
    a->rows = query->sizes[query->rank - 2];
    a->width = query->sizes[query->rank - 1];
    a->columns = key->sizes[key->rank - 2];
    a->value_width = value->sizes[value->rank - 1];
    if (key->sizes[key->rank - 1] != a->width || value->sizes[value->rank - 2] != a->columns)
        return fb_kernel_fail(call, "its sizes do not fit") == FB_OK;
    if (!join_leading(call, a, query, key, value)) return false;
    if (a->lead + 2 > FB_MAX_RANK) return fb_kernel_unsupported(call, "it has too many dimensions") == FB_OK;
    if (!fb_argument_number(call, "scale", 1 / sqrt((double)a->width), &a->scale)) return false;
    if (a->scale < 0 && a->is_causal) /* PyTorch's fused kernel scales the -inf of its mask */
        return fb_kernel_unsupported(call, "it is causal, and its scale is negative") == FB_OK;
    a->is_fused = is_fused(a, query, key, value, mask);
    int64_t wanted[FB_MAX_RANK + 2];
    memcpy(wanted, a->leading, sizeof a->leading);
    wanted[a->lead] = a->rows;
    wanted[a->lead + 1] = a->columns;
    if (mask) call->status = fb_array_broadcast(mask, a->lead + 2, wanted, &a->mask, call->error);
    if (mask && (mask->held == FB_HELD_INT || (mask->held != FB_HELD_BOOL && mask->dtype != query->dtype)))
        return fb_kernel_fail(call, "its mask is neither bools nor of its own dtype") == FB_OK;
    a->query = call->status ? NULL : fb_make_contiguous(call, query);
    a->key = a->query ? fb_make_contiguous(call, key) : NULL;
    a->value = a->key ? fb_make_contiguous(call, value) : NULL;
    return a->value != NULL;
}

static fb_status kernel_attention(fb_kernel_call *call, fb_object *result) {
    attention a;
    fb_array *out = NULL, *scores = NULL, *query;
    if (open_attention(call, &a)) {
        int64_t sizes[FB_MAX_RANK];
        memcpy(sizes, a.leading, sizeof sizes);
        sizes[a.lead] = a.rows;
        sizes[a.lead + 1] = a.value_width;
        out = fb_make_array(call, a.query->dtype, a.lead + 2, sizes);
        scores = out ? fb_make_array(call, a.query->dtype, 2, (const int64_t[]){a.rows, a.columns}) : NULL;
        if (scores && !a.columns) fb_array_fill(out, 0, 0);
        else if (scores && fb_array_count(out)) attend(call, &a, out, fb_array_data(scores));
    }
    fb_array_drop(scores);
    fb_array_drop(a.query);
    fb_array_drop(a.key);
    fb_array_drop(a.value);
    fb_array_drop(a.mask);
    if (!fb_return_array(call, out, result) && a.is_fused && fb_argument_array(call, "query", &query))
        fb_lay_out_like(call, &query, 1, result);
    return call->status;
}

const fb_kernel_row fb_kernels_attention[] = {
    FB_KERNEL_OF_PARTS(EMBEDDING, embedding, false),
    FB_KERNEL(ONE_HOT, one_hot),
    FB_KERNEL(ATTENTION, attention),
    FB_KERNELS_END,
};
