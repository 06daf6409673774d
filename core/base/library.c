#include "core/base/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "core/base/sanitizer.h"

fb_status fb_library_load(const char *file, bool is_apart, const char *const *names, size_t count, void *out, fb_error *error) {
    int apart = is_apart && !FB_HAS_SANITIZER ? RTLD_DEEPBIND : 0; /* a sanitizer would end the process */
    errno = 0;
    void *library = dlopen(file, RTLD_LAZY | RTLD_NODELETE | apart), *function = library;
    for (size_t i = 0; function && i < count; i++) {
        function = dlsym(library, names[i]);
        memcpy((char *)out + i * sizeof function, &function, sizeof function);
    }
    fb_status status = FB_OK;
    if (!function && errno == ENOMEM) status = fb_fail_memory(error);
    else if (!function) status = fb_fail(error, FB_IO, "library-missing", NULL, "a library cannot be loaded: %s", dlerror());
    if (library) dlclose(library);
    return status;
}
