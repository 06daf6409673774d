#include "tests/unit/golden_text.h"

#include "tests/unit/checks.h"
#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/base64.h"
#include "core/base/float.h"
#include "core/evaluator/array.h"
#include "core/graph/build.h"
#include "core/graph/code.h"
#include "core/graph/write.h"

/* ---- values of a document ------------------------------------------------------------------------------------------------ */

static void write_value(const json_t *value, fb_buffer *out);

static void write_list(const json_t *items, fb_buffer *out) {
    for (size_t i = 0; i < json_array_size(items); i++) {
        fb_buffer_string(out, i ? ", " : "");
        write_value(json_array_get(items, i), out);
    }
}

/* Floats and tuples as Python spells them, anything else as JSON. */
static void write_value(const json_t *value, fb_buffer *out) {
    const json_t *tuple = json_object_get(value, "$tuple"), *number = json_object_get(value, "$float");
    if (json_is_array(value) || tuple) {
        fb_buffer_char(out, tuple ? '(' : '[');
        write_list(tuple ? tuple : value, out);
        fb_buffer_char(out, tuple ? ')' : ']');
    } else if (number) {
        fb_buffer_string(out, json_string_value(number));
    } else if (json_is_real(value)) {
        char text[FB_FLOAT_MAX];
        fb_float_repr(json_real_value(value), text);
        fb_buffer_string(out, text);
    } else {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        fb_buffer_string(out, text);
        free(text);
    }
}

/* A recipe: names of tensors, and calls. */
static void write_expression(const json_t *expression, fb_buffer *out) {
    if (json_is_string(expression)) {
        fb_buffer_string(out, json_string_value(expression));
        return;
    }
    const json_t *args = json_object_get(expression, "args");
    const char *separator = "", *key;
    json_t *value;
    fb_buffer_printf(out, "%s(", json_string_value(json_object_get(expression, "op")));
    for (size_t i = 0; i < json_array_size(args); i++, separator = ", ") {
        fb_buffer_string(out, separator);
        write_expression(json_array_get(args, i), out);
    }
    json_object_foreach((json_t *)expression, key, value) {
        if (strcmp(key, "op") == 0 || strcmp(key, "args") == 0) continue;
        fb_buffer_printf(out, "%s%s=", separator, key);
        write_value(value, out);
        separator = ", ";
    }
    fb_buffer_char(out, ')');
}

/* Takes a member from an object, of which what is left in the end is written by write_rest. */
static json_t *take(json_t *object, const char *member) {
    json_t *value = json_incref(json_object_get(object, member));
    json_object_del(object, member);
    return value;
}

static void write_rest(const json_t *object, const char *separator, fb_buffer *out) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        fb_buffer_printf(out, "%s%s=", separator, key);
        write_value(value, out);
        separator = ", ";
    }
}

/* float32[2, 4] */
static void write_type(json_t *row, fb_buffer *out) {
    json_t *dtype = take(row, "dtype"), *shape = take(row, "shape");
    if (dtype) fb_buffer_string(out, json_string_value(dtype));
    if (shape) write_value(shape, out);
    json_decref(dtype);
    json_decref(shape);
}

/* ---- code ---------------------------------------------------------------------------------------------------------------- */

/* The pass of the run that signs so; else the signature. */
static const char *signer(const fb_run *run, const char *signature) {
    for (size_t i = 0; i < run->count; i++) {
        if (strcmp(run->passes[i].signature, signature) == 0) return run->passes[i].pass->name;
    }
    return signature;
}

static void write_meta(json_t *node, const fb_run *run, fb_buffer *out) {
    json_t *meta = take(node, "meta"), *marks = take(meta, "transformations");
    size_t start = out->size;
    write_type(meta, out);
    for (size_t i = 0; i < json_array_size(marks); i++) {
        fb_buffer_printf(out, "%sby %s", out->size > start ? ", " : "",
                         signer(run, json_string_value(json_array_get(marks, i))));
    }
    write_rest(meta, out->size > start ? ", " : "", out);
    json_decref(marks);
    json_decref(meta);
}

/* The size of a line of code without the end that forgets values: ";  x = y = None". */
static size_t size_without_forgetting(const char *line, size_t size) {
    static const char separator[] = ";  ";
    size_t start = size;
    while (start >= 3 && memcmp(line + start - 3, separator, 3) != 0) start--;
    if (start < 3) return size;
    for (size_t at = start; at < size;) {
        size_t word = at;
        while (at < size && (isalnum((unsigned char)line[at]) || line[at] == '_' || (unsigned char)line[at] >= 0x80)) at++;
        if (at == size && at - word == 4 && memcmp(line + word, "None", 4) == 0) return start - 3;
        if (at + 3 > size || memcmp(line + at, " = ", 3) != 0) return size;
        at += 3;
    }
    return size;
}

static void write_line(const char *line, size_t size, json_t *node, const fb_run *run, fb_buffer *out) {
    fb_buffer_append(out, line, size);
    size_t end = out->size;
    if (node) write_meta(node, run, out);
    if (out->size > end) {
        fb_buffer meta = {0};
        fb_buffer_append(&meta, out->data + end, out->size - end);
        out->size = end;
        fb_buffer_printf(out, "  # %s", fb_buffer_text(&meta));
        fb_buffer_free(&meta);
    }
    fb_buffer_char(out, '\n');
}

static bool is_input(const json_t *node) {
    return strcmp(json_string_value(json_object_get(node, "op")), "placeholder") == 0;
}

/* The code has a line for each node but the inputs, in their order; of the inputs those that have meta get one here. */
static void write_code(const fb_graph *graph, fb_program program, json_t *nodes, const fb_run *run, fb_buffer *out) {
    fb_buffer code = {0};
    ck_assert(fb_code_write(graph, program, &(fb_work){0}, &code));
    size_t next = 0, count = json_array_size(nodes);
    bool is_body = false;
    for (char *line = (char *)fb_buffer_text(&code), *end; *line; line = end + (*end == '\n')) {
        end = line + strcspn(line, "\n");
        if (strspn(line, " ") == (size_t)(end - line)) continue;
        while (is_body && next < count && is_input(json_array_get(nodes, next))) next++;
        ck_assert_msg(!is_body || next < count, "a line of code has no node: %s", line);
        write_line(line, size_without_forgetting(line, (size_t)(end - line)), is_body ? json_array_get(nodes, next++) : NULL,
                   run, out);
        if (is_body || strncmp(line, "def ", 4) != 0) continue;
        is_body = true;
        for (size_t i = 0; i < count; i++) {
            json_t *node = json_array_get(nodes, i);
            if (!is_input(node) || json_object_size(json_object_get(node, "meta")) == 0) continue;
            fb_buffer name = {0};
            fb_buffer_printf(&name, "    %s", json_string_value(json_object_get(node, "name")));
            write_line(name.data, name.size, node, run, out);
            fb_buffer_free(&name);
        }
    }
    ck_assert_msg(next == count, "the code has %zu lines for %zu nodes", next, count);
    fb_buffer_free(&code);
}

/* ---- modules and tensors ------------------------------------------------------------------------------------------------- */

/* weight=fc.weight: which tensor an attribute names. */
static void write_owned(json_t *row, const char *member, fb_buffer *out) {
    json_t *owned = take(row, member), *value;
    const char *key;
    if (json_object_size(owned) > 0) fb_buffer_printf(out, ", %s", member);
    json_object_foreach(owned, key, value) {
        fb_buffer_printf(out, " %s=%s", key, json_is_null(value) ? "null" : json_string_value(value));
    }
    json_decref(owned);
}

static bool is_bare_root(const json_t *row) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)row, key, value) {
        bool is_root = strcmp(key, "path") == 0 && strcmp(json_string_value(value), "") == 0;
        bool is_module = strcmp(key, "type") == 0 && strcmp(json_string_value(value), "torch.nn.Module") == 0;
        if (!is_root && !is_module && !json_is_false(value) && !(json_is_object(value) && json_object_size(value) == 0))
            return false;
    }
    return true;
}

static void write_module(const fb_graph *graph, json_t *row, const fb_run *run, fb_buffer *out) {
    if (is_bare_root(row)) return;
    json_t *path = take(row, "path"), *type = take(row, "type"), *config = take(row, "config");
    json_t *training = take(row, "training"), *program = take(row, "graph");
    const char *shown = *json_string_value(path) ? json_string_value(path) : "(root)";
    fb_buffer_printf(out, "module %s: %s(", shown, json_string_value(type));
    write_rest(config, "", out);
    fb_buffer_string(out, json_is_true(training) ? ") in training" : ")");
    write_owned(row, "parameters", out);
    write_owned(row, "buffers", out);
    write_rest(row, ", ", out);
    fb_buffer_char(out, '\n');
    if (program) {
        fb_module module = fb_module_find(graph, json_string_value(path));
        write_code(graph, fb_module_at(graph, module)->program, json_object_get(program, "nodes"), run, out);
    }
    json_decref(path);
    json_decref(type);
    json_decref(config);
    json_decref(training);
    json_decref(program);
}

/* Inline bytes as the numbers that they are, row by row. */
static void write_data(const char *text, fb_dtype dtype, fb_buffer *out) {
    size_t size = fb_base64_size(text, strlen(text));
    int64_t count = (int64_t)(size / fb_dtype_size(dtype));
    unsigned char *bytes = malloc(size + 1);
    fb_array_memory memory = {.precision = FB_PRECISION_DOUBLE};
    fb_array *array = NULL;
    fb_error error = {0};
    fb_base64_decode(text, 0, size, bytes);
    fb_status status = fb_array_from_bytes(&memory, dtype, 1, &count, bytes, size, &array, &error);
    ck_assert_msg(status == FB_OK, "inline data: %s", error.message);
    for (int64_t i = 0; i < count; i++) {
        char number[FB_FLOAT_MAX] = "";
        if (!fb_dtype_is_integer(dtype)) fb_float_repr(fb_array_number(array, i), number);
        else snprintf(number, sizeof number, "%" PRId64, fb_array_int(array, i));
        fb_buffer_printf(out, "%s%s", i ? ", " : " = [", number);
    }
    fb_buffer_string(out, count ? "]" : " = []");
    fb_array_drop(array);
    free(bytes);
}

static void write_tensor(const fb_graph *graph, fb_tensor tensor, fb_buffer *out) {
    fb_buffer text = {0};
    fb_tensor_write(graph, tensor, &text);
    json_t *row = json_loadb(text.data, text.size, 0, NULL);
    json_t *name = take(row, "name"), *grad = take(row, "requires_grad"), *data = take(row, "data"),
           *recipe = take(row, "recipe");
    fb_buffer_printf(out, "tensor %s: ", json_string_value(name));
    write_type(row, out);
    fb_buffer_string(out, json_is_true(grad) ? ", requires_grad" : "");
    write_rest(row, ", ", out);
    if (data) write_data(json_string_value(data), (fb_dtype)fb_tensor_at(graph, tensor)->dtype, out);
    if (recipe) {
        fb_buffer_string(out, " = ");
        write_expression(recipe, out);
    }
    fb_buffer_char(out, '\n');
    json_decref(name);
    json_decref(grad);
    json_decref(data);
    json_decref(recipe);
    json_decref(row);
    fb_buffer_free(&text);
}

void write_graph_text(const fb_graph *graph, const fb_run *run, fb_buffer *out) {
    fb_buffer text = {0};
    fb_document_write(graph, &text);
    json_t *document = json_loadb(text.data, text.size, 0, NULL), *metadata = json_object_get(document, "metadata");
    json_t *modules = json_object_get(document, "modules");
    write_code(graph, FB_MAIN_PROGRAM, json_object_get(document, "nodes"), run, out);
    for (size_t i = 0; i < json_array_size(modules); i++) write_module(graph, json_array_get(modules, i), run, out);
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) write_tensor(graph, t, out);
    if (json_object_size(metadata) > 0) write_rest(metadata, "metadata ", out);
    fb_buffer_string(out, json_object_size(metadata) > 0 ? "\n" : "");
    json_decref(document);
    fb_buffer_free(&text);
}

/* ---- changes ------------------------------------------------------------------------------------------------------------- */

typedef struct lines {
    const char **items; /* each ends at the next */
    size_t count;
} lines;

static lines lines_of(const char *text) {
    lines found = {calloc(strlen(text) + 1, sizeof(char *)), 0};
    for (found.items[0] = text; *text; text++) {
        if (*text == '\n') found.items[++found.count] = text + 1;
    }
    return found;
}

static bool is_same_line(const lines *a, size_t i, const lines *b, size_t j) {
    size_t size = (size_t)(a->items[i + 1] - a->items[i]);
    return size == (size_t)(b->items[j + 1] - b->items[j]) && memcmp(a->items[i], b->items[j], size) == 0;
}

static void write_marked(char mark, const lines *of, size_t i, fb_buffer *out) {
    fb_buffer_char(out, mark);
    fb_buffer_append(out, of->items[i], (size_t)(of->items[i + 1] - of->items[i]));
}

/* The longest list of lines that both have in one order stays. */
void write_changes(const char *before, const char *after, fb_buffer *out) {
    lines a = lines_of(before), b = lines_of(after);
    size_t width = b.count + 1, i = 0, j = 0;
    unsigned *common = calloc((a.count + 1) * width, sizeof *common); /* lines that stay from i and j on */
    for (i = a.count; i-- > 0;) {
        for (j = b.count; j-- > 0;) {
            unsigned skip = common[(i + 1) * width + j], other = common[i * width + j + 1];
            common[i * width + j] = is_same_line(&a, i, &b, j) ? common[(i + 1) * width + j + 1] + 1
                                    : skip > other             ? skip
                                                               : other;
        }
    }
    for (i = j = 0; i < a.count || j < b.count;) {
        if (i < a.count && j < b.count && is_same_line(&a, i, &b, j)) {
            write_marked(' ', &a, i++, out);
            j++;
        } else if (j == b.count || (i < a.count && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
            write_marked('-', &a, i++, out);
        } else {
            write_marked('+', &b, j++, out);
        }
    }
    free(common);
    free(a.items);
    free(b.items);
}
