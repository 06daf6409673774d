/* GET /v1/runs, /v1/runs/{run} and /v1/graphs/{id}/lineage. */
#include <string.h>

#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

#define LABEL_FILTERS_MAX 16

static void get_run(const fb_request *request, fb_response *response) {
    unsigned includes = 0;
    size_t cursor = 0;
    const char *name;
    while ((name = fb_request_query_next(request, "include", &cursor))) {
        unsigned one = fb_include_find(name);
        if (!one) {
            fb_refuse_parameter(response, "include", "unknown-option-value", "include is one of " FB_INCLUDES);
            return;
        }
        includes |= one;
    }
    fb_respond_stored_run(request, response, fb_request_param(request, "run"), includes);
}

static void write_runs(const fb_store_runs *runs, fb_buffer *out) {
    for (size_t i = 0; i < runs->count; i++) {
        fb_put_comma(out);
        fb_run_write(&runs->items[i], NULL, &(fb_work){0}, out);
    }
}

/* ---- GET /v1/runs ------------------------------------------------------------------------------------------------------- */

typedef struct label_filter {
    fb_store_label labels[LABEL_FILTERS_MAX];
    char keys[LABEL_FILTERS_MAX][4 * FB_LABEL_KEY_MAX + 1]; /* in UTF-8 */
    size_t count;
} label_filter;

/* label=key=value, or label=key for any value. */
static bool read_labels(const fb_request *request, fb_response *response, label_filter *filter) {
    size_t cursor = 0;
    const char *text;
    while ((text = fb_request_query_next(request, "label", &cursor))) {
        size_t length = strcspn(text, "=");
        if (filter->count == LABEL_FILTERS_MAX)
            return fb_refuse_parameter(response, "label", "too-many-labels", "a list is filtered by 16 labels at most");
        char *key = filter->keys[filter->count];
        fb_copy_text(key, sizeof filter->keys[0], text);
        key[length < sizeof filter->keys[0] ? length : 0] = '\0';
        if (!*key || fb_count_characters(key) > FB_LABEL_KEY_MAX)
            return fb_refuse_parameter(response, "label", "bad-label", "a label is written label=key=value or label=key");
        filter->labels[filter->count++] = (fb_store_label){.key = key, .value = text[length] ? text + length + 1 : NULL};
    }
    return true;
}

static bool is_kind(const char *kind) {
    static const char *const kinds[] = {"optimize", "external", "reverse", "rollback"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!strcmp(kind, kinds[i])) return true;
    }
    return false;
}

static bool read_filter(const fb_request *request, fb_response *response, fb_store_run_filter *filter, label_filter *labels) {
    *filter = (fb_store_run_filter){.source = fb_request_query(request, "source"),
                                    .result = fb_request_query(request, "result"),
                                    .of_run = fb_request_query(request, "of_run"),
                                    .kind = fb_request_query(request, "kind"),
                                    .pass = fb_request_query(request, "pass"),
                                    .labels = labels->labels};
    if (filter->kind && !is_kind(filter->kind))
        return fb_refuse_parameter(response, "kind", "unknown-kind", "kind is one of optimize, external, reverse, rollback");
    if (filter->pass && !fb_check_pass_parameter(request, response, filter->pass)) return false;
    if (!read_labels(request, response, labels)) return false;
    filter->label_count = labels->count;
    return true;
}

/* A signature is one pass's, or a whole composition's: they never coincide. */
static fb_status set_signature(fb_store *store, const char *const *signature, fb_store_run_filter *filter, fb_error *error) {
    fb_store_runs runs;
    fb_store_run_filter whole = {.composition = *signature};
    fb_status status = fb_store_list_runs(store, &whole, &(fb_store_page){.limit = 1}, false, &runs, error);
    if (status) return status;
    if (runs.count) {
        filter->composition = *signature;
    } else {
        filter->signatures = signature;
        filter->signature_count = 1;
    }
    FB_STORE_FREE(&runs);
    return FB_OK;
}

static void get_runs(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_run_filter filter;
    label_filter labels = {0};
    fb_store_runs runs;
    if (!fb_page_read(request, response, &page) || !read_filter(request, response, &filter, &labels)) return;
    const char *signature = fb_request_query(request, "signature");
    fb_status status = signature ? set_signature(app->store, &signature, &filter, &error) : FB_OK;
    if (!status) status = fb_store_list_runs(app->store, &filter, &page, false, &runs, &error);
    if (status) {
        fb_respond_page_error(response, &error);
        return;
    }
    fb_buffer answer = fb_items_begin();
    write_runs(&runs, &answer);
    fb_respond_items_take(response, &answer, runs.next_token);
    FB_STORE_FREE(&runs);
}

/* ---- GET /v1/graphs/{id}/lineage ---------------------------------------------------------------------------------------- */

/* A run that changed nothing has not made its result. */
static void drop_runs_without_change(fb_store_runs *runs) {
    size_t kept = 0;
    for (size_t i = 0; i < runs->count; i++) {
        if (strcmp(runs->items[i].source, runs->items[i].result)) runs->items[kept++] = runs->items[i];
    }
    runs->count = kept;
}

/* The runs, and where the list goes on when it is longer. */
static fb_status write_list(fb_store *store, const char *name, const char *parameter, const fb_store_run_filter *filter,
                            const fb_store_page *page, fb_buffer *out, fb_error *error) {
    fb_store_runs runs;
    fb_status status = fb_store_list_runs(store, filter, page, false, &runs, error);
    if (status) return status;
    if (filter->result) drop_runs_without_change(&runs);
    fb_put_name(out, name);
    fb_buffer_char(out, '{');
    fb_put_name(out, "items");
    fb_buffer_char(out, '[');
    write_runs(&runs, out);
    fb_buffer_char(out, ']');
    if (*runs.next_token) {
        fb_put_name(out, "next");
        fb_buffer_printf(out, "\"/v1/runs?%s=%s&limit=%zu&page_token=%s\"", parameter,
                         filter->source ? filter->source : filter->result, page->limit, runs.next_token);
    }
    fb_buffer_char(out, '}');
    FB_STORE_FREE(&runs);
    return FB_OK;
}

static void get_lineage(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    const char *id = fb_request_param(request, "id");
    fb_error error = {0};
    fb_store_page page;
    fb_store_summary summary;
    if (!fb_page_read(request, response, &page)) return;
    fb_status status = fb_store_get_graph(app->store, id, &summary, &error);
    if (status) {
        fb_respond_error(response, &error);
        return;
    }
    fb_buffer answer = {0};
    fb_buffer_char(&answer, '{');
    fb_put_text(&answer, "id", id);
    fb_put_text(&answer, "name", summary.name);
    fb_put_int(&answer, "nodes", summary.node_count);
    fb_put_int(&answer, "bytes", (int64_t)summary.size);
    FB_STORE_FREE(&summary);
    status = write_list(app->store, "made_by", "result", &(fb_store_run_filter){.result = id}, &page, &answer, &error);
    if (!status)
        status = write_list(app->store, "used_by", "source", &(fb_store_run_filter){.source = id}, &page, &answer, &error);
    fb_buffer_char(&answer, '}');
    if (!status) {
        fb_respond_json_buffer_take(response, 200, &answer);
        return;
    }
    fb_respond_error(response, &error);
    fb_buffer_free(&answer);
}

const fb_route fb_run_routes[] = {
    {.method = "GET", .pattern = "/v1/graphs/{id}/lineage", .handler = get_lineage, .scope = FB_SCOPE_READ, .query = "limit"},
    {.method = "GET",
     .pattern = "/v1/runs",
     .handler = get_runs,
     .scope = FB_SCOPE_READ,
     .query = "source,result,of_run,kind,pass,signature,label,limit,page_token"},
    {.method = "GET", .pattern = "/v1/runs/{run}", .handler = get_run, .scope = FB_SCOPE_READ, .query = "include"},
    {0},
};
