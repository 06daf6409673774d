/* Graphs that are bound to files of tensors, of two bytes mostly. */
#ifndef FB_TESTS_BIND_FIXTURE_H
#define FB_TESTS_BIND_FIXTURE_H

#include "core/bind/bind.h"
#include "core/graph/graph.h"
#include "tests/unit/memory_blobs.h"

extern memory_blobs bind_blobs; /* where the files are */
void bind_set_up(void);
void bind_tear_down(void);

/* A document of modules ("path": {"weight": "tensor"}, …) and tensors. */
fb_graph *bind_graph(const char *owners, const char *tensors);
/* Its text, to be freed. */
char *bind_document(const fb_graph *graph);

/* Binds, and checks the lists: `mismatching` only the names, and the first detail has `detail`. The graph stays valid; and as
 * it is, when something mismatches. */
void expect_binding(fb_graph *graph, const char *const *files, size_t count, size_t bound, const char *missing,
                    const char *extra, const char *mismatching, const char *detail);
void expect_binding_with(fb_graph *graph, const char *const *files, size_t count, const fb_bind_options *options, size_t bound,
                         const char *missing, const char *extra, const char *mismatching, const char *detail);
/* One file, in which nothing is missing or extra. */
void expect_bound(fb_graph *graph, const char *file, size_t bound);
void expect_mismatch(fb_graph *graph, const char *file, const char *name, const char *detail);

/* The file is refused: its names may be read in two ways. The graph stays as it is. */
void expect_ambiguous(fb_graph *graph, const char *file);
/* The same when the caller says that it is the source's: the file says that it is not. */
void expect_contradiction(fb_graph *graph, const char *file);
/* As expect_bound, with options. */
void expect_bound_with(fb_graph *graph, const char *file, const fb_bind_options *options, size_t bound);

/* Fails the test when there is none. */
const fb_tensor_row *tensor_row(const fb_graph *graph, const char *name);
/* The tensor's bytes begin with `bytes` in its blob. */
void expect_bytes(const fb_graph *graph, const char *name, const char *bytes);
void bytes_digest(const char *bytes, char digest[FB_ID_LENGTH + 1]);

#define U8_1(name, bytes)                                                                                                      \
    { name, "U8", "1", bytes, 1 }
#define U8_2(name, bytes)                                                                                                      \
    { name, "U8", "2", bytes, 2 }
#define FILE_OF(...)                                                                                                           \
    memory_blobs_put_tensors(&bind_blobs, NULL, (const memory_tensor[]){__VA_ARGS__},                                          \
                             sizeof((const memory_tensor[]){__VA_ARGS__}) / sizeof(memory_tensor))

#define TENSOR(name, rest) "{\"name\":\"" name "\",\"dtype\":\"uint8\",\"shape\":[2]" rest "}"

#endif
