#!/bin/sh
# Fencing in MySQL or MariaDB, from a script: the database refuses a writer that has lost the lock without knowing it.
# Two workers add to an account's balance. The first takes the lock and pauses for longer than it lasts, so the second
# gets the lock and writes. When the first goes on, its transaction fails, because the database has seen a larger token.
#
#    fence_mysql.sh LOCKS SOCKET DATABASE
#
# LOCKS is the URL of any store. SOCKET is that of a MySQL or MariaDB server, and DATABASE one of its databases, with the
# schema of holdfast (`holdfast schema --dialect mysql`).
set -eu
export HOLDFAST_URL="$1"
socket=$2 database=$3

sql() { mariadb --no-defaults --user=root --socket="$socket" "$database"; }

# Takes the lock for a second. Whoever takes longer is as good as paused: nobody renews the lock.
take() { lock=$(holdfast acquire account --for 1s) && eval "$lock"; }

# The transaction: the check comes first, then what the lock guards. The client stops at the first error, and the server
# rolls back.
add() {
    guard=$(holdfast fence sql mysql account "$2") || return
    echo "BEGIN; $guard UPDATE accounts SET balance = balance + $1; COMMIT;" | sql
}

echo "CREATE TABLE accounts (balance INT NOT NULL) ENGINE = InnoDB; INSERT INTO accounts VALUES (0);" | sql
take
first=$HOLDFAST_TOKEN
take # waits until the first one's second is over
add 10 "$HOLDFAST_TOKEN"
echo "second: has added 10"
if add 1 "$first"; then
    echo "first: has added 1, and must not"
    exit 1
fi
echo "first: was refused"
