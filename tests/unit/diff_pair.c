#include "tests/unit/diff_pair.h"

#include "tests/unit/checks.h"
#include <stdlib.h>
#include <string.h>

#include "core/document/document.h"
#include "tests/unit/diff_apply.h"

/* ---- the JSON's shape ---------------------------------------------------------------------------------------------------- */

static bool is_name_or_null(const json_t *value) {
    return json_is_string(value) || json_is_null(value);
}

/* As text: 1 is not 1.0, and the order of members counts. */
static bool are_same_text(const json_t *a, const json_t *b) {
    char *x = json_dumps(a, JSON_ENCODE_ANY), *y = json_dumps(b, JSON_ENCODE_ANY);
    bool are_same = x && y && strcmp(x, y) == 0;
    free(x);
    free(y);
    return are_same;
}

/* Members by pointer, which differ from those on the other side; one that is missing there is absent. */
static bool are_members(json_t *was, json_t *now) {
    const char *pointer;
    json_t *value;
    size_t missing = 0;
    if (!json_is_object(was) || !json_is_object(now)) return false;
    json_object_foreach(was, pointer, value) {
        json_t *other = json_object_get(now, pointer);
        if (*pointer != '/') return false;
        if (!other) missing++;
        else if (are_same_text(value, other)) return false;
    }
    return json_object_size(now) + missing > 0;
}

/* "set_node" and so on after the verb; NULL when the verb is another. */
static const char *table_of(const char *edit, const char *verb) {
    size_t size = strlen(verb);
    return strncmp(edit, verb, size) == 0 && edit[size] == '_' ? edit + size + 1 : NULL;
}

static bool has_shape(json_t *edit) {
    const char *kind = json_string_value(json_object_get(edit, "edit")), *table;
    json_t *was = json_object_get(edit, "was"), *now = json_object_get(edit, "now");
    json_t *before = json_object_get(edit, "before");
    size_t size = json_object_size(edit);
    if (!kind) return false;
    if (strcmp(kind, "insert_node") == 0 || strcmp(kind, "erase_node") == 0) {
        return size == 3 && json_is_string(json_object_get(json_object_get(edit, "node"), "name")) && is_name_or_null(before);
    }
    if (strcmp(kind, "set_graph") == 0) return size == 3 && are_members(was, now);
    bool is_move = (table = table_of(kind, "move"));
    if (!table && !(table = table_of(kind, "set"))) return false;
    const char *key = strcmp(table, "module") == 0 ? "path" : "name";
    if (strcmp(table, "node") && strcmp(table, "module") && strcmp(table, "tensor")) return false;
    json_t *name = json_object_get(edit, key);
    if (!json_is_string(name)) return false;
    if (is_move) return size == 4 && is_name_or_null(before) && is_name_or_null(was) && !json_equal(before, was);
    if (!before) return size == 4 && are_members(was, now);
    json_t *row = json_is_null(was) ? now : was;
    bool is_one = json_is_null(was) != json_is_null(now);
    return size == 5 && is_one && is_name_or_null(before) && json_equal(json_object_get(row, key), name);
}

static char *text_of(const fb_diff *diff) {
    fb_buffer text = {0};
    fb_diff_write(diff, &(fb_work){0}, &text);
    return fb_buffer_take(&text, NULL);
}

static void check_shape(const char *text, size_t count, const char *label) {
    json_error_t error;
    json_t *edits = json_loads(text, JSON_REJECT_DUPLICATES, &error), *edit;
    size_t i;
    ck_assert_msg(edits, "%s: the edits are no JSON: %s at %.300s", label, error.text, text + error.position);
    ck_assert_msg(json_array_size(edits) == count, "%s: other edits in JSON", label);
    json_array_foreach(edits, i, edit) {
        ck_assert_msg(has_shape(edit), "%s: edit without the documented shape: %s", label, json_dumps(edit, JSON_COMPACT));
    }
    json_decref(edits);
}

/* ---- a pair -------------------------------------------------------------------------------------------------------------- */

static fb_diff diff_of(const fb_graph *from, const fb_graph *to, const char *label) {
    fb_diff diff;
    fb_error error = {0};
    ck_assert_msg(fb_diff_make(from, to, &(fb_work){0}, &diff, &error) == FB_OK, "%s: %s", label, error.message);
    return diff;
}

static void check_applied(const fb_diff *diff, const fb_graph *from, const fb_graph *to, const char *label, const char *way) {
    fb_graph *result = NULL;
    fb_error error = {0};
    fb_buffer made = {0}, expected = {0};
    fb_status status = fb_diff_apply(diff, from, &result, &error);
    ck_assert_msg(status == FB_OK, "%s, %s: %s: %s\n%.3000s", label, way, error.code, error.message,
                  status ? text_of(diff) : "");
    fb_document_write(result, &made);
    fb_document_write(to, &expected);
    ck_assert(!made.failed && !expected.failed);
    ck_assert_msg(made.size == expected.size && memcmp(made.data, expected.data, made.size) == 0, "%s: another graph %s", label,
                  way);
    fb_buffer_free(&made);
    fb_buffer_free(&expected);
    fb_graph_free(result);
}

static void check_counted(const fb_graph *from, const fb_graph *to, size_t count, const char *label) {
    const size_t limits[] = {0, 1, count / 2, count, count + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        size_t counted = 0, expected = count < limits[i] ? count : limits[i];
        fb_error error = {0};
        ck_assert_msg(fb_diff_count(from, to, limits[i], &(fb_work){0}, &counted, &error) == FB_OK, "%s: %s", label,
                      error.message);
        ck_assert_msg(counted == expected, "%s: counted %zu of %zu edits, up to %zu", label, counted, count, limits[i]);
    }
}

size_t check_pair(const fb_graph *from, const fb_graph *to, const char *label) {
    fb_diff diff = diff_of(from, to, label);
    size_t count = diff.count;
    char *text = text_of(&diff);
    check_shape(text, count, label);
    check_counted(from, to, count, label);
    check_applied(&diff, from, to, label, "forwards");
    fb_diff_invert(&diff);
    char *inverse = text_of(&diff);
    check_shape(inverse, count, label);
    check_applied(&diff, to, from, label, "backwards");
    fb_diff_invert(&diff);
    char *again = text_of(&diff);
    ck_assert_msg(strcmp(text, again) == 0, "%s: turned round twice it is another diff", label);
    free(text);
    free(inverse);
    free(again);
    fb_diff_free(&diff);
    return count;
}

json_t *edits_between(const fb_graph *from, const fb_graph *to) {
    fb_diff diff = diff_of(from, to, "edits");
    char *text = text_of(&diff);
    json_t *edits = json_loads(text, 0, NULL);
    free(text);
    fb_diff_free(&diff);
    return edits;
}

char *quoted_edits(const fb_graph *from, const fb_graph *to) {
    fb_diff diff = diff_of(from, to, "edits");
    char *text = text_of(&diff);
    fb_diff_free(&diff);
    for (char *c = text; *c; c++) {
        if (*c == '"') *c = '\'';
    }
    return text;
}
