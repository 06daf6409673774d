/* RFC 9457 problems on standard error. */
#include <string.h>

#include "server/cli/cli.h"
#include "server/cli/hint.h"
#include "server/cli/wording.h"

/* "  first: second: third"; empty ones are left out. */
static void print_line(const char *first, const char *second, const char *third) {
    const char *parts[] = {first, second, third};
    bool is_first = true;
    for (size_t i = 0; i < 3; i++) {
        if (!*parts[i]) continue;
        fputs(is_first ? "  " : ": ", stderr);
        fb_screen_text(stderr, parts[i]);
        is_first = false;
    }
    fputs("\n", stderr);
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
        snprintf(who, sizeof who, "%s %s", fb_text_of(one, "kind"), fb_text_of(one, "name"));
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
    fprintf(stderr, "  %s: ", member);
    json_array_foreach(names, i, one) {
        if (i) fputs(", ", stderr);
        fb_screen_text(stderr, json_string_value(one) ? json_string_value(one) : "?");
    }
    fputs("\n", stderr);
}

/* The ids that a short one may stand for, a line each. */
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
    fb_speak_of_commands(detail, sentence, sizeof sentence);
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
    fb_hint(cli, problem);
    if (strcmp(code, "irreversible") == 0) suggest_rollback(fb_text_of(problem, "rollback"));
    else if (strcmp(code, "bytes-missing") == 0) fputs("  foldback bind GRAPH FILE gives tensors their bytes\n", stderr);
    else if (strcmp(code, "ambiguous-run") == 0) fputs("  say which one with --run\n", stderr);
}
