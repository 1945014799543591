#!/usr/bin/env bash
# hold.sh PORT PATH COMMAND...: runs COMMAND, a server that listens on PORT, for as long as this
# script's standard input stays open. Prints `ready <url>` once the server answers, everything
# else of it goes to standard error. SIGTERM, the end of the input and the death of this script
# all end the server with its children, and remove the folder HOLD_SCRATCH if that is set.
set -euo pipefail

port="$1" path="$2"
shift 2

accepts() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }

# Someone else's server would answer in our server's place and the test would not notice.
if accepts; then
    echo "hold.sh: port $port is taken" >&2
    exit 1
fi

# Its own session, hence its own process group: one signal reaches the whole tree.
setsid "$@" </dev/null >&2 &
server=$!

end_server() {
    kill -TERM -- "-$server" 2>/dev/null || true
    for _ in {1..20}; do
        kill -0 -- "-$server" 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL -- "-$server" 2>/dev/null || true
    if [[ -n "${HOLD_SCRATCH:-}" ]]; then rm --recursive --force -- "$HOLD_SCRATCH"; fi
}

# A process of its own, so that it works after a SIGKILL of this script too: that closes the
# input's other end, or the test that holds it ends. Bash gives background jobs an empty input
# unless told otherwise.
(
    trap '' TERM INT
    cat >/dev/null
    end_server
) <&0 >/dev/null &
watcher=$!

leave() {
    trap - EXIT TERM INT
    end_server
    pkill --signal KILL --parent "$watcher" 2>/dev/null || true
    kill -KILL "$watcher" 2>/dev/null || true
    exit "$1"
}
trap 'leave 1' EXIT
trap 'leave 0' TERM INT

for _ in {1..600}; do
    kill -0 "$server" 2>/dev/null || {
        echo "hold.sh: the server ended before it was ready" >&2
        leave 1
    }
    if accepts; then
        echo "ready http://127.0.0.1:$port$path"
        # Ends with the server, which the watcher ends with the input.
        wait -n "$server" "$watcher" || true
        leave 0
    fi
    sleep 0.1
done
echo "hold.sh: the server did not accept within 60 s" >&2
leave 1
