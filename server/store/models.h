/* The store's models: immutable versions, and aliases ("production") that point at one of them.
 *
 * Every change of an alias is an entry in a history to which entries are only added. An entry's number is never used twice and
 * ascends over all aliases; the last entry of an alias is its state. So an alias, an item of its history and an event are all
 * one thing here: fb_store_alias_entry.
 *
 * As in store.h: safe from any thread, durable when they return, and the same general errors. */
#ifndef FB_STORE_MODELS_H
#define FB_STORE_MODELS_H

#include "server/store/store.h"

/* Names of models, versions and aliases: 1 to FB_NAME_MAX characters of [A-Za-z0-9._-], but not "." and "..". */
bool fb_is_name(const char *text);

/* ---- models ---- */

typedef struct fb_store_model {
    const char *name;
    int64_t created;
    const char *naming; /* of versions that the service makes: "words" (2-without-MergeLinears) or "integer", the next number */
    uint64_t versions, aliases; /* how many it has */
    fb_store_memory *memory;
} fb_store_model;

typedef struct fb_store_models {
    fb_store_model *items;
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1];
    fb_store_memory *memory;
} fb_store_models;

/* Makes the model, if there is none, and says how its versions are named from now on. `out` (free it) is the model. */
fb_status fb_store_put_model(fb_store *store, const char *name, const char *naming, const fb_store_actor *by, bool *is_new,
                             fb_store_model *out, fb_error *error);

/* FB_NOT_FOUND "unknown-model". */
fb_status fb_store_get_model(fb_store *store, const char *name, fb_store_model *out, fb_error *error);

fb_status fb_store_list_models(fb_store *store, const fb_store_page *page, fb_store_models *out, fb_error *error);

/* ---- versions ---- */

typedef struct fb_store_version {
    const char *model, *name;
    const char *graph;      /* its id */
    const char *run;        /* whose result it was given as, or NULL */
    const char *note;       /* or NULL */
    const char *validation; /* JSON: how that run was validated, or NULL */
    int64_t created;
    fb_store_memory *memory;
} fb_store_version;

typedef struct fb_store_versions {
    fb_store_version *items;
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1];
    fb_store_memory *memory;
} fb_store_versions;

/* A version to be made, of a graph or of a run's result. */
typedef struct fb_store_new_version {
    const char *model, *name;
    const char *graph;              /* the id of a stored graph, or NULL */
    const fb_store_graph *document; /* a graph that is stored with the version unless it is known, or NULL */
    const char *run;                /* or NULL */
    const char *note;               /* or NULL */
    fb_store_actor by;
} fb_store_new_version;

/* Makes the model with its first version. `out` (free it) is the version as it is stored; with the same graph again nothing
 * changes and *is_new is false. FB_NOT_FOUND "unknown-graph", "unknown-run"; FB_CONFLICT "version-exists" with another graph.
 */
fb_status fb_store_put_version(fb_store *store, const fb_store_new_version *version, bool *is_new, fb_store_version *out,
                               fb_error *error);

/* FB_NOT_FOUND "unknown-model", "unknown-version". */
fb_status fb_store_get_version(fb_store *store, const char *model, const char *name, fb_store_version *out, fb_error *error);

/* FB_NOT_FOUND "unknown-model". */
fb_status fb_store_list_versions(fb_store *store, const char *model, const fb_store_page *page, fb_store_versions *out,
                                 fb_error *error);

/* FB_NOT_FOUND "unknown-model", "unknown-version"; FB_CONFLICT "version-in-use" when an alias has it or ever had it: then it
 * could be rolled back to it. An alias that was deleted needs nothing. */
fb_status fb_store_delete_version(fb_store *store, const char *model, const char *name, const fb_store_actor *by,
                                  fb_error *error);

/* ---- aliases ---- */

typedef struct fb_store_alias_entry {
    int64_t number;
    int64_t at;
    const char *model, *alias;
    const char *action;              /* "create", "deploy", "rollback", "delete" */
    const char *who, *why;           /* or NULL */
    const char *from, *from_graph;   /* the version before and its graph's id; NULL when there was none */
    const char *to, *to_graph, *run; /* the version since; NULL for "delete". `run` as in fb_store_version */
    fb_store_memory *memory;
} fb_store_alias_entry;

typedef struct fb_store_alias_entries {
    fb_store_alias_entry *items; /* each `memory` is NULL: the list owns everything */
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1];
    fb_store_memory *memory;
} fb_store_alias_entries;

/* The last entry of an alias that exists. FB_NOT_FOUND "unknown-model", "unknown-alias". */
fb_status fb_store_get_alias(fb_store *store, const char *model, const char *alias, fb_store_alias_entry *out, fb_error *error);
/* The entry with that number. FB_NOT_FOUND "unknown-alias". */
fb_status fb_store_get_alias_entry(fb_store *store, int64_t number, fb_store_alias_entry *out, fb_error *error);

/* The last entries of the model's aliases. FB_NOT_FOUND "unknown-model". */
fb_status fb_store_list_aliases(fb_store *store, const char *model, const fb_store_page *page, fb_store_alias_entries *out,
                                fb_error *error);
/* The entries of one alias, newest first, also when it was deleted. FB_NOT_FOUND "unknown-model", "unknown-alias". */
fb_status fb_store_alias_history(fb_store *store, const char *model, const char *alias, const fb_store_page *page,
                                 fb_store_alias_entries *out, fb_error *error);

/* ---- changes of aliases ---- */

typedef enum fb_alias_condition {
    FB_ALIAS_EXISTS,  /* else FB_CONFLICT "alias-moved" */
    FB_ALIAS_IS_AT,   /* exists, and its last entry is number `expected`; else FB_CONFLICT "alias-moved" */
    FB_ALIAS_IS_FREE, /* does not exist; else FB_CONFLICT "alias-exists" */
} fb_alias_condition;

typedef struct fb_store_alias_change {
    const char *model, *alias;
    fb_alias_condition condition; /* holds when the change is made, in one step with it */
    int64_t expected;
    const char *who, *why; /* or NULL; what the client says of it, unchecked */
    fb_store_actor by;
} fb_store_alias_change;

/* Every change: the condition's errors, FB_NOT_FOUND "unknown-model". `out` (free it) is the alias' last entry afterwards.
 * `answer` may be NULL; its body becomes the number of that entry, in decimal digits. */

/* Points the alias at a version: "create" or "deploy". When it has that version already nothing is added. FB_NOT_FOUND
 * "unknown-version". */
fb_status fb_store_set_alias(fb_store *store, const fb_store_alias_change *change, const char *version,
                             fb_store_alias_entry *out, fb_error *error);

/* The history stays. */
fb_status fb_store_delete_alias(fb_store *store, const fb_store_alias_change *change, fb_error *error);

/* Back to version `to`, or (NULL) to the version that was deployed before the present one; a version that was rolled back from,
 * or left for one that the alias had had before it, the last time that it was left, does not count as deployed before.
 * FB_CONFLICT "nothing-to-roll-back", "never-deployed"; FB_NOT_FOUND "unknown-version" (to). When the alias has `to` already
 * nothing is added. */
fb_status fb_store_roll_back_alias(fb_store *store, const fb_store_alias_change *change, const char *to,
                                   const fb_store_answer *answer, fb_store_alias_entry *out, fb_error *error);

/* The target of a rollback without `to`. */
typedef struct fb_store_rollback_plan {
    fb_store_alias_entry present;
    const char *to;         /* NULL: there is none */
    const char **withdrawn; /* versions that it skips; the last one left comes first */
    size_t withdrawn_count;
    fb_store_memory *memory;
} fb_store_rollback_plan;

/* FB_NOT_FOUND "unknown-model", "unknown-alias". */
fb_status fb_store_plan_rollback(fb_store *store, const char *model, const char *alias, fb_store_rollback_plan *out,
                                 fb_error *error);

/* A run that took passes out of what is deployed, on its way to be the next version. */
typedef struct fb_store_partial_rollback {
    const fb_store_run *run; /* as for fb_store_put_run, with its graphs */
    const fb_store_graph *graphs;
    size_t graph_count;
    const char *name;   /* of the new version; cut, and followed by -2, -3 …, where it is too long or taken. Of a model whose
                         * naming is "integer" its note, unless the run has one */
    bool is_name_fixed; /* no: then FB_CONFLICT "version-exists" */
} fb_store_partial_rollback;

/* In one transaction: stores run and graphs, makes the run's result a version, and points the alias at it. Errors as of
 * fb_store_put_run, too. */
fb_status fb_store_roll_back_passes(fb_store *store, const fb_store_alias_change *change,
                                    const fb_store_partial_rollback *rollback, const fb_store_answer *answer,
                                    fb_store_alias_entry *out, fb_error *error);

#endif
