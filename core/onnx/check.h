/* Rules of a model beyond messages that can be read: its versions, values that are given before they are used, tensors
 * with as many bytes as their shapes, files beside it. */
#ifndef FB_ONNX_CHECK_H
#define FB_ONNX_CHECK_H

#include "core/onnx/model.h"

/* The files that hold weights of the model. */
typedef struct onnx_files {
    const char *model; /* the name of the model's own file, or NULL */
    bool may_lack;     /* files may be missing: their tensors' bytes are nowhere */
    void *context;
    /* Finds a file by its location: as the model spells it, then without `.` and `..`; and gives the id of its bytes, which it
     * owns, where these are a blob. Or NULL, if there are no files. */
    bool (*find)(void *context, const char *location, uint64_t *size, const char **blob);
} onnx_files;

typedef struct onnx_location {
    onnx_bytes spelled; /* as the tensor says */
    const char *name;   /* the one that was found; where none was, without `.` and `..` */
    const char *blob;   /* the id of its bytes, or NULL */
    uint64_t size;
    bool is_there;
    bool is_first; /* of those with this name */
} onnx_location;

typedef struct onnx_checking {
    onnx_file *file;
    const onnx_files *files;
    fb_work *work;
    fb_error *error;
    fb_status status;
} onnx_checking;

/* Checks all of it. FB_INVALID "bad-onnx", "unsupported-onnx", or "missing-files" with up to 8 of them; FB_NO_MEMORY; the
 * work's. */
fb_status onnx_check(onnx_file *file, const onnx_files *files, fb_work *work, fb_error *error);

/* ---- shared by the files of this folder ---------------------------------------------------------------------------------- */

#define ONNX_MOST_DIMENSIONS 64

typedef enum onnx_where { ONNX_NOWHERE, ONNX_RAW, ONNX_TYPED, ONNX_EXTERNAL } onnx_where;

/* Where the elements of a tensor are. */
typedef struct onnx_stored {
    onnx_where where;     /* ONNX_NOWHERE: it has no elements, or its file is missing */
    uint64_t count, size; /* elements; bytes of these, packed */
    uint64_t offset;      /* of raw ones in the model's file, of external ones in theirs */
    onnx_location *location;
} onnx_stored;

/* False: the tensor is wrong, which `c` says. */
bool onnx_stored_in(onnx_checking *c, const onnx_tensor *tensor, onnx_stored *out);
bool onnx_check_sparse(onnx_checking *c, const onnx_sparse *sparse);

/* A number of TensorProto.DataType? */
bool onnx_is_dtype(int32_t number);
/* The dtype as documents have it: "float32"; NULL for another number. */
const char *onnx_dtype_word(int32_t number);

/* complain.c */

bool onnx_is(onnx_bytes text, const char *wanted);
bool onnx_same(onnx_bytes a, onnx_bytes b);
/* The text for a message: cut where it is long, and in one line. */
const char *onnx_shown(onnx_bytes text, char out[96]);

/* The first failure counts. `field` is a number of the table, or 0. Return false. */
bool onnx_bad(onnx_checking *c, onnx_message kind, const void *message, int field, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
bool onnx_unsupported(onnx_checking *c, onnx_message kind, const void *message, int field, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
