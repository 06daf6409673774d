/* RFC 9457 problems on standard error. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/base/suggest.h"
#include "core/weights/evaluate.h"
#include "server/cli/cli.h"

/* Translates the service's sentences for programs into terms of commands: they name routes, headers and members. */

/* An earlier row may hold a later one. "*" at the end matches the rest of the sentence. */
static const struct {
    const char *of_service, *of_commands;
} phrases[] = {
    {"GET /v1/passes lists them, and GET /v1/transformations the rules",
     "foldback pass list lists them, and foldback transformation list the rules"},
    {"GET /v1/passes lists them", "foldback pass list lists them"},
    {"GET /v1/passes lists ours", "foldback pass list lists ours"},
    {"GET /v1/transformations/", "foldback transformation show "},
    {"GET /v1/layouts/", "foldback layout show "},
    {", which is a blob already: GET /v1/graphs/{id}/archive/files", ", which is a blob already"},
    {"GET /v1/graphs/{id} and its weights instead", "foldback show and foldback weights give the graph and its weights"},
    {"POST to the rollback link undoes any of them exactly, from the store", "foldback rollback undoes any of them exactly"},
    {"POST it to the reverse link of the run to undo", "Name the run: foldback reverse GRAPH --run RUN"},
    {"POST it to the reverse link of the one that you mean", "name the one that you mean with --run RUN"},
    {"before; name the one that you mean", "before; name the one that you mean with --to VERSION"},
    {"POST it to that run's reverse link", "name that run with --run RUN"},
    {"POST to /v1/optimize applies it", "foldback optimize --pass applies it"},
    {": its ETag is *", "; look at it with foldback show, then decide again"},
    {"With Prefer: respond-async, where that is taken, it", "With --async, where a command takes that, it"},
    {"only a service that runs does jobs", "only a running service does jobs: name it with --server URL"},
    {": pass it as prefix", ": give it with --prefix"},
    {"send as=source or as=finished", "say --as source or --as finished"},
    {"upload it first", "foldback upload sends it"},
    {"; PUT a safetensors file with them*", ""},
    {"the query parameter ", "--"},
    {"the body is larger than", "what is sent is larger than"},
};

/* `at` is where the phrase begins in `text`. */
static void replace(char *text, size_t space, char *at, const char *phrase, const char *by) {
    size_t length = strlen(phrase), added = strlen(by);
    bool takes_rest = phrase[length - 1] == '*';
    const char *rest = takes_rest ? "" : at + length;
    size_t before = (size_t)(at - text), after = strlen(rest);
    if (before + added + after >= space) return; /* no worse than before */
    memmove(at + added, rest, after + 1);
    memcpy(at, by, added);
}

static char *find(char *text, const char *phrase) {
    size_t length = strlen(phrase);
    length -= phrase[length - 1] == '*';
    return memmem(text, strlen(text), phrase, length);
}

/* A copy of `detail` that speaks of commands, cut where `space` ends. */
static void speak_of_commands(const char *detail, char *out, size_t space) {
    snprintf(out, space, "%s", detail);
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++) {
        char *at = find(out, phrases[i].of_service);
        if (at) replace(out, space, at, phrases[i].of_service, phrases[i].of_commands);
    }
}

/* "did you mean …?": the service says it of names, and ids are looked for here. */

#define NAMES_MAX "1000" /* asked for: one page */

/* Where the names are that a problem of this code is about. */
typedef struct kind_of_name {
    const char *code, *list, *member;
} kind_of_name;

static const kind_of_name kinds[] = {
    {"unknown-run", "/v1/runs", "id"},
    {"unknown-graph", "/v1/graphs", "id"},
    {"unknown-job", "/v1/jobs", "id"},
    {"unknown-token", "/v1/tokens", "name"},
};

static const kind_of_name *find_kind(const char *code) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].code, code) == 0) return &kinds[i];
    }
    return NULL;
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

/* The id like the last word of the sentence. Asks the service for ids; nothing when it does not answer. */
static void find_id(fb_cli *cli, const kind_of_name *kind, const char *detail, char out[FB_SUGGESTED_MAX + 1]) {
    const char *last = strrchr(detail, ' ');
    fb_suggestion nearest = fb_suggest(last ? last + 1 : detail);
    fb_address address = {0};
    const json_t *one;
    size_t i;
    fb_address_path(&address, kind->list);
    fb_address_query(&address, "limit", NAMES_MAX);
    json_t *found = ask(cli, &address);
    json_array_foreach(json_object_get(found, "items"), i, one) fb_suggest_try(&nearest, fb_text_of(one, kind->member));
    strcpy(out, nearest.best);
    json_decref(found);
}

/* A line on standard error when the problem is about a name, and one like it exists. */
static void print_suggestion(fb_cli *cli, const json_t *problem) {
    const kind_of_name *kind = find_kind(fb_text_of(problem, "code"));
    char id[FB_SUGGESTED_MAX + 1] = "";
    const char *meant = fb_text_of(problem, "did_you_mean");
    if (kind) find_id(cli, kind, fb_text_of(problem, "detail"), id);
    if (!*meant) meant = id;
    if (!*meant) return;
    fputs("  did you mean ", stderr);
    fb_screen_text(stderr, meant);
    fputs("?\n", stderr);
}

/* "  first: second: third"; empty ones are left out. */
static void print_line(const char *first, const char *second, const char *third) {
    const char *parts[] = {first, second, third};
    fb_buffer line = {0};
    for (size_t i = 0; i < 3; i++)
        if (*parts[i]) fb_buffer_printf(&line, "%s%s", line.size ? ": " : "", parts[i]);
    if (fb_buffer_text(&line)) fb_screen_message(stderr, "  ", line.data);
    fb_buffer_free(&line);
}

static void print_errors(const json_t *problem) {
    const json_t *errors = json_object_get(problem, "errors"), *one;
    size_t i;
    json_array_foreach(errors, i, one)
        print_line(fb_text_of(one, "pointer"), fb_text_of(one, "code"), fb_text_of(one, "detail"));
    json_int_t total = json_integer_value(json_object_get(problem, "total"));
    if (total > (json_int_t)json_array_size(errors)) fprintf(stderr, "  %lld in all\n", (long long)total);
}

static void print_conflicts(const json_t *problem) {
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(problem, "conflicts"), i, one) {
        char who[400];
        const char *name = fb_text_of(one, "name");
        snprintf(who, sizeof who, "%s %s", fb_text_of(one, "kind"), *name ? name : "\"\""); /* the root module's path */
        print_line(who, fb_text_of(one, "code"), fb_text_of(one, "detail"));
    }
}

/* Tensors whose bytes are not here, or are not what the graph says. */
static void print_tensors(const json_t *tensors) {
    const json_t *one;
    size_t i;
    json_array_foreach(tensors, i, one) {
        const char *detail = fb_text_of(one, "detail");
        print_line(fb_text_of(one, "name"), fb_text_of(one, "code"), *detail ? detail : fb_text_of(one, "blob"));
    }
}

/* The option that a place in a request comes from, where the verb has one: "--pass" of "/passes/0" and of "pass". */
static bool find_option(const fb_cli *cli, const char *place, char *option, size_t space) {
    static const char *const endings[] = {"", "s", "es"};
    size_t length = strcspn(place, "/");
    for (size_t i = 0; i < 3; i++) {
        size_t end = strlen(endings[i]);
        if (length <= end || memcmp(place + length - end, endings[i], end) != 0) continue;
        snprintf(option, space, "%.*s", (int)(length - end), place);
        for (char *at = option; *at; at++) *at = *at == '_' ? '-' : *at;
        if (fb_verb_takes(cli->verb, option)) return true;
    }
    return false;
}

static void print_place(const fb_cli *cli, const char *place, bool is_pointer) {
    char option[64], at[70];
    if (!*place) return;
    bool is_option = find_option(cli, place + is_pointer, option, sizeof option);
    snprintf(at, sizeof at, is_option ? "at --%s" : is_pointer ? "at" : "at the parameter", option);
    print_line(at, is_option && !is_pointer ? "" : place, "");
}

/* "  nodes: a, b" */
static void print_names(const json_t *problem, const char *member) {
    const json_t *names = json_object_get(problem, member), *one;
    size_t i;
    if (!json_array_size(names)) return;
    fb_buffer line = {0};
    fb_buffer_printf(&line, "%s: ", member);
    json_array_foreach(names, i, one)
        fb_buffer_printf(&line, "%s%s", i ? ", " : "", json_string_value(one) ? json_string_value(one) : "?");
    if (fb_buffer_text(&line)) fb_screen_message(stderr, "  ", line.data);
    fb_buffer_free(&line);
}

/* The ids that a short one may mean, a line each. */
static void print_candidates(const json_t *problem) {
    const json_t *candidates = json_object_get(problem, "candidates"), *one;
    size_t i;
    json_array_foreach(candidates, i, one) print_line(json_string_value(one) ? json_string_value(one) : "?", "", "");
}

/* From the link "/v1/runs/{run}/rollback". */
static void suggest_rollback(const char *link) {
    static const char start[] = "/v1/runs/";
    if (strncmp(link, start, sizeof start - 1) != 0) return;
    const char *run = link + sizeof start - 1;
    fprintf(stderr, "  foldback rollback %.*s can undo any of them\n", (int)strcspn(run, "/"), run);
}

void fb_problem_print(fb_cli *cli, const json_t *problem) {
    static const char *const lists[] = {"nodes", "passes", "runs", "versions", "names", "blobs", "missing", "extra"};
    const char *code = fb_text_of(problem, "code"), *detail = fb_text_of(problem, "detail");
    char sentence[1200];
    speak_of_commands(detail, sentence, sizeof sentence);
    fb_complain(0, "%s", sentence);
    if (json_object_get(problem, "errors")) {
        print_errors(problem);
    } else {
        print_place(cli, fb_text_of(problem, "pointer"), true);
        print_place(cli, fb_text_of(problem, "parameter"), false);
    }
    print_candidates(problem);
    print_conflicts(problem);
    print_tensors(json_object_get(problem, "mismatching"));
    print_tensors(json_object_get(problem, "tensors"));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) print_names(problem, lists[i]);
    print_suggestion(cli, problem);
    if (strcmp(code, "irreversible") == 0) suggest_rollback(fb_text_of(problem, "rollback"));
    else if (json_object_get(problem, "conflicts"))
        fputs("  foldback rollback RUN gives the graph from before the run, without what changed since\n", stderr);
    else if (strcmp(code, "bytes-missing") == 0) fputs("  foldback bind GRAPH FILE gives tensors their bytes\n", stderr);
    else if (strcmp(code, FB_TENSOR_OVERFLOWS) == 0)
        fputs("  foldback bind GRAPH FILE, then foldback optimize of that, keeps what would overflow\n", stderr);
    else if (strcmp(code, "ambiguous-run") == 0) fputs("  say which one with --run\n", stderr);
}
