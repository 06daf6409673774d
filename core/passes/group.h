/* Candidates that may be merged where they agree: the largest group of equals is the match, the others are refused. */
#ifndef FB_PASSES_GROUP_H
#define FB_PASSES_GROUP_H

#include "core/passes/pass.h"

#define FB_GROUP_KEYS 7

typedef struct fb_candidate {
    fb_node node;
    uint32_t ordinal;
    int64_t key[FB_GROUP_KEYS]; /* what must be equal */
} fb_candidate;

/* Why a candidate that differs in key[i] is refused. */
typedef struct fb_group_key {
    const char *reason, *detail;
} fb_group_key;

/* Gives candidates between which `shared`, which they all read, is written in place different numbers in key[written]; and
 * those between which a mode is switched, in key[switched]. The candidates are in their order. */
void fb_number_epochs(fb_matcher *matcher, fb_node shared, fb_candidate *candidates, size_t count, size_t written,
                      size_t switched);

/* Reports the largest group of candidates with equal keys as a match when it has two members or more, in the order given; of
 * equally large groups, the one that is complete first. Every other candidate is refused for the first key that differs. A
 * group of fewer than `least` members is refused ("minimum-gain"). */
void fb_match_largest_group(fb_matcher *matcher, const fb_candidate *candidates, size_t count,
                            const fb_group_key meanings[FB_GROUP_KEYS], size_t least);

/* Appends a path for what modules of these paths become: the parent of the first, and the last parts of all:
 * "encoder.0.query-key-value-merged"; long ones are shortened. */
void fb_group_path(const char *const *paths, size_t count, fb_buffer *out);

#endif
