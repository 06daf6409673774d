#include "core/passes/group.h"

#include "core/base/map.h"

/* A member of the largest group. */
static const fb_candidate *in_largest(fb_matcher *m, const fb_candidate *candidates, size_t count) {
    fb_map sizes = {0};
    const fb_candidate *best = candidates;
    uint32_t best_size = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t key = fb_hash(candidates[i].key, sizeof candidates[i].key, 0);
        uint32_t size = fb_map_get(&sizes, key) + 1;
        m->failed |= !fb_map_put(&sizes, key, size);
        if (size <= best_size) continue;
        best = &candidates[i];
        best_size = size;
    }
    fb_map_free(&sizes);
    return best;
}

void fb_match_largest_group(fb_matcher *m, const fb_candidate *candidates, size_t count,
                            const fb_group_key meanings[FB_GROUP_KEYS]) {
    if (count < 2) return;
    const fb_candidate *model = in_largest(m, candidates, count);
    fb_buffer group = {0};
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < FB_GROUP_KEYS && candidates[i].key[k] == model->key[k]) k++;
        if (k == FB_GROUP_KEYS) fb_buffer_append(&group, &candidates[i].node, sizeof(fb_node));
        else fb_refuse_node(m, meanings[k].reason, candidates[i].node, "%s", meanings[k].detail);
    }
    size_t size = group.size / sizeof(fb_node);
    m->failed |= group.failed;
    if (size >= 2) fb_match_found(m, (const fb_node *)(const void *)group.data, size);
    fb_buffer_free(&group);
}
