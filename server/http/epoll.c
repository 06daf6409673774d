/* epoll_wait, in front of libc's for libmicrohttpd.
 *
 * libmicrohttpd 0.9.75 (MHD_epoll) calls epoll_wait again for as long as it fills the whole array, without a timeout. So after
 * exactly 128 events its thread sleeps before it has looked at what they ask for, new connections and the order to stop among
 * them, and nothing may ever wake it: a burst of connections whose clients have left wedged the service. Here the array is
 * never full; what does not fit comes with the next call. */
#include <sys/epoll.h>

/* Found by the dynamic linker, which no call in our sources shows. */
__attribute__((visibility("default"), used)) int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    return epoll_pwait(epoll, events, most > 1 ? most - 1 : most, timeout, 0);
}
