/* The interface of a pass. One pass is one file: a picture of before and after, its conditions, `match`, `edit` and a
 * descriptor.
 *
 * match looks at one node of a graph that does not change while matching, and reports what it finds: fb_match_found (this
 * can be done) or fb_refuse (this looks like it, but must not be done, because …). A node without a report is not a candidate.
 * Then edit is called once for every match, in the order of matching, on a rewrite that succeeds or fails as a whole.
 */
#ifndef FB_PASS_PASS_H
#define FB_PASS_PASS_H

#include <jansson.h>
#include <string.h>

#include "core/analysis/alias.h"
#include "core/analysis/constant.h"
#include "core/analysis/obstacle.h"
#include "core/analysis/tensor_extent.h"
#include "core/analysis/usage.h"
#include "core/analysis/view.h"
#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/base/work.h"
#include "core/graph/graph.h"
#include "core/rewrite/rewrite.h"
#include "core/weights/evaluate.h"

typedef enum fb_exactness {
    FB_MOVES,   /* weights are rearranged, never recomputed */
    FB_ROUNDS,  /* the same function in real arithmetic; constants or weights are rounded once */
    FB_CHANGES, /* computes something else */
} fb_exactness;
const char *fb_exactness_name(fb_exactness exactness);

/* The effect of a pass alone on the time that PyTorch takes, as docs/performance.md measured it on models of real sizes. */
typedef enum fb_gain {
    FB_GAIN_UNMEASURED,
    FB_GAIN_FASTER,      /* by 5 % or more */
    FB_GAIN_FEWER_NODES, /* takes as long */
    FB_GAIN_SAME,        /* takes as long, with as many nodes or more */
    FB_GAIN_SMALLER,     /* the weights, and it does not run faster */
    FB_GAIN_SLOWER,      /* by 5 % or more */
} fb_gain;
const char *fb_gain_name(fb_gain gain);

typedef struct fb_matcher fb_matcher;

/* One match, as it was reported: nodes of one kind (fb_match_found), or a struct of the pass (fb_match_found_as). */
typedef struct fb_match {
    const struct fb_pass *pass;
    const void *data;
    const fb_node *nodes; /* the same, as nodes */
    size_t count;
    const json_t *params; /* of the call, an object that fits the pass's `parameters` */
    const void *plan;     /* what match_graph left for edit in the matcher's `plan` */
} fb_match;

typedef struct fb_pass {
    const char *name;
    int version;                   /* part of the signature: what does something else is another version */
    const struct fb_pass *earlier; /* the version before, with which old runs are undone; NULL: there is none */
    const char *summary;           /* one sentence, Markdown */
    const char *parameters;        /* JSON Schema of `params` */
    fb_exactness exactness;
    fb_gain gain;
    bool reversible, preserves_computation;
    bool only_removes; /* nodes: nothing is left that it could mark */
    bool reads_onnx;   /* what it asks of a call is known of ONNX's operators, and it writes none of PyTorch's in their place */
    bool (*begins_at)(fb_op op); /* may it match a node of that operator? NULL: of any */
    void (*match)(fb_matcher *matcher, fb_node node);
    void (*match_graph)(fb_matcher *matcher); /* in place of `match`: for what is decided by the graph as a whole */
    void (*edit)(fb_rewrite *rewrite, const fb_match *match);
    /* In place of the others, on ONNX models; NULL: the same do. */
    void (*match_onnx)(fb_matcher *matcher);
    void (*edit_onnx)(fb_rewrite *rewrite, const fb_match *match);
    /* For a pass that only looks (then match and edit are NULL): writes what it did or saw into `detail`. */
    fb_status (*inspect)(const fb_graph *graph, fb_work *work, fb_buffer *detail, fb_error *error);
    /* For a pass that is data (core/rules/rule.h, core/layouts/layout.h): what its document was read into, how that is freed,
     * and the id of the document, which is part of the signature. NULL: a pass of this binary. */
    const void *data;
    void (*free)(const struct fb_pass *pass);
    const char *digest;
} fb_pass;

/* Frees a pass that is data; nothing happens for others and NULL. */
static inline void fb_pass_free(const fb_pass *pass) {
    if (pass && pass->free) pass->free(pass);
}

/* The schema of a pass that takes none. */
#define FB_NO_PARAMETERS "{\"additionalProperties\":false,\"properties\":{},\"type\":\"object\"}"

/* ---- for `match` ------------------------------------------------------------------------------------------------------- */

struct fb_matcher {
    const fb_graph *graph;
    fb_graph *workpiece; /* the same, for a rewrite that changes no row of it and is aborted before matching ends */
    const fb_usage *usage;
    const char *signature;
    bool has_signature;   /* the graph has that text: nodes may carry it */
    const json_t *params; /* of the call, an object that fits the pass's `parameters` */
    struct fb_pass_report *report;
    fb_arena *arena;       /* of the report */
    const void *plan;      /* of the arena: what edit gets with every match; NULL: nothing */
    fb_buffer *found;      /* matches */
    fb_alias **alias;      /* where it is kept; made when first asked for */
    fb_sharing *sharing;   /* of this pass; likewise */
    bool failed;           /* memory is out */
    bool is_too_much;      /* the report has outgrown FB_REPORT_MAX */
    fb_work *work;         /* of the whole pass */
    const fb_blobs *blobs; /* of the workpiece */
};

/* Asked before each node, and in any loop over nodes: whether matching goes on. */
bool fb_matcher_goes_on(fb_matcher *matcher);
/* The same before what takes as long as so many nodes. */
bool fb_matcher_takes(fb_matcher *matcher, unsigned nodes);

/* Goes in order over the nodes of the main program with an operator that `begins_at` takes:
 *
 *     fb_candidates all = {.matcher = m, .begins_at = …};
 *     for (fb_node n; (n = fb_next_candidate(&all)).id;) …
 *
 * Most passes look for a few operators, and most nodes cost them no more than a look at a table. It ends where matching does.
 */
typedef struct fb_candidates {
    fb_matcher *matcher;
    bool (*begins_at)(fb_op op);
    size_t next;
    /* Of begins_at, plus one: by operator, and then by operator in place; 0 = not asked yet. */
    uint8_t answers[2 * FB_OP_COUNT];
} fb_candidates;
fb_node fb_next_candidate(fb_candidates *candidates);

/* Reports a match, which edit gets as it is: nodes of one kind; or any other data, such as a struct of the pass. It is copied.
 */
void fb_match_found(fb_matcher *matcher, const fb_node *nodes, size_t count);
void fb_match_found_as(fb_matcher *matcher, const void *data, size_t size);
/* `match_graph` of a pass for ONNX models alone. */
void fb_match_nothing(fb_matcher *matcher);
/* Reports a refusal: a kebab-case reason, the nodes, and one sentence. */
void fb_refuse(fb_matcher *matcher, const char *reason, const fb_node *nodes, size_t count, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The same for one node. */
void fb_refuse_node(fb_matcher *matcher, const char *reason, fb_node node, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A refusal for an obstacle. */
void fb_refuse_for(fb_matcher *matcher, fb_obstacle obstacle, const fb_node *nodes, size_t count);

/* The alias analysis of the graph; NULL when memory is out (then the matcher has failed, and nothing is reported). */
const fb_alias *fb_matcher_alias(fb_matcher *matcher);
/* The same for questions about writes and modes alone. */
const fb_alias *fb_matcher_writes(fb_matcher *matcher);
/* The sharing of memory, now and by the matches that the pass notes with fb_share; NULL likewise. */
fb_sharing *fb_matcher_sharing(fb_matcher *matcher);
/* Does the node carry this pass's signature already? */
bool fb_is_marked(const fb_matcher *matcher, fb_node node);

/* Why a module's parameters must stay as they are: "module-read" (a get_attr reads them, or a module around it is called as a
 * whole), "reparametrised" (it owns more than its type has), "nested-call" (a nested program calls it), "tensor-mutated" (one
 * is written in place: FB_TENSOR_MUTATED). */
fb_obstacle fb_module_obstacle(fb_matcher *matcher, fb_module module);
#define FB_TENSOR_MUTATED                                                                                                      \
    ((fb_obstacle){"tensor-mutated", "one of its tensors is written in place, or may be, so it has no fixed value to "         \
                                     "rewrite"})
/* Why calls cannot be computed together, in the place of the last: "input-mutated" (what they read, or what they give each
 * other, is written in place between them), "mode-switched". */
fb_obstacle fb_disturbance(fb_matcher *matcher, const fb_node *calls, size_t count);
/* Why the replacement of `call` may not save `value` for its gradient: "mutated", as something writes it in place later, and
 * PyTorch raises in the backward pass then. Asked of what a new call reads, and of its result where its operator has
 * FB_FACT_SAVES_RESULT; not of what the old calls saved as well. */
fb_obstacle fb_gradient_obstacle(fb_matcher *matcher, fb_node value, fb_node call);
/* The obstacle of a matcher that has failed: it reports nothing. */
#define FB_OUT_OF_MEMORY ((fb_obstacle){"out-of-memory", "memory is out"})

/* Does this reader of `value` only assert its dtype, device and layout, and does `other`, which is on the device of `value`,
 * have the same? Then fb_move_assertions may let it read that when `value` goes. */
bool fb_asserts_as_well(const fb_graph *graph, fb_node reader, fb_node value, fb_node other);

/* ---- for `edit` -------------------------------------------------------------------------------------------------------- */

/* A list of the values given: FB_ARGS(graph, x, y). */
#define FB_ARGS(graph, ...) fb_make_list(graph, (fb_value[]){__VA_ARGS__}, sizeof((fb_value[]){__VA_ARGS__}) / sizeof(fb_value))
#define FB_TEXT(graph, kind, text) fb_make_text(graph, kind, text, strlen(text))

/* The assertions that read `value` read `other` instead. */
void fb_move_assertions(fb_rewrite *rewrite, fb_node value, fb_node other);

/* ---- applying ---------------------------------------------------------------------------------------------------------- */

typedef struct fb_refusal {
    struct fb_refusal *next;
    const char *reason, *detail;
    const char *const *nodes;
    size_t count;
} fb_refusal;

#define FB_REPORT_MAX ((size_t)128 << 20) /* bytes of all reports of one run */

/* A node whose value another one gives now; where both are the same, one that gives now what none gave before. */
typedef struct fb_absorbed {
    const char *node, *by;
} fb_absorbed;

/* The report of one pass; strings and lists are in its arena. */
typedef struct fb_pass_report {
    const fb_pass *pass;
    const char *preset; /* that it was a part of, or NULL */
    size_t position;    /* of its call in the composition */
    const char *params; /* canonical JSON */
    const char *chosen; /* canonical JSON of a call for some matches (fb_pass_call); else NULL */
    char signature[FB_SIGNATURE_LENGTH + 1];
    size_t applied;             /* matches */
    const char *const *matches; /* their names, where the state asks for them: in order, of those that are applied */
    size_t match_count;
    const fb_absorbed *absorbed;
    size_t absorbed_count;
    const char *const *nodes; /* names of the nodes that it marked, in document order */
    size_t node_count;
    const char **inserted; /* names of calls that are new, or call something else, in document order */
    size_t inserted_count;
    fb_refusal *refused, *last_refused; /* in document order */
    size_t refused_count;
    uint64_t bytes_before, bytes_after; /* of the weights, of a pass that changes what is computed; else 0 */
    const char *detail;                 /* of a pass that only looks; else NULL */
    const char *expected_loss;          /* of one that rounds weights: what that loses, JSON; NULL: it is not known */
    const char *layout;                 /* of a layout: what was done row by row, JSON; else NULL */
    const char *validation; /* what comparing the graphs before and after has shown, JSON; NULL: they were not compared */
} fb_pass_report;
/* Callbacks that follow a run while it is made. Any of the members may be NULL. */
typedef struct fb_run_watcher {
    const fb_watch *watch;                /* stops it; its parts are the passes */
    const fb_blobs *blobs;                /* where weights are, whose numbers may be why a pass refuses something */
    bool names_matches, may_lack_matches; /* as in fb_graph_state */
    void *context;
    /* Looks at what a pass that applied something made of a graph, before the next pass begins; a failure ends the run.
     * `position` counts what was run. */
    fb_status (*applied)(void *context, size_t position, const fb_graph *before, const fb_graph *after, fb_pass_report *report,
                         fb_arena *arena, fb_error *error);
} fb_run_watcher;

/* Passes on why what a pass made is no graph. Of a call that chooses matches the request is at fault and not the pass:
 * FB_INVALID "matches-depend". */
fb_status fb_fail_applied(const fb_pass_report *report, const fb_error *found, fb_error *error);

/* Appends the members `only` and `except` of a call, if it has them. */
void fb_put_chosen(fb_buffer *out, const char *chosen);

/* The exactness of this call: what its params ask for, where a pass takes "exactness"; otherwise the pass's. */
fb_exactness fb_report_exactness(const fb_pass_report *report);

/* The state that passes work on, one after the other: a graph, every name that is or was in use in it, and what one pass has
 * found out about it and the next can use, as long as nothing has changed. Graph and names are borrowed. */
typedef struct fb_graph_state {
    fb_graph *graph;
    fb_namespace *names;
    fb_usage *usage; /* NULL: not computed yet; the same for `alias` */
    fb_alias *alias;
    const fb_blobs *blobs; /* where weights are, whose numbers may be why something is refused; NULL: they are not known */
    bool names_matches;    /* reports list the names of matches */
    bool may_lack_matches; /* the name of a match that a call chooses, and that is not found, is no fault */
} fb_graph_state;
/* Frees what was found out. */
void fb_graph_state_forget(fb_graph_state *work);

/* Matches and edits. Of a call that chooses matches, FB_INVALID "unknown-match" at "/only/0" or "/except/0", and
 * "matches-depend" where the others cannot be applied without those that are left out. FB_TOO_LARGE "report-too-large" when
 * `arena` outgrows FB_REPORT_MAX; what `watch`, which may be NULL, stops it with. `report` has pass, params and signature
 * filled in. After a failure the graph is as before. */
fb_status fb_pass_apply(fb_graph_state *work, const fb_watch *watch, fb_pass_report *report, fb_arena *arena, fb_error *error);

/* ---- Verifying a graph that passes made. -------------------------------------------------------------------------------- */

/* FB_IO "lint-failed" with the first fault when the graph is not valid: a pass has made it so, which is our fault. Or what
 * `work` is stopped with. */
fb_status fb_lint_graph(const fb_graph *graph, fb_work *work, fb_error *error);

/* ---- Why a call that nothing reads, or that is there twice, must stay. -------------------------------------------------- */

/* "unknown-operator", "mutates", "random" or "effect"; none when the call only computes. */
fb_obstacle fb_effect_obstacle(const fb_graph *graph, fb_node node);

/* ---- How large the numbers of a weight are. ------------------------------------------------------------------------------ */

/* As fb_tensor_extent, also of what a blob has that is here, and of what recipes make: for refusals (FB_TENSOR_OVERFLOWS).
 * False as well for a large tensor that meets no dtype as narrow as float16: `dtype` is the new weight's. */
bool fb_known_extent(fb_matcher *matcher, fb_tensor tensor, fb_dtype dtype, fb_extent *out);
/* The largest absolute value; of none 0; nan when it is not known, or not finite. */
double fb_known_largest(fb_matcher *matcher, fb_tensor tensor, fb_dtype dtype);
/* The refusal FB_TENSOR_OVERFLOWS of new weights of that dtype whose absolute values may be as large as `largest`. Nothing for
 * nan: where their bytes come after the run, making the file of them fails (fb_evaluation_refuse_overflow). */
fb_obstacle fb_range_obstacle(fb_dtype dtype, double largest);

#endif
