#include "server/libraries/pq.h"

#include <pthread.h>

#include "core/base/library.h"

fb_pq_functions fb_pq;

fb_status fb_pq_load(fb_error *error) {
    static const char *const names[] = {
#define FB_EACH(name) #name,
        FB_PQ_FUNCTIONS(FB_EACH)
#undef FB_EACH
    };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool is_loaded;
    pthread_mutex_lock(&lock);
    fb_status status =
        is_loaded ? FB_OK : fb_library_load("libpq.so.5", false, names, sizeof names / sizeof *names, &fb_pq, error);
    is_loaded = !status;
    pthread_mutex_unlock(&lock);
    return status;
}
