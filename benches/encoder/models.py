"""Makes the models for the encoder's bench, the same for all runtimes.

    python models.py FOLDER_OF_MINILM OUT

OUT gets `minilm.onnx` and `modernbert/`, a ModernBERT-base with random weights and MiniLM's tokenizer (speed depends on
neither), with `modernbert.onnx` beside it; and both in int8 as `minilm.int8.onnx` and `modernbert.int8.onnx`, with
activations quantised as they come, which is how such models are usually deployed.
"""
import pathlib
import shutil
import sys

import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from transformers import AutoModel, ModernBertConfig, ModernBertModel

minilm, out = map(pathlib.Path, sys.argv[1:])
out.mkdir(parents=True)
torch.manual_seed(1)


class Rows(torch.nn.Module):
    """Takes token ids and a mask, and returns rows of hidden state."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def export(model, path):
    ids = torch.randint(5, 1000, (2, 16))
    dynamic = {0: torch.export.Dim("texts", min=1, max=4096), 1: torch.export.Dim("tokens", min=2, max=8192)}
    torch.onnx.export(
        Rows(model).eval(),
        (ids, torch.ones_like(ids)),
        str(path),
        input_names=["input_ids", "attention_mask"],
        output_names=["rows"],
        dynamic_shapes=(dynamic, dynamic),
        dynamo=True,
        external_data=True,
    )


modernbert = out / "modernbert"
ModernBertModel(ModernBertConfig()).eval().save_pretrained(modernbert)
shutil.copy(minilm / "tokenizer.json", modernbert)
for name, folder in [("minilm", minilm), ("modernbert", modernbert)]:
    export(AutoModel.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32), out / f"{name}.onnx")
    quantize_dynamic(
        out / f"{name}.onnx",
        out / f"{name}.int8.onnx",
        per_channel=True,
        weight_type=QuantType.QInt8,
        extra_options={"MatMulConstBOnly": True},
    )
