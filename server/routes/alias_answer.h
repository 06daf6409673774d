/* Aliases and the items of their history as JSON. */
#ifndef FB_ROUTES_ALIAS_ANSWER_H
#define FB_ROUTES_ALIAS_ANSWER_H

#include "server/events/event_hub.h"
#include "server/http/http.h"
#include "server/store/models.h"

/* Appends the alias whose last entry this is. */
void fb_alias_write(const fb_store_alias_entry *entry, fb_buffer *out);

/* Responds with the alias and its ETag. */
void fb_respond_alias(fb_response *response, int status, const fb_store_alias_entry *entry);
/* As it was after the entry with that number, in decimal digits: what a repeated request is answered. */
void fb_respond_stored_alias(const fb_request *request, fb_response *response, int status, const char *number);

#endif
