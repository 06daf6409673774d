/* Whole numbers of layouts.
 *
 *     sum     = product {("+" | "-") product}
 *     product = atom {("*" | "/" | "//") atom}
 *     atom    = number | name ["." "shape" "[" number "]"] | "(" sum ")" */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/layouts/internal.h"

enum { MAX_DEPTH = 16, MAX_LENGTH = 200 };

typedef struct reader {
    const char *text, *at;
    const fb_layout_names *names;
    int depth;
    fb_error *error;
} reader;

static fb_status read_sum(reader *r, int64_t *out);

static fb_status wrong(reader *r, const char *what) {
    return fb_fail(r->error, FB_INVALID, "bad-expression", NULL, "\"%.80s\": %s at character %zu", r->text, what,
                   (size_t)(r->at - r->text) + 1);
}

static bool eat(reader *r, const char *token) {
    while (*r->at == ' ') r->at++;
    size_t length = strlen(token);
    if (strncmp(r->at, token, length) != 0) return false;
    r->at += length;
    return true;
}

static fb_status read_digits(reader *r, int64_t *out) {
    *out = 0;
    if (!isdigit((unsigned char)*r->at)) return wrong(r, "a number is expected");
    for (; isdigit((unsigned char)*r->at); r->at++) {
        if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, *r->at - '0', out))
            return wrong(r, "a number is too large");
    }
    return FB_OK;
}

static fb_status read_name(reader *r, int64_t *out) {
    const char *name = r->at;
    while (isalnum((unsigned char)*r->at) || *r->at == '_') r->at++;
    size_t length = (size_t)(r->at - name);
    int64_t axis = -1;
    if (eat(r, ".shape")) {
        if (!eat(r, "[")) return wrong(r, "\"[\" is expected");
        fb_status status = read_digits(r, &axis);
        if (status) return status;
        if (!eat(r, "]")) return wrong(r, "\"]\" is expected");
        if (axis >= 32) return wrong(r, "a tensor has at most 32 dimensions");
    }
    if (r->names->find(r->names->context, name, length, (int)axis, out)) return FB_OK;
    if (axis >= 0 && !r->names->is_check)
        return fb_fail(r->error, FB_INVALID, "shape-mismatch", NULL, "%.*s has no dimension %d", (int)length, name, (int)axis);
    return fb_fail(r->error, FB_INVALID, "bad-expression", NULL, "\"%.80s\": nothing here is called %.*s", r->text, (int)length,
                   name);
}

static fb_status read_atom(reader *r, int64_t *out) {
    if (eat(r, "(")) {
        if (++r->depth > MAX_DEPTH) return wrong(r, "it is nested too deeply");
        fb_status status = read_sum(r, out);
        r->depth--;
        if (status) return status;
        return eat(r, ")") ? FB_OK : wrong(r, "\")\" is expected");
    }
    if (isdigit((unsigned char)*r->at)) return read_digits(r, out);
    if (isalpha((unsigned char)*r->at) || *r->at == '_') return read_name(r, out);
    return wrong(r, "a number, a name or \"(\" is expected");
}

/* Without a rest, or rounded down. */
static fb_status divide(reader *r, int64_t divisor, bool is_rounded, int64_t *value) {
    if (r->names->is_check) return FB_OK;
    if (is_rounded && divisor > 0) {
        *value = *value / divisor - (*value % divisor < 0);
        return FB_OK;
    }
    if (divisor <= 0 || *value % divisor)
        return fb_fail(r->error, FB_INVALID, "does-not-divide", NULL, "%s: %lld is not a multiple of %lld", r->text,
                       (long long)*value, (long long)divisor);
    *value /= divisor;
    return FB_OK;
}

static fb_status read_product(reader *r, int64_t *out) {
    fb_status status = read_atom(r, out);
    while (!status) {
        bool is_rounded = eat(r, "//"), is_division = is_rounded || eat(r, "/");
        int64_t other;
        if (!is_division && !eat(r, "*")) break;
        status = read_atom(r, &other);
        if (!status && is_division) status = divide(r, other, is_rounded, out);
        else if (!status && __builtin_mul_overflow(*out, other, out)) status = wrong(r, "the number is too large");
    }
    return status;
}

static fb_status read_sum(reader *r, int64_t *out) {
    fb_status status = read_product(r, out);
    while (!status) {
        bool is_difference = eat(r, "-");
        int64_t other;
        if (!is_difference && !eat(r, "+")) break;
        status = read_product(r, &other);
        bool fits =
            status || !(is_difference ? __builtin_sub_overflow(*out, other, out) : __builtin_add_overflow(*out, other, out));
        if (!fits) status = wrong(r, "the number is too large");
    }
    return status;
}

fb_status fb_layout_compute(const char *text, const fb_layout_names *names, int64_t *out, fb_error *error) {
    reader r = {.text = text, .at = text, .names = names, .error = error};
    if (strlen(text) > MAX_LENGTH)
        return fb_fail(error, FB_INVALID, "bad-expression", NULL, "an expression has at most %d characters", MAX_LENGTH);
    fb_status status = read_sum(&r, out);
    while (*r.at == ' ') r.at++;
    if (!status && *r.at) status = wrong(&r, "its end is expected");
    if (!status && !names->is_check && *out < 0)
        status = fb_fail(error, FB_INVALID, "out-of-range", NULL, "%s is %lld", text, (long long)*out);
    return status;
}

fb_status fb_layout_number(const json_t *json, const fb_layout_names *names, int64_t *out, fb_error *error) {
    if (json_is_string(json)) return fb_layout_compute(json_string_value(json), names, out, error);
    *out = json_integer_value(json);
    if (json_is_integer(json) && *out >= 0) return FB_OK;
    return fb_fail(error, FB_INVALID, "wrong-type", NULL,
                   "a whole number is expected here, or an expression like \"heads * head_dim\"");
}
