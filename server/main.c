#include <fcntl.h>

#include "server/cli/verb.h"

/* A standard stream that was closed must not become the number of a file or socket of ours: what is printed would go there. */
static void keep_standard_streams(void) {
    for (int stream = 0; stream < 3; stream++) {
        if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", stream ? O_RDONLY : O_WRONLY) < 0) return;
    }
}

int main(int argc, char **argv) {
    keep_standard_streams();
    return fb_run_command_line(argc, argv);
}
