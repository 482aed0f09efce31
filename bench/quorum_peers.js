// npm's locks on a set of servers, for bench/quorum.c: quorum_peers.js PORT... It reads lines
//
//     PACKAGE CONTENDERS MS
//
// lets so many contend for one lock for a while, and answers each line with one: how often the holder changed, and then
// how long each took, in microseconds: an acquire with its release if nobody contends, else an acquire.
"use strict";
const readline = require("node:readline");
const Redis = require("ioredis");
const { RedlockMutex } = require("redis-semaphore");
const Redlock = require("redlock").default;

const LEASE_MS = 2000; // what a release left behind is waited for by all others
const NODE_TIMEOUT_MS = 50; // as holdfast's; without one, a server that hangs would be waited for for ever
const ports = process.argv.slice(2).map(Number);

// A contender has connections of its own, to all servers.
function connect() {
    return ports.map((port) => new Redis({ port, commandTimeout: NODE_TIMEOUT_MS }).on("error", () => {}));
}

// Each returns a function that acquires, whose result is one that releases.
const packages = {
    redlock() {
        const redlock = new Redlock(connect(), { retryCount: -1 }).on("error", () => {});
        return async (name) => {
            const lock = await redlock.acquire([`redlock:${name}`], LEASE_MS);
            return () => lock.release();
        };
    },
    "redis-semaphore"() {
        const clients = connect();
        return async (name) => {
            const mutex = new RedlockMutex(clients, name, { lockTimeout: LEASE_MS, acquireTimeout: 3600000 });
            await mutex.acquire();
            return () => mutex.release();
        };
    },
};

const contenders = { redlock: [], "redis-semaphore": [] };
const microseconds = (from) => Number(process.hrtime.bigint() - from) / 1000;

async function contend(packageName, count, ms) {
    const own = contenders[packageName];
    while (own.length < count) own.push(packages[packageName]());
    const began = process.hrtime.bigint();
    const took = [];
    let last = -1;
    let changes = 0;
    const one = async (acquire, index) => {
        while (microseconds(began) < ms * 1000) {
            const asked = process.hrtime.bigint();
            const release = await acquire(`peers-${count}`);
            if (count > 1) took.push(microseconds(asked));
            if (last !== index) changes++;
            last = index;
            await release().catch(() => {}); // it was let go by fewer than a majority: the lease ends it
            if (count === 1) took.push(microseconds(asked));
        }
    };
    await Promise.all(own.slice(0, count).map(one));
    return [changes, ...took.map((us) => us.toFixed(1))].join(" ");
}

async function main() {
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const [packageName, count, ms] = line.split(" ");
        console.log(await contend(packageName, Number(count), Number(ms)));
    }
    process.exit(0);
}

main();
