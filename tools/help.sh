#!/usr/bin/env bash
# Prints the targets of a Makefile that have a description, in their sections.
set -euo pipefail
awk '
	/^##@ /                  { printf "\n%s\n", substr($0, 5) }
	/^[a-z0-9\/-]+:.* ## /     { name = $0; sub(/:.*/, "", name); sub(/^.* ## /, ""); printf "  make %-16s %s\n", name, $0 }
' "$@"
