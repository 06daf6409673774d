/* libcurl, which the command line needs for a service elsewhere, and a service for a bucket and for webhooks. */
#ifndef FB_LIBRARIES_CURL_H
#define FB_LIBRARIES_CURL_H

#include <curl/curl.h>

#include "core/base/error.h"

#define FB_CURL_FUNCTIONS(each)                                                                                                \
    each(easy_cleanup) each(easy_getinfo) each(easy_init) each(easy_perform) each(easy_reset) each(easy_setopt)                \
        each(easy_strerror) each(free) each(global_init) each(multi_add_handle) each(multi_cleanup) each(multi_info_read)      \
            each(multi_init) each(multi_perform) each(multi_poll) each(multi_remove_handle) each(multi_setopt)                 \
                each(multi_wakeup) each(slist_append) each(slist_free_all) each(url) each(url_cleanup) each(url_get)           \
                    each(url_set) each(version_info)

/* libcurl's functions, without "curl_": to call after fb_curl_load. */
typedef struct fb_curl_functions {
#define FB_EACH(name) __typeof__(curl_##name) *name;
    FB_CURL_FUNCTIONS(FB_EACH)
#undef FB_EACH
} fb_curl_functions;
extern fb_curl_functions fb_curl;

/* Loads and initialises it; does nothing afterwards. For any thread. FB_IO "library-missing", FB_NO_MEMORY. */
fb_status fb_curl_load(fb_error *error);

#endif
