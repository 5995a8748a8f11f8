"""Outputs of small encoders of every architecture by transformers and torch, in float64.

    python make_architectures.py > architectures.json

Weights are not stored: `value` below and its twin in src/encoder/tests.rs make them from a tensor's name. A model is written
as a folder under the names of the checkpoints on the hub, and loaded from there by transformers' own class, which confirms
names and config. Each sequence runs by itself, so that nothing depends on padding.

Each case: the token ids, the number of tokens of type 0 (all, unless it is a pair), of the hidden state the rows at `at` and the
mean of all rows; for a classifier its logit.
"""
import json
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    NomicBertConfig,
    NomicBertModel,
)

HIDDEN, HEADS, LAYERS, WIDE, VOCABULARY = 48, 4, 4, 72, 64
SIZES = dict(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=WIDE)
LENGTHS = [1, 9, 70, 301]


def value(name, shape):
    """A number from -1 to 1, hashed from name and place, then scaled so that activations stay near 1."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 % 2**32
    x = np.arange(np.prod(shape), dtype=np.uint64)
    x = (x * 2654435769 + seed) % 2**32
    x = x ^ (x >> np.uint64(16))
    x = x * 0x85EBCA6B % 2**32
    x = x ^ (x >> np.uint64(13))
    x = x * 0xC2B2AE35 % 2**32
    x = x ^ (x >> np.uint64(16))
    values = ((x >> np.uint64(8)).astype(np.float32) / np.float32(2**23) - np.float32(1)).reshape(shape)
    if len(shape) == 1:
        is_gain = name.endswith("weight")
        return (values / np.float32(4) + np.float32(1 if is_gain else 0)).astype(np.float32)
    is_embedding = "embeddings" in name or "relative_attention_bias" in name
    return values if is_embedding else (values / np.float32(4)).astype(np.float32)


def nomic_names(name):
    """Maps transformers' names to those of the checkpoint; the caller joins the three projections."""
    for ours, theirs in [
        ("embeddings.LayerNorm", "emb_ln"),
        ("self_attn.o_proj", "attn.out_proj"),
        ("mlp.up_proj", "mlp.fc11"),
        ("mlp.gate_proj", "mlp.fc12"),
        ("mlp.down_proj", "mlp.fc2"),
        ("post_attention_layernorm", "norm1"),
        ("post_mlp_layernorm", "norm2"),
    ]:
        name = name.replace(ours, theirs)
    return f"encoder.{name}" if name.startswith("layers.") else name


def shapes_of(model):
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if not isinstance(model, NomicBertModel):
        return shapes
    joined = {}
    for name, shape in shapes.items():
        if "q_proj" in name:
            joined[nomic_names(name).replace("self_attn.q_proj", "attn.Wqkv")] = (3 * shape[0], shape[1])
        elif "k_proj" not in name and "v_proj" not in name:
            joined[nomic_names(name)] = shape
    return joined


def config_of(config):
    """The config as it lies on the hub: for NomicBERT under GPT-2's names, else as transformers writes it."""
    if not isinstance(config, NomicBertConfig):
        return config.to_diff_dict() | {"architectures": config.architectures}
    return {
        "model_type": "nomic_bert", "vocab_size": VOCABULARY, "n_embd": HIDDEN, "n_head": HEADS, "n_layer": LAYERS, "n_inner": WIDE,
        "n_positions": config.max_position_embeddings, "type_vocab_size": 2, "layer_norm_epsilon": config.layer_norm_eps,
        "activation_function": "swiglu", "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
        "rotary_scaling_factor": None, "prenorm": False, "use_rms_norm": False, "qkv_proj_bias": False, "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
    }


def rounded(row):
    return [round(float(x), 7) for x in row]


def model(name, config, kind, pairs=False):
    fresh = kind(config)
    shapes = shapes_of(fresh)
    with tempfile.TemporaryDirectory() as folder:
        save_file({name: value(name, shape) for name, shape in shapes.items()}, f"{folder}/model.safetensors", metadata={"format": "pt"})
        config.architectures = [kind.__name__]
        config.save_pretrained(folder)
        loaded, report = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"], report
    loaded.eval()

    generator = np.random.default_rng(len(name))
    sequences = [generator.integers(5, VOCABULARY, length).tolist() for length in LENGTHS]
    firsts = [max(1, len(ids) // 3) if pairs else len(ids) for ids in sequences]
    cases = []
    for sequence, first in zip(sequences, firsts):
        inputs = dict(input_ids=torch.tensor([sequence]))
        if pairs:
            inputs["token_type_ids"] = torch.tensor([[0] * first + [1] * (len(sequence) - first)])
        with torch.no_grad():
            rows = (loaded.bert if pairs else loaded)(**inputs).last_hidden_state[0]
            logit = float(loaded(**inputs).logits[0, 0]) if pairs else None
        at = sorted({0, len(sequence) // 2, len(sequence) - 1})
        case = {"ids": sequence, "first": first, "at": at, "rows": [rounded(rows[i]) for i in at], "mean": rounded(rows.mean(0))}
        cases.append(case | ({"logit": round(logit, 7)} if pairs else {}))
    return {"name": name, "config": config_of(config), "tensors": {name: list(shape) for name, shape in shapes.items()}, "cases": cases}


special = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
models = [
    model("bert", BertConfig(**SIZES, max_position_embeddings=320), BertModel),
    model("mpnet", MPNetConfig(**SIZES, max_position_embeddings=322, pad_token_id=1), MPNetModel),
    model("nomic_bert", NomicBertConfig(**SIZES, max_position_embeddings=512), NomicBertModel),
    model(
        "modernbert",
        ModernBertConfig(**SIZES, **special, cls_token_id=1, sep_token_id=2, max_position_embeddings=512, local_attention=32),
        ModernBertModel,
    ),
    model("cross_encoder", BertConfig(**SIZES, max_position_embeddings=320, num_labels=1), BertForSequenceClassification, pairs=True),
]
json.dump(models, sys.stdout)
print()
