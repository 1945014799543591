// Drives the official TypeScript SDK 1.x (`@modelcontextprotocol/sdk`): legacy revisions only.

import { drive, peerRequire } from './driver.mjs';

const { Client } = peerRequire('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = peerRequire(
    '@modelcontextprotocol/sdk/client/streamableHttp.js',
);

await drive('sdk1', async ({ url, headers, fetch, era, timeoutMs, onStreamError }) => {
    if (era !== 'legacy') throw new Error('this client speaks the legacy revisions only');
    const client = new Client({ name: 'shardgate-peer-sdk1', version: '1.0.0' });
    client.onerror = onStreamError;
    const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers }, fetch });
    const limits = { timeout: timeoutMs };
    await client.connect(transport, limits);
    return {
        id: transport.sessionId,
        callTool: (name, input) => client.callTool({ name, arguments: input }, undefined, limits),
        listTools: (cursor) => client.listTools({ cursor }, limits),
        close: async () => {
            // `close` alone only drops the connections; the DELETE is a separate request.
            await transport.terminateSession();
            await client.close();
        },
    };
});
