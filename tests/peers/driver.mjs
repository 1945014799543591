// What the JavaScript drivers share: options, the HTTP connections, the modes and the report.
// A driver brings `openSession` (its own client library) and this file does everything else, so
// that each client is judged by the same rules. Prints one JSON object as the last line of its
// output; the exit code is 0 when the report says `ok`. Never prints tokens or session ids.

import { subscribe } from 'node:diagnostics_channel';
import { EventEmitter } from 'node:events';
import { createRequire } from 'node:module';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import * as touring from './tour.mjs';
import { answer, placesOf, visit } from './visit.mjs';

/** Folder that scripts/peers fills; the same rule as there. */
export const peersHome = join(
    process.env.SHARDGATE_CACHE ??
        join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'shardgate'),
    'peers',
);

/** `require` that finds the packages of scripts/peers, which live outside the tree. */
export const peerRequire = createRequire(join(peersHome, 'package.json'));

const modes = ['counter', 'list', 'echo', 'back-to-back', 'tour', 'visit', 'asked'];
const eras = ['legacy', 'auto', 'modern'];

/** The command line; the same options for every driver. */
export function readOptions() {
    const { values } = parseArgs({
        options: {
            url: { type: 'string' },
            token: { type: 'string' },
            mode: { type: 'string', default: 'counter' },
            era: { type: 'string', default: 'legacy' },
            sessions: { type: 'string', default: '1' },
            calls: { type: 'string', default: '10' },
            concurrency: { type: 'string', default: '4' },
            'in-flight': { type: 'string', default: '1' },
            tool: { type: 'string' },
            at: { type: 'string' },
            'fresh-connections': { type: 'boolean', default: false },
            'timeout-ms': { type: 'string', default: '30000' },
            'deadline-ms': { type: 'string', default: '300000' },
        },
    });
    const count = (name) => {
        const value = Number(values[name]);
        if (!Number.isInteger(value) || value < 1) throw new Error(`--${name} must be >= 1`);
        return value;
    };
    if (!values.url) throw new Error('--url is needed');
    if (!modes.includes(values.mode)) throw new Error(`--mode is one of ${modes.join(', ')}`);
    if (!eras.includes(values.era)) throw new Error(`--era is one of ${eras.join(', ')}`);
    return {
        url: new URL(values.url),
        token: values.token,
        mode: values.mode,
        era: values.era,
        sessions: count('sessions'),
        calls: count('calls'),
        concurrency: count('concurrency'),
        inFlight: count('in-flight'),
        places: placesOf(values.at),
        tool: values.tool ?? (values.mode === 'counter' ? 'increment' : 'echo'),
        freshConnections: values['fresh-connections'],
        timeoutMs: count('timeout-ms'),
        deadlineMs: count('deadline-ms'),
    };
}

/** An empty report; every driver fills the same fields. */
export function newReport(client, options) {
    return {
        client,
        mode: options.mode,
        sessions: 0,
        calls: 0,
        errors: [],
        error_count: 0,
        skipped: 0,
        repeated: 0,
        session_ids: 0,
        requests: 0,
        connections: 0,
        stream_errors: 0,
        milliseconds: [],
    };
}

/** Counts an error and keeps the first five, without the token should a peer have echoed it. */
export function addError(report, options, where, error) {
    report.error_count += 1;
    if (report.errors.length === 5) return;
    const cause = error?.cause?.message ? ` (${error.cause.message})` : '';
    let text = `${where}: ${error?.message ?? error}${cause}`;
    if (options.token) text = text.replaceAll(options.token, '<token>');
    report.errors.push(text.slice(0, 300));
}

/** Holds one session's counter values against 1, 2, 3, ... */
export function checkCounter(report, values) {
    let expected = 1;
    for (const value of values) {
        if (value < expected) {
            report.repeated += 1;
        } else {
            report.skipped += value - expected;
            expected = value + 1;
        }
    }
}

/** First integer of a result text: `1`, `counter 1` and `{"n":1}` all mean 1. */
export function firstInteger(text) {
    const found = /-?\d+/.exec(text);
    if (!found) throw new Error('the result has no integer');
    return Number(found[0]);
}

/** Turns the samples into percentiles, decides `ok`, prints the report, ends the process. */
export function finish(report, options) {
    const { milliseconds, times, ...rest } = report;
    milliseconds.sort((a, b) => a - b);
    const at = (share) => {
        if (milliseconds.length === 0) return null;
        const rank = Math.max(1, Math.ceil(share * milliseconds.length));
        return Number(milliseconds[rank - 1].toFixed(3));
    };
    const ok =
        report.error_count === 0 &&
        report.skipped === 0 &&
        report.repeated === 0 &&
        report.calls === options.sessions * options.calls;
    // A driver that has only percentiles brings them as `times`.
    const percentiles = times ?? {
        p50_ms: at(0.5),
        p90_ms: at(0.9),
        p99_ms: at(0.99),
        max_ms: at(1),
    };
    process.stdout.write(`${JSON.stringify({ ...rest, ok, ...percentiles })}\n`);
    process.exit(ok ? 0 : 1);
}

/** A run that hangs is a result too: report what there is, and fail. */
export function watchDeadline(report, options) {
    setTimeout(() => {
        addError(report, options, 'deadline', 'the run did not end in time');
        finish(report, options);
    }, options.deadlineMs).unref();
}

/** The fetch of the chosen connection habit, counting requests and new connections. */
function countingFetch(report, options) {
    const undici = peerRequire('undici');
    subscribe('undici:client:connected', () => {
        report.connections += 1;
    });
    let dispatcherOf;
    if (options.freshConnections) {
        // `pipelining: 0` closes each connection after one exchange and says so to the server.
        const agent = new undici.Agent({ pipelining: 0 });
        dispatcherOf = () => agent;
    } else if (options.mode === 'back-to-back') {
        // The event stream of GET keeps a connection to itself; all calls share one other.
        const streams = new undici.Agent();
        const calls = new undici.Agent({ connections: 1, pipelining: 1 });
        dispatcherOf = (method) => (method === 'GET' ? streams : calls);
    } else {
        const agent = new undici.Agent();
        dispatcherOf = () => agent;
    }
    return (url, init = {}) => {
        report.requests += 1;
        const method = init.method ?? 'GET';
        return undici.fetch(url, { ...init, dispatcher: dispatcherOf(method) });
    };
}

/** One tools/call, timed; the text of its result. */
async function timedCall(report, session, tool, input) {
    const start = performance.now();
    const result = await session.callTool(tool, input);
    report.milliseconds.push(performance.now() - start);
    if (result.isError) throw new Error('the tool answered isError');
    const text = (result.content ?? []).map((block) => block.text ?? '').join('\n');
    report.calls += 1;
    return text;
}

/** All tools of all pages, names in the order given. */
async function allTools(session) {
    const tools = [];
    let cursor;
    do {
        const page = await session.listTools(cursor);
        tools.push(...page.tools);
        cursor = page.nextCursor;
    } while (cursor !== undefined);
    return tools;
}

/** Runs `work(0..count)` with at most `width` at once. */
async function inParallel(count, width, work) {
    let next = 0;
    const lane = async () => {
        while (next < count) await work(next++);
    };
    await Promise.all(Array.from({ length: Math.min(width, count) }, lane));
}

/** The calls of one session in the chosen mode. */
async function exercise(report, options, session, index) {
    const attempt = async (where, work) => {
        try {
            await work();
        } catch (error) {
            addError(report, options, where, error);
        }
    };
    if (options.mode === 'counter') {
        const values = [];
        await inParallel(options.calls, options.inFlight, (call) =>
            attempt(`session ${index} call ${call}`, async () => {
                values.push(firstInteger(await timedCall(report, session, options.tool, {})));
            }),
        );
        // Calls in flight together may be answered in any order, but still 1..K once each.
        if (options.inFlight > 1) values.sort((a, b) => a - b);
        checkCounter(report, values);
        return;
    }
    if (options.mode === 'tour') {
        await inParallel(options.calls, options.inFlight, (call) =>
            attempt(`session ${index} tour ${call}`, async () => {
                const { client, callTool, updates } = session;
                await touring.tour(client, callTool, updates, ['a-', 'b-'][call % 2]);
                report.calls += 1;
            }),
        );
        return;
    }
    if (options.mode === 'visit' || options.mode === 'asked') {
        await inParallel(options.calls, options.inFlight, (call) =>
            attempt(`session ${index} ${options.mode} ${call}`, async () => {
                const { client, callTool } = session;
                for (const place of options.places) {
                    if (options.mode === 'visit') await visit(client, callTool, place);
                    else await answer(callTool, place);
                }
                report.calls += 1;
            }),
        );
        return;
    }
    if (options.mode === 'list') {
        let first;
        await inParallel(options.calls, options.inFlight, (call) =>
            attempt(`session ${index} list ${call}`, async () => {
                const start = performance.now();
                const names = (await allTools(session)).map((tool) => tool.name);
                report.milliseconds.push(performance.now() - start);
                report.calls += 1;
                report.tools = names.length;
                if (names.length === 0) throw new Error('no tools');
                if (new Set(names).size !== names.length) throw new Error('a name appears twice');
                first ??= names.join('\n');
                if (names.join('\n') !== first) throw new Error('the list changed');
            }),
        );
        return;
    }
    const tool = (await allTools(session)).find((tool) => tool.name === options.tool);
    if (!tool) throw new Error('the echo tool is not in the list');
    // Servers name the argument differently (`message`, `text`): take the one it asks for.
    const [argument] = Object.keys(tool.inputSchema.properties ?? {});
    const width = options.mode === 'echo' ? options.inFlight : 1;
    await inParallel(options.calls, width, (call) =>
        attempt(`session ${index} echo ${call}`, async () => {
            const sent = `s${index}-c${call}-\u00e9\u{1f600}`;
            const text = await timedCall(report, session, options.tool, { [argument]: sent });
            if (!text.includes(sent)) throw new Error('the echo is of something else');
        }),
    );
}

/** What a client can be asked for and told; nothing, unless the mode is about that. */
function abilities(options) {
    const updates = new EventEmitter();
    if (options.mode !== 'tour' && options.mode !== 'asked') {
        return { updates, capabilities: {}, requests: {}, notifications: {} };
    }
    const { capabilities, requests } = touring;
    const notifications = {
        'notifications/resources/updated': ({ params }) => {
            updates.emit(params.uri);
        },
    };
    return { updates, capabilities, requests, notifications };
}

/**
 * Runs a driver. `openSession({url, headers, fetch, era, timeoutMs, onStreamError, capabilities,
 * requests, notifications})` connects and gives `{id, client, callTool, listTools, close}`; `close`
 * must end the session with a DELETE. The last two have a handler for each method.
 */
export async function drive(client, openSession) {
    const options = readOptions();
    const report = newReport(client, options);
    watchDeadline(report, options);
    const fetch = countingFetch(report, options);
    const ids = new Set();
    await inParallel(options.sessions, options.concurrency, async (index) => {
        let session;
        let isClosing = false;
        const { updates, ...able } = abilities(options);
        try {
            session = await openSession({
                ...able,
                url: options.url,
                headers: options.token ? { authorization: `Bearer ${options.token}` } : {},
                fetch,
                era: options.era,
                timeoutMs: options.timeoutMs,
                // Ending the session breaks its event stream on purpose.
                onStreamError: () => {
                    if (!isClosing) report.stream_errors += 1;
                },
            });
            session.updates = updates;
            report.sessions += 1;
            if (session.id) ids.add(session.id);
            report.session_ids = ids.size;
            await exercise(report, options, session, index);
        } catch (error) {
            addError(report, options, `session ${index}`, error);
        }
        isClosing = true;
        try {
            await session?.close();
        } catch (error) {
            addError(report, options, `session ${index} close`, error);
        }
    });
    if (options.freshConnections && report.sessions > 0 && report.connections < report.requests) {
        addError(report, options, 'connections', 'one was used for more than one request');
    }
    // One for the calls of all sessions, and one for each session's event stream.
    if (options.mode === 'back-to-back' && report.connections > 1 + options.sessions) {
        addError(report, options, 'connections', 'the calls did not stay on one connection');
    }
    finish(report, options);
}
