/* Recorded cases of tests/fixtures/kernels (made by tests/python/kernels): small documents and what PyTorch computed of them.
 */
#ifndef FB_TESTS_KERNEL_CASES_H
#define FB_TESTS_KERNEL_CASES_H

#include <jansson.h>

#include "core/evaluator/evaluator.h"

/* Files of tests/fixtures/kernels. */
enum { KERNEL_FAMILIES = 26 };
extern const char *const kernel_families[KERNEL_FAMILIES];

/* The cases of a family; aborts when there are none. */
json_t *kernel_cases_open(const char *family);

const char *kernel_case_name(const json_t *item);
/* The case's document, to be freed. */
fb_graph *kernel_case_graph(const json_t *item);
/* Evaluates it. `memory` must outlive the output. */
fb_status kernel_case_run(const fb_graph *graph, fb_precision precision, fb_array_memory *memory, fb_object *output,
                          fb_error *error);
/* What is wrong with the result, into `why`; false: nothing is. */
bool kernel_case_is_wrong(const json_t *item, fb_precision precision, fb_status status, const fb_object *output,
                          const fb_error *error, char *why, size_t size);

#endif
