#!/usr/bin/env bash
# previous.sh COMMIT builds the images of a former commit in dist/previous/tree, for the
# test of an upgrade. It does nothing if they are there.
set -euo pipefail

root=$PWD
tree=$root/dist/previous/tree
if ! commit=$(git rev-parse --quiet --verify "$1^{commit}"); then
	echo "cluster: there is no commit \"$1\" to upgrade from: fetch the history (git fetch --unshallow), or name one: make test-cluster PREVIOUS=v1.2.3" >&2
	exit 1
fi
[ "$(cat "$root/dist/previous/commit" 2>/dev/null)" != "$commit" ] || exit 0

echo "cluster: building $(git log -1 --format='%h (%s)' "$commit"), to upgrade from"
rm -rf "$root/dist/previous"
git clone --quiet --shared --no-checkout . "$tree"
git -C "$tree" checkout --quiet --detach "$commit"
mkdir -p "$tree/bin" "$root/bin/debian"
ln -s "$root/bin/debian" "$tree/bin/debian"
cp -l "$root/bin/tofu" "$root/bin/helm" "$tree/bin/"
MAKEFLAGS= make --no-print-directory -C "$tree" images-here
echo "$commit" >"$root/dist/previous/commit"
