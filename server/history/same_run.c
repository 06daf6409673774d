#include "server/history/same_run.h"

#include <jansson.h>
#include <string.h>

static bool is_of_several(const json_t *request) {
    const json_t *steps = json_object_get(request, "steps");
    const json_t *first = json_object_get(json_array_get(steps, 0), "run");
    for (size_t i = 1; i < json_array_size(steps); i++) {
        if (!json_equal(first, json_object_get(json_array_get(steps, i), "run"))) return true;
    }
    return false;
}

static bool is_repetition(const fb_kept_run *one, const fb_kept_run *other, bool is_whole) {
    if (strcmp(one->origin, other->origin) != 0 || strcmp(one->result, other->result) != 0) return false;
    if (!strcmp(one->request, other->request)) return true;
    bool is_alike = is_whole || !strcmp(one->signature, other->signature);
    return is_alike && !one->is_of_several && !other->is_of_several;
}

void fb_keep_run(fb_kept_runs *kept, const fb_store_run *run) {
    json_t *request = NULL;
    const char *origin = fb_run_origin(run, &request);
    const char *left = json_string_value(json_object_get(request, "signature"));
    if (origin && kept->count < FB_KEPT_RUNS_MAX) {
        fb_kept_run *next = &kept->items[kept->count];
        *next = (fb_kept_run){.id = run->id, .result = run->result, .request = run->request};
        next->is_of_several = is_of_several(request);
        fb_copy_text(next->origin, sizeof next->origin, origin);
        fb_copy_text(next->signature, sizeof next->signature, left ? left : run->signature);
        bool is_new = true;
        for (const fb_kept_run *other = kept->items; other < next; other++)
            is_new &= !is_repetition(next, other, kept->is_whole);
        kept->count += is_new;
    }
    json_decref(request);
}
