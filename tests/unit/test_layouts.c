/* Layouts without a service: which rows are applied, what is refused and why, and what becomes of the numbers, there and back,
 * beside formulas written out by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/compose/undo.h"
#include "core/graph/slot.h"
#include "core/layouts/layout.h"
#include "core/weights/evaluate.h"
#include "tests/unit/chaos.h"
#include "tests/unit/checks.h"
#include "tests/unit/documents.h"
#include "tests/unit/evaluated.h"
#include "tests/unit/numbers.h"
#include "tests/unit/run_tests.h"

/* ---- checkpoints -------------------------------------------------------------------------------------------------------- */

typedef float formula(size_t index);

/* A tensor of numbers: the element `index`, row by row, is what the formula says. */
typedef struct tensor {
    const char *name; /* NULL past the end of a list */
    int rank;
    int64_t sizes[3];
    formula *value;
} tensor;

static size_t elements_of(const tensor *one) {
    size_t count = 1;
    for (int i = 0; i < one->rank; i++) count *= (size_t)one->sizes[i];
    return count;
}

static void write_tensor(const tensor *one, float add, fb_buffer *out) {
    size_t count = elements_of(one);
    float *values = malloc((count + 1) * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = (one->value ? one->value(i) : 0) + add;
    fb_buffer_printf(out, "%s{\"name\":\"%s\",\"dtype\":\"float32\",\"shape\":[", out->size ? "," : "", one->name);
    for (int i = 0; i < one->rank; i++) fb_buffer_printf(out, "%s%lld", i ? "," : "", (long long)one->sizes[i]);
    fb_buffer_string(out, "],\"data\":\"");
    encode_base64(values, count * sizeof *values, out);
    fb_buffer_string(out, "\"}");
    free(values);
}

/* The tensors of one module stand together. Every name has a dot. */
static fb_graph *checkpoint(const tensor *list, float add) {
    fb_buffer modules = {0}, tensors = {0};
    const char *module = "";
    size_t length = 0;
    fb_buffer_string(&modules, "{\"path\":\"\",\"type\":\"torch.nn.Module\",\"parameters\":{");
    for (; list->name; list++) {
        const char *dot = strrchr(list->name, '.');
        bool is_same = (size_t)(dot - list->name) == length && memcmp(module, list->name, length) == 0;
        module = list->name;
        length = (size_t)(dot - module);
        if (is_same) fb_buffer_char(&modules, ',');
        else
            fb_buffer_printf(&modules, "}},{\"path\":\"%.*s\",\"type\":\"torch.nn.Module\",\"parameters\":{", (int)length,
                             module);
        fb_buffer_printf(&modules, "\"%s\":\"%s\"", dot + 1, list->name);
        write_tensor(list, add, &tensors);
    }
    fb_buffer_string(&modules, "}}");
    char *text = document_of("{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[null]}",
                             fb_buffer_text(&modules), tensors.size ? fb_buffer_text(&tensors) : "");
    fb_graph *graph = graph_of(text, strlen(text));
    free(text);
    fb_buffer_free(&modules);
    fb_buffer_free(&tensors);
    return graph;
}

/* The graph owns these tensors under their names, and no others; their numbers are the formulas'. */
static void assert_holds(const fb_graph *graph, const tensor *list, float add) {
    size_t owned = 0, expected = 0;
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; fb_slot_next(graph, &cursor, &slot);) owned++;
    for (; list->name; list++, expected++) {
        fb_tensor found = fb_tensor_at_path(graph, list->name);
        fb_evaluation *evaluation = NULL;
        unsigned char *bytes = NULL;
        size_t size = 0;
        fb_error error = {0};
        ck_assert_msg(found.id, "there is no %s", list->name);
        const fb_tensor_row *row = fb_tensor_at(graph, found);
        ck_assert_int_eq(fb_shape_rank(graph, row->shape), list->rank);
        for (int i = 0; i < list->rank; i++) ck_assert_int_eq(fb_shape_size(graph, row->shape, i), list->sizes[i]);
        ck_assert_msg(!fb_evaluation_new(graph, found, NULL, &evaluation, &error), "%s: %s", list->name, error.message);
        ck_assert_int_eq(evaluated_bytes(evaluation, &bytes, &size, &error), FB_OK);
        ck_assert_uint_eq(size, elements_of(list) * sizeof(float));
        for (size_t i = 0; i < elements_of(list); i++) {
            float is;
            memcpy(&is, bytes + i * sizeof is, sizeof is);
            ck_assert_msg(is == list->value(i) + add, "%s[%zu] is %g, not %g", list->name, i, (double)is,
                          (double)(list->value(i) + add));
        }
        free(bytes);
        fb_evaluation_free(evaluation);
    }
    ck_assert_uint_eq(owned, expected);
}

/* ---- running ------------------------------------------------------------------------------------------------------------ */

/* The shipped one of that name; or else the document. */
static fb_status find_layout(void *context, const char *name, int version, const fb_pass **out, fb_error *error) {
    const char *document = context;
    (void)version;
    for (size_t i = 0; fb_layout_shipped(i).name; i++)
        if (strcmp(fb_layout_shipped(i).name, name) == 0) document = fb_layout_shipped(i).document;
    json_t *json = json_loads(document, 0, NULL);
    fb_status status = fb_layout_read(json, "", 1, out, error);
    json_decref(json);
    return status;
}

/* `pass` is a list of one, with " as '. */
static fb_composition composition_of(const char *pass, const char *document) {
    fb_pass_library library = {.context = (void *)(uintptr_t)document, .find = find_layout};
    fb_composition composition;
    fb_error error = {0};
    char text[300];
    snprintf(text, sizeof text, "[%s]", pass);
    for (char *at = text; (at = strchr(at, '\''));) *at = '"';
    json_t *list = json_loads(text, 0, NULL);
    ck_assert_msg(!fb_composition_read(list, "", &library, &composition, &error), "%s: %s", text, error.message);
    json_decref(list);
    return composition;
}

static fb_run run_of(const fb_composition *composition, const fb_graph *graph) {
    fb_run run;
    fb_error error = {0};
    ck_assert_msg(!fb_composition_run(composition, graph, FB_LINT_EACH, NULL, &run, &error), "%s", error.message);
    return run;
}

/* ---- numbers, there and back -------------------------------------------------------------------------------------------- */

/* Element (row, column) of a weight with two columns whose numbers are counted on from `first`. */
static float cell(float first, size_t row, size_t column) {
    return first + (float)(2 * row + column);
}

static float q(size_t i) {
    return (float)i;
}
static float k(size_t i) {
    return 100 + (float)i;
}
static float v(size_t i) {
    return 200 + (float)i;
}

/* q, k, v one after the other. */
static float fused(size_t i) {
    return i < 16 ? q(i) : i < 24 ? k(i - 16) : v(i - 24);
}

/* 4 heads of 2 rows in 2 groups: of each group its queries' 4 rows, then 2 of keys, then 2 of values. */
static float interleaved(size_t i) {
    size_t row = i / 2, column = i % 2, group = row / 8, inner = row % 8;
    if (inner < 4) return cell(0, group * 4 + inner, column);
    return inner < 6 ? cell(100, group * 2 + inner - 4, column) : cell(200, group * 2 + inner - 6, column);
}

/* 2 heads of 4 rows: row a of the first half of a head, then row a of the second. */
static float rotary(size_t i) {
    size_t row = i / 2, head = row / 4, pair = row % 4 / 2, half = row % 2;
    return cell(0, head * 4 + half * 2 + pair, i % 2);
}
static float rotary_keys(size_t i) {
    size_t row = i / 2, pair = row % 4 / 2, half = row % 2;
    return cell(100, half * 2 + pair, i % 2);
}

/* (3, 2) as (2, 3). */
static float transposed(size_t i) {
    return cell(0, i % 3, i / 3);
}

/* Two experts: gate 1, up 1, gate 2, up 2, each of one row. */
static float one_row(size_t i) {
    return 10 + (float)i;
}
static float two_row(size_t i) {
    return 20 + (float)i;
}
static float stacked(size_t i) {
    size_t expert = i / 4, is_up = i / 2 % 2, column = i % 2;
    return (expert ? 20 : 10) + (float)column + (is_up ? 50 : 0);
}
static float one_up(size_t i) {
    return 60 + (float)i;
}
static float two_up(size_t i) {
    return 70 + (float)i;
}

/* Columns of (2, 4): the first two and the last two. */
static float first_columns(size_t i) {
    return (float)(i / 2 * 4 + i % 2);
}
static float last_columns(size_t i) {
    return (float)(i / 2 * 4 + i % 2 + 2);
}

#define QKV(block)                                                                                                             \
    {block "q_proj.weight", 2, {8, 2}, q}, {block "k_proj.weight", 2, {4, 2}, k}, {                                            \
        block "v_proj.weight", 2, {4, 2}, v                                                                                    \
    }
#define A "model.layers.0.self_attn."
#define E "m.mlp.experts."

static const struct {
    const char *pass;
    tensor before[7], after[7];
} movements[] = {
    {"'qkv-fused'", {QKV(A)}, {{A "qkv_proj.weight", 2, {16, 2}, fused}}},
    {"'qkv-fused'", {QKV("")}, {{"qkv_proj.weight", 2, {16, 2}, fused}}},
    {"'qkv-fused'",
     {QKV(A), {"other.weight", 2, {3, 2}, q}},
     {{"other.weight", 2, {3, 2}, q}, {A "qkv_proj.weight", 2, {16, 2}, fused}}},
    {"{'name':'megatron-gqa','params':{'heads':4,'kv_heads':2,'head_dim':2}}",
     {QKV(A)},
     {{"decoder.layers.0.self_attention.linear_qkv.weight", 2, {16, 2}, interleaved}}},
    {"{'name':'llama-cpp-rope','params':{'heads':2,'kv_heads':1,'head_dim':4}}",
     {QKV(A)},
     {{A "q_proj.weight", 2, {8, 2}, rotary}, {A "k_proj.weight", 2, {4, 2}, rotary_keys}, {A "v_proj.weight", 2, {4, 2}, v}}},
    {"'gpt2-conv1d'",
     {{"h.0.mlp.c_fc.weight", 2, {3, 2}, q}, {"h.0.mlp.c_fc.bias", 1, {2}, k}},
     {{"h.0.mlp.c_fc.weight", 2, {2, 3}, transposed}, {"h.0.mlp.c_fc.bias", 1, {2}, k}}},
    {"{'name':'stacked-experts','params':{'experts':2}}",
     {{E "0.gate_proj.weight", 2, {1, 2}, one_row},
      {E "0.up_proj.weight", 2, {1, 2}, one_up},
      {E "1.gate_proj.weight", 2, {1, 2}, two_row},
      {E "1.up_proj.weight", 2, {1, 2}, two_up}},
     {{E "gate_up_proj", 3, {2, 2, 2}, stacked}}},
    {"{'name':'tensor-parallel','params':{'ranks':2,'heads':2,'head_dim':2}}",
     {{"a.o_proj.weight", 2, {2, 4}, q}},
     {{"rank_0.a.o_proj.weight", 2, {2, 2}, first_columns}, {"rank_1.a.o_proj.weight", 2, {2, 2}, last_columns}}},
    /* what belongs to weights */
    {"{'name':'llama-cpp-rope','params':{'heads':2,'head_dim':4}}",
     {{A "q_proj.weight", 2, {8, 2}, q}, {A "q_proj.lora_A.weight", 2, {2, 2}, v}, {A "q_proj.lora_B.weight", 2, {8, 2}, q}},
     {{A "q_proj.weight", 2, {8, 2}, rotary},
      {A "q_proj.lora_A.weight", 2, {2, 2}, v},
      {A "q_proj.lora_B.weight", 2, {8, 2}, rotary}}},
    {"{'name':'megatron-gqa','params':{'heads':4,'kv_heads':2,'head_dim':2}}",
     {{A "q_proj.weight", 2, {8, 2}, q},
      {A "q_proj.weight_scale", 2, {8, 2}, q},
      {A "k_proj.weight", 2, {4, 2}, k},
      {A "k_proj.weight_scale", 2, {4, 2}, k},
      {A "v_proj.weight", 2, {4, 2}, v},
      {A "v_proj.weight_scale", 2, {4, 2}, v}},
     {{"decoder.layers.0.self_attention.linear_qkv.weight", 2, {16, 2}, interleaved},
      {"decoder.layers.0.self_attention.linear_qkv.weight_scale", 2, {16, 2}, interleaved}}},
};

START_TEST(test_there_and_back) {
    fb_composition composition = composition_of(movements[_i].pass, NULL);
    fb_graph *source = checkpoint(movements[_i].before, 0);
    fb_run run = run_of(&composition, source);
    ck_assert_uint_ge(run.passes[0].applied, 1);
    ck_assert_msg(!strstr(run.passes[0].layout, "\"reversible\":false"), "%s", run.passes[0].layout);
    assert_holds(run.result, movements[_i].after, 0);
    /* Every number is another one now. */
    fb_graph *trained = checkpoint(movements[_i].after, 1000), *back = NULL;
    fb_undo_step step = {.call = &composition.calls[0], .is_undone = true, .begins_run = true};
    fb_undo_plan plan = {.source = source, .steps = &step, .step_count = 1, .result = run.result, .ours = trained};
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    bool is_exact = true;
    fb_status status = fb_undo(&plan, &back, &is_exact, &conflicts, &error);
    ck_assert_msg(!status, "%s: %s", error.message, conflicts.count ? conflicts.items[0].detail : "");
    ck_assert(!is_exact);
    assert_holds(back, movements[_i].before, 1000);
    fb_conflicts_free(&conflicts);
    fb_graph_free(back);
    fb_graph_free(trained);
    fb_run_free(&run);
    fb_graph_free(source);
    fb_composition_free(&composition);
}
END_TEST

/* An adapter of the fused weight: B is fused as the weight is, and A is for all three. */
static const tensor trained_on_fused[] = {{A "qkv_proj.weight", 2, {16, 2}, fused},
                                          {A "qkv_proj.lora_A.weight", 2, {2, 2}, v},
                                          {A "qkv_proj.lora_B.weight", 2, {16, 2}, fused},
                                          {0}};
static const tensor split[] = {QKV(A),
                               {A "q_proj.lora_A.weight", 2, {2, 2}, v},
                               {A "q_proj.lora_B.weight", 2, {8, 2}, q},
                               {A "k_proj.lora_A.weight", 2, {2, 2}, v},
                               {A "k_proj.lora_B.weight", 2, {4, 2}, k},
                               {A "v_proj.lora_A.weight", 2, {2, 2}, v},
                               {A "v_proj.lora_B.weight", 2, {4, 2}, v},
                               {0}};

/* Also with every allocation failing, one after another. */
START_TEST(test_an_adapter_splits) {
    static const tensor before[] = {QKV(A), {0}};
    fb_composition composition = composition_of("'qkv-fused'", NULL);
    fb_graph *source = checkpoint(before, 0), *trained = checkpoint(trained_on_fused, 1000);
    fb_run run = run_of(&composition, source);
    fb_undo_step step = {.call = &composition.calls[0], .is_undone = true, .begins_run = true};
    fb_undo_plan plan = {.source = source, .steps = &step, .step_count = 1, .result = run.result, .ours = trained};
    for (long at = 0;; at += fault_step()) {
        fb_graph *back = NULL;
        fb_conflicts conflicts = {0};
        fb_error error = {0};
        bool is_exact = true;
        chaos_fail_after(at);
        fb_status status = fb_undo(&plan, &back, &is_exact, &conflicts, &error);
        bool has_failed = chaos_off();
        ck_assert_msg(status == FB_OK || (has_failed && status == FB_NO_MEMORY), "%ld: %s: %s", at, error.message,
                      conflicts.count ? conflicts.items[0].detail : "");
        if (!status) assert_holds(back, split, 1000);
        fb_conflicts_free(&conflicts);
        fb_graph_free(back);
        if (!has_failed) break;
    }
    fb_graph_free(trained);
    fb_run_free(&run);
    fb_graph_free(source);
    fb_composition_free(&composition);
}
END_TEST

/* ---- what is applied, and what is refused ------------------------------------------------------------------------------- */

#define ROW(from, to) "{\"name\":\"own\",\"rows\":[{\"from\":{" from "},\"to\":{" to "}}]}"
#define MOVE ROW("\"w\":\"{*block}old.weight\"", "\"{*block}new.weight\":\"w\"")

/* `applied` times; then what is refused: "reason detail", the first of them. "" when nothing is. */
static const struct {
    const char *pass, *document;
    tensor before[6];
    size_t applied;
    const char *refused;
} verdicts[] = {
    /* names */
    {"'own'", MOVE, {{"old.weight", 1, {1}, q}}, 1, ""},
    {"'own'", MOVE, {{"a.b.old.weight", 1, {1}, q}}, 1, ""},
    {"'own'", MOVE, {{"a.old.weight", 1, {1}, q}, {"b.old.weight", 1, {1}, q}}, 2, ""},
    {"'own'", MOVE, {{"cold.weight", 1, {1}, q}}, 0, "unmatched no tensor is called {*block}old.weight"},
    {"'own'", MOVE, {{"old.weights", 1, {1}, q}}, 0, "incomplete old.weights is there, but old.weight is not"},
    {"'own'", ROW("\"w\":\"a.{i}.w\"", "\"b.{i}.w\":\"w\""), {{"a.0.w", 1, {1}, q}, {"a.x.w", 1, {1}, q}}, 2, ""},
    {"'own'",
     ROW("\"w\":\"a.{i}.w\"", "\"b.{i}.w\":\"w\""),
     {{"a.0.1.w", 1, {1}, q}},
     0,
     "unmatched no tensor is called a.{i}.w"},
    /* names that there are */
    {"'own'",
     MOVE,
     {{"old.weight", 1, {1}, q}, {"new.weight", 1, {1}, q}},
     0,
     "name-taken old.weight would become new.weight, which is there already or is made twice"},
    {"'own'",
     ROW("\"w\":\"{*block}w\"", "\"out.w\":\"w\""),
     {{"a.w", 1, {1}, q}, {"b.w", 1, {1}, q}},
     0,
     "name-taken a.w would become out.w, which is there already or is made twice"},
    /* halves */
    {"'qkv-fused'",
     NULL,
     {{"k_proj.weight", 2, {2, 2}, k}, {"q_proj.weight", 2, {2, 2}, q}},
     0,
     "incomplete q_proj.weight is there, but v_proj.weight is not"},
    {"'qkv-fused'",
     NULL,
     {{A "q_proj.bias", 1, {8}, q}, QKV(A)},
     0,
     "incomplete " A "q_proj.bias is there, but " A "k_proj.bias is not"},
    {"{'name':'stacked-experts','params':{'experts':3}}",
     NULL,
     {{E "0.down_proj.weight", 2, {1, 2}, q}, {E "1.down_proj.weight", 2, {1, 2}, q}},
     0,
     "incomplete " E "0.down_proj.weight is there, but " E "2.down_proj.weight is not"},
    /* sizes */
    {"'gate-up-fused'",
     NULL,
     {{"mlp.gate_proj.weight", 2, {2, 2}, q}, {"mlp.up_proj.weight", 2, {2, 3}, q}},
     0,
     "shape-mismatch mlp.up_proj.weight has 3 elements along dimension 1, not gate.shape[1] = 2"},
    {"{'name':'tensor-parallel','params':{'ranks':4,'heads':2,'head_dim':2}}",
     NULL,
     {{"a.o_proj.weight", 2, {2, 4}, q}},
     0,
     "does-not-divide a.o_proj.weight: r * (heads / ranks * v_head_dim): 2 is not a multiple of 4"},
    /* what belongs to a weight */
    {"'own'",
     MOVE,
     {{"a.old.weight", 1, {1}, q}, {"a.old.bias", 1, {1}, q}},
     0,
     "left-behind a.old.weight would go without a.old.bias, which no row takes along"},
    {"'own'",
     MOVE,
     {{"a.old.weight", 1, {1}, q}, {"a.old.lora_A.default.weight", 1, {1}, q}},
     0,
     "left-behind a.old.weight would go without a.old.lora_A.default.weight, which no row takes along"},
    {"'own'",
     MOVE,
     {{"a.old.weight", 1, {1}, q}, {"a.old.weight.absmax", 1, {1}, q}},
     0,
     "left-behind a.old.weight would go without a.old.weight.absmax, which no row takes along"},
    {"'own'", MOVE, {{"a.old.weight", 1, {1}, q}, {"a.older.bias", 1, {1}, q}}, 1, ""},
    {"'own'",
     MOVE,
     {{"a.old.lora_A.weight", 1, {1}, q}, {"b.old.weight", 1, {1}, q}},
     1,
     "incomplete a.old.lora_A.weight is there, but a.old.weight is not"},
    {"'own'",
     MOVE,
     {{"a.old.qweight", 1, {1}, q}, {"a.old.scales", 1, {1}, q}},
     0,
     "incomplete a.old.qweight is there, but a.old.weight is not"},
    {"'gpt2-conv1d'",
     NULL,
     {{"c_fc.weight", 2, {3, 2}, q}, {"c_fc.weight_scale", 1, {1}, k}},
     0,
     "left-behind c_fc.weight would go without c_fc.weight_scale, which no row takes along"},
};

START_TEST(test_verdicts) {
    fb_composition composition = composition_of(verdicts[_i].pass, verdicts[_i].document);
    fb_graph *source = checkpoint(verdicts[_i].before, 0);
    fb_run run = run_of(&composition, source);
    const fb_refusal *first = run.passes[0].refused;
    char refused[400] = "";
    while (first && !strcmp(first->reason, "unmatched") && first->next) first = first->next;
    if (first) snprintf(refused, sizeof refused, "%s %s", first->reason, first->detail);
    bool is_shipped = verdicts[_i].document == NULL; /* whose other rows match nothing */
    ck_assert_uint_eq(run.passes[0].applied, verdicts[_i].applied);
    if (!is_shipped || *verdicts[_i].refused) ck_assert_str_eq(refused, verdicts[_i].refused);
    if (!verdicts[_i].applied) assert_holds(run.result, verdicts[_i].before, 0);
    fb_run_free(&run);
    fb_graph_free(source);
    fb_composition_free(&composition);
}
END_TEST

/* ---- faults ------------------------------------------------------------------------------------------------------------- */

START_TEST(test_memory_runs_out) {
    fb_composition composition = composition_of(movements[_i].pass, NULL);
    fb_graph *source = checkpoint(movements[_i].before, 0);
    for (long at = 0;; at += fault_step()) {
        fb_run run;
        fb_error error = {0};
        chaos_fail_after(at);
        fb_status status = fb_composition_run(&composition, source, FB_LINT_END, NULL, &run, &error);
        bool has_failed = chaos_off();
        ck_assert_msg(status == FB_OK || (has_failed && status == FB_NO_MEMORY), "%ld: %s", at, error.message);
        if (!status) assert_holds(run.result, movements[_i].after, 0);
        if (!status) fb_run_free(&run);
        if (!has_failed) break;
    }
    fb_graph_free(source);
    fb_composition_free(&composition);
}
END_TEST

/* ---- many ---------------------------------------------------------------------------------------------------------------- */

#define MANY 100000

/* Of one module, or each of its own. In time and memory linear in their number: quadratic would take minutes and 20 GB. */
START_TEST(test_many) {
    static const char *const names[] = {"m.t%d", "m.t%d.w"};
    static const char *const documents[] = {ROW("\"w\":\"m.{i}\"", "\"n.{i}\":\"w\""),
                                            ROW("\"w\":\"m.{i}.w\"", "\"n.{i}.w\":\"w\""),
                                            ROW("\"w\":\"m.{i}\"", "\"one.w\":\"w\"")};
    static const size_t applied[] = {MANY, MANY, 0};
    tensor *list = calloc(MANY + 1, sizeof *list);
    char(*text)[32] = malloc(MANY * sizeof *text);
    for (int i = 0; i < MANY; i++) {
        snprintf(text[i], sizeof *text, names[_i % 2], i);
        list[i] = (tensor){text[i], 1, {1}, q};
    }
    fb_composition composition = composition_of("'own'", documents[_i]);
    fb_graph *source = checkpoint(list, 0);
    fb_run run;
    fb_error error = {0};
    ck_assert_msg(!fb_composition_run(&composition, source, FB_LINT_NONE, NULL, &run, &error), "%s", error.message);
    ck_assert_uint_eq(run.passes[0].applied, applied[_i]);
    ck_assert_uint_eq(run.passes[0].refused_count, MANY - applied[_i]);
    fb_run_free(&run);
    fb_graph_free(source);
    fb_composition_free(&composition);
    free(list);
    free(text);
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("layouts");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_there_and_back, 0, (int)(sizeof movements / sizeof *movements));
    tcase_add_test(cases, test_an_adapter_splits);
    tcase_add_loop_test(cases, test_verdicts, 0, (int)(sizeof verdicts / sizeof *verdicts));
    tcase_add_loop_test(cases, test_memory_runs_out, 0, (int)(sizeof movements / sizeof *movements));
    tcase_add_loop_test(cases, test_many, 0, 3);
    return run_tests("layouts", cases);
}
