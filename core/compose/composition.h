/* A composition: a flat list of passes with parameters, applied left to right. */
#ifndef FB_COMPOSE_COMPOSITION_H
#define FB_COMPOSE_COMPOSITION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/pass/pass.h"
#include "core/rewrite/rewrite.h"

#define FB_MAX_PASSES 100 /* that a client's list names; a preset counts as one, whose rounds the watch of a run ends */

/* ---- Signatures: the first 32 hex digits of a SHA-256, the same in every process. --------------------------------------- */

typedef char fb_signature[FB_SIGNATURE_LENGTH + 1];

/* The hash of {"params": …, "pass": name, "version": n}, where `params` is canonical free JSON; of a pass that is data also
 * "rule": digest, else that is NULL; of a call for some matches also what `chosen` has, else that is NULL. False when memory is
 * out. */
bool fb_pass_signature(const char *name, int version, const char *digest, const char *params, const char *chosen,
                       fb_signature out);
/* The hash of the compact JSON array of the passes' signatures. */
bool fb_composition_signature(const char *const *signatures, size_t count, fb_signature out);

typedef struct fb_pass_call {
    const fb_pass *pass; /* the call's own where it is data */
    char *params;        /* canonical JSON */
    char *chosen;        /* canonical JSON: {"except": [names of matches], "only": […]}; NULL: all matches are applied */
    char *pointer;       /* where a client's list has that, or NULL */
    fb_signature signature;
    const char *preset; /* the name of the preset that it is of; NULL: it was asked for itself, or that is not known */
    /* On the first call of every round of a preset but its first: how many calls a round has, and how many rounds there
     * are from here on. They are run until one applies nothing (run.h). */
    size_t round_size, rounds_left;
} fb_pass_call;

typedef struct fb_composition {
    fb_pass_call *calls;
    size_t count, capacity;
    fb_buffer requested; /* of a client's list, JSON: its entries in one list, each by its name alone where that says all */
    fb_signature signature;
    bool reversible;            /* every pass is */
    bool preserves_computation; /* every pass does */
} fb_composition;

/* Where the passes are that are data, rules and layouts, which a list may name as well. */
typedef struct fb_pass_library {
    void *context;
    /* The one of that name and version (0: the newest), which the caller frees; NULL = unknown, with FB_OK. */
    fb_status (*find)(void *context, const char *name, int version, const fb_pass **out, fb_error *error);
} fb_pass_library;

/* Reads a list of passes: "Name", {"name": "Name", "params": {…}, "version": n, "only": […], "except": […]} or a nested list;
 * it must not be empty. The name may be a preset's (fb_preset), which means all its rounds. `pointer` is the place of the list
 * ("/passes"); `library` may be NULL. FB_INVALID: unknown-pass, unknown-version, unknown-member, no-passes, and what
 * fb_params_check finds. `out` is written on success only; free it with fb_composition_free. */
fb_status fb_composition_read(const json_t *list, const char *pointer, const fb_pass_library *library, fb_composition *out,
                              fb_error *error);
/* Reads a client's list: it names at most FB_MAX_PASSES ("too-many-passes"), and parameters that have their defaults are
 * dropped. The pass RecordTypes goes before it, with the parameters `assume`, which are at `assume_pointer`; NULL: without it.
 */
fb_status fb_composition_read_request(const json_t *assume, const char *assume_pointer, const json_t *list, const char *pointer,
                                      const fb_pass_library *library, fb_composition *out, fb_error *error);
void fb_composition_free(fb_composition *composition);

/* The compact JSON from which fb_composition_read makes it again: names, parameters, versions. */
void fb_composition_write(const fb_composition *composition, fb_buffer *out);
/* The same, but the call at that position leaves out one more match. */
void fb_composition_write_without(const fb_composition *composition, size_t position, const char *match, fb_buffer *out);

/* Presets: names in a list of passes that mean several passes, run again and again until nothing changes. */

typedef struct fb_preset {
    const char *name;
    const char *summary;      /* one sentence, Markdown */
    const char *passes;       /* one round, as a client would write it: a JSON array, without presets */
    int rounds;               /* at most */
    const char *at_one_token; /* what a round has besides with {"tokens": 1}; NULL: it takes no parameters */
} fb_preset;

/* All presets, in the order of presets.def; NULL past the end. fb_preset_find gives the one of that name, or NULL. */
const fb_preset *fb_preset_at(size_t index);
const fb_preset *fb_preset_find(const char *name);

#endif
