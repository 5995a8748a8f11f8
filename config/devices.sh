#!/usr/bin/env bash
# Holds the models to the same outputs on every device that can be built here. Compiles Burn once more, for long, in a folder of
# its own, since other features are other builds. Arguments go to the tests.
set -euo pipefail

cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}
software=(/usr/share/vulkan/icd.d/lvp_icd.*.json)

say() { printf 'devices: %s\n' "$*"; }

# A software Vulkan will do: the numbers are the same, only later.
if [ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ]; then
  if ! compgen -G '/usr/share/vulkan/icd.d/*.json' >/dev/null || ! ldconfig -p | grep -q libvulkan.so.1; then
    packages="libvulkan1 mesa-vulkan-drivers"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      say "installing $packages"
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
say "ndarray and wgpu"
cargo test -p svc-models --profile devices --features ndarray,wgpu --lib -- device encoder "$@"
# There need be no toolkit and no such processor to see that the code for it compiles. Its backend brings an LLVM of its own,
# hundreds of megabytes from the project's releases, which a check does without.
say "cuda, compiled only"
DOCS_RS=1 cargo check -p svc-models --profile devices --features cuda
