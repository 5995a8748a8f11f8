#!/usr/bin/env bash
# Makes a release: a folder with optimised programs, the small model, PostgreSQL, the settings and the licences, and a tarball of
# it. Nothing in it needs this machine: it starts with glibc 2.28 by `./svc serve`. Zig, pinned in config/zig.txt, links it with
# the symbols of that glibc; where PyPI is away there is no release. config/release-check.sh checks it before it replaces an earlier one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}
glibc=2.28
machine=$(uname -m)
[ "$machine" != arm64 ] || machine=aarch64
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
name=svc-$version-linux-$machine
out=$cache/release

say() { printf 'release: %s\n' "$*"; }
fail() { printf 'release: %s\n' "$*" >&2; exit 1; }

pins=$(sha256sum <config/zig.txt | cut -c1-16)
tools=$cache/zig/$pins
if [ ! -e "$tools/complete" ]; then
  rm -rf "$cache/zig"
  mkdir -p "$tools"
  say "fetching the linker"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --target "$tools/wheel" --requirement config/zig.txt || fail "pip could not fetch the linker; its message above says why"
  touch "$tools/complete"
fi

target=$machine-unknown-linux-gnu
say "building for $target with glibc $glibc"
CARGO_ZIGBUILD_ZIG_PATH=$tools/wheel/ziglang/zig \
  "$tools/wheel/bin/cargo-zigbuild" zigbuild --release --locked --workspace --bins --target "$target.$glibc"

fresh=$out/new/$name
rm -rf "$out/new"
mkdir -p "$fresh/config" "$fresh/licenses"
for program in svc svc-worker svc-batch-worker; do
  install -m 755 "$CARGO_TARGET_DIR/$target/release/$program" "$fresh/$program"
done
cp -R "$cache/postgres" "$fresh/postgres"
mkdir "$fresh/models"
cp -R "$cache/models/all-MiniLM-L6-v2" "$fresh/models/"
cp config/svc.toml "$fresh/config/"
cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$fresh/"
cp -R docs "$fresh/docs"

# The licences of what the folder holds besides the project's own code.
python3 - "$cache/downloads" "$fresh/licenses" "$target" <<'PYTHON'
import glob, json, subprocess, sys, zipfile

downloads, licenses, target = sys.argv[1:]
for wheel in glob.glob(downloads + "/*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if ".dist-info/" in member and member.rsplit("/", 1)[-1].upper().startswith("LICENSE"):
                package = member.split("-", 1)[0]
                with open(f"{licenses}/{package}.txt", "wb") as file:
                    file.write(archive.read(member))
answer = subprocess.run(
    ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", target],
    check=True, capture_output=True, text=True).stdout
metadata = json.loads(answer)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
# What runs, and neither what only builds nor what only tests.
reached, waiting = set(), list(metadata["workspace_members"])
while waiting:
    at = waiting.pop()
    if at not in reached:
        reached.add(at)
        waiting += [dependency["pkg"] for dependency in nodes[at]["deps"]
                    if any(kind["kind"] is None for kind in dependency["dep_kinds"])]
with open(licenses + "/crates.txt", "w") as file:
    for at in sorted(reached, key=lambda at: packages[at]["name"]):
        package = packages[at]
        if package["source"]:
            file.write(f'{package["name"]} {package["version"]}: {package["license"]}, {package["repository"] or ""}\n')
PYTHON

# The check takes the tarball, as a user would, and only then does the release replace an earlier one.
tar --create --gzip --owner=0 --group=0 --sort=name --file "$fresh.tar.gz" --directory "$out/new" "$name"
config/release-check.sh "$fresh.tar.gz" "$glibc"
rm -rf "${out:?}/$name"
mv "$fresh" "$fresh.tar.gz" "$out/"
rmdir "$out/new"
say "folder:  $out/$name"
say "tarball: $out/$name.tar.gz"
