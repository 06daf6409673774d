/* A composition: a flat list of passes with parameters, applied left to right. */
#ifndef FB_COMPOSE_COMPOSITION_H
#define FB_COMPOSE_COMPOSITION_H

#include <jansson.h>

#include "core/compose/signature.h"
#include "core/passes/pass.h"

#define FB_MAX_PASSES 100 /* in one composition, after flattening */

typedef struct fb_pass_call {
    const fb_pass *pass;
    char *params; /* canonical JSON */
    fb_signature signature;
    /* On the first call of every round of a preset but its first: how many calls a round has, and how many rounds begin here
     * and behind. When the round before has applied nothing they are not run. */
    size_t round_size, rounds_left;
} fb_pass_call;

typedef struct fb_composition {
    fb_pass_call *calls;
    size_t count, capacity;
    fb_signature signature;
    bool reversible;            /* every pass is */
    bool preserves_computation; /* every pass does */
} fb_composition;

/* Reads a list of passes: "Name", {"name": "Name", "params": {…}, "version": n} or a nested list; it must not be empty. The
 * name may be that of a preset (preset.h), which counts as all its rounds. `pointer` says where the list stands ("/passes").
 * FB_INVALID: unknown-pass, unknown-version, unknown-member, no-passes, too-many-passes, and what fb_params_check finds. `out`
 * is written on success only; free it with fb_composition_free. */
fb_status fb_composition_read(const json_t *list, const char *pointer, fb_composition *out, fb_error *error);
void fb_composition_free(fb_composition *composition);

/* The compact JSON from which fb_composition_read makes it again: names, parameters, versions. */
void fb_composition_write(const fb_composition *composition, fb_buffer *out);

#endif
