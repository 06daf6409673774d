#include "server/cli/request.h"

#include <stdlib.h>
#include <string.h>

/* json_string is NULL for what is not UTF-8; running out of memory for so little is not told apart. */
static int check(int failed, const char *option, const char *text) {
    return failed ? fb_complain(FB_EXIT_USAGE, "--%s %s: this is not UTF-8", option, text) : FB_EXIT_DONE;
}

int fb_request_text(json_t *request, const char *name, const char *text) {
    return text ? check(json_object_set_new(request, name, json_string(text)), name, text) : FB_EXIT_DONE;
}

static json_t *pass_of(const char *text, bool undone) {
    bool is_position = undone && strspn(text, "0123456789") == strlen(text) && strlen(text) < 10;
    if (is_position) return json_integer(atoi(text));
    return *text == '{' ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : json_string(text);
}

int fb_request_passes(json_t *request, const fb_text_list *passes, bool undone) {
    if (!passes->count) return FB_EXIT_DONE;
    json_t *list = json_array();
    json_object_set_new(request, "passes", list);
    for (size_t i = 0; i < passes->count; i++) {
        json_t *pass = pass_of(passes->items[i], undone);
        if (!pass && *passes->items[i] == '{')
            return fb_complain(FB_EXIT_USAGE, "--pass %s: write {\"name\": …, \"params\": {…}}", passes->items[i]);
        if (check(json_array_append_new(list, pass), "pass", passes->items[i])) return FB_EXIT_USAGE;
    }
    return FB_EXIT_DONE;
}

int fb_request_labels(json_t *request, const fb_text_list *labels) {
    if (!labels->count) return FB_EXIT_DONE;
    json_t *object = json_object();
    json_object_set_new(request, "labels", object);
    for (size_t i = 0; i < labels->count; i++) {
        const char *text = labels->items[i], *equals = strchr(text, '=');
        if (!equals || equals == text) return fb_complain(FB_EXIT_USAGE, "--label %s: write KEY=VALUE", text);
        json_t *value = json_string(equals + 1);
        if (check(json_object_setn_new(object, text, (size_t)(equals - text), value), "label", text)) return FB_EXIT_USAGE;
    }
    return FB_EXIT_DONE;
}

int fb_request_body(fb_cli *cli, json_t *request, const fb_request_graph graphs[2], fb_buffer *out) {
    char *rest = json_dumps(request, JSON_COMPACT);
    bool is_empty = json_object_size(request) == 0;
    json_decref(request);
    int result = rest ? FB_EXIT_DONE : fb_cli_no_memory();
    size_t count = 0;
    for (; !result && count < 2 && graphs[count].graph; count++) {
        fb_buffer_printf(out, "%c\"%s\":", count ? ',' : '{', graphs[count].name);
        result = fb_reference_member(cli, graphs[count].graph, out);
    }
    if (!result && count && !is_empty) fb_buffer_char(out, ',');
    if (!result) fb_buffer_string(out, count ? rest + 1 : rest);
    free(rest);
    if (!result && out->failed) result = fb_cli_no_memory();
    if (result) fb_buffer_free(out);
    return result;
}
