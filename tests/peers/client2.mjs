// Drives the TypeScript client 2.x (`@modelcontextprotocol/client`): `--era legacy` is its
// default handshake, `auto` probes with server/discover first, `modern` pins 2026-07-28.

import { drive, peerRequire } from './driver.mjs';

const { Client, StreamableHTTPClientTransport } = peerRequire('@modelcontextprotocol/client');

const negotiation = { legacy: 'legacy', auto: 'auto', modern: { pin: '2026-07-28' } };

await drive('client2', async ({ url, headers, fetch, era, timeoutMs, onStreamError }) => {
    const client = new Client(
        { name: 'shardgate-peer-client2', version: '1.0.0' },
        { versionNegotiation: { mode: negotiation[era] } },
    );
    client.onerror = onStreamError;
    const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers }, fetch });
    const limits = { timeout: timeoutMs };
    await client.connect(transport, limits);
    return {
        id: transport.sessionId,
        callTool: (name, input) => client.callTool({ name, arguments: input }, limits),
        // Without `bypass` a list that the server marked cacheable would never reach the wire.
        listTools: (cursor) => client.listTools({ cursor }, { ...limits, cacheMode: 'bypass' }),
        close: async () => {
            // Sends a DELETE when there is a session, nothing in the modern revision.
            await transport.terminateSession();
            await client.close();
        },
    };
});
