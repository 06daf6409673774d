/* The store's rules: passes given as data, in versions that never change. As in store.h: safe from any thread, durable when
 * they return, and the same general errors. */
#ifndef FB_STORE_RULES_H
#define FB_STORE_RULES_H

#include "server/store/store.h"

typedef struct fb_store_rule {
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
 * then. */
fb_status fb_store_put_rule(fb_store *store, const char *name, const char *digest, const char *document,
                            const fb_store_actor *by, bool *is_new, fb_store_rule *out, fb_error *error);

/* `version` 0 is the newest. FB_NOT_FOUND "unknown-transformation", "unknown-version". */
fb_status fb_store_get_rule(fb_store *store, const char *name, uint32_t version, fb_store_rule *out, fb_error *error);
void fb_store_rule_free(fb_store_rule *rule);

/* Every rule in its newest version. */
fb_status fb_store_list_rules(fb_store *store, const fb_store_page *page, fb_store_rules *out, fb_error *error);
/* The versions of one. FB_NOT_FOUND "unknown-transformation". */
fb_status fb_store_list_rule_versions(fb_store *store, const char *name, const fb_store_page *page, fb_store_rules *out,
                                      fb_error *error);
void fb_store_rules_free(fb_store_rules *rules);

#endif
