/* The weights and constants of a model: which records of the archive they are. */
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/base/grow.h"

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
    if (!FB_GROW(m->tensors, m->tensor_count, m->tensor_capacity)) return NULL;
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
