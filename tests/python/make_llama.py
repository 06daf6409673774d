"""Prints deploy/llama-8b.json: a Llama of eight billion parameters (the sizes of Llama 3 8B), exported without weights.

Run it with the interpreter of the PyTorch tests, as make_calls.py. Fake tensors have a shape, a dtype and no bytes, so it takes
seconds and little memory.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "clients/python/src"))

import torch
from torch._subclasses import FakeTensorMode
from transformers import LlamaConfig, LlamaForCausalLM

import foldback

CONFIG = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, max_position_embeddings=8192, rope_theta=500000.0, use_cache=False, attn_implementation="sdpa")

torch.set_default_dtype(torch.bfloat16)
with FakeTensorMode(allow_non_fake_inputs=True):
    model = LlamaForCausalLM(CONFIG).eval()
    program = torch.export.export(model, (torch.ones(1, 64, dtype=torch.long),), strict=False)
document = foldback.export.from_exported_program(program)
document["name"] = "llama-8b"
json.dump(document, sys.stdout)
print()
