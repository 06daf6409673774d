/* Shared by the files that write a changed graph's model, or read it back; for core/onnx alone. */
#ifndef FB_ONNX_REWRITE_H
#define FB_ONNX_REWRITE_H

#include "core/analysis/ancestry.h"
#include "core/base/arena.h"
#include "core/onnx/onnx.h"
#include "core/operators/spelling.h"

/* A node's meta.onnx. */
typedef struct onnx_note {
    bool is_there;
    int64_t node;     /* index of its message in its graph; -1: none */
    int64_t results;  /* of a call that gives several; -1: it gives one value */
    onnx_bytes value; /* its name */
    bool is_captured; /* the value is of a graph around its own */
    bool has_name;
} onnx_note;

/* A tensor that has no bytes in the file yet. */
typedef struct onnx_new_tensor {
    struct onnx_new_tensor *next;
    fb_tensor tensor;
    uint64_t size;
    bool is_external;
    uint64_t offset; /* in the new file, of an external one */
} onnx_new_tensor;

typedef struct onnx_writer {
    onnx_file *file;
    fb_graph *before; /* the document of the file */
    const fb_graph *graph;
    const json_t *makers; /* passes that made nodes, by node; or NULL */
    const fb_blobs *blobs;
    const char *data_name; /* of the new file for weights; NULL: they go into the model */
    fb_work *work;
    fb_error *error;
    fb_status status;
    fb_arena arena;
    onnx_model model;
    onnx_bytes *names;   /* by node of the graph: what the file calls its value */
    fb_node *twins;      /* by node of the graph: the node of `before` that it is */
    bool *is_value;      /* by node of the graph: something reads it as a value */
    bool *was_attribute; /* by node of `before`: an attribute's tensor */
    bool *is_function;   /* by program of `graph`: a function's, not one nested in it */
    fb_map reads_before; /* hash of a module's path -> the node of `before` that reads its program */
    fb_map known;        /* hashes of all names in the file, and of those that were made */
    onnx_new_tensor *tensors, *last_tensor;
    uint64_t data_size;   /* of the new file */
    fb_ancestry ancestry; /* of the main program */
    bool has_ancestry;
} onnx_writer;

/* One of several results of a call. */
static inline bool onnx_is_item(const fb_graph *graph, fb_node node) {
    return fb_node_at(graph, node)->opcode == FB_CALL_FUNCTION && strcmp(fb_node_target(graph, node), FB_TARGET_GETITEM) == 0;
}

/* FB_CONFLICT "archive-changed"; false. */
bool onnx_refuse_change(onnx_writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool onnx_writer_no_memory(onnx_writer *w);
onnx_note onnx_note_of(onnx_writer *w, const fb_graph *graph, fb_node node);
/* Is the weight a Constant of the model: one that the graph still has as such, or a new one of a function, or before IR 4 of a
 * graph within, which can have no initializers that are not inputs? */
bool onnx_is_constant(onnx_writer *w, fb_node node);
/* Fills `model`. */
bool onnx_rewrite_model(onnx_writer *w);
/* Does the model that was written, read again, say what the graph says? */
bool onnx_is_written(onnx_writer *w, const fb_graph *again);

/* Appends the path of a function's module: read.c. */
void onnx_put_function(fb_buffer *out, const onnx_function *function);

#endif
