/* Symbols and values: interned strings and argument trees, most of them interned. */
#include <stdlib.h>
#include <string.h>

#include "core/graph/internal.h"

#define SMALL_LIST 64 /* items that are edited on the stack */

/* Indexes are seeded by the graph's address, so that a crafted document cannot aim at one chain. A copy keeps its original's
 * seed, since it copies the indexes. */
static uint32_t text_hash(const fb_graph *graph, const char *bytes, size_t length) {
    return (uint32_t)(fb_hash(bytes, length, graph->seed) >> 32);
}

static fb_symbol find_symbol(const fb_graph *graph, uint32_t hash, const char *bytes, size_t length, uint32_t *step) {
    uint32_t id;
    *step = 0;
    while ((id = fb_index_next(&graph->symbol_index, hash, step))) {
        const fb_symbol_row *row = symbol_row(graph, (fb_symbol){id});
        if (row->length == length && memcmp(row->text, bytes, length) == 0) break;
    }
    return (fb_symbol){id};
}

fb_symbol fb_symbol_find(const fb_graph *graph, const char *bytes, size_t length) {
    uint32_t step;
    return find_symbol(graph, text_hash(graph, bytes, length), bytes, length, &step);
}

static uint32_t add_record(fb_table *table, size_t size) {
    return fb_table_add_run(table, (uint32_t)((size + FB_RECORD_UNIT - 1) / FB_RECORD_UNIT));
}

static fb_symbol fail_symbol(fb_graph *graph) {
    graph->out_of_memory = true;
    return (fb_symbol){0};
}

fb_symbol fb_intern_bytes(fb_graph *graph, const char *bytes, size_t length) {
    uint32_t hash = text_hash(graph, bytes, length), step;
    if (!fb_index_reserve(&graph->symbol_index, 1)) return fail_symbol(graph);
    fb_symbol symbol = find_symbol(graph, hash, bytes, length, &step);
    if (symbol.id) return symbol;
    symbol.id = length < UINT32_MAX ? add_record(&graph->tables.symbols, sizeof(fb_symbol_row) + length + 1) : 0;
    if (!symbol.id) return fail_symbol(graph);
    fb_symbol_row *row = symbol_row(graph, symbol);
    *row = (fb_symbol_row){.length = (uint32_t)length};
    if (length) memcpy(row->text, bytes, length);
    row->text[length] = '\0';
    fb_index_add_here(&graph->symbol_index, hash, symbol.id, step);
    return symbol;
}

static __attribute__((noinline)) fb_names_row *add_names(fb_graph *graph, fb_symbol_row *row) {
    uint32_t id = row->named & (FB_TABLE_MOST - 1), kind = row->named >> 30;
    uint32_t added = fb_table_add(&graph->tables.names);
    if (!added) {
        graph->out_of_memory = true;
        return NULL;
    }
    fb_names_row *several = fb_table_row(&graph->tables.names, added, sizeof *several);
    *several = (fb_names_row){0};
    several->ids[kind] = id;
    row->named = (uint32_t)FB_NAMED_SEVERAL << 30 | added;
    return several;
}

fb_names_row *fb_graph_names_of(fb_graph *graph, fb_symbol name) {
    fb_symbol_row *row = symbol_row(graph, name);
    if (row->named >> 30 != FB_NAMED_SEVERAL) return add_names(graph, row);
    return fb_table_row(&graph->tables.names, row->named & (FB_TABLE_MOST - 1), sizeof(fb_names_row));
}

bool fb_graph_set_named(fb_graph *graph, fb_symbol name, fb_named_kind kind, uint32_t id) {
    fb_symbol_row *row = symbol_row(graph, name);
    if (!row->named || row->named >> 30 == kind) {
        row->named = id ? (uint32_t)kind << 30 | id : 0;
        return true;
    }
    if (!id && row->named >> 30 != FB_NAMED_SEVERAL) return true;
    fb_names_row *several = fb_graph_names_of(graph, name);
    if (several) several->ids[kind] = id;
    return several != NULL;
}

/* Names of passes, operators and members are constants, whose addresses find them. What else was at that address has another
 * text. */
static uint32_t place_of_text(const char *text) {
    return (uint32_t)(((uintptr_t)text * 0x9e3779b97f4a7c15U) >> 56);
}

/* None: it was not interned last from that address. */
static fb_symbol known_symbol(const fb_graph *graph, const char *text) {
    const fb_known_text *known = &graph->known[place_of_text(text)];
    bool is_it = known->text == text && strcmp(symbol_row(graph, known->symbol)->text, text) == 0;
    return is_it ? known->symbol : (fb_symbol){0};
}

fb_symbol fb_intern(fb_graph *graph, const char *text) {
    fb_symbol symbol = known_symbol(graph, text);
    if (symbol.id) return symbol;
    symbol = fb_intern_bytes(graph, text, strlen(text));
    if (symbol.id) graph->known[place_of_text(text)] = (fb_known_text){text, symbol};
    return symbol;
}

/* ---- values ------------------------------------------------------------------------------------------------------------ */

bool fb_value_is_number(const fb_graph *graph, fb_value value, double *out) {
    fb_kind kind = fb_value_kind(graph, value);
    if (kind == FB_INT) *out = (double)fb_value_at(graph, value)->integer;
    else if (kind == FB_FLOAT) *out = fb_value_at(graph, value)->real;
    else return false;
    return true;
}

static bool has_symbol(fb_kind kind) {
    switch (kind) {
    case FB_BIG_INT:
    case FB_STRING:
    case FB_DTYPE:
    case FB_DEVICE:
    case FB_LAYOUT:
    case FB_MEMORY_FORMAT:
    case FB_REF:
    case FB_OPAQUE:
    case FB_RAW:
    case FB_ENUM:
    case FB_NAMED_TUPLE:
    case FB_EXPRESSION: return true;
    default: return false;
    }
}

const char *fb_value_text(const fb_graph *graph, fb_value value) {
    return has_symbol(fb_value_kind(graph, value)) ? fb_text(graph, fb_value_at(graph, value)->symbol) : NULL;
}

/* A large map has a table of places behind its items: of each key by its symbol, counted from 1, with 0 for none. */
enum { LARGE_MAP = 64 }; /* keys */

static uint32_t places_of(const fb_value_row *row) {
    uint32_t keys = row->kind == FB_MAP ? row->count / 2 : 0, count = LARGE_MAP;
    while (keys >= LARGE_MAP && count < 2 * keys) count *= 2;
    return keys >= LARGE_MAP ? count : 0;
}

static uint32_t *place_of(const fb_graph *graph, const fb_value_row *row, uint32_t places, fb_symbol key) {
    uint32_t *table = (uint32_t *)(uintptr_t)(row->items + row->count);
    uint32_t at = (uint32_t)(((uint64_t)key.id * (graph->seed | 1)) >> 32) & (places - 1);
    while (table[at] && fb_value_at(graph, row->items[2 * (table[at] - 1)])->symbol.id != key.id) at = (at + 1) & (places - 1);
    return &table[at];
}

static void fill_places(const fb_graph *graph, const fb_value_row *row, uint32_t places) {
    memset((void *)(uintptr_t)(row->items + row->count), 0, places * sizeof(uint32_t));
    for (uint32_t i = 0; places && i < row->count / 2; i++) {
        uint32_t *place = place_of(graph, row, places, fb_value_at(graph, row->items[2 * i])->symbol);
        if (!*place) *place = i + 1;
    }
}

fb_value fb_map_value(const fb_graph *graph, fb_value map, const char *key) {
    if (!map.id || map.id == FB_VALUE_EMPTY_MAP.id) return (fb_value){0};
    const fb_value_row *row = fb_value_at(graph, map);
    uint32_t places = places_of(row);
    fb_symbol known = places ? (fb_symbol){0} : known_symbol(graph, key);
    for (uint32_t i = 0; known.id && i + 1 < row->count; i += 2) {
        if (fb_value_at(graph, row->items[i])->symbol.id == known.id) return row->items[i + 1];
    }
    if (known.id) return (fb_value){0};
    size_t length = strlen(key);
    if (places) {
        fb_symbol symbol = fb_symbol_find(graph, key, length);
        uint32_t place = symbol.id ? *place_of(graph, row, places, symbol) : 0;
        return place ? row->items[2 * place - 1] : (fb_value){0};
    }
    for (uint32_t i = 0; i + 1 < row->count; i += 2) {
        fb_symbol symbol = fb_value_at(graph, row->items[i])->symbol;
        if (fb_text_length(graph, symbol) == length && !memcmp(fb_text(graph, symbol), key, length)) return row->items[i + 1];
    }
    return (fb_value){0};
}

__extension__ typedef unsigned __int128 wide;

/* Mixes two words as wyhash does, whose hash this is; rows are a word or three, so it must be short. */
static uint64_t mix(uint64_t a, uint64_t b) {
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint32_t row_hash(const fb_graph *graph, const fb_value_row *row, const fb_value *items) {
    uint64_t secret = graph->seed | 1, hash = mix(graph->seed ^ row->kind, (uint64_t)row->integer ^ 0x9e3779b97f4a7c15U);
    for (uint32_t i = 0; i < row->count; i += 2) {
        uint64_t next = i + 1 < row->count ? items[i + 1].id : 0;
        hash = mix(hash ^ (next << 32 | items[i].id), secret);
    }
    return (uint32_t)(mix(hash ^ row->count, secret) >> 32);
}

static bool rows_equal(const fb_value_row *a, const fb_value_row *b, const fb_value *items) {
    return a->kind == b->kind && a->count == b->count && a->integer == b->integer &&
           (a->count == 0 || memcmp(a->items, items, a->count * sizeof *items) == 0);
}

/* Adds a row that is not there yet. False when memory is out. */
static bool add_row(fb_graph *graph, const fb_value_row *row, const fb_value *items, uint32_t *id) {
    size_t size = row->count * sizeof *items;
    uint32_t places = places_of(row);
    if (!(*id = add_record(&graph->tables.values, sizeof *row + size + places * sizeof places))) return false;
    fb_value_row *added = fb_table_row(&graph->tables.values, *id, FB_RECORD_UNIT);
    *added = *row;
    for (uint32_t i = 0; i < row->count; i++) added->items[i] = items[i]; /* few */
    if (places) fill_places(graph, added, places);
    return true;
}

/* `row` has its scalar in the 64-bit union whole (unused bits zero); its items are `items`, which need not stay. */
static fb_value intern_value(fb_graph *graph, const fb_value_row *row, const fb_value *items) {
    uint32_t hash = row_hash(graph, row, items), step = 0, id;
    if (!fb_index_reserve(&graph->value_index, 1)) return fb_graph_fail_memory(graph);
    while ((id = fb_index_next(&graph->value_index, hash, &step))) {
        const fb_value_row *found = fb_table_row(&graph->tables.values, id, FB_RECORD_UNIT);
        if (rows_equal(found, row, items)) return (fb_value){id};
    }
    if (!add_row(graph, row, items, &id)) return fb_graph_fail_memory(graph);
    fb_index_add_here(&graph->value_index, hash, id, step);
    return (fb_value){id};
}

const fb_value_row fb_value_row_of_nodes = {.kind = FB_NODE, .has_nodes = true};
const fb_value_row fb_value_row_of_tensors = {.kind = FB_TENSOR, .has_tensors = true};

/* Notes whether nodes or tensors are among the items; false if one of these is none. */
static bool note_contents(const fb_graph *graph, fb_value_row *row, const fb_value *items) {
    uint32_t own = 0;
    bool has_nodes = false, has_tensors = false;
    for (uint32_t i = 0, count = row->count; i < count; i++) {
        uint32_t id = items[i].id;
        if (!id) return false;
        own |= id;
        if (id & (FB_VALUE_IS_NODE | FB_VALUE_IS_TENSOR) || id <= FB_VALUE_EMPTY_MAP.id) continue;
        const fb_value_row *item = fb_value_at(graph, items[i]);
        has_nodes |= item->has_nodes;
        has_tensors |= item->has_tensors;
    }
    row->has_nodes = has_nodes || own & FB_VALUE_IS_NODE;
    row->has_tensors = has_tensors || own & FB_VALUE_IS_TENSOR;
    return true;
}

static fb_value make_scalar(fb_graph *graph, fb_kind kind, int64_t bits) {
    fb_value_row row = {.kind = (uint8_t)kind, .integer = bits};
    return intern_value(graph, &row, NULL);
}

bool fb_graph_make_first_values(fb_graph *graph) {
    return make_scalar(graph, FB_NONE, 0).id == FB_VALUE_NONE.id && make_scalar(graph, FB_FALSE, 0).id == FB_VALUE_FALSE.id &&
           make_scalar(graph, FB_TRUE, 0).id == FB_VALUE_TRUE.id &&
           make_scalar(graph, FB_LIST, 0).id == FB_VALUE_EMPTY_LIST.id &&
           make_scalar(graph, FB_MAP, 0).id == FB_VALUE_EMPTY_MAP.id;
}

fb_value fb_make_none(fb_graph *graph) {
    (void)graph;
    return FB_VALUE_NONE;
}

fb_value fb_make_bool(fb_graph *graph, bool value) {
    (void)graph;
    return value ? FB_VALUE_TRUE : FB_VALUE_FALSE;
}

fb_value fb_make_int(fb_graph *graph, int64_t value) {
    fb_known_int *known = &graph->ints[((uint64_t)value * 0x9e3779b97f4a7c15U) >> 58];
    if (!known->value.id || known->integer != value) *known = (fb_known_int){value, make_scalar(graph, FB_INT, value)};
    return known->value;
}

fb_value fb_make_float(fb_graph *graph, double value) {
    int64_t bits;
    if (value != value) value = __builtin_nan(""); /* one nan */
    memcpy(&bits, &value, sizeof bits);
    return make_scalar(graph, FB_FLOAT, bits);
}

fb_value fb_make_node(fb_graph *graph, fb_node node) {
    (void)graph;
    return (fb_value){node.id ? node.id | FB_VALUE_IS_NODE : 0};
}

fb_value fb_make_tensor(fb_graph *graph, fb_tensor tensor) {
    (void)graph;
    return (fb_value){tensor.id ? tensor.id | FB_VALUE_IS_TENSOR : 0};
}

static fb_value make_symbol(fb_graph *graph, fb_kind kind, fb_symbol symbol) {
    if (kind != FB_STRING) return make_scalar(graph, kind, symbol.id);
    fb_names_row *row = fb_graph_names_of(graph, symbol);
    if (!row) return (fb_value){0};
    if (!row->as_string.id) row->as_string = make_scalar(graph, kind, symbol.id);
    return row->as_string;
}

fb_value fb_make_string(fb_graph *graph, const char *text) {
    fb_symbol symbol = fb_intern(graph, text);
    return symbol.id ? make_symbol(graph, FB_STRING, symbol) : (fb_value){0};
}

fb_value fb_make_text(fb_graph *graph, fb_kind kind, const char *bytes, size_t length) {
    if (!has_symbol(kind)) return make_scalar(graph, kind, 0);
    fb_symbol symbol = fb_intern_bytes(graph, bytes, length);
    return symbol.id ? make_symbol(graph, kind, symbol) : (fb_value){0};
}

fb_value fb_make_items(fb_graph *graph, fb_kind kind, fb_symbol symbol, const fb_value *items, size_t count) {
    if (count > UINT32_MAX) return fb_graph_fail_memory(graph);
    fb_value_row row = {.kind = (uint8_t)kind, .count = (uint32_t)count, .integer = symbol.id};
    if (!note_contents(graph, &row, items)) return (fb_value){0};
    /* A call's arguments, what a module owns and a recipe have one reader each: to look them up would only cost time. */
    if (!row.has_nodes && !row.has_tensors) return intern_value(graph, &row, items);
    uint32_t id;
    return add_row(graph, &row, items, &id) ? (fb_value){id} : fb_graph_fail_memory(graph);
}

fb_value fb_make_list(fb_graph *graph, const fb_value *items, size_t count) {
    return fb_make_items(graph, FB_LIST, (fb_symbol){0}, items, count);
}

fb_value fb_make_tuple(fb_graph *graph, const fb_value *items, size_t count) {
    return fb_make_items(graph, FB_TUPLE, (fb_symbol){0}, items, count);
}

fb_value fb_make_slice(fb_graph *graph, fb_value start, fb_value stop, fb_value step) {
    return fb_make_items(graph, FB_SLICE, (fb_symbol){0}, (fb_value[]){start, stop, step}, 3);
}

fb_value fb_make_shape(fb_graph *graph, const int64_t *sizes, size_t rank) {
    fb_value small[SMALL_LIST], *items = rank <= SMALL_LIST ? small : malloc(rank * sizeof *items), shape = {0};
    small[0] = shape;
    if (!items) {
        graph->out_of_memory = true;
        return shape;
    }
    for (size_t i = 0; i < rank; i++) items[i] = fb_make_int(graph, sizes[i]);
    shape = fb_make_list(graph, items, rank);
    if (items != small) free(items);
    return shape;
}

/* A copy of `value` (none = an empty map) with `remove` items taken out at `index` and `insert` put there. */
static fb_value splice(fb_graph *graph, fb_value value, size_t index, size_t remove, const fb_value *insert,
                       size_t insert_count) {
    static const fb_value_row empty_map = {.kind = FB_MAP};
    const fb_value_row *row = value.id ? fb_value_at(graph, value) : &empty_map;
    size_t count = row->count - remove + insert_count;
    fb_value small[SMALL_LIST], *items = count <= SMALL_LIST ? small : malloc(count * sizeof *items), result = {0};
    if (!items) {
        graph->out_of_memory = true;
        return result;
    }
    if (index) memcpy(items, row->items, index * sizeof *items);
    if (insert_count) memcpy(items + index, insert, insert_count * sizeof *items);
    size_t tail = row->count - index - remove;
    if (tail) memcpy(items + index + insert_count, row->items + index + remove, tail * sizeof *items);
    result =
        fb_make_items(graph, (fb_kind)row->kind, has_symbol((fb_kind)row->kind) ? row->symbol : (fb_symbol){0}, items, count);
    if (items != small) free(items);
    return result;
}

fb_value fb_map_with(fb_graph *graph, fb_value map, const char *key, fb_value value) {
    size_t count = map.id ? fb_value_at(graph, map)->count : 0, at = 0;
    while (at < count && strcmp(fb_value_text(graph, fb_value_item(graph, map, at)), key) != 0) at += 2;
    bool is_present = at < count;
    if (!value.id) return is_present ? splice(graph, map, at, 2, NULL, 0) : map;
    fb_value pair[2] = {fb_make_string(graph, key), value};
    return splice(graph, map, at, is_present ? 2 : 0, pair, 2);
}

fb_value fb_sorted_map_with(fb_graph *graph, fb_value map, const char *key, fb_value value) {
    size_t count = map.id ? fb_value_at(graph, map)->count : 0, at = 0;
    while (at < count && strcmp(fb_value_text(graph, fb_value_item(graph, map, at)), key) < 0) at += 2;
    bool is_present = at < count && strcmp(fb_value_text(graph, fb_value_item(graph, map, at)), key) == 0;
    fb_value pair[2] = {fb_make_string(graph, key), value};
    return splice(graph, map, at, is_present ? 2 : 0, pair, 2);
}

fb_value fb_list_with(fb_graph *graph, fb_value list, size_t index, fb_value item) {
    return splice(graph, list, index, 1, &item, 1);
}

bool fb_values_equal(const fb_graph *graph, fb_value a, fb_value b) {
    if (a.id == b.id || !a.id || !b.id) return a.id == b.id;
    const fb_value_row *one = fb_value_at(graph, a), *other = fb_value_at(graph, b);
    bool are_equal = one->kind == other->kind && one->count == other->count && one->integer == other->integer && one->count;
    for (uint32_t i = 0; are_equal && i < one->count; i++) are_equal = fb_values_equal(graph, one->items[i], other->items[i]);
    return are_equal;
}

/* The value of a node or tensor holds its id, so that its row, which is elsewhere in memory, need not be read. */
void fb_value_visit_nodes(const fb_graph *graph, fb_value value, void (*visit)(void *, fb_node), void *context) {
    if (value.id & FB_VALUE_IS_NODE) visit(context, (fb_node){value.id & ~FB_VALUE_IS_NODE});
    if (!value.id || value.id & (FB_VALUE_IS_NODE | FB_VALUE_IS_TENSOR)) return;
    const fb_value_row *row = fb_value_at(graph, value);
    if (!row->has_nodes) return;
    for (uint32_t i = 0; i < row->count; i++) fb_value_visit_nodes(graph, row->items[i], visit, context);
}

void fb_value_visit_tensors(const fb_graph *graph, fb_value value, void (*visit)(void *, fb_tensor), void *context) {
    if (value.id & FB_VALUE_IS_TENSOR) visit(context, (fb_tensor){value.id & ~FB_VALUE_IS_TENSOR});
    if (!value.id || value.id & (FB_VALUE_IS_NODE | FB_VALUE_IS_TENSOR)) return;
    const fb_value_row *row = fb_value_at(graph, value);
    if (!row->has_tensors) return;
    for (uint32_t i = 0; i < row->count; i++) fb_value_visit_tensors(graph, row->items[i], visit, context);
}

fb_value fb_value_substitute(fb_graph *graph, fb_value value, fb_value (*replace)(void *, fb_node), void *context) {
    const fb_value_row *row = value.id ? fb_value_at(graph, value) : NULL;
    if (!row || !row->has_nodes) return value;
    if (row->kind == FB_NODE) return replace(context, fb_value_node(graph, value));
    fb_value small[SMALL_LIST], *items = row->count <= SMALL_LIST ? small : malloc(row->count * sizeof *items), result = value;
    if (!items) {
        graph->out_of_memory = true;
        return (fb_value){0};
    }
    bool changed = false;
    for (uint32_t i = 0; i < row->count; i++) {
        items[i] = fb_value_substitute(graph, row->items[i], replace, context);
        changed |= items[i].id != row->items[i].id;
    }
    if (changed) {
        fb_symbol symbol = has_symbol((fb_kind)row->kind) ? row->symbol : (fb_symbol){0};
        result = fb_make_items(graph, (fb_kind)row->kind, symbol, items, row->count);
    }
    if (items != small) free(items);
    return result;
}

typedef struct node_map {
    fb_graph *graph;
    fb_node (*replace)(void *, fb_node);
    void *context;
} node_map;

static fb_value replace_node(void *context, fb_node node) {
    const node_map *map = context;
    return fb_make_node(map->graph, map->replace(map->context, node));
}

fb_value fb_value_map_nodes(fb_graph *graph, fb_value value, fb_node (*replace)(void *, fb_node), void *context) {
    return fb_value_substitute(graph, value, replace_node, &(node_map){graph, replace, context});
}

bool fb_value_has_text(const fb_graph *graph, fb_value list, const char *text) {
    for (size_t i = 0; fb_value_item(graph, list, i).id; i++) {
        if (strcmp(fb_value_text(graph, fb_value_item(graph, list, i)), text) == 0) return true;
    }
    return false;
}
