/* The service, from start to stop. */
#ifndef FB_SERVER_SERVE_H
#define FB_SERVER_SERVE_H

/* `foldback serve` with the arguments after the verb; returns the exit status. */
int fb_serve(int argc, char **argv);

/* Exit statuses of every verb. */
enum { FB_EXIT_DONE = 0, FB_EXIT_FAILED = 1, FB_EXIT_USAGE = 2, FB_EXIT_FOLDER_IN_USE = 3 };

#endif
