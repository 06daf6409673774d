/* The Python code of a graph: names, types, values, statements. */
#include "core/graph/code.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/base/map.h"
#include "core/base/table.h"
#include "core/graph/graph.h"
#include "core/graph/namespace.h"
#include "core/graph/python.h"
#include "core/operators/spelling.h"

/* A class of a type, or a function: something with a global name that was made for it. */
typedef struct code_class {
    const char *word; /* in a type; the qualified name with `_` for its dots */
    size_t length;
    const char *name; /* in this code */
    bool is_called;   /* known as a function's qualified name */
} code_class;

/* Names are made when they are first printed and kept: as in torch.fx, the order of first use decides who gets the plain name.
 */
typedef struct code_writer {
    const fb_graph *graph;
    fb_namespace *names;
    const char **node_names; /* by node */
    const char **globals;    /* by symbol: how a function or class of that qualified name is called */
    const char **types;      /* by symbol: the text of an annotation, in `texts` */
    fb_table classes;        /* of code_class */
    fb_map class_index;      /* hash of the word -> classes */
    fb_arena texts;
    fb_buffer *out;
    const char *onnx; /* the module of ONNX's operators; NULL: none is called yet */
    bool failed;      /* memory was out for a name */
} code_writer;

typedef struct code_operator {
    const char *name;   /* of Python's operator module */
    const char *format; /* `$`: the next argument */
    bool is_statement;  /* changes its first argument in place */
} code_operator;

/* The global name for a word of a type or (is_called) for a qualified name with `_` for its dots, made from `hint` or the word.
 * NULL when memory is out. Ask once for each qualified name. */
static const char *code_class_name(code_writer *writer, const char *word, size_t length, const char *hint, bool is_called);

/* ---- names --------------------------------------------------------------------------------------------------------------- */

/* `out` is left to the caller. False when memory is out; free it all the same. */
static bool code_writer_init(code_writer *writer, const fb_graph *graph) {
    size_t node_count = (size_t)fb_node_limit(graph) + 1, symbol_count = (size_t)fb_symbol_limit(graph) + 1;
    writer->graph = graph;
    writer->names = fb_namespace_new();
    writer->node_names = calloc(node_count, sizeof(const char *));
    writer->globals = calloc(symbol_count, sizeof(const char *));
    writer->types = calloc(symbol_count, sizeof(const char *));
    writer->classes = (fb_table){.row_size = sizeof(code_class)};
    return writer->names && writer->node_names && writer->globals && writer->types;
}

static void code_writer_free(code_writer *writer) {
    fb_namespace_free(writer->names);
    free(writer->node_names);
    free(writer->globals);
    free(writer->types);
    fb_table_free(&writer->classes);
    fb_map_free(&writer->class_index);
    fb_arena_free(&writer->texts);
}

static const char *keep(code_writer *writer, const char **place, const char *name) {
    if (!name) {
        writer->failed = true;
        return "";
    }
    return *place = name;
}

static const char *code_node_name(code_writer *writer, fb_node node) {
    const char **place = &writer->node_names[node.id];
    return *place ? *place : keep(writer, place, fb_namespace_create(writer->names, fb_node_name(writer->graph, node)));
}

static int compare_texts(const void *key, const void *entry) {
    return strcmp(key, *(const char *const *)entry);
}

/* Methods of torch.Tensor that are written in Python, sorted. Their module is torch._tensor, so torch.fx prints them as they
 * are; those written in C have no module and get a created name. */
static bool is_python_method(const char *name) {
    static const char *const methods[] = {
        "__array__",
        "__array_wrap__",
        "__contains__",
        "__deepcopy__",
        "__dir__",
        "__dlpack__",
        "__dlpack_device__",
        "__floordiv__",
        "__format__",
        "__hash__",
        "__iter__",
        "__len__",
        "__rdiv__",
        "__reduce_ex__",
        "__repr__",
        "__reversed__",
        "__rfloordiv__",
        "__rlshift__",
        "__rmatmul__",
        "__rmod__",
        "__rpow__",
        "__rrshift__",
        "__rsub__",
        "__rtruediv__",
        "__setstate__",
        "__torch_function__",
        "_clear_non_serializable_cached_data",
        "_reduce_ex_internal",
        "_typed_storage",
        "backward",
        "dim_order",
        "eig",
        "index",
        "is_shared",
        "istft",
        "lstsq",
        "lu",
        "module_load",
        "norm",
        "register_hook",
        "register_post_accumulate_grad_hook",
        "reinforce",
        "resize",
        "resize_as",
        "share_memory_",
        "solve",
        "split",
        "stft",
        "storage",
        "storage_type",
        "symeig",
        "to_sparse_coo",
        "unflatten",
        "unique",
        "unique_consecutive",
    };
    return bsearch(name, methods, sizeof methods / sizeof *methods, sizeof *methods, compare_texts) != NULL;
}

/* True if the module of the qualified name has a part `part` that is not its last. */
static bool is_below(const char *qualified_name, const char *part) {
    const char *found = strstr(qualified_name, part);
    return found && strchr(found + strlen(part), '.');
}

/* torch.fx's _is_from_torch: such a name is printed as it is. */
static bool is_from_torch(const char *qualified_name, size_t length) {
    if (strncmp(qualified_name, "torch.", 6) != 0 || !fb_python_is_dotted(qualified_name, length)) return false;
    if (fb_is_spelled(qualified_name, FB_REGISTERED)) return true;
    if (fb_is_spelled(qualified_name, FB_TENSOR_METHOD)) return is_python_method(qualified_name + strlen(FB_TENSOR_METHOD));
    return !is_below(qualified_name, "._dynamo.") && !is_below(qualified_name, "._inductor.");
}

/* The name of a builtin, which generated code uses without its module; or NULL. */
static const char *builtin_name(const char *qualified_name) {
    const char *name = strncmp(qualified_name, "builtins.", 9) == 0 ? qualified_name + 9 : qualified_name;
    if (fb_python_word(name, strlen(name)) == FB_WORD_BUILTIN) return name;
    return strcmp(qualified_name, "builtins.NoneType") == 0 ? name : NULL;
}

static bool is_of_operator_module(const char *target) {
    return strncmp(target, "operator.", 9) == 0;
}

/* `operator` only re-exports what `_operator` defines, but for the classes that make callables, which name it as their module.
 */
static bool is_defined_in_c(const char *target) {
    static const char *const in_python[] = {"operator.attrgetter", "operator.itemgetter", "operator.methodcaller"};
    for (size_t i = 0; i < sizeof in_python / sizeof *in_python; i++) {
        if (strcmp(target, in_python[i]) == 0) return false;
    }
    return is_of_operator_module(target);
}

static const char *create_global(code_writer *writer, const char *qualified_name, const char *hint) {
    fb_buffer word = {0}, actual = {0};
    if (is_defined_in_c(hint)) fb_buffer_char(&actual, '_');
    fb_buffer_string(&actual, hint);
    for (const char *c = qualified_name; *c; c++) fb_buffer_char(&word, *c == '.' ? '_' : *c);
    const char *candidate = fb_buffer_text(&actual), *name = NULL;
    if (candidate && !word.failed) name = code_class_name(writer, word.data, word.size, candidate, true);
    fb_buffer_free(&word);
    fb_buffer_free(&actual);
    return name;
}

/* The part after "onnx" of an operator's target, "onnx.Softmax.v13"; NULL for another target. */
static const char *onnx_operator(const char *target) {
    return strncmp(target, "onnx.", 5) == 0 && fb_python_is_dotted(target, strlen(target)) ? target + 4 : NULL;
}

/* `hint` is the qualified name, or what torch.fx uses in its place. Of an operator of ONNX: the module that has it. */
static const char *code_global(code_writer *writer, fb_symbol qualified_name, const char *hint) {
    const char **place = &writer->globals[qualified_name.id];
    if (*place) return *place;
    const char *name = fb_text(writer->graph, qualified_name);
    if (strcmp(name, "torch.device") == 0) return *place = "device";
    if (is_from_torch(name, fb_text_length(writer->graph, qualified_name))) return *place = name;
    const char *builtin = builtin_name(name);
    if (builtin) return *place = builtin;
    if (!onnx_operator(name)) return keep(writer, place, create_global(writer, name, hint));
    if (!writer->onnx) keep(writer, &writer->onnx, create_global(writer, "onnx", "onnx"));
    return writer->onnx ? *place = writer->onnx : "";
}

/* `text` is made of words and characters of `marks`, has at least one word and no keyword but None, True and False. */
static bool code_is_plain(const char *text, size_t length, const char *marks) {
    bool has_words = false;
    for (size_t at = 0, size; at < length; at += size) {
        size_t end = at;
        for (; end < length; end += size) {
            if (!fb_unicode_continues_identifier(fb_utf8_decode(text + end, length - end, &size))) break;
        }
        if (end == at) {
            if (!text[at] || !strchr(marks, text[at])) return false;
            size = 1;
            continue;
        }
        /* None, True and False are the keywords that begin with a capital. */
        bool is_value = text[at] >= 'A' && text[at] <= 'Z';
        if (!is_value && fb_python_word(text + at, end - at) == FB_WORD_KEYWORD) return false;
        has_words = true;
        size = end - at;
    }
    return has_words;
}

static int compare_operators(const void *key, const void *entry) {
    return strcmp(key, ((const code_operator *)entry)->name);
}

/* The operator that a function target is printed as, or NULL. */
static const code_operator *code_find_operator(const char *target) {
    /* torch.fx's magic_methods and inplace_methods, sorted */
    static const code_operator operators[] = {
        {"add", "$ + $", false},      {"and_", "$ & $", false},       {"div", "$ / $", false},
        {"eq", "$ == $", false},      {"floordiv", "$ // $", false},  {"ge", "$ >= $", false},
        {"getitem", "$[$]", false},   {"gt", "$ > $", false},         {"iadd", "$ += $", true},
        {"iand", "$ &= $", true},     {"ifloordiv", "$ //= $", true}, {"ilshift", "$ <<= $", true},
        {"imatmul", "$ @= $", true},  {"imod", "$ %= $", true},       {"imul", "$ *= $", true},
        {"invert", "~$", false},      {"ior", "$ |= $", true},        {"ipow", "$ **= $", true},
        {"irshift", "$ >>= $", true}, {"isub", "$ -= $", true},       {"itruediv", "$ /= $", true},
        {"ixor", "$ ^= $", true},     {"le", "$ <= $", false},        {"lshift", "$ << $", false},
        {"lt", "$ < $", false},       {"matmul", "$ @ $", false},     {"mod", "$ % $", false},
        {"mul", "$ * $", false},      {"ne", "$ != $", false},        {"neg", "-$", false},
        {"or_", "$ | $", false},      {"pos", "+$", false},           {"pow", "$ ** $", false},
        {"rshift", "$ >> $", false},  {"setitem", "$[$] = $", true},  {"sub", "$ - $", false},
        {"truediv", "$ / $", false},  {"xor", "$ ^ $", false},
    };
    if (*target == '_') target++;
    if (!is_of_operator_module(target)) return NULL;
    return bsearch(target + strlen("operator."), operators, sizeof operators / sizeof *operators, sizeof *operators,
                   compare_operators);
}

/* ---- types --------------------------------------------------------------------------------------------------------------- */

/* Annotations, and the global names that they share with functions.
 *
 * A document has a type as torch.fx printed it: dotted names are torch's own, every other word is Python's or the global name
 * that was made for a class (typing_List, my_module_Cache). Such a name comes from the same namespace as the nodes' and is made
 * anew here, so that no node gets it. A class that is also called, or whose members are arguments, has one name for both. */

static code_class *find(const code_writer *writer, const char *word, size_t length, uint64_t hash) {
    uint32_t cursor = 0, id;
    while ((id = fb_map_next(&writer->class_index, hash, &cursor)) != 0) {
        code_class *found = fb_table_at(&writer->classes, id);
        if (found->length == length && memcmp(found->word, word, length) == 0) return found;
    }
    return NULL;
}

static const char *code_class_name(code_writer *writer, const char *word, size_t length, const char *hint, bool is_called) {
    uint64_t hash = fb_hash(word, length, (uintptr_t)writer->names);
    code_class *known = find(writer, word, length, hash);
    if (known && !(is_called && known->is_called)) {
        known->is_called |= is_called;
        return known->name;
    }
    const char *copy = fb_arena_text(&writer->texts, word, length);
    const char *name = copy ? fb_namespace_create(writer->names, hint ? hint : copy) : NULL;
    if (name && known) return name; /* another one that only looks the same without its dots */
    uint32_t id = name ? fb_table_add(&writer->classes) : 0;
    if (!id || !fb_map_add(&writer->class_index, hash, id)) return NULL;
    *(code_class *)fb_table_at(&writer->classes, id) = (code_class){copy, length, name, is_called};
    return name;
}

static void write_word(code_writer *writer, const char *word, size_t length, fb_buffer *out) {
    bool is_class = fb_python_is_identifier(word, length) && fb_python_word(word, length) == FB_WORD_FREE;
    const char *name = is_class ? code_class_name(writer, word, length, NULL, false) : NULL;
    if (is_class && !name) writer->failed = true;
    if (name) fb_buffer_string(out, name);
    else fb_buffer_append(out, word, length);
}

static void write(code_writer *writer, fb_symbol type, fb_buffer *out) {
    const char *text = fb_text(writer->graph, type);
    size_t length = fb_text_length(writer->graph, type);
    if (!code_is_plain(text, length, ".[]|, ")) {
        fb_repr_string(out, text, length); /* Python takes a string as an annotation */
        return;
    }
    for (size_t at = 0, size; at < length; at += size + 1) {
        for (size = 0; at + size < length && !strchr(" ,|[]", text[at + size]);) size++;
        write_word(writer, text + at, size, out);
        if (at + size < length) fb_buffer_char(out, text[at + size]);
    }
}

/* The text of an annotation; NULL without one, and when memory is out. */
static const char *code_type(code_writer *writer, fb_symbol type) {
    const char **place = &writer->types[type.id];
    if (!type.id) return NULL;
    if (*place) return *place;
    fb_buffer text = {0};
    write(writer, type, &text);
    const char *written = fb_buffer_text(&text);
    *place = written ? fb_arena_text(&writer->texts, written, text.size) : NULL;
    fb_buffer_free(&text);
    if (!*place) writer->failed = true;
    return *place;
}

/* ---- values -------------------------------------------------------------------------------------------------------------- */

static void code_value(code_writer *writer, fb_value value);

static void write_items(code_writer *writer, const fb_value_row *row) {
    for (uint32_t i = 0; i < row->count; i++) {
        if (i) fb_buffer_string(writer->out, ", ");
        code_value(writer, row->items[i]);
    }
}

static void write_tuple(code_writer *writer, const fb_value_row *row) {
    fb_buffer_char(writer->out, '(');
    write_items(writer, row);
    fb_buffer_string(writer->out, row->count == 1 ? ",)" : ")");
}

static void write_dict(code_writer *writer, const fb_value_row *row) {
    fb_buffer_char(writer->out, '{');
    for (uint32_t i = 0; i + 1 < row->count; i += 2) {
        if (i) fb_buffer_string(writer->out, ", ");
        code_value(writer, row->items[i]);
        fb_buffer_string(writer->out, ": ");
        code_value(writer, row->items[i + 1]);
    }
    fb_buffer_char(writer->out, '}');
}

static double part_of_complex(const fb_graph *graph, fb_value part) {
    double value = 0;
    if (!fb_value_is_number(graph, part, &value)) {
        const char *digits = fb_value_text(graph, part);
        if (digits) value = strtod(digits, NULL);
    }
    return value;
}

static void write_complex(code_writer *writer, const fb_value_row *row) {
    if (row->count != 2) return;
    double real = part_of_complex(writer->graph, row->items[0]), imaginary = part_of_complex(writer->graph, row->items[1]);
    if (isfinite(imaginary)) {
        fb_repr_complex(writer->out, real, imaginary);
        return;
    }
    fb_buffer_string(writer->out, "complex("); /* 1+infj would be the sum of 1 and something called infj */
    fb_repr_float(writer->out, real);
    fb_buffer_string(writer->out, ", ");
    fb_repr_float(writer->out, imaginary);
    fb_buffer_char(writer->out, ')');
}

/* "cuda:1" as repr(torch.device) has it */
static void write_device(fb_buffer *out, const char *text, size_t length) {
    const char *colon = memchr(text, ':', length);
    fb_buffer_string(out, "device(type=");
    fb_repr_string(out, text, colon ? (size_t)(colon - text) : length);
    if (colon) {
        fb_buffer_string(out, ", index=");
        fb_buffer_int(out, strtol(colon + 1, NULL, 10));
    }
    fb_buffer_char(out, ')');
}

/* torch.float32, torch.strided, torch.contiguous_format */
static void write_torch_member(fb_buffer *out, const char *text, size_t length) {
    if (!fb_python_is_identifier(text, length)) {
        fb_repr_string(out, text, length);
        return;
    }
    fb_buffer_string(out, "torch.");
    fb_buffer_append(out, text, length);
}

/* Class.NAME; a member whose name is not an identifier is looked up: Class['some name']. */
static void write_enum(code_writer *writer, const fb_value_row *row) {
    const char *class_name = fb_text(writer->graph, row->symbol);
    const char *last = strrchr(class_name, '.');
    fb_buffer_string(writer->out, code_global(writer, row->symbol, last ? last + 1 : class_name));
    const char *member = fb_value_text(writer->graph, row->count ? row->items[0] : (fb_value){0});
    if (!member) return;
    size_t length = strlen(member);
    bool is_attribute = fb_python_is_member(member, length);
    fb_buffer_char(writer->out, is_attribute ? '.' : '[');
    if (is_attribute) fb_buffer_append(writer->out, member, length);
    else fb_repr_string(writer->out, member, length);
    if (!is_attribute) fb_buffer_char(writer->out, ']');
}

static bool is_number(const char *text, size_t length) {
    size_t sign = text[0] == '-';
    return length > sign && strspn(text + sign, "0123456789") == length - sign;
}

static void write_text(code_writer *writer, const fb_value_row *row) {
    const char *text = fb_text(writer->graph, row->symbol);
    size_t length = fb_text_length(writer->graph, row->symbol);
    switch ((fb_kind)row->kind) {
    case FB_BIG_INT:
        if (is_number(text, length)) fb_buffer_append(writer->out, text, length);
        else fb_repr_string(writer->out, text, length);
        break;
    case FB_DTYPE:
    case FB_LAYOUT:
    case FB_MEMORY_FORMAT: write_torch_member(writer->out, text, length); break;
    case FB_DEVICE: write_device(writer->out, text, length); break;
    case FB_OPAQUE:
        if (code_is_plain(text, length, ".[] ")) fb_buffer_append(writer->out, text, length);
        else fb_repr_string(writer->out, text, length);
        break;
    default: fb_repr_string(writer->out, text, length);
    }
}

static void code_value(code_writer *writer, fb_value value) {
    fb_buffer *out = writer->out;
    const fb_value_row *row = value.id ? fb_value_at(writer->graph, value) : &(fb_value_row){.kind = FB_NONE};
    switch ((fb_kind)row->kind) {
    case FB_FALSE: fb_buffer_string(out, "False"); break;
    case FB_TRUE: fb_buffer_string(out, "True"); break;
    case FB_INT: fb_buffer_int(out, row->integer); break;
    case FB_FLOAT: fb_repr_float(out, row->real); break;
    case FB_NODE: fb_buffer_string(out, code_node_name(writer, fb_value_node(writer->graph, value))); break;
    case FB_STRING:
    case FB_BIG_INT:
    case FB_DTYPE:
    case FB_DEVICE:
    case FB_LAYOUT:
    case FB_MEMORY_FORMAT:
    case FB_OPAQUE: write_text(writer, row); break;
    case FB_REF: fb_buffer_string(out, code_global(writer, row->symbol, fb_text(writer->graph, row->symbol))); break;
    case FB_ELLIPSIS: fb_buffer_string(out, "Ellipsis"); break;
    case FB_ENUM: write_enum(writer, row); break;
    case FB_COMPLEX: write_complex(writer, row); break;
    case FB_SLICE:
        fb_buffer_string(out, "slice(");
        write_items(writer, row);
        fb_buffer_char(out, ')');
        break;
    case FB_LIST:
        fb_buffer_char(out, '[');
        write_items(writer, row);
        fb_buffer_char(out, ']');
        break;
    case FB_NAMED_TUPLE:
        fb_buffer_string(out, code_global(writer, row->symbol, fb_text(writer->graph, row->symbol)));
        write_tuple(writer, row);
        break;
    case FB_TUPLE:
    case FB_SIZE: write_tuple(writer, row); break; /* torch.fx turns sizes into tuples */
    case FB_DICT: write_dict(writer, row); break;
    case FB_NONE:
    default: fb_buffer_string(out, "None"); /* the other kinds are not arguments */
    }
}

/* `a, b, key = c`, from the given positional argument on. */
static void code_arguments(code_writer *writer, const fb_node_row *row, size_t from) {
    const fb_value_row *args = fb_value_at(writer->graph, row->args);
    const fb_value_row *kwargs = fb_value_at(writer->graph, row->kwargs);
    const char *separator = "";
    for (size_t i = from; i < args->count; i++, separator = ", ") {
        fb_buffer_string(writer->out, separator);
        code_value(writer, args->items[i]);
    }
    for (uint32_t i = 0; i + 1 < kwargs->count; i += 2, separator = ", ") {
        const char *key = fb_value_text(writer->graph, kwargs->items[i]);
        if (!key) continue;
        size_t length = strlen(key);
        bool is_keyword = fb_python_is_member(key, length);
        fb_buffer_string(writer->out, separator);
        if (is_keyword) {
            fb_buffer_append(writer->out, key, length);
            fb_buffer_string(writer->out, " = ");
            code_value(writer, kwargs->items[i + 1]);
            continue;
        }
        fb_buffer_string(writer->out, "**{");
        fb_repr_string(writer->out, key, length);
        fb_buffer_string(writer->out, ": ");
        code_value(writer, kwargs->items[i + 1]);
        fb_buffer_char(writer->out, '}');
    }
}

/* The first part of `path` and, in `rest`, what comes behind its dot (NULL: nothing). */
static size_t first_part(const char *path, const char *end, const char **rest) {
    const char *dot = memchr(path, '.', (size_t)(end - path));
    *rest = dot ? dot + 1 : NULL;
    return (size_t)((dot ? dot : end) - path);
}

/* torch.fx puts the part between double quotes as it is. */
static void write_quoted_part(fb_buffer *out, const char *part, size_t length) {
    bool is_harmless = true;
    for (size_t at = 0, size; at < length; at += size) {
        uint32_t code = fb_utf8_decode(part + at, length - at, &size);
        if (code < 0x20 || code == 0x7f || code == '"' || code == '\\' || code == UINT32_MAX) is_harmless = false;
    }
    if (!is_harmless) {
        fb_repr_string(out, part, length);
        return;
    }
    fb_buffer_char(out, '"');
    fb_buffer_append(out, part, length);
    fb_buffer_char(out, '"');
}

/* The attribute path below a value (none = self): `.part` for an identifier, getattr for anything else. */
static void code_path(code_writer *writer, fb_value base, const char *path, size_t length) {
    const char *end = path + length, *rest;
    for (const char *part = path; part; part = rest) {
        if (!fb_python_is_member(part, first_part(part, end, &rest))) fb_buffer_string(writer->out, "getattr(");
    }
    if (base.id) code_value(writer, base);
    else fb_buffer_string(writer->out, "self");
    for (const char *part = path; part; part = rest) {
        size_t size = first_part(part, end, &rest);
        if (fb_python_is_member(part, size)) {
            fb_buffer_char(writer->out, '.');
            fb_buffer_append(writer->out, part, size);
            continue;
        }
        fb_buffer_string(writer->out, ", ");
        write_quoted_part(writer->out, part, size);
        fb_buffer_char(writer->out, ')');
    }
}

/* ---- the program --------------------------------------------------------------------------------------------------------- */

#define INDENT "    "

/* A parameter whose node has another name in the code, as it has where the parameter is called like something of Python's or
 * PyTorch's: `input_1 = input`. */
typedef struct code_parameter {
    fb_node node;
    const char *word;
    size_t begin, end; /* of that line in the body */
    bool is_known;     /* it hides something, or what the word means from here on is a node */
} code_parameter;

/* One program being written. The writer's output is `body`, but for parameters and the type of the result. */
typedef struct program_writer {
    code_writer writer;
    fb_work *work;
    const fb_map *hidden; /* by node: the parameter is called as its node is */
    fb_table renamed;     /* of code_parameter */
    fb_map by_word;       /* hash of the word -> renamed */
    fb_buffer wraps, parameters, body, result_type;
    fb_map wrapped;       /* symbols of the wrapped functions that are listed in `wraps` */
    fb_node *freed_after; /* by node: its last reader */
} program_writer;

static void write_type(code_writer *writer, const char *before, fb_symbol type) {
    const char *text = code_type(writer, type);
    if (!text) return;
    fb_buffer_string(writer->out, before);
    fb_buffer_string(writer->out, text);
}

/* `name : type = ` */
static void write_result(code_writer *writer, fb_node node, const fb_node_row *row) {
    fb_buffer_string(writer->out, code_node_name(writer, node));
    write_type(writer, " : ", row->type);
    fb_buffer_string(writer->out, " = ");
}

/* The name of the parameter behind its stars; NULL when nothing can be assigned to it. */
static const char *parameter_name(const char *target) {
    size_t stars = strspn(target, "*");
    size_t length = strlen(target + stars);
    bool is_name = stars <= 2 && fb_python_is_identifier(target + stars, length) &&
                   fb_python_word(target + stars, length) != FB_WORD_KEYWORD && strcmp(target + stars, "__debug__") != 0;
    return is_name ? target + stars : NULL;
}

static uint64_t hash_word(const program_writer *program, const char *word, size_t length) {
    return fb_hash(word, length, (uintptr_t)program->writer.names);
}

static void note_renamed(program_writer *program, fb_node node, const char *word, size_t begin) {
    uint32_t id = fb_table_add(&program->renamed);
    if (id)
        *(code_parameter *)fb_table_at(&program->renamed, id) = (code_parameter){node, word, begin, program->body.size, false};
    if (!id || !fb_map_add(&program->by_word, hash_word(program, word, strlen(word)), id)) program->writer.failed = true;
}

static void write_placeholder(program_writer *program, fb_node node, const fb_node_row *row) {
    code_writer *writer = &program->writer;
    const char *target = fb_text(writer->graph, row->target);
    const char *parameter = parameter_name(target);
    bool is_hidden = parameter && fb_map_get(program->hidden, node.id);
    const fb_value_row *args = fb_value_at(writer->graph, row->args);
    writer->out = &program->parameters;
    if (program->parameters.size) fb_buffer_string(writer->out, ", ");
    if (is_hidden) fb_buffer_append(writer->out, target, (size_t)(parameter - target)); /* its stars */
    fb_buffer_string(writer->out, parameter && !is_hidden ? target : code_node_name(writer, node));
    write_type(writer, " : ", row->type);
    if (args->count) {
        fb_buffer_string(writer->out, " = ");
        code_value(writer, args->items[0]);
    }
    writer->out = &program->body;
    const char *name = code_node_name(writer, node);
    if (!parameter || is_hidden || strcmp(parameter, name) == 0) return;
    size_t begin = program->body.size;
    fb_buffer_string(writer->out, INDENT);
    fb_buffer_string(writer->out, name);
    fb_buffer_string(writer->out, " = ");
    fb_buffer_string(writer->out, parameter);
    fb_buffer_char(writer->out, '\n');
    note_renamed(program, node, parameter, begin);
}

/* torch.fx leaves out arguments beyond the operands, but has given their names away by then; so does this. */
static void write_operator(code_writer *writer, const char *format, const fb_value_row *args) {
    size_t next = 0;
    for (const char *c = format; *c; c++) {
        if (*c == '$') code_value(writer, args->items[next++]);
        else fb_buffer_char(writer->out, *c);
    }
    size_t end = writer->out->size;
    while (next < args->count) code_value(writer, args->items[next++]);
    writer->out->size = end;
}

static size_t operand_count(const char *format) {
    size_t count = 0;
    for (const char *c = format; *c; c++) count += *c == '$';
    return count;
}

static void list_wrapped(program_writer *program, const fb_node_row *row, const char *global) {
    const fb_graph *graph = program->writer.graph;
    const char *is_wrapped = fb_value_text(graph, fb_map_value(graph, row->meta_rest, "is_wrapped"));
    if (!is_wrapped || strcmp(is_wrapped, "true") != 0 || fb_map_get(&program->wrapped, row->target.id)) return;
    if (!fb_map_put(&program->wrapped, row->target.id, 1)) program->writer.failed = true;
    if (program->wraps.size) fb_buffer_char(&program->wraps, '\n');
    fb_buffer_string(&program->wraps, "torch.fx._symbolic_trace.wrap(\"");
    fb_buffer_string(&program->wraps, global);
    fb_buffer_string(&program->wraps, "\")");
}

static void write_function(program_writer *program, fb_node node, const fb_node_row *row) {
    code_writer *writer = &program->writer;
    const char *target = fb_text(writer->graph, row->target);
    const fb_value_row *args = fb_value_at(writer->graph, row->args);
    const code_operator *printed = code_find_operator(target);
    if (printed && args->count >= operand_count(printed->format)) {
        if (!printed->is_statement) write_result(writer, node, row);
        write_operator(writer, printed->format, args);
        if (!printed->is_statement) return;
        fb_buffer_string(writer->out, ";  ");
        write_result(writer, node, row);
        code_value(writer, args->items[0]);
        return;
    }
    const char *global = code_global(writer, row->target, target); /* gets its name before the node does */
    write_result(writer, node, row);
    if (strcmp(global, "getattr") == 0 && args->count == 2 && fb_value_kind(writer->graph, args->items[1]) == FB_STRING) {
        const char *attribute = fb_value_text(writer->graph, args->items[1]);
        if (fb_python_is_identifier(attribute, strlen(attribute))) {
            code_path(writer, args->items[0], attribute, strlen(attribute));
            return;
        }
    }
    fb_buffer_string(writer->out, global);
    if (onnx_operator(target)) fb_buffer_string(writer->out, onnx_operator(target));
    fb_buffer_char(writer->out, '(');
    code_arguments(writer, row, 0);
    fb_buffer_char(writer->out, ')');
    list_wrapped(program, row, global);
}

static void write_call(code_writer *writer, const fb_node_row *row, fb_value self, size_t from) {
    code_path(writer, self, fb_text(writer->graph, row->target), fb_text_length(writer->graph, row->target));
    fb_buffer_char(writer->out, '(');
    code_arguments(writer, row, from);
    fb_buffer_char(writer->out, ')');
}

static void write_statement(program_writer *program, fb_node node, const fb_node_row *row) {
    code_writer *writer = &program->writer;
    fb_value first = fb_node_arg(writer->graph, node, 0);
    switch ((fb_opcode)row->opcode) {
    case FB_CALL_FUNCTION: write_function(program, node, row); break;
    case FB_CALL_METHOD:
        write_result(writer, node, row);
        write_call(writer, row, first, 1);
        break;
    case FB_CALL_MODULE:
        write_result(writer, node, row);
        write_call(writer, row, (fb_value){0}, 0);
        break;
    case FB_GET_ATTR:
        write_result(writer, node, row);
        code_path(writer, (fb_value){0}, fb_text(writer->graph, row->target), fb_text_length(writer->graph, row->target));
        break;
    case FB_OUTPUT:
        writer->out = &program->result_type;
        write_type(writer, " -> ", row->type);
        writer->out = &program->body;
        fb_buffer_string(writer->out, "return ");
        code_value(writer, first);
        break;
    case FB_PLACEHOLDER: break; /* write_placeholder */
    }
}

/* Frees what nothing reads from here on: `;  a = b = None`. */
static void write_frees(program_writer *program, fb_node node, const fb_node_row *row) {
    code_writer *writer = &program->writer;
    const char *separator = ";  ";
    for (uint32_t edge = fb_input_first(writer->graph, node); edge; edge = fb_input_next(writer->graph, edge)) {
        fb_node input = fb_edge_input(writer->graph, edge);
        if (program->freed_after[input.id].id != node.id) continue;
        fb_buffer_string(writer->out, separator);
        fb_buffer_string(writer->out, code_node_name(writer, input));
        separator = " = ";
    }
    if (row->user_count == 0) {
        fb_buffer_string(writer->out, separator);
        fb_buffer_string(writer->out, code_node_name(writer, node));
        separator = " = ";
    }
    if (separator[0] == ' ') fb_buffer_string(writer->out, " = None");
}

static void find_last_readers(program_writer *program, fb_program which) {
    const fb_graph *graph = program->writer.graph;
    for (fb_node node = fb_last_node(graph, which); node.id && fb_work_goes_on(program->work, 4);
         node = fb_node_at(graph, node)->previous) {
        for (uint32_t edge = fb_input_first(graph, node); edge; edge = fb_input_next(graph, edge)) {
            fb_node *reader = &program->freed_after[fb_edge_input(graph, edge).id];
            if (!reader->id) *reader = node;
        }
    }
}

static void write_body(program_writer *program, fb_program which) {
    code_writer *writer = &program->writer;
    fb_node node = fb_first_node(writer->graph, which);
    if (!node.id) fb_buffer_string(writer->out, INDENT "pass\n");
    while (node.id) {
        if (!fb_work_goes_on(program->work, 32)) { /* a microsecond or two a node */
            writer->failed = true;
            return;
        }
        const fb_node_row *row = fb_node_at(writer->graph, node);
        code_type(writer, row->type); /* torch.fx names the classes in a type before anything else of the node */
        if (row->opcode == FB_PLACEHOLDER) {
            write_placeholder(program, node, row);
        } else {
            fb_buffer_string(writer->out, INDENT);
            write_statement(program, node, row);
            if (row->opcode != FB_OUTPUT) write_frees(program, node, row);
            fb_buffer_char(writer->out, '\n');
        }
        node = row->next;
    }
}

/* A first parameter that is called self is the one that Python passes. */
static bool has_self(const fb_buffer *parameters) {
    static const char self[] = "self";
    if (parameters->size < 4 || memcmp(parameters->data, self, 4) != 0) return false;
    return parameters->size == 4 || parameters->data[4] == ',';
}

static void join(const program_writer *program, fb_buffer *out) {
    fb_buffer_char(out, '\n');
    fb_buffer_append(out, program->wraps.data, program->wraps.size);
    fb_buffer_string(out, "\n\ndef forward(");
    if (!has_self(&program->parameters)) fb_buffer_string(out, program->parameters.size ? "self, " : "self");
    fb_buffer_append(out, program->parameters.data, program->parameters.size);
    fb_buffer_char(out, ')');
    fb_buffer_append(out, program->result_type.data, program->result_type.size);
    fb_buffer_string(out, ":\n");
    fb_buffer_append(out, program->body.data, program->body.size);
    fb_buffer_string(out, INDENT);
    if (program->wraps.failed || program->parameters.failed || program->body.failed || program->result_type.failed) {
        out->failed = true;
    }
}

/* ---- parameters that hide something -------------------------------------------------------------------------------------- */

static bool is_in_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (unsigned char)c >= 0x80;
}

static const char *behind_string(const char *quote, const char *end) {
    const char *at = quote + 1;
    while (at < end && *at != *quote) at += *at == '\\' ? 2 : 1;
    return at < end ? at + 1 : end;
}

static code_parameter *find_renamed(const program_writer *program, const char *word, size_t length) {
    uint32_t cursor = 0, id;
    while ((id = fb_map_next(&program->by_word, hash_word(program, word, length), &cursor)) != 0) {
        code_parameter *found = fb_table_at(&program->renamed, id);
        if (!found->is_known && strlen(found->word) == length && memcmp(found->word, word, length) == 0) return found;
    }
    return NULL;
}

/* The parameter is called as its node; so is another one then, whose word that was. */
static void hide(program_writer *program, code_parameter *parameter, fb_map *hidden) {
    while (parameter) {
        parameter->is_known = true;
        if (!fb_map_put(hidden, parameter->node.id, 1)) program->writer.failed = true;
        const char *name = code_node_name(&program->writer, parameter->node);
        parameter = find_renamed(program, name, strlen(name));
    }
}

/* Looks for what the body says by a parameter's word and is not the parameter: something of Python's or PyTorch's, or a node
 * before the line that reads the parameter. Behind that line a node may have the name. */
static void find_hidden(program_writer *program, fb_map *hidden) {
    const char *body = program->body.data, *end = body + program->body.size;
    int depth = 0;
    for (const char *at = body; at < end;) {
        if (*at == '\'' || *at == '"') {
            at = behind_string(at, end);
        } else if (!is_in_word(*at)) {
            depth += strchr("([{", *at) ? 1 : strchr(")]}", *at) ? -1 : 0;
            at++;
        } else {
            const char *word = at;
            while (at < end && is_in_word(*at)) at++;
            bool is_attribute = word > body && word[-1] == '.';
            code_parameter *said = is_attribute ? NULL : find_renamed(program, word, (size_t)(at - word));
            if (!said || (size_t)(word - body) - said->begin < said->end - said->begin) continue;
            bool is_named = end - at > 3 && (strncmp(at, " = ", 3) == 0 || strncmp(at, " : ", 3) == 0);
            if (depth && (is_named || (end > at && *at == '='))) continue; /* a keyword argument, also in device(type='cpu') */
            if (is_named && (size_t)(word - body) > said->begin) said->is_known = true;
            else hide(program, said, hidden);
        }
    }
}

static void write_program(const fb_graph *graph, fb_program which, fb_work *work, fb_map *hidden, fb_buffer *out) {
    program_writer program = {
        .work = work,
        .hidden = hidden,
        .renamed = {.row_size = sizeof(code_parameter)},
        .freed_after = calloc((size_t)fb_node_limit(graph) + 1, sizeof(fb_node)),
    };
    program.writer.out = &program.body;
    if (code_writer_init(&program.writer, graph) && program.freed_after) {
        find_last_readers(&program, which);
        write_body(&program, which);
        if (program.renamed.count && !program.body.failed) find_hidden(&program, hidden);
        join(&program, out);
    } else {
        program.writer.failed = true;
    }
    if (program.writer.failed) out->failed = true;
    code_writer_free(&program.writer);
    free(program.freed_after);
    fb_map_free(&program.wrapped);
    fb_table_free(&program.renamed);
    fb_map_free(&program.by_word);
    fb_buffer_free(&program.wraps);
    fb_buffer_free(&program.parameters);
    fb_buffer_free(&program.body);
    fb_buffer_free(&program.result_type);
}

static void write_whole(const fb_graph *graph, fb_program which, fb_work *work, fb_buffer *out) {
    fb_map hidden = {0};
    size_t begin = out->size;
    write_program(graph, which, work, &hidden, out);
    if (hidden.used && !out->failed) {
        out->size = begin;
        write_program(graph, which, work, &hidden, out);
    }
    fb_map_free(&hidden);
}

bool fb_code_write(const fb_graph *graph, fb_program which, fb_work *work, fb_buffer *out) {
    write_whole(graph, which, work, out);
    bool has_others = which.id == FB_MAIN_PROGRAM.id && fb_graph_is_onnx(graph);
    for (fb_module m = has_others ? fb_first_module(graph) : (fb_module){0}; m.id && !out->failed;
         m = fb_module_at(graph, m)->next) {
        const fb_module_row *row = fb_module_at(graph, m);
        if (!row->program.id || row->program.id == which.id) continue;
        fb_buffer_string(out, "\n\n# ");
        fb_repr_string(out, fb_text(graph, row->path), fb_text_length(graph, row->path));
        write_whole(graph, row->program, work, out);
    }
    return !out->failed;
}
