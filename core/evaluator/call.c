/* One call: its kernel, and what in-place spellings do with the result. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/evaluator/internal.h"
#include "core/graph/namespace.h"
#include "core/operators/spelling.h"

const fb_kernel_row *const fb_kernel_tables[] = {
#define FB_KERNEL_FILE(name) fb_kernels_##name,
    FB_KERNEL_FILES(FB_KERNEL_FILE)
#undef FB_KERNEL_FILE
        NULL,
};

void fb_find_kernels(const fb_kernel_row *by_op[FB_OP_COUNT]) {
    for (const fb_kernel_row *const *table = fb_kernel_tables; *table; table++)
        for (const fb_kernel_row *row = *table; row->function; row++) by_op[row->op] = row;
}

const fb_kernel_row *fb_kernel_of(const fb_evaluator *evaluator, fb_op op) {
    unsigned row = op & (unsigned)~FB_OP_IN_PLACE;
    return row < FB_OP_COUNT ? evaluator->kernels[row] : NULL;
}

/* ---- results --------------------------------------------------------------------------------------------------------- */

/* Views show what was rounded when it was computed. */
static void round_result(const fb_object *result) {
    if (result->kind == FB_OBJECT_ARRAY && result->array->storage->references == 1) fb_array_round(result->array);
    if (!fb_object_is_sequence(result)) return;
    for (size_t i = 0; i < result->items->count; i++) round_result(&result->items->objects[i]);
}

fb_status fb_evaluate_part(fb_kernel_call *call, fb_op op, const char *spelling, const fb_part_argument *arguments,
                           fb_object *result) {
    fb_evaluator *evaluator = call->evaluator;
    const fb_kernel_row *row = fb_kernel_of(evaluator, op);
    size_t outer = evaluator->argument_count;
    fb_kernel_call part = *call;
    *result = (fb_object){.kind = FB_OBJECT_NONE};
    if (call->status) return call->status;
    if (!row) return fb_kernel_unsupported(call, "there is no kernel for its part %s", spelling);
    part.op = op;
    part.takes_complex = row->takes_complex;
    part.spelling = spelling;
    part.part = arguments;
    part.status = row->function(&part, result);
    if (!part.status) round_result(result);
    else fb_object_drop(result);
    while (evaluator->argument_count > outer) fb_object_drop(&evaluator->arguments[--evaluator->argument_count]);
    return call->status = part.status;
}

/* transpose_, unsqueeze_ …: the tensor itself becomes the view that the operator gives. */
static void become_view(fb_array *array, const fb_array *view) {
    array->rank = view->rank;
    array->offset = view->offset;
    memcpy(array->sizes, view->sizes, sizeof array->sizes);
    memcpy(array->strides, view->strides, sizeof array->strides);
}

static int category_of(fb_dtype dtype) {
    return dtype == FB_BOOL ? 0 : fb_dtype_is_integer(dtype) ? 1 : fb_dtype_is_complex(dtype) ? 3 : 2;
}

/* PyTorch raises, or gives what depends on the order, where other arguments share some of the elements that are written; or all
 * of them, unless each is read where it is written. */
static bool reads_elements_written(fb_kernel_call *call, const fb_array *written) {
    const fb_node_row *row = fb_node_at(call->graph, call->node);
    const fb_value_row *lists[] = {fb_value_at(call->graph, row->args), fb_value_at(call->graph, row->kwargs)};
    fb_value first = fb_first_argument(call->graph, call->node);
    fb_overlap allowed = fb_op_facts_of(call->op)->flags & FB_FACT_ELEMENTWISE ? FB_OVERLAP_FULL : FB_OVERLAP_NONE;
    bool is_first = false, found = false;
    for (uint32_t list = 0; list < 2; list++) {
        for (uint32_t i = list; i < lists[list]->count && !found; i += 1 + list) { /* of kwargs, the values */
            fb_object object = {.kind = FB_OBJECT_NONE};
            fb_value value = lists[list]->items[i];
            bool is_other = is_first || value.id != first.id;
            is_first |= !is_other;
            if (!is_other || !fb_value_node(call->graph, value).id) continue;
            if ((call->status = fb_evaluate_value(call->evaluator, value, &object))) return true;
            found = object.kind == FB_OBJECT_ARRAY && fb_arrays_overlap(written, object.array) > allowed;
            fb_object_drop(&object);
        }
    }
    return found;
}

static fb_status finish_in_place(fb_kernel_call *call, fb_object *first, fb_object *result) {
    if (first->kind != FB_OBJECT_ARRAY || result->kind != FB_OBJECT_ARRAY) return FB_OK; /* Python numbers: a new one */
    fb_array *array = first->array, *made = result->array;
    if (array != made) {
        bool is_view = (fb_op_facts_of(call->op)->flags & FB_FACT_ALIASES) && made->storage == array->storage;
        bool narrows = category_of(made->dtype) > category_of(array->dtype);
        bool fits = array->rank == made->rank;
        for (int i = 0; i < array->rank && fits; i++) fits = array->sizes[i] == made->sizes[i];
        if (is_view) become_view(array, made);
        else if (narrows)
            return fb_kernel_fail(call, "a result of %s cannot be written into %s", fb_dtype_name(made->dtype),
                                  fb_dtype_name(array->dtype));
        else if (!fits) return fb_kernel_fail(call, "the result has another shape than the tensor it is written to");
        else if (fb_array_may_overlap(array) || reads_elements_written(call, array))
            return call->status ? call->status : fb_kernel_unsupported(call, FB_WRITES_OVERLAP);
        else call->status = fb_array_assign(array, made, call->error);
    }
    fb_object_drop(result);
    *result = *first;
    fb_object_keep(result);
    return call->status;
}

static bool is_in_place(fb_kernel_call *call) {
    if (fb_node_op(call->graph, call->node) & FB_OP_IN_PLACE) return true;
    if (!strstr(fb_op_facts_of(call->op)->parameters, "inplace")) return false;
    bool in_place;
    return fb_argument_bool(call, "inplace", false, &in_place) && in_place;
}

/* Refuses a call that has no kernel, such as modules that call others and functions without a row. */
static fb_status refuse(fb_kernel_call *call) {
    const fb_node_row *row = fb_node_at(call->graph, call->node);
    if (row->opcode == FB_CALL_MODULE) {
        return fb_kernel_unsupported(call, "there is no kernel for %s",
                                     fb_text(call->graph, fb_module_at(call->graph, row->module)->type));
    }
    return fb_kernel_unsupported(call, "there is no kernel for it");
}

fb_status fb_evaluate_call(fb_evaluator *evaluator, fb_node node, fb_object *out) {
    const fb_graph *graph = evaluator->graph;
    fb_value recipes = {0};
    fb_op op = fb_node_op(graph, node);
    if (!op) op = fb_parametrized_op(graph, node, &recipes);
    const fb_kernel_row *row = fb_kernel_of(evaluator, op);
    bool is_by_name = row && !row->is_by_position;
    fb_kernel_call call = {.evaluator = evaluator,
                           .graph = graph,
                           .node = node,
                           .op = op & (fb_op)~FB_OP_IN_PLACE,
                           .takes_complex = row && row->takes_complex,
                           .recipes = recipes,
                           .memory = evaluator->memory,
                           .error = evaluator->error};
    fb_value written = fb_map_value(graph, fb_node_at(graph, node)->kwargs, "out");
    unsigned levels = 0;
    size_t outer = evaluator->argument_count; /* of the call that a nested program is run for */
    if (fb_is_onnx_call(graph, node)) call.status = fb_evaluate_onnx(&call, out);
    else if (!row) refuse(&call);
    else if (written.id && fb_value_kind(graph, written) != FB_NONE) fb_kernel_unsupported(&call, "out= is not known");
    else if (is_by_name && fb_check_signature(&call)) (void)0;
    else if (!is_by_name && fb_value_at(graph, fb_node_at(graph, node)->kwargs)->count)
        fb_kernel_unsupported(&call, "its keyword arguments are not known");
    else if (!is_by_name || !evaluator->levels || fb_batches_allow(&call, &levels)) call.status = row->function(&call, out);
    if (levels && !call.status && out->kind == FB_OBJECT_ARRAY) out->array->levels = levels;
    const char *unread = is_by_name && !call.status ? fb_unread_argument(&call) : NULL;
    if (unread) fb_kernel_unsupported(&call, "its %s argument is not known", unread);
    if (!call.status) call.status = fb_object_check(out, call.error);
    if (!call.status) round_result(out);
    if (call.status || (!row && fb_is_onnx_call(graph, node))) (void)0;
    else if (!is_in_place(&call)) fb_lay_out_result(&call, out);
    else {
        fb_object first;
        call.status = fb_evaluate_value(evaluator, fb_first_argument(graph, node), &first);
        if (!call.status) {
            finish_in_place(&call, &first, out);
            fb_object_drop(&first);
        }
    }
    if (!call.status) call.status = fb_work_status(fb_call_work(&call), call.error);
    while (evaluator->argument_count > outer) fb_object_drop(&evaluator->arguments[--evaluator->argument_count]);
    if (call.status) fb_object_drop(out);
    return call.status;
}
