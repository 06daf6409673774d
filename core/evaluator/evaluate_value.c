/* Values of arguments. */
#include "core/evaluator/internal.h"

static fb_status value_of_items(fb_evaluator *evaluator, const fb_value_row *row, fb_object_kind kind, fb_object *out) {
    fb_status status = fb_object_sequence(kind, row->count, out, evaluator->error);
    for (uint32_t i = 0; i < row->count && !status; i++)
        status = fb_evaluate_value(evaluator, row->items[i], &out->items->objects[i]);
    return status;
}

/* On failure `out` may hold a part; the caller drops it in any case. */
static fb_status value_of(fb_evaluator *evaluator, fb_value value, fb_object *out) {
    const fb_value_row *row = fb_value_at(evaluator->graph, value);
    fb_node node = fb_value_node(evaluator->graph, value);
    switch (row->kind) {
    case FB_NONE: return FB_OK;
    case FB_FALSE:
    case FB_TRUE: *out = (fb_object){.kind = FB_OBJECT_BOOL, .boolean = row->kind == FB_TRUE}; return FB_OK;
    case FB_INT: *out = (fb_object){.kind = FB_OBJECT_INT, .integer = row->integer}; return FB_OK;
    case FB_FLOAT: *out = (fb_object){.kind = FB_OBJECT_FLOAT, .number = row->real}; return FB_OK;
    case FB_STRING: *out = (fb_object){.kind = FB_OBJECT_STRING, .text = fb_text(evaluator->graph, row->symbol)}; return FB_OK;
    case FB_DTYPE:
        *out = (fb_object){.kind = FB_OBJECT_DTYPE, .dtype = fb_dtype_find(fb_text(evaluator->graph, row->symbol))};
        return FB_OK;
    case FB_DEVICE:
    case FB_LAYOUT:
    case FB_MEMORY_FORMAT:
        *out = (fb_object){.kind = FB_OBJECT_DEVICE, .text = fb_text(evaluator->graph, row->symbol)};
        return FB_OK;
    case FB_ELLIPSIS: out->kind = FB_OBJECT_ELLIPSIS; return FB_OK;
    case FB_SLICE: return value_of_items(evaluator, row, FB_OBJECT_SLICE, out);
    case FB_LIST: return value_of_items(evaluator, row, FB_OBJECT_LIST, out);
    case FB_TUPLE:
    case FB_SIZE:
    case FB_NAMED_TUPLE: return value_of_items(evaluator, row, FB_OBJECT_TUPLE, out);
    case FB_DICT: return value_of_items(evaluator, row, FB_OBJECT_DICT, out);
    case FB_NODE:
        if (!evaluator->is_known[node.id]) {
            fb_status status = fb_give_value(evaluator, node);
            if (status) return status;
        }
        *out = evaluator->values[node.id];
        fb_object_keep(out);
        return FB_OK;
    default: out->kind = FB_OBJECT_OTHER; return FB_OK;
    }
}

fb_status fb_evaluate_value(fb_evaluator *evaluator, fb_value value, fb_object *out) {
    *out = (fb_object){.kind = FB_OBJECT_NONE};
    fb_status status = value_of(evaluator, value, out);
    if (status) fb_object_drop(out);
    return status;
}

fb_status fb_give_value(fb_evaluator *evaluator, fb_node node) {
    fb_object *value = &evaluator->values[node.id];
    const fb_eval_hooks *hooks = evaluator->hooks;
    fb_status status = FB_NOT_FOUND;
    if (hooks && hooks->given) status = hooks->given(hooks->context, node, value, evaluator->error);
    if (status == FB_NOT_FOUND) {
        const fb_node_row *row = fb_node_at(evaluator->graph, node);
        fb_value fallback = row->opcode == FB_PLACEHOLDER ? fb_node_arg(evaluator->graph, node, 0) : (fb_value){0};
        if (fallback.id) status = fb_evaluate_value(evaluator, fallback, value);
        else
            status = fb_fail(evaluator->error, FB_INVALID, "missing-input", NULL, "%s has no value",
                             fb_node_name(evaluator->graph, node));
    }
    if (!status) evaluator->is_known[node.id] = true;
    return status;
}
