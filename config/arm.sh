#!/usr/bin/env bash
# Tests the kernels and encoders of the models on ARM: natively on such a machine, in an emulator elsewhere. For the emulator it
# compiles the crate of models for aarch64, in a separate folder. It passes its arguments to the tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}
target=aarch64-unknown-linux-gnu

say() { printf 'arm: %s\n' "$*"; }
fail() { printf 'arm: %s\n' "$*" >&2; exit 1; }

case $(uname -m) in
  aarch64 | arm64) exec cargo test -p svc-models --lib -- kernels encoder "$@" ;;
esac

if ! command -v qemu-aarch64 >/dev/null || ! command -v aarch64-linux-gnu-gcc >/dev/null; then
  packages="qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || fail "no emulator or compiler for ARM is here: install them (Debian: apt-get install $packages)"
  say "installing $packages"
  # A fresh system has no package lists yet; if they cannot be renewed, older ones may do.
  apt-get update --quiet --quiet || true
  # shellcheck disable=SC2086
  apt-get install --quiet --quiet --yes --no-install-recommends $packages >/dev/null
fi
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
  command -v rustup >/dev/null || fail "the compiler has no $target: install its standard library"
  rustup target add "$target"
fi

export CARGO_TARGET_DIR=$cache/target-devices
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
say "the kernels and the encoders, emulated"
cargo test -p svc-models --profile devices --target "$target" --lib -- kernels encoder "$@"
