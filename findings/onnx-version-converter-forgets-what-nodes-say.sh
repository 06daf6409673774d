#!/bin/sh
# onnx.version_converter drops the metadata_props of nodes, tensors and the graph, also where it converts nothing.
#
# Guess:    convert_version to the version that a model has gives the model back; to another one, a node that needs no change
#           keeps name, doc_string and metadata_props.
# Seen:     name and doc_string of nodes stay, metadata_props of nodes, inputs, initializers and the graph go, and so does the
#           doc_string of initializers. Those of the model stay. Nothing is said, and the result is valid.
# Versions: onnx 1.23.2 (onnxoptimizer 0.4.2 and onnxsim 0.8.1 use the same form in memory, and lose the same)
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
from onnx import checker, parser, version_converter

TEXT = '<ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }'



def places_of(model):
    graph = model.graph
    return dict(model=model, graph=graph, input=graph.input[0], initializer=graph.initializer[0], node=graph.node[0])


model = parser.parse_model(TEXT)
for name, place in places_of(model).items():
    place.metadata_props.add(key="by", value=name)
    place.doc_string = name
checker.check_model(model, full_check=True)


def describe(when, model):
    found = places_of(model)
    print(when, "metadata_props:", *(name for name, place in found.items() if place.metadata_props), end="; ")
    print("doc_string:", *(name for name, place in found.items() if place.doc_string))


describe("as written: ", model)
describe("17 to 17:   ", version_converter.convert_version(model, 17))
describe("17 to 18:   ", version_converter.convert_version(model, 18))
END
expect <<'END'
as written:  metadata_props: model graph input initializer node; doc_string: model graph input initializer node
17 to 17:    metadata_props: model; doc_string: model graph input node
17 to 18:    metadata_props: model; doc_string: model graph input node
END
