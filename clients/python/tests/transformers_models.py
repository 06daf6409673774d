"""Architectures of transformers, small, with random weights."""

import torch
import transformers

transformers.logging.set_verbosity_error()

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=100)
DECODER = SIZES | dict(num_key_value_heads=2, max_position_embeddings=64, use_cache=False, pad_token_id=0)
TEXT = SIZES | dict(max_position_embeddings=64, pad_token_id=0)
IMAGE = dict(image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)

# name: (class of the model, members of its configuration, inputs)
MODELS = {
    "bert": ("BertModel", TEXT, "text"),
    "bert-classifier": ("BertForSequenceClassification", TEXT, "text"),
    "roberta": ("RobertaModel", TEXT, "text"),
    "xlm-roberta": ("XLMRobertaModel", TEXT, "text"),
    "distilbert": ("DistilBertModel", dict(dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=100), "text"),
    "albert": ("AlbertModel", TEXT | dict(embedding_size=16), "text"),
    "electra": ("ElectraModel", TEXT | dict(embedding_size=16), "text"),
    "mobilebert": ("MobileBertModel", TEXT | dict(embedding_size=32, intra_bottleneck_size=32, true_hidden_size=32), "text"),
    "megatron-bert": ("MegatronBertModel", TEXT, "text"),
    "layoutlm": ("LayoutLMModel", TEXT, "text"),
    "mpnet": ("MPNetModel", TEXT, "text"),
    "nystromformer": ("NystromformerModel", TEXT | dict(segment_means_seq_len=16, num_landmarks=16), "text"),
    "gpt2": ("GPT2LMHeadModel", dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=100, use_cache=False), "text"),
    "gpt2-cross": (
        "GPT2LMHeadModel",
        dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=100, use_cache=False, add_cross_attention=True),
        "memory",
    ),
    "gpt-neo": (
        "GPTNeoForCausalLM",
        dict(hidden_size=32, num_layers=2, attention_types=[[["global", "local"], 1]], num_heads=4, vocab_size=100)
        | dict(max_position_embeddings=64, use_cache=False),
        "text",
    ),
    "gpt-neox": ("GPTNeoXForCausalLM", TEXT | dict(use_cache=False), "text"),
    "gpt-j": (
        "GPTJForCausalLM",
        dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4, vocab_size=100, use_cache=False),
        "text",
    ),
    "opt": ("OPTForCausalLM", TEXT | dict(ffn_dim=64, word_embed_proj_dim=32, use_cache=False), "text"),
    "bloom": ("BloomForCausalLM", dict(hidden_size=32, n_layer=2, n_head=4, vocab_size=100, use_cache=False), "text"),
    "llama": ("LlamaForCausalLM", DECODER, "text"),
    "mistral": ("MistralForCausalLM", DECODER, "text"),
    "qwen2": ("Qwen2ForCausalLM", DECODER, "text"),
    "phi": ("PhiForCausalLM", DECODER, "text"),
    "gemma": ("GemmaForCausalLM", DECODER | dict(head_dim=8), "text"),
    "stablelm": ("StableLmForCausalLM", DECODER, "text"),
    "t5": (
        "T5ForConditionalGeneration",
        dict(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=100, use_cache=False),
        "pair",
    ),
    "vit": ("ViTModel", IMAGE, "image"),
    "deit": ("DeiTModel", IMAGE, "image"),
    "dinov2": ("Dinov2Model", IMAGE, "image"),
    "beit": ("BeitModel", IMAGE, "image"),
    "swin": (
        "SwinModel",
        dict(image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4),
        "image",
    ),
    "clip-vision": ("CLIPVisionModel", IMAGE, "image"),
    "convnext": ("ConvNextModel", dict(image_size=32, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2), "image"),
    "resnet": (
        "ResNetForImageClassification",
        dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=10, layer_type="basic"),
        "image",
    ),
    "segformer": (
        "SegformerForImageClassification",
        dict(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[7, 3], strides=[4, 2])
        | dict(num_attention_heads=[1, 2], mlp_ratios=[2, 2]),
        "image",
    ),
    "wav2vec2": (
        "Wav2Vec2Model",
        SIZES
        | dict(conv_dim=[16, 16], conv_stride=[5, 2], conv_kernel=[10, 3], num_feat_extract_layers=2)
        | dict(num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2),
        "audio",
    ),
}
# What the tracer of transformers follows with this PyTorch; torch.export follows all of them.
TRACED = {
    "bert", "bert-classifier", "roberta", "distilbert", "albert", "electra", "mobilebert", "megatron-bert", "gpt-neo", "gpt-j",
    "bloom", "t5", "swin", "clip-vision", "convnext", "resnet", "segformer", "wav2vec2",
}
INPUTS = {
    "text": lambda: {"input_ids": torch.randint(3, 100, (2, 16)), "attention_mask": torch.ones(2, 16, dtype=torch.int64)},
    "pair": lambda: {"input_ids": torch.randint(3, 100, (2, 16)), "decoder_input_ids": torch.randint(3, 100, (2, 8))},
    "memory": lambda: {"input_ids": torch.randint(3, 100, (2, 8)), "encoder_hidden_states": torch.randn(2, 16, 32)},
    "image": lambda: {"pixel_values": torch.randn(2, 3, 32, 32)},
    "audio": lambda: {"input_values": torch.randn(2, 400)},
}


def make(name):
    """The model and an example of its arguments, by name."""
    kind, config, inputs = MODELS[name]
    torch.manual_seed(0)
    cls = getattr(transformers, kind)
    made = cls.config_class(**config)
    made._attn_implementation = "eager"
    model = cls(made).eval()
    for child in model.modules():
        if isinstance(child, torch.nn.BatchNorm2d):
            child.running_mean.normal_(0, 0.1)
            child.running_var.uniform_(0.5, 2)
    return model, INPUTS[inputs]()


def trace(model, inputs):
    """By the tracer that transformers has for its models, until version 5."""
    from transformers.utils.fx import symbolic_trace

    return symbolic_trace(model, list(inputs))
