#!/bin/sh
# Records what a real engine says, for the tests of this package:
#
#	testdata/record.sh PATH-TO-TOFU PATH-TO-PROVIDER-MIRROR
#
# Beside the built-in provider only hashicorp/local is used, from the mirror.
set -eu
tofu=$(realpath "$1")
mirror=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export TF_CLI_CONFIG_FILE="$dir/cli.tfrc" CHECKPOINT_DISABLE=1 TF_IN_AUTOMATION=1
printf 'provider_installation {\n  filesystem_mirror {\n    path = "%s"\n  }\n}\n' "$mirror" >"$TF_CLI_CONFIG_FILE"
cd "$dir"

cp -R "$here/src/before/." .
"$tofu" init -no-color >/dev/null
"$tofu" apply -json -auto-approve >"$here/apply-first.jsonl"
"$tofu" plan -out p -no-color >/dev/null
"$tofu" show -json p >"$here/unchanged.json"

cp -R "$here/src/after/." .
"$tofu" init -no-color >/dev/null
"$tofu" plan -json -out p >"$here/plan.jsonl"
"$tofu" show -json p >"$here/plan.json"
"$tofu" plan -out again -no-color >/dev/null
"$tofu" show -json again >"$here/plan-again.json"
"$tofu" plan -out d -destroy -no-color >/dev/null
"$tofu" show -json d >"$here/destroy.json"
"$tofu" apply -json p >"$here/apply.jsonl"

rm -rf ./*.tf child terraform.tfstate* .terraform
cp "$here/src/broken/main.tf" .
"$tofu" init -json -no-color >"$here/init.jsonl"
"$tofu" apply -json -auto-approve >"$here/apply-failed.jsonl" || true
cp "$here/src/invalid.tf" main.tf
"$tofu" plan -json >"$here/plan-failed.jsonl" || true

cp "$here/src/drift/main.tf" .
"$tofu" init -no-color >/dev/null
"$tofu" apply -auto-approve -no-color >/dev/null
rm motd
"$tofu" plan -json -out p >"$here/drift-found.jsonl"
"$tofu" show -json p >"$here/drift-found.json"
