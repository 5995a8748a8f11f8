#!/usr/bin/env bash
# Fetches once, into the cache folder, what the queue's bench compares with: procrastinate for Python, graphile-worker for
# Node. Prints the folder. Without Node, graphile-worker is left out.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}
peers=$cache/bench/queue

say() { printf 'queue peers: %s\n' "$*" >&2; }
stamp() { [ "$(cat "$peers/$1.stamp" 2>/dev/null)" = "$(sha256sum <"$here/$2")" ]; }
made() { sha256sum <"$here/$2" >"$peers/$1.stamp"; }

mkdir -p "$peers"
if ! stamp python requirements.txt; then
  say "fetching procrastinate"
  rm -rf "$peers/venv"
  python3 -m venv "$peers/venv"
  "$peers/venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$here/requirements.txt" >&2
  made python requirements.txt
fi
if ! command -v npm >/dev/null; then
  say "left out: graphile-worker (no npm)"
elif ! stamp node package.json; then
  say "fetching graphile-worker"
  cp "$here/package.json" "$peers/"
  (cd "$peers" && npm install --silent --no-audit --no-fund >&2)
  made node package.json
fi
cp "$here/graphile.mjs" "$here/procrastinate_peer.py" "$peers/"
echo "$peers"
