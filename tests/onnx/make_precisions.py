#!/usr/bin/env python3
"""Prints core/operators/onnx_precisions.def: which operators take float16 and bfloat16 in the place of float32, by the schemas.

    python tests/onnx/make_precisions.py > core/operators/onnx_precisions.def      needs onnx 1.23.2"""

import collections

from onnx import defs

# Run programs, quantise or draw; need a number to be exact; make no numbers of numbers; sequences
NOT = """AffineGrid CastLike CausalConvWithState CenterCropPad Col2Im Compress DFT Det Dropout IsInf IsNaN LinearAttention Loop
    MaxRoiPool Multinomial NegativeLogLikelihoodLoss NonZero OneHot Optional OptionalHasElement QLinearMatMul QuantizeLinear
    Range RoiAlign STFT Scan SequenceConstruct SequenceInsert SequenceMap Shape Size SoftmaxCrossEntropyLoss SplitToSequence
    TensorScatter Unique""".split()
HEAD = '''/* The operators of ai.onnx that may be computed in float16 or bfloat16 in the place of float32: all their float
 * inputs, and the results that have the same type. tests/onnx/make_precisions.py makes it from the schemas of onnx 1.23.2,
 * without those that run programs, quantise, draw, or give something else than numbers computed of numbers.
 *
 *     ONNX_PRECISION("name", float16, bfloat16, results)
 *
 * float16, bfloat16   the version from which on it takes the dtype; 0: none
 * results             ALL have the type of the inputs; or the FIRST one, and others another */
'''


def types(schema, name):
    return next((set(one.allowed_type_strs) for one in schema.type_constraints if one.type_param_str == name), {name})


def results_of(schema, dtype):
    """ALL or FIRST, where all float inputs may be of the dtype, and the first result is then; else None."""
    floats = [one.type_str for one in schema.inputs if "tensor(float)" in types(schema, one.type_str)]
    if not floats or any(f"tensor({dtype})" not in types(schema, one) for one in floats):
        return None
    tied = ["tensor(float)" not in types(schema, one.type_str) or one.type_str in floats for one in schema.outputs]
    return None if not tied or not tied[0] else "ALL" if all(tied) else "FIRST"


def main():
    schemas = collections.defaultdict(list)
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            schemas[schema.name].append(schema)
    print(HEAD)
    for name in sorted(set(schemas) - set(NOT)):
        since, results = {"float16": 0, "bfloat16": 0}, set()
        for dtype in since:
            for schema in sorted(schemas[name], key=lambda one: -one.since_version):
                found = results_of(schema, dtype)
                if schema.deprecated or not found:
                    break
                since[dtype] = schema.since_version
                results.add(found)
        if any(since.values()):
            whose = "FIRST" if "FIRST" in results else "ALL"
            print(f'ONNX_PRECISION("{name}", {since["float16"]}, {since["bfloat16"]}, {whose})')


if __name__ == "__main__":
    main()
