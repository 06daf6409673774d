/* Checks the JSON files of an archive against PyTorch's schema, before anything reads them: readers rely on it. Parts that are
 * not read here are checked too: what torch.export.load refuses is not stored. Members that the schema does not have come from
 * later versions: they pass, but not as the one of a union. */
#include <string.h>

#include "core/archive/internal.h"

typedef struct schema_row {
    const char *type;
    bool is_union;
    const char *members;
} schema_row;

static const schema_row rows[] = {
#define PT_SCHEMA_ROW(...) {__VA_ARGS__},
#include "core/archive/schema.def"
};

typedef struct checking {
    pt_model *m;
    const pt_file *file;
} checking;

static const schema_row *row_of(const char *type, size_t length) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strncmp(rows[i].type, type, length) == 0 && !rows[i].type[length]) return &rows[i];
    }
    return NULL;
}

static bool is_called(const char *kind, size_t length, const char *name) {
    return strlen(name) == length && memcmp(kind, name, length) == 0;
}

static bool refuse(const checking *c, const fb_json *value, const char *what, const char *name, size_t length) {
    fb_buffer pointer = {0};
    fb_json_pointer(c->file->root, value, &pointer);
    const char *at = fb_buffer_text(&pointer);
    if (at) pt_bad(c->m, c->file->name, "%.200s %s \"%.*s\"", *at ? at : "it", what, (int)length, name);
    fb_buffer_free(&pointer);
    return false;
}

static bool is_float(const fb_json *value) {
    bool is_named = value->kind == FB_JSON_STRING &&
                    (fb_json_is(value, "NaN") || fb_json_is(value, "Infinity") || fb_json_is(value, "-Infinity"));
    return is_named || value->kind == FB_JSON_INT || value->kind == FB_JSON_REAL;
}

/* False: the kind is not a simple one. */
static bool is_simple(const fb_json *value, const char *kind, size_t length, bool *is) {
    bool is_bool = value->kind == FB_JSON_TRUE || value->kind == FB_JSON_FALSE;
    if (is_called(kind, length, "any")) *is = true;
    else if (is_called(kind, length, "int")) *is = value->kind == FB_JSON_INT;
    else if (is_called(kind, length, "float")) *is = is_float(value);
    else if (is_called(kind, length, "str")) *is = value->kind == FB_JSON_STRING;
    else if (is_called(kind, length, "bool")) *is = is_bool;
    else return false;
    return true;
}

static bool check(const checking *c, const fb_json *value, const char *kind, size_t length);

static bool check_items(const checking *c, const fb_json *value, const char *kind, size_t length) {
    bool is_object = *kind == '{', ok = value->kind == (is_object ? FB_JSON_OBJECT : FB_JSON_ARRAY);
    if (!ok) return refuse(c, value, is_object ? "is not an object of" : "is not a list of", kind + 1, length - 2);
    const fb_json *item = fb_json_first(value);
    for (uint32_t i = 0; i < value->count && ok; i++) {
        const fb_json *one = is_object ? item + 1 : item;
        ok = check(c, one, kind + 1, length - 2);
        item = fb_json_next(one);
    }
    return ok;
}

/* Iterates over the members of a row: the name at `at`, its kind, and where the next one begins. */
typedef struct member {
    const char *name, *kind;
    size_t name_length, kind_length;
    bool must_be_there;
} member;

static const char *read_member(const char *at, member *out) {
    *out = (member){.name = at, .name_length = strcspn(at, "=")};
    out->kind = at + out->name_length + 1;
    out->must_be_there = *out->kind == '!';
    out->kind += out->must_be_there;
    out->kind_length = strcspn(out->kind, ",");
    return out->kind[out->kind_length] ? out->kind + out->kind_length + 1 : NULL;
}

static const fb_json *find(const fb_json *object, const member *wanted) {
    const fb_json *key = fb_json_first(object);
    for (uint32_t i = 0; i < object->count; i++, key = fb_json_next(key + 1)) {
        if (key->count == wanted->name_length && memcmp(key->text, wanted->name, key->count) == 0) return key + 1;
    }
    return NULL;
}

static bool check_row(const checking *c, const fb_json *value, const schema_row *row) {
    member one;
    if (!fb_work_goes_on(c->m->work, 64)) return false;
    if (value->kind != FB_JSON_OBJECT || (row->is_union && value->count != 1))
        return refuse(c, value, row->is_union ? "is not one member of" : "is not an object of", row->type, strlen(row->type));
    bool is_any = false;
    for (const char *at = row->members; at;) {
        at = read_member(at, &one);
        const fb_json *found = find(value, &one);
        is_any |= found != NULL;
        if (!found && one.must_be_there) return refuse(c, value, "lacks", one.name, one.name_length);
        if (found && !check(c, found, one.kind, one.kind_length)) return false;
    }
    const fb_json *key = fb_json_first(value);
    return is_any || !row->is_union || refuse(c, value, "is of an unknown kind,", key->text, key->count);
}

static bool check(const checking *c, const fb_json *value, const char *kind, size_t length) {
    bool is;
    if (*kind == '?') {
        if (value->kind == FB_JSON_NULL) return true;
        kind++, length--;
    }
    if (*kind == '[' || *kind == '{') return check_items(c, value, kind, length);
    if (is_simple(value, kind, length, &is)) return is || refuse(c, value, "is not of the kind", kind, length);
    return check_row(c, value, row_of(kind, length));
}

static bool check_file(pt_model *m, const pt_file *file, const char *type) {
    return check(&(checking){.m = m, .file = file}, file->root, type, strlen(type));
}

bool pt_check_schema(pt_model *m) {
    return check_file(m, &m->program_file, "ExportedProgram") && check_file(m, &m->weights_file, "PayloadConfig") &&
           check_file(m, &m->constants_file, "PayloadConfig");
}
