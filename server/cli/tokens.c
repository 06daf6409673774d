/* foldback token create, list, revoke; foldback audit. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/timestamp.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

static void print_token(fb_cli *cli, const json_t *token) {
    fb_print_facts(cli, (const fb_fact[]){{"name", fb_text_of(token, "name")},
                                          {"scope", fb_text_of(token, "scope")},
                                          {"token", fb_text_of(token, "token")},
                                          {"created", fb_told_time(fb_text_of(token, "created")).text},
                                          {"expires", fb_told_time(fb_text_of(token, "expires")).text},
                                          {"revoked", fb_told_time(fb_text_of(token, "revoked")).text},
                                          {"last used", fb_told_time(fb_text_of(token, "last_used")).text},
                                          {0}});
}

/* Frees what is in the call. */
static int answer_token(fb_cli *cli, fb_call *call) {
    json_t *token;
    if (cli->is_json) return fb_cli_relay(cli, call);
    int result = fb_cli_call_json(cli, call, &token, NULL);
    if (result) return result;
    print_token(cli, token);
    const char *place = cli->values.server ? cli->values.server : cli->values.data;
    if (*fb_text_of(token, "token")) fb_complain(0, "keep the token now: it is not shown again. It is for %s", place);
    json_decref(token);
    return FB_EXIT_DONE;
}

/* ---- create ------------------------------------------------------------------------------------------------------------- */

/* "90d" in seconds; 0 when it is not such a time. */
static long long seconds_of(const char *text) {
    static const char units[] = "smhdw";
    static const long long lengths[] = {1, 60, 3600, 86400, 7 * 86400};
    size_t digits = strspn(text, "0123456789");
    const char *unit = text[digits] ? strchr(units, text[digits]) : NULL;
    if (!digits || digits > 9 || !unit || text[digits + 1]) return 0;
    long long seconds = atoll(text) * lengths[unit - units];
    return seconds < 100LL * 366 * 86400 ? seconds : 0;
}

/* When that is, as a time of RFC 3339. NULL stays NULL. */
static int read_expires(const char *given, char space[32], const char **expires) {
    int64_t unused;
    *expires = given;
    if (!given || fb_timestamp_read(given, &unused)) return FB_EXIT_DONE;
    long long seconds = seconds_of(given);
    if (!seconds)
        return fb_complain(FB_EXIT_USAGE,
                           "token create: --expires is 90d, 12h or 30m from now, or 2026-12-31, or a time of RFC 3339");
    time_t then = time(NULL) + (time_t)seconds;
    struct tm utc;
    gmtime_r(&then, &utc);
    strftime(space, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
    *expires = space;
    return FB_EXIT_DONE;
}

static int create_token(fb_cli *cli) {
    const fb_cli_values *values = &cli->values;
    const char *expires;
    char space[32];
    fb_call call = {.method = "POST"};
    if (!values->scope) return fb_complain(FB_EXIT_USAGE, "token create: say --scope read, write, hooks or admin");
    int result = read_expires(values->expires, space, &expires);
    if (result) return result;
    fb_address_path(&call.address, "/v1/tokens");
    fb_request_begin(&call.body);
    result = fb_request_text(&call.body, "scope", values->scope);
    if (!result) result = fb_request_text(&call.body, "name", values->name);
    if (!result) result = fb_request_text(&call.body, "expires", expires);
    if (!result) result = fb_request_end(&call.body);
    if (!result) return answer_token(cli, &call);
    fb_call_free(&call);
    return result;
}

/* ---- list and revoke ---------------------------------------------------------------------------------------------------- */

static void token_row(const json_t *token, fb_screen_table *table) {
    fb_table_text(table, token, "name");
    fb_table_text(table, token, "scope");
    fb_table_time(table, token, "created");
    fb_table_time(table, token, "expires");
    fb_table_time(table, token, "revoked");
    fb_table_time(table, token, "last_used");
}

static int list_tokens(fb_cli *cli) {
    static const char *const headings[] = {"TOKEN", "SCOPE", "CREATED", "EXPIRES", "REVOKED", "LAST USED"};
    fb_address address = {0};
    fb_address_path(&address, "/v1/tokens");
    return fb_list_show(cli, &address, headings, 6, token_row);
}

static int revoke_token(fb_cli *cli) {
    fb_call call = {.method = "DELETE"};
    fb_address_path(&call.address, "/v1/tokens");
    fb_address_segment(&call.address, cli->arguments.items[0]);
    return answer_token(cli, &call);
}

/* ---- audit -------------------------------------------------------------------------------------------------------------- */

static void entry_row(const json_t *entry, fb_screen_table *table) {
    fb_table_number(table, entry, "id");
    fb_table_time(table, entry, "when");
    fb_table_text(table, entry, "who");
    fb_table_text(table, entry, "action");
    fb_table_text(table, entry, "object");
    fb_table_text(table, entry, "outcome");
}

static int list_audit(fb_cli *cli) {
    static const char *const headings[] = {">ID", "WHEN", "WHO", "ACTION", "OBJECT", "OUTCOME"};
    const fb_cli_values *values = &cli->values;
    fb_address address = {0};
    fb_address_path(&address, "/v1/audit");
    fb_address_query(&address, "who", values->who);
    fb_address_query(&address, "action", values->action);
    fb_address_query(&address, "object", values->object);
    fb_address_query(&address, "since", values->since);
    fb_address_query(&address, "until", values->until);
    return fb_list_show(cli, &address, headings, 6, entry_row);
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option token_create_options[] = {
    TEXT("scope", 0, "read|write|hooks|admin", "what the token may do: hooks reads and manages webhooks, admin does all",
         scope),
    TEXT("name", 0, "NAME", "who will use it, for the audit (a generated name)", name),
    TEXT("expires", 0, "WHEN", "in 90d, 12h, 30m, or at 2026-12-31 or a time of RFC 3339 (never)", expires),
    STORE,
    JSON,
    END,
};

static const fb_option audit_options[] = {
    TEXT("who", 0, "NAME", "acts of this token; or anonymous, local, service", who),
    TEXT("action", 0, "ACTION", "acts of this kind: optimize, alias-deploy, token-create and so on", action),
    TEXT("object", 0, "OBJECT", "acts on this: a run, MODEL@ALIAS, MODEL:VERSION, a graph, a token", object),
    TEXT("since", 0, "WHEN", "not before this date or time (UTC)", since),
    TEXT("until", 0, "WHEN", "before this date or time", until),
    LIMIT,
    STORE,
    JSON,
    END,
};

const fb_verb fb_token_verbs[] = {
    {.name = "token create",
     .arguments = "",
     .summary = "creates a token, and shows it once",
     .description =
         "Once there is a token, a service needs one for every request. Commands on the data folder itself, which work\n"
         "while no service holds it, need none.\n",
     .options = token_create_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = create_token},
    {.name = "token list", .arguments = "", .summary = "lists the tokens", .options = fb_list_options, .run = list_tokens},
    {.name = "token revoke",
     .arguments = "TOKEN",
     .summary = "revokes a token",
     .options = fb_plain_options,
     .run = revoke_token},
    {.name = "audit", .arguments = "", .summary = "lists who did what, and when", .options = audit_options, .run = list_audit},
    {0},
};
