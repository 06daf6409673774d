#include "server/cli/client.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/screen.h"
#include "server/metrics/metrics.h"

#define PERIOD 100 /* milliseconds between two lines */

static void show(fb_progress *progress, int64_t time) {
    double seconds = (double)(time - progress->begun) / 1e3;
    double percent = progress->total ? 100.0 * (double)progress->done / (double)progress->total : 100;
    fprintf(stderr, "\r%s ", progress->what);
    fb_screen_text(stderr, progress->name);
    fprintf(stderr, "  %3.0f %%  %s of %s", percent, fb_readable_size(progress->done).text,
            fb_readable_size(progress->total).text);
    double rate = seconds > 0 ? (double)(progress->done - progress->first) / seconds : 0;
    if (seconds > 0) fprintf(stderr, "  %s/s", fb_readable_size((uint64_t)rate).text);
    if (rate > 0 && seconds >= 0.3 && progress->total > progress->done) {
        unsigned left = (unsigned)((double)(progress->total - progress->done) / rate) + 1;
        if (left < 120) fprintf(stderr, "  %u s left", left);
        else fprintf(stderr, "  %u min left", (left + 59) / 60);
    }
    fputs("\033[K", stderr); /* to the line's end: what was there before */
    fflush(stderr);
    progress->shown = time;
}

void fb_progress_begin(fb_progress *progress, const char *what, const char *name, uint64_t done, uint64_t total) {
    const char *slash = strrchr(name, '/');
    *progress = (fb_progress){.what = what, .name = slash ? slash + 1 : name, .done = done, .total = total, .first = done};
    progress->is_visible = fb_screen_can_move(stderr);
    progress->begun = fb_monotonic_ms();
    if (progress->is_visible) show(progress, progress->begun);
}

void fb_progress_add(fb_progress *progress, uint64_t bytes) {
    if (!progress) return;
    progress->done += bytes;
    if (!progress->is_visible) return;
    int64_t time = fb_monotonic_ms();
    if (time - progress->shown >= PERIOD) show(progress, time);
}

void fb_progress_end(fb_progress *progress) {
    if (progress->is_visible) fputs("\r\033[K", stderr);
    progress->is_visible = false;
}
