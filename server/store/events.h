/* Events for streams: runs, versions and entries of aliases, each kind in the order of its commits. A row that has been deleted
 * since is left out.
 *
 * As in store.h: safe from any thread, and the same general errors. */
#ifndef FB_STORE_EVENTS_H
#define FB_STORE_EVENTS_H

#include "core/base/buffer.h"
#include "server/store/models.h"
#include "server/store/store.h"

/* In the order in which events of one moment are sent: what an alias names comes before it. */
typedef enum fb_event_kind { FB_EVENT_RUN, FB_EVENT_VERSION, FB_EVENT_ALIAS, FB_EVENT_KINDS } fb_event_kind;

/* A place among the events: of each kind the number of the last one before it. */
typedef struct fb_event_place {
    int64_t of[FB_EVENT_KINDS];
} fb_event_place;

typedef struct fb_event_wish {
    unsigned kinds;    /* bits: 1 << kind */
    const char *model; /* of versions and aliases, or NULL: any */
    const char *alias; /* of aliases, or NULL */
} fb_event_wish;

typedef struct fb_store_event {
    fb_event_kind kind;
    int64_t number;
    const char *model, *alias; /* NULL where it has none */
    const char *data;          /* JSON, the `data` of what webhooks get */
} fb_store_event;

typedef struct fb_store_events {
    fb_store_event *items;
    size_t count;
    fb_event_place seen;
    fb_store_memory *memory;
} fb_store_events;

/* Lists the wished-for events after a place, `limit` at most (0 = FB_PAGE_DEFAULT, and FB_PAGE_MAX is the most). `out->seen` is
 * the place to go on from: what is before it has been returned, now or before, or is not wished for. Fewer than `limit` are
 * all. A caller that must know of new events gives fb_store_config.happened. */
fb_status fb_store_events_after(fb_store *store, const fb_event_wish *wish, const fb_event_place *place, size_t limit,
                                fb_store_events *out, fb_error *error);

/* The place after all events; and of each kind the highest number that one has had, although it may have been deleted since. */
fb_status fb_store_last_event(fb_store *store, fb_event_place *place, fb_event_place *highest, fb_error *error);

/* Appends a run's passes; with their versions and signatures, and with their counts, where `refused` names the count of
 * refusals. */
void fb_run_passes_write(const fb_store_run *run, bool is_identified, const char *refused, fb_buffer *out);
/* Append the `data` of an event. An entry of an alias names model and alias only with `with_names`. */
void fb_alias_entry_write(const fb_store_alias_entry *entry, bool with_names, fb_buffer *out);
void fb_version_event_write(const fb_store_version *version, fb_buffer *out);
void fb_run_event_write(const fb_store_run *run, fb_buffer *out);

#endif
