# lib.sh is what the run.sh of examples have in common. A run.sh says who it is, sources this
# file, and calls begin:
#
#   example=building
#   . "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
#   begin "${1:-.terrier-building}" proxmox terrier
#
# From then on here is the directory of the example, root the repository, bin the programs of it,
# and dir where everything is kept. Whatever started is ended with the script.
set -euo pipefail
umask 077

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$root/bin
running=()

say() { echo "$example: $*"; }

fail() {
	say "$*"
	exit 1
}

# begin DIR PROGRAM… makes the directory of what is kept, and checks that the programs are built.
begin() {
	mkdir -p "$1"
	dir=$(cd "$1" && pwd)
	export HOME=$dir KUBECONFIG=$dir/terrier/kubeconfig
	local program
	for program in "${@:2}"; do
		[ -e "$bin/$program" ] || fail "$bin/$program is not there: run make $(basename "$here")"
	done
	trap end EXIT
	trap 'exit 0' INT TERM
}

end() {
	trap - EXIT INT TERM
	local pid
	for pid in "${running[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
	wait || true
}

# start OUT PROGRAM… starts a program in the background. What it prints is in OUT, which is
# empty before, and its errors are in the log.
start() {
	: >"$1" # at once: the program empties it a moment later, and an earlier start may have left it full
	"${@:2}" >"$1" 2>>"$dir/log" &
	running+=($!)
}

# until_it TEXT COMMAND… repeats a command until it succeeds, as long as all programs run.
until_it() {
	local what=$1 pid
	shift
	for _ in $(seq 1500); do
		"$@" >/dev/null 2>&1 && return
		for pid in "${running[@]}"; do
			kill -0 "$pid" 2>/dev/null || fail "a program ended. Read $dir/log"
		done
		sleep 0.2
	done
	fail "$what: not within five minutes. Read $dir/log"
}

# terrier_up PORT FLAG… starts Terrier with its API server, and waits until both are there.
terrier_up() {
	say "starting Terrier at https://127.0.0.1:$1"
	start "$dir/ready" "$bin/terrier" up -o json --data-dir "$dir/terrier" --http-address "127.0.0.1:$1" --provider-registries=false "${@:2}"
	until_it "Terrier is ready" test -s "$dir/ready"
}

# apply FLAG… applies objects.
apply() { "$bin/kubectl" apply --server-side --force-conflicts "$@" >/dev/null; }

# namespace NAME makes a namespace, if there is none.
namespace() { "$bin/kubectl" create namespace "$1" --dry-run=client -o yaml | apply -f -; }
