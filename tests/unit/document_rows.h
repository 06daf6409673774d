/* Documents as trees (jansson), in canonical form, for tests that change them. */
#ifndef FB_TESTS_DOCUMENT_ROWS_H
#define FB_TESTS_DOCUMENT_ROWS_H

#include <jansson.h>
#include <stdbool.h>

/* The row of that name in "nodes", "modules" or "tensors"; NULL when there is none. */
json_t *find_row(const json_t *graph, const char *table, const char *name, size_t *index);
const char *row_name(const char *table, const json_t *row);

/* Where a node stands; how many there are when it is not there. */
size_t place_of(const json_t *graph, const char *node);
bool is_op(const json_t *node, const char *op);

/* The node that a value is a reference to, or NULL. */
const char *referred_node(const json_t *value);
/* Exchanges references to a node in one node's arguments, or in those of all nodes; gives how many. With `to` NULL they are
 * only counted. */
size_t exchange_references_in(json_t *node, const char *from, const char *to);
size_t exchange_references(json_t *graph, const char *from, const char *to);
void rename_in_document(json_t *graph, const char *from, const char *to);

/* Whether a row is the same in both, and stands behind the same row. */
bool is_same_row(const json_t *a, const json_t *b, const char *table, const char *name);
/* Whether what leads from `a` to `b` is the same as what leads from `c` to `d`, row by row with the places of the rows, and
 * nothing of it is near anything that differs between `a` and `c`. */
bool is_same_change(const json_t *a, const json_t *b, const json_t *c, const json_t *d);

/* Whether nodes that both have stand in another order in one. */
bool is_reordered(const json_t *a, const json_t *b);
/* The same rows, wherever they stand. */
bool has_same_rows(const json_t *a, const json_t *b);

#endif
