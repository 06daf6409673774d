/* The evaluator while it runs (evaluate.h). For its files alone.
 *
 *     evaluate.c          tensors and their recipes, nodes, results
 *     evaluate_modules.c  modules
 *     evaluate_ops.c      functions and methods
 *     evaluate_tensor.c   tensors as strided views */
#ifndef FB_TESTS_EVALUATE_MACHINE_H
#define FB_TESTS_EVALUATE_MACHINE_H

#include "core/base/arena.h"
#include "core/graph/graph.h"
#include "tests/unit/evaluate_ops.h"

typedef struct machine {
    const fb_graph *graph;
    fb_arena arena;
    uint64_t seed;
    value *nodes;   /* by id */
    value *tensors; /* by id; made when first read */
    bool *is_made;
    value *inputs; /* of the program that runs now */
    size_t input_count;
    size_t unusable, untrue, unknown;
    bool is_rounded; /* recipes, to what their tensors can hold */
} machine;

/* A number from 0.1 to 1.1 that follows from a name and a place. */
double machine_number(uint64_t seed, const char *name, int64_t index);
/* The ints of a list, up to MAX_DIMS; gives how many. */
int machine_ints(const machine *m, fb_value list, int64_t *out);
/* What a tensor holds now; none for no tensor. */
value machine_tensor(machine *m, fb_tensor tensor);
void machine_run(machine *m, fb_program program, value *inputs, size_t count, value *out);

/* What the module makes of a call. */
value evaluate_module(machine *m, fb_module module, const call *c);

#endif
