/* Texts of JSON, and errors as messages. */
#include "server/cli/cli.h"

#include <string.h>

int fb_cli_error(const fb_error *error) {
    if (strcmp(error->code, "store-locked") == 0)
        return fb_complain(FB_EXIT_FOLDER_IN_USE, "%s; talk to the service that holds it with --server URL", error->message);
    return fb_complain(FB_EXIT_FAILED, "%s", error->message);
}

int fb_cli_no_memory(void) {
    return fb_complain(FB_EXIT_FAILED, "out of memory");
}

const char *fb_text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}
