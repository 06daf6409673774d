#!/bin/sh
# safetensors writes tensors by the size of their elements and a rank of dtypes, and by name only then.
#
# Guess:    save() of a dict writes its tensors in the dict's order, or sorted by name.
# Seen:     elements of 8 bytes come first, then 4, 2, 1, so that all are aligned. Within a size a rank decides, which is
#           not alphabetical: I64 before F64 before C64, F32 before I32, BF16 before F16 before U16, I8 before U8 before
#           BOOL. Then the name.
# Versions: safetensors 0.8.0, torch 2.13.0 (CPU)
# Changed:  core/weights/safetensors.c, the table `dtypes`, whose order this is: files that foldback writes are byte for
#           byte the same.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import json

import torch
from safetensors.torch import save

dtypes = "bool uint8 int8 uint16 float16 bfloat16 int32 float32 complex64 float64 int64".split()
tensors = {f"{letter}": torch.zeros(1, dtype=getattr(torch, dtype)) for letter, dtype in zip("kjihgfedcba", dtypes)}
tensors["z"] = torch.zeros(1)
file = save(tensors)
assert file == save(dict(sorted(tensors.items())))
header = json.loads(file[8 : 8 + int.from_bytes(file[:8], "little")])
print(*(f"{name}:{entry['dtype']}" for name, entry in header.items()))
END
expect <<'END'
a:I64 b:F64 c:C64 d:F32 z:F32 e:I32 f:BF16 g:F16 h:U16 i:I8 j:U8 k:BOOL
END
