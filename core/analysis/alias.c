/* Union-find over nodes and tensors, then the writes of each class in order. */
#include "core/analysis/alias.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/usage.h"
#include "core/analysis/view.h"
#include "core/base/grow.h"
#include "core/base/map.h"

/* Elements: nodes by id, then tensors by id, then the world: tensors of modules inside a called one and of nested programs,
 * which only a call of an unknown module, or a call with a nested program, can reach; then the mode: autocast, autograd and the
 * like, which are written by what switches them. */
struct fb_alias {
    const fb_graph *graph;
    uint32_t *parent; /* NULL: nothing is written, and who shares memory was not asked yet */
    uint32_t nodes, tensors;
    uint32_t *write_start; /* by root: its writes are writes[write_start[r] .. write_start[r + 1]], ordinals in order; NULL: the
                              graph writes nothing, as most do */
    uint32_t *writes;
};

#define AFTERWARDS (UINT32_MAX - 1) /* an ordinal after all nodes */

typedef struct write_event {
    uint32_t element, ordinal;
} write_event;

typedef struct builder {
    fb_alias *alias;
    fb_map attributes; /* (module, attribute) -> element of its tensor, or of the first node that reads it */
    write_event *events;
    size_t count, capacity;
    bool *is_number; /* by node */
    bool *is_nested; /* by module: it is a nested program, or one calls it */
    bool *is_quiet;  /* by module: it is a nested program that writes nothing */
    uint32_t node;   /* the element at hand */
    uint32_t ordinal;
    bool is_written;
    bool has_values_only; /* nothing writes, and nothing shares memory: ONNX */
    bool out_of_memory;
} builder;

void fb_alias_free(fb_alias *alias) {
    if (!alias) return;
    free(alias->parent);
    free(alias->write_start);
    free(alias->writes);
    free(alias);
}

/* ---- classes --------------------------------------------------------------------------------------------------------- */

/* Once the classes are complete: see sort_writes. */
static uint32_t root_of(const fb_alias *alias, uint32_t element) {
    return alias->parent[element];
}

static uint32_t compress(fb_alias *alias, uint32_t element) {
    uint32_t *parent = alias->parent;
    while (parent[element] != element) element = parent[element] = parent[parent[element]];
    return element;
}

static void unite(fb_alias *alias, uint32_t a, uint32_t b) {
    a = compress(alias, a);
    b = compress(alias, b);
    if (a < b) alias->parent[b] = a;
    else alias->parent[a] = b;
}

static uint32_t element_of_tensor(const fb_alias *alias, fb_tensor tensor) {
    return alias->nodes + tensor.id;
}

static uint32_t world(const fb_alias *alias) {
    return alias->nodes + alias->tensors;
}

static uint32_t mode(const fb_alias *alias) {
    return world(alias) + 1;
}

static uint32_t element_count(const fb_alias *alias) {
    return mode(alias) + 1;
}

/* ---- one node -------------------------------------------------------------------------------------------------------- */

static void add_write(builder *b, uint32_t element) {
    if (!FB_GROW(b->events, b->count, b->capacity)) {
        b->out_of_memory = true;
        return;
    }
    b->events[b->count++] = (write_event){element, b->ordinal};
}

/* The node at hand shares memory with this input, and perhaps writes into it. Numbers have no memory. */
static void touch(void *context, fb_node input) {
    builder *b = context;
    if (b->is_number[input.id]) return;
    unite(b->alias, b->node, input.id);
    if (b->is_written) add_write(b, input.id);
}

static void write_module(builder *b, fb_module module) {
    const fb_graph *graph = b->alias->graph;
    const fb_module_row *row = fb_module_at(graph, module);
    const fb_value maps[] = {row->parameters, row->buffers};
    for (int i = 0; i < 2; i++) {
        const fb_value_row *map = fb_value_at(graph, maps[i]);
        for (uint32_t k = 1; k < map->count; k += 2) {
            fb_tensor tensor = fb_value_tensor(graph, map->items[k]);
            if (tensor.id) add_write(b, element_of_tensor(b->alias, tensor));
        }
    }
}

/* Everything that is read or owned under one name is one class. */
static void unite_attribute(builder *b, fb_module module, fb_symbol attribute, uint32_t element) {
    uint64_t key = (uint64_t)module.id << 32 | attribute.id;
    uint32_t first = fb_map_get(&b->attributes, key);
    if (first) unite(b->alias, element, first);
    else if (!fb_map_put(&b->attributes, key, element)) b->out_of_memory = true;
}

/* Unites a read with its attribute, and the read of a nested program with the world, which its calls may change. */
static void add_read(builder *b, const fb_node_row *row) {
    if (!row->module.id) return;
    if (row->attribute.id) unite_attribute(b, row->module, row->attribute, b->node);
    else unite(b->alias, b->node, world(b->alias));
}

static bool is_number(const builder *b, fb_node node) {
    const fb_graph *graph = b->alias->graph;
    fb_result_kind hood = fb_result_kind_of(graph, node);
    if (hood != FB_A_NUMBER_IF_INPUTS_ARE) return hood == FB_A_NUMBER;
    for (uint32_t edge = fb_input_first(graph, node); edge; edge = fb_input_next(graph, edge)) {
        if (!b->is_number[fb_edge_input(graph, edge).id]) return false;
    }
    return true;
}

static void touch_all_inputs(builder *b) {
    const fb_graph *graph = b->alias->graph;
    fb_node node = {b->node};
    for (uint32_t edge = fb_input_first(graph, node); edge; edge = fb_input_next(graph, edge)) {
        touch(b, fb_edge_input(graph, edge));
    }
}

static void touch_first_argument(builder *b) {
    fb_value first = fb_first_argument(b->alias->graph, (fb_node){b->node});
    if (first.id) fb_value_visit_nodes(b->alias->graph, first, touch, b);
    else touch_all_inputs(b);
}

static bool reads_numbers_only(const builder *b) {
    const fb_graph *graph = b->alias->graph;
    for (uint32_t edge = fb_input_first(graph, (fb_node){b->node}); edge; edge = fb_input_next(graph, edge)) {
        if (!b->is_number[fb_edge_input(graph, edge).id]) return false;
    }
    return true;
}

/* Nothing but a mode can be written by a call that is given no tensor. What it returns may be what switches back. */
static void switch_mode(builder *b) {
    if (!b->is_number[b->node]) unite(b->alias, b->node, mode(b->alias));
    add_write(b, mode(b->alias));
}

/* Runs nested programs that write nothing, and does nothing else with what it is given. */
static bool only_reads(const builder *b) {
    const fb_graph *graph = b->alias->graph;
    fb_node node = {b->node};
    if (!(fb_op_facts_of(fb_node_op(graph, node))->flags & FB_FACT_RUNS_PROGRAMS)) return false;
    bool is_quiet = true, has_program = false;
    for (uint32_t edge = fb_input_first(graph, node); edge; edge = fb_input_next(graph, edge)) {
        fb_node input = fb_edge_input(graph, edge);
        const fb_node_row *row = fb_node_at(graph, input);
        bool is_program = row->opcode == FB_GET_ATTR && row->module.id && !row->attribute.id;
        has_program |= is_program;
        is_quiet &= is_program ? b->is_quiet[row->module.id] : !fb_op_is(graph, input, FB_OP_GETATTR); /* of a program */
    }
    return is_quiet && has_program;
}

static bool is_switch(fb_op op) {
    return op == FB_OP_SET_MODE || op == FB_OP_ENTER_AUTOCAST || op == FB_OP_EXIT_AUTOCAST ||
           fb_op_facts_of(op)->flags & FB_FACT_VMAP_LEVEL;
}

static void add_call(builder *b, const fb_node_row *row) {
    const fb_graph *graph = b->alias->graph;
    fb_node node = {b->node};
    fb_effects effects = fb_op_effects(graph, node);
    if (memcmp(&effects, &(fb_effects){0}, sizeof effects) == 0) return; /* as most calls have none */
    b->is_written = effects.mutates_input && !only_reads(b);
    if (effects.is_unknown) touch_all_inputs(b);
    else if (effects.may_alias_input || effects.mutates_input) touch_first_argument(b);
    b->is_written = false;
    if (effects.may_alias_all) touch_all_inputs(b);
    if (row->opcode == FB_CALL_MODULE && row->module.id && effects.mutates_module) write_module(b, row->module);
    if (row->opcode == FB_CALL_MODULE && effects.is_unknown) add_write(b, world(b->alias));
    if ((effects.has_effect && is_switch(fb_node_op(graph, node))) || (effects.is_unknown && reads_numbers_only(b)))
        switch_mode(b);
}

static void add_node(builder *b, fb_node node) {
    const fb_node_row *row = fb_node_at(b->alias->graph, node);
    b->node = node.id;
    b->ordinal = row->ordinal;
    if (row->opcode == FB_GET_ATTR) add_read(b, row);
    if (b->has_values_only) return;
    if (row->opcode < FB_CALL_MODULE || row->opcode > FB_CALL_METHOD) return;
    b->is_number[node.id] = is_number(b, node);
    add_call(b, row);
}

/* ---- tensors --------------------------------------------------------------------------------------------------------- */

/* Is one tensor all that a recipe is made of? `found` is that, or none so far. */
static bool is_made_of_one(const fb_graph *graph, fb_value recipe, fb_tensor *found) {
    if (recipe.id & FB_VALUE_IS_TENSOR) {
        fb_tensor tensor = fb_value_tensor(graph, recipe);
        if (!found->id) *found = tensor;
        return found->id == tensor.id;
    }
    const fb_value_row *row = fb_value_at(graph, recipe);
    const fb_value_row *parts = row->kind == FB_EXPRESSION ? fb_value_at(graph, row->items[0]) : NULL;
    bool is_one = parts && parts->count;
    for (uint32_t i = 0; is_one && i < parts->count; i++) is_one = is_made_of_one(graph, parts->items[i], found);
    return is_one;
}

/* A tensor that is made of one other may be a view of that, in one part or several, and so on; what is made of several is in
 * memory of its own. It ends where the two are united, by whom the source has been looked at. */
static void touch_sources(builder *b, fb_tensor tensor) {
    fb_alias *alias = b->alias;
    fb_tensor source = {0};
    for (fb_value recipe; (recipe = fb_tensor_at(alias->graph, tensor)->recipe).id; tensor = source, source.id = 0) {
        if (!is_made_of_one(alias->graph, recipe, &source)) return;
        uint32_t own = element_of_tensor(alias, tensor), other = element_of_tensor(alias, source);
        if (compress(alias, own) == compress(alias, other)) return;
        unite(alias, own, other);
    }
}

static bool may_write(const fb_graph *graph, fb_node node) {
    fb_effects effects = fb_op_effects(graph, node);
    return effects.mutates_input || effects.mutates_module;
}

/* Nested programs are only read here: what they own, call or read is of the world, and who runs one counts as writing that, and
 * all that it is given; but for those in which nothing is written. */
static void add_nested_programs(builder *b) {
    const fb_graph *graph = b->alias->graph;
    for (uint32_t p = FB_MAIN_PROGRAM.id + 1; p < fb_program_limit(graph); p++) {
        uint32_t owner = fb_program_at(graph, (fb_program){p})->owner.id;
        b->is_nested[owner] = b->is_quiet[owner] = true;
        for (fb_node n = fb_first_node(graph, (fb_program){p}); n.id; n = fb_next_node(graph, n)) {
            const fb_node_row *row = fb_node_at(graph, n);
            b->is_quiet[owner] &= !may_write(graph, n);
            if (row->opcode == FB_CALL_MODULE) b->is_nested[row->module.id] = true;
            if (row->opcode != FB_GET_ATTR) continue;
            b->node = n.id;
            add_read(b, row);
            unite(b->alias, n.id, world(b->alias));
        }
    }
}

/* By ids, which takes less time than to follow the list. */
static fb_tensor next_carried(const fb_graph *graph, fb_tensor tensor) {
    uint32_t limit = fb_tensor_limit(graph);
    do tensor.id++;
    while (tensor.id < limit && (fb_tensor_at(graph, tensor)->is_erased || !fb_tensor_is_carried(graph, tensor)));
    return tensor.id < limit ? tensor : (fb_tensor){0};
}

/* They have no value that could be relied on, as if they were written afterwards; which share memory is not known. */
static void write_carried_tensors(builder *b) {
    const fb_graph *graph = b->alias->graph;
    b->ordinal = AFTERWARDS;
    for (fb_tensor t = {0}; (t = next_carried(graph, t)).id;) {
        add_write(b, element_of_tensor(b->alias, t));
        unite(b->alias, element_of_tensor(b->alias, t), world(b->alias));
    }
}

static void add_owner(builder *b, fb_module module, bool is_out_of_sight, bool is_read) {
    const fb_graph *graph = b->alias->graph;
    const fb_value maps[] = {fb_module_at(graph, module)->parameters, fb_module_at(graph, module)->buffers};
    for (int i = 0; i < 2; i++) {
        const fb_value_row *map = fb_value_at(graph, maps[i]);
        for (uint32_t k = 1; k < map->count; k += 2) {
            fb_tensor tensor = fb_value_tensor(graph, map->items[k]);
            if (!tensor.id) continue;
            uint32_t element = element_of_tensor(b->alias, tensor);
            if (is_out_of_sight) unite(b->alias, element, world(b->alias));
            if (is_read) unite_attribute(b, module, fb_value_at(graph, map->items[k - 1])->symbol, element);
            touch_sources(b, tensor);
        }
    }
}

/* After all nodes: where nothing is written, only those count that are read. */
static void add_tensors(builder *b, const fb_usage *usage) {
    fb_alias *alias = b->alias;
    const fb_graph *graph = alias->graph;
    write_carried_tensors(b);
    for (fb_tensor t = fb_first_tensor(graph); t.id && b->count; t = fb_tensor_at(graph, t)->next) touch_sources(b, t);
    for (fb_module m = {1}; m.id < fb_module_limit(graph); m.id++) {
        bool is_out_of_sight = b->is_nested[m.id] || fb_module_is_inside_call(usage, m), is_read = fb_module_is_read(usage, m);
        if ((is_out_of_sight || is_read) && !fb_module_at(graph, m)->is_erased) add_owner(b, m, is_out_of_sight, is_read);
    }
}

/* ---- all together ---------------------------------------------------------------------------------------------------- */

/* Sorts the writes by class. They were found in the order of ordinals, and stay so within a class. */
static bool sort_writes(builder *b) {
    fb_alias *alias = b->alias;
    uint32_t elements = element_count(alias);
    for (uint32_t e = 0; e < elements; e++) alias->parent[e] = compress(alias, e);
    if (!b->count) return true;
    alias->write_start = calloc((size_t)elements + 2, sizeof *alias->write_start);
    alias->writes = calloc(b->count + 1, sizeof *alias->writes);
    if (!alias->write_start || !alias->writes) return false;
    for (size_t i = 0; i < b->count; i++) alias->write_start[root_of(alias, b->events[i].element) + 2]++;
    for (uint32_t e = 1; e < elements + 2; e++) alias->write_start[e] += alias->write_start[e - 1];
    for (size_t i = 0; i < b->count; i++) {
        uint32_t root = root_of(alias, b->events[i].element);
        alias->writes[alias->write_start[root + 1]++] = b->events[i].ordinal;
    }
    return true;
}

static bool build(builder *b, const fb_usage *usage, fb_work *work) {
    const fb_graph *graph = b->alias->graph;
    add_nested_programs(b);
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(graph, n)) {
        if (!fb_work_goes_on(work, 4)) return false;
        add_node(b, n);
    }
    add_tensors(b, usage);
    return !b->out_of_memory && sort_writes(b);
}

/* Certainly: a graph without nested programs in which no call writes, does anything unknown or switches a mode. */
static bool writes_nothing(const fb_graph *graph, fb_work *work) {
    bool is_quiet = fb_program_limit(graph) == FB_MAIN_PROGRAM.id + 1 && !next_carried(graph, (fb_tensor){0}).id;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && is_quiet; n = fb_next_node(graph, n)) {
        is_quiet = fb_work_goes_on(work, 4);
        if (fb_surely_writes_nothing(graph, n)) continue;
        fb_effects effects = fb_op_effects(graph, n);
        is_quiet = is_quiet && !effects.is_unknown && !effects.mutates_input && !effects.mutates_module &&
                   !(effects.has_effect && is_switch(fb_node_op(graph, n)));
    }
    return is_quiet;
}

static fb_alias *new_alias(const fb_graph *graph) {
    fb_alias *alias = calloc(1, sizeof *alias);
    if (!alias) return NULL;
    alias->graph = graph;
    alias->nodes = fb_node_limit(graph) + 1;
    alias->tensors = fb_tensor_limit(graph) + 1;
    return alias;
}

fb_alias *fb_alias_new_for_writes(const fb_graph *graph, const fb_usage *usage, fb_work *work) {
    fb_alias *alias = new_alias(graph);
    if (!alias || writes_nothing(graph, work) || fb_alias_complete(alias, usage, work)) return alias;
    fb_alias_free(alias);
    return NULL;
}

fb_alias *fb_alias_new(const fb_graph *graph, const fb_usage *usage, fb_work *work) {
    fb_alias *alias = new_alias(graph);
    if (!alias || fb_alias_complete(alias, usage, work)) return alias;
    fb_alias_free(alias);
    return NULL;
}

bool fb_alias_complete(fb_alias *alias, const fb_usage *usage, fb_work *work) {
    if (alias->parent) return true;
    const fb_graph *graph = alias->graph;
    uint32_t elements = element_count(alias);
    alias->parent = malloc((size_t)elements * sizeof *alias->parent);
    builder b = {
        .alias = alias,
        .is_number = calloc(alias->nodes, sizeof *b.is_number),
        .is_nested = calloc((size_t)fb_module_limit(graph) + 1, sizeof *b.is_nested),
        .is_quiet = calloc((size_t)fb_module_limit(graph) + 1, sizeof *b.is_quiet),
        .has_values_only = fb_graph_is_onnx(graph),
    };
    bool ok = alias->parent && b.is_number && b.is_nested && b.is_quiet;
    for (uint32_t e = 0; ok && e < elements; e++) alias->parent[e] = e;
    ok = ok && build(&b, usage, work);
    fb_map_free(&b.attributes);
    free(b.events);
    free(b.is_number);
    free(b.is_nested);
    free(b.is_quiet);
    if (ok) return true;
    free(alias->parent);
    free(alias->write_start);
    free(alias->writes);
    alias->parent = alias->write_start = alias->writes = NULL;
    return false;
}

/* ---- queries --------------------------------------------------------------------------------------------------------- */

/* How many writes of the class have an ordinal below `limit`. */
static uint32_t writes_before(const fb_alias *alias, uint32_t root, uint32_t limit) {
    uint32_t low = alias->write_start[root], high = alias->write_start[root + 1];
    uint32_t start = low;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (alias->writes[middle] < limit) low = middle + 1;
        else high = middle;
    }
    return low - start;
}

static bool is_written_between(const fb_alias *alias, uint32_t element, uint32_t after, uint32_t before) {
    if (!alias->write_start || after >= before) return false;
    uint32_t root = root_of(alias, element);
    return writes_before(alias, root, before) > writes_before(alias, root, after + 1);
}

bool fb_mutated_between(const fb_alias *alias, fb_node value, uint32_t after, uint32_t before) {
    return is_written_between(alias, value.id, after, before);
}

bool fb_mode_switched_between(const fb_alias *alias, uint32_t after, uint32_t before) {
    return is_written_between(alias, mode(alias), after, before);
}

bool fb_any_is_mutated(const fb_alias *alias) {
    return alias->write_start;
}

static bool class_is_written(const fb_alias *alias, uint32_t element) {
    if (!alias->write_start) return false;
    uint32_t root = root_of(alias, element);
    return alias->write_start[root + 1] > alias->write_start[root];
}

uint32_t fb_memory_of(const fb_alias *alias, fb_node value) {
    return root_of(alias, value.id);
}

uint32_t fb_memory_limit(const fb_alias *alias) {
    return element_count(alias);
}

const uint32_t *fb_writes_of(const fb_alias *alias, fb_node value, uint32_t *count) {
    *count = 0;
    if (!alias->write_start) return NULL;
    uint32_t root = root_of(alias, value.id);
    *count = alias->write_start[root + 1] - alias->write_start[root];
    return *count ? alias->writes + alias->write_start[root] : NULL;
}

uint32_t fb_last_write(const fb_alias *alias, fb_node value) {
    uint32_t count;
    const uint32_t *writes = fb_writes_of(alias, value, &count);
    return count ? writes[count - 1] + 1 : 0;
}

bool fb_mutated_after(const fb_alias *analysis, fb_node value, uint32_t after) {
    return fb_mutated_between(analysis, value, after, UINT32_MAX);
}

bool fb_is_mutated(const fb_alias *alias, fb_node value) {
    return class_is_written(alias, value.id);
}

bool fb_tensor_is_mutated(const fb_alias *alias, fb_tensor tensor) {
    return class_is_written(alias, element_of_tensor(alias, tensor));
}

bool fb_tensor_is_written(const fb_alias *alias, fb_tensor tensor) {
    return alias->write_start && writes_before(alias, root_of(alias, element_of_tensor(alias, tensor)), AFTERWARDS);
}
