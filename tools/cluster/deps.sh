#!/usr/bin/env bash
# deps.sh installs what the test cluster needs of the distribution. It does nothing
# if all is there.
set -euo pipefail

packages=()
command -v containerd >/dev/null || packages+=(containerd)
command -v runc >/dev/null || packages+=(runc)
command -v iptables >/dev/null || packages+=(iptables)
command -v ipset >/dev/null || packages+=(ipset)
[ -x /usr/lib/cni/ptp ] || packages+=(containernetworking-plugins)
[ ${#packages[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "cluster: ${packages[*]} are missing: install them, for instance with: sudo apt-get install ${packages[*]}" >&2
	exit 1
fi
echo "cluster: installing ${packages[*]}"
apt-get update -qq
# The cluster starts a containerd of its own: the machine's stays off.
DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
