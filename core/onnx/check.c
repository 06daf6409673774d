#include "core/onnx/check.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/map.h"
#include "core/base/sort.h"
#include "core/operators/onnx.h"

#define FIRST_IR 3
#define LAST_IR 14
#define FIRST_OPSET 7
#define LAST_OPSET 28
#define NAMED_MISSING 8 /* files that a message names */

static bool no_memory(onnx_checking *c) {
    if (!c->status) c->status = fb_fail_memory(c->error);
    return false;
}

static bool goes_on(onnx_checking *c) {
    if (!c->status && !fb_work_goes_on(c->work, 8)) c->status = fb_work_status(c->work, c->error);
    return !c->status;
}

/* ---- names in scopes ---------------------------------------------------------------------------------------------------- */

/* Values that are defined where a node is, those of graphs around it included. The last one of a name hides the others. */
typedef struct defined {
    onnx_bytes name;
    uint64_t hash;
    uint32_t scope, next; /* index + 1 of the one before it in the bucket */
    bool is_input;        /* an initializer may be its default */
    bool has_default;
} defined;

typedef struct scopes {
    defined *rows;
    uint32_t *buckets;
    uint32_t count, capacity; /* of rows; there are as many buckets */
    uint32_t depth;
} scopes;

static bool grow(scopes *s) {
    uint32_t capacity = s->capacity ? 2 * s->capacity : 256;
    defined *rows = realloc(s->rows, capacity * sizeof *rows);
    if (rows) s->rows = rows;
    uint32_t *buckets = rows ? calloc(capacity, sizeof *buckets) : NULL;
    if (!buckets) return false;
    free(s->buckets);
    s->buckets = buckets;
    s->capacity = capacity;
    for (uint32_t i = 0; i < s->count; i++) { /* in their order, so that the last one is found first */
        uint32_t *bucket = &buckets[rows[i].hash & (capacity - 1)];
        rows[i].next = *bucket;
        *bucket = i + 1;
    }
    return true;
}

static uint64_t hash_of(const scopes *s, onnx_bytes name) {
    return fb_hash(name.text, name.size, (uint64_t)(uintptr_t)s);
}

static defined *find(const scopes *s, onnx_bytes name) {
    uint64_t hash = hash_of(s, name);
    for (uint32_t at = s->capacity ? s->buckets[hash & (s->capacity - 1)] : 0; at; at = s->rows[at - 1].next)
        if (s->rows[at - 1].hash == hash && onnx_same(s->rows[at - 1].name, name)) return &s->rows[at - 1];
    return NULL;
}

/* The same in the innermost scope. */
static defined *find_here(const scopes *s, onnx_bytes name) {
    defined *found = find(s, name);
    return found && found->scope == s->depth ? found : NULL;
}

static defined *define(scopes *s, onnx_bytes name) {
    if (s->count == s->capacity && !grow(s)) return NULL;
    uint64_t hash = hash_of(s, name);
    uint32_t *bucket = &s->buckets[hash & (s->capacity - 1)];
    s->rows[s->count] = (defined){.name = name, .hash = hash, .scope = s->depth, .next = *bucket};
    *bucket = ++s->count;
    return &s->rows[s->count - 1];
}

static void leave(scopes *s, uint32_t count) {
    while (s->count > count) {
        const defined *row = &s->rows[--s->count];
        s->buckets[row->hash & (s->capacity - 1)] = row->next;
    }
    s->depth--;
}

static void free_scopes(scopes *s) {
    free(s->rows);
    free(s->buckets);
}

/* ---- functions and opsets ----------------------------------------------------------------------------------------------- */

/* The default domain has two names. */
static onnx_bytes domain_of(onnx_bytes domain) {
    return onnx_is(domain, "ai.onnx") ? (onnx_bytes){0} : domain;
}

typedef struct imports {
    const onnx_opset *items;
    size_t count;
} imports;

typedef struct checking {
    onnx_checking c;
    scopes scopes;
    imports imports;             /* of the model, or of the function that is being checked */
    const onnx_function *inside; /* that function, or NULL */
    fb_map functions;            /* by the hash of what they are called, index + 1 */
    uint64_t (*calls)[2];        /* of functions by functions: from, to; by the caller */
    size_t call_count, call_capacity;
} checking;

static uint64_t call_hash(const checking *k, onnx_bytes domain, onnx_bytes name, onnx_bytes overload) {
    uint64_t seed = fb_hash(domain.text, domain.size, (uint64_t)(uintptr_t)k);
    return fb_hash(overload.text, overload.size, fb_hash(name.text, name.size, seed));
}

static const onnx_function *function_of(const checking *k, onnx_bytes domain, onnx_bytes name, onnx_bytes overload,
                                        size_t *at) {
    const onnx_model *model = k->c.file->model;
    uint32_t cursor = 0, found;
    uint64_t hash = call_hash(k, domain_of(domain), name, overload);
    while ((found = fb_map_next(&k->functions, hash, &cursor)) != 0) {
        const onnx_function *one = &model->functions.items[found - 1];
        *at = found - 1;
        if (onnx_same(domain_of(one->domain), domain_of(domain)) && onnx_same(one->name, name) &&
            onnx_same(one->overload, overload))
            return one;
    }
    return NULL;
}

static bool is_imported(const imports *all, onnx_bytes domain) {
    for (size_t i = 0; i < all->count; i++)
        if (onnx_same(domain_of(all->items[i].domain), domain_of(domain))) return true;
    return false;
}

static bool check_imports(checking *k, const imports *all, onnx_message kind, const void *message, int field) {
    char shown[96];
    if (!all->count) return onnx_bad(&k->c, kind, message, field, "it imports no operators, so their versions are unknown");
    if (all->count > 100) return onnx_unsupported(&k->c, kind, message, field, "it imports more than 100 domains");
    for (size_t i = 0; i < all->count; i++) {
        const onnx_opset *one = &all->items[i];
        onnx_bytes domain = domain_of(one->domain);
        bool is_default = !domain.size;
        if (one->version < 1)
            return onnx_bad(&k->c, ONNX_IS_opset, one, ONNX_opset_version, "%lld is not a version of operators",
                            (long long)one->version);
        if (is_default && (one->version < FIRST_OPSET || one->version > LAST_OPSET))
            return onnx_unsupported(&k->c, ONNX_IS_opset, one, ONNX_opset_version,
                                    "opset %lld is not read, only %d to %d. Convert the model with onnx.version_converter",
                                    (long long)one->version, FIRST_OPSET, LAST_OPSET);
        for (size_t j = 0; j < i; j++)
            if (onnx_same(domain_of(all->items[j].domain), domain) && all->items[j].version != one->version)
                return onnx_unsupported(&k->c, ONNX_IS_opset, one, ONNX_opset_domain,
                                        "the domain \"%s\" is imported as version %lld and as version %lld",
                                        onnx_shown(domain, shown), (long long)all->items[j].version, (long long)one->version);
    }
    return true;
}

/* ---- types -------------------------------------------------------------------------------------------------------------- */

static bool check_dtype(checking *k, onnx_message kind, const void *message, int field, int32_t dtype) {
    return !dtype || onnx_is_dtype(dtype) || onnx_bad(&k->c, kind, message, field, "%d is not the number of a dtype", dtype);
}

/* Types are in one another 32 times at most. */
static bool check_type(checking *k, const onnx_type *type) {
    while (type) {
        const onnx_tensor_type *tensor = type->tensor_type ? type->tensor_type : type->sparse_tensor_type;
        const onnx_sequence_type *sequence = type->sequence_type ? type->sequence_type : type->optional_type;
        if (tensor && !check_dtype(k, ONNX_IS_tensor_type, tensor, ONNX_tensor_type_elem_type, tensor->elem_type)) return false;
        if (type->map_type &&
            !check_dtype(k, ONNX_IS_map_type, type->map_type, ONNX_map_type_key_type, type->map_type->key_type))
            return false;
        type = type->map_type ? type->map_type->value_type : sequence ? sequence->elem_type : NULL;
    }
    return true;
}

/* ---- attributes --------------------------------------------------------------------------------------------------------- */

static bool check_graph(checking *k, const onnx_graph *graph);

/* By AttributeProto.AttributeType, the field that has the value. */
static const int value_fields[] = {
    0,
    ONNX_attribute_f,
    ONNX_attribute_i,
    ONNX_attribute_s,
    ONNX_attribute_t,
    ONNX_attribute_g,
    ONNX_attribute_floats,
    ONNX_attribute_ints,
    ONNX_attribute_strings,
    ONNX_attribute_tensors,
    ONNX_attribute_graphs,
    ONNX_attribute_sparse_tensor,
    ONNX_attribute_sparse_tensors,
    ONNX_attribute_tp,
    ONNX_attribute_type_protos,
};

static bool is_parameter(const onnx_function *function, onnx_bytes name) {
    for (size_t i = 0; i < function->attribute.count; i++)
        if (onnx_same(function->attribute.items[i], name)) return true;
    for (size_t i = 0; i < function->attribute_proto.count; i++)
        if (onnx_same(function->attribute_proto.items[i].name, name)) return true;
    return false;
}

/* The fields that have a value. A list without items, which a writer may pack, has none. */
static uint32_t given_fields(const onnx_attribute *a) {
    uint32_t has = a->head.has;
    if (!a->floats.count) has &= ~(1U << ONNX_attribute_floats);
    if (!a->ints.count) has &= ~(1U << ONNX_attribute_ints);
    return has;
}

/* A value that the file leaves out is 0, or an empty list; of a message it must be there. */
static bool check_value(checking *k, const onnx_attribute *a) {
    uint32_t given = 0, type = (uint32_t)a->type;
    if (a->type <= 0) return onnx_bad(&k->c, ONNX_IS_attribute, a, ONNX_attribute_type, "the attribute has no type");
    if (type >= sizeof value_fields / sizeof *value_fields)
        return onnx_unsupported(&k->c, ONNX_IS_attribute, a, ONNX_attribute_type, "%u is not a type of attributes", type);
    for (size_t i = 1; i < sizeof value_fields / sizeof *value_fields; i++)
        if (i != type) given |= given_fields(a) & 1U << value_fields[i];
    if (a->ref_attr_name.size) {
        if (!k->inside || !is_parameter(k->inside, a->ref_attr_name))
            return onnx_bad(&k->c, ONNX_IS_attribute, a, ONNX_attribute_ref_attr_name,
                            k->inside ? "the function has no attribute of this name" : "only nodes of functions have it");
        given |= given_fields(a) & 1U << value_fields[type];
        return !given ||
               onnx_bad(&k->c, ONNX_IS_attribute, a, 0, "the attribute has a value, and also refers to one of the function");
    }
    if (given) return onnx_bad(&k->c, ONNX_IS_attribute, a, 0, "the attribute has a value of another type than its own");
    bool is_message = value_fields[type] == ONNX_attribute_t || value_fields[type] == ONNX_attribute_g ||
                      value_fields[type] == ONNX_attribute_sparse_tensor || value_fields[type] == ONNX_attribute_tp;
    return !is_message || onnx_has(&a->head, value_fields[type]) ||
           onnx_bad(&k->c, ONNX_IS_attribute, a, value_fields[type], "the attribute has no value");
}

static bool check_attribute(checking *k, const onnx_attribute *a) {
    onnx_stored stored;
    bool ok = goes_on(&k->c) && check_value(k, a);
    if (ok && !a->name.size) ok = onnx_bad(&k->c, ONNX_IS_attribute, a, ONNX_attribute_name, "an attribute has no name");
    if (ok && a->t) ok = onnx_stored_in(&k->c, a->t, &stored);
    if (ok && a->sparse_tensor) ok = onnx_check_sparse(&k->c, a->sparse_tensor);
    if (ok && a->tp) ok = check_type(k, a->tp);
    if (ok && a->g) ok = check_graph(k, a->g);
    for (size_t i = 0; i < a->tensors.count && ok; i++) ok = onnx_stored_in(&k->c, &a->tensors.items[i], &stored);
    for (size_t i = 0; i < a->sparse_tensors.count && ok; i++) ok = onnx_check_sparse(&k->c, &a->sparse_tensors.items[i]);
    for (size_t i = 0; i < a->type_protos.count && ok; i++) ok = check_type(k, &a->type_protos.items[i]);
    for (size_t i = 0; i < a->graphs.count && ok; i++) ok = check_graph(k, &a->graphs.items[i]);
    return ok;
}

static int by_name(const void *a, const void *b) {
    const onnx_bytes *x = a, *y = b;
    size_t least = x->size < y->size ? x->size : y->size;
    int order = least ? memcmp(x->text, y->text, least) : 0;
    return order ? order : x->size < y->size ? -1 : x->size > y->size;
}

/* Most nodes have a few; one of very many is sorted. */
static bool check_distinct(checking *k, const onnx_node *node) {
    size_t count = node->attribute.count;
    char shown[96];
    if (count < 2) return true;
    onnx_bytes few[32], *names = count <= 32 ? few : malloc(count * sizeof *names);
    if (!names) return no_memory(&k->c);
    for (size_t i = 0; i < count; i++) names[i] = node->attribute.items[i].name;
    fb_sort(names, count, sizeof *names, by_name);
    bool ok = true;
    for (size_t i = 1; i < count && ok; i++)
        ok = !onnx_same(names[i - 1], names[i]) || onnx_bad(&k->c, ONNX_IS_node, node, ONNX_node_attribute,
                                                            "the attribute \"%s\" is there twice", onnx_shown(names[i], shown));
    if (names != few) free(names);
    return ok;
}

/* ---- nodes and graphs --------------------------------------------------------------------------------------------------- */

static bool define_once(checking *k, onnx_message kind, const void *message, int field, onnx_bytes name) {
    char shown[96];
    if (!name.size) return onnx_bad(&k->c, kind, message, field, "a value has no name");
    if (find_here(&k->scopes, name))
        return onnx_bad(&k->c, kind, message, field, "the value \"%s\" is defined twice", onnx_shown(name, shown));
    return define(&k->scopes, name) || no_memory(&k->c);
}

/* The calls of a function by another one are kept, to find those that call themselves. */
static bool keep_call(checking *k, const onnx_node *node) {
    size_t to;
    if (!function_of(k, node->domain, node->op_type, node->overload, &to) || !k->inside) return true;
    if (!FB_GROW(k->calls, k->call_count, k->call_capacity)) return no_memory(&k->c);
    k->calls[k->call_count][0] = (uint64_t)(k->inside - k->c.file->model->functions.items);
    k->calls[k->call_count++][1] = to;
    return true;
}

static bool gives(const onnx_node *node, onnx_bytes value) {
    for (size_t i = 0; i < node->output.count; i++)
        if (onnx_same(node->output.items[i], value)) return true;
    return false;
}

static bool report_unknown_value(checking *k, const onnx_node *nodes, size_t count, const onnx_node *node, onnx_bytes value) {
    char shown[96];
    bool comes_later = false;
    for (size_t i = 0; i < count && !comes_later; i++) comes_later = gives(&nodes[i], value);
    return onnx_bad(&k->c, ONNX_IS_node, node, ONNX_node_input, "nothing before this node gives the value \"%s\"%s",
                    onnx_shown(value, shown),
                    comes_later ? ". Nodes must be in topological order, into which "
                                  "onnxruntime.transformers.onnx_model.OnnxModel(model).topological_sort() brings them"
                                : ", and none behind it");
}

static bool check_node(checking *k, const onnx_node *nodes, size_t count, const onnx_node *node) {
    char shown[96];
    if (!goes_on(&k->c)) return false;
    if (!node->op_type.size) return onnx_bad(&k->c, ONNX_IS_node, node, ONNX_node_op_type, "the node has no operator");
    if (!is_imported(&k->imports, node->domain))
        return onnx_bad(&k->c, ONNX_IS_node, node, ONNX_node_domain,
                        "the domain \"%s\" is not imported, so its version is unknown", onnx_shown(node->domain, shown));
    for (size_t i = 0; i < node->input.count; i++)
        if (node->input.items[i].size && !find(&k->scopes, node->input.items[i]))
            return report_unknown_value(k, nodes, count, node, node->input.items[i]);
    bool ok = check_distinct(k, node) && keep_call(k, node);
    for (size_t i = 0; i < node->attribute.count && ok; i++) ok = check_attribute(k, &node->attribute.items[i]);
    for (size_t i = 0; i < node->output.count && ok; i++)
        if (node->output.items[i].size) ok = define_once(k, ONNX_IS_node, node, ONNX_node_output, node->output.items[i]);
    return ok;
}

/* An initializer of an input is the input's default. In IR 3 there are no others. */
static bool check_initializer(checking *k, onnx_message kind, const void *message, onnx_bytes name) {
    char shown[96];
    defined *input = find_here(&k->scopes, name);
    if (input && input->is_input && !input->has_default) return input->has_default = true;
    if (!input && k->scopes.depth == 1 && k->c.file->model->ir_version < 4)
        return onnx_bad(&k->c, kind, message, 0, "the initializer \"%s\" is not an input, which it must be before IR 4",
                        onnx_shown(name, shown));
    return define_once(k, kind, message, 0, name);
}

static bool check_inside(checking *k, const onnx_graph *graph) {
    onnx_stored stored;
    char shown[96];
    for (size_t i = 0; i < graph->input.count; i++) {
        const onnx_value_info *input = &graph->input.items[i];
        if (!define_once(k, ONNX_IS_value_info, input, ONNX_value_info_name, input->name) || !check_type(k, input->type))
            return false;
        k->scopes.rows[k->scopes.count - 1].is_input = true;
    }
    for (size_t i = 0; i < graph->initializer.count; i++) {
        const onnx_tensor *tensor = &graph->initializer.items[i];
        if (!goes_on(&k->c) || !onnx_stored_in(&k->c, tensor, &stored)) return false;
        if (!check_initializer(k, ONNX_IS_tensor, tensor, tensor->name)) return false;
    }
    for (size_t i = 0; i < graph->sparse_initializer.count; i++) {
        const onnx_sparse *sparse = &graph->sparse_initializer.items[i];
        if (!onnx_check_sparse(&k->c, sparse) || !check_initializer(k, ONNX_IS_sparse, sparse, sparse->values->name))
            return false;
    }
    for (size_t i = 0; i < graph->value_info.count; i++)
        if (!check_type(k, graph->value_info.items[i].type)) return false;
    for (size_t i = 0; i < graph->node.count; i++)
        if (!check_node(k, graph->node.items, graph->node.count, &graph->node.items[i])) return false;
    for (size_t i = 0; i < graph->output.count; i++) {
        const onnx_value_info *output = &graph->output.items[i];
        if (!find(&k->scopes, output->name))
            return onnx_bad(&k->c, ONNX_IS_value_info, output, ONNX_value_info_name, "nothing gives the output \"%s\"",
                            onnx_shown(output->name, shown));
        if (!check_type(k, output->type)) return false;
    }
    return true;
}

static bool check_graph(checking *k, const onnx_graph *graph) {
    uint32_t before = k->scopes.count;
    k->scopes.depth++;
    bool ok = check_inside(k, graph);
    leave(&k->scopes, before);
    return ok;
}

/* ---- functions ---------------------------------------------------------------------------------------------------------- */

static bool check_function(checking *k, const onnx_function *function) {
    uint32_t before = k->scopes.count;
    char shown[96];
    bool ok = true;
    k->imports = (imports){function->opset_import.items, function->opset_import.count};
    k->inside = function;
    k->scopes.depth++;
    if (function->node.count) ok = check_imports(k, &k->imports, ONNX_IS_function, function, ONNX_function_opset_import);
    for (size_t i = 0; i < function->input.count && ok; i++)
        ok = define_once(k, ONNX_IS_function, function, ONNX_function_input, function->input.items[i]);
    for (size_t i = 0; i < function->value_info.count && ok; i++) ok = check_type(k, function->value_info.items[i].type);
    for (size_t i = 0; i < function->node.count && ok; i++)
        ok = check_node(k, function->node.items, function->node.count, &function->node.items[i]);
    for (size_t i = 0; i < function->output.count && ok; i++)
        ok = find(&k->scopes, function->output.items[i]) ||
             onnx_bad(&k->c, ONNX_IS_function, function, ONNX_function_output, "nothing gives the output \"%s\"",
                      onnx_shown(function->output.items[i], shown));
    k->inside = NULL;
    for (size_t i = 0; i < function->attribute_proto.count && ok; i++)
        ok = check_attribute(k, &function->attribute_proto.items[i]);
    leave(&k->scopes, before);
    return ok;
}

static bool add_functions(checking *k) {
    const onnx_model *model = k->c.file->model;
    char shown[96];
    size_t before;
    for (size_t i = 0; i < model->functions.count; i++) {
        const onnx_function *one = &model->functions.items[i];
        onnx_bytes domain = domain_of(one->domain);
        if (!one->name.size) return onnx_bad(&k->c, ONNX_IS_function, one, ONNX_function_name, "the function has no name");
        if (!domain.size && fb_onnx_version(one->name.text, one->name.size, LAST_OPSET))
            return onnx_unsupported(
                &k->c, ONNX_IS_function, one, ONNX_function_name,
                "the function \"%s\" is named as a standard operator, and libraries differ in which they call",
                onnx_shown(one->name, shown));
        if (function_of(k, domain, one->name, one->overload, &before))
            return onnx_bad(&k->c, ONNX_IS_function, one, ONNX_function_name, "the function \"%s\" is defined twice",
                            onnx_shown(one->name, shown));
        if (!fb_map_add(&k->functions, call_hash(k, domain, one->name, one->overload), (uint32_t)i + 1))
            return no_memory(&k->c);
    }
    return true;
}

/* Takes away, again and again, a function that is called by none that is left: those of a circle stay. */
static bool check_circles(checking *k) {
    const onnx_model *model = k->c.file->model;
    size_t count = model->functions.count, ready = 0, done = 0;
    char shown[96];
    size_t *callers = calloc(2 * count + 2, sizeof *callers), *queue = callers ? callers + count : NULL,
           *first = calloc(count + 2, sizeof *first);
    bool ok = callers && first;
    if (!ok) no_memory(&k->c);
    for (size_t i = 0; i < k->call_count && ok; i++) callers[k->calls[i][1]]++, first[k->calls[i][0] + 1]++;
    for (size_t i = 0; i < count && ok; i++) first[i + 1] += first[i]; /* calls are in the order of their callers */
    for (size_t i = 0; i < count && ok; i++)
        if (!callers[i]) queue[ready++] = i;
    for (; done < ready && ok; done++)
        for (size_t i = first[queue[done]]; i < first[queue[done] + 1]; i++)
            if (!--callers[k->calls[i][1]]) queue[ready++] = k->calls[i][1];
    for (size_t i = 0; i < count && ok; i++)
        if (callers[i])
            ok = onnx_bad(&k->c, ONNX_IS_function, &model->functions.items[i], 0,
                          "the function \"%s\" calls itself, or is called by one that does",
                          onnx_shown(model->functions.items[i].name, shown));
    free(callers);
    free(first);
    return ok;
}

/* ---- the model ---------------------------------------------------------------------------------------------------------- */

static bool check_missing(checking *k) {
    const onnx_file *file = k->c.file;
    fb_buffer names = {0};
    char shown[96];
    size_t missing = 0;
    for (uint32_t i = 0; i < file->location_count; i++) {
        if (file->locations[i]->is_there) continue;
        if (missing++ < NAMED_MISSING)
            fb_buffer_printf(&names, "%s%s", missing > 1 ? ", " : "", onnx_shown(file->locations[i]->spelled, shown));
    }
    if (missing && !(k->c.files && k->c.files->may_lack)) {
        const char *text = fb_buffer_text(&names);
        k->c.status = text ? fb_fail(k->c.error, FB_INVALID, "missing-files", "",
                                     "the model lacks files that have its weights: %s%s. Send them with it", text,
                                     missing > NAMED_MISSING ? ", …" : "")
                           : fb_fail_memory(k->c.error);
    }
    fb_buffer_free(&names);
    return !k->c.status;
}

static bool check_model(checking *k) {
    const onnx_model *model = k->c.file->model;
    onnx_checking *c = &k->c;
    imports all = {model->opset_import.items, model->opset_import.count};
    if (!onnx_has(&model->head, ONNX_model_ir_version))
        return onnx_bad(c, ONNX_IS_model, model, ONNX_model_ir_version,
                        "the version of the format is missing: this is not a model");
    if (model->ir_version < FIRST_IR || model->ir_version > LAST_IR)
        return onnx_unsupported(c, ONNX_IS_model, model, ONNX_model_ir_version, "IR %lld is not read, only %d to %d",
                                (long long)model->ir_version, FIRST_IR, LAST_IR);
    if (!model->graph) return onnx_bad(c, ONNX_IS_model, model, ONNX_model_graph, "the model has no graph");
    if (model->graph->head.first->next)
        return onnx_unsupported(c, ONNX_IS_model, model, ONNX_model_graph, "the model has a second graph");
    if (!check_imports(k, &all, ONNX_IS_model, model, ONNX_model_opset_import) || !add_functions(k)) return false;
    for (size_t i = 0; i < model->functions.count; i++)
        if (!check_function(k, &model->functions.items[i])) return false;
    k->imports = all;
    return check_circles(k) && check_graph(k, model->graph) && check_missing(k);
}

fb_status onnx_check(onnx_file *file, const onnx_files *files, fb_work *work, fb_error *error) {
    checking k = {.c = {.file = file, .files = files, .work = work, .error = error}};
    check_model(&k);
    free_scopes(&k.scopes);
    fb_map_free(&k.functions);
    free(k.calls);
    return k.c.status;
}
