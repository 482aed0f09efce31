#!/bin/sh
# A lock made only with redis-cli, following the published pattern: by_hand.sh PORT. See interop_test.py for the
# lines that it reads and writes.
set -eu
unlock=$(dirname "$0")/../../../scripts/unlock.lua
extend='return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("PEXPIRE", KEYS[1], ARGV[2]) or 0'
unique=by-hand-$$

cli() { redis-cli -e -p "$port" "$@"; }
lock() { [ "$(cli SET "$key" $unique NX PX "$1")" = OK ]; }
say() { if "$@"; then echo yes; else echo no; fi; }
is_1() { [ "$("$@")" = 1 ]; }
wait_for_lock() { until lock "$1"; do sleep 0.1; done; }

port=$1
while read -r word first second; do
    case $word in
    acquire) key=$first && say lock "$second" ;;
    wait) key=$first && wait_for_lock "$second" && echo yes ;;
    extend) say is_1 cli EVAL "$extend" 1 "$key" $unique "$first" ;;
    release) say is_1 cli --eval "$unlock" "$key" , $unique ;;
    *) exit 2 ;;
    esac
done
