/* Undoing on small graphs that were changed since: for each what merges, or which conflicts there are. */
#ifndef FB_TESTS_UNDO_EXAMPLE_H
#define FB_TESTS_UNDO_EXAMPLE_H

#include <stddef.h>

/* A change that a client makes: a part of the canonical document (which is there once) becomes another. All texts are written
 * with ' for ". */
typedef struct change {
    const char *from, *to;
} change;

enum { CHANGES_MAX = 6 };

typedef struct undo_example {
    const char *name;
    const char *nodes, *modules, *tensors; /* the source */
    const char *passes;                    /* all of it */
    const char *undone;                    /* positions: "02" */
    change changes[CHANGES_MAX];           /* made to the result */
    const char *conflicts;                 /* "code kind name\n" for each, or NULL: it merges */
    change expected[CHANGES_MAX];          /* … into the replay with these changes */
} undo_example;

/* main() of a program that checks each example, with memory and without. */
int undo_examples_main(const char *name, const undo_example *examples, size_t count);

#endif
