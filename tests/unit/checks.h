/* Check, whose ck_assert tells the parent process of each place once, not each time: a message is a system call, and loops of
 * assertions took half of the tests' time. After a crash Check so names the last place that was new. */
#ifndef FB_TESTS_CHECKS_H
#define FB_TESTS_CHECKS_H

#include <check.h>
#include <stdbool.h>

#undef ck_assert_msg
#define ck_assert_msg(expr, ...)                                                                                               \
    do {                                                                                                                       \
        static _Thread_local bool place_is_marked;                                                                             \
        if (!(expr)) _ck_assert_failed(__FILE__, __LINE__, "Assertion '" #expr "' failed", __VA_ARGS__);                       \
        if (!place_is_marked) _mark_point(__FILE__, __LINE__);                                                                 \
        place_is_marked = true;                                                                                                \
    } while (0)

#endif
