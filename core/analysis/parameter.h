/* Parameters of an operator, in one way of calling it.
 *
 * A list of ops.def holds names by position: "input,*size,dim=". Behind `*` is one that takes all arguments from there on,
 * before
 * `=` one that has a default. */
#ifndef FB_ANALYSIS_PARAMETER_H
#define FB_ANALYSIS_PARAMETER_H

#include <string.h>

#include "core/graph/graph.h"
#include "core/operators/op.h"
#include "core/operators/spelling.h"

/* The list of a module's forward(), of a method, or of the function with that target. */
static inline const char *fb_op_parameters(fb_op op, fb_opcode opcode, const char *target) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    if (opcode == FB_CALL_MODULE) return facts->forward ? facts->forward : "input";
    if (opcode == FB_CALL_METHOD && facts->method) return facts->method;
    bool is_functional = opcode != FB_CALL_METHOD && facts->native && fb_is_spelled(target, FB_FUNCTIONAL);
    return facts->native && !is_functional ? facts->native : facts->parameters;
}
/* True if one of the operator's lists has the parameter, under that name. */
bool fb_op_has_parameter(fb_op op, const char *name);

/* Walking a list: `for (const char *at = list; at; at = fb_parameter_next(at))`. */
static inline const char *fb_parameter_next(const char *at) {
    at = strchr(at, ',');
    return at ? at + 1 : NULL;
}
static inline const char *fb_parameter_name(const char *at, size_t *length) {
    if (*at == '*') at++;
    *length = strcspn(at, ",=");
    return at;
}
static inline bool fb_parameter_is(const char *at, const char *name) {
    if (*at == '*') at++;
    while (*name && *at == *name) at++, name++;
    return !*name && (*at == ',' || *at == '=' || !*at);
}
/* The one at that position; NULL when there is none. */
const char *fb_parameter_at(const char *list, size_t position);
/* True if a call may give the parameter under that keyword: its own name, ATen's, forward(x)'s, or NumPy's where torch takes
 * it.
 */
bool fb_is_keyword_for(const char *keyword, const char *parameter);

/* The arguments that a call gives: some by position, others by name. */
typedef struct fb_supplied {
    size_t positions;
    const char *const *names;
    size_t count;
} fb_supplied;

/* The first required parameter that is missing. NULL when there is none, and when a name is not in the list: it may be another
 * name of the missing one. */
const char *fb_parameter_missing(const char *list, const fb_supplied *given);
/* True if the list has the parameter, under that name or another. */
bool fb_parameters_have(const char *list, const char *name);

/* False if a call lacks a required argument, or gives one that the operator has in other spellings only. A call that nothing is
 * known against is possible. */
bool fb_call_is_possible(const fb_graph *graph, fb_node node);

#endif
