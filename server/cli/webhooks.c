/* foldback webhook list, create, show, change, rotate, delete, test, deliveries, redeliver. */
#include <string.h>

#include "core/json/json.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

static void join(const json_t *list, fb_buffer *out) {
    size_t i;
    json_t *word;
    json_array_foreach(list, i, word) fb_buffer_printf(out, "%s%s", i ? ", " : "", json_string_value(word));
}

static void print_webhook(fb_cli *cli, const json_t *webhook) {
    fb_buffer events = {0}, models = {0}, waiting = {0};
    join(json_object_get(webhook, "events"), &events);
    join(json_object_get(webhook, "models"), &models);
    fb_buffer_printf(&waiting, "%" JSON_INTEGER_FORMAT " pending, %" JSON_INTEGER_FORMAT " parked",
                     json_integer_value(json_object_get(webhook, "pending")),
                     json_integer_value(json_object_get(webhook, "parked")));
    const char *events_text = fb_buffer_text(&events), *models_text = fb_buffer_text(&models),
               *counts = fb_buffer_text(&waiting);
    fb_print_facts(cli, (const fb_fact[]){{"webhook", fb_text_of(webhook, "id")},
                                          {"url", fb_text_of(webhook, "url")},
                                          {"events", events_text ? events_text : ""},
                                          {"models", models_text ? models_text : ""},
                                          {"note", fb_text_of(webhook, "note")},
                                          {"enabled", fb_yes_no(webhook, "enabled")},
                                          {"who", fb_text_of(webhook, "who")},
                                          {"withdrawn", fb_yes_no(webhook, "withdrawn")},
                                          {"secret", fb_text_of(webhook, "secret")},
                                          {"old secret until", fb_told_time(fb_text_of(webhook, "old_secret_until")).text},
                                          {"messages", counts ? counts : ""},
                                          {"created", fb_told_time(fb_text_of(webhook, "created")).text},
                                          {0}});
    fb_buffer_free(&events);
    fb_buffer_free(&models);
    fb_buffer_free(&waiting);
}

/* Frees what is in the call. */
static int answer_webhook(fb_cli *cli, fb_call *call) {
    json_t *webhook;
    if (cli->is_json) return fb_cli_relay(cli, call);
    int result = fb_cli_call_json(cli, call, &webhook, NULL);
    if (result) return result;
    print_webhook(cli, webhook);
    if (*fb_text_of(webhook, "secret")) fb_complain(0, "keep the secret now: it is not shown again");
    json_decref(webhook);
    return FB_EXIT_DONE;
}

/* /v1/webhooks/{the first argument}, and then the parts that are not NULL. */
static void address(fb_cli *cli, fb_address *out, const char *part, const char *id, const char *last) {
    fb_address_path(out, "/v1/webhooks");
    fb_address_segment(out, cli->arguments.items[0]);
    const char *const rest[] = {part, id, last};
    for (size_t i = 0; i < sizeof rest / sizeof *rest && rest[i]; i++) fb_address_segment(out, rest[i]);
}

/* ---- create and change --------------------------------------------------------------------------------------------------- */

static int put_list(fb_buffer *out, const char *name, const fb_text_list *list) {
    if (!list->count) return FB_EXIT_DONE;
    json_t *array = json_array();
    for (size_t i = 0; array && i < list->count; i++) {
        json_t *word = json_string(list->items[i]);
        if (word && !json_array_append_new(array, word)) continue;
        json_decref(array);
        return fb_complain(FB_EXIT_USAGE, "%s: this is not UTF-8", list->items[i]);
    }
    if (!array) return fb_cli_no_memory();
    fb_put_json(out, name, array);
    json_decref(array);
    return FB_EXIT_DONE;
}

static int put_members(fb_cli *cli, const char *url, fb_buffer *out) {
    const fb_cli_values *values = &cli->values;
    if (values->enables && values->disables)
        return fb_complain(FB_EXIT_USAGE, "%s: --enable and --disable are not given together", cli->verb->name);
    fb_request_begin(out);
    int result = fb_request_text(out, "url", url);
    if (!result) result = put_list(out, "events", &values->events);
    if (!result) result = put_list(out, "models", &values->models);
    if (!result) result = fb_request_text(out, "note", values->note);
    if (!result && (values->enables || values->disables)) fb_put_bool(out, "enabled", values->enables);
    return result ? result : fb_request_end(out);
}

static int create_webhook(fb_cli *cli) {
    fb_call call = {.method = "POST"};
    fb_address_path(&call.address, "/v1/webhooks");
    int result = put_members(cli, cli->arguments.items[0], &call.body);
    if (!result) return answer_webhook(cli, &call);
    fb_call_free(&call);
    return result;
}

static int change_webhook(fb_cli *cli) {
    fb_call call = {.method = "PATCH"};
    address(cli, &call.address, NULL, NULL, NULL);
    int result = put_members(cli, cli->values.url, &call.body);
    if (!result) return answer_webhook(cli, &call);
    fb_call_free(&call);
    return result;
}

static int rotate_secret(fb_cli *cli) {
    fb_call call = {.method = "POST"};
    address(cli, &call.address, "secret", NULL, NULL);
    fb_request_begin(&call.body);
    if (cli->values.overlap != FB_GRACE_UNSET) fb_put_int(&call.body, "overlap", cli->values.overlap);
    int result = fb_request_end(&call.body);
    if (!result) return answer_webhook(cli, &call);
    fb_call_free(&call);
    return result;
}

/* ---- show, list, delete -------------------------------------------------------------------------------------------------- */

static int show_webhook(fb_cli *cli) {
    fb_call call = {.method = "GET"};
    address(cli, &call.address, NULL, NULL, NULL);
    return answer_webhook(cli, &call);
}

static void webhook_row(const json_t *webhook, fb_screen_table *table) {
    fb_table_text(table, webhook, "id");
    fb_table_text(table, webhook, "url");
    fb_table_cell(table, "%s", fb_yes_no(webhook, "enabled"));
    fb_table_number(table, webhook, "pending");
    fb_table_number(table, webhook, "parked");
    fb_table_time(table, webhook, "created");
}

static int list_webhooks(fb_cli *cli) {
    static const char *const headings[] = {"WEBHOOK", "URL", "ENABLED", ">PENDING", ">PARKED", "CREATED"};
    fb_address list = {0};
    fb_address_path(&list, "/v1/webhooks");
    return fb_list_show(cli, &list, headings, 6, webhook_row);
}

static int delete_webhook(fb_cli *cli) {
    fb_call call = {.method = "DELETE"};
    fb_answer answer;
    address(cli, &call.address, NULL, NULL, NULL);
    int result = fb_cli_call(cli, &call, &answer);
    if (!result) fb_answer_free(&answer);
    return result;
}

/* ---- deliveries ---------------------------------------------------------------------------------------------------------- */

static void delivery_row(const json_t *delivery, fb_screen_table *table) {
    fb_table_text(table, delivery, "id");
    fb_table_text(table, delivery, "type");
    fb_table_text(table, delivery, "state");
    fb_table_number(table, delivery, "attempts");
    fb_table_time(table, delivery, "created");
    fb_table_text(table, delivery, "failure");
}

static int list_deliveries(fb_cli *cli) {
    static const char *const headings[] = {"MESSAGE", "TYPE", "STATE", ">ATTEMPTS", "CREATED", "FAILURE"};
    fb_address list = {0};
    address(cli, &list, "deliveries", NULL, NULL);
    fb_address_query(&list, "state", cli->values.state);
    return fb_list_show(cli, &list, headings, 6, delivery_row);
}

/* Frees what is in the call. */
static int answer_delivery(fb_cli *cli, fb_call *call) {
    json_t *delivery;
    if (cli->is_json) return fb_cli_relay(cli, call);
    int result = fb_cli_call_json(cli, call, &delivery, NULL);
    if (result) return result;
    fb_print_facts(cli, (const fb_fact[]){{"message", fb_text_of(delivery, "id")},
                                          {"type", fb_text_of(delivery, "type")},
                                          {"state", fb_text_of(delivery, "state")},
                                          {0}});
    json_decref(delivery);
    return FB_EXIT_DONE;
}

static int send_test(fb_cli *cli) {
    fb_call call = {.method = "POST"};
    address(cli, &call.address, "test", NULL, NULL);
    return answer_delivery(cli, &call);
}

static int redeliver(fb_cli *cli) {
    fb_call call = {.method = "POST"};
    address(cli, &call.address, "deliveries", cli->arguments.items[1], "redeliver");
    return answer_delivery(cli, &call);
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

#define HOOK_OPTIONS                                                                                                           \
    LIST("event", 'e', "EVENT", "tell of this: alias.moved, run.finished and so on; may be repeated (all)", events),           \
        LIST("model", 'm', "PATTERN", "of these models only: bert-*; may be repeated (all)", models), NOTE
static const fb_option webhook_create_options[] = {HOOK_OPTIONS, STORE, JSON, END};

static const fb_option webhook_change_options[] = {
    TEXT("url", 0, "URL", "send to this URL from now on", url),
    HOOK_OPTIONS,
    FLAG("enable", 0, "deliver again, first what waits", enables),
    FLAG("disable", 0, "deliver nothing until it is enabled again", disables),
    STORE,
    JSON,
    END,
};

static const fb_option webhook_rotate_options[] = {
    {"overlap", 0, "SECONDS", "how long the old secret also signs (86400)", FB_OPTION_COUNT, AT(overlap), 0, 31536000},
    STORE,
    JSON,
    END,
};

static const fb_option webhook_deliveries_options[] = {
    TEXT("state", 0, "STATE", "only messages in this state: pending, delivered or parked", state), LIMIT, STORE, JSON, END,
};

const fb_verb fb_webhook_verbs[] = {
    {.name = "webhook create",
     .arguments = "URL",
     .summary = "sends events to a URL; shows the secret once",
     .description = "The service must run with --webhooks. Events: alias.created, alias.moved, alias.rolled_back,\n"
                    "alias.deleted, version.created, run.finished, job.finished.\n",
     .options = webhook_create_options,
     .run = create_webhook},
    {.name = "webhook list",
     .arguments = "",
     .summary = "lists the webhooks",
     .options = fb_list_options,
     .run = list_webhooks},
    {.name = "webhook show",
     .arguments = "WEBHOOK",
     .summary = "shows a webhook",
     .options = fb_plain_options,
     .run = show_webhook},
    {.name = "webhook change",
     .arguments = "WEBHOOK",
     .summary = "changes a webhook",
     .options = webhook_change_options,
     .run = change_webhook},
    {.name = "webhook rotate",
     .arguments = "WEBHOOK",
     .summary = "gives a webhook another secret, and shows it once",
     .options = webhook_rotate_options,
     .run = rotate_secret},
    {.name = "webhook delete",
     .arguments = "WEBHOOK",
     .summary = "deletes a webhook, and what waits for it",
     .options = fb_store_options,
     .run = delete_webhook},
    {.name = "webhook test",
     .arguments = "WEBHOOK",
     .summary = "sends a webhook a message of type webhook.test",
     .options = fb_plain_options,
     .run = send_test},
    {.name = "webhook deliveries",
     .arguments = "WEBHOOK",
     .summary = "lists what a webhook was sent, and what could not be",
     .options = webhook_deliveries_options,
     .run = list_deliveries},
    {.name = "webhook redeliver",
     .arguments = "WEBHOOK MESSAGE",
     .summary = "sends a message again, under the same id",
     .options = fb_plain_options,
     .run = redeliver},
    {0},
};
