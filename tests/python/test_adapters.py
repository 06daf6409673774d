"""`foldback adapter` beside PEFT: what it merges has the same bytes, and comes out again."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers

peft = pytest.importorskip("peft")

from safetensors.torch import load_file, save_file
from sample import IS_SHORT

from foldback import adapters

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "FOLDBACK_BINARY": str(ROOT / "build/foldback"), "OMP_NUM_THREADS": "1"}
SIZES = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "pad_token_id": 0, "tie_word_embeddings": False}
LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def llama(**more: object) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SIZES, **more}))


def gpt2() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=48, n_embd=32, n_layer=2, n_head=4, n_positions=32))


def bert() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    return transformers.BertModel(transformers.BertConfig(vocab_size=48, hidden_size=32, num_hidden_layers=2,
                                                          num_attention_heads=4, intermediate_size=64))


def adapter_of(model: transformers.PreTrainedModel, folder: Path, dtype: torch.dtype, seed: int, **config: object) -> None:
    """An adapter that was trained, as PEFT saves it."""
    made = peft.get_peft_model(model, peft.LoraConfig(**{"r": 4, "lora_alpha": 7, **config}))
    torch.manual_seed(seed)
    for name, parameter in made.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter) / 4
    made.save_pretrained(folder)
    file = folder / "adapter_model.safetensors"
    save_file({name: tensor.to(dtype) for name, tensor in load_file(file).items()}, file)


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def foldback(folder: Path, *words: object) -> Done:
    """In this process, which has loaded PyTorch."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = adapters.main([*map(str, words), "--data", str(folder / "store")])
    return Done(status, out.getvalue(), err.getvalue())


def said(done: Done) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Case:
    """A base, adapters of it, and what PEFT merges."""

    def __init__(self, folder: Path, build: object, dtype: torch.dtype, adapters: list[tuple[torch.dtype, dict]]):
        self.folder, self.base = folder, folder / "base"
        model = build().to(dtype)
        model.save_pretrained(self.base)
        self.adapters = [folder / f"adapter{i}" for i in range(len(adapters))]
        for i, (path, (own, config)) in enumerate(zip(self.adapters, adapters, strict=True)):
            adapter_of(type(model).from_pretrained(self.base), path, own, i, **config)
        loaded = type(model).from_pretrained(self.base, dtype=dtype)
        with_adapters = peft.PeftModel.from_pretrained(loaded, self.adapters[0], adapter_name="0")
        for i, path in enumerate(self.adapters[1:], 1):
            with_adapters.load_adapter(path, adapter_name=str(i))
        names = [str(i) for i in range(len(adapters))]
        self.merged = with_adapters.merge_and_unload(adapter_names=names).state_dict()

    def merge(self, *words: object) -> Path:
        merged = self.folder / "merged.safetensors"
        said(foldback(self.folder, "merge", self.base, *self.adapters, "-o", merged, *words))
        return merged


F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
ALL = {"target_modules": LLAMA}
CASES = {
    "float32": (llama, F32, [(F32, ALL)]),
    "bfloat16": (llama, BF16, [(BF16, ALL)]),
    "float16": (llama, F16, [(F16, ALL)]),
    "bfloat16, an adapter in float32": (llama, BF16, [(F32, ALL)]),
    "float32, an adapter in bfloat16": (llama, F32, [(BF16, ALL)]),
    "float16, an adapter in bfloat16": (llama, F16, [(BF16, ALL)]),
    "rslora": (llama, BF16, [(F32, {**ALL, "use_rslora": True})]),
    "patterns": (llama, F32, [(F32, {**ALL, "rank_pattern": {"q_proj": 2, "layers.1.self_attn.k_proj": 8},
                                     "alpha_pattern": {"^model.layers.0.mlp.up_proj": 3, "v_proj": 5}})]),
    "large rank": (llama, BF16, [(F32, {**ALL, "r": 48})]),
    "two": (llama, BF16, [(F32, ALL), (BF16, {"target_modules": ["q_proj", "v_proj"], "r": 8})]),
    "three": (llama, F16, [(F32, ALL), (F32, ALL), (F16, ALL)]),
    "Conv1D": (gpt2, F32, [(F32, {"target_modules": ["c_attn", "c_proj", "c_fc"]})]),
    "Conv1D in bfloat16": (gpt2, BF16, [(F32, {"target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True})]),
    "an embedding": (llama, BF16, [(F32, {"target_modules": ["embed_tokens", "lm_head", "q_proj"]})]),
    "BERT": (bert, F32, [(F32, {"target_modules": ["query", "value", "dense"]})]),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_the_bytes_of_peft_and_back(tmp_path: Path, name: str) -> None:
    case = Case(tmp_path, *CASES[name])
    merged = case.merge()
    ours = load_file(merged)
    for key, tensor in ours.items():
        assert tensor.dtype == case.merged[key].dtype and torch.equal(tensor, case.merged[key]), key
    assert not all(torch.equal(tensor, load_file(case.base / "model.safetensors")[key]) for key, tensor in ours.items())
    assert said(foldback(tmp_path, "unmerge", merged, "-o", tmp_path / "back.safetensors")) == {"exact": True, "trained": 0}
    assert (tmp_path / "back.safetensors").read_bytes() == (case.base / "model.safetensors").read_bytes()


def test_any_of_several_is_taken_out(tmp_path: Path) -> None:
    case = Case(tmp_path, *CASES["three"])
    merged = case.merge()
    for i in range(3):
        left = [path for k, path in enumerate(case.adapters) if k != i]
        said(foldback(tmp_path, "unmerge", merged, "--leave-out", f"adapter{i}", "-o", tmp_path / "left.safetensors",
                      "--force"))
        said(foldback(tmp_path, "merge", case.base, *left, "-o", tmp_path / "direct.safetensors", "--force"))
        one, two = load_file(tmp_path / "left.safetensors"), load_file(tmp_path / "direct.safetensors")
        assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)
        said(foldback(tmp_path, "unmerge", tmp_path / "left.safetensors", "-o", tmp_path / "back.safetensors", "--force"))
        assert (tmp_path / "back.safetensors").read_bytes() == (case.base / "model.safetensors").read_bytes()


def test_shards(tmp_path: Path) -> None:
    case = Case(tmp_path, *CASES["bfloat16"])
    transformers.LlamaForCausalLM.from_pretrained(case.base).save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    case.base = tmp_path / "shards"
    ours = load_file(case.merge())
    assert ours.keys() <= case.merged.keys() and all(torch.equal(tensor, case.merged[key]) for key, tensor in ours.items())
    (tmp_path / "back").mkdir()
    said(foldback(tmp_path, "unmerge", tmp_path / "merged.safetensors", "-o", tmp_path / "back"))
    files = sorted((tmp_path / "shards").glob("*.safetensors"))
    assert len(files) > 2 and [(tmp_path / "back" / file.name).read_bytes() for file in files] == [
        file.read_bytes() for file in files]


def test_without_the_base_it_refuses(tmp_path: Path) -> None:
    case = Case(tmp_path, *CASES["float32"])
    merged = case.merge()
    other = tmp_path / "elsewhere"
    other.mkdir()
    done = foldback(other, "unmerge", merged, "-o", tmp_path / "back.safetensors", "--adapter", case.adapters[0])
    assert done.returncode == 1 and "does not have the base" in done.stderr and not (tmp_path / "back.safetensors").exists()
    wrong = tmp_path / "wrong.safetensors"
    save_file({key: tensor + 1 for key, tensor in load_file(case.base / "model.safetensors").items()}, wrong)
    words = ("unmerge", merged, "-o", tmp_path / "back.safetensors", "--adapter", case.adapters[0], "--base")
    done = foldback(other, *words, wrong)
    assert done.returncode == 1 and "is not the base" in done.stderr and not (tmp_path / "back.safetensors").exists()
    said(foldback(other, *words, case.base))
    assert (tmp_path / "back.safetensors").read_bytes() == (case.base / "model.safetensors").read_bytes()


def retrained(merged: Path, change: object) -> None:
    """The file as another program would write it after training, with the metadata."""
    from safetensors import safe_open

    with safe_open(merged, "pt") as file:
        metadata = file.metadata()
    state = load_file(merged)
    change(state)
    save_file(state, merged, metadata)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "two"])
def test_training_of_the_base(tmp_path: Path, name: str) -> None:
    """What did not change is the base's very bits; what did, merged again, gives what was trained, or it is counted."""
    case = Case(tmp_path, *CASES[name])
    merged = case.merge()
    base, key = load_file(case.base / "model.safetensors"), "model.layers.0.self_attn.q_proj.weight"

    def change(state: dict) -> None:
        state[key][:4] *= 1.5
        state["model.norm.weight"] += 1

    retrained(merged, change)
    trained = load_file(merged)
    words = ("unmerge", merged, "-o", tmp_path / "back.safetensors")
    done = foldback(tmp_path, *words)
    assert done.returncode == 1 and "--change" in done.stderr and not (tmp_path / "back.safetensors").exists()
    answer = said(foldback(tmp_path, *words, "--change", "base"))
    assert answer["trained"] == 2 and answer["elements_of_no_base"] <= 4 * 32 // 4
    back = load_file(tmp_path / "back.safetensors")
    assert torch.equal(back["model.norm.weight"], trained["model.norm.weight"]) and torch.equal(back[key][4:], base[key][4:])
    assert all(torch.equal(back[one], base[one]) for one in base if one not in (key, "model.norm.weight"))
    said(foldback(tmp_path, "merge", tmp_path / "back.safetensors", *case.adapters, "-o", tmp_path / "again.safetensors"))
    again = load_file(tmp_path / "again.safetensors")
    assert sum(int((again[one] != trained[one]).sum()) for one in again) == answer["elements_of_no_base"]


def test_training_of_the_adapter(tmp_path: Path) -> None:
    case = Case(tmp_path, *CASES["float32"])
    merged = case.merge()
    key = "model.layers.0.self_attn.q_proj.weight"
    base = load_file(case.base / "model.safetensors")

    def change(state: dict) -> None:
        state[key] = base[key] + (torch.randn(32, 4) @ torch.randn(4, 32)) * 0.1

    retrained(merged, change)
    trained = load_file(merged)
    words = ("unmerge", merged, "-o", tmp_path / "back.safetensors", "--change", "adapter",
             "--adapter-output", tmp_path / "new")
    answer = said(foldback(tmp_path, *words))
    assert answer["trained"] == 1 and answer["largest_difference"] < 1e-5
    assert (tmp_path / "back.safetensors").read_bytes() == (case.base / "model.safetensors").read_bytes()
    model = peft.PeftModel.from_pretrained(transformers.LlamaForCausalLM.from_pretrained(case.base), tmp_path / "new")
    torch.testing.assert_close(model.merge_and_unload().state_dict()[key], trained[key])

    # Of full rank: refused, until the rank is given that it has.
    retrained(merged, lambda state: state.update({key: base[key] + torch.randn(32, 32) * 0.1}))
    words = ("unmerge", merged, "-o", tmp_path / "b2.safetensors", "--change", "adapter", "--adapter-output", tmp_path / "new2")
    done = foldback(tmp_path, *words)
    found = re.search(r"--rank (\d+)", done.stderr)
    assert done.returncode == 1 and found and not (tmp_path / "new2").exists() and not (tmp_path / "b2.safetensors").exists()
    said(foldback(tmp_path, *words, "--rank", found[1]))
    model = peft.PeftModel.from_pretrained(transformers.LlamaForCausalLM.from_pretrained(case.base), tmp_path / "new2")
    torch.testing.assert_close(model.merge_and_unload().state_dict()[key], load_file(merged)[key])

    # What the adapter does not have was trained.
    retrained(merged, lambda state: state["model.norm.weight"].add_(1))
    words = (*words[:-1], tmp_path / "new3")
    done = foldback(tmp_path, *words, "--rank", "32", "--force")
    assert done.returncode == 1 and "the change is the base's" in done.stderr


def test_tied_embeddings(tmp_path: Path) -> None:
    """PEFT adds to the shared weight in place, so that the embedding gets what is the head's. Here they are written apart."""
    model = llama(tie_word_embeddings=True)
    model.save_pretrained(tmp_path / "base")
    untied = llama(tie_word_embeddings=False)
    untied.lm_head.weight.data = untied.model.embed_tokens.weight.data.clone()
    adapter_of(untied, tmp_path / "adapter", F32, 0, target_modules=["embed_tokens", "lm_head"])
    words = ("merge", tmp_path / "base", tmp_path / "adapter", "-o", tmp_path / "merged.safetensors")
    done = foldback(tmp_path, *words)
    assert done.returncode == 1 and "tied" in done.stderr and "--untie" in done.stderr
    said(foldback(tmp_path, *words, "--untie", "lm_head.weight=model.embed_tokens.weight"))
    made, weight = load_file(tmp_path / "merged.safetensors"), model.model.embed_tokens.weight.detach()
    a = load_file(tmp_path / "adapter/adapter_model.safetensors")
    prefix = "base_model.model."
    head = weight + a[f"{prefix}lm_head.lora_B.weight"] @ a[f"{prefix}lm_head.lora_A.weight"] * (7 / 4)
    embedding = weight + (a[f"{prefix}model.embed_tokens.lora_embedding_B"]
                          @ a[f"{prefix}model.embed_tokens.lora_embedding_A"]).T * (7 / 4)
    assert torch.equal(made["lm_head.weight"], head) and torch.equal(made["model.embed_tokens.weight"], embedding)
    said(foldback(tmp_path, "unmerge", tmp_path / "merged.safetensors", "-o", tmp_path / "back.safetensors"))
    assert (tmp_path / "back.safetensors").read_bytes() == (tmp_path / "base/model.safetensors").read_bytes()


@pytest.mark.sampled
@pytest.mark.parametrize("member, value, reason", [
    ("use_dora", True, "use_dora"), ("modules_to_save", ["lm_head"], "modules_to_save"), ("peft_type", "IA3", "IA3"),
    ("bias", "all", "biases"), ("r", 3, "rank"), ("lora_bias", True, "lora_bias")])
def test_other_adapters_are_refused(tmp_path: Path, member: str, value: object, reason: str) -> None:
    case = Case(tmp_path, *CASES["float32"])
    file = case.adapters[0] / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), member: value}))
    done = foldback(tmp_path, "merge", case.base, case.adapters[0], "-o", tmp_path / "merged.safetensors")
    assert done.returncode == 1 and reason in done.stderr and not (tmp_path / "merged.safetensors").exists()


@pytest.mark.skipif(IS_SHORT, reason="a part of the long form")
def test_memory_holds_a_tensor(tmp_path: Path) -> None:
    """Of files of 320 MB, in tensors of 4 MB each, memory has a few."""
    names = [f"model.layers.{i}.self_attn.q_proj" for i in range(80)]
    (tmp_path / "adapter").mkdir()
    for folder, some in (("large", names), ("small", names[:1])):
        save_file({f"{name}.weight": torch.randn(1024, 1024) for name in some}, tmp_path / f"{folder}.safetensors")
        save_file({f"base_model.model.{name}.lora_{part}.weight": torch.randn(*shape) for name in some
                   for part, shape in (("A", (4, 1024)), ("B", (1024, 4)))}, tmp_path / "adapter/adapter_model.safetensors")
        (tmp_path / "adapter/adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 4}))
        text = (f"import resource, sys\nfrom foldback.adapters import main\n"
                f"assert main(['merge', '{folder}.safetensors', 'adapter', '-o', '{folder}.merged', '--data', 'store']) == 0\n"
                f"assert main(['unmerge', '{folder}.merged', '-o', '{folder}.back', '--data', 'store']) == 0\n"
                "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)")
        done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True,
                              check=True)
        used = int(done.stdout.split()[-1])
        if folder == "large":
            large = used
    assert large - used < 64 * 1024, (large, used)
    assert (tmp_path / "large.back").read_bytes() == (tmp_path / "large.safetensors").read_bytes()
