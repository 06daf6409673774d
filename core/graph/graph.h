/* A neural-network graph in memory: torch.fx's model of a program, the modules it calls and the tensors they own.
 *
 * Everything is a row in a table, named by a one-member struct around an index; 0 is none. Rows keep their address, so a
 * pointer to one stays valid while the graph lives. Strings are interned as symbols and argument trees as values: both are
 * immutable, and comparing two is comparing two ids, except for values with nodes or tensors in them: these are compared by
 * fb_values_equal. Nodes, modules and tensors are doubly linked lists in document order.
 *
 * A graph is read through this header. It is built by document.h and changed by core/rewrite alone, both through build.h.
 * Reading is safe from many threads at once as long as no thread changes the graph.
 */
#ifndef FB_GRAPH_GRAPH_H
#define FB_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/base/table.h"

typedef struct fb_graph fb_graph;

typedef struct fb_symbol {
    uint32_t id;
} fb_symbol; /* an interned string */
typedef struct fb_value {
    uint32_t id;
} fb_value; /* an argument tree */
typedef struct fb_node {
    uint32_t id;
} fb_node;
typedef struct fb_module {
    uint32_t id;
} fb_module;
typedef struct fb_tensor {
    uint32_t id;
} fb_tensor;
typedef struct fb_program {
    uint32_t id;
} fb_program; /* a list of nodes with a scope of names: the main one or a nested one */

#define FB_MAIN_PROGRAM ((fb_program){1})

typedef enum fb_opcode {
    FB_PLACEHOLDER = 1,
    FB_GET_ATTR,
    FB_CALL_MODULE,
    FB_CALL_FUNCTION,
    FB_CALL_METHOD,
    FB_OUTPUT,
} fb_opcode;

/* "call_function" and so on; the inverse gives 0 for anything else. */
const char *fb_opcode_name(fb_opcode opcode);
fb_opcode fb_opcode_find(const char *name);

/* ---- dtypes ------------------------------------------------------------------------------------------------------------ */

typedef enum fb_dtype {
    FB_DTYPE_UNKNOWN = 0,
    FB_FLOAT64,
    FB_FLOAT32,
    FB_FLOAT16,
    FB_BFLOAT16,
    FB_INT64,
    FB_INT32,
    FB_INT16,
    FB_INT8,
    FB_UINT8,
    FB_BOOL,
    FB_FLOAT8_E4M3FN,
    FB_FLOAT8_E5M2,
    FB_COMPLEX64,
    FB_COMPLEX128,
    FB_UINT16,
    FB_UINT32,
    FB_UINT64,
    FB_FLOAT8_E4M3FNUZ,
    FB_FLOAT8_E5M2FNUZ,
    FB_FLOAT8_E8M0FNU,
    FB_FLOAT4_E2M1FN_X2, /* two numbers in a byte, which is an element */
    FB_FLOAT6_E2M3FN_X4, /* four numbers in three bytes, which are an element; PyTorch lacks both */
    FB_FLOAT6_E3M2FN_X4,
    FB_COMPLEX32,   /* carried, not computed */
    FB_DTYPE_OTHER, /* of a tensor whose dtype is but a name here: how large its elements are is not known */
    FB_DTYPE_COUNT,
} fb_dtype;

const char *fb_dtype_name(fb_dtype dtype); /* "float32" */
fb_dtype fb_dtype_find(const char *name);  /* FB_DTYPE_UNKNOWN when there is none of that name */
size_t fb_dtype_size(fb_dtype dtype);      /* bytes of one element; 0 of FB_DTYPE_OTHER */
int64_t fb_dtype_packs(fb_dtype dtype);    /* numbers in one element: 2 of float4_*_x2, 4 of float6_*_x4, else 1 */
bool fb_dtype_is_floating(fb_dtype dtype); /* float64, float32, float16, bfloat16, float8_*, float6_*, float4_* */
bool fb_dtype_is_computed(fb_dtype dtype); /* float64, float32, float16, bfloat16: recipes compute with these */
bool fb_dtype_is_complex(fb_dtype dtype);
/* The dtype of a complex number's two parts; other dtypes are their own. */
fb_dtype fb_dtype_part(fb_dtype dtype);
bool fb_dtype_is_integer(fb_dtype dtype); /* signed or unsigned integer, or bool */

/* ---- symbols ----------------------------------------------------------------------------------------------------------- */

/* The NUL-terminated text of a symbol; "" for none. Stays valid while the graph lives. */
static inline const char *fb_text(const fb_graph *graph, fb_symbol symbol);
static inline size_t fb_text_length(const fb_graph *graph, fb_symbol symbol);
/* Interns a string; none when memory is out (which also sets fb_graph_out_of_memory). fb_symbol_find never adds. */
fb_symbol fb_intern(fb_graph *graph, const char *text);
fb_symbol fb_intern_bytes(fb_graph *graph, const char *bytes, size_t length);
fb_symbol fb_symbol_find(const fb_graph *graph, const char *bytes, size_t length);

/* ---- values ------------------------------------------------------------------------------------------------------------ */

typedef enum fb_kind {
    FB_NONE = 1, /* Python's None (JSON null) */
    FB_FALSE,
    FB_TRUE,
    FB_INT,           /* .integer */
    FB_BIG_INT,       /* beyond 64 bits: .symbol = canonical decimal digits, perhaps with a leading '-' */
    FB_FLOAT,         /* .real; compared bit by bit, so -0.0 is not 0.0 and nan is nan */
    FB_STRING,        /* .symbol */
    FB_NODE,          /* fb_value_node */
    FB_TENSOR,        /* fb_value_tensor; in parameters, buffers and expressions only */
    FB_DTYPE,         /* .symbol = "float32" (any identifier: torch has more dtypes than fb_dtype) */
    FB_DEVICE,        /* .symbol = "cuda:1" */
    FB_LAYOUT,        /* .symbol */
    FB_MEMORY_FORMAT, /* .symbol */
    FB_REF,           /* .symbol = qualified name of a function used as a value */
    FB_OPAQUE,        /* .symbol = repr of something that is carried, never interpreted */
    FB_ELLIPSIS,
    FB_RAW,     /* .symbol = canonical text of free JSON (meta, metadata, unknown members) */
    FB_ENUM,    /* .symbol = class; items: [string name] */
    FB_COMPLEX, /* items: [real, imaginary], ints or floats */
    FB_SLICE,   /* items: [start, stop, step] */
    FB_LIST,
    FB_TUPLE,
    FB_SIZE,
    FB_NAMED_TUPLE, /* .symbol = class */
    FB_DICT,        /* items: key, value, key, value … */
    FB_MAP,         /* items: string, value, string, value …: kwargs, config, parameters, meta */
    FB_EXPRESSION,  /* a recipe: .symbol = operation; items: [list of arguments (tensors, expressions), map of the rest] */
} fb_kind;

typedef struct fb_value_row {
    uint8_t kind;     /* fb_kind */
    bool has_nodes;   /* an FB_NODE is in the tree */
    bool has_tensors; /* an FB_TENSOR is in the tree */
    uint32_t count;   /* items */
    union {
        int64_t integer;
        double real;
        fb_symbol symbol;
    };
    fb_value items[];
} fb_value_row;

static inline const fb_value_row *fb_value_at(const fb_graph *graph, fb_value value);
static inline fb_kind fb_value_kind(const fb_graph *graph, fb_value value);                /* 0 for no value */
static inline fb_value fb_value_item(const fb_graph *graph, fb_value value, size_t index); /* none when out of range */
static inline bool fb_value_is_int(const fb_graph *graph, fb_value value, int64_t *out);
/* An int or a float (not a bool) as a double. */
bool fb_value_is_number(const fb_graph *graph, fb_value value, double *out);
/* Text of a string, dtype, device, ref … value; NULL for others. */
const char *fb_value_text(const fb_graph *graph, fb_value value);
/* Looks up a key of an FB_MAP (or none); none when absent. */
fb_value fb_map_value(const fb_graph *graph, fb_value map, const char *key);

/* Values that every graph has from the start. */
#define FB_VALUE_NONE ((fb_value){4})
#define FB_VALUE_FALSE ((fb_value){6})
#define FB_VALUE_TRUE ((fb_value){8})
#define FB_VALUE_EMPTY_LIST ((fb_value){10})
#define FB_VALUE_EMPTY_MAP ((fb_value){12})

/* Have they the same content? Of values without nodes and tensors: are they the same? */
bool fb_values_equal(const fb_graph *graph, fb_value a, fb_value b);

/* Makers; all return none when memory is out (or when an item is none), which also sets fb_graph_out_of_memory. */
fb_value fb_make_none(fb_graph *graph);
fb_value fb_make_bool(fb_graph *graph, bool value);
fb_value fb_make_int(fb_graph *graph, int64_t value);
fb_value fb_make_float(fb_graph *graph, double value);
fb_value fb_make_node(fb_graph *graph, fb_node node);
fb_value fb_make_tensor(fb_graph *graph, fb_tensor tensor);
/* FB_STRING, FB_DTYPE, FB_DEVICE, FB_LAYOUT, FB_MEMORY_FORMAT, FB_REF, FB_OPAQUE, FB_RAW, FB_BIG_INT, and FB_ELLIPSIS with ""
 */
fb_value fb_make_text(fb_graph *graph, fb_kind kind, const char *bytes, size_t length);
fb_value fb_make_string(fb_graph *graph, const char *text);
fb_value fb_make_items(fb_graph *graph, fb_kind kind, fb_symbol symbol, const fb_value *items, size_t count);
fb_value fb_make_list(fb_graph *graph, const fb_value *items, size_t count);
fb_value fb_make_tuple(fb_graph *graph, const fb_value *items, size_t count);
fb_value fb_make_slice(fb_graph *graph, fb_value start, fb_value stop, fb_value step);
/* A map with `key` set to `value` (at its place when present, else at the end), or with `key` removed when `value` is none. */
fb_value fb_map_with(fb_graph *graph, fb_value map, const char *key, fb_value value);
/* The same for a map sorted by key (config, attributes), which stays sorted. */
fb_value fb_sorted_map_with(fb_graph *graph, fb_value map, const char *key, fb_value value);
/* The list with one item exchanged. */
fb_value fb_list_with(fb_graph *graph, fb_value list, size_t index, fb_value item);

/* Calls visit(context, node) for every FB_NODE in the tree, left to right, repeats included. */
void fb_value_visit_nodes(const fb_graph *graph, fb_value value, void (*visit)(void *, fb_node), void *context);
void fb_value_visit_tensors(const fb_graph *graph, fb_value value, void (*visit)(void *, fb_tensor), void *context);
/* The tree with every node n replaced by the value, or the node, that replace(context, n) gives; the same id when nothing
 * changes. */
fb_value fb_value_substitute(fb_graph *graph, fb_value value, fb_value (*replace)(void *, fb_node), void *context);
fb_value fb_value_map_nodes(fb_graph *graph, fb_value value, fb_node (*replace)(void *, fb_node), void *context);

/* ---- rows -------------------------------------------------------------------------------------------------------------- */

/* A symbol, with the thing of that name: a search by name has just found the symbol. Most names have one thing. */
typedef struct fb_symbol_row {
    uint32_t length;
    uint32_t named; /* an fb_named_kind in the upper two bits, and the id of its row; 0 = nothing has that name */
    char text[];
} fb_symbol_row;

typedef enum fb_named_kind {
    FB_NAMED_NODE, /* of the main program */
    FB_NAMED_MODULE,
    FB_NAMED_TENSOR,
    FB_NAMED_SEVERAL,
} fb_named_kind;

/* Several things of one name, and facts of a text. */
typedef struct fb_names_row {
    uint32_t ids[FB_NAMED_SEVERAL]; /* by kind; 0 = none */
    fb_value as_string;             /* the FB_STRING of it; none = not asked for yet */
    uint16_t ops[3];                /* of a function, method and module type of that name, plus one; 0 = not asked for yet */
} fb_names_row;

typedef struct fb_node_row {
    fb_symbol name;
    fb_symbol target;
    fb_symbol type;           /* annotation; none = absent */
    fb_value args;            /* FB_LIST, always present */
    fb_value kwargs;          /* FB_MAP, always present */
    fb_value shape;           /* meta.shape: FB_LIST of FB_INT and FB_STRING; none = unknown */
    fb_value transformations; /* meta.transformations: FB_LIST of FB_STRING; none = empty */
    fb_value meta_rest;       /* all other members of meta: FB_MAP of FB_RAW sorted by key; none = empty */
    fb_module module;         /* call_module: the module; get_attr: the owner of the attribute, or the nested program itself */
    fb_symbol attribute;      /* get_attr: the attribute's name; none when the target is a nested program */
    fb_program program;
    fb_node previous, next;
    uint32_t ordinal;                          /* 0-based position in its program, as of the last fb_graph_number */
    uint32_t user_count;                       /* distinct nodes that read this one */
    uint32_t first_use, last_use, first_input; /* edges; walk them with fb_user_first and fb_input_first */
    uint32_t seen_by;                          /* scratch of build.c */
    uint16_t op;    /* fb_op of a call_function or call_method; 0 = unknown. Ask fb_node_op (core/analysis). */
    uint8_t opcode; /* fb_opcode */
    uint8_t dtype;  /* meta.dtype: fb_dtype */
    bool is_erased;
} fb_node_row;

typedef struct fb_module_row {
    fb_symbol path;          /* "" is the root */
    fb_symbol type;          /* "torch.nn.Linear" */
    fb_value config;         /* FB_MAP sorted by key, always present */
    fb_value parameters;     /* FB_MAP attribute -> FB_TENSOR or FB_NONE, in the order given, always present */
    fb_value buffers;        /* likewise */
    fb_value non_persistent; /* FB_LIST of FB_STRING; none = empty */
    fb_value attributes;     /* FB_MAP sorted by key; none = empty */
    fb_value rest;           /* unknown members: FB_MAP of FB_RAW sorted by key; none = empty */
    fb_program program;      /* nested program of a torch.fx.GraphModule, or none */
    fb_module previous, next;
    uint16_t op; /* fb_op of the type; 0 = unknown */
    bool training;
    bool is_erased;
} fb_module_row;

typedef struct fb_tensor_row {
    fb_symbol name;
    fb_symbol digest, blob, data; /* none = absent */
    fb_value shape;               /* FB_LIST of FB_INT, always present */
    fb_value recipe;              /* FB_EXPRESSION or FB_TENSOR; none = absent */
    fb_value rest;                /* unknown members; none = empty */
    fb_symbol other_dtype;        /* the name of FB_DTYPE_OTHER */
    int64_t offset;               /* bytes into blob */
    fb_tensor previous, next;
    uint8_t dtype;      /* fb_dtype */
    bool requires_grad; /* the effective value; written only when it is not the default */
    bool is_erased;
} fb_tensor_row;

typedef struct fb_program_row {
    fb_module owner; /* none for the main program */
    fb_node first, last;
    uint32_t node_count;
} fb_program_row;

/* Symbols and values are records of different lengths: a run of rows of so many bytes each. */
#define FB_RECORD_UNIT 8U

/* A graph begins with its tables, so that reading a row needs no call; its other fields are in internal.h. */
typedef struct fb_graph_tables {
    fb_table symbols, names, values, nodes, modules, tensors, programs, edges;
} fb_graph_tables;

static inline const fb_graph_tables *fb_graph_tables_of(const fb_graph *graph) {
    return (const fb_graph_tables *)(const void *)graph;
}
/* Is it in a list of texts (none: an empty one)? */
bool fb_value_has_text(const fb_graph *graph, fb_value list, const char *text);
static inline const fb_symbol_row *fb_symbol_at(const fb_graph *graph, fb_symbol symbol) {
    return fb_table_row(&fb_graph_tables_of(graph)->symbols, symbol.id, FB_RECORD_UNIT);
}
/* The node, module or tensor of that name: the id of its row, or 0. */
static inline uint32_t fb_named(const fb_graph *graph, fb_symbol name, fb_named_kind kind) {
    uint32_t named = fb_symbol_at(graph, name)->named, id = named & (FB_TABLE_MOST - 1);
    if (named >> 30 == kind) return id;
    if (named >> 30 != FB_NAMED_SEVERAL) return 0;
    return ((const fb_names_row *)fb_table_row(&fb_graph_tables_of(graph)->names, id, sizeof(fb_names_row)))->ids[kind];
}
static inline const char *fb_text(const fb_graph *graph, fb_symbol symbol) {
    return symbol.id ? fb_symbol_at(graph, symbol)->text : "";
}
static inline size_t fb_text_length(const fb_graph *graph, fb_symbol symbol) {
    return symbol.id ? fb_symbol_at(graph, symbol)->length : 0;
}
static inline const fb_node_row *fb_node_at(const fb_graph *graph, fb_node node) {
    return fb_table_row(&fb_graph_tables_of(graph)->nodes, node.id, sizeof(fb_node_row));
}
/* Rows are in memory in the order of their ids, and most nodes in the order of their rows: those that are asked for soon are
 * fetched meanwhile. It is a hint; the address may be none. */
static inline fb_node fb_next_node(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    uintptr_t soon = (uintptr_t)row + 24 * sizeof *row;
    __builtin_prefetch((const void *)(soon + offsetof(fb_node_row, module)));
    __builtin_prefetch((const void *)(soon + offsetof(fb_node_row, opcode)));
    return row->next;
}
static inline const fb_module_row *fb_module_at(const fb_graph *graph, fb_module module) {
    return fb_table_row(&fb_graph_tables_of(graph)->modules, module.id, sizeof(fb_module_row));
}
static inline const fb_tensor_row *fb_tensor_at(const fb_graph *graph, fb_tensor tensor) {
    return fb_table_row(&fb_graph_tables_of(graph)->tensors, tensor.id, sizeof(fb_tensor_row));
}
static inline const fb_program_row *fb_program_at(const fb_graph *graph, fb_program program) {
    return fb_table_row(&fb_graph_tables_of(graph)->programs, program.id, sizeof(fb_program_row));
}

/* Nodes and tensors as values are as many as there are nodes and tensors, and nothing of them has to be looked up: the value of
 * one is its id with a bit set. All nodes have one row, and so have all tensors. */
#define FB_VALUE_IS_NODE 0x80000000U
#define FB_VALUE_IS_TENSOR 0x40000000U
extern const fb_value_row fb_value_row_of_nodes, fb_value_row_of_tensors;

static inline const fb_value_row *fb_value_at(const fb_graph *graph, fb_value value) {
    if (value.id & FB_VALUE_IS_NODE) return &fb_value_row_of_nodes;
    if (value.id & FB_VALUE_IS_TENSOR) return &fb_value_row_of_tensors;
    return fb_table_row(&fb_graph_tables_of(graph)->values, value.id, FB_RECORD_UNIT);
}
/* The node or tensor that a value is, or none. */
static inline fb_node fb_value_node(const fb_graph *graph, fb_value value) {
    (void)graph;
    return (fb_node){value.id & FB_VALUE_IS_NODE ? value.id & ~FB_VALUE_IS_NODE : 0};
}
static inline fb_tensor fb_value_tensor(const fb_graph *graph, fb_value value) {
    (void)graph;
    return (fb_tensor){value.id & FB_VALUE_IS_TENSOR ? value.id & ~FB_VALUE_IS_TENSOR : 0};
}
static inline fb_kind fb_value_kind(const fb_graph *graph, fb_value value) {
    return value.id ? (fb_kind)fb_value_at(graph, value)->kind : (fb_kind)0;
}
static inline bool fb_value_is_int(const fb_graph *graph, fb_value value, int64_t *out) {
    const fb_value_row *row = value.id ? fb_value_at(graph, value) : NULL;
    if (!row || row->kind != FB_INT) return false;
    *out = row->integer;
    return true;
}
static inline fb_value fb_value_item(const fb_graph *graph, fb_value value, size_t index) {
    if (!value.id) return value;
    const fb_value_row *row = fb_value_at(graph, value);
    return index < row->count ? row->items[index] : (fb_value){0};
}

/* ---- the graph --------------------------------------------------------------------------------------------------------- */

fb_graph *fb_graph_new(void);                                  /* empty, with a main program; NULL when memory is out */
fb_graph *fb_graph_copy(const fb_graph *graph, fb_work *work); /* NULL: fb_work_failed says why */
void fb_graph_free(fb_graph *graph);
/* The memory that its rows and indexes take, in bytes. */
size_t fb_graph_bytes(const fb_graph *graph);

const char *fb_graph_name(const fb_graph *graph);
fb_value fb_graph_metadata(const fb_graph *graph); /* FB_MAP of FB_RAW sorted by key; none = empty */
bool fb_graph_is_onnx(const fb_graph *graph);      /* its metadata say that it is a model of ONNX; */
int64_t fb_graph_opset(const fb_graph *graph);     /* and the version of ONNX's operators, or 0 */
/* True once an allocation of a symbol, value or row failed; sticky. */
bool fb_graph_out_of_memory(const fb_graph *graph);
/* For makers of values whose own allocation failed: sets it, and returns none. */
fb_value fb_graph_fail_memory(fb_graph *graph);

/* First in document order; go on with row->next. */
fb_node fb_first_node(const fb_graph *graph, fb_program program);
fb_node fb_last_node(const fb_graph *graph, fb_program program);
fb_module fb_first_module(const fb_graph *graph);
fb_tensor fb_first_tensor(const fb_graph *graph);
fb_tensor fb_last_tensor(const fb_graph *graph);
size_t fb_node_count(const fb_graph *graph); /* of the main program */
size_t fb_module_count(const fb_graph *graph);
size_t fb_tensor_count(const fb_graph *graph);
/* Ids are below these; for arrays indexed by id. Rows that were erased are among them. */
uint32_t fb_node_limit(const fb_graph *graph);
uint32_t fb_module_limit(const fb_graph *graph);
uint32_t fb_tensor_limit(const fb_graph *graph);
uint32_t fb_program_limit(const fb_graph *graph);
uint32_t fb_symbol_limit(const fb_graph *graph);

fb_node fb_node_find(const fb_graph *graph, fb_program program, const char *name);
fb_module fb_module_find(const fb_graph *graph, const char *path);
fb_tensor fb_tensor_find(const fb_graph *graph, const char *name);
/* The same for a walk over the rows of another graph that is mostly like this one: looks first at what follows the row found
 * last, in `last` (zero at the beginning), whose name needs no look-up. Nodes of the main program. */
fb_node fb_node_follow(const fb_graph *graph, const char *name, fb_node *last);
fb_tensor fb_tensor_follow(const fb_graph *graph, const char *name, fb_tensor *last);

/* Readers of a node, each once: for (e = fb_user_first(g, n); e; e = fb_user_next(g, e)) … fb_edge_user(g, e). */
uint32_t fb_user_first(const fb_graph *graph, fb_node node);
uint32_t fb_user_next(const fb_graph *graph, uint32_t edge);
fb_node fb_edge_user(const fb_graph *graph, uint32_t edge);
/* The readers in document order (as of the last fb_graph_number), malloc'ed; NULL when memory is out. */
fb_node *fb_users_in_order(const fb_graph *graph, fb_node node, size_t *count);
/* Distinct nodes that a node reads, args before kwargs, by first occurrence. */
uint32_t fb_input_first(const fb_graph *graph, fb_node node);
uint32_t fb_input_next(const fb_graph *graph, uint32_t edge);
fb_node fb_edge_input(const fb_graph *graph, uint32_t edge);

/* ---- conveniences ------------------------------------------------------------------------------------------------------ */

const char *fb_node_name(const fb_graph *graph, fb_node node);
const char *fb_node_target(const fb_graph *graph, fb_node node);
const char *fb_tensor_name(const fb_graph *graph, fb_tensor tensor);
const char *fb_tensor_dtype_name(const fb_graph *graph, fb_tensor tensor);
/* Is it only carried, and never read or replaced? So is a tensor that shares memory with others, or among its own elements,
 * without being a view of one of them ("overlaps"), and one of FB_DTYPE_OTHER. */
bool fb_tensor_is_carried(const fb_graph *graph, fb_tensor tensor);
fb_value fb_node_arg(const fb_graph *graph, fb_node node, size_t index);       /* none when there are fewer */
fb_value fb_node_kwarg(const fb_graph *graph, fb_node node, const char *name); /* none when absent */
/* A parameter or buffer of a module: none when absent or null. */
fb_tensor fb_module_tensor(const fb_graph *graph, fb_module module, const char *attribute);
fb_value fb_module_config(const fb_graph *graph, fb_module module, const char *key); /* none when absent */
/* Dimensions: -1 when the shape is unknown; size of one, or -1 when it is unknown or symbolic (negative axes count from the
 * end). */
int fb_shape_rank(const fb_graph *graph, fb_value shape);
int64_t fb_shape_size(const fb_graph *graph, fb_value shape, int axis);
fb_value fb_make_shape(fb_graph *graph, const int64_t *sizes, size_t rank);

#endif
