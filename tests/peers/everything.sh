#!/usr/bin/env bash
# everything.sh PORT [sse]: the reference server `server-everything` over Streamable HTTP, or over the
# HTTP+SSE transport of 2024-11-05.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
PATH="$("$here/../../scripts/peers" --path):$PATH"
export PORT="$1"
if [[ "${2:-}" == sse ]]; then
    exec "$here/hold.sh" "$PORT" /sse mcp-server-everything sse
fi
exec "$here/hold.sh" "$PORT" /mcp mcp-server-everything streamableHttp
