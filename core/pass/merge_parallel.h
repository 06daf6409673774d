/* Layers that read the same value become one, whose result is sliced: what MergeLinears and MergeConvolutions share. */
#ifndef FB_PASS_MERGE_PARALLEL_H
#define FB_PASS_MERGE_PARALLEL_H

#include "core/pass/pass.h"

/* Reports the Linears, or the convolutions, that read `shared` or an equal view of it, group by group. */
void fb_match_parallel(fb_matcher *matcher, fb_node shared, bool is_linear);
void fb_edit_parallel(fb_rewrite *rewrite, const fb_match *match);

/* The JSON Schema of both passes' params. */
#define FB_PARALLEL_PARAMETERS                                                                                                 \
    "{\"additionalProperties\":false,\"properties\":{\"minimum_gain\":{\"default\":1,\"description\":\"How many "              \
    "calls a merge must save at least.\",\"minimum\":0,\"type\":\"integer\"}},\"type\":\"object\"}"

#endif
