#!/bin/sh
# Once OpenBLAS is loaded, every printf of the process takes longer, about twice as long on an idle machine.
#
# Guess:    a library that nobody has called costs memory and the time to load it.
# Seen:     Debian's OpenBLAS comes with gfortran's runtime, and that with libquadmath, which registers a conversion of its
#           own for __float128 when it is loaded. From then on glibc takes its general way for each call of printf's family,
#           %d included.
# Versions: libopenblas0-serial 0.3.21+ds-4, libquadmath0 12.2.0-14+deb12u1, libc6 2.36-9+deb12u14
# Changed:  core/base/buffer.c, print_plainly: plain texts go without printf.
. "$(dirname "$0")/setup"
debian_with gcc libopenblas0-serial libquadmath0 libc6
compile_with -ldl <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

/* The least time of many short runs, each of 2,000 calls: what else the machine does only adds to some of them. */
static double measure(void) {
    double least = 1;
    char text[64];
    for (int run = 0; run < 2000; run++) {
        struct timespec begun, ended;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
        for (int i = 0; i < 2000; i++) snprintf(text, sizeof text, "%d", i);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
        double time = (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) * 1e-9;
        if (time < least) least = time;
    }
    return least;
}

#pragma GCC diagnostic ignored "-Wformat"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
static int has_conversion(void) {
    char text[64];
    snprintf(text, sizeof text, "%Qg", (__float128)1.5);
    return text[0] == '1';
}

int main(void) {
    int had = has_conversion();
    double before = measure();
    if (!dlopen("libopenblas.so.0", RTLD_NOW)) return 2;
    double after = measure();
    fprintf(stderr, "one call: %.0f ns before, %.0f ns after\n", before / 2000 * 1e9, after / 2000 * 1e9);
    printf("printf knows %%Qg: %s before, %s after\n", had ? "yes" : "no", has_conversion() ? "yes" : "no");
    printf("a call takes at least a quarter longer: %s\n", after > 1.25 * before ? "yes" : "no");
    return 0;
}
END
"$work/program" >"$work/seen"
expect <<'END'
printf knows %Qg: no before, yes after
a call takes at least a quarter longer: yes
END
