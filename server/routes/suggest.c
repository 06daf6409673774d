/* `did_you_mean` in problems about names that do not exist. */
#include "core/base/suggest.h"

#include <stdio.h>
#include <string.h>

#include "core/compose/composition.h"
#include "core/json/json.h"
#include "core/layouts/layout.h"
#include "core/passes/passes.h"
#include "server/graphs/app.h"
#include "server/routes/input.h"
#include "server/store/models.h"
#include "server/store/rules.h"

static const fb_store_page page = {.limit = FB_PAGE_MAX}; /* names of a store that are looked at */

/* A search for the nearest name. Without a store only the names of the binary are known. */
typedef struct naming {
    fb_store *store;
    const char *detail; /* of the problem */
    fb_suggestion nearest;
} naming;

static void try_rules(naming *n, fb_stored_kind kind) {
    fb_store_rules rules;
    fb_error error = {0};
    fb_shipped_layout shipped;
    for (size_t i = 0; kind != FB_STORED_RULE && (shipped = fb_layout_shipped(i)).name; i++)
        fb_suggest_try(&n->nearest, shipped.name);
    if (!n->store || fb_store_list_rules(n->store, kind, &page, &rules, &error)) return;
    for (size_t i = 0; i < rules.count; i++) fb_suggest_try(&n->nearest, rules.items[i].name);
    FB_STORE_FREE(&rules);
}

static void try_layouts(naming *n) {
    try_rules(n, FB_STORED_LAYOUT);
}

static void try_transformations(naming *n) {
    try_rules(n, FB_STORED_RULE);
}

static void try_passes(naming *n) {
    for (size_t i = 0; fb_pass_at(i); i++) fb_suggest_try(&n->nearest, fb_pass_at(i)->name);
    for (size_t i = 0; fb_preset_at(i); i++) fb_suggest_try(&n->nearest, fb_preset_at(i)->name);
    try_layouts(n);
    try_transformations(n);
}

static void try_models(naming *n) {
    fb_store_models models;
    fb_error error = {0};
    if (!n->store || fb_store_list_models(n->store, &page, &models, &error)) return;
    for (size_t i = 0; i < models.count; i++) fb_suggest_try(&n->nearest, models.items[i].name);
    FB_STORE_FREE(&models);
}

/* "model bert has no alias prd" */
static bool read_model(const naming *n, char model[FB_SUGGESTED_MAX + 1]) {
    return n->store && sscanf(n->detail, "model %80s has no ", model) == 1; /* FB_SUGGESTED_MAX */
}

static void try_versions(naming *n) {
    char model[FB_SUGGESTED_MAX + 1];
    fb_store_versions versions;
    fb_error error = {0};
    if (!read_model(n, model) || fb_store_list_versions(n->store, model, &page, &versions, &error)) return;
    for (size_t i = 0; i < versions.count; i++) fb_suggest_try(&n->nearest, versions.items[i].name);
    FB_STORE_FREE(&versions);
}

static void try_aliases(naming *n) {
    char model[FB_SUGGESTED_MAX + 1];
    fb_store_alias_entries aliases;
    fb_error error = {0};
    if (!read_model(n, model) || fb_store_list_aliases(n->store, model, &page, &aliases, &error)) return;
    for (size_t i = 0; i < aliases.count; i++) fb_suggest_try(&n->nearest, aliases.items[i].alias);
    FB_STORE_FREE(&aliases);
}

static const struct {
    const char *code;
    void (*try_names)(naming *n);
} kinds[] = {
    {"unknown-pass", try_passes},      {"unknown-transformation", try_transformations},
    {"unknown-layout", try_layouts},   {"unknown-model", try_models},
    {"unknown-version", try_versions}, {"unknown-alias", try_aliases},
};

/* The name that does not exist: what is in quotes, else the last word. */
static void read_wrong_name(const char *detail, char *out, size_t space) {
    const char *quote = strchr(detail, '"'), *last = strrchr(detail, ' ');
    *out = '\0';
    if (quote) snprintf(out, space, "%.*s", (int)strcspn(quote + 1, "\""), quote + 1);
    else if (last) snprintf(out, space, "%s", last + 1);
}

static const char *member(const json_t *problem, const char *name) {
    const char *text = json_string_value(json_object_get(problem, name));
    return text ? text : "";
}

void fb_suggest_name(void *context, fb_response *response) {
    const fb_app *app = context;
    const json_t *problem = fb_problem_members(response), *known = json_object_get(problem, "passes"), *one;
    size_t i, kind = 0, count = sizeof kinds / sizeof *kinds;
    char wrong[256];
    while (kind < count && strcmp(kinds[kind].code, member(problem, "code")) != 0) kind++;
    if (kind == count) return;
    read_wrong_name(member(problem, "detail"), wrong, sizeof wrong);
    naming n = {.store = app->store, .detail = member(problem, "detail"), .nearest = fb_suggest(wrong)};
    if (!known) kinds[kind].try_names(&n);
    json_array_foreach(known, i, one) fb_suggest_try(&n.nearest, json_string_value(one)); /* the only ones */
    if (*n.nearest.best) fb_problem_member_take(response, "did_you_mean", json_string(n.nearest.best));
}
