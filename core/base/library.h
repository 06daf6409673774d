/* Libraries that few need, loaded by the first of these: linked, each would cost every start its time. */
#ifndef FB_BASE_LIBRARY_H
#define FB_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/error.h"

/* Loads the library with that file name ("libpq.so.5"), and stores the addresses of the functions with these names at `out`, an
 * array of pointers to functions. It stays loaded. FB_IO "library-missing", FB_NO_MEMORY.
 *
 * is_apart: it finds its own symbols in itself, whatever this process calls so, and not in each library of the process first:
 * for one of thousands of symbols most of its loading. */
fb_status fb_library_load(const char *file, bool is_apart, const char *const *names, size_t count, void *out, fb_error *error);

#endif
