/* Reading all of a store for damage: what the database itself can check. The contents of graphs, runs and blobs are checked by
 * server/check/. Nothing is changed. */
#ifndef FB_STORE_CHECK_H
#define FB_STORE_CHECK_H

#include "server/store/store.h"

/* Called for everything that is wrong. `subject` says of what: "graph sha256:…". */
typedef void fb_store_found(void *context, const char *code, const char *subject, const char *detail);

/* A list of texts, each once, sorted; free `texts`. */
typedef struct fb_store_texts {
    fb_buffer texts; /* each with its NUL */
    size_t count;
} fb_store_texts;

typedef enum fb_store_kind { FB_STORED_GRAPHS, FB_STORED_RUNS, FB_STORED_BLOBS, FB_STORED_RULES } fb_store_kind;

/* Ids of graphs and runs, digests of blobs, "name version" of rules. Reads an index, so that one damaged row hides no other. */
fb_status fb_store_list_texts(fb_store *store, fb_store_kind kind, fb_store_texts *out, fb_error *error);

/* Pages, indexes and constraints: SQLite's own checks. Code "database-damaged". */
fb_status fb_store_check_pages(fb_store *store, fb_store_found *found, void *context, fb_error *error);
/* Checks the references of rows, and that each alias is what its history says. Codes "reference-broken", "alias-broken". */
fb_status fb_store_check_references(fb_store *store, fb_store_found *found, void *context, fb_error *error);
/* Checks the answers kept for repeated requests; `*count` of them. Code "answer-damaged". */
fb_status fb_store_check_answers(fb_store *store, fb_store_found *found, void *context, uint64_t *count, fb_error *error);
/* The text of every entry. It has no digest: of a change to other text nothing is seen. Code "audit-damaged". */
fb_status fb_store_check_audit(fb_store *store, fb_store_found *found, void *context, fb_error *error);
/* The rows that were made of a graph's document against those that it should have (document and size may be missing): code
 * "graph-rows-wrong". FB_NOT_FOUND "unknown-graph". */
fb_status fb_store_check_graph(fb_store *store, const fb_store_graph *graph, fb_store_found *found, void *context,
                               fb_error *error);

/* A digest that was remembered of a tensor within a blob. */
typedef struct fb_store_tensor_digest {
    uint64_t offset;
    char dtype[24], shape[400]; /* "float32", "[2,3]"; a longer shape is left out of the list */
    char digest[FB_ID_LENGTH + 1];
} fb_store_tensor_digest;
/* The tensor digests of one blob; free(*out). */
fb_status fb_store_tensor_digests(fb_store *store, const char *blob, fb_store_tensor_digest **out, size_t *count,
                                  fb_error *error);

#endif
