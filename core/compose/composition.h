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
} fb_pass_call;

typedef struct fb_composition {
    fb_pass_call *calls;
    size_t count, capacity;
    fb_signature signature;
    bool reversible;            /* every pass is */
    bool preserves_computation; /* every pass does */
} fb_composition;

/* Reads a list of passes: "Name", {"name": "Name", "params": {…}, "version": n} or a nested list; it must not be empty.
 * `pointer` says where the list stands ("/passes"). FB_INVALID: unknown-pass, unknown-version, unknown-parameter, wrong-type,
 * unknown-member, no-passes, too-many-passes. `out` is written on success only; free it with fb_composition_free. */
fb_status fb_composition_read(const json_t *list, const char *pointer, fb_composition *out, fb_error *error);
void fb_composition_free(fb_composition *composition);

/* The compact JSON from which fb_composition_read makes it again: names, parameters, versions. */
void fb_composition_write(const fb_composition *composition, fb_buffer *out);

#endif
