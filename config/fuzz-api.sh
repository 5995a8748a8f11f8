#!/usr/bin/env bash
# Sends a running service what its contract allows and what it forbids: config/fuzz-api.sh SEED SECONDS. It fails if an answer
# is a 5xx that the contract does not name, is not as its schema says, or takes what the contract forbids. A principal
# that may read and write little calls single operations and then chains of them, and so does the owner. `make test` calls it after the
# build. schemathesis comes from PyPI into the cache folder, pinned in config/fuzz-api/requirements.txt. If it is not available,
# one line says what was left out (with SVC_TEST_STRICT=1 this is a failure).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seed=$1 seconds=$2
case $seed$seconds in *[!0-9]*) echo "fuzz-api: SEED and FUZZ_SECONDS take whole numbers" >&2; exit 2 ;; esac

cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}
svc=${CARGO_TARGET_DIR:-$cache/target}/debug/svc
[ -x "$svc" ] || { echo "fuzz-api: $svc is missing: run make test" >&2; exit 1; }

leave_out() {
  echo "left out: fuzzing the API by its contract ($*)"
  [ "${SVC_TEST_STRICT:-}" != 1 ] || exit 1
  exit 0
}

command -v python3 >/dev/null || leave_out "no python3"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || leave_out "python3 is older than 3.11"

# Installed once for each state of the pins; an install that was cut off is not taken for one.
pins=$(sha256sum <config/fuzz-api/requirements.txt | cut -c1-16)
tools=$cache/fuzz-api/$pins
mkdir -p "$cache/fuzz-api"
if command -v flock >/dev/null; then
  exec 9>"$cache/fuzz-api/lock"
  flock 9
fi
if [ ! -e "$tools/complete" ]; then
  rm -rf "$tools"
  mkdir -p "$tools"
  python3 -m venv "$tools/python" >"$tools/pip.log" 2>&1 || leave_out "python3 has no venv: $tools/pip.log"
  timeout 300 "$tools/python/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --requirement config/fuzz-api/requirements.txt >"$tools/pip.log" 2>&1 || leave_out "pip could not install schemathesis: $tools/pip.log"
  touch "$tools/complete"
fi
exec 9>&-

# Root's home is closed to the user that the database runs under.
if [ "$(id -u)" = 0 ]; then place=${TMPDIR:-/tmp}; else place=$cache; fi
work=$(mktemp -d "$place/svc-fuzz-api.XXXXXX")
chmod 711 "$work"
service=

finish() {
  local status=$?
  trap - EXIT
  if [ -n "$service" ] && kill -0 "$service" 2>/dev/null; then
    kill -TERM "$service" 2>/dev/null || true
    wait "$service" 2>/dev/null || true
  fi
  if [ "$status" -ne 0 ]; then
    echo "fuzz-api: failed with SEED=$seed" >&2
    # The log is long; what is no fault of a caller stands out in it.
    grep -E ' (WARN|ERROR) ' "$work/service.log" 2>/dev/null | tail -n 20 >&2 || true
  fi
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port
owner=fuzz-api-owner
export SVC_FUZZ_RUNNER_KEY=fuzz-api-runner
env -i PATH="$PATH" HOME="$HOME" SVC_CACHE_DIR="$cache" SVC_CONFIG=/dev/null SVC_DATA_DIR="$work/data" \
  SVC_LISTEN="127.0.0.1:$port" SVC_API_TOKEN=$owner SVC_RUNNER_KEY=$SVC_FUZZ_RUNNER_KEY SVC_HUB_OFFLINE=true \
  SVC_FALLBACK_LLM_URL= SVC_INGEST_WAIT_SECONDS=10 SVC_RATE_READS=0 SVC_RATE_WRITES=0 SVC_RATE_COSTLY=0 \
  "$svc" serve >"$work/service.log" 2>&1 &
service=$!
principal=$("$tools/python/bin/python" config/fuzz-api/seed.py "$url" $owner tests/samples/handbook.md tests/samples/duck-counts.xlsx \
  tests/samples/empty.txt)

cp config/fuzz-api/schemathesis.toml config/fuzz-api/contract.py "$work"
# fuzz WHO TOKEN PHASES SHARE: calls for this share of the time, in percent.
fuzz() {
  local who=$1 token=$2 phases=$3 time=$((seconds * $4 / 100))
  echo "fuzz-api: $who, $phases, $time s, SEED=$seed"
  # Twelve requests of each operation in a round, so that a short time reaches all of them. All checks are on without
  # `--checks all`, which would turn on again what schemathesis.toml turns off.
  (cd "$work" && env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy SVC_FUZZ_TOKEN="$token" PYTHONPATH="$work" \
    "$tools/python/bin/schemathesis" run "$url/openapi.json" --seed "$seed" --max-time $((time > 0 ? time : 1)) --max-examples 12 \
    --phases "$phases" --warnings off --no-color) >"$work/report" 2>&1 \
    || { cat "$work/report" >&2; exit 1; }
  grep -E 'generated' "$work/report" || true
}
# The owner comes last, because it may delete the principal.
fuzz "a principal" "$principal" fuzzing,stateful 30
fuzz "the owner" $owner stateful 25
fuzz "the owner" $owner coverage,fuzzing 45
# It still answers, and nothing of it panicked.
"$tools/python/bin/python" - "$url" <<'PYTHON'
import sys, urllib.request

opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
opener.open(sys.argv[1] + "/ready", timeout=60)
PYTHON
if grep -E 'panicked| ERROR ' "$work/service.log" >&2; then exit 1; fi
