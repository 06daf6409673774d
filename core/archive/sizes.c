/* sympy.printing.str of sympy 1.14, for what sizes are made of: it has to be the same text, since structures are compared. */
#include "core/archive/internal.h"

#include <stdlib.h>
#include <string.h>

/* sympy.printing.precedence, and the functions of torch.utils._sympy. */
enum { LOWEST = 35, ADD = 40, MUL = 50, POW = 60, FUNCTION = 70, ATOM = 1000 };

typedef struct text {
    const char *at, *end;
    int depth;
} text;

/* The text of a part of an expression, and how strongly it binds. */
typedef struct part {
    fb_buffer out;
    int precedence;
    bool is_sum, is_integer;
} part;

static void free_parts(part *parts, size_t count) {
    for (size_t i = 0; i < count; i++) fb_buffer_free(&parts[i].out);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static bool eat(text *t, const char *what) {
    size_t length = strlen(what);
    if ((size_t)(t->end - t->at) < length || memcmp(t->at, what, length) != 0) return false;
    t->at += length;
    return true;
}

static size_t word_length(const char *at, const char *end) {
    const char *from = at;
    while (at < end && (*at == '_' || (unsigned)((*at | 32) - 'a') < 26 || (unsigned)(*at - '0') < 10)) at++;
    return (size_t)(at - from);
}

/* "Integer(" has been read: digits, perhaps with a sign. */
static bool read_integer(text *t, part *out) {
    const char *from = t->at;
    eat(t, "-");
    const char *digits = t->at;
    while (t->at < t->end && (unsigned)(*t->at - '0') < 10) t->at++;
    size_t count = (size_t)(t->at - digits);
    if (!count || count > 18 || !eat(t, ")")) return false;
    fb_buffer_append(&out->out, from, (size_t)(digits - from) + count);
    *out = (part){out->out, *from == '-' ? ADD : ATOM, false, true};
    return true;
}

/* "Symbol(" has been read: the name in quotes, then assumptions, which are not printed. */
static bool read_symbol(text *t, part *out) {
    if (!eat(t, "'")) return false;
    size_t length = word_length(t->at, t->end);
    fb_buffer_append(&out->out, t->at, length);
    t->at += length;
    if (!length || !eat(t, "'")) return false;
    while (eat(t, ", ")) {
        t->at += word_length(t->at, t->end);
        if (!eat(t, "=True") && !eat(t, "=False")) return false;
    }
    *out = (part){out->out, ATOM, false, false};
    return eat(t, ")");
}

/* ---- printing ----------------------------------------------------------------------------------------------------------- */

static void put(fb_buffer *out, const part *item, bool in_parentheses) {
    if (in_parentheses) fb_buffer_char(out, '(');
    fb_buffer_append(out, item->out.data, item->out.size);
    if (in_parentheses) fb_buffer_char(out, ')');
}

static bool begins_with_minus(const part *item) {
    return item->out.size && item->out.data[0] == '-';
}

static bool print_sum(part *items, size_t count, part *out) {
    for (size_t i = 0; i < count; i++) {
        if (items[i].is_sum) return false; /* sympy makes one of two sums */
        bool is_minus = begins_with_minus(&items[i]);
        if (i) fb_buffer_string(&out->out, is_minus ? " - " : " + ");
        else if (is_minus) fb_buffer_char(&out->out, '-');
        part rest = items[i];
        if (is_minus) rest.out.data++, rest.out.size--;
        put(&out->out, &rest, rest.precedence < ADD);
    }
    *out = (part){out->out, ADD, true, false};
    return count > 1;
}

/* Numbers come first, the sign apart from the rest: Mul(Integer(-1), Integer(2), x) is -2*x. */
static bool print_product(part *items, size_t count, part *out) {
    int64_t factor = 1;
    size_t first = 0;
    for (; first < count && items[first].is_integer; first++) {
        int64_t value = strtoll(fb_buffer_text(&items[first].out) ? items[first].out.data : "0", NULL, 10);
        if (__builtin_mul_overflow(factor, value, &factor)) return false;
    }
    if (first == count || factor == 0 || factor == INT64_MIN || (first && count == 1)) return false;
    if (factor < 0) fb_buffer_char(&out->out, '-');
    int64_t size = factor < 0 ? -factor : factor;
    if (size != 1) fb_buffer_int(&out->out, size);
    for (size_t i = first; i < count; i++) {
        if (items[i].is_integer) return false;
        if (i > first || size != 1) fb_buffer_char(&out->out, '*');
        put(&out->out, &items[i], items[i].precedence <= MUL);
    }
    *out = (part){out->out, factor < 0 ? ADD : MUL, false, false};
    return count > 1;
}

static bool print_power(part *items, size_t count, part *out) {
    if (count != 2 || !items[1].is_integer || begins_with_minus(&items[1])) return false;
    put(&out->out, &items[0], items[0].precedence <= POW);
    fb_buffer_string(&out->out, "**");
    put(&out->out, &items[1], false);
    *out = (part){out->out, POW, false, false};
    return true;
}

static bool print_division(part *items, size_t count, part *out) {
    if (count != 2) return false;
    fb_buffer_char(&out->out, '(');
    put(&out->out, &items[0], items[0].precedence < ATOM);
    fb_buffer_string(&out->out, "//");
    put(&out->out, &items[1], items[1].precedence < ATOM);
    fb_buffer_char(&out->out, ')');
    *out = (part){out->out, LOWEST, false, false};
    return true;
}

static bool print_call(const char *name, size_t length, part *items, size_t count, int precedence, part *out) {
    fb_buffer_append(&out->out, name, length);
    fb_buffer_char(&out->out, '(');
    for (size_t i = 0; i < count; i++) {
        if (i) fb_buffer_string(&out->out, ", ");
        put(&out->out, &items[i], false);
    }
    fb_buffer_char(&out->out, ')');
    *out = (part){out->out, precedence, false, false};
    return count > 0;
}

/* The arguments of Max and Min are sorted as they are printed, and in another way in the archive: of a number and another one
 * the number comes first either way. */
static bool print_extremum(const char *name, size_t length, part *items, size_t count, part *out) {
    if (count != 2 || items[0].is_integer == items[1].is_integer) return false;
    if (items[1].is_integer) {
        part first = items[1];
        items[1] = items[0];
        items[0] = first;
    }
    return print_call(name, length, items, count, FUNCTION, out);
}

static bool is_named(const char *name, size_t length, const char *other) {
    return strlen(other) == length && memcmp(name, other, length) == 0;
}

static bool print_function(const char *name, size_t length, part *items, size_t count, part *out) {
    static const char *const low[] = {"Mod", "PythonMod", "ModularIndexing"};
    static const char *const plain[] = {"IntTrueDiv", "CeilToInt", "FloorToInt", "TruncToInt", "RoundToInt", "ToFloat"};
    if (is_named(name, length, "Add")) return print_sum(items, count, out);
    if (is_named(name, length, "Mul")) return print_product(items, count, out);
    if (is_named(name, length, "Pow")) return print_power(items, count, out);
    if (is_named(name, length, "FloorDiv") || is_named(name, length, "CleanDiv")) return print_division(items, count, out);
    if (is_named(name, length, "Max") || is_named(name, length, "Min")) return print_extremum(name, length, items, count, out);
    for (size_t i = 0; i < sizeof low / sizeof *low; i++)
        if (is_named(name, length, low[i])) return print_call(name, length, items, count, LOWEST, out);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (is_named(name, length, plain[i]))
            return print_call(name, length, items, count, plain[i][0] == 'I' ? LOWEST : FUNCTION, out);
    return false;
}

static bool read_part(text *t, part *out);

static bool read_call(text *t, const char *name, size_t length, part *out) {
    part *items = calloc(PT_MOST_SIZE_ARGUMENTS, sizeof *items);
    size_t count = 0;
    bool ok = items != NULL;
    while (ok && !eat(t, ")")) {
        ok = count < PT_MOST_SIZE_ARGUMENTS && (!count || eat(t, ", ")) && read_part(t, &items[count++]);
    }
    ok = ok && print_function(name, length, items, count, out);
    free_parts(items, count);
    free(items);
    return ok && !out->out.failed;
}

static bool read_part(text *t, part *out) {
    const char *name = t->at;
    size_t length = word_length(t->at, t->end);
    t->at += length;
    if (!length || !eat(t, "(") || t->depth >= PT_MOST_SIZE_DEPTH) return false;
    if (is_named(name, length, "Integer")) return read_integer(t, out);
    if (is_named(name, length, "Symbol")) return read_symbol(t, out);
    t->depth++;
    bool ok = read_call(t, name, length, out);
    t->depth--;
    return ok;
}

bool fb_print_size(const char *bytes, size_t length, fb_buffer *out) {
    text t = {bytes, bytes + length, 0};
    part whole = {0};
    bool ok = read_part(&t, &whole) && t.at == t.end;
    if (ok) fb_buffer_append(out, whole.out.data, whole.out.size);
    fb_buffer_free(&whole.out);
    return ok;
}
