/* Members of a rule's objects, its variables, and errors that say where. */
#include <ctype.h>

#include "core/base/sort.h"
#include "core/rules/internal.h"

fb_status fb_rule_fail(fb_rule_reader *reader, const char *code, const char *format, ...) {
    char message[500];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return fb_fail(reader->error, FB_INVALID, code, fb_buffer_text(&reader->pointer), "%s", message);
}

void *fb_rule_alloc(fb_rule_reader *reader, size_t size) {
    void *memory = fb_arena_alloc(&reader->rule->arena, size ? size : 1);
    if (!memory) fb_fail_memory(reader->error);
    else memset(memory, 0, size);
    return memory;
}

char *fb_rule_text(fb_rule_reader *reader, const char *text) {
    char *copy = fb_arena_text(&reader->rule->arena, text, strlen(text));
    if (!copy) fb_fail_memory(reader->error);
    return copy;
}

static bool is_among(const char *word, const char *words) {
    size_t length = strlen(word);
    for (const char *at = words; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        if (length && strncmp(at, word, length) == 0 && (at[length] == ' ' || !at[length])) return true;
    }
    return false;
}

fb_status fb_rule_check_members(fb_rule_reader *reader, const json_t *object, const char *known) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (is_among(key, known)) continue;
        fb_pointer_enter(&reader->pointer, key);
        return fb_rule_fail(reader, "unknown-member", "there is no such member here; there are: %s", known);
    }
    return FB_OK;
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

fb_status fb_rule_sorted_keys(fb_rule_reader *reader, const json_t *object, const char *keys[FB_RULE_MEMBERS_MAX],
                              size_t *count) {
    const char *key;
    json_t *value;
    *count = 0;
    if (json_object_size(object) > FB_RULE_MEMBERS_MAX)
        return fb_rule_fail(reader, "rule-too-large", "an object has at most %d members", FB_RULE_MEMBERS_MAX);
    json_object_foreach((json_t *)(uintptr_t)object, key, value) keys[(*count)++] = key;
    fb_sort(keys, *count, sizeof *keys, compare_keys);
    return FB_OK;
}

static bool is_variable_name(const char *name) {
    if (name[0] != '?' || !(isalpha((unsigned char)name[1]) || name[1] == '_')) return false;
    size_t i = 1;
    while (isalnum((unsigned char)name[i]) || name[i] == '_') i++;
    return !name[i] && i < 64;
}

static int find_variable(const fb_rule *rule, const char *name) {
    int i = rule->variable_count;
    while (i-- > 0 && strcmp(rule->variables[i], name) != 0) continue;
    return i;
}

fb_status fb_rule_variable(fb_rule_reader *reader, const char *name, int *out) {
    fb_rule *rule = reader->rule;
    if (!is_variable_name(name)) return fb_rule_fail(reader, "bad-variable", "a variable is ? and a name: \"?x\"");
    *out = find_variable(rule, name);
    if (*out >= 0) return FB_OK;
    if (rule->variable_count == FB_RULE_VARIABLES_MAX)
        return fb_rule_fail(reader, "rule-too-large", "a rule has at most %d variables", FB_RULE_VARIABLES_MAX);
    char *copy = fb_rule_text(reader, name);
    if (!copy) return FB_NO_MEMORY;
    *out = rule->variable_count;
    rule->variables[rule->variable_count++] = copy;
    return FB_OK;
}

fb_status fb_rule_bound_variable(fb_rule_reader *reader, const char *name, int *out) {
    if (!is_variable_name(name)) return fb_rule_variable(reader, name, out);
    *out = find_variable(reader->rule, name);
    if (*out >= 0 && reader->rule->is_bound[*out]) return FB_OK;
    return fb_rule_fail(reader, "unbound-variable", "nothing gives %s a value", name);
}

fb_value fb_rule_literal(const fb_rule *rule, size_t index) {
    return fb_node_arg(rule->given, fb_first_node(rule->given, FB_MAIN_PROGRAM), index);
}
