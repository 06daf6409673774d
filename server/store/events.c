#include "server/store/events.h"

#include <string.h>

#include "core/json/json.h"
#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/models.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"

/* ---- their data ---------------------------------------------------------------------------------------------------------- */

void fb_alias_entry_write(const fb_store_alias_entry *entry, bool with_names, fb_buffer *out) {
    fb_buffer_char(out, '{');
    fb_put_int(out, "id", entry->number);
    if (with_names) {
        fb_put_text(out, "model", entry->model);
        fb_put_text(out, "alias", entry->alias);
    }
    fb_put_time(out, "when", entry->at);
    fb_put_text_or_null(out, "who", entry->who);
    fb_put_text_or_null(out, "why", entry->why);
    fb_put_text(out, "action", entry->action);
    fb_put_text_or_null(out, "from", entry->from);
    fb_put_text_or_null(out, "to", entry->to);
    if (entry->from_graph) fb_put_text(out, "from_graph", entry->from_graph);
    if (entry->to_graph) fb_put_text(out, "to_graph", entry->to_graph);
    fb_put_text_or_null(out, "run", entry->run);
    fb_buffer_char(out, '}');
}

void fb_version_event_write(const fb_store_version *version, fb_buffer *out) {
    fb_buffer_char(out, '{');
    fb_put_text(out, "model", version->model);
    fb_put_text(out, "version", version->name);
    fb_put_text(out, "graph", version->graph);
    fb_put_text_or_null(out, "run", version->run);
    fb_put_text_or_null(out, "note", version->note);
    fb_put_time(out, "created", version->created);
    fb_buffer_char(out, '}');
}

void fb_run_passes_write(const fb_store_run *run, bool is_identified, const char *refused, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < run->pass_count; i++) {
        const fb_store_pass *pass = &run->passes[i];
        fb_put_comma(out);
        fb_buffer_char(out, '{');
        fb_put_text(out, "name", pass->name);
        if (pass->preset) fb_put_text(out, "preset", pass->preset);
        if (is_identified) {
            fb_put_int(out, "version", pass->version);
            fb_put_text(out, "signature", pass->signature);
        }
        if (refused) {
            fb_put_int(out, "applied", pass->applied);
            fb_put_int(out, refused, pass->refused);
        }
        fb_buffer_char(out, '}');
    }
    fb_buffer_char(out, ']');
}

void fb_run_event_write(const fb_store_run *run, fb_buffer *out) {
    fb_buffer_char(out, '{');
    fb_put_text(out, "id", run->id);
    fb_put_text(out, "kind", run->kind);
    fb_put_text(out, "source", run->source);
    fb_put_text(out, "result", run->result);
    fb_put_text_or_null(out, "of_run", run->of_run);
    if (run->requested) {
        fb_put_name(out, "requested");
        fb_buffer_string(out, run->requested);
    }
    fb_put_name(out, "passes");
    fb_run_passes_write(run, false, "refused", out);
    fb_put_text_or_null(out, "note", run->note);
    fb_put_time(out, "created", run->created);
    fb_buffer_char(out, '}');
}

static fb_status read_event(fb_connection *connection, fb_store_memory **memory, fb_store_event *out, fb_error *error) {
    fb_buffer data = {0};
    fb_store_alias_entry entry = {0};
    fb_store_version version = {0};
    fb_store_run run = {0};
    fb_status status = FB_OK;
    switch (out->kind) {
    case FB_EVENT_ALIAS:
        status = fb_read_alias_entry(connection, out->number, memory, &entry, error);
        if (!status) fb_alias_entry_write(&entry, true, &data);
        out->model = entry.model;
        out->alias = entry.alias;
        break;
    case FB_EVENT_VERSION:
        status = fb_read_version(connection, out->number, memory, &version, error);
        if (!status) fb_version_event_write(&version, &data);
        out->model = version.model;
        break;
    default:
        status = fb_read_run(connection, out->number, false, memory, &run, error);
        if (!status) fb_run_event_write(&run, &data);
    }
    if (!status) {
        const char *text = fb_buffer_text(&data);
        out->data = text ? fb_memory_text(memory, text) : NULL;
        if (!out->data) status = fb_fail_memory(error);
    }
    fb_buffer_free(&data);
    return status;
}

/* ---- which ones ---------------------------------------------------------------------------------------------------------- */

typedef struct found_event {
    int64_t number, at;
} found_event;

/* The joins go from the events to their models (CROSS), so that they are in the order of the numbers and may stop early. */
static const struct {
    const char *find, *table, *key;
} kinds[FB_EVENT_KINDS] = {
    [FB_EVENT_RUN] = {"SELECT key, created FROM runs WHERE key > ?1 ORDER BY key LIMIT ?2", "runs", "key"},
    [FB_EVENT_VERSION] = {"SELECT v.key, v.created FROM versions v CROSS JOIN models m WHERE m.key = v.model AND v.key > ?1 "
                          "AND (m.name = ?3 OR ?3 IS NULL) ORDER BY v.key LIMIT ?2",
                          "versions", "key"},
    [FB_EVENT_ALIAS] = {"SELECT e.number, e.at FROM alias_entries e CROSS JOIN aliases a CROSS JOIN models m "
                        "WHERE a.key = e.alias AND m.key = a.model AND e.number > ?1 AND (m.name = ?3 OR ?3 IS NULL) "
                        "AND (a.name = ?4 OR ?4 IS NULL) ORDER BY e.number LIMIT ?2",
                        "alias_entries", "number"},
};

static fb_status find_events(fb_connection *connection, fb_event_kind kind, const fb_event_wish *wish, int64_t after,
                             size_t limit, found_event *list, size_t *count, fb_error *error) {
    fb_query query = fb_query_begin(connection, kinds[kind].find, error);
    fb_bind_int(&query, after);
    fb_bind_int(&query, (int64_t)limit);
    if (kind != FB_EVENT_RUN) fb_bind_text(&query, wish->model);
    if (kind == FB_EVENT_ALIAS) fb_bind_text(&query, wish->alias);
    while (*count < limit && fb_query_row(&query))
        list[(*count)++] = (found_event){.number = fb_column_int(&query, 0), .at = fb_column_int(&query, 1)};
    return fb_query_end(&query);
}

static fb_status find_last(fb_connection *connection, fb_event_place *place, fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "SELECT (SELECT max(key) FROM runs), (SELECT max(key) FROM versions), "
                                    "(SELECT max(number) FROM alias_entries)",
                                    error);
    if (fb_query_row(&query))
        for (int kind = 0; kind < FB_EVENT_KINDS; kind++) place->of[kind] = fb_column_int(&query, kind); /* 0 when it is NULL */
    return fb_query_end(&query);
}

/* The first of the events that were found. */
static fb_event_kind find_first(found_event *const found[FB_EVENT_KINDS], const size_t counts[FB_EVENT_KINDS],
                                const size_t taken[FB_EVENT_KINDS]) {
    fb_event_kind first = FB_EVENT_KINDS;
    for (fb_event_kind kind = 0; kind < FB_EVENT_KINDS; kind++) {
        if (taken[kind] == counts[kind]) continue;
        if (first == FB_EVENT_KINDS || found[kind][taken[kind]].at < found[first][taken[first]].at) first = kind;
    }
    return first;
}

static fb_status read_events(fb_connection *connection, const fb_event_wish *wish, const fb_event_place *place, size_t limit,
                             fb_store_events *out, fb_error *error) {
    found_event *found[FB_EVENT_KINDS];
    size_t counts[FB_EVENT_KINDS] = {0}, taken[FB_EVENT_KINDS] = {0};
    fb_event_place last = {0};
    fb_status status = find_last(connection, &last, error);
    for (fb_event_kind kind = 0; kind < FB_EVENT_KINDS && !status; kind++) {
        found[kind] = fb_memory_take(&out->memory, limit * sizeof **found);
        if (!found[kind]) return fb_fail_memory(error);
        if (wish->kinds & 1U << kind)
            status = find_events(connection, kind, wish, place->of[kind], limit, found[kind], &counts[kind], error);
    }
    out->seen = *place;
    while (out->count < limit && !status) {
        fb_event_kind kind = find_first(found, counts, taken);
        if (kind == FB_EVENT_KINDS) break;
        fb_store_event *event = &out->items[out->count++];
        *event = (fb_store_event){.kind = kind, .number = found[kind][taken[kind]++].number};
        out->seen.of[kind] = event->number;
        status = read_event(connection, &out->memory, event, error);
    }
    for (fb_event_kind kind = 0; kind < FB_EVENT_KINDS; kind++)
        if (taken[kind] == counts[kind] && counts[kind] < limit && last.of[kind] > out->seen.of[kind])
            out->seen.of[kind] = last.of[kind];
    return status;
}

fb_status fb_store_events_after(fb_store *store, const fb_event_wish *wish, const fb_event_place *place, size_t limit,
                                fb_store_events *out, fb_error *error) {
    if (!limit) limit = FB_PAGE_DEFAULT;
    if (limit > FB_PAGE_MAX) limit = FB_PAGE_MAX;
    fb_connection *connection = NULL;
    fb_store_events events = {0};
    events.items = fb_memory_take(&events.memory, limit * sizeof *events.items);
    fb_status status = events.items ? fb_readers_take(&store->readers, &connection, error) : fb_fail_memory(error);
    if (!status) status = read_events(connection, wish, place, limit, &events, error);
    if (connection) fb_readers_give_back(&store->readers, connection);
    if (status) FB_STORE_FREE(&events);
    else *out = events;
    return status;
}

fb_status fb_store_last_event(fb_store *store, fb_event_place *place, fb_event_place *highest, fb_error *error) {
    fb_connection *connection = NULL;
    fb_event_place last = {0}, given = {0};
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    status = find_last(connection, &last, error);
    for (fb_event_kind kind = 0; kind < FB_EVENT_KINDS && !status; kind++) {
        status = fb_read_counter(connection, kinds[kind].table, kinds[kind].key, &given.of[kind], error);
        if (given.of[kind] < last.of[kind]) given.of[kind] = last.of[kind];
    }
    fb_readers_give_back(&store->readers, connection);
    if (status) return status;
    *place = last;
    *highest = given;
    return FB_OK;
}
