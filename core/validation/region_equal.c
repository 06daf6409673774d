/* Regions that are equal but for names, as the regions of a model's layers are: the same calls, before and after, of given
 * values and of weights that are drawn at random. Evaluating one of them is evaluating the others on other random numbers.
 *
 * A region is written down, with numbers in place of names in the order in which they come up, and equal texts are equal
 * regions. The given values of one name in both graphs are the same, so they have one number; and so do weights. */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/view.h"
#include "core/base/map.h"
#include "core/base/sha256.h"
#include "core/evaluator/evaluator.h"
#include "core/validation/region.h"

#define LEAST_WEIGHTS ((int64_t)1 << 20) /* elements: what is less is evaluated in any case */
#define MOST_ITEMS 1024                  /* nodes and tensors of a region that is looked at */
#define MOST_BYTES ((size_t)1 << 18)     /* of its description */

typedef enum item_kind { GIVEN = 1, COMPUTED, TENSOR } item_kind;

/* A node or tensor that was mentioned and is to be described. */
typedef struct item {
    item_kind kind;
    bool of_after;
    uint32_t id;
} item;

typedef struct description {
    const fb_regions *r;
    const fb_graph *graph; /* of the item that is described */
    bool of_after;
    bool is_own; /* it cannot be told whether it is equal to another one */
    fb_buffer text, items;
    fb_map numbers, listed;
    uint32_t count;  /* numbers */
    int64_t weights; /* elements that are drawn for the graph before */
} description;

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

static void put(description *d, int64_t number) {
    fb_buffer_append(&d->text, &number, sizeof number);
}

static void put_real(description *d, double number) {
    fb_buffer_append(&d->text, &number, sizeof number);
}

static void put_text(description *d, const char *text) {
    size_t size = strlen(text);
    put(d, (int64_t)size);
    fb_buffer_append(&d->text, text, size);
}

/* The key of what has the same name in both graphs is the same. */
static uint64_t key_of(const description *d, item_kind kind, uint32_t id) {
    const fb_regions *r = d->r;
    bool of_after = d->of_after;
    fb_tensor tensor = {id};
    uint32_t twin = 0;
    if (of_after && kind == GIVEN) twin = r->twin_of_after[id].id;
    if (of_after && kind == TENSOR) twin = fb_tensor_find(r->before, fb_tensor_name(r->after, tensor)).id;
    return ((uint64_t)kind << 1 | (of_after && !twin)) << 32 | (twin ? twin : id);
}

static void put_item(description *d, item_kind kind, uint32_t id) {
    uint64_t key = key_of(d, kind, id), place = ((uint64_t)kind << 1 | d->of_after) << 32 | id;
    uint32_t number = fb_map_get(&d->numbers, key);
    if (!number) {
        number = ++d->count;
        d->is_own |= !fb_map_put(&d->numbers, key, number);
    }
    put(d, kind);
    put(d, number);
    if (fb_map_get(&d->listed, place)) return;
    item fresh = {kind, d->of_after, id};
    d->is_own |= !fb_map_put(&d->listed, place, 1);
    fb_buffer_append(&d->items, &fresh, sizeof fresh);
}

static void put_node(description *d, fb_node node) {
    bool is_computed = (d->of_after ? d->r->computed_after : d->r->computed_before)[node.id];
    bool is_input = fb_node_at(d->graph, node)->opcode == FB_PLACEHOLDER;
    put_item(d, is_computed && !is_input ? COMPUTED : GIVEN, node.id);
}

static void put_value(description *d, fb_value value) {
    if (!value.id) {
        put(d, 0);
        return;
    }
    const fb_value_row *row = fb_value_at(d->graph, value);
    put(d, row->kind);
    put(d, row->count);
    switch ((fb_kind)row->kind) {
    case FB_NODE: put_node(d, fb_value_node(d->graph, value)); break;
    case FB_TENSOR: put_item(d, TENSOR, fb_value_tensor(d->graph, value).id); break;
    case FB_INT: put(d, row->integer); break;
    case FB_FLOAT: put_real(d, row->real); break;
    default: {
        const char *text = fb_value_text(d->graph, value);
        if (text) put_text(d, text);
    }
    }
    for (uint32_t i = 0; i < row->count && !d->is_own && fb_work_goes_on(d->r->work, 1); i++) put_value(d, row->items[i]);
    d->is_own |= d->text.size > MOST_BYTES;
}

/* ---- describing --------------------------------------------------------------------------------------------------------- */

/* A tensor whose bytes are known is equal to itself alone. */
static void describe_tensor(description *d, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(d->graph, tensor);
    put(d, row->dtype);
    put_value(d, row->shape);
    put_value(d, row->recipe);
    if (row->recipe.id) return;
    bool is_known = row->data.id || row->blob.id;
    put_text(d, is_known ? fb_text(d->graph, row->name) : "");
    if (is_known) return;
    double mean, deviation;
    int64_t count = 1;
    fb_random_distribution(d->graph, tensor, &mean, &deviation);
    put_real(d, mean);
    put_real(d, deviation);
    for (int i = 0; i < fb_shape_rank(d->graph, row->shape); i++)
        if (__builtin_mul_overflow(count, fb_shape_size(d->graph, row->shape, i), &count)) count = LEAST_WEIGHTS;
    if (!d->of_after && __builtin_add_overflow(d->weights, count, &d->weights)) d->weights = LEAST_WEIGHTS;
}

static void describe_module(description *d, fb_module module) {
    const fb_module_row *row = fb_module_at(d->graph, module);
    put_text(d, fb_text(d->graph, row->type));
    put(d, row->training);
    put_value(d, row->config);
    put_value(d, row->attributes);
    put_value(d, row->parameters);
    put_value(d, row->buffers);
}

/* True for a node whose result depends on more than what it reads. */
static bool has_state(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->opcode == FB_GET_ATTR) return !row->attribute.id;
    fb_effects effects = fb_op_effects(graph, node);
    bool is_call = row->opcode >= FB_CALL_MODULE && row->opcode <= FB_CALL_METHOD;
    return !is_call || effects.is_unknown || effects.is_random || effects.mutates_input || effects.mutates_module ||
           effects.has_effect || !fb_node_op(graph, node) || fb_runs_inside(graph, node);
}

static void describe_node(description *d, item_kind kind, fb_node node) {
    const fb_node_row *row = fb_node_at(d->graph, node);
    put(d, row->opcode);
    put(d, row->dtype);
    put_value(d, row->shape);
    if (kind == GIVEN && row->opcode != FB_PLACEHOLDER) return;
    d->is_own |= kind == COMPUTED && has_state(d->graph, node);
    if (row->opcode == FB_GET_ATTR && !d->is_own) {
        const char *attribute = fb_text(d->graph, row->attribute);
        fb_tensor tensor = fb_module_tensor(d->graph, row->module, attribute);
        fb_value plain = fb_map_value(d->graph, fb_module_at(d->graph, row->module)->attributes, attribute);
        if (tensor.id) put_item(d, TENSOR, tensor.id);
        else put_value(d, plain);
        return;
    }
    if (row->opcode == FB_CALL_MODULE) describe_module(d, row->module);
    else if (row->opcode != FB_PLACEHOLDER) put_text(d, fb_text(d->graph, row->target));
    put_value(d, row->args);
    put_value(d, row->kwargs);
}

static void turn_to(description *d, bool of_after) {
    d->of_after = of_after;
    d->graph = of_after ? d->r->after : d->r->before;
}

static void mention_pair(description *d, const fb_region_pair *pair) {
    put(d, pair->by_type);
    turn_to(d, false);
    put_node(d, pair->before);
    turn_to(d, true);
    put_node(d, pair->after);
}

/* All that was mentioned, and what that mentions. */
static void describe_items(description *d) {
    for (size_t i = 0; i < d->items.size / sizeof(item) && !d->is_own && fb_work_goes_on(d->r->work, 16); i++) {
        item one;
        memcpy(&one, d->items.data + i * sizeof one, sizeof one);
        d->is_own |= i == MOST_ITEMS;
        turn_to(d, one.of_after);
        put(d, one.kind);
        put(d, one.of_after);
        if (one.kind == TENSOR) describe_tensor(d, (fb_tensor){one.id});
        else describe_node(d, one.kind, (fb_node){one.id});
    }
}

/* False: memory is out, or the work is stopped. *is_worth_it: there is a text that is to be compared. */
static bool describe_region(description *d, const fb_region_pair *pairs, const uint32_t *of_row, size_t count,
                            char id[FB_ID_LENGTH + 1], bool *is_worth_it) {
    d->text.size = d->items.size = 0;
    fb_map_clear(&d->numbers);
    fb_map_clear(&d->listed);
    d->count = 0;
    d->weights = 0;
    d->is_own = false;
    for (size_t i = 0; i < count; i++) mention_pair(d, &pairs[of_row[i]]);
    describe_items(d);
    if (d->text.failed || d->items.failed || d->r->work->stopped.status) return false;
    *is_worth_it = !d->is_own && d->weights >= LEAST_WEIGHTS;
    return !*is_worth_it || fb_sha256_id(d->text.data, d->text.size, id);
}

/* ---- all of them -------------------------------------------------------------------------------------------------------- */

/* Pairs by row: row i has order[starts[i]] … order[starts[i + 1] - 1]. */
static void sort_by_row(const uint32_t *row_of_pair, size_t pairs, size_t rows, uint32_t *starts, uint32_t *order) {
    for (size_t i = 0; i < pairs; i++) starts[row_of_pair[i] + 1]++;
    for (size_t i = 0; i < rows; i++) starts[i + 1] += starts[i];
    for (size_t i = 0; i < pairs; i++) order[starts[row_of_pair[i]]++] = (uint32_t)i;
    memmove(starts + 1, starts, rows * sizeof *starts);
    starts[0] = 0;
}

static bool find_equal(description *d, size_t rows, const uint32_t *starts, const uint32_t *order, uint32_t *same_as) {
    const fb_region_pair *pairs = (const fb_region_pair *)(const void *)d->r->pairs.data;
    char(*ids)[FB_ID_LENGTH + 1] = calloc(rows + 1, sizeof *ids);
    fb_map first = {0};
    bool is_complete = ids != NULL;
    for (size_t i = 0; i < rows && is_complete; i++) {
        bool is_worth_it = false;
        is_complete = describe_region(d, pairs, order + starts[i], starts[i + 1] - starts[i], ids[i], &is_worth_it);
        if (!is_complete || !is_worth_it) continue;
        uint64_t hash = fb_hash_text(ids[i], 0);
        uint32_t cursor = 0, found;
        while ((found = fb_map_next(&first, hash, &cursor)) && strcmp(ids[found - 1], ids[i]) != 0) continue;
        if (found) same_as[i] = found - 1;
        else is_complete = fb_map_add(&first, hash, (uint32_t)i + 1);
    }
    fb_map_free(&first);
    free(ids);
    return is_complete;
}

/* True for a region whose result may depend on the order of its calls: something is written, or a level of torch.vmap is
 * opened. */
static bool has_order(const fb_regions *r, const fb_graph *graph, const unsigned char *computed) {
    for (fb_node node = fb_first_node(graph, FB_MAIN_PROGRAM); node.id && fb_work_goes_on(r->work, 4);
         node = fb_next_node(graph, node)) {
        if (!computed[node.id]) continue;
        bool is_level = fb_op_facts_of(fb_node_op(graph, node))->flags & FB_FACT_VMAP_LEVEL;
        if (is_level || fb_op_effects(graph, node).mutates_input) return true;
    }
    return false;
}

/* Are there enough weights for a region to be worth the look? */
static bool has_weights(const fb_graph *graph) {
    double count = 0;
    for (fb_tensor t = fb_first_tensor(graph); t.id && count < (double)LEAST_WEIGHTS; t = fb_tensor_at(graph, t)->next) {
        double elements = 1;
        fb_value shape = fb_tensor_at(graph, t)->shape;
        for (int i = 0; i < fb_shape_rank(graph, shape); i++) elements *= (double)fb_shape_size(graph, shape, i);
        count += elements;
    }
    return count >= (double)LEAST_WEIGHTS;
}

fb_status fb_regions_find_equal(const fb_regions *r, const uint32_t *row_of_pair, size_t rows, uint32_t *same_as,
                                fb_error *error) {
    size_t pairs = r->pairs.size / sizeof(fb_region_pair);
    description d = {.r = r};
    for (size_t i = 0; i < rows; i++) same_as[i] = (uint32_t)i;
    if (rows < 2 || (!has_weights(r->before) && !has_weights(r->after))) return FB_OK;
    if (has_order(r, r->before, r->computed_before) || has_order(r, r->after, r->computed_after)) return FB_OK;
    uint32_t *starts = calloc(rows + 2, sizeof *starts), *order = calloc(pairs + 1, sizeof *order);
    bool is_complete = starts && order;
    if (is_complete) sort_by_row(row_of_pair, pairs, rows, starts, order);
    is_complete = is_complete && find_equal(&d, rows, starts, order, same_as);
    fb_buffer_free(&d.text);
    fb_buffer_free(&d.items);
    fb_map_free(&d.numbers);
    fb_map_free(&d.listed);
    free(starts);
    free(order);
    return is_complete ? fb_work_status(r->work, error) : fb_work_failed(r->work, error);
}
