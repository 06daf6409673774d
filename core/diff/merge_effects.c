/* Calls that come back, or go, and are no longer what they were: the module that they call is of another type since, and may
 * write into what it is given. With a pass that takes calls away because they do nothing else than compute, one more or one
 * less of them was no matter; now it is.
 *
 *     base:    x   a = act(x)   (b = act(x), which nobody reads, went)      theirs:  x   a = act(x)   b = act(x)
 *     ours:    act is my.Block, and writes into x: b = act(x) would do it once more
 */
#include "core/diff/merging.h"

/* Reports the calls of `graph` that `other` has not; `then` is what the same call was before the module changed. */
static void report(fb_merging *m, const fb_graph *graph, const fb_graph *other, const fb_graph *then) {
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && fb_merging_goes_on(m); n = fb_next_node(graph, n)) {
        const char *name = fb_node_name(graph, n);
        if (fb_node_at(graph, n)->opcode != FB_CALL_MODULE || fb_node_find(other, FB_MAIN_PROGRAM, name).id) continue;
        fb_node was = fb_node_find(then, FB_MAIN_PROGRAM, name);
        if (!was.id || fb_merging_may_write(then, was) || !fb_merging_may_write(graph, n)) continue;
        fb_conflicts_add(
            m->conflicts, FB_CONFLICT_NODE, "changed-node", name,
            "it is called once more or less, and module %s may write into what it is given, which it did not before",
            fb_node_target(graph, n));
    }
}

void fb_merge_effects(fb_merging *m, const fb_graph *merged) {
    report(m, merged, m->sides.ours, m->sides.theirs);
    report(m, m->sides.ours, merged, m->sides.base);
}
