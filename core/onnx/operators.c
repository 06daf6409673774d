/* The operators of the default domain, by name. */
#include <stdlib.h>
#include <string.h>

#include "core/onnx/check.h"

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

static int by_name(const void *name, const void *row) {
    const onnx_bytes *wanted = name;
    const char *other = ((const operator_row *)row)->name;
    int order = strncmp(wanted->text, other, wanted->size);
    return order ? order : -(other[wanted->size] != '\0');
}

static const operator_row *find(onnx_bytes name) {
    return name.size ? bsearch(&name, operators, sizeof operators / sizeof *operators, sizeof *operators, by_name) : NULL;
}

bool onnx_is_standard_operator(onnx_bytes name) {
    return find(name) != NULL;
}

int64_t onnx_operator_version(onnx_bytes name, int64_t opset) {
    const operator_row *row = find(name);
    int64_t found = opset;
    for (int i = 0; row && i < MOST_VERSIONS && row->versions[i]; i++)
        if (row->versions[i] <= opset) found = row->versions[i];
    return found;
}
