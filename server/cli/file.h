/* Files, "-" being standard input and output. */
#ifndef FB_CLI_FILE_H
#define FB_CLI_FILE_H

#include "server/cli/cli.h"

int fb_file_read(const char *path, fb_buffer *out);
int fb_file_write(const char *path, const char *bytes, size_t size);

#endif
