/* Events on their way from the store to event streams.
 *
 *     commit ── fb_event_hub_notify ──► the hub's thread ── reads the store ──► what waits for each subscriber ──► I/O threads
 *
 * A subscriber remembers up to which place it has got everything. Subscribers that have got all that the hub has seen share
 * what it reads next. One that cannot take an event, because too much waits for it already, stays where it is; when its client
 * has read what waits it goes on from the store by itself, a page at a time, until it is where the hub is. */
#ifndef FB_EVENTS_EVENT_HUB_H
#define FB_EVENTS_EVENT_HUB_H

#include "server/http/http.h"
#include "server/store/events.h"

typedef struct fb_event_hub fb_event_hub;
typedef struct fb_subscriber fb_subscriber;

/* Every `heartbeat_ms` each stream for which nothing waits gets a comment. NULL when memory is out. */
fb_event_hub *fb_event_hub_new(unsigned heartbeat_ms);
/* Starts the thread. */
fb_status fb_event_hub_start(fb_event_hub *hub, fb_store *store, fb_error *error);
/* Stops the thread; all streams must have ended. NULL does nothing. */
void fb_event_hub_free(fb_event_hub *hub);

/* Something has happened. */
void fb_event_hub_notify(void *hub);

/* Everything that is wished for after a place. The subscriber is for fb_respond_stream, with fb_event_source; NULL when memory
 * is out. */
fb_subscriber *fb_event_hub_subscribe(fb_event_hub *hub, const fb_event_wish *wish, const fb_event_place *after);
extern const fb_stream_source fb_event_source;

/* The name of a kind of events: "run". NULL from FB_EVENT_KINDS on. */
const char *fb_event_kind_name(fb_event_kind kind);
/* Reads an event's id, "r17.v4.a42" or, of an alias, "42": a place, of the kinds that the id has. False when it is none.
 */
bool fb_event_id_read(const char *text, fb_event_place *place);

#endif
