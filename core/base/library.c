#include "core/base/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

fb_status fb_library_load(const char *library, const char *const *names, void *functions, fb_error *error) {
    errno = 0;
    void *handle = dlopen(library, RTLD_NOW | RTLD_NODELETE), *function = handle;
    for (size_t i = 0; function && names[i]; i++) {
        function = dlsym(handle, names[i]);
        memcpy((char *)functions + i * sizeof function, &function, sizeof function);
    }
    fb_status status = FB_OK;
    if (!function && errno == ENOMEM) status = fb_fail_memory(error);
    else if (!function) status = fb_fail(error, FB_IO, "library-missing", NULL, "a library cannot be loaded: %s", dlerror());
    if (handle) dlclose(handle);
    return status;
}
