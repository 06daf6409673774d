#include "tests/unit/generator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/composition.h"
#include "core/passes/passes.h"
#include "tests/unit/generator_internal.h"

uint64_t random_next(random_source *source) { /* splitmix64 */
    uint64_t z = source->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t random_below(random_source *source, size_t count) {
    return (size_t)(random_next(source) % count);
}

bool random_once_in(random_source *source, size_t count) {
    return random_below(source, count) == 0;
}

bool once_in(generator *g, size_t count) {
    return random_once_in(&g->random, count);
}

size_t below(generator *g, size_t count) {
    return random_below(&g->random, count);
}

const char *text(generator *g, const char *format, ...) {
    char line[1500];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    char *copy = size >= 0 && (size_t)size < sizeof line ? fb_arena_text(&g->arena, line, (size_t)size) : NULL;
    if (!copy) abort();
    return copy;
}

/* ---- names --------------------------------------------------------------------------------------------------------------- */

static bool is_taken(const generator *g, const char *name) {
    for (size_t i = 0; i < g->name_count; i++) {
        if (strcmp(g->names[i], name) == 0) return true;
    }
    return false;
}

static const char *unique(generator *g, const char *base) {
    const char *name = base;
    for (int number = 1; is_taken(g, name); number++) name = text(g, "%s_%d", base, number);
    if (g->name_count == sizeof g->names / sizeof *g->names) abort();
    return g->names[g->name_count++] = text(g, "%s", name);
}

/* Names that passes would like to make themselves, and others that are odd. */
const char *fresh_name(generator *g, const char *base) {
    static const char *const odd[] = {"getattr_1",  "getattr_2", "getitem", "add",      "ones",    "cat", "cat_1",
                                      "q_k_merged", "_1",        "add_01",  "mul",      "truediv", "len", "print",
                                      "q",          "_unnamed",  "größe",   "output_1", "fc_1",    "inf", "q_k_merged_1"};
    return unique(g, once_in(g, 6) ? PICK(g, odd) : base);
}

const char *fresh_path(generator *g, const char *base) {
    return unique(g, base);
}

const char *random_path(generator *g) {
    static const char *const paths[] = {"fc",        "q",       "k",          "encoder.layer.0.query", "encoder.layer.0.key",
                                        "a.b.c.d.e", "head.0",  "q-k-merged", "модуль.слой",           "layer one.fc",
                                        "weight",    "model.q", "_internal"};
    return fresh_path(g, PICK(g, paths));
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

static const char *separator(const fb_buffer *rows) {
    return rows->size ? ",\n" : "";
}

static const char *sizes_text(generator *g, int rank, const int64_t *sizes, bool is_symbolic) {
    fb_buffer list = {0};
    for (int i = 0; i < rank; i++) {
        if (i == 0 && is_symbolic) fb_buffer_printf(&list, "\"s%lld\"", (long long)sizes[i]); /* one symbol is one size */
        else fb_buffer_printf(&list, "%s%lld", i ? "," : "", (long long)sizes[i]);
    }
    const char *copy = text(g, "[%s]", list.size ? fb_buffer_text(&list) : "");
    fb_buffer_free(&list);
    return copy;
}

static void write_marks(generator *g, fb_buffer *out) {
    const fb_pass *pass = fb_pass_at(below(g, 5));
    fb_signature signature;
    if (!fb_pass_signature(pass->name, once_in(g, 3) ? 2 : pass->version, NULL, "{}", NULL, signature)) abort();
    fb_buffer_printf(out, ",\"transformations\":[\"%s\"]", signature);
}

/* Does a call read what a symbolic size is in, or follows from? A tracer records no number for its sizes then. */
static bool reads_symbolic(const generator *g, const char *args, const char *kwargs) {
    for (size_t i = 0; i < g->value_count; i++) {
        char reference[128];
        snprintf(reference, sizeof reference, "{\"$node\":\"%s\"}", g->values[i].name);
        if (g->values[i].is_symbolic && (strstr(args, reference) || strstr(kwargs, reference))) return true;
    }
    return false;
}

/* Shape and dtype are left out now and then, and sizes made symbolic, as tracers do. */
static void write_meta(generator *g, bool is_placeholder, bool has_no_shape, result *about) {
    fb_buffer *out = &g->nodes;
    fb_buffer_string(out, ",\"meta\":{\"k\":1");
    about->is_symbolic = has_no_shape;
    if (about->sort == SORT_TENSOR) {
        if (!once_in(g, 25) && !has_no_shape) {
            about->is_symbolic = about->rank > 0 && once_in(g, 15);
            fb_buffer_printf(out, ",\"shape\":%s", sizes_text(g, about->rank, about->sizes, about->is_symbolic));
        }
        if (!once_in(g, 25)) fb_buffer_printf(out, ",\"dtype\":\"%s\"", fb_dtype_name(about->dtype));
        if (is_placeholder) fb_buffer_printf(out, ",\"actual\":%s", sizes_text(g, about->rank, about->sizes, false));
    }
    if (once_in(g, 40)) write_marks(g, out);
    fb_buffer_char(out, '}');
}

result tensor_result(fb_dtype dtype, int rank, const int64_t *sizes) {
    result about = {.sort = SORT_TENSOR, .dtype = dtype, .rank = rank};
    memcpy(about.sizes, sizes, (size_t)rank * sizeof *sizes);
    return about;
}

result *add_node(generator *g, const char *base, const char *op, const char *target, const char *args, const char *kwargs,
                 result about) {
    if (g->value_count == MAX_VALUES) abort();
    about.name = fresh_name(g, base);
    bool is_placeholder = strcmp(op, "placeholder") == 0;
    fb_buffer_printf(&g->nodes, "%s{\"name\":\"%s\",\"op\":\"%s\",\"target\":\"%s\",\"args\":[%s],\"kwargs\":{%s}",
                     separator(&g->nodes), about.name, op, is_placeholder ? about.name : target, args, kwargs);
    write_meta(g, is_placeholder, reads_symbolic(g, args, kwargs), &about);
    fb_buffer_char(&g->nodes, '}');
    g->node_count++;
    g->values[g->value_count] = about;
    return &g->values[g->value_count++];
}

const char *node_ref(generator *g, const result *value) {
    return text(g, "{\"$node\":\"%s\"}", value->name);
}

result *add_call(generator *g, const char *path, const result *x, result about) {
    bool is_keyword = once_in(g, 8);
    const char *args = is_keyword ? "" : node_ref(g, x), *kwargs = is_keyword ? text(g, "\"input\":%s", node_ref(g, x)) : "";
    return add_node(g, "call", "call_module", path, args, kwargs, about);
}

void add_module(generator *g, const char *path, const char *type, const char *config, const char *parameters,
                const char *buffers, bool training, const char *more) {
    fb_buffer_printf(&g->modules,
                     "%s{\"path\":\"%s\",\"type\":\"%s\",\"config\":{%s},\"parameters\":{%s},\"buffers\":{%s},"
                     "\"training\":%s%s}",
                     separator(&g->modules), path, type, config, parameters, buffers, training ? "true" : "false", more);
}

static void write_tensor(generator *g, const char *name, fb_dtype dtype, int rank, const int64_t *sizes, const char *more) {
    fb_buffer_printf(&g->tensors, "%s{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":%s%s}", separator(&g->tensors), name,
                     fb_dtype_name(dtype), sizes_text(g, rank, sizes, false), more);
}

static bool is_computed(fb_dtype dtype) {
    return dtype == FB_FLOAT64 || dtype == FB_FLOAT32 || dtype == FB_FLOAT16 || dtype == FB_BFLOAT16;
}

/* Another tensor, from which `name` is computed or moved, and the recipe. */
static const char *recipe_over_another(generator *g, const char *name, fb_dtype dtype, int rank, const int64_t *sizes) {
    const char *base = fresh_path(g, "base");
    size_t kind = below(g, is_computed(dtype) ? 4 : 3);
    if (kind < 3 && g->view_count < sizeof g->views / sizeof *g->views) {
        g->views[g->view_count][0] = name;
        g->views[g->view_count++][1] = base;
    }
    int64_t more[5], flat = 1;
    memcpy(more, sizes, (size_t)rank * sizeof *sizes);
    for (int i = 0; i < rank; i++) flat *= sizes[i];
    switch (kind) {
    case 0:
        more[0]++;
        write_tensor(g, base, dtype, rank, more, "");
        return text(g, ",\"recipe\":{\"op\":\"slice\",\"args\":[\"%s\"],\"axis\":0,\"start\":1,\"stop\":%lld}", base,
                    (long long)more[0]);
    case 1:
        write_tensor(g, base, dtype, 1, &flat, "");
        return text(g, ",\"recipe\":{\"op\":\"reshape\",\"args\":[\"%s\"],\"shape\":%s}", base,
                    sizes_text(g, rank, sizes, false));
    case 2: write_tensor(g, base, dtype, rank, sizes, ""); return text(g, ",\"recipe\":\"%s\"", base);
    default:
        write_tensor(g, base, dtype, rank, sizes, "");
        return text(
            g, ",\"recipe\":{\"op\":\"mul\",\"args\":[\"%s\",{\"op\":\"full\",\"args\":[],\"shape\":[],\"value\":0.5}]}", base);
    }
}

const char *add_tensor(generator *g, const char *name, fb_dtype dtype, int rank, const int64_t *sizes, const char *more) {
    name = fresh_path(g, once_in(g, 20) ? "q-k-merged.weight" : name);
    const char *recipe = rank > 0 && once_in(g, 15) ? recipe_over_another(g, name, dtype, rank, sizes) : "";
    write_tensor(g, name, dtype, rank, sizes, text(g, "%s%s", more, recipe));
    return name;
}

const char *base_of(const generator *g, const char *tensor) {
    for (size_t i = 0; i < g->view_count; i++) {
        if (strcmp(g->views[i][0], tensor) == 0) return g->views[i][1];
    }
    return tensor;
}

layer *remember_layer(generator *g, layer made) {
    if (g->layer_count == MAX_LAYERS) abort();
    g->layers[g->layer_count] = made;
    return &g->layers[g->layer_count++];
}

/* ---- choosing ------------------------------------------------------------------------------------------------------------ */

const result *pick_any(generator *g) {
    return &g->values[below(g, g->value_count)];
}

const result *pick_float(generator *g, int rank) {
    for (int tries = 0; tries < 20; tries++) {
        const result *value = pick_any(g);
        if (value->sort != SORT_TENSOR || !fb_dtype_is_floating(value->dtype)) continue;
        if (rank ? value->rank == rank : value->rank > 0) return value;
    }
    return NULL;
}

void make_output(generator *g, const result *value) {
    if (g->output_count < sizeof g->outputs / sizeof *g->outputs) g->outputs[g->output_count++] = value->name;
}

/* ---- documents ----------------------------------------------------------------------------------------------------------- */

static void add_inputs(generator *g) {
    static const struct {
        int rank;
        int64_t sizes[5];
    } shapes[] = {{2, {2, 3}},    {2, {3, 4}},       {2, {4, 4}},       {3, {2, 3, 4}},
                  {3, {2, 4, 4}}, {4, {2, 2, 4, 4}}, {4, {1, 3, 3, 3}}, {1, {4}}};
    static const fb_dtype dtypes[] = {FB_FLOAT32, FB_FLOAT32,  FB_FLOAT32, FB_FLOAT32, FB_FLOAT64,
                                      FB_FLOAT16, FB_BFLOAT16, FB_INT64,   FB_BOOL,    FB_COMPLEX64};
    size_t count = 2 + below(g, 4);
    for (size_t i = 0; i < count; i++) {
        size_t at = i == 0 ? below(g, 3) : i == 1 ? 5 + below(g, 2) : below(g, sizeof shapes / sizeof *shapes);
        fb_dtype dtype = i < 2 && !once_in(g, 4) ? FB_FLOAT32 : PICK(g, dtypes);
        add_node(g, "x", "placeholder", "", "", "", tensor_result(dtype, shapes[at].rank, shapes[at].sizes));
    }
}

static void add_output(generator *g) {
    fb_buffer items = {0};
    size_t last = g->value_count < 4 ? g->value_count : 4;
    for (size_t i = 0; i < g->output_count; i++) fb_buffer_printf(&items, "{\"$node\":\"%s\"},", g->outputs[i]);
    for (size_t i = 0; i < last; i++) {
        const result *value = once_in(g, 3) ? pick_any(g) : &g->values[g->value_count - 1 - i];
        fb_buffer_printf(&items, "%s{\"$node\":\"%s\"}", i ? "," : "", value->name);
    }
    fb_buffer_printf(&g->nodes, "%s{\"name\":\"%s\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$tuple\":[%s]}]}",
                     separator(&g->nodes), fresh_path(g, "output"), fb_buffer_text(&items));
    fb_buffer_free(&items);
}

void generate_document(uint64_t seed, fb_buffer *out) {
    generator *g = calloc(1, sizeof *g);
    if (!g) abort();
    g->random.state = seed;
    if (once_in(g, 200)) { /* the smallest of all */
        fb_buffer_string(&g->nodes, "{\"name\":\"o\",\"op\":\"output\",\"target\":\"output\",\"args\":[null]}");
    } else {
        add_inputs(g);
        size_t motifs = 1 + below(g, once_in(g, 3) ? 25 : 10);
        for (size_t i = 0; i < motifs && g->node_count < 70; i++) add_motif(g);
        add_output(g);
    }
    fb_buffer_printf(out, "{\"format\":\"foldback.graph/1\",\"name\":\"random\",\n\"nodes\":[");
    fb_buffer_append(out, g->nodes.data, g->nodes.size);
    fb_buffer_printf(out, "],\n\"modules\":[{\"path\":\"\",\"type\":\"torch.nn.Module\"}%s", separator(&g->modules));
    if (g->modules.size) fb_buffer_append(out, g->modules.data, g->modules.size);
    fb_buffer_string(out, "],\n\"tensors\":[");
    if (g->tensors.size) fb_buffer_append(out, g->tensors.data, g->tensors.size);
    fb_buffer_string(out, "],\"metadata\":{\"source\":\"generator\"}}\n");
    fb_buffer_free(&g->nodes);
    fb_buffer_free(&g->modules);
    fb_buffer_free(&g->tensors);
    fb_arena_free(&g->arena);
    free(g);
}

/* Any pass that computes the same, those that only look now and then; none that needs parameters. */
static const fb_pass *pick_pass(random_source *random) {
    size_t known = 0;
    while (fb_pass_at(known)) known++;
    for (;;) {
        const fb_pass *pass = fb_pass_at(random_below(random, random_once_in(random, 5) ? known : known - 2));
        if (pass->exactness != FB_CHANGES && !strstr(pass->parameters, "\"required\"")) return pass;
    }
}

static void write_passes(random_source *random, size_t count, int depth, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < count; i++) {
        const fb_pass *pass = pick_pass(random);
        if (i) fb_buffer_char(out, ',');
        if (depth < 3 && random_once_in(random, 8)) write_passes(random, 1 + random_below(random, 2), depth + 1, out);
        else if (random_once_in(random, 6)) fb_buffer_printf(out, "{\"name\":\"%s\",\"params\":{}}", pass->name);
        else fb_buffer_printf(out, "\"%s\"", pass->name);
    }
    fb_buffer_char(out, ']');
}

void generate_passes(uint64_t seed, fb_buffer *out) {
    random_source random = {seed ^ 0x5851f42d4c957f2du};
    write_passes(&random, 1 + random_below(&random, 4), 1, out);
}
