#!/usr/bin/env bash
# Makes once, in the cache folder, what the encoder's bench compares with: a Python with the pinned peers, a ModernBERT-base with
# random weights, and both models as ONNX. Prints the folder.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}
peers=$cache/bench/encoder
minilm=$cache/models/all-MiniLM-L6-v2

say() { printf 'encoder peers: %s\n' "$*" >&2; }

mkdir -p "$peers"
if command -v flock >/dev/null; then
  exec 9>"$peers/setup.lock"
  flock 9
fi
[ -f "$minilm/model.safetensors" ] || { say "all-MiniLM-L6-v2 is not in $cache/models: run make setup"; exit 1; }

# stamp NAME FILE...: tells whether NAME was made from these very files; made NAME FILE... records it.
stamp() { local name=$1; shift; [ "$(cat "$peers/$name.stamp" 2>/dev/null)" = "$(cat "$@" | sha256sum)" ]; }
made() { local name=$1; shift; cat "$@" | sha256sum >"$peers/$name.stamp"; }

if ! stamp venv "$here/requirements.txt"; then
  say "fetching torch and onnxruntime: some gigabytes, once"
  rm -rf "$peers/venv"
  python3 -m venv "$peers/venv"
  "$peers/venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$here/requirements.txt" >&2
  made venv "$here/requirements.txt"
fi
if ! stamp models "$here/requirements.txt" "$here/models.py"; then
  say "writing the models for the peers"
  rm -rf "$peers/models"
  "$peers/venv/bin/python" "$here/models.py" "$minilm" "$peers/models" >&2
  made models "$here/requirements.txt" "$here/models.py"
fi
echo "$peers"
