// The client of the conformance suite's client scenarios: a gateway with the suite's server as its
// one backend, asked for things by the official TypeScript SDK 1.x. The suite appends the URL of its
// server and names the scenario in MCP_CONFORMANCE_SCENARIO.
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

const { Client } = peerRequire('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = peerRequire(
    '@modelcontextprotocol/sdk/client/streamableHttp.js',
);
const { ElicitRequestSchema } = peerRequire('@modelcontextprotocol/sdk/types.js');

/** What each scenario wants its client to do. */
const scenarios = {
    initialize: (client) => client.listTools(),
    tools_call: async (client) => {
        await client.listTools();
        await client.callTool({ name: 'add_numbers', arguments: { a: 5, b: 3 } });
    },
    'elicitation-sep1034-client-defaults': async (client) => {
        // The SDK fills in the defaults of what the user left out.
        client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: {} }));
        await client.listTools();
        await client.callTool({ name: 'test_client_elicitation_defaults', arguments: {} });
    },
    'json-schema-2020-12-preservation': async (client) => {
        const { tools } = await client.listTools();
        const { inputSchema } = tools.find((tool) => tool.name !== 'json_schema_echo');
        await client.callTool({ name: 'json_schema_echo', arguments: { schema: inputSchema } });
    },
    'sse-retry': async (client) => {
        await client.listTools();
        await client.callTool({ name: 'test_reconnection', arguments: {} });
    },
};

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
    const client = new Client(
        { name: 'shardgate-conformance-client', version: '1.0.0' },
        { capabilities: { elicitation: { form: { applyDefaults: true } } } },
    );
    const transport = new StreamableHTTPClientTransport(new URL(gateway?.url ?? positionals[0]));
    await client.connect(transport);
    await scenario(client);
    // Not every server of the suite can end a session.
    await transport.terminateSession().catch(() => {});
    await client.close();
} finally {
    await gateway?.stop();
}
