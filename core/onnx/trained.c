/* A model that another tool touched: the same computation, whose values may have other names, and its weights other bytes.
 * Calls are paired in their order, and weights by who reads them. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/onnx.h"
#include "core/base/buffer.h"
#include "core/graph/write.h"
#include "core/json/json.h"
#include "core/onnx/rewrite.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"

typedef struct pairing {
    const fb_graph *written, *trained;
    fb_node *partner;    /* by node of the first graph */
    fb_tensor *replaced; /* by tensor of the first graph */
    fb_error *error;
    fb_status status;
} pairing;

static bool another(pairing *p, const char *what, const char *name) {
    if (!p->status) p->status = fb_fail(p->error, FB_CONFLICT, "another-program", "", "%s%s", what, name);
    return false;
}

static bool differs(pairing *p, fb_node node) {
    return another(p, "its program is another one, from this node on: ", fb_node_name(p->written, node));
}

/* The next one from `node` on that is an input, or (`is_call`) a call or the output; or none. */
static fb_node next_of(const fb_graph *graph, fb_node node, bool is_call) {
    for (; node.id; node = fb_next_node(graph, node)) {
        fb_opcode opcode = (fb_opcode)fb_node_at(graph, node)->opcode;
        bool is_it = is_call ? opcode != FB_PLACEHOLDER && opcode != FB_GET_ATTR && !onnx_is_item(graph, node)
                             : opcode == FB_PLACEHOLDER;
        if (is_it) break;
    }
    return node;
}

static bool pair_program(pairing *p, fb_program a, fb_program b);
static bool pair_value(pairing *p, fb_value a, fb_value b);

static bool pair_tensor(pairing *p, fb_node a, fb_tensor one, fb_tensor other) {
    fb_value shape = fb_tensor_at(p->written, one)->shape, its = fb_tensor_at(p->trained, other)->shape;
    int rank = fb_shape_rank(p->written, shape);
    bool is_alike = rank == fb_shape_rank(p->trained, its) &&
                    strcmp(fb_tensor_dtype_name(p->written, one), fb_tensor_dtype_name(p->trained, other)) == 0;
    for (int i = 0; i < rank && is_alike; i++)
        is_alike = fb_shape_size(p->written, shape, i) == fb_shape_size(p->trained, its, i);
    if (!is_alike) return another(p, "this weight has another shape or dtype: ", fb_tensor_name(p->written, one));
    if (p->replaced[one.id].id && p->replaced[one.id].id != other.id)
        return another(p, "a weight that several read has become several: ", fb_node_name(p->written, a));
    p->replaced[one.id] = other;
    return true;
}

static bool pair_read(pairing *p, fb_node a, fb_node b) {
    const fb_node_row *one = fb_node_at(p->written, a), *other = fb_node_at(p->trained, b);
    if (!one->module.id || !other->module.id || !one->attribute.id != !other->attribute.id) return differs(p, a);
    if (one->attribute.id) {
        fb_tensor x = fb_module_tensor(p->written, one->module, fb_text(p->written, one->attribute));
        fb_tensor y = fb_module_tensor(p->trained, other->module, fb_text(p->trained, other->attribute));
        return x.id && y.id ? pair_tensor(p, a, x, y) : differs(p, a);
    }
    fb_program x = fb_module_at(p->written, one->module)->program, y = fb_module_at(p->trained, other->module)->program;
    return x.id && y.id ? pair_program(p, x, y) : differs(p, a);
}

static bool pair_node(pairing *p, fb_node a, fb_node b) {
    if (p->partner[a.id].id) return p->partner[a.id].id == b.id || differs(p, a);
    const fb_node_row *one = fb_node_at(p->written, a), *other = fb_node_at(p->trained, b);
    bool is_known = one->opcode == FB_GET_ATTR || onnx_is_item(p->written, a);
    if (!is_known || one->opcode != other->opcode || onnx_is_item(p->written, a) != onnx_is_item(p->trained, b))
        return differs(p, a);
    p->partner[a.id] = b;
    if (one->opcode == FB_GET_ATTR) return pair_read(p, a, b);
    return pair_value(p, one->args, other->args);
}

static bool pair_value(pairing *p, fb_value a, fb_value b) {
    const fb_value_row *one = fb_value_at(p->written, a), *other = fb_value_at(p->trained, b);
    if (p->status || one->kind != other->kind || one->count != other->count) return false;
    if (one->kind == FB_NODE) return pair_node(p, fb_value_node(p->written, a), fb_value_node(p->trained, b));
    for (uint32_t i = 0; one->has_nodes && i < one->count; i++)
        if (!pair_value(p, one->items[i], other->items[i])) return false;
    if (one->has_nodes) return true;
    fb_buffer x = {0}, y = {0};
    fb_value_write(p->written, a, &x);
    fb_value_write(p->trained, b, &y);
    bool is_same = x.size == y.size && (!x.size || memcmp(x.data, y.data, x.size) == 0);
    if ((x.failed || y.failed) && !p->status) p->status = fb_fail_memory(p->error);
    fb_buffer_free(&x);
    fb_buffer_free(&y);
    return is_same;
}

static bool pair_call(pairing *p, fb_node a, fb_node b) {
    const fb_node_row *one = fb_node_at(p->written, a), *other = fb_node_at(p->trained, b);
    bool is_same = one->opcode == other->opcode && strcmp(fb_node_target(p->written, a), fb_node_target(p->trained, b)) == 0 &&
                   fb_onnx_results(p->written, a) == fb_onnx_results(p->trained, b);
    if (one->opcode == FB_OUTPUT) is_same = other->opcode == FB_OUTPUT;
    if (!is_same) return differs(p, a);
    p->partner[a.id] = b;
    return (pair_value(p, one->args, other->args) && pair_value(p, one->kwargs, other->kwargs)) || differs(p, a);
}

static bool pair_program(pairing *p, fb_program a, fb_program b) {
    for (int is_call = 0; is_call < 2; is_call++) {
        fb_node x = next_of(p->written, fb_first_node(p->written, a), is_call);
        fb_node y = next_of(p->trained, fb_first_node(p->trained, b), is_call);
        for (; x.id && y.id && !p->status; x = next_of(p->written, fb_next_node(p->written, x), is_call),
                                           y = next_of(p->trained, fb_next_node(p->trained, y), is_call)) {
            if (is_call && !pair_call(p, x, y)) return false;
            p->partner[x.id] = y;
        }
        if (x.id) return differs(p, x);
        if (y.id) return another(p, "its program has more: ", fb_node_name(p->trained, y));
    }
    return !p->status;
}

static bool pair_functions(pairing *p) {
    for (fb_module m = fb_first_module(p->written); m.id; m = fb_module_at(p->written, m)->next) {
        const char *path = fb_text(p->written, fb_module_at(p->written, m)->path);
        fb_program is = fb_module_at(p->written, m)->program;
        bool is_function = is.id && fb_is_spelled(path, FB_ONNX_FUNCTION);
        if (!is_function || p->partner[fb_last_node(p->written, is).id].id) continue; /* or a graph within one */
        fb_module other = fb_module_find(p->trained, path);
        fb_program its = other.id ? fb_module_at(p->trained, other)->program : (fb_program){0};
        if (!its.id) return another(p, "it lacks the function ", path);
        if (!pair_program(p, is, its)) return false;
    }
    return true;
}

/* ---- the document -------------------------------------------------------------------------------------------------------- */

static json_t *load(const fb_graph *graph, fb_tensor tensor) {
    fb_buffer text = {0};
    json_error_t failure;
    if (tensor.id) fb_tensor_write(graph, tensor, &text);
    else fb_document_write(graph, &text);
    json_t *made = text.failed ? NULL : fb_load_json_bytes(text.data, text.size, 0, &failure);
    fb_buffer_free(&text);
    return made;
}

static bool take_tensors(pairing *p, json_t *document) {
    json_t *rows = json_object_get(document, "tensors"), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        fb_tensor tensor = fb_tensor_find(p->written, json_string_value(json_object_get(row, "name")));
        fb_tensor now = tensor.id ? p->replaced[tensor.id] : (fb_tensor){0};
        json_t *its = now.id ? load(p->trained, now) : NULL;
        if (!now.id) continue;
        if (!its || json_object_set(its, "name", json_object_get(row, "name")) || json_array_set_new(rows, i, its))
            return false;
    }
    return true;
}

/* A graph that a client edited is of the model that it was read from at first, and keeps its names. */
static bool has_own_model(pairing *p) {
    onnx_bundle one = {0}, other = {0};
    p->status = onnx_bundle_of(p->written, &one, p->error);
    if (!p->status) p->status = onnx_bundle_of(p->trained, &other, p->error);
    bool is_own = !p->status && other.blob && (!one.blob || strcmp(one.blob, other.blob) != 0);
    onnx_bundle_free(&one);
    onnx_bundle_free(&other);
    return is_own || another(p, "it was not read from a model of its own", "");
}

fb_status onnx_trained_document(const fb_graph *written, const fb_graph *trained, fb_buffer *out, fb_error *error) {
    pairing p = {.written = written, .trained = trained, .error = error};
    p.partner = calloc(fb_node_limit(written) + 1, sizeof *p.partner);
    p.replaced = calloc(fb_tensor_limit(written) + 1, sizeof *p.replaced);
    if (!p.partner || !p.replaced) p.status = fb_fail_memory(error);
    json_t *made = NULL;
    char *text = NULL;
    if (!p.status && has_own_model(&p) && pair_program(&p, FB_MAIN_PROGRAM, FB_MAIN_PROGRAM) && pair_functions(&p)) {
        made = load(written, (fb_tensor){0});
        text = made && take_tensors(&p, made) ? fb_dump_json(made, 0) : NULL;
        if (text) fb_buffer_string(out, text);
        if (!text || out->failed) p.status = fb_fail_memory(error);
    } else {
        another(&p, "its program is another one", "");
    }
    free(text);
    json_decref(made);
    free(p.partner);
    free(p.replaced);
    return p.status;
}
