#include "core/operators/onnx.h"

#include <stdlib.h>
#include <string.h>

#define MOST_VERSIONS 16

typedef struct operator_row {
    const char *name;
    uint8_t versions[MOST_VERSIONS]; /* ascending; 0 ends them */
} operator_row;

static const operator_row operators[] = {
#define ONNX_OPERATOR(name, shape, value, exact, ...) {name, {__VA_ARGS__}},
#include "core/operators/onnx_operators.def"
#undef ONNX_OPERATOR
};

typedef struct wanted_name {
    const char *text; /* not terminated */
    size_t size;
} wanted_name;

static int by_name(const void *name, const void *row) {
    const wanted_name *wanted = name;
    const char *other = *(const char *const *)row; /* rows of both tables begin with it */
    int order = strncmp(wanted->text, other, wanted->size);
    return order ? order : -(other[wanted->size] != '\0');
}

static const operator_row *find_operator(const char *name, size_t size) {
    const wanted_name wanted = {name, size};
    return size ? bsearch(&wanted, operators, sizeof operators / sizeof *operators, sizeof *operators, by_name) : NULL;
}

int64_t fb_onnx_since(const char *name) {
    const operator_row *row = find_operator(name, strlen(name));
    return row ? row->versions[0] : 0;
}

int64_t fb_onnx_version(const char *name, size_t size, int64_t opset) {
    const operator_row *row = find_operator(name, size);
    int64_t found = 0;
    for (int i = 0; row && i < MOST_VERSIONS && row->versions[i]; i++)
        if (row->versions[i] <= opset) found = row->versions[i];
    return found;
}

/* ---- from one version to the next ---------------------------------------------------------------------------------------- */

typedef struct step_row {
    const char *name;
    fb_onnx_step step;
} step_row;

static const step_row steps[] = {
#define ONNX_STEP(name, version, rule, attribute) {name, {version, FB_ONNX_##rule, attribute}},
#include "core/operators/onnx_steps.def"
#undef ONNX_STEP
};

fb_onnx_step fb_onnx_next_version(const char *name, size_t size, int64_t version) {
    const operator_row *row = find_operator(name, size);
    fb_onnx_step next = {0};
    for (int i = 0; row && i < MOST_VERSIONS && row->versions[i] && !next.version; i++)
        if (row->versions[i] > version) next.version = row->versions[i];
    for (size_t i = 0; row && i < sizeof steps / sizeof *steps; i++)
        if (steps[i].step.version == next.version && strcmp(steps[i].name, row->name) == 0) next = steps[i].step;
    return next;
}

/* ---- facts -------------------------------------------------------------------------------------------------------------- */

static const fb_onnx_facts facts[] = {
#define ONNX_FACTS(name, effect, identity, is_commutative, zeros)                                                              \
    {name, FB_ONNX_##effect, FB_IDENTITY_RULE_##identity, is_commutative, FB_ONNX_##zeros},
#include "core/operators/onnx_facts.def"
#undef ONNX_FACTS
};

/* The operator and version that a target names; 0: another domain, or a version that the table lacks. */
static int64_t read_target(const char *target, wanted_name *wanted) {
    if (strncmp(target, FB_ONNX_DEFAULT, strlen(FB_ONNX_DEFAULT)) != 0) return 0;
    *wanted = (wanted_name){target + strlen(FB_ONNX_DEFAULT), strcspn(target + strlen(FB_ONNX_DEFAULT), ".")};
    const char *rest = wanted->text + wanted->size;
    char *end = NULL;
    long version = rest[0] == '.' && rest[1] == 'v' ? strtol(rest + 2, &end, 10) : 0;
    return version > 0 && !*end && fb_onnx_version(wanted->text, wanted->size, version) == version ? version : 0;
}

const fb_onnx_facts *fb_onnx_facts_of(const char *target) {
    static const fb_onnx_facts usual = {"", FB_ONNX_COMPUTES, FB_IDENTITY_RULE_NEVER, false, FB_ONNX_NOTHING};
    wanted_name wanted;
    if (!read_target(target, &wanted)) return NULL;
    const fb_onnx_facts *found = bsearch(&wanted, facts, sizeof facts / sizeof *facts, sizeof *facts, by_name);
    return found ? found : &usual;
}

/* ---- precisions -----------------------------------------------------------------------------------------------------------
 */

typedef struct precision_row {
    const char *name;
    uint8_t float16, bfloat16; /* since which version */
    bool is_first_alone;
} precision_row;

enum { ALL = false, FIRST = true };
static const precision_row precisions[] = {
#define ONNX_PRECISION(name, float16, bfloat16, results) {name, float16, bfloat16, results},
#include "core/operators/onnx_precisions.def"
#undef ONNX_PRECISION
};

fb_onnx_precision fb_onnx_precision_of(const char *target) {
    wanted_name wanted;
    int64_t version = read_target(target, &wanted);
    const precision_row *row =
        version ? bsearch(&wanted, precisions, sizeof precisions / sizeof *precisions, sizeof *precisions, by_name) : NULL;
    if (!row) return (fb_onnx_precision){0};
    return (fb_onnx_precision){.float16 = row->float16 && version >= row->float16,
                               .bfloat16 = row->bfloat16 && version >= row->bfloat16,
                               .is_first_alone = row->is_first_alone};
}
