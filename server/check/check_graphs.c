/* Graphs and rules: is what was stored what its id says? */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/check/internal.h"
#include "server/graphs/rule_library.h"
#include "server/graphs/stored_graph.h"
#include "server/store/check.h"

/* ---- graphs ------------------------------------------------------------------------------------------------------------- */

/* The rows that were made of the document. The graph stays in the cache: runs are next. */
static fb_status check_rows(const fb_app *app, fb_check *check, const char *id, const char *subject, fb_error *error) {
    fb_graph_input input = {0};
    fb_error met = {0};
    char again[FB_ID_LENGTH + 1];
    if (fb_load_graph(app, NULL, id, &input.shared, &met)) return fb_check_met(check, "graph-damaged", subject, &met, error);
    fb_graph_row row;
    fb_status status = fb_graph_row_make(&input, NULL, &row, error);
    if (!status && !fb_document_id(input.shared->graph, again)) status = fb_fail_memory(error);
    if (!status && strcmp(again, id) != 0)
        fb_check_found(check, "graph-damaged", subject, "read and written again it is %s: it is not in canonical form", again);
    if (!status && fb_store_check_graph(app->store, &row.graph, fb_check_stored, check, &met))
        status = fb_check_met(check, "graph-rows-wrong", subject, &met, error);
    fb_graph_row_free(&row);
    fb_graph_input_free(&input);
    return status;
}

static fb_status check_graph(const fb_app *app, fb_check *check, const char *id, fb_error *error) {
    char subject[FB_ID_LENGTH + 8], actual[FB_ID_LENGTH + 1];
    fb_error met = {0};
    char *document = NULL;
    size_t size = 0;
    snprintf(subject, sizeof subject, "graph %.*s", FB_ID_LENGTH, id);
    if (fb_store_get_document(app->store, id, &document, &size, &met))
        return fb_check_met(check, "graph-damaged", subject, &met, error);
    bool is_hashed = fb_sha256_id(document, size, actual);
    free(document);
    if (!is_hashed) return fb_fail_memory(error);
    if (strcmp(actual, id) == 0) return check_rows(app, check, id, subject, error);
    fb_check_found(check, "graph-damaged", subject, "its bytes have the id %s", actual);
    return FB_OK;
}

fb_status fb_check_graphs(const fb_app *app, fb_check *check, fb_error *error) {
    fb_store_texts ids;
    fb_error met = {0};
    if (fb_store_list_texts(app->store, FB_STORED_GRAPHS, &ids, &met))
        return fb_check_met(check, "database-damaged", "the list of graphs", &met, error);
    fb_status status = FB_OK;
    const char *id = ids.texts.data;
    for (size_t i = 0; i < ids.count && !status; i++, id += strlen(id) + 1) {
        status = check_graph(app, check, id, error);
        fb_check_progress(check, "graphs", ++check->graphs, ids.count);
    }
    fb_buffer_free(&ids.texts);
    return status;
}

/* ---- rules -------------------------------------------------------------------------------------------------------------- */

/* `text` is the name, a space and the version. */
static fb_status check_rule(const fb_app *app, fb_check *check, const char *text, fb_error *error) {
    const char *space = strrchr(text, ' ');
    char name[FB_NAME_MAX + 1], subject[FB_NAME_MAX + 40], actual[FB_ID_LENGTH + 1];
    fb_store_rule stored;
    fb_rule *rule = NULL;
    fb_error met = {0};
    snprintf(name, sizeof name, "%.*s", (int)(space - text), text);
    snprintf(subject, sizeof subject, "rule %s, version %s", name, space + 1);
    if (fb_store_get_rule(app->store, name, (uint32_t)strtoul(space + 1, NULL, 10), &stored, &met))
        return fb_check_met(check, "rule-damaged", subject, &met, error);
    fb_status status = FB_OK;
    bool is_hashed = fb_sha256_id(stored.document, strlen(stored.document), actual);
    if (!is_hashed) status = fb_fail_memory(error);
    else if (strcmp(actual, stored.digest) != 0)
        fb_check_found(check, "rule-damaged", subject, "its document has the digest %s, not %s", actual, stored.digest);
    else if (fb_stored_rule_read(&stored, &rule, &met)) status = fb_check_met(check, "rule-damaged", subject, &met, error);
    fb_rule_free(rule);
    fb_store_rule_free(&stored);
    return status;
}

fb_status fb_check_rules(const fb_app *app, fb_check *check, fb_error *error) {
    fb_store_texts rules;
    fb_error met = {0};
    if (fb_store_list_texts(app->store, FB_STORED_RULES, &rules, &met))
        return fb_check_met(check, "database-damaged", "the list of rules", &met, error);
    fb_status status = FB_OK;
    const char *text = rules.texts.data;
    for (size_t i = 0; i < rules.count && !status; i++, text += strlen(text) + 1) {
        status = check_rule(app, check, text, error);
        fb_check_progress(check, "rules", ++check->rules, rules.count);
    }
    fb_buffer_free(&rules.texts);
    return status;
}
