#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/bench/bench.h"

double fb_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle(double *numbers, size_t count) {
    qsort(numbers, count, sizeof *numbers, by_size);
    return numbers[count / 2];
}

static double time_of(const fb_row *row) {
    if (row->prepare) row->prepare(row->context);
    double start = fb_now_ms();
    row->work(row->context);
    return fb_now_ms() - start;
}

void fb_measure(fb_row *rows, size_t count, size_t rounds) {
    double *times = malloc(count * rounds * sizeof *times), *column = malloc(rounds * sizeof *column);
    if (!times || !column) exit(1);
    for (size_t r = 0; r < count; r++) time_of(&rows[r]);
    for (size_t round = 0; round < rounds; round++) {
        for (size_t r = 0; r < count; r++) times[r * rounds + round] = time_of(&rows[r]);
    }
    for (size_t r = 0; r < count; r++) {
        for (size_t round = 0; round < rounds; round++) column[round] = times[r * rounds + round] / times[round];
        rows[r].ratio = middle(column, rounds);
        for (size_t round = 0; round < rounds; round++) column[round] = times[r * rounds + round];
        rows[r].median = middle(column, rounds);
        rows[r].minimum = column[0];
    }
    free(times);
    free(column);
}

void fb_print_rows(const fb_row *rows, size_t count) {
    printf("| | floor, ms | median, ms | ratio | target |\n| --- | ---: | ---: | ---: | --- |\n");
    for (size_t r = 0; r < count; r++) {
        printf("| %s | %.3f | %.3f | %.3f | %s |\n", rows[r].what, rows[r].minimum, rows[r].median, rows[r].ratio,
               rows[r].target ? rows[r].target : "");
    }
    fflush(stdout);
}
