// What is here. The header of the library (holdfast.h) says what each call promises; times are in milliseconds, and null or nothing
// stands for no limit.
import { EventEmitter } from 'node:events';

export interface ClientOptions {
  maxLease?: number;
  waitLease?: number;
  storeWait?: number | null;
  tokenFloor?: number;
  command?: string;
}

/** What is wanted of one name: it alone, together with others, or `permits` out of `capacity`. */
export interface Wanted {
  shared?: boolean;
  permits?: number;
  capacity?: number;
}

export interface AcquireOptions extends Wanted {
  /** 0: try once. */
  wait?: number | null;
  ttl?: number;
  minLeft?: number;
  barge?: boolean;
  /** For an owner that asks again; it needs an ownerKey, since Node has no threads to tell owners apart. */
  reentrant?: boolean;
  ownerKey?: number;
  renew?: boolean;
  keep?: boolean;
  label?: string;
  /** Ends the wait. What was granted at the same moment is given back. */
  signal?: AbortSignal;
}

export interface LockOptions extends AcquireOptions {
  /** Do not fail if the lock was lost while the function ran. */
  ignoreLoss?: boolean;
}

export interface LimitOptions {
  rate: number;
  window: number;
  wait?: number | null;
  label?: string;
  signal?: AbortSignal;
}

export type Names = string | Array<string | (Wanted & { name: string })>;

/** Opens a client. Without a URL: the embedded store of this user on this host. */
export function open(url?: string | null, options?: ClientOptions): Client;

export class Client {
  constructor(url?: string | null, options?: ClientOptions);
  acquire(names: Names, options?: AcquireOptions): Promise<Hold>;
  /** Runs a function while holding the lock, and releases it. Fails with Lost if it was lost meanwhile. */
  lock<T>(names: Names, work: (hold: Hold) => T | Promise<T>): Promise<T>;
  lock<T>(names: Names, options: LockOptions, work: (hold: Hold) => T | Promise<T>): Promise<T>;
  /** Resolves when the caller is let through; fails with Busy or Timeout if it is not. */
  limit(name: string, options: LimitOptions): Promise<void>;
  counter(name: string): Counter;
  inspect(name: string): Promise<LockInfo | null>;
  list(prefix?: string): AsyncGenerator<LockInfo>;
  breakHold(name: string, token: number, reason?: string): Promise<void>;
  /** Releases what is held, and ends what is pending with Closed. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A lock that was granted. Emits "lost" once if it is lost, also to those who begin to listen later. */
export class Hold extends EventEmitter {
  private constructor();
  readonly name: string;
  readonly token: number;
  readonly tokens: number[];
  readonly left: number;
  /** Throws unless the lock is held, with at least `need` left. */
  check(need?: number): void;
  renew(ttl?: number): Promise<void>;
  release(): Promise<void>;
  fenceToken(): number;
  fenceSql(dialect: 'postgres' | 'mysql' | 'sqlite'): string;
  on(event: 'lost', listener: (error: Lost) => void): this;
  addListener(event: 'lost', listener: (error: Lost) => void): this;
  prependListener(event: 'lost', listener: (error: Lost) => void): this;
  once(event: 'lost', listener: (error: Lost) => void): this;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface CountOptions {
  expiry?: number;
  wait?: number;
}

/** A value is a number, or a BigInt if a number would be rounded; null if there is no counter. */
export class Counter {
  private constructor();
  get(options?: CountOptions): Promise<number | bigint | null>;
  add(number?: number | bigint, options?: CountOptions): Promise<number | bigint>;
  swap(number: number | bigint, options?: CountOptions): Promise<number | bigint | null>;
  /** Fails with Mismatch, whose `value` is what the counter is. expected null: there must be none. */
  cas(expected: number | bigint | null, number: number | bigint, options?: CountOptions): Promise<void>;
  remove(options?: CountOptions): Promise<number | bigint | null>;
  left(options?: CountOptions): Promise<number | null>;
}

export interface Party {
  owner: string;
  host: string;
  command: string;
  label: string;
  pid: number;
  token: number;
  weight: number;
  since: number;
  left: number;
}

export interface LockInfo {
  name: string;
  kind: 'exclusive' | 'shared' | 'permits';
  capacity: number;
  token: number;
  holders: Party[];
  waiters: Party[];
  brokenToken: number;
  brokenBy: string;
  brokenReason: string;
}

export class HoldfastError extends Error {
  /** The name that C has for it, "HF_BUSY". */
  readonly code: string;
}
export class Busy extends HoldfastError {}
export class Timeout extends HoldfastError {}
export class Cancelled extends HoldfastError {}
export class Short extends HoldfastError {}
export class Lost extends HoldfastError {}
export class Released extends HoldfastError {}
export class Unknown extends HoldfastError {}
export class NotYours extends HoldfastError {}
export class WrongKind extends HoldfastError {}
export class BadName extends HoldfastError {}
export class BadWeight extends HoldfastError {}
export class BadLease extends HoldfastError {}
export class BadUrl extends HoldfastError {}
export class BadArgument extends HoldfastError {}
export class NoStore extends HoldfastError {}
export class Unsupported extends HoldfastError {}
export class Unreachable extends HoldfastError {}
export class Denied extends HoldfastError {}
export class BadStore extends HoldfastError {}
export class StoreFull extends HoldfastError {}
export class Clock extends HoldfastError {}
export class NoMemory extends HoldfastError {}
export class System extends HoldfastError {}
export class Closed extends HoldfastError {}
export class Forked extends HoldfastError {}
export class Pending extends HoldfastError {}
export class Mismatch extends HoldfastError {
  value: number | bigint | null;
}
export class Range extends HoldfastError {}

/** The script with which a Redis server checks a token: HF_FENCE_REDIS. */
export const fenceRedis: string;
/** Of the library. */
export const version: string;
