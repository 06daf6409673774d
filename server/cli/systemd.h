#ifndef FB_CLI_SYSTEMD_H
#define FB_CLI_SYSTEMD_H

/* What systemd and a service tell each other, by sd_notify(3) and sd_watchdog_enabled(3). libsystemd would load six libraries
 * more at every start. */

#include <stdint.h>

/* Tells the service manager a state, such as "READY=1". Without one it does nothing. */
void fb_systemd_notify(const char *state);

/* Within how many microseconds WATCHDOG=1 must be told again and again; 0 = nobody waits for it. */
uint64_t fb_systemd_watchdog(void);

#endif
