#!/usr/bin/env bash
# Measures the encoder on a graphics processor. Where SVC_BENCH_PYTHON names a Python with torch, transformers, tokenizers and numpy, it
# measures torch in bf16 beside it. It compiles Burn, which takes long, in a separate folder; cuda fetches the LLVM of its backend.
# Where there is no graphics processor, it only builds the program and says how to run it on a machine that has one.
#
#     config/devices-bench.sh [FEATURES [FOLDER_OF_A_MODEL]]
set -euo pipefail

cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}
features=${1:-wgpu,cuda}
# Cargo starts the program in the folder of its crate, so relative paths of this folder would not lead there.
model=$(realpath "${2:-$cache/models/all-MiniLM-L6-v2}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
peer=()
[ -z "${SVC_BENCH_PYTHON:-}" ] || peer=("$PWD/benches/encoder/peer.py")

say() { printf 'devices: %s\n' "$*" >&2; }

export CARGO_TARGET_DIR=$cache/target-devices
if compgen -G '/dev/nvidia[0-9]*' >/dev/null || compgen -G '/dev/dri/renderD*' >/dev/null; then
  exec cargo bench -p svc-models --features "$features" --bench devices -- "$model" ${peer[@]+"${peer[@]}"}
fi
say "no graphics processor is here; building the program for a machine that has one"
program=$(cargo bench -p svc-models --features "$features" --bench devices --no-run --message-format=json |
  python3 -c 'import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] == "devices":
        print(message["executable"])')
say "on that machine: SVC_BENCH_PYTHON=python3 $program $model benches/encoder/peer.py"
