/* Changing aliases. Every change is one write: it reads the alias, checks the caller's condition, decides what the next entry
 * is, and appends it.
 *
 * Each entry keeps a parent, the entry to which a rollback returns: for a deployment the entry before, and for a rollback the
 * parent of the entry that it returned to. So rolling back again and again goes down a stack and never forward again. It skips
 * what was taken back: after 1, 2 and 1 again, whoever rolls back next does not bring 2. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"
#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/models.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "server/store/webhooks.h"

/* The alias as the write finds it. Keys and numbers are 0 where there is none. */
typedef struct alias_state {
    int64_t model, key;
    int64_t version;      /* 0: it does not exist, or was deleted */
    int64_t last, parent; /* the last entry, and that one's parent */
} alias_state;

/* The entry to append; without an action none. */
typedef struct next_entry {
    const char *action;
    int64_t version, parent;
} next_entry;

typedef struct alias_write alias_write;
typedef fb_status decide(fb_connection *connection, alias_write *write, const alias_state *state, fb_totals *added,
                         next_entry *next, fb_error *error);

struct alias_write {
    fb_store *store;
    const fb_store_alias_change *change;
    decide *decide;
    const char *version; /* to which, or NULL */
    const fb_store_partial_rollback *partial;
    fb_packed_run run; /* of `partial` */
    const fb_store_answer *answer;
    int64_t at;
    fb_store_alias_entry entry; /* the last one afterwards */
    bool is_added;
};

/* ---- the alias before ---- */

static fb_status find_last_entry(fb_connection *connection, alias_state *state, fb_error *error) {
    fb_query query = fb_query_begin(
        connection, "SELECT number, parent FROM alias_entries WHERE alias = ? ORDER BY number DESC LIMIT 1", error);
    fb_bind_int(&query, state->key);
    if (fb_query_row(&query)) {
        state->last = fb_column_int(&query, 0);
        state->parent = fb_column_int(&query, 1);
    }
    return fb_query_end(&query);
}

static fb_status find_alias(fb_connection *connection, const fb_store_alias_change *change, alias_state *state,
                            fb_error *error) {
    fb_status status = fb_need_model(connection, change->model, &state->model, error);
    if (status) return status;
    fb_query query = fb_query_begin(connection, "SELECT key, version FROM aliases WHERE model = ? AND name = ?", error);
    fb_bind_int(&query, state->model);
    fb_bind_text(&query, change->alias);
    if (fb_query_row(&query)) {
        state->key = fb_column_int(&query, 0);
        state->version = fb_column_int(&query, 1);
    }
    status = fb_query_end(&query);
    return status || !state->key ? status : find_last_entry(connection, state, error);
}

static fb_status check_condition(const fb_store_alias_change *change, const alias_state *state, fb_error *error) {
    if (change->condition == FB_ALIAS_IS_FREE)
        return state->version ? fb_fail(error, FB_CONFLICT, "alias-exists", NULL, "model %s has an alias %s already",
                                        change->model, change->alias)
                              : FB_OK;
    if (!state->version)
        return fb_fail(error, FB_CONFLICT, "alias-moved", NULL, "model %s has no alias %s", change->model, change->alias);
    if (change->condition == FB_ALIAS_IS_AT && state->last != change->expected)
        return fb_fail(error, FB_CONFLICT, "alias-moved", NULL,
                       "alias %s of model %s has changed since: its ETag is \"%" PRId64 "\" now", change->alias, change->model,
                       state->last);
    return FB_OK;
}

/* ---- the entry after ---- */

static fb_status add_alias(fb_connection *connection, const alias_write *write, alias_state *state, fb_error *error) {
    if (state->key) return FB_OK;
    fb_query insert = fb_query_begin(connection, "INSERT INTO aliases (model, name) VALUES (?, ?) RETURNING key", error);
    fb_bind_int(&insert, state->model);
    fb_bind_text(&insert, write->change->alias);
    return fb_query_insert(&insert, &state->key);
}

static fb_status insert_entry(fb_connection *connection, const alias_write *write, alias_state *state, const next_entry *next,
                              fb_error *error) {
    fb_query insert = fb_query_begin(
        connection,
        "INSERT INTO alias_entries (alias, previous, parent, at, action, who, why, version, version_name, graph, run) "
        "SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, v.key, v.name, g.id, r.id FROM (SELECT CAST(?8 AS BIGINT) AS wanted) given "
        "LEFT JOIN versions v ON v.key = wanted LEFT JOIN graphs g ON g.key = v.graph LEFT JOIN runs r ON r.key = v.run "
        "RETURNING number",
        error);
    fb_bind_int(&insert, state->key);
    fb_bind_key(&insert, state->last);
    fb_bind_key(&insert, next->parent);
    fb_bind_int(&insert, write->at);
    fb_bind_text(&insert, next->action);
    fb_bind_text(&insert, write->change->who);
    fb_bind_text(&insert, write->change->why);
    fb_bind_key(&insert, next->version);
    return fb_query_insert(&insert, &state->last);
}

static fb_status append(fb_connection *connection, const alias_write *write, alias_state *state, const next_entry *next,
                        fb_error *error) {
    fb_status status = add_alias(connection, write, state, error);
    if (!status) status = insert_entry(connection, write, state, next, error);
    if (status) return status;
    fb_query update = fb_query_begin(connection, "UPDATE aliases SET version = ? WHERE key = ?", error);
    fb_bind_key(&update, next->version);
    fb_bind_int(&update, state->key);
    return fb_query_run(&update);
}

static fb_status audit_entry(fb_connection *connection, const alias_write *write, fb_error *error) {
    const fb_store_alias_entry *entry = &write->entry;
    char action[32], object[2 * FB_NAME_MAX + 2];
    snprintf(action, sizeof action, "alias-%s", entry->action);
    snprintf(object, sizeof object, "%s@%s", entry->model, entry->alias);
    return fb_write_audit(connection, &write->change->by, write->at, action, object, entry->to ? entry->to : "deleted", error);
}

/* The answer names the entry, whose number is known only here. */
static fb_status write_answer(fb_connection *connection, const alias_write *write, fb_error *error) {
    if (!write->answer) return FB_OK;
    char number[24];
    fb_store_answer answer = *write->answer;
    snprintf(number, sizeof number, "%" PRId64, write->entry.number);
    answer.body = number;
    answer.body_size = strlen(number);
    fb_packed_answer packed = {0};
    fb_status status = fb_pack_answer(write->store, &answer, &packed, error);
    if (!status) status = fb_write_answer(connection, &packed, error);
    fb_packed_answer_free(&packed);
    return status;
}

static fb_status write_change(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    alias_write *write = argument;
    alias_state state = {0};
    next_entry next = {0};
    FB_STORE_FREE(&write->entry);
    fb_status status = find_alias(connection, write->change, &state, error);
    if (!status) status = check_condition(write->change, &state, error);
    if (!status) status = write->decide(connection, write, &state, added, &next, error);
    write->is_added = next.action != NULL;
    if (!status && write->is_added) status = append(connection, write, &state, &next, error);
    if (!status) status = fb_read_alias_entry(connection, state.last, &write->entry.memory, &write->entry, error);
    if (!status && write->is_added) status = audit_entry(connection, write, error);
    if (!status && write->is_added) status = fb_tell_alias(connection, &write->entry, error);
    return status ? status : write_answer(connection, write, error);
}

static fb_status decide_delete(fb_connection *connection, alias_write *write, const alias_state *state, fb_totals *added,
                               next_entry *next, fb_error *error) {
    (void)connection, (void)write, (void)state, (void)added, (void)error;
    *next = (next_entry){.action = "delete"};
    return FB_OK;
}

/* Does the write; `out` may be NULL. */
static fb_status change_alias(alias_write *write, fb_store_alias_entry *out, fb_error *error) {
    fb_store *store = write->store;
    write->at = store->config.now_ms();
    fb_status status = write->decide == decide_delete ? fb_writer_make_room(&store->writer, write_change, NULL, write, error)
                                                      : fb_writer_run(&store->writer, write_change, write, error);
    if (!status && write->is_added)
        fb_store_tell(store, write->partial ? FB_RUN_FINISHED | FB_VERSION_CREATED | FB_ALIAS_CHANGED : FB_ALIAS_CHANGED);
    if (!status && out) *out = write->entry;
    else FB_STORE_FREE(&write->entry);
    return status;
}

/* ---- set and delete ---- */

static fb_status need_version(fb_connection *connection, const alias_write *write, const alias_state *state, int64_t *key,
                              fb_error *error) {
    fb_status status = fb_find_version(connection, state->model, write->version, key, error);
    return !status && !*key ? fb_fail_unknown_version(error, write->change->model, write->version) : status;
}

static fb_status decide_set(fb_connection *connection, alias_write *write, const alias_state *state, fb_totals *added,
                            next_entry *next, fb_error *error) {
    (void)added;
    int64_t version = 0;
    fb_status status = need_version(connection, write, state, &version, error);
    if (status || version == state->version) return status;
    if (state->version) *next = (next_entry){.action = "deploy", .version = version, .parent = state->last};
    else *next = (next_entry){.action = "create", .version = version};
    return FB_OK;
}

fb_status fb_store_set_alias(fb_store *store, const fb_store_alias_change *change, const char *version,
                             fb_store_alias_entry *out, fb_error *error) {
    alias_write write = {.store = store, .change = change, .decide = decide_set, .version = version};
    return change_alias(&write, out, error);
}

fb_status fb_store_delete_alias(fb_store *store, const fb_store_alias_change *change, fb_error *error) {
    alias_write write = {.store = store, .change = change, .decide = decide_delete};
    return change_alias(&write, NULL, error);
}

/* ---- roll back ---- */

/* The entry's parent, and its version: 0 when that has been deleted. (What the alias had before it was itself deleted may be.)
 */
static fb_status read_step(fb_connection *connection, int64_t number, int64_t *version, int64_t *parent, fb_error *error) {
    fb_query query = fb_query_begin(
        connection, "SELECT v.key, e.parent FROM alias_entries e LEFT JOIN versions v ON v.key = e.version WHERE e.number = ?",
        error);
    fb_bind_int(&query, number);
    if (fb_query_row(&query)) {
        *version = fb_column_int(&query, 0);
        *parent = fb_column_int(&query, 1);
    }
    return fb_query_end(&query);
}

/* Versions that the alias was taken back from since it had them last: it went back from one of them, or to a version that it
 * had had before them. It goes back by a rollback down the stack, or by deploying one that it had had before the present one.
 * (To take passes out is to put a new version on top.) The last one left comes first. */
typedef struct withdrawn {
    fb_map keys;        /* -> 1 */
    const char **names; /* of the first NAMES_MAX; or NULL: they are not needed */
    size_t count;
} withdrawn;

#define NAMES_MAX 1000

/* The moves back, the last one first. */
static const char moves_back[] =
    "WITH had AS (SELECT version, min(number) AS first FROM alias_entries WHERE alias = ?1 AND version IS NOT NULL "
    "GROUP BY version) "
    "SELECT n.number, n.previous, had.first FROM alias_entries n JOIN alias_entries p ON p.number = n.previous "
    "JOIN had ON had.version = n.version LEFT JOIN had was ON was.version = p.version WHERE n.alias = ?1 AND "
    "CASE n.action WHEN 'rollback' THEN coalesce(n.parent, 0) < coalesce(p.parent, 0) ELSE had.first < was.first END "
    "ORDER BY n.number DESC";

/* The versions that the alias had, the last one first, with the numbers of their first and last entry. */
static const char versions_had[] =
    "SELECT v.key, v.name, had.first, had.last FROM (SELECT version, min(number) AS first, max(number) AS last "
    "FROM alias_entries WHERE alias = ?1 AND version IS NOT NULL GROUP BY version) had JOIN versions v ON v.key = had.version "
    "ORDER BY had.last DESC";

typedef struct move_back {
    int64_t number, previous, first; /* the entry, the one before it, and the first entry of the version that it went back to */
} move_back;

static fb_status read_moves_back(fb_connection *connection, const alias_state *state, fb_buffer *out, fb_error *error) {
    fb_query query = fb_query_begin(connection, moves_back, error);
    fb_bind_int(&query, state->key);
    while (fb_query_row(&query)) {
        move_back move = {fb_column_int(&query, 0), fb_column_int(&query, 1), fb_column_int(&query, 2)};
        fb_buffer_append(out, &move, sizeof move);
    }
    fb_status status = fb_query_end(&query);
    return status || !out->failed ? status : fb_fail_memory(error);
}

/* `memory` is for names. Both lists are walked from their ends at once: all moves back since a version's last entry are known
 * when its turn comes. */
static fb_status match_moves(fb_connection *connection, const alias_state *state, const fb_buffer *moves, fb_map *left,
                             fb_store_memory **memory, withdrawn *out, fb_error *error) {
    const move_back *move = (const void *)moves->data, *end = move + moves->size / sizeof *move;
    int64_t lowest = INT64_MAX;
    fb_query query = fb_query_begin(connection, versions_had, error);
    fb_bind_int(&query, state->key);
    while (fb_query_row(&query)) {
        int64_t first = fb_column_int(&query, 2), last = fb_column_int(&query, 3);
        for (; move < end && move->number > last && !query.status; move++) {
            if (!fb_map_put(left, (uint64_t)move->previous, 1)) query.status = fb_fail_memory(error);
            if (move->first < lowest) lowest = move->first;
        }
        if (query.status || (lowest >= first && !fb_map_get(left, (uint64_t)last))) continue;
        if (!fb_map_put(&out->keys, (uint64_t)fb_column_int(&query, 0), 1)) query.status = fb_fail_memory(error);
        if (!out->names || out->count == NAMES_MAX) continue;
        out->names[out->count++] = fb_copy_column(&query, 1, memory, &query.status);
    }
    return fb_query_end(&query);
}

static fb_status read_withdrawn(fb_connection *connection, const alias_state *state, fb_store_memory **memory, withdrawn *out,
                                fb_error *error) {
    fb_buffer moves = {0};
    fb_map left = {0}; /* entries that a move back went away from */
    fb_status status = read_moves_back(connection, state, &moves, error);
    if (!status && moves.size) status = match_moves(connection, state, &moves, &left, memory, out, error);
    fb_map_free(&left);
    fb_buffer_free(&moves);
    return status;
}

/* Goes down from entry `number` to the first one with the version `wanted`, or (0) with any but the present one and those that
 * are skipped. Without one there is no action. */
static fb_status go_down(fb_connection *connection, const alias_state *state, int64_t number, int64_t wanted,
                         const withdrawn *skipped, next_entry *next, fb_error *error) {
    fb_status status = FB_OK;
    int64_t version = 0, parent = 0;
    for (; number && !status; number = parent) {
        status = read_step(connection, number, &version, &parent, error);
        if (status || !version ||
            (wanted ? version != wanted : version == state->version || fb_map_get(&skipped->keys, (uint64_t)version)))
            continue;
        *next = (next_entry){.action = "rollback", .version = version, .parent = parent};
        break;
    }
    return status;
}

/* The last entry of the alias with that version, wherever it is. */
static fb_status find_entry(fb_connection *connection, int64_t alias, int64_t version, int64_t *number, fb_error *error) {
    fb_query query = fb_query_begin(
        connection, "SELECT number FROM alias_entries WHERE version = ? AND alias = ? ORDER BY number DESC LIMIT 1", error);
    fb_bind_int(&query, version);
    fb_bind_int(&query, alias);
    return fb_read_key(&query, number);
}

static fb_status decide_to(fb_connection *connection, alias_write *write, const alias_state *state, next_entry *next,
                           fb_error *error) {
    int64_t version = 0, number = 0;
    fb_status status = need_version(connection, write, state, &version, error);
    if (status || version == state->version) return status;
    status = find_entry(connection, state->key, version, &number, error);
    if (!status && !number)
        return fb_fail(error, FB_CONFLICT, "never-deployed", NULL, "alias %s of model %s never had version %s",
                       write->change->alias, write->change->model, write->version);
    if (!status) status = go_down(connection, state, state->parent, version, NULL, next, error);
    if (!status && !next->action) status = go_down(connection, state, number, version, NULL, next, error);
    return status;
}

static fb_status find_previous(fb_connection *connection, const alias_state *state, fb_store_memory **memory,
                               withdrawn *skipped, next_entry *next, fb_error *error) {
    fb_status status = read_withdrawn(connection, state, memory, skipped, error);
    return status ? status : go_down(connection, state, state->parent, 0, skipped, next, error);
}

static fb_status name_version(fb_connection *connection, int64_t key, fb_store_rollback_plan *plan, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT name FROM versions WHERE key = ?", error);
    fb_bind_int(&query, key);
    if (fb_query_row(&query)) plan->to = fb_copy_column(&query, 0, &plan->memory, &query.status);
    return fb_query_end(&query);
}

static fb_status decide_roll_back(fb_connection *connection, alias_write *write, const alias_state *state, fb_totals *added,
                                  next_entry *next, fb_error *error) {
    (void)added;
    if (write->version) return decide_to(connection, write, state, next, error);
    withdrawn skipped = {0};
    fb_status status = find_previous(connection, state, NULL, &skipped, next, error);
    if (!status && !next->action && skipped.keys.used)
        status =
            fb_fail(error, FB_CONFLICT, "nothing-to-roll-back", NULL,
                    "alias %s of model %s was taken back from every version that it had before; name the one that you mean",
                    write->change->alias, write->change->model);
    else if (!status && !next->action)
        status =
            fb_fail(error, FB_CONFLICT, "nothing-to-roll-back", NULL,
                    "alias %s of model %s had no version before the present one", write->change->alias, write->change->model);
    fb_map_free(&skipped.keys);
    return status;
}

fb_status fb_store_plan_rollback(fb_store *store, const char *model, const char *alias, fb_store_rollback_plan *out,
                                 fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    fb_store_alias_change change = {.model = model, .alias = alias};
    fb_store_rollback_plan plan = {0};
    alias_state state = {0};
    next_entry next = {0};
    withdrawn skipped = {0};
    status = find_alias(connection, &change, &state, error);
    if (!status && !state.version)
        status = fb_fail(error, FB_NOT_FOUND, "unknown-alias", NULL, "model %s has no alias %s", model, alias);
    if (!status) status = fb_read_alias_entry(connection, state.last, &plan.memory, &plan.present, error);
    if (!status && !(skipped.names = fb_memory_take(&plan.memory, NAMES_MAX * sizeof *skipped.names)))
        status = fb_fail_memory(error);
    if (!status) status = find_previous(connection, &state, &plan.memory, &skipped, &next, error);
    if (!status && next.action) status = name_version(connection, next.version, &plan, error);
    fb_readers_give_back(&store->readers, connection);
    fb_map_free(&skipped.keys);
    plan.withdrawn = skipped.names;
    plan.withdrawn_count = skipped.count;
    if (status) fb_memory_free(plan.memory);
    else *out = plan;
    return status;
}

fb_status fb_store_roll_back_alias(fb_store *store, const fb_store_alias_change *change, const char *to,
                                   const fb_store_answer *answer, fb_store_alias_entry *out, fb_error *error) {
    alias_write write = {.store = store, .change = change, .decide = decide_roll_back, .version = to, .answer = answer};
    return change_alias(&write, out, error);
}

/* ---- roll back passes ---- */

/* "12" as 12; 0 for a name that is not a number, or not one that another can follow. */
static int64_t number_of(const char *name) {
    size_t length = strlen(name);
    bool is_number = *name != '0' && length <= 18 && strspn(name, "0123456789") == length;
    return is_number ? strtoll(name, NULL, 10) : 0;
}

/* Finds out if the model's versions have numbers, and the last number that was given to any. */
static fb_status find_last_number(fb_connection *connection, int64_t model, bool *has_numbers, int64_t *last, fb_error *error) {
    fb_query naming = fb_query_begin(connection, "SELECT naming, last_number FROM models WHERE key = ?", error);
    fb_bind_int(&naming, model);
    if (fb_query_row(&naming)) {
        *has_numbers = strcmp(fb_column_text(&naming, 0), "integer") == 0;
        *last = fb_column_int(&naming, 1);
    }
    fb_status status = fb_query_end(&naming);
    if (status || !*has_numbers) return status;
    fb_query names = fb_query_begin(connection, "SELECT name FROM versions WHERE model = ?", error);
    fb_bind_int(&names, model);
    while (fb_query_row(&names)) {
        int64_t number = number_of(fb_column_text(&names, 0));
        if (number > *last) *last = number;
    }
    return fb_query_end(&names);
}

static fb_status take_number(fb_connection *connection, int64_t model, int64_t number, char name[FB_NAME_MAX + 1],
                             fb_error *error) {
    snprintf(name, FB_NAME_MAX + 1, "%" PRId64, number);
    fb_query update = fb_query_begin(connection, "UPDATE models SET last_number = ?2 WHERE key = ?1", error);
    fb_bind_int(&update, model);
    fb_bind_int(&update, number);
    return fb_query_run(&update);
}

/* A name for the new version that the model does not have. */
static fb_status choose_name(fb_connection *connection, const fb_store_partial_rollback *partial, const char *model,
                             int64_t model_key, char name[FB_NAME_MAX + 1], bool *has_number, fb_error *error) {
    char suffix[16] = "";
    int64_t last = 0;
    *has_number = false;
    fb_status found = partial->is_name_fixed ? FB_OK : find_last_number(connection, model_key, has_number, &last, error);
    if (found) return found;
    if (*has_number) return take_number(connection, model_key, last + 1, name, error);
    for (unsigned count = 2;; count++) {
        int64_t taken = 0;
        snprintf(name, FB_NAME_MAX + 1, "%.*s%s", FB_NAME_MAX - (int)strlen(suffix), partial->name, suffix);
        fb_status status = fb_find_version(connection, model_key, name, &taken, error);
        if (status || !taken) return status;
        if (partial->is_name_fixed)
            return fb_fail(error, FB_CONFLICT, "version-exists", NULL, "model %s has a version %s already", model, name);
        snprintf(suffix, sizeof suffix, "-%u", count);
    }
}

static fb_status decide_partial(fb_connection *connection, alias_write *write, const alias_state *state, fb_totals *added,
                                next_entry *next, fb_error *error) {
    const fb_store_run *run = write->partial->run;
    int64_t graph = 0, key = 0, version = 0;
    char name[FB_NAME_MAX + 1];
    bool has_number = false;
    fb_status status = fb_write_run(connection, &write->run, added, error);
    if (!status) status = fb_find_run(connection, run->id, &key, error);
    if (!status) status = fb_find_graph(connection, run->result, &graph, error);
    if (!status) status = choose_name(connection, write->partial, write->change->model, state->model, name, &has_number, error);
    const char *note = !run->note && has_number ? write->partial->name : run->note;
    if (!status) status = fb_insert_version(connection, state->model, name, graph, key, note, write->at, &version, error);
    if (!status) *next = (next_entry){.action = "rollback", .version = version, .parent = state->last};
    return status;
}

fb_status fb_store_roll_back_passes(fb_store *store, const fb_store_alias_change *change,
                                    const fb_store_partial_rollback *rollback, const fb_store_answer *answer,
                                    fb_store_alias_entry *out, fb_error *error) {
    alias_write write = {.store = store, .change = change, .decide = decide_partial, .partial = rollback, .answer = answer};
    fb_status status = fb_pack_run(store, rollback->run, rollback->graphs, rollback->graph_count, &write.run, error);
    if (!status) status = change_alias(&write, out, error);
    fb_packed_run_free(&write.run);
    return status;
}
