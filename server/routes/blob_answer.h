/* What requests about blobs have in common. */
#ifndef FB_ROUTES_BLOB_ANSWER_H
#define FB_ROUTES_BLOB_ANSWER_H

#include "server/http/http.h"
#include "server/store/blobs.h"

/* Whether `digest`, the parameter `name` of the path or the query, is spelled as one; otherwise this responds. */
bool fb_check_digest(fb_response *response, const char *name, const char *digest);

/* Ends an upload whose bytes have all come: 201 with the blob, 200 when it was here already. Closes it in any case; one that
 * has an id stays as it is when this fails. */
void fb_respond_uploaded_take(const fb_request *request, fb_response *response, fb_upload *upload, const char *digest);

/* fb_sink.write for uploads whose state is a fb_upload. */
bool fb_upload_sink_write(void *upload, const char *bytes, size_t size, fb_response *response);
/* fb_sink.abandon likewise: nobody knows its id, so it goes. */
void fb_upload_sink_abandon(void *upload);

#endif
