/* Arithmetic on matched constants, with Python's rules: int and int stay an int but for "/", everything else is a float.
 *
 *     sum      = product {("+" | "-") product}
 *     product  = unary {("*" | "/") unary}
 *     unary    = "-" unary | power
 *     power    = atom ["**" unary]
 *     atom     = number | ?variable | function "(" sum ")" | size "(" ?variable "," integer ")" | "(" sum ")"
 *     function = abs | sqrt | exp | log | float
 *
 * In "weights", ?variable.weight and ?variable.bias are atoms as well. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rules/internal.h"

#define MAX_STEPS 64
#define MAX_DEPTH 32
#define MAX_LENGTH 500

typedef struct parser {
    fb_rule_reader *reader;
    const char *text, *at;
    fb_rule_step steps[MAX_STEPS];
    size_t count;
    int depth;
} parser;

static fb_status parse_sum(parser *p);

static fb_status wrong(parser *p, const char *what) {
    return fb_rule_fail(p->reader, "bad-expression", "\"%.80s\": %s at character %zu", p->text, what,
                        (size_t)(p->at - p->text) + 1);
}

static void skip_space(parser *p) {
    while (*p->at == ' ') p->at++;
}

static bool eat(parser *p, const char *token) {
    skip_space(p);
    size_t length = strlen(token);
    if (strncmp(p->at, token, length) != 0) return false;
    p->at += length;
    return true;
}

static fb_status add_step(parser *p, fb_rule_step step) {
    if (p->count == MAX_STEPS) return wrong(p, "it is too long");
    p->steps[p->count++] = step;
    return FB_OK;
}

static fb_status parse_number(parser *p) {
    fb_rule_step step = {.kind = FB_STEP_NUMBER};
    char *end = NULL, *integer_end = NULL;
    if (p->at[0] == '0' && (p->at[1] == 'x' || p->at[1] == 'X')) return wrong(p, "numbers are decimal");
    errno = 0;
    step.number.integer = strtoll(p->at, &integer_end, 10);
    bool is_too_large = errno == ERANGE;
    step.number.real = strtod(p->at, &end);
    step.number.is_int = end == integer_end;
    if (!isfinite(step.number.real) || (step.number.is_int && is_too_large)) return wrong(p, "a number is too large");
    p->at = end;
    return add_step(p, step);
}

static fb_status parse_variable(parser *p, int *variable) {
    skip_space(p);
    size_t length = *p->at == '?' ? 1 : 0;
    while (length && (isalnum((unsigned char)p->at[length]) || p->at[length] == '_')) length++;
    char name[80];
    if (length < 2 || length >= sizeof name) return wrong(p, "a variable is expected");
    memcpy(name, p->at, length);
    name[length] = '\0';
    p->at += length;
    return fb_rule_bound_variable(p->reader, name, variable);
}

static fb_status parse_size(parser *p) {
    fb_rule_step step = {.kind = FB_STEP_SIZE};
    if (!eat(p, "(")) return wrong(p, "\"(\" is expected");
    fb_status status = parse_variable(p, &step.variable);
    if (status) return status;
    if (!eat(p, ",")) return wrong(p, "\",\" is expected");
    skip_space(p);
    char *end = NULL;
    long axis = strtol(p->at, &end, 10);
    if (end == p->at || axis < -32 || axis > 31) return wrong(p, "an axis is expected");
    p->at = end;
    step.axis = (int)axis;
    if (!eat(p, ")")) return wrong(p, "\")\" is expected");
    return add_step(p, step);
}

static fb_status parse_function(parser *p) {
    static const struct {
        const char *name;
        fb_step_kind kind;
    } functions[] = {
        {"abs", FB_STEP_ABS}, {"sqrt", FB_STEP_SQRT}, {"exp", FB_STEP_EXP}, {"log", FB_STEP_LOG}, {"float", FB_STEP_FLOAT}};
    if (eat(p, "size")) return parse_size(p);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (!eat(p, functions[i].name)) continue;
        if (!eat(p, "(")) return wrong(p, "\"(\" is expected");
        fb_status status = parse_sum(p);
        if (status) return status;
        if (!eat(p, ")")) return wrong(p, "\")\" is expected");
        return add_step(p, (fb_rule_step){.kind = functions[i].kind});
    }
    return wrong(p, "a number, a variable or one of abs, exp, float, log, size, sqrt is expected");
}

/* ".weight" or ".bias" of a layer. */
static fb_status parse_tensor(parser *p, int variable) {
    bool is_weight = eat(p, ".weight");
    if (!is_weight && !eat(p, ".bias")) return wrong(p, "\".weight\" or \".bias\" is expected");
    return add_step(p, (fb_rule_step){.kind = FB_STEP_TENSOR, .variable = variable, .axis = !is_weight});
}

static fb_status parse_atom(parser *p) {
    skip_space(p);
    if (isdigit((unsigned char)*p->at) || *p->at == '.') return parse_number(p);
    if (*p->at == '?') {
        fb_rule_step step = {.kind = FB_STEP_VARIABLE};
        fb_status status = parse_variable(p, &step.variable);
        if (status) return status;
        if (p->reader->takes_tensors && *p->at == '.') return parse_tensor(p, step.variable);
        p->reader->rule->is_number[step.variable] = true;
        return add_step(p, step);
    }
    if (!eat(p, "(")) return parse_function(p);
    fb_status status = parse_sum(p);
    if (status) return status;
    return eat(p, ")") ? FB_OK : wrong(p, "\")\" is expected");
}

static fb_status parse_unary(parser *p) {
    if (p->depth == MAX_DEPTH) return wrong(p, "it is nested too deeply");
    p->depth++;
    bool is_negated = eat(p, "-");
    fb_status status = is_negated ? parse_unary(p) : parse_atom(p);
    if (!status && is_negated) status = add_step(p, (fb_rule_step){.kind = FB_STEP_NEGATE});
    else if (!status && eat(p, "**") && !(status = parse_unary(p))) status = add_step(p, (fb_rule_step){.kind = FB_STEP_POWER});
    p->depth--;
    return status;
}

static fb_status parse_product(parser *p) {
    fb_status status = parse_unary(p);
    while (!status) {
        fb_rule_step step = {.kind = eat(p, "*") ? FB_STEP_MULTIPLY : eat(p, "/") ? FB_STEP_DIVIDE : (fb_step_kind)0};
        if (!step.kind) break;
        status = parse_unary(p);
        if (!status) status = add_step(p, step);
    }
    return status;
}

static fb_status parse_sum(parser *p) {
    fb_status status = parse_product(p);
    while (!status) {
        fb_rule_step step = {.kind = eat(p, "+") ? FB_STEP_ADD : eat(p, "-") ? FB_STEP_SUBTRACT : (fb_step_kind)0};
        if (!step.kind) break;
        status = parse_product(p);
        if (!status) status = add_step(p, step);
    }
    return status;
}

fb_status fb_rule_read_expression(fb_rule_reader *reader, const char *text, fb_rule_expression *out) {
    parser p = {.reader = reader, .text = text, .at = text};
    if (strlen(text) > MAX_LENGTH)
        return fb_rule_fail(reader, "bad-expression", "an expression has at most %d characters", MAX_LENGTH);
    fb_status status = parse_sum(&p);
    skip_space(&p);
    if (!status && *p.at) status = wrong(&p, "its end is expected");
    if (status) return status;
    fb_rule_step *steps = fb_rule_alloc(reader, p.count * sizeof *steps);
    if (!steps) return FB_NO_MEMORY;
    memcpy(steps, p.steps, p.count * sizeof *steps);
    *out = (fb_rule_expression){.steps = steps, .count = p.count};
    return FB_OK;
}

/* ---- computing ---------------------------------------------------------------------------------------------------------- */

static bool read_value(const fb_graph *graph, fb_value value, fb_number *out) {
    int64_t integer;
    double real;
    if (!value.id || !fb_value_is_number(graph, value, &real)) return false;
    *out = fb_value_is_int(graph, value, &integer) ? fb_number_of_int(integer) : fb_number_of_real(real);
    return true;
}

static bool read_size(const fb_graph *graph, fb_value value, int axis, fb_number *out) {
    fb_node node = value.id ? fb_value_node(graph, value) : (fb_node){0};
    int64_t size = node.id ? fb_shape_size(graph, fb_node_at(graph, node)->shape, axis) : -1;
    *out = fb_number_of_int(size);
    return size >= 0;
}

static bool binary(fb_step_kind kind, fb_number a, fb_number b, fb_number *out) {
    static const fb_arithmetic ops[] = {[FB_STEP_ADD] = FB_ARITHMETIC_ADD,
                                        [FB_STEP_SUBTRACT] = FB_ARITHMETIC_SUB,
                                        [FB_STEP_MULTIPLY] = FB_ARITHMETIC_MUL,
                                        [FB_STEP_DIVIDE] = FB_ARITHMETIC_TRUE_DIVIDE,
                                        [FB_STEP_POWER] = FB_ARITHMETIC_POW};
    return fb_number_calculate(ops[kind], a, b, out);
}

static bool unary(fb_step_kind kind, fb_number a, fb_number *out) {
    switch (kind) {
    case FB_STEP_NEGATE: return fb_number_calculate_one(FB_ARITHMETIC_NEG, a, out);
    case FB_STEP_ABS: return fb_number_calculate_one(FB_ARITHMETIC_ABS, a, out);
    case FB_STEP_SQRT: *out = fb_number_of_real(sqrt(a.real)); return true;
    case FB_STEP_EXP: *out = fb_number_of_real(exp(a.real)); return true;
    case FB_STEP_LOG: *out = fb_number_of_real(log(a.real)); return true;
    default: *out = fb_number_of_real(a.real); return true; /* float */
    }
}

bool fb_rule_compute(const fb_graph *graph, const fb_rule_expression *expression, const fb_rule_binding *binding,
                     fb_number *out) {
    fb_number stack[MAX_STEPS];
    size_t depth = 0;
    for (size_t i = 0; i < expression->count; i++) {
        const fb_rule_step *step = &expression->steps[i];
        fb_value value = binding->values[step->variable];
        bool ok = true;
        switch (step->kind) {
        case FB_STEP_NUMBER: stack[depth++] = step->number; break;
        case FB_STEP_VARIABLE: ok = read_value(graph, value, &stack[depth++]); break;
        case FB_STEP_SIZE: ok = read_size(graph, value, step->axis, &stack[depth++]); break;
        case FB_STEP_ADD:
        case FB_STEP_SUBTRACT:
        case FB_STEP_MULTIPLY:
        case FB_STEP_DIVIDE:
        case FB_STEP_POWER:
            depth--;
            ok = binary(step->kind, stack[depth - 1], stack[depth], &stack[depth - 1]);
            break;
        default: ok = unary(step->kind, stack[depth - 1], &stack[depth - 1]); break;
        }
        if (!ok) return false;
    }
    *out = stack[0];
    return isfinite(out->real);
}
