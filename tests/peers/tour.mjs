// What `--mode tour` does with two reference servers behind one endpoint, `a` and `b`: all that a
// client can ask for and be asked for. Anything unexpected throws.

/** Capabilities of a client on tour. */
export const capabilities = { roots: { listChanged: true }, sampling: {}, elicitation: {} };

/** What the user fills in, whatever a server calls it. */
const answers = { name: 'Ann Tour', color: 'blue' };

/** Answers to what servers ask; the question is in the answer. */
export const requests = {
    'roots/list': () => ({ roots: [{ uri: 'file:///tour', name: 'tour' }] }),
    'sampling/createMessage': ({ params }) => ({
        role: 'assistant',
        content: { type: 'text', text: `heard: ${firstBlock(params.messages[0]).text}` },
        model: 'tour',
    }),
    'elicitation/create': () => ({ action: 'accept', content: answers }),
};

/** The content of a message: one block, or a list of them. */
function firstBlock(message) {
    return Array.isArray(message.content) ? message.content[0] : message.content;
}

function expect(isGood, what) {
    if (!isGood) throw new Error(`not as it should be: ${what}`);
}

/**
 * Tours the server behind `prefix`. `client` is an SDK's; `callTool(name, input, onprogress)` calls
 * a tool; `updates` emits `uri` for each resource update heard.
 */
export async function tour(client, callTool, updates, prefix) {
    const text = async (tool, input = {}, onprogress = undefined) => {
        const result = await callTool(`${prefix}${tool}`, input, onprogress);
        expect(!result.isError, `${tool}: ${JSON.stringify(result)}`);
        return result.content.map((block) => block.text ?? '').join('\n');
    };
    const read = async (uri) => {
        const { contents } = await client.readResource({ uri });
        expect(contents[0].uri === uri, `${uri} is answered as ${contents[0].uri}`);
    };

    const { resources } = await client.listResources();
    const own = resources.filter(({ uri }) => uri.startsWith(prefix));
    expect(own.length === 7, `${own.length} resources of ${prefix}`);
    await Promise.all(own.map(({ uri }) => read(uri)));
    const { resourceTemplates } = await client.listResourceTemplates();
    for (const { uriTemplate } of resourceTemplates) {
        if (uriTemplate.startsWith(prefix)) await read(uriTemplate.replace('{resourceId}', '7'));
    }
    const links = await callTool(`${prefix}get-resource-links`, { count: 2 });
    for (const { uri } of links.content.filter(({ type }) => type === 'resource_link')) {
        await read(uri);
    }

    const { prompts } = await client.listPrompts();
    const names = prompts.map(({ name }) => name).filter((name) => name.startsWith(prefix));
    expect(names.length === 4, `prompts of ${prefix}: ${names}`);
    const prompt = await client.getPrompt({
        name: `${prefix}resource-prompt`,
        arguments: { resourceType: 'Text', resourceId: '3' },
    });
    await read(firstBlock(prompt.messages[1]).resource.uri);
    const { completion } = await client.complete({
        ref: { type: 'ref/prompt', name: `${prefix}completable-prompt` },
        argument: { name: 'department', value: 'S' },
    });
    expect(`${completion.values}` === 'Sales,Support', `completion: ${completion.values}`);

    await client.setLoggingLevel('warning');
    const uri = `${prefix}demo://resource/static/document/features.md`;
    const updated = new Promise((resolve) => updates.once(uri, resolve));
    await client.subscribeResource({ uri });
    await text('toggle-subscriber-updates');
    await updated;
    await text('toggle-subscriber-updates');
    await client.unsubscribeResource({ uri });

    const sampled = await text('trigger-sampling-request', { prompt: `tour of ${prefix}` });
    expect(sampled.includes('heard: '), sampled);
    expect(sampled.includes(`tour of ${prefix}`), sampled);
    const elicited = await text('trigger-elicitation-request');
    expect(elicited.includes('Ann Tour'), elicited);
    const roots = await text('get-roots-list');
    expect(roots.includes('file:///tour'), roots);
    const progress = [];
    const input = { duration: 0.1, steps: 3 };
    await text('trigger-long-running-operation', input, (told) => progress.push(told.progress));
    expect(`${progress}` === '1,2,3', `progress ${progress}`);
    await client.ping();
}
