/* Values of two graphs: compared, and copied from one to the other. */
#include <stdlib.h>
#include <string.h>

#include "core/rules/internal.h"

/* How a value holds what it is: the items come on top. */
static bool same_scalar(const fb_graph *a, const fb_value_row *x, const fb_graph *b, const fb_value_row *y) {
    switch ((fb_kind)x->kind) {
    case FB_INT: return x->integer == y->integer;
    case FB_FLOAT: return memcmp(&x->real, &y->real, sizeof x->real) == 0;
    case FB_NODE:
    case FB_TENSOR: return false;
    case FB_NONE:
    case FB_FALSE:
    case FB_TRUE: return true;
    default: return strcmp(fb_text(a, x->symbol), fb_text(b, y->symbol)) == 0;
    }
}

bool fb_rule_same_value(const fb_graph *a, fb_value x, const fb_graph *b, fb_value y) {
    const fb_value_row *left = fb_value_at(a, x), *right = fb_value_at(b, y);
    if (left->kind != right->kind || left->count != right->count || !same_scalar(a, left, b, right)) return false;
    for (uint32_t i = 0; i < left->count; i++) {
        if (!fb_rule_same_value(a, left->items[i], b, right->items[i])) return false;
    }
    return true;
}

#define STEPS_OF_AN_ITEM 4

static fb_value copy_items(const fb_graph *from, const fb_value_row *row, fb_graph *to, const fb_map *nodes, fb_work *work) {
    fb_value few[8], *items = row->count <= 8 ? few : malloc(row->count * sizeof *items);
    if (!items || !fb_work_goes_on(work, STEPS_OF_AN_ITEM * (int64_t)row->count)) {
        if (items != few) free(items);
        return fb_graph_fail_memory(to); /* a trial's, which goes when its work was stopped */
    }
    for (uint32_t i = 0; i < row->count; i++) items[i] = fb_rule_copy_value(from, row->items[i], to, nodes, work);
    bool has_symbol = row->kind == FB_ENUM || row->kind == FB_NAMED_TUPLE;
    fb_symbol symbol = has_symbol ? fb_intern(to, fb_text(from, row->symbol)) : (fb_symbol){0};
    fb_value copy = fb_make_items(to, (fb_kind)row->kind, symbol, items, row->count);
    if (items != few) free(items);
    return copy;
}

fb_value fb_rule_copy_value(const fb_graph *from, fb_value value, fb_graph *to, const fb_map *nodes, fb_work *work) {
    const fb_value_row *row = fb_value_at(from, value);
    switch ((fb_kind)row->kind) {
    case FB_NONE: return FB_VALUE_NONE;
    case FB_FALSE: return FB_VALUE_FALSE;
    case FB_TRUE: return FB_VALUE_TRUE;
    case FB_INT: return fb_make_int(to, row->integer);
    case FB_FLOAT: return fb_make_float(to, row->real);
    case FB_NODE: return fb_make_node(to, (fb_node){fb_map_get(nodes, fb_value_node(from, value).id)});
    case FB_ENUM:
    case FB_COMPLEX:
    case FB_SLICE:
    case FB_LIST:
    case FB_TUPLE:
    case FB_SIZE:
    case FB_NAMED_TUPLE:
    case FB_DICT:
    case FB_MAP: return copy_items(from, row, to, nodes, work);
    default: return fb_make_text(to, (fb_kind)row->kind, fb_text(from, row->symbol), fb_text_length(from, row->symbol));
    }
}
