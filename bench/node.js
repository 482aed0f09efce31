'use strict';
// The Node package beside npm's locks, on one Redis server: node.js URL PORT [ROUNDS].
//
// The slices of the contenders are interleaved: a round has one of each, and a ratio is that of two slices of one round. Of the
// rounds, the median and the quartiles are shown. Only changes of the holder count where all want one lock: a poller that
// takes its own lock again looks fast. redlock's waiters ask again after 200 ms by default, redis-semaphore's after 10.
const { performance } = require('node:perf_hooks');
const Redis = require('ioredis');
const { default: Redlock } = require('redlock');
const { Mutex } = require('redis-semaphore');

const holdfast = require('../bindings/node');

const SLICE_MS = 300;
const TASKS = 8;
const TTL_MS = 30000;
const [url, port, rounds = '20'] = process.argv.slice(2);

const client = holdfast.open(url);
const redis = new Redis(Number(port));
const redlock = new Redlock([redis], { retryCount: -1 });

// Each takes a lock by its name and returns a function that releases it.
const contenders = {
  holdfast: async (name) => {
    const hold = await client.acquire(name, { ttl: TTL_MS });
    return () => hold.release();
  },
  redlock: async (name) => {
    const lock = await redlock.acquire([`redlock/${name}`], TTL_MS);
    return () => lock.release();
  },
  'redis-semaphore': async (name) => {
    const mutex = new Mutex(redis, `semaphore/${name}`, { lockTimeout: TTL_MS, acquireTimeout: 60000, refreshInterval: 0 });
    await mutex.acquire();
    return () => mutex.release();
  },
};

// Pairs in a second, or changes of the holder if all want one lock; and the computing time for each pair, in us.
async function measure(take, tasks, isOneName) {
  const until = performance.now() + SLICE_MS;
  let pairs = 0;
  let changes = 0;
  let last = -1;
  const began = performance.now();
  const before = process.cpuUsage();
  await Promise.all(Array.from({ length: tasks }, async (_, index) => {
    while (performance.now() < until) {
      const release = await take(isOneName ? 'one' : String(index));
      pairs += 1;
      changes += last !== index;
      last = index;
      await release();
    }
  }));
  const { user, system } = process.cpuUsage(before);
  return { rate: ((isOneName ? changes : pairs) * 1000) / (performance.now() - began), cpu: (user + system) / pairs };
}

function quartiles(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return [0.25, 0.5, 0.75].map((part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]);
}

function ratio(ours, theirs) {
  const [low, middle, high] = quartiles(ours.map((value, index) => value / theirs[index]));
  return `${middle.toFixed(2).padStart(8)}  (${low.toFixed(2)} to ${high.toFixed(2)})`;
}

async function compare(title, tasks, isOneName) {
  const found = Object.fromEntries(Object.keys(contenders).map((name) => [name, []]));
  for (let round = 0; round < Number(rounds); round += 1) {
    for (const [name, take] of Object.entries(contenders)) found[name].push(await measure(take, tasks, isOneName));
  }
  console.log(`\n${title.padEnd(44)}  in a second  CPU, us   holdfast to it: in a second, CPU (quartiles)`);
  const of = (name, key) => found[name].map((each) => each[key]);
  for (const name of Object.keys(contenders)) {
    const line = `  ${name.padEnd(42)} ${quartiles(of(name, 'rate'))[1].toFixed(1).padStart(12)} ${quartiles(of(name, 'cpu'))[1].toFixed(1).padStart(8)}`;
    console.log(name === 'holdfast' ? line : line + ratio(of('holdfast', 'rate'), of(name, 'rate')) + ratio(of('holdfast', 'cpu'), of(name, 'cpu')));
  }
}

(async () => {
  await compare('pairs, one at a time', 1, false);
  await compare(`pairs, ${TASKS} at a time, each with its own name`, TASKS, false);
  await compare(`changes of the holder, ${TASKS} at a time, one name`, TASKS, true);
  await client.close();
  redis.disconnect();
})();
