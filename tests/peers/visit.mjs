// What `--mode visit` does at each of the servers behind one endpoint: lists everything, calls a
// tool that reports progress, reads a resource and gets a prompt; and what `--mode asked` does: calls
// tools that ask the client. `visit.json` says what a server has to offer. Anything unexpected throws.

import { readFileSync } from 'node:fs';

const servers = JSON.parse(readFileSync(new URL('visit.json', import.meta.url), 'utf8'));

/** The servers of `--at NAME=PREFIX,...`, with their exposed names. */
export function placesOf(text) {
    return (text ?? '').split(',').filter(Boolean).map((place) => {
        const [name, prefix = ''] = place.split('=');
        const server = servers[name];
        if (!server) throw new Error(`--at names a server that is not in visit.json: ${name}`);
        const exposed = (own) => prefix + own;
        const { tool, resource, prompt, asking } = server;
        const names = { tool: exposed(tool), resource: exposed(resource), prompt: exposed(prompt) };
        const askers = asking.map((one) => ({ ...one, tool: exposed(one.tool) }));
        return { ...server, ...names, asking: askers };
    });
}

export function expect(isGood, what) {
    if (!isGood) throw new Error(`not as it should be: ${what}`);
}

/** The text of a tool's result or of a prompt's first message. */
export function textOf({ content, messages }) {
    const first = messages ? messages[0].content : content;
    return (Array.isArray(first) ? first : [first]).map((block) => block.text ?? '').join('\n');
}

/** Holds the answers of one visit against what `place` has to offer. */
export function check(place, { tools, resources, prompts, called, contents, prompted }) {
    expect(tools.some(({ name }) => name === place.tool), `no tool ${place.tool}`);
    if (resources) expect(resources.some(({ uri }) => uri === place.resource), place.resource);
    if (prompts) expect(prompts.some(({ name }) => name === place.prompt), place.prompt);
    expect(!called.isError && textOf(called) === place.answer, JSON.stringify(called));
    expect(contents[0].uri === place.resource && contents[0].text, JSON.stringify(contents));
    expect(textOf(prompted) === place.message, JSON.stringify(prompted));
}

/** One visit at `place` with an SDK's client; `callTool(name, input, onprogress)` calls a tool. */
export async function visit(client, callTool, place) {
    const { tools } = await client.listTools();
    const { resources } = await client.listResources();
    const { prompts } = await client.listPrompts();
    const progress = [];
    const tell = (told) => progress.push(told.progress);
    const called = await callTool(place.tool, place.arguments, tell);
    expect(`${progress}` === `${place.progress}`, `progress ${progress} of ${place.tool}`);
    const { contents } = await client.readResource({ uri: place.resource });
    const prompted = await client.getPrompt({ name: place.prompt });
    check(place, { tools, resources, prompts, called, contents, prompted });
}

/** Calls the tools at `place` that ask the client, whose answers are those of `tour.mjs`. */
export async function answer(callTool, place) {
    for (const { tool, arguments: input, says } of place.asking) {
        const text = textOf(await callTool(tool, input));
        for (const part of says) expect(text.includes(part), `${tool} says ${text}`);
    }
}
