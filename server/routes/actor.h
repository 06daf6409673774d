/* Who asks, for the store's audit. */
#ifndef FB_ROUTES_ACTOR_H
#define FB_ROUTES_ACTOR_H

#include "server/http/http.h"
#include "server/store/store.h"

/* Borrows from the request. */
static inline fb_store_actor fb_actor_of(const fb_request *request) {
    return (fb_store_actor){.who = request->principal, .request = request->id};
}

#endif
