/* The passes of this binary. */
#ifndef FB_PASSES_PASSES_H
#define FB_PASSES_PASSES_H

#include "core/pass/pass.h"

/* All passes in their newest version, in the order of passes.def; NULL past the end. */
const fb_pass *fb_pass_at(size_t index);
/* The newest version of that name, or NULL; and a version of it, or NULL. */
const fb_pass *fb_pass_find(const char *name);
const fb_pass *fb_pass_find_version(const char *name, int version);

#endif
