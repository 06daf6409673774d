/* The JSON files of a model as structures. They have been checked against PyTorch's schema, and so have what it asks for. */
#include <math.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/base/grow.h"

#define MAJOR 8 /* of the schema */

/* ---- JSON --------------------------------------------------------------------------------------------------------------- */

/* A member of an object, or NULL, also where `object` is NULL or something else. */
static const fb_json *member(const fb_json *object, const char *name) {
    if (!object || object->kind != FB_JSON_OBJECT) return NULL;
    const fb_json *key = fb_json_first(object);
    for (uint32_t i = 0; i < object->count; i++, key = fb_json_next(key + 1)) {
        if (fb_json_is(key, name)) return key + 1;
    }
    return NULL;
}

static bool is_true(const fb_json *value) {
    return value && value->kind == FB_JSON_TRUE;
}

static const char *text_of(pt_model *m, const fb_json *string) {
    return fb_arena_text(&m->arena, string->text, string->count);
}

static void *rows_for(pt_model *m, const fb_json *list, size_t size) {
    return pt_alloc(m, (list->count + 1) * size);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------ */

const char *pt_dtype_name(int64_t scalar_type) {
    static const char *const names[] = {
        [1] = "uint8",
        [2] = "int8",
        [3] = "int16",
        [4] = "int32",
        [5] = "int64",
        [6] = "float16",
        [7] = "float32",
        [8] = "float64",
        [9] = "complex32",
        [10] = "complex64",
        [11] = "complex128",
        [12] = "bool",
        [13] = "bfloat16",
        [28] = "uint16",
        [29] = "float8_e4m3fn",
        [30] = "float8_e5m2",
        [31] = "float8_e4m3fnuz",
        [32] = "float8_e5m2fnuz",
        [33] = "float8_e8m0fnu",
        [34] = "uint32",
        [35] = "uint64",
    };
    bool is_known = scalar_type > 0 && scalar_type < (int64_t)(sizeof names / sizeof *names);
    return is_known ? names[scalar_type] : NULL;
}

/* {"as_int": 6}; 0 for {"as_expr": {"expr_str": …}}. */
static int64_t number_of(const fb_json *size, pt_meta *meta) {
    const fb_json *number = member(size, "as_int");
    meta->are_counts &= number && number->integer >= 0;
    return number ? number->integer : 0;
}

/* Without `expressions`, only the numbers. */
static bool decode_sizes(pt_model *m, const fb_json *list, pt_meta *meta, int64_t *numbers, const char **expressions) {
    const fb_json *item = fb_json_first(list);
    for (uint32_t i = 0; i < list->count; i++, item = fb_json_next(item)) {
        const fb_json *expression = expressions ? member(member(item, "as_expr"), "expr_str") : NULL;
        numbers[i] = number_of(item, meta);
        if (expression && !(expressions[i] = text_of(m, expression))) return false;
    }
    return true;
}

/* "cpu", or "cuda:0" */
static const char *decode_device(pt_model *m, const fb_json *device) {
    const fb_json *type = member(device, "type"), *index = member(device, "index");
    if (!index || index->kind != FB_JSON_INT) return text_of(m, type);
    return pt_format(m, "%.*s:%lld", (int)type->count, type->text, (long long)index->integer);
}

static pt_meta *decode_meta(pt_model *m, const fb_json *json) {
    pt_meta *made = pt_alloc(m, sizeof *made);
    const fb_json *sizes = member(json, "sizes"), *strides = member(json, "strides");
    if (!made) return NULL;
    *made = (pt_meta){.scalar_type = member(json, "dtype")->integer,
                      .dimensions = sizes->count,
                      .stride_count = strides->count,
                      .requires_grad = is_true(member(json, "requires_grad")),
                      .is_strided = member(json, "layout")->integer == PT_STRIDED,
                      .are_counts = true,
                      .sizes = rows_for(m, sizes, sizeof *made->sizes),
                      .strides = rows_for(m, strides, sizeof *made->strides),
                      .expressions = rows_for(m, sizes, sizeof *made->expressions),
                      .device = decode_device(m, member(json, "device"))};
    const char *name = pt_dtype_name(made->scalar_type);
    made->dtype = name ? fb_dtype_find(name) : FB_DTYPE_UNKNOWN;
    made->offset = number_of(member(json, "storage_offset"), made);
    bool ok = made->device && made->sizes && made->strides && made->expressions;
    ok = ok && decode_sizes(m, sizes, made, made->sizes, made->expressions);
    return ok && decode_sizes(m, strides, made, made->strides, NULL) ? made : NULL;
}

/* ---- arguments ---------------------------------------------------------------------------------------------------------- */

static bool refer(pt_model *m, pt_program *p, const fb_json *name, uint32_t *result) {
    bool is_new;
    if (pt_keys_find(&p->by_name, name->text, name->count, result)) return true;
    const char *text = text_of(m, name);
    if (!text || !FB_GROW(p->results, p->result_count, p->result_capacity)) return false;
    *result = p->result_count++;
    p->results[*result] = (pt_result){.name = text, .row = UINT32_MAX};
    return pt_keys_put(&p->by_name, text, name->count, *result, &is_new);
}

static double float_of(const fb_json *value) {
    if (value->kind == FB_JSON_REAL) return value->real;
    if (value->kind == FB_JSON_INT) return (double)value->integer;
    return fb_json_is(value, "Infinity") ? INFINITY : fb_json_is(value, "-Infinity") ? -INFINITY : NAN;
}

static pt_program *decode_graph(pt_model *m, const fb_json *graph, pt_program *parent, const char *name);

static bool decode_argument(pt_model *m, pt_program *p, const fb_json *argument, pt_argument *out);
static bool decode_value(pt_model *m, pt_program *p, const fb_json *value, const char *form, pt_argument *out);

/* The items of a list, or of an object, whose keys they have. Numbers take less room. */
static bool decode_items(pt_model *m, pt_program *p, const fb_json *json, const char *form, pt_argument *out) {
    bool are_numbers = *form == PT_INT || *form == PT_BOOL || *form == PT_FLOAT;
    out->count = json->count;
    out->of = are_numbers ? (uint8_t)*form : 0;
    out->items = rows_for(m, json, are_numbers ? sizeof *out->values : sizeof *out->items);
    const fb_json *item = fb_json_first(json);
    bool ok = out->items != NULL;
    for (uint32_t i = 0; i < json->count && ok; i++, item = fb_json_next(item)) {
        pt_argument number = {0}, *made = are_numbers ? &number : &out->items[i];
        made->kind = out->kind;
        if (out->form == PT_DICT) ok = (made->key = text_of(m, item++)) && decode_argument(m, p, item, made);
        else ok = decode_value(m, p, item, form, made);
        if (are_numbers) out->values[i] = number.integer;
    }
    return ok;
}

static bool decode_complex(pt_model *m, const fb_json *json, pt_argument *out) {
    const pt_argument real = {.real = float_of(member(json, "real"))}, imaginary = {.real = float_of(member(json, "imag"))};
    out->count = 2;
    out->of = PT_FLOAT;
    out->values = pt_alloc(m, 2 * sizeof *out->values);
    if (!out->values) return false;
    out->values[0] = real.integer;
    out->values[1] = imaginary.integer;
    return true;
}

static const char *name_at(const char *const *names, size_t count, int64_t number) {
    return number > 0 && number < (int64_t)count ? names[number] : NULL;
}

static bool decode_value(pt_model *m, pt_program *p, const fb_json *value, const char *form, pt_argument *out) {
    static const char *const layouts[] = {NULL,         "sparse_coo", "sparse_csr", "sparse_csc",
                                          "sparse_bsr", "sparse_bsc", "_mkldnn",    "strided"};
    static const char *const formats[] = {NULL, "contiguous_format", "channels_last", "channels_last_3d", "preserve_format"};
    const char *kind = out->kind;
    out->form = (uint8_t)*form;
    switch (*form) {
    case PT_TENSOR: return refer(m, p, member(value, "name"), &out->result);
    case PT_SYMBOL: return refer(m, p, value, &out->result);
    case '|': return decode_argument(m, p, value, out) && (out->kind = kind);
    case PT_LIST:
    case PT_TUPLE:
    case PT_DICT: return decode_items(m, p, value, form + 1, out);
    case PT_BOOL: return out->integer = is_true(value), true;
    case PT_FLOAT: return out->real = float_of(value), true;
    case PT_COMPLEX: return decode_complex(m, value, out);
    case PT_DEVICE: return (out->text = decode_device(m, value)) != NULL;
    case PT_STRING:
    case PT_OPERATOR: return (out->text = text_of(m, value)) != NULL;
    case PT_GRAPH:
        return (out->program = decode_graph(m, member(value, "graph"), p, text_of(m, member(value, "name")))) != NULL;
    case PT_NONE: return true;
    case PT_DTYPE: return out->text = pt_dtype_name(value->integer), true;
    case PT_LAYOUT: return out->text = name_at(layouts, sizeof layouts / sizeof *layouts, value->integer), true;
    case PT_MEMORY_FORMAT: return out->text = name_at(formats, sizeof formats / sizeof *formats, value->integer), true;
    default: return out->integer = value->integer, true;
    }
}

/* A member of a union and its form: letters of pt_form, those of a list before those of its items; "|" is another union. */
static bool decode_argument(pt_model *m, pt_program *p, const fb_json *argument, pt_argument *out) {
    static const char *const forms[][2] = {
        {"as_none", "n"},
        {"as_name", "s"},
        {"as_tensor", "t"},
        {"as_tensors", "[t"},
        {"as_int", "i"},
        {"as_ints", "[i"},
        {"as_float", "f"},
        {"as_floats", "[f"},
        {"as_bool", "b"},
        {"as_bools", "[b"},
        {"as_string", "\""},
        {"as_strings", "[\""},
        {"as_sym_int", "|"},
        {"as_sym_ints", "[|"},
        {"as_sym_float", "|"},
        {"as_sym_floats", "[|"},
        {"as_sym_bool", "|"},
        {"as_sym_bools", "[|"},
        {"as_scalar_type", "d"},
        {"as_memory_format", "m"},
        {"as_layout", "l"},
        {"as_device", "v"},
        {"as_graph", "g"},
        {"as_optional_tensors", "[|"},
        {"as_nested_tensors", "[[t"},
        {"as_int_lists", "[(i"},
        {"as_float_lists", "[[f"},
        {"as_complex", "c"},
        {"as_operator", "o"},
        {"as_string_to_argument", "{"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const fb_json *value = member(argument, forms[i][0]);
        if (!value) continue;
        out->kind = forms[i][0];
        return decode_value(m, p, value, forms[i][1], out);
    }
    out->form = PT_UNKNOWN;
    return (out->kind = text_of(m, fb_json_first(argument))) != NULL;
}

static bool decode_arguments(pt_model *m, pt_program *p, const fb_json *list, pt_arguments *out) {
    *out = (pt_arguments){rows_for(m, list, sizeof *out->rows), list->count};
    const fb_json *item = fb_json_first(list);
    bool ok = out->rows != NULL;
    for (uint32_t i = 0; i < list->count && ok; i++, item = fb_json_next(item)) {
        const fb_json *name = member(item, "arg") ? member(item, "name") : NULL, *kind = member(item, "kind");
        if (name) out->rows[i].key = text_of(m, name);
        if (name && kind && kind->kind == FB_JSON_INT && kind->integer > 0 && kind->integer < 3)
            out->rows[i].said = (int8_t)kind->integer;
        ok = (!name || out->rows[i].key) && decode_argument(m, p, name ? member(item, "arg") : item, &out->rows[i]);
    }
    return ok;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------------- */

static bool decode_nodes(pt_model *m, pt_program *p, const fb_json *list) {
    p->nodes = rows_for(m, list, sizeof *p->nodes);
    p->node_count = list->count;
    const fb_json *json = fb_json_first(list);
    bool ok = p->nodes != NULL;
    for (uint32_t i = 0; i < list->count && ok; i++, json = fb_json_next(json)) {
        const fb_json *name = member(json, "name"), *single = member(json, "is_hop_single_tensor_return");
        pt_node *node = &p->nodes[i];
        node->target = text_of(m, member(json, "target"));
        node->is_tuple_of_one = single && single->kind == FB_JSON_FALSE;
        if (name && name->count) node->name = text_of(m, name);
        ok = fb_work_goes_on(m->work, 256) && node->target && (node->name || !name || !name->count) &&
             decode_arguments(m, p, member(json, "inputs"), &node->inputs) &&
             decode_arguments(m, p, member(json, "outputs"), &node->outputs);
    }
    return ok;
}

/* The graph's tables of values. */
static bool decode_values(pt_model *m, pt_program *p, const fb_json *graph) {
    static const char *const tables[] = {"tensor_values", "sym_int_values", "sym_float_values", "sym_bool_values"};
    for (size_t table = 0; table < sizeof tables / sizeof *tables; table++) {
        const fb_json *values = member(graph, tables[table]), *key = values ? fb_json_first(values) : NULL;
        for (uint32_t i = 0; values && i < values->count && fb_work_goes_on(m->work, 64); i++, key = fb_json_next(key + 1)) {
            uint32_t result;
            if (!refer(m, p, key, &result)) return false;
            p->results[result].is_number |= table > 0;
            if (table == 0 && !(p->results[result].meta = decode_meta(m, key + 1))) return false;
        }
    }
    return true;
}

static pt_program *decode_graph(pt_model *m, const fb_json *graph, pt_program *parent, const char *name) {
    if (m->depth >= PT_MOST_DEPTH || m->program_count == sizeof m->programs / sizeof *m->programs) {
        pt_unsupported(m, m->program_file.name, "there are too many nested programs");
        return NULL;
    }
    pt_program *p = name ? pt_alloc(m, sizeof *p) : NULL;
    if (!p) return NULL;
    m->programs[m->program_count++] = p;
    *p = (pt_program){.parent = parent,
                      .name = name,
                      .row = UINT32_MAX,
                      .path = parent && parent->path[0] ? pt_format(m, "%s.%s", parent->path, name) : name,
                      .is_single = is_true(member(graph, "is_single_tensor_return"))};
    m->depth++;
    bool ok = p->path && decode_values(m, p, graph) && decode_arguments(m, p, member(graph, "inputs"), &p->inputs) &&
              decode_nodes(m, p, member(graph, "nodes")) && decode_arguments(m, p, member(graph, "outputs"), &p->outputs);
    m->depth--;
    return ok ? p : NULL;
}

/* ---- files -------------------------------------------------------------------------------------------------------------- */

static bool decode_specs(pt_model *m, const fb_json *list, pt_specs *out) {
    static const struct {
        const char *kind, *name;
        bool is_mutation;
    } named[] = {
        {"parameter", "parameter_name", false},
        {"buffer", "buffer_name", false},
        {"tensor_constant", "tensor_constant_name", false},
        {"constant_input", "name", false},
        {"buffer_mutation", "buffer_name", true},
        {"parameter_mutation", "parameter_name", true},
        {"user_input_mutation", "user_input_name", true},
    };
    *out = (pt_specs){rows_for(m, list, sizeof *out->rows), list->count};
    const fb_json *spec = fb_json_first(list);
    for (uint32_t i = 0; i < list->count && out->rows; i++, spec = fb_json_next(spec)) {
        const fb_json *key = fb_json_first(spec), *inner;
        pt_spec *row = &out->rows[i];
        row->kind = text_of(m, key);
        row->is_persistent = is_true(member(key + 1, "persistent"));
        for (size_t k = 0; k < sizeof named / sizeof *named; k++) {
            if (!(inner = member(spec, named[k].kind))) continue;
            row->name = text_of(m, member(inner, named[k].name));
            row->is_mutation = named[k].is_mutation;
            if (!row->name) return false;
        }
        if (!row->kind) return false;
    }
    return out->rows != NULL;
}

static bool decode_payload(pt_model *m, const fb_json *key, pt_payload *out) {
    const fb_json *row = key + 1, *meta = member(row, "tensor_meta");
    bool is_pickle = is_true(member(row, "use_pickle")) || meta->kind == FB_JSON_NULL;
    *out = (pt_payload){.owner = text_of(m, key),
                        .record = text_of(m, member(row, "path_name")),
                        .is_parameter = is_true(member(row, "is_param")),
                        .meta = is_pickle ? NULL : decode_meta(m, meta)};
    return out->owner && out->record && (out->meta || is_pickle);
}

static bool decode_config(pt_model *m, pt_file *file) {
    const fb_json *config = member(file->root, "config"), *key = fb_json_first(config);
    file->payloads = rows_for(m, config, sizeof *file->payloads);
    bool ok = file->payloads != NULL;
    for (; file->payload_count < config->count && ok; key = fb_json_next(key + 1))
        ok = fb_work_goes_on(m->work, 256) && decode_payload(m, key, &file->payloads[file->payload_count++]);
    return ok;
}

/* The flattening of nested arguments and results, and the dialect of the calls. */
static bool decode_rest(pt_model *m, const fb_json *root) {
    const fb_json *version = member(root, "torch_version"), *verifiers = member(root, "verifiers");
    const fb_json *calls = member(member(root, "graph_module"), "module_call_graph");
    const fb_json *signature = calls->count ? member(fb_json_first(calls), "signature") : NULL;
    m->producer = version ? pt_format(m, "torch.export %.*s", (int)version->count, version->text) : "torch.export";
    static const char *const members[][2] = {
        {"forward_arg_names", "arguments"}, {"in_spec", "in_spec"}, {"out_spec", "out_spec"}};
    const fb_json *names = member(signature, "forward_arg_names");
    fb_buffer flattening = {0};
    for (size_t i = 0; names && names->kind == FB_JSON_ARRAY && i < 3; i++) {
        fb_buffer_printf(&flattening, ",\"%s\":", members[i][1]);
        fb_json_canonical(member(signature, members[i][0]), &flattening);
    }
    m->flattening = pt_keep(m, &flattening);
    if (verifiers && verifiers->count && !(m->dialect = text_of(m, fb_json_first(verifiers)))) return false;
    return m->producer && m->flattening;
}

bool pt_check_version(pt_model *m) {
    const fb_json *major = member(member(m->program_file.root, "schema_version"), "major");
    if (!major || major->kind != FB_JSON_INT) return pt_bad(m, m->program_file.name, "the schema_version is missing");
    return major->integer == MAJOR ||
           pt_unsupported(m, m->program_file.name,
                          "the schema_version is %lld; version %d is read. Save the program again with PyTorch 2.13",
                          (long long)major->integer, MAJOR);
}

bool pt_decode(pt_model *m) {
    const fb_json *module = member(m->program_file.root, "graph_module"), *signature = member(module, "signature");
    bool ok = decode_config(m, &m->weights_file) && decode_config(m, &m->constants_file) &&
              decode_specs(m, member(signature, "input_specs"), &m->input_specs) &&
              decode_specs(m, member(signature, "output_specs"), &m->output_specs) && decode_rest(m, m->program_file.root) &&
              decode_graph(m, member(module, "graph"), NULL, "");
    fb_scan_free(&m->program_file.scan); /* the trees, which nothing reads any more */
    fb_scan_free(&m->weights_file.scan);
    fb_scan_free(&m->constants_file.scan);
    return ok;
}
