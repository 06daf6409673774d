/* Documents for tests. */
#ifndef FB_TESTS_DOCUMENTS_H
#define FB_TESTS_DOCUMENTS_H

#include <stddef.h>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "core/graph/graph.h"

extern const char *const fixture_names[]; /* NULL-terminated */
extern const int fixture_count;

/* A file's bytes, NUL-terminated, to be freed; aborts when there is none. */
char *read_file(const char *path, size_t *size);
/* tests/fixtures/<name>/<file>. */
char *read_fixture(const char *name, const char *file, size_t *size);

/* The ids of a fixture's graph and of its structure, which an independent writer computed (tests/fixtures/ids.json). */
typedef struct fixture_ids {
    char graph[FB_ID_LENGTH + 1], structure[FB_ID_LENGTH + 1];
} fixture_ids;
fixture_ids read_fixture_ids(const char *name);
/* A part of a fixture's code.txt, to be freed: its code as PyTorch has it, or after `passes`, a JSON list, as Optimum makes it;
 * NULL when it has none. */
#define FIXTURE_CODE_AFTER "# after "
char *read_fixture_code(const char *name, const char *passes);

/* A document with these elements (without brackets) in its lists, to be freed. NULL for modules is the root module alone. */
char *document_of(const char *nodes, const char *modules, const char *tensors);

/* Reads a text with default limits; prints the errors and aborts when it is refused. */
fb_graph *graph_of(const char *text, size_t size);

/* "code pointer node\n" for each error, to be freed; sorted, so that tests do not depend on the order of checks. */
char *errors_text(const fb_errors *errors);

#endif
