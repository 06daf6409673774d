/* Shared by the files that read a model of an archive; for core/archive alone. */
#ifndef FB_ARCHIVE_INTERNAL_H
#define FB_ARCHIVE_INTERNAL_H

#include "core/archive/archive.h"
#include "core/base/map.h"
#include "core/graph/graph.h"
#include "core/graph/namespace.h"
#include "core/json/scan.h"

/* ---- texts as keys ------------------------------------------------------------------------------------------------------ */

typedef struct pt_key {
    const char *text;
    uint32_t length, value;
} pt_key;
typedef struct pt_keys {
    fb_map map;
    pt_key *rows;
    uint32_t count;
    size_t capacity;
} pt_keys;

/* False: memory is out, or (with `is_new`) the key is there already. The text is borrowed. */
bool pt_keys_put(pt_keys *keys, const char *text, size_t length, uint32_t value, bool *is_new);
bool pt_keys_find(const pt_keys *keys, const char *text, size_t length, uint32_t *value);
void pt_keys_free(pt_keys *keys);

/* ---- a JSON file of the archive ----------------------------------------------------------------------------------------- */

typedef struct pt_file {
    char *name; /* within the root folder */
    char *text;
    fb_scan scan;
    const fb_json *root;         /* until it is decoded */
    struct pt_payload *payloads; /* of a config */
    uint32_t payload_count;
} pt_file;

/* ---- files as structures: decode.c --------------------------------------------------------------------------------------- */

#define PT_STRIDED 7 /* torch.strided, as archives number layouts */

/* TensorMeta. Where a size is symbolic, its number is 0, and it has an expression. */
typedef struct pt_meta {
    int64_t scalar_type;
    fb_dtype dtype; /* FB_DTYPE_UNKNOWN: one that documents lack */
    uint32_t dimensions, stride_count;
    int64_t *sizes, *strides, offset;
    const char **expressions; /* by dimension, or NULL */
    bool are_counts;          /* sizes, strides and offset: numbers, none below 0 */
    bool requires_grad, is_strided;
    const char *device; /* "cuda:0" */
} pt_meta;

/* The tensor of an owner, and the record that has it. */
typedef struct pt_payload {
    const char *owner, *record;
    bool is_parameter;
    const pt_meta *meta; /* NULL: a pickle */
} pt_payload;

/* Kinds of values: "as_sym_int" of the schema is a symbol or an int. */
typedef enum pt_form {
    PT_NONE = 'n',
    PT_TENSOR = 't', /* a result, as a symbol is */
    PT_SYMBOL = 's',
    PT_INT = 'i',
    PT_BOOL = 'b',
    PT_FLOAT = 'f',
    PT_STRING = '"',
    PT_DTYPE = 'd',
    PT_MEMORY_FORMAT = 'm',
    PT_LAYOUT = 'l',
    PT_DEVICE = 'v',
    PT_COMPLEX = 'c',
    PT_OPERATOR = 'o',
    PT_GRAPH = 'g',
    PT_LIST = '[',
    PT_TUPLE = '(',
    PT_DICT = '{',
    PT_UNKNOWN = '?',
} pt_form;

typedef struct pt_argument {
    const char *kind; /* the schema's: "as_tensor"; of an item, its list's */
    const char *key;  /* a parameter's name, or a key of a dict; or NULL */
    union {
        int64_t integer; /* PT_INT, PT_BOOL */
        double real;
        const char *text; /* also a name: of a device, an operator, and, where it is known, a dtype, … */
        uint32_t result;
        struct pt_program *program;
        struct pt_argument *items;
        int64_t *values; /* items that are numbers, as their bits; PT_COMPLEX: two */
    };
    uint32_t count; /* of items or values */
    uint8_t form;   /* pt_form */
    uint8_t of;     /* with values: theirs; else 0 */
    int8_t said;    /* POSITIONAL or KEYWORD of arguments.c */
} pt_argument;

typedef struct pt_arguments {
    pt_argument *rows;
    uint32_t count;
} pt_arguments;

/* A value of a graph, by the name that the archive has for it. */
typedef struct pt_result {
    const char *name;
    const pt_meta *meta; /* of a tensor, or NULL */
    bool is_number;      /* in one of the tables of symbolic numbers */
    uint32_t row;        /* of the program that makes it; UINT32_MAX: none has */
} pt_result;

typedef struct pt_node {
    const char *target, *name; /* no name: NULL */
    pt_arguments inputs, outputs;
    bool is_tuple_of_one; /* if it calls a higher-order operator */
} pt_node;

/* An input or output of the main program. */
typedef struct pt_spec {
    const char *kind, *name; /* "buffer", and the owner; of a mutation, what is written */
    bool is_persistent, is_mutation;
} pt_spec;
typedef struct pt_specs {
    pt_spec *rows;
    uint32_t count;
} pt_specs;

/* ---- tensors ------------------------------------------------------------------------------------------------------------ */

typedef struct pt_tensor {
    const char *key;  /* its name in the config: the owner's path */
    const char *name; /* in the document: the first owner's; NULL until it has one */
    const char *file; /* the config that has it */
    const fb_zip_entry *record;
    fb_dtype dtype;
    bool is_parameter, requires_grad, is_owned_as_parameter;
    uint32_t dimensions;
    int64_t *shape, *strides;
    int64_t offset, count;   /* in elements */
    int64_t reach;           /* elements from the first to the last, both included; 0 of an empty one */
    bool overlaps;           /* shares memory with others, or among its elements, without being a view of one: it is carried
                              * whole */
    const char *recipe;      /* a view of another one's memory: its expression; else NULL */
    uint32_t next_of_record; /* the next tensor of the same record, its index + 1 */
    uint32_t place;          /* its place in the document */
} pt_tensor;

/* ---- programs ----------------------------------------------------------------------------------------------------------- */

typedef enum pt_kind { PT_INPUT, PT_STATE, PT_PROGRAM, PT_CALL, PT_ITEM, PT_COPY, PT_OUTPUT } pt_kind;

typedef struct pt_program pt_program;

typedef struct pt_row {
    pt_kind kind;
    const char *name;       /* as the document has it, once the program is complete */
    const char *target;     /* of a placeholder, a get_attr, a function */
    const char *result;     /* the archive's name of its result, or NULL */
    const pt_meta *meta;    /* of a tensor, or NULL */
    const pt_node *node;    /* PT_CALL */
    pt_program *program;    /* PT_PROGRAM */
    const pt_spec *spec;    /* PT_STATE */
    uint32_t tensor;        /* PT_STATE, once there are modules: its tensor */
    uint32_t first, second; /* PT_ITEM: of which row, which item; PT_COPY: from row `second` into row `first` */
    bool decides_device, is_read, is_dead;
} pt_row;

struct pt_program {
    pt_program *parent;
    const char *name; /* among its parent's */
    const char *path; /* of its module; "" of the main one */
    uint32_t row;     /* of the parent; UINT32_MAX: none reads it */
    pt_arguments inputs, outputs;
    bool is_single; /* it returns a tensor, and no tuple */
    pt_node *nodes;
    uint32_t node_count;
    pt_result *results;
    uint32_t result_count;
    size_t result_capacity;
    pt_keys by_name; /* results */
    pt_row *rows;
    uint32_t count;
    size_t capacity;
    fb_namespace *names;
};

/* A module that owns something, and what it owns, each in the order of registration. */
typedef struct pt_owned {
    const char *key, *path;
    uint32_t tensor;
    bool is_lacking; /* in checkpoints */
    struct pt_owned *next;
} pt_owned;
typedef struct pt_module {
    const char *path, *key;
    pt_owned *parameters, *buffers, *constants, *last_parameter, *last_buffer, *last_constant;
    const pt_program *program; /* a nested program, which owns nothing */
    struct pt_module *children, *last_child, *next;
} pt_module;

/* A text in place of an entry's. */
typedef struct pt_given {
    const char *name, *text;
} pt_given;

typedef struct pt_model {
    const fb_archive *archive;
    const pt_given *given;
    size_t given_count;
    const char *blob;
    fb_work *work;
    fb_error *error;
    fb_status status;
    fb_arena arena;
    const char *name;
    pt_file program_file, weights_file, constants_file;
    pt_specs input_specs, output_specs;
    const char *producer;   /* "torch.export 2.13.0" */
    const char *flattening; /* members of metadata: how nested arguments and results are made flat */
    const char *dialect; /* which calls it may have: "TRAINING", or of core ATen, whose calls that nothing reads are left out */
    pt_keys weights, constants; /* by owner, indexes of tensors */
    pt_tensor *tensors;
    uint32_t tensor_count;
    size_t tensor_capacity;
    uint32_t *order; /* of the tensors that the document has, their indexes */
    uint32_t order_count;
    pt_module *root;
    pt_program *programs[256]; /* the main one first */
    size_t program_count;
    size_t depth, row_count;
    uint64_t inline_bytes;
    uint64_t held; /* bytes of entries that are in memory, as the archive's limits count them */
    bool is_training;
    fb_dtype exported_as[FB_DTYPE_COUNT]; /* by dtype of weights: what they were exported as, where that is another one */
} pt_model;

/* A function that returns false or NULL has failed: with a status where the archive is wrong, else because the work was stopped
 * or memory is out, which pt_end finds out. */

/* The first failure counts. `file` is what of the archive is wrong, or NULL. Return false. */
bool pt_bad(pt_model *m, const char *file, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool pt_unsupported(pt_model *m, const char *file, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define PT_BAD "bad-archive"
#define PT_UNSUPPORTED "unsupported-archive"
bool pt_fail(pt_model *m, const char *code, const char *file, const char *format, va_list args); /* either */
/* The status of all that was done with a model, which failed where `ok` is false. */
fb_status pt_end(pt_model *m, bool ok);
void *pt_alloc(pt_model *m, size_t size); /* zeros */
/* The content of an entry, to be freed, of at most `limit` bytes, within the limits of the archive. */
bool pt_read_entry(pt_model *m, const fb_zip_entry *entry, uint64_t limit, char **content);
/* It has been freed before the model is closed. */
void pt_release_entry(pt_model *m, uint64_t size);
/* Texts that live as long as the model. Where one cannot be made, the model has failed. pt_keep frees the buffer. */
const char *pt_keep(pt_model *m, fb_buffer *text);
const char *pt_format(pt_model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads a file of JSON; false also where it is missing. */
bool pt_read_file(pt_model *m, pt_file *file, const char *name);

/* ---- parts -------------------------------------------------------------------------------------------------------------- */

/* The rows of a model, named as in its document, and then the document: archive.c. Close the model also after a failure. */
fb_status pt_model_document(pt_model *m, const char *wanted, fb_buffer *out);
void pt_close_model(pt_model *m); /* reader.c */

/* The tensors of both configs: payload.c */
bool pt_read_payloads(pt_model *m);

/* The modules that own the program's state, and the order of the document's tensors: modules.c */
bool pt_make_modules(pt_model *m);

/* Finds which tensors of the document are views of others, and which overlap: views.c */
bool pt_place_tensors(pt_model *m);
bool pt_is_contiguous(const pt_tensor *tensor); /* row-major */

/* Checks the three files against PyTorch's schema, which all that reads them relies on: schema.c */
bool pt_check_schema(pt_model *m);
/* Makes structures of the files: decode.c. The version comes first, since the schema is one version's. */
bool pt_check_version(pt_model *m);
bool pt_decode(pt_model *m);
const char *pt_dtype_name(int64_t scalar_type); /* NULL for an unknown number */

/* The rows of the main program and of those within: program.c */
bool pt_make_rows(pt_model *m);

/* Marks the rows that nothing needs: dead.c */
bool pt_remove_dead(pt_model *m, pt_program *p);
/* Does a call of it do nothing but give a result? */
bool pt_is_pure(const char *target);

/* Weights that were cast after the export: what the program records of results is older than they are. Then no result of a
 * dtype that weights had has a dtype in the document. `dtype` may be unknown: what such a result was exported as, if that is
 * certain. */
fb_dtype pt_exported_as(const pt_model *m, fb_dtype dtype);

/* The document: write.c */
bool pt_write_document(pt_model *m, fb_buffer *out);

/* ---- arguments of calls, as the document spells them: arguments.c -------------------------------------------------------- */

typedef struct pt_spelling {
    pt_model *m;
    const pt_program *program;
    const pt_row *row; /* of the program: it reads only rows before it */
    int depth;
    pt_row *reads; /* the program's rows, to be marked as read; or NULL */
} pt_spelling;

/* The arguments of any row. */
bool pt_put_all(pt_spelling *a, fb_buffer *args, fb_buffer *kwargs);
/* PyTorch's name of a parameter of an ATen operator that is given by position; false where that is not known. */
bool pt_parameter_at(const char *target, size_t place, const char **name, size_t *length);
/* Its place among all of the operator's parameters, also those by name only; UINT32_MAX where that is not known. */
uint32_t pt_place_of(const char *target, const char *parameter);
/* The type that it takes, as a letter of calls.def without its marks; '\0' where that is not known. */
char pt_type_of(const char *target, const char *parameter, size_t length);

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

/* Appends a symbolic size as archives spell it (sympy's srepr, "Mul(Integer(2), Symbol('s77', positive=True, integer=True))"),
 * printed as PyTorch and documents print it ("2*s77"). False: it is malformed, or has a function of which it is not known how
 * it is printed; then something may have been appended. */
bool fb_print_size(const char *text, size_t length, fb_buffer *out);

#endif
