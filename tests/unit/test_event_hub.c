/* Subscribers of alias changes, read by hand. */
#include "tests/unit/store_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/events/event_hub.h"
#include "server/store/events.h"

static fb_store *store;
static char *folder;

/* The store tells nobody of changes: the hub learns of them when it is notified, or when somebody subscribes. */
static void open_models(void) {
    fb_error error = {0};
    fb_store_version version;
    made_graph graph;
    bool is_new;
    folder = strdup(new_folder());
    store = open_store(folder, NULL);
    make_graph(&graph, 1, 0);
    for (int i = 0; i < 2; i++) {
        fb_store_new_version made = {.model = "m", .name = i ? "v1" : "v0", .document = &graph.graph};
        check_ok(fb_store_put_version(store, &made, &is_new, &version, &error), &error);
        FB_STORE_FREE(&version);
    }
    free_graph(&graph);
}

static void close_models(void) {
    fb_store_close(store);
    remove_folder(folder);
    free(folder);
}

/* Each adds one entry. */
static void move_alias(const char *alias, int times) {
    for (int i = 0; i < times; i++) {
        fb_error error = {0};
        fb_store_alias_entry entry;
        fb_store_alias_change change = {.model = "m", .alias = alias, .condition = FB_ALIAS_IS_FREE};
        const char *next = "v0";
        if (fb_store_get_alias(store, "m", alias, &entry, &error) == FB_OK) {
            change.condition = FB_ALIAS_EXISTS;
            if (strcmp(entry.to, "v0") == 0) next = "v1";
            FB_STORE_FREE(&entry);
        }
        error = (fb_error){0};
        check_ok(fb_store_set_alias(store, &change, next, &entry, &error), &error);
        FB_STORE_FREE(&entry);
    }
}

static fb_event_hub *start_hub(unsigned heartbeat_ms) {
    fb_error error = {0};
    fb_event_hub *hub = fb_event_hub_new(heartbeat_ms);
    check_ok(fb_event_hub_start(hub, store, &error), &error);
    return hub;
}

static fb_subscriber *subscribe(fb_event_hub *hub, const char *model, const char *alias, int64_t after) {
    const fb_event_wish wish = {.kinds = 1U << FB_EVENT_ALIAS, .model = model, .alias = alias};
    return fb_event_hub_subscribe(hub, &wish, &(fb_event_place){.of[FB_EVENT_ALIAS] = after});
}

/* Reads, `step` bytes at once, until `end` is there; the caller frees. */
static char *read_until(fb_subscriber *subscriber, const char *end, size_t step) {
    fb_buffer all = {0};
    for (int i = 0; i < 20000 && !strstr(fb_buffer_text(&all), end);) {
        size_t given = fb_event_source.read(subscriber, NULL, fb_buffer_reserve(&all, step), step);
        ck_assert(given != FB_STREAM_END);
        all.size += given;
        if (given) continue;
        usleep(1000);
        i++;
    }
    size_t shown = all.size < 500 ? all.size : 500;
    ck_assert_msg(strstr(fb_buffer_text(&all), end) != NULL, "no %s in %zu bytes, … %s", end, all.size,
                  all.data + all.size - shown);
    return all.data;
}

/* The events in a text are those from `first` to `last`, all of them and in order. */
static void expect_events(const char *text, int first, int last) {
    for (int number = first; number <= last; number++) {
        char line[40];
        text = strstr(text, "\nevent: alias\n");
        snprintf(line, sizeof line, "data: {\"id\":%d,", number);
        ck_assert_msg(text && strncmp(text + strlen("\nevent: alias\n"), line, strlen(line)) == 0, "no %s in %.500s", line,
                      text ? text : "");
        text += strlen("\nevent: alias\n");
    }
    ck_assert(!strstr(text, "event: alias"));
}

/* What happened before somebody subscribed is not for him, also when the hub learns of it only then. */
START_TEST(ahead_of_the_hub) {
    open_models();
    fb_event_hub *hub = start_hub(3600000);
    move_alias("a", 5);
    fb_subscriber *late = subscribe(hub, NULL, NULL, 3);
    fb_subscriber *latest = subscribe(hub, NULL, NULL, 5);
    char *text = read_until(late, "\ndata: {\"id\":5,", 7);
    expect_events(text, 4, 5);
    free(text);
    move_alias("b", 1);
    fb_event_hub_notify(hub);
    text = read_until(latest, "\ndata: {\"id\":6,", 1000);
    expect_events(text, 6, 6);
    free(text);
    fb_event_source.release(late);
    fb_event_source.release(latest);
    fb_event_hub_free(hub);
    close_models();
}
END_TEST

/* More than is kept for a subscriber: it goes on from the store, alone, while another is where the hub is. */
START_TEST(far_behind) {
    open_models();
    fb_event_hub *hub = start_hub(3600000);
    fb_subscriber *quick = subscribe(hub, NULL, NULL, 0), *slow = subscribe(hub, "m", "a", 0);
    for (int i = 0; i < 8; i++) {
        char end[40];
        move_alias("a", 99);
        move_alias("b", 1);
        fb_event_hub_notify(hub);
        snprintf(end, sizeof end, "\ndata: {\"id\":%d,", (i + 1) * 100);
        char *text = read_until(quick, end, 1000);
        expect_events(text, i * 100 + 1, (i + 1) * 100);
        free(text);
    }
    char *text = read_until(slow, "\ndata: {\"id\":799,", 1000);
    ck_assert(!strstr(text, "\"alias\":\"b\""));
    size_t count = 0;
    for (const char *event = text; (event = strstr(event, "event: alias")); event++) count++;
    ck_assert_uint_eq(count, 8 * 99);
    free(text);
    fb_event_source.release(quick);
    fb_event_source.release(slow);
    fb_event_hub_free(hub);
    close_models();
}
END_TEST

START_TEST(heartbeats) {
    open_models();
    fb_event_hub *hub = start_hub(10);
    fb_subscriber *one = subscribe(hub, "none", NULL, 0);
    char *text = read_until(one, "id: 0\n\n", 1000);
    ck_assert_str_eq(text, "retry: 2000\n: what happens after 0\nid: 0\n\n");
    free(text);
    free(read_until(one, ":\n\n:\n\n:\n\n", 1000));
    usleep(50000); /* and one waits, not several */
    text = read_until(one, ":\n\n", 1000);
    ck_assert_str_eq(text, ":\n\n");
    free(text);
    fb_event_source.release(one);
    fb_event_hub_free(hub);
    fb_event_hub_free(NULL);
    close_models();
}
END_TEST

static void check_id(const char *text, bool is_one, int64_t run, int64_t version, int64_t alias) {
    fb_event_place place = {{-1, -1, -1}};
    ck_assert_msg(fb_event_id_read(text, &place) == is_one, "%s", text);
    ck_assert_int_eq(place.of[FB_EVENT_RUN], run);
    ck_assert_int_eq(place.of[FB_EVENT_VERSION], version);
    ck_assert_int_eq(place.of[FB_EVENT_ALIAS], alias);
}

START_TEST(ids_name_a_place) {
    check_id("42", true, -1, -1, 42);
    check_id("a42", true, -1, -1, 42);
    check_id("r1.v22.a333", true, 1, 22, 333);
    check_id("r1.a333", true, 1, -1, 333);
    check_id("v9223372036854775807", true, -1, INT64_MAX, -1);
    static const char *const wrong[] = {"",
                                        ".",
                                        "r",
                                        "r1.",
                                        "r1..a2",
                                        ".a1",
                                        "a1.r2",
                                        "v1.v2",
                                        "x1",
                                        "r-1",
                                        "-1",
                                        "+1",
                                        " 1",
                                        "1 ",
                                        "1.a2",
                                        "r1 .a2",
                                        "r 1",
                                        "1.5",
                                        "9223372036854775808",
                                        "r99999999999999999999",
                                        "r1,a2"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) check_id(wrong[i], false, -1, -1, -1);
}
END_TEST

/* Another who wishes for more kinds comes later: each has what it wished for, with ids of its own. */
START_TEST(kinds_that_nobody_wished_for_before) {
    open_models();
    fb_event_hub *hub = start_hub(3600000);
    fb_subscriber *aliases = subscribe(hub, NULL, NULL, 0);
    move_alias("a", 2);
    fb_event_hub_notify(hub);
    free(read_until(aliases, "\ndata: {\"id\":2,", 1000));
    const fb_event_wish both = {.kinds = 1U << FB_EVENT_VERSION | 1U << FB_EVENT_ALIAS};
    fb_subscriber *all = fb_event_hub_subscribe(hub, &both, &(fb_event_place){0});
    char *text = read_until(all, "\nid: v2.a2\n", 7);
    ck_assert_ptr_eq(
        strstr(text,
               "retry: 2000\n: what happens after v0.a0\nid: v0.a0\n\nid: v1.a0\nevent: version\ndata: {\"model\":\"m\","),
        text);
    ck_assert_ptr_nonnull(strstr(text, "\nid: v2.a0\nevent: version\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nid: v2.a1\nevent: alias\n"));
    free(text);
    move_alias("a", 1);
    fb_event_hub_notify(hub);
    free(read_until(all, "\nid: v2.a3\nevent: alias\n", 1000));
    text = read_until(aliases, "\ndata: {\"id\":3,", 1000);
    expect_events(text, 3, 3);
    free(text);
    fb_event_source.release(all);
    fb_event_source.release(aliases);
    fb_event_hub_free(hub);
    close_models();
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("event hub");
    tcase_add_test(tests, ids_name_a_place);
    tcase_add_test(tests, kinds_that_nobody_wished_for_before);
    tcase_add_test(tests, ahead_of_the_hub);
    tcase_add_test(tests, far_behind);
    tcase_add_test(tests, heartbeats);
    return run_tests("event hub", tests);
}
