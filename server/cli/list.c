#include "server/cli/cli.h"

#include <string.h>

#define PAGE_MAX 1000

/* ---- pages -------------------------------------------------------------------------------------------------------------- */

/* One page, added to the items. `*token` is the next page's, the caller's reference, NULL after the last. */
static int get_page(fb_cli *cli, const fb_address *base, size_t wanted, json_t *items, json_t **token) {
    char limit[32];
    json_t *page;
    fb_address address = {.has_query = base->has_query, .text.failed = base->text.failed};
    fb_buffer_append(&address.text, base->text.data, base->text.size);
    snprintf(limit, sizeof limit, "%zu", wanted);
    fb_address_query(&address, "limit", limit);
    fb_address_query(&address, "page_token", json_string_value(*token));
    int result = fb_cli_get(cli, &address, &page, NULL);
    if (result) return result;
    json_decref(*token);
    *token = json_incref(json_object_get(page, "next_page_token"));
    json_t *more = json_object_get(page, "items");
    if (!json_is_array(more)) result = fb_complain(FB_EXIT_FAILED, "the answer is not a list: is this foldback?");
    else if (json_array_extend(items, more)) result = fb_cli_no_memory();
    json_decref(page);
    return result;
}

int fb_list_get(fb_cli *cli, fb_address *address, fb_list *out) {
    size_t limit = cli->values.limit ? cli->values.limit : SIZE_MAX;
    json_t *token = NULL;
    int result = FB_EXIT_DONE;
    out->items = json_array();
    do {
        size_t left = limit - json_array_size(out->items);
        result = get_page(cli, address, left < PAGE_MAX ? left : PAGE_MAX, out->items, &token);
    } while (!result && token && json_array_size(out->items) < limit);
    out->has_more = token != NULL;
    json_decref(token);
    fb_buffer_free(&address->text);
    if (result) json_decref(out->items);
    return result;
}

/* ---- printing ----------------------------------------------------------------------------------------------------------- */

void fb_list_print_table(fb_cli *cli, const json_t *items, const char *const *headings, size_t columns, fb_list_row *row) {
    fb_screen_table table = {.columns = columns, .headings = headings};
    const json_t *item;
    size_t i;
    json_array_foreach(items, i, item) row(item, &table);
    fb_cli_table(cli, &table);
}

int fb_list_print(fb_cli *cli, fb_list *list, const char *const *headings, size_t columns, fb_list_row *row) {
    int result = FB_EXIT_DONE;
    if (cli->is_json) {
        json_t *answer = json_pack("{sO}", "items", list->items);
        result = fb_cli_print_json(answer);
        json_decref(answer);
    } else {
        fb_list_print_table(cli, list->items, headings, columns, row);
    }
    if (list->has_more && !result) fb_complain(0, "there are more than %zu; see --limit", json_array_size(list->items));
    json_decref(list->items);
    return result;
}

int fb_list_show(fb_cli *cli, fb_address *address, const char *const *headings, size_t columns, fb_list_row *row) {
    fb_list list;
    int result = fb_list_get(cli, address, &list);
    return result ? result : fb_list_print(cli, &list, headings, columns, row);
}

/* ---- cells -------------------------------------------------------------------------------------------------------------- */

void fb_table_short_id(fb_screen_table *table, const char *id) {
    size_t shown = strlen("sha256:") + 12;
    fb_table_cell(table, "%.*s%s", (int)shown, id, strlen(id) > shown ? "…" : "");
}

void fb_table_text(fb_screen_table *table, const json_t *object, const char *name) {
    fb_table_cell(table, "%s", fb_text_of(object, name));
}

void fb_table_number(fb_screen_table *table, const json_t *object, const char *name) {
    fb_table_cell(table, "%lld", (long long)json_integer_value(json_object_get(object, name)));
}

void fb_table_time(fb_screen_table *table, const json_t *object, const char *name) {
    fb_table_cell(table, "%s", fb_relative_time(fb_text_of(object, name)).text);
}

void fb_table_size(fb_screen_table *table, const json_t *object, const char *name) {
    fb_table_cell(table, "%s", fb_readable_size((uint64_t)json_integer_value(json_object_get(object, name))).text);
}

const char *const fb_run_headings[FB_RUN_COLUMNS] = {"RUN", "KIND", "CREATED", "GRAPH", "MODEL", ">NODES", "PASSES"};

void fb_run_requested(const json_t *run, char *out, size_t space) {
    const json_t *requested = json_object_get(run, "requested"), *one;
    size_t i, used = 0;
    *out = '\0';
    json_array_foreach(requested ? requested : json_object_get(run, "passes"), i, one) {
        const char *name = json_is_string(one) ? json_string_value(one) : fb_text_of(one, "name");
        int added = snprintf(out + used, space - used, "%s%s", i ? ", " : "", name);
        used += added > 0 ? (size_t)added : 0;
        if (used >= space) return;
    }
}

long long fb_run_nodes(const json_t *run, const char *when) {
    return (long long)json_integer_value(json_object_get(json_object_get(run, "nodes"), when));
}

void fb_run_row(const json_t *run, fb_screen_table *table) {
    char names[200];
    fb_run_requested(run, names, sizeof names);
    long long before = fb_run_nodes(run, "before"), after = fb_run_nodes(run, "after");
    fb_table_text(table, run, "id");
    fb_table_text(table, run, "kind");
    fb_table_time(table, run, "created");
    fb_table_text(table, run, "name");
    bool has_model = json_object_get(run, "model") != NULL;
    fb_table_cell(table, "%s%s%s", fb_text_of(run, "model"), has_model ? ":" : "", fb_text_of(run, "version"));
    if (before == after) fb_table_cell(table, "%lld", after);
    else fb_table_cell(table, "%lld (%+lld)", after, after - before);
    fb_table_cell(table, "%s", names);
}

void fb_print_facts(fb_cli *cli, const fb_fact *facts) {
    fb_screen_table table = {.columns = 2};
    for (; facts->name; facts++) {
        if (!facts->value || !*facts->value) continue;
        fb_table_cell(&table, "%s", facts->name);
        fb_table_cell(&table, "%s", facts->value);
    }
    fb_cli_table(cli, &table);
}
