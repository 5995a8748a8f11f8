"""A peer of the encoder: it takes texts and returns mean-pooled unit vectors, as one would write it with the runtime.

    python peer.py torch|onnxruntime FOLDER FILE.onnx THREADS [cuda]

With `cuda`, torch runs in bf16 on the graphics processor, and FILE.onnx is not read.

Each line on standard input is {"texts": [...], "times": n}; each answer {"seconds": the median of n runs, "first": the first text's
vector}. Tokenising is part of the time; texts are sorted by length and padded in batches of 32, with `cuda` of 256.
"""
import json
import statistics
import sys
import time

import numpy
from tokenizers import Tokenizer

runtime, folder, onnx, threads, *graphics = sys.argv[1:]
BATCH = 256 if graphics else 32

tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
tokenizer.no_truncation()
tokenizer.enable_padding()

if runtime == "torch":
    import torch
    from transformers import AutoModel

    torch.set_num_threads(int(threads))
    torch.set_num_interop_threads(1)
    device, dtype = ("cuda", torch.bfloat16) if graphics else ("cpu", torch.float32)
    model = AutoModel.from_pretrained(folder, attn_implementation="sdpa", dtype=dtype).eval().to(device)

    def sums(ids, mask):
        with torch.inference_mode():
            seen = torch.from_numpy(mask).to(device)
            rows = model(input_ids=torch.from_numpy(ids).to(device), attention_mask=seen).last_hidden_state
            if graphics:
                # Only one row of each text leaves the device.
                return (rows * seen[:, :, None]).sum(dim=1, dtype=torch.float32).cpu().numpy()
        return (rows.numpy() * mask[:, :, None]).sum(axis=1)

else:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])

    def sums(ids, mask):
        rows = session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        return (rows * mask[:, :, None]).sum(axis=1)


def embed(texts):
    vectors = [None] * len(texts)
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        encodings = tokenizer.encode_batch([texts[at] for at in batch])
        ids = numpy.array([encoding.ids for encoding in encodings], dtype=numpy.int64)
        mask = numpy.array([encoding.attention_mask for encoding in encodings], dtype=numpy.int64)
        pooled = sums(ids, mask)
        for at, vector in zip(batch, pooled / numpy.linalg.norm(pooled, axis=1, keepdims=True)):
            vectors[at] = vector
    return vectors


print("ready", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    seconds = []
    for _ in range(request["times"]):
        start = time.perf_counter()
        vectors = embed(request["texts"])
        seconds.append(time.perf_counter() - start)
    answer = {"seconds": statistics.median(seconds), "first": [float(value) for value in vectors[0]]}
    print(json.dumps(answer), flush=True)
