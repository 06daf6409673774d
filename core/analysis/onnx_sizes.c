/* Sizes as numbers, and as products of symbols: 2 * batch * sequence. A sum or quotient that is none is a symbol of its own,
 * which is the same for the same operands. */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/onnx_call.h"
#include "core/base/grow.h"
#include "core/base/map.h"

enum { MAX_FACTORS = 6 };
enum { OF_NAME = 1, OF_NOTHING, OF_SUM, OF_DIFFERENCE, OF_QUOTIENT, OF_FLOOR, OF_OTHERS };

typedef struct atom {
    int kind;
    size a, b;
    const char *name;
} atom;

typedef struct product {
    int64_t factor;
    uint32_t count, atoms[MAX_FACTORS]; /* sorted */
} product;

struct fb_onnx_sizes {
    product *products;
    atom *atoms;
    uint32_t product_count, atom_count;
    size_t product_room, atom_room;
    fb_map by_product, by_atom; /* by hash */
    fb_arena arena;
    bool failed;
};

fb_onnx_sizes *fb_onnx_sizes_new(void) {
    fb_onnx_sizes *s = calloc(1, sizeof *s);
    if (s) s->product_count = s->atom_count = 1; /* ids begin with 1 */
    return s;
}

void fb_onnx_sizes_free(fb_onnx_sizes *s) {
    if (!s) return;
    free(s->products);
    free(s->atoms);
    fb_map_free(&s->by_product);
    fb_map_free(&s->by_atom);
    fb_arena_free(&s->arena);
    free(s);
}

bool fb_onnx_sizes_failed(const fb_onnx_sizes *s) {
    return s->failed;
}

static size put_product(fb_onnx_sizes *s, const product *p) {
    size_t used = offsetof(product, atoms) + p->count * sizeof *p->atoms;
    uint64_t hash = fb_hash(p, used, 1);
    uint32_t cursor = 0, at;
    while ((at = fb_map_next(&s->by_product, hash, &cursor)) != 0)
        if (memcmp(&s->products[at], p, used) == 0) return at;
    s->failed |= !FB_GROW(s->products, s->product_count, s->product_room);
    if (s->failed) return 0;
    s->failed |= !fb_map_add(&s->by_product, hash, s->product_count);
    s->products[s->product_count] = *p;
    return s->product_count++;
}

size fb_size_of(fb_onnx_sizes *s, int64_t number) {
    return put_product(s, &(product){.factor = number});
}

static size put_atom(fb_onnx_sizes *s, atom made) {
    uint64_t hash = made.name ? fb_hash_text(made.name, 2) : fb_hash(&made, offsetof(atom, name), 3);
    uint32_t cursor = 0, at = 0;
    while (made.kind != OF_NOTHING && (at = fb_map_next(&s->by_atom, hash, &cursor)) != 0) {
        const atom *a = &s->atoms[at];
        if (a->kind == made.kind && a->a == made.a && a->b == made.b && (!a->name || strcmp(a->name, made.name) == 0)) break;
    }
    if (!at) {
        if (made.name) made.name = fb_arena_text(&s->arena, made.name, strlen(made.name));
        s->failed |= made.kind == OF_NAME && !made.name;
        s->failed |= !FB_GROW(s->atoms, s->atom_count, s->atom_room);
        if (s->failed) return 0;
        at = s->atom_count++;
        s->atoms[at] = made;
        s->failed |= made.kind != OF_NOTHING && !fb_map_add(&s->by_atom, hash, at);
    }
    return put_product(s, &(product){.factor = 1, .count = 1, .atoms = {at}});
}

size fb_size_named(fb_onnx_sizes *s, const char *name) {
    return put_atom(s, (atom){.kind = OF_NAME, .name = name});
}

size fb_size_fresh(fb_onnx_sizes *s) {
    return put_atom(s, (atom){.kind = OF_NOTHING});
}

bool fb_size_is_number(const fb_onnx_sizes *s, size a, int64_t *out) {
    if (!a || s->products[a].count) return false;
    *out = s->products[a].factor;
    return true;
}

bool fb_size_is(const fb_onnx_sizes *s, size a, int64_t number) {
    return a && !s->products[a].count && s->products[a].factor == number;
}

static const atom *atom_of(const fb_onnx_sizes *s, size a) {
    const product *p = a ? &s->products[a] : NULL;
    return p && p->count == 1 && p->factor == 1 ? &s->atoms[p->atoms[0]] : NULL;
}

const char *fb_size_name(const fb_onnx_sizes *s, size a) {
    const atom *found = atom_of(s, a);
    return found ? found->name : NULL;
}

static bool is_plain(const fb_onnx_sizes *s, size a, int depth) {
    const product *p = &s->products[a];
    bool is = a && p->factor >= 0 && depth > 0;
    for (uint32_t i = 0; i < p->count && is; i++) {
        const atom *at = &s->atoms[p->atoms[i]];
        bool is_computed = at->kind == OF_SUM || at->kind == OF_QUOTIENT || at->kind == OF_FLOOR;
        is = at->kind == OF_NAME || at->kind == OF_NOTHING ||
             (is_computed && is_plain(s, at->a, depth - 1) && is_plain(s, at->b, depth - 1));
    }
    return is;
}

bool fb_size_is_plain(const fb_onnx_sizes *s, size a) {
    return is_plain(s, a, 8);
}

size fb_size_of_two(fb_onnx_sizes *s, int operation, size a, size b) {
    return a && b ? put_atom(s, (atom){.kind = OF_OTHERS + operation, .a = a, .b = b}) : 0;
}

/* 3 * s + 2 * s. */
static bool have_same_atoms(const product *p, const product *q) {
    return p->count == q->count && memcmp(p->atoms, q->atoms, p->count * sizeof *p->atoms) == 0;
}

static size sum(fb_onnx_sizes *s, size a, size b, bool is_difference) {
    if (!a || !b || fb_size_is(s, b, 0)) return b ? a : 0;
    if (!is_difference && fb_size_is(s, a, 0)) return b;
    product p = s->products[a], q = s->products[b];
    if (have_same_atoms(&p, &q)) {
        bool is_beyond = is_difference ? __builtin_sub_overflow(p.factor, q.factor, &p.factor)
                                       : __builtin_add_overflow(p.factor, q.factor, &p.factor);
        if (!p.factor) p.count = 0;
        return is_beyond ? 0 : put_product(s, &p);
    }
    const atom *of = atom_of(s, a); /* (x + y) - y, (x - y) + y */
    if (of && is_difference && of->kind == OF_SUM && (of->a == b || of->b == b)) return of->a == b ? of->b : of->a;
    if (of && !is_difference && of->kind == OF_DIFFERENCE && of->b == b) return of->a;
    bool is_turned = !is_difference && a > b;
    return put_atom(s, (atom){.kind = is_difference ? OF_DIFFERENCE : OF_SUM, .a = is_turned ? b : a, .b = is_turned ? a : b});
}

size fb_size_add(fb_onnx_sizes *s, size a, size b) {
    int64_t number, of;
    const atom *found;
    if (a && b && fb_size_is_number(s, a, &number)) {
        size other = a;
        a = b, b = other;
    }
    if (a && b && fb_size_is_number(s, b, &number)) { /* (x + 2) + 3 */
        found = atom_of(s, a);
        bool is_sum = found && found->kind == OF_SUM;
        size left = is_sum ? found->a : 0, right = is_sum ? found->b : 0, other = left;
        if (is_sum && fb_size_is_number(s, left, &of)) left = right, right = other;
        if (is_sum && fb_size_is_number(s, right, &of) && !__builtin_add_overflow(number, of, &number))
            return sum(s, left, fb_size_of(s, number), false);
    }
    return sum(s, a, b, false);
}

size fb_size_sub(fb_onnx_sizes *s, size a, size b) {
    int64_t number;
    if (a && b && fb_size_is_number(s, b, &number) && number != INT64_MIN) return fb_size_add(s, a, fb_size_of(s, -number));
    return sum(s, a, b, true);
}

size fb_size_mul(fb_onnx_sizes *s, size a, size b) {
    if (!a || !b) return 0;
    product made = s->products[a];
    const product q = s->products[b];
    if (__builtin_mul_overflow(made.factor, q.factor, &made.factor) || made.count + q.count > MAX_FACTORS) return 0;
    for (uint32_t i = 0; i < q.count; i++) {
        uint32_t at = made.count++;
        for (; at > 0 && made.atoms[at - 1] > q.atoms[i]; at--) made.atoms[at] = made.atoms[at - 1];
        made.atoms[at] = q.atoms[i];
    }
    if (!made.factor) made.count = 0;
    return put_product(s, &made);
}

/* The quotient where nothing is left over, whatever the symbols are but 0; else 0. */
static size exact_quotient(fb_onnx_sizes *s, size a, size b) {
    product p = s->products[a];
    const product q = s->products[b];
    if (!q.factor || (q.factor == -1 && p.factor == INT64_MIN) || p.factor % q.factor) return 0;
    p.factor /= q.factor;
    for (uint32_t i = 0; i < q.count; i++) {
        uint32_t at = 0;
        while (at < p.count && p.atoms[at] != q.atoms[i]) at++;
        if (at == p.count) return 0;
        memmove(p.atoms + at, p.atoms + at + 1, (--p.count - at) * sizeof *p.atoms);
    }
    if (!p.factor) p.count = 0;
    return put_product(s, &p);
}

static size quotient(fb_onnx_sizes *s, int kind, size a, size b) {
    int64_t x, y;
    if (!a || !b || fb_size_is(s, b, 0)) return 0;
    size exact = exact_quotient(s, a, b);
    if (exact) return exact;
    if (fb_size_is_number(s, a, &x) && fb_size_is_number(s, b, &y)) {
        if (y == -1) return 0;
        int64_t down = kind == OF_FLOOR && x % y && (x < 0) != (y < 0);
        return fb_size_of(s, x / y - down);
    }
    return put_atom(s, (atom){.kind = kind, .a = a, .b = b});
}

size fb_size_div(fb_onnx_sizes *s, size a, size b) {
    return quotient(s, OF_QUOTIENT, a, b);
}

size fb_size_floor_div(fb_onnx_sizes *s, size a, size b) {
    return quotient(s, OF_FLOOR, a, b);
}

size fb_size_ceil_div(fb_onnx_sizes *s, size a, size b) {
    return fb_size_floor_div(s, fb_size_add(s, a, fb_size_sub(s, b, fb_size_of(s, 1))), b);
}
