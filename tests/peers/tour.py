"""What `--mode tour` does with two reference servers behind one endpoint; the same as tour.mjs."""

import asyncio
from collections import defaultdict
from typing import Any

from mcp import Client, types

# What the user fills in, whatever a server calls it.
ANSWERS = {"name": "Ann Tour", "color": "blue"}


class Tour:
    """A client's answers to what servers ask, and what it was told."""

    def __init__(self) -> None:
        self.updated: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def abilities(self) -> dict[str, Any]:
        """The arguments of a client on tour."""
        return {
            "sampling_callback": self.sample,
            "elicitation_callback": self.elicit,
            "list_roots_callback": self.roots,
            "message_handler": self.hear,
        }

    async def sample(
        self, _context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        """The question is in the answer."""
        asked = params.messages[0].content
        text = types.TextContent(type="text", text=f"heard: {asked.text}")
        return types.CreateMessageResult(role="assistant", content=text, model="tour")

    async def elicit(self, _context: Any, _params: types.ElicitRequestParams) -> types.ElicitResult:
        """Always accepts."""
        return types.ElicitResult(action="accept", content=ANSWERS)

    async def roots(self, _context: Any) -> types.ListRootsResult:
        """One root."""
        return types.ListRootsResult(roots=[types.Root(uri="file:///tour", name="tour")])

    async def hear(self, message: Any) -> None:
        """Remembers the resources that were updated."""
        if isinstance(message, types.ResourceUpdatedNotification):
            self.updated[str(message.params.uri)].set()

    async def go(self, client: Client, prefix: str) -> None:
        """Tours the server behind `prefix`; anything unexpected raises."""

        def expect(is_good: bool, what: object) -> None:
            if not is_good:
                raise RuntimeError(f"not as it should be: {what}")

        async def text(tool: str, arguments: dict[str, Any], **more: Any) -> str:
            result = await client.call_tool(f"{prefix}{tool}", arguments, **more)
            expect(not result.is_error, result)
            return "\n".join(getattr(block, "text", "") for block in result.content)

        async def read(uri: str) -> None:
            result = await client.read_resource(uri, cache_mode="bypass")
            expect(str(result.contents[0].uri) == uri, result.contents[0].uri)

        listed = await client.list_resources(cache_mode="bypass")
        own = [str(resource.uri) for resource in listed.resources]
        own = [uri for uri in own if uri.startswith(prefix)]
        expect(len(own) == 7, own)
        await asyncio.gather(*(read(uri) for uri in own))
        templates = await client.list_resource_templates(cache_mode="bypass")
        for template in templates.resource_templates:
            if template.uri_template.startswith(prefix):
                await read(template.uri_template.replace("{resourceId}", "7"))
        links = await client.call_tool(f"{prefix}get-resource-links", {"count": 2})
        for block in links.content:
            if isinstance(block, types.ResourceLink):
                await read(str(block.uri))

        prompts = await client.list_prompts(cache_mode="bypass")
        names = [prompt.name for prompt in prompts.prompts if prompt.name.startswith(prefix)]
        expect(len(names) == 4, names)
        arguments = {"resourceType": "Text", "resourceId": "3"}
        prompt = await client.get_prompt(f"{prefix}resource-prompt", arguments)
        await read(str(prompt.messages[1].content.resource.uri))
        completed = await client.complete(
            types.PromptReference(type="ref/prompt", name=f"{prefix}completable-prompt"),
            {"name": "department", "value": "S"},
        )
        expect(completed.completion.values == ["Sales", "Support"], completed)

        await client.set_logging_level("warning")
        uri = f"{prefix}demo://resource/static/document/features.md"
        await client.subscribe_resource(uri)
        await text("toggle-subscriber-updates", {})
        await self.updated[uri].wait()
        await text("toggle-subscriber-updates", {})
        await client.unsubscribe_resource(uri)

        sampled = await text("trigger-sampling-request", {"prompt": f"tour of {prefix}"})
        expect("heard: " in sampled and f"tour of {prefix}" in sampled, sampled)
        elicited = await text("trigger-elicitation-request", {})
        expect("Ann Tour" in elicited, elicited)
        roots = await text("get-roots-list", {})
        expect("file:///tour" in roots, roots)
        told: list[float] = []

        async def progress(done: float, _total: float | None, _message: str | None) -> None:
            told.append(done)

        long = {"duration": 0.1, "steps": 3}
        await text("trigger-long-running-operation", long, progress_callback=progress)
        expect(told == [1, 2, 3], told)
        await client.send_ping()
