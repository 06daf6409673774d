#include "server/graphs/graphs.h"

#include "core/json/json.h"

fb_status fb_stored_rule_read(const fb_store_rule *stored, fb_rule **out, fb_error *error) {
    fb_error found = {0};
    json_t *document;
    fb_status status = fb_load_stored_json(stored->document, &document);
    if (!status) status = fb_rule_read(document, "", (int)stored->version, out, &found);
    json_decref(document);
    if (status == FB_NO_MEMORY) return fb_fail_memory(error);
    if (!status) return FB_OK;
    return fb_fail(error, FB_IO, "store-corrupt", "", "version %u of transformation %s cannot be read: %s", stored->version,
                   stored->name, found.message);
}

static fb_status find(void *context, const char *name, int version, fb_rule **out, fb_error *error) {
    const fb_app *app = context;
    fb_error found = {0};
    fb_store_rule stored;
    *out = NULL;
    if (!app->store || !fb_rule_name_is_valid(name)) return FB_OK;
    fb_status status = fb_store_get_rule(app->store, name, (uint32_t)version, &stored, &found);
    if (status == FB_NOT_FOUND) return FB_OK;
    if (status) return fb_fail(error, status, found.code, found.pointer, "%s", found.message);
    status = fb_stored_rule_read(&stored, out, error);
    fb_store_rule_free(&stored);
    return status;
}

fb_rule_library fb_rule_library_of(const fb_app *app) {
    return (fb_rule_library){.context = (void *)(uintptr_t)app, .find = find};
}
