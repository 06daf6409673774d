/* What a finding costs, and what helps. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/check/internal.h"

#define FROM_BACKUP "foldback db restore puts a backup in the folder's place"

static const struct {
    const char *code, *costs, *cure;
} findings[] = {
    {"database-damaged", "what is on the damaged pages cannot be read, and may hide more",
     FROM_BACKUP "; without one, sqlite3's .recover saves what can be read"},
    {"reference-broken", "what refers to it cannot be shown or undone", FROM_BACKUP},
    {"alias-broken", "a rollback of the alias may go to another version than its history says", FROM_BACKUP},
    {"graph-damaged", "the graph cannot be read, nor any run from it or to it undone", FROM_BACKUP},
    {"graph-rows-wrong", "lists and searches miss the graph, or gc removes blobs that it needs", FROM_BACKUP},
    {"rule-damaged", "runs with this version of the rule cannot be undone in part", FROM_BACKUP},
    {"run-damaged", "the run cannot be shown or undone in part; its source is still there", FROM_BACKUP},
    {"run-differs",
     "undoing some of the run's passes may give another graph than leaving them out would have; undoing all of them "
     "gives its source",
     "a bug of foldback, or damage: keep the folder and report it"},
    {"answer-damaged", "a request that is repeated with its Idempotency-Key fails", "nothing to do: it goes after a day"},
    {"blob-damaged", "weights that are in the blob cannot be read", "put the blob again (foldback upload), or " FROM_BACKUP},
    {"tensor-digest-wrong", "a fine-tuned tensor may be taken for an unchanged one", FROM_BACKUP},
};

static void tell(fb_check *check, const char *code, const char *subject, const char *detail) {
    fb_finding finding = {.code = code, .subject = subject, .detail = detail, .costs = "", .cure = ""};
    for (size_t i = 0; i < sizeof findings / sizeof *findings; i++) {
        if (strcmp(findings[i].code, code) != 0) continue;
        finding.costs = findings[i].costs;
        finding.cure = findings[i].cure;
    }
    check->findings++;
    check->found(check->context, &finding);
}

void fb_check_found(fb_check *check, const char *code, const char *subject, const char *format, ...) {
    char detail[700];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    tell(check, code, subject, detail);
}

void fb_check_stored(void *check, const char *code, const char *subject, const char *detail) {
    tell(check, code, subject, detail);
}

fb_status fb_check_met(fb_check *check, const char *code, const char *subject, const fb_error *met, fb_error *error) {
    bool is_passing = met->status == FB_NO_MEMORY || met->status == FB_NO_SPACE || met->status == FB_BUSY;
    if (is_passing) return fb_fail(error, met->status, met->code, NULL, "%s", met->message);
    fb_check_found(check, code, subject, "%s", met->message);
    return FB_OK;
}

void fb_check_progress(fb_check *check, const char *what, uint64_t done, uint64_t total) {
    if (check->progress) check->progress(check->context, what, done, total);
}
