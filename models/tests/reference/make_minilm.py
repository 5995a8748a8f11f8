"""Reference vectors of all-MiniLM-L6-v2 by transformers and torch, in float64.

    python make_minilm.py FOLDER_OF_THE_MODEL > minilm.json

Each text: its token count, and of its pooled and normalised vector some components and the sum of all; of its token
vectors (normalised one by one, special tokens left out) the components and sum of the first and the last.
"""
import json
import sys

import torch
from tokenizers import Tokenizer
from transformers import BertModel

folder = sys.argv[1]
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
tokenizer.no_padding()
tokenizer.no_truncation()
model = BertModel.from_pretrained(folder, add_pooling_layer=False, dtype=torch.float64, attn_implementation="eager").eval()

sentence = "The quick brown fox jumps over the lazy dog while seven wizards count 1,234 stars. "
texts = [
    "",
    "hello",
    "What is the capital of France?",
    "  Tabs\tand\nnewlines \r\n and   spaces  ",
    "日本語の文書を検索する。中文也可以。한국어도",
    "Emoji 👩‍👩‍👧 🎉 and symbols € ™ ½ ﬁ",
    "NUL \0 inside, caf\u00e9 and cafe\u0301, ÀÉÎÕÜ",
    "[CLS] literal [MASK] tokens [SEP] in the text",
    "x" * 150 + " pneumonoultramicroscopicsilicovolcanoconiosis https://example.org/a?b=c&d=e#f",
    sentence,
    sentence * 6,
    (sentence * 40)[:1500],
    sentence * 20 + "Padding up to the very end of the window: one two three four five six seven eight nine ten.",
    "word " * 510,
]


def some(row):
    return [round(float(value), 9) for value in row[:: len(row) // 32]]


cases = []
for text in texts:
    encoding = tokenizer.encode(text)
    with torch.no_grad():
        rows = model(input_ids=torch.tensor([encoding.ids])).last_hidden_state[0]
    pooled = torch.nn.functional.normalize(rows.mean(0), dim=0)
    tokens = torch.nn.functional.normalize(rows, dim=1)[1:-1]
    case = {
        "text": text,
        "tokens": len(encoding.ids),
        "components": some(pooled),
        "sum": round(float(pooled.sum()), 9),
        "norm": round(float(pooled.norm()), 9),
    }
    if len(tokens):
        case["first_token"] = some(tokens[0])
        case["last_token"] = some(tokens[-1])
    cases.append(case)
json.dump({"step": 384 // 32, "cases": cases}, sys.stdout, ensure_ascii=False, indent=1)
