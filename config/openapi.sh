#!/usr/bin/env bash
# Checks the contract with public tools: Redocly's recommended rules, and clients that two public generators build from
# it, which must work against a running service. `make test` calls it after the build. The tools come from npm and PyPI
# into the cache folder, pinned in config/openapi/. If they are not available, one line says what was left out (with
# SVC_TEST_STRICT=1 this is a failure).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}
svc=${CARGO_TARGET_DIR:-$cache/target}/debug/svc
[ -x "$svc" ] || { echo "openapi: $svc is missing: run make test" >&2; exit 1; }

leave_out() {
  echo "left out: checking the contract with a linter and two generators of clients ($*)"
  [ "${SVC_TEST_STRICT:-}" != 1 ] || exit 1
  exit 0
}

command -v npm >/dev/null || leave_out "no npm"
command -v python3 >/dev/null || leave_out "no python3"

# Installed once for each state of the pins; an install that was cut off is not taken for one.
pins=$(cat config/openapi/package-lock.json config/openapi/requirements.txt | sha256sum | cut -c1-16)
tools=$cache/openapi/$pins
mkdir -p "$cache/openapi"
if command -v flock >/dev/null; then
  exec 9>"$cache/openapi/lock"
  flock 9
fi
if [ ! -e "$tools/complete" ]; then
  rm -rf "$tools"
  mkdir -p "$tools"
  cp config/openapi/package.json config/openapi/package-lock.json "$tools"
  (cd "$tools" && timeout 300 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >"$tools/npm.log" 2>&1) \
    || leave_out "npm could not install them: $tools/npm.log"
  python3 -m venv "$tools/python" >"$tools/pip.log" 2>&1 || leave_out "python3 has no venv: $tools/pip.log"
  timeout 300 "$tools/python/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    --requirement config/openapi/requirements.txt >"$tools/pip.log" 2>&1 || leave_out "pip could not install them: $tools/pip.log"
  touch "$tools/complete"
fi
exec 9>&-

# Root's home is closed to the user that the database runs under.
if [ "$(id -u)" = 0 ]; then place=${TMPDIR:-/tmp}; else place=$cache; fi
work=$(mktemp -d "$place/svc-openapi.XXXXXX")
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
    echo "openapi: failed" >&2
    [ ! -s "$work/service.log" ] || tail -n 20 "$work/service.log" >&2
  fi
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
port=$(port)
url=http://127.0.0.1:$port
token=openapi-check
env -i PATH="$PATH" HOME="$HOME" SVC_CACHE_DIR="$cache" SVC_CONFIG=/dev/null SVC_DATA_DIR="$work/data" \
  SVC_LISTEN="127.0.0.1:$port" SVC_API_TOKEN=$token SVC_HUB_OFFLINE=true \
  "$svc" serve >"$work/service.log" 2>&1 &
service=$!

# get PATH: the answer, as soon as there is one.
get() {
  python3 - "$url$1" <<'PYTHON'
import sys, time, urllib.request

opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for attempt in range(600):
    try:
        sys.stdout.write(opener.open(sys.argv[1], timeout=5).read().decode())
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("openapi: the service does not answer")
PYTHON
}
get /openapi.json >"$work/openapi.json"

echo "openapi: Redocly's recommended rules"
cp config/openapi/lint-ignore.yaml "$work/.redocly.lint-ignore.yaml"
(cd "$work" && REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true \
  "$tools/node_modules/.bin/redocly" lint --extends=recommended --max-problems=50 openapi.json) >"$work/lint.log" 2>&1 \
  || { cat "$work/lint.log" >&2; exit 1; }
# Redocly does not fail on a warning, but this check does.
if grep -q -E "[1-9][0-9]* warning" "$work/lint.log"; then
  cat "$work/lint.log" >&2
  exit 1
fi

echo "openapi: a client by openapi-python-client"
mkdir "$work/python" "$work/typescript"
cp config/openapi/client.py "$work/python"
# Its formatter is no part of what is tried here. It knows no media types of RDF, and sends their texts as bytes.
cat >"$work/python/settings.yaml" <<'SETTINGS'
post_hooks: []
content_type_overrides:
  text/turtle: application/octet-stream
  application/n-triples: application/octet-stream
SETTINGS
"$tools/python/bin/openapi-python-client" generate --path "$work/openapi.json" --output-path "$work/python/generated" --meta none \
  --config "$work/python/settings.yaml" --fail-on-warning >"$work/python/log" 2>&1 || { cat "$work/python/log" >&2; exit 1; }
"$tools/python/bin/python" -m compileall -q "$work/python/generated"
(cd "$work/python" && env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy \
  "$tools/python/bin/python" client.py "$url" $token "$OLDPWD/tests/samples/handbook.md")

echo "openapi: a client by openapi-typescript and openapi-fetch"
cp config/openapi/client.ts "$work/typescript"
ln -s "$tools/node_modules" "$work/typescript/node_modules"
"$tools/node_modules/.bin/openapi-typescript" "$work/openapi.json" -o "$work/typescript/generated.ts" >"$work/typescript/log" 2>&1 \
  || { cat "$work/typescript/log" >&2; exit 1; }
(cd "$work/typescript" && "$tools/node_modules/.bin/tsc" --strict --target es2022 --lib es2023,dom,dom.iterable --types node \
  --module node16 --moduleResolution node16 client.ts)
(cd "$work/typescript" && node client.js "$url" $token "$OLDPWD/tests/samples/handbook.md")
