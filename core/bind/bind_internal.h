/* Binding, in four files; for them alone.
 *
 *     bind_files.c   what the files hold, and whether an index agrees
 *     bind_prefix.c  a prefix that the names in the files have, or lack
 *     bind_choose.c  which tensor of the graph each of the files' tensors is
 *     bind.c         the graph is changed */
#ifndef FB_BIND_INTERNAL_H
#define FB_BIND_INTERNAL_H

#include "core/base/arena.h"
#include "core/bind/bind.h"

typedef struct fb_bind_file {
    const char *blob;
    size_t position; /* among those that the caller gave */
    fb_blob_bytes bytes;
    bool is_open, is_index;
    bool is_finished;      /* it says that it holds the weights of this graph's modules */
    fb_safetensors header; /* unless it is an index */
} fb_bind_file;

/* A tensor of a file. */
typedef struct fb_given {
    const fb_safetensors_entry *entry;
    const char *name; /* in the graph's terms: the entry's, but for a prefix */
    size_t file;
    bool is_listed;             /* in an index */
    fb_tensor by_name, by_path; /* of the graph: that is called so, that is owned there */
    fb_tensor said;             /* which of the graph's the file says that it is; none = the file says nothing */
    bool is_alias;              /* by_name is what the source tied it to, and by_path was made from that: see find_alias */
    fb_tensor tensor;           /* which of them it is; none = neither, or it does not fit */
} fb_given;

typedef struct fb_binder {
    fb_graph *graph;
    const fb_blobs *blobs;
    fb_bind_options options;
    fb_binding *binding;
    fb_error *error;
    fb_bind_file *files;
    size_t file_count;
    fb_given *given; /* sorted by name, then by file */
    size_t given_count;
    size_t *of_tensor;    /* by tensor: 1 + the index in `given` of what it is bound to; 0 = to nothing */
    bool *is_mismatching; /* by tensor: something is given for it that does not fit */
    fb_arena arena;       /* names with a prefix */
} fb_binder;

/* Opens and reads the files, and fills `given`. */
fb_status fb_bind_open(fb_binder *b, const char *const *files, size_t count);
void fb_bind_close(fb_binder *b);
/* Reports what an index says and the other files do not hold, or the other way round, and names that two files have. */
fb_status fb_bind_check_files(fb_binder *b);

/* Takes the prefix off the names, or puts it before them; reports names that are the same then. */
fb_status fb_bind_apply_prefix(fb_binder *b);
/* The file's tensor of that name, in the graph's terms; NULL = there is none. */
const fb_given *fb_bind_find_given(const fb_binder *b, const char *name);
/* Sets the binding's `prefix` where one would give more names of the graph than `bound`. */
fb_status fb_bind_suggest_prefix(fb_binder *b, size_t bound);

/* Fills the tensors of `given`, and `of_tensor`; reports what is extra, and what does not fit. */
fb_status fb_bind_choose(fb_binder *b);

/* Appends to `mismatching`; `given` and `tensor` may be NULL and none. */
fb_status fb_bind_mismatch(fb_binder *b, const char *name, const fb_given *given, fb_tensor tensor, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Finds out if the file has the bytes that the tensor has, or that its recipe makes; false when those cannot be known. */
fb_status fb_bind_has_already(const fb_binder *b, fb_tensor tensor, const fb_given *given, bool *same);
/* The bytes of a file's tensor. */
static inline const unsigned char *fb_given_bytes(const fb_binder *b, const fb_given *given) {
    return b->files[given->file].bytes.bytes + given->entry->offset;
}
/* A part of them was read. */
static inline void fb_bind_forget(const fb_binder *b, const fb_given *given) {
    b->blobs->forget(b->blobs->context, &b->files[given->file].bytes);
}

#endif
