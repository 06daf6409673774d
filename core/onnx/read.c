/* A model as a document: its nodes are calls of `onnx.Softmax.v13`, the graphs within are nested programs, and the model's own
 * names are in `meta.onnx`. */
#include <stdlib.h>
#include <string.h>

#include "core/base/base64.h"
#include "core/base/float.h"
#include "core/base/grow.h"
#include "core/base/map.h"
#include "core/document/read.h"
#include "core/graph/namespace.h"
#include "core/graph/python.h"
#include "core/onnx/rewrite.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"

#define NO_NODE SIZE_MAX
#define NODE_TEXT 256                     /* bytes, about: of a node or a tensor, besides its names and values */
#define NUMBER_TEXT 24                    /* of a number */
#define MOST_INTEGERS ((uint64_t)8 << 10) /* bytes of integers that are in the document, where sizes may be made of them */
#define MOST_FLOATS 256

/* A value by its name in the model. */
typedef struct value {
    onnx_bytes name;
    const char *node; /* in the program's document */
} value;

typedef struct program {
    struct program *outer; /* the one that it is nested in, or NULL */
    struct program *next;  /* in the order in which modules are written */
    const onnx_function *function;
    const char *path; /* of its module; "" of the model's graph */
    fb_namespace *names;
    fb_namespace *sizes; /* of the model's graph: names of sizes of its inputs; else NULL */
    fb_map by_name;      /* by hash, index + 1 */
    value *values;
    uint32_t count;
    size_t capacity;
    fb_buffer head, body; /* nodes: placeholders, and the others */
    fb_buffer buffers;    /* members of its module's `buffers` */
    fb_buffer config;     /* members of `config`: of a function, defaults of its attributes that are no tensors or graphs */
    fb_buffer captures;   /* of values of the outer program: items of a list */
    const onnx_opset *imports;
    size_t import_count;
} program;

typedef struct reader {
    onnx_checking c;         /* status and error */
    const char *blob, *name; /* of the model's file */
    program *first, *last;
    fb_map tensor_names; /* hashes of those that are taken; and of the paths of functions, with another seed */
    fb_map functions;    /* by the hash of what they are called, index + 1 */
    fb_map named;        /* hashes of names that training_info and quantization_annotation have */
    fb_buffer tensors;
} reader;

static bool no_memory(reader *r) {
    if (!r->c.status) r->c.status = fb_fail_memory(r->c.error);
    return false;
}

/* So much text more is in memory until the file is closed. */
static bool use(reader *r, uint64_t size) {
    if (!r->c.status) r->c.status = onnx_use(r->c.file, size, r->c.error);
    return !r->c.status;
}

static const char *text_of(reader *r, onnx_bytes text) {
    const char *made = fb_arena_text(&r->c.file->arena, text.text, text.size);
    if (!made) no_memory(r);
    return made;
}

static void put_text(fb_buffer *out, const char *text) {
    fb_buffer_json_string(out, text, strlen(text));
}

static void put_bytes(fb_buffer *out, onnx_bytes text) {
    fb_buffer_json_string(out, text.size ? text.text : "", text.size);
}

/* ---- values by name ----------------------------------------------------------------------------------------------------- */

static const char *find_here(const program *p, onnx_bytes name) {
    uint32_t cursor = 0, at;
    uint64_t hash = fb_hash(name.text, name.size, (uint64_t)(uintptr_t)p);
    while ((at = fb_map_next(&p->by_name, hash, &cursor)) != 0)
        if (onnx_same(p->values[at - 1].name, name)) return p->values[at - 1].node;
    return NULL;
}

static bool define(reader *r, program *p, onnx_bytes name, const char *node) {
    char shown[96];
    if (find_here(p, name)) /* libraries differ in which one is meant */
        return onnx_bad(&r->c, ONNX_IS_model, r->c.file->model, 0,
                        "a nested graph reads the value \"%s\" from around it, and defines it later", onnx_shown(name, shown));
    if (!FB_GROW(p->values, p->count, p->capacity)) return no_memory(r);
    p->values[p->count++] = (value){name, node};
    return fb_map_add(&p->by_name, fb_hash(name.text, name.size, (uint64_t)(uintptr_t)p), p->count) || no_memory(r);
}

/* Appends that something beside the graphs names the value. */
static void put_named(const reader *r, const program *p, onnx_bytes name, fb_buffer *out) {
    if (!p->outer && !p->function && fb_map_get(&r->named, fb_hash(name.text, name.size, 0)))
        fb_buffer_string(out, "\"named\":true,");
}

/* A fresh name of a node, which is like the value's. */
static const char *fresh(reader *r, program *p, onnx_bytes like) {
    const char *text = text_of(r, like), *made = text ? fb_namespace_create(p->names, *text ? text : "value") : NULL;
    if (text && !made) no_memory(r);
    return made;
}

/* Begins a node, up to its target. */
static void begin_node(fb_buffer *out, const char *name, const char *op, const char *target) {
    if (out->size) fb_buffer_char(out, ',');
    fb_buffer_string(out, "{\"name\":");
    put_text(out, name);
    fb_buffer_printf(out, ",\"op\":\"%s\",\"target\":", op);
    put_text(out, target);
}

/* The node that gives a value in this program: a value of an outer one comes in as a placeholder. */
static const char *find(reader *r, program *p, onnx_bytes name) {
    const char *found = find_here(p, name), *outside;
    if (found || !p->outer || r->c.status) return found;
    outside = find(r, p->outer, name);
    const char *node = outside ? fresh(r, p, name) : NULL;
    if (!node || !define(r, p, name, node)) return NULL;
    begin_node(&p->head, node, "placeholder", node);
    fb_buffer_string(&p->head, ",\"args\":[],\"kwargs\":{},\"meta\":{\"onnx\":{\"captured\":");
    put_bytes(&p->head, name);
    fb_buffer_string(&p->head, "}}}");
    fb_buffer_printf(&p->captures, "%s{\"$node\":\"%s\"}", p->captures.size ? "," : "", outside);
    return use(r, NODE_TEXT + 2 * name.size) ? node : NULL;
}

/* ---- types -------------------------------------------------------------------------------------------------------------- */

static bool is_symbol(onnx_bytes name) {
    return name.size && !fb_wrong_symbolic_size(name.text, name.size);
}

static bool is_number(const onnx_dimension *dim) {
    return onnx_has(&dim->head, ONNX_dimension_dim_value) && dim->dim_value >= 0;
}

/* `unknown` names each size that the model does not; NULL: the shape is left out then. */
static bool put_type(fb_buffer *out, const onnx_type *type, fb_namespace *unknown) {
    const onnx_tensor_type *tensor = type ? type->tensor_type : NULL;
    const char *word = tensor ? onnx_dtype_word(tensor->elem_type) : NULL, *fresh = "";
    bool is_known = tensor && tensor->shape;
    for (size_t i = 0; is_known && !unknown && i < tensor->shape->dim.count; i++) {
        const onnx_dimension *dim = &tensor->shape->dim.items[i];
        is_known = is_number(dim) || is_symbol(dim->dim_param);
    }
    if (word) fb_buffer_printf(out, "\"dtype\":\"%s\",", word);
    if (!is_known) return true;
    fb_buffer_string(out, "\"shape\":[");
    for (size_t i = 0; i < tensor->shape->dim.count && fresh; i++) {
        const onnx_dimension *dim = &tensor->shape->dim.items[i];
        if (i) fb_buffer_char(out, ',');
        if (is_number(dim)) fb_buffer_int(out, dim->dim_value);
        else if (is_symbol(dim->dim_param)) put_bytes(out, dim->dim_param);
        else if ((fresh = fb_namespace_create(unknown, "size"))) put_text(out, fresh);
    }
    fb_buffer_string(out, "],");
    return fresh;
}

static void put_dims(fb_buffer *out, const onnx_numbers *dims) {
    onnx_number_cursor cursor = onnx_numbers_from(dims, ONNX_VARINT);
    uint64_t bits;
    fb_buffer_char(out, '[');
    for (size_t i = 0; onnx_numbers_next(&cursor, &bits); i++)
        fb_buffer_printf(out, i ? ",%llu" : "%llu", (unsigned long long)bits);
    fb_buffer_char(out, ']');
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------ */

static void put_base64(fb_buffer *out, const char *bytes, size_t size) {
    fb_buffer_string(out, ",\"data\":\"");
    char *to = fb_buffer_reserve(out, fb_base64_length(size));
    if (to && size) {
        fb_base64_encode((const unsigned char *)bytes, size, to);
        out->size += fb_base64_length(size);
    }
    fb_buffer_char(out, '"');
}

/* Bytes of numbers that are not in the file as such. */
static bool put_data(reader *r, const onnx_tensor *tensor, const onnx_stored *stored, fb_buffer *out) {
    const onnx_numbers *lists[] = {&tensor->float_data, &tensor->int32_data, &tensor->int64_data, &tensor->double_data,
                                   &tensor->uint64_data};
    static const onnx_wire wires[] = {ONNX_FIXED32, ONNX_VARINT, ONNX_VARINT, ONNX_FIXED64, ONNX_VARINT};
    fb_buffer bytes = {0};
    uint64_t bits;
    if (!use(r, 3 * stored->size)) return false; /* as bytes, and as text */
    for (int i = 0; i < 5; i++) {
        onnx_number_cursor cursor = onnx_numbers_from(lists[i], wires[i]);
        if (!lists[i]->count) continue;
        size_t width = (size_t)(stored->size / lists[i]->count); /* a pair is two numbers, packed bytes are one each */
        for (uint64_t k = 0; onnx_numbers_next(&cursor, &bits); k++) {
            if (!fb_work_goes_on(r->c.work, 1)) break;
            for (size_t j = 0; j < width; j++) fb_buffer_char(&bytes, (char)(unsigned char)(bits >> (8 * j)));
        }
    }
    if (!r->c.status) r->c.status = fb_work_status(r->c.work, r->c.error);
    bool ok = !r->c.status && (!bytes.failed || no_memory(r));
    if (ok) put_base64(out, bytes.data, bytes.size);
    fb_buffer_free(&bytes);
    return ok;
}

/* Packed floats are the bytes that they are. */
static const onnx_run *only_run(const onnx_tensor *tensor) {
    const onnx_numbers *numbers = tensor->float_data.count ? &tensor->float_data : &tensor->double_data;
    return numbers->count && numbers->first == numbers->last && numbers->first->is_packed ? numbers->first : NULL;
}

/* A document has so many bytes of a tensor itself: a pass computes with sizes and bounds, and sees no blob. */
static uint64_t most_bytes(const onnx_tensor *tensor) {
    fb_dtype dtype = fb_dtype_find(onnx_dtype_word(tensor->data_type));
    return fb_dtype_is_integer(dtype) ? MOST_INTEGERS : fb_dtype_is_floating(dtype) ? MOST_FLOATS : 0;
}

static bool put_where(reader *r, const onnx_tensor *tensor, fb_buffer *out) {
    onnx_stored stored;
    const char *blob = r->blob;
    if (!onnx_stored_in(&r->c, tensor, &stored)) return false;
    uint64_t offset = stored.offset;
    /* Documents do not have strings, nor elements of less than a byte: these are carried in the model's file alone. */
    if (!fb_dtype_find(onnx_dtype_word(tensor->data_type))) return true;
    if (stored.where == ONNX_EXTERNAL) blob = stored.location->blob;
    if (stored.where == ONNX_RAW && stored.size <= most_bytes(tensor)) {
        if (use(r, 2 * stored.size)) put_base64(out, tensor->raw_data.text, tensor->raw_data.size);
        return !r->c.status;
    }
    if (stored.where == ONNX_TYPED && only_run(tensor)) offset = (uint64_t)(only_run(tensor)->bytes - r->c.file->bytes);
    else if (stored.where == ONNX_TYPED) return put_data(r, tensor, &stored, out);
    if (stored.where == ONNX_NOWHERE && stored.count) return true;
    if (blob) fb_buffer_printf(out, ",\"blob\":\"%s\",\"offset\":%llu", blob, (unsigned long long)offset);
    return true;
}

/* The tensor's name is the model's, where that is in one line, and the first of it; else its owner's path. */
static const char *name_tensor(reader *r, const program *p, const char *node, onnx_bytes wanted) {
    fb_buffer text = {0};
    const char *made = NULL;
    for (unsigned i = 0; !made && !r->c.status; i++) {
        text.size = 0;
        bool is_own = !i && wanted.size && !fb_wrong_label(wanted.text, wanted.size);
        if (is_own) fb_buffer_append(&text, wanted.text, wanted.size);
        else fb_buffer_printf(&text, "%s%s%s", p->path, *p->path ? "." : "", node);
        if (!is_own && i > 1) fb_buffer_printf(&text, "_%u", i - 1);
        uint64_t hash = fb_buffer_text(&text) ? fb_hash(text.data, text.size, 0) : 0;
        if (!text.failed && fb_map_get(&r->tensor_names, hash)) continue;
        made = text.failed ? NULL : fb_arena_text(&r->c.file->arena, text.data, text.size);
        if (!made || !fb_map_put(&r->tensor_names, hash, 1)) no_memory(r);
    }
    fb_buffer_free(&text);
    return r->c.status ? NULL : made;
}

/* A tensor, and the attribute of the program's module that owns it; its name. `sparse` is carried without its bytes. */
static const char *add_owned(reader *r, program *p, const char *attribute, const onnx_tensor *tensor,
                             const onnx_sparse *sparse) {
    const char *name = name_tensor(r, p, attribute, tensor->name);
    if (!name) return NULL;
    if (r->tensors.size) fb_buffer_char(&r->tensors, ',');
    fb_buffer_string(&r->tensors, "{\"name\":");
    put_text(&r->tensors, name);
    fb_buffer_printf(&r->tensors, ",\"dtype\":\"%s\",\"shape\":", onnx_dtype_word(tensor->data_type));
    put_dims(&r->tensors, sparse ? &sparse->dims : &tensor->dims);
    if (!sparse && !put_where(r, tensor, &r->tensors)) return NULL;
    fb_buffer_char(&r->tensors, '}');
    fb_buffer_printf(&p->buffers, "%s\"%s\":", p->buffers.size ? "," : "", attribute);
    put_text(&p->buffers, name);
    return use(r, NODE_TEXT + 2 * strlen(name)) ? name : NULL;
}

/* The same, and the node that reads it, which is the value `like`. `from` is the Constant that it was, or NO_NODE. */
static const char *add_tensor(reader *r, program *p, const onnx_tensor *tensor, const onnx_sparse *sparse, onnx_bytes like,
                              size_t from) {
    const char *node = fresh(r, p, like), *word = onnx_dtype_word(tensor->data_type);
    fb_buffer *out = &p->body;
    if (!node || !add_owned(r, p, node, tensor, sparse)) return NULL;
    begin_node(out, node, "get_attr", node);
    fb_buffer_printf(out, ",\"args\":[],\"kwargs\":{},\"meta\":{\"dtype\":\"%s\",\"shape\":", word);
    put_dims(out, sparse ? &sparse->dims : &tensor->dims);
    fb_buffer_string(out, ",\"onnx\":{");
    put_named(r, p, like, out);
    if (from != NO_NODE) fb_buffer_printf(out, "\"node\":%zu,", from);
    fb_buffer_string(out, "\"value\":");
    put_bytes(out, like);
    fb_buffer_string(out, "}}}");
    return node;
}

static const char *add_sparse(reader *r, program *p, const onnx_sparse *sparse, onnx_bytes like, size_t from) {
    return add_tensor(r, p, sparse->values, sparse, like, from);
}

/* ---- targets ------------------------------------------------------------------------------------------------------------ */

/* A part of a dotted name: what no identifier has becomes `_xx`. */
static void put_word(fb_buffer *out, onnx_bytes text, bool has_dots) {
    bool begins = true;
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.text[i];
        bool is_digit = c >= '0' && c <= '9';
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        bool is_dot = has_dots && c == '.' && !begins && i + 1 < text.size && text.text[i + 1] != '.';
        if (is_letter || is_dot || (is_digit && !begins)) fb_buffer_char(out, (char)c);
        else fb_buffer_printf(out, "_%02x", c);
        begins = is_dot;
    }
}

static bool is_default(onnx_bytes domain) {
    return !domain.size || onnx_is(domain, "ai.onnx");
}

static bool is_same_domain(onnx_bytes a, onnx_bytes b) {
    return is_default(a) ? is_default(b) : onnx_same(a, b);
}

static int64_t imported(const program *p, onnx_bytes domain) {
    for (size_t i = 0; i < p->import_count; i++)
        if (is_same_domain(p->imports[i].domain, domain)) return p->imports[i].version;
    return 1;
}

static uint64_t hash_of_function(const reader *r, onnx_bytes name) {
    return fb_hash(name.text, name.size, (uint64_t)(uintptr_t)r);
}

static const onnx_function *function_of(const reader *r, const onnx_node *node) {
    uint32_t cursor = 0, at;
    while ((at = fb_map_next(&r->functions, hash_of_function(r, node->op_type), &cursor)) != 0) {
        const onnx_function *f = &r->c.file->model->functions.items[at - 1];
        bool is_it = onnx_same(f->name, node->op_type) && onnx_same(f->overload, node->overload);
        if (is_it && is_same_domain(f->domain, node->domain)) return f;
    }
    return NULL;
}

void onnx_put_function(fb_buffer *out, const onnx_function *function) {
    fb_buffer_string(out, FB_ONNX_FUNCTION);
    if (function->domain.size) put_word(out, function->domain, true), fb_buffer_char(out, '.');
    put_word(out, function->name, false);
    if (function->overload.size) fb_buffer_char(out, '.'), put_word(out, function->overload, false);
}

static const char *target_of(reader *r, const program *p, const onnx_node *node) {
    const onnx_function *function = function_of(r, node);
    bool is_standard = is_default(node->domain);
    int64_t version = imported(p, node->domain);
    fb_buffer text = {0};
    if (function) {
        onnx_put_function(&text, function);
    } else {
        if (is_standard) fb_buffer_string(&text, "onnx");
        else put_word(&text, node->domain, true);
        fb_buffer_char(&text, '.');
        put_word(&text, node->op_type, false);
        int64_t own = is_standard ? fb_onnx_version(node->op_type.text, node->op_type.size, version) : 0;
        fb_buffer_printf(&text, ".v%lld", (long long)(own ? own : version));
    }
    const char *made = fb_buffer_text(&text) ? fb_arena_text(&r->c.file->arena, text.data, text.size) : NULL;
    fb_buffer_free(&text);
    if (!made) no_memory(r);
    return made;
}

/* ---- attributes --------------------------------------------------------------------------------------------------------- */

static void put_float(fb_buffer *out, float number) {
    char text[FB_FLOAT_MAX];
    fb_float_repr((double)number, text);
    fb_buffer_printf(out, "{\"$float\":\"%s\"}", text);
}

static void put_int(fb_buffer *out, int64_t number) {
    bool is_plain = number > -((int64_t)1 << 53) && number < (int64_t)1 << 53;
    fb_buffer_printf(out, is_plain ? "%lld" : "{\"$int\":\"%lld\"}", (long long)number);
}

/* Text, or bytes that are not, as base64. */
static void put_string(fb_buffer *out, onnx_bytes text) {
    const unsigned char *at = (const unsigned char *)(text.size ? text.text : ""), *end = at + text.size;
    size_t size = 1;
    for (; at < end && size && *at; at += size) size = fb_utf8_length(at, end);
    if (at == end) {
        put_bytes(out, text);
        return;
    }
    fb_buffer_string(out, "{\"$opaque\":\"bytes:");
    char *to = fb_buffer_reserve(out, fb_base64_length(text.size));
    if (to) fb_base64_encode((const unsigned char *)text.text, text.size, to), out->size += fb_base64_length(text.size);
    fb_buffer_string(out, "\"}");
}

static bool read_nested(reader *r, program *p, const onnx_graph *graph, onnx_bytes like, fb_buffer *out, fb_buffer *captures);

static bool put_numbers(reader *r, fb_buffer *out, const onnx_numbers *numbers, onnx_wire wire) {
    onnx_number_cursor cursor = onnx_numbers_from(numbers, wire);
    uint64_t bits;
    if (!use(r, NUMBER_TEXT * numbers->count)) return false;
    fb_buffer_char(out, '[');
    for (size_t i = 0; onnx_numbers_next(&cursor, &bits); i++) {
        uint32_t lower = (uint32_t)bits;
        float number;
        memcpy(&number, &lower, sizeof number);
        if (i) fb_buffer_char(out, ',');
        if (wire == ONNX_FIXED32) put_float(out, number);
        else put_int(out, (int64_t)bits);
    }
    fb_buffer_char(out, ']');
    return true;
}

static bool put_node(reader *r, const char *node, fb_buffer *out) {
    fb_buffer_printf(out, "{\"$node\":\"%s\"}", node ? node : "");
    return node != NULL && !r->c.status;
}

/* A list of tensors or graphs: only that of the attribute's type has items. */
static bool put_several(reader *r, program *p, const onnx_attribute *a, fb_buffer *out, fb_buffer *captures) {
    bool ok = true;
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < a->tensors.count + a->graphs.count + a->sparse_tensors.count && ok; i++) {
        if (i) fb_buffer_char(out, ',');
        if (a->graphs.count) ok = read_nested(r, p, &a->graphs.items[i], a->name, out, captures);
        else if (a->tensors.count) ok = put_node(r, add_tensor(r, p, &a->tensors.items[i], NULL, a->name, NO_NODE), out);
        else ok = put_node(r, add_sparse(r, p, &a->sparse_tensors.items[i], a->name, NO_NODE), out);
    }
    fb_buffer_char(out, ']');
    return ok;
}

/* Appends the value. Tensors and graphs become nodes before the call. */
static bool put_attribute(reader *r, program *p, const onnx_attribute *a, fb_buffer *out, fb_buffer *captures) {
    if (a->ref_attr_name.size) {
        fb_buffer_string(out, "{\"$opaque\":");
        put_bytes(out, a->ref_attr_name);
        fb_buffer_char(out, '}');
        return true;
    }
    switch (a->type) {
    case 1: put_float(out, a->f); return true;
    case 2: put_int(out, a->i); return true;
    case 3: put_string(out, a->s); return true;
    case 4: return put_node(r, add_tensor(r, p, a->t, NULL, a->name, NO_NODE), out);
    case 5: return read_nested(r, p, a->g, a->name, out, captures);
    case 6: return put_numbers(r, out, &a->floats, ONNX_FIXED32);
    case 7: return put_numbers(r, out, &a->ints, ONNX_VARINT);
    case 8:
        fb_buffer_char(out, '[');
        for (size_t i = 0; i < a->strings.count; i++) {
            if (i) fb_buffer_char(out, ',');
            put_string(out, a->strings.items[i]);
        }
        fb_buffer_char(out, ']');
        return true;
    case 9:
    case 10:
    case 12: return put_several(r, p, a, out, captures);
    case 11: return put_node(r, add_sparse(r, p, a->sparse_tensor, a->name, NO_NODE), out);
    case 13:
    case 14: fb_buffer_string(out, "{\"$opaque\":\"type\"}"); return true;
    default:
        return onnx_unsupported(&r->c, ONNX_IS_attribute, a, ONNX_attribute_type, "%d is not a type of attributes", a->type);
    }
}

/* Appends the member's name, which is an identifier. */
static void put_key(fb_buffer *out, onnx_bytes text, bool is_first) {
    fb_buffer name = {0};
    put_word(&name, text, false);
    if (!name.failed && fb_wrong_identifier(name.data, name.size)) fb_buffer_char(&name, '_'); /* a keyword */
    fb_buffer_string(out, is_first ? "\"" : ",\"");
    fb_buffer_append(out, name.data, name.size);
    fb_buffer_string(out, "\":");
    fb_buffer_free(&name);
}

/* Appends the kwargs' members. */
static bool put_attributes(reader *r, program *p, const onnx_node *node, fb_buffer *out) {
    fb_buffer captures = {0};
    bool ok = true, has_graph = false;
    for (size_t i = 0; i < node->attribute.count && ok; i++) {
        const onnx_attribute *a = &node->attribute.items[i];
        put_key(out, a->name, !i);
        has_graph |= a->g || a->graphs.count;
        ok = put_attribute(r, p, a, out, &captures);
    }
    if (has_graph) {
        fb_buffer_string(out, ",\"captures\":[");
        fb_buffer_append(out, captures.data, captures.size);
        fb_buffer_char(out, ']');
    }
    fb_buffer_free(&captures);
    return ok;
}

/* ---- nodes -------------------------------------------------------------------------------------------------------------- */

static bool put_inputs(reader *r, program *p, const onnx_list *names, fb_buffer *out) {
    for (size_t i = 0; i < names->count; i++) {
        if (i) fb_buffer_char(out, ',');
        if (!names->items[i].size) fb_buffer_string(out, "null");
        else if (!put_node(r, find(r, p, names->items[i]), out)) return false;
    }
    return true;
}

static size_t first_given(const onnx_list *names) {
    size_t at = 0;
    while (at < names->count && !names->items[at].size) at++;
    return at;
}

/* Results of several are items of the call's. */
static bool put_items(reader *r, program *p, const onnx_node *node, const char *call) {
    for (size_t i = 0; i < node->output.count; i++) {
        onnx_bytes name = node->output.items[i];
        const char *item = name.size ? fresh(r, p, name) : NULL;
        if (!name.size) continue;
        if (!item || !define(r, p, name, item)) return false;
        begin_node(&p->body, item, "call_function", FB_TARGET_GETITEM);
        fb_buffer_printf(&p->body, ",\"args\":[{\"$node\":\"%s\"},%zu],\"kwargs\":{},\"meta\":{\"onnx\":{", call, i);
        put_named(r, p, name, &p->body);
        fb_buffer_string(&p->body, "\"value\":");
        put_bytes(&p->body, name);
        fb_buffer_string(&p->body, "}}}");
    }
    return true;
}

/* The tensor of a Constant, which is a weight like any other; NULL: it is another node. */
static const onnx_attribute *constant_of(const onnx_node *node) {
    const onnx_attribute *a = node->attribute.count == 1 ? &node->attribute.items[0] : NULL;
    bool is_constant = is_default(node->domain) && onnx_is(node->op_type, "Constant") && node->output.count == 1 &&
                       node->output.items[0].size && !node->input.count;
    bool is_tensor = a && ((a->t && onnx_is(a->name, "value")) || (a->sparse_tensor && onnx_is(a->name, "sparse_value")));
    return is_constant && is_tensor ? a : NULL;
}

static bool read_constant(reader *r, program *p, const onnx_attribute *a, onnx_bytes name, size_t index) {
    const char *node = a->t ? add_tensor(r, p, a->t, NULL, name, index) : add_sparse(r, p, a->sparse_tensor, name, index);
    return node && define(r, p, name, node);
}

static bool read_node(reader *r, program *p, const onnx_node *node, size_t index) {
    if (constant_of(node)) return read_constant(r, p, constant_of(node), node->output.items[0], index);
    fb_buffer args = {0}, kwargs = {0};
    size_t given = first_given(&node->output);
    bool is_one = node->output.count == 1 && given == 0;
    onnx_bytes like = is_one ? node->output.items[0] : node->op_type;
    const char *target = fb_work_goes_on(r->c.work, 16) ? target_of(r, p, node) : NULL;
    if (!target && !r->c.status) r->c.status = fb_work_status(r->c.work, r->c.error);
    bool ok = target && put_inputs(r, p, &node->input, &args) && put_attributes(r, p, node, &kwargs);
    ok = ok && use(r, NODE_TEXT * (node->output.count + 1) + 2 * (args.size + kwargs.size));
    const char *name = ok ? fresh(r, p, like) : NULL;
    if (name) {
        begin_node(&p->body, name, "call_function", target);
        fb_buffer_string(&p->body, ",\"args\":[");
        fb_buffer_append(&p->body, args.data, args.size);
        fb_buffer_string(&p->body, "],\"kwargs\":{");
        fb_buffer_append(&p->body, kwargs.data, kwargs.size);
        fb_buffer_string(&p->body, "},\"meta\":{\"onnx\":{");
        if (is_one) put_named(r, p, like, &p->body);
        fb_buffer_printf(&p->body, "\"node\":%zu", index);
        if (is_one) fb_buffer_string(&p->body, ",\"value\":"), put_bytes(&p->body, like);
        else fb_buffer_printf(&p->body, ",\"results\":%zu", node->output.count);
        fb_buffer_string(&p->body, "}}}");
        ok = is_one ? define(r, p, like, name) : put_items(r, p, node, name);
    }
    if ((args.failed || kwargs.failed) && ok) no_memory(r);
    fb_buffer_free(&args);
    fb_buffer_free(&kwargs);
    return name && ok && !r->c.status;
}

/* ---- programs ----------------------------------------------------------------------------------------------------------- */

static program *open_program(reader *r, program *outer, const char *path) {
    program *p = fb_arena_alloc(&r->c.file->arena, sizeof *p);
    if (p) *p = (program){.outer = outer, .path = path, .names = fb_namespace_new()};
    if (p) {
        if (r->last) r->last->next = p;
        else r->first = p;
        r->last = p;
    }
    if (!p || !p->names) {
        no_memory(r);
        return NULL;
    }
    if (outer) p->imports = outer->imports, p->import_count = outer->import_count, p->function = outer->function;
    return p;
}

/* `types`: what the nested graph says of its outputs; empty: nothing. */
static bool end_program(reader *r, program *p, const fb_buffer *outputs, const fb_buffer *types) {
    const char *name = fb_namespace_create(p->names, "output");
    if (!name || outputs->failed) return no_memory(r);
    begin_node(&p->body, name, "output", "output");
    fb_buffer_string(&p->body, ",\"args\":[{\"$tuple\":[");
    fb_buffer_append(&p->body, outputs->data, outputs->size);
    fb_buffer_string(&p->body, "]}],\"kwargs\":{},\"meta\":{");
    if (types->size) {
        fb_buffer_string(&p->body, "\"onnx\":{\"outputs\":[");
        fb_buffer_append(&p->body, types->data, types->size);
        fb_buffer_string(&p->body, "]}");
    }
    fb_buffer_string(&p->body, "}}");
    return (!types->failed && !p->body.failed) || no_memory(r);
}

static const onnx_tensor *default_of(const onnx_graph *graph, fb_map *initializers, onnx_bytes name) {
    uint32_t cursor = 0, at;
    uint64_t hash = fb_hash(name.text, name.size, (uint64_t)(uintptr_t)graph);
    while ((at = fb_map_next(initializers, hash, &cursor)) != 0)
        if (onnx_same(graph->initializer.items[at - 1].name, name)) return &graph->initializer.items[at - 1];
    return NULL;
}

/* An input, which an initializer gives a default. Before IR 4 that one is a constant, and no input. */
static bool read_input(reader *r, program *p, const onnx_value_info *input, const onnx_tensor *given) {
    if (given && r->c.file->model->ir_version < 4 && !p->outer) return true;
    const char *node = fresh(r, p, input->name), *tensor = NULL;
    if (!node || !define(r, p, input->name, node)) return false;
    if (given && !(tensor = add_owned(r, p, node, given, NULL))) return false;
    begin_node(&p->head, node, "placeholder", node);
    fb_buffer_string(&p->head, ",\"args\":[],\"kwargs\":{},\"meta\":{");
    if (!put_type(&p->head, input->type, p->sizes)) return no_memory(r);
    if (tensor) fb_buffer_string(&p->head, "\"default\":"), put_text(&p->head, tensor), fb_buffer_char(&p->head, ',');
    fb_buffer_string(&p->head, "\"onnx\":{\"value\":");
    put_bytes(&p->head, input->name);
    fb_buffer_string(&p->head, "}}}");
    return use(r, NODE_TEXT + 2 * input->name.size);
}

/* A Loop that makes no turn gives what its body says of its outputs. */
static bool put_output(reader *r, const onnx_value_info *output, fb_buffer *types) {
    fb_buffer_string(types, types->size ? ",{" : "{");
    put_type(types, output->type, NULL);
    fb_buffer_string(types, "\"value\":");
    put_bytes(types, output->name);
    fb_buffer_char(types, '}');
    return use(r, NODE_TEXT + 2 * output->name.size);
}

/* The names that the model has for sizes of its inputs are taken. */
static bool reserve_sizes(reader *r, program *p, const onnx_graph *graph) {
    bool ok = (p->sizes = fb_namespace_new()) != NULL;
    for (size_t i = 0; i < graph->input.count && ok; i++) {
        const onnx_type *type = graph->input.items[i].type;
        const onnx_shape *shape = type && type->tensor_type ? type->tensor_type->shape : NULL;
        for (size_t k = 0; shape && k < shape->dim.count && ok; k++) {
            onnx_bytes name = shape->dim.items[k].dim_param;
            const char *text = is_symbol(name) ? text_of(r, name) : "";
            ok = text && (!*text || fb_namespace_is_used(p->sizes, text) || fb_namespace_reserve(p->sizes, text));
        }
    }
    return ok || no_memory(r);
}

static bool read_graph(reader *r, program *p, const onnx_graph *graph) {
    fb_map initializers = {0};
    fb_buffer outputs = {0}, types = {0};
    bool ok = p->outer || reserve_sizes(r, p, graph);
    for (size_t i = 0; i < graph->initializer.count && ok; i++) {
        onnx_bytes name = graph->initializer.items[i].name;
        ok = fb_map_add(&initializers, fb_hash(name.text, name.size, (uint64_t)(uintptr_t)graph), (uint32_t)i + 1) ||
             no_memory(r);
    }
    for (size_t i = 0; i < graph->input.count && ok; i++)
        ok = read_input(r, p, &graph->input.items[i], default_of(graph, &initializers, graph->input.items[i].name));
    for (size_t i = 0; i < graph->initializer.count && ok; i++) {
        const onnx_tensor *tensor = &graph->initializer.items[i];
        if (find_here(p, tensor->name)) continue; /* the default of an input */
        const char *node = add_tensor(r, p, tensor, NULL, tensor->name, NO_NODE);
        ok = node && define(r, p, tensor->name, node);
    }
    for (size_t i = 0; i < graph->sparse_initializer.count && ok; i++) {
        const onnx_sparse *sparse = &graph->sparse_initializer.items[i];
        if (find_here(p, sparse->values->name))
            ok = onnx_unsupported(&r->c, ONNX_IS_sparse, sparse, 0,
                                  "it is the default of an input, which is only read where it is dense");
        const char *node = ok ? add_sparse(r, p, sparse, sparse->values->name, NO_NODE) : NULL;
        ok = node && define(r, p, sparse->values->name, node);
    }
    for (size_t i = 0; i < graph->node.count && ok; i++) ok = read_node(r, p, &graph->node.items[i], i);
    for (size_t i = 0; i < graph->output.count && ok; i++) {
        if (i) fb_buffer_char(&outputs, ',');
        ok = put_node(r, find(r, p, graph->output.items[i].name), &outputs);
        if (p->outer) ok = ok && put_output(r, &graph->output.items[i], &types);
    }
    ok = ok && end_program(r, p, &outputs, &types);
    fb_map_free(&initializers);
    fb_buffer_free(&outputs);
    fb_buffer_free(&types);
    return ok;
}

static bool read_nested(reader *r, program *p, const onnx_graph *graph, onnx_bytes like, fb_buffer *out, fb_buffer *captures) {
    const char *node = fresh(r, p, like);
    fb_buffer path = {0};
    fb_buffer_printf(&path, "%s%s%s", p->path, *p->path ? "." : "", node ? node : "");
    const char *text = node && fb_buffer_text(&path) ? fb_arena_text(&r->c.file->arena, path.data, path.size) : NULL;
    fb_buffer_free(&path);
    if (!text) return no_memory(r);
    program *inner = open_program(r, p, text);
    if (!inner || !read_graph(r, inner, graph)) return false;
    begin_node(&p->body, node, "get_attr", node);
    fb_buffer_string(&p->body, ",\"args\":[],\"kwargs\":{},\"meta\":{}}");
    if (captures->size) fb_buffer_char(captures, ',');
    fb_buffer_char(captures, '[');
    fb_buffer_append(captures, inner->captures.data, inner->captures.size);
    fb_buffer_char(captures, ']');
    return put_node(r, node, out);
}

static bool read_function(reader *r, const onnx_function *function) {
    fb_buffer path = {0}, outputs = {0};
    onnx_put_function(&path, function);
    const char *text = fb_buffer_text(&path) ? fb_arena_text(&r->c.file->arena, path.data, path.size) : NULL;
    fb_buffer_free(&path);
    uint64_t hash = text ? fb_hash(text, strlen(text), 1) : 0;
    if (text && fb_map_get(&r->tensor_names, hash))
        return onnx_unsupported(&r->c, ONNX_IS_function, function, ONNX_function_name,
                                "it and a function before it would both be called %s", text);
    program *p = text && fb_map_put(&r->tensor_names, hash, 1) ? open_program(r, NULL, text) : NULL;
    if (!p) return no_memory(r);
    p->function = function;
    p->imports = function->opset_import.items;
    p->import_count = function->opset_import.count;
    bool ok = true;
    for (size_t i = 0; i < function->attribute_proto.count && ok; i++) {
        const onnx_attribute *a = &function->attribute_proto.items[i];
        bool is_plain = (a->type >= 1 && a->type <= 3) || (a->type >= 6 && a->type <= 8);
        if (!is_plain) continue;
        put_key(&p->config, a->name, !p->config.size);
        ok = put_attribute(r, p, a, &p->config, NULL);
    }
    for (size_t i = 0; i < function->input.count && ok; i++)
        ok = read_input(r, p, &(onnx_value_info){.name = function->input.items[i]}, NULL);
    for (size_t i = 0; i < function->node.count && ok; i++) ok = read_node(r, p, &function->node.items[i], i);
    for (size_t i = 0; i < function->output.count && ok; i++) {
        if (i) fb_buffer_char(&outputs, ',');
        ok = put_node(r, find(r, p, function->output.items[i]), &outputs);
    }
    ok = ok && end_program(r, p, &outputs, &(fb_buffer){0});
    fb_buffer_free(&outputs);
    return ok;
}

/* ---- the document ------------------------------------------------------------------------------------------------------- */

static void put_module(const program *p, fb_buffer *out) {
    bool is_root = !*p->path;
    fb_buffer_string(out, is_root ? "{\"path\":" : ",{\"path\":");
    put_text(out, p->path);
    fb_buffer_printf(out, ",\"type\":\"%s\",\"config\":{", is_root ? "onnx.Model" : "torch.fx.GraphModule");
    fb_buffer_append(out, p->config.data, p->config.size);
    fb_buffer_string(out, "},\"parameters\":{},\"buffers\":{");
    fb_buffer_append(out, p->buffers.data, p->buffers.size);
    fb_buffer_string(out, "},\"training\":false");
    if (!is_root) {
        fb_buffer_string(out, ",\"graph\":{\"nodes\":[");
        fb_buffer_append(out, p->head.data, p->head.size);
        if (p->head.size) fb_buffer_char(out, ',');
        fb_buffer_append(out, p->body.data, p->body.size);
        fb_buffer_string(out, "]}");
    }
    fb_buffer_char(out, '}');
}

static void put_document(const reader *r, fb_buffer *out) {
    const onnx_model *model = r->c.file->model;
    const program *root = r->first;
    fb_buffer_string(out, "{\"format\":\"foldback.graph/1\",\"name\":");
    put_bytes(out, model->graph->name);
    fb_buffer_string(out, ",\"nodes\":[");
    fb_buffer_append(out, root->head.data, root->head.size);
    if (root->head.size) fb_buffer_char(out, ',');
    fb_buffer_append(out, root->body.data, root->body.size);
    fb_buffer_string(out, "],\"modules\":[");
    for (const program *p = root; p; p = p->next) put_module(p, out);
    fb_buffer_string(out, "],\"tensors\":[");
    fb_buffer_append(out, r->tensors.data, r->tensors.size);
    fb_buffer_printf(out, "],\"metadata\":{\"dialect\":\"onnx\",\"onnx\":{\"blob\":\"%s\",\"model\":", r->blob);
    put_text(out, r->name);
    fb_buffer_string(out, ",\"files\":{");
    for (uint32_t i = 0, put = 0; i < r->c.file->location_count; i++) {
        const onnx_location *one = r->c.file->locations[i];
        if (!one->is_first) continue;
        if (put++) fb_buffer_char(out, ',');
        put_text(out, one->name);
        fb_buffer_printf(out, one->blob ? ":\"%s\"" : ":null", one->blob ? one->blob : "");
    }
    fb_buffer_printf(out, "},\"ir_version\":%lld,\"opsets\":{", (long long)model->ir_version);
    for (size_t i = 0, put = 0; i < model->opset_import.count; i++) { /* a domain may be there again, with the same version */
        onnx_bytes domain = model->opset_import.items[i].domain;
        bool is_again = false;
        for (size_t j = 0; j < i; j++) is_again |= is_same_domain(model->opset_import.items[j].domain, domain);
        if (is_again) continue;
        if (put++) fb_buffer_char(out, ',');
        put_bytes(out, is_default(domain) ? (onnx_bytes){0} : domain);
        fb_buffer_printf(out, ":%lld", (long long)model->opset_import.items[i].version);
    }
    fb_buffer_string(out, "}}}}");
}

static bool name_elsewhere(reader *r, onnx_bytes name) {
    return !name.size || fb_map_put(&r->named, fb_hash(name.text, name.size, 0), 1) || no_memory(r);
}

static bool name_bindings(reader *r, const onnx_entry *items, size_t count) {
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) ok = name_elsewhere(r, items[i].key) && name_elsewhere(r, items[i].value);
    return ok;
}

/* Lists the values of the graph that nodes of training read. */
static bool name_inputs(reader *r, const onnx_graph *graph) {
    bool ok = true;
    for (size_t i = 0; graph && i < graph->node.count && ok; i++)
        for (size_t k = 0; k < graph->node.items[i].input.count && ok; k++)
            ok = name_elsewhere(r, graph->node.items[i].input.items[k]);
    return ok;
}

static bool find_named(reader *r, const onnx_model *model) {
    bool ok = true;
    for (size_t i = 0; i < model->graph->quantization_annotation.count && ok; i++) {
        const onnx_annotation *one = &model->graph->quantization_annotation.items[i];
        ok = name_elsewhere(r, one->tensor_name);
        for (size_t k = 0; k < one->quant_parameter_tensor_names.count && ok; k++)
            ok = name_elsewhere(r, one->quant_parameter_tensor_names.items[k].value);
    }
    for (size_t i = 0; i < model->training_info.count && ok; i++) {
        const onnx_training *one = &model->training_info.items[i];
        ok = name_bindings(r, one->initialization_binding.items, one->initialization_binding.count) &&
             name_bindings(r, one->update_binding.items, one->update_binding.count) && name_inputs(r, one->initialization) &&
             name_inputs(r, one->algorithm);
    }
    return ok;
}

fb_status onnx_document(onnx_file *file, const char *blob, const char *name, fb_work *work, fb_buffer *out, fb_error *error) {
    const onnx_model *model = file->model;
    reader r = {.c = {.file = file, .work = work, .error = error}, .blob = blob, .name = name ? name : ONNX_MODEL_NAME};
    program *root = open_program(&r, NULL, "");
    if (root) root->imports = model->opset_import.items, root->import_count = model->opset_import.count;
    bool ok = root != NULL && find_named(&r, model);
    for (size_t i = 0; i < model->functions.count && ok; i++)
        ok = fb_map_add(&r.functions, hash_of_function(&r, model->functions.items[i].name), (uint32_t)i + 1) || no_memory(&r);
    ok = ok && read_graph(&r, root, model->graph);
    for (size_t i = 0; i < model->functions.count && ok; i++) ok = read_function(&r, &model->functions.items[i]);
    bool failed = r.tensors.failed;
    for (program *p = r.first; p; p = p->next)
        failed |= p->head.failed || p->body.failed || p->buffers.failed || p->config.failed || p->captures.failed;
    if (ok && failed) no_memory(&r);
    if (!r.c.status) put_document(&r, out);
    if (!r.c.status && out->failed) no_memory(&r);
    for (program *p = r.first; p; p = p->next) {
        fb_namespace_free(p->names);
        if (p->sizes) fb_namespace_free(p->sizes);
        fb_map_free(&p->by_name);
        free(p->values);
        fb_buffer_free(&p->head), fb_buffer_free(&p->body), fb_buffer_free(&p->buffers), fb_buffer_free(&p->config),
            fb_buffer_free(&p->captures);
    }
    fb_map_free(&r.tensor_names);
    fb_map_free(&r.functions);
    fb_map_free(&r.named);
    fb_buffer_free(&r.tensors);
    return r.c.status;
}
