#!/usr/bin/env bash
# Shows the service at work: start, ingest, search, tree, console, status, stop. Called by `make demo`, after the build. With KEEP=1 it goes on
# until Ctrl-C, so that one can look at the console.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}
svc=${CARGO_TARGET_DIR:-$cache/target}/debug/svc
[ -x "$svc" ] || { echo "demo: $svc is missing: run make demo" >&2; exit 1; }

# The user that the database runs as cannot enter root's home.
if [ "$(id -u)" = 0 ]; then place=${TMPDIR:-/tmp}; else place=$cache; fi
work=$(mktemp -d "$place/svc-demo.XXXXXX")
chmod 711 "$work"
service=
broker=

finish() {
  local status=$?
  trap - EXIT
  if [ -n "$service" ] && kill -0 "$service" 2>/dev/null; then
    kill -TERM "$service" 2>/dev/null || true
    wait "$service" 2>/dev/null || true
  fi
  if [ "$status" -ne 0 ] && [ -s "$work/service.log" ]; then
    echo "demo: failed; the end of the service's log:" >&2
    tail -n 30 "$work/service.log" >&2
  fi
  if [ -n "$broker" ]; then
    kill -TERM $(cat "$work/broker/pid" 2>/dev/null) "$broker" 2>/dev/null || true
    # A broker that is still starting may not heed that, nor have said which process it is; so its whole group is ended.
    for _ in $(seq 50); do
      kill -0 "$broker" 2>/dev/null || break
      sleep 0.2
    done
    kill -KILL -- "-$broker" 2>/dev/null || true
    wait "$broker" 2>/dev/null || true
    config/broker.sh end "$broker_port" >/dev/null 2>&1 || true
  fi
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

title() { printf '\n== %s\n' "$*"; }
run() {
  local word shown='$ svc'
  for word in "$@"; do
    case $word in *' '*) shown+=" \"$word\"" ;; *) shown+=" $word" ;; esac
  done
  echo "$shown"
  "$svc" "$@" </dev/null
}

# ask PATH: prints the service's answer; the only call here that does not use the command line.
ask() {
  python3 - "$1" <<'PYTHON'
import os, sys, urllib.request

request = urllib.request.Request(os.environ["SVC_URL"] + sys.argv[1])
request.add_header("Authorization", "Bearer " + os.environ["SVC_API_TOKEN"])
# A proxy from the environment is meant for other machines.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
sys.stdout.write(opener.open(request, timeout=30).read().decode())
PYTHON
}

# look: signs in to the console and prints a line of figures each second, as its first page has them. It runs in a shell of its own, whose place
# it takes, so that a kill ends it.
look() {
  exec python3 - "http://127.0.0.1:$console" <<'PYTHON'
import html, os, re, sys, time, urllib.parse, urllib.request
from http.cookiejar import CookieJar

base = sys.argv[1]
cookies = urllib.request.HTTPCookieProcessor(CookieJar())
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
form = urllib.parse.urlencode({"token": os.environ["SVC_API_TOKEN"]}).encode()
opener.open(urllib.request.Request(base + "/login", form, {"Origin": base}), timeout=30)
while True:
    page = opener.open(base + "/", timeout=30).read().decode()
    figures = page.split('class="stats"', 1)[-1].split("</section>", 1)[0]
    words = html.unescape(re.sub(r"<[^>]+>", " ", figures.split(">", 1)[-1]))
    print(time.strftime("%H:%M:%S"), re.sub(r"\s+", " ", words).strip(), flush=True)
    time.sleep(1)
PYTHON
}

free_port() {
  python3 -c 'import socket
print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'
}

if [ -d ../shared/corpus ]; then
  title "Real files, some of them broken or hostile on purpose"
  paths=()
  for folder in pdf docx pptx xlsx ole2 made; do
    if [ -d "../shared/corpus/$folder" ]; then paths+=("../shared/corpus/$folder"); fi
  done
  queries=("the siege of Vicksburg" "just-in-time type specialization for dynamic languages" "history of the word processor")
else
  title "The samples of this repository (no ../shared/corpus here: the larger set of real files is left out)"
  paths=()
  for file in tests/samples/*; do
    case $file in */README.md | *.py) ;; *) paths+=("$file") ;; esac
  done
  queries=("what to do when the radar gauge fails" "why were the parcels late" "lending a book at the library")
fi

# What the caller has set is meant for another service: its store would be this one's for good, and its language model costs money.
for name in ${!SVC_@}; do
  [ "$name" = SVC_CACHE_DIR ] || unset "$name"
done
port=$(free_port)
SVC_API_TOKEN=$(python3 -c 'import secrets; print(secrets.token_hex(32))')
console=$(free_port)
export SVC_API_TOKEN SVC_CONFIG=/dev/null SVC_DATA_DIR=$work/data SVC_LISTEN=127.0.0.1:$port SVC_CONSOLE_LISTEN=127.0.0.1:$console
export SVC_URL=http://127.0.0.1:$port

# It starts beside the service, which connects as soon as it can.
if config/broker.sh find >/dev/null; then
  broker_port=$(python3 -c 'import socket
while True:
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        try:
            for beside in (1, 2):
                socket.create_server(("127.0.0.1", port + beside)).close()
        except (OSError, OverflowError):
            continue
        break
print(port)')
  mkdir "$work/broker"
  # With job control it is a group of its own.
  set -m
  config/broker.sh run "$work/broker" "$broker_port" </dev/null >"$work/broker.log" 2>&1 &
  broker=$!
  set +m
  export SVC_AMQP_URL=amqp://guest:guest@127.0.0.1:$broker_port/%2f
fi

title "Starting the service with a database of its own"
echo '$ svc serve &'
"$svc" serve </dev/null >"$work/service.log" 2>&1 &
service=$!
for _ in $(seq 600); do
  if ask /ready >/dev/null 2>&1; then break; fi
  kill -0 "$service" 2>/dev/null || { echo "demo: the service ended" >&2; exit 1; }
  sleep 0.2
done
ask /ready >/dev/null || { echo "demo: the service is not ready after two minutes" >&2; exit 1; }
echo "ready at $SVC_URL"
echo "operator console: http://127.0.0.1:$console"
if [ -n "${KEEP:-}" ]; then echo "sign in with the token $SVC_API_TOKEN"; fi

title "Ingesting, while the console looks on"
status=0
look >"$work/console.txt" &
looking=$!
run --table ingest "${paths[@]}" || status=$?
kill "$looking" 2>/dev/null || true
wait "$looking" 2>/dev/null || true
echo "The console at http://127.0.0.1:$console said meanwhile:"
uniq "$work/console.txt" | awk 'NR <= 12 { print "  " $0 }'
# 3 means that it finished but some files were refused; anything else is a failure of the demo itself.
case $status in
  0) ;;
  3) echo "The files refused above are broken, encrypted or hostile on purpose; each is named with its reason, and the rest goes on." ;;
  *) echo "demo: svc ingest ended with $status" >&2; exit 1 ;;
esac

title "Files over a message broker"
if [ -n "$broker" ]; then
  for _ in $(seq 600); do
    if ask /ready | grep -q '"takes messages"'; then break; fi
    sleep 0.2
  done
  "$svc" access principals add importer --kind service </dev/null >/dev/null
  "$svc" access principals edit importer --amqp-user guest </dev/null >/dev/null
  mkdir "$work/letters"
  printf '# Letter 1\n\nThe heron came back on Monday.\n' >"$work/letters/1.md"
  cp "$work/letters/1.md" "$work/letters/2-a-copy.md"
  head -c 1100000 /dev/zero | tr '\0' x >"$work/letters/3-too-large-for-a-message.txt"
  # 3 says that a file was rejected.
  run --table bulk "$work/letters" --journal "$work/letters.journal" || [ $? = 3 ]
  echo "The same command again sends what is missing, here nothing but the rejected one:"
  run --table bulk "$work/letters" --journal "$work/letters.journal" 2>/dev/null || [ $? = 3 ]
else
  echo "Left out, because there is no RabbitMQ here: config/setup.sh broker fetches one."
fi

title "Searching"
for query in "${queries[@]}"; do
  run --table search "$query"
done

title "The tree of the file that answered first"
query=$(python3 -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.argv[1]))' "${queries[0]}")
root=$(ask "/search/?q=$query&limit=1" | python3 -c 'import json, sys
found = json.load(sys.stdin)["results"]
sys.exit("demo: nothing was found") if not found else print((found[0]["path"] + [found[0]["id"]])[0])')
run --table tree --most 40 "$root"

title "A record of a spreadsheet, and the cells that it came from"
run --table ingest tests/samples/duck-counts.xlsx
record=$("$svc" --json search "where did the heron keep the ducks away" --group-by none --limit 1 </dev/null |
  python3 -c 'import json, sys
found = json.loads(sys.stdin.readline())
sys.exit("demo: no record was found") if found["usetype"] != "record" else print(found["id"], found["parent_id"])')
read -r record sheet <<<"$record"
run --table search "where did the heron keep the ducks away" --group-by none --limit 1
run --table cells "$record"
run --table cells "$sheet" A1:E7

title "What the service says of itself"
run --table status

if [ -n "${KEEP:-}" ]; then
  title "The service goes on until Ctrl-C"
  echo "operator console: http://127.0.0.1:$console, with the token $SVC_API_TOKEN"
  echo "documentation: $SVC_URL/docs/"
  wait "$service"
  service=
  exit 0
fi

title "Stopping"
kill -TERM "$service"
wait "$service" || { echo "demo: the service did not end in order" >&2; exit 1; }
service=
echo "stopped; nothing is left running, and the demo's data has been removed"
