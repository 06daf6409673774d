#!/bin/sh
# PEFT merges an adapter into a bfloat16 Linear with one rounding, and into a bfloat16 Embedding with two.
#
# Guess:    merge_and_unload() adds B @ A * scaling, which is float32 because the adapter is cast to that, to the weight in
#           place: the sum is computed in float32 and rounded once, whatever the layer is.
# Seen:     so it is for Linear. Embedding rounds the product to bfloat16 first, and then the sum: many elements differ.
# Versions: torch==2.13.0 numpy==2.4.6 safetensors==0.8.0 transformers==5.24.0 peft==0.21.2
# Changed:  clients/python/src/foldback/adapters.py, Plan.merged: an embedding's delta is cast before it is added.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0 transformers==5.24.0 peft==0.21.2
cat >"$work/program.py" <<'END'
import peft
import torch

torch.manual_seed(0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.linear = torch.nn.Embedding(64, 64), torch.nn.Linear(64, 64, bias=False)


model = Model().to(torch.bfloat16)
before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
made = peft.get_peft_model(model, peft.LoraConfig(target_modules=["table", "linear"], r=4, lora_alpha=4))
pairs = {}
for name, parameter in made.named_parameters():
    if "lora_" in name:
        parameter.data = torch.randn_like(parameter)
        key = name.split(".")[-3 if "weight" in name else -2][-1] + ("e" if "embedding" in name else "l")
        pairs[key] = parameter.detach().clone()
print("the adapter is", {str(tensor.dtype) for tensor in pairs.values()})
merged = made.merge_and_unload()
for name, delta in (("linear.weight", pairs["Bl"] @ pairs["Al"]), ("table.weight", (pairs["Be"] @ pairs["Ae"]).T)):
    once, twice = before[name].clone(), before[name].clone()
    once += delta
    twice += delta.to(torch.bfloat16)
    found = merged.get_parameter(name)
    print(name, "is rounded", "once" if torch.equal(found, once) else "twice" if torch.equal(found, twice) else "otherwise")
END
"$python" "$work/program.py" >"$work/seen" 2>"$work/errors" || { cat "$work/errors" >&2; exit 2; }
expect <<'END'
the adapter is {'torch.float32'}
linear.weight is rounded once
table.weight is rounded twice
END
