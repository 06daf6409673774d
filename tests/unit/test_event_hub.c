/* Subscribers of alias changes, read by hand. */
#include "tests/unit/store_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/events/event_hub.h"
#include "server/store/models.h"

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
        fb_store_version_free(&version);
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
            fb_store_alias_entry_free(&entry);
        }
        error = (fb_error){0};
        check_ok(fb_store_set_alias(store, &change, next, &entry, &error), &error);
        fb_store_alias_entry_free(&entry);
    }
}

static fb_event_hub *start_hub(unsigned heartbeat_ms) {
    fb_error error = {0};
    fb_event_hub *hub = fb_event_hub_new(heartbeat_ms);
    check_ok(fb_event_hub_start(hub, store, &error), &error);
    return hub;
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
    fb_subscriber *late = fb_event_hub_subscribe(hub, NULL, NULL, 3);
    fb_subscriber *latest = fb_event_hub_subscribe(hub, NULL, NULL, 5);
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
    fb_subscriber *quick = fb_event_hub_subscribe(hub, NULL, NULL, 0), *slow = fb_event_hub_subscribe(hub, "m", "a", 0);
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
    fb_subscriber *one = fb_event_hub_subscribe(hub, "none", NULL, 0);
    char *text = read_until(one, "id: 0\n\n", 1000);
    ck_assert_str_eq(text, "retry: 2000\n: changes of aliases after 0\nid: 0\n\n");
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

int main(void) {
    TCase *tests = tcase_create("event hub");
    tcase_add_test(tests, ahead_of_the_hub);
    tcase_add_test(tests, far_behind);
    tcase_add_test(tests, heartbeats);
    return run_tests("event hub", tests);
}
