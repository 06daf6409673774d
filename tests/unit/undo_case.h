/* One random case of undo: a source, a list of passes, what they made, and which of them are undone; and what must hold while
 * nobody has changed the result. */
#ifndef FB_TESTS_UNDO_CASE_H
#define FB_TESTS_UNDO_CASE_H

#include "core/compose/undo.h"
#include "tests/unit/client_changes.h"

typedef struct undo_case {
    random_case base;
    random_source random;
    fb_graph *result;
    bool *is_undone;
    fb_graph *replay;              /* a fresh run of the passes that are not undone */
    json_t *source, *changed_from; /* the source and the result as trees */
    json_t *merge_replay;          /* the replay for a merge, which keeps away from some names */
    client_change changes[4];
    size_t change_count;
    bool is_trained, has_other_names;
} undo_case;

typedef struct undone {
    fb_graph *graph; /* NULL: conflicts */
    bool is_exact;
    fb_conflicts conflicts;
} undone;

/* Undoes on `ours` (NULL: the result). Fails the test unless there is a graph, or there are conflicts. */
undone undo(const undo_case *u, const bool *is_undone, const fb_graph *ours);
void undone_free(undone *done);

/* With FOLDBACK_RANDOM_DUMP=<folder> the graph is written there. */
void dump(const char *name, const fb_graph *graph);

/* Every pass alone and all of them: what comes back is the run that never had them, byte for byte. */
void check_each_pass_alone(const undo_case *u);
/* The same when the graph at hand is given, and is the result. */
void check_given_result(undo_case *u);
/* What a merge takes as the replay: undone where only the client's name of the graph is new. It is the replay, but for names of
 * nodes. */
void find_merge_replay(undo_case *u);

#endif
