"""A tiny model of transformers 5 for each entry of its mapping that has a converter."""

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import transformers
from transformers import conversion_mapping, core_model_loading
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

# The sizes of all configurations, by what they are called
SIZES = [
    (r"(hidden_size|hidden_dim|d_model|dim|embed_dim|embedding_dim|width|output_dim|projection_dim|latent_dim|patch_dim|"
     r"audio_prompt_dim|condition_dim|llm_hidden_size|text_hidden_size|out_hidden_size|output_hidden_size|audio_hidden_size|"
     r"projector_hidden_size|downsample_hidden_size|adapter_in_dim|adapter_input_size|adapter_out_dim)", 32),
    (r"(intermediate_size|ffn_dim|mlp_dim|n_inner|encoder_ffn_dim|decoder_ffn_dim|ffn_hidden_size)", 48),
    (r".*(moe|expert).*(intermediate_size|hidden_size)", 16),
    (r"(num_hidden_layers|depth|num_layers|n_layers?|encoder_layers|decoder_layers)", 3),
    (r"(num_attention_heads|n_head|num_heads|encoder_attention_heads|decoder_attention_heads|swa_num_attention_heads|"
     r"linear_num_key_heads|linear_num_value_heads|decoder_self_attention_heads|decoder_cross_attention_heads)", 4),
    (r"(num_key_value_heads|num_kv_heads|swa_num_key_value_heads|global_num_key_value_heads)", 2),
    (r"(head_dim|global_head_dim|swa_head_dim|swa_v_head_dim|linear_key_head_dim|linear_value_head_dim|index_head_dim|"
     r"mamba_head_dim|v_head_dim|qk_head_dim|q_lora_rank|kv_lora_rank|o_lora_rank)", 8),
    (r"qk_(rope|nope)_head_dim", 4),
    (r".*vocab_size.*", 64),
    (r"(n_routed_experts|num_experts|num_local_experts|moe_num_experts|n_experts)", 4),
    (r"(num_experts_per_tok|moe_topk|num_experts_per_token|moe_k)", 2),
    (r"(image_size|img_size|input_size|max_img_size)", 16),
    (r"patch_size", 4),
    (r"(n_group|topk_group|first_k_dense_replace|num_dense_layers|moe_layer_start_index)", 1),
    (r"(max_position_embeddings|n_positions)", 64),
    (r".*token_id", 1),
]
# Members that follow from others; what they are by default is for large models.
LEFT_OUT = {"out_features", "_out_features", "out_indices", "_out_indices", "stage_names", "per_layer_config",
            "id2label", "label2id"}
# What an entry's configuration needs besides, a path of members each
MORE = {
    "Dots3NoteTextModel": {"num_key_value_heads": 4},
    "beam": {"mlp_layer_types": ["dense", "sparse", "sparse"]},
    "deepseek_ocr2": {"text_config.mlp_layer_types": ["dense", "sparse", "sparse"]},
    "deepseek_v32": {"mlp_layer_types": ["dense", "sparse", "sparse"]},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "ernie4_5_vl_moe": {"text_config.moe_intermediate_size": [16, 8], "text_config.hidden_size": 512},
    "glm5_next": {"text_config.num_key_value_heads": 4, "text_config.qk_rope_head_dim": 0},
    "glm5_next_text": {"num_key_value_heads": 4, "qk_rope_head_dim": 0},
    "glm_moe_dsa": {"mlp_layer_types": ["dense", "sparse", "sparse"]},
    "gradium_phonon_tts": {"num_key_value_heads": 4},
    "hunyuan_v1_moe": {"head_dim": 8, "num_experts": 4, "moe_topk": 2},
    "inkling_mm_model": {"vision_config.patch_size": 4, "vision_config.n_layers": 2, "text_config.unpadded_vocab_size": 64},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"]},
    "longcat_flash": {"num_layers": 2},
    "nemo_speechlm": {"audio_config.asr_config.num_key_value_heads": 4, "word_timestamp_config.num_key_value_heads": 4,
                      "audio_config.diarization_config.audio_config.num_key_value_heads": 4},
    "qwen3_omni_moe": {"talker_config.text_config.shared_expert_intermediate_size": 16, "talker_config.spatial_merge_size": 2},
    "qwen4_exp_text": {
        "eos_token_id": 1,
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 16, "indexer_compress_ratio": 2,
        "ngram_vocab_size_base": 200, "split_ngram_parts": 4, "ple_layer_ids": [1], "ple_embed_dim": 32, "ngram_size": 3,
        "heads_per_ngram": 2, "make_ngram_vocab_size_divisible_by": 4,
    },
}
AUTOS = ("MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", "MODEL_FOR_MULTIMODAL_LM_MAPPING",
         "MODEL_FOR_OBJECT_DETECTION_MAPPING", "MODEL_FOR_MASKED_LM_MAPPING", "MODEL_MAPPING")


def entries() -> list[str]:
    """Of the mapping, those that hold a converter: model types, and names of classes."""
    mapping = conversion_mapping._build_checkpoint_conversion_mapping()
    return [name for name, transforms in mapping.items()
            if any(isinstance(one, core_model_loading.WeightConverter) for one in transforms)]


def _modules() -> Iterator[object]:
    for package in pkgutil.iter_modules(transformers.models.__path__):
        if (Path(transformers.models.__path__[0]) / package.name / f"modeling_{package.name}.py").exists():
            yield f"transformers.models.{package.name}.modeling_{package.name}"


def class_of(entry: str) -> type:
    if entry[0].isupper():
        if hasattr(transformers, entry):
            return getattr(transformers, entry)
        for module in _modules():
            path = Path(transformers.__path__[0]).parent / (module.replace(".", "/") + ".py")
            if f"class {entry}(" in path.read_text():
                return getattr(importlib.import_module(module), entry)
    config = CONFIG_MAPPING[entry]
    for name in [*AUTOS, *(name for name in dir(modeling_auto) if re.fullmatch("MODEL_FOR_.*_MAPPING", name))]:
        mapping = getattr(modeling_auto, name)
        if config in mapping:
            found = mapping[config]
            return found[0] if isinstance(found, list | tuple) else found
    own = importlib.import_module(config.__module__.replace(".configuration_", ".modeling_"))
    return next(one for one in vars(own).values() if isinstance(one, type) and getattr(one, "config_class", None) is config
                and not one.__name__.endswith("PreTrainedModel"))


def _tiny(members: dict) -> dict:
    made = {}
    for name, value in members.items():
        if name in LEFT_OUT:
            continue
        size = next((size for pattern, size in SIZES if re.fullmatch(pattern, name)), None)
        if isinstance(value, dict) and "rope" not in name:
            value = _tiny(value)
        elif isinstance(value, int) and not isinstance(value, bool) and size is not None:
            value = size
        elif isinstance(value, list | tuple) and value and all(isinstance(one, int) for one in value) and size is not None:
            value = [size] * len(value)
        elif isinstance(value, list | tuple) and (len(value) > 8 or name == "layer_types"):
            value = [*dict.fromkeys(value), *value][:3] if isinstance(value[0], str) else list(value)[:3]
        made[name] = value
    return made


def config_of(entry: str, folder: Path) -> transformers.PretrainedConfig:
    """The tiny configuration, also written into the folder; `architectures` names the model's class."""
    known = class_of(entry)
    members = _tiny(known.config_class().to_dict())
    for path, value in MORE.get(entry, {}).items():
        at = members
        *outer, last = path.split(".")
        for name in outer:
            at = at[name]
        at[last] = value
    config = known.config_class.from_dict(members)
    config.architectures = [known.__name__]
    config.save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    if not entry[0].isupper():
        written["model_type"] = entry  # two entries are other models' by another name
    (folder / "config.json").write_text(json.dumps(written))
    return transformers.AutoConfig.from_pretrained(folder)
