/* Reading a layout from its document. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"
#include "core/json/json.h"
#include "core/layouts/internal.h"
#include "core/rules/rule.h"
#include "core/weights/recipe.h"

enum { MAX_PATTERN = 300, MAX_NESTING = 16, ENDING_MAX = 40 };

#define MOST (1LL << 53) /* of a parameter: whole numbers up to here are exact in JSON */

typedef struct reader {
    fb_layout *layout;
    fb_layout_row *row; /* that is being read */
    const char *variables[EACH_MAX];
    size_t variable_count;
    bool is_read[SOURCES_MAX]; /* by a recipe of the row */
    fb_buffer pointer;
    size_t start; /* of the pointer */
    fb_error *error;
} reader;

__attribute__((format(printf, 3, 4))) static fb_status fail(reader *r, const char *code, const char *format, ...) {
    const char *pointer = fb_buffer_text(&r->pointer);
    if (!pointer) return fb_fail_memory(r->error);
    char message[600];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return fb_fail(r->error, FB_INVALID, code, pointer, "%s", message);
}

static void *allocate(reader *r, size_t size) {
    void *memory = fb_arena_alloc(&r->layout->arena, size ? size : 1);
    if (memory) memset(memory, 0, size);
    else fb_fail_memory(r->error);
    return memory;
}

/* `known`: the members with spaces between. */
static fb_status check_members(reader *r, const json_t *json, const char *known) {
    if (!json_is_object(json)) return fail(r, "wrong-type", "an object with %s is expected here", known);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, name, value) {
        size_t length = strlen(name);
        const char *at = length ? strstr(known, name) : NULL;
        while (at && !((at == known || at[-1] == ' ') && (!at[length] || at[length] == ' '))) at = strstr(at + 1, name);
        if (at) continue;
        fb_pointer_enter(&r->pointer, name);
        return fail(r, "unknown-member", "not one of: %s", known);
    }
    return FB_OK;
}

typedef fb_status read_member(reader *r, const char *name, const json_t *value);

static fb_status read_each(reader *r, const json_t *json, read_member *read) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, name, value) {
        size_t mark = fb_pointer_enter(&r->pointer, name);
        fb_status status = read(r, name, value);
        if (status) return status;
        r->pointer.size = mark;
    }
    return FB_OK;
}

static bool is_identifier(const char *text) {
    size_t length = 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_') length++;
    return length > 0 && length <= 40 && !text[length] && !isdigit((unsigned char)*text);
}

/* ---- expressions -------------------------------------------------------------------------------------------------------- */

static int find_source(const fb_layout_row *row, const char *name, size_t length) {
    for (size_t i = 0; row && i < row->source_count; i++) {
        if (strlen(row->sources[i].name) == length && memcmp(row->sources[i].name, name, length) == 0) return (int)i;
    }
    return -1;
}

static bool is_called(const char *text, const char *name, size_t length) {
    return strlen(text) == length && memcmp(text, name, length) == 0;
}

static bool is_known(const void *context, const char *name, size_t length, int axis, int64_t *out) {
    const reader *r = context;
    *out = 1;
    if (axis >= 0) return find_source(r->row, name, length) >= 0;
    for (size_t i = 0; i < r->variable_count; i++) {
        if (is_called(r->variables[i], name, length)) return true;
    }
    for (size_t i = 0; i < r->layout->parameter_count; i++) {
        if (is_called(r->layout->parameters[i].name, name, length)) return true;
    }
    return false;
}

static fb_status check_number(reader *r, const json_t *json) {
    fb_layout_names names = {.find = is_known, .context = r, .is_check = true};
    int64_t ignored;
    fb_error met = {0};
    return fb_layout_number(json, &names, &ignored, &met) ? fail(r, met.code, "%s", met.message) : FB_OK;
}

/* {"e": "experts"}; of a concat also {"e": ["experts / 2", "experts"]}, which counts from the first to before the second. */
static fb_status read_count(reader *r, const json_t *json, bool may_be_range, fb_layout_count *out) {
    *out = (fb_layout_count){0};
    if (!json) return FB_OK;
    size_t mark = fb_pointer_enter(&r->pointer, "each");
    void *first = json_is_object(json) && json_object_size(json) == 1 ? json_object_iter((json_t *)(uintptr_t)json) : NULL;
    if (!first) return fail(r, "wrong-type", "one variable and how far it counts is expected here: {\"e\": \"experts\"}");
    const char *variable = json_object_iter_key(first);
    const json_t *count = json_object_iter_value(first);
    int64_t ignored;
    if (!is_identifier(variable) || is_known(r, variable, strlen(variable), -1, &ignored))
        return fail(r, "bad-name", "\"%.40s\" cannot be a variable here, or is one already", variable);
    size_t inner = fb_pointer_enter(&r->pointer, variable);
    bool is_range = may_be_range && json_is_array(count) && json_array_size(count) == 2;
    if (!json_is_string(count) && !is_range) return fail(r, "wrong-type", "an expression is expected here, as a string");
    fb_status status = check_number(r, is_range ? json_array_get(count, 0) : count);
    if (!status && is_range) status = check_number(r, json_array_get(count, 1));
    if (status) return status;
    r->pointer.size = inner;
    r->pointer.size = mark;
    *out = (fb_layout_count){.variable = variable, .count = json_string_value(count)};
    return FB_OK;
}

static fb_status begin_variable(reader *r, const char *variable) {
    if (r->variable_count == EACH_MAX) return fail(r, "layout-too-large", "at most %d variables count at once", EACH_MAX);
    r->variables[r->variable_count++] = variable;
    return FB_OK;
}

/* ---- names -------------------------------------------------------------------------------------------------------------- */

/* The index of a capture of the row; `adds` adds one. -1 = unknown, or too many. */
static int find_capture(fb_layout_row *row, const char *name, size_t length, fb_arena *arena, bool adds) {
    for (size_t i = 0; i < row->capture_count; i++) {
        if (is_called(row->captures[i], name, length)) return (int)i;
    }
    if (!adds || row->capture_count == CAPTURES_MAX) return -1;
    const char *copy = fb_arena_text(arena, name, length);
    if (!copy) return -1;
    row->captures[row->capture_count] = copy;
    return (int)row->capture_count++;
}

static fb_status read_capture(reader *r, const char **at, const char *each, bool adds, fb_layout_part *out) {
    const char *name = *at + 1;
    bool is_deep = *name == '*';
    name += is_deep;
    size_t length = strcspn(name, "}");
    if (!name[length] || !length) return fail(r, "bad-pattern", "a capture is a name in braces: {i}, {*block}");
    *at = name + length + 1;
    *out = (fb_layout_part){.capture = EACH, .is_deep = is_deep};
    if (each && !is_deep && is_called(each, name, length)) return FB_OK;
    out->capture = find_capture(r->row, name, length, &r->layout->arena, adds);
    if (out->capture >= 0) return FB_OK;
    if (adds) return fail(r, "layout-too-large", "a row has at most %d captures", CAPTURES_MAX);
    return fail(r, "unbound-capture", "no name under \"from\" captures {%.*s}", (int)length, name);
}

/* A name fits a pattern in one way at most: between two captures is a dot, only one is deep, and that ends with its dot. */
static const char *ambiguity(const fb_layout_part *parts, size_t count) {
    bool was_capture = false, was_deep = false;
    for (size_t i = 0; i < count; i++) {
        if (parts[i].literal) {
            if (memchr(parts[i].literal, '.', parts[i].length)) was_capture = false;
            continue;
        }
        if (was_capture) return "between two captures stands a dot";
        if (parts[i].is_deep && was_deep) return "a name has at most one capture with a star";
        if (parts[i].is_deep && i > 0 && parts[i - 1].literal[parts[i - 1].length - 1] != '.')
            return "a capture with a star begins the name or follows a dot";
        was_deep |= parts[i].is_deep;
        was_capture = !parts[i].is_deep;
    }
    return NULL;
}

static fb_status read_pattern(reader *r, const char *text, const char *each, bool adds, fb_layout_pattern *out) {
    fb_layout_part parts[2 * CAPTURES_MAX + 3];
    size_t count = 0;
    bool seen[CAPTURES_MAX + 1] = {false};
    if (!*text || strlen(text) > MAX_PATTERN) return fail(r, "bad-pattern", "a name has 1 to %d characters", MAX_PATTERN);
    for (const char *at = text; *at;) {
        if (count == sizeof parts / sizeof *parts) return fail(r, "bad-pattern", "this has too many captures");
        fb_layout_part *part = &parts[count++];
        size_t length = strcspn(at, "{}");
        *part = (fb_layout_part){.literal = at, .length = length};
        at += length;
        if (length) continue;
        if (*at == '}') return fail(r, "bad-pattern", "a brace that nothing opened");
        fb_status status = read_capture(r, &at, each, adds, part);
        if (status) return status;
        if (seen[part->capture]) return fail(r, "bad-pattern", "a name has each capture once");
        seen[part->capture] = true;
    }
    const char *what = ambiguity(parts, count);
    if (what) return fail(r, "bad-pattern", "%s", what);
    if (each && !seen[EACH]) return fail(r, "bad-pattern", "a name that is counted by %s has {%s}", each, each);
    fb_layout_part *kept = allocate(r, count * sizeof *kept);
    if (!kept) return FB_NO_MEMORY;
    memcpy(kept, parts, count * sizeof *kept);
    *out = (fb_layout_pattern){.text = text, .parts = kept, .count = count};
    return FB_OK;
}

static bool has_all_captures(const fb_layout_pattern *pattern, size_t count) {
    size_t seen = 0;
    for (size_t i = 0; i < pattern->count; i++) seen += !pattern->parts[i].literal && pattern->parts[i].capture != EACH;
    return seen == count;
}

/* ---- sources ------------------------------------------------------------------------------------------------------------ */

static fb_status read_shape(reader *r, const json_t *shape, const char *member) {
    if (!shape) return FB_OK;
    size_t mark = fb_pointer_enter(&r->pointer, member), index;
    if (!json_is_array(shape) || json_array_size(shape) > FB_RECIPE_MAX_RANK)
        return fail(r, "wrong-type", "a list of sizes is expected here, null for any size");
    json_t *size;
    json_array_foreach((json_t *)(uintptr_t)shape, index, size) {
        size_t item = fb_pointer_enter_item(&r->pointer, index);
        fb_status status = json_is_null(size) ? FB_OK : check_number(r, size);
        if (status) return status;
        r->pointer.size = item;
    }
    r->pointer.size = mark;
    return FB_OK;
}

static fb_status read_source(reader *r, const char *name, const json_t *json) {
    fb_layout_row *row = r->row;
    int64_t ignored;
    if (!is_identifier(name) || is_known(r, name, strlen(name), -1, &ignored))
        return fail(r, "bad-name", "a tensor's name in recipes is a word that no parameter has");
    if (row->source_count == SOURCES_MAX) return fail(r, "layout-too-large", "a row reads at most %d names", SOURCES_MAX);
    fb_layout_source source = {.name = name};
    const json_t *text = json;
    fb_status status = FB_OK;
    if (!json_is_string(json)) {
        status = check_members(r, json, "name each shape absent");
        text = json_object_get(json, "name");
        if (!status && !json_is_string(text)) status = fail(r, "missing-member", "a tensor to read needs a name");
        if (!status) status = read_count(r, json_object_get(json, "each"), false, &source.each);
        source.shape = json_object_get(json, "shape");
        source.absent = json_object_get(json, "absent");
    }
    if (!status)
        status = read_pattern(r, json_string_value(text), source.each.variable, row->source_count == 0, &source.pattern);
    if (!status && !has_all_captures(&source.pattern, row->capture_count))
        status = fail(r, "bad-pattern", "the names under \"from\" all have the same captures");
    if (status) return status;
    row->sources[row->source_count++] = source;
    return FB_OK;
}

/* The sizes of one may be given by any other's. */
static fb_status read_shapes(reader *r) {
    for (size_t i = 0; i < r->row->source_count; i++) {
        const fb_layout_source *source = &r->row->sources[i];
        size_t mark = fb_pointer_enter(&r->pointer, source->name);
        fb_status status = read_shape(r, source->shape, "shape");
        if (!status) status = read_shape(r, source->absent, "absent");
        if (status) return status;
        r->pointer.size = mark;
    }
    return FB_OK;
}

static fb_status read_sources(reader *r, const json_t *json) {
    size_t mark = fb_pointer_enter(&r->pointer, "from");
    if (!json_is_object(json) || !json_object_size(json))
        return fail(r, json ? "wrong-type" : "missing-member", "the tensors that the row reads are expected here, by name");
    fb_status status = read_each(r, json, read_source);
    if (!status) status = read_shapes(r);
    r->pointer.size = mark;
    return status;
}

/* ---- recipes ------------------------------------------------------------------------------------------------------------ */

static fb_status check_recipe(reader *r, const json_t *json, int depth);

static fb_status check_list(reader *r, const json_t *json, const char *member,
                            fb_status (*check)(reader *, const json_t *, int), int depth) {
    const json_t *list = json_object_get(json, member);
    size_t mark = fb_pointer_enter(&r->pointer, member), index;
    json_t *item;
    if (!json_is_array(list)) return fail(r, list ? "wrong-type" : "missing-member", "a list is expected here");
    json_array_foreach((json_t *)(uintptr_t)list, index, item) {
        size_t place = fb_pointer_enter_item(&r->pointer, index);
        fb_status status = check(r, item, depth);
        if (status) return status;
        r->pointer.size = place;
    }
    r->pointer.size = mark;
    return FB_OK;
}

static fb_status check_size(reader *r, const json_t *json, int depth) {
    (void)depth;
    return json_is_integer(json) && json_integer_value(json) == -1 ? FB_OK : check_number(r, json);
}

static fb_status check_int(reader *r, const json_t *json, const char *member) {
    size_t mark = fb_pointer_enter(&r->pointer, member);
    const json_t *value = json_object_get(json, member);
    fb_status status = value ? check_number(r, value) : fail(r, "missing-member", "a number is expected here");
    if (!status) r->pointer.size = mark;
    return status;
}

static fb_status check_operation(reader *r, const json_t *json, const char *op, int depth) {
    static const char *const members[FB_RECIPE_OP_COUNT] = {[FB_RECIPE_CONCAT] = "op args axis each",
                                                            [FB_RECIPE_SLICE] = "op args axis start stop",
                                                            [FB_RECIPE_RESHAPE] = "op args shape",
                                                            [FB_RECIPE_PERMUTE] = "op args dims",
                                                            [FB_RECIPE_FULL] = "op args shape value"};
    fb_recipe_op found = fb_recipe_op_find(op);
    if (!members[found])
        return fail(r, "bad-recipe", "a layout moves numbers: op is concat, slice, reshape, permute or full, not \"%.40s\"",
                    op);
    fb_status status = check_members(r, json, members[found]);
    size_t variables = r->variable_count;
    fb_layout_count each = {0};
    if (!status && found == FB_RECIPE_CONCAT) status = read_count(r, json_object_get(json, "each"), true, &each);
    if (!status && each.variable) status = begin_variable(r, each.variable);
    if (!status && found != FB_RECIPE_FULL) status = check_list(r, json, "args", check_recipe, depth + 1);
    r->variable_count = variables;
    if (status) return status;
    size_t count = json_array_size(json_object_get(json, "args"));
    if (found == FB_RECIPE_CONCAT ? !count : count != (found != FB_RECIPE_FULL))
        return fail(r, "bad-recipe", "%s takes %s", op, found == FB_RECIPE_CONCAT ? "one part or more" : "one argument");
    switch (found) {
    case FB_RECIPE_CONCAT: return check_int(r, json, "axis");
    case FB_RECIPE_SLICE:
        status = check_int(r, json, "axis");
        if (!status) status = check_int(r, json, "start");
        return status ? status : check_int(r, json, "stop");
    case FB_RECIPE_PERMUTE: return check_list(r, json, "dims", check_size, depth);
    case FB_RECIPE_FULL:
        if (!json_is_number(json_object_get(json, "value"))) return fail(r, "missing-member", "full has a \"value\", a number");
        return check_list(r, json, "shape", check_size, depth);
    default: return check_list(r, json, "shape", check_size, depth);
    }
}

static bool is_counted(const reader *r, const char *variable) {
    for (size_t i = 0; i < r->variable_count; i++) {
        if (strcmp(r->variables[i], variable) == 0) return true;
    }
    return false;
}

static fb_status check_recipe(reader *r, const json_t *json, int depth) {
    if (depth > MAX_NESTING) return fail(r, "nesting-too-deep", "recipes are nested too deeply");
    if (json_is_string(json)) {
        const char *name = json_string_value(json);
        int source = find_source(r->row, name, strlen(name));
        if (source < 0) return fail(r, "unknown-tensor", "no name under \"from\" is called \"%.40s\"", name);
        const char *variable = r->row->sources[source].each.variable;
        if (variable && !is_counted(r, variable))
            return fail(r, "bad-recipe",
                        "\"%.40s\" is many tensors, of which %s counts one: read it in a concat with \"each\": {\"%s\": …}",
                        name, variable, variable);
        r->is_read[source] = true;
        return FB_OK;
    }
    const char *op = json_string_value(json_object_get(json, "op"));
    if (!op) return fail(r, "wrong-type", "a tensor's name or an operation with \"op\" is expected here");
    return check_operation(r, json, op, depth);
}

static fb_status read_target(reader *r, const char *name, const json_t *json) {
    fb_layout_row *row = r->row;
    if (row->target_count == TARGETS_MAX) return fail(r, "layout-too-large", "a row makes at most %d names", TARGETS_MAX);
    fb_layout_target target = {.recipe = json};
    fb_status status = FB_OK;
    size_t mark = r->pointer.size;
    bool is_counted_target = json_object_get(json, "recipe") != NULL;
    if (is_counted_target) {
        status = check_members(r, json, "recipe each");
        if (!status) status = read_count(r, json_object_get(json, "each"), false, &target.each);
        target.recipe = json_object_get(json, "recipe");
        if (!status && target.each.variable) status = begin_variable(r, target.each.variable);
    }
    if (!status) status = read_pattern(r, name, target.each.variable, false, &target.pattern);
    if (is_counted_target) fb_pointer_enter(&r->pointer, "recipe");
    if (!status) status = check_recipe(r, target.recipe, 0);
    if (status) return status;
    r->pointer.size = mark;
    r->variable_count = 0;
    row->targets[row->target_count++] = target;
    return FB_OK;
}

static fb_status read_targets(reader *r, const json_t *json) {
    size_t mark = fb_pointer_enter(&r->pointer, "to");
    if (!json_is_object(json) || !json_object_size(json))
        return fail(r, json ? "wrong-type" : "missing-member", "what becomes of them is expected here, by name");
    fb_status status = read_each(r, json, read_target);
    if (status) return status;
    for (size_t i = 0; i < r->row->source_count; i++) {
        if (!r->is_read[i])
            return fail(r, "unread-tensor", "no recipe reads \"%s\": a layout keeps every number", r->row->sources[i].name);
    }
    r->pointer.size = mark;
    return FB_OK;
}

/* ---- rows and parameters ------------------------------------------------------------------------------------------------ */

static fb_status read_stays(reader *r, const json_t *json) {
    fb_layout_row *row = r->row;
    if (!json) return FB_OK;
    size_t mark = fb_pointer_enter(&r->pointer, "stays");
    if (!json_is_array(json)) return fail(r, "wrong-type", "a list of names is expected here");
    row->stays = allocate(r, json_array_size(json) * sizeof *row->stays);
    if (!row->stays) return FB_NO_MEMORY;
    size_t index;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)json, index, item) {
        size_t place = fb_pointer_enter_item(&r->pointer, index);
        if (!json_is_string(item)) return fail(r, "wrong-type", "a name is expected here");
        fb_status status = read_pattern(r, json_string_value(item), NULL, false, &row->stays[index]);
        if (status) return status;
        r->pointer.size = place;
    }
    row->stay_count = json_array_size(json);
    r->pointer.size = mark;
    return FB_OK;
}

#define WEIGHT ".weight"

static bool is_of_weight(const fb_layout_pattern *pattern) {
    size_t length = strlen(pattern->text);
    return length > strlen(WEIGHT) && length <= MAX_PATTERN - ENDING_MAX &&
           strcmp(pattern->text + length - strlen(WEIGHT), WEIGHT) == 0;
}

/* Names of what belongs to the weights follow from theirs. */
static fb_status check_linear(reader *r, const fb_layout_row *row) {
    bool fits =
        2 * row->source_count <= SOURCES_MAX && 2 * row->target_count <= TARGETS_MAX && row->capture_count < CAPTURES_MAX;
    for (size_t i = 0; i < row->source_count; i++)
        fits &= is_of_weight(&row->sources[i].pattern) && !row->sources[i].each.variable;
    for (size_t i = 0; i < row->target_count; i++) fits &= is_of_weight(&row->targets[i].pattern);
    for (size_t i = 0; i < row->capture_count; i++) fits &= strcmp(row->captures[i], "adapter") != 0;
    if (!row->is_linear || fits) return FB_OK;
    fb_pointer_enter(&r->pointer, "linear");
    return fail(r, "bad-value",
                "a linear row reads and makes at most %d names that end in " WEIGHT
                ", not counted, without a capture {adapter}",
                SOURCES_MAX / 2);
}

static fb_status read_flag(reader *r, const json_t *json, const char *member, bool *out) {
    const json_t *flag = json_object_get(json, member);
    *out = json_is_true(flag);
    if (!flag || json_is_boolean(flag)) return FB_OK;
    fb_pointer_enter(&r->pointer, member);
    return fail(r, "wrong-type", "true or false is expected here");
}

static fb_status read_row(reader *r, const json_t *json, fb_layout_row *row) {
    r->row = row;
    r->variable_count = 0;
    memset(r->is_read, 0, sizeof r->is_read);
    fb_status status = check_members(r, json, "from to linear optional stays description");
    if (!status) status = read_sources(r, json_object_get(json, "from"));
    if (!status) status = read_targets(r, json_object_get(json, "to"));
    if (!status) status = read_stays(r, json_object_get(json, "stays"));
    if (!status) status = read_flag(r, json, "optional", &row->is_optional);
    if (!status) status = read_flag(r, json, "linear", &row->is_linear);
    return status ? status : check_linear(r, row);
}

/* ---- what belongs to weights -------------------------------------------------------------------------------------------- */

/* Beside a weight, by what follows the module's name: what PEFT calls adapters and DoRA's magnitudes, in a file of their own
 * and in a model, what diffusers calls adapters, A and B, and what compressed-tensors, FP8 and NVFP4 checkpoints call the
 * scales of a weight. */
static const struct belonging {
    fb_belonging kind;
    const char *endings[2];
} adapters[] = {
    {FB_ADAPTERS, {".lora_A.weight", ".lora_B.weight"}},
    {FB_ADAPTERS, {".lora_A.{adapter}.weight", ".lora_B.{adapter}.weight"}},
    {FB_ADAPTERS, {".lora.down.weight", ".lora.up.weight"}},
    {FB_MAGNITUDES, {".lora_magnitude_vector"}},
    {FB_MAGNITUDES, {".lora_magnitude_vector.{adapter}.weight"}},
    {FB_SCALES, {".weight_scale"}},
    {FB_SCALES, {".weight_scale_inv"}},
    {FB_SCALES, {".weight_zero_point"}},
    {FB_SCALES, {".weight_scale_2"}},
    {FB_SCALES, {".input_scale"}},
};
enum { ADAPTERS = sizeof adapters / sizeof *adapters };

/* The name of a weight with another ending. */
static fb_status derive_pattern(reader *r, const fb_layout_pattern *weight, const char *ending, const char *each,
                                fb_layout_pattern *out) {
    fb_buffer text = {0};
    fb_buffer_append(&text, weight->text, strlen(weight->text) - strlen(WEIGHT));
    fb_buffer_string(&text, ending);
    const char *kept = text.failed ? NULL : fb_arena_text(&r->layout->arena, text.data, text.size);
    fb_buffer_free(&text);
    return kept ? read_pattern(r, kept, each, true, out) : fb_fail_memory(r->error);
}

static fb_status derive_row(reader *r, const fb_layout_row *of, const struct belonging *what, fb_layout_row *row) {
    size_t endings = what->endings[1] ? 2 : 1;
    *row = *of;
    row->belonging = what->kind;
    row->of = of;
    row->source_count = endings * of->source_count;
    row->target_count = endings * of->target_count;
    r->row = row;
    fb_status status = FB_OK;
    for (size_t i = 0; i < row->source_count && !status; i++) {
        row->sources[i] = of->sources[i % of->source_count];
        status = derive_pattern(r, &of->sources[i % of->source_count].pattern, what->endings[i / of->source_count], NULL,
                                &row->sources[i].pattern);
    }
    for (size_t i = 0; i < row->target_count && !status; i++) {
        row->targets[i] = of->targets[i / endings];
        status = derive_pattern(r, &of->targets[i / endings].pattern, what->endings[i % endings],
                                of->targets[i / endings].each.variable, &row->targets[i].pattern);
    }
    return status;
}

static fb_status derive_rows(reader *r) {
    fb_layout *layout = r->layout;
    layout->all_count = layout->row_count;
    for (size_t i = 0; i < layout->row_count; i++) {
        for (size_t k = 0; k < ADAPTERS && layout->rows[i].is_linear; k++) {
            fb_status status = derive_row(r, &layout->rows[i], &adapters[k], &layout->rows[layout->all_count++]);
            if (status) return status;
        }
    }
    return FB_OK;
}

static fb_status read_rows(reader *r, const json_t *json) {
    size_t mark = fb_pointer_enter(&r->pointer, "rows"), index;
    if (!json_is_array(json) || !json_array_size(json))
        return fail(r, json ? "wrong-type" : "missing-member", "a list of rows is expected here");
    if (json_array_size(json) > FB_LAYOUT_ROWS_MAX)
        return fail(r, "layout-too-large", "a layout has at most %d rows", FB_LAYOUT_ROWS_MAX);
    json_t *row;
    size_t count = json_array_size(json);
    json_array_foreach((json_t *)(uintptr_t)json, index, row) {
        if (json_is_true(json_object_get(row, "linear"))) count += ADAPTERS;
    }
    r->layout->rows = allocate(r, count * sizeof *r->layout->rows);
    if (!r->layout->rows) return FB_NO_MEMORY;
    json_array_foreach((json_t *)(uintptr_t)json, index, row) {
        size_t item = fb_pointer_enter_item(&r->pointer, index);
        fb_status status = read_row(r, row, &r->layout->rows[index]);
        if (status) return status;
        r->pointer.size = item;
        r->layout->row_count++;
    }
    r->pointer.size = mark;
    return derive_rows(r);
}

static fb_status read_parameter(reader *r, const char *name, const json_t *json) {
    fb_layout *layout = r->layout;
    int64_t ignored;
    if (!is_identifier(name) || is_known(r, name, strlen(name), -1, &ignored))
        return fail(r, "bad-name", "a parameter's name is a word of letters, digits and _, of at most 40");
    if (layout->parameter_count == FB_LAYOUT_PARAMETERS_MAX)
        return fail(r, "layout-too-large", "a layout has at most %d parameters", FB_LAYOUT_PARAMETERS_MAX);
    fb_status status = check_members(r, json, "description minimum default config");
    if (status) return status;
    fb_layout_parameter parameter = {.name = name, .minimum = 1, .fallback = json_object_get(json, "default")};
    const json_t *minimum = json_object_get(json, "minimum"), *config = json_object_get(json, "config");
    if (minimum) {
        size_t mark = fb_pointer_enter(&r->pointer, "minimum");
        if (!json_is_integer(minimum)) return fail(r, "wrong-type", "a whole number is expected here");
        parameter.minimum = json_integer_value(minimum);
        r->pointer.size = mark;
    }
    size_t index;
    json_t *item;
    if (config && !json_is_array(config)) {
        fb_pointer_enter(&r->pointer, "config");
        return fail(r, "wrong-type",
                    "a list of expressions over a config.json is expected here; the first that can be computed is taken");
    }
    json_array_foreach((json_t *)(uintptr_t)config, index, item) {
        if (json_is_string(item)) continue;
        fb_pointer_enter(&r->pointer, "config");
        fb_pointer_enter_item(&r->pointer, index);
        return fail(r, "wrong-type", "an expression is expected here, as a string");
    }
    parameter.config = config;
    layout->parameters[layout->parameter_count++] = parameter;
    return FB_OK;
}

/* The JSON Schema of the parameters. */
static fb_status write_schema(reader *r) {
    const fb_layout *layout = r->layout;
    fb_buffer text = {0}, required = {0};
    fb_buffer_string(&text, "{\"additionalProperties\":false,\"properties\":{");
    for (size_t i = 0; i < layout->parameter_count; i++) {
        const fb_layout_parameter *parameter = &layout->parameters[i];
        fb_buffer_printf(&text, "%s\"%s\":{\"maximum\":%lld,\"minimum\":%lld,\"type\":\"integer\"}", i ? "," : "",
                         parameter->name, MOST, (long long)parameter->minimum);
        if (!parameter->fallback) fb_buffer_printf(&required, "%s\"%s\"", required.size ? "," : "", parameter->name);
    }
    fb_buffer_string(&text, "}");
    if (required.size) fb_buffer_printf(&text, ",\"required\":[%s]", fb_buffer_text(&required));
    fb_buffer_string(&text, ",\"type\":\"object\"}");
    r->layout->pass.parameters = text.failed || required.failed ? NULL : fb_arena_text(&r->layout->arena, text.data, text.size);
    fb_buffer_free(&text);
    fb_buffer_free(&required);
    return layout->pass.parameters ? FB_OK : fb_fail_memory(r->error);
}

/* So that each default is over those before it. */
static fb_status order_parameters(reader *r) {
    fb_layout *layout = r->layout;
    size_t count = layout->parameter_count;
    for (layout->parameter_count = 0; layout->parameter_count < count; layout->parameter_count++) {
        size_t known = layout->parameter_count, next = known;
        fb_layout_names names = {.find = is_known, .context = r, .is_check = true};
        fb_error met = {0};
        for (int64_t ignored; next < count; next++) {
            fb_error wrong = {0};
            const json_t *fallback = layout->parameters[next].fallback;
            if (!fallback || !fb_layout_number(fallback, &names, &ignored, &wrong)) break;
            if (!met.status) met = wrong;
        }
        if (next == count) {
            fb_pointer_enter(&r->pointer, layout->parameters[known].name);
            fb_pointer_enter(&r->pointer, "default");
            return fail(r, met.code, "%s", met.message);
        }
        fb_layout_parameter parameter = layout->parameters[next];
        layout->parameters[next] = layout->parameters[known];
        layout->parameters[known] = parameter;
    }
    return FB_OK;
}

static fb_status read_parameters(reader *r, const json_t *json) {
    size_t mark = fb_pointer_enter(&r->pointer, "parameters");
    if (json && !json_is_object(json)) return fail(r, "wrong-type", "an object of parameters is expected here");
    fb_status status = read_each(r, json, read_parameter);
    if (!status) status = order_parameters(r);
    if (status) return status;
    r->pointer.size = mark;
    return write_schema(r);
}

static fb_status read_architectures(reader *r, const json_t *json) {
    size_t mark = fb_pointer_enter(&r->pointer, "architectures"), index;
    json_t *one;
    if (json && (!json_is_array(json) || !json_array_size(json)))
        return fail(r, "wrong-type", "a list of architectures is expected here: [\"llama\"]");
    json_array_foreach((json_t *)(uintptr_t)json, index, one) {
        fb_pointer_enter_item(&r->pointer, index);
        if (!json_is_string(one)) return fail(r, "wrong-type", "an architecture's name is expected here");
    }
    r->pointer.size = mark;
    return FB_OK;
}

static fb_status read_texts(reader *r, const json_t *json) {
    const json_t *name = json_object_get(json, "name"), *description = json_object_get(json, "description");
    size_t mark = fb_pointer_enter(&r->pointer, "name");
    if (!name) return fail(r, "missing-member", "a layout needs a name");
    if (!json_is_string(name) || !fb_rule_name_is_valid(json_string_value(name)))
        return fail(r, "bad-name", "a layout's name is a letter and then letters, digits, _, - and ., %d at most",
                    FB_RULE_NAME_MAX);
    r->pointer.size = mark;
    fb_pointer_enter(&r->pointer, "description");
    if (description && !json_is_string(description)) return fail(r, "wrong-type", "a text is expected here");
    r->pointer.size = mark;
    fb_status status = read_architectures(r, json_object_get(json, "architectures"));
    if (status) return status;
    r->layout->pass.name = json_string_value(name);
    r->layout->pass.summary = description ? json_string_value(description) : "";
    return FB_OK;
}

static fb_status sign(reader *r) {
    fb_layout *layout = r->layout;
    fb_buffer text = {0};
    char digest[FB_ID_LENGTH + 1];
    fb_status status = fb_free_json_canonical(layout->json, &text);
    if (!status && text.size > FB_LAYOUT_BYTES_MAX)
        status = fail(r, "layout-too-large", "a layout has at most %d bytes", FB_LAYOUT_BYTES_MAX);
    else if (status == FB_NO_MEMORY) fb_fail_memory(r->error);
    else if (status) status = fail(r, "bad-value", "the layout has a text with a NUL character, which documents cannot hold");
    if (status) {
        fb_buffer_free(&text);
        return status;
    }
    bool ok = fb_sha256_id(text.data, text.size, digest);
    layout->document = fb_buffer_take(&text, NULL);
    layout->pass.digest = ok ? fb_arena_text(&layout->arena, digest, strlen(digest)) : NULL;
    return layout->document && layout->pass.digest ? FB_OK : fb_fail_memory(r->error);
}

static void free_layout(const fb_pass *pass) {
    fb_layout *layout = (fb_layout *)(uintptr_t)pass->data;
    json_decref(layout->json);
    free(layout->document);
    fb_arena_free(&layout->arena);
    free(layout);
}

static fb_status read_all(reader *r) {
    const json_t *json = r->layout->json;
    fb_status status = check_members(r, json, "name description architectures parameters rows");
    if (!status) status = sign(r);
    if (!status) status = read_texts(r, json);
    if (!status) status = read_parameters(r, json_object_get(json, "parameters"));
    return status ? status : read_rows(r, json_object_get(json, "rows"));
}

fb_status fb_layout_read(const json_t *document, const char *pointer, int version, const fb_pass **out, fb_error *error) {
    fb_error ignored = {0};
    fb_layout *layout = calloc(1, sizeof *layout);
    json_t *copy = layout ? json_deep_copy(document) : NULL;
    if (!copy) {
        free(layout);
        return fb_fail_memory(error);
    }
    layout->json = copy;
    layout->pass = (fb_pass){.version = version,
                             .exactness = FB_MOVES,
                             .reversible = true,
                             .preserves_computation = true,
                             .match_graph = fb_layout_match_graph,
                             .edit = fb_layout_edit,
                             .data = layout,
                             .free = free_layout};
    reader r = {.layout = layout, .error = error ? error : &ignored};
    fb_buffer_string(&r.pointer, pointer);
    fb_status status = read_all(&r);
    fb_buffer_free(&r.pointer);
    if (status) free_layout(&layout->pass);
    else *out = &layout->pass;
    return status;
}

const char *fb_layout_document(const fb_pass *layout) {
    return ((const fb_layout *)layout->data)->document;
}

/* ---- parameters from a config.json -------------------------------------------------------------------------------------- */

typedef struct known_numbers {
    const json_t *config, *params;
} known_numbers;

static bool find_number(const void *context, const char *name, size_t length, int axis, int64_t *out) {
    const known_numbers *known = context;
    char key[64];
    if (axis >= 0 || length >= sizeof key) return false;
    memcpy(key, name, length);
    key[length] = '\0';
    const json_t *value = json_object_get(known->config, key);
    if (!json_is_integer(value)) value = json_object_get(known->params, key);
    *out = json_integer_value(value);
    return json_is_integer(value);
}

fb_status fb_layout_configure(const fb_pass *pass, const json_t *config, json_t *params, fb_error *error) {
    const fb_layout *layout = pass->data;
    known_numbers known = {.config = config, .params = params};
    fb_layout_names names = {.find = find_number, .context = &known};
    for (size_t i = 0; i < layout->parameter_count; i++) {
        const fb_layout_parameter *parameter = &layout->parameters[i];
        size_t index;
        json_t *text;
        json_array_foreach((json_t *)(uintptr_t)parameter->config, index, text) {
            int64_t number;
            fb_error met = {0};
            if (json_object_get(params, parameter->name)) break;
            if (fb_layout_compute(json_string_value(text), &names, &number, &met)) continue;
            if (json_object_set_new(params, parameter->name, json_integer(number))) return fb_fail_memory(error);
        }
    }
    return FB_OK;
}
