"""Computes how much attention the tokens of a text receive: for each token the sum over the tokens that look at it, averaged over the heads.

    python attention.py FOLDER THREADS

Each line on standard input is a list of texts, each a list of token ids without the special ones; each answer is
{"last": [[...]], "last three": [[...]]}, by the number of last layers that count, with one number per token.
"""
import json
import sys

import torch
from transformers import AutoModel

folder, threads = sys.argv[1:]
BATCH = 16
CLS, SEP = 101, 102
LAYERS = {"last": 1, "last three": 3}

torch.set_num_threads(int(threads))
model = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def received(texts):
    """The attention for the texts of one batch, by the number of layers."""
    longest = max(len(text) for text in texts) + 2
    ids = torch.zeros((len(texts), longest), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text) + 2] = torch.tensor([CLS, *text, SEP])
        mask[row, : len(text) + 2] = 1
    with torch.inference_mode():
        attentions = model(input_ids=ids, attention_mask=mask, output_attentions=True).attentions
    # Padding tokens look at others too, so their rows are masked.
    looks = [(layer.mean(dim=1) * mask[:, :, None]).sum(dim=1) for layer in attentions]
    for row, text in enumerate(texts):
        yield {name: sum(looks[-count:])[row, 1 : len(text) + 1].tolist() for name, count in LAYERS.items()}


print("ready", flush=True)
for line in sys.stdin:
    texts = json.loads(line)
    answer = {name: [None] * len(texts) for name in LAYERS}
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        for at, found in zip(batch, received([texts[at] for at in batch])):
            for name, values in found.items():
                answer[name][at] = values
    print(json.dumps(answer), flush=True)
