/* MergeLinears: merges Linears that read the same value into one, and slices its result.
 *
 *          ┌─ q ── …                            ┌─ [..., 0:a] ── …
 *     x ───┼─ k ── …          x ── q-k-v-merged ┼─ [..., a:b] ── …
 *          └─ v ── …                            └─ [..., b:c] ── …
 *
 * Merges any number of branches, of any sizes, below any parents. The pass leaves these out. It merges the others if at least
 * two are left:
 *   - a Linear that differs from the largest group (merge_parallel.c)
 *   - one that is called more than once, or is not exactly torch's
 *   - one whose result must be contiguous (memory_layout.h), or is written in place
 *
 * Called modules form one group, and so do functions of one spelling (linear, ATen's, addmm with its packed weights). If no
 * Linear has a bias, neither does the merged one; if some have, the others get zeros. Linears that each read a separate but
 * equal view of one value merge on the first of these views; run_decompositions() makes such views. Exactness: moves.
 * Reversible.
 *
 * A slice has the strides of the whole. If one of the Linears gives a result of the graph, the caller gets the same numbers in
 * a tensor that is not contiguous: `view(-1)` of it fails, `reshape(-1)` works. Optimum merges there, too.
 */
#include "core/pass/merge_parallel.h"

static void match(fb_matcher *m, fb_node shared) {
    fb_match_parallel(m, shared, true);
}

const fb_pass fb_merge_linears = {
    .name = "MergeLinears",
    .version = 1,
    .summary = "Merges Linears that read the same value into one, and slices its result.",
    .parameters = FB_PARALLEL_PARAMETERS,
    .exactness = FB_MOVES,
    .gain = FB_GAIN_FEWER_NODES,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match = match,
    .edit = fb_edit_parallel,
};
