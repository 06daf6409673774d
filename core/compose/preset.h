/* Presets: names that may stand in a list of passes for several passes, run again and again until nothing changes. */
#ifndef FB_COMPOSE_PRESET_H
#define FB_COMPOSE_PRESET_H

#include <stddef.h>

typedef struct fb_preset {
    const char *name;
    const char *summary; /* one sentence, Markdown */
    const char *passes;  /* one round, as a client would write it: a JSON array, without presets */
    int rounds;          /* at most */
} fb_preset;

/* All presets, in the order of presets.def; NULL past the end. fb_preset_find gives the one of that name, or NULL. */
const fb_preset *fb_preset_at(size_t index);
const fb_preset *fb_preset_find(const char *name);

#endif
