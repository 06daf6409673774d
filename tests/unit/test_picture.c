/* Pictures: that what is drawn is what the graph is, that nothing stands on anything else, and that odd graphs give one too. */
#include "core/picture/picture.h"

#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/document/document.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/generator.h"
#include "tests/unit/run_tests.h"

static fb_picture make(const fb_graph *base, const fb_graph *graph, const fb_picture_options *options) {
    static const fb_picture_options usual = {.depth = FB_PICTURE_DEPTH_USUAL};
    fb_picture picture;
    fb_error error = {0};
    fb_status status = fb_picture_make(base, graph, options ? options : &usual, &(fb_work){0}, &picture, &error);
    ck_assert_msg(status == FB_OK, "%s", error.message);
    return picture;
}

/* ---- what holds of every picture ----------------------------------------------------------------------------------------- */

static bool is_within(const fb_picture_box *in, const fb_picture_box *around) {
    return in->x >= around->x && in->y >= around->y && in->x + in->width <= around->x + around->width &&
           in->y + in->height <= around->y + around->height;
}

static bool are_apart(const fb_picture_box *a, const fb_picture_box *b) {
    return a->x + a->width <= b->x || b->x + b->width <= a->x || a->y + a->height <= b->y || b->y + b->height <= a->y;
}

static void check_boxes(const fb_picture *p, const char *what) {
    uint32_t drawn = 0;
    ck_assert_msg(p->box_count - 1 <= FB_PICTURE_BOXES, "%s: %u boxes", what, p->box_count - 1);
    for (uint32_t b = 1; b < p->box_count; b++) {
        const fb_picture_box *box = &p->boxes[b], *around = &p->boxes[box->parent];
        ck_assert_msg(box->parent < b && around->is_open, "%s: %s stands in nothing", what, box->key);
        ck_assert_msg(box->width > 0 && box->height > 0 && is_within(box, around), "%s: %s sticks out of %s", what, box->key,
                      around->key);
        for (uint32_t c = around->first_child; c < b; c++)
            ck_assert_msg(are_apart(box, &p->boxes[c]), "%s: %s stands on %s", what, box->key, p->boxes[c].key);
        if (!box->is_open) drawn += box->tally.nodes;
    }
    ck_assert_msg(drawn == p->boxes[0].tally.nodes, "%s: %u of %u nodes are drawn", what, drawn, p->boxes[0].tally.nodes);
}

static void check_lines(const fb_picture *p, const char *what) {
    for (uint32_t i = 0; i < p->line_count; i++) {
        const fb_picture_line *line = &p->lines[i];
        const fb_picture_box *from = &p->boxes[line->from], *to = &p->boxes[line->to];
        const int *first = line->points, *last = first + 2 * (line->point_count - 1);
        ck_assert_msg(!from->is_open && !to->is_open && line->point_count >= 2, "%s: a line of nothing", what);
        ck_assert_msg(first[1] == from->y + from->height && first[0] >= from->x && first[0] <= from->x + from->width,
                      "%s: a line does not begin at %s", what, from->key);
        ck_assert_msg(last[1] == to->y && last[0] >= to->x && last[0] <= to->x + to->width, "%s: a line to %s ends elsewhere",
                      what, to->key);
        for (const int *at = first; at < last; at += 2)
            ck_assert_msg(at[0] == at[2] || at[1] == at[3], "%s: a line to %s is aslant", what, to->key);
        for (const int *at = first; at <= last; at += 2)
            ck_assert_msg(at[0] >= 0 && at[1] >= 0 && at[0] <= p->boxes[0].width && at[1] <= p->boxes[0].height,
                          "%s: a line leaves the sheet", what);
    }
}

/* A line goes through no box but those that hold one of its ends. */
static void check_lines_are_free(const fb_picture *p, const char *what) {
    for (uint32_t i = 0; i < p->line_count; i++) {
        const fb_picture_line *line = &p->lines[i];
        for (const int *at = line->points; at < line->points + 2 * (line->point_count - 1); at += 2) {
            int left = at[0] < at[2] ? at[0] : at[2], right = at[0] < at[2] ? at[2] : at[0];
            int top = at[1] < at[3] ? at[1] : at[3], bottom = at[1] < at[3] ? at[3] : at[1];
            for (uint32_t b = 1; b < p->box_count; b++) {
                const fb_picture_box *box = &p->boxes[b];
                bool is_hit = !box->is_open && right > box->x && left < box->x + box->width && bottom > box->y &&
                              top < box->y + box->height;
                ck_assert_msg(!is_hit, "%s: a line from %s to %s runs over %s", what, p->boxes[line->from].key,
                              p->boxes[line->to].key, box->key);
            }
        }
    }
}

/* Each edge of the graph is in one line, or within one box. */
static void check_edges(const fb_picture *p, const char *what) {
    uint64_t edges = p->lines_left_out, lines = p->lines_left_out;
    if (p->box_count - 1 != p->boxes[0].tally.nodes || p->base) return; /* only where every node is a box */
    for (fb_node n = fb_first_node(p->graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(p->graph, n))
        for (uint32_t e = fb_input_first(p->graph, n); e; e = fb_input_next(p->graph, e)) edges++;
    for (uint32_t i = 0; i < p->line_count; i++) lines += p->lines[i].count;
    ck_assert_msg(edges == lines, "%s: %llu edges, but %llu in lines", what, (unsigned long long)edges,
                  (unsigned long long)lines);
}

/* Markup in it is ours, and only ours: every "<" begins a tag that the writer knows. */
static void check_svg(const fb_picture *p, const char *what) {
    static const char *const tags[] = {"svg", "title", "style", "defs", "marker", "path", "rect", "g", "text", "tspan"};
    fb_buffer svg = {0};
    fb_picture_write_svg(p, &svg);
    const char *text = fb_buffer_text(&svg);
    ck_assert(text != NULL);
    for (const char *at = text; (at = strchr(at, '<')); at++) {
        const char *name = at + 1 + (at[1] == '/');
        size_t size = strcspn(name, " >/"), known = 0;
        for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
            known += strlen(tags[i]) == size && !memcmp(tags[i], name, size);
        ck_assert_msg(known == 1, "%s: markup from the document: %.40s", what, at);
    }
    fb_buffer_free(&svg);
}

static void check(const fb_picture *p, const char *what) {
    check_boxes(p, what);
    check_lines(p, what);
    check_lines_are_free(p, what);
    check_edges(p, what);
    check_svg(p, what);
}

static char *text_of(const fb_picture *p) {
    fb_buffer out = {0};
    fb_buffer_char(&out, '{');
    fb_picture_write(p, &out);
    fb_picture_write_svg(p, &out);
    ck_assert(fb_buffer_text(&out) != NULL);
    return fb_buffer_take(&out, NULL);
}

static void check_same(const fb_graph *base, const fb_graph *graph, const fb_picture_options *options) {
    fb_picture once = make(base, graph, options), twice = make(base, graph, options);
    char *first = text_of(&once), *second = text_of(&twice);
    ck_assert_str_eq(first, second);
    free(first);
    free(second);
    fb_picture_free(&once);
    fb_picture_free(&twice);
}

/* ---- the fixtures -------------------------------------------------------------------------------------------------------- */

static fb_graph *fixture(const char *name) {
    size_t size;
    char *text = read_fixture(name, "graph.json", &size);
    fb_graph *graph = graph_of(text, size);
    free(text);
    return graph;
}

static fb_graph *with_passes(const fb_graph *graph, const char *passes) {
    fb_error error = {0};
    fb_composition composition;
    fb_run run;
    json_t *list = json_loads(passes, 0, NULL);
    ck_assert(list && !fb_composition_read(list, "", NULL, &composition, &error));
    ck_assert_msg(!fb_composition_run(&composition, graph, FB_LINT_NONE, NULL, &run, &error), "%s", error.message);
    fb_graph *result = fb_graph_copy(run.result, &(fb_work){0});
    fb_run_free(&run);
    fb_composition_free(&composition);
    json_decref(list);
    return result;
}

START_TEST(test_fixtures) {
    const char *name = fixture_names[_i];
    fb_graph *graph = fixture(name);
    for (int depth = -1; depth < 8; depth++) {
        fb_picture_options options = {.depth = depth};
        fb_picture picture = make(NULL, graph, &options);
        check(&picture, name);
        fb_picture_free(&picture);
        check_same(NULL, graph, &options);
    }
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_runs) {
    const char *name = fixture_names[_i];
    fb_graph *graph = fixture(name), *result = with_passes(graph, "[\"inference\", \"MergeLinears\"]");
    for (int depth = -1; depth < 8; depth++) {
        fb_picture_options options = {.depth = depth};
        fb_picture picture = make(graph, result, &options);
        check(&picture, name);
        const fb_picture_tally *tally = &picture.boxes[0].tally;
        ck_assert_uint_eq(tally->nodes - tally->removed, fb_node_count(result));
        ck_assert_uint_eq(tally->nodes - tally->added, fb_node_count(graph));
        fb_picture_free(&picture);
        check_same(graph, result, &options);
    }
    fb_graph_free(graph);
    fb_graph_free(result);
}
END_TEST

static const fb_picture_box *find(const fb_picture *p, fb_box_kind kind, const char *key) {
    for (uint32_t b = 1; b < p->box_count; b++)
        if (p->boxes[b].kind == kind && !strcmp(p->boxes[b].key, key)) return &p->boxes[b];
    return NULL;
}

static bool is_line(const fb_picture *p, const fb_picture_box *from, const fb_picture_box *to, fb_picture_state state) {
    for (uint32_t i = 0; i < p->line_count; i++) {
        const fb_picture_line *line = &p->lines[i];
        if (&p->boxes[line->from] == from && &p->boxes[line->to] == to) return line->state == state;
    }
    return false;
}

/* BERT's layer 3: q, k and v became slices of one Linear, and every other layer stays one box. */
START_TEST(test_merge_in_bert) {
    static const char *const open[] = {"encoder.layer.3.attention.self"};
    fb_graph *graph = fixture("bert-base"), *result = with_passes(graph, "[\"MergeLinears\"]");
    fb_picture p = make(graph, result, &(fb_picture_options){.open = open, .open_count = 1, .depth = 1});
    check(&p, "bert-base");
#define NAME(of) "encoder_layer_3_attention_self_" of
    const fb_picture_box *merged = find(&p, FB_BOX_NODE, NAME("query_key_value_merged"));
    ck_assert(merged && merged->state == FB_PICTURE_ADDED && !strcmp(merged->label, "query_key_value_merged"));
    static const char *const names[] = {NAME("query"), NAME("key"), NAME("value")};
    for (size_t i = 0; i < 3; i++) {
        const fb_picture_box *one = find(&p, FB_BOX_NODE, names[i]);
        ck_assert(one && one->state == FB_PICTURE_CHANGED && !strcmp(one->detail, "Linear → getitem"));
        ck_assert(is_line(&p, merged, one, FB_PICTURE_ADDED));
    }
    const fb_picture_box *layer = find(&p, FB_BOX_MODULE, "encoder.layer.7");
    ck_assert(layer && !layer->is_open && layer->state == FB_PICTURE_CHANGED);
    ck_assert(layer->tally.added == 1 && layer->tally.changed == 3 && !layer->tally.removed);
    fb_picture_free(&p);
    fb_graph_free(graph);
    fb_graph_free(result);
}
END_TEST

/* A weight that a fold changed is a change of the node that uses it, though the node's row is the same. */
START_TEST(test_folded_norm) {
    fb_graph *graph = fixture("toy"), *result = with_passes(graph, "[\"FuseBatchNorm2dInConv2d\"]");
    fb_picture p = make(graph, result, NULL);
    ck_assert_int_eq(find(&p, FB_BOX_NODE, "c1")->state, FB_PICTURE_CHANGED);
    ck_assert_int_eq(find(&p, FB_BOX_NODE, "b1")->state, FB_PICTURE_REMOVED);
    ck_assert_int_eq(find(&p, FB_BOX_NODE, "c2")->state, FB_PICTURE_KEPT);
    fb_picture_free(&p);
    fb_graph_free(graph);
    fb_graph_free(result);
}
END_TEST

/* What a union of a graph with itself shows is what the graph's own picture shows, at the same places. */
START_TEST(test_nothing_changed) {
    fb_graph *graph = fixture("bert-tiny");
    fb_picture alone = make(NULL, graph, NULL), both = make(graph, graph, NULL);
    ck_assert_uint_eq(alone.box_count, both.box_count);
    for (uint32_t b = 0; b < alone.box_count; b++) {
        ck_assert_int_eq(both.boxes[b].state, FB_PICTURE_KEPT);
        ck_assert(alone.boxes[b].x == both.boxes[b].x && alone.boxes[b].y == both.boxes[b].y);
    }
    fb_picture_free(&alone);
    fb_picture_free(&both);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_node_that_is_to_be_seen) {
    fb_graph *graph = fixture("bert-base");
    fb_error error = {0};
    fb_picture p = make(NULL, graph, &(fb_picture_options){.at = "encoder_layer_9_attention_self_key", .depth = 0});
    check(&p, "at");
    ck_assert(find(&p, FB_BOX_NODE, "encoder_layer_9_attention_self_key"));
    ck_assert(!find(&p, FB_BOX_NODE, "encoder_layer_8_attention_self_key"));
    fb_picture_free(&p);
    ck_assert_int_eq(fb_picture_make(NULL, graph, &(fb_picture_options){.at = "nobody"}, &(fb_work){0}, &p, &error),
                     FB_NOT_FOUND);
    ck_assert_str_eq(error.code, "unknown-node");
    fb_picture_free(&p);
    fb_graph_free(graph);
}
END_TEST

/* ---- odd graphs ---------------------------------------------------------------------------------------------------------- */

#define INPUT "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\",\"args\":[]}"
#define OUTPUT(of) ",{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[" of "]}"

static fb_graph *read(const char *nodes, const char *modules) {
    char *text = document_of(nodes, modules, "");
    fb_graph *graph = graph_of(text, strlen(text));
    free(text);
    return graph;
}

START_TEST(test_empty_graph) {
    fb_graph *graph = read("{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[null]}", NULL);
    fb_picture p = make(NULL, graph, NULL);
    check(&p, "empty");
    ck_assert_uint_eq(p.box_count, 2);
    fb_picture_free(&p);
    fb_graph_free(graph);
}
END_TEST

/* One module that is called before and after another one: the line back is drawn. */
START_TEST(test_module_that_is_called_twice) {
    fb_graph *graph = read(
        INPUT
        ",{\"name\":\"a\",\"op\":\"call_module\",\"target\":\"m.a\",\"args\":[{\"$node\":\"x\"}]}"
        ",{\"name\":\"b\",\"op\":\"call_module\",\"target\":\"n.b\",\"args\":[{\"$node\":\"a\"}]}"
        ",{\"name\":\"c\",\"op\":\"call_module\",\"target\":\"m.a\",\"args\":[{\"$node\":\"b\"}]}"
        ",{\"name\":\"d\",\"op\":\"call_module\",\"target\":\"n.b\",\"args\":[{\"$node\":\"c\"}]}" OUTPUT("{\"$node\":\"d\"}"),
        "{\"path\":\"\",\"type\":\"torch.nn.Module\"},{\"path\":\"m.a\",\"type\":\"torch.nn.ReLU\"},"
        "{\"path\":\"n.b\",\"type\":\"torch.nn.ReLU\"}");
    for (int depth = 0; depth < 3; depth++) {
        fb_picture p = make(NULL, graph, &(fb_picture_options){.depth = depth});
        check(&p, "called twice");
        ck_assert_uint_eq(p.line_count, depth ? 5 : 4);
        fb_picture_free(&p);
    }
    fb_graph_free(graph);
}
END_TEST

/* Markup, right to left, many characters, and a path of more parts than there are levels. */
START_TEST(test_odd_names) {
    fb_buffer nodes = {0}, modules = {0}, path = {0}, deep = {0};
    for (int i = 0; i < 10000; i++) fb_buffer_string(&path, i % 2 ? "ש" : "<b>&");
    for (int i = 0; i < 5000; i++) fb_buffer_string(&deep, i ? ".a" : "a");
    ck_assert(fb_buffer_text(&path) && fb_buffer_text(&deep));
    static const char *const given[] = {"<script>alert(1)</script>", "]]>&amp;<!--", "مرحبا.بالعالم", "#a+3"};
    fb_buffer_string(&nodes, INPUT);
    fb_buffer_string(&modules, "{\"path\":\"\",\"type\":\"torch.nn.Module\"}");
    for (size_t i = 0; i < 6; i++) {
        const char *name = i < 4 ? given[i] : i == 4 ? path.data : deep.data;
        fb_buffer_printf(&nodes, ",{\"name\":\"ن%zu\",\"op\":\"call_module\",\"target\":\"%s\",\"args\":[{\"$node\":\"x\"}]}",
                         i, name);
        fb_buffer_printf(&modules, ",{\"path\":\"%s\",\"type\":\"torch.nn.Linear</title>\"}", name);
    }
    fb_buffer_string(&nodes, OUTPUT("null"));
    ck_assert(fb_buffer_text(&nodes) && fb_buffer_text(&modules));
    fb_graph *graph = read(nodes.data, modules.data);
    for (int depth = -1; depth < 65; depth += 11) {
        fb_picture p = make(NULL, graph, &(fb_picture_options){.depth = depth});
        check(&p, "odd names");
        for (uint32_t b = 1; b < p.box_count; b++) ck_assert_int_lt(p.boxes[b].is_open ? 0 : p.boxes[b].width, 400);
        fb_picture_free(&p);
    }
    fb_graph_free(graph);
    fb_buffer_free(&nodes);
    fb_buffer_free(&modules);
    fb_buffer_free(&path);
    fb_buffer_free(&deep);
}
END_TEST

static fb_graph *flat(int count) {
    fb_buffer nodes = {0};
    fb_buffer_string(&nodes, INPUT);
    for (int i = 0; i < count; i++) {
        fb_buffer_printf(&nodes,
                         ",{\"name\":\"n%d\",\"op\":\"call_function\",\"target\":\"torch.relu\",\"args\":[{\"$node\":\"", i);
        if (i) fb_buffer_printf(&nodes, "n%d\"}]}", i - 1);
        else fb_buffer_string(&nodes, "x\"}]}");
    }
    fb_buffer_string(&nodes, OUTPUT("null"));
    fb_graph *graph = read(fb_buffer_text(&nodes), NULL);
    fb_buffer_free(&nodes);
    return graph;
}

/* Without modules neighbours become groups, and these open as modules do. */
START_TEST(test_many_neighbours) {
    fb_graph *graph = flat(20000);
    fb_picture p = make(NULL, graph, NULL);
    check(&p, "flat");
    ck_assert(p.box_count - 1 == 41 && p.boxes[1].kind == FB_BOX_GROUP); /* of 500 */
    ck_assert_str_eq(p.boxes[1].label, "x … n498");
    const char *open[] = {p.boxes[2].key};
    fb_picture q = make(NULL, graph, &(fb_picture_options){.open = open, .open_count = 1, .depth = 0});
    check(&q, "flat, with one group open");
    ck_assert(q.box_count > 61 && q.boxes[2].is_open);
    fb_picture r = make(NULL, graph, &(fb_picture_options){.at = "n7777", .depth = 0});
    check(&r, "flat, at one node");
    ck_assert(find(&r, FB_BOX_NODE, "n7777"));
    fb_picture_free(&p);
    fb_picture_free(&q);
    fb_picture_free(&r);
    fb_graph_free(graph);
}
END_TEST

/* Layers, and between two of them a sum that belongs to neither: 2 * count nodes below "encoder.layers". */
static fb_graph *layered(int count) {
    fb_buffer nodes = {0}, modules = {0};
    fb_buffer_string(&nodes, INPUT);
    fb_buffer_string(&modules, "{\"path\":\"\",\"type\":\"torch.nn.Module\"}");
    for (int i = 0; i < count; i++) {
        fb_buffer_printf(&modules, ",{\"path\":\"encoder.layers.%d.act\",\"type\":\"torch.nn.ReLU\"}", i);
        fb_buffer_printf(&nodes, ",{\"name\":\"act_%d\",\"op\":\"call_module\",\"target\":\"encoder.layers.%d.act\",\"args\":[",
                         i, i);
        if (i) fb_buffer_printf(&nodes, "{\"$node\":\"sum_%d\"}]}", i - 1);
        else fb_buffer_string(&nodes, "{\"$node\":\"x\"}]}");
        fb_buffer_printf(&nodes,
                         ",{\"name\":\"sum_%d\",\"op\":\"call_function\",\"target\":\"operator.add\",\"args\":[{\"$node\":"
                         "\"act_%d\"},1]}",
                         i, i);
    }
    fb_buffer_string(&nodes, OUTPUT("null"));
    fb_graph *graph = read(fb_buffer_text(&nodes), fb_buffer_text(&modules));
    fb_buffer_free(&nodes);
    fb_buffer_free(&modules);
    return graph;
}

/* Repeated layers become groups that are called by their numbers and end where a layer does: each has its layers and their
 * sums. */
START_TEST(test_groups_of_layers) {
    static const struct {
        int count;
        const char *first, *second, *last;
        int groups, items; /* items of the first */
    } cases[] = {{100, "layers 0 … 1", "layers 2 … 3", "layers 98 … 99", 50, 4},
                 {1150, "layers 0 … 19", "layers 20 … 39", "layers 1140 … 1149", 58, 40},
                 {61, "layers 0 … 1", "layers 2 … 3", "layers 60", 31, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fb_graph *graph = layered(cases[i].count);
        const char *open[] = {"encoder.layers"};
        fb_picture p = make(NULL, graph, &(fb_picture_options){.open = open, .open_count = 1, .depth = 0});
        check(&p, "layers");
        const fb_picture_box *around = find(&p, FB_BOX_MODULE, "encoder.layers"), *group = NULL;
        int groups = 0;
        ck_assert(around && around->is_open);
        for (uint32_t b = 1; b < p.box_count; b++) {
            if (p.boxes[b].kind != FB_BOX_GROUP) continue;
            group = &p.boxes[b];
            if (++groups == 1) {
                ck_assert_str_eq(group->label, cases[i].first);
                ck_assert_uint_eq(group->tally.nodes, (uint32_t)cases[i].items);
            }
            if (groups == 2) ck_assert_str_eq(group->label, cases[i].second);
        }
        ck_assert_int_eq(groups, cases[i].groups);
        ck_assert_str_eq(group->label, cases[i].last);
        const char *both[] = {"encoder.layers", group->key};
        fb_picture q = make(NULL, graph, &(fb_picture_options){.open = both, .open_count = 2, .depth = 0});
        check(&q, "layers, with the last group open");
        ck_assert_uint_gt(q.box_count, p.box_count);
        fb_picture_free(&p);
        fb_picture_free(&q);
        fb_graph_free(graph);
    }
}
END_TEST

/* More than fit are left closed, and that is said. */
START_TEST(test_too_many_to_open) {
    fb_graph *graph = fixture("bert-base");
    fb_picture p = make(NULL, graph, &(fb_picture_options){.depth = 64});
    check(&p, "all of it");
    ck_assert(p.box_count - 1 > 400 && p.left_closed > 0);
    fb_picture_free(&p);
    fb_graph_free(graph);
}
END_TEST

/* ---- random graphs, stopped work, short memory --------------------------------------------------------------------------- */

START_TEST(test_random_graphs) {
    static const char *const passes[] = {"[\"inference\"]", "[\"MergeLinears\", \"EliminateDeadCode\"]",
                                         "[\"FuseBiasInLinear\"]"};
    const char *count = getenv("FOLDBACK_RANDOM_CASES");
    uint64_t cases = count ? strtoull(count, NULL, 10) / 10 : 300;
    for (uint64_t seed = 1; seed <= cases; seed++) {
        fb_buffer document = {0};
        char what[40];
        generate_document(seed, &document);
        snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
        fb_graph *graph = graph_of(document.data, document.size), *result = with_passes(graph, passes[seed % 3]);
        for (int depth = 0; depth < 4; depth += 3) {
            fb_picture_options options = {.depth = depth};
            fb_picture p = make(NULL, graph, &options), q = make(graph, result, &options), r = make(result, graph, &options);
            check(&p, what);
            check(&q, what);
            check(&r, what);
            ck_assert_uint_eq(q.boxes[0].tally.added, r.boxes[0].tally.removed);
            fb_picture_free(&p);
            fb_picture_free(&q);
            fb_picture_free(&r);
        }
        fb_graph_free(graph);
        fb_graph_free(result);
        fb_buffer_free(&document);
    }
}
END_TEST

static fb_status stop(void *left, fb_error *error) {
    return (*(int *)left)-- > 0 ? FB_OK : fb_fail(error, FB_BUSY, "cancelled", NULL, "nobody waits");
}

/* Stopped each time that it asks in turn, and asked often enough. */
START_TEST(test_stopped) {
    fb_graph *graph = flat(12000);
    int times = 0;
    for (bool is_done = false; !is_done; times++) {
        int left = times;
        fb_watch watch = {.context = &left, .check = stop};
        fb_error error = {0};
        fb_picture p;
        fb_status status =
            fb_picture_make(graph, graph, &(fb_picture_options){.depth = 3}, &(fb_work){.watch = &watch}, &p, &error);
        ck_assert(status == FB_OK || (status == FB_BUSY && !strcmp(error.code, "cancelled")));
        is_done = status == FB_OK;
        fb_picture_free(&p);
    }
    ck_assert_int_gt(times, 8);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_short_memory) {
    fb_graph *graph = fixture("toy"), *result = with_passes(graph, "[\"MergeLinears\"]");
    long failures = 0;
    for (long k = 0;; k += fault_step()) {
        fb_picture p;
        fb_error error = {0};
        chaos_fail_after(k);
        fb_status status = fb_picture_make(graph, result, &(fb_picture_options){.depth = 3}, &(fb_work){0}, &p, &error);
        fb_buffer out = {0};
        if (!status) fb_picture_write(&p, &out), fb_picture_write_svg(&p, &out);
        bool has_failed = chaos_off();
        ck_assert(status == FB_OK || status == FB_NO_MEMORY);
        ck_assert(has_failed == (status != FB_OK || out.failed));
        fb_buffer_free(&out);
        fb_picture_free(&p);
        if (!has_failed) break;
        failures++;
    }
    ck_assert_int_gt(failures, 0);
    fb_graph_free(graph);
    fb_graph_free(result);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("picture");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_fixtures, 0, fixture_count);
    tcase_add_loop_test(tests, test_runs, 0, fixture_count);
    tcase_add_test(tests, test_merge_in_bert);
    tcase_add_test(tests, test_folded_norm);
    tcase_add_test(tests, test_nothing_changed);
    tcase_add_test(tests, test_node_that_is_to_be_seen);
    tcase_add_test(tests, test_empty_graph);
    tcase_add_test(tests, test_module_that_is_called_twice);
    tcase_add_test(tests, test_odd_names);
    tcase_add_test(tests, test_many_neighbours);
    tcase_add_test(tests, test_groups_of_layers);
    tcase_add_test(tests, test_too_many_to_open);
    tcase_add_test(tests, test_random_graphs);
    tcase_add_test(tests, test_stopped);
    tcase_add_test(tests, test_short_memory);
    return run_tests("picture", tests);
}
