/* core/graph/namespace.h against recorded answers of PyTorch 2.13's _Namespace.create_name. */
#include "core/graph/namespace.h"

#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/graph/build.h"
#include "core/graph/python.h"
#include "tests/unit/run_tests.h"

static fb_namespace *names;

static void set_up(void) {
    names = fb_namespace_new();
    ck_assert_ptr_nonnull(names);
}

static void tear_down(void) {
    fb_namespace_free(names);
}

static void expect(const char *candidate, const char *name) {
    ck_assert_str_eq(fb_namespace_create(names, candidate), name);
}

static const char *create_for(fb_opcode opcode, const char *target) {
    fb_buffer candidate = {0};
    fb_candidate_name(&candidate, opcode, target);
    const char *name = fb_namespace_create(names, fb_buffer_text(&candidate));
    fb_buffer_free(&candidate);
    return name;
}

/* Each line of the file is one namespace: [[how the candidate was made, candidate or target, name], …]. */
START_TEST(test_recorded_sequences) {
    FILE *file = fopen("tests/unit/data/names.jsonl", "r");
    ck_assert_ptr_nonnull(file);
    char *line = NULL;
    size_t capacity = 0, cases = 0;
    while (getline(&line, &capacity, file) > 0) {
        json_t *sequence = json_loads(line, 0, NULL);
        ck_assert_ptr_nonnull(sequence);
        tear_down();
        set_up();
        size_t i;
        json_t *step;
        json_array_foreach(sequence, i, step) {
            const char *kind, *text, *expected;
            ck_assert_int_eq(json_unpack(step, "[sss]", &kind, &text, &expected), 0);
            const char *name = kind[0] == 'n'   ? fb_namespace_create(names, text)
                               : kind[0] == 'm' ? create_for(FB_CALL_MODULE, text)
                                                : create_for(FB_CALL_FUNCTION, text);
            ck_assert_msg(strcmp(name, expected) == 0, "%s %s: %s, not %s", kind, text, name, expected);
            cases++;
        }
        json_decref(sequence);
    }
    free(line);
    fclose(file);
    ck_assert_uint_gt(cases, 500);
}
END_TEST

START_TEST(test_counts_follow_the_base) {
    expect("add", "add");
    expect("add", "add_1");
    expect("add_7", "add_7");
    expect("add", "add_8");
    expect("add_3", "add_3"); /* the count goes down … */
    expect("add", "add_4");
    expect("add_007", "add_007");
    expect("add", "add_9"); /* … and what is used is stepped over */
    expect("add_9", "add_10");
}
END_TEST

START_TEST(test_illegal_names) {
    expect("getattr", "getattr_1");
    expect("getattr", "getattr_2");
    expect("class", "class_1");
    expect("None", "None_1");
    expect("torch", "torch_1");
    expect("fx_pytree", "fx_pytree_1");
    expect("match", "match"); /* a soft keyword may be a name */
}
END_TEST

START_TEST(test_what_is_not_an_identifier) {
    expect("", "_unnamed");
    expect("0", "_0");
    expect("a.0.b-c", "a_0_b_c");
    expect("é日\n-", "_");
    expect("a\n", "a_");
    expect("\xff\xfe", "__1");
    expect("a_\xff", "a__");
    expect("x_٣", "x_٣"); /* \d of Python's regular expressions matches the digits of every script */
    expect("x", "x");
    expect("x", "x_4");
}
END_TEST

START_TEST(test_long_numbers_belong_to_the_name) {
    expect("a_123456789012345678", "a_123456789012345678");
    expect("a", "a");
    expect("a", "a_123456789012345679");
    expect("b_1234567890123456789", "b_1234567890123456789");
    expect("b_1234567890123456789", "b_1234567890123456789_1");
}
END_TEST

START_TEST(test_adopting) {
    static const char *const existing[] = {"x", "add", "add_1", "add_5", "relu_2", "getattr", "größe"};
    for (size_t i = 0; i < sizeof existing / sizeof *existing; i++) ck_assert(fb_namespace_adopt(names, existing[i]));
    ck_assert(fb_namespace_is_used(names, "größe"));
    ck_assert(!fb_namespace_is_used(names, "relu"));
    expect("add", "add_6");
    expect("relu", "relu");
    expect("relu", "relu_3");
    expect("getattr", "getattr_1");
    expect("x", "x_1");
}
END_TEST

static void add_node(fb_graph *graph, fb_program program, const char *name) {
    ck_assert_uint_ne(fb_graph_add_node(graph, program, fb_intern(graph, name), (fb_node){0}).id, 0);
}

/* A run goes on in a copy: a name whose node is erased there stays used. */
START_TEST(test_names_of_a_graph_are_used) {
    fb_graph *graph = fb_graph_new();
    add_node(graph, FB_MAIN_PROGRAM, "x");
    add_node(graph, FB_MAIN_PROGRAM, "add");
    add_node(graph, FB_MAIN_PROGRAM, "add_7");
    add_node(graph, FB_MAIN_PROGRAM, "add_5");
    fb_intern(graph, "relu");
    add_node(graph, fb_graph_add_program(graph, fb_graph_add_module(graph, fb_intern(graph, ""), (fb_module){0})), "sub");
    tear_down();
    names = fb_namespace_of(graph, &(fb_work){0});
    ck_assert_ptr_nonnull(names);
    fb_graph *copy = fb_graph_copy(graph, &(fb_work){0});
    fb_graph_erase_node(copy, fb_node_find(copy, FB_MAIN_PROGRAM, "add"));
    fb_graph_free(copy);
    ck_assert(fb_namespace_is_used(names, "add") && fb_namespace_is_used(names, "add_7"));
    ck_assert(!fb_namespace_is_used(names, "relu") && !fb_namespace_is_used(names, "sub"));
    expect("x", "x_1");
    expect("x_1", "x_2");
    expect("relu", "relu");
    expect("sub", "sub");
    expect("add", "add_6");
    expect("add", "add_8");
    tear_down();
    set_up();
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_reserving_does_not_count) {
    ck_assert(fb_namespace_reserve(names, "add_5"));
    expect("add", "add");
    expect("add", "add_1");
    for (int i = 2; i < 5; i++) fb_namespace_create(names, "add");
    expect("add", "add_6");
}
END_TEST

/* _Namespace.create_name as PyTorch 2.13 writes it, for candidates that are identifiers and no words of Python. */
typedef struct plain_namespace {
    char used[1024][24];
    size_t count;
    struct {
        char base[24];
        unsigned long number;
    } counts[64];
    size_t count_count;
} plain_namespace;

static unsigned long *plain_count(plain_namespace *plain, const char *base) {
    size_t i = 0;
    while (i < plain->count_count && strcmp(plain->counts[i].base, base) != 0) i++;
    if (i == plain->count_count) strcpy(plain->counts[plain->count_count++].base, base);
    return &plain->counts[i].number;
}

static bool plain_is_used(const plain_namespace *plain, const char *name) {
    size_t i = 0;
    while (i < plain->count && strcmp(plain->used[i], name) != 0) i++;
    return i < plain->count;
}

/* Cuts the number off, where there is one. */
static bool plain_base(const char *name, char base[24], unsigned long *number) {
    strcpy(base, name);
    char *bar = strrchr(base, '_');
    if (!bar || !bar[1] || strspn(bar + 1, "0123456789") != strlen(bar + 1)) return false;
    *number = strtoul(bar + 1, NULL, 10);
    *bar = '\0';
    return true;
}

static void plain_create(plain_namespace *plain, const char *candidate, char name[24]) {
    char base[24];
    unsigned long number;
    bool has_number = plain_base(candidate, base, &number);
    unsigned long *count = plain_count(plain, base);
    strcpy(name, candidate);
    if (!has_number || plain_is_used(plain, candidate)) number = *count;
    while (plain_is_used(plain, name)) snprintf(name, 24, "%.10s_%lu", base, ++number);
    *count = number;
    strcpy(plain->used[plain->count++], name);
}

START_TEST(test_against_a_plain_namespace) {
    static const char *const bases[] = {"a", "b", "a_3", "a_3_1"};
    static plain_namespace plain;
    for (unsigned seed = 0; seed < 300; seed++) {
        srand(seed);
        memset(&plain, 0, sizeof plain);
        fb_graph *graph = fb_graph_new();
        tear_down();
        for (int i = 0; i < 6; i++) {
            char name[24], base[24];
            unsigned long number;
            snprintf(name, sizeof name, i ? "%s_%d" : "%s", bases[rand() % 4], rand() % 9);
            if (plain_is_used(&plain, name)) continue;
            strcpy(plain.used[plain.count++], name);
            if (plain_base(name, base, &number)) *plain_count(&plain, base) = number;
            add_node(graph, FB_MAIN_PROGRAM, name);
        }
        names = fb_namespace_of(graph, &(fb_work){0});
        for (int i = 0; i < 120; i++) {
            static const char *const forms[] = {"%s", "%s", "%s_%d", "%s_0%d"};
            char candidate[24], expected[24];
            snprintf(candidate, sizeof candidate, forms[rand() % 4], bases[rand() % 4], rand() % 40);
            ck_assert_int_eq(fb_namespace_is_used(names, candidate), plain_is_used(&plain, candidate));
            plain_create(&plain, candidate, expected);
            expect(candidate, expected);
        }
        tear_down();
        set_up();
        fb_graph_free(graph);
    }
}
END_TEST

START_TEST(test_candidates) {
    ck_assert_str_eq(create_for(FB_CALL_FUNCTION, "torch.ops.aten.add.Tensor"), "add_tensor");
    ck_assert_str_eq(create_for(FB_CALL_FUNCTION, "torch.ops.higher_order.wrapMe"), "wrap_me");
    ck_assert_str_eq(create_for(FB_CALL_FUNCTION, "operator.add"), "add");
    ck_assert_str_eq(create_for(FB_CALL_FUNCTION, "f.__len__"), "__len__");
    ck_assert_str_eq(create_for(FB_CALL_METHOD, "__len__"), "len_1");
    ck_assert_str_eq(create_for(FB_CALL_MODULE, "encoder.0.queryProj"), "encoder_0_query_proj");
    ck_assert_str_eq(create_for(FB_CALL_MODULE, "__"), "_unnamed");
    ck_assert_str_eq(create_for(FB_PLACEHOLDER, "*args"), "_args");
    ck_assert_str_eq(create_for(FB_CALL_MODULE, "K"), "k"); /* U+212A */
}
END_TEST

/* With plain counting these take minutes: numbers used up to 200,000, and a count that is sent back to 0 again and again. */
START_TEST(test_hostile_sequences_are_not_quadratic) {
    char name[64] = "a";
    for (int i = 1; i <= 200000; i++) {
        snprintf(name, sizeof name, "a_%d", i);
        ck_assert(fb_namespace_adopt(names, name));
    }
    expect("a", "a");
    snprintf(name, sizeof name, "a_0");
    for (size_t zeros = 1; zeros < 18; zeros++) {
        name[2 + zeros] = '\0';
        name[1 + zeros] = '0';
        fb_namespace_create(names, name);
        for (int i = 0; i < 5000; i++) fb_namespace_create(names, "a");
    }
    expect("a", "a_285001");
}
END_TEST

START_TEST(test_words_and_identifiers) {
    ck_assert_int_eq(fb_python_word("import", 6), FB_WORD_KEYWORD);
    ck_assert_int_eq(fb_python_word("None", 4), FB_WORD_KEYWORD);
    ck_assert_int_eq(fb_python_word("zip", 3), FB_WORD_BUILTIN);
    ck_assert_int_eq(fb_python_word("ArithmeticError", 15), FB_WORD_BUILTIN);
    ck_assert_int_eq(fb_python_word("inf", 3), FB_WORD_REGISTERED);
    ck_assert_int_eq(fb_python_word("in", 2), FB_WORD_KEYWORD);
    ck_assert_int_eq(fb_python_word("i", 1), FB_WORD_FREE);
    ck_assert_int_eq(fb_python_word("", 0), FB_WORD_FREE);
    ck_assert(fb_python_is_identifier("größe_1", strlen("größe_1")));
    ck_assert(fb_python_is_identifier("日本", strlen("日本")));
    ck_assert(!fb_python_is_identifier("1a", 2));
    ck_assert(!fb_python_is_identifier("a-b", 3));
    ck_assert(!fb_python_is_identifier("", 0));
    ck_assert(!fb_python_is_identifier("a\xc0\x80", 3));
    ck_assert(fb_python_is_dotted("a.b.c", 5));
    ck_assert(!fb_python_is_dotted("a..c", 4));
    ck_assert(!fb_python_is_dotted("a.", 2));
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("namespace");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, test_recorded_sequences);
    tcase_add_test(tests, test_counts_follow_the_base);
    tcase_add_test(tests, test_illegal_names);
    tcase_add_test(tests, test_what_is_not_an_identifier);
    tcase_add_test(tests, test_long_numbers_belong_to_the_name);
    tcase_add_test(tests, test_adopting);
    tcase_add_test(tests, test_names_of_a_graph_are_used);
    tcase_add_test(tests, test_reserving_does_not_count);
    tcase_add_test(tests, test_against_a_plain_namespace);
    tcase_add_test(tests, test_candidates);
    tcase_add_test(tests, test_hostile_sequences_are_not_quadratic);
    tcase_add_test(tests, test_words_and_identifiers);
    return run_tests("namespace", tests);
}
