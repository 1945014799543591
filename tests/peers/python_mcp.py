"""Drives the official Python SDK 2.x (`mcp.Client`): python python_mcp.py --url URL ...

Same options, modes and report as driver.mjs; prints one JSON object as its last line and exits 0
when the report says `ok`. Never prints tokens or session ids.
"""

import argparse
import asyncio
import json
import logging
import math
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tour import Tour
from visit import places_of

ERAS = {"legacy": "legacy", "auto": "auto", "modern": "2026-07-28"}


class SplitTransport(httpx2.AsyncBaseTransport):
    """The event stream of GET keeps a connection to itself; all calls share one other."""

    def __init__(self) -> None:
        self.streams = httpx2.AsyncHTTPTransport()
        self.calls = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=1))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Picks the connection by method."""
        chosen = self.streams if request.method == "GET" else self.calls
        return await chosen.handle_async_request(request)

    async def aclose(self) -> None:
        """Closes both."""
        await self.streams.aclose()
        await self.calls.aclose()


class Run:
    """One run: the options, what was counted, and the rules that judge it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.milliseconds: list[float] = []
        self.session_ids: set[str] = set()
        self.report: dict[str, Any] = {
            "client": "python_mcp",
            "mode": options.mode,
            "sessions": 0,
            "calls": 0,
            "errors": [],
            "error_count": 0,
            "skipped": 0,
            "repeated": 0,
            "session_ids": 0,
            "requests": 0,
            "connections": 0,
            "stream_errors": 0,
        }

    def add_error(self, where: str, error: BaseException | str) -> None:
        """Counts an error and keeps the first five, without the token."""
        self.report["error_count"] += 1
        # A task group wraps what happened: the first leaf says it.
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text = f"{where}: {error if isinstance(error, str) else error or type(error).__name__}"
        if self.options.token:
            text = text.replace(self.options.token, "<token>")
        if len(self.report["errors"]) < 5:
            self.report["errors"].append(text[:300])

    def http_client(self) -> httpx2.AsyncClient:
        """An HTTP client of the chosen connection habit that counts what it does."""
        headers = {}
        if self.options.token:
            headers["authorization"] = f"Bearer {self.options.token}"
        transport: httpx2.AsyncBaseTransport
        if self.options.fresh_connections:
            headers["connection"] = "close"
            transport = httpx2.AsyncHTTPTransport(
                limits=httpx2.Limits(max_keepalive_connections=0)
            )
        elif self.options.mode == "back-to-back":
            transport = SplitTransport()
        else:
            transport = httpx2.AsyncHTTPTransport()

        async def count_connection(event: str, _info: dict[str, Any]) -> None:
            if event == "connection.connect_tcp.complete":
                self.report["connections"] += 1

        async def count_request(request: httpx2.Request) -> None:
            self.report["requests"] += 1
            request.extensions["trace"] = count_connection

        async def read_response(response: httpx2.Response) -> None:
            session_id = response.headers.get("mcp-session-id")
            if session_id:
                self.session_ids.add(session_id)
            method = response.request.method
            # The SDK only logs a refused DELETE; here it is an error.
            if method == "DELETE" and response.status_code >= 400:
                self.add_error("close", f"DELETE answered {response.status_code}")
            # 405 is how a server says that it has no such stream.
            if method == "GET" and response.status_code >= 400 and response.status_code != 405:
                self.report["stream_errors"] += 1

        return httpx2.AsyncClient(
            transport=transport,
            headers=headers,
            timeout=httpx2.Timeout(self.options.timeout_ms / 1000, read=300),
            event_hooks={"request": [count_request], "response": [read_response]},
        )

    async def timed_call(self, client: Client, tool: str, arguments: dict[str, Any]) -> str:
        """One tools/call, timed; the text of its result."""
        start = time.perf_counter()
        result = await client.call_tool(tool, arguments)
        self.milliseconds.append((time.perf_counter() - start) * 1000)
        if result.is_error:
            raise RuntimeError("the tool answered isError")
        self.report["calls"] += 1
        return "\n".join(getattr(block, "text", "") for block in result.content)

    async def lanes(
        self, count: int, width: int, where: str, work: Callable[[int], Awaitable[None]]
    ) -> None:
        """Runs `work(0..count)`, `width` at once; an error is counted and the rest goes on."""
        waiting = iter(range(count))

        async def lane() -> None:
            for index in waiting:
                try:
                    await work(index)
                except Exception as error:  # whatever a peer library raises is a finding
                    self.add_error(f"{where} {index}", error)

        await asyncio.gather(*(lane() for _ in range(min(width, count))))

    def check_counter(self, values: Iterable[int]) -> None:
        """Holds one session's values against 1, 2, 3, ..."""
        expected = 1
        for value in values:
            if value < expected:
                self.report["repeated"] += 1
            else:
                self.report["skipped"] += value - expected
                expected = value + 1

    async def counter(self, client: Client, where: str) -> None:
        """Mode counter: each call answers the next integer."""
        values: list[int] = []

        async def call(_index: int) -> None:
            text = await self.timed_call(client, self.options.tool, {})
            found = re.search(r"-?\d+", text)
            if not found:
                raise RuntimeError("the result has no integer")
            values.append(int(found[0]))

        await self.lanes(self.options.calls, self.options.in_flight, f"{where} call", call)
        # Calls in flight together may be answered in any order, but still 1..K once each.
        self.check_counter(sorted(values) if self.options.in_flight > 1 else values)

    async def all_tools(self, client: Client) -> list[Any]:
        """All tools of all pages, always from the wire."""
        tools: list[Any] = []
        cursor = None
        while True:
            page = await client.list_tools(cursor=cursor, cache_mode="bypass")
            tools.extend(page.tools)
            cursor = page.next_cursor
            if cursor is None:
                return tools

    async def list(self, client: Client, where: str) -> None:
        """Mode list: a list that is not empty, has no name twice and does not change."""
        first: list[str] = []

        async def call(_index: int) -> None:
            start = time.perf_counter()
            names = [tool.name for tool in await self.all_tools(client)]
            self.milliseconds.append((time.perf_counter() - start) * 1000)
            self.report["calls"] += 1
            self.report["tools"] = len(names)
            if not names:
                raise RuntimeError("no tools")
            if len(set(names)) != len(names):
                raise RuntimeError("a name appears twice")
            if not first:
                first.extend(names)
            if names != first:
                raise RuntimeError("the list changed")

        await self.lanes(self.options.calls, self.options.in_flight, f"{where} list", call)

    async def echo(self, client: Client, where: str) -> None:
        """Modes echo and back-to-back: what comes back is what was sent."""
        tools = [tool for tool in await self.all_tools(client) if tool.name == self.options.tool]
        if not tools:
            raise RuntimeError("the echo tool is not in the list")
        # Servers name the argument differently (`message`, `text`): take the one it asks for.
        argument = next(iter(tools[0].input_schema.get("properties", {})))

        async def call(index: int) -> None:
            sent = f"{where}-c{index}-\u00e9\U0001f600"
            text = await self.timed_call(client, self.options.tool, {argument: sent})
            if sent not in text:
                raise RuntimeError("the echo is of something else")

        width = self.options.in_flight if self.options.mode == "echo" else 1
        await self.lanes(self.options.calls, width, f"{where} echo", call)

    async def tour(self, client: Client, tour: Tour, where: str) -> None:
        """Mode tour: all that a client can ask for and be asked for."""

        async def call(index: int) -> None:
            await tour.go(client, ("a-", "b-")[index % 2])
            self.report["calls"] += 1

        await self.lanes(self.options.calls, self.options.in_flight, f"{where} tour", call)

    async def visit(self, client: Client, where: str) -> None:
        """Modes visit and asked: at every place."""

        async def call(_index: int) -> None:
            for place in places_of(self.options.at):
                await (place.visit if self.options.mode == "visit" else place.answer)(client)
            self.report["calls"] += 1

        await self.lanes(self.options.calls, self.options.in_flight, f"{where} visit", call)

    async def session(self, index: int) -> None:
        """One session from the handshake to its DELETE."""
        modes = {
            "counter": self.counter,
            "list": self.list,
            "echo": self.echo,
            "back-to-back": self.echo,
            "visit": self.visit,
            "asked": self.visit,
        }
        async with self.http_client() as http_client:
            transport = streamable_http_client(self.options.url, http_client=http_client)
            tour = Tour() if self.options.mode in ("tour", "asked") else None
            client = Client(
                transport,
                mode=ERAS[self.options.era],
                read_timeout_seconds=self.options.timeout_ms / 1000,
                **(tour.abilities() if tour else {}),
            )
            async with client:
                self.report["sessions"] += 1
                if tour and self.options.mode == "tour":
                    await self.tour(client, tour, f"session {index}")
                else:
                    await modes[self.options.mode](client, f"session {index}")

    async def all_sessions(self) -> None:
        """Every session, `concurrency` of them at once, within the deadline."""
        options = self.options
        try:
            async with asyncio.timeout(options.deadline_ms / 1000):
                await self.lanes(options.sessions, options.concurrency, "session", self.session)
        except TimeoutError:
            self.add_error("deadline", "the run did not end in time")
        counted = self.report
        if options.fresh_connections and 0 < counted["connections"] < counted["requests"]:
            self.add_error("connections", "one was used for more than one request")
        # No such check for back-to-back: this SDK drops the connection of every reply that came as
        # an event stream as soon as it has the answer, and keeps it only after a JSON reply.

    def finish(self) -> bool:
        """Prints the report; whether all was well."""
        samples = sorted(self.milliseconds)

        def at(share: float) -> float | None:
            if not samples:
                return None
            return round(samples[max(1, math.ceil(share * len(samples))) - 1], 3)

        counted = self.report
        counted["session_ids"] = len(self.session_ids)
        counted["ok"] = (
            counted["error_count"] == counted["skipped"] == counted["repeated"] == 0
            and counted["calls"] == self.options.sessions * self.options.calls
        )
        counted["p50_ms"], counted["p90_ms"] = at(0.5), at(0.9)
        counted["p99_ms"], counted["max_ms"] = at(0.99), at(1)
        print(json.dumps(counted), flush=True)
        return counted["ok"]


def read_options() -> argparse.Namespace:
    """The command line, as in driver.mjs."""

    def count(text: str) -> int:
        if int(text) < 1:
            raise argparse.ArgumentTypeError("must be >= 1")
        return int(text)

    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--token")
    modes = ["counter", "list", "echo", "back-to-back", "tour", "visit", "asked"]
    parser.add_argument("--mode", default="counter", choices=modes)
    parser.add_argument("--era", default="legacy", choices=list(ERAS))
    parser.add_argument("--sessions", type=count, default=1)
    parser.add_argument("--calls", type=count, default=10)
    parser.add_argument("--concurrency", type=count, default=4)
    parser.add_argument("--in-flight", type=count, default=1)
    parser.add_argument("--tool")
    parser.add_argument("--at", default="")
    parser.add_argument("--fresh-connections", action="store_true")
    parser.add_argument("--timeout-ms", type=count, default=30_000)
    parser.add_argument("--deadline-ms", type=count, default=300_000)
    options = parser.parse_args()
    if options.tool is None:
        options.tool = "increment" if options.mode == "counter" else "echo"
    return options


def main() -> int:
    """Runs it; the exit code."""
    # Its log lines may name session ids, and the report says what went wrong.
    logging.disable(logging.CRITICAL)
    run = Run(read_options())
    asyncio.run(run.all_sessions())
    return 0 if run.finish() else 1


sys.exit(main())
