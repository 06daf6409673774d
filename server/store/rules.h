/* The store's passes that are data, rules and layouts, in versions that never change. They share one set of names. As in
 * store.h: safe from any thread, durable when they return, and the same general errors. */
#ifndef FB_STORE_RULES_H
#define FB_STORE_RULES_H

#include "server/store/store.h"

typedef enum fb_stored_kind {
    FB_STORED_ANY,
    FB_STORED_RULE,
    FB_STORED_LAYOUT,
} fb_stored_kind; /* as the column `kind` has them */

typedef struct fb_store_rule {
    fb_stored_kind kind;
    const char *name;
    uint32_t version;     /* from 1 */
    const char *digest;   /* "sha256:…" of the document */
    const char *document; /* canonical JSON */
    int64_t created;
    fb_store_memory *memory;
} fb_store_rule;

typedef struct fb_store_rules {
    fb_store_rule *items;
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1];
    fb_store_memory *memory;
} fb_store_rules;

/* Stores the document as the next version of that name, unless one of its versions has that document already; that is `out`
 * then. FB_INVALID "name-taken-by-pass" where another kind of pass has the name. Without `by` the audit gets no entry. */
fb_status fb_store_put_rule(fb_store *store, fb_stored_kind kind, const char *name, const char *digest, const char *document,
                            const fb_store_actor *by, bool *is_new, fb_store_rule *out, fb_error *error);

/* `version` 0 is the newest. FB_NOT_FOUND "unknown-transformation" or "unknown-layout", "unknown-version". */
fb_status fb_store_get_rule(fb_store *store, fb_stored_kind kind, const char *name, uint32_t version, fb_store_rule *out,
                            fb_error *error);

/* Every one of the kind, in its newest version. */
fb_status fb_store_list_rules(fb_store *store, fb_stored_kind kind, const fb_store_page *page, fb_store_rules *out,
                              fb_error *error);
/* The versions of one. FB_NOT_FOUND "unknown-transformation" or "unknown-layout". */
fb_status fb_store_list_rule_versions(fb_store *store, fb_stored_kind kind, const char *name, const fb_store_page *page,
                                      fb_store_rules *out, fb_error *error);

#endif
