// The client of the conformance suite's client scenarios: a gateway with the suite's server as its
// one backend, asked for things by an official TypeScript SDK: by 1.x in the revisions with
// sessions, by `@modelcontextprotocol/client` in 2026-07-28. The suite appends the URL of its server
// and names the scenario in MCP_CONFORMANCE_SCENARIO, the revision in
// MCP_CONFORMANCE_PROTOCOL_VERSION and what the scenario wants called in MCP_CONFORMANCE_CONTEXT.
//
//   node conformance_client.mjs [--gateway PROGRAM] URL
//
// Without --gateway the SDK speaks to the suite's server itself, which shows that this file is right.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import { peerRequire } from './driver.mjs';

const STATELESS = '2026-07-28';
const isStateless = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION === STATELESS;
const INFO = { name: 'shardgate-conformance-client', version: '1.0.0' };

/** What each scenario wants its client to do with `{client, call, elicited}`. */
const scenarios = {
    initialize: ({ client }) => client.listTools(),
    tools_call: async ({ client, call }) => {
        await client.listTools();
        await call('add_numbers', { a: 5, b: 3 });
    },
    'elicitation-sep1034-client-defaults': async ({ client, call, elicited }) => {
        // The SDK fills in the defaults of what the user left out.
        elicited({});
        await client.listTools();
        await call('test_client_elicitation_defaults');
    },
    'json-schema-2020-12-preservation': async ({ client, call }) => {
        const { tools } = await client.listTools();
        const { inputSchema } = tools.find((tool) => tool.name !== 'json_schema_echo');
        await call('json_schema_echo', { schema: inputSchema });
    },
    'sse-retry': async ({ client, call }) => {
        await client.listTools();
        await call('test_reconnection');
    },
    // Its server refuses the first request it gets and looks at all of them.
    'request-metadata': ({ client }) => client.discover(),
    'http-standard-headers': async ({ client, call }) => {
        const { tools } = await client.listTools();
        for (const { name } of tools) await call(name);
        const { resources } = await client.listResources();
        for (const { uri } of resources) await client.readResource({ uri });
        const { prompts } = await client.listPrompts();
        for (const { name } of prompts) await client.getPrompt({ name });
    },
    'http-custom-headers': async ({ client, call }) => {
        // What a tool wants mirrored is in the list.
        await client.listTools();
        const { toolCalls } = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT);
        for (const { name, arguments: input } of toolCalls) await call(name, input);
    },
    'http-invalid-tool-headers': async ({ client, call }) => {
        // All that is offered is called: what must not be called must not be offered.
        const { tools } = await client.listTools();
        for (const { name } of tools) await call(name, { region: 'eu' });
    },
    'json-schema-ref-no-deref': ({ client }) => client.listTools(),
    'sep-2322-client-request-state': async ({ client, call, elicited }) => {
        elicited({ confirmed: true });
        await client.listTools();
        const both = [call('test_mrtr_echo_state'), call('test_mrtr_no_state')];
        await Promise.all([...both, call('test_mrtr_unrelated')]);
        // Not a result of this revision: the SDK and the gateway refuse it. It is no question, and
        // whoever took it for one would call again.
        await call('test_mrtr_no_result_type').catch(() => {});
    },
};

/** A session of SDK 1.x. */
async function openSession(url) {
    const { Client } = peerRequire('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = peerRequire(
        '@modelcontextprotocol/sdk/client/streamableHttp.js',
    );
    const { ElicitRequestSchema } = peerRequire('@modelcontextprotocol/sdk/types.js');
    const client = new Client(INFO, {
        capabilities: { elicitation: { form: { applyDefaults: true } } },
    });
    const transport = new StreamableHTTPClientTransport(url);
    await client.connect(transport);
    return {
        client,
        call: (name, input = {}) => client.callTool({ name, arguments: input }),
        elicited: (content) =>
            client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content })),
        close: async () => {
            // Not every server of the suite can end a session.
            await transport.terminateSession().catch(() => {});
            await client.close();
        },
    };
}

/** Client 2.x, which has no session. */
async function openStateless(url) {
    const { Client, StreamableHTTPClientTransport } = peerRequire('@modelcontextprotocol/client');
    const client = new Client(INFO, {
        capabilities: { elicitation: { form: {} }, roots: {}, sampling: {} },
        versionNegotiation: { mode: { pin: STATELESS } },
    });
    await client.connect(new StreamableHTTPClientTransport(url));
    return {
        client,
        call: (name, input = {}) => client.callTool({ name, arguments: input }),
        elicited: (content) =>
            client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content })),
        close: () => client.close(),
    };
}

/** Starts a gateway in front of `backend`; gives its endpoint and how to end it. */
async function startGateway(program, backend) {
    const folder = mkdtempSync(join(tmpdir(), 'shardgate-conformance-'));
    const config = join(folder, 'backends.json');
    writeFileSync(config, JSON.stringify({ mcpServers: { suite: { url: backend } } }));
    const flags = ['--address', '127.0.0.1:0', '--admin-address', 'none', '--allow-anonymous'];
    flags.push('--upstream-connection-mode', 'plain-text-or-tls', '--config-file', config);
    flags.push('--state-dir', join(folder, 'state'), '--shards', '2', '--no-pin');
    const gateway = spawn(program, ['serve', ...flags], { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = new Promise((resolve) => gateway.once('exit', resolve));
    const stop = async () => {
        gateway.kill('SIGTERM');
        await ended;
        rmSync(folder, { recursive: true, force: true });
    };
    const address = new Promise((resolve) => {
        let said = '';
        gateway.stdout.on('data', (piece) => {
            said += piece;
            const found = /listening on (http:\/\/[0-9.:]+)/.exec(said);
            if (found) resolve(found[1]);
        });
    });
    const failed = ended.then((code) => {
        throw new Error(`the gateway ended with ${code}`);
    });
    // Nobody waits for this one after the start.
    failed.catch(() => {});
    return { url: `${await Promise.race([address, failed])}/mcp`, stop };
}

const { values, positionals } = parseArgs({
    options: { gateway: { type: 'string' } },
    allowPositionals: true,
});
const scenario = scenarios[process.env.MCP_CONFORMANCE_SCENARIO];
if (!scenario || positionals.length !== 1) throw new Error('a known scenario and a URL are needed');
const gateway = values.gateway ? await startGateway(values.gateway, positionals[0]) : undefined;
try {
    const url = new URL(gateway?.url ?? positionals[0]);
    const session = await (isStateless ? openStateless(url) : openSession(url));
    await scenario(session);
    await session.close();
} finally {
    await gateway?.stop();
}
