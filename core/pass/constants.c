#include "core/pass/constants.h"

#include <stdlib.h>

#include "core/base/base64.h"
#include "core/pass/build.h"

static bool is_taken(const fb_graph *g, const char *name) {
    const fb_module_row *root = fb_module_at(g, fb_module_find(g, ""));
    return fb_map_value(g, root->parameters, name).id || fb_map_value(g, root->buffers, name).id ||
           (root->attributes.id && fb_map_value(g, root->attributes, name).id) || fb_module_find(g, name).id;
}

/* "le_constant": names of nodes differ, so these do. NULL when memory is out. */
static const char *name_of(const fb_matcher *m, fb_node node) {
    fb_buffer name = {0};
    fb_buffer_printf(&name, "%s_constant", fb_node_name(m->graph, node));
    size_t length = name.size;
    for (unsigned number = 1; fb_buffer_text(&name) && is_taken(m->graph, fb_buffer_text(&name)); number++) {
        name.size = length;
        fb_buffer_printf(&name, "_again_%u", number);
    }
    const char *text = name.failed ? NULL : fb_arena_text(m->arena, name.data, name.size);
    fb_buffer_free(&name);
    return text;
}

static bool are_equal(const fb_constant *a, const fb_constant *b) {
    return a->dtype == b->dtype && a->rank == b->rank && a->length == b->length &&
           memcmp(a->sizes, b->sizes, (size_t)a->rank * sizeof *a->sizes) == 0 && memcmp(a->base64, b->base64, a->length) == 0;
}

/* The number of an equal one, or of the new one; 0 when memory is out. */
static uint32_t number_of(fb_constant_list *list, const fb_constant *constant) {
    uint64_t hash = fb_hash(constant->base64, constant->length, constant->dtype);
    uint32_t cursor = 0;
    for (uint32_t number; (number = fb_map_next(&list->by_hash, hash, &cursor));) {
        if (are_equal((const fb_constant *)(const void *)list->constants.data + (number - 1), constant)) return number;
    }
    fb_buffer_append(&list->constants, constant, sizeof *constant);
    uint32_t made = (uint32_t)(list->constants.size / sizeof *constant);
    return !list->constants.failed && fb_map_add(&list->by_hash, hash, made) ? made : 0;
}

bool fb_constant_list_begin(fb_constant_list *list, fb_matcher *m) {
    size_t size = ((size_t)fb_node_limit(m->graph) + 1) * sizeof *list->constant_of;
    *list = (fb_constant_list){.matcher = m, .constant_of = fb_arena_alloc(m->arena, size)};
    if (list->constant_of) memset(list->constant_of, 0, size);
    return list->constant_of != NULL;
}

/* The number of a new one that a nested program reads. */
static uint32_t number_within(fb_constant_list *list, const fb_constant *constant) {
    fb_buffer_append(&list->within, constant, sizeof *constant);
    return list->within.failed ? 0 : (uint32_t)(list->within.size / sizeof *constant);
}

bool fb_constant_list_add(fb_constant_list *list, fb_node node, fb_dtype dtype, int rank, const int64_t *sizes,
                          const unsigned char *bytes, size_t size) {
    fb_arena *arena = list->matcher->arena;
    size_t length = fb_base64_length(size);
    char *text = fb_arena_alloc(arena, length + 1);
    int64_t *kept = fb_arena_alloc(arena, ((size_t)rank + 1) * sizeof *kept);
    bool is_nested = fb_is_nested(list->matcher->graph, node);
    const char *name = is_nested ? "value" : name_of(list->matcher, node);
    if (!text || !kept || !name) return false;
    if (rank) memcpy(kept, sizes, (size_t)rank * sizeof *kept);
    fb_base64_encode(bytes, size, text);
    const fb_constant constant = {name, dtype, rank, kept, text, length};
    list->constant_of[node.id] = is_nested ? number_within(list, &constant) : number_of(list, &constant);
    return list->constant_of[node.id] != 0;
}

bool fb_constant_list_end(fb_constant_list *list, fb_constant_plan *out) {
    size_t size = list->constants.size, size_within = list->within.size;
    fb_constant *kept = list->constant_of ? fb_arena_alloc(list->matcher->arena, size + size_within + 1) : NULL;
    if (kept && size) memcpy(kept, list->constants.data, size);
    if (kept && size_within) memcpy(kept + size / sizeof *kept, list->within.data, size_within);
    *out = (fb_constant_plan){.constants = kept, .count = size / sizeof *kept, .constant_of = list->constant_of};
    out->within = kept ? kept + out->count : NULL;
    fb_buffer_free(&list->constants);
    fb_buffer_free(&list->within);
    fb_map_free(&list->by_hash);
    return kept != NULL;
}

void fb_put_planned(fb_rewrite *rw, const fb_constant_plan *plan, const fb_match *match) {
    fb_module root = fb_module_find(fb_rewrite_graph(rw), "");
    if (match->nodes[0].id == plan->first.id) fb_put_constants(rw, root, plan->constants, plan->count);
}

fb_node fb_read_planned(fb_rewrite *rw, const fb_constant_plan *plan, fb_node node) {
    fb_module root = fb_module_find(fb_rewrite_graph(rw), "");
    if (fb_is_nested(fb_rewrite_graph(rw), node)) {
        const fb_constant *constant = &plan->within[plan->constant_of[node.id] - 1];
        fb_module owner = fb_put_owner(rw, root, node);
        if (owner.id) fb_put_constants(rw, owner, constant, 1);
        return fb_insert_read(rw, node, owner, constant->attribute);
    }
    return fb_insert_read(rw, node, root, plan->constants[plan->constant_of[node.id] - 1].attribute);
}
