#!/usr/bin/env bash
# Fuzzes one target of fuzz/ for some seconds: config/fuzz.sh TARGET SECONDS. See fuzz/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$1
time=$2
cache=${SVC_CACHE_DIR:-$HOME/.cache/svc}
version=0.13.2

[ -f "fuzz/fuzz_targets/$target.rs" ] || {
    echo "there is no target $target; the targets are: $(basename -s .rs -a fuzz/fuzz_targets/*.rs | tr '\n' ' ')" >&2
    exit 2
}
if ! [ -x "$cache/cargo-fuzz/bin/cargo-fuzz" ]; then
    cargo install cargo-fuzz --version "$version" --locked --root "$cache/cargo-fuzz" --target-dir "$cache/fuzz/install"
fi

# The seeds are the shipped samples, and the corpus if there is one. Bombs are left out: unpacking a stream of a PDF has no
# limit of its own, and in the service only the limits of the child process end it.
# PDFs are small here: under the sanitizer a large one takes so long that hardly any change of it would be tried.
case $target in pdf) most=20000 ;; *) most=400000 ;; esac
learned=$cache/fuzz/$target
found=$cache/fuzz/found/$target
seeds=$cache/fuzz/seeds/$target
rm -rf "$seeds"
mkdir -p "$learned" "$found" "$seeds"
for folder in tests/samples formats/tests/files ../shared/corpus/made ../shared/corpus/"$target"; do
    [ -d "$folder" ] && find "$folder" -maxdepth 1 -type f -size -${most}c ! -name '*bomb*' -exec cp {} "$seeds" \;
done

export RUSTC_BOOTSTRAP=1
export PATH="$cache/cargo-fuzz/bin:$PATH"
exec cargo fuzz run --target-dir "$cache/fuzz/target" "$target" "$learned" "$seeds" -- \
    -max_total_time="$time" -timeout=10 -rss_limit_mb=1024 -max_len=$most -artifact_prefix="$found/" -print_final_stats=1
