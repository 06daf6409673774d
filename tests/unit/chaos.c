#include "tests/unit/chaos.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

#include "core/weights/blas.h"
#include "tests/unit/random_case.h"

/* The allocator behind malloc: that of a sanitizer when there is one, else glibc's. dlsym would have to allocate. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
__attribute__((weak)) void *__interceptor_malloc(size_t size);
__attribute__((weak)) void *__interceptor_calloc(size_t count, size_t size);
__attribute__((weak)) void *__interceptor_realloc(void *old, size_t size);

static _Thread_local long left = -1; /* allocations that still succeed; -1 = all */
static _Thread_local bool fails_once, has_failed;

/* OpenBLAS and the libraries that come with it do not check for memory while they are loaded either: a service does that when
 * it starts. */
__attribute__((constructor)) static void load_blas(void) {
    fb_blas_load(&(fb_blas){0}, NULL);
}

void chaos_fail_after(long count) {
    has_failed = false;
    fails_once = false;
    left = count;
}

void chaos_fail_once(long count) {
    chaos_fail_after(count);
    fails_once = true;
}

bool chaos_off(void) {
    left = -1;
    return has_failed;
}

long fault_step(void) {
    return (long)random_setting("FOLDBACK_FAULT_STEP", 1);
}

/* Sanitizers allocate before they have set themselves up. */
#define BEFORE_SANITIZER __attribute__((no_sanitize("thread", "address", "undefined")))

/* On processors with AVX-512, OpenBLAS 0.3.21 packs small matrices into memory from malloc, and never checks the result. Asked
 * of each allocation: dladdr, which looks for the symbol as well, would take nine tenths of a test's time. */
BEFORE_SANITIZER static bool is_unchecked(void *caller) {
    struct dl_find_object found;
    return _dl_find_object(caller, &found) == 0 && strstr(found.dlfo_link_map->l_name, "openblas");
}

BEFORE_SANITIZER static bool must_fail(void *caller) {
    if (left < 0 || is_unchecked(caller)) return false;
    if (left > 0) {
        left--;
        return false;
    }
    if (fails_once) left = -1;
    has_failed = true;
    errno = ENOMEM;
    return true;
}

BEFORE_SANITIZER void *malloc(size_t size) {
    if (must_fail(__builtin_return_address(0))) return NULL;
    return __interceptor_malloc ? __interceptor_malloc(size) : __libc_malloc(size);
}

BEFORE_SANITIZER void *calloc(size_t count, size_t size) {
    if (must_fail(__builtin_return_address(0))) return NULL;
    return __interceptor_calloc ? __interceptor_calloc(count, size) : __libc_calloc(count, size);
}

BEFORE_SANITIZER void *realloc(void *old, size_t size) {
    if (must_fail(__builtin_return_address(0))) return NULL;
    return __interceptor_realloc ? __interceptor_realloc(old, size) : __libc_realloc(old, size);
}
