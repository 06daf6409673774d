/* Every node after what it reads. A node that comes back stands before its next neighbour of old; where the neighbours were
 * reordered since, it moves behind the last of its inputs. */
#include <stdlib.h>
#include <string.h>

#include "core/diff/merging.h"

typedef struct waiter {
    uint32_t row, next;
} waiter;

typedef struct ordering {
    fb_merging *m;
    fb_rows *rows;
    bool *is_out;         /* by row: it stands in its place */
    uint32_t *missing;    /* by row: inputs that do not stand yet */
    uint32_t *first_wait; /* by row: who waits for it, 1 + index into waiters */
    fb_buffer waiters;
    fb_status status;
} ordering;

/* ---- what a row reads --------------------------------------------------------------------------------------------------- */

typedef void visit_input(ordering *o, uint32_t reader, const char *name);

static void visit_name(ordering *o, uint32_t reader, fb_span quoted, visit_input *visit) {
    char *name = fb_span_unquote(quoted);
    if (name) visit(o, reader, name);
    else o->status = fb_fail_memory(o->m->error);
    free(name);
}

/* Documents are nested to a bounded depth. */
static void each_input(ordering *o, uint32_t reader, fb_span value, visit_input *visit) {
    fb_span key, item;
    for (size_t cursor = 0; !o->status && fb_merging_goes_on(o->m) && fb_span_next(value, &cursor, &key, &item);) {
        if (key.text && fb_span_equal(key, fb_span_of("$node"))) visit_name(o, reader, item, visit);
        else each_input(o, reader, item, visit);
    }
}

static void each_input_of(ordering *o, uint32_t row, visit_input *visit) {
    fb_span text = o->rows->items[row].text;
    each_input(o, row, fb_span_at(text, "/args"), visit);
    each_input(o, row, fb_span_at(text, "/kwargs"), visit);
}

/* ---- order -------------------------------------------------------------------------------------------------------------- */

/* Who read it in base already reads it still because of a conflict that has been reported. */
static void report_absent(ordering *o, uint32_t reader, const char *name) {
    const fb_edit *edit = fb_merging_edit(o->m, FB_NODE_TABLE, name);
    const char *reader_name = o->rows->items[reader].name;
    bool is_erased = edit && edit->kind == FB_EDIT_ERASE;
    if (is_erased && fb_merging_reads(o->m, o->m->sides.base, reader_name, name)) return;
    if (is_erased)
        fb_conflicts_add(o->m->conflicts, FB_CONFLICT_NODE, "new-users", name, "%s now reads %s, which undo would remove",
                         reader_name, name);
    else o->status = fb_merging_report_missing(o->m, name, reader_name);
}

static void wait_for(ordering *o, uint32_t reader, const char *name) {
    fb_row_id input = fb_rows_find(o->rows, name);
    if (!input.id) {
        report_absent(o, reader, name);
        return;
    }
    if (o->is_out[input.id]) return;
    fb_buffer_append(&o->waiters, &(waiter){reader, o->first_wait[input.id]}, sizeof(waiter));
    if (o->waiters.failed) o->status = fb_fail_memory(o->m->error);
    o->first_wait[input.id] = (uint32_t)(o->waiters.size / sizeof(waiter));
    o->missing[reader]++;
}

static void check_input(ordering *o, uint32_t reader, const char *name) {
    fb_row_id input = fb_rows_find(o->rows, name);
    const char *reader_name = o->rows->items[reader].name;
    if (!input.id) report_absent(o, reader, name);
    else if (!o->is_out[input.id])
        fb_conflicts_add(o->m->conflicts, FB_CONFLICT_NODE, "not-topological", reader_name,
                         "%s would stand before %s, which it reads", reader_name, name);
}

/* The row stands now: who waited for it alone comes next. */
static void settle(ordering *o, uint32_t row) {
    fb_row_id next = o->rows->items[row].next;
    o->is_out[row] = true;
    for (uint32_t w = o->first_wait[row]; w && !o->status && fb_merging_goes_on(o->m);) {
        waiter waiting;
        memcpy(&waiting, o->waiters.data + (size_t)(w - 1) * sizeof waiting, sizeof waiting);
        if (--o->missing[waiting.row] == 0) {
            fb_rows_move(o->rows, (fb_row_id){waiting.row}, next);
            next.id = waiting.row; /* the first to wait stands first: waiters are listed last to first */
        }
        w = waiting.next;
    }
}

static void order_rows(ordering *o) {
    fb_rows *rows = o->rows;
    for (fb_row_id at = rows->first; at.id && !o->status && fb_merging_goes_on(o->m); at = rows->items[at.id].next) {
        if (o->is_out[at.id]) continue;
        if (!rows->items[at.id].is_new) {
            each_input_of(o, at.id, check_input);
            settle(o, at.id);
        } else if (!o->missing[at.id]) {
            each_input_of(o, at.id, wait_for);
            if (!o->missing[at.id]) settle(o, at.id);
        }
    }
    for (fb_row_id at = rows->first; at.id && !o->status && fb_merging_goes_on(o->m); at = rows->items[at.id].next) {
        if (!o->is_out[at.id]) each_input_of(o, at.id, check_input);
    }
}

fb_status fb_merge_order(fb_merging *m) {
    fb_rows *rows = &m->tables[FB_NODE_TABLE];
    size_t count = rows->count + 1;
    ordering o = {.m = m,
                  .rows = rows,
                  .is_out = calloc(count, sizeof *o.is_out),
                  .missing = calloc(count, sizeof *o.missing),
                  .first_wait = calloc(count, sizeof *o.first_wait)};
    if (o.is_out && o.missing && o.first_wait) order_rows(&o);
    else o.status = fb_fail_memory(m->error);
    free(o.is_out);
    free(o.missing);
    free(o.first_wait);
    fb_buffer_free(&o.waiters);
    return o.status;
}
