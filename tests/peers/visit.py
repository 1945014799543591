"""What `--mode visit` and `asked` do at each server behind one endpoint; the same as visit.mjs."""

import json
from pathlib import Path
from typing import Any

from mcp import Client

SERVERS = json.loads((Path(__file__).parent / "visit.json").read_text())


class Place:
    """A server, with its exposed names."""

    def __init__(self, text: str) -> None:
        name, _, self.prefix = text.partition("=")
        self.offer: dict[str, Any] = SERVERS[name]

    def exposed(self, kind: str) -> str:
        """The name that the client sees."""
        return f"{self.prefix}{self.offer[kind]}"

    async def visit(self, client: Client) -> None:
        """One visit; anything unexpected raises."""

        def expect(is_good: object, what: object) -> None:
            if not is_good:
                raise RuntimeError(f"not as it should be: {what}")

        tool, uri, prompt = map(self.exposed, ("tool", "resource", "prompt"))
        tools = (await client.list_tools(cache_mode="bypass")).tools
        expect(tool in [one.name for one in tools], f"no tool {tool}")
        resources = (await client.list_resources(cache_mode="bypass")).resources
        expect(uri in [str(one.uri) for one in resources], f"no resource {uri}")
        prompts = (await client.list_prompts(cache_mode="bypass")).prompts
        expect(prompt in [one.name for one in prompts], f"no prompt {prompt}")

        told: list[float] = []

        async def progress(done: float, _total: float | None, _message: str | None) -> None:
            told.append(done)

        called = await client.call_tool(tool, self.offer["arguments"], progress_callback=progress)
        text = "\n".join(getattr(block, "text", "") for block in called.content)
        expect(not called.is_error and text == self.offer["answer"], called)
        expect(told == self.offer["progress"], f"progress {told} of {tool}")
        read = await client.read_resource(uri, cache_mode="bypass")
        expect(str(read.contents[0].uri) == uri and read.contents[0].text, read)
        prompted = await client.get_prompt(prompt)
        expect(prompted.messages[0].content.text == self.offer["message"], prompted)

    async def answer(self, client: Client) -> None:
        """Calls the tools that ask the client, whose answers are those of `tour.py`."""
        for asking in self.offer["asking"]:
            called = await client.call_tool(f"{self.prefix}{asking['tool']}", asking["arguments"])
            text = "\n".join(getattr(block, "text", "") for block in called.content)
            if not all(part in text for part in asking["says"]):
                raise RuntimeError(f"not as it should be: {asking['tool']} says {text}")


def places_of(text: str) -> list[Place]:
    """The servers of `--at NAME=PREFIX,...`."""
    return [Place(place) for place in text.split(",") if place]
