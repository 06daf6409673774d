/* Nested programs, which torch.export makes of regions in which a mode is switched. */
#include "core/evaluator/internal.h"

/* The call's arguments from `first` on are the program and its inputs. */
static fb_status run_program(fb_kernel_call *call, size_t first, fb_object *result) {
    fb_object program, inputs;
    fb_evaluator *evaluator = call->evaluator;
    const fb_value_row *args = fb_value_at(call->graph, fb_node_at(call->graph, call->node)->args);
    if (args->count <= first) return fb_kernel_unsupported(call, "it has no program to call");
    call->status = fb_evaluate_value(evaluator, args->items[first], &program);
    if (call->status) return call->status;
    if (program.kind != FB_OBJECT_PROGRAM) {
        fb_object_drop(&program);
        return fb_kernel_unsupported(call, "what it calls is not a nested program");
    }
    size_t count = args->count - first - 1;
    call->status = fb_object_sequence(FB_OBJECT_TUPLE, count, &inputs, call->error);
    if (call->status) return call->status;
    for (size_t i = 0; i < count && !call->status; i++)
        call->status = fb_evaluate_value(evaluator, args->items[first + 1 + i], &inputs.items->objects[i]);
    if (!call->status) call->status = fb_evaluate_program(evaluator, program.program, inputs.items->objects, count, result);
    fb_object_drop(&inputs);
    return call->status;
}

/* wrap_with_autocast(device, dtype, enabled, cache_enabled, program, *inputs) */
static fb_status kernel_run_in_autocast(fb_kernel_call *call, fb_object *result) {
    fb_value enabled = fb_node_arg(call->graph, call->node, 2);
    if (!enabled.id || fb_value_kind(call->graph, enabled) != FB_FALSE)
        return fb_kernel_unsupported(call, "autocast is on: dtypes then depend on each operator");
    return run_program(call, 4, result);
}

/* wrap_with_set_grad_enabled(enabled, program, *inputs) */
static fb_status kernel_run_with_grad(fb_kernel_call *call, fb_object *result) {
    return run_program(call, 1, result);
}

const fb_kernel_row fb_kernels_programs[] = {
    FB_KERNEL_BY_POSITION(RUN_IN_AUTOCAST, run_in_autocast),
    FB_KERNEL_BY_POSITION(RUN_WITH_GRAD, run_with_grad),
    FB_KERNELS_END,
};
