#!/usr/bin/env bash
# check.sh WHAT [MODULE...] looks at the code. Only what is generated may change.
set -euo pipefail

what=$1
shift

# files lists those that git knows or would add, and that are there.
files() {
	git ls-files --cached --others --exclude-standard "$@" | while read -r f; do
		if [ -f "$f" ]; then echo "$f"; fi
	done
}

case $what in
format)
	bad=$(files '*.go' | xargs -d '\n' gofmt -l)
	if [ -n "$bad" ]; then
		printf 'check: not formatted; make fmt does it:\n%s\n' "$bad" >&2
		exit 1
	fi
	;;
generated)
	# Generating again must change nothing, committed or not.
	before=$(mktemp) after=$(mktemp)
	trap 'rm -f "$before" "$after"' EXIT
	files | xargs -d '\n' sha256sum >"$before"
	make --no-print-directory generate
	files | xargs -d '\n' sha256sum >"$after"
	if ! bad=$(diff "$before" "$after"); then
		printf 'check: these were out of date; make generate has just mended them:\n' >&2
		awk '/^[<>]/ { print $3 }' <<<"$bad" | sort -u >&2
		exit 1
	fi
	;;
modules)
	for m in "$@"; do
		(cd "$m" && go mod tidy -diff) || {
			echo "check: $m/go.mod is not tidy: run go mod tidy there" >&2
			exit 1
		}
	done
	;;
vet)
	for m in "$@"; do
		(cd "$m" && go vet ./...)
	done
	;;
lint)
	root=$PWD
	for m in "$@"; do
		(cd "$m" && "$root/bin/staticcheck" ./...)
	done
	;;
*)
	echo "check: nothing is named $what" >&2
	exit 2
	;;
esac
