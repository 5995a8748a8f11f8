#!/usr/bin/env bash
# Checks that the models give the same outputs on every device that can be built here. It compiles Burn once more, which takes
# long, in a separate folder, because other features are other builds. Arguments are passed to the tests.
set -euo pipefail

cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}
software=(/usr/share/vulkan/icd.d/lvp_icd.*.json)

say() { printf 'devices: %s\n' "$*"; }

# A software Vulkan will do: it gives the same numbers, only more slowly.
if [ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ]; then
  if ! compgen -G '/usr/share/vulkan/icd.d/*.json' >/dev/null || ! ldconfig -p | grep -q libvulkan.so.1; then
    packages="libvulkan1 mesa-vulkan-drivers"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      say "installing $packages"
      # A fresh system has no package lists yet; if they cannot be renewed, older ones may do.
      apt-get update --quiet --quiet || true
      # shellcheck disable=SC2086
      apt-get install --quiet --quiet --yes --no-install-recommends $packages >/dev/null
      software=(/usr/share/vulkan/icd.d/lvp_icd.*.json)
    else
      say "no Vulkan driver is here: install one (Debian: apt-get install $packages)" >&2
      exit 1
    fi
  fi
  if [ -e "${software[0]}" ] && ! compgen -G '/dev/dri/renderD*' >/dev/null; then
    say "no graphics processor is here: Vulkan runs on the processor"
    export VK_DRIVER_FILES=${software[0]} VK_ICD_FILENAMES=${software[0]}
  fi
fi

export CARGO_TARGET_DIR=$cache/target-devices
if compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  say "ndarray, wgpu and cuda"
  exec cargo test -p svc-models --profile devices --features ndarray,wgpu,cuda --lib -- device encoder "$@"
fi
say "ndarray and wgpu"
cargo test -p svc-models --profile devices --features ndarray,wgpu --lib -- device encoder "$@"
# Checking that this code compiles needs neither a toolkit nor such a processor. Its backend would bring its own LLVM,
# hundreds of megabytes from the project's releases, which a check does not need.
say "cuda, compiled only"
DOCS_RS=1 cargo check -p svc-models --profile devices --features cuda --lib --bench devices
