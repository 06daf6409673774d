/* ONNX models: read as documents, the third dialect beside torch.fx and `.pt2`.
 *
 * The document's tensors point into the model's file and the files beside it, which must be blobs. Only numbers that the file
 * has in another form than as their bytes go into the document. */
#ifndef FB_ONNX_ONNX_H
#define FB_ONNX_ONNX_H

#include <jansson.h>

#include "core/base/buffer.h"
#include "core/base/sha256.h"
#include "core/graph/graph.h"
#include "core/onnx/check.h"
#include "core/weights/blobs.h"

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

/* The files of a graph that was read from a model and has been changed since: messages that nothing touched are as they were,
 * new weights are evaluated while a file is read. Before the first byte the model that was written is read again and compared
 * with the graph, so that one which says something else is never given. */
typedef struct onnx_written onnx_written;

/* `file` is the model that the graph came from, which onnx_check has found right; its bytes and the blobs must outlive what is
 * written. `makers`: as fb_archive_file_new has it. FB_CONFLICT "archive-changed" says what cannot be written;
 * FB_NOT_FOUND and the others come from fb_evaluation_new. */
fb_status onnx_written_new(onnx_file *file, const onnx_bundle *bundle, const fb_graph *graph, const json_t *makers,
                           const fb_blobs *blobs, fb_work *work, onnx_written **out, fb_error *error);
void onnx_written_free(onnx_written *written);
/* The name of the new file for weights, or NULL: there is none. */
const char *onnx_written_data_name(const onnx_written *written);
uint64_t onnx_written_size(const onnx_written *written, bool is_data);
/* Bytes offset … offset + size of the model, or of the new file. One thread at a time. */
fb_status onnx_written_read(onnx_written *written, bool is_data, uint64_t offset, void *to, size_t size, fb_error *error);

/* Appends the document of the graph `written` with the weights of `trained`, which was read from a model that another tool made
 * of its: nodes, names and marks come from `written`. FB_CONFLICT "another-program" says where the two differ in anything but
 * names and the bytes of weights. */
fb_status onnx_trained_document(const fb_graph *written, const fb_graph *trained, fb_buffer *out, fb_error *error);

/* The id of the graph for which foldback wrote the model, or "". Others may have changed it since: it is the graph's only if it
 * has the same bytes as what onnx_written_new writes of that graph. */
void onnx_written_for(const onnx_file *file, char id[FB_ID_LENGTH + 1]);

#endif
