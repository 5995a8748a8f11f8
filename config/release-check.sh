#!/usr/bin/env bash
# Checks a release, given as a folder or a tarball, and builds nothing. It must hold the licences of what is in it, and nothing under the GPL,
# and all files that its documents lead to.
# None of its programs may need a newer glibc, or a library that the release does not bring. Its service must start from another folder in an
# empty environment, take files, and find what is in them, also with another folder for models and without fetching any.
#
#     config/release-check.sh FOLDER|TARBALL [GLIBC]
#
# Without the version of a glibc it does not check what the programs need.
set -euo pipefail

say() { printf 'release: %s\n' "$*"; }
fail() { printf 'release: %s\n' "$*" >&2; exit 1; }

[ $# -ge 1 ] || fail "name a folder or a tarball: config/release-check.sh FOLDER|TARBALL [GLIBC]"
release=$(realpath "$1")
glibc=${2:-}
# The user that the database runs as cannot enter root's home.
work=$(mktemp -d "${TMPDIR:-/tmp}/svc-release.XXXXXX")
chmod 711 "$work"
service=

# stop: asks the service to end, kills it if it still runs after two minutes, and returns its exit status.
stop() {
  local pid=$service
  service=
  kill -TERM "$pid" 2>/dev/null || true
  for _ in $(seq 600); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.2
  done
  kill -KILL "$pid" 2>/dev/null || true
  wait "$pid"
}

finish() {
  local status=$?
  trap - EXIT
  [ -z "$service" ] || stop 2>/dev/null || true
  if [ "$status" -ne 0 ] && [ -s "$work/log" ]; then
    echo "release: the end of the service's log:" >&2
    tail -n 30 "$work/log" >&2
  fi
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ -f "$release" ]; then
  mkdir "$work/unpacked"
  tar --extract --gzip --file "$release" --directory "$work/unpacked"
  release=$(echo "$work"/unpacked/*)
fi
for part in svc svc-worker svc-batch-worker postgres/bin/postgres postgres/lib models/all-MiniLM-L6-v2/model.safetensors \
  config/svc.toml config/release-check.sh docs licenses/crates.txt licenses/postgresql.txt licenses/pgvector.txt licenses/all-MiniLM-L6-v2.txt \
  licenses/Apache-2.0.txt LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md; do
  [ -e "$release/$part" ] || fail "$release has no $part"
done
while IFS=: read -r page link; do
  case $link in http://* | https://* | '#'*) continue ;; esac
  place=$(dirname "$page")/${link%%#*}
  [ -e "$release/$place" ] || fail "$page leads to $place, which the release does not have"
done < <(cd "$release" && grep -oHE ']\([^) ]+\)' README.md CHANGELOG.md docs/*.md | sed -E 's/:]\((.*)\)$/:\1/')
grep -q '^--- ' "$release/licenses/crates.txt" || fail "licenses/crates.txt has no text of any licence"
for library in "$release"/postgres/lib/libreadline*; do
  [ ! -e "$library" ] || fail "${library#"$release"/} is under the GPL, and nothing that the service runs needs it"
done

# Every system with glibc has these libraries; the release must bring any other.
of_system=' libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0 libgcc_s.so.1 libz.so.1 '
if [ -n "$glibc" ]; then
  command -v readelf >/dev/null || fail "readelf is missing: install binutils"
  # A library in the folder is checked only if something needs it.
  needed=("$release"/svc* "$release"/postgres/bin/* "$release"/postgres/lib/postgresql/*.so)
  for ((at = 0; at < ${#needed[@]}; at++)); do
    program=${needed[at]}
    name=${program#"$release"/}
    newest=$(readelf --wide --version-info "$program" | grep -oE 'GLIBC_[0-9]+(\.[0-9]+)+' | sort -u -V | tail -n 1 || true)
    [ "$(printf '%s\n' "$newest" "GLIBC_$glibc" | sort -V | tail -n 1)" = "GLIBC_$glibc" ] \
      || fail "$name needs $newest, and a release may need glibc $glibc at most"
    libraries=$(readelf --wide --dynamic "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p') || fail "$name is no program and no library"
    for library in $libraries; do
      case $of_system in *" $library "*) continue ;; esac
      case $library in ld-linux*) continue ;; esac
      brought=$release/postgres/lib/$library
      [ -e "$brought" ] || fail "$name needs $library, which the release does not bring"
      case " ${needed[*]} " in *" $brought "*) ;; *) needed+=("$brought") ;; esac
    done
  done
  say "nothing in it needs a newer glibc than $glibc"
fi

# start SETTING...: starts the service in an empty environment but for these settings, and sets url once it serves.
start() {
  # The log holds the token that the service makes for itself.
  install -m 600 /dev/null "$work/log"
  env -i SVC_DATA_DIR="$work/data" SVC_LISTEN=127.0.0.1:0 SVC_CONSOLE_LISTEN=127.0.0.1:0 "$@" \
    "$release/svc" serve </dev/null >"$work/log" 2>&1 &
  service=$!
  url=
  for _ in $(seq 1500); do
    url=$(sed -n 's,^svc .* serves \(http://[^/]*\)/.*,\1,p' "$work/log")
    [ -z "$url" ] || break
    kill -0 "$service" 2>/dev/null || fail "the service ended"
    sleep 0.2
  done
  [ -n "$url" ] || fail "the service does not serve after five minutes"
}
ask() { env -i SVC_DATA_DIR="$work/data" SVC_URL="$url" "$release/svc" "$@" </dev/null; }
find_a_page() {
  ask search "what a lane is" >"$work/found" || fail "svc search ended with $?"
  [ -s "$work/found" ] || fail "svc search finds nothing in docs"
}

mkdir "$work/elsewhere" "$work/cache"
cd "$work/elsewhere"
start
ask ingest "$release/docs" >"$work/ingested" || fail "svc ingest docs ended with $?: $(cat "$work/ingested")"
find_a_page
for program in svc-worker svc-batch-worker; do
  env -i "$release/$program" --help >/dev/null || fail "$program does not start"
done
stop || fail "svc serve ended with $?"
say "it starts from another folder, in an empty environment"

# An empty cache folder has neither the model nor PostgreSQL, and nothing may be fetched: both must be those of the release.
start SVC_CACHE_DIR="$work/cache" SVC_HUB_OFFLINE=true
find_a_page
stop || fail "svc serve ended with $?"
say "it starts with another folder for what is fetched, and fetches nothing"
