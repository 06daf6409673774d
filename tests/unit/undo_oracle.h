/* What undoing on a graph that a client changed has to give, known without it. */
#ifndef FB_TESTS_UNDO_ORACLE_H
#define FB_TESTS_UNDO_ORACLE_H

#include "tests/unit/undo_case.h"

/* The table of a document that conflicts of a kind are about. */
extern const char *const conflict_tables[FB_CONFLICT_TENSOR + 1];

/* A conflict may be about what lies between the client's change and what is undone. It is right to be careful there; but where
 * the two have nothing to do with each other there must be none. */
bool is_conflict_due(const undo_case *u, const fb_conflict *conflict);

/* The replay with the client's changes, when they are the same changes there; NULL when they are not. */
fb_graph *changed_replay(const undo_case *u, const json_t *ours);

/* Where undoing moves nodes away from what the client put beside them, there are several places for it. */
bool stands_elsewhere(const undo_case *u, const fb_graph *oracle, const fb_graph *merged);

#endif
