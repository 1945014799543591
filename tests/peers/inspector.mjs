// Drives the MCP Inspector's command line. Each process is one session of one call, so mode
// `counter` wants --calls 1 and must read 1 every time. The Inspector never sends a DELETE: the
// sessions stay with the server until they time out. `back-to-back` is its own load mode: one
// process, K calls one after the other.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import {
    addError,
    checkCounter,
    finish,
    firstInteger,
    newReport,
    peersHome,
    readOptions,
    watchDeadline,
} from './driver.mjs';
import { check } from './visit.mjs';

const modules = join(peersHome, 'node_modules');
const options = readOptions();
const report = newReport('inspector', options);
// It keeps a catalog of servers in the home folder: a folder of this run alone.
const home = mkdtempSync(join(tmpdir(), 'shardgate-inspector-'));
const children = new Set();
process.on('exit', () => {
    children.forEach((child) => child.kill('SIGKILL'));
    rmSync(home, { recursive: true, force: true });
});
watchDeadline(report, options);

/** One Inspector process; what it printed. */
function inspect(...words) {
    const argv = [
        join(modules, '.bin', 'mcp-inspector'),
        '--cli',
        options.url.href,
        ...['--transport', 'http', '--protocol-era', options.era, '--format', 'json'],
        // A 401 must fail, not wait for somebody to log in.
        '--stored-auth-only',
        ...words,
        ...(options.token ? ['--header', `Authorization: Bearer ${options.token}`] : []),
    ];
    return new Promise((resolve, reject) => {
        // It needs Node >= 22.19, whatever runs this file.
        const child = spawn(join(modules, 'node', 'bin', 'node'), argv, {
            env: { ...process.env, HOME: home, MCP_CATALOG_PATH: join(home, 'mcp.json') },
            stdio: ['ignore', 'pipe', 'pipe'],
            timeout: options.timeoutMs,
        });
        children.add(child);
        let out = '';
        let diagnostics = '';
        child.stdout.on('data', (chunk) => (out += chunk));
        child.stderr.on('data', (chunk) => (diagnostics += chunk));
        child.on('error', reject);
        child.on('close', (code) => {
            children.delete(child);
            if (code === 0) resolve(out);
            else reject(new Error(`exit ${code}: ${(diagnostics || out).trim().slice(-200)}`));
        });
    });
}

/** The result in what `--format json` printed. */
function resultOf(out) {
    return JSON.parse(out).result;
}

/** One process, timed as a whole: start, handshake, one request. */
async function timed(...words) {
    const start = performance.now();
    const out = resultOf(await inspect(...words));
    report.milliseconds.push(performance.now() - start);
    report.sessions += 1;
    return out;
}

const call = ['--method', 'tools/call', '--tool-name', options.tool];

/** The text of a tool result. */
function textOf(result) {
    if (result.isError) throw new Error('the tool answered isError');
    return (result.content ?? []).map((block) => block.text ?? '').join('\n');
}

let echoArgument;
/** The echo tool's arguments; its one argument is asked for once. */
async function echoInput(sent) {
    echoArgument ??= (async () => {
        const { tools } = resultOf(await inspect('--method', 'tools/list'));
        const tool = tools.find((tool) => tool.name === options.tool);
        if (!tool) throw new Error('the echo tool is not in the list');
        return Object.keys(tool.inputSchema.properties ?? {})[0];
    })();
    return ['--tool-args-json', JSON.stringify({ [await echoArgument]: sent })];
}

const steps = {
    counter: async () => {
        checkCounter(report, [firstInteger(textOf(await timed(...call)))]);
    },
    list: async () => {
        const { tools } = await timed('--method', 'tools/list');
        report.tools = tools.length;
        if (tools.length === 0) throw new Error('no tools');
    },
    echo: async (session, index) => {
        const sent = `s${session}-c${index}-\u00e9`;
        const text = textOf(await timed(...call, ...(await echoInput(sent))));
        if (!text.includes(sent)) throw new Error('the echo is of something else');
    },
    // The command line does not print progress: the call only has to survive it.
    visit: async () => {
        for (const place of options.places) {
            const input = ['--tool-args-json', JSON.stringify(place.arguments)];
            const [{ tools }, called, { contents }, prompted] = await Promise.all([
                timed('--method', 'tools/list'),
                timed('--method', 'tools/call', '--tool-name', place.tool, ...input),
                timed('--method', 'resources/read', '--uri', place.resource),
                timed('--method', 'prompts/get', '--prompt-name', place.prompt),
            ]);
            check(place, { tools, called, contents, prompted });
        }
    },
};

/** One session's worth of processes. */
async function runSession(session) {
    for (let index = 0; index < options.calls; index += 1) {
        try {
            await steps[options.mode](session, index);
            report.calls += 1;
        } catch (error) {
            addError(report, options, `session ${session} call ${index}`, error);
        }
    }
}

/** The Inspector's load mode: it prints a summary instead of results. */
async function runLoad() {
    const out = await inspect(
        ...call,
        ...(await echoInput('back-to-back')),
        ...['--load', '--load-concurrency', '1', '--load-requests', String(options.calls)],
    );
    const result = resultOf(out);
    report.sessions = 1;
    report.calls = result.ok;
    // Tool errors and transport errors: the messages are cut short there already.
    for (let index = result.ok; index < result.requests; index += 1) {
        addError(report, options, 'load', result.errorMessages[index - result.ok] ?? 'failed');
    }
    const { p50, p90, p99, max } = result.latencyMs;
    report.times = { p50_ms: p50, p90_ms: p90, p99_ms: p99, max_ms: max };
}

if (options.freshConnections) {
    // Each process has connections of its own anyway, but keeps them between its few requests.
    addError(report, options, 'options', 'the Inspector cannot close after each request');
} else if (options.mode === 'counter' && options.calls !== 1) {
    addError(report, options, 'options', 'mode counter needs --calls 1 here');
} else if (options.mode === 'back-to-back') {
    await runLoad();
} else {
    let next = 0;
    const lane = async () => {
        while (next < options.sessions) await runSession(next++);
    };
    await Promise.all(Array.from({ length: options.concurrency }, lane));
}
finish(report, options);
