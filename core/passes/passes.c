#include "core/passes/passes.h"

#define FB_PASS(descriptor) extern const fb_pass descriptor;
#include "core/passes/passes.def"
#undef FB_PASS

static const fb_pass *const passes[] = {
#define FB_PASS(descriptor) &descriptor,
#include "core/passes/passes.def"
#undef FB_PASS
};

const fb_pass *fb_pass_at(size_t index) {
    return index < sizeof passes / sizeof *passes ? passes[index] : NULL;
}

const fb_pass *fb_pass_find(const char *name) {
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        if (strcmp(passes[i]->name, name) == 0) return passes[i];
    }
    return NULL;
}

const fb_pass *fb_pass_find_version(const char *name, int version) {
    const fb_pass *found = fb_pass_find(name);
    while (found && found->version != version) found = found->earlier;
    return found;
}
