/* The state of a rewrite: failed or not, and by which error. */
#include "core/rewrite/internal.h"

#define STEPS_UNWATCHED 1024 /* microseconds of work each */

bool fb_rewrite_is_failed(fb_rewrite *rewrite) {
    if (fb_graph_out_of_memory(rewrite->graph)) fb_fail_memory(&rewrite->error);
    if (!rewrite->error.status && ++rewrite->steps % STEPS_UNWATCHED == 0) fb_watch_check(rewrite->watch, &rewrite->error);
    return rewrite->error.status != FB_OK;
}

bool fb_rewrite_save(fb_rewrite *rewrite, bool is_saved) {
    if (!is_saved) fb_fail_memory(&rewrite->error);
    return is_saved;
}
