#!/usr/bin/env bash
# memory.sh PORT: the stdio server `server-memory` behind supergateway, one process per session.
# Its knowledge graph is a file of this run alone.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
PATH="$("$here/../../scripts/peers" --path):$PATH"
HOLD_SCRATCH="$(mktemp --directory)"
MEMORY_FILE_PATH="$HOLD_SCRATCH/graph.jsonl"
export HOLD_SCRATCH MEMORY_FILE_PATH
exec "$here/hold.sh" "$1" /mcp supergateway --stdio mcp-server-memory \
    --outputTransport streamableHttp --stateful --port "$1" --logLevel none
