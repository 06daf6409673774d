/* PostgreSQL: a database on a server, which other replicas of the service use as well.
 *
 * A transaction that writes holds one advisory lock, so that of all replicas one writes at a time, as with SQLite: what was
 * read stays true until the commit, and keys, numbers of events and places in lists ascend in the order of the commits. Group
 * commit makes up for it: the more wait, the more are committed together.
 *
 * A connection that broke is made anew, after growing pauses. A commit that was not answered is looked for: with each one goes
 * a number that its session has not used before, into a row of the session's own. So it is reported as done, as undone, or (if
 * the server does not come back in time) as unknown, never guessed. The number of the transaction would not do: a server that
 * crashed, or a standby that took over, may give it to another one. */
#include <ctype.h>
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "core/base/buffer.h"
#include "server/database/backend.h"
#include "server/libraries/pq.h"
#include "server/metrics/metrics.h"

#define PARAMETERS_MAX 32
#define NUMBER_SPACE 24      /* of a 64-bit number as text */
#define OLDEST_SERVER 130000 /* pg_current_xact_id */
#define PATIENCE_MS 5000     /* with a server that does not answer, before a request fails for it */
#define PAUSE_MS 50          /* between two attempts, at first */
#define LONGEST_PAUSE_MS 500
#define COMMIT_PATIENCE_MS 30000 /* to learn what became of a commit */
#define TIME_SPACE 48
/* Advisory locks: of the transaction that writes, and of the process. Any numbers would do that no other program uses. */
#define WRITE_LOCK "7381240360074215275"
#define PROCESS_LOCK "7381240360074215276"

typedef struct server {
    PGconn *handle;   /* NULL: there is none now */
    bool is_broken;   /* libpq does not always know that at once */
    bool is_reading;  /* the transaction does not write */
    bool is_to_begin; /* a transaction that reads begins with its first statement, on one way to the server */
    bool is_ending;   /* the end of the one before was sent, and its answer not waited for */
    char *url;
    enum { NOT_HELD, ALONE, SHARED } hold;
    uint64_t generation;     /* of the connection: statements of an earlier one are not known to this one */
    uint64_t statements;     /* made so far; their names */
    int64_t session, number; /* of the one that writes: whose row it is, and what the last commit put there */
    int pid;                 /* of the server's process for this connection, */
    char since[TIME_SPACE];  /* and when that began */
    int64_t changes, changed_rows;
    int64_t down_since, next_attempt; /* 0: it is up */
    int pause_ms;
} server;

typedef struct statement {
    char name[NUMBER_SPACE];
    char *sql;
    uint64_t generation; /* of the connection that knows it */
    int count;           /* of parameters */
    const char *values[PARAMETERS_MAX];
    int lengths[PARAMETERS_MAX], formats[PARAMETERS_MAX];
    char numbers[PARAMETERS_MAX][NUMBER_SPACE];
    PGresult *result;
    int row;
} statement;

static server *server_of(const fb_connection *connection) {
    return connection->handle;
}

static bool is_connected(const server *of) {
    return of->handle && !of->is_broken && fb_pq.PQstatus(of->handle) == CONNECTION_OK;
}

/* Before anything else is sent: takes the answer to the end of a transaction that read. */
static void settle(server *of) {
    if (!of->is_ending) return;
    of->is_ending = false;
    for (PGresult *result; (result = fb_pq.PQgetResult(of->handle));) fb_pq.PQclear(result);
}

static void pause_for(int milliseconds) {
    struct timespec wait = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L};
    nanosleep(&wait, NULL);
}

/* ---- errors ------------------------------------------------------------------------------------------------------------- */

/* libpq's messages have several lines; none of them has a password. */
static void copy_line(char *to, size_t space, const char *from) {
    size_t size = 0;
    for (; from && *from && size + 3 < space; from++) {
        bool is_end = *from == '\n' && !from[1];
        if (*from == '\n' && !is_end) to[size++] = ';', to[size++] = ' ';
        else if (*from != '\t' && !is_end) to[size++] = *from;
    }
    to[size] = '\0';
}

#define LOST "the database does not answer"

static fb_status fail_unavailable(fb_error *error, const char *what, const char *message) {
    char line[300];
    copy_line(line, sizeof line, message);
    return fb_fail(error, FB_BUSY, "store-unavailable", NULL, "%s: %s", what, line);
}

/* The status of a class of SQLSTATE, or of one, for our callers. */
static const struct {
    const char *state;
    fb_status status;
    const char *code, *format; /* of the server's own message */
} meanings[] = {
    {"53100", FB_NO_SPACE, "disk-full", "the disk of the database is full: %s"},
    {"53", FB_BUSY, "store-unavailable", "the database has no room for this at the moment: %s"},
    {"54", FB_TOO_LARGE, "too-large-to-store", "the store cannot hold a value this large: %s"},
    {"57", FB_BUSY, "store-unavailable", "the database does not answer: %s"},
    {"08", FB_BUSY, "store-unavailable", "the database does not answer: %s"},
    {"25P03", FB_BUSY, "store-unavailable", "the database ended a change that took too long: %s"},
    {"40", FB_BUSY, "store-unavailable", "the database undid a change that met another: %s"},
    {"55P03", FB_BUSY, "store-busy", "another program has locked the database of the store: %s"},
    {"25006", FB_IO, "store-not-writable", "the database takes no writes, it may be a standby: %s"},
    {"28", FB_IO, "store-refused", "the database refuses this user: %s"},
    {"3D000", FB_IO, "store-refused", "the database is not there: %s"},
    {"42501", FB_IO, "store-refused", "the user of the database lacks a permission: %s"},
    {"XX001", FB_IO, "store-corrupt", "the store is damaged: %s"},
    {"XX002", FB_IO, "store-corrupt", "the store is damaged: %s"},
    {"22021", FB_INVALID, "not-utf8", "a text is not UTF-8: %s"},
};

static fb_status fail_state(fb_connection *connection, const char *state, const char *message, fb_error *error) {
    char line[300], text[400];
    copy_line(line, sizeof line, message);
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        if (strncmp(state, meanings[i].state, strlen(meanings[i].state)) != 0) continue;
        if (!strcmp(meanings[i].code, "store-corrupt") && connection->is_damaged) atomic_store(connection->is_damaged, true);
        const char *format = meanings[i].format;
        snprintf(text, sizeof text, "%.*s%s", (int)(strlen(format) - 2), format, line);
        return fb_fail(error, meanings[i].status, meanings[i].code, NULL, "%s", text);
    }
    return fb_fail(error, FB_IO, "store-failed", NULL, "the store failed: %s (PostgreSQL %s)", line, state);
}

/* After a command: FB_OK, or what went wrong. A failed command counts as a change, because the transaction is over with it. */
static fb_status judge(fb_connection *connection, const PGresult *result, fb_error *error) {
    server *of = server_of(connection);
    ExecStatusType status = result ? fb_pq.PQresultStatus(result) : PGRES_FATAL_ERROR;
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) return FB_OK;
    of->changes++;
    const char *state = result ? fb_pq.PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    if (!result && fb_pq.PQstatus(of->handle) == CONNECTION_OK) return fb_fail_memory(error);
    of->is_broken =
        fb_pq.PQstatus(of->handle) != CONNECTION_OK || !state || !strncmp(state, "57P0", 4) || !strcmp(state, "25P03");
    if (of->is_broken && !state) return fail_unavailable(error, LOST, fb_pq.PQerrorMessage(of->handle));
    return fail_state(connection, state, fb_pq.PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY), error);
}

/* ---- the connection ----------------------------------------------------------------------------------------------------- */

static void ignore_notice(void *context, const PGresult *notice) {
    (void)context, (void)notice;
}

/* A session that lost its replica in the middle of a change ends, so that the others can write. A commit is durable when it is
 * answered, with any default of the server. */
static const char settings[] =
    "SET idle_in_transaction_session_timeout = '60s'; SET lock_timeout = '30s'; "
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';"
    "SELECT current_setting('server_encoding'), (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())";

static bool is_true(PGconn *handle, const char *sql) {
    PGresult *result = fb_pq.PQexec(handle, sql);
    bool is = fb_pq.PQntuples(result) == 1 && *fb_pq.PQgetvalue(result, 0, 0) == 't';
    fb_pq.PQclear(result);
    return is;
}

/* Held as long as the session is. A process that gets it exclusively is alone, and may then share it. */
static fb_status hold_now(server *of, bool *is_alone, fb_error *error) {
    *is_alone = is_true(of->handle, "SELECT pg_try_advisory_lock(" PROCESS_LOCK ")");
    if (*is_alone && of->hold == ALONE) return FB_OK;
    if (of->hold == SHARED && is_true(of->handle, "SELECT pg_try_advisory_lock_shared(" PROCESS_LOCK ")")) {
        if (*is_alone) is_true(of->handle, "SELECT pg_advisory_unlock(" PROCESS_LOCK ")");
        return FB_OK;
    }
    return fb_fail(
        error, FB_BUSY, "store-locked", NULL,
        "another process of foldback uses the database; several can when all have their blobs in a bucket (--blobs)");
}

static fb_status check_server(PGconn *handle, const PGresult *found, fb_error *error) {
    if (fb_pq.PQserverVersion(handle) < OLDEST_SERVER)
        return fb_fail(error, FB_INVALID, "old-database", NULL, "the database is PostgreSQL %d, and 13 or newer is needed",
                       fb_pq.PQserverVersion(handle) / 10000);
    if (fb_pq.PQntuples(found) == 1 && !strcmp(fb_pq.PQgetvalue(found, 0, 0), "UTF8")) return FB_OK;
    return fb_fail(error, FB_INVALID, "bad-database", NULL,
                   "the database has the encoding %s: make one with ENCODING 'UTF8' TEMPLATE template0",
                   fb_pq.PQntuples(found) == 1 ? fb_pq.PQgetvalue(found, 0, 0) : "?");
}

static fb_status give_up(server *of, fb_status status) {
    fb_pq.PQfinish(of->handle);
    of->handle = NULL;
    of->is_ending = false;
    of->is_broken = false;
    return status;
}

static fb_status connect_server(fb_connection *connection, fb_error *error) {
    server *of = server_of(connection);
    /* The URL counts more than what comes before it, and less than what comes after. */
    static const char *const names[] = {"fallback_application_name",
                                        "connect_timeout",
                                        "keepalives_idle",
                                        "keepalives_interval",
                                        "keepalives_count",
                                        "tcp_user_timeout",
                                        "dbname",
                                        "client_encoding",
                                        NULL};
    const char *values[] = {"foldback", "5", "10", "5", "3", "30000", of->url, "UTF8", NULL};
    of->handle = fb_pq.PQconnectdbParams(names, values, 1);
    of->generation++;
    if (!of->handle) return fb_fail_memory(error);
    if (fb_pq.PQstatus(of->handle) != CONNECTION_OK)
        return give_up(of, fail_unavailable(error, "cannot connect to the database", fb_pq.PQerrorMessage(of->handle)));
    fb_pq.PQsetNoticeReceiver(of->handle, ignore_notice, NULL);
    PGresult *result = fb_pq.PQexec(of->handle, settings);
    fb_status status = judge(connection, result, error);
    if (!status) status = check_server(of->handle, result, error);
    if (!status) snprintf(of->since, sizeof of->since, "%s", fb_pq.PQgetvalue(result, 0, 1));
    of->pid = fb_pq.PQbackendPID(of->handle);
    fb_pq.PQclear(result);
    bool is_alone = false;
    if (!status && of->hold) status = hold_now(of, &is_alone, error);
    return status ? give_up(of, status) : FB_OK;
}

/* Connects when no connection works. While the server is down for longer than a request should wait, one attempt is made now
 * and then, and requests in between fail at once. */
static fb_status ensure(fb_connection *connection, int64_t patience_ms, fb_error *error) {
    server *of = server_of(connection);
    if (is_connected(of)) settle(of);
    if (is_connected(of)) return FB_OK;
    give_up(of, FB_OK);
    if (!of->down_since) {
        of->down_since = of->next_attempt = fb_monotonic_ms();
        of->pause_ms = PAUSE_MS;
    }
    for (;;) {
        fb_error met = {0};
        int64_t now = fb_monotonic_ms();
        bool is_impatient = now - of->down_since >= patience_ms;
        if (now < of->next_attempt && is_impatient) return fail_unavailable(error, LOST, "it has been away for a while");
        if (now < of->next_attempt) pause_for((int)(of->next_attempt - now));
        fb_status status = connect_server(connection, &met);
        if (!status) {
            of->down_since = 0;
            return FB_OK;
        }
        of->next_attempt = fb_monotonic_ms() + of->pause_ms;
        of->pause_ms = 2 * of->pause_ms < LONGEST_PAUSE_MS ? 2 * of->pause_ms : LONGEST_PAUSE_MS;
        if (status != FB_BUSY || fb_monotonic_ms() - of->down_since >= patience_ms)
            return fb_fail(error, met.status, met.code, NULL, "%s", met.message);
    }
}

/* A password in the URL would be seen in the list of processes, and in what logs it. */
static fb_status check_url(const char *url, fb_error *error) {
    char *reason = NULL;
    PQconninfoOption *options = fb_pq.PQconninfoParse(url, &reason);
    bool has_password = false;
    for (const PQconninfoOption *option = options; option && option->keyword; option++)
        has_password |= option->val && strcmp(option->keyword, "password") == 0;
    fb_pq.PQconninfoFree(options);
    bool is_bad = !options;
    fb_pq.PQfreemem(reason); /* it may repeat a part of the URL, which may have a password */
    if (is_bad)
        return fb_fail(
            error, FB_INVALID, "bad-store", NULL,
            "--store is not a URL as postgresql://USER@HOST:PORT/DATABASE, or has an option that libpq does not know");
    if (!has_password) return FB_OK;
    return fb_fail(error, FB_INVALID, "bad-store", NULL,
                   "--store has a password, which others see in the list of processes: put it into PGPASSWORD, or into a file "
                   "that PGPASSFILE names");
}

static fb_status open_server(fb_connection *connection, const char *url, fb_access access, fb_error *error) {
    fb_status status = fb_pq_load(error);
    if (!status) status = check_url(url, error);
    if (status) return status;
    server *of = calloc(1, sizeof *of);
    if (!of || !(of->url = strdup(url))) {
        free(of);
        return fb_fail_memory(error);
    }
    (void)access;
    connection->handle = of;
    return ensure(connection, PATIENCE_MS, error);
}

static fb_status hold(fb_connection *connection, bool is_shared, bool *is_alone, fb_error *error) {
    server *of = server_of(connection);
    fb_error met = {0};
    fb_status status = FB_BUSY;
    of->hold = is_shared ? SHARED : ALONE;
    /* The server may still be noticing that an earlier process has gone. */
    for (int64_t until = fb_monotonic_ms() + PATIENCE_MS; status;) {
        met = (fb_error){0};
        status = ensure(connection, PATIENCE_MS, &met);
        if (!status) status = hold_now(of, is_alone, &met);
        if (status && fb_monotonic_ms() >= until) return fb_fail(error, met.status, met.code, NULL, "%s", met.message);
        if (status) pause_for(PAUSE_MS);
    }
    return FB_OK;
}

static void close_server(fb_connection *connection) {
    server *of = server_of(connection);
    fb_pq.PQfinish(of->handle);
    free(of->url);
    free(of);
}

/* ---- statements --------------------------------------------------------------------------------------------------------- */

/* ? and ?1 become $1. */
static char *with_dollars(const char *sql, int *count) {
    fb_buffer out = {0};
    int last = 0;
    for (const char *at = sql; *at; at++) {
        if (*at != '?') {
            fb_buffer_char(&out, *at);
            continue;
        }
        int number = isdigit((unsigned char)at[1]) ? atoi(at + 1) : last + 1;
        while (isdigit((unsigned char)at[1])) at++;
        fb_buffer_printf(&out, "$%d", number);
        last = number;
        if (number > *count) *count = number;
    }
    return fb_buffer_take(&out, NULL);
}

static fb_status prepare(fb_connection *connection, const char *sql, void **out, fb_error *error) {
    statement *made = calloc(1, sizeof *made);
    if (made) made->sql = with_dollars(sql, &made->count);
    if (!made || !made->sql || made->count > PARAMETERS_MAX) {
        free(made);
        return fb_fail_memory(error);
    }
    snprintf(made->name, sizeof made->name, "s%" PRIu64, ++server_of(connection)->statements);
    *out = made;
    return FB_OK;
}

static void finalize(fb_connection *connection, void *handle) {
    server *of = server_of(connection);
    statement *old = handle;
    fb_pq.PQclear(old->result);
    if (is_connected(of)) settle(of);
    bool is_known = is_connected(of) && old->generation == of->generation;
    if (is_known && fb_pq.PQtransactionStatus(of->handle) != PQTRANS_INERROR) {
        char command[NUMBER_SPACE + 16];
        snprintf(command, sizeof command, "DEALLOCATE %s", old->name);
        fb_pq.PQclear(fb_pq.PQexec(of->handle, command));
    }
    free(old->sql);
    free(old);
}

static void put(fb_query *query, int at, const char *value, size_t size, bool is_binary) {
    statement *of = query->statement->handle;
    of->values[at - 1] = value;
    of->lengths[at - 1] = (int)size;
    of->formats[at - 1] = is_binary;
}

static fb_status bind_int(fb_query *query, int at, int64_t value) {
    statement *of = query->statement->handle;
    snprintf(of->numbers[at - 1], NUMBER_SPACE, "%" PRId64, value);
    put(query, at, of->numbers[at - 1], 0, false);
    return FB_OK;
}

static fb_status bind_text(fb_query *query, int at, const char *text) {
    put(query, at, text, 0, false);
    return FB_OK;
}

static fb_status bind_bytes(fb_query *query, int at, const void *bytes, size_t size) {
    if (size > INT32_MAX / 2)
        return fb_fail(query->error, FB_TOO_LARGE, "too-large-to-store", NULL, "the store cannot hold a value this large");
    put(query, at, bytes, size, true);
    return FB_OK;
}

static fb_status make_known(fb_connection *connection, statement *of, fb_error *error) {
    server *at = server_of(connection);
    if (of->generation == at->generation) return FB_OK;
    PGresult *result = fb_pq.PQprepare(at->handle, of->name, of->sql, 0, NULL);
    fb_status status = judge(connection, result, error);
    fb_pq.PQclear(result);
    if (!status) of->generation = at->generation;
    return status;
}

static void count_changes(server *of, PGresult *result) {
    const char *rows = fb_pq.PQcmdTuples(result), *command = fb_pq.PQcmdStatus(result);
    if (!*rows || !strncmp(command, "SELECT", 6)) return;
    of->changed_rows = strtoll(rows, NULL, 10);
    of->changes += of->changed_rows;
}

static const char begin_reading[] = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/* The next result of a pipeline, and what ends it. */
static PGresult *take_result(server *at) {
    PGresult *result = fb_pq.PQgetResult(at->handle);
    PGresult *end = result && fb_pq.PQresultStatus(result) != PGRES_PIPELINE_SYNC ? fb_pq.PQgetResult(at->handle) : NULL;
    fb_pq.PQclear(end);
    return result;
}

/* The beginning of a transaction and its first statement, in one go. */
static fb_status run_first(fb_query *query) {
    server *at = server_of(query->connection);
    statement *of = query->statement->handle;
    bool is_new = of->generation != at->generation;
    fb_pq.PQenterPipelineMode(at->handle);
    bool is_sent = fb_pq.PQsendQueryParams(at->handle, begin_reading, 0, NULL, NULL, NULL, NULL, 0) &&
                   (!is_new || fb_pq.PQsendPrepare(at->handle, of->name, of->sql, 0, NULL)) &&
                   fb_pq.PQsendQueryPrepared(at->handle, of->name, of->count, of->values, of->lengths, of->formats, 1) &&
                   fb_pq.PQpipelineSync(at->handle);
    PGresult *begun = is_sent ? take_result(at) : NULL, *made = is_sent && is_new ? take_result(at) : NULL;
    of->result = is_sent ? take_result(at) : NULL;
    fb_pq.PQclear(is_sent ? take_result(at) : NULL);
    fb_status status = judge(query->connection, begun, query->error);
    if (!status && is_new) status = judge(query->connection, made, query->error);
    if (!status && is_new) of->generation = at->generation;
    if (!status) status = judge(query->connection, of->result, query->error);
    fb_pq.PQclear(begun);
    fb_pq.PQclear(made);
    if (!fb_pq.PQexitPipelineMode(at->handle) || !is_sent) at->is_broken = true;
    return status;
}

/* A connection that had broken before is made anew: nothing was begun. */
static fb_status begin_with(fb_query *query) {
    server *at = server_of(query->connection);
    fb_error met = {0};
    at->is_to_begin = false;
    for (int attempt = 0;; attempt++) {
        fb_query first = *query;
        first.error = &met;
        met = (fb_error){0};
        fb_status status = run_first(&first);
        if (!status) return FB_OK;
        if (is_connected(at) || attempt) break;
        fb_pq.PQclear(((statement *)query->statement->handle)->result);
        ((statement *)query->statement->handle)->result = NULL;
        met = (fb_error){0};
        if (ensure(query->connection, PATIENCE_MS, &met)) break;
    }
    return fb_fail(query->error, met.status, met.code, NULL, "%s", met.message);
}

static fb_status run(fb_query *query) {
    server *at = server_of(query->connection);
    statement *of = query->statement->handle;
    if (!is_connected(at)) return fail_unavailable(query->error, LOST, "the connection was lost");
    of->row = -1;
    if (at->is_to_begin) return begin_with(query);
    settle(at);
    fb_status status = make_known(query->connection, of, query->error);
    if (status) return status;
    of->result = fb_pq.PQexecPrepared(at->handle, of->name, of->count, of->values, of->lengths, of->formats, 1);
    status = judge(query->connection, of->result, query->error);
    if (!status) count_changes(at, of->result);
    return status;
}

static fb_status step(fb_query *query, bool *is_row) {
    statement *of = query->statement->handle;
    fb_status status = of->result ? FB_OK : run(query);
    *is_row = !status && ++of->row < fb_pq.PQntuples(of->result);
    return status;
}

/* Values come in their binary form: numbers with the most significant byte first. */
static int64_t column_int(fb_query *query, int column) {
    const statement *of = query->statement->handle;
    const char *value = fb_pq.PQgetvalue(of->result, of->row, column);
    uint64_t large;
    uint32_t small;
    uint16_t tiny;
    switch (fb_pq.PQgetisnull(of->result, of->row, column) ? 0 : fb_pq.PQgetlength(of->result, of->row, column)) {
    case 1: return *value;
    case 2: memcpy(&tiny, value, sizeof tiny); return (int16_t)be16toh(tiny);
    case 4: memcpy(&small, value, sizeof small); return (int32_t)be32toh(small);
    case 8: memcpy(&large, value, sizeof large); return (int64_t)be64toh(large);
    default: return 0;
    }
}

static bool column_is_null(fb_query *query, int column) {
    const statement *of = query->statement->handle;
    return fb_pq.PQgetisnull(of->result, of->row, column);
}

static const char *column_text(fb_query *query, int column) {
    const statement *of = query->statement->handle;
    return fb_pq.PQgetvalue(of->result, of->row, column);
}

static const void *column_bytes(fb_query *query, int column, size_t *size) {
    const statement *of = query->statement->handle;
    *size = (size_t)fb_pq.PQgetlength(of->result, of->row, column);
    return *size ? fb_pq.PQgetvalue(of->result, of->row, column) : NULL;
}

static void reset(fb_statement *running) {
    statement *of = running->handle;
    fb_pq.PQclear(of->result);
    of->result = NULL;
    memset(of->values, 0, sizeof of->values);
}

/* ---- transactions ------------------------------------------------------------------------------------------------------- */

static fb_status command(fb_connection *connection, const char *sql, char *value, size_t space, fb_error *error) {
    server *of = server_of(connection);
    if (!is_connected(of)) return fail_unavailable(error, LOST, "the connection was lost");
    settle(of);
    PGresult *result = fb_pq.PQexec(of->handle, sql);
    fb_status status = judge(connection, result, error);
    if (!status && value) snprintf(value, space, "%s", fb_pq.PQntuples(result) ? fb_pq.PQgetvalue(result, 0, 0) : "");
    fb_pq.PQclear(result);
    return status;
}

static fb_status script(fb_connection *connection, const char *sql, fb_error *error) {
    return command(connection, sql, NULL, 0, error);
}

static bool is_in_transaction(const fb_connection *connection) {
    const server *of = server_of(connection);
    if (of->is_to_begin || of->is_ending) return of->is_to_begin;
    PGTransactionStatusType status = is_connected(of) ? fb_pq.PQtransactionStatus(of->handle) : PQTRANS_UNKNOWN;
    return status == PQTRANS_INTRANS || status == PQTRANS_INERROR;
}

static void roll_back(fb_connection *connection) {
    server *of = server_of(connection);
    bool has_begun = is_in_transaction(connection) && !of->is_to_begin;
    of->is_to_begin = false;
    if (!has_begun) return;
    if (of->is_reading) of->is_ending = fb_pq.PQsendQuery(of->handle, "ROLLBACK");
    else script(connection, "ROLLBACK", NULL);
}

/* Statements after the one that waits for the lock see what was committed until it was had. */
static const char begin_writing[] = "BEGIN; SELECT pg_advisory_xact_lock(" WRITE_LOCK ")";

static fb_status begin(fb_connection *connection, bool writes, fb_error *error) {
    server *of = server_of(connection);
    fb_error met = {0};
    for (int attempt = 0; attempt < 2; attempt++) {
        met = (fb_error){0};
        fb_status status = ensure(connection, PATIENCE_MS, &met);
        if (status) break;
        roll_back(connection);
        of->is_reading = of->is_to_begin = !writes;
        if (writes) status = script(connection, begin_writing, &met);
        if (!status) return FB_OK;
        if (is_connected(of)) break; /* else it had broken before: nothing was begun */
    }
    roll_back(connection);
    return fb_fail(error, met.status, met.code, NULL, "%s", met.message);
}

/* Finds the outcome of the transaction whose commit was not answered. The server's process for it may still be there, waiting
 * for a client that has gone: it is ended, so that it is decided. */
static fb_status find_commit(fb_connection *connection, fb_error *error) {
    server *of = server_of(connection);
    char end[200], look[120], still[NUMBER_SPACE] = "", found[NUMBER_SPACE] = "", wanted[NUMBER_SPACE];
    snprintf(end, sizeof end, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %d AND backend_start = '%s'",
             of->pid, of->since);
    snprintf(look, sizeof look, "SELECT number FROM foldback_commits WHERE session = %" PRId64, of->session);
    snprintf(wanted, sizeof wanted, "%" PRId64, of->number);
    int64_t until = fb_monotonic_ms() + COMMIT_PATIENCE_MS;
    for (; fb_monotonic_ms() < until; pause_for(PAUSE_MS)) {
        if (ensure(connection, COMMIT_PATIENCE_MS, NULL)) continue;
        if (command(connection, end, still, sizeof still, NULL) || *still) continue;
        if (command(connection, look, found, sizeof found, NULL)) continue;
        if (!strcmp(found, wanted)) return FB_OK;
        return fb_fail(error, FB_BUSY, "store-unavailable", NULL,
                       "the connection to the database broke, and nothing was changed");
    }
    return fb_fail(error, FB_IO, "commit-unknown", NULL,
                   "the connection to the database broke while a change was committed, and whether it was is not known: look "
                   "before you ask again");
}

static fb_status commit(fb_connection *connection, fb_error *error) {
    server *of = server_of(connection);
    char sql[300] = "COMMIT";
    if (!is_in_transaction(connection)) return fail_unavailable(error, LOST, "the connection was lost");
    bool has_failed = fb_pq.PQtransactionStatus(of->handle) == PQTRANS_INERROR;
    if (of->session && !has_failed)
        snprintf(sql, sizeof sql,
                 "INSERT INTO foldback_commits (session, number, at) VALUES (%" PRId64 ", %" PRId64 ", now()) "
                 "ON CONFLICT (session) DO UPDATE SET number = excluded.number, at = excluded.at; COMMIT",
                 of->session, ++of->number);
    PGresult *result = fb_pq.PQexec(of->handle, sql);
    fb_status status = judge(connection, result, error ? error : &(fb_error){0});
    bool is_undone = !status && strcmp(fb_pq.PQcmdStatus(result), "COMMIT") != 0;
    fb_pq.PQclear(result);
    bool is_lost = !is_connected(of) || status == FB_BUSY;
    if (is_undone || (has_failed && !is_lost))
        return fb_fail(error, FB_IO, "store-failed", NULL, "the store failed: a statement of the transaction had failed");
    if (!is_lost || !of->session) return status;
    if (error) *error = (fb_error){0};
    return find_commit(connection, error);
}

static int64_t changes(const fb_connection *connection) {
    return server_of(connection)->changes;
}

static int64_t changed_rows(const fb_connection *connection) {
    return server_of(connection)->changed_rows;
}

/* ---- the schema --------------------------------------------------------------------------------------------------------- */

static fb_status read_version(fb_connection *connection, int64_t *version, bool *is_ours, bool *is_empty, fb_error *error) {
    char found[NUMBER_SPACE] = "";
    fb_status status =
        command(connection, "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()", found, sizeof found, error);
    *is_empty = strcmp(found, "0") == 0;
    if (!status)
        status = command(connection,
                         "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'foldback_schema'",
                         found, sizeof found, error);
    *is_ours = strcmp(found, "1") == 0;
    *version = 0;
    if (!status && *is_ours) status = command(connection, "SELECT version FROM foldback_schema", found, sizeof found, error);
    if (!status && *is_ours) *version = strtoll(found, NULL, 10);
    return status;
}

/* Where commits leave their numbers. Sessions of long ago are not asked for any more. */
#define COMMITS "foldback_commits (session BIGINT NOT NULL PRIMARY KEY, number BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL)"

static const char prepare_commits[] =
    "DO $body$ BEGIN IF to_regclass('foldback_schema') IS NOT NULL THEN CREATE TABLE IF NOT EXISTS " COMMITS "; "
    "DELETE FROM foldback_commits WHERE at < now() - interval '7 days'; END IF; END $body$";

static fb_status set_up_writer(fb_connection *connection, uint64_t max_bytes, fb_error *error) {
    (void)max_bytes;
    server *of = server_of(connection);
    while (!of->session)
        if (getrandom(&of->session, sizeof of->session, 0) != sizeof of->session) of->session = 0;
    return script(connection, prepare_commits, error);
}

/* The migrations are written for SQLite. They differ in words, in indexes (SQLite's end in the row's key by themselves), and in
 * triggers. */

static const struct {
    const char *from, *to;
} words[] = {
    {"INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"},
    {"INTEGER PRIMARY KEY", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"},
    {"INTEGER", "BIGINT"},
    {"TEXT", "TEXT COLLATE \"C\""},
    {"BLOB", "BYTEA"},
    {"offset", "\"offset\""},
    {" STRICT, WITHOUT ROWID", ""},
    {" STRICT", ""},
};

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* Appends the words of one statement, translated. */
static void write_words(const char *text, size_t size, fb_buffer *out) {
    for (size_t at = 0; at < size;) {
        size_t i = 0, length = 0;
        for (; i < sizeof words / sizeof *words; i++) {
            length = strlen(words[i].from);
            if (length > size - at || strncmp(text + at, words[i].from, length) != 0) continue;
            bool begins = at == 0 || !is_word(text[at - 1]) || words[i].from[0] == ' ';
            if (begins && (at + length == size || !is_word(text[at + length]))) break;
        }
        if (i < sizeof words / sizeof *words) {
            fb_buffer_string(out, words[i].to);
            at += length;
        } else {
            fb_buffer_char(out, text[at++]);
        }
    }
}

/* CREATE INDEX … ON table (columns): ends in the key of the table's rows, where they have one. */
static void write_index(const char *text, size_t size, fb_buffer *out) {
    static const struct {
        const char *table, *key; /* "": none of its own */
    } keys[] = {{"alias_entries ", ", number"},
                {"audit ", ", number"},
                {"collected ", ""},
                {"run_passes ", ""},
                {"run_labels ", ""},
                {"graph_blobs ", ""},
                {"job_references ", ""},
                {"requests ", ""},
                {"claims ", ""},
                {"node_signatures ", ""}};
    const char *on = memmem(text, size, " ON ", 4), *end = on ? memchr(on, ')', size - (size_t)(on - text)) : NULL;
    const char *key = ", key";
    for (size_t i = 0; on && i < sizeof keys / sizeof *keys; i++)
        if (strncmp(on + 4, keys[i].table, strlen(keys[i].table)) == 0) key = keys[i].key;
    if (!end) end = text + size;
    fb_buffer_append(out, text, (size_t)(end - text));
    fb_buffer_string(out, key);
    fb_buffer_append(out, end, size - (size_t)(end - text));
}

/* CREATE TRIGGER name BEFORE what ON table [WHEN condition] BEGIN SELECT RAISE(ABORT, 'message'); END */
static void write_trigger(const char *text, size_t size, fb_buffer *out) {
    char name[80] = "", what[20] = "", table[80] = "";
    const char *begin = memmem(text, size, " BEGIN", 6), *when = memmem(text, size, "WHEN ", 5);
    const char *message = memmem(text, size, "ABORT, ", 7);
    if (sscanf(text, "CREATE TRIGGER %79s BEFORE %19s ON %79s", name, what, table) != 3 || !begin || !message) return;
    int length = (int)strcspn(message + 7, ")");
    fb_buffer_printf(out,
                     "CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN IF %.*s THEN RAISE EXCEPTION %.*s;"
                     " END IF; RETURN %s; END $body$;\nCREATE TRIGGER %s BEFORE %s ON %s FOR EACH ROW EXECUTE FUNCTION %s()",
                     name, when ? (int)(begin - when - 5) : 4, when ? when + 5 : "true", length, message + 7,
                     strcmp(what, "DELETE") ? "NEW" : "OLD", name, what, table, name);
}

static void write_statement(const char *text, size_t size, fb_buffer *out) {
    char name[80] = "";
    if (!strncmp(text, "CREATE TRIGGER", 14)) write_trigger(text, size, out);
    else if (!strncmp(text, "CREATE INDEX", 12)) write_index(text, size, out);
    else if (sscanf(text, "DROP TRIGGER %79[a-z_]", name) == 1) fb_buffer_printf(out, "DROP FUNCTION %s CASCADE", name);
    else write_words(text, size, out);
    fb_buffer_string(out, ";\n");
}

/* The length of the statement, to before its semicolon: within a trigger there are others, and comments have gone. */
static size_t statement_length(const char *text) {
    const char *end = !strncmp(text, "CREATE TRIGGER", 14) ? strstr(text, "END;") : NULL;
    return end ? (size_t)(end + 3 - text) : strcspn(text, ";");
}

static char *without_comments(const char *sql) {
    fb_buffer out = {0};
    for (const char *at = sql; *at; at++) {
        if (at[0] == '-' && at[1] == '-') at += strcspn(at, "\n");
        if (!*at) break;
        fb_buffer_char(&out, *at);
    }
    return fb_buffer_take(&out, NULL);
}

static char *translate(const char *sql) {
    fb_buffer out = {0};
    char *bare = without_comments(sql);
    if (!bare) return NULL;
    for (const char *at = bare;;) {
        at += strspn(at, " \n;");
        if (!*at) break;
        size_t length = statement_length(at);
        write_statement(at, length, &out);
        at += length;
    }
    free(bare);
    return fb_buffer_take(&out, NULL);
}

static fb_status migrate(fb_connection *connection, int64_t number, const char *sql, fb_error *error) {
    char note[160];
    snprintf(note, sizeof note, "DELETE FROM foldback_schema; INSERT INTO foldback_schema (version) VALUES (%" PRId64 ")",
             number);
    char *text = translate(sql);
    if (!text) return fb_fail_memory(error);
    fb_status status = script(
        connection, "CREATE TABLE IF NOT EXISTS foldback_schema (version BIGINT NOT NULL); CREATE TABLE IF NOT EXISTS " COMMITS,
        error);
    if (!status) status = script(connection, text, error);
    free(text);
    return status ? status : script(connection, note, error);
}

static fb_status set_counter(fb_connection *connection, const char *table, const char *column, int64_t last, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT setval(pg_get_serial_sequence(?1, ?2), ?3)", error);
    fb_bind_text(&query, table);
    fb_bind_text(&query, column);
    fb_bind_int(&query, last);
    return fb_query_run(&query);
}

const fb_backend fb_postgres = {
    .open = open_server,
    .close = close_server,
    .prepare = prepare,
    .finalize = finalize,
    .bind_int = bind_int,
    .bind_text = bind_text,
    .bind_bytes = bind_bytes,
    .step = step,
    .column_int = column_int,
    .column_is_null = column_is_null,
    .column_text = column_text,
    .column_bytes = column_bytes,
    .reset = reset,
    .script = script,
    .begin = begin,
    .commit = commit,
    .roll_back = roll_back,
    .is_in_transaction = is_in_transaction,
    .changes = changes,
    .changed_rows = changed_rows,
    .hold = hold,
    .read_version = read_version,
    .set_up_writer = set_up_writer,
    .migrate = migrate,
    .columns = "SELECT c.relname::text, a.attname::text, CASE a.atttypid WHEN 'bigint'::regtype THEN 'INTEGER' "
               "WHEN 'text'::regtype THEN 'TEXT' ELSE 'BLOB' END, coalesce(array_position(i.indkey::int2[], a.attnum), -1) + 1 "
               "FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
               "LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary "
               "WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND c.relname NOT LIKE 'foldback%' "
               "ORDER BY c.oid, a.attnum",
    .counter = "SELECT pg_sequence_last_value(pg_get_serial_sequence(?1, ?2)::regclass)",
    .set_counter = set_counter,
};
