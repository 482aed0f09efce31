'use strict';
// What every binding does (tests/bindings/behaviours.json): behaviours_test.js URL. "sqlite:" stands for a fresh file.
const assert = require('node:assert');
const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const { PACKAGE, PATIENCE_MS, ROOT, main, newUrl, sleep, test, within } = require('./harness');

const holdfast = require(PACKAGE);

const URL = process.argv[2];
const HAS = new Set(['cancel']);
const TIMES = new Set(['wait', 'ttl', 'need', 'expiry', 'window']); // the table has seconds
const WORDS = { owner_key: 'ownerKey', ignore_loss: 'ignoreLoss', break_hold: 'breakHold', fence_token: 'fenceToken', broken_reason: 'brokenReason' };
// The arguments of calls that have more than options; the rest are options.
const ORDER = {
  acquire: ['names'], limit: ['name'], inspect: ['name'], breakHold: ['name', 'token', 'reason'], check: ['need'], renew: ['ttl'],
  add: ['number'], swap: ['number'], cas: ['expected', 'number'],
};

const word = (name) => WORDS[name] ?? name;

// JSON.parse would round numbers above 2^53, so they are read as texts such as "9223372036854775807n".
const unwrap = (value) => (/^\d+n$/.test(value) ? BigInt(value.slice(0, -1)) : value);
const table = fs.readFileSync(path.join(ROOT, 'tests/bindings/behaviours.json'), 'utf8').replace(/\b\d{17,}\b/g, '"$&n"');

class Player {
  clients = new Map();
  kept = new Map();
  lost = new Map();
  begun = new Map();
  prefix = `${crypto.randomBytes(4).toString('hex')}/`;

  constructor(url) { this.url = url; }

  client(number) {
    if (!this.clients.has(number)) this.clients.set(number, holdfast.open(this.url));
    return this.clients.get(number);
  }

  prefixed(name) {
    if (typeof name === 'object') return { ...name, name: this.prefixed(name.name) };
    return name && this.prefix + name;
  }

  arguments(given = {}) {
    return Object.fromEntries(Object.entries(given).map(([key, value]) => {
      if (key === 'name' || key === 'names') return [key, Array.isArray(value) ? value.map((name) => this.prefixed(name)) : this.prefixed(value)];
      if (value?.of) return [key, this.kept.get(value.of).token];
      return [word(key), TIMES.has(key) ? value * 1000 : unwrap(value)];
    }));
  }

  /** Calls what the step names. */
  call(step) {
    const given = this.arguments(step.with);
    let [name, method] = step.call.split('.');
    let subject = step.hold ? this.kept.get(step.hold) : this.client(step.client);
    if (method) {
      subject = subject[name](given.name);
      delete given.name;
      name = method;
    }
    name = word(name);
    const words = (ORDER[name] ?? []).map((key) => given[key]);
    const options = Object.fromEntries(Object.entries(given).filter(([key]) => !(ORDER[name] ?? []).includes(key)));
    return subject[name](...words, ...(Object.keys(options).length ? [options] : []));
  }

  keep(name, result) {
    this.kept.set(name, result);
    if (result instanceof holdfast.Hold) this.lost.set(name, new Promise((resolve) => { result.on('lost', resolve); }));
  }

  /** Of an object, compares only the fields that are given. */
  same(actual, expected) {
    if (expected?.of) return this.same(actual, this.kept.get(expected.of).token);
    if (Array.isArray(expected)) return actual.length === expected.length && expected.every((each, index) => this.same(actual[index], each));
    if (expected && typeof expected === 'object') return Object.entries(expected).every(([key, value]) => this.same(actual[word(key)], value));
    return actual === unwrap(expected);
  }

  async expect(step, start) {
    let result;
    try {
      result = await within(Promise.resolve().then(start), PATIENCE_MS, JSON.stringify(step));
    } catch (error) {
      assert(error instanceof holdfast.HoldfastError, error.stack);
      assert.strictEqual(error.code, `HF_${step.fails}`, `${JSON.stringify(step)}: ${error.message}`);
      assert(this.same(error, step.error ?? {}), `${JSON.stringify(step)}: ${JSON.stringify(error)}`);
      return;
    }
    assert(!step.fails, `${JSON.stringify(step)} succeeded`);
    if ('returns' in step) assert(this.same(result, step.returns), `${JSON.stringify(step)}: ${String(result)}`);
    if (step.as) this.keep(step.as, result);
  }

  async waitForQueue(name, length) {
    for (let left = PATIENCE_MS; left > 0; left -= 20) {
      const found = await this.client('looks').inspect(this.prefixed(name));
      if ((found?.waiters.length ?? 0) === length) return;
      await sleep(20);
    }
    assert.fail(`not ${length} wait for ${name}`);
  }

  runBlock(step) {
    const { names, ...options } = this.arguments(step.with);
    return this.client(step.client).lock(names, options, async (hold) => {
      this.keep(step.as, hold);
      await this.play(step.block);
      return hold;
    });
  }

  begin(step) {
    const abort = new AbortController();
    const with_ = { ...this.arguments(step.with), signal: abort.signal };
    const { names, ...options } = with_;
    const promise = this.client(step.client).acquire(names, options);
    promise.catch(() => {});
    this.begun.set(step.begin, { promise, abort });
  }

  async play(steps) {
    for (const step of steps) {
      if (step.begin) this.begin(step);
      else if (step.call) await this.expect(step, () => this.call(step));
      else if (step.block) await this.expect(step, () => this.runBlock(step));
      else if (step.end) {
        const { promise } = this.begun.get(step.end);
        this.begun.delete(step.end);
        await this.expect(step, () => promise);
      } else if (step.cancel) {
        const { promise, abort } = this.begun.get(step.cancel);
        this.begun.delete(step.cancel);
        abort.abort();
        await assert.rejects(promise, { name: 'AbortError' });
      } else if (step.queue) await this.waitForQueue(step.queue, step.of);
      else if (step.lost) await within(this.lost.get(step.lost), PATIENCE_MS, JSON.stringify(step));
      else if (step.pass) await sleep(step.pass * 1000);
      else if (step.larger) assert(this.kept.get(step.larger[0]).token > this.kept.get(step.larger[1]).token, JSON.stringify(step));
      else assert.fail(`no such step: ${JSON.stringify(step)}`);
    }
  }

  async run(steps) {
    try {
      await this.play(steps);
      assert.strictEqual(this.begun.size, 0);
    } finally {
      for (const client of this.clients.values()) await client.close();
    }
  }
}

for (const { behaviour, needs = [], steps } of JSON.parse(table).behaviours) {
  if (needs.every((need) => HAS.has(need))) test(behaviour, () => new Player(URL === 'sqlite:' ? newUrl() : URL).run(steps));
}
main();
