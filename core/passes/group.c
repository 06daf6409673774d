#include "core/passes/group.h"

#include <string.h>

#include "core/base/map.h"

#define MAX_NAME 200 /* characters of a merged module's name, before it is shortened */

void fb_number_epochs(fb_matcher *m, fb_node shared, fb_candidate *candidates, size_t count, size_t written, size_t switched) {
    const fb_alias *alias = count ? fb_matcher_alias(m) : NULL;
    for (size_t i = 1; alias && i < count; i++) {
        uint32_t before = fb_node_at(m->graph, candidates[i - 1].node)->ordinal;
        uint32_t now = fb_node_at(m->graph, candidates[i].node)->ordinal;
        const int64_t *last = candidates[i - 1].key;
        candidates[i].key[written] = last[written] + fb_mutated_between(alias, shared, before, now);
        candidates[i].key[switched] = last[switched] + fb_mode_switched_between(alias, before, now);
    }
}

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
                            const fb_group_key meanings[FB_GROUP_KEYS], size_t least) {
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
    const fb_node *nodes = (const fb_node *)(const void *)group.data;
    if (size >= 2 && size >= least && !m->failed) fb_match_found(m, nodes, size);
    else if (size >= 2 && !m->failed)
        fb_refuse(m, "minimum-gain", nodes, size, "merging %zu saves %zu calls, and %zu are asked for", size, size - 1,
                  least - 1);
    fb_buffer_free(&group);
}

static const char *last_part(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

void fb_group_path(const char *const *paths, size_t count, fb_buffer *out) {
    const char *first = paths[0], *last = paths[count - 1];
    fb_buffer_append(out, first, (size_t)(last_part(first) - first));
    size_t start = out->size;
    for (size_t i = 0; i < count && out->size - start <= MAX_NAME; i++) {
        fb_buffer_string(out, last_part(paths[i]));
        fb_buffer_char(out, '-');
    }
    fb_buffer_string(out, "merged");
    if (out->size - start <= MAX_NAME) return;
    out->size = start;
    fb_buffer_printf(out, "%s-%zu-more-%s-merged", last_part(first), count - 2, last_part(last));
}
