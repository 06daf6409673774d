#include <string.h>

#include "server/cli/run.h"

void fb_print_facts(fb_cli *cli, const fb_fact *facts) {
    fb_screen_table table = {.columns = 2};
    for (; facts->name; facts++) {
        if (!facts->value || !*facts->value) continue;
        fb_table_cell(&table, "%s", facts->name);
        fb_table_cell(&table, "%s", facts->value);
    }
    fb_cli_table(cli, &table);
}

static void print_passes(fb_cli *cli, const json_t *passes) {
    static const char *const headings[] = {"PASS", "EXACTNESS", "REVERSIBLE", ">APPLIED", ">REFUSED"};
    fb_screen_table table = {.columns = 5, .headings = headings};
    const json_t *pass;
    size_t i;
    json_array_foreach(passes, i, pass) {
        fb_table_cell(&table, "%s", fb_text_of(pass, "name"));
        fb_table_cell(&table, "%s", fb_text_of(pass, "exactness"));
        fb_table_cell(&table, "%s", fb_yes_no(pass, "reversible"));
        fb_table_cell(&table, "%lld", (long long)json_integer_value(json_object_get(pass, "applied")));
        fb_table_cell(&table, "%zu", json_array_size(json_object_get(pass, "refused")));
    }
    fb_cli_table(cli, &table);
}

/* How far the graphs before and after each pass are apart, and what of it could not be told. */
static void print_validation(fb_cli *cli, const json_t *passes) {
    static const char *const headings[] = {"VALIDATED", ">COMPARED", ">NOT", ">ABSOLUTE", ">RELATIVE", ">ULP"};
    fb_screen_table table = {.columns = 6, .headings = headings};
    const json_t *pass;
    size_t i;
    json_array_foreach(passes, i, pass) {
        const json_t *found = json_object_get(pass, "validation"), *compared = json_object_get(found, "regions");
        size_t unknown = json_array_size(json_object_get(found, "not_evaluated"));
        if (!found) continue;
        if (!compared) compared = json_object_get(found, "outputs");
        fb_table_cell(&table, "%s", fb_text_of(pass, "name"));
        fb_table_cell(&table, "%lld", (long long)json_integer_value(compared));
        fb_table_cell(&table, "%zu", unknown);
        fb_table_deviation(&table, found, "max_absolute");
        fb_table_deviation(&table, found, "max_relative");
        fb_table_deviation(&table, found, "max_ulp");
    }
    if (table.count) putchar('\n');
    if (table.count) fb_cli_table(cli, &table);
}

/* "a, b, c", or the first ones of many: "a, b, … (31 in all)". */
static void join_names(const json_t *names, char *out, size_t space) {
    const json_t *name;
    size_t i, used = 0, room = space - sizeof ", … (4294967295 in all)";
    *out = '\0';
    json_array_foreach(names, i, name) {
        int added = snprintf(out + used, room - used, "%s%s", i ? ", " : "", json_string_value(name));
        if (added < 0 || used + (size_t)added >= room) {
            snprintf(out + used, space - used, "%s… (%zu in all)", i ? ", " : "", json_array_size(names));
            return;
        }
        used += (size_t)added;
    }
}

static void print_refusals(fb_cli *cli, const json_t *passes) {
    static const char *const headings[] = {"REFUSED BY", "REASON", "NODES", "WHY"};
    fb_screen_table table = {.columns = 4, .headings = headings};
    const json_t *pass, *refusal;
    size_t i, j;
    json_array_foreach(passes, i, pass) {
        json_array_foreach(json_object_get(pass, "refused"), j, refusal) {
            char nodes[240];
            join_names(json_object_get(refusal, "nodes"), nodes, sizeof nodes);
            fb_table_cell(&table, "%s", fb_text_of(pass, "name"));
            fb_table_cell(&table, "%s", fb_text_of(refusal, "reason"));
            fb_table_cell(&table, "%s", nodes);
            fb_table_cell(&table, "%s", fb_text_of(refusal, "detail"));
        }
    }
    if (table.count) putchar('\n');
    if (table.count) fb_cli_table(cli, &table);
}

static void join_labels(const json_t *run, char *out, size_t space) {
    json_t *labels = json_object_get(run, "labels"), *value;
    const char *key;
    size_t used = 0;
    *out = '\0';
    json_object_foreach(labels, key, value) {
        int added = snprintf(out + used, space - used, "%s%s=%s", used ? ", " : "", key, json_string_value(value));
        if (added < 0 || used + (size_t)added >= space) return;
        used += (size_t)added;
    }
}

void fb_print_run(fb_cli *cli, const json_t *run) {
    const char *source = fb_text_of(run, "source"), *result = fb_text_of(run, "result"), *id = fb_text_of(run, "id");
    bool is_undo = strcmp(fb_text_of(run, "kind"), "reverse") == 0 || strcmp(fb_text_of(run, "kind"), "rollback") == 0;
    const json_t *passes = json_object_get(run, "passes");
    char labels[400];
    join_labels(run, labels, sizeof labels);
    fb_print_facts(cli, (const fb_fact[]){{"run", *id ? id : "none: nothing was stored"},
                                          {"kind", fb_text_of(run, "kind")},
                                          {"of run", fb_text_of(run, "of_run")},
                                          {"source", source},
                                          {"result", strcmp(source, result) ? result : "the source, unchanged"},
                                          {"exact", is_undo ? fb_yes_no(run, "exact") : ""},
                                          {"created", fb_told_time(fb_text_of(run, "created")).text},
                                          {"note", fb_text_of(run, "note")},
                                          {"labels", labels},
                                          {0}});
    fb_print_binding(cli, json_object_get(run, "weights"));
    putchar('\n');
    print_passes(cli, passes);
    print_validation(cli, passes);
    print_refusals(cli, passes);
}
