/* ONNX models: read as documents, the third dialect beside torch.fx and `.pt2`.
 *
 * The document's tensors point into the model's file and the files beside it, which must be blobs. Only numbers that the file
 * has in another form than as their bytes go into the document. */
#ifndef FB_ONNX_ONNX_H
#define FB_ONNX_ONNX_H

#include "core/base/buffer.h"
#include "core/onnx/check.h"

/* Appends the document of a model that onnx_check has found right. `blob` is the id of the model's file. Read the document with
 * fb_document_read, which checks it. FB_INVALID "unsupported-onnx" for what documents cannot say, FB_NO_MEMORY, the work's. */
fb_status onnx_document(onnx_file *file, const char *blob, fb_work *work, fb_buffer *out, fb_error *error);

#endif
