#include "server/libraries/curl.h"

#include <pthread.h>

#include "core/base/library.h"

fb_curl_functions fb_curl;

fb_status fb_curl_load(fb_error *error) {
    static const char *const names[] = {
#define FB_EACH(name) "curl_" #name,
        FB_CURL_FUNCTIONS(FB_EACH)
#undef FB_EACH
    };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool is_loaded;
    pthread_mutex_lock(&lock);
    fb_status status =
        is_loaded ? FB_OK : fb_library_load("libcurl.so.4", false, names, sizeof names / sizeof *names, &fb_curl, error);
    if (!status && !is_loaded && fb_curl.global_init(CURL_GLOBAL_DEFAULT)) status = fb_fail_memory(error);
    is_loaded = !status;
    pthread_mutex_unlock(&lock);
    return status;
}
