/* Validation of a run: each pass that applied something is compared with what it began with. */
#ifndef FB_VALIDATION_RUN_VALIDATION_H
#define FB_VALIDATION_RUN_VALIDATION_H

#include "core/pass/pass.h"
#include "core/validation/validation.h"

typedef enum fb_validation_mode {
    FB_VALIDATE_OFF,
    FB_VALIDATE_REWRITES, /* the rewritten regions, each by itself */
    FB_VALIDATE_GRAPH,    /* the outputs of the whole graph */
} fb_validation_mode;
const char *fb_validation_mode_name(fb_validation_mode mode);
/* False for what names none. */
bool fb_validation_mode_find(const char *name, fb_validation_mode *out);

typedef struct fb_run_validation {
    fb_validation_mode mode;
    const fb_eval_options *options; /* weights that are not known are drawn in any case */
    const fb_tolerance *tolerance;  /* NULL: by dtype and by what the pass is allowed to do */

    /* The result of a validation. */
    size_t compared;          /* regions or outputs */
    bool is_incomplete;       /* something could not be compared */
    const fb_pass *failed;    /* the pass whose result differs; NULL = none */
    size_t failed_position;   /* in the composition */
    fb_buffer failed_numbers; /* of it, JSON: "regions" or "outputs" that differ, with their numbers */
    fb_buffer failed_nodes;   /* const char * in failed_names */
    fb_arena failed_names;

    fb_comparison_chain chain; /* of whole graphs, as long as one pass after another is compared */
} fb_run_validation;

/* The watcher of a validated run (fb_composition_run); the context is a fb_run_validation. Passes get
 * fb_pass_report.validation. A pass that changes what is computed is not compared, and said to be so. FB_INVALID
 * "validation-failed" when a pass that must preserve the computation does not; what the watch of the options stops it with;
 * FB_TOO_LARGE "evaluation-too-large". */
fb_run_watcher fb_validation_watcher(fb_run_validation *validation);
void fb_run_validation_free(fb_run_validation *validation);

/* Appends "max_absolute", "max_relative" and "max_ulp" as members; null is what is not finite. */
void fb_write_difference(const fb_difference *difference, fb_buffer *out);

#endif
