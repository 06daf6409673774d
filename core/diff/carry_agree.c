/* Whether all that is known of one original says the same. */
#include "core/diff/carrying.h"

/* ---- one original ------------------------------------------------------------------------------------------------------- */

static bool is_same_box(const fb_piece *a, const fb_piece *b) {
    for (int i = 0; i < a->rank; i++) {
        if (a->start[i] != b->start[i] || a->stop[i] != b->stop[i]) return false;
    }
    return true;
}

static bool is_apart(const fb_piece *a, const fb_piece *b) {
    for (int i = 0; i < a->rank; i++) {
        if (a->stop[i] <= b->start[i] || b->stop[i] <= a->start[i]) return true;
    }
    return false;
}

/* Whether two pieces of one box are shown to hold the same bytes. */
static fb_status compare_pieces(fb_carrying *c, const fb_piece *a, const fb_piece *b, bool *is_same) {
    bool is_known;
    *is_same = a->from.id == b->from.id;
    if (*is_same) return FB_OK;
    fb_dtype dtype = (fb_dtype)fb_tensor_at(c->sides->base, a->source)->dtype;
    return fb_compare_bytes(c->sides, a->from, b->from, dtype, &is_known, is_same, c->error);
}

fb_agreement fb_carry_report(fb_carrying *c, const char *code, fb_tensor source, const char *detail) {
    const char *name = fb_tensor_name(c->sides->given_base, source);
    fb_conflicts_add(c->conflicts, FB_CONFLICT_TENSOR, code, name, detail, name);
    return FB_CONFLICTS;
}

/* Picks from all pieces of one original those that cover it once. */
static fb_status choose_pieces(fb_carrying *c, const fb_placed_piece *all, size_t count, const fb_piece **kept,
                               size_t *kept_count, fb_agreement *verdict) {
    fb_tensor source = all[0].piece.source;
    *verdict = FB_CARRY;
    for (size_t i = 0; i < count; i++) {
        if (!all[i].of->is_carried) continue;
        bool is_kept = true;
        for (size_t j = 0; j < *kept_count && is_kept; j++) {
            bool is_same = false;
            if (is_apart(&all[i].piece, kept[j])) continue;
            if (is_same_box(&all[i].piece, kept[j])) {
                fb_status status = compare_pieces(c, &all[i].piece, kept[j], &is_same);
                if (status) return status;
            }
            if (!is_same)
                *verdict = fb_carry_report(c, "copies-diverged", source,
                                           "%s went to two places, which differ now or cannot be shown to be the same");
            if (!is_same) return FB_OK;
            is_kept = false;
        }
        if (is_kept) kept[(*kept_count)++] = &all[i].piece;
    }
    return FB_OK;
}

/* What did not change, or is owned itself, must be what the changed pieces say. */
static fb_status agree_with_rest(fb_carrying *c, const fb_placed_piece *all, size_t count, const fb_piece *const *kept,
                                 size_t kept_count, fb_agreement *verdict) {
    fb_tensor source = all[0].piece.source;
    for (size_t i = 0; i < count && *verdict == FB_CARRY; i++) {
        bool is_owner = all[i].of->base.id == source.id;
        if (all[i].of->is_carried) continue;
        for (size_t j = 0; j < kept_count && *verdict == FB_CARRY; j++) {
            bool is_same = false;
            if (is_apart(&all[i].piece, kept[j])) continue;
            fb_status status =
                is_same_box(&all[i].piece, kept[j]) ? compare_pieces(c, &all[i].piece, kept[j], &is_same) : FB_OK;
            if (status) return status;
            if (!is_same && (is_owner || all[i].of->is_shared))
                *verdict = fb_carry_report(c, "tied", source, "%s is owned elsewhere too, where it did not change with it");
            else if (!is_same)
                *verdict = fb_carry_report(c, "copies-diverged", source,
                                           "%s went to several places, and not all of them changed alike");
        }
        if (is_owner && *verdict == FB_CARRY) *verdict = FB_STAYS;
    }
    if (*verdict == FB_CARRY && c->is_computed_from[source.id])
        *verdict = fb_carry_report(c, "copies-diverged", source,
                                   "%s changed in one place, and another tensor is computed from what it was");
    return FB_OK;
}
fb_status fb_carry_agree(fb_carrying *c, const fb_placed_piece *all, size_t count, const fb_piece **kept, size_t *kept_count,
                         fb_agreement *verdict) {
    fb_status status = choose_pieces(c, all, count, kept, kept_count, verdict);
    if (status || *verdict != FB_CARRY || !*kept_count) return status;
    return agree_with_rest(c, all, count, kept, *kept_count, verdict);
}
