/* Rules: passes that are written as data (schema/rule.schema.json, docs/rules.md) instead of in C.
 *
 *     {"name": "FuseSilu", "pattern": …, "conditions": […], "replacement": {…}, "exactness": "rounds"}
 *
 * A rule is applied like any pass: first every match is found in the graph as it is, in one sweep, then each match is replaced
 * once. Nodes that a replacement inserts are not looked at in the same sweep, so a run ends with any rule. Matches do not
 * overlap: a node that one match replaces belongs to no other.
 *
 * A rule need not state that a match may be moved: nodes that write, that draw random numbers or have other effects never
 * match, and a match is refused when what it reads is written, or a mode is switched, between its nodes; or when what its
 * replacement may keep for its gradient is written later. */
#ifndef FB_RULES_RULE_H
#define FB_RULES_RULE_H

#include <jansson.h>

#include "core/pass/pass.h"

#define FB_RULE_NAME_MAX 100    /* bytes */
#define FB_RULE_BYTES_MAX 65536 /* of the canonical document */
#define FB_RULE_VARIABLES_MAX 32
#define FB_RULE_CALLS_MAX 32 /* in a pattern, and in a replacement */

typedef struct fb_rule fb_rule;

/* Reads and checks a rule. `pointer` is the document's place in a request. FB_INVALID with a pointer to the place: also for a
 * rule that binds nothing, uses what it does not bind, replaces nothing, or makes what it matches. `out` is written on success
 * only; free it with fb_rule_free. */
fb_status fb_rule_read(const json_t *document, const char *pointer, int version, fb_rule **out, fb_error *error);
/* Checks a new rule beyond reading it: its calls are those that operators take, and its conditions can hold together.
 * FB_INVALID with a pointer to the place. Rules that are stored already are what they are. */
fb_status fb_rule_check(const fb_rule *rule, fb_error *error);
void fb_rule_free(fb_rule *rule);

/* The rule as a pass, which lives as long as the rule; fb_pass_free frees both. */
const fb_pass *fb_rule_pass(const fb_rule *rule);
/* Canonical JSON of the document. Two rules that differ in nothing else are one version. */
const char *fb_rule_document(const fb_rule *rule);

/* True if this can be a rule's name: letters, digits, `_`, `-`, `.`, and a letter first. */
bool fb_rule_name_is_valid(const char *name);

#endif
