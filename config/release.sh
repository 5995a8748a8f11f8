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

# The programs hold Rust's standard library, whose licences come with the compiler. The build takes long, so this is looked for first.
of_rust=$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html
[ -e "$of_rust" ] || fail "$of_rust is missing, which a release needs: install Rust with rustup"

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
# Only psql needs libreadline, which is under the GPL, and through it libtinfo; the service runs no psql.
rm -f "$fresh/postgres/bin/psql" "$fresh"/postgres/lib/libreadline-* "$fresh"/postgres/lib/libtinfo-*
mkdir "$fresh/models"
cp -R "$cache/models/all-MiniLM-L6-v2" "$fresh/models/"
cp config/svc.toml "$fresh/config/"
cp config/release-check.sh "$fresh/config/"
cp README.md CHANGELOG.md ARCHITECTURE.md CONTRIBUTING.md LICENSE-APACHE LICENSE-MIT "$fresh/"
cp -R docs "$fresh/docs"
install -D -m 644 migrations/README.md "$fresh/migrations/README.md"

# The licences of what the folder holds besides the project's own code; those of the wheels are for what only packed the rest.
cp config/licenses/*.txt "$fresh/licenses/"
cp LICENSE-APACHE "$fresh/licenses/Apache-2.0.txt"
cp "$of_rust" "$fresh/licenses/rust-standard-library.html"
config/licenses/crates.py "$target" >"$fresh/licenses/crates.txt"
python3 - "$cache/downloads" "$fresh/licenses" <<'PYTHON'
import glob, sys, zipfile

downloads, licenses = sys.argv[1:]
for wheel in glob.glob(downloads + "/*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if ".dist-info/" in member and member.rsplit("/", 1)[-1].upper().startswith("LICENSE"):
                package = member.split("-", 1)[0]
                with open(f"{licenses}/{package}.txt", "wb") as file:
                    file.write(archive.read(member))
PYTHON

# The check takes the tarball, as a user would, and only then does the release replace an earlier one.
tar --create --gzip --owner=0 --group=0 --sort=name --file "$fresh.tar.gz" --directory "$out/new" "$name"
config/release-check.sh "$fresh.tar.gz" "$glibc"
rm -rf "${out:?}/$name"
mv "$fresh" "$fresh.tar.gz" "$out/"
rmdir "$out/new"
say "folder:  $out/$name"
say "tarball: $out/$name.tar.gz"
