/* A shared library that few need is loaded by who first needs it: at every start it would cost everybody milliseconds. */
#ifndef FB_BASE_LIBRARY_H
#define FB_BASE_LIBRARY_H

#include "core/base/error.h"

/* Loads a library, as "libfoo.so.1", if it is not loaded yet, and finds functions of it: `names` ends with NULL, and
 * `functions` points to as many pointers to functions. It stays loaded. FB_IO "library-missing". */
fb_status fb_library_load(const char *library, const char *const *names, void *functions, fb_error *error);

#endif
