#include <ctype.h>
#include <string.h>

#include "server/cli/client.h"

static void append_encoded(fb_buffer *out, const char *text) {
    for (; *text; text++) {
        bool is_plain = isalnum((unsigned char)*text) || strchr("-._~:@", *text); /* RFC 3986, 3.3; not in a query: & = + # */
        if (is_plain) fb_buffer_char(out, *text);
        else fb_buffer_printf(out, "%%%02X", (unsigned char)*text);
    }
}

void fb_address_path(fb_address *address, const char *path) {
    fb_buffer_string(&address->text, path);
}

void fb_address_segment(fb_address *address, const char *segment) {
    fb_buffer_char(&address->text, '/');
    append_encoded(&address->text, segment);
}

void fb_address_query(fb_address *address, const char *name, const char *value) {
    if (!value) return;
    fb_buffer_char(&address->text, address->has_query ? '&' : '?');
    fb_buffer_string(&address->text, name);
    fb_buffer_char(&address->text, '=');
    append_encoded(&address->text, value);
    address->has_query = true;
}
