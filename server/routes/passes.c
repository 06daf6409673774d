/* GET /v1/passes and /v1/passes/{name}, which may be a preset. */
#include <string.h>

#include "core/compose/composition.h"
#include "core/json/json.h"
#include "core/layouts/layout.h"
#include "core/passes/passes.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

/* The documentation at the top of a pass's file: a picture, conditions, exactness. */
static const struct {
    const char *name, *text;
} documentation[] = {
#include "passes.inc"
};

static void write_documentation(const char *name, fb_buffer *out) {
    for (size_t i = 0; i < sizeof documentation / sizeof *documentation; i++) {
        if (strcmp(documentation[i].name, name) == 0) fb_put_text(out, "documentation", documentation[i].text);
    }
}

static void write_pass(const fb_pass *pass, bool is_whole, fb_buffer *out) {
    fb_signature signature;
    out->failed |= !fb_pass_signature(pass->name, pass->version, NULL, "{}", NULL, signature);
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", pass->name);
    fb_put_int(out, "version", pass->version);
    fb_put_text(out, "summary", pass->summary);
    fb_put_name(out, "parameters");
    fb_buffer_string(out, pass->parameters);
    fb_put_bool(out, "reversible", pass->reversible);
    fb_put_bool(out, "preserves_computation", pass->preserves_computation);
    fb_put_text(out, "exactness", fb_exactness_name(pass->exactness));
    fb_put_text(out, "gain", fb_gain_name(pass->gain));
    fb_put_text(out, "signature", out->failed ? "" : signature);
    if (is_whole) write_documentation(pass->name, out);
    fb_buffer_char(out, '}');
}

static void write_preset(const fb_preset *preset, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", preset->name);
    fb_put_text(out, "summary", preset->summary);
    fb_put_name(out, "passes");
    fb_buffer_string(out, preset->passes);
    fb_put_int(out, "rounds", preset->rounds);
    if (preset->at_one_token) {
        fb_put_name(out, "at_one_token");
        fb_buffer_string(out, preset->at_one_token);
    }
    fb_buffer_char(out, '}');
}

static void get_passes(const fb_request *request, fb_response *response) {
    (void)request;
    fb_buffer answer = fb_items_begin();
    for (size_t i = 0; fb_pass_at(i); i++) {
        write_pass(fb_pass_at(i), false, &answer);
    }
    fb_buffer_string(&answer, "],\"presets\":[");
    for (size_t i = 0; fb_preset_at(i); i++) write_preset(fb_preset_at(i), &answer);
    fb_buffer_string(&answer, "]}");
    fb_respond_json_buffer_take(response, 200, &answer);
}

/* Perhaps it is a rule or a layout, which are listed elsewhere. `foldback passes` needs no store, and has none. */
static void respond_unknown(const fb_request *request, fb_response *response, const char *name) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_rule stored = {0};
    fb_status status = app->store ? fb_store_get_rule(app->store, FB_STORED_ANY, name, 0, &stored, &error) : FB_NOT_FOUND;
    bool is_layout = stored.kind == FB_STORED_LAYOUT || fb_layout_is_shipped(name);
    if (status && status != FB_NOT_FOUND) {
        fb_respond_error(response, &error);
    } else if (!status || is_layout) {
        fb_respond_problem(response, 404, "unknown-pass",
                           is_layout ? "\"%.80s\" is a layout: GET /v1/layouts/%.80s"
                                     : "\"%.80s\" is a rule: GET /v1/transformations/%.80s",
                           name, name);
    } else {
        fb_respond_problem(response, 404, "unknown-pass",
                           "there is no pass named \"%.80s\"; GET /v1/passes lists them, and GET /v1/transformations the rules",
                           name);
    }
    FB_STORE_FREE(&stored);
}

static void get_pass(const fb_request *request, fb_response *response) {
    const char *name = fb_request_param(request, "name");
    const fb_pass *pass = fb_pass_find(name);
    const fb_preset *preset = fb_preset_find(name);
    if (!pass && !preset) {
        respond_unknown(request, response, name);
        return;
    }
    fb_buffer answer = {0};
    if (pass) write_pass(pass, true, &answer);
    else write_preset(preset, &answer);
    fb_respond_json_buffer_take(response, 200, &answer);
}

const fb_route fb_pass_routes[] = {
    {.method = "GET", .pattern = "/v1/passes", .handler = get_passes, .scope = FB_SCOPE_READ, .query = ""},
    {.method = "GET", .pattern = "/v1/passes/{name}", .handler = get_pass, .scope = FB_SCOPE_READ, .query = ""},
    {0},
};
