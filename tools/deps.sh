#!/usr/bin/env bash
# deps.sh MODULE... checks what must be on the machine, installs what it may,
# and fetches what the modules need and nothing else.
set -euo pipefail

fail() {
	echo "deps: $*" >&2
	exit 1
}

# install WHAT PACKAGE... is for what can be had without asking: where apt is and
# we may use it. Elsewhere it says what to do.
install() {
	local what=$1
	shift
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		echo "deps: installing $what"
		apt-get update -qq
		# Servers are for tests to start, not for the machine to run.
		DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "$@" >/dev/null
	else
		fail "$what is missing: install it, for instance with: sudo apt-get install $*"
	fi
}

# there PATTERN... says whether one of some files is there.
there() {
	compgen -G "$1" >/dev/null || { shift && [ $# -gt 0 ] && there "$@"; }
}

command -v git >/dev/null || install git git ca-certificates
# Tests of registries start both databases for themselves.
there /usr/sbin/mariadbd /usr/local/sbin/mariadbd /usr/bin/mariadbd || install MariaDB mariadb-server-core
there '/usr/lib/postgresql/*/bin/initdb' /usr/local/bin/initdb /usr/bin/initdb || install PostgreSQL postgresql
# So does the guide's example of RabbitMQ.
there /usr/lib/rabbitmq/bin/rabbitmq-server || install RabbitMQ rabbitmq-server
# Inventories are compared with what Ansible makes of them.
command -v ansible-inventory >/dev/null || install Ansible ansible-core
# Pages are tested in a real browser.
there /usr/bin/chromium /usr/local/bin/chromium /usr/bin/google-chrome || install Chromium chromium fonts-dejavu-core
command -v go >/dev/null || fail "Go is missing: get 1.26.8 or newer from https://go.dev/dl/"

# The newest release that a module asks for. Go fetches it by itself unless it
# was told to stay local.
need=$(for m in "$@"; do awk '$1 == "go" { print $2 }' "$m/go.mod"; done | sort -V | tail -n 1)
have=$(go env GOVERSION)
have=${have#go}
have=${have%% *}
if [ "$(printf '%s\n%s\n' "$need" "$have" | sort -V | head -n 1)" != "$need" ]; then
	[ "$(printf '%s\n1.26\n' "$have" | sort -V | head -n 1)" = 1.26 ] && [ "$(go env GOTOOLCHAIN)" != local ] ||
		fail "Go $have is too old: $need or newer is needed, from https://go.dev/dl/"
fi

# Listing what each module builds downloads exactly that. The stamp spares the
# seconds when nothing has changed.
mkdir -p bin
sum=$(for m in "$@"; do cat "$m/go.mod" "$m/go.sum"; done | git hash-object --stdin)
if [ "$(cat bin/.deps 2>/dev/null)" != "$sum" ]; then
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	for m in "$@"; do
		echo "deps: fetching for $m"
		if ! (cd "$m" && go list -deps -test ./... && go list -deps tool) >"$log" 2>&1; then
			grep -v '^go: downloading' "$log" >&2
			fail "fetching for $m"
		fi
	done
	echo "$sum" >bin/.deps
fi
