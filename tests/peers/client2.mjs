// Drives the TypeScript client 2.x (`@modelcontextprotocol/client`): `--era legacy` is its
// default handshake, `auto` probes with server/discover first, `modern` pins 2026-07-28.

import { drive, peerRequire } from './driver.mjs';

const { Client, StreamableHTTPClientTransport } = peerRequire('@modelcontextprotocol/client');

const negotiation = { legacy: 'legacy', auto: 'auto', modern: { pin: '2026-07-28' } };

await drive('client2', async ({ url, headers, fetch, era, timeoutMs, onStreamError, ...able }) => {
    const { capabilities, requests, notifications } = able;
    const client = new Client(
        { name: 'shardgate-peer-client2', version: '1.0.0' },
        { capabilities, versionNegotiation: { mode: negotiation[era] } },
    );
    for (const [method, handler] of Object.entries(requests)) {
        client.setRequestHandler(method, handler);
    }
    for (const [method, handler] of Object.entries(notifications)) {
        client.setNotificationHandler(method, handler);
    }
    client.onerror = onStreamError;
    const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers }, fetch });
    const limits = { timeout: timeoutMs };
    await client.connect(transport, limits);
    return {
        id: transport.sessionId,
        client,
        callTool: (name, input, onprogress) =>
            client.callTool({ name, arguments: input }, { ...limits, onprogress }),
        // Without `bypass` a list that the server marked cacheable would never reach the wire.
        listTools: (cursor) => client.listTools({ cursor }, { ...limits, cacheMode: 'bypass' }),
        close: async () => {
            // Sends a DELETE when there is a session, nothing in the modern revision.
            await transport.terminateSession();
            await client.close();
        },
    };
});
