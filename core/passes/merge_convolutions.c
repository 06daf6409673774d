/* MergeConvolutions: merges convolutions that read the same value into one, and slices its result.
 *
 *          ┌─ a ── …                          ┌─ [..., 0:i, :, :] ── …
 *     x ───┼─ b ── …          x ── a-b-merged ┤
 *          └─ c ── …                          └─ [..., i:j, :, :] ── …      c has another kernel
 *
 * In 1, 2 or 3 dimensions; modules, torch's functions, ATen's conv1d to conv3d and convolution. The convolutions must agree in
 * the size of the kernel, stride, padding, padding_mode and dilation, as they are written, and have one group. These are left
 * out, while the others merge if two remain:
 *   - a convolution that differs from the largest group (merge_parallel.c). A second application merges the next group
 *   - one with groups, a transposed one, and one that is called more than once
 *   - one whose result must be contiguous (memory_layout.h), or is written in place
 *
 * Biases, views of one value and results of the graph are treated as by MergeLinears. Exactness: moves. Reversible.
 */
#include "core/pass/merge_parallel.h"

static void match(fb_matcher *m, fb_node shared) {
    fb_match_parallel(m, shared, false);
}

const fb_pass fb_merge_convolutions = {
    .name = "MergeConvolutions",
    .version = 1,
    .summary = "Merges convolutions that read the same value into one, and slices its result.",
    .parameters = FB_PARALLEL_PARAMETERS,
    .exactness = FB_MOVES,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match = match,
    .edit = fb_edit_parallel,
};
