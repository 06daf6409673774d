#!/bin/sh
# NumPy saves bfloat16, float8 and int4 of ml_dtypes and loads raw bytes, or in one case refuses its own file.
#
# Guess:    np.save refuses a dtype that it cannot write; what it writes without a pickle, np.load gives back, as long as
#           ml_dtypes is imported.
# Seen:     bfloat16 comes back as V2, float8_e4m3fn and int4 as V1, also inside .npz: no arithmetic, and nobody knows which it
#           was. float8_e5m2 is written as <f1, which np.load refuses.
# Versions: ml_dtypes 0.6.0, numpy 2.4.6
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with ml_dtypes==0.6.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
import io

import ml_dtypes
import numpy as np

for name in "bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "float4_e2m1fn":
    file = io.BytesIO()
    np.save(file, np.ones(2, getattr(ml_dtypes, name)), allow_pickle=False)
    file.seek(0)
    try:
        print(name, "->", np.load(file).dtype)
    except ValueError as error:
        print(name, "->", error)
file = io.BytesIO()
np.savez(file, w=np.ones(2, ml_dtypes.bfloat16))
file.seek(0)
print("in .npz:", np.load(file)["w"].view(ml_dtypes.bfloat16))
END
expect <<'END'
bfloat16 -> |V2
float8_e4m3fn -> |V1
float8_e5m2 -> descr is not a valid dtype descriptor: '<f1'
int4 -> |V1
float4_e2m1fn -> |V1
in .npz: [1 1]
END
