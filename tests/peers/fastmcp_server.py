"""A FastMCP server for the tests: python fastmcp_server.py --port N (0 picks a free one).

Serves both eras on /mcp. Tools: `increment` counts per legacy session (a modern request is its
own session, so there it is always 1), `echo`, `add`; with --rich also a tool that links to
resources, resources, a template and a prompt. Prints `ready <url>` once it accepts and
ends when its standard input closes or on SIGTERM.
"""

import argparse
import asyncio
import os
import socket
import sys
import threading

from fastmcp import Context, FastMCP
from mcp.types import EmbeddedResource, ResourceLink, TextContent, TextResourceContents

server = FastMCP("shardgate-peer-fastmcp")
counters: dict[str, int] = {}
counters_lock = threading.Lock()


@server.tool
def increment(context: Context) -> str:
    """The next integer of this session: 1, 2, 3, ..."""
    # A plain function runs on a thread pool: the lock keeps calls in flight together in step.
    with counters_lock:
        value = counters.get(context.session_id, 0) + 1
        counters[context.session_id] = value
    return str(value)


@server.tool
def echo(text: str) -> str:
    """The text as it came."""
    return text


@server.tool
def add(a: int, b: int) -> int:
    """The sum of two integers."""
    return a + b


def links() -> list[TextContent | ResourceLink | EmbeddedResource]:
    """A link to what no list has, a link to a user interface, and an embedded resource."""
    contents = TextResourceContents(uri="note://fixed", mimeType="text/plain", text="embedded")
    return [
        TextContent(type="text", text="note://fixed in a text stays as it is"),
        ResourceLink(type="resource_link", uri="note://by/link", name="linked"),
        ResourceLink(type="resource_link", uri="ui://panel/main", name="panel"),
        EmbeddedResource(type="resource", resource=contents),
    ]


def be_rich() -> None:
    """Registers what --rich asks for."""
    server.tool(links, meta={"ui": {"resourceUri": "ui://panel/main"}})
    server.resource("note://fixed", name="fixed")(lambda: "a fixed note")
    server.resource("ui://panel/main", name="panel", mime_type="text/html")(lambda: "<p>a panel</p>")

    @server.resource("note://by/{author}")
    def note(author: str) -> str:
        return f"a note by {author}"

    @server.prompt
    def greet(name: str) -> str:
        """Greets somebody."""
        return f"Hello {name}, see note://fixed"


def leave_with_parent() -> None:
    """Reads standard input to its end: the test that started this has gone."""
    sys.stdin.buffer.read()
    os._exit(0)


async def announce(port: int) -> None:
    """Says `ready` when a whole HTTP exchange works, not only the TCP handshake."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            answer = await reader.readline()
            writer.close()
            if answer.startswith(b"HTTP/1."):
                print(f"ready http://127.0.0.1:{port}/mcp", flush=True)
                return
        except OSError:
            pass
        await asyncio.sleep(0.05)


async def main() -> None:
    """Binds first, so that the port is known and refused at once when it is taken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="answer with JSON, not event streams")
    parser.add_argument("--rich", action="store_true", help="resources, a template, a prompt")
    options = parser.parse_args()
    if options.rich:
        be_rich()
    # Python's event loop sets TCP_NODELAY only on sockets that name TCP as their protocol; without
    # it each reply on a kept connection waits 40 ms for the peer's delayed ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", options.port))
    port = listener.getsockname()[1]
    threading.Thread(target=leave_with_parent, daemon=True).start()
    ready = asyncio.create_task(announce(port))
    await server.run_http_async(
        show_banner=False,
        host="127.0.0.1",
        port=port,
        log_level="warning",
        json_response=options.json,
        sockets=[listener],
        # An open event stream must not hold up a SIGTERM.
        uvicorn_config={"timeout_graceful_shutdown": 1},
    )
    ready.cancel()


asyncio.run(main())
