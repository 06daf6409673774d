#include "server/events/event_hub.h"
#include "server/metrics/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAITING_MAX ((size_t)64 << 10) /* bytes; with more no further event is added to what waits for a subscriber */
#define PAGE 100                       /* events read at once */
#define RETRY_MS 1000                  /* after the store could not be read */

struct fb_subscriber {
    fb_event_hub *hub;
    fb_event_wish wish;
    char *model, *alias;     /* the wish's */
    fb_event_place position; /* got everything up to this place; the hub thread's own */

    /* under the hub's mutex */
    fb_subscriber *next;
    fb_stream *stream; /* NULL until it was read from */
    fb_buffer waiting;
    size_t taken;       /* of `waiting` */
    bool has_new_bytes; /* since it was woken */
    bool is_behind, is_gone;
};

struct fb_event_hub {
    fb_store *store;
    unsigned heartbeat_ms;
    fb_event_place position; /* events up to this place have been offered to all; the thread's own */
    fb_buffer event;         /* the thread's own */
    pthread_t thread;
    bool is_running;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    fb_subscriber *first;
    bool has_work, is_stopping;
};

static void free_subscriber(fb_subscriber *subscriber) {
    free(subscriber->model);
    free(subscriber->alias);
    fb_buffer_free(&subscriber->waiting);
    free(subscriber);
}

/* With the mutex. */
static void call_thread(fb_event_hub *hub) {
    hub->has_work = true;
    pthread_cond_signal(&hub->changed);
}

void fb_event_hub_notify(void *context) {
    fb_event_hub *hub = context;
    pthread_mutex_lock(&hub->mutex);
    call_thread(hub);
    pthread_mutex_unlock(&hub->mutex);
}

/* ---- ids: the numbers of the last events of a stream, one for each of its kinds ------------------------------------------ */

static const struct {
    const char *name;
    char letter;
} kinds[FB_EVENT_KINDS] = {
    [FB_EVENT_RUN] = {"run", 'r'},
    [FB_EVENT_VERSION] = {"version", 'v'},
    [FB_EVENT_ALIAS] = {"alias", 'a'},
};

const char *fb_event_kind_name(fb_event_kind kind) {
    return kind < FB_EVENT_KINDS ? kinds[kind].name : NULL;
}

static void write_id(fb_buffer *out, unsigned wished, const fb_event_place *place) {
    if (wished == 1U << FB_EVENT_ALIAS) {
        fb_buffer_printf(out, "%" PRId64, place->of[FB_EVENT_ALIAS]);
        return;
    }
    const char *separator = "";
    for (fb_event_kind kind = 0; kind < FB_EVENT_KINDS; kind++) {
        if (!(wished & 1U << kind)) continue;
        fb_buffer_printf(out, "%s%c%" PRId64, separator, kinds[kind].letter, place->of[kind]);
        separator = ".";
    }
}

static bool read_number(const char **text, int64_t *number) {
    if (**text < '0' || **text > '9') return false;
    char *end;
    errno = 0;
    *number = strtoll(*text, &end, 10);
    *text = end;
    return !errno;
}

bool fb_event_id_read(const char *text, fb_event_place *place) {
    fb_event_place read = *place;
    if (*text >= '0' && *text <= '9') {
        if (!read_number(&text, &read.of[FB_EVENT_ALIAS]) || *text) return false;
        *place = read;
        return true;
    }
    for (fb_event_kind next = 0;; next++, text++) {
        while (next < FB_EVENT_KINDS && *text != kinds[next].letter) next++;
        if (next >= FB_EVENT_KINDS) return false;
        text++;
        if (!read_number(&text, &read.of[next]) || (*text && *text != '.')) return false;
        if (!*text) break;
    }
    *place = read;
    return true;
}

/* ---- the stream's side -------------------------------------------------------------------------------------------------- */

fb_subscriber *fb_event_hub_subscribe(fb_event_hub *hub, const fb_event_wish *wish, const fb_event_place *after) {
    fb_subscriber *subscriber = calloc(1, sizeof *subscriber);
    if (!subscriber) return NULL;
    *subscriber = (fb_subscriber){.hub = hub, .wish = *wish, .position = *after, .is_behind = true};
    if (wish->model) subscriber->wish.model = subscriber->model = strdup(wish->model);
    if (wish->alias) subscriber->wish.alias = subscriber->alias = strdup(wish->alias);
    /* A client that reconnects says which id it saw last. With this one it can also when nothing happened in between. */
    fb_buffer_string(&subscriber->waiting, "retry: 2000\n: what happens after ");
    write_id(&subscriber->waiting, wish->kinds, after);
    fb_buffer_string(&subscriber->waiting, "\nid: ");
    write_id(&subscriber->waiting, wish->kinds, after);
    fb_buffer_string(&subscriber->waiting, "\n\n");
    if (subscriber->waiting.failed || (wish->model && !subscriber->model) || (wish->alias && !subscriber->alias)) {
        free_subscriber(subscriber);
        return NULL;
    }
    pthread_mutex_lock(&hub->mutex);
    subscriber->next = hub->first;
    hub->first = subscriber;
    call_thread(hub);
    pthread_mutex_unlock(&hub->mutex);
    return subscriber;
}

static size_t read_events(void *state, fb_stream *stream, char *to, size_t size) {
    fb_subscriber *subscriber = state;
    pthread_mutex_lock(&subscriber->hub->mutex);
    subscriber->stream = stream;
    fb_buffer *waiting = &subscriber->waiting;
    size_t given = waiting->size - subscriber->taken;
    if (given > size) given = size;
    if (given) memcpy(to, waiting->data + subscriber->taken, given);
    subscriber->taken += given;
    bool is_broken = waiting->failed; /* no memory: the client asks again for what it has not got */
    if (given && subscriber->taken == waiting->size) {
        fb_buffer_free(waiting);
        subscriber->taken = 0;
        if (subscriber->is_behind) call_thread(subscriber->hub);
    }
    pthread_mutex_unlock(&subscriber->hub->mutex);
    return is_broken ? FB_STREAM_END : given;
}

static void leave(void *state) {
    fb_subscriber *subscriber = state;
    fb_event_hub *hub = subscriber->hub;
    pthread_mutex_lock(&hub->mutex);
    subscriber->is_gone = true; /* the thread, which may be at work for it, frees it */
    subscriber->stream = NULL;
    call_thread(hub);
    pthread_mutex_unlock(&hub->mutex);
}

const fb_stream_source fb_event_source = {.read = read_events, .release = leave};

/* ---- the thread's side -------------------------------------------------------------------------------------------------- */

/* Without its id, which is the subscriber's. */
static fb_status write_event(fb_buffer *out, const fb_store_event *event, fb_error *error) {
    out->size = 0;
    fb_buffer_printf(out, "\nevent: %s\ndata: %s\n\n", kinds[event->kind].name, event->data);
    if (!out->failed) return FB_OK;
    fb_buffer_free(out);
    return fb_fail_memory(error);
}

static bool wants(const fb_event_wish *wish, const fb_store_event *event) {
    return wish->kinds & 1U << event->kind && (!wish->model || !event->model || strcmp(wish->model, event->model) == 0) &&
           (!wish->alias || !event->alias || strcmp(wish->alias, event->alias) == 0);
}

/* With the mutex. False when the room is used up. */
static bool offer(fb_subscriber *subscriber, const fb_store_event *event, const fb_buffer *text) {
    bool is_wanted = wants(&subscriber->wish, event);
    fb_buffer *waiting = &subscriber->waiting;
    if (is_wanted && waiting->size >= WAITING_MAX) return false;
    subscriber->position.of[event->kind] = event->number;
    if (!is_wanted) return true;
    fb_buffer_string(waiting, "id: ");
    write_id(waiting, subscriber->wish.kinds, &subscriber->position);
    fb_buffer_append(waiting, text->data, text->size);
    subscriber->has_new_bytes = true;
    return true;
}

/* True if the subscriber wants an event that has been offered to all already. */
static bool is_before(const fb_subscriber *subscriber, const fb_event_place *place) {
    for (fb_event_kind kind = 0; kind < FB_EVENT_KINDS; kind++)
        if (subscriber->wish.kinds & 1U << kind && subscriber->position.of[kind] < place->of[kind]) return true;
    return false;
}

/* With the mutex: resumes the streams that got something. */
static void wake_streams(fb_event_hub *hub) {
    for (fb_subscriber *one = hub->first; one; one = one->next) {
        if (one->has_new_bytes && one->stream) fb_stream_wake(one->stream);
        one->has_new_bytes = false;
    }
}

static fb_status offer_to_all(fb_event_hub *hub, const fb_store_event *event, fb_error *error) {
    fb_status status = write_event(&hub->event, event, error);
    if (status) return status;
    pthread_mutex_lock(&hub->mutex);
    for (fb_subscriber *one = hub->first; one; one = one->next) {
        if (one->is_gone || one->position.of[event->kind] >= event->number || is_before(one, &hub->position)) continue;
        one->is_behind = !offer(one, event, &hub->event);
    }
    hub->position.of[event->kind] = event->number;
    pthread_mutex_unlock(&hub->mutex);
    return FB_OK;
}

/* The kinds of events that any subscriber wishes for. */
static fb_event_wish find_wish(fb_event_hub *hub) {
    fb_event_wish wish = {0};
    pthread_mutex_lock(&hub->mutex);
    for (const fb_subscriber *one = hub->first; one; one = one->next) wish.kinds |= one->wish.kinds;
    pthread_mutex_unlock(&hub->mutex);
    return wish;
}

/* Reads the events that have not been offered yet. */
static fb_status read_news(fb_event_hub *hub, fb_error *error) {
    fb_store_events page;
    fb_status status;
    bool is_last;
    do {
        const fb_event_wish wish = find_wish(hub);
        status = fb_store_events_after(hub->store, &wish, &hub->position, PAGE, &page, error);
        if (status) return status;
        is_last = page.count < PAGE;
        for (size_t i = 0; i < page.count && !status; i++) status = offer_to_all(hub, &page.items[i], error);
        pthread_mutex_lock(&hub->mutex);
        if (!status) hub->position = page.seen;
        wake_streams(hub);
        pthread_mutex_unlock(&hub->mutex);
        FB_STORE_FREE(&page);
    } while (!status && !is_last);
    return status;
}

/* One page for a subscriber that is behind. */
static fb_status catch_up(fb_event_hub *hub, fb_subscriber *subscriber, fb_error *error) {
    fb_store_events page;
    fb_status status = fb_store_events_after(hub->store, &subscriber->wish, &subscriber->position, PAGE, &page, error);
    if (status) return status;
    bool has_room = true;
    for (size_t i = 0; i < page.count && has_room && !status; i++) {
        status = write_event(&hub->event, &page.items[i], error);
        pthread_mutex_lock(&hub->mutex);
        if (!status) has_room = offer(subscriber, &page.items[i], &hub->event);
        pthread_mutex_unlock(&hub->mutex);
    }
    if (!status && has_room) subscriber->position = page.seen;
    FB_STORE_FREE(&page);
    return status;
}

/* With the mutex, but not while it reads the store. A page for each that is behind and has room: *is_done when there was none.
 */
static fb_status serve_those_behind(fb_event_hub *hub, bool *is_done, fb_error *error) {
    fb_status status = FB_OK;
    *is_done = true;
    for (fb_subscriber *one = hub->first; one && !status; one = one->next) { /* others may come, but in front; none is freed */
        one->is_behind = is_before(one, &hub->position);
        if (!one->is_behind || one->is_gone || one->waiting.size >= WAITING_MAX) continue;
        *is_done = false;
        pthread_mutex_unlock(&hub->mutex);
        status = catch_up(hub, one, error);
        pthread_mutex_lock(&hub->mutex);
    }
    wake_streams(hub);
    return status;
}

/* With the mutex. */
static void free_those_gone(fb_event_hub *hub) {
    for (fb_subscriber **place = &hub->first; *place;) {
        fb_subscriber *one = *place;
        if (!one->is_gone) {
            place = &one->next;
            continue;
        }
        *place = one->next;
        free_subscriber(one);
    }
}

/* With the mutex. */
static void beat(fb_event_hub *hub) {
    for (fb_subscriber *one = hub->first; one; one = one->next)
        if (!one->waiting.size && !one->is_gone) {
            fb_buffer_string(&one->waiting, ":\n\n");
            one->has_new_bytes = true;
        }
    wake_streams(hub);
}

/* With the mutex. */
static void wait_for_work(fb_event_hub *hub, int64_t until) {
    struct timespec deadline = {.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000};
    while (!hub->has_work && !hub->is_stopping && fb_monotonic_ms() < until)
        pthread_cond_timedwait(&hub->changed, &hub->mutex, &deadline);
    hub->has_work = false;
}

static void *work(void *argument) {
    fb_event_hub *hub = argument;
    int64_t next_beat = fb_monotonic_ms() + hub->heartbeat_ms, until = 0;
    pthread_mutex_lock(&hub->mutex);
    while (!hub->is_stopping) {
        wait_for_work(hub, until);
        free_those_gone(hub);
        int64_t now = fb_monotonic_ms();
        if (now >= next_beat) {
            beat(hub);
            next_beat = now + hub->heartbeat_ms;
        }
        bool is_done = true;
        pthread_mutex_unlock(&hub->mutex);
        fb_status status = read_news(hub, &(fb_error){0});
        pthread_mutex_lock(&hub->mutex);
        if (!status) status = serve_those_behind(hub, &is_done, &(fb_error){0});
        until = !status && !is_done ? 0 : next_beat;
        if (status && now + RETRY_MS < until) until = now + RETRY_MS; /* the streams wait for better times */
    }
    pthread_mutex_unlock(&hub->mutex);
    return NULL;
}

/* ---- begin and end ------------------------------------------------------------------------------------------------------ */

fb_event_hub *fb_event_hub_new(unsigned heartbeat_ms) {
    fb_event_hub *hub = calloc(1, sizeof *hub);
    if (!hub) return NULL;
    hub->heartbeat_ms = heartbeat_ms;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&hub->mutex, NULL);
    pthread_cond_init(&hub->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return hub;
}

fb_status fb_event_hub_start(fb_event_hub *hub, fb_store *store, fb_error *error) {
    hub->store = store;
    fb_status status = fb_store_last_event(store, &hub->position, &(fb_event_place){0}, error);
    if (status) return status;
    int failure = pthread_create(&hub->thread, NULL, work, hub);
    hub->is_running = failure == 0;
    if (!failure) return FB_OK;
    return fb_fail(error, FB_IO, "no-thread", NULL, "cannot start a thread: %s", strerror(failure));
}

void fb_event_hub_free(fb_event_hub *hub) {
    if (!hub) return;
    if (hub->is_running) {
        pthread_mutex_lock(&hub->mutex);
        hub->is_stopping = true;
        pthread_cond_signal(&hub->changed);
        pthread_mutex_unlock(&hub->mutex);
        pthread_join(hub->thread, NULL);
    }
    free_those_gone(hub);
    fb_buffer_free(&hub->event);
    pthread_cond_destroy(&hub->changed);
    pthread_mutex_destroy(&hub->mutex);
    free(hub);
}
