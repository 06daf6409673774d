#include "core/graph/namespace.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/index.h"
#include "core/base/map.h"
#include "core/base/table.h"
#include "core/graph/python.h"

#define KELVIN_SIGN "\u212a"                /* with U+0130 the only other character whose lower case, k, is a letter of ASCII */
#define MOST_DIGITS 18                      /* so that numbers, and sums of one and another, fit 64 bits */
#define FIRST_TOO_LONG 1000000000000000000U /* of that many digits and one more */

/* A text that was met as a name, as the base of numbered names, or both. */
typedef struct entry {
    const char *text;
    uint32_t length;
    uint32_t base;                  /* as a candidate: the entry of its base, itself when it has no number; 0 = not looked at */
    bool is_used, is_reserved_word; /* the latter as a candidate */
    uint64_t count;                 /* as a base: the number given last */
    uint64_t highest;               /* as a base: no name of the graph has a greater number */
    uint64_t first, last;           /* as a base: these numbers and those between were given without an entry; 0 = none */
    uint64_t next_free;             /* as the used name base_n: all of n, n + 1 … next_free - 1 are used; 0 = nothing known */
} entry;

struct fb_namespace {
    const fb_graph *graph; /* may be NULL */
    uint64_t seed;         /* of hashes: an address, so that names that collide cannot be prepared; no answer depends on it */
    fb_arena texts;
    fb_table entries;
    fb_index by_text;
    fb_buffer candidate; /* scratch */
};

fb_namespace *fb_namespace_new(void) {
    fb_namespace *names = calloc(1, sizeof *names);
    if (!names) return NULL;
    names->seed = (uint64_t)(uintptr_t)names;
    names->entries.row_size = sizeof(entry);
    return names;
}

fb_namespace *fb_namespace_copy(const fb_namespace *from, fb_work *work) {
    fb_namespace *names = fb_namespace_new();
    if (!names) return NULL;
    names->graph = from->graph;
    names->seed = from->seed;
    if (fb_table_copy(&names->entries, &from->entries, work) && fb_index_copy(&names->by_text, &from->by_text)) return names;
    fb_namespace_free(names);
    return NULL;
}

void fb_namespace_free(fb_namespace *names) {
    if (!names) return;
    fb_arena_free(&names->texts);
    fb_table_free(&names->entries);
    fb_index_free(&names->by_text);
    fb_buffer_free(&names->candidate);
    free(names);
}

static uint32_t hash_of(const fb_namespace *names, const char *text, size_t length) {
    return (uint32_t)(fb_hash(text, length, names->seed) >> 32);
}

static entry *entry_at(const fb_namespace *names, uint32_t id) {
    return fb_table_row(&names->entries, id, sizeof(entry));
}

/* The entry's id, or 0. */
static uint32_t find(const fb_namespace *names, const char *text, size_t length, uint32_t hash, uint32_t *step) {
    uint32_t id;
    *step = 0;
    while ((id = fb_index_next(&names->by_text, hash, step)) != 0) {
        const entry *found = entry_at(names, id);
        if (found->length == length && memcmp(found->text, text, length) == 0) break;
    }
    return id;
}

static bool is_in_graph(const fb_namespace *names, const char *text, size_t length) {
    fb_symbol name = names->graph ? fb_symbol_find(names->graph, text, length) : (fb_symbol){0};
    return name.id && fb_named(names->graph, name, FB_NAMED_NODE);
}

static bool is_word_character(char c) {
    return (unsigned char)((c | 0x20) - 'a') < 26 || (unsigned char)(c - '0') < 10 || c == '_';
}

/* The decimal digits at the end of a name, of any script as in Python's \d: false when there are other characters, none or too
 * many of them. */
static bool read_number(const char *text, size_t length, uint64_t *number) {
    size_t count = 0;
    *number = 0;
    for (size_t at = 0, size; at < length; at += size) {
        int digit = text[at] - '0';
        if (digit >= 0 && digit <= 9) size = 1;
        else digit = fb_unicode_digit(fb_utf8_decode(text + at, length - at, &size));
        if (digit < 0 || ++count > MOST_DIGITS) return false;
        *number = *number * 10 + (uint64_t)digit;
    }
    return count > 0;
}

/* How many characters that an ASCII identifier may have `text` begins with; 0 when it begins with a digit. */
static size_t count_word_characters(const char *text, size_t length) {
    size_t count = 0;
    while (count < length && is_word_character(text[count])) count++;
    return count && text[0] >= '0' && text[0] <= '9' ? 0 : count;
}

/* Does the name match ^([a-zA-Z_][0-9a-zA-Z_]*?)_(\d+)$? The last `_` is the only place where the number can begin. */
static bool has_number(const char *name, size_t length, size_t *base, uint64_t *number) {
    const char *bar = memrchr(name, '_', length);
    *base = bar ? (size_t)(bar - name) : 0;
    return *base && read_number(bar + 1, length - *base - 1, number) && count_word_characters(name, *base) == *base;
}

static bool is_without_entry(const entry *base, uint64_t number) {
    return base->first && base->first <= number && number <= base->last;
}

/* Is it a name that was given without an entry? */
static bool is_given(const fb_namespace *names, const char *text, size_t length) {
    size_t size;
    uint64_t number;
    if (!has_number(text, length, &size, &number)) return false;
    uint32_t step, base = find(names, text, size, hash_of(names, text, size), &step);
    if (!base || !is_without_entry(entry_at(names, base), number) || text[size + 1] == '0') return false;
    for (size_t i = size + 1; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return false; /* digits of another script */
    }
    return true;
}

/* 0 when memory is out. */
static uint32_t find_or_add(fb_namespace *names, const char *text, size_t length) {
    if (length > UINT32_MAX || !fb_index_reserve(&names->by_text, 1)) return 0;
    uint32_t hash = hash_of(names, text, length), step, id = find(names, text, length, hash, &step);
    if (id) return id;
    const char *copy = fb_arena_text(&names->texts, text, length);
    id = copy ? fb_table_add(&names->entries) : 0;
    if (!id) return 0;
    fb_index_add_here(&names->by_text, hash, id, step);
    bool is_used = is_in_graph(names, text, length) || is_given(names, text, length);
    *entry_at(names, id) = (entry){.text = copy, .length = (uint32_t)length, .is_used = is_used};
    return id;
}

/* A name that torch.fx takes as it is: an identifier, or one with a number. */
static bool is_well_formed(const char *name, size_t length) {
    size_t base;
    uint64_t number;
    return (length && count_word_characters(name, length) == length) || has_number(name, length, &base, &number);
}

/* Makes the candidate in the scratch buffer a well-formed name. */
static void make_identifier(fb_buffer *candidate, const char *text, size_t length) {
    candidate->size = 0;
    if (length && text[0] >= '0' && text[0] <= '9') fb_buffer_char(candidate, '_');
    bool in_run = false;
    for (size_t i = 0; i < length; i++) {
        bool is_legal = is_word_character(text[i]);
        if (is_legal) fb_buffer_char(candidate, text[i]);
        else if (!in_run) fb_buffer_char(candidate, '_');
        in_run = !is_legal;
    }
    if (length == 0) fb_buffer_string(candidate, "_unnamed");
}

/* Nothing is known of base_number: neither the graph nor an entry has it, and it follows on those without one. */
static bool needs_no_entry(const fb_namespace *names, const entry *base, uint64_t number) {
    const fb_buffer *name = &names->candidate;
    uint32_t step;
    return number > base->highest && number < FIRST_TOO_LONG && (!base->first || number == base->last + 1) &&
           !find(names, name->data, name->size, hash_of(names, name->data, name->size), &step);
}

/* Steps from *number to the next one with which the base's name is free, and takes it. Runs of used numbers are jumped over,
 * and each step shortens the path for those who come after (path splitting): counts may go down, so without that a hostile
 * sequence of names would walk the same run again and again. */
static const char *next_free_name(fb_namespace *names, entry *base, uint64_t *number) {
    fb_buffer *candidate = &names->candidate;
    candidate->size = 0;
    fb_buffer_append(candidate, base->text, base->length);
    fb_buffer_char(candidate, '_');
    size_t prefix = candidate->size;
    for (entry *previous = NULL;;) {
        if (is_without_entry(base, *number)) *number = base->last + 1;
        candidate->size = prefix;
        fb_buffer_int(candidate, (int64_t)*number);
        if (candidate->failed) return NULL;
        if (needs_no_entry(names, base, *number)) {
            base->last = *number;
            if (!base->first) base->first = *number;
            return fb_arena_text(&names->texts, candidate->data, candidate->size);
        }
        uint32_t id = find_or_add(names, candidate->data, candidate->size);
        entry *name = id ? entry_at(names, id) : NULL;
        if (!name) return NULL;
        if (!name->is_used) {
            name->is_used = true;
            return name->text;
        }
        if (!name->next_free) name->next_free = *number + 1;
        if (previous) previous->next_free = name->next_free;
        previous = name;
        *number = name->next_free;
    }
}

fb_wanted_name fb_namespace_want(fb_namespace *names, const char *text) {
    size_t length = strlen(text);
    names->candidate.failed = false;
    if (!is_well_formed(text, length)) {
        make_identifier(&names->candidate, text, length);
        text = fb_buffer_text(&names->candidate);
        length = names->candidate.size;
        if (!text) return (fb_wanted_name){0};
    }
    fb_wanted_name wanted = {find_or_add(names, text, length)}, none = {0};
    if (!wanted.id || entry_at(names, wanted.id)->base) return wanted;
    uint32_t base = wanted.id;
    size_t base_length;
    uint64_t number;
    text = entry_at(names, wanted.id)->text;
    if (has_number(text, length, &base_length, &number)) base = find_or_add(names, text, base_length);
    if (!base) return none;
    entry *name = entry_at(names, wanted.id);
    name->base = base;
    name->is_reserved_word = fb_python_word(name->text, name->length) != FB_WORD_FREE;
    return wanted;
}

const char *fb_namespace_next(fb_namespace *names, fb_wanted_name wanted) {
    if (!wanted.id) return NULL;
    names->candidate.failed = false;
    entry *name = entry_at(names, wanted.id), *base = entry_at(names, name->base);
    const char *text = name->text;
    uint64_t number = base->count;
    if (name != base && !name->is_used) read_number(name->text + base->length + 1, name->length - base->length - 1, &number);
    if (name->is_used || name->is_reserved_word) {
        number++;
        text = next_free_name(names, base, &number);
    } else {
        name->is_used = true;
    }
    if (text) base->count = number;
    return text;
}

const char *fb_namespace_create(fb_namespace *names, const char *candidate) {
    return fb_namespace_next(names, fb_namespace_want(names, candidate));
}

/* Count names in their order. False when memory is out. */
static bool count_name(fb_namespace *names, const char *name) {
    size_t base_length;
    uint64_t number;
    if (!has_number(name, strlen(name), &base_length, &number)) return true;
    uint32_t id = find_or_add(names, name, base_length);
    if (!id) return false;
    entry *base = entry_at(names, id);
    base->count = number;
    if (number > base->highest) base->highest = number;
    return true;
}

fb_namespace *fb_namespace_of(const fb_graph *graph, fb_work *work) {
    fb_namespace *names = fb_namespace_new();
    bool ok = names != NULL;
    if (ok) names->graph = graph;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); ok && n.id; n = fb_next_node(graph, n)) {
        ok = fb_work_goes_on(work, 8) && count_name(names, fb_node_name(graph, n));
    }
    if (ok) return names;
    fb_namespace_free(names);
    return NULL;
}

bool fb_namespace_adopt(fb_namespace *names, const char *name) {
    return fb_namespace_reserve(names, name) && count_name(names, name);
}

bool fb_namespace_reserve(fb_namespace *names, const char *name) {
    uint32_t reserved = find_or_add(names, name, strlen(name));
    if (reserved) entry_at(names, reserved)->is_used = true;
    return reserved != 0;
}

bool fb_namespace_is_used(const fb_namespace *names, const char *name) {
    size_t length = strlen(name);
    uint32_t step, found = find(names, name, length, hash_of(names, name, length), &step);
    return found ? entry_at(names, found)->is_used : is_in_graph(names, name, length) || is_given(names, name, length);
}

const char *fb_function_name(const char *target) {
    size_t dots = 0;
    for (const char *c = target; *c; c++) dots += *c == '.';
    const char *last = strrchr(target, '.');
    if (!last) return target;
    if (dots != 4 || !fb_is_spelled(target, FB_REGISTERED)) return last + 1;
    while (last[-1] != '.') last--;
    return last;
}

void fb_candidate_name(fb_buffer *out, fb_opcode opcode, const char *target) {
    const char *name = opcode == FB_CALL_FUNCTION ? fb_function_name(target) : target;
    size_t length = strlen(name);
    if (opcode == FB_CALL_FUNCTION && fb_is_spelled(target, FB_ONNX_DEFAULT) && name[0] == 'v') { /* without the version */
        name = target + strlen(FB_ONNX_DEFAULT);
        length = strcspn(name, ".");
    }
    bool is_magic = length >= 2 && strncmp(name, "__", 2) == 0 && strcmp(name + length - 2, "__") == 0;
    if (opcode != FB_CALL_FUNCTION && is_magic) {
        name += 2;
        length = length > 4 ? length - 4 : 0;
    }
    for (size_t i = 0; i < length; i++) {
        char c = name[i];
        if (strncmp(name + i, KELVIN_SIGN, 3) == 0) {
            fb_buffer_char(out, 'k');
            i += 2;
            continue;
        }
        bool is_upper = c >= 'A' && c <= 'Z';
        if (is_upper && i > 0 && name[i - 1] >= 'a' && name[i - 1] <= 'z') fb_buffer_char(out, '_');
        fb_buffer_char(out, is_upper ? (char)(c | 0x20) : c);
    }
}
