/* Giving a graph's tensors the bytes of safetensors files. */
#ifndef FB_BIND_BIND_H
#define FB_BIND_BIND_H

#include "core/base/buffer.h"
#include "core/base/work.h"
#include "core/graph/graph.h"
#include "core/weights/blobs.h"
#include "core/weights/safetensors.h"

/* The model whose weights the files hold. A key may name two tensors: after BatchNorm was folded into a convolution,
 * "conv.weight" is the weight that the folded one is computed from, and the path at which a module owns the folded one. */
typedef enum fb_weights_reading {
    FB_WEIGHTS_UNKNOWN = 0, /* found out; "ambiguous-weights" where both readings fit */
    FB_WEIGHTS_SOURCE,      /* weights of the model before the passes */
    FB_WEIGHTS_FINISHED,    /* those that the graph's modules own */
    FB_WEIGHTS_ORIGINAL,    /* weights of the first model, where runs over runs' results have left several versions */
} fb_weights_reading;
/* "source", "finished" or "original"; FB_WEIGHTS_UNKNOWN for any other text. */
fb_weights_reading fb_weights_reading_find(const char *name);

typedef struct fb_bind_options {
    fb_weights_reading as;
    const char *prefix; /* "bert.": taken off the files' names, or put before them, whichever gives more names of the graph;
                           NULL or "" = names are as they are */
} fb_bind_options;

/* The result of a binding, with what does not fit as JSON for answers. */
typedef struct fb_binding {
    size_t bound;        /* tensors of the graph whose bytes are in the files */
    json_t *missing;     /* names of tensors that a module owns or a recipe reads, and whose bytes are not known */
    json_t *extra;       /* names in the files that no tensor of the graph has */
    json_t *mismatching; /* [{"name", "detail", "file"?: {"dtype", "shape"}, "graph"?: {…}}, …]; the name in the file */
    bool fits_nothing;   /* the files have tensors, and no name of them is one of the graph */
    char *prefix;        /* the longest one with which more names would fit; NULL = none does */
    size_t prefix_count; /* names that fit with it */
} fb_binding;
void fb_binding_free(fb_binding *binding);

/* Binds each tensor of the graph to the tensor of the same name in the files `blobs[0…count)`, or else of the path of one of
 * its owners ("encoder.0.query.weight"): sets `blob` and `offset`, and takes away data, recipe, and a digest that the new bytes
 * do not have. A file's tensor goes before what the graph had: so a fine-tuned file of an optimised graph can be bound to it.
 * Where the bytes are what the tensor has in another blob, or what its recipe makes, it stays as it is: so nothing has changed
 * when a file is sent back as it was given out.
 *
 * A file that foldback wrote says which tensor each of its tensors is (weights_file.h), and is believed. All others together
 * are read as `options->as` says; where it does not, as bind_choose.c finds out, or else this fails with FB_CONFLICT
 * "ambiguous-weights". So it does where a file says that its tensor is one that the graph lacks, unless it must be read as
 * finished. `options` may be NULL. Paths of one tensor may each have a copy in the files, of the same bytes. Inputs of a recipe
 * that bytes have replaced are dropped, unless something else needs them. A buffer that a checkpoint lacks (`non_persistent`)
 * is not missing, unless the recipe of another tensor reads it.
 *
 * A tensor that has a digest and no bytes takes only bytes of that digest. Two files must not have one name; a file that is
 * given twice counts once. One of the files may be a model.safetensors.index.json: then its weight_map must be what the others
 * hold. `mismatching` names a shard that is not among them.
 *
 * The graph is changed only when nothing mismatches. FB_NOT_FOUND "blob-missing", FB_INVALID "bad-safetensors" with a pointer
 * "/weights/1…", FB_NO_MEMORY, FB_IO. `binding` is set also when something mismatches (status FB_OK). */
fb_status fb_bind(fb_graph *graph, const char *const *files, size_t count, const fb_blobs *blobs,
                  const fb_bind_options *options, fb_binding *binding, fb_error *error);

/* A checkpoint: safetensors files as a document whose modules own their tensors, and which computes nothing. */

/* Appends the document. `files` are digests of safetensors files, in any order; an index of shards may be among them, and must
 * agree with them then. A tensor's name is the path of the module that owns it, a dot, and the attribute; its bytes stay in the
 * blob. FB_INVALID with a pointer that begins with "/weights/1": "bad-safetensors", "bad-checkpoint" where two files have one
 * name or the index names another one; FB_NOT_FOUND "blob-missing". */
fb_status fb_checkpoint_write(const char *const *files, size_t count, const char *name, const fb_blobs *blobs, fb_buffer *out,
                              fb_error *error);
/* True of two checkpoints whose modules own the same tensors, byte for byte, under the same paths; false of a graph that
 * computes. */
fb_status fb_checkpoints_equal(const fb_graph *a, const fb_graph *b, const fb_blobs *blobs, const fb_watch *watch,
                               bool *are_equal, fb_error *error);

#endif
