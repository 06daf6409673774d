#include "core/pass/keep.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/dialect.h"
#include "core/analysis/onnx_types.h"

/* `*` matches any characters, `?` one. */
static bool fits(const char *pattern, const char *text, size_t length) {
    const char *end = text + length, *star = NULL, *from = NULL;
    while (text < end) {
        if (*pattern == '*') {
            star = pattern++;
            from = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

/* The path, or a surrounding module's. */
static bool path_fits(const fb_graph *g, fb_module module, const char *pattern) {
    const char *path = fb_text(g, fb_module_at(g, module)->path);
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        if (fits(pattern, path, (size_t)(dot - path))) return true;
    }
    return fits(pattern, path, strlen(path));
}

static bool uses_module(const fb_graph *g, fb_node n, const char *pattern) {
    if (fb_node_at(g, n)->opcode == FB_CALL_MODULE) return path_fits(g, fb_node_at(g, n)->module, pattern);
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        const fb_node_row *input = fb_node_at(g, fb_edge_input(g, e));
        if (input->opcode != FB_GET_ATTR) continue;
        const char *attribute = input->attribute.id ? fb_text(g, input->attribute) : "";
        bool is_it = fb_dialect_facts_of(g)->has_one_owner ? fits(pattern, attribute, strlen(attribute))
                                                           : path_fits(g, input->module, pattern);
        if (is_it) return true;
    }
    return false;
}

bool fb_keep_begin(fb_keep *keep, const json_t *params) {
    keep->patterns = json_object_get(params, "keep");
    keep->is_used = calloc(json_array_size(keep->patterns) + 1, sizeof *keep->is_used);
    return keep->is_used;
}

void fb_keep_end(fb_keep *keep) {
    free(keep->is_used);
}

static bool is_operator(const fb_graph *g, fb_node n, const char *name) {
    const char *own = fb_dialect_facts_of(g)->has_one_owner ? fb_onnx_operator_name(g, n) : NULL;
    return fb_op_is_named(fb_node_op(g, n), name) || (own && strcmp(own, name) == 0);
}

bool fb_keeps(fb_keep *keep, const fb_graph *graph, fb_node node) {
    bool is_kept = false;
    for (size_t i = 0; i < json_array_size(keep->patterns); i++) {
        const char *pattern = json_string_value(json_array_get(keep->patterns, i));
        if (!is_operator(graph, node, pattern) && !uses_module(graph, node, pattern)) continue;
        is_kept = keep->is_used[i] = true;
    }
    return is_kept;
}

void fb_refuse_unused_keeps(const fb_keep *keep, fb_matcher *matcher) {
    for (size_t i = 0; i < json_array_size(keep->patterns); i++) {
        if (keep->is_used[i]) continue;
        fb_refuse(matcher, "keeps-nothing", NULL, 0, "keep names \"%.80s\", and nothing is called so",
                  json_string_value(json_array_get(keep->patterns, i)));
    }
}
