#include "server/cli/hint.h"

#include <string.h>

#include "core/compose/preset.h"
#include "core/passes/pass.h"
#include "server/cli/suggest.h"

#define NAMES_MAX "1000" /* asked for: one page */

/* Where the names are that a problem of this code is about. */
typedef struct kind_of_name {
    const char *code, *list, *member;
    bool is_of_model; /* the list is one of the model that the sentence names: "model bert has no alias prd" */
} kind_of_name;

static const kind_of_name kinds[] = {
    {"unknown-model", "/v1/models", "name", false},         {"unknown-alias", "aliases", "alias", true},
    {"unknown-version", "versions", "version", true},       {"unknown-run", "/v1/runs", "id", false},
    {"unknown-graph", "/v1/graphs", "id", false},           {"unknown-job", "/v1/jobs", "id", false},
    {"unknown-token", "/v1/tokens", "name", false},         {"unknown-transformation", "/v1/transformations", "name", false},
    {"unknown-pass", "/v1/transformations", "name", false},
};

static const kind_of_name *find_kind(const char *code) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].code, code) == 0) return &kinds[i];
    }
    return NULL;
}

/* The name that does not exist: what is in quotes, else the last word. */
static void read_wrong_name(const char *detail, char *out, size_t space) {
    const char *quote = strchr(detail, '"'), *last = strrchr(detail, ' ');
    *out = '\0';
    if (quote) snprintf(out, space, "%.*s", (int)strcspn(quote + 1, "\""), quote + 1);
    else if (last) snprintf(out, space, "%s", last + 1);
}

static bool address_list(const kind_of_name *kind, const char *detail, fb_address *out) {
    char model[256];
    if (!kind->is_of_model) {
        fb_address_path(out, kind->list);
    } else if (sscanf(detail, "model %255s has no ", model) == 1) {
        fb_address_path(out, "/v1/models");
        fb_address_segment(out, model);
        fb_address_segment(out, kind->list);
    } else {
        return false;
    }
    fb_address_query(out, "limit", NAMES_MAX);
    return true;
}

/* Without a word about what fails: this is for a hint. */
static json_t *ask(fb_cli *cli, fb_address *address) {
    fb_call call = {.method = "GET", .address = *address};
    fb_answer answer;
    fb_error error = {0};
    bool has_store = cli->client && (cli->values.server || cli->folder != FB_FOLDER_UNUSED);
    if (!has_store) {
        fb_call_free(&call);
        return NULL;
    }
    fb_status status = fb_client_call(cli->client, &call, &answer, &error);
    json_t *found = !status && answer.status == 200 ? json_loadb(answer.body.data, answer.body.size, 0, NULL) : NULL;
    fb_answer_free(&answer);
    return found;
}

static void try_passes(fb_suggestion *nearest) {
    for (size_t i = 0; fb_pass_at(i); i++) fb_suggest_try(nearest, fb_pass_at(i)->name);
    for (size_t i = 0; fb_preset_at(i); i++) fb_suggest_try(nearest, fb_preset_at(i)->name);
}

void fb_hint(fb_cli *cli, const json_t *problem) {
    const char *detail = fb_text_of(problem, "detail");
    const kind_of_name *kind = find_kind(fb_text_of(problem, "code"));
    char wrong[256];
    fb_address address = {0};
    if (!kind) return;
    read_wrong_name(detail, wrong, sizeof wrong);
    fb_suggestion nearest = fb_suggest(wrong);
    if (strcmp(kind->code, "unknown-pass") == 0) try_passes(&nearest);
    json_t *found = address_list(kind, detail, &address) ? ask(cli, &address) : NULL;
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(found, "items"), i, one) fb_suggest_try(&nearest, fb_text_of(one, kind->member));
    if (nearest.best) {
        fputs("  did you mean ", stderr);
        fb_screen_text(stderr, nearest.best);
        fputs("?\n", stderr);
    }
    json_decref(found);
}
