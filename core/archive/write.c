/* The document of a model: its nodes, the modules that own its state, its tensors. */
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/operators/spelling.h"

static void put_text(fb_buffer *out, const char *text) {
    fb_buffer_json_string(out, text, strlen(text));
}

/* ---- what is recorded of results ---------------------------------------------------------------------------------------- */

static bool put_size(pt_model *m, const pt_row *row, uint32_t dimension, fb_buffer *out) {
    const char *expression = row->meta->expressions[dimension];
    if (!expression) return fb_buffer_int(out, row->meta->sizes[dimension]), true;
    fb_buffer printed = {0};
    bool ok = fb_print_size(expression, strlen(expression), &printed);
    if (ok) fb_buffer_json_string(out, printed.data, printed.size);
    else pt_unsupported(m, m->program_file.name, "\"%s\" has the size %s, which is not supported", row->name, expression);
    fb_buffer_free(&printed);
    return ok;
}

static void look_at_weights(pt_model *m, const pt_program *p) {
    for (uint32_t i = 0; i < p->count; i++) {
        const pt_row *row = &p->rows[i];
        fb_dtype was = row->kind == PT_STATE && row->meta ? row->meta->dtype : FB_DTYPE_UNKNOWN;
        if (was && was != m->tensors[row->tensor].dtype) m->exported_as[m->tensors[row->tensor].dtype] = was;
    }
}

fb_dtype pt_exported_as(const pt_model *m, fb_dtype dtype) {
    if (dtype) return m->exported_as[dtype] ? m->exported_as[dtype] : dtype;
    for (size_t i = 0; i < FB_DTYPE_COUNT; i++) {
        if (!m->exported_as[i] || m->exported_as[i] == dtype) continue;
        if (dtype) return FB_DTYPE_UNKNOWN;
        dtype = m->exported_as[i];
    }
    return dtype;
}

/* Was it recorded before weights of that dtype were cast? */
static bool is_outdated(const pt_model *m, fb_dtype recorded) {
    bool is_any = false;
    for (size_t i = 0; i < FB_DTYPE_COUNT && recorded; i++) is_any |= m->exported_as[i] == recorded;
    return is_any;
}

/* Shape and dtype; a result's device is recorded where a cast reads it. */
static bool put_meta(pt_model *m, const pt_row *row, fb_buffer *out) {
    const pt_meta *meta = row->meta;
    fb_buffer_string(out, ",\"meta\":{");
    if (meta) {
        if (meta->dimensions != meta->stride_count)
            return pt_bad(m, m->program_file.name, "the tensor_values of \"%s\" are incomplete", row->name);
        fb_buffer_string(out, "\"shape\":[");
        for (uint32_t i = 0; i < meta->dimensions; i++) {
            if (i) fb_buffer_char(out, ',');
            if (!put_size(m, row, i, out)) return false;
        }
        fb_buffer_char(out, ']');
        bool is_state = row->kind == PT_STATE;
        fb_dtype known = is_state ? m->tensors[row->tensor].dtype : meta->dtype;
        if (known && (is_state || !is_outdated(m, known))) fb_buffer_printf(out, ",\"dtype\":\"%s\"", fb_dtype_name(known));
        if (row->decides_device && meta->is_strided) {
            fb_buffer_string(out, ",\"device\":");
            put_text(out, meta->device);
        }
    }
    fb_buffer_char(out, '}');
    return true;
}

/* A cast to a device reads its argument's device. */
static void mark_device(pt_program *p, const pt_row *row) {
    static const char deciding[] = {PT_DEVICE, PT_LAYOUT, PT_STRING, PT_TENSOR, PT_SYMBOL, '\0'};
    if (!fb_is_spelled(row->target, FB_ATEN "to.") && !fb_is_spelled(row->target, FB_ATEN "_to_copy.")) return;
    const pt_argument *inputs = row->node->inputs.rows;
    uint32_t of = row->node->inputs.count && inputs->form == PT_TENSOR ? p->results[inputs->result].row : UINT32_MAX;
    if (of == UINT32_MAX) return;
    for (uint32_t i = 1; i < row->node->inputs.count; i++)
        p->rows[of].decides_device |= strchr(deciding, (char)inputs[i].form) != NULL;
}

static void say_training(pt_model *m, const pt_row *row) {
    if (fb_is_spelled(row->target, FB_HIGHER_ORDER)) return;
    for (uint32_t i = 0; i < row->node->inputs.count; i++) {
        const pt_argument *input = &row->node->inputs.rows[i];
        bool is_flag = strcmp(input->key, "training") == 0 || strcmp(input->key, "train") == 0;
        m->is_training |= is_flag && strcmp(input->kind, "as_bool") == 0 && input->integer;
    }
}

static void look_at_calls(pt_model *m, pt_program *p) {
    for (uint32_t i = 0; i < p->count; i++) {
        if (p->rows[i].is_dead) continue;
        if (p->rows[i].program) look_at_calls(m, p->rows[i].program);
        if (!p->rows[i].node) continue;
        mark_device(p, &p->rows[i]);
        say_training(m, &p->rows[i]);
    }
}

/* ---- nodes -------------------------------------------------------------------------------------------------------------- */

static bool put_node(pt_model *m, const pt_program *p, const pt_row *row, fb_buffer *out) {
    static const char *const opcodes[] = {
        [PT_INPUT] = "placeholder",  [PT_STATE] = "get_attr",     [PT_PROGRAM] = "get_attr", [PT_CALL] = "call_function",
        [PT_ITEM] = "call_function", [PT_COPY] = "call_function", [PT_OUTPUT] = "output",
    };
    pt_spelling a = {.m = m, .program = p, .row = row};
    fb_buffer kwargs = {0};
    fb_buffer_string(out, "{\"name\":");
    put_text(out, row->name);
    fb_buffer_printf(out, ",\"op\":\"%s\",\"target\":", opcodes[row->kind]);
    put_text(out, row->target);
    fb_buffer_string(out, ",\"args\":[");
    bool ok = pt_put_all(&a, out, &kwargs);
    fb_buffer_string(out, "],\"kwargs\":{");
    fb_buffer_append(out, kwargs.size ? kwargs.data : "", kwargs.size);
    fb_buffer_char(out, '}');
    ok = ok && !kwargs.failed && put_meta(m, row, out);
    fb_buffer_char(out, '}');
    fb_buffer_free(&kwargs);
    return ok;
}

static bool put_nodes(pt_model *m, const pt_program *p, fb_buffer *out) {
    bool ok = true;
    bool is_first = true;
    for (uint32_t i = 0; i < p->count && ok; i++) {
        if (p->rows[i].is_dead) continue;
        if (!is_first) fb_buffer_char(out, ',');
        is_first = false;
        ok = fb_work_goes_on(m->work, 256) && put_node(m, p, &p->rows[i], out);
    }
    return ok;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------ */

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
    if ((rank != 4 && rank != 5) || t->count <= t->shape[0] || !is_channels_last(t, pt_is_contiguous(t))) return NULL;
    return rank == 4 ? "channels_last" : "channels_last_3d";
}

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
    } else if (t->record->is_deflated || !pt_is_contiguous(t)) {
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

static bool write_tensors(pt_model *m, fb_buffer *out) {
    bool ok = true;
    for (uint32_t i = 0; i < m->order_count && ok; i++) {
        if (i) fb_buffer_char(out, ',');
        ok = fb_work_goes_on(m->work, 256) && write_tensor(m, &m->tensors[m->order[i]], out);
    }
    return ok;
}

/* ---- modules ------------------------------------------------------------------------------------------------------------ */

static void put_owned(const pt_model *m, const pt_owned *owned, bool *is_first, fb_buffer *out) {
    for (; owned; owned = owned->next) {
        if (!*is_first) fb_buffer_char(out, ',');
        *is_first = false;
        put_text(out, owned->key);
        fb_buffer_char(out, ':');
        put_text(out, m->tensors[owned->tensor].name);
    }
}

static void put_lacking(const pt_owned *owned, bool *is_first, fb_buffer *out) {
    for (; owned; owned = owned->next) {
        if (!owned->is_lacking) continue;
        fb_buffer_string(out, *is_first ? ",\"non_persistent\":[" : ",");
        *is_first = false;
        put_text(out, owned->key);
    }
}

static void begin_module(fb_buffer *out, const char *path, bool is_program) {
    if (path[0]) fb_buffer_char(out, ',');
    fb_buffer_string(out, "{\"path\":");
    put_text(out, path);
    fb_buffer_printf(out, ",\"type\":\"%s\",\"config\":{}", is_program ? FB_TYPE_GRAPH_MODULE : FB_TYPE_MODULE);
}

/* A nested program, and those within it. */
static bool put_program(pt_model *m, const pt_program *p, fb_buffer *out) {
    begin_module(out, p->path, true);
    fb_buffer_printf(out, ",\"parameters\":{},\"buffers\":{},\"training\":%s,\"graph\":{\"nodes\":[",
                     m->is_training ? "true" : "false");
    bool ok = put_nodes(m, p, out);
    fb_buffer_string(out, "]}}");
    for (uint32_t i = 0; i < p->count && ok; i++) {
        if (p->rows[i].kind == PT_PROGRAM && !p->rows[i].is_dead) ok = put_program(m, p->rows[i].program, out);
    }
    return ok;
}

static bool put_module(pt_model *m, const pt_module *module, fb_buffer *out) {
    if (module->program) return put_program(m, module->program, out);
    bool is_first = true, none_lacks = true, ok = true;
    if (!module->path[0] || module->parameters || module->buffers || module->constants) {
        begin_module(out, module->path, false);
        fb_buffer_string(out, ",\"parameters\":{");
        put_owned(m, module->parameters, &is_first, out);
        is_first = true;
        fb_buffer_string(out, "},\"buffers\":{");
        put_owned(m, module->buffers, &is_first, out);
        put_owned(m, module->constants, &is_first, out);
        fb_buffer_char(out, '}');
        put_lacking(module->buffers, &none_lacks, out);
        put_lacking(module->constants, &none_lacks, out);
        fb_buffer_printf(out, "%s,\"training\":%s}", none_lacks ? "" : "]", m->is_training ? "true" : "false");
    }
    for (const pt_module *child = module->children; child && ok; child = child->next) ok = put_module(m, child, out);
    return ok;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------------- */

/* Where the document comes from, and how nested arguments and results are made flat. */
static void put_metadata(pt_model *m, fb_buffer *out) {
    fb_buffer_string(out, "{\"archive\":{\"blob\":");
    put_text(out, m->blob);
    fb_buffer_string(out, ",\"model\":");
    put_text(out, m->name);
    fb_buffer_string(out, "},\"producer\":");
    put_text(out, m->producer);
    fb_buffer_string(out, m->flattening);
    fb_buffer_char(out, '}');
}

bool pt_write_document(pt_model *m, fb_buffer *out) {
    pt_program *p = m->programs[0];
    if (!m->dialect) return pt_bad(m, m->program_file.name, "the verifiers are missing");
    if (strcmp(m->dialect, "TRAINING") != 0 && !pt_remove_dead(m, p)) return false;
    look_at_calls(m, p);
    if (!pt_make_modules(m) || !pt_place_tensors(m)) return false;
    look_at_weights(m, p);
    fb_buffer_string(out, "{\"format\":\"foldback.graph/1\",\"name\":");
    put_text(out, m->name);
    fb_buffer_string(out, ",\"nodes\":[");
    if (!put_nodes(m, p, out)) return false;
    fb_buffer_string(out, "],\"modules\":[");
    if (!put_module(m, m->root, out)) return false;
    fb_buffer_string(out, "],\"tensors\":[");
    if (!write_tensors(m, out)) return false;
    fb_buffer_string(out, "],\"metadata\":");
    put_metadata(m, out);
    fb_buffer_char(out, '}');
    return !m->status;
}
