/* Permissions that the service drops before its first request, so that an attacker who has taken it over gains little: with
 * Landlock, files outside the data folder; with seccomp, every system call that it does not need (no program can be started, no
 * connection made unless one is needed, no process traced), for all threads and for good. */
#ifndef FB_CLI_SANDBOX_H
#define FB_CLI_SANDBOX_H

#include "core/base/error.h"

typedef enum fb_sandbox_mode {
    FB_SANDBOX_AUTO, /* what the kernel has */
    FB_SANDBOX_ON,   /* all of it, or fail */
    FB_SANDBOX_OFF,
} fb_sandbox_mode;

/* "auto", "on" or "off"; false for anything else. */
bool fb_sandbox_mode_of(const char *text, fb_sandbox_mode *mode);

/* Confines this thread and those that it starts from now on; so call it before there are others. `data` is the data folder,
 * which must exist, `readable` further files and folders that are read later, ended by NULL. `may_connect` leaves it what is
 * needed to look up names and to connect to other services. `sockets` is a folder in which it makes a socket and removes it, or
 * NULL. A feature that a kernel or a build lacks is reported on standard error, a
 * line each; with FB_SANDBOX_ON it is FB_IO "no-sandbox". */
fb_status fb_sandbox_enter(fb_sandbox_mode mode, const char *data, const char *const *readable, const char *sockets,
                           bool may_connect, fb_error *error);

#endif
