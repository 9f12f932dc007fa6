#!/usr/bin/env bash
# able.sh says whether this machine can run the test cluster: exit code 0, or 1 and the
# reason on standard output.
set -euo pipefail

no() {
	echo "$1"
	exit 1
}

[ "$(uname -s)" = Linux ] || no "it needs Linux"
[ "$(id -u)" = 0 ] || no "it needs root"
[ -d /sys/fs/cgroup/memory ] || no "it needs control groups of version 1"
unshare --mount --pid --net --uts --ipc --fork true 2>/dev/null || no "it needs namespaces of its own"
command -v apt-get >/dev/null || no "it needs apt-get, for the images and the programs of the node"
timeout 120 apt-get update -qq -o APT::Update::Error-Mode=any >/dev/null 2>&1 || no "it needs a mirror of Debian, which does not answer"
