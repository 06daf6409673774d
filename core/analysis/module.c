/* Reading the rows of modules.def and holding a module against its row. */
#include "core/analysis/module.h"

#include <stdio.h>
#include <string.h>

#include "core/analysis/view.h"
#include "core/base/buffer.h"

typedef struct module_facts {
    const char *config, *divisions, *tensors;
} module_facts;

#define FB_MODULE_ROW(op, config_text, divisions_text, tensors_text) [FB_OP_##op] = {config_text, divisions_text, tensors_text},
static const module_facts table[FB_OP_COUNT] = {
#include "core/analysis/modules.def"
};
#undef FB_MODULE_ROW

typedef struct checker {
    const fb_graph *graph;
    fb_module module;
    const module_facts *facts;
    fb_errors *errors;
    size_t position;
} checker;

/* ---- errors ---------------------------------------------------------------------------------------------------------- */

static void report(const checker *c, const char *member, const char *name, const char *what) {
    fb_buffer pointer = {0};
    fb_buffer_printf(&pointer, "/modules/%zu/%s", c->position, member);
    const fb_module_row *row = fb_module_at(c->graph, c->module);
    fb_value map = member[0] == 'c' ? row->config : member[0] == 'p' ? row->parameters : row->buffers;
    if (fb_map_value(c->graph, map, name).id) fb_buffer_pointer_token(&pointer, name, strlen(name)); /* or it is missing */
    const char *text = fb_buffer_text(&pointer);
    if (text) {
        fb_errors_add(c->errors, "config-contradicts-tensor", text, "Module \"%s\" (%s): %s.", fb_text(c->graph, row->path),
                      fb_text(c->graph, row->type), what);
    } else {
        c->errors->out_of_memory = true;
    }
    fb_buffer_free(&pointer);
}

/* ---- words of the rows ----------------------------------------------------------------------------------------------- */

/* The next word of a row, copied; false at the end. Rows are ours and short. */
static bool next_word(const char **list, char word[96]) {
    size_t size = (size_t)(strchrnul(*list, ' ') - *list);
    if (size == 0) return false;
    memcpy(word, *list, size);
    word[size] = '\0';
    *list += size + ((*list)[size] == ' ');
    return true;
}

/* Cuts a word at `mark`, whose first character is nowhere else in the rows, and gives what follows, or "". */
static const char *cut(char *word, const char *mark) {
    char *at = strchr(word, *mark);
    if (!at) return "";
    *at = '\0';
    return at + strlen(mark);
}

static bool is_number(const char *text) {
    return *text >= '0' && *text <= '9';
}

static int64_t to_number(const char *text) {
    int64_t number = 0;
    for (; is_number(text); text++) number = 10 * number + (*text - '0');
    return number;
}

/* The default of a config member in its row: "1", "true" … or "". */
static const char *default_of(const checker *c, const char *name, char word[96]) {
    const char *list = c->facts->config;
    while (next_word(&list, word)) {
        cut(word, ">=");
        const char *value = cut(word, ":");
        if (strcmp(word, name) == 0) return value;
    }
    return "";
}

/* ---- config ---------------------------------------------------------------------------------------------------------- */

static bool config_int(const checker *c, const char *name, int64_t *out) {
    char word[96];
    fb_value value = fb_module_config(c->graph, c->module, name);
    if (value.id) return fb_value_is_int(c->graph, value, out);
    const char *text = default_of(c, name, word);
    if (!is_number(text)) return false;
    *out = to_number(text);
    return true;
}

/* False when the flag is neither true nor false: reported already. */
static bool config_flag(const checker *c, const char *name, bool *out) {
    char word[96];
    fb_value value = fb_module_config(c->graph, c->module, name);
    fb_kind kind = value.id ? fb_value_kind(c->graph, value) : strcmp(default_of(c, name, word), "true") ? FB_FALSE : FB_TRUE;
    *out = kind == FB_TRUE;
    return kind == FB_TRUE || kind == FB_FALSE;
}

static bool is_sequence(const fb_graph *graph, fb_value value) {
    fb_kind kind = fb_value_kind(graph, value);
    return kind == FB_LIST || kind == FB_TUPLE || kind == FB_SIZE;
}

static void check_minimum(const checker *c, const char *name, fb_value value, bool has_minimum, int64_t minimum) {
    int64_t number;
    if (!fb_value_is_int(c->graph, value, &number)) {
        report(c, "config", name, "not an int");
    } else if (has_minimum && number < minimum) {
        char what[64];
        snprintf(what, sizeof what, "%lld is less than %lld", (long long)number, (long long)minimum);
        report(c, "config", name, what);
    }
}

static void check_config_member(const checker *c, char word[96]) {
    const char *minimum = cut(word, ">=");
    const char *fallback = cut(word, ":");
    size_t length = strlen(word);
    bool may_repeat = word[length - 1] == '#';
    if (may_repeat) word[length - 1] = '\0';
    fb_value value = fb_module_config(c->graph, c->module, word);
    if (!value.id) return;
    fb_kind kind = fb_value_kind(c->graph, value);
    bool is_flag = strcmp(fallback, "true") == 0 || strcmp(fallback, "false") == 0;
    if (kind == FB_OPAQUE || (may_repeat && kind == FB_STRING)) return;
    if (is_flag) {
        if (kind != FB_TRUE && kind != FB_FALSE) report(c, "config", word, "neither true nor false");
    } else if (may_repeat && is_sequence(c->graph, value)) {
        const fb_value_row *row = fb_value_at(c->graph, value);
        for (uint32_t i = 0; i < row->count; i++) check_minimum(c, word, row->items[i], *minimum, to_number(minimum));
    } else {
        check_minimum(c, word, value, *minimum, to_number(minimum));
    }
}

static void check_division(const checker *c, char word[96]) {
    const char *divisor_name = cut(word, "/");
    int64_t whole, divisor;
    if (!config_int(c, word, &whole) || !config_int(c, divisor_name, &divisor) || whole < 0 || divisor < 1) return;
    if (whole % divisor == 0) return;
    char what[128];
    snprintf(what, sizeof what, "%s %lld is not divisible by %s %lld", word, (long long)whole, divisor_name,
             (long long)divisor);
    report(c, "config", word, what);
}

/* ---- tensors --------------------------------------------------------------------------------------------------------- */

enum { MAX_RANK = 16, ANY_SIZE = -1 };

typedef struct expected_shape {
    int rank;
    int64_t sizes[MAX_RANK]; /* ANY_SIZE = not known */
} expected_shape;

static int64_t term(const checker *c, const char *text) {
    int64_t number;
    if (is_number(text)) return to_number(text);
    return config_int(c, text, &number) && number >= 0 ? number : ANY_SIZE;
}

static int64_t size_of(const checker *c, char *text) {
    char *at = strpbrk(text, "/*");
    if (!at) return term(c, text);
    char operation = *at;
    *at = '\0';
    int64_t a = term(c, text), b = term(c, at + 1), product;
    if (a == ANY_SIZE || b == ANY_SIZE) return ANY_SIZE;
    if (operation == '*') return __builtin_mul_overflow(a, b, &product) ? ANY_SIZE : product;
    return b > 0 && a % b == 0 ? a / b : ANY_SIZE;
}

/* `name#2` or `name#`: sizes from an int or a sequence. False when their number is not known. */
static bool append_sequence(const checker *c, const char *name, const char *count_text, expected_shape *shape) {
    fb_value value = fb_module_config(c->graph, c->module, name);
    bool has_items = value.id && is_sequence(c->graph, value);
    int count = *count_text ? (int)to_number(count_text) : 1;
    if (!*count_text) {
        if (!value.id || fb_value_kind(c->graph, value) == FB_OPAQUE) return false;
        if (has_items) count = (int)fb_value_at(c->graph, value)->count;
    }
    bool fits = !has_items || fb_value_at(c->graph, value)->count == (uint32_t)count;
    for (int i = 0; i < count; i++) {
        int64_t number = ANY_SIZE;
        if (shape->rank == MAX_RANK) return false;
        fb_value item = has_items ? fb_value_item(c->graph, value, (size_t)i) : value;
        if (fits && item.id && (!fb_value_is_int(c->graph, item, &number) || number < 0)) number = ANY_SIZE;
        shape->sizes[shape->rank++] = number;
    }
    return true;
}

static bool expect_shape(const checker *c, const char *text, expected_shape *shape) {
    shape->rank = 0;
    while (*text) {
        char one[96];
        size_t length = strcspn(text, ",");
        memcpy(one, text, length);
        one[length] = '\0';
        text += length + (text[length] == ',');
        char *count = strchr(one, '#');
        if (count) {
            *count = '\0';
            if (!append_sequence(c, one, count + 1, shape)) return false;
        } else {
            shape->sizes[shape->rank++] = size_of(c, one);
        }
    }
    return true;
}

static bool fits_shape(const fb_graph *graph, fb_value actual, const expected_shape *expected) {
    if (fb_shape_rank(graph, actual) != expected->rank) return false;
    for (int i = 0; i < expected->rank; i++) {
        if (expected->sizes[i] != ANY_SIZE && expected->sizes[i] != fb_shape_size(graph, actual, i)) return false;
    }
    return true;
}

static void write_shape(fb_buffer *out, const fb_graph *graph, fb_value actual, const expected_shape *expected) {
    fb_buffer_string(out, "the config gives the shape [");
    for (int i = 0; i < expected->rank; i++) {
        if (i) fb_buffer_string(out, ", ");
        if (expected->sizes[i] == ANY_SIZE) fb_buffer_char(out, '?');
        else fb_buffer_int(out, expected->sizes[i]);
    }
    fb_buffer_string(out, "], the tensor has [");
    for (int i = 0; i < fb_shape_rank(graph, actual) && i < MAX_RANK; i++) {
        if (i) fb_buffer_string(out, ", ");
        fb_buffer_int(out, fb_shape_size(graph, actual, i));
    }
    fb_buffer_char(out, ']');
}

/* Where a tensor is, or would be. */
static const char *member_of(const checker *c, const char *name) {
    const fb_module_row *row = fb_module_at(c->graph, c->module);
    bool is_buffer = !fb_map_value(c->graph, row->parameters, name).id && fb_map_value(c->graph, row->buffers, name).id;
    return is_buffer ? "buffers" : "parameters";
}

static void check_shape(const checker *c, const char *name, fb_tensor tensor, const char *text) {
    expected_shape expected;
    fb_value actual = fb_tensor_at(c->graph, tensor)->shape;
    if (!expect_shape(c, text, &expected) || fits_shape(c->graph, actual, &expected)) return;
    fb_buffer what = {0};
    write_shape(&what, c->graph, actual, &expected);
    const char *sentence = fb_buffer_text(&what);
    if (sentence) report(c, member_of(c, name), name, sentence);
    else c->errors->out_of_memory = true;
    fb_buffer_free(&what);
}

/* torch.nn.utils (weight_norm, spectral_norm, prune) keep `weight` as weight_g and weight_v, weight_orig … */
static bool is_reparametrised(const checker *c, const char *name) {
    const fb_module_row *row = fb_module_at(c->graph, c->module);
    const fb_value maps[] = {row->parameters, row->buffers};
    size_t length = strlen(name);
    for (int i = 0; i < 2; i++) {
        const fb_value_row *map = fb_value_at(c->graph, maps[i]);
        for (uint32_t k = 0; k < map->count; k += 2) {
            const char *other = fb_value_text(c->graph, map->items[k]);
            if (strncmp(other, name, length) == 0 && other[length] == '_') return true;
        }
    }
    return false;
}

/* All flags of "affine&bias"; false in *is_known when one of them is not a flag. */
static bool flags_are_set(const checker *c, const char *flags, bool *is_known) {
    bool all = true;
    *is_known = true;
    while (*flags) {
        char flag[96];
        size_t length = strcspn(flags, "&");
        memcpy(flag, flags, length);
        flag[length] = '\0';
        flags += length + (flags[length] == '&');
        bool is_set = false;
        if (!config_flag(c, flag, &is_set)) *is_known = false;
        all &= is_set;
    }
    return all;
}

static void check_tensor(const checker *c, char word[96]) {
    const char *shape = cut(word, "=");
    size_t length = strlen(word);
    bool may_be_null = word[length - 1] == '~';
    if (may_be_null) word[length - 1] = '\0';
    char *flags = strchr(word, '?');
    if (flags) *flags++ = '\0';
    fb_tensor tensor = fb_module_tensor(c->graph, c->module, word);
    bool is_known = true, is_expected = flags ? flags_are_set(c, flags, &is_known) : true;
    if (!tensor.id) {
        if (is_expected && is_known && !may_be_null && !is_reparametrised(c, word)) {
            report(c, member_of(c, word), word, "the config says that there is one, but it is null or missing");
        }
    } else if (!is_expected && is_known) {
        report(c, member_of(c, word), word, "the config says that there is none");
    } else {
        check_shape(c, word, tensor, shape);
    }
}

/* ---- all together ---------------------------------------------------------------------------------------------------- */

void fb_module_check(const fb_graph *graph, fb_module module, size_t position, fb_errors *errors) {
    const module_facts *facts = &table[fb_module_op(graph, module)];
    if (!facts->config) return;
    checker c = {graph, module, facts, errors, position};
    char word[96];
    for (const char *list = facts->config; next_word(&list, word);) check_config_member(&c, word);
    for (const char *list = facts->divisions; next_word(&list, word);) check_division(&c, word);
    for (const char *list = facts->tensors; next_word(&list, word);) check_tensor(&c, word);
}

static bool has_tensor_named(const module_facts *facts, const char *name) {
    size_t length = strlen(name);
    for (const char *at = facts->tensors; *at; at = strchrnul(at, ' '), at += *at == ' ')
        if (strncmp(at, name, length) == 0 && strcspn(at, "?~=") == length) return true;
    return false;
}

bool fb_module_is_reparametrised(const fb_graph *graph, fb_module module) {
    const module_facts *facts = &table[fb_module_op(graph, module)];
    if (!facts->config) return false;
    const fb_module_row *row = fb_module_at(graph, module);
    const fb_value maps[] = {row->parameters, row->buffers};
    for (int i = 0; i < 2; i++) {
        const fb_value_row *map = fb_value_at(graph, maps[i]);
        for (uint32_t k = 0; k < map->count; k += 2) {
            if (!has_tensor_named(facts, fb_value_text(graph, map->items[k]))) return true;
        }
    }
    return false;
}

bool fb_module_is_linear_like(const fb_graph *graph, fb_module module) {
    static const char word[] = "Linear";
    const size_t size = sizeof word - 1;
    if (fb_module_op(graph, module) != FB_OP_UNKNOWN) return false;
    const char *type = fb_text(graph, fb_module_at(graph, module)->type);
    const char *dot = strrchr(type, '.');
    const char *last = dot ? dot + 1 : type;
    size_t length = strlen(last);
    return length >= size && (memcmp(last, word, size) == 0 || memcmp(last + length - size, word, size) == 0);
}

bool fb_module_is_linear_subclass(const fb_graph *graph, fb_module module) {
    fb_tensor weight = fb_module_tensor(graph, module, "weight");
    fb_value shape = weight.id ? fb_tensor_at(graph, weight)->shape : (fb_value){0};
    int64_t in_features, out_features;
    return weight.id && fb_shape_rank(graph, shape) == 2 && fb_module_is_linear_like(graph, module) &&
           fb_config_int(graph, module, "in_features", -1, &in_features) &&
           fb_config_int(graph, module, "out_features", -1, &out_features) && fb_shape_size(graph, shape, 0) == out_features &&
           fb_shape_size(graph, shape, 1) == in_features;
}

bool fb_config_int(const fb_graph *graph, fb_module module, const char *key, int64_t fallback, int64_t *out) {
    fb_value value = fb_module_config(graph, module, key);
    int64_t number = fallback;
    if (value.id && !fb_value_is_int(graph, value, &number)) return false;
    *out = number;
    return true;
}
