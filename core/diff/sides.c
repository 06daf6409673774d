#include "core/diff/merging.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/build.h"

/* ---- slots ------------------------------------------------------------------------------------------------------------- */

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

/* ---- what is said about tensors ---------------------------------------------------------------------------------------- */

/* Without the texts themselves, for which memory might be out. */
bool fb_same_text(const fb_graph *a, fb_value x, const fb_graph *b, fb_value y) {
    if (!x.id || !y.id) return !x.id && !y.id;
    const fb_value_row *of_x = fb_value_at(a, x), *of_y = fb_value_at(b, y);
    if (of_x->kind != of_y->kind || of_x->count != of_y->count) return false;
    switch ((fb_kind)of_x->kind) {
    case FB_NONE:
    case FB_FALSE:
    case FB_TRUE: return true;
    case FB_INT: return of_x->integer == of_y->integer;
    case FB_FLOAT: return memcmp(&of_x->real, &of_y->real, sizeof of_x->real) == 0;
    case FB_NODE: return strcmp(fb_node_name(a, fb_value_node(a, x)), fb_node_name(b, fb_value_node(b, y))) == 0;
    case FB_TENSOR: return strcmp(fb_tensor_name(a, fb_value_tensor(a, x)), fb_tensor_name(b, fb_value_tensor(b, y))) == 0;
    default: break;
    }
    if (strcmp(fb_text(a, of_x->symbol), fb_text(b, of_y->symbol)) != 0) return false;
    for (size_t i = 0; i < of_x->count; i++) {
        if (!fb_same_text(a, of_x->items[i], b, of_y->items[i])) return false;
    }
    return true;
}

bool fb_tensor_has_known_bytes(const fb_graph *graph, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    return row->digest.id || row->blob.id || row->data.id || row->recipe.id;
}

/* ---- which tensor of ours is which of base ----------------------------------------------------------------------------- */

/* Which tensor of ours is which of base. Its owners say so; a tensor without an owner is known by what is made from it:
 *
 *     base:  q.weight@1 = concat(q.weight, reshape(q.bias))     owned by q
 *     ours:  w = concat(q.weight, reshape(b))                   owned by q        so b is q.bias
 *
 * unless its bytes are known to differ. All others are found by name, last, since a client may give one tensor the name that
 * another one had. But where the bytes are unknown, the name is all that there is. */
typedef struct identifying {
    const fb_graph *base, *ours;
    fb_tensor *ours_of; /* by tensor of base */
    bool *is_taken;     /* by tensor of ours: it is one of base */
    fb_buffer found;    /* fb_tensor of base: those whose inputs have not been looked at */
} identifying;

static void found(identifying *i, fb_tensor in_base, fb_tensor in_ours) {
    i->ours_of[in_base.id] = in_ours;
    i->is_taken[in_ours.id] = true;
    fb_buffer_append(&i->found, &in_base, sizeof in_base);
}

static bool is_open(const identifying *i, fb_tensor in_base, fb_tensor in_ours) {
    return in_ours.id && !i->ours_of[in_base.id].id && !i->is_taken[in_ours.id];
}

/* By owners. */

typedef struct name_search {
    const fb_graph *graph;
    const char *name;
    bool is_found;
} name_search;

static void look_for_name(void *context, fb_tensor tensor) {
    name_search *search = context;
    search->is_found |= strcmp(fb_tensor_name(search->graph, tensor), search->name) == 0;
}

/* True if a module now owns a tensor computed from its original: then the original is found by its name. */
static bool is_made_from(const identifying *i, fb_tensor original, fb_tensor now) {
    name_search search = {.graph = i->ours, .name = fb_tensor_name(i->base, original)};
    fb_value recipe = fb_tensor_at(i->ours, now)->recipe;
    if (recipe.id && !fb_tensor_at(i->base, original)->recipe.id)
        fb_value_visit_tensors(i->ours, recipe, look_for_name, &search);
    return search.is_found;
}

static bool find_by_owners(identifying *i) {
    fb_slot_index places;
    fb_slot slot;
    bool ok = fb_slot_index_make(i->ours, &places);
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(i->base, &cursor, &slot);) {
        fb_tensor same = fb_slot_index_find(&places, i->base, &slot);
        if (is_open(i, slot.tensor, same) && !is_made_from(i, slot.tensor, same)) found(i, slot.tensor, same);
    }
    fb_slot_index_free(&places);
    return ok;
}

/* By bytes, and by what is made from them. */

static bool is_same_text(const identifying *i, fb_symbol in_base, fb_symbol in_ours) {
    return strcmp(fb_text(i->base, in_base), fb_text(i->ours, in_ours)) == 0;
}

/* True if both tensors are known to have the same bytes. */
static bool has_same_bytes(const identifying *i, fb_tensor in_base, fb_tensor in_ours) {
    const fb_tensor_row *x = fb_tensor_at(i->base, in_base), *y = fb_tensor_at(i->ours, in_ours);
    if (x->digest.id && y->digest.id) return is_same_text(i, x->digest, y->digest);
    if (x->data.id && y->data.id) return is_same_text(i, x->data, y->data);
    return x->blob.id && y->blob.id && is_same_text(i, x->blob, y->blob) && x->offset == y->offset;
}

/* The same operations, regardless of the tensors' names. Expressions are nested to a bounded depth. */
static bool is_same_recipe(const identifying *i, fb_value in_base, fb_value in_ours) {
    if (!in_base.id || !in_ours.id) return false;
    const fb_value_row *x = fb_value_at(i->base, in_base), *y = fb_value_at(i->ours, in_ours);
    if (x->kind == FB_TENSOR || y->kind == FB_TENSOR) return x->kind == y->kind;
    const fb_value_row *of_x = fb_value_at(i->base, x->items[0]), *of_y = fb_value_at(i->ours, y->items[0]);
    bool is_same = is_same_text(i, x->symbol, y->symbol) && of_x->count == of_y->count &&
                   fb_same_text(i->base, x->items[1], i->ours, y->items[1]);
    for (uint32_t k = 0; k < of_x->count && is_same; k++) is_same = is_same_recipe(i, of_x->items[k], of_y->items[k]);
    return is_same;
}

static void append_tensor(void *buffer, fb_tensor tensor) {
    fb_buffer_append(buffer, &tensor, sizeof tensor);
}

static void find_inputs(identifying *i, fb_value in_base, fb_value in_ours) {
    fb_buffer before = {0}, now = {0};
    fb_value_visit_tensors(i->base, in_base, append_tensor, &before);
    fb_value_visit_tensors(i->ours, in_ours, append_tensor, &now);
    i->found.failed |= before.failed || now.failed;
    const fb_tensor *x = (const fb_tensor *)(const void *)before.data, *y = (const fb_tensor *)(const void *)now.data;
    for (size_t k = 0; k < before.size / sizeof *x && !i->found.failed; k++) {
        if (!is_open(i, x[k], y[k])) continue;
        bool is_same = has_same_bytes(i, x[k], y[k]) ||
                       is_same_recipe(i, fb_tensor_at(i->base, x[k])->recipe, fb_tensor_at(i->ours, y[k])->recipe);
        if (is_same) found(i, x[k], y[k]);
    }
    fb_buffer_free(&before);
    fb_buffer_free(&now);
}

static void find_by_readers(identifying *i) {
    while (i->found.size && !i->found.failed) {
        fb_tensor reader;
        i->found.size -= sizeof reader;
        memcpy(&reader, i->found.data + i->found.size, sizeof reader);
        fb_value was = fb_tensor_at(i->base, reader)->recipe, is = fb_tensor_at(i->ours, i->ours_of[reader.id])->recipe;
        if (is_same_recipe(i, was, is)) find_inputs(i, was, is);
    }
}

/* Pairs tensors of one name: those whose bytes are known to be the same, or unknown on both sides; or all. */
static void find_by_names(identifying *i, bool all) {
    fb_tensor last = {0};
    for (fb_tensor t = fb_first_tensor(i->base); t.id; t = fb_tensor_at(i->base, t)->next) {
        fb_tensor same = fb_tensor_follow(i->ours, fb_tensor_name(i->base, t), &last);
        if (!is_open(i, t, same)) continue;
        bool is_known = fb_tensor_has_known_bytes(i->base, t) || fb_tensor_has_known_bytes(i->ours, same);
        if (all || !is_known || has_same_bytes(i, t, same)) found(i, t, same);
    }
}

static bool identify_tensors(const fb_graph *base, const fb_graph *ours, fb_tensor *ours_of) {
    identifying i = {.base = base, .ours = ours, .ours_of = ours_of, .is_taken = calloc(fb_tensor_limit(ours), 1)};
    bool ok = i.is_taken && find_by_owners(&i);
    if (ok) {
        find_by_names(&i, false);
        find_by_readers(&i);
        find_by_names(&i, true);
    }
    ok = ok && !i.found.failed;
    fb_buffer_free(&i.found);
    free(i.is_taken);
    return ok;
}

/* ---- one name for one tensor ------------------------------------------------------------------------------------------- */

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

/* The new name of a tensor of base or theirs: `name`, or a fresh one (NULL) where its own belongs to another tensor of ours. */
static bool set_name(naming *n, bool is_theirs, fb_tensor tensor, const char *name) {
    if (!fb_sides_own(n->sides)) return false;
    fb_graph *graph = is_theirs ? n->sides->own_theirs : n->sides->own_base;
    fb_symbol *to = is_theirs ? &n->theirs[tensor.id] : &n->base[tensor.id];
    n->changes = true;
    *to = name ? fb_intern(graph, name) : fb_sides_fresh_name(n->sides, graph, fb_tensor_name(graph, tensor));
    return to->id != 0;
}

static bool choose_base_names(naming *n) {
    const fb_graph *base = n->sides->base, *ours = n->sides->ours;
    fb_tensor last = {0};
    bool ok = true;
    for (fb_tensor t = fb_first_tensor(base); ok && t.id; t = fb_tensor_at(base, t)->next) {
        fb_tensor same = n->ours_of[t.id];
        if (!same.id) {
            if (fb_tensor_follow(ours, fb_tensor_name(base, t), &last).id) ok = set_name(n, false, t, NULL);
        } else if (strcmp(fb_tensor_name(base, t), fb_tensor_name(ours, same)) != 0) {
            ok = set_name(n, false, t, fb_tensor_name(ours, same));
        }
    }
    return ok;
}

/* Base and theirs come from one source by the same passes: a name that both have is one tensor. */
static bool choose_their_names(naming *n) {
    const fb_graph *base = n->sides->base, *theirs = n->sides->theirs, *ours = n->sides->ours;
    fb_tensor last = {0}, last_of_ours = {0};
    bool ok = true;
    for (fb_tensor t = fb_first_tensor(theirs); ok && t.id; t = fb_tensor_at(theirs, t)->next) {
        fb_tensor same = fb_tensor_follow(base, fb_tensor_name(theirs, t), &last);
        if (same.id && n->base[same.id].id) ok = set_name(n, true, t, fb_text(n->sides->own_base, n->base[same.id]));
        else if (!same.id && fb_tensor_follow(ours, fb_tensor_name(theirs, t), &last_of_ours).id)
            ok = set_name(n, true, t, NULL);
    }
    return ok;
}

static bool align_names(fb_sides *sides) {
    naming n = {.sides = sides,
                .ours_of = calloc(fb_tensor_limit(sides->base), sizeof *n.ours_of),
                .base = calloc(fb_tensor_limit(sides->base), sizeof *n.base),
                .theirs = calloc(fb_tensor_limit(sides->theirs), sizeof *n.theirs)};
    bool ok = n.ours_of && n.base && n.theirs && identify_tensors(sides->base, sides->ours, n.ours_of) &&
              choose_base_names(&n) && choose_their_names(&n);
    if (ok && n.changes) {
        fb_graph_rename_tensors(sides->own_base, n.base);
        fb_graph_rename_tensors(sides->own_theirs, n.theirs);
    }
    free(n.ours_of);
    free(n.base);
    free(n.theirs);
    return ok;
}

/* ---- what is trained --------------------------------------------------------------------------------------------------- */

static bool *find_parameters(const fb_graph *graph) {
    bool *is_parameter = calloc(fb_tensor_limit(graph), sizeof *is_parameter);
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; is_parameter && fb_slot_next(graph, &cursor, &slot);)
        is_parameter[slot.tensor.id] |= !slot.is_buffer;
    return is_parameter;
}

/* A parameter that lost its owner in ours counts as not trained there, though nothing said so. Where theirs gives it back to a
 * module, requires_grad of base holds. */
static bool keep_training(fb_sides *sides) {
    const fb_graph *base = sides->base, *theirs = sides->theirs;
    bool *was_parameter = find_parameters(base), *is_parameter = find_parameters(sides->ours);
    fb_tensor last = {0}, last_of_ours = {0};
    fb_slot_index places;
    bool ok = fb_slot_index_make(base, &places) && was_parameter && is_parameter;
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(theirs, &cursor, &slot);) {
        const char *name = fb_tensor_name(theirs, slot.tensor);
        fb_tensor before = fb_tensor_follow(base, name, &last), now = fb_tensor_follow(sides->ours, name, &last_of_ours);
        bool comes_back = !slot.is_buffer && before.id && fb_slot_index_find(&places, theirs, &slot).id != before.id;
        if (!comes_back || !now.id || !was_parameter[before.id] || is_parameter[now.id]) continue;
        ok = fb_sides_own(sides);
        if (ok) fb_tensor_row_at(sides->own_ours, now)->requires_grad = fb_tensor_at(base, before)->requires_grad;
    }
    fb_slot_index_free(&places);
    free(was_parameter);
    free(is_parameter);
    return ok;
}

/* ---- how tensors are laid out ------------------------------------------------------------------------------------------- */

static fb_value format_of(const fb_graph *graph, fb_tensor tensor) {
    return fb_map_value(graph, fb_tensor_at(graph, tensor)->rest, "memory_format");
}

static fb_value text_in(fb_graph *graph, const char *text) {
    return fb_make_text(graph, FB_RAW, text, strlen(text));
}

static bool set_format(fb_graph *graph, fb_tensor tensor, fb_value format) {
    fb_tensor_row *row = fb_tensor_row_at(graph, tensor);
    fb_value had = row->rest.id ? row->rest : FB_VALUE_EMPTY_MAP;
    fb_value rest =
        format.id ? fb_sorted_map_with(graph, had, "memory_format", format) : fb_map_with(graph, had, "memory_format", format);
    row->rest = rest.id == FB_VALUE_EMPTY_MAP.id ? (fb_value){0} : rest;
    return rest.id;
}

/* A tensor's memory format has nothing to do with its bytes, which may have changed in ours: where theirs has another one than
 * base, and ours has not, base and ours get it. */
static bool take_formats(fb_sides *sides) {
    fb_tensor last = {0}, last_of_ours = {0};
    bool ok = true;
    for (fb_tensor t = fb_first_tensor(sides->theirs); t.id && ok; t = fb_tensor_at(sides->theirs, t)->next) {
        const char *name = fb_tensor_name(sides->theirs, t);
        fb_tensor base = fb_tensor_follow(sides->base, name, &last), ours = fb_tensor_follow(sides->ours, name, &last_of_ours);
        if (!base.id || !ours.id) continue;
        fb_value was = format_of(sides->base, base), is = format_of(sides->ours, ours), format = format_of(sides->theirs, t);
        bool is_changed = !fb_same_text(sides->base, was, sides->theirs, format);
        if (!is_changed || !fb_same_text(sides->base, was, sides->ours, is)) continue;
        ok = fb_sides_own(sides);
        fb_graph *graphs[] = {sides->own_base, sides->own_ours};
        for (int i = 0; i < 2 && ok; i++) {
            fb_value there = format.id ? text_in(graphs[i], fb_value_text(sides->theirs, format)) : (fb_value){0};
            ok = (there.id || !format.id) && set_format(graphs[i], i ? ours : base, there);
        }
    }
    return ok;
}

bool fb_sides_own(fb_sides *sides) {
    if (sides->own_base) return true;
    fb_graph *base = fb_graph_copy(sides->base, sides->work), *theirs = base ? fb_graph_copy(sides->theirs, sides->work) : NULL,
             *ours = theirs ? fb_graph_copy(sides->ours, sides->work) : NULL;
    if (!ours) {
        fb_graph_free(base);
        fb_graph_free(theirs);
        return false;
    }
    sides->base = sides->own_base = base;
    sides->theirs = sides->own_theirs = theirs;
    sides->ours = sides->own_ours = ours;
    return true;
}

fb_status fb_sides_make(const fb_graph *base, const fb_graph *theirs, const fb_graph *ours, fb_work *work, fb_sides *out,
                        fb_error *error) {
    fb_sides sides = {.given_base = base, .base = base, .theirs = theirs, .ours = ours, .work = work};
    if (align_names(&sides) && fb_work_ask(work) && keep_training(&sides) && take_formats(&sides)) {
        *out = sides;
        return FB_OK;
    }
    fb_sides_free(&sides);
    return fb_work_failed(work, error);
}

bool fb_sides_relate(fb_sides *sides, const fb_graph *graph, const fb_graph *other, fb_work *work) {
    fb_node *there = calloc(fb_node_limit(graph), sizeof *there), *back = calloc(fb_node_limit(other), sizeof *back);
    sides->namesakes[sides->namesake_count++] = (fb_namesakes){graph, other, there};
    sides->namesakes[sides->namesake_count++] = (fb_namesakes){other, graph, back};
    fb_node last = {0};
    if (!there || !back) return false;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && fb_work_goes_on(work, 8); n = fb_next_node(graph, n)) {
        there[n.id] = fb_node_follow(other, fb_node_name(graph, n), &last);
        back[there[n.id].id] = n;
    }
    back[0] = (fb_node){0};
    return true;
}

void fb_sides_free(fb_sides *sides) {
    for (size_t i = 0; i < sides->namesake_count; i++) free(sides->namesakes[i].of);
    fb_graph_free(sides->own_base);
    fb_graph_free(sides->own_theirs);
    fb_graph_free(sides->own_ours);
    free(sides->is_stale);
    fb_map_free(&sides->stand_ins);
    *sides = (fb_sides){0};
}
