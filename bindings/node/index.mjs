// The same as index.js, for import.
import holdfast from './index.js';

export default holdfast;
export const {
  open, Client, Hold, Counter, HoldfastError, fenceRedis, version,
  Busy, Timeout, Cancelled, Short, Lost, Released, Unknown, NotYours, WrongKind, BadName, BadWeight, BadLease, BadUrl, BadArgument,
  NoStore, Unsupported, Unreachable, Denied, BadStore, StoreFull, Clock, NoMemory, System, Closed, Forked, Pending, Mismatch, Range,
} = holdfast;
