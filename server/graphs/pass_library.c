#include <string.h>

#include "core/json/json.h"
#include "core/layouts/layout.h"
#include "core/rules/rule.h"
#include "server/graphs/graphs.h"

static fb_status read_document(const fb_store_rule *stored, const json_t *document, const fb_pass **out, fb_error *error) {
    if (stored->kind == FB_STORED_LAYOUT) return fb_layout_read(document, "", (int)stored->version, out, error);
    fb_rule *rule = NULL;
    fb_status status = fb_rule_read(document, "", (int)stored->version, &rule, error);
    if (!status) *out = fb_rule_pass(rule);
    return status;
}

fb_status fb_stored_pass_read(const fb_store_rule *stored, const fb_pass **out, fb_error *error) {
    fb_error found = {0};
    json_t *document;
    fb_status status = fb_load_stored_json(stored->document, &document);
    if (!status) status = read_document(stored, document, out, &found);
    json_decref(document);
    if (status == FB_NO_MEMORY) return fb_fail_memory(error);
    if (!status) return FB_OK;
    return fb_fail(error, FB_IO, "store-corrupt", "", "version %u of %s cannot be read: %s", stored->version, stored->name,
                   found.message);
}

static fb_status keep_shipped(const fb_app *app, const fb_shipped_layout *shipped, fb_error *error) {
    json_t *document = fb_load_json(shipped->document);
    const fb_pass *layout = NULL;
    fb_store_rule stored = {0};
    bool is_new;
    fb_status status = document ? fb_layout_read(document, "", 1, &layout, error) : fb_fail_memory(error);
    bool is_there = !status && !fb_store_get_rule(app->store, FB_STORED_LAYOUT, shipped->name, 0, &stored, NULL) &&
                    strcmp(stored.digest, layout->digest) == 0;
    FB_STORE_FREE(&stored);
    if (!status && !is_there)
        status = fb_store_put_rule(app->store, FB_STORED_LAYOUT, shipped->name, layout->digest, fb_layout_document(layout),
                                   NULL, &is_new, &stored, error);
    if (!is_there) FB_STORE_FREE(&stored);
    fb_pass_free(layout);
    json_decref(document);
    return status;
}

fb_status fb_keep_shipped_layouts(const fb_app *app, const char *name, fb_error *error) {
    fb_status status = FB_OK;
    fb_shipped_layout shipped;
    for (size_t i = 0; !status && (shipped = fb_layout_shipped(i)).name; i++)
        if (!name || strcmp(shipped.name, name) == 0) status = keep_shipped(app, &shipped, error);
    return status;
}

static fb_status find(void *context, const char *name, int version, const fb_pass **out, fb_error *error) {
    const fb_app *app = context;
    fb_error found = {0};
    fb_store_rule stored;
    *out = NULL;
    if (!app->store || !fb_rule_name_is_valid(name)) return FB_OK;
    fb_status status = fb_keep_shipped_layouts(app, name, error);
    if (status) return status;
    status = fb_store_get_rule(app->store, FB_STORED_ANY, name, (uint32_t)version, &stored, &found);
    if (status == FB_NOT_FOUND) return FB_OK;
    if (status) return fb_fail(error, status, found.code, found.pointer, "%s", found.message);
    status = fb_stored_pass_read(&stored, out, error);
    FB_STORE_FREE(&stored);
    return status;
}

fb_pass_library fb_pass_library_of(const fb_app *app) {
    return (fb_pass_library){.context = (void *)(uintptr_t)app, .find = find};
}
