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
# The cluster starts a containerd of its own: the machine's stays off. Debian asks
# policy-rc.d before it starts a service, unless the machine has one already.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ] && [ ! -L "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
# Installing enables it for the next boot. One that was here before is not ours to stop.
if [[ " ${packages[*]} " == *" containerd "* ]] && command -v systemctl >/dev/null; then
	systemctl --quiet disable containerd.service
	[ ! -d /run/systemd/system ] || systemctl --quiet stop containerd.service
fi
