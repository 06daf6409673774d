/* ONNX models: read as documents, the third dialect beside torch.fx and `.pt2`.
 *
 * The document's tensors point into the model's file and the files beside it, which must be blobs. Only numbers that the file
 * has in another form than as their bytes go into the document. */
#ifndef FB_ONNX_ONNX_H
#define FB_ONNX_ONNX_H

#include <jansson.h>

#include "core/base/buffer.h"
#include "core/graph/graph.h"
#include "core/onnx/check.h"

#define ONNX_MODEL_NAME "model.onnx" /* of a file that came without a name */

/* Appends the document of a model that onnx_check has found right. `blob` is the id of the model's file, and `name` its name,
 * or NULL. Read the document with fb_document_read, which checks it. FB_INVALID "unsupported-onnx" for what documents cannot
 * say, FB_NO_MEMORY, FB_TOO_LARGE, the work's. */
fb_status onnx_document(onnx_file *file, const char *blob, const char *name, fb_work *work, fb_buffer *out, fb_error *error);

/* The files of a model: those that a request brings together, or those that a graph was read from. The graph's metadata say
 * them, also after passes: {"onnx": {"blob": "sha256:…", "model": "model.onnx", "files": {"weights.bin": "sha256:…"}, …}}. */
typedef struct onnx_bundle_file {
    const char *name, *blob; /* blob NULL: it is missing */
    uint64_t size;           /* the caller's to know */
} onnx_bundle_file;

typedef struct onnx_bundle {
    const char *blob; /* the model's own file; NULL: the graph came from no ONNX model */
    const char *model;
    onnx_bundle_file *files; /* the others, sorted by name */
    size_t count;
    bool may_lack;
    json_t *said; /* which all texts are of */
} onnx_bundle;

/* Reads the member "onnx" of a graph's metadata. Free it with onnx_bundle_free, also after a failure, which is FB_NO_MEMORY. */
fb_status onnx_bundle_of(const fb_graph *graph, onnx_bundle *out, fb_error *error);
void onnx_bundle_free(onnx_bundle *bundle);
/* Gathers the members of an object {name: digest or null}, but `model` itself. False: memory is out. */
bool onnx_bundle_gather(const json_t *files, onnx_bundle *bundle);
/* NULL: the bundle has no file of this name. */
const onnx_bundle_file *onnx_bundle_find(const onnx_bundle *bundle, const char *name);

#endif
