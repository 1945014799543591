// Reads and writes HdrHistogram interval logs with the JavaScript implementation.
//
//   node hdr.mjs read LOG          one JSON object: tag -> count, percentiles, table
//   node hdr.mjs write LOG SEED    a log of its own, three intervals and two tags; prints the same

import { readFileSync, writeFileSync } from 'node:fs';

import { peerRequire } from './driver.mjs';

const hdr = peerRequire('hdr-histogram-js');

const percentiles = [0, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 99.999, 100];
// What fits neither here nor there would not be the same histogram.
const bounds = {
    lowestDiscernibleValue: 1,
    highestTrackableValue: 3_600_000_000_000,
    numberOfSignificantValueDigits: 3,
    bitBucketSize: 64,
};

const told = (sums) => {
    const all = [...sums].map(([tag, sum]) => [
        tag,
        {
            count: sum.totalCount,
            percentiles: percentiles.map((p) => [p, sum.getValueAtPercentile(p)]),
            table: sum.outputPercentileDistribution(5, 1000),
        },
    ]);
    return Object.fromEntries(all);
};

function read(path) {
    const sums = new Map();
    const reader = new hdr.HistogramLogReader(readFileSync(path, 'utf8'), 64);
    for (let one = reader.nextIntervalHistogram(); one; one = reader.nextIntervalHistogram()) {
        if (!sums.has(one.tag)) sums.set(one.tag, hdr.build(bounds));
        sums.get(one.tag).add(one);
    }
    return told(sums);
}

function write(path, seed) {
    let state = seed;
    const roll = () => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return state / 2 ** 32;
    };
    let text = '';
    const log = new hdr.HistogramLogWriter((line) => (text += line));
    log.outputLogFormatVersion();
    log.outputStartTime(1_796_040_000_000);
    log.outputComment('[BaseTime: 1796040000.000 (seconds since epoch)]');
    log.outputLegend();
    for (let second = 0; second < 3; second += 1) {
        for (const tag of ['one', 'two']) {
            const interval = hdr.build(bounds);
            for (let count = 0; count < 500; count += 1) {
                interval.recordValue(Math.ceil(Math.exp(8 + 18 * roll())));
            }
            interval.tag = tag;
            log.outputIntervalHistogram(interval, second, second + 1, 1_000_000);
        }
    }
    writeFileSync(path, text);
    // Not the sum of what was recorded: the maximum of that is not rounded to its bucket.
    return read(path);
}

const [mode, path, seed] = process.argv.slice(2);
console.log(JSON.stringify(mode === 'read' ? read(path) : write(path, Number(seed))));
