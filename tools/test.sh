#!/usr/bin/env bash
# test.sh MODULE... runs the tests of each module. All of them share one control
# plane: TERRIER_TEST_KUBECONFIG names it, and each test has a namespace there.
set -euo pipefail

root=$PWD
scratch=$(mktemp -d)
plane=
finish() {
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
	read -r -t 120 line <"$scratch/ready" || line=
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
	(cd "$root/$m" && go test -timeout 60m ./...) || failed+=("$m")
done
if [ ${#failed[@]} -gt 0 ]; then
	echo "test: failed in: ${failed[*]}" >&2
	exit 1
fi
