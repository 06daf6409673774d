/* Which runs are needed: all runs in memory, with what needs what, and marks that spread. */
#ifndef FB_STORE_RETENTION_MARKS_H
#define FB_STORE_RETENTION_MARKS_H

#include "core/base/map.h"
#include "server/store/retention.h"
#include "server/store/sql.h"

typedef enum fb_need {
    FB_NOT_NEEDED,
    FB_NEEDED,          /* with what it undid and left over */
    FB_NEEDED_AND_PAST, /* also with what made its source */
} fb_need;

typedef struct fb_marked_run {
    int64_t key, created, of_run;  /* `of_run` 0 for none */
    int64_t source, result;        /* keys of graphs */
    int64_t origin, merged;        /* of an undo, graphs that doing it again takes: keys, or 0 */
    size_t first_step, step_count; /* keys of the runs whose passes it left over */
    bool is_made;                  /* its result came from its source (or origin) by steps that are known */
    fb_need need;
} fb_marked_run;

typedef struct fb_marks {
    fb_marked_run *runs; /* ascending keys */
    size_t count, capacity;
    fb_buffer steps;                                                /* int64_t */
    fb_map by_key, by_result;                                       /* positions in `runs`, from 1 */
    fb_map graphs;                                                  /* that needed runs need: keys, with the value 1 */
    fb_buffer stack;                                                /* positions whose needs are still to be marked */
    int64_t last_run, last_version, last_entry, last_pin, last_job; /* that were looked at */
} fb_marks;

/* Reads all runs, and marks what is needed whatever its age. Free it also after a failure. */
fb_status fb_marks_read(fb_connection *connection, const fb_watch *watch, fb_marks *out, fb_error *error);
void fb_marks_free(fb_marks *marks);
/* Marks what has become needed since they were read. */
fb_status fb_marks_renew(fb_connection *connection, fb_marks *marks, fb_error *error);
/* Marks those that are within the limits. */
fb_status fb_marks_keep(fb_marks *marks, const fb_retention *limits, int64_t now, fb_error *error);

#endif
