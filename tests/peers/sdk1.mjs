// Drives the official TypeScript SDK 1.x (`@modelcontextprotocol/sdk`): legacy revisions only.

import { drive, peerRequire } from './driver.mjs';

const { Client } = peerRequire('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = peerRequire(
    '@modelcontextprotocol/sdk/client/streamableHttp.js',
);
const types = peerRequire('@modelcontextprotocol/sdk/types.js');

/** This SDK finds the method of a handler in the schema of the message. */
const schemas = {
    'roots/list': types.ListRootsRequestSchema,
    'sampling/createMessage': types.CreateMessageRequestSchema,
    'elicitation/create': types.ElicitRequestSchema,
    'notifications/resources/updated': types.ResourceUpdatedNotificationSchema,
};

await drive('sdk1', async ({ url, headers, fetch, era, timeoutMs, onStreamError, ...able }) => {
    if (era !== 'legacy') throw new Error('this client speaks the legacy revisions only');
    const { capabilities, requests, notifications } = able;
    const client = new Client({ name: 'shardgate-peer-sdk1', version: '1.0.0' }, { capabilities });
    for (const [method, handler] of Object.entries(requests)) {
        client.setRequestHandler(schemas[method], handler);
    }
    for (const [method, handler] of Object.entries(notifications)) {
        client.setNotificationHandler(schemas[method], handler);
    }
    client.onerror = onStreamError;
    const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers }, fetch });
    const limits = { timeout: timeoutMs };
    await client.connect(transport, limits);
    return {
        id: transport.sessionId,
        client,
        callTool: (name, input, onprogress) =>
            client.callTool({ name, arguments: input }, undefined, { ...limits, onprogress }),
        listTools: (cursor) => client.listTools({ cursor }, limits),
        close: async () => {
            // `close` alone only drops the connections; the DELETE is a separate request.
            await transport.terminateSession();
            await client.close();
        },
    };
});
