'use strict';
// holdfast for Node: promises and exceptions over addon.c. Times are in milliseconds. The header of the library is the
// manual; index.d.ts says what is here.
const { EventEmitter } = require('node:events');
const { inspect } = require('node:util');
const native = require(process.env.HOLDFAST_ADDON || './holdfast.node');

// ---- Errors ----

// Whatever the library reports. `code` is the name that C has for it: "HF_BUSY".
class HoldfastError extends Error {}

const errors = {}; // by their names in JavaScript: Busy, NotYours, ...
const numbers = {};
for (const [number, [name, sentence]] of Object.entries(native.errors)) {
  const title = name.toLowerCase().replace(/(^|_)(.)/g, (_, __, letter) => letter.toUpperCase());
  errors[title] = class extends HoldfastError {
    constructor(text) { super(text || sentence); }
    get name() { return title; }
    get code() { return `HF_${name}`; }
  };
  Object.defineProperty(errors[title], 'name', { value: title });
  numbers[title] = Number(number);
}
const byNumber = Object.fromEntries(Object.entries(numbers).map(([title, number]) => [number, errors[title]]));

function failure(number, text = native.lastError()) {
  return new (byNumber[number] ?? HoldfastError)(text); // a library that is newer than the addon may have more errors
}

function must(result) {
  if (typeof result === 'number' && result < 0) throw failure(result);
  return result;
}

// ---- Arguments ----

const NAMES_MOST = 64;
const UINT32_MAX = 2 ** 32 - 1;
const KINDS = { exclusive: 1, shared: 2, permits: 3 };
const FLAGS = { barge: 0x1, reentrant: 0x2, noRenew: 0x4, keep: 0x8 };
const DIALECTS = { postgres: 1, mysql: 2, sqlite: 3 };
const OPS = { get: 1, add: 2, swap: 3, cas: 4, remove: 5 };

function whole(value, what) {
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new errors.BadArgument(`${what} cannot be ${inspect(value)}; it is a number`);
  return Math.ceil(value);
}

// Milliseconds; null and undefined stand for no limit.
function limited(ms, what) {
  if (ms === undefined || ms === null || ms === Infinity) return -1;
  if (ms < 0) throw new errors.BadArgument(`${what} cannot be ${ms}; it is 0 or more, or null for no limit`);
  return whole(ms, what);
}

// What is not rounded: how many, or which.
function natural(value, what, most = Number.MAX_SAFE_INTEGER) {
  if (!Number.isInteger(value) || value < 0 || value > most) throw new errors.BadArgument(`${what} cannot be ${inspect(value)}; it is a whole number from 0 to ${most}`);
  return value;
}

// Of a counter.
function integer(value, what) {
  const isWhole = typeof value === 'bigint' ? BigInt.asIntN(64, value) === value : Number.isSafeInteger(value);
  if (!isWhole) throw new errors.BadArgument(`${what} cannot be ${inspect(value)}; it is a whole number, and a BigInt of 64 bits above 2^53`);
  return BigInt(value);
}

function named(name) {
  if (typeof name !== 'string') throw new errors.BadArgument(`a name cannot be ${inspect(name)}; it is a string`);
  if (name.includes('\0')) throw new errors.BadName();
  return name;
}

function textOrNone(value, what) {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'string' || value.includes('\0')) throw new errors.BadArgument(`${what} cannot be ${inspect(value)}; it is a string without NUL`);
  return value;
}

// What is misspelt would be ignored: `timeout` would wait for ever.
function noOthers(others) {
  const [name] = Object.keys(others);
  if (name !== undefined) throw new errors.BadArgument(`there is no option "${name}"`);
}

function object(options) {
  if (typeof options !== 'object' || options === null) throw new errors.BadArgument(`the options cannot be ${inspect(options)}; they are an object`);
  return options;
}

// What addon.c takes for one name: [name, kind, permits, capacity].
function wanted({ name, shared = false, permits, capacity, ...others }) {
  noOthers(others);
  if ((permits === undefined) !== (capacity === undefined)) throw new errors.BadArgument('permits and capacity belong together');
  if (shared && permits !== undefined) throw new errors.BadArgument('a lock is shared or has permits, not both');
  const kind = shared ? KINDS.shared : permits !== undefined ? KINDS.permits : KINDS.exclusive;
  return [named(name), kind, natural(permits ?? 1, 'permits', UINT32_MAX), natural(capacity ?? 1, 'capacity', UINT32_MAX)];
}

// With several names, each says for itself what is wanted of it.
function wantedOf(names, { shared, permits, capacity, ...others }) {
  noOthers(others);
  if (!Array.isArray(names)) return [wanted({ name: names, shared, permits, capacity })];
  if (shared || permits !== undefined || capacity !== undefined) throw new errors.BadArgument('with several names, each says what is wanted: { name, shared }');
  if (names.length < 1 || names.length > NAMES_MOST) throw new errors.BadArgument(`1 to ${NAMES_MOST} names can be acquired together, not ${names.length}`);
  return names.map((name) => wanted(typeof name === 'string' ? { name } : name));
}

// ---- Requests ----

// Starts a request and promises its value. `start` gets a callback and returns a call, or the number of an error. A signal
// cancels the call.
function request(start, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => native.cancel(call);
    const call = start((number, text, value) => {
      signal?.removeEventListener('abort', abort);
      if (number >= 0) resolve(value);
      else if (number === numbers.Cancelled && signal?.aborted) reject(signal.reason);
      else reject(Object.assign(failure(number, text), value && { value }));
    });
    if (typeof call === 'number') throw failure(call);
    signal?.addEventListener('abort', abort);
  });
}

const asyncDispose = Symbol.asyncDispose ?? Symbol('Symbol.asyncDispose');

// ---- The hold ----

const OURS = Symbol('made by a client');
let onLostOf; // what only clients may do with a hold
let grant;

class Hold extends EventEmitter {
  static {
    onLostOf = (hold) => hold.#onLost;
    grant = (hold, handle) => { hold.#handle = handle; };
  }

  #names;
  #open;
  #end;
  #handle = null;
  #loss = null;
  #release = null;

  // What addon.c calls. It refers to this function only weakly, or no hold would ever be collected.
  #onLost = (why) => process.nextTick(() => {
    this.#loss = failure(numbers.Lost, why);
    this.#end();
    this.emit('lost', this.#loss);
  });

  // open: throws if the client was closed. end: is called when the hold has ended.
  constructor(key, names, open, end) {
    if (key !== OURS) throw new errors.BadArgument('only client.acquire() and client.lock() make holds');
    super();
    this.#names = names;
    this.#open = open;
    this.#end = end;
  }

  // Whoever begins to listen after the loss is told as well. EventEmitter's other ways to listen use these.
  on(event, listener) {
    super.on(event, listener);
    return this.#told(event, listener);
  }

  addListener(event, listener) { return this.on(event, listener); }

  prependListener(event, listener) {
    super.prependListener(event, listener);
    return this.#told(event, listener);
  }

  #told(event, listener) {
    if (event === 'lost' && this.#loss) process.nextTick(() => listener.call(this, this.#loss));
    return this;
  }

  #request(start) {
    return request((callback) => {
      this.#open();
      return start(callback);
    });
  }

  get name() { return this.#names[0]; }
  get token() { return native.token(this.#handle, 0); }
  get tokens() { return this.#names.map((_, index) => native.token(this.#handle, index)); }
  get left() { return native.left(this.#handle); }

  check(need = 0) { must(native.check(this.#handle, whole(need, 'need'))); }
  fenceToken() { return must(native.fenceToken(this.#handle)); }

  fenceSql(dialect) {
    if (!Object.hasOwn(DIALECTS, dialect)) throw new errors.BadArgument(`a dialect cannot be ${inspect(dialect)}; it is ${Object.keys(DIALECTS).join(', ')}`);
    return must(native.fenceSql(this.#handle, DIALECTS[dialect]));
  }

  async renew(ttl = 0) { await this.#request((callback) => native.renew(this.#handle, whole(ttl, 'ttl'), callback)); }

  release() {
    this.#release ??= this.#request((callback) => native.release(this.#handle, callback)).finally(this.#end);
    return this.#release;
  }

  [asyncDispose]() { return this.release(); }
}

// ---- The client ----

const clients = new Map(); // those that are open: the handle of each, and its holds. What nobody refers to is still held
process.on('exit', () => [...clients.keys()].forEach(native.end)); // Node does not do that for addons if process.exit() is called

class Client {
  #handle;
  #holds = new Set();
  #closed = null;

  constructor(url, options = {}) {
    const { maxLease = 60000, waitLease = 3000, storeWait = 10000, tokenFloor = 0, command, ...others } = object(options);
    noOthers(others);
    this.#handle = must(native.open(textOrNone(url, 'the URL'), whole(maxLease, 'maxLease'), whole(waitLease, 'waitLease'),
      limited(storeWait, 'storeWait'), natural(tokenFloor, 'tokenFloor'), textOrNone(command, 'command')));
    clients.set(this.#handle, this.#holds);
  }

  #open() {
    if (this.#closed) throw new errors.Closed();
    return this.#handle;
  }

  async acquire(names, options = {}) {
    const { wait, ttl = 30000, minLeft = 0, barge, reentrant, ownerKey = 0, renew = true, keep, label, signal, ...wish } = object(options);
    const wants = wantedOf(names, wish);
    if (Boolean(reentrant) !== ownerKey > 0) throw new errors.BadArgument('reentrant and ownerKey, a number above 0, belong together');
    const flags = (barge ? FLAGS.barge : 0) | (reentrant ? FLAGS.reentrant : 0) | (renew ? 0 : FLAGS.noRenew) | (keep ? FLAGS.keep : 0);
    const hold = new Hold(OURS, wants.map(([name]) => name), () => this.#open(), () => this.#holds.delete(hold));
    const handle = await request((callback) => native.acquire(this.#open(), wants, limited(wait, 'wait'), whole(ttl, 'ttl'),
      whole(minLeft, 'minLeft'), flags, natural(ownerKey, 'ownerKey'), textOrNone(label, 'label'), onLostOf(hold), callback), signal);
    grant(hold, handle);
    if (signal?.aborted) { // it was granted at the same moment, and nobody will use it
      hold.release().catch(() => {});
      throw signal.reason;
    }
    this.#holds.add(hold);
    return hold;
  }

  async lock(names, options = {}, work = undefined) {
    if (typeof options === 'function') return this.lock(names, {}, options);
    if (typeof work !== 'function') throw new errors.BadArgument('lock needs a function, which runs while the lock is held');
    const { ignoreLoss = false, ...others } = object(options);
    const hold = await this.acquire(names, others);
    let result;
    try {
      result = await work(hold);
    } catch (error) {
      await hold.release().catch(() => {}); // what the function threw comes first
      throw error;
    }
    await hold.release().catch((error) => {
      if (!(ignoreLoss && error instanceof errors.Lost)) throw error;
    });
    return result;
  }

  // A permit that is left to its lease: see hf_limit.
  async limit(name, options = {}) {
    const { rate, window, wait, label, signal, ...others } = object(options);
    noOthers(others);
    const hold = await this.acquire(name, { permits: 1, capacity: natural(rate, 'rate'), ttl: whole(window, 'window'), wait, label, signal, renew: false, keep: true });
    this.#holds.delete(hold);
  }

  counter(name) {
    named(name);
    return new Counter((...words) => request((callback) => native.count(this.#open(), name, ...words, callback)));
  }

  async inspect(name) {
    const [found] = await request((callback) => native.inspect(this.#open(), named(name), callback));
    return found ?? null;
  }

  async* list(prefix = '') {
    let page;
    let after;
    while ((page = await request((callback) => native.list(this.#open(), named(prefix), after, callback))).length > 0) {
      yield* page;
      after = page.at(-1).name;
    }
  }

  async breakHold(name, token, reason) {
    await request((callback) => native.breakHold(this.#open(), named(name), natural(token, 'the token'), textOrNone(reason, 'the reason'), callback));
  }

  close() {
    this.#closed ??= new Promise((resolve) => {
      must(native.close(this.#handle, resolve));
      clients.delete(this.#handle);
      this.#holds.clear();
    });
    return this.#closed;
  }

  [asyncDispose]() { return this.close(); }
}

// ---- Counters ----

// A number, or a BigInt if a number would be rounded; null if there is no counter.
function valueOf({ exists, value }) {
  if (!exists) return null;
  return Number.isSafeInteger(Number(value)) ? Number(value) : value;
}

class Counter {
  #count;

  constructor(count) { this.#count = count; }

  async #do(op, { number = 0, expected, expiry = 0, wait = 10000, ...others } = {}) {
    noOthers(others);
    try {
      return await this.#count(OPS[op], integer(number, 'the number'), expected === undefined || expected === null ? undefined : integer(expected, 'what is expected'),
        whole(expiry, 'expiry'), whole(wait, 'wait'));
    } catch (error) {
      if (error.value) error.value = valueOf(error.value); // Mismatch: what it is
      throw error;
    }
  }

  async get(options) { return valueOf(await this.#do('get', options)); }
  async add(number = 1, options = {}) { return valueOf(await this.#do('add', { ...options, number })); }
  async swap(number, options = {}) { return valueOf(await this.#do('swap', { ...options, number })); }
  async cas(expected, number, options = {}) { await this.#do('cas', { ...options, expected, number }); }
  async remove(options) { return valueOf(await this.#do('remove', options)); }

  // Until it expires; null: it does not, or there is none.
  async left(options) {
    const found = await this.#do('get', options);
    return found.exists && found.left >= 0 ? found.left : null;
  }
}

module.exports = {
  open: (url, options) => new Client(url, options),
  Client,
  Hold,
  Counter,
  HoldfastError,
  ...errors,
  fenceRedis: native.fenceRedis,
  version: native.version(),
};
