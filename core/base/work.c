#include "core/base/work.h"

bool fb_work_ask(fb_work *work) {
    work->unasked = 0;
    if (work->stopped.status || fb_watch_check(work->watch, &work->stopped)) work->unasked = FB_WORK_UNASKED;
    return !work->unasked;
}

fb_status fb_work_status(const fb_work *work, fb_error *error) {
    const fb_error *why = &work->stopped;
    return why->status ? fb_fail(error, why->status, why->code, why->pointer, "%s", why->message) : FB_OK;
}

fb_status fb_work_failed(const fb_work *work, fb_error *error) {
    return work->stopped.status ? fb_work_status(work, error) : fb_fail_memory(error);
}
