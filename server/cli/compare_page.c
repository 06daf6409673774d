/* The result of foldback compare as a page of HTML that needs nothing else. */
#include <string.h>

#include "server/cli/cli.h"

static const char style[] =
    "<style>:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 "
    "1rem}"
    "div{overflow-x:auto}table{border-collapse:collapse}th,td{padding:.3rem .7rem;text-align:left;border-bottom:1px solid "
    "#8886}"
    "td.number{text-align:right;font-variant-numeric:tabular-nums}code{overflow-wrap:anywhere}"
    ".differs{color:light-dark(#b3122a,#ff7b7b);font-weight:600}</style>";

static const char *meaning_of(const char *verdict) {
    static const char *const meanings[][2] = {
        {"same", "The same operators on the same bytes, but for names and order. This is a proof."},
        {"moved", "Equal after movements that copy bytes only. This is a proof."},
        {"evaluated", "Within the tolerance on all samples. This is not a proof."},
        {"not-evaluated", "Of some output nothing is known."},
        {"differs", "An output differs on inputs that can be drawn again."}};
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (!strcmp(meanings[i][0], verdict)) return meanings[i][1];
    return "";
}

static void put_number(fb_buffer *page, const json_t *value, int digits) {
    if (json_is_number(value)) fb_buffer_printf(page, "%.*g", digits, json_number_value(value));
    else fb_buffer_xml_text(page, json_is_string(value) ? json_string_value(value) : "");
}

static void put_cell(fb_buffer *page, const char *text) {
    fb_buffer_string(page, "<td>");
    fb_buffer_xml_text(page, text);
    fb_buffer_string(page, "</td>");
}

static void put_number_cell(fb_buffer *page, const json_t *object, const char *name) {
    fb_buffer_string(page, "<td class=\"number\">");
    put_number(page, json_object_get(object, name), 3);
    fb_buffer_string(page, "</td>");
}

static void put_why(fb_buffer *page, const json_t *one) {
    const json_t *example = json_object_get(one, "counterexample"), *index = json_object_get(example, "index");
    const char *detail = fb_text_of(one, "detail");
    fb_buffer_string(page, "<td>");
    fb_buffer_xml_text(page, *detail ? detail : fb_text_of(one, "reason"));
    if (json_is_object(example)) {
        if (*detail || *fb_text_of(one, "reason")) fb_buffer_string(page, "; ");
        fb_buffer_printf(page, "seed %lld, sample %lld", (long long)json_integer_value(json_object_get(example, "seed")),
                         (long long)json_integer_value(json_object_get(example, "sample")));
    }
    if (json_is_integer(index)) {
        fb_buffer_printf(page, ", element %lld: ", (long long)json_integer_value(index));
        put_number(page, json_object_get(example, "a"), 9);
        fb_buffer_string(page, " in A, ");
        put_number(page, json_object_get(example, "b"), 9);
        fb_buffer_string(page, " in B");
    }
    fb_buffer_string(page, "</td>");
}

static void put_rows(fb_buffer *page, const json_t *items) {
    const json_t *one;
    size_t i;
    json_array_foreach(items, i, one) {
        const char *verdict = fb_text_of(one, "verdict");
        fb_buffer_string(page, "<tr>");
        put_cell(page, fb_text_of(one, "name"));
        put_cell(page, fb_text_of(one, "dtype"));
        fb_buffer_printf(page, "<td class=\"%s\">%s</td>", verdict, verdict);
        put_number_cell(page, one, "samples");
        put_number_cell(page, one, "max_absolute");
        put_number_cell(page, one, "max_relative");
        put_number_cell(page, one, "max_ulp");
        put_number_cell(page, json_object_get(one, "a_against_float64"), "max_absolute");
        put_number_cell(page, json_object_get(one, "b_against_float64"), "max_absolute");
        put_why(page, one);
        fb_buffer_string(page, "</tr>\n");
    }
}

static void put_graph(fb_buffer *page, char letter, const char *name) {
    fb_buffer_printf(page, "%c is <code>", letter);
    fb_buffer_xml_text(page, name);
    fb_buffer_string(page, "</code>. ");
}

int fb_write_comparison_page(const char *path, const char *a, const char *b, const json_t *answer) {
    const char *verdict = fb_text_of(answer, "verdict"), *first = fb_text_of(json_object_get(answer, "first_node"), "name");
    fb_buffer page = {0};
    fb_buffer_string(&page, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                            "<meta name=\"viewport\" content=\"width=device-width\"><title>foldback compare</title>");
    fb_buffer_string(&page, style);
    fb_buffer_printf(&page, "</head><body>\n<h1 class=\"%s\">%s</h1>\n<p>%s ", verdict, verdict, meaning_of(verdict));
    put_graph(&page, 'A', a);
    put_graph(&page, 'B', b);
    fb_buffer_printf(&page, "Drawn with the seed %lld.</p>\n", (long long)json_integer_value(json_object_get(answer, "seed")));
    fb_buffer_string(&page, "<div><table><thead><tr><th>Output</th><th>Dtype</th><th>Verdict</th><th>Samples</th>"
                            "<th>Largest error</th><th>Relative</th><th>ULP</th><th>A from float64</th><th>B from float64</th>"
                            "<th>Why</th></tr></thead><tbody>\n");
    put_rows(&page, json_object_get(answer, "outputs"));
    put_rows(&page, json_object_get(answer, "inputs"));
    fb_buffer_string(&page, "</tbody></table></div>\n");
    if (*first) {
        fb_buffer_string(&page, "<p>The first node that differs: <code>");
        fb_buffer_xml_text(&page, first);
        fb_buffer_string(&page, "</code>.</p>\n");
    }
    fb_buffer_string(&page, "</body></html>\n");
    int result = page.failed ? fb_cli_no_memory() : fb_file_write(path, page.data, page.size);
    fb_buffer_free(&page);
    return result;
}
