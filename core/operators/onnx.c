#include "core/operators/onnx.h"

#include <stdlib.h>
#include <string.h>

#define MOST_VERSIONS 16

typedef struct operator_row {
    const char *name;
    uint8_t versions[MOST_VERSIONS]; /* ascending; 0 ends them */
} operator_row;

static const operator_row operators[] = {
#define ONNX_OPERATOR(name, shape, value, ...) {name, {__VA_ARGS__}},
#include "core/operators/onnx_operators.def"
#undef ONNX_OPERATOR
};

typedef struct wanted_name {
    const char *text; /* not terminated */
    size_t size;
} wanted_name;

static int by_name(const void *name, const void *row) {
    const wanted_name *wanted = name;
    const char *other = ((const operator_row *)row)->name;
    int order = strncmp(wanted->text, other, wanted->size);
    return order ? order : -(other[wanted->size] != '\0');
}

int64_t fb_onnx_version(const char *name, size_t size, int64_t opset) {
    const wanted_name wanted = {name, size};
    const operator_row *row =
        size ? bsearch(&wanted, operators, sizeof operators / sizeof *operators, sizeof *operators, by_name) : NULL;
    int64_t found = 0;
    for (int i = 0; row && i < MOST_VERSIONS && row->versions[i]; i++)
        if (row->versions[i] <= opset) found = row->versions[i];
    return found;
}
