/* Random changes that a client makes to a graph after it was optimised, for tests of undo.
 *
 * A change is data, so that the very same one can be made to another graph. */
#ifndef FB_TESTS_CLIENT_CHANGES_H
#define FB_TESTS_CLIENT_CHANGES_H

#include "tests/unit/document_rows.h"
#include "tests/unit/random_case.h"

typedef enum change_kind {
    CHANGE_ADD_READER,    /* a new node that reads another, perhaps writes into it, perhaps is an output */
    CHANGE_ADD_BETWEEN,   /* a new node between a node and its readers */
    CHANGE_ADD_CALL,      /* of a module that is called already, or a reader of its weight */
    CHANGE_ARGUMENTS,     /* a number, a node that is read, or a keyword argument */
    CHANGE_ERASE,         /* a node is taken out; its readers read what it read */
    CHANGE_RENAME,        /* a node, everywhere */
    CHANGE_MOVE,          /* a node stands elsewhere */
    CHANGE_META,          /* a free member, or the shape */
    CHANGE_TARGET,        /* another function or method */
    CHANGE_MODULE,        /* its config, mode, type or a member that nobody knows */
    CHANGE_ADD_MODULE,    /* a Linear with its tensors, and a call */
    CHANGE_RENAME_MODULE, /* everywhere */
    CHANGE_RENAME_TENSOR, /* everywhere */
    CHANGE_MARKS,         /* taken from a node, or from all, or added */
    CHANGE_OUTPUT,        /* one more, or one less */
    CHANGE_RUN,           /* another list of passes on top */
    CHANGE_ABOUT,         /* name and metadata of the graph */
    CHANGE_KINDS,
} change_kind;
extern const char *const change_names[CHANGE_KINDS];

enum { CHANGE_NAME = 1024 };
typedef struct client_change {
    change_kind kind;
    char name[CHANGE_NAME];  /* of what is changed or read */
    char other[CHANGE_NAME]; /* a node: another to read, or to stand before */
    char fresh[CHANGE_NAME]; /* a new name */
    uint64_t choice;
} client_change;

/* Some change to `graph`, which was made from `source`; one that touches what differs between the two is more likely, and so
 * are names that the source had and the graph has no more. False when that kind of change found nothing to change. */
bool choose_change(random_source *random, const json_t *graph, const json_t *source, client_change *out);
/* False when it cannot be made here; the graph may be spoilt then. That the result is a valid graph is not promised. */
bool make_change(const random_case *c, const client_change *change, json_t **graph);

#endif
