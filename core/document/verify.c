#include "core/document/document.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/module.h"
#include "core/base/base64.h"
#include "core/base/map.h"
#include "core/base/sha256.h"
#include "core/weights/recipe.h"

typedef struct checker {
    const fb_graph *graph;
    fb_errors *errors;
    fb_work *work;
    uint64_t *names;      /* a bit for each symbol: the list at hand has a row of that name */
    uint64_t *targets;    /* likewise: the program at hand has a placeholder of that target */
    bool *module_is_used; /* by module: something calls it or reads an attribute of it */
    bool *tensor_is_used; /* by tensor: a module owns it or a recipe reads it */
    bool *is_indexed;     /* by module: its attributes are in `attributes` */
    fb_map attributes;    /* module << 32 | symbol of the attribute's name */
} checker;

/* ---- errors ------------------------------------------------------------------------------------------------------------ */

#define STEPS_OF_A_ROW 64 /* some microseconds, with a few arguments */

static bool goes_on(const checker *check, int64_t rows) {
    return fb_work_goes_on(check->work, STEPS_OF_A_ROW * rows);
}

static size_t module_position(const fb_graph *graph, fb_module module) {
    size_t position = 0;
    while (module.id && (module = fb_module_at(graph, module)->previous).id) position++;
    return position;
}

/* Beyond the limit errors are only counted: their pointers would cost too much. */
static bool is_full(const fb_errors *errors) {
    return errors->count >= (errors->limit ? errors->limit : 100);
}

/* An error at a node's member ("/target") or at the node itself (""). */
__attribute__((format(printf, 5, 6))) static void node_error(checker *check, fb_node node, const char *member, const char *code,
                                                             const char *format, ...) {
    if (is_full(check->errors)) {
        check->errors->total++;
        return;
    }
    const fb_node_row *row = fb_node_at(check->graph, node);
    fb_module owner = fb_program_at(check->graph, row->program)->owner;
    char pointer[96];
    if (owner.id) {
        snprintf(pointer, sizeof pointer, "/modules/%zu/graph/nodes/%u%s", module_position(check->graph, owner), row->ordinal,
                 member);
    } else {
        snprintf(pointer, sizeof pointer, "/nodes/%u%s", row->ordinal, member);
    }
    va_list args;
    va_start(args, format);
    fb_error *error = fb_errors_add_list(check->errors, code, pointer, format, args);
    va_end(args);
    const char *name = fb_text(check->graph, row->name);
    if (name[0] != '\n') fb_error_set_node(error, name); /* not the reader's stand-in for a bad name */
}

/* An error at a module's or a tensor's member: ("/modules", 3, "/path"). */
__attribute__((format(printf, 6, 7))) static void row_error(checker *check, const char *section, size_t index,
                                                            const char *member, const char *code, const char *format, ...) {
    char pointer[96];
    snprintf(pointer, sizeof pointer, "%s/%zu%s", section, index, member);
    va_list args;
    va_start(args, format);
    fb_errors_add_list(check->errors, code, pointer, format, args);
    va_end(args);
}

/* True once per name in a list: a program, the modules, or the tensors. */
static bool is_new(uint64_t *seen, fb_symbol name) {
    uint64_t bit = 1ULL << name.id % 64, *word = &seen[name.id / 64];
    bool is_known = *word & bit;
    *word |= bit;
    return !is_known;
}

/* At the end of a list. */
static void forget_names(checker *check) {
    memset(check->names, 0, (fb_symbol_limit(check->graph) / 64 + 1) * sizeof *check->names);
}

/* At the end of a program: there may be many small ones, so as much is done as it has nodes. */
static void forget_program(checker *check, fb_program program) {
    for (fb_node n = fb_first_node(check->graph, program); n.id; n = fb_node_at(check->graph, n)->next) {
        check->names[fb_node_at(check->graph, n)->name.id / 64] = 0;
        check->targets[fb_node_at(check->graph, n)->target.id / 64] = 0;
    }
}

/* ---- nodes ------------------------------------------------------------------------------------------------------------- */

static void index_attributes(checker *check, fb_module module) {
    if (check->is_indexed[module.id]) return;
    check->is_indexed[module.id] = true;
    const fb_module_row *row = fb_module_at(check->graph, module);
    const fb_value maps[] = {row->parameters, row->buffers, row->attributes};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        if (!maps[i].id) continue;
        const fb_value_row *map = fb_value_at(check->graph, maps[i]);
        for (uint32_t j = 0; j < map->count && goes_on(check, 1); j += 2) {
            uint64_t key = (uint64_t)module.id << 32 | fb_value_at(check->graph, map->items[j])->symbol.id;
            if (!fb_map_put(&check->attributes, key, 1)) check->errors->out_of_memory = true;
        }
    }
}

static void check_reference(checker *check, fb_node node, const fb_node_row *row) {
    const fb_graph *graph = check->graph;
    if (!row->module.id) {
        node_error(check, node, "/target", "unknown-module", "there is no module for the target \"%s\"",
                   fb_text(graph, row->target));
        return;
    }
    check->module_is_used[row->module.id] = true;
    if (row->opcode != FB_GET_ATTR || !row->attribute.id) return;
    index_attributes(check, row->module);
    if (fb_map_get(&check->attributes, (uint64_t)row->module.id << 32 | row->attribute.id) || check->errors->out_of_memory)
        return;
    node_error(check, node, "/target", "unknown-attribute", "module \"%s\" has no attribute \"%s\"",
               fb_text(graph, fb_module_at(graph, row->module)->path), fb_text(graph, row->attribute));
}

static void check_arguments(checker *check, fb_node node, const fb_node_row *row) {
    static const struct {
        uint32_t min, max;
        bool takes_kwargs;
        const char *message;
    } rules[] = {
        [FB_PLACEHOLDER] = {0, 1, false, "a placeholder has at most one argument, its default"},
        [FB_GET_ATTR] = {0, 0, false, "a get_attr has no arguments"},
        [FB_CALL_MODULE] = {0, UINT32_MAX, true, ""},
        [FB_CALL_FUNCTION] = {0, UINT32_MAX, true, ""},
        [FB_CALL_METHOD] = {1, UINT32_MAX, true, "a method's first argument is its self"},
        [FB_OUTPUT] = {1, 1, false, "an output has one argument, its value"},
    };
    uint32_t count = fb_value_at(check->graph, row->args)->count;
    const char *message = rules[row->opcode].message;
    if (count < rules[row->opcode].min || count > rules[row->opcode].max) {
        node_error(check, node, "/args", "bad-arguments", "%s", message);
    }
    if (!rules[row->opcode].takes_kwargs && fb_value_at(check->graph, row->kwargs)->count > 0) {
        node_error(check, node, "/kwargs", "bad-arguments", "%s", message);
    }
}

static void check_order(checker *check, fb_node node, const fb_node_row *row) {
    for (uint32_t edge = fb_input_first(check->graph, node); edge && fb_work_goes_on(check->work, 1);
         edge = fb_input_next(check->graph, edge)) {
        const fb_node_row *input = fb_node_at(check->graph, fb_edge_input(check->graph, edge));
        if (!input->is_erased && input->program.id == row->program.id && input->ordinal < row->ordinal) continue;
        node_error(check, node, "", input->is_erased ? "unknown-node" : "forward-reference", "node \"%s\" is read %s",
                   fb_text(check->graph, input->name), input->is_erased ? "and does not exist" : "before it is defined");
    }
}

static void check_node(checker *check, fb_node node, const fb_node_row *row) {
    const fb_graph *graph = check->graph;
    if (!is_new(check->names, row->name)) {
        node_error(check, node, "/name", "duplicate-name", "there are two nodes \"%s\"", fb_text(graph, row->name));
    }
    check_arguments(check, node, row);
    check_order(check, node, row);
    if (row->opcode == FB_CALL_MODULE || row->opcode == FB_GET_ATTR) check_reference(check, node, row);
    if (row->opcode == FB_PLACEHOLDER && !is_new(check->targets, row->target)) {
        node_error(check, node, "/target", "duplicate-name", "there are two inputs \"%s\"", fb_text(graph, row->target));
    }
    if (row->meta_rest.id && row->opcode != FB_CALL_FUNCTION) {
        const char *wrapped = fb_value_text(graph, fb_map_value(graph, row->meta_rest, "is_wrapped"));
        if (wrapped && strcmp(wrapped, "true") == 0) {
            node_error(check, node, "/meta/is_wrapped", "bad-wrap", "only a call_function can be a wrapped function");
        }
    }
}

static void check_program(checker *check, fb_program program) {
    const fb_graph *graph = check->graph;
    fb_node output = {0};
    bool all_are_known = true; /* a node that could not be read might have been the output */
    for (fb_node n = fb_first_node(graph, program); n.id && goes_on(check, 1); n = fb_next_node(graph, n)) {
        const fb_node_row *row = fb_node_at(graph, n);
        if (!row->opcode || !row->target.id) {
            all_are_known = false;
            continue;
        }
        check_node(check, n, row);
        if (row->opcode != FB_OUTPUT) continue;
        if (output.id) node_error(check, n, "", "duplicate-output", "there are two output nodes");
        else if (row->next.id) node_error(check, n, "", "output-not-last", "nodes follow the output");
        output = n;
    }
    forget_program(check, program);
    if (output.id || !all_are_known) return;
    fb_module owner = fb_program_at(graph, program)->owner;
    char pointer[64] = "/nodes";
    if (owner.id) snprintf(pointer, sizeof pointer, "/modules/%zu/graph/nodes", module_position(graph, owner));
    fb_errors_add(check->errors, "missing-output", pointer, "the last node of a program is its output");
}

/* ---- modules ----------------------------------------------------------------------------------------------------------- */

/* Marks the tensors of one map; true if there is one. `is_whole` becomes false when one of them could not be read. */
static bool mark_owned(checker *check, fb_value map, bool *is_whole) {
    const fb_value_row *row = fb_value_at(check->graph, map);
    bool owns = false;
    for (uint32_t i = 1; i < row->count && goes_on(check, 1); i += 2) {
        fb_tensor tensor = fb_value_tensor(check->graph, row->items[i]);
        if (!tensor.id) continue;
        owns = true;
        check->tensor_is_used[tensor.id] = true;
        if (!fb_tensor_at(check->graph, tensor)->dtype) *is_whole = false;
    }
    return owns;
}

/* The same names, and tensors of the same shapes. */
static bool own_alike(const fb_graph *graph, fb_value one_map, fb_value other_map) {
    const fb_value_row *one = fb_value_at(graph, one_map), *other = fb_value_at(graph, other_map);
    bool are_alike = one->count == other->count;
    for (uint32_t i = 0; are_alike && i < one->count; i += 2) {
        fb_tensor a = fb_value_tensor(graph, one->items[i + 1]), b = fb_value_tensor(graph, other->items[i + 1]);
        are_alike = one->items[i].id == other->items[i].id && !a.id == !b.id &&
                    (!a.id || fb_tensor_at(graph, a)->shape.id == fb_tensor_at(graph, b)->shape.id);
    }
    return are_alike;
}

enum { RIGHT_MODULES = 64 };

/* Checks the config against the tensors, unless a module in `right` with the same ones was checked before. */
static void check_config(checker *check, fb_module module, size_t position, fb_module right[RIGHT_MODULES]) {
    const fb_graph *graph = check->graph;
    const fb_module_row *row = fb_module_at(graph, module);
    fb_module *before = &right[row->config.id % RIGHT_MODULES];
    const fb_module_row *other = before->id ? fb_module_at(graph, *before) : NULL;
    if (other && other->type.id == row->type.id && other->config.id == row->config.id &&
        own_alike(graph, other->parameters, row->parameters) && own_alike(graph, other->buffers, row->buffers))
        return;
    size_t errors = check->errors->total;
    fb_module_check(graph, module, position, check->errors);
    if (check->errors->total == errors) *before = module;
}

static void check_modules(checker *check) {
    const fb_graph *graph = check->graph;
    fb_module right[RIGHT_MODULES] = {{0}};
    size_t position = 0;
    bool has_root = false;
    for (fb_module m = fb_first_module(graph); m.id && goes_on(check, 1); m = fb_module_at(graph, m)->next, position++) {
        const fb_module_row *row = fb_module_at(graph, m);
        const char *path = fb_text(graph, row->path);
        if (!is_new(check->names, row->path)) {
            row_error(check, "/modules", position, "/path", "duplicate-name", "there are two modules \"%s\"", path);
        }
        if (path[0] == '\0') {
            has_root = true;
            if (position > 0) row_error(check, "/modules", position, "", "root-not-first", "the root module is not the first");
        }
        bool is_whole = row->type.id != 0;
        bool owns_parameter = mark_owned(check, row->parameters, &is_whole);
        bool owns = mark_owned(check, row->buffers, &is_whole) || owns_parameter;
        bool is_used = owns || row->program.id || row->attributes.id || check->module_is_used[m.id] || path[0] == '\0';
        if (!is_used && is_whole) {
            row_error(check, "/modules", position, "", "unused-module",
                      "module \"%s\" is not called, owns no tensor and no attributes, and is not a nested program", path);
        }
        if (is_whole) check_config(check, m, position, right);
    }
    forget_names(check);
    if (!has_root) fb_errors_add(check->errors, "missing-root", "/modules", "the root module, whose path is \"\", is missing");
}

/* ---- tensors ----------------------------------------------------------------------------------------------------------- */

/* Bytes of a tensor, or -1 when they cannot be counted in 63 bits; with elements of so many bytes. */
static int64_t tensor_bytes(const fb_graph *graph, const fb_tensor_row *row, size_t element) {
    const fb_value_row *shape = fb_value_at(graph, row->shape);
    int64_t bytes = (int64_t)element;
    bool is_empty = false, overflows = false;
    for (uint32_t i = 0; i < shape->count; i++) {
        int64_t size = fb_value_at(graph, shape->items[i])->integer;
        if (size == 0) is_empty = true;
        else overflows |= __builtin_mul_overflow(bytes, size, &bytes);
    }
    return is_empty ? 0 : overflows ? -1 : bytes;
}

#define HASHED_AT_ONCE ((size_t)1 << 20) /* bytes; some milliseconds */

/* Inline data and a digest: the digest is of the data. */
static void check_digest(checker *check, const fb_tensor_row *row, size_t position, size_t size) {
    const fb_graph *graph = check->graph;
    char digest[FB_ID_LENGTH + 1];
    fb_sha256 *hash = fb_sha256_new();
    unsigned char *bytes = malloc(HASHED_AT_ONCE);
    bool ok = hash && bytes;
    for (size_t at = 0; ok && at < size && fb_work_goes_on(check->work, FB_WORK_UNASKED); at += HASHED_AT_ONCE) {
        size_t part = size - at < HASHED_AT_ONCE ? size - at : HASHED_AT_ONCE;
        fb_base64_decode(fb_text(graph, row->data), at, part, bytes);
        ok = fb_sha256_add(hash, bytes, part);
    }
    if (!ok || !fb_sha256_id_so_far(hash, digest)) check->errors->out_of_memory = true;
    else if (!check->work->stopped.status && strcmp(digest, fb_text(graph, row->digest)) != 0)
        row_error(check, "/tensors", position, "/digest", "bad-digest", "the data has another digest: %s", digest);
    fb_sha256_free(hash);
    free(bytes);
}

/* How large its elements are only its bytes can say. */
static void check_other_dtype(checker *check, const fb_tensor_row *row, size_t position, int64_t given) {
    const char *dtype = fb_text(check->graph, row->other_dtype);
    int64_t elements = tensor_bytes(check->graph, row, 1);
    if (elements < 0) {
        row_error(check, "/tensors", position, "/shape", "bad-shape", "the tensor would have 2^63 elements or more");
    } else if (row->blob.id) {
        row_error(check, "/tensors", position, "/dtype", "unknown-dtype",
                  "how many bytes of the blob it has is not known, as %s is not known: put them into data", dtype);
    } else if (row->data.id && (elements ? given % elements != 0 || !given : given != 0)) {
        row_error(check, "/tensors", position, "/data", "bad-data", "%lld elements cannot have %lld bytes", (long long)elements,
                  (long long)given);
    } else if (row->data.id && row->digest.id) {
        check_digest(check, row, position, (size_t)given);
    }
}

static void check_tensor(checker *check, const fb_tensor_row *row, size_t position) {
    const fb_graph *graph = check->graph;
    if ((row->blob.id != 0) + (row->data.id != 0) + (row->recipe.id != 0) > 1) {
        row_error(check, "/tensors", position, "", "contradictory-source", "a tensor has at most one of blob, data and recipe");
    }
    if (!row->dtype) return; /* what could not be read was reported */
    int64_t given = row->data.id ? (int64_t)fb_base64_size(fb_text(graph, row->data), fb_text_length(graph, row->data)) : 0;
    if (row->dtype == FB_DTYPE_OTHER) {
        check_other_dtype(check, row, position, given);
        return;
    }
    int64_t bytes = tensor_bytes(graph, row, fb_dtype_size((fb_dtype)row->dtype));
    if (bytes < 0) {
        row_error(check, "/tensors", position, "/shape", "bad-shape", "the tensor would have 2^63 bytes or more");
        return;
    }
    if (row->offset > INT64_MAX - bytes) {
        row_error(check, "/tensors", position, "/offset", "bad-offset", "the tensor would end beyond 2^63 bytes");
    }
    if (row->data.id && given != bytes) {
        row_error(check, "/tensors", position, "/data", "bad-data", "the data has %lld bytes, the tensor %lld",
                  (long long)given, (long long)bytes);
    } else if (row->data.id && row->digest.id) {
        check_digest(check, row, position, (size_t)bytes);
    }
}

static void mark_read(void *context, fb_tensor tensor) {
    ((checker *)context)->tensor_is_used[tensor.id] = true;
}

static void check_tensors(checker *check) {
    const fb_graph *graph = check->graph;
    size_t position = 0;
    for (fb_tensor t = fb_first_tensor(graph); t.id && goes_on(check, 1); t = fb_tensor_at(graph, t)->next) {
        fb_value_visit_tensors(graph, fb_tensor_at(graph, t)->recipe, mark_read, check);
    }
    for (fb_tensor t = fb_first_tensor(graph); t.id && goes_on(check, 1); t = fb_tensor_at(graph, t)->next, position++) {
        const fb_tensor_row *row = fb_tensor_at(graph, t);
        const char *name = fb_text(graph, row->name);
        if (!is_new(check->names, row->name)) {
            row_error(check, "/tensors", position, "/name", "duplicate-name", "there are two tensors \"%s\"", name);
        }
        if (!check->tensor_is_used[t.id] && row->dtype) {
            row_error(check, "/tensors", position, "", "unused-tensor", "no module owns tensor \"%s\", and no recipe reads it",
                      name);
        }
        check_tensor(check, row, position);
    }
    if (goes_on(check, 1)) fb_recipe_check_all(graph, check->errors);
}

/* ---- the whole --------------------------------------------------------------------------------------------------------- */

void fb_verify(const fb_graph *graph, fb_work *work, fb_errors *errors) {
    checker check = {
        .graph = graph,
        .errors = errors,
        .work = work,
        .names = calloc(fb_symbol_limit(graph) / 64 + 1, sizeof *check.names),
        .targets = calloc(fb_symbol_limit(graph) / 64 + 1, sizeof *check.targets),
        .module_is_used = calloc(fb_module_limit(graph), sizeof *check.module_is_used),
        .is_indexed = calloc(fb_module_limit(graph), sizeof *check.is_indexed),
        .tensor_is_used = calloc(fb_tensor_limit(graph), sizeof *check.tensor_is_used),
    };
    if (check.names && check.targets && check.module_is_used && check.is_indexed && check.tensor_is_used) {
        check_program(&check, FB_MAIN_PROGRAM);
        for (fb_module m = fb_first_module(graph); m.id; m = fb_module_at(graph, m)->next) {
            fb_program program = fb_module_at(graph, m)->program;
            if (program.id) check_program(&check, program);
        }
        check_modules(&check);
        check_tensors(&check);
    } else {
        errors->out_of_memory = true;
    }
    free(check.names);
    free(check.targets);
    free(check.module_is_used);
    free(check.is_indexed);
    free(check.tensor_is_used);
    fb_map_free(&check.attributes);
}
