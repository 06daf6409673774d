/* The safetensors file of a graph's weights, made while it is read.
 *
 * A graph that was bound to one file, and whose weights no pass has changed, gives that very file: one in which each tensor is
 * there under its path, which has no others but the extra ones of the binding (weights_source.h), and which says nothing of
 * itself that is not true of this graph, unless that is a checkpoint, which computes nothing.
 *
 * Any other file is laid out anew, and has every tensor that a module owns. The keys are the owners' paths. A tensor that
 * several own is there under those paths that its file has (or another shard of a model that no pass has changed), or else
 * under its first owner's. Recipes are evaluated on the way. The `__metadata__` comes from the files of the bytes, where they
 * have one; the first that says a key is believed. A note of a tensor, by its name, follows it, and is left out where its bytes
 * are not in the file as they were.
 *
 * A file that has a tensor which passes made says whose weights it holds: FB_WEIGHTS_GRAPH and FB_WEIGHTS_STRUCTURE are the
 * graph's id and structure, FB_WEIGHTS_READING is "finished", and FB_WEIGHTS_TENSORS is JSON that gives for each key of the
 * file the tensor's name in the graph and the hash of its recipe: {"fc.weight": ["fc.weight@1a2b3c4d", "sha256:…"]}. A tensor
 * without a recipe has no hash, and is listed only if its name is not the key. fb_bind believes that, also for graphs that
 * later passes made of this one. So does a file that is put together from several of which one says such a thing.
 *
 * Buffers that a checkpoint lacks (`non_persistent`) are left out, unless their bytes came in a file as well. */
#ifndef FB_WEIGHTS_WEIGHTS_FILE_H
#define FB_WEIGHTS_WEIGHTS_FILE_H

#include "core/weights/evaluate.h"
#include "core/weights/safetensors.h"

#define FB_WEIGHTS_GRAPH "foldback.graph"
#define FB_WEIGHTS_STRUCTURE "foldback.structure"
#define FB_WEIGHTS_READING "foldback.weights"
#define FB_WEIGHTS_TENSORS "foldback.tensors"

/* A member of a checkpoint's tensor: the text that its file's metadata has beside the tensor's name. safetensors' save_model
 * writes {"lm_head.weight": "model.embed_tokens.weight"} for a tensor that it left out, since it is tied to the other one. */
#define FB_WEIGHTS_TIE "tied_by_note"
/* Member of a tensor of float4_*_x2 or float6_*_x4 whose rows in the file end within an element: the file's shape. */
#define FB_WEIGHTS_TORN "torn_shape"

/* The hash of a tensor's recipe, as FB_WEIGHTS_TENSORS has it. False when memory is out. */
bool fb_recipe_id(const fb_graph *graph, fb_value recipe, char id[FB_ID_LENGTH + 1]);

typedef struct fb_weights_file fb_weights_file;

/* The keys of a tensor that several modules own. */
typedef enum fb_tied {
    FB_TIED_AS_UPLOADED = 0, /* those that the files of the graph have */
    FB_TIED_FIRST,           /* the first owner's path */
    FB_TIED_EACH,            /* every owner's path, each with its own copy */
} fb_tied;

typedef struct fb_weights_choice {
    const char *const *names; /* owner paths or names of tensors, the keys to be; NULL = all that modules own */
    size_t count;
    fb_tied tied;
    bool is_finite; /* a file of the same graph was made before: its numbers need no look again */
} fb_weights_choice;

/* `choice` may be NULL: all. FB_INVALID "unknown-tensor" for names that the graph lacks, "not-in-safetensors" for tensors that
 * the format cannot hold; FB_CONFLICT "bytes-missing" when bytes are not here, or FB_TENSOR_OVERFLOWS when recipes make numbers
 * of finite ones that are not: then `faulty` is, for the answer, [{"name", "code": "blob-missing" | "blob-too-small" |
 * "bytes-unknown" | FB_TENSOR_OVERFLOWS, "blob"?}, …], and the caller's; otherwise NULL. FB_TOO_LARGE, FB_NO_MEMORY, FB_IO.
 *
 * FB_OVERFLOW_LOOK bytes of what recipes compute are looked at here; beyond them, reading fails where it comes to such a
 * number.
 */
fb_status fb_weights_file_new(const fb_graph *graph, const fb_weights_choice *choice, const fb_blobs *blobs,
                              fb_weights_file **out, json_t **faulty, fb_error *error);
void fb_weights_file_free(fb_weights_file *file);
uint64_t fb_weights_file_size(const fb_weights_file *file);
size_t fb_weights_file_count(const fb_weights_file *file); /* tensors */
/* The blobs that its bytes come from. */
const char *const *fb_weights_file_sources(const fb_weights_file *file, size_t *count);
/* Bytes offset … offset + size of the file, which must be within it; as fb_evaluation_read. One evaluation is open at a time.
 */
fb_status fb_weights_file_read(fb_weights_file *file, uint64_t offset, void *to, size_t size, fb_error *error);
/* The place of the bytes from `offset` on, as they are, without reading them: how many, of at most `size`; 0: nowhere. Valid
 * until the next call of any of these. */
fb_status fb_weights_file_lie(fb_weights_file *file, uint64_t offset, size_t size, const unsigned char **bytes, size_t *count,
                              fb_error *error);

#endif
