/* Canonical text as data: members by pointer, exchanged values, strings. */
#include "tests/unit/checks.h"
#include <stdlib.h>

#include "core/diff/text.h"
#include "tests/unit/run_tests.h"

static const char row_text[] = "{\"name\":\"a\\\\\",\"args\":[1,{\"$tuple\":[2,\"]\\\"\"]},null],"
                               "\"kwargs\":{\"a/~b\\\"\":1.5,\"\":{}},\"meta\":{},\"training\":false}";

START_TEST(test_members_by_pointer) {
    static const char *const places[][2] = {
        {"/name", "\"a\\\\\""}, {"/args", "[1,{\"$tuple\":[2,\"]\\\"\"]},null]"},
        {"/args/0", "1"},       {"/args/1", "{\"$tuple\":[2,\"]\\\"\"]}"},
        {"/args/2", "null"},    {"/args/3", NULL},
        {"/args/x", NULL},      {"/kwargs/a~1~0b\\\"", "1.5"},
        {"/kwargs/", "{}"},     {"/kwargs/a", NULL},
        {"/meta", "{}"},        {"/meta/shape", NULL},
        {"/training", "false"}, {"/training/x", NULL},
        {"/type", NULL},        {"", row_text},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        fb_span found = fb_span_at(fb_span_of(row_text), places[i][0]);
        ck_assert_msg(fb_span_equal(found, fb_span_of(places[i][1])), "%s", places[i][0]);
    }
}
END_TEST

START_TEST(test_exchanged_values) {
    static const struct {
        fb_change changes[3];
        const char *result; /* of {"args":[1,2],"kwargs":{"a":1,"b":2}}; NULL: a value found no place */
    } cases[] = {
        {{{"/args/1", {"7", 1}}}, "{\"args\":[1,7],\"kwargs\":{\"a\":1,\"b\":2}}"},
        {{{"/args", {"[]", 2}}}, "{\"args\":[],\"kwargs\":{\"a\":1,\"b\":2}}"},
        {{{"/kwargs/a", {NULL, 0}}}, "{\"args\":[1,2],\"kwargs\":{\"b\":2}}"},
        {{{"/kwargs/b", {NULL, 0}}, {"/kwargs/a", {NULL, 0}}}, "{\"args\":[1,2],\"kwargs\":{}}"},
        {{{"/kwargs/c~1d\\\"", {"3", 1}}, {"/args", {NULL, 0}}}, "{\"kwargs\":{\"a\":1,\"b\":2,\"c/d\\\"\":3}}"},
        {{{"/meta/x", {"1", 1}}, {"/type", {"2", 1}}, {"/meta/y", {"3", 1}}},
         "{\"args\":[1,2],\"kwargs\":{\"a\":1,\"b\":2},\"meta\":{\"x\":1,\"y\":3},\"type\":2}"},
        {{{"/meta/x", {NULL, 0}}}, "{\"args\":[1,2],\"kwargs\":{\"a\":1,\"b\":2}}"},
        {{{"/args/2", {"7", 1}}}, NULL},
        {{{"/args/x", {"7", 1}}}, NULL},
        {{{"/args/0/x", {"7", 1}}}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fb_buffer out = {0};
        size_t count = 0;
        while (count < 3 && cases[i].changes[count].pointer) count++;
        bool is_placed =
            fb_span_write_changed(fb_span_of("{\"args\":[1,2],\"kwargs\":{\"a\":1,\"b\":2}}"), cases[i].changes, count, &out);
        ck_assert_msg(is_placed == (cases[i].result != NULL), "case %zu", i);
        if (cases[i].result) ck_assert_str_eq(fb_buffer_text(&out), cases[i].result);
        fb_buffer_free(&out);
    }
}
END_TEST

START_TEST(test_any_order) {
    static const struct {
        const char *one, *other;
        bool is_alike;
    } cases[] = {
        {NULL, NULL, true},
        {NULL, "{}", false},
        {"{}", "[]", false},
        {"12", "21", false},
        {"[1,2]", "[2,1]", false},
        {"{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", true},
        {"{\"a\":1,\"b\":2}", "{\"b\":1,\"a\":2}", false},
        {"{\"a\":1,\"b\":2}", "{\"c\":2,\"a\":1}", false},
        {"{\"a\":1,\"b\":22}", "{\"b\":2,\"aa\":1}", false},
        {"{\"x\":0,\"a\":1,\"ab\":2}", "{\"x\":0,\"ab\":2,\"a\":1}", true},
        {"{\"a\":{\"c\":[{\"d\":1,\"e\":2}],\"f\":3},\"b\":4}", "{\"b\":4,\"a\":{\"f\":3,\"c\":[{\"e\":2,\"d\":1}]}}", true},
        {"{\"a\":{\"c\":1,\"f\":3},\"b\":4}", "{\"b\":4,\"a\":{\"f\":1,\"c\":3}}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool failed = false;
        ck_assert_msg(fb_span_alike(fb_span_of(cases[i].one), fb_span_of(cases[i].other), &failed) == cases[i].is_alike,
                      "%s and %s", cases[i].one, cases[i].other);
        ck_assert(!failed);
    }
}
END_TEST

/* As many members as an attacker likes. */
START_TEST(test_any_order_of_many) {
    enum { MEMBERS = 200000 };
    fb_buffer upwards = {0}, downwards = {0};
    for (int i = 0; i < MEMBERS; i++) {
        fb_buffer_printf(&upwards, "%c\"%d\":%d", i ? ',' : '{', i, i);
        fb_buffer_printf(&downwards, "%c\"%d\":%d", i ? ',' : '{', MEMBERS - 1 - i, MEMBERS - 1 - i);
    }
    fb_buffer_char(&upwards, '}');
    fb_buffer_char(&downwards, '}');
    bool failed = false;
    ck_assert(fb_span_alike((fb_span){upwards.data, upwards.size}, (fb_span){downwards.data, downwards.size}, &failed));
    ck_assert(!failed);
    fb_buffer_free(&upwards);
    fb_buffer_free(&downwards);
}
END_TEST

START_TEST(test_unquoted) {
    char *text = fb_span_unquote(fb_span_of("\"a\\\\\\\"\\u001f\\n\\t/\xc3\xa9\""));
    ck_assert_str_eq(text, "a\\\"\x1f\n\t/\xc3\xa9");
    free(text);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("canonical text");
    tcase_add_test(tests, test_members_by_pointer);
    tcase_add_test(tests, test_exchanged_values);
    tcase_add_test(tests, test_any_order);
    tcase_add_test(tests, test_any_order_of_many);
    tcase_add_test(tests, test_unquoted);
    return run_tests("canonical text", tests);
}
