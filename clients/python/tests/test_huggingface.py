"""Folders of Hugging Face: in, transformed, trained, undone, and out."""

import copy
import json
import os
import sys

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers_models import MODELS, make

import foldback
from foldback import huggingface
from foldback.optimization import (
    ChangeTrueDivToMulByInverse,
    FuseBiasInLinear,
    MergeLinears,
    RemoveNoOps,
    ReplaceActivation,
    compose,
    inference,
)

TEXT = ["input_ids", "attention_mask"]
PASSES = {
    "merged": lambda: compose(MergeLinears(), ChangeTrueDivToMulByInverse()),
    "columns": FuseBiasInLinear,
    "inference": inference,
    "activation": lambda: ReplaceActivation("gelu", "relu"),
}


def folder_of(name, path, *, dtype=torch.float32, **options):
    model, inputs = make(name)
    model = model.to(dtype)
    model.save_pretrained(path, **options)
    (path / "tokenizer_config.json").write_text("{}")
    return model, inputs


def output(program, inputs):
    with torch.no_grad():
        found = program(**inputs)
    return found["logits"] if "logits" in found else found["last_hidden_state"]


def reopened(path):
    """What from_pretrained makes of a folder, which must fit."""
    cls = getattr(transformers, json.loads((path / "config.json").read_text())["architectures"][0])
    model, said = cls.from_pretrained(path, output_loading_info=True, attn_implementation="eager", torch_dtype="auto")
    assert not any(said.values())
    return model.eval()


@pytest.mark.parametrize("name", ["resnet", "convnext", "wav2vec2"])
def test_the_main_input_is_taken_where_none_is_named(name, tmp_path):
    model, inputs = folder_of(name, tmp_path / "in")
    live = huggingface.load(tmp_path / "in")
    assert [node.target for node in live.graph.nodes if node.op == "placeholder"] == list(inputs) == [model.main_input_name]
    torch.testing.assert_close(output(live, inputs), output(model, inputs))


@pytest.mark.parametrize("name", ["bert", "bert-classifier", "distilbert", "gpt-neo", "bloom"])
def test_a_folder_comes_out_as_it_went_in(name, tmp_path):
    model, inputs = folder_of(name, tmp_path / "in")
    live = huggingface.load(tmp_path / "in", input_names=TEXT)
    torch.testing.assert_close(output(live, inputs), output(model, inputs))
    composition = compose(MergeLinears(), ChangeTrueDivToMulByInverse()) if name in ("bert", "distilbert") else RemoveNoOps()
    composition(live)
    composition(live, reverse=True)
    huggingface.save(live, tmp_path / "out")
    before, after = model.state_dict(), reopened(tmp_path / "out").state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)
    same = ("config.json", "tokenizer_config.json", *(["generation_config.json"] if model.can_generate() else []))
    assert all((tmp_path / "in" / file).read_bytes() == (tmp_path / "out" / file).read_bytes() for file in same)
    assert load_file(tmp_path / "out/model.safetensors").keys() == load_file(tmp_path / "in/model.safetensors").keys()


def test_what_the_model_does_not_read_goes_out_too(tmp_path):
    """An old file's position_ids, and the folders that modules.json of sentence-transformers names."""
    folder_of("bert", tmp_path / "in")
    held = load_file(tmp_path / "in/model.safetensors") | {"embeddings.position_ids": torch.arange(64)[None]}
    save_file(held, tmp_path / "in/model.safetensors", metadata={"format": "pt"})
    (tmp_path / "in/1_Pooling").mkdir()
    (tmp_path / "in/1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    modules = [{"idx": 0, "name": "0", "path": "", "type": "T"}, {"idx": 1, "name": "1", "path": "1_Pooling", "type": "P"}]
    (tmp_path / "in/modules.json").write_text(json.dumps(modules))
    huggingface.save(huggingface.load(tmp_path / "in", input_names=TEXT), tmp_path / "out")
    after = load_file(tmp_path / "out/model.safetensors")
    assert after.keys() == held.keys() and all(torch.equal(after[key], held[key]) for key in held)
    for file in ("modules.json", "1_Pooling/config.json"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "in" / file).read_bytes()
    reopened(tmp_path / "out")

    for path in ("2_Dense", "../elsewhere"):
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        (tmp_path / "in/modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": path, "type": "T"}]))
        with pytest.raises(ValueError, match="modules.json names"):
            huggingface.save(huggingface.load(tmp_path / "in", input_names=TEXT), tmp_path / "again")


@pytest.mark.parametrize("passes", PASSES)
def test_a_transformed_program_comes_back(passes, tmp_path):
    _, inputs = folder_of("bert", tmp_path / "in")
    live = huggingface.load(tmp_path / "in", input_names=TEXT)
    PASSES[passes]()(live)
    with torch.no_grad():
        for parameter in live.parameters():
            parameter.mul_(1.01)
    huggingface.save(live, tmp_path / "out")
    again = huggingface.load(tmp_path / "out")
    assert again.code == live.code and torch.equal(output(again, inputs), output(live, inputs))
    with pytest.raises(OSError, match="model.safetensors"):
        transformers.BertModel.from_pretrained(tmp_path / "out", local_files_only=True)
    huggingface.save(again, tmp_path / "twice")
    assert torch.equal(output(huggingface.load(tmp_path / "twice"), inputs), output(live, inputs))
    assert (tmp_path / "twice/config.json").read_bytes() == (tmp_path / "in/config.json").read_bytes()


def test_training_goes_out(tmp_path):
    _, inputs = folder_of("bert", tmp_path / "in")
    live = huggingface.load(tmp_path / "in", input_names=TEXT)
    untouched = output(live, inputs)
    with torch.no_grad():
        live.get_parameter("encoder.layer.0.attention.self.query.weight").mul_(3)
    huggingface.save(copy.deepcopy(live), tmp_path / "out")
    trained = output(reopened(tmp_path / "out"), inputs)
    assert not torch.allclose(trained, untouched)
    torch.testing.assert_close(trained, output(live, inputs))


def test_tied_embeddings_shards_and_bfloat16(tmp_path):
    model, inputs = folder_of("gpt-neo", tmp_path / "in", dtype=torch.bfloat16, max_shard_size="10KB")
    assert (tmp_path / "in/model.safetensors.index.json").exists()
    live = huggingface.load(tmp_path / "in", input_names=TEXT)
    assert live.lm_head.weight is live.transformer.wte.weight and live.lm_head.weight.dtype == torch.bfloat16
    assert torch.equal(output(live, inputs), output(model, inputs))
    huggingface.save(live, tmp_path / "plain", max_shard_size="10KB")
    assert (tmp_path / "plain/model.safetensors.index.json").exists()
    assert reopened(tmp_path / "plain").lm_head.weight.dtype == torch.bfloat16
    MergeLinears()(live)
    assert "merged" in live.code
    huggingface.save(live, tmp_path / "out", max_shard_size="10KB")
    assert (tmp_path / "out/foldback.safetensors.index.json").exists()
    again = huggingface.load(tmp_path / "out")
    assert again.lm_head.weight is again.transformer.wte.weight and again.lm_head.weight.dtype == torch.bfloat16
    assert torch.equal(output(again, inputs), output(live, inputs))


def test_weights_that_a_program_does_not_read_are_kept(tmp_path):
    """A program has the weights that it reads; a checkpoint has all."""
    folder_of("bert", tmp_path / "in")
    live = huggingface.load(tmp_path / "in", input_names=["inputs_embeds"])
    assert not hasattr(live.embeddings, "word_embeddings")
    huggingface.save(live, tmp_path / "out")
    before, after = (load_file(tmp_path / folder / "model.safetensors") for folder in ("in", "out"))
    assert before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)


def test_an_edit_by_hand_is_not_lost(tmp_path):
    _, inputs = folder_of("bert", tmp_path / "in")
    live = huggingface.load(tmp_path / "in", input_names=TEXT)
    node = next(node for node in live.graph.nodes if node.target is torch.nn.functional.gelu)
    node.replace_all_uses_with(node.args[0])
    live.graph.erase_node(node)
    live.recompile()
    huggingface.save(live, tmp_path / "out")
    assert torch.equal(output(huggingface.load(tmp_path / "out"), inputs), output(live, inputs))


def test_a_buffer_that_no_checkpoint_has_is_not_lost(tmp_path):
    _, inputs = folder_of("bert", tmp_path / "in")
    live = huggingface.load(tmp_path / "in", input_names=TEXT)
    before = output(live, inputs)
    live.embeddings.position_ids.zero_()
    assert not torch.allclose(output(live, inputs), before)
    huggingface.save(live, tmp_path / "out")
    assert torch.equal(output(huggingface.load(tmp_path / "out"), inputs), output(live, inputs))


# ---- runs -------------------------------------------------------------------------------------------------------------------


def run_of(client, path, *, bound=False, digests=False):
    """A run on the model of a folder; with `bound` the service has the folder's weights."""
    model, inputs = folder_of("bert", path)
    live = huggingface.load(path, input_names=TEXT)
    graph = client.put_graph(foldback.fx.to_document(live, model=model, digests=digests))
    if bound:
        graph = client.bind(graph, path / "model.safetensors", as_="source", progress=False)["id"]
    return client.optimize(graph, ["MergeLinears", "ChangeTrueDivToMulByInverse"], assume={}), model, inputs


@pytest.mark.parametrize("bound", [False, True])
def test_the_result_of_a_run_is_saved(client, bound, tmp_path):
    run, model, inputs = run_of(client, tmp_path / "in", bound=bound)
    assert all(row["applied"] for row in run["passes"])
    if bound:  # what the service has counts
        rewrite(tmp_path / "in", lambda tensors: tensors.update({KEY: tensors[KEY] * 2}))
    for at, given in enumerate((run, run["id"])):
        huggingface.save(given, tmp_path / f"out{at}", source=tmp_path / "in", client=client)
        saved = huggingface.load(tmp_path / f"out{at}")
        assert "merged" in saved.code and (tmp_path / f"out{at}/tokenizer_config.json").exists()
        torch.testing.assert_close(output(saved, inputs), output(model, inputs))


def test_what_a_run_took_back_is_saved_for_from_pretrained(client, tmp_path):
    run, model, _ = run_of(client, tmp_path / "in")
    huggingface.save(client.rollback(run), tmp_path / "out", source=tmp_path / "in", client=client)
    before, after = model.state_dict(), reopened(tmp_path / "out").state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)


def test_a_run_that_is_not_saved(client, tmp_path):
    run, _, _ = run_of(client, tmp_path / "in", digests=True)
    with pytest.raises(ValueError, match="source="):
        huggingface.save(run, tmp_path / "out")
    rewrite(tmp_path / "in", lambda tensors: tensors.update({KEY: tensors[KEY] * 2}))
    with pytest.raises(ValueError, match=f"{KEY} in .* is not what the run's graph says"):
        huggingface.save(run, tmp_path / "out", source=tmp_path / "in", client=client)
    with pytest.raises(FileNotFoundError, match="no config.json"):
        huggingface.save(run, tmp_path / "out", source=tmp_path, client=client)
    assert sorted(os.listdir(tmp_path)) == ["in"]


# ---- what is refused --------------------------------------------------------------------------------------------------------


def rewrite(path, change):
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors", {"format": "pt"})


def add_custom_code(path):
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "modeling.Mine"}}))


def name_no_class(path):
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"architectures": ["ModelOfMine"]}))


def pickle_weights(path):
    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()


KEY = "encoder.layer.0.attention.self.query.weight"
BAD = {
    "no config": (lambda path: (path / "config.json").unlink(), FileNotFoundError, "no config.json"),
    "custom code": (add_custom_code, ValueError, "custom code"),
    "no class": (name_no_class, ValueError, "ModelOfMine"),
    "pickles": (pickle_weights, ValueError, "pickles"),
    "no weights": (lambda path: (path / "model.safetensors").unlink(), FileNotFoundError, "no model.safetensors"),
    "missing": (lambda path: rewrite(path, lambda tensors: tensors.pop(KEY)), ValueError, f"missing keys: {KEY}"),
    "extra": (lambda path: rewrite(path, lambda tensors: tensors.update(x=torch.ones(1))), ValueError, "unexpected keys: x"),
    "shape": (lambda path: rewrite(path, lambda tensors: tensors.update({KEY: torch.ones(3, 3)})), ValueError, "do not fit"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_folder_that_is_refused(bad, tmp_path):
    folder_of("bert", tmp_path)
    change, kind, message = BAD[bad]
    change(tmp_path)
    with pytest.raises(kind, match=message):
        huggingface.load(tmp_path, input_names=TEXT)


def test_a_model_that_the_tracer_does_not_follow(tmp_path):
    assert "llama" in MODELS
    folder_of("llama", tmp_path)
    before = dict(vars(torch))
    with pytest.raises(ValueError, match="does not follow LlamaForCausalLM"):
        huggingface.load(tmp_path, input_names=TEXT)
    assert [name for name, value in before.items() if vars(torch)[name] is not value] == []


def test_transformers_5_reads_folders_with_a_graph_and_says_what_else_to_do(tmp_path, monkeypatch):
    _, inputs = folder_of("distilbert", tmp_path / "in")
    live = huggingface.load(tmp_path / "in", input_names=TEXT)
    MergeLinears()(live)
    huggingface.save(live, tmp_path / "out")
    monkeypatch.setitem(sys.modules, "transformers.utils.fx", None)  # an import of it fails
    with pytest.raises(ValueError, match=r"before 5 \(pip install 'transformers<5'\), or .* torch.compile"):
        huggingface.load(tmp_path / "in", input_names=TEXT)
    assert torch.equal(output(huggingface.load(tmp_path / "out"), inputs), output(live, inputs))


def test_weights_of_another_graph(tmp_path):
    folder_of("bert", tmp_path / "in")
    live = huggingface.load(tmp_path / "in", input_names=TEXT)
    MergeLinears()(live)
    huggingface.save(live, tmp_path / "out")
    tensors = load_file(tmp_path / "out/foldback.safetensors")
    tensors.popitem()
    save_file(tensors, tmp_path / "out/foldback.safetensors")
    with pytest.raises(ValueError, match="not those of its"):
        huggingface.load(tmp_path / "out")


def test_weights_of_several_dtypes_are_refused(tmp_path):
    """from_pretrained would cast them, and the folder would come out as another one."""
    folder_of("bert", tmp_path, dtype=torch.bfloat16)
    weights = load_file(tmp_path / "model.safetensors")
    key = next(key for key in weights if key.endswith("LayerNorm.weight"))
    save_file(weights | {key: weights[key].float()}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="convert the weights to one dtype"):
        huggingface.load(tmp_path, input_names=TEXT)


def test_there_is_never_half_a_folder(tmp_path, monkeypatch):
    folder_of("bert", tmp_path / "in")
    live = huggingface.load(tmp_path / "in", input_names=TEXT)
    with pytest.raises(FileExistsError):
        huggingface.save(live, tmp_path / "in")
    with pytest.raises(ValueError, match="load gave"):
        huggingface.save(torch.fx.symbolic_trace(torch.nn.ReLU()), tmp_path / "out")

    def fail(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="no space"):
        patched.setattr(huggingface, "_copy_kept", fail)
        huggingface.save(live, tmp_path / "out")
    assert os.listdir(tmp_path) == ["in"]
    os.utime(tmp_path / "in/model.safetensors", (1, 1))
    with pytest.raises(ValueError, match="have changed"):
        huggingface.save(live, tmp_path / "out")
    assert os.listdir(tmp_path) == ["in"]
