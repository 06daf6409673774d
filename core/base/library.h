/* Libraries that few need, loaded by the first of these: linked, each would cost every start its time. */
#ifndef FB_BASE_LIBRARY_H
#define FB_BASE_LIBRARY_H

#include <stddef.h>

#include "core/base/error.h"

/* Loads the library with that file name ("libpq.so.5"), and stores the addresses of the functions with these names at `out`, an
 * array of pointers to functions. It stays loaded. FB_IO "library-missing", FB_NO_MEMORY. */
fb_status fb_library_load(const char *file, const char *const *names, size_t count, void *out, fb_error *error);

#endif
