/* Graphs that compute nothing: no node says there what needs a tensor, and which tensors belong together. So whatever an edit
 * takes apart must be there as a whole, and nothing may have joined it.
 *
 *     base:  qkv   theirs:  q k v    ours:  nothing           q, k and v would come back as they were before the training
 *     base:  qkv   theirs:  q k v    ours:  qkv qkv.absmax    the state would stay, and belong to nothing
 */
#include <stdlib.h>
#include <string.h>

#include "core/diff/merging.h"
#include "core/graph/slot.h"

/* Of base: what an edit erases or changes. */
static bool *find_edited(fb_merging *m) {
    const fb_graph *base = m->sides.base;
    bool *is_edited = calloc(fb_module_limit(base) + 1, sizeof *is_edited);
    for (size_t i = 0; is_edited && i < m->diff.count && fb_merging_goes_on(m); i++) {
        const fb_edit *edit = &m->diff.edits[i];
        if (edit->table != FB_MODULE_TABLE || !*edit->name) continue; /* the root's tensors belong to nobody */
        if (edit->kind != FB_EDIT_SET && edit->kind != FB_EDIT_ERASE) continue;
        is_edited[fb_module_find(base, edit->name).id] = true;
        if (edit->kind == FB_EDIT_ERASE && !fb_module_find(m->sides.ours, edit->name).id)
            fb_conflicts_add(m->conflicts, FB_CONFLICT_MODULE, "missing-module", edit->name,
                             "undo takes module %s apart, and it is not there", edit->name);
    }
    return is_edited;
}

/* A tensor that base has not, at or beneath an edited module. Cuts the path up. */
static void check_new(fb_merging *m, const bool *is_edited, char *path) {
    fb_buffer name = {0};
    fb_buffer_string(&name, path);
    for (char *dot; (dot = strrchr(path, '.'));) {
        *dot = '\0';
        fb_module module = fb_module_find(m->sides.base, path);
        if (!module.id || !is_edited[module.id]) continue;
        fb_conflicts_add(m->conflicts, FB_CONFLICT_MODULE, "changed-module", path,
                         "%s was added to module %s, which undo takes apart or changes",
                         fb_buffer_text(&name) ? fb_buffer_text(&name) : "a tensor", path);
        break;
    }
    fb_buffer_free(&name);
}

fb_status fb_merge_checkpoint(fb_merging *m) {
    if (fb_node_count(m->sides.base) > 1) return FB_OK;
    fb_buffer path = {0};
    fb_slot slot;
    bool *is_edited = find_edited(m), ok = is_edited != NULL;
    for (fb_slot_cursor cursor = {0}; ok && fb_merging_goes_on(m) && fb_slot_next(m->sides.ours, &cursor, &slot);) {
        path.size = 0;
        fb_slot_path(m->sides.ours, &slot, &path);
        const char *text = fb_buffer_text(&path);
        ok = text != NULL;
        if (ok && !fb_tensor_at_path(m->sides.base, text).id) check_new(m, is_edited, path.data);
    }
    free(is_edited);
    fb_buffer_free(&path);
    return ok ? FB_OK : fb_fail_memory(m->error);
}
