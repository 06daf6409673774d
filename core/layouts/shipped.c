/* The layouts that come with this binary: core/layouts/shipped/ as C strings. */
#include "core/layouts/layout.h"
#include "layouts.inc"

fb_shipped_layout fb_layout_shipped(size_t index) {
    return index < sizeof layouts / sizeof *layouts ? layouts[index] : (fb_shipped_layout){0};
}

bool fb_layout_is_shipped(const char *name) {
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (strcmp(layouts[i].name, name) == 0) return true;
    }
    return false;
}
