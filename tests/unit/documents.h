/* Documents for tests. */
#ifndef FB_TESTS_DOCUMENTS_H
#define FB_TESTS_DOCUMENTS_H

#include <stddef.h>

#include "core/base/error.h"
#include "core/graph/graph.h"

extern const char *const fixture_names[]; /* NULL-terminated */

/* A file's bytes, NUL-terminated, to be freed; aborts when there is none. */
char *read_file(const char *path, size_t *size);
/* tests/fixtures/<name>/<file>. */
char *read_fixture(const char *name, const char *file, size_t *size);

/* A document with these elements (without brackets) in its lists, to be freed. NULL for modules is the root module alone. */
char *document_of(const char *nodes, const char *modules, const char *tensors);

/* Reads a text with default limits; prints the errors and aborts when it is refused. */
fb_graph *graph_of(const char *text, size_t size);

/* "code pointer node\n" for each error, to be freed; sorted, so that tests do not depend on the order of checks. */
char *errors_text(const fb_errors *errors);

#endif
