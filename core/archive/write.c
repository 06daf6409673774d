/* The document of a model: its nodes, the modules that own its state, its tensors. */
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/operators/spelling.h"

static void put_text(fb_buffer *out, const char *text) {
    fb_buffer_json_string(out, text, strlen(text));
}

/* ---- what is recorded of results ---------------------------------------------------------------------------------------- */

/* {"as_int": 6} or {"as_expr": {"expr_str": …}}. */
static bool put_size(pt_model *m, const pt_row *row, const fb_json *size, fb_buffer *out) {
    const char *kind;
    const fb_json *value = pt_union(size, &kind);
    if (strcmp(kind, "as_int") == 0) {
        fb_buffer_int(out, value->integer);
        return true;
    }
    const fb_json *text = pt_member(value, "expr_str");
    fb_buffer printed = {0};
    bool ok = fb_print_size(text->text, text->count, &printed);
    if (ok) fb_buffer_json_string(out, printed.data, printed.size);
    else pt_unsupported(m, m->program_file.name, "\"%s\" has the size %s, which is not supported", row->name, pt_text(m, text));
    fb_buffer_free(&printed);
    return ok;
}

static pt_tensor *tensor_of(const pt_model *m, const pt_row *row) {
    uint32_t tensor;
    bool is_found = pt_keys_find(&m->weights, row->target, strlen(row->target), &tensor) ||
                    pt_keys_find(&m->constants, row->target, strlen(row->target), &tensor);
    return is_found ? &m->tensors[tensor] : NULL;
}

static fb_dtype recorded_dtype(const pt_row *row) {
    const fb_json *dtype = pt_member(row->value, "dtype");
    const char *name = dtype ? pt_dtype_name(dtype->integer) : NULL;
    return name ? fb_dtype_find(name) : FB_DTYPE_UNKNOWN;
}

static void look_at_weights(pt_model *m, const pt_program *p) {
    for (uint32_t i = 0; i < p->count; i++) {
        const pt_tensor *tensor = p->rows[i].kind == PT_STATE ? tensor_of(m, &p->rows[i]) : NULL;
        fb_dtype was = recorded_dtype(&p->rows[i]);
        if (tensor && was && was != tensor->dtype) m->exported_as[tensor->dtype] = was;
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
    fb_buffer_string(out, ",\"meta\":{");
    const fb_json *value = row->value;
    const fb_json *sizes = pt_member(value, "sizes"), *layout = pt_member(value, "layout");
    if (value && sizes->count != pt_member(value, "strides")->count)
        return pt_bad(m, m->program_file.name, "the tensor_values of \"%s\" are incomplete", row->name);
    if (value) {
        fb_buffer_string(out, "\"shape\":[");
        const fb_json *size = fb_json_first(sizes);
        for (uint32_t i = 0; i < sizes->count; i++, size = fb_json_next(size)) {
            if (i) fb_buffer_char(out, ',');
            if (!put_size(m, row, size, out)) return false;
        }
        fb_buffer_char(out, ']');
        const pt_tensor *tensor = row->kind == PT_STATE ? tensor_of(m, row) : NULL;
        fb_dtype known = tensor ? tensor->dtype : recorded_dtype(row);
        if (known && (tensor || !is_outdated(m, known))) fb_buffer_printf(out, ",\"dtype\":\"%s\"", fb_dtype_name(known));
        if (row->decides_device && layout->integer == PT_STRIDED) {
            fb_buffer_string(out, ",\"device\":");
            pt_put_device(pt_member(value, "device"), out);
        }
    }
    fb_buffer_char(out, '}');
    return true;
}

/* A cast to a device reads its argument's device. */
static void mark_device(pt_program *p, const pt_row *row) {
    bool is_cast = fb_is_spelled(row->target, FB_ATEN "to.") || fb_is_spelled(row->target, FB_ATEN "_to_copy.");
    if (row->kind != PT_CALL || !is_cast) return;
    const fb_json *inputs = pt_member(row->source, "inputs"), *input = fb_json_first(inputs);
    const char *kind;
    const fb_json *first = inputs->count ? pt_union(pt_member(input, "arg"), &kind) : NULL;
    uint32_t of = first && strcmp(kind, "as_tensor") == 0 ? pt_row_of(p, pt_member(first, "name")) : UINT32_MAX;
    if (of == UINT32_MAX) return;
    for (uint32_t i = 1; i < inputs->count; i++) {
        input = fb_json_next(input);
        const fb_json *value = pt_union(pt_member(input, "arg"), &kind);
        if (value && (strcmp(kind, "as_device") == 0 || strcmp(kind, "as_layout") == 0 || strcmp(kind, "as_string") == 0 ||
                      strcmp(kind, "as_tensor") == 0 || pt_member(value, "as_name")))
            p->rows[of].decides_device = true;
    }
}

static void say_training(pt_model *m, const pt_row *row) {
    const fb_json *inputs = row->kind == PT_CALL ? pt_member(row->source, "inputs") : NULL;
    const fb_json *input = inputs ? fb_json_first(inputs) : NULL;
    if (!inputs || fb_is_spelled(row->target, FB_HIGHER_ORDER)) return;
    for (uint32_t i = 0; i < inputs->count; i++, input = fb_json_next(input)) {
        const fb_json *name = pt_member(input, "name"), *given = pt_member(pt_member(input, "arg"), "as_bool");
        bool is_flag = fb_json_is(name, "training") || fb_json_is(name, "train");
        m->is_training |= is_flag && given && given->kind == FB_JSON_TRUE;
    }
}

static void look_at_calls(pt_model *m, pt_program *p) {
    for (uint32_t i = 0; i < p->count; i++) {
        if (p->rows[i].is_dead) continue;
        if (p->rows[i].program) look_at_calls(m, p->rows[i].program);
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
    pt_arguments a = {.m = m, .program = p, .row = row};
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

/* ---- modules ------------------------------------------------------------------------------------------------------------ */

typedef struct owners {
    pt_keys by_path; /* modules, as indexes of `modules` */
    pt_keys seen;    /* owned attributes */
    pt_module **modules;
    uint32_t count, capacity;
    pt_owned **constants; /* in the order of their reading */
} owners;

static pt_module *add_module(pt_model *m, owners *all, pt_module *parent, const char *path, const char *key) {
    bool is_new;
    if (all->count == all->capacity) {
        uint32_t capacity = all->capacity ? all->capacity * 2 : 64;
        pt_module **modules = realloc(all->modules, capacity * sizeof(pt_module *));
        if (!modules) return NULL;
        all->modules = modules;
        all->capacity = capacity;
    }
    pt_module *made = pt_alloc(m, sizeof *made);
    if (!made || !pt_keys_put(&all->by_path, path, strlen(path), all->count, &is_new)) return NULL;
    *made = (pt_module){.path = path, .key = key};
    all->modules[all->count++] = made;
    if (parent) {
        *(parent->last_child ? &parent->last_child->next : &parent->children) = made;
        parent->last_child = made;
    }
    return made;
}

/* The module of that path, with those above it. */
static pt_module *module_at(pt_model *m, owners *all, const char *path, size_t length) {
    pt_module *at = m->root;
    size_t dots = 0;
    for (size_t end = 0; end < length && at;) {
        size_t from = end ? end + 1 : 0;
        end = from + strcspn(path + from, ".");
        if (end > length || ++dots > PT_MOST_DOTS) {
            pt_unsupported(m, m->program_file.name, "the path %s is too long", path);
            return NULL;
        }
        uint32_t index;
        if (pt_keys_find(&all->by_path, path, end, &index)) {
            at = all->modules[index];
            continue;
        }
        const char *whole = fb_arena_text(&m->arena, path, end);
        at = whole ? add_module(m, all, at, whole, whole + from) : NULL;
    }
    return at;
}

static bool own(pt_model *m, owners *all, const pt_row *row, uint32_t *constant_count) {
    const char *kind, *path = row->target, *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    const fb_json *inner = pt_union(row->source, &kind), *persistent = pt_member(inner, "persistent");
    bool is_parameter = strcmp(kind, "parameter") == 0, is_constant = strcmp(kind, "tensor_constant") == 0;
    bool is_lacking = is_constant || (!is_parameter && persistent && persistent->kind == FB_JSON_FALSE), is_new;
    if (!is_parameter && !is_constant && !persistent)
        return pt_bad(m, m->program_file.name, "the buffer \"%s\" is neither persistent nor not", path);
    uint32_t tensor;
    const pt_keys *config = is_lacking ? &m->constants : &m->weights;
    if (!pt_keys_find(config, path, strlen(path), &tensor))
        return pt_bad(m, (is_lacking ? &m->constants_file : &m->weights_file)->name, "\"%s\" is missing", path);
    if (!is_constant && m->tensors[tensor].is_parameter != is_parameter)
        return pt_unsupported(m, m->weights_file.name,
                              "\"%s\" is a parameter here and none in the program, or the other way round", path);
    if (!pt_keys_put(&all->seen, path, strlen(path), 1, &is_new)) return false;
    if (!is_new) return true;
    pt_module *owner = module_at(m, all, path, dot ? (size_t)(dot - path) : 0);
    pt_owned *owned = owner ? pt_alloc(m, sizeof *owned) : NULL;
    if (!owned) return false;
    *owned = (pt_owned){.key = key, .path = path, .tensor = tensor, .is_lacking = is_lacking};
    pt_owned **list = is_parameter ? &owner->parameters : is_constant ? &owner->constants : &owner->buffers;
    pt_owned **last = is_parameter ? &owner->last_parameter : is_constant ? &owner->last_constant : &owner->last_buffer;
    *(*last ? &(*last)->next : list) = owned;
    *last = owned;
    if (is_parameter) m->tensors[tensor].is_owned_as_parameter = true;
    if (is_constant) all->constants[(*constant_count)++] = owned;
    return true;
}

static void take_tensor(pt_model *m, const pt_owned *owned) {
    pt_tensor *t = &m->tensors[owned->tensor];
    if (t->name) return;
    t->name = owned->path;
    t->place = m->order_count;
    m->order[m->order_count++] = owned->tensor;
}

static void take_tensors(pt_model *m, const pt_module *module) {
    for (const pt_owned *owned = module->parameters; owned; owned = owned->next) take_tensor(m, owned);
    for (const pt_owned *owned = module->buffers; owned; owned = owned->next) take_tensor(m, owned);
    for (const pt_module *child = module->children; child; child = child->next) take_tensors(m, child);
}

static bool make_modules(pt_model *m, const pt_program *p) {
    owners all = {.constants = malloc((p->count + 1) * sizeof(pt_owned *))};
    m->order = malloc((m->tensor_count + 1) * sizeof *m->order);
    m->root = pt_alloc(m, sizeof *m->root);
    bool ok = all.constants && m->order && m->root;
    if (ok) *m->root = (pt_module){.path = "", .key = ""};
    uint32_t constants = 0;
    for (uint32_t i = 0; i < p->count && ok; i++) {
        const pt_row *row = &p->rows[i];
        if (row->kind == PT_STATE) ok = own(m, &all, row, &constants);
        if (row->kind != PT_PROGRAM || row->is_dead) continue;
        pt_module *module = add_module(m, &all, m->root, row->program->path, row->target);
        ok = module != NULL;
        if (ok) module->program = row->program;
    }
    if (ok) take_tensors(m, m->root);
    for (uint32_t i = 0; i < constants && ok; i++) take_tensor(m, all.constants[i]);
    pt_keys_free(&all.by_path);
    pt_keys_free(&all.seen);
    free(all.modules);
    free(all.constants);
    return ok;
}

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
    const fb_json *root = m->program_file.root, *version = pt_member(root, "torch_version");
    const fb_json *calls = pt_member(pt_member(root, "graph_module"), "module_call_graph");
    const fb_json *signature = calls->count ? pt_member(fb_json_first(calls), "signature") : NULL;
    const fb_json *names = pt_member_of(signature, "forward_arg_names", FB_JSON_ARRAY);
    fb_buffer_string(out, "{\"archive\":{\"blob\":");
    put_text(out, m->blob);
    fb_buffer_string(out, ",\"model\":");
    put_text(out, m->name);
    fb_buffer_string(out, "},\"producer\":");
    const char *text = version ? pt_format(m, "torch.export %.*s", (int)version->count, version->text) : "torch.export";
    if (text) put_text(out, text);
    if (names) {
        static const char *const members[] = {"in_spec", "out_spec"};
        fb_buffer_string(out, ",\"arguments\":");
        fb_json_canonical(names, out);
        for (size_t i = 0; i < 2; i++) {
            fb_buffer_printf(out, ",\"%s\":", members[i]);
            fb_json_canonical(pt_member(signature, members[i]), out);
        }
    }
    fb_buffer_char(out, '}');
}

/* Which calls a program may have: "TRAINING" is what torch.export gives, "ATEN" and others what decompositions make of that. */
static bool clean_up(pt_model *m, pt_program *p) {
    const fb_json *verifiers = pt_member(m->program_file.root, "verifiers");
    const fb_json *first = verifiers && verifiers->count ? fb_json_first(verifiers) : NULL;
    if (!first) return pt_bad(m, m->program_file.name, "the verifiers are missing");
    return fb_json_is(first, "TRAINING") || pt_remove_dead(m, p);
}

bool pt_write_document(pt_model *m, pt_program *p, fb_buffer *out) {
    if (!clean_up(m, p)) return false;
    look_at_calls(m, p);
    look_at_weights(m, p);
    if (!make_modules(m, p) || !pt_place_tensors(m)) return false;
    fb_buffer_string(out, "{\"format\":\"foldback.graph/1\",\"name\":");
    put_text(out, m->name);
    fb_buffer_string(out, ",\"nodes\":[");
    if (!put_nodes(m, p, out)) return false;
    fb_buffer_string(out, "],\"modules\":[");
    if (!put_module(m, m->root, out)) return false;
    fb_buffer_string(out, "],\"tensors\":[");
    if (!pt_write_tensors(m, out)) return false;
    fb_buffer_string(out, "],\"metadata\":");
    put_metadata(m, out);
    fb_buffer_char(out, '}');
    return !m->status;
}
