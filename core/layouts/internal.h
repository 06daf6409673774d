/* Declarations that the files of layouts share. */
#ifndef FB_LAYOUTS_INTERNAL_H
#define FB_LAYOUTS_INTERNAL_H

#include "core/base/arena.h"
#include "core/layouts/layout.h"
#include "core/weights/recipe.h"

enum { CAPTURES_MAX = 8, SOURCES_MAX = 16, TARGETS_MAX = 16, EACH_MAX = 4 };

/* ---- the document ------------------------------------------------------------------------------------------------------- */

/* A name with captures: `{i}` is one or more characters without a dot, `{*block}` any number of whole segments, each with the
 * dot that ends it. */
typedef struct fb_layout_part {
    const char *literal; /* or NULL: a capture */
    size_t length;
    int capture; /* of the row's; EACH: the variable that the name counts by */
    bool is_deep;
} fb_layout_part;
enum { EACH = CAPTURES_MAX };

typedef struct fb_layout_pattern {
    const char *text;
    const fb_layout_part *parts;
    size_t count;
} fb_layout_pattern;

typedef struct fb_layout_count {
    const char *variable; /* NULL: one tensor */
    const char *count;    /* an expression */
} fb_layout_count;

typedef struct fb_layout_source {
    const char *name; /* in recipes */
    fb_layout_pattern pattern;
    fb_layout_count each;
    const json_t *shape;  /* list of expressions, null for any size; NULL: any shape */
    const json_t *absent; /* the same, of a weight that only others' adapters are there for; 0 and NULL: unknown */
} fb_layout_source;

typedef struct fb_layout_target {
    fb_layout_pattern pattern;
    fb_layout_count each;
    const json_t *recipe;
} fb_layout_target;

/* Kinds of tensors that belong to the weight of a Linear, and move as its rows and columns do (adapters.c). */
typedef enum fb_belonging {
    FB_BELONGS_NOT, /* a row of the document */
    FB_ADAPTERS,    /* LoRA: A (rank, in) and B (out, rank) of every source; the targets come in pairs, A before B */
    FB_SCALES,      /* of a quantisation: one tensor for every source */
    FB_MAGNITUDES,  /* of DoRA: one number for each row of every source */
} fb_belonging;

typedef struct fb_layout_row {
    fb_belonging belonging;
    const struct fb_layout_row *of; /* the row of the document whose tensors these belong to, or NULL */
    const char *captures[CAPTURES_MAX];
    size_t capture_count;
    fb_layout_source sources[SOURCES_MAX];
    size_t source_count;
    fb_layout_target targets[TARGETS_MAX];
    size_t target_count;
    fb_layout_pattern *stays;
    size_t stay_count;
    bool is_optional, is_linear;
} fb_layout_row;

typedef struct fb_layout_parameter {
    const char *name;
    int64_t minimum;
    const json_t *fallback; /* an expression over parameters before this one in the list; NULL: required */
    const json_t *config;   /* list of expressions over a config.json; NULL: none */
} fb_layout_parameter;

typedef struct fb_layout {
    fb_pass pass;
    json_t *json;
    char *document;
    fb_layout_parameter parameters[FB_LAYOUT_PARAMETERS_MAX];
    size_t parameter_count;
    fb_layout_row *rows; /* the document's, and then the rows of tensors that belong to those */
    size_t row_count, all_count;
    fb_arena arena;
} fb_layout;

/* ---- expressions -------------------------------------------------------------------------------------------------------- */

/* Whole numbers: `heads * head_dim`, `q.shape[0] / 3`, with + - * / // and parentheses; "/" divides without a rest or fails,
 * "//" rounds down. */
typedef struct fb_layout_names {
    /* Finds the value of a name, or one of its sizes where `axis` is not -1. False = unknown. */
    bool (*find)(const void *context, const char *name, size_t length, int axis, int64_t *out);
    const void *context;
    bool is_check; /* values are not known yet: any computed value fits */
} fb_layout_names;

/* FB_INVALID "bad-expression" with what is wrong in it, "does-not-divide", "out-of-range". */
fb_status fb_layout_compute(const char *text, const fb_layout_names *names, int64_t *out, fb_error *error);
/* The value of an integer or an expression. */
fb_status fb_layout_number(const json_t *json, const fb_layout_names *names, int64_t *out, fb_error *error);

/* ---- names -------------------------------------------------------------------------------------------------------------- */

typedef struct fb_layout_capture {
    const char *text;
    size_t length;
} fb_layout_capture;

/* Does the name fit? Sets the captures that the pattern has; captures[EACH] is the counting variable's. */
bool fb_layout_matches(const fb_layout_pattern *pattern, const char *name, fb_layout_capture captures[CAPTURES_MAX + 1]);
/* The name with these captures. */
void fb_layout_spell(const fb_layout_pattern *pattern, const fb_layout_capture captures[CAPTURES_MAX + 1], fb_buffer *out);

/* ---- applying ----------------------------------------------------------------------------------------------------------- */

void fb_layout_match_graph(fb_matcher *matcher);
void fb_layout_edit(fb_rewrite *rewrite, const fb_match *match);

/* An owner's tensor. */
typedef struct fb_layout_owned {
    const char *name; /* the owner's path and the attribute */
    const char *attribute;
    fb_module module;
    fb_tensor tensor;
    uint32_t claims; /* by how many applications it is read */
    bool is_tied;
} fb_layout_owned;

/* A weight, as a belonging sees it. */
typedef struct fb_layout_weight {
    const char *name;
    fb_layout_owned *owned; /* NULL: the checkpoint has only what belongs to it */
    int64_t sizes[2];       /* out, in; -1: not known */
} fb_layout_weight;

/* A row with captures. */
typedef struct fb_layout_application {
    const fb_layout_row *row;
    fb_layout_capture captures[CAPTURES_MAX + 1];
    fb_layout_owned **tensors[SOURCES_MAX]; /* of each source, in the order of its count; NULL where one is missing */
    size_t counts[SOURCES_MAX];
    fb_layout_weight *weights; /* of a row of adapters: one for each source of the row that it is of */
    bool is_refused;
} fb_layout_application;

/* The first tensor that it reads. */
const fb_layout_owned *fb_layout_first(const fb_layout_application *application);

/* The variables of one application, and their values. */
typedef struct fb_layout_scope {
    const fb_layout *layout;
    const int64_t *parameters;
    const fb_graph *graph;
    const fb_layout_application *application;
    const char *variables[EACH_MAX]; /* that are counted by now, innermost last */
    int64_t values[EACH_MAX];
    size_t variable_count;
    const struct fb_stand_in *stand_ins; /* for the sources, or NULL */
    size_t parts;                        /* of the recipe that is being made */
    fb_work *work;                       /* NULL: not metered */
} fb_layout_scope;

fb_layout_names fb_layout_names_of(const fb_layout_scope *scope);
/* The number of tensors that a name with captures means. */
fb_status fb_layout_count_of(const fb_layout_scope *scope, const fb_layout_count *each, int64_t *out, fb_error *error);
/* The name of the target's tensor of that number; from then on the scope counts by it. */
void fb_layout_target_name(fb_layout_scope *scope, const fb_layout_target *target, int64_t number, fb_buffer *out);

#define FB_LAYOUT_PARTS_MAX 100000 /* of a recipe, all that it counts through included */
#define FB_LAYOUT_MADE_MAX 1000000 /* tensors, by all applications */

/* The recipe of a target, over the tensors of the application, made in `graph` (the scope's, or a copy). None after a failure:
 * then `error` is "shape-mismatch", "does-not-divide", "out-of-range", "inexact", memory is out, or the work was stopped. */
fb_value fb_layout_recipe(fb_graph *graph, fb_layout_scope *scope, const fb_layout_target *target, fb_error *error);

/* ---- what belongs to weights -------------------------------------------------------------------------------------------- */

/* The value that a recipe reads in the place of a source: it has as many rows, or as many columns. */
typedef struct fb_stand_in {
    fb_value value;
    int64_t sizes[2];
} fb_stand_in;

/* Builds a recipe of the document over the application's tensors or the scope's stand-ins. */
fb_value fb_layout_build(fb_graph *graph, fb_layout_scope *scope, const json_t *recipe, fb_error *error);

/* Finds the sizes of the application's weights and checks what belongs to them against these, each other and the row's shapes:
 * "shape-mismatch", "incomplete", "inexact", "does-not-divide". */
fb_status fb_layout_check_adapters(const fb_layout_scope *scope, fb_error *error);
fb_value fb_layout_belonging(fb_graph *graph, fb_layout_scope *scope, const fb_layout_target *target, fb_error *error);

/* ---- blocks ------------------------------------------------------------------------------------------------------------- */

/* If the expression is a tensor of elements, the tensor of their blocks, and how many elements a block has along each
 * dimension: one that has only a block has the size itself; 0: unknown. Otherwise none. */
typedef fb_value fb_layout_blocks_leaf(const void *context, fb_graph *graph, fb_value fine, int64_t blocks[FB_RECIPE_MAX_RANK]);

/* The recipe `fine` of elements as one of their blocks; `blocks` of its result as above. `may_copy`: where one block is all
 * along a dimension, a part of it keeps the block. None and "cuts-block" where a block would not stay whole, or memory is out.
 */
fb_value fb_layout_in_blocks(fb_graph *graph, fb_value fine, fb_layout_blocks_leaf *leaf, const void *context, bool may_copy,
                             int64_t blocks[FB_RECIPE_MAX_RANK], fb_error *error);

/* How many of `size` elements a block has, if there are `count`: 1, all, or a power of two, the last block being smaller then;
 * 0 when it might be another number. */
int64_t fb_layout_block_of(int64_t size, int64_t count);

/* Size of a tensor in numbers: of dtypes that pack some into an element, a row has as many times more. */
int64_t fb_layout_size(const fb_graph *graph, fb_tensor tensor, int axis);

/* The plan of an edit: found by match_graph, in the report's arena. The only node of a match is the number of its application,
 * counted from 1. */
typedef struct fb_layout_plan {
    const fb_layout *layout;
    const int64_t *parameters;
    fb_layout_application **applications;
    size_t count;
} fb_layout_plan;

#endif
