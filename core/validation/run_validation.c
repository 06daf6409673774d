#include "core/validation/run_validation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/float.h"

static const char *const modes[] = {
    [FB_VALIDATE_OFF] = "off", [FB_VALIDATE_REWRITES] = "rewrites", [FB_VALIDATE_GRAPH] = "graph"};

const char *fb_validation_mode_name(fb_validation_mode mode) {
    return modes[mode];
}

bool fb_validation_mode_find(const char *name, fb_validation_mode *out) {
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(modes[i], name) != 0) continue;
        *out = (fb_validation_mode)i;
        return true;
    }
    return false;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------------- */

static void write_number(const char *name, double value, fb_buffer *out) {
    char text[FB_FLOAT_MAX] = "null";
    if (isfinite(value)) fb_float_repr(value, text);
    fb_buffer_printf(out, "\"%s\":%s", name, text);
}

void fb_write_difference(const fb_difference *difference, fb_buffer *out) {
    write_number("max_absolute", difference->absolute, out);
    fb_buffer_char(out, ',');
    write_number("max_relative", difference->relative, out);
    fb_buffer_char(out, ',');
    write_number("max_ulp", difference->ulp, out);
}

static void write_names(const char *const *names, size_t count, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < count; i++) {
        if (i) fb_buffer_char(out, ',');
        fb_buffer_json_string(out, names[i], strlen(names[i]));
    }
    fb_buffer_char(out, ']');
}

static void write_unevaluated(const char *const *nodes, size_t count, const char *code, const char *detail, fb_buffer *out) {
    fb_buffer_string(out, out->size ? ",{\"nodes\":" : "{\"nodes\":");
    write_names(nodes, count, out);
    fb_buffer_string(out, ",\"code\":");
    fb_buffer_json_string(out, code, strlen(code));
    fb_buffer_string(out, ",\"detail\":");
    fb_buffer_json_string(out, detail, strlen(detail));
    fb_buffer_char(out, '}');
}

#define FB_DETAIL 400

/* The result of one pass's comparison. */
typedef struct outcome {
    const char *counted;     /* "regions" or "outputs" */
    size_t count, equal;     /* equal: regions that have another one's numbers */
    fb_buffer not_evaluated; /* JSON objects, with commas between them */
    bool lists_regions;      /* of a pass that changes what is computed: by how much in each region */
    fb_buffer each;          /* the same */
    fb_difference between, before_exact, after_exact;
    bool fails;
    char broken[FB_DETAIL]; /* why the graph fails after the pass, while it could be evaluated before; "" = it does not */
} outcome;

static fb_status keep_outcome(outcome *found, fb_pass_report *report, fb_arena *arena, fb_error *error) {
    fb_buffer text = {0};
    if (!found->count && found->not_evaluated.size) /* no numbers, rather than 0 */
        found->between = found->before_exact = found->after_exact = (fb_difference){HUGE_VAL, HUGE_VAL, HUGE_VAL, 0, 0};
    fb_buffer_printf(&text, "{\"%s\":%zu,", found->counted, found->count);
    if (found->equal) fb_buffer_printf(&text, "\"equal_regions\":%zu,", found->equal);
    fb_buffer_string(&text, "\"not_evaluated\":[");
    fb_buffer_append(&text, found->not_evaluated.data, found->not_evaluated.size);
    fb_buffer_string(&text, "],");
    if (found->lists_regions) {
        fb_buffer_string(&text, "\"each\":[");
        fb_buffer_append(&text, found->each.data, found->each.size);
        fb_buffer_string(&text, "],");
    }
    fb_write_difference(&found->between, &text);
    fb_buffer_string(&text, ",\"before_against_float64\":{");
    fb_write_difference(&found->before_exact, &text);
    fb_buffer_string(&text, "},\"after_against_float64\":{");
    fb_write_difference(&found->after_exact, &text);
    fb_buffer_string(&text, "}}");
    bool ok = !text.failed && !found->not_evaluated.failed && !found->each.failed;
    if (ok) report->validation = fb_arena_text(arena, text.data, text.size);
    fb_buffer_free(&text);
    return ok && report->validation ? FB_OK : fb_fail_memory(error);
}

/* ---- what differs ------------------------------------------------------------------------------------------------------ */

static void begin_failed(fb_run_validation *validation, const char *name) {
    fb_buffer *out = &validation->failed_numbers;
    fb_buffer_string(out, out->size ? ",{" : "{");
    if (!name) return;
    fb_buffer_string(out, "\"name\":");
    fb_buffer_json_string(out, name, strlen(name));
    fb_buffer_char(out, ',');
}

static void end_failed(fb_run_validation *validation, const fb_difference *between) {
    fb_write_difference(between, &validation->failed_numbers);
    fb_buffer_char(&validation->failed_numbers, '}');
}

static void name_failed(fb_run_validation *validation, const char *node) {
    const char *copy = fb_arena_text(&validation->failed_names, node, strlen(node));
    if (!copy) validation->failed_nodes.failed = true;
    else fb_buffer_append(&validation->failed_nodes, &copy, sizeof copy);
}

static fb_status fail(fb_run_validation *validation, const fb_pass_report *report, size_t position, const outcome *found,
                      fb_error *error) {
    if (validation->failed_numbers.failed || validation->failed_nodes.failed) return fb_fail_memory(error);
    validation->failed = report->pass;
    validation->failed_position = position;
    if (*found->broken)
        return fb_fail(error, FB_INVALID, "validation-failed", NULL,
                       "%s made a graph that cannot be evaluated, of one that could: %s", report->pass->name, found->broken);
    if (!isfinite(found->between.absolute))
        return fb_fail(error, FB_INVALID, "validation-failed", NULL,
                       "%s changed what the graph computes: a value has another shape or dtype, or is not finite where it was",
                       report->pass->name);
    return fb_fail(error, FB_INVALID, "validation-failed", NULL,
                   "%s changed what the graph computes: by %.3g at most, %.3g of the largest value", report->pass->name,
                   found->between.absolute, found->between.relative);
}

/* ---- the two comparisons ----------------------------------------------------------------------------------------------- */

static void list_region(const fb_region_report *region, fb_buffer *out) {
    fb_buffer_string(out, out->size ? ",{\"nodes\":" : "{\"nodes\":");
    write_names(region->nodes, region->node_count, out);
    fb_buffer_char(out, ',');
    fb_write_difference(&region->between, out);
    fb_buffer_char(out, ',');
    write_number("rms_relative", region->rms, out);
    fb_buffer_char(out, '}');
}

static void take_region(fb_run_validation *validation, const fb_region_report *region, outcome *found) {
    if (region->is_broken && !*found->broken) fb_copy_text(found->broken, sizeof found->broken, region->detail);
    if (region->unsupported && !region->is_broken)
        write_unevaluated(region->nodes, region->node_count, region->unsupported, region->detail, &found->not_evaluated);
    found->count += !region->unsupported;
    found->equal += region->is_equal && !region->unsupported;
    if (found->lists_regions && !region->unsupported && !region->is_equal) list_region(region, &found->each);
    if (region->passes) return;
    begin_failed(validation, NULL);
    fb_buffer_string(&validation->failed_numbers, "\"nodes\":");
    write_names(region->nodes, region->node_count, &validation->failed_numbers);
    fb_buffer_char(&validation->failed_numbers, ',');
    end_failed(validation, &region->between);
    for (size_t i = 0; i < region->node_count; i++) name_failed(validation, region->nodes[i]);
}

static fb_status compare_regions(fb_run_validation *validation, const fb_graph *before, const fb_graph *after, bool only_moves,
                                 outcome *found, fb_error *error) {
    fb_validation regions;
    fb_status status =
        fb_validate_rewrite(before, after, validation->options, only_moves, validation->tolerance, &regions, error);
    if (status) return status;
    for (size_t i = 0; i < regions.count; i++) take_region(validation, &regions.regions[i], found);
    found->between = regions.worst;
    found->before_exact = regions.before_exact;
    found->after_exact = regions.after_exact;
    found->fails = !regions.passes;
    fb_validation_free(&regions);
    return FB_OK;
}

/* Of a hidden one nothing is known: what is given to the graph has overflowed in it before the pass. */
static void take_output(fb_run_validation *validation, const fb_output_comparison *output, outcome *found) {
    if (output->is_hidden) {
        char detail[FB_DETAIL];
        snprintf(detail, sizeof detail, "of %s: %s", output->name, FB_NOT_FINITE_DETAIL);
        write_unevaluated(NULL, 0, FB_NOT_FINITE, detail, &found->not_evaluated);
        return;
    }
    found->count++;
    found->fails |= !output->passes;
    fb_difference_join(&found->between, &output->between);
    fb_difference_join(&found->before_exact, &output->a_exact);
    fb_difference_join(&found->after_exact, &output->b_exact);
    if (output->passes) return;
    begin_failed(validation, output->name);
    end_failed(validation, &output->between);
}

static bool is_any_hidden(const fb_comparison *outputs) {
    bool is_any = false;
    for (size_t i = 0; i < outputs->count; i++) is_any |= outputs->outputs[i].is_hidden;
    return is_any;
}

/* On smaller and smaller inputs as long as an output overflows before the pass; on the first again if that does not help. */
static fb_status compare_on_inputs(const fb_graph *before, const fb_graph *after, fb_eval_options *options,
                                   const fb_tolerance *tolerance, fb_comparison_chain *chain, fb_comparison *out,
                                   fb_error *error) {
    fb_status status = FB_OK;
    for (int attempt = 0; attempt <= FB_DEVIATIONS; attempt++) {
        fb_comparison_inputs drawn = {.chain = attempt ? NULL : chain}; /* of what is drawn at first */
        options->deviation = attempt < FB_DEVIATIONS ? fb_deviation(attempt) : 1;
        status = fb_compare_graphs(before, after, &drawn, options, tolerance, out, error);
        if (status || !is_any_hidden(out) || attempt == FB_DEVIATIONS) break;
        fb_comparison_free(out);
    }
    return status;
}

/* Every pass gets the tolerance of computed weights: sums of sums may go in another order. */
static fb_status compare_outputs(fb_run_validation *validation, const fb_graph *before, const fb_graph *after, outcome *found,
                                 fb_error *error) {
    fb_comparison outputs;
    fb_error failure = {0};
    fb_eval_options options = *validation->options;
    options.random_weights = true;
    fb_status status =
        compare_on_inputs(before, after, &options, validation->tolerance, &validation->chain, &outputs, &failure);
    if (status == FB_INVALID && strcmp(failure.code, "output-mismatch") == 0) {
        found->fails = true;
        found->between.absolute = found->between.relative = found->between.ulp = HUGE_VAL;
        return FB_OK;
    }
    fb_node at = fb_node_find(after, FB_MAIN_PROGRAM, failure.node);
    if (status == FB_INVALID && outputs.failed == after && fb_failure_counts(after, failure.code, at)) {
        begin_failed(validation, NULL);
        found->between.absolute = found->between.relative = found->between.ulp = HUGE_VAL;
        end_failed(validation, &found->between);
        if (*failure.node) name_failed(validation, failure.node);
        fb_copy_text(found->broken, sizeof found->broken, failure.message);
        found->fails = true;
        return FB_OK;
    }
    if (status == FB_INVALID) { /* no fault of the pass's */
        const char *node = failure.node;
        write_unevaluated(&node, *node ? 1 : 0, failure.code, failure.message, &found->not_evaluated);
        return FB_OK;
    }
    if (status) {
        *error = failure;
        return status;
    }
    for (size_t i = 0; i < outputs.count; i++) take_output(validation, &outputs.outputs[i], found);
    if (found->fails && *outputs.first_node) name_failed(validation, outputs.first_node);
    fb_comparison_free(&outputs);
    return FB_OK;
}

static fb_status compare(fb_run_validation *validation, const fb_graph *before, const fb_graph *after,
                         const fb_pass_report *report, outcome *found, fb_error *error) {
    bool only_moves = fb_report_exactness(report) == FB_MOVES;
    if (!report->pass->preserves_computation && !validation->tolerance) {
        fb_comparison_chain_free(&validation->chain);
        write_unevaluated(report->nodes, report->node_count, "not-compared",
                          "the pass is meant to change the result, so it is compared only when a tolerance is given",
                          &found->not_evaluated);
        return FB_OK;
    }
    found->lists_regions = !report->pass->preserves_computation && validation->mode == FB_VALIDATE_REWRITES;
    if (validation->mode == FB_VALIDATE_REWRITES) return compare_regions(validation, before, after, only_moves, found, error);
    fb_status status = compare_outputs(validation, before, after, found, error);
    if (!report->pass->preserves_computation) fb_comparison_chain_free(&validation->chain); /* another truth from here on */
    return status;
}

static fb_status look(void *context, size_t position, const fb_graph *before, const fb_graph *after, fb_pass_report *report,
                      fb_arena *arena, fb_error *error) {
    fb_run_validation *validation = context;
    outcome found = {.counted = validation->mode == FB_VALIDATE_GRAPH ? "outputs" : "regions"};
    fb_status status = compare(validation, before, after, report, &found, error);
    if (!status) status = keep_outcome(&found, report, arena, error);
    if (!status && found.fails) status = fail(validation, report, position, &found, error);
    validation->compared += found.count;
    validation->is_incomplete |= found.not_evaluated.size != 0;
    fb_buffer_free(&found.not_evaluated);
    fb_buffer_free(&found.each);
    return status;
}

fb_run_watcher fb_validation_watcher(fb_run_validation *validation) {
    return (fb_run_watcher){.context = validation, .applied = look};
}

void fb_run_validation_free(fb_run_validation *validation) {
    fb_buffer_free(&validation->failed_numbers);
    fb_buffer_free(&validation->failed_nodes);
    fb_arena_free(&validation->failed_names);
    fb_comparison_chain_free(&validation->chain);
}
