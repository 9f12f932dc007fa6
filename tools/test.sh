#!/usr/bin/env bash
# test.sh MODULE... runs the tests of each module. All of them share one control
# plane: TERRIER_TEST_KUBECONFIG names it, and each test has a namespace there.
# The end-to-end tests wait for most of their time, so they run beside all others,
# with a control plane of their own: its controllers publish where they are. A test that hangs
# is ended after 80 minutes: a machine that has much else to do takes an hour for all.
set -euo pipefail

root=$PWD
scratch=$(mktemp -d)
plane=
beside=
finish() {
	if [ -n "$beside" ]; then
		kill -TERM -- "-$beside" 2>/dev/null || true
		wait "$beside" 2>/dev/null || true
	fi
	if [ -n "$plane" ]; then
		kill -TERM "$plane" 2>/dev/null || true
		wait "$plane" 2>/dev/null || true
	fi
	rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ -z "${TERRIER_TEST_KUBECONFIG:-}" ]; then
	mkfifo "$scratch/ready"
	bin/terrier control-plane --ephemeral -o json >"$scratch/ready" 2>"$scratch/log" &
	plane=$!
	# One line of JSON, or the end of the file if it died.
	read -r -t 600 line <"$scratch/ready" || line=
	TERRIER_TEST_KUBECONFIG=$(sed -n 's/.*"kubeconfig":"\([^"]*\)".*/\1/p' <<<"$line")
	if [ -z "$TERRIER_TEST_KUBECONFIG" ]; then
		echo "test: the control plane did not start:" >&2
		cat "$scratch/log" >&2
		exit 1
	fi
	export TERRIER_TEST_KUBECONFIG
fi

failed=()
for m in "$@"; do
	echo "test: $m"
	cd "$root/$m"
	packages=$(go list ./...)
	if [ "$m" = . ]; then
		packages=$(grep -v '/test/e2e$' <<<"$packages")
		set -m # a process group of its own, which finish ends as a whole
		env -u TERRIER_TEST_KUBECONFIG go test -timeout 80m ./test/e2e >"$scratch/e2e" 2>&1 &
		beside=$!
		set +m
	fi
	# Each name is one word.
	# shellcheck disable=SC2086
	go test -timeout 80m $packages || failed+=("$m")
done
if [ -n "$beside" ]; then
	echo "test: test/e2e"
	wait "$beside" || failed+=(test/e2e)
	beside=
	cat "$scratch/e2e"
fi
if [ ${#failed[@]} -gt 0 ]; then
	echo "test: failed in: ${failed[*]}" >&2
	exit 1
fi
