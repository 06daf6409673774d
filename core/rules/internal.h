/* Declarations that the files of rules share. */
#ifndef FB_RULES_INTERNAL_H
#define FB_RULES_INTERNAL_H

#include "core/analysis/number.h"
#include "core/base/arena.h"
#include "core/base/map.h"
#include "core/base/work.h"
#include "core/rules/rule.h"

/* ---- numbers ------------------------------------------------------------------------------------------------------------ */

/* Arithmetic on matched constants: "1 / ?c", "sqrt(size(?x, -1))". In postfix order. */
typedef enum fb_step_kind {
    FB_STEP_NUMBER = 1,
    FB_STEP_VARIABLE,
    FB_STEP_SIZE, /* size(?x, axis) */
    FB_STEP_ADD,
    FB_STEP_SUBTRACT,
    FB_STEP_MULTIPLY,
    FB_STEP_DIVIDE,
    FB_STEP_POWER,
    FB_STEP_NEGATE,
    FB_STEP_ABS,
    FB_STEP_SQRT,
    FB_STEP_EXP,
    FB_STEP_LOG,
    FB_STEP_FLOAT,
    FB_STEP_TENSOR, /* ?l.weight (axis 0) or ?l.bias (1); in "weights" */
} fb_step_kind;

typedef struct fb_rule_step {
    fb_step_kind kind;
    int variable, axis;
    fb_number number;
} fb_rule_step;

typedef struct fb_rule_expression {
    const fb_rule_step *steps;
    size_t count;
} fb_rule_expression;

/* ---- patterns and replacements ------------------------------------------------------------------------------------------ */

typedef struct fb_rule_call fb_rule_call;

typedef enum fb_term_kind {
    FB_TERM_ANYTHING = 1, /* "?" */
    FB_TERM_VARIABLE,     /* "?x" */
    FB_TERM_LITERAL,
    FB_TERM_SEQUENCE, /* a list, tuple, size or slice with more than literals in it */
    FB_TERM_CALL,
    FB_TERM_NUMBER, /* {"compute": "…"}; in replacements */
} fb_term_kind;

typedef struct fb_rule_term {
    fb_term_kind kind;
    bool is_optional; /* in patterns: {"optional": …} */
    int variable;
    size_t literal; /* which of the rule's */
    fb_kind sequence;
    const struct fb_rule_term *items;
    size_t count;
    const fb_rule_call *call;
    fb_rule_expression number;
} fb_rule_term;

typedef struct fb_rule_argument {
    const char *name; /* of the parameter; NULL: by position alone */
    size_t position;  /* SIZE_MAX: by name alone */
    fb_rule_term term;
} fb_rule_argument;

/* How a call of a replacement is spelled beside what was matched. */
typedef enum fb_spelling_family {
    FB_SPELLED_OPERATOR, /* operator.mul */
    FB_SPELLED_TORCH,    /* torch.mul, torch.nn.functional.relu; also of called modules */
    FB_SPELLED_METHOD,
    FB_SPELLED_ATEN,
    FB_SPELLING_FAMILIES,
} fb_spelling_family;

typedef struct fb_spelling_style {
    fb_spelling_family family;
    const char *overload; /* of an ATen operator: "Scalar"; else NULL */
} fb_spelling_style;

#define FB_RULE_OPERATORS_MAX 8

struct fb_rule_call {
    size_t index;      /* in the pattern, or among those that are made */
    const char *place; /* its pointer */
    int variable;      /* that names its result, or -1 */
    fb_op operators[FB_RULE_OPERATORS_MAX];
    size_t operator_count;
    const char *const *targets; /* in patterns: one of these, exactly */
    size_t target_count;
    const char *type;                            /* in patterns: of a called module, exactly */
    const char *spellings[FB_SPELLING_FAMILIES]; /* in replacements; all NULL: from the operator */
    bool takes_any_order;
    const fb_rule_argument *arguments;
    size_t argument_count;
};

typedef enum fb_condition_kind {
    FB_WHERE_USERS = 1,
    FB_WHERE_DTYPE,
    FB_WHERE_SAME_DTYPE,
    FB_WHERE_RANK,
    FB_WHERE_SHAPE,
    FB_WHERE_SAME_SHAPE,
    FB_WHERE_OUTPUT,
    FB_WHERE_MUTATED,
    FB_WHERE_TRAINING,
    FB_WHERE_KIND,
    FB_WHERE_NUMBER, /* in a range, from all the members about one number */
    FB_WHERE_NOT_EQUAL,
    FB_WHERE_INTEGER,
    FB_WHERE_NORMAL_IN,
} fb_condition_kind;

typedef struct fb_rule_condition {
    fb_condition_kind kind;
    const char *place;           /* its pointer */
    const char *reason, *detail; /* NULL: where it does not hold, the node is not a candidate */
    int variable, other;
    fb_rule_expression number;
    double least, most;                 /* both included … */
    bool excludes_least, excludes_most; /* … or not */
    bool is_true;
    uint32_t dtypes;      /* bits: 1 << fb_dtype */
    const int64_t *sizes; /* of FB_WHERE_SHAPE; -1 = any */
    int rank;
} fb_rule_condition;

typedef struct fb_rule_root {
    int variable;
    size_t call;       /* which of the pattern's; SIZE_MAX: not replaced */
    fb_rule_term term; /* what gives its value from now on: a call or a variable */
} fb_rule_root;

/* Other weights for a layer; an expression without steps leaves what there is. */
typedef struct fb_rule_weights {
    int variable;
    size_t call;
    fb_rule_expression weight, bias;
} fb_rule_weights;

struct fb_rule {
    fb_pass pass;
    fb_arena arena;
    char *document;  /* canonical */
    fb_graph *given; /* holds the literals: those are the arguments of its first node */
    const char *variables[FB_RULE_VARIABLES_MAX];
    bool is_number[FB_RULE_VARIABLES_MAX]; /* binds to an int or a float only */
    bool is_bound[FB_RULE_VARIABLES_MAX];  /* by the pattern */
    int variable_count;
    const fb_rule_call *roots[FB_RULE_CALLS_MAX]; /* of the pattern; the first is looked for, the others are found from it */
    const fb_rule_call *calls[FB_RULE_CALLS_MAX]; /* of the pattern, all of them */
    size_t root_count, call_count;
    const fb_rule_call *made[FB_RULE_CALLS_MAX]; /* of the replacement, all of them */
    size_t made_count;
    size_t any_order_count;
    const fb_rule_condition *conditions;
    size_t condition_count;
    const fb_rule_call *lets[FB_RULE_CALLS_MAX]; /* calls that several replacements share, in order */
    size_t let_count;
    fb_rule_root replaced[FB_RULE_CALLS_MAX];
    size_t replaced_count;
    fb_rule_weights weights[FB_RULE_CALLS_MAX];
    size_t weights_count;
};

/* A literal of the rule. */
fb_value fb_rule_literal(const fb_rule *rule, size_t index);

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

/* One literal on its way into fb_rule.given. */
typedef struct fb_rule_reader {
    fb_rule *rule;
    fb_buffer pointer;  /* the reader's place */
    size_t start;       /* its length at the rule itself */
    fb_buffer literals; /* const json_t * */
    fb_buffer places;   /* const char *: their pointers, in the rule's arena */
    bool is_pattern;    /* it reads the pattern */
    bool is_shared;     /* it reads the calls of "let" */
    bool takes_tensors; /* it reads an expression of "weights" */
    size_t made_calls;  /* of the replacement */
    fb_error *error;
} fb_rule_reader;

fb_status fb_rule_fail(fb_rule_reader *reader, const char *code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Memory of the rule; NULL, and then a failure is reported, when there is none. */
void *fb_rule_alloc(fb_rule_reader *reader, size_t size);
char *fb_rule_text(fb_rule_reader *reader, const char *text);
/* Reports a member that is not among the words of `known`, which are separated by spaces. */
fb_status fb_rule_check_members(fb_rule_reader *reader, const json_t *object, const char *known);
#define FB_RULE_MEMBERS_MAX 40
/* An object's keys in the order of their bytes, as in the stored document: so it is the same rule again. */
fb_status fb_rule_sorted_keys(fb_rule_reader *reader, const json_t *object, const char *keys[FB_RULE_MEMBERS_MAX],
                              size_t *count);
/* The variable of that name ("?x"), which is added when it is new. */
fb_status fb_rule_variable(fb_rule_reader *reader, const char *name, int *out);
/* The same where it must be bound by the pattern, or by a call of the replacement before. */
fb_status fb_rule_bound_variable(fb_rule_reader *reader, const char *name, int *out);

fb_status fb_rule_read_term(fb_rule_reader *reader, const json_t *json, fb_rule_term *out);
fb_status fb_rule_read_call(fb_rule_reader *reader, const json_t *json, const fb_rule_call **out);
fb_status fb_rule_read_expression(fb_rule_reader *reader, const char *text, fb_rule_expression *out);
fb_status fb_rule_read_conditions(fb_rule_reader *reader, const json_t *list);
fb_status fb_rule_read_weights(fb_rule_reader *reader, const json_t *object);

/* ---- values of two graphs ----------------------------------------------------------------------------------------------- */

/* Compares a value without nodes with one of another graph. */
bool fb_rule_same_value(const fb_graph *a, fb_value x, const fb_graph *b, fb_value y);
/* The value in another graph, where `nodes` (perhaps NULL: there are none) says what its nodes are; none when memory is out. */
fb_value fb_rule_copy_value(const fb_graph *from, fb_value value, fb_graph *to, const fb_map *nodes, fb_work *work);

/* ---- matching ----------------------------------------------------------------------------------------------------------- */

#define FB_RULE_READERS_MAX 64 /* readers of a node among which a further root is looked for: so a sweep stays linear */

/* The nodes and values of a pattern's calls and variables in one match. */
typedef struct fb_rule_binding {
    fb_node nodes[FB_RULE_CALLS_MAX];
    fb_value values[FB_RULE_VARIABLES_MAX];
    bool is_crowded; /* a further root was not looked for: FB_RULE_READERS_MAX */
} fb_rule_binding;

/* False for what cannot be computed: a division by zero, a result that is not finite or beyond 64 bits. */
bool fb_rule_compute(const fb_graph *graph, const fb_rule_expression *expression, const fb_rule_binding *binding,
                     fb_number *out);

/* True if the conditions hold. `failed` is the first that does not. */
bool fb_rule_conditions_hold(const fb_rule *rule, fb_matcher *matcher, const fb_rule_binding *binding,
                             const fb_rule_condition **failed);

/* ---- replacing ---------------------------------------------------------------------------------------------------------- */

/* Inserts the calls of "let" before `before`, spelled in that style, and binds their names. */
void fb_rule_build_lets(fb_rewrite *rewrite, const fb_rule *rule, fb_rule_binding *binding, fb_spelling_style style,
                        fb_node before);
/* The call in the place of a root: a new node before `before`, or `root` itself where that is not none. */
fb_node fb_rule_build_root(fb_rewrite *rewrite, const fb_rule *rule, const fb_rule_binding *binding,
                           const fb_rule_root *replaced, fb_spelling_style style, fb_node before, fb_node root);

/* The style in which a call is spelled, and so the calls that replace it; valid while the graph lives. */
fb_spelling_style fb_rule_style(const fb_graph *graph, fb_node node);

/* Is the call of that index a root of the pattern? */
bool fb_rule_is_root(const fb_rule *rule, size_t call);
/* Why the layers cannot get other weights, and the sentence; NULL when they can. */
fb_obstacle fb_rule_weights_obstacle(fb_matcher *matcher, const fb_rule *rule, const fb_rule_binding *binding);
void fb_rule_edit_weights(fb_rewrite *rewrite, const fb_rule *rule, const fb_rule_binding *binding);

/* For fb_pass. */
void fb_rule_match_graph(fb_matcher *matcher);
void fb_rule_edit(fb_rewrite *rewrite, const fb_match *match);

/* ---- trying a replacement ----------------------------------------------------------------------------------------------- */

/* A graph beside the one that is matched, in which a replacement is made to see what comes out. */
typedef struct fb_rule_trial {
    fb_graph *graph;
    fb_namespace *names;
    fb_node end;
    fb_map nodes; /* of the match -> of the trial */
    unsigned uses;
} fb_rule_trial;

/* The known type of a root's replacement. */
typedef struct fb_rule_outcome {
    bool is_computed; /* or a scalar cannot be computed, and the rest is unknown */
    fb_dtype dtype;   /* FB_DTYPE_UNKNOWN, and shape none: not known */
    bool has_shape, is_same_shape;
    bool has_effects; /* writes into what it reads */
    bool is_possible; /* every call is one that its operator takes, so spelled */
    bool may_alias;
    bool saves_result; /* for its gradient, or may */
} fb_rule_outcome;

/* Checks that PyTorch has the calls that the rule makes, for some values of its variables: each spelling that the rule writes
 * out, or one of an operator's. FB_INVALID "no-such-call". */
fb_status fb_rule_try_calls(const fb_rule *rule, fb_error *error);

#endif
