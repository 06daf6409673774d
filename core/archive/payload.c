/* The weights and constants of a model: which records of the archive they are. */
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/base/grow.h"

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

static bool is_same_memory(const pt_tensor *a, const pt_tensor *b) {
    return a->record == b->record && a->count && a->dtype == b->dtype && a->dimensions == b->dimensions &&
           a->offset == b->offset && a->is_parameter == b->is_parameter && a->requires_grad == b->requires_grad &&
           memcmp(a->shape, b->shape, a->dimensions * sizeof *a->shape) == 0 &&
           memcmp(a->strides, b->strides, a->dimensions * sizeof *a->strides) == 0;
}

static bool read_payload(pt_model *m, const char *file, const char *folder, const pt_payload *row, pt_keys *by_owner,
                         pt_keys *records) {
    const pt_meta *meta = row->meta;
    if (!meta)
        return pt_unsupported(m, file,
                              "\"%s\" is a Python pickle (%s), which is never opened; export a model without custom objects",
                              row->owner, row->record);
    const char *name = pt_format(m, "%s%s", folder, row->record);
    const fb_zip_entry *entry = name ? fb_archive_find(m->archive, name) : NULL;
    if (name && !entry) return pt_bad(m, file, "the record %s of \"%s\" is missing", name, row->owner);
    if (meta->dimensions != meta->stride_count || meta->dimensions > PT_MOST_DIMENSIONS)
        return pt_bad(m, file, "the tensor_meta of \"%s\" is incomplete", row->owner);
    if (!meta->is_strided)
        return pt_unsupported(m, file, "\"%s\" is not strided: a document has no place for sparse tensors", row->owner);
    if (!meta->dtype)
        return pt_unsupported(m, file, "\"%s\" has the dtype %lld, which a document cannot hold", row->owner,
                              (long long)meta->scalar_type);
    if (!meta->are_counts)
        return pt_bad(m, file, "the sizes, strides or storage_offset of \"%s\" are not whole numbers", row->owner);
    if (!name || !FB_GROW(m->tensors, m->tensor_count, m->tensor_capacity)) return false;
    uint32_t index = m->tensor_count++, before;
    pt_tensor *t = &m->tensors[index];
    *t = (pt_tensor){.key = row->owner,
                     .file = file,
                     .record = entry,
                     .place = UINT32_MAX,
                     .dtype = meta->dtype,
                     .dimensions = meta->dimensions,
                     .shape = meta->sizes,
                     .strides = meta->strides,
                     .offset = meta->offset,
                     .requires_grad = meta->requires_grad,
                     .is_parameter = row->is_parameter};
    if (!measure(t)) return pt_bad(m, file, "\"%s\" is larger than its record %s", row->owner, name);
    bool is_new = false;
    if (pt_keys_find(records, row->record, strlen(row->record), &before)) {
        const pt_tensor *first = &m->tensors[before];
        if (!t->is_parameter) t->requires_grad |= first->requires_grad;
        for (uint32_t at = before + 1; at && fb_work_goes_on(m->work, 1); at = m->tensors[at - 1].next_of_record) {
            if (is_same_memory(&m->tensors[at - 1], t)) { /* tied: one tensor with several names */
                m->tensor_count--;
                return pt_keys_put(by_owner, row->owner, strlen(row->owner), at - 1, &is_new);
            }
        }
        t->next_of_record = m->tensors[before].next_of_record;
        m->tensors[before].next_of_record = index + 1;
    } else if (!pt_keys_put(records, row->record, strlen(row->record), index, &is_new)) {
        return false;
    }
    return pt_keys_put(by_owner, row->owner, strlen(row->owner), index, &is_new);
}

static bool read_config(pt_model *m, pt_file *file, const char *folder, pt_keys *by_owner) {
    pt_keys records = {0}; /* by name, the first tensor of each */
    bool ok = true;
    for (uint32_t i = 0; i < file->payload_count && ok; i++)
        ok = fb_work_goes_on(m->work, 256) && read_payload(m, file->name, folder, &file->payloads[i], by_owner, &records);
    pt_keys_free(&records);
    return ok;
}

bool pt_read_payloads(pt_model *m) {
    return read_config(m, &m->weights_file, "data/weights/", &m->weights) &&
           read_config(m, &m->constants_file, "data/constants/", &m->constants);
}
