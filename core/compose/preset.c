#include "core/compose/preset.h"

#include <string.h>

static const fb_preset presets[] = {
#define FB_PRESET(name_text, summary_text, list, most) {name_text, summary_text, list, most},
#include "core/compose/presets.def"
#undef FB_PRESET
};

const fb_preset *fb_preset_at(size_t index) {
    return index < sizeof presets / sizeof *presets ? &presets[index] : NULL;
}

const fb_preset *fb_preset_find(const char *name) {
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(presets[i].name, name) == 0) return &presets[i];
    }
    return NULL;
}
