/* Names in generated code: nodes, functions and classes, and the functions that are printed as operators. */
#include <stdlib.h>
#include <string.h>

#include "core/graph/code_writer.h"
#include "core/graph/python.h"
#include "core/operators/spelling.h"

bool fb_code_writer_init(fb_code_writer *writer, const fb_graph *graph) {
    size_t node_count = (size_t)fb_node_limit(graph) + 1, symbol_count = (size_t)fb_symbol_limit(graph) + 1;
    writer->graph = graph;
    writer->names = fb_namespace_new();
    writer->node_names = calloc(node_count, sizeof(const char *));
    writer->globals = calloc(symbol_count, sizeof(const char *));
    writer->types = calloc(symbol_count, sizeof(const char *));
    writer->classes = (fb_table){.row_size = sizeof(fb_code_class)};
    return writer->names && writer->node_names && writer->globals && writer->types;
}

void fb_code_writer_free(fb_code_writer *writer) {
    fb_namespace_free(writer->names);
    free(writer->node_names);
    free(writer->globals);
    free(writer->types);
    fb_table_free(&writer->classes);
    fb_map_free(&writer->class_index);
    fb_arena_free(&writer->texts);
}

static const char *keep(fb_code_writer *writer, const char **place, const char *name) {
    if (!name) {
        writer->failed = true;
        return "";
    }
    return *place = name;
}

const char *fb_code_node_name(fb_code_writer *writer, fb_node node) {
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
    if (strncmp(qualified_name, "torch.Tensor.", 13) == 0) return is_python_method(qualified_name + 13);
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

static const char *create_global(fb_code_writer *writer, const char *qualified_name, const char *hint) {
    fb_buffer word = {0}, actual = {0};
    if (is_defined_in_c(hint)) fb_buffer_char(&actual, '_');
    fb_buffer_string(&actual, hint);
    for (const char *c = qualified_name; *c; c++) fb_buffer_char(&word, *c == '.' ? '_' : *c);
    const char *candidate = fb_buffer_text(&actual), *name = NULL;
    if (candidate && !word.failed) name = fb_code_class_name(writer, word.data, word.size, candidate, true);
    fb_buffer_free(&word);
    fb_buffer_free(&actual);
    return name;
}

const char *fb_code_global(fb_code_writer *writer, fb_symbol qualified_name, const char *hint) {
    const char **place = &writer->globals[qualified_name.id];
    if (*place) return *place;
    const char *name = fb_text(writer->graph, qualified_name);
    if (strcmp(name, "torch.device") == 0) return *place = "device";
    if (is_from_torch(name, fb_text_length(writer->graph, qualified_name))) return *place = name;
    const char *builtin = builtin_name(name);
    if (builtin) return *place = builtin;
    return keep(writer, place, create_global(writer, name, hint));
}

bool fb_code_is_plain(const char *text, size_t length, const char *marks) {
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
    return strcmp(key, ((const fb_code_operator *)entry)->name);
}

const fb_code_operator *fb_code_find_operator(const char *target) {
    /* torch.fx's magic_methods and inplace_methods, sorted */
    static const fb_code_operator operators[] = {
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
