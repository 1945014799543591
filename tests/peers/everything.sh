#!/usr/bin/env bash
# everything.sh PORT: the reference server `server-everything` over Streamable HTTP.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
PATH="$("$here/../../scripts/peers" --path):$PATH"
export PORT="$1"
exec "$here/hold.sh" "$PORT" /mcp mcp-server-everything streamableHttp
