#include "core/passes/lint.h"

#include "core/document/verify.h"

fb_status fb_lint_graph(const fb_graph *graph, fb_work *work, fb_error *error) {
    fb_errors errors = {.limit = 1};
    fb_verify_metered(graph, work, &errors);
    fb_status status = fb_work_status(work, error);
    if (status) {
        fb_errors_free(&errors);
        return status;
    }
    if (errors.out_of_memory) {
        status = fb_fail_memory(error);
    } else if (errors.total) {
        const fb_error *first = &errors.items[0];
        status = fb_fail(error, FB_IO, "lint-failed", first->pointer, "a pass made an invalid graph: %s", first->message);
    }
    fb_errors_free(&errors);
    return status;
}
