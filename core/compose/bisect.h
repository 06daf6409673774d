/* Which matches of a run's passes make its result wrong: a search by halves. What "wrong" means, the caller says of each part
 * of the run that is asked for. */
#ifndef FB_COMPOSE_BISECT_H
#define FB_COMPOSE_BISECT_H

#include "core/base/arena.h"
#include "core/base/error.h"

typedef enum fb_outcome {
    FB_OUTCOME_GOOD,
    FB_OUTCOME_BAD,
    FB_OUTCOME_UNKNOWN, /* it cannot be told, as by 125 in git bisect run */
    FB_OUTCOME_ABSENT,  /* a match that is chosen is not there, or needs one that is left out */
} fb_outcome;

typedef struct fb_match_names {
    const char *const *items;
    size_t count;
} fb_match_names;

/* A part of a run: its first passes, and of some of them some matches. */
typedef struct fb_run_part {
    size_t passes;
    const fb_match_names *only; /* by position, of each of them: items NULL = all matches */
} fb_run_part;

typedef struct fb_bisect_oracle {
    void *context;
    fb_status (*judge)(void *context, const fb_run_part *part, fb_outcome *out, fb_error *error);
    /* The matches of the pass in the whole run, in order; they live as long as the search. */
    fb_status (*list)(void *context, size_t position, fb_match_names *out, fb_error *error);
} fb_bisect_oracle;

typedef struct fb_found_match {
    size_t position;
    const char *name; /* NULL: the pass as a whole */
} fb_found_match;

typedef struct fb_bisected {
    fb_outcome outcome;      /* of the whole run: of one that is not bad nothing is searched */
    bool is_source_bad;      /* without any pass it is not good: nothing is searched either */
    fb_found_match *matches; /* the first that makes the result wrong, and before it, in reverse order, those that it needs */
    size_t count;
    bool is_smallest; /* without one of them the result is right */
    size_t first;     /* more than the position of the first: the passes from here on to it could not be told apart */
    size_t pass_steps, match_steps, steps; /* parts that were judged: to find the pass, to find its match, in all */
    fb_outcome rest;                       /* the whole run without the first match */
    fb_arena arena;
} fb_bisected;

/* `asks_source`: the source is judged as well, where it is not what the others are compared with. `is_active`, by position: a
 * pass that applied something. Of n such passes the first bad one is found in ceil(log2(n)) steps, of its n matches the first
 * bad one likewise, where each part can be judged. `out` is written on success only. */
fb_status fb_bisect(const fb_bisect_oracle *oracle, const bool *is_active, size_t passes, bool asks_source, fb_bisected *out,
                    fb_error *error);
void fb_bisected_free(fb_bisected *found);

#endif
