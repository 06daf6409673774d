/* The most that SQLite itself can do on this machine: the rows of runs that a service wrote, written again by a bare loop of
 * one thread, so many runs in each transaction, with the settings of the service's store. */
#ifndef FB_BENCH_CEILING_H
#define FB_BENCH_CEILING_H

#include <stddef.h>

typedef struct fb_ceiling fb_ceiling;

/* `database` is that of a stopped service with runs in it, some of which are read and held; then it is written to. Exits when
 * anything fails. */
fb_ceiling *fb_ceiling_open(const char *database);
/* Runs per second. */
double fb_ceiling_measure(fb_ceiling *ceiling, size_t group, double seconds);
void fb_ceiling_close(fb_ceiling *ceiling);

#endif
