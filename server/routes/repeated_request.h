/* Idempotency-Key: a POST that was answered before is answered the same again, and not done again. Each request of a job has a
 * key, too, which is none that a client could give. */
#ifndef FB_ROUTES_REPEATED_REQUEST_H
#define FB_ROUTES_REPEATED_REQUEST_H

#include "server/app.h"
#include "server/http/http.h"

typedef struct fb_repeat {
    fb_app *app;
    const char *key; /* NULL: the request has none, and what follows does nothing */
    const char *principal;
    char *scope;
    char digest[FB_ID_LENGTH + 1];
    fb_store_answer answer;
} fb_repeat;

/* False when the request has been answered: from the store, or with a problem. Then there is nothing to end. */
bool fb_repeat_begin(const fb_request *request, fb_response *response, fb_repeat *repeat);
void fb_repeat_end(fb_repeat *repeat);

/* What is to be stored with the change, or NULL. `body` stays the caller's. The answer of a run is built again from the run:
 * its `body` says what was included in it ("graph code"), and on a second line what the run does not know. So is that of an
 * alias: its body is the number of an entry. */
const fb_store_answer *fb_repeat_answer(fb_repeat *repeat, int status, const char *location, const char *body, size_t size);

#endif
