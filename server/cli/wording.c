#include "server/cli/wording.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* An earlier row may hold a later one. "*" at the end stands for the rest of the sentence. */
static const struct {
    const char *of_service, *of_commands;
} phrases[] = {
    {"GET /v1/passes lists them, and GET /v1/transformations the rules",
     "foldback pass list lists them, and foldback transformation list the rules"},
    {"GET /v1/passes lists them", "foldback pass list lists them"},
    {"GET /v1/passes lists ours", "foldback pass list lists ours"},
    {"GET /v1/transformations/", "foldback transformation show "},
    {"POST to the rollback link returns any of them exactly, from the store", "foldback rollback returns any of them exactly"},
    {"POST to the reverse link of a run, with the graph", "Name the run: foldback reverse GRAPH --run RUN"},
    {"POST it to the reverse link of the one that you mean", "name the one that you mean with --run RUN"},
    {"POST to /v1/optimize applies it", "foldback optimize --pass applies it"},
    {": its ETag is *", "; look at it with foldback show, then decide again"},
    {"With Prefer: respond-async, where that is taken, it", "With --async, where a command takes that, it"},
    {"only a service that runs does jobs", "only a running service does jobs: name it with --server URL"},
    {": pass it as prefix", ": give it with --prefix"},
    {"send as=source or as=finished", "say --as source or --as finished"},
    {"upload it first", "foldback upload sends it"},
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

void fb_speak_of_commands(const char *detail, char *out, size_t space) {
    snprintf(out, space, "%s", detail);
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++) {
        char *at = find(out, phrases[i].of_service);
        if (at) replace(out, space, at, phrases[i].of_service, phrases[i].of_commands);
    }
}
