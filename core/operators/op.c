/* The operator table as data, and the search in it. */
#include "core/operators/op.h"

#include <assert.h>
#include <ctype.h>
#include <pthread.h>
#include <string.h>

#include "core/base/map.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"

/* Short words for the rows of ops.def. */
enum {
    ELEMENTWISE = FB_FACT_ELEMENTWISE,
    COMMUTATIVE = FB_FACT_COMMUTATIVE,
    ALIASES = FB_FACT_ALIASES,
    ALIASES_ALL = FB_FACT_ALIASES_ALL,
    MUTATES = FB_FACT_MUTATES,
    HAS_IN_PLACE = FB_FACT_HAS_IN_PLACE,
    RANDOM = FB_FACT_RANDOM,
    UNSET = FB_FACT_UNSET,
    RANDOM_IN_TRAINING = FB_FACT_RANDOM_IN_TRAINING,
    MUTATES_IN_TRAINING = FB_FACT_MUTATES_IN_TRAINING,
    EFFECT = FB_FACT_EFFECT,
    NUMBER = FB_FACT_NUMBER,
    MAYBE_NUMBER = FB_FACT_MAYBE_NUMBER,
    NUMBER_WITHOUT_ARGUMENT = FB_FACT_NUMBER_WITHOUT_ARGUMENT,
    READS_LAYOUT = FB_FACT_READS_LAYOUT,
    MAYBE_CONTAINER = FB_FACT_MAYBE_CONTAINER,
    CONTAINER = FB_FACT_CONTAINER,
    TUPLE = FB_FACT_TUPLE,
    EXACT = FB_FACT_EXACT,
    EXACT_INTEGERS = FB_FACT_EXACT_INTEGERS,
    RUNS_PROGRAMS = FB_FACT_RUNS_PROGRAMS,
    VMAP_LEVEL = FB_FACT_VMAP_LEVEL,
    SAVES_RESULT = FB_FACT_SAVES_RESULT,
    COMPLEX_ROWS = FB_FACT_COMPLEX_ROWS,
    SECOND_LEADS = FB_FACT_SECOND_LEADS,
    ROWS_OF_NUMBER = FB_FACT_ROWS_OF_NUMBER,
    BATCHES = FB_FACT_BATCHES,
    PARTS = FB_FACT_PARTS,
    RESHAPES_IN_PLACE = FB_FACT_RESHAPES_IN_PLACE,
    ASSERTS = FB_FACT_ASSERTS,
    MINDS_ZERO = FB_FACT_MINDS_ZERO,
};
#define NATIVE(text) .native = text
#define METHOD(text) .method = text
#define FORWARD(text) .forward = text
#define ATEN(text) .aten = text
#define ONNX(text) .onnx = text
#define FUNCTIONS(text) .functions = text
#define KEPT(text) .kept = text
#define IN_PLACE(text) .in_place = text
#define HOMES(text) .homes = text
#define PRINTED(text) .printed = text
#define MODULES(text) .modules = text
#define FLAGS(bits) .flags = (bits)
#define RULES(shape_rule, dtype_rule) .shape = FB_SHAPE_##shape_rule, .dtype = FB_DTYPE_RULE_##dtype_rule
#define LAYOUT(name) .layout = FB_LAYOUT_##name
#define UNBATCHED(name) .unbatched = FB_LAYOUT_##name
#define SPATIAL(dimensions) .spatial = (dimensions)
#define COMPUTES(name) .arithmetic = FB_ARITHMETIC_##name
#define IDENTITY(name) .identity = FB_IDENTITY_RULE_##name
#define RENORMALISES_WEIGHT .renormalises_weight = true
#define TYPE_OF(text) .type_of = text
#define ONEDNN(text) .onednn = text
#define FB_OP_ROW(name, names_text, ...) [FB_OP_##name] = {#name, names_text, FB_OP_ROW_REST(__VA_ARGS__)},
#define FB_OP_ROW_REST(...) .parameters = __VA_ARGS__

const fb_op_facts fb_op_table[FB_OP_COUNT] = {
    [FB_OP_UNKNOWN] = {.id = "UNKNOWN", .names = "", .parameters = ""},
#include "core/operators/ops.def"
};

bool fb_has_word(const char *list, const char *word, size_t length) {
    while (list) {
        if (*list == *word && strncmp(list, word, length) == 0 && (list[length] == ' ' || !list[length])) return true;
        list = strchr(list, ' ');
        if (list) list++;
    }
    return false;
}

/* The columns of words that a call or module may say, and an index of their words: slots of operators, in their order where
 * they share a word. */
typedef enum word_column { NAMES, FUNCTIONS, IN_PLACE, ONNX, MODULES, COLUMN_COUNT } word_column;
static struct {
    uint16_t op; /* 0 = empty */
    uint16_t column;
} word_slots[1 << 13];
#define WORD_SLOTS (sizeof word_slots / sizeof *word_slots)

static const char *words_of(fb_op op, word_column column) {
    const fb_op_facts *facts = &fb_op_table[op];
    const char *const columns[] = {facts->names, facts->functions, facts->in_place, facts->onnx, facts->modules};
    return columns[column];
}

static size_t slot_of(word_column column, const char *word, size_t length) {
    return (size_t)fb_hash(word, length, column) % WORD_SLOTS;
}

static void index_words(void) {
    size_t count = 0;
    for (fb_op op = 1; op < FB_OP_COUNT; op++) {
        for (word_column column = 0; column < COLUMN_COUNT; column++) {
            for (const char *word = words_of(op, column); word && *word; word += strspn(word, " ")) {
                size_t length = strcspn(word, " "), slot = slot_of(column, word, length);
                while (word_slots[slot].op) slot = (slot + 1) % WORD_SLOTS;
                word_slots[slot].op = (uint16_t)op;
                word_slots[slot].column = (uint16_t)column;
                word += length;
                count++;
            }
        }
    }
    assert(count < WORD_SLOTS / 2);
}

/* The first operator behind `after` that has the word in that column. */
static fb_op find_word(word_column column, const char *word, size_t length, fb_op after) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, index_words);
    for (size_t slot = slot_of(column, word, length); length && word_slots[slot].op; slot = (slot + 1) % WORD_SLOTS) {
        fb_op op = word_slots[slot].op;
        if (op > after && word_slots[slot].column == column && fb_has_word(words_of(op, column), word, length)) return op;
    }
    return FB_OP_UNKNOWN;
}

static fb_op find_name(const char *name, size_t length, const char *overload, size_t overload_length) {
    fb_op op = FB_OP_UNKNOWN;
    while ((op = find_word(NAMES, name, length, op)) && overload) {
        if (fb_has_word(fb_op_table[op].aten ? fb_op_table[op].aten : "default", overload, overload_length)) break;
    }
    return op;
}

/* By base name, as it is and then without a final underscore. A double one belongs to Python (`__and__`). */
static fb_op find_spelling(const char *name, size_t length, const char *overload, size_t overload_length) {
    fb_op op = find_name(name, length, overload, overload_length);
    if (op || length < 2 || name[length - 1] != '_' || name[length - 2] == '_') return op;
    op = find_name(name, length - 1, overload, overload_length);
    return fb_op_table[op].flags & FB_FACT_HAS_IN_PLACE ? (fb_op)(op | FB_OP_IN_PLACE) : FB_OP_UNKNOWN;
}

static bool skip_prefix(const char **text, size_t *length, const char *prefix) {
    size_t size = strlen(prefix);
    if (*length <= size || memcmp(*text, prefix, size) != 0) return false;
    *text += size;
    *length -= size;
    return true;
}

static fb_op find_target(const char *target, size_t length) {
    fb_op op = find_word(FUNCTIONS, target, length, 0), in_place = find_word(IN_PLACE, target, length, 0);
    return in_place && (!op || in_place < op) ? (fb_op)(in_place | FB_OP_IN_PLACE) : op;
}

/* In a version that is known. */
static fb_op find_onnx(const char *target, const char *name, size_t length) {
    const char *dot = memchr(name, '.', length);
    size_t size = dot ? (size_t)(dot - name) : length;
    fb_op op = find_word(ONNX, name, size, 0);
    return op && fb_onnx_facts_of(target) ? op : FB_OP_UNKNOWN;
}

fb_op fb_op_of_function(const char *target, size_t length) {
    fb_op op = find_target(target, length);
    if (op) return op;
    const char *name = target;
    size_t rest = length;
    if (skip_prefix(&name, &rest, FB_ONNX_DEFAULT)) return find_onnx(target, name, rest);
    if (skip_prefix(&name, &rest, FB_ATEN)) {
        const char *dot = memchr(name, '.', rest);
        if (!dot) return FB_OP_UNKNOWN;
        size_t size = (size_t)(dot - name);
        return find_spelling(name, size, dot + 1, rest - size - 1);
    }
    /* The longest first. torch.fx prints torch.special.expm1 as torch._C._special.special_expm1. */
    static const char *const homes[] = {FB_FUNCTIONAL,       FB_FUNCTIONAL_IN_C,           "torch._C._fft.",
                                        "torch._C._linalg.", "torch._C._special.special_", "torch.special.",
                                        FB_TENSOR_METHOD,    FB_TORCH_IN_PYTHON,           FB_TORCH};
    size_t home = 0, count = sizeof homes / sizeof *homes;
    while (home < count && !skip_prefix(&name, &rest, homes[home])) home++;
    if (home == count) return FB_OP_UNKNOWN;
    return find_spelling(name, rest, NULL, 0); /* a further dot is in no base name */
}

fb_op fb_op_of_onednn(const char *word) {
    for (fb_op op = 1; op < FB_OP_COUNT; op++)
        if (fb_op_table[op].onednn && strcmp(fb_op_table[op].onednn, word) == 0) return op;
    return FB_OP_UNKNOWN;
}

fb_op fb_op_of_method(const char *name, size_t length) {
    return find_spelling(name, length, NULL, 0);
}

fb_op fb_op_of_module(const char *type, size_t length) {
    return skip_prefix(&type, &length, "torch.nn.") ? find_word(MODULES, type, length, 0) : FB_OP_UNKNOWN;
}

bool fb_op_maps_elements(fb_op op) {
    uint32_t flags = fb_op_facts_of(op)->flags;
    return flags & FB_FACT_ELEMENTWISE || (flags & FB_FACT_BATCHES && !(op & FB_OP_IN_PLACE));
}

bool fb_op_makes_anew(fb_op op) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    return facts->shape == FB_SHAPE_NEW && facts->type_of;
}

fb_arithmetic fb_op_arithmetic_of_numbers(fb_op op) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    bool takes_numbers = facts->flags & FB_FACT_MAYBE_NUMBER && !(op & FB_OP_IN_PLACE);
    return takes_numbers ? (fb_arithmetic)facts->arithmetic : FB_NO_ARITHMETIC;
}

bool fb_op_lacks_kernel(fb_op op, const char *dtype) {
    static const char *const lacking[FB_OP_COUNT] = {
#define FB_PRECISION_ROW(id, dtypes) [FB_OP_##id] = dtypes,
#define FB_PRECISION_CASE(id, spelling, parameter, values, dtypes)
#include "core/operators/precisions.def"
#undef FB_PRECISION_ROW
#undef FB_PRECISION_CASE
    };
    return fb_has_word(lacking[op & ~FB_OP_IN_PLACE], dtype, strlen(dtype));
}

const fb_precision_case *fb_op_precision_cases(size_t *count) {
    static const fb_precision_case cases[] = {
#define FB_PRECISION_ROW(id, dtypes)
#define FB_PRECISION_CASE(id, spelling, parameter, values, dtypes) {FB_OP_##id, spelling, parameter, values, dtypes},
#include "core/operators/precisions.def"
#undef FB_PRECISION_ROW
#undef FB_PRECISION_CASE
    };
    *count = sizeof cases / sizeof *cases;
    return cases;
}

bool fb_op_is_named(fb_op op, const char *name) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    size_t length = strlen(name);
    if (length == 0 || facts == fb_op_facts_of(FB_OP_UNKNOWN)) return false;
    if (fb_has_word(facts->names, name, length)) return true;
    const char *id = facts->id;
    while (*id && tolower((unsigned char)*id) == *name) id++, name++;
    return !*id && !*name;
}

void fb_op_functional_target(fb_op op, fb_buffer *out) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    if (facts->printed) {
        fb_buffer_string(out, facts->printed);
        return;
    }
    fb_buffer_string(out, FB_FUNCTIONAL);
    fb_buffer_append(out, facts->names, strcspn(facts->names, " "));
}
