/* What a document says, whatever its nodes are called; for core/archive alone. All give NULL or false when memory is out. */
#ifndef FB_ARCHIVE_MEANING_H
#define FB_ARCHIVE_MEANING_H

#include <jansson.h>
#include <stdbool.h>

/* Appends the names of the nodes in a value of the document, left to right. */
bool pt_list_reads(const json_t *value, json_t *out);
/* A document's tensors by owner: {"a.weight": [row, is a parameter]}. */
json_t *pt_owners_of(const json_t *document);
/* Of such an owner's tensor. */
bool pt_requires_grad(const json_t *owned);
/* What the document computes: inputs, calls in their order with what they read, and the dtype and shape of each state. Two
 * documents with equal ones compute the same. */
json_t *pt_meaning_of(const json_t *document);

#endif
