#!/usr/bin/env bash
# down.sh DIR stops the terrier that runs on a data directory. The directory's
# lock is held while it runs and names its process, so neither a stale file nor
# a reused process id can be taken for it.
#
# down.sh --check DIR... stops nothing: it fails if a terrier runs on one of the
# directories, or a run goes on there without it.
set -euo pipefail

fail() {
	echo "down: $*" >&2
	exit 1
}

# kernel_knows KIND FILE says whether a process holds a lock of that kind on FILE.
kernel_knows() {
	[ -r /proc/locks ] || fail "whether a process uses $2 is not known: install flock (of util-linux)"
	grep -Eq "^[0-9]+: $1 .* WRITE .*:$(stat -L -c %i "$2") " /proc/locks
}

# running DIR says whether a terrier runs on DIR.
running() {
	local lock=$1/lock code=0
	[ -s "$lock" ] || return 1
	if ! command -v flock >/dev/null; then
		kernel_knows FLOCK "$lock"
		return
	fi
	flock -n -s "$lock" true || code=$? # the short options, which BusyBox has as well
	case $code in
	0) return 1 ;;
	1) return 0 ;;
	*) fail "$lock cannot be locked: look at its owner and its file system" ;;
	esac
}

if [ "${1:-}" = --check ]; then
	shift
	for dir in "$@"; do
		if running "$dir"; then
			fail "process $(<"$dir/lock") runs on $dir: stop it first, with make down DATA_DIR=$dir"
		fi
		for lock in "$dir"/runner/runs/*/*/lock; do
			if [ -e "$lock" ] && kernel_knows OFDLCK "$lock"; then
				fail "a run goes on in ${lock%/lock}, and an apply that loses its directory loses its state: wait until it has ended, then try again"
			fi
		done
	done
	exit 0
fi

dir=$1
if ! running "$dir"; then
	echo "down: nothing runs on $dir"
	exit 0
fi
pid=$(<"$dir/lock")
kill -TERM "$pid"
for ((wait = 0; wait < 75; wait++)); do
	if ! running "$dir"; then
		echo "down: stopped process $pid"
		exit 0
	fi
	sleep 0.2
done
fail "process $pid still holds $dir after 15 s; look at it, then: kill -KILL $pid"
