/* Shared by the files that write the archive of a changed graph; for core/archive alone. */
#ifndef FB_ARCHIVE_REWRITE_H
#define FB_ARCHIVE_REWRITE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/analysis/ancestry.h"
#include "core/archive/archive.h"
#include "core/archive/internal.h"
#include "core/graph/graph.h"

/* ---- which entries it has: rewrite.c ------------------------------------------------------------------------------------- */

/* A text, a range of the old archive, or else a tensor of the graph. */
typedef struct pt_entry {
    const char *name;
    const char *text;
    const unsigned char *range;
    uint64_t stored, size; /* of a range */
    uint32_t crc;
    bool is_deflated;
    fb_tensor tensor;
} pt_entry;

typedef fb_status pt_add_entry(void *context, const pt_entry *entry);

/* Calls `add` for each entry. `makers`: as fb_archive_file_new has it. FB_CONFLICT "archive-changed": with what cannot be
 * written. */
fb_status pt_rewrite(const fb_archive *archive, const char *model, const char *blob, const fb_graph *graph,
                     const json_t *makers, fb_work *work, pt_add_entry *add, void *context, fb_error *error);

/* A program of the archive that is rewritten: the main one, or one within. */
typedef struct pt_scope {
    struct pt_rewriting *r;
    pt_program *p;
    json_t *graph;                      /* in the archive's file, to be changed */
    json_t *values;                     /* its tensor_values */
    json_t *rows;                       /* by node of the document, indexes of rows */
    json_t *names;                      /* by node of the document, what the archive calls its result */
    json_t *kept;                       /* by node of the document */
    json_t *laid_out;                   /* names of results whose strides are not those that the archive had */
    json_t *copied;                     /* what is copied into each buffer or input that is written, names of nodes */
    json_t *nodes_before;               /* of the document of the archive, by name */
    json_t *inserted;                   /* new nodes of the document, by name */
    json_t **sources;                   /* by row, its node in the archive, or NULL */
    fb_program program_before, program; /* in the two graphs */
    fb_ancestry ancestry;
} pt_scope;

typedef struct pt_rewriting {
    pt_model *m; /* its status is the whole result's */
    const fb_graph *graph;
    fb_graph *graph_before;
    const json_t *makers;                  /* passes that made nodes, by node; or NULL */
    json_t *program, *weights, *constants; /* files of the archive, to be changed */
    json_t *before, *after;                /* documents */
    json_t *sizes;                         /* by what documents print, symbolic sizes as the archive has them */
    json_t *owners;                        /* pt_owners_of(after) */
    json_t *states, *state_inputs;         /* input_specs and inputs of new weights */
    json_t *inputs_of;                     /* by owner, the names of its inputs */
    json_t *records;                       /* by entry, names of tensors of the graph to be evaluated */
    json_t *record_of;                     /* by tensor of the graph, path_names */
    size_t next_record;
    pt_scope main;
} pt_rewriting;

/* FB_CONFLICT "archive-changed"; returns false. */
bool pt_refuse(pt_rewriting *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Steal the value; false when memory is out. pt_push appends to the list of that key. */
static inline bool pt_set(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value) == 0;
}
static inline bool pt_append(json_t *array, json_t *value) {
    return json_array_append_new(array, value) == 0;
}
bool pt_push(json_t *lists, const char *key, json_t *value);

static inline const char *pt_text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Rewrites the nodes of the archive's program: rewrite_program.c */
bool pt_rewrite_program(pt_rewriting *r);
void pt_scope_free(pt_scope *scope);

/* Fills the metadata of the new ones among the nodes of a program: provenance.c */
bool pt_describe_new_nodes(pt_scope *s, const json_t *nodes);

/* ---- new calls, as archives spell them: spell.c. NULL: a failure --------------------------------------------------------- */

int64_t pt_scalar_type(const char *dtype); /* 0: unknown */
/* `type`: what its parameter takes, as pt_type_of says. */
json_t *pt_make_argument(pt_scope *s, const json_t *value, char type);
/* The inputs of a node, from the operator's signature. */
json_t *pt_make_inputs(pt_scope *s, const json_t *node);
/* A row-major tensor. `device`: the archive's word for where it is. */
json_t *pt_make_meta(pt_scope *s, const json_t *shape, const char *dtype, bool requires_grad, const json_t *device);
const json_t *pt_some_device(const pt_scope *s);
bool pt_are_on_one_device(const pt_scope *s);

/* ---- where it is from: origin.c ------------------------------------------------------------------------------------------ */

/* The graph's metadata about its archive, as canonical JSON; NULL = nothing. */
const char *pt_origin_text(const fb_graph *graph);

/* ---- contents of a document, apart from the names of nodes: meaning.c ---------------------------------------------------- */

/* All give NULL or false when memory is out. */

/* Appends the names of the nodes in a value of the document, left to right. */
bool pt_list_reads(const json_t *value, json_t *out);
/* A document's tensors by owner: {"a.weight": [row, is a parameter]}. */
json_t *pt_owners_of(const json_t *document);
/* True if such an owner's tensor requires gradients. */
bool pt_requires_grad(const json_t *owned);
/* Is it one in an archive that did not have it? Not of integers: PyTorch 2.9 loads no such archive. */
bool pt_is_parameter(const json_t *owned);
/* The computation of a document: inputs, calls in their order with what they read, and the dtype and shape of each state. Two
 * documents with equal ones compute the same. With `records`, also the shape and dtype of each result and whether a state
 * requires gradients. */
json_t *pt_meaning_of(const json_t *document, bool records);

/* ---- strides as archives record them, by what PyTorch's operators give: strides.c ---------------------------------------- */

/* torch.export.load makes fake tensors of the recorded sizes and strides; a program runs without looking at them. Sizes and
 * strides are SymInts of the archive: {"as_int": 6} or {"as_expr": {"expr_str", "hint"}}. All returned values are new
 * references, and NULL when memory is out, if nothing else is said. */

json_t *pt_row_major(const json_t *sizes);

/* The strides of a result of `target` with these sizes. `node` is the call as the document has it, and `tensors` are the
 * values, {sizes, strides, …}, of the tensors it reads, in their order. `is_known` is false, and the result NULL, where the
 * operator is neither a view nor element by element. */
json_t *pt_strides_of(const char *target, const json_t *node, const json_t *tensors, const json_t *sizes, bool *is_known);

#endif
