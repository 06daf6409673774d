/* What the service says to programs, in terms of commands: its sentences name routes, headers and members. */
#ifndef FB_CLI_WORDING_H
#define FB_CLI_WORDING_H

#include <stddef.h>

/* A copy of `detail` that speaks of commands, cut where `space` ends. */
void fb_speak_of_commands(const char *detail, char *out, size_t space);

#endif
