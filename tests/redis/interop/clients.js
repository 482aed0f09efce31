// The locks of npm packages: clients.js PACKAGE PORT. See interop_test.py for the lines that it reads and writes.
"use strict";
const readline = require("node:readline");
const Redis = require("ioredis");
const { LostLockError, Mutex } = require("redis-semaphore");

const [packageName, port] = process.argv.slice(2);
const client = new Redis({ port: Number(port) });
client.on("error", (error) => {
    console.error(String(error));
    process.exit(1);
});

// Redlock on one server. Version 4 calls `unlock` what version 5 calls `release`.
class RedlockClient {
    constructor(exported) {
        const Redlock = exported.default || exported;
        this.once = new Redlock([client], { retryCount: 0 });
        this.patient = new Redlock([client], { retryCount: -1 });
    }
    async take(redlock, key, ttl) {
        this.lock = await redlock.acquire([key], ttl);
        this.lock.redlock = this.once; // later calls are not repeated
    }
    acquire(key, ttl) {
        return this.take(this.once, key, ttl);
    }
    wait(key, ttl) {
        return this.take(this.patient, key, ttl);
    }
    async extend(ttl) {
        this.lock = await this.lock.extend(ttl);
    }
    async release() {
        await (this.lock.release || this.lock.unlock).call(this.lock);
    }
}

// redis-semaphore puts "mutex:" before the name, and renews automatically.
class MutexClient {
    async take(key, ttl, options) {
        const name = key.replace(/^mutex:/, "");
        this.mutex = new Mutex(client, name, { lockTimeout: ttl, refreshInterval: 100, onLockLost() {}, ...options });
        await this.mutex.acquire();
    }
    acquire(key, ttl) {
        return this.take(key, ttl, { acquireAttemptsLimit: 1 });
    }
    wait(key, ttl) {
        return this.take(key, ttl, { acquireTimeout: 3600000 });
    }
    async extend() {
        if (!this.mutex.isAcquired) throw new LostLockError();
    }
    release() {
        return this.mutex.release();
    }
}

async function main() {
    const isMutex = packageName === "redis-semaphore";
    const locks = isMutex ? new MutexClient() : new RedlockClient(require(packageName));
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const [word, ...rest] = line.split(" ");
        try {
            await locks[word](...rest.map((text) => (/^\d+$/.test(text) ? Number(text) : text)));
            console.log("yes");
        } catch (error) {
            if (!/Execution|Lock|Timeout/.test(error.constructor.name)) throw error;
            console.log("no");
        }
    }
    process.exit(0);
}

main();
