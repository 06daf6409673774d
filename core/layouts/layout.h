/* Layouts: how one family of software arranges the weights of a model, as data (schema/layout.schema.json, docs/layouts.md).
 *
 *     {"name": "qkv-fused", "parameters": {}, "rows": [
 *         {"from": {"q": "{*block}q_proj.weight", "k": "{*block}k_proj.weight", "v": "{*block}v_proj.weight"},
 *          "to": {"{*block}qkv_proj.weight": {"op": "concat", "axis": 0, "args": ["q", "k", "v"]}}}]}
 *
 * A row names tensors by the paths of their owners, and says what they become: recipes that move bytes. A layout is a pass over
 * a checkpoint, a document whose modules own tensors and that computes nothing; so what undoes passes undoes layouts.
 *
 * A row is applied once for every set of captures that its names share, or refused: nothing is guessed, and nothing is
 * converted in part. No two applications read or make the same tensor. A tensor that no row names stays as it is. */
#ifndef FB_LAYOUTS_LAYOUT_H
#define FB_LAYOUTS_LAYOUT_H

#include <jansson.h>

#include "core/pass/pass.h"

#define FB_LAYOUT_BYTES_MAX 262144 /* of the canonical document */
#define FB_LAYOUT_ROWS_MAX 512
#define FB_LAYOUT_PARAMETERS_MAX 16

/* Reads and checks a layout. `pointer` is the document's place in a request. FB_INVALID with a pointer to the place. `out` is
 * written on success only; free it with fb_pass_free. */
fb_status fb_layout_read(const json_t *document, const char *pointer, int version, const fb_pass **out, fb_error *error);

/* Canonical JSON of the document of a pass that is a layout. Two that differ in nothing else are one version. */
const char *fb_layout_document(const fb_pass *layout);

/* Adds to `params` the layout's parameters that it lacks and that follow from a Hugging Face config.json, by the expressions
 * that the layout gives for them. A parameter that does not follow is left out. */
fb_status fb_layout_configure(const fb_pass *layout, const json_t *config, json_t *params, fb_error *error);

/* Appends what a layout copies, as JSON: {"made": {name: {"dtype", "shape"}}, "sources": the same, "copies": [{"made", "part",
 * "source", "of"}], "fills": [{"made", "part", "value"}]}. `part` and `of` are steps, each a view of what the step before
 * gives:
 * {"slice": [[start, stop], …]}, {"reshape": sizes}, {"permute": dims}, {"index": {"axis", "reshape", "permute"}}, which takes
 * along an axis the places arange(n).reshape(…).permute(…).reshape(-1). "again": true at a part of a source that an earlier
 * copy has as well. `result` is what the layout made of a checkpoint; it gets values more. FB_INVALID "computed", FB_TOO_LARGE.
 */
fb_status fb_layout_plan_write(fb_graph *result, fb_buffer *out, fb_error *error);

/* A layout that comes with this binary. */
typedef struct fb_shipped_layout {
    const char *name, *document; /* NULL past the end */
} fb_shipped_layout;
fb_shipped_layout fb_layout_shipped(size_t index); /* in the order of their names */
bool fb_layout_is_shipped(const char *name);

#endif
