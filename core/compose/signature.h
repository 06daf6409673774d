/* Signatures: the first 32 hex digits of a SHA-256, the same in every process. */
#ifndef FB_COMPOSE_SIGNATURE_H
#define FB_COMPOSE_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/rewrite/rewrite.h"

typedef char fb_signature[FB_SIGNATURE_LENGTH + 1];

/* Of {"params": …, "pass": name, "version": n}, where `params` is canonical free JSON. False when memory is out. */
bool fb_pass_signature(const char *name, int version, const char *params, fb_signature out);
/* Of a rule: {"params": …, "pass": name, "rule": digest, "version": n}. */
bool fb_rule_signature(const char *name, int version, const char *digest, const char *params, fb_signature out);
/* Of the compact JSON array of the passes' signatures. */
bool fb_composition_signature(const char *const *signatures, size_t count, fb_signature out);

#endif
