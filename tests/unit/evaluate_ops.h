/* Calls of the reference evaluator, by spelling. See evaluate.h. */
#ifndef FB_TESTS_EVALUATE_OPS_H
#define FB_TESTS_EVALUATE_OPS_H

#include "tests/unit/evaluate_tensor.h"

typedef struct call {
    fb_arena *arena;
    const char *target; /* "torch.add", "operator.add"; ".add" for a method */
    value *args;
    size_t count;
    const char **keywords;
    value *named; /* values of the keywords */
    size_t named_count;
    const int64_t *recorded; /* the sizes that the graph says the result has, of an unknown call to be believed; NULL = none */
    int recorded_rank;       /* -1 stands for a size with a name */
    size_t *unknown;         /* counts calls of what the evaluator does not know */
} call;

/* The argument of that name, else of that position; none (unusable) when it is not given. */
value argument(const call *c, size_t index, const char *name);
/* A call_function or call_method. False when the target is not known. */
bool evaluate_call(const call *c, value *out);
/* What an unknown call does: adds to every tensor that it is given, and returns the first; `with` enters the numbers. */
value do_anything(const call *c, double with);
/* What is given, or a new tensor with its numbers where the graph says that the result has other sizes. */
value of_recorded_sizes(const call *c, const value *given);

double relu_of(double x);
double sigmoid_of(double x);

#endif
