/* Says whether this is a build whose sanitizer takes over calls of the C library. */
#ifndef FB_BASE_SANITIZER_H
#define FB_BASE_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FB_HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define FB_HAS_SANITIZER 1
#endif
#endif
#ifndef FB_HAS_SANITIZER
#define FB_HAS_SANITIZER 0
#endif

#endif
