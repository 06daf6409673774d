#include "server/cli/systemd.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void fb_systemd_notify(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path ? strlen(path) : 0;
    if (!length || length >= sizeof address.sun_path) return;
    memcpy(address.sun_path, path, length);
    if (*path == '@') address.sun_path[0] = '\0'; /* an abstract name, which no zero ends */
    int socket_of_manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket_of_manager < 0) return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (*path != '@'));
    sendto(socket_of_manager, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address, size);
    close(socket_of_manager);
}

uint64_t fb_systemd_watchdog(void) {
    const char *interval = getenv("WATCHDOG_USEC"), *process = getenv("WATCHDOG_PID");
    if (!interval || (process && strtoull(process, NULL, 10) != (unsigned long long)getpid())) return 0;
    char *end = NULL;
    unsigned long long microseconds = strtoull(interval, &end, 10);
    return *interval >= '0' && *interval <= '9' && !*end && microseconds < UINT64_MAX ? microseconds : 0;
}
