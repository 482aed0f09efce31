// npm's locks and the Node package, for bench/languages.c and bench/quorum.c: npm_locks.js URL PORT... With one port they
// lock on one server, with more on a set. See bench/process.h for what it reads and answers. URL is that of holdfast's
// store; without one ("-") only npm's locks are there.
'use strict';
const readline = require('node:readline');
const Redis = require('ioredis');
const { Mutex, RedlockMutex } = require('redis-semaphore');
const Redlock = require('redlock').default;

const LEASE_MS = 2000; // what a release left behind is waited for by all others
const NODE_TIMEOUT_MS = 50; // as holdfast's on a set; without one, a server that hangs would be waited for for ever
const [url, ...ports] = process.argv.slice(2);
const isSet = ports.length > 1;
const client = url === '-' ? null : require('../../bindings/node').open(url);

// A contender has connections of its own, to all servers.
function connect() {
  const options = isSet ? { commandTimeout: NODE_TIMEOUT_MS } : {};
  return ports.map((port) => new Redis({ port: Number(port), ...options }).on('error', () => {}));
}

// Each returns a function that acquires, whose result is one that releases.
const kinds = {
  holdfast: () => async (name) => {
    const hold = await client.acquire(name, { ttl: LEASE_MS });
    return () => hold.release();
  },
  redlock() {
    const redlock = new Redlock(connect()).on('error', () => {}); // it gives up after 10 retries
    return async (name) => {
      const lock = await redlock.acquire([`redlock:${name}`], LEASE_MS);
      return () => lock.release();
    };
  },
  'redis-semaphore'() {
    const servers = connect();
    const options = { lockTimeout: LEASE_MS, acquireTimeout: LEASE_MS, onLockLost: () => {} };
    return async (name) => {
      const mutex = isSet ? new RedlockMutex(servers, name, options) : new Mutex(servers[0], name, options);
      await mutex.acquire();
      return () => mutex.release();
    };
  },
};

const contenders = { holdfast: [], redlock: [], 'redis-semaphore': [] };
const microseconds = (from) => Number(process.hrtime.bigint() - from) / 1000;

async function contend(measure, what, count, ms) {
  const own = contenders[what];
  while (own.length < count) own.push(kinds[what]());
  const times = [];
  let last = -1;
  let changes = 0;
  const began = process.hrtime.bigint();
  const before = process.cpuUsage();
  await Promise.all(own.slice(0, count).map(async (acquire, index) => {
    do {
      const asked = process.hrtime.bigint();
      const release = await acquire(measure === 'changes' ? `one-${count}` : `own-${index}`).catch(() => null);
      if (!release) continue; // it gave up
      if (last !== index) changes += 1;
      last = index;
      await release().catch(() => {}); // fewer than a majority answered: the lease ends it
      times.push(microseconds(asked));
    } while (microseconds(began) < ms * 1000);
  }));
  const seconds = microseconds(began) / 1e6;
  const { user, system } = process.cpuUsage(before);
  const values = { pairs: times.length / seconds, changes: changes / seconds, cpu: (user + system) / times.length };
  return [values[measure], ...times.map((us) => us.toFixed(1))].join(' ');
}

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [measure, what, count, ms] = line.split(' ');
    console.log(await contend(measure, what, Number(count), Number(ms)));
  }
  process.exit(0);
})();
