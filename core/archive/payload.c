/* The weights and constants of a model: which records of the archive they are, and how the document has them. */
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/base/sort.h"

/* A tensor that shares the memory of another one, as a movement over that one. The same expressions as the Python client's
 * (recipes.py, view_of): structures are compared. */

typedef struct expression {
    const char *text;
    const char *reshaped; /* what is within, when it is a reshape */
} expression;

typedef struct axis {
    int64_t size, stride;
} axis;

typedef struct maker {
    pt_model *m;
    int parts;
} maker;

static const expression none = {NULL, NULL};

static const char *sizes_text(pt_model *m, const int64_t *sizes, uint32_t count) {
    fb_buffer text = {0};
    for (uint32_t i = 0; i < count; i++) {
        if (i) fb_buffer_char(&text, ',');
        fb_buffer_int(&text, sizes[i]);
    }
    return pt_keep(m, &text);
}

/* `is_same`: it has that shape already. */
static expression reshape(maker *k, expression inner, bool is_same, const int64_t *to, uint32_t rank) {
    if (!inner.text || (!inner.reshaped && is_same)) return inner;
    const char *within = inner.reshaped ? inner.reshaped : inner.text, *sizes = sizes_text(k->m, to, rank);
    if (!sizes) return none;
    return (expression){pt_format(k->m, "{\"op\":\"reshape\",\"args\":[%s],\"shape\":[%s]}", within, sizes), within};
}

static expression slice(maker *k, expression inner, int64_t start, int64_t stop, int64_t size) {
    if (!inner.text || (start == 0 && stop == size)) return inner;
    return (expression){pt_format(k->m, "{\"op\":\"slice\",\"args\":[%s],\"axis\":1,\"start\":%lld,\"stop\":%lld}", inner.text,
                                  (long long)start, (long long)stop),
                        NULL};
}

static int64_t product(const axis *dims, uint32_t count) {
    int64_t made = 1;
    for (uint32_t i = 0; i < count; i++) made *= dims[i].size;
    return made;
}

static bool is_run(const axis *dims, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (dims[i].stride != product(dims + i + 1, count - i - 1)) return false;
    }
    return true;
}

static expression repeat(maker *k, expression part, int64_t count) {
    if (!part.text || count == 1) return part;
    fb_buffer text = {0};
    k->parts += count > PT_MOST_PARTS ? PT_MOST_PARTS : (int)count;
    if (k->parts > PT_MOST_PARTS) return none;
    fb_buffer_string(&text, "{\"op\":\"concat\",\"args\":[");
    for (int64_t i = 0; i < count && text.size < (1U << 20); i++) {
        if (i) fb_buffer_char(&text, ',');
        fb_buffer_string(&text, part.text);
    }
    fb_buffer_string(&text, "],\"axis\":1}");
    if (text.size < (1U << 20)) return (expression){pt_keep(k->m, &text), NULL};
    fb_buffer_free(&text);
    return none;
}

/* Takes from each row of a matrix the elements at `offset` plus sums of (size, stride), as a matrix of as many rows. */
static expression columns(maker *k, expression matrix, int64_t rows, int64_t length, int64_t offset, const axis *dims,
                          uint32_t rank) {
    if (++k->parts > PT_MOST_PARTS || !matrix.text) return none;
    int64_t count = product(dims, rank);
    if (is_run(dims, rank)) return slice(k, matrix, offset, offset + count, length);
    int64_t size = dims[0].size, stride = dims[0].stride;
    if (stride == 0) return repeat(k, columns(k, matrix, rows, length, offset, dims + 1, rank - 1), size);
    int64_t start = offset % stride, reach = 1;
    for (uint32_t i = 1; i < rank; i++) reach += (dims[i].size - 1) * dims[i].stride;
    if (start + reach > stride) start = 0;
    int64_t first = offset - start;
    if (reach <= stride && first + size * stride <= length) {
        expression cut = slice(k, matrix, first, first + size * stride, length);
        cut = reshape(k, cut, length == stride && rows == rows * size, (int64_t[]){rows * size, stride}, 2);
        expression part = columns(k, cut, rows * size, stride, start, dims + 1, rank - 1);
        return reshape(k, part, size == 1, (int64_t[]){rows, count}, 2);
    }
    axis fewer[PT_MOST_DIMENSIONS];
    memcpy(fewer, dims, rank * sizeof *dims);
    fewer[0].size--;
    expression head = columns(k, matrix, rows, length, offset, fewer, rank);
    expression last = columns(k, matrix, rows, length, offset + (size - 1) * stride, dims + 1, rank - 1);
    if (!head.text || !last.text) return none;
    return (expression){pt_format(k->m, "{\"op\":\"concat\",\"args\":[%s,%s],\"axis\":1}", head.text, last.text), NULL};
}

/* The recipe that makes `view` from `base`, as JSON; NULL if none does that is not too long, or if memory is out. */
static const char *view_of(pt_model *m, const pt_tensor *base, const pt_tensor *view) {
    maker k = {m, 0};
    uint32_t rank = view->dimensions, used = 0;
    int64_t dims[PT_MOST_DIMENSIONS], back[PT_MOST_DIMENSIONS], shape[PT_MOST_DIMENSIONS];
    axis axes[PT_MOST_DIMENSIONS];
    for (uint32_t i = 0; i < rank; i++) { /* by descending strides; stable */
        uint32_t at = i;
        for (; at > 0 && view->strides[dims[at - 1]] < view->strides[i]; at--) dims[at] = dims[at - 1];
        dims[at] = i;
    }
    for (uint32_t i = 0; i < rank; i++) {
        shape[i] = view->shape[dims[i]];
        back[dims[i]] = i;
        if (shape[i] != 1) axes[used++] = (axis){shape[i], view->strides[dims[i]]};
    }
    fb_buffer name = {0};
    fb_buffer_json_string(&name, base->name, strlen(base->name));
    expression whole = {pt_keep(m, &name), NULL};
    bool is_row = base->dimensions == 2 && base->shape[0] == 1 && base->shape[1] == base->count;
    expression row = reshape(&k, whole, is_row, (int64_t[]){1, base->count}, 2);
    expression made = columns(&k, row, 1, base->count, view->offset - base->offset, axes, used);
    bool is_same =
        made.text == whole.text && base->dimensions == rank && rank && memcmp(base->shape, shape, rank * sizeof *shape) == 0;
    is_same |= made.text == whole.text && base->dimensions == 0 && rank == 0;
    made = reshape(&k, made, is_same, shape, rank);
    bool is_ordered = true;
    for (uint32_t i = 0; i < rank; i++) is_ordered &= back[i] == i;
    if (!is_ordered && made.text) {
        const char *order = sizes_text(m, back, rank);
        made.text = order ? pt_format(m, "{\"op\":\"permute\",\"args\":[%s],\"dims\":[%s]}", made.text, order) : NULL;
    }
    return made.text;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static bool read_count(const fb_json *size, int64_t *out) {
    const fb_json *value = pt_member_of(size, "as_int", FB_JSON_INT);
    if (!value || value->integer < 0) return false;
    *out = value->integer;
    return true;
}

static bool read_counts(pt_model *m, const fb_json *list, int64_t **out) {
    *out = pt_alloc(m, (list->count + 1) * sizeof **out);
    if (!*out) return false;
    const fb_json *item = fb_json_first(list);
    for (uint32_t i = 0; i < list->count; i++, item = fb_json_next(item)) {
        if (!read_count(item, &(*out)[i])) return false;
    }
    return true;
}

/* How many elements, and how far the last one is from the first. False: more than the record can hold. */
static bool measure(pt_tensor *t) {
    size_t element = fb_dtype_size(t->dtype);
    int64_t most = (int64_t)(t->record->size / element), last = 0, step;
    t->count = 1;
    bool is_empty = false;
    for (uint32_t i = 0; i < t->dimensions; i++) is_empty |= t->shape[i] == 0;
    if (is_empty) {
        t->count = t->reach = 0;
        return true;
    }
    for (uint32_t i = 0; i < t->dimensions; i++) {
        if (__builtin_mul_overflow(t->count, t->shape[i], &t->count) || t->count > INT64_MAX / 16) return false;
        if (__builtin_mul_overflow(t->shape[i] - 1, t->strides[i], &step)) return false;
        if (__builtin_add_overflow(last, step, &last)) return false;
    }
    t->reach = last < INT64_MAX ? last + 1 : last;
    return t->offset <= most && t->reach <= most - t->offset;
}

static bool read_meta(pt_model *m, pt_tensor *t, const fb_json *meta) {
    const fb_json *dtype = pt_member(meta, "dtype"), *sizes = pt_member(meta, "sizes"), *strides = pt_member(meta, "strides");
    if (sizes->count != strides->count || sizes->count > PT_MOST_DIMENSIONS)
        return pt_bad(m, t->file, "the tensor_meta of \"%s\" is incomplete", t->key);
    if (pt_member(meta, "layout")->integer != PT_STRIDED)
        return pt_unsupported(m, t->file, "\"%s\" is not strided: a document has no place for sparse tensors", t->key);
    const char *name = pt_dtype_name(dtype->integer);
    t->dtype = name ? fb_dtype_find(name) : FB_DTYPE_UNKNOWN;
    if (!t->dtype)
        return pt_unsupported(m, t->file, "\"%s\" has the dtype %lld, which a document cannot hold", t->key,
                              (long long)dtype->integer);
    t->dimensions = sizes->count;
    t->requires_grad = pt_member(meta, "requires_grad")->kind == FB_JSON_TRUE;
    bool ok = read_counts(m, sizes, &t->shape) && read_counts(m, strides, &t->strides);
    ok = ok && read_count(pt_member(meta, "storage_offset"), &t->offset);
    return ok || pt_bad(m, t->file, "the sizes, strides or storage_offset of \"%s\" are not whole numbers", t->key);
}

static pt_tensor *add_tensor(pt_model *m) {
    if (m->tensor_count == m->tensor_capacity) {
        uint32_t capacity = m->tensor_capacity ? m->tensor_capacity * 2 : 64;
        pt_tensor *tensors = realloc(m->tensors, capacity * sizeof *tensors);
        if (!tensors) return NULL;
        m->tensors = tensors;
        m->tensor_capacity = capacity;
    }
    pt_tensor *t = &m->tensors[m->tensor_count++];
    *t = (pt_tensor){.place = UINT32_MAX};
    return t;
}

static bool is_same_memory(const pt_tensor *a, const pt_tensor *b) {
    return a->record == b->record && a->count && a->dtype == b->dtype && a->dimensions == b->dimensions &&
           a->offset == b->offset && a->is_parameter == b->is_parameter && a->requires_grad == b->requires_grad &&
           memcmp(a->shape, b->shape, a->dimensions * sizeof *a->shape) == 0 &&
           memcmp(a->strides, b->strides, a->dimensions * sizeof *a->strides) == 0;
}

static bool read_payload(pt_model *m, const char *file, const char *folder, const fb_json *key, pt_keys *by_owner,
                         pt_keys *records) {
    const fb_json *row = key + 1, *path = pt_member(row, "path_name"), *meta = pt_member(row, "tensor_meta");
    const char *owner = pt_text(m, key), *record = pt_text(m, path);
    if (m->status) return false;
    if (pt_member(row, "use_pickle")->kind == FB_JSON_TRUE || meta->kind == FB_JSON_NULL)
        return pt_unsupported(m, file,
                              "\"%s\" is a Python pickle (%s), which is never opened; export a model without custom objects",
                              owner, record);
    const char *name = pt_format(m, "%s%s", folder, record);
    const fb_zip_entry *entry = name ? fb_archive_find(m->archive, name) : NULL;
    if (name && !entry) return pt_bad(m, file, "the record %s of \"%s\" is missing", name, owner);
    pt_tensor *t = name ? add_tensor(m) : NULL;
    if (!t) return false;
    *t = (pt_tensor){.key = owner,
                     .file = file,
                     .record = entry,
                     .place = UINT32_MAX,
                     .is_parameter = pt_member(row, "is_param")->kind == FB_JSON_TRUE};
    uint32_t index = m->tensor_count - 1, before;
    if (!read_meta(m, t, meta)) return false;
    if (!measure(t)) return pt_bad(m, file, "\"%s\" is larger than its record %s", owner, name);
    bool is_new = false;
    if (pt_keys_find(records, record, path->count, &before)) {
        const pt_tensor *first = &m->tensors[before];
        if (!t->is_parameter) t->requires_grad |= first->requires_grad;
        for (uint32_t at = before + 1; at && fb_work_goes_on(m->work, 1); at = m->tensors[at - 1].next_of_record) {
            if (is_same_memory(&m->tensors[at - 1], t)) { /* tied: one tensor with several names */
                m->tensor_count--;
                return pt_keys_put(by_owner, key->text, key->count, at - 1, &is_new);
            }
        }
        t->next_of_record = m->tensors[before].next_of_record;
        m->tensors[before].next_of_record = index + 1;
    } else if (!pt_keys_put(records, record, path->count, index, &is_new)) {
        return false;
    }
    return pt_keys_put(by_owner, key->text, key->count, index, &is_new);
}

static bool read_config(pt_model *m, pt_file *file, const char *folder, pt_keys *by_owner) {
    pt_keys records = {0}; /* by name, the first tensor of each */
    bool ok = true;
    const fb_json *config = pt_member(file->root, "config"), *key = fb_json_first(config);
    for (uint32_t i = 0; i < config->count && ok; i++, key = fb_json_next(key + 1)) {
        ok = fb_work_goes_on(m->work, 256) && read_payload(m, file->name, folder, key, by_owner, &records);
    }
    pt_keys_free(&records);
    return ok;
}

bool pt_read_payloads(pt_model *m) {
    return read_config(m, &m->weights_file, "data/weights/", &m->weights) &&
           read_config(m, &m->constants_file, "data/constants/", &m->constants);
}

/* ---- views -------------------------------------------------------------------------------------------------------------- */

static bool is_contiguous(const pt_tensor *t) {
    int64_t step = 1;
    for (uint32_t i = t->dimensions; i-- > 0;) {
        if (t->shape[i] != 1 && t->strides[i] != step) return t->count == 0;
        step *= t->shape[i];
    }
    return true;
}

/* Is it in channels_last? `is_exact`: also the strides of dimensions of one element say so. */
static bool is_channels_last(const pt_tensor *t, bool is_exact) {
    int64_t step = 1;
    for (uint32_t i = 0; i < t->dimensions; i++) { /* channels first, then from the last one back, and the batch */
        uint32_t dimension = i == 0 ? 1 : i + 1 == t->dimensions ? 0 : t->dimensions - i;
        if ((t->shape[dimension] != 1 || is_exact) && t->strides[dimension] != step) return false;
        step *= t->shape[dimension];
    }
    return true;
}

/* The memory format of a tensor that is not row-major, as a document says it; NULL: another one. A tensor may have both orders,
 * as the weight of a convolution of 1x1 has: then its strides decide, as they do in PyTorch. */
static const char *format_of(const pt_tensor *t) {
    uint32_t rank = t->dimensions;
    if ((rank != 4 && rank != 5) || t->count <= t->shape[0] || !is_channels_last(t, is_contiguous(t))) return NULL;
    return rank == 4 ? "channels_last" : "channels_last_3d";
}

/* The largest first, of those the row-major ones; else in the document's order. */
static int by_size(const void *a, const void *b) {
    const pt_tensor *x = *(pt_tensor *const *)a, *y = *(pt_tensor *const *)b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    int difference = (int)is_contiguous(y) - (int)is_contiguous(x);
    if (difference) return difference;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* In bytes; a record has fewer than 2^63. */
static int64_t element_of(const pt_tensor *t) {
    return (int64_t)fb_dtype_size(t->dtype);
}

static int64_t begin_of(const pt_tensor *t) {
    return t->offset * element_of(t);
}

static int64_t end_of(const pt_tensor *t) {
    return (t->offset + t->reach) * element_of(t);
}

/* Bytes modulo a stride, from the first on: of the whole strides among a tensor's nothing is left. */
static int64_t reach_within(const pt_tensor *t, int64_t stride) {
    int64_t element = element_of(t), reach = element;
    for (uint32_t i = 0; i < t->dimensions; i++)
        if (t->shape[i] > 1 && t->strides[i] * element % stride) reach += (t->shape[i] - 1) * t->strides[i] * element;
    return reach;
}

/* Two tensors that interleave without sharing a byte, such as the halves of columns: sure where true. Modulo one of the strides
 * both are a run of bytes. */
static bool is_apart(const pt_tensor *a, const pt_tensor *b) {
    const pt_tensor *both[] = {a, b};
    for (int which = 0; which < 2; which++) {
        const pt_tensor *t = both[which];
        for (uint32_t i = 0; i < t->dimensions; i++) {
            int64_t stride = t->strides[i] * element_of(t);
            if (t->shape[i] < 2 || !stride) continue;
            int64_t distance = (begin_of(b) - begin_of(a)) % stride;
            if (distance < 0) distance += stride;
            if (reach_within(a, stride) <= distance && reach_within(b, stride) <= stride - distance) return true;
        }
    }
    return false;
}

/* Elements of one tensor that overlap each other: sure where false, since by ascending strides each step goes past all before
 * it. */
static bool overlaps_itself(const pt_tensor *t) {
    axis axes[PT_MOST_DIMENSIONS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->dimensions; i++) {
        if (t->shape[i] < 2) continue;
        uint32_t at = count++;
        for (; at > 0 && axes[at - 1].stride > t->strides[i]; at--) axes[at] = axes[at - 1];
        axes[at] = (axis){t->shape[i], t->strides[i]};
    }
    int64_t reach = 1;
    for (uint32_t i = 0; i < count; i++) {
        if (axes[i].stride < reach) return true;
        reach += (axes[i].size - 1) * axes[i].stride;
    }
    return false;
}

static bool place_in_record(pt_model *m, pt_tensor **group, size_t count, pt_tensor **bases) {
    size_t base_count = 0;
    fb_sort(group, count, sizeof *group, by_size);
    for (size_t i = 0; i < count; i++) {
        pt_tensor *t = group[i], *over = NULL;
        size_t overlaps = 0;
        int64_t work = (int64_t)base_count + 1;
        for (size_t j = 0; j < base_count; j++) {
            bool is_near = begin_of(bases[j]) < end_of(t) && begin_of(t) < end_of(bases[j]);
            bool is_over = is_near && !is_apart(bases[j], t);
            if (is_over) over = overlaps++ ? over : bases[j];
            if (is_near) work += (bases[j]->dimensions + t->dimensions) * (bases[j]->dimensions + t->dimensions);
        }
        if (!fb_work_goes_on(m->work, work)) return false;
        if (!overlaps) {
            bases[base_count++] = t;
            continue;
        }
        bool is_within = over->offset <= t->offset && t->offset + t->reach <= over->offset + over->reach;
        bool is_view = overlaps == 1 && is_within && is_contiguous(over) && over->dtype == t->dtype;
        if (is_view) t->recipe = view_of(m, over, t);
        if (m->status) return false;
        if (t->recipe) continue;
        for (size_t j = 0; j < base_count; j++)
            if (begin_of(bases[j]) < end_of(t) && begin_of(t) < end_of(bases[j]) && !is_apart(bases[j], t))
                bases[j]->overlaps = true;
        t->overlaps = true;
        bases[base_count++] = t;
    }
    return true;
}

static int by_record(const void *a, const void *b) {
    const pt_tensor *x = *(pt_tensor *const *)a, *y = *(pt_tensor *const *)b;
    if (x->record != y->record) return x->record < y->record ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

bool pt_place_tensors(pt_model *m) {
    pt_tensor **all = malloc((m->order_count + 1) * sizeof *all), **bases = malloc((m->order_count + 1) * sizeof *bases);
    size_t count = 0;
    bool ok = all && bases;
    for (uint32_t i = 0; ok && i < m->order_count; i++) {
        pt_tensor *t = &m->tensors[m->order[i]];
        if (t->count) all[count++] = t;
        t->overlaps = t->count && overlaps_itself(t);
    }
    if (ok) fb_sort(all, count, sizeof *all, by_record);
    for (size_t from = 0, to; ok && from < count; from = to) {
        for (to = from + 1; to < count && all[to]->record == all[from]->record;) to++;
        if (to - from > 1) ok = place_in_record(m, all + from, to - from, bases);
    }
    free(all);
    free(bases);
    return ok;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

static void gather(const pt_tensor *t, const unsigned char *from, unsigned char *to) {
    size_t element = fb_dtype_size(t->dtype);
    int64_t at[PT_MOST_DIMENSIONS] = {0}, offset = t->offset;
    for (int64_t i = 0; i < t->count; i++) {
        memcpy(to + (size_t)i * element, from + (size_t)offset * element, element);
        for (uint32_t d = t->dimensions; d-- > 0;) {
            offset += t->strides[d];
            if (++at[d] < t->shape[d]) break;
            offset -= t->strides[d] * t->shape[d];
            at[d] = 0;
        }
    }
}

/* The bytes themselves, where they are not a range of the archive. An archive that is still being written has no bytes. */
static bool write_inline(pt_model *m, const pt_tensor *t, fb_buffer *out) {
    if (m->given_count) return true;
    uint64_t size = (uint64_t)t->count * fb_dtype_size(t->dtype);
    m->inline_bytes += size > PT_MOST_INLINE ? PT_MOST_INLINE + 1 : size;
    if (m->inline_bytes > PT_MOST_INLINE)
        return pt_unsupported(m, t->file,
                              "\"%s\" is compressed or not row-major, and more than 64 MiB of such tensors are not "
                              "read: make it contiguous, and save the program with torch.export.save",
                              t->key);
    char *content = NULL;
    const unsigned char *from = m->archive->zip.bytes + t->record->offset;
    if (t->record->is_deflated) {
        if (t->record->size > 4 * PT_MOST_INLINE)
            return pt_unsupported(m, t->file, "the record of \"%s\" is compressed; save the program with torch.export.save",
                                  t->key);
        if (!pt_read_entry(m, t->record, 4 * PT_MOST_INLINE, &content)) return false;
        from = (const unsigned char *)content;
    }
    unsigned char *packed = malloc(size + 1);
    fb_buffer_string(out, ",\"data\":\"");
    char *room = packed ? fb_buffer_reserve(out, size / 3 * 4 + 8) : NULL;
    if (room) {
        gather(t, from, packed);
        out->size += (size_t)EVP_EncodeBlock((unsigned char *)room, packed, (int)size);
        fb_buffer_char(out, '"');
    }
    free(packed);
    free(content);
    if (content) pt_release_entry(m, t->record->size);
    return room;
}

static bool write_tensor(pt_model *m, const pt_tensor *t, fb_buffer *out) {
    fb_buffer_string(out, "{\"name\":");
    fb_buffer_json_string(out, t->name, strlen(t->name));
    fb_buffer_printf(out, ",\"dtype\":\"%s\",\"shape\":[", fb_dtype_name(t->dtype));
    for (uint32_t i = 0; i < t->dimensions; i++) fb_buffer_printf(out, i ? ",%lld" : "%lld", (long long)t->shape[i]);
    fb_buffer_char(out, ']');
    bool by_default = t->is_owned_as_parameter && fb_dtype_is_floating(t->dtype);
    if (t->requires_grad != by_default)
        fb_buffer_string(out, t->requires_grad ? ",\"requires_grad\":true" : ",\"requires_grad\":false");
    bool ok = true;
    if (t->recipe) {
        fb_buffer_printf(out, ",\"recipe\":%s", t->recipe);
    } else if (t->record->is_deflated || !is_contiguous(t)) {
        ok = write_inline(m, t, out);
    } else {
        uint64_t offset = t->count ? (uint64_t)t->offset * fb_dtype_size(t->dtype) : 0;
        fb_buffer_printf(out, ",\"blob\":\"%s\",\"offset\":%llu", m->blob, (unsigned long long)(t->record->offset + offset));
    }
    const char *format = t->recipe ? NULL : format_of(t);
    if (format) fb_buffer_printf(out, ",\"memory_format\":\"%s\"", format);
    if (t->overlaps && !t->recipe) fb_buffer_string(out, ",\"overlaps\":true");
    fb_buffer_char(out, '}');
    return ok;
}

bool pt_write_tensors(pt_model *m, fb_buffer *out) {
    bool ok = true;
    for (uint32_t i = 0; i < m->order_count && ok; i++) {
        if (i) fb_buffer_char(out, ',');
        ok = fb_work_goes_on(m->work, 256) && write_tensor(m, &m->tensors[m->order[i]], out);
    }
    return ok;
}
