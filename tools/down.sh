#!/usr/bin/env bash
# down.sh DIR stops the terrier that runs on a data directory. The directory's
# lock is held while it runs and names its process, so neither a stale file nor
# a reused process id can be taken for it.
set -euo pipefail

lock=$1/lock
running() { [ -s "$lock" ] && ! flock --nonblock --shared "$lock" true; }

if ! running; then
	echo "down: nothing runs on $1"
	exit 0
fi
pid=$(<"$lock")
kill -TERM "$pid"
if ! flock --shared --timeout 15 "$lock" true; then
	echo "down: process $pid still holds $1 after 15 s; look at it, then: kill -KILL $pid" >&2
	exit 1
fi
echo "down: stopped process $pid"
