#include "core/diff/diff.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/diff/rows.h"

/* Making the edits of one table. `from` is edited along with it, so that places are known as they are at each moment. */
typedef struct maker {
    fb_diff *diff;
    size_t capacity; /* of diff->edits */
    bool only_counts;
    size_t most; /* edits to count */
    fb_document_table table;
    fb_rows from, to;
    fb_buffer was, now; /* the texts of two rows */
    uint32_t *in_from;  /* by row of `to`: the same row in `from`, 0 = none (yet) */
    bool *is_kept;      /* by row of `from`: it is in `to` */
    bool *is_still;     /* by row of `to`: it need not move */
    fb_work *work;
    bool failed;
} maker;

#define STEPS_OF_A_ROW ((int64_t)FB_WORK_UNASKED / 128)

static bool is_wanted(const maker *m) {
    return !m->failed && (!m->only_counts || m->diff->count < m->most);
}

static bool takes(const maker *m, int64_t steps) {
    return is_wanted(m) && fb_work_goes_on(m->work, steps);
}

static bool goes_on(const maker *m) {
    return takes(m, STEPS_OF_A_ROW);
}

static const char *keep_name(maker *m, const char *name) {
    if (!name || m->only_counts) return NULL;
    const char *kept = fb_arena_text(&m->diff->arena, name, strlen(name));
    m->failed |= !kept;
    return kept;
}

/* The text of a row, which lasts as long as the buffer is not used again. */
static fb_span write_row(maker *m, const fb_rows *rows, uint32_t row, fb_buffer *out) {
    out->size = 0;
    fb_rows_write(rows, (fb_row_id){row}, out);
    m->failed |= out->failed;
    return (fb_span){out->data, out->size};
}

static fb_span keep_row(maker *m, const fb_rows *rows, uint32_t row) {
    if (m->only_counts) return (fb_span){0};
    fb_span text = write_row(m, rows, row, &m->now);
    fb_span kept = {fb_arena_text(&m->diff->arena, text.text, text.size), text.size};
    m->failed |= !kept.text;
    return kept;
}

/* A new edit; its texts are in the arena. */
static void add_edit(maker *m, fb_edit edit) {
    fb_diff *diff = m->diff;
    if (m->only_counts) {
        diff->count++;
        return;
    }
    if (!FB_GROW(diff->edits, diff->count, m->capacity)) {
        m->failed = true;
        return;
    }
    edit.table = m->table;
    diff->edits[diff->count++] = edit;
}

/* The name of the row behind one, NULL at the end. */
static const char *name_behind(const fb_rows *rows, uint32_t row) {
    uint32_t next = rows->items[row].next.id;
    return next ? rows->items[next].name : NULL;
}

/* ---- which rows are the same ------------------------------------------------------------------------------------------- */

static bool match_rows(maker *m) {
    m->in_from = calloc(m->to.count + 1, sizeof *m->in_from);
    m->is_still = calloc(m->to.count + 1, sizeof *m->is_still);
    m->is_kept = calloc(m->from.count + 1, sizeof *m->is_kept);
    if (!m->in_from || !m->is_still || !m->is_kept) return false;
    for (uint32_t i = 1; i < m->to.count && goes_on(m); i++) {
        m->in_from[i] = fb_rows_find(&m->from, m->to.items[i].name).id;
        if (m->in_from[i]) m->is_kept[m->in_from[i]] = true;
    }
    return true;
}

static bool is_in_order(const maker *m) {
    uint32_t last = 0;
    for (uint32_t i = 1; i < m->to.count && takes(m, 1); i++) {
        if (!m->in_from[i]) continue;
        if (m->in_from[i] < last) return false;
        last = m->in_from[i];
    }
    return true;
}

/* The rows that stay where they are: a longest increasing subsequence of the places in `from` (patience sorting). */
static bool find_still_rows(maker *m) {
    if (is_in_order(m)) {
        memset(m->is_still, true, m->to.count);
        return true;
    }
    uint32_t *last = calloc(2 * m->to.count, sizeof *last); /* [k]: the least row that ends a sequence of k + 1 */
    if (!last) return false;
    uint32_t *before = last + m->to.count; /* by row: the one before it in such a sequence */
    size_t longest = 0;
    for (uint32_t i = 1; i < m->to.count && takes(m, 8); i++) {
        uint32_t place = m->in_from[i];
        if (!place) continue;
        size_t low = longest && m->in_from[last[longest - 1]] < place ? longest : 0, high = longest;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (m->in_from[last[middle]] < place) low = middle + 1;
            else high = middle;
        }
        before[i] = low ? last[low - 1] : 0;
        last[low] = i;
        if (low == longest) longest++;
    }
    for (uint32_t i = longest ? last[longest - 1] : 0; i; i = before[i]) m->is_still[i] = true;
    free(last);
    return true;
}

/* ---- edits ------------------------------------------------------------------------------------------------------------- */

static void erase_rows(maker *m) {
    for (uint32_t i = 1; i < m->from.count && goes_on(m); i++) {
        const fb_row *row = &m->from.items[i];
        if (m->is_kept[i]) continue;
        add_edit(m, (fb_edit){.kind = FB_EDIT_ERASE,
                              .name = keep_name(m, row->name),
                              .row = keep_row(m, &m->from, i),
                              .before = keep_name(m, name_behind(&m->from, i))});
        fb_rows_take_out(&m->from, (fb_row_id){i});
    }
}

/* From the last to the first: the row that a row shall precede is in its place by then. */
static void place_rows(maker *m) {
    fb_row_id behind = {0};
    for (size_t i = m->to.count; i-- > 1 && goes_on(m); behind.id = m->in_from[i]) {
        const fb_row *row = &m->to.items[i];
        fb_row_id place = {m->in_from[i]};
        if (place.id && m->is_still[i]) continue;
        fb_edit edit = {.name = keep_name(m, row->name), .before = keep_name(m, name_behind(&m->to, (uint32_t)i))};
        if (place.id) {
            edit.kind = FB_EDIT_MOVE;
            edit.was_before = keep_name(m, name_behind(&m->from, place.id));
            fb_rows_move(&m->from, place, behind);
        } else {
            edit.kind = FB_EDIT_INSERT;
            edit.row = keep_row(m, &m->to, (uint32_t)i);
            m->in_from[i] = fb_rows_insert(&m->from, row->name, fb_span_of(""), behind).id;
            m->failed |= !m->in_from[i];
        }
        add_edit(m, edit);
    }
}

static void set_members(maker *m) {
    for (uint32_t i = 1; i < m->to.count && goes_on(m); i++) {
        fb_edit edit = {.kind = FB_EDIT_SET};
        if (m->from.items[m->in_from[i]].is_new) continue;
        fb_span was = write_row(m, &m->from, m->in_from[i], &m->was), now = write_row(m, &m->to, i, &m->now);
        m->failed = m->failed || !fb_members_compare(m->table, was, now, &m->diff->arena, &edit.members, &edit.member_count);
        if (m->failed || !edit.member_count) continue;
        edit.name = keep_name(m, m->to.items[i].name);
        add_edit(m, edit);
    }
}

static void make_table(maker *m, const fb_graph *from, const fb_graph *to) {
    m->from.work = m->to.work = m->work;
    m->failed |= !fb_rows_read(&m->from, from, m->table) || !fb_rows_read(&m->to, to, m->table);
    m->failed = m->failed || !match_rows(m) || !find_still_rows(m);
    if (goes_on(m)) erase_rows(m);
    if (goes_on(m)) place_rows(m);
    if (goes_on(m)) set_members(m);
    fb_rows_free(&m->from);
    fb_rows_free(&m->to);
    fb_buffer_free(&m->was);
    fb_buffer_free(&m->now);
    free(m->in_from);
    free(m->is_kept);
    free(m->is_still);
}

static fb_status make(const fb_graph *from, const fb_graph *to, bool only_counts, size_t most, fb_work *work, fb_diff *out,
                      fb_error *error) {
    fb_diff diff = {0};
    maker m = {.diff = &diff, .only_counts = only_counts, .most = most};
    for (fb_document_table table = FB_GRAPH_TABLE; table < FB_TABLES && is_wanted(&m); table++) {
        m = (maker){
            .diff = &diff, .capacity = m.capacity, .only_counts = only_counts, .most = most, .table = table, .work = work};
        make_table(&m, from, to);
    }
    fb_status status = fb_work_status(work, error);
    if (!status && m.failed) status = fb_fail_memory(error);
    if (status) fb_diff_free(&diff);
    else *out = diff;
    return status;
}

fb_status fb_diff_make(const fb_graph *from, const fb_graph *to, fb_work *work, fb_diff *out, fb_error *error) {
    return make(from, to, false, 0, work, out, error);
}

fb_status fb_diff_count(const fb_graph *from, const fb_graph *to, size_t most, fb_work *work, size_t *count, fb_error *error) {
    fb_diff diff = {0};
    fb_status status = make(from, to, true, most, work, &diff, error);
    *count = diff.count;
    fb_diff_free(&diff);
    return status;
}

void fb_diff_free(fb_diff *diff) {
    free(diff->edits);
    fb_arena_free(&diff->arena);
    *diff = (fb_diff){0};
}
