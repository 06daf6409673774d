#include "core/diff/sides.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/build.h"

/* ---- slots -------------------------------------------------------------------------------------------------------------- */

static const char *path_of(const fb_graph *graph, const fb_slot *slot) {
    return fb_text(graph, fb_module_at(graph, slot->module)->path);
}

static uint64_t place_of(const fb_graph *graph, const fb_slot *slot) {
    const char *path = path_of(graph, slot);
    return fb_hash_text(slot->attribute, fb_hash_text(path, 0));
}

bool fb_slot_index_make(const fb_graph *graph, fb_slot_index *out) {
    *out = (fb_slot_index){.graph = graph};
    fb_slot slot;
    bool ok = true;
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(graph, &cursor, &slot);) {
        fb_buffer_append(&out->slots, &slot, sizeof slot);
        ok = !out->slots.failed && fb_map_add(&out->places, place_of(graph, &slot), (uint32_t)(out->slots.size / sizeof slot));
    }
    return ok;
}

void fb_slot_index_free(fb_slot_index *index) {
    fb_buffer_free(&index->slots);
    fb_map_free(&index->places);
}

fb_tensor fb_slot_index_find(const fb_slot_index *index, const fb_graph *from, const fb_slot *slot) {
    const fb_slot *slots = (const fb_slot *)(const void *)index->slots.data;
    uint32_t cursor = 0, found;
    while ((found = fb_map_next(&index->places, place_of(from, slot), &cursor))) {
        const fb_slot *there = &slots[found - 1];
        if (strcmp(there->attribute, slot->attribute) == 0 && strcmp(path_of(index->graph, there), path_of(from, slot)) == 0)
            return there->tensor;
    }
    return (fb_tensor){0};
}

/* ---- one name for one tensor -------------------------------------------------------------------------------------------- */

fb_symbol fb_sides_fresh_name(fb_sides *sides, fb_graph *graph, const char *name) {
    fb_buffer text = {0};
    fb_symbol symbol = {0};
    do {
        text.size = 0;
        fb_buffer_printf(&text, "%s_%u", name, ++sides->serial);
    } while (fb_buffer_text(&text) &&
             (fb_tensor_find(sides->base, text.data).id || fb_tensor_find(sides->theirs, text.data).id ||
              fb_tensor_find(sides->ours, text.data).id));
    if (!text.failed) symbol = fb_intern_bytes(graph, text.data, text.size);
    fb_buffer_free(&text);
    return symbol;
}

typedef struct naming {
    fb_sides *sides;
    fb_tensor *ours_of;       /* by tensor of base: what it is in ours */
    fb_symbol *base, *theirs; /* the new names */
    bool changes;
} naming;

/* What a tensor of `graph` is called from now on, when ours has its name for another one. */
static bool set_fresh(naming *n, fb_graph *graph, fb_tensor tensor, fb_symbol *names) {
    n->changes = true;
    names[tensor.id] = fb_sides_fresh_name(n->sides, graph, fb_tensor_name(graph, tensor));
    return names[tensor.id].id != 0;
}

static bool choose_base_names(naming *n) {
    fb_graph *base = n->sides->base;
    const fb_graph *ours = n->sides->ours;
    bool ok = true;
    for (fb_tensor t = fb_first_tensor(base); ok && t.id; t = fb_tensor_at(base, t)->next) {
        fb_tensor same = n->ours_of[t.id];
        if (!same.id) {
            if (fb_tensor_find(ours, fb_tensor_name(base, t)).id) ok = set_fresh(n, base, t, n->base);
        } else if (strcmp(fb_tensor_name(base, t), fb_tensor_name(ours, same)) != 0) {
            n->changes = true;
            n->base[t.id] = fb_intern(base, fb_tensor_name(ours, same));
            ok = n->base[t.id].id != 0;
        }
    }
    return ok;
}

/* Base and theirs come from one source by the same passes: what has one name in both is one tensor. */
static bool choose_their_names(naming *n) {
    fb_graph *theirs = n->sides->theirs;
    const fb_graph *base = n->sides->base, *ours = n->sides->ours;
    bool ok = true;
    for (fb_tensor t = fb_first_tensor(theirs); ok && t.id; t = fb_tensor_at(theirs, t)->next) {
        fb_tensor same = fb_tensor_find(base, fb_tensor_name(theirs, t));
        if (same.id && n->base[same.id].id) {
            n->theirs[t.id] = fb_intern(theirs, fb_text(base, n->base[same.id]));
            ok = n->theirs[t.id].id != 0;
        } else if (!same.id && fb_tensor_find(ours, fb_tensor_name(theirs, t)).id) {
            ok = set_fresh(n, theirs, t, n->theirs);
        }
    }
    return ok;
}

static bool align_names(fb_sides *sides) {
    naming n = {.sides = sides,
                .ours_of = calloc(fb_tensor_limit(sides->base), sizeof *n.ours_of),
                .base = calloc(fb_tensor_limit(sides->base), sizeof *n.base),
                .theirs = calloc(fb_tensor_limit(sides->theirs), sizeof *n.theirs)};
    bool ok = n.ours_of && n.base && n.theirs && fb_identify_tensors(sides->base, sides->ours, n.ours_of) &&
              choose_base_names(&n) && choose_their_names(&n);
    if (ok && n.changes) {
        fb_graph_rename_tensors(sides->base, n.base);
        fb_graph_rename_tensors(sides->theirs, n.theirs);
    }
    free(n.ours_of);
    free(n.base);
    free(n.theirs);
    return ok;
}

/* ---- what is trained ---------------------------------------------------------------------------------------------------- */

static bool *find_parameters(const fb_graph *graph) {
    bool *is_parameter = calloc(fb_tensor_limit(graph), sizeof *is_parameter);
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; is_parameter && fb_slot_next(graph, &cursor, &slot);)
        is_parameter[slot.tensor.id] |= !slot.is_buffer;
    return is_parameter;
}

/* A parameter that no module of ours has any more counts as not trained there, without anybody having said so. Where theirs
 * gives it back to a module, what base says of it holds. */
static bool keep_training(fb_sides *sides) {
    const fb_graph *base = sides->base, *theirs = sides->theirs;
    bool *was_parameter = find_parameters(base), *is_parameter = find_parameters(sides->ours);
    fb_slot_index places;
    bool ok = fb_slot_index_make(base, &places) && was_parameter && is_parameter;
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(theirs, &cursor, &slot);) {
        const char *name = fb_tensor_name(theirs, slot.tensor);
        fb_tensor before = fb_tensor_find(base, name), now = fb_tensor_find(sides->ours, name);
        bool comes_back = !slot.is_buffer && before.id && fb_slot_index_find(&places, theirs, &slot).id != before.id;
        if (comes_back && now.id && was_parameter[before.id] && !is_parameter[now.id])
            fb_tensor_row_at(sides->ours, now)->requires_grad = fb_tensor_at(base, before)->requires_grad;
    }
    fb_slot_index_free(&places);
    free(was_parameter);
    free(is_parameter);
    return ok;
}

fb_status fb_sides_make(const fb_graph *base, const fb_graph *theirs, const fb_graph *ours, fb_work *work, fb_sides *out,
                        fb_error *error) {
    fb_sides sides = {.given_base = base,
                      .base = fb_graph_copy_metered(base, work),
                      .theirs = fb_graph_copy_metered(theirs, work),
                      .ours = fb_graph_copy_metered(ours, work)};
    bool is_copied = sides.base && sides.theirs && sides.ours;
    if (is_copied && align_names(&sides) && fb_work_ask(work) && keep_training(&sides)) {
        *out = sides;
        return FB_OK;
    }
    fb_sides_free(&sides);
    return fb_work_failed(work, error);
}

void fb_sides_free(fb_sides *sides) {
    fb_graph_free(sides->base);
    fb_graph_free(sides->theirs);
    fb_graph_free(sides->ours);
    free(sides->is_dirty);
    fb_map_free(&sides->stands_for_ours);
    *sides = (fb_sides){0};
}
