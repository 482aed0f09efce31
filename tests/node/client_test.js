'use strict';
// What the Node package does beyond every binding: its event loop, its processes and threads, and what it exports.
const assert = require('node:assert');
const { createHook } = require('node:async_hooks');
const { spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { Worker } = require('node:worker_threads');
const { once } = require('node:events');
const { PACKAGE, main, newUrl, pathOf, sleep, test, within } = require('./harness');

const holdfast = require(PACKAGE);
const PAIRS = Number(process.env.HOLDFAST_TEST_PAIRS ?? 3000); // 100000: the whole of it

/** A program that uses the package; `lock` is its client. Returns the child. */
function program(source, url = newUrl()) {
  const file = pathOf('program.js');
  fs.writeFileSync(file, `const holdfast = require(${JSON.stringify(PACKAGE)});\nconst client = holdfast.open(${JSON.stringify(url)});\n(async () => {\n${source}\n})();\n`);
  const child = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'inherit'] });
  child.said = '';
  child.stdout.on('data', (data) => { child.said += data; child.emit('said'); });
  return child;
}

async function says(child, text) {
  while (!child.said.includes(text)) await within(Promise.race([once(child, 'said'), once(child, 'close')]), 40000, text);
}

async function isFree(url, name, wait = 20000) {
  const client = holdfast.open(url);
  await (await client.acquire(name, { wait })).release();
  await client.close();
}

/** What `await using` calls at the end. */
function disposeOf(object) { return Symbol.asyncDispose ?? Object.getOwnPropertySymbols(Object.getPrototypeOf(object))[0]; }

test('the event loop goes on while a lock is waited for', async () => {
  const client = holdfast.open(newUrl());
  const other = holdfast.open(newUrl());
  const hold = await client.acquire('x');
  let settled = 0;
  const waiting = Array.from({ length: 20 }, (_, index) => other.acquire('x', index % 2 ? { wait: null } : {}).finally(() => { settled += 1; }));
  let ticks = 0;
  const timer = setInterval(() => { ticks += 1; }, 5);
  for (const ms of [500, 2000, 8000]) if (ticks <= 5) await sleep(ms); // a busy machine gets more time
  clearInterval(timer);
  assert(ticks > 5, `${ticks} ticks`);
  assert.strictEqual(settled, 0);
  await fs.promises.readFile(__filename); // the thread pool is also free
  await hold.release();
  for (const each of waiting) await (await each).release();
  await client.close();
  await other.close();
});

test('a pending wait keeps the program alive, and a lock that is only held does not', async () => {
  let waits;
  for (const wait of [1000, 5000, 20000]) { // Unknown: the store's first answer came too late
    waits = program(`setTimeout(() => console.log('late'), 300).unref();\nawait client.acquire('x');\nawait client.acquire('x', { wait: ${wait} }).catch((error) => console.log(error.name));`);
    await within(once(waits, 'close'));
    if (!waits.said.includes('Unknown')) break;
  }
  assert.strictEqual(waits.said, 'late\nTimeout\n');
  const holds = program("await client.acquire('y');\nconsole.log('held');");
  const [code] = await within(once(holds, 'close'));
  assert.deepStrictEqual([code, holds.said], [0, 'held\n']);
});

// On a server: the embedded store would free the locks of a dead process anyway.
test('a program that ends releases its locks, however it ends', async () => {
  for (const end of ['', 'process.exit(3);', 'client.close();\nprocess.exit(3);', "process.on('uncaughtException', () => process.exit(1));\nthrow new Error('expected');"]) {
    const child = program(`await client.acquire('x', { ttl: 60000 });\nconsole.log('held');\n${end}`);
    await within(once(child, 'close'));
    assert.match(child.said, /held/);
    await isFree(newUrl(), 'x'); // long before the lease would end
  }
});

test('the lock of a program that is killed is free for the next', async () => {
  const child = program("await client.acquire('killed', { ttl: 3000 });\nconsole.log('held');\nsetInterval(() => {}, 1000);");
  await says(child, 'held');
  child.kill('SIGKILL');
  await isFree(newUrl(), 'killed');
});

test('a signal that is aborted before or after the grant leaves nothing held', async () => {
  const client = holdfast.open(newUrl());
  await assert.rejects(client.acquire('x', { signal: AbortSignal.abort(new Error('no')) }), /no/);
  for (let i = 0; i < 50; i += 1) {
    const abort = new AbortController();
    const asked = client.acquire('x', { signal: abort.signal });
    setTimeout(() => abort.abort(), i / 25);
    const hold = await asked.catch((error) => { assert.strictEqual(error.name, 'AbortError'); });
    await hold?.release();
  }
  await (await client.acquire('x', { wait: 10000 })).release();
  await client.close();
});

test('who begins to listen after the loss is told as well', async () => {
  const client = holdfast.open('memory:');
  const hold = await client.acquire('x', { ttl: 100, renew: false });
  await sleep(300);
  const error = await within(new Promise((resolve) => { hold.on('lost', resolve); }));
  assert(error instanceof holdfast.Lost);
  assert.match(error.message, /not renewed for/);
  assert.throws(() => hold.check(), holdfast.Lost);
  await client.close();
});

test('each listener is told of a loss once, however it came to listen', async () => {
  const client = holdfast.open('memory:');
  const holds = await Promise.all(['x', 'y'].map((name) => client.acquire(name, { ttl: 100, renew: false })));
  const told = [];
  const listen = (hold, how) => new Promise((resolve) => { hold[how]('lost', () => { told.push(`${hold.name} ${how}`); resolve(); }); });
  await within(Promise.all(holds.map((hold, index) => new Promise((resolve) => {
    hold.on('lost', () => resolve(listen(holds[1 - index], 'on'))); // both are lost at the same moment
  }))));
  for (const how of ['once', 'addListener', 'prependListener']) await within(listen(holds[0], how));
  await sleep(0);
  assert.deepStrictEqual(told.sort(), ['x addListener', 'x on', 'x once', 'x prependListener', 'y on']);
  await client.close();
});

test('a lock that was lost fails when it is disposed of, and in lock() unless that is ignored', async () => {
  const client = holdfast.open('memory:');
  const lose = (hold) => within(new Promise((resolve) => { hold.on('lost', resolve); }));
  const options = { ttl: 100, renew: false };
  const hold = await client.acquire('x', options);
  await lose(hold);
  await assert.rejects(hold[disposeOf(hold)](), holdfast.Lost);
  await assert.rejects(client.lock('x', options, lose), holdfast.Lost);
  await client.lock('x', { ...options, ignoreLoss: true }, lose);
  await assert.rejects(client.lock('x', undefined, async ({ token }) => client.breakHold('x', token)), holdfast.Lost);
  await client.close();
});

test('what a listener throws is an uncaught exception, and the other locks go on', async () => {
  const child = spawnSync(process.execPath, ['-e', `
    const client = require(${JSON.stringify(PACKAGE)}).open('memory:');
    process.on('uncaughtException', (error) => console.log('uncaught', error.message));
    (async () => {
      const hold = await client.acquire('x');
      hold.on('lost', () => { throw new Error('mine'); });
      const waiting = client.acquire('x');
      await client.breakHold('x', hold.token);
      await (await waiting).release();
      await client.close();
      console.log('closed');
    })();`], { encoding: 'utf8' });
  assert.deepStrictEqual(child.stdout.split('\n').sort(), ['', 'closed', 'uncaught mine']);
});

test('closing ends what is pending, also from a listener', async () => {
  const client = holdfast.open('memory:');
  const [hold, doomed] = [await client.acquire('x'), await client.acquire('y')];
  const waiting = client.acquire('x');
  let closed;
  const asked = new Promise((resolve) => {
    doomed.on('lost', () => {
      closed = [client.close(), client.close()];
      resolve(Promise.allSettled([hold.renew(), client.inspect('x'), waiting]));
    });
  });
  await assert.rejects(client.acquire('', { wait: 0 }), holdfast.BadName);
  client.breakHold('y', doomed.token).catch(() => {});
  for (const { reason } of await within(asked)) {
    assert(reason instanceof holdfast.Closed, reason?.stack);
    assert.match(reason.message, /has been closed/);
  }
  await within(Promise.all(closed));
  await assert.rejects(hold.release(), holdfast.Closed);
  assert.throws(() => hold.check(), holdfast.Closed);
});

test('a hold that nobody refers to is still held', async () => {
  const child = spawn(process.execPath, ['--expose-gc', '-e', `
    const client = require(${JSON.stringify(PACKAGE)}).open('memory:');
    (async () => {
      await client.acquire('x');
      for (let i = 0; i < 5; i += 1) { gc(); await new Promise((resolve) => setTimeout(resolve, 20)); }
      await client.acquire('x', { wait: 0 }).catch((error) => console.log(error.code));
    })();`], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [said] = await within(once(child.stdout, 'data'));
  assert.strictEqual(String(said), 'HF_BUSY\n');
});

test('a hold that is over can be collected, and one that is not keeps its lock', async () => {
  const child = spawnSync(process.execPath, ['--expose-gc', '-e', `
    const holdfast = require(${JSON.stringify(PACKAGE)});
    const alive = setInterval(() => {}, 1000);
    let collected = 0;
    const registry = new FinalizationRegistry(() => { collected += 1; });
    const gone = async (count) => {
      for (let i = 0; i < 1000 && collected < count; i += 1) { gc(); await new Promise((resolve) => setTimeout(resolve, 10)); }
    };
    (async () => {
      await holdfast.open('memory:').acquire('forgotten');
      const client = holdfast.open('memory:');
      for (let i = 0; i < 50; i += 1) {
        const hold = await client.acquire('x', i % 10 === 1 ? { ttl: 100, renew: false } : {});
        hold.on('lost', () => {});
        registry.register(hold);
        if (i % 10 === 1) await new Promise((resolve) => hold.once('lost', resolve));
        else await hold.release();
      }
      const last = holdfast.open('memory:');
      registry.register(await last.acquire('last'));
      await last.close();
      await gone(51);
      await client.acquire('forgotten', { wait: 0 }).catch((error) => console.log(collected, error.code));
      clearInterval(alive);
    })();`], { encoding: 'utf8' });
  assert.strictEqual(child.stdout, '51 HF_BUSY\n');
});

test('worker threads have clients of their own, also when they are terminated', async () => {
  const url = newUrl();
  const source = `
    const { parentPort } = require('node:worker_threads');
    const client = require(${JSON.stringify(PACKAGE)}).open(${JSON.stringify(url)});
    (async () => {
      for (let i = 0; i < 20; i += 1) await client.lock('x', (hold) => parentPort.postMessage(hold.token));
      await client.acquire('kept');
      parentPort.postMessage('done');
      setInterval(() => {}, 1000);
    })();`;
  const tokens = [];
  for (let round = 0; round < 2; round += 1) {
    const workers = Array.from({ length: 2 }, (_, index) => new Worker(round ? source : source.replace("'kept'", `'kept${index}'`), { eval: true }));
    const done = workers.map((worker) => new Promise((resolve, reject) => {
      worker.on('error', reject);
      worker.on('message', (message) => (message === 'done' ? resolve() : tokens.push(message)));
    }));
    await (round ? Promise.race(done) : Promise.all(done)); // of those that want the same lock, one has it
    await Promise.all(workers.map((worker) => worker.terminate()));
  }
  assert(tokens.length >= 60 && new Set(tokens).size === tokens.length, `${tokens.length} tokens`);
  for (const name of ['kept', 'kept0', 'kept1']) await isFree(url, name);
});

test('a worker that is terminated while it closes its client waits for that', async () => {
  const url = newUrl();
  for (let i = 0; i < 5; i += 1) {
    const worker = new Worker(`
      const client = require(${JSON.stringify(PACKAGE)}).open(${JSON.stringify(url)});
      client.acquire('closing').then(() => {
        client.acquire('closing').catch(() => {});
        client.close();
        require('node:worker_threads').parentPort.postMessage('closing');
        for (;;);
      });`, { eval: true });
    await within(once(worker, 'message'));
    await within(worker.terminate());
    await isFree(url, 'closing', 0);
  }
});

test('memory and descriptors do not grow with the number of locks', async () => {
  const child = spawnSync(process.execPath, ['--expose-gc', '-e', `
    const fs = require('node:fs');
    const client = require(${JSON.stringify(PACKAGE)}).open('memory:');
    const state = () => { gc(); return { rss: process.memoryUsage().rss, fds: fs.readdirSync('/proc/self/fd').length }; };
    (async () => {
      const pairs = async (count) => { for (let i = 0; i < count; i += 1) { const hold = await client.acquire('x' + i % 10); hold.on('lost', () => {}); await hold.release(); } };
      await pairs(${PAIRS});
      const before = state();
      await pairs(${PAIRS});
      const after = state();
      console.log(JSON.stringify({ grown: after.rss - before.rss, fds: after.fds - before.fds }));
    })();`], { encoding: 'utf8' });
  const { grown, fds } = JSON.parse(child.stdout);
  assert.strictEqual(fds, 0);
  assert(grown < 16 * 1024 * 1024, `${grown} bytes more after ${PAIRS} pairs`);
});

test('a client that is closed leaves nothing behind in the loop', async () => {
  const contexts = new Set();
  const hook = createHook({
    init(id, type) { if (type === 'holdfast') contexts.add(id); },
    destroy(id) { contexts.delete(id); },
  }).enable();
  const client = holdfast.open('memory:');
  assert.strictEqual(contexts.size, 1);
  await (await client.acquire('x')).release();
  await client.close();
  for (let left = 1000; left > 0 && contexts.size > 0; left -= 1) await sleep(10);
  hook.disable();
  assert.strictEqual(contexts.size, 0);
});

test('import has all that require has, and the types name it', async () => {
  const imported = await import(path.join(PACKAGE, 'index.mjs'));
  const names = Object.keys(holdfast).sort();
  assert.deepStrictEqual(Object.keys(imported).filter((name) => name !== 'default').sort(), names);
  const types = fs.readFileSync(path.join(PACKAGE, 'index.d.ts'), 'utf8');
  const declared = [...types.matchAll(/^export (?:class|function|const) (\w+)/gm)].map((match) => match[1]).sort();
  assert.deepStrictEqual(declared, names);
  for (const kind of ['Client', 'Hold', 'Counter']) {
    const body = new RegExp(`^export class ${kind} [^]*?^}`, 'm').exec(types)[0];
    const members = Object.getOwnPropertyNames(holdfast[kind].prototype).filter((name) => name !== 'constructor').sort();
    const typed = new Set([...body.matchAll(/^ {2}(?:readonly )?(\w+)/gm)].map((match) => match[1]));
    for (const member of members) assert(typed.has(member), `${kind}.${member} has no type`);
  }
});

test('the versions agree', () => {
  const { version } = JSON.parse(fs.readFileSync(path.join(PACKAGE, 'package.json'), 'utf8'));
  assert.strictEqual(version, holdfast.version);
});

test('a hold and a client can be disposed of', async () => {
  const client = holdfast.open('memory:');
  const hold = await client.acquire('x');
  const dispose = disposeOf(hold);
  await hold[dispose]();
  assert.throws(() => hold.check(), holdfast.Released);
  await client[dispose]();
  await assert.rejects(client.acquire('x'), holdfast.Closed);
});

test('what C would cut or round is refused', async () => {
  const client = holdfast.open('memory:');
  const hold = await client.acquire('x');
  for (const options of [
    { permits: 1, capacity: 2 ** 32 + 2 }, { permits: 1.5, capacity: 3 }, { permits: -1, capacity: 3 }, { permits: '1', capacity: 3 },
    { permits: NaN, capacity: 3 }, { label: 'a\0b' }, { reentrant: true, ownerKey: 1.5 }, { reentrant: true, ownerKey: 2 ** 53 },
    { minLeft: Infinity }, { wait: NaN }, { wait: -1 }, { ttl: NaN }, { ttl: null },
  ]) await assert.rejects(client.acquire('y', options), holdfast.BadArgument, JSON.stringify(options));
  for (const [token, reason] of [[hold.token - 0.5], [-1], [2 ** 53], [String(hold.token)], [hold.token, 'a\0b']]) {
    await assert.rejects(client.breakHold('x', token, reason), holdfast.BadArgument, String([token, reason]));
  }
  await assert.rejects(client.limit('z', { rate: 2 ** 32 + 1, window: 1000 }), holdfast.BadArgument);
  await assert.rejects(client.acquire('y', { label: 'l'.repeat(256) }), holdfast.BadArgument);
  await assert.rejects(client.acquire('n'.repeat(256)), holdfast.BadName);
  await assert.rejects(client.acquire('y', { ttl: 2 ** 40 }), holdfast.BadLease);
  hold.check();
  await client.close();
  const open = (url, options) => () => holdfast.open(url, options);
  assert.throws(open('memory:\0x'), holdfast.BadArgument);
  assert.throws(open('memory:', { tokenFloor: 1.5 }), holdfast.BadArgument);
  assert.throws(open('memory:', { command: 'a\0b' }), holdfast.BadArgument);
  assert.throws(open('memory:', { maxLease: 2 ** 31 }), holdfast.BadArgument);
});

test('what would be ignored is refused, before anything is acquired', async () => {
  const client = holdfast.open('memory:');
  const refused = (promise, message) => assert.rejects(promise, { name: 'BadArgument', message });
  await refused(client.acquire('a', { timeout: 5000 }), /"timeout"/);
  await refused(client.lock('a', { waits: 0 }, () => {}), /"waits"/);
  await refused(client.acquire(['a', { name: 'b', share: true }]), /"share"/);
  await refused(client.limit('a', { rate: 1, window: 1000, ttl: 5 }), /"ttl"/);
  await refused(client.counter('a').add(1, { ttl: 5 }), /"ttl"/);
  assert.throws(() => holdfast.open('memory:', { lease: 5 }), /"lease"/);
  await refused(client.acquire('a', 5000), /they are an object/);
  await refused(client.lock('a', 5000, () => {}), /they are an object/);
  await refused(client.lock('a'), /a function/);
  await refused(client.lock('a', { wait: 0 }), /a function/);
  await refused(client.acquire('a', { shared: true, permits: 1, capacity: 2 }), /not both/);
  await refused(client.acquire('a', { wait: '5' }), /'5'/);
  assert.strictEqual(await client.inspect('a'), null);
  await client.lock('a', { ignoreLoss: true }, (hold) => assert.throws(() => hold.fenceSql('oracle'), /'oracle'; it is postgres, mysql, sqlite/));
  await client.close();
});

test('only a client makes holds', () => {
  assert.throws(() => new holdfast.Hold(), holdfast.BadArgument);
  assert.throws(() => new holdfast.Hold(['a'], () => {}, () => {}), holdfast.BadArgument);
  assert.deepStrictEqual(Object.getOwnPropertyNames(holdfast.Hold).sort(), ['length', 'name', 'prototype']);
});

test('each error has a text of its own', async () => {
  const client = holdfast.open('memory:');
  for (const names of [[], Array.from({ length: 65 }, (_, index) => String(index))]) {
    await assert.rejects(client.acquire(''), /1 to 255 bytes/);
    await assert.rejects(client.acquire(names), { name: 'BadArgument', message: /1 to 64 names/ });
  }
  await client.close();
});

test('an error that is newer than the addon is an error, too', () => {
  const older = pathOf('older.js');
  fs.writeFileSync(older, `const addon = require(${JSON.stringify(process.env.HOLDFAST_ADDON ?? path.join(PACKAGE, 'holdfast.node'))});
    const { '-1': busy, ...errors } = addon.errors;
    module.exports = { ...addon, errors };`);
  const child = spawnSync(process.execPath, ['-e', `
    const { open, HoldfastError } = require(${JSON.stringify(PACKAGE)});
    const client = open('memory:');
    client.acquire('x').then(() => client.acquire('x', { wait: 0 })).catch((error) => console.log(error instanceof HoldfastError, error.message));`],
  { encoding: 'utf8', env: { ...process.env, HOLDFAST_ADDON: older } });
  assert.strictEqual(child.stdout, 'true the lock is held by somebody else: "x"\n');
});

test('errors of opening are thrown', () => {
  assert.throws(() => holdfast.open('nosuch://x'), holdfast.NoStore);
  assert.throws(() => holdfast.open(17), holdfast.BadArgument);
  assert.throws(() => holdfast.open('memory:', { maxLease: 'long' }), holdfast.BadArgument);
});

main();
