/* Attention and embedding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/eval/evaluator.h"

#define STEPS_OF_A_SCORE 20

/* ---- embedding -------------------------------------------------------------------------------------------------------------
 */

/* Rows of the weight by index. `padding_idx` matters to gradients alone. */
fb_status fb_kernel_embedding(fb_kernel_call *call, fb_object *result) {
    fb_array *weight, *indices;
    bool is_native = !fb_argument_is_given(call, "input"); /* torch.embedding and ATen: weight, indices */
    if (!fb_argument_array(call, "weight", &weight) || !fb_argument_array(call, is_native ? "indices" : "input", &indices))
        return call->status;
    if (fb_argument_is_given(call, "max_norm")) return fb_kernel_unsupported(call, "max_norm writes to its weight");
    if (weight->rank != 2 || indices->held != FB_HELD_INT) return fb_kernel_fail(call, "it takes a matrix and integers");
    if (indices->rank + 1 > FB_MAX_RANK) return fb_kernel_unsupported(call, "it has too many dimensions");
    int64_t sizes[FB_MAX_RANK], width = weight->sizes[1], count = fb_array_count(indices);
    memcpy(sizes, indices->sizes, sizeof sizes);
    sizes[indices->rank] = width;
    fb_array *table = fb_make_contiguous(call, weight), *flat = table ? fb_make_contiguous(call, indices) : NULL;
    fb_array *out = flat ? fb_make_array(call, weight->dtype, indices->rank + 1, sizes) : NULL;
    size_t row = (size_t)width * fb_held_size(weight->held);
    for (int64_t i = 0; i < count && out && fb_kernel_goes_on(call, 4); i++) {
        int64_t at = ((int64_t *)fb_array_data(flat))[i];
        if (at < 0 || at >= weight->sizes[0])
            fb_kernel_fail(call, "index %lld is out of %lld rows", (long long)at, (long long)weight->sizes[0]);
        else
            fb_array_copy_bytes(fb_call_work(call), (char *)fb_array_data(out) + (size_t)i * row,
                                (char *)fb_array_data(table) + (size_t)at * row, row);
    }
    fb_array_drop(table);
    fb_array_drop(flat);
    return fb_return_array(call, out, result);
}

/* ---- scaled dot product attention ------------------------------------------------------------------------------------------
 */

typedef struct attention {
    fb_array *query, *key, *value, *mask; /* contiguous (…, L, E), (…, S, E), (…, S, Ev); mask broadcast to (…, L, S) or NULL */
    int64_t heads, groups;                /* of the query; query heads that share one of key and value */
    int64_t batch, rows, columns, width, value_width;
    double scale;
    bool is_causal;
} attention;

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
    int64_t element = (int64_t)fb_held_size(held), key_heads = a->heads / a->groups;
    double matrices = (double)a->batch * (double)a->heads, scored = matrices * (double)a->rows * (double)a->columns;
    double steps = scored * STEPS_OF_A_SCORE + fb_gemm_steps(scored, (double)a->width + (double)a->value_width, 1);
    if (!fb_kernel_takes(call, steps)) return;
    for (int64_t matrix = 0; matrix < a->batch * a->heads && fb_kernel_goes_on(call, 1); matrix++) {
        int64_t of_key = matrix / a->heads * key_heads + matrix % a->heads / a->groups;
        fb_gemm(call, held, false, true, a->rows, a->columns, a->width,
                (char *)fb_array_data(a->query) + matrix * a->rows * a->width * element, a->width,
                (char *)fb_array_data(a->key) + of_key * a->columns * a->width * element, a->width, scores, a->columns, false);
        weigh(fb_call_work(call), a, scores, held, matrix);
        fb_gemm(call, held, false, false, a->rows, a->value_width, a->columns, scores, a->columns,
                (char *)fb_array_data(a->value) + of_key * a->columns * a->value_width * element, a->value_width,
                (char *)fb_array_data(out) + matrix * a->rows * a->value_width * element, a->value_width, false);
    }
}

/* Batches of query, key and value are the same, up to heads that share a key. */
static bool open_attention(fb_kernel_call *call, attention *a) {
    fb_array *query, *key, *value, *mask;
    double dropout;
    bool shares_keys;
    *a = (attention){.groups = 1, .batch = 1, .heads = 1};
    if (!fb_argument_array(call, "query", &query) || !fb_argument_array(call, "key", &key) ||
        !fb_argument_array(call, "value", &value) || !fb_argument_optional(call, "attn_mask", &mask) ||
        !fb_argument_number(call, "dropout_p", 0, &dropout) || !fb_argument_bool(call, "is_causal", false, &a->is_causal) ||
        !fb_argument_bool(call, "enable_gqa", false, &shares_keys))
        return false;
    if (dropout != 0) return fb_kernel_unsupported(call, "its dropout is on") == FB_OK;
    if (mask && (a->is_causal || mask->rank < 2))
        return fb_kernel_fail(call, "its mask does not fit, or is one too many") == FB_OK;
    if (query->rank < 2 || query->rank != key->rank || key->rank != value->rank)
        return fb_kernel_unsupported(call, "its tensors have several numbers of dimensions") == FB_OK;
    if (query->dtype != key->dtype || key->dtype != value->dtype || !fb_dtype_is_floating(query->dtype))
        return fb_kernel_fail(call, "its tensors have several dtypes") == FB_OK;
    int last = query->rank - 1;
    for (int i = 0; i < last - 1; i++) {
        bool is_heads = i == last - 2;
        int64_t size = query->sizes[i];
        bool fits = key->sizes[i] == value->sizes[i] &&
                    (size == key->sizes[i] || (is_heads && shares_keys && key->sizes[i] && size % key->sizes[i] == 0));
        if (!fits) return fb_kernel_unsupported(call, "its batches differ") == FB_OK;
        if (is_heads) a->groups = key->sizes[i] ? size / key->sizes[i] : 1;
        if (is_heads) a->heads = size;
        else a->batch *= size;
    }
    a->rows = query->sizes[last - 1];
    a->width = query->sizes[last];
    a->columns = key->sizes[last - 1];
    a->value_width = value->sizes[last];
    if (key->sizes[last] != a->width || value->sizes[last - 1] != a->columns)
        return fb_kernel_fail(call, "its sizes do not fit") == FB_OK;
    if (!fb_argument_number(call, "scale", 1 / sqrt((double)a->width), &a->scale)) return false;
    int64_t wanted[FB_MAX_RANK];
    memcpy(wanted, query->sizes, sizeof wanted);
    wanted[last] = a->columns;
    if (mask) call->status = fb_array_broadcast(mask, query->rank, wanted, &a->mask, call->error);
    if (mask && mask->held == FB_HELD_INT) return fb_kernel_fail(call, "its mask is integers") == FB_OK;
    a->query = call->status ? NULL : fb_make_contiguous(call, query);
    a->key = a->query ? fb_make_contiguous(call, key) : NULL;
    a->value = a->key ? fb_make_contiguous(call, value) : NULL;
    return a->value != NULL;
}

fb_status fb_kernel_attention(fb_kernel_call *call, fb_object *result) {
    attention a;
    fb_array *out = NULL, *scores = NULL;
    if (open_attention(call, &a)) {
        int64_t sizes[FB_MAX_RANK];
        memcpy(sizes, a.query->sizes, sizeof sizes);
        sizes[a.query->rank - 1] = a.value_width;
        out = fb_make_array(call, a.query->dtype, a.query->rank, sizes);
        scores = out ? fb_make_array(call, a.query->dtype, 2, (const int64_t[]){a.rows, a.columns}) : NULL;
        if (scores && !a.columns) fb_array_fill(out, 0, 0);
        else if (scores && fb_array_count(out)) attend(call, &a, out, fb_array_data(scores));
    }
    fb_array_drop(scores);
    fb_array_drop(a.query);
    fb_array_drop(a.key);
    fb_array_drop(a.value);
    fb_array_drop(a.mask);
    return fb_return_array(call, out, result);
}
