#!/usr/bin/env bash
# Runs a RabbitMQ of its own on this machine, for tests and the demo: the one of this machine, or the one that setup.sh fetched.
#   broker.sh find          prints the program, or fails if there is none
#   broker.sh end PORT      ends the name server that such a broker leaves behind
#   broker.sh run FOLDER PORT   runs it in the foreground with its data in FOLDER, listening on 127.0.0.1:PORT; it also takes the next two ports,
#                           and a third one for TLS if FOLDER/tls has ca.pem, cert.pem and key.pem; FOLDER/definitions.json says what it begins with
set -euo pipefail

cache=${SVC_CACHE_DIR:-${HOME:?"HOME is not set: set it, or SVC_CACHE_DIR"}/.cache/svc}

find_server() {
  # The program in /usr/sbin is a wrapper that wants root.
  local server
  for server in "$cache"/broker/root/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server; do
    if [ -x "$server" ]; then
      printf '%s\n' "$server"
      return
    fi
  done
  return 1
}

case ${1:-} in
  find) find_server ;;
  run)
    server=$(find_server) || { echo "broker: there is no RabbitMQ here: config/setup.sh broker" >&2; exit 1; }
    folder=$2 port=$3
    mkdir -p "$folder/mnesia" "$folder/log"
    root=${server%%/usr/lib/rabbitmq/*}
    if [ -n "$root" ]; then
      export PATH=$root/usr/lib/erlang/bin:$root/usr/bin:$PATH
      libraries=("$root"/usr/lib/*-linux-gnu)
      export LD_LIBRARY_PATH=${libraries[0]}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
    export HOME=$folder ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT=$((port + 2))
    export RABBITMQ_NODENAME=svc-$port@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT=$port RABBITMQ_DIST_PORT=$((port + 1))
    export RABBITMQ_MNESIA_BASE=$folder/mnesia RABBITMQ_LOG_BASE=$folder/log RABBITMQ_LOGS=- RABBITMQ_PID_FILE=$folder/pid
    export RABBITMQ_ENABLED_PLUGINS_FILE=$folder/plugins RABBITMQ_CONFIG_FILE=$folder/rabbitmq RABBITMQ_ADVANCED_CONFIG_FILE=$folder/advanced
    export RABBITMQ_CONF_ENV_FILE=$folder/none
    # Nothing listens beyond this machine, and idle schedulers do not spin.
    export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"
    echo '[].' >"$folder/plugins"
    cat >"$folder/rabbitmq.conf" <<CONF
listeners.tcp.1 = 127.0.0.1:$port
disk_free_limit.absolute = 50MB
log.console = true
log.console.level = warning
CONF
    if [ -e "$folder/tls/key.pem" ]; then
      cat >>"$folder/rabbitmq.conf" <<CONF
listeners.ssl.1 = 127.0.0.1:$((port + 3))
ssl_options.cacertfile = $folder/tls/ca.pem
ssl_options.certfile = $folder/tls/cert.pem
ssl_options.keyfile = $folder/tls/key.pem
CONF
    fi
    if [ -e "$folder/definitions.json" ]; then
      echo "load_definitions = $folder/definitions.json" >>"$folder/rabbitmq.conf"
    fi
    exec "$server"
    ;;
  end)
    server=$(find_server) || exit 0
    root=${server%%/usr/lib/rabbitmq/*}
    epmd=$(printf '%s\n' "$root"/usr/lib/erlang/erts-*/bin/epmd | head -n 1)
    "$epmd" -port $(($2 + 2)) -kill
    ;;
  *)
    echo "broker: broker.sh find, broker.sh run FOLDER PORT, or broker.sh end PORT" >&2
    exit 2
    ;;
esac
