#!/usr/bin/env bash
# run.sh [DIR [FLAG…]] runs the tenants of the example on this machine, in the foreground: what
# stands in for Proxmox VE, a DNS server, Terrier with its API server, and the objects. What it
# makes is in DIR, and another start goes on with it. Flags are of `terrier up`. Ctrl-C ends
# everything.
#
# PROXMOX_PORT, DNS_PORT, SSH_PORT and TERRIER_PORT are the ports on loopback. They are part of
# what is kept in DIR. So are the inventory (tree) and what the network team says that there is
# (substrate): edit them there, and push.
set -euo pipefail
umask 077

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$root/bin
mkdir -p "${1:-.terrier-building}"
dir=$(cd "${1:-.terrier-building}" && pwd)
shift || true
proxmox_port=${PROXMOX_PORT:-8206} dns_port=${DNS_PORT:-8253} ssh_port=${SSH_PORT:-8222} port=${TERRIER_PORT:-8451}
export HOME=$dir KUBECONFIG=$dir/terrier/kubeconfig

say() { echo "building: $*"; }
running=()
end() {
	trap - EXIT INT TERM
	for pid in "${running[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
	wait || true
}
trap end EXIT
trap 'exit 0' INT TERM

# until_it TEXT COMMAND… repeats a command until it succeeds, as long as all programs run.
until_it() {
	local what=$1
	shift
	for _ in $(seq 600); do
		"$@" >/dev/null 2>&1 && return
		for pid in "${running[@]}"; do
			kill -0 "$pid" 2>/dev/null || { say "a program ended. Read $dir/log"; exit 1; }
		done
		sleep 0.2
	done
	say "$what: not within two minutes. Read $dir/log"
	exit 1
}

for program in proxmox terrier kubectl mirror-building; do
	[ -e "$bin/$program" ] || { say "$bin/$program is not there: run make tenant-building"; exit 1; }
done

say "starting what stands in for Proxmox VE, and a DNS server"
rm -f "$dir/proxmox-ready" "$dir/ready"
"$bin/proxmox" -dir "$dir/proxmox" -listen "127.0.0.1:$proxmox_port" -dns "127.0.0.1:$dns_port" -ssh "127.0.0.1:$ssh_port" >"$dir/proxmox-ready" 2>>"$dir/log" &
running+=($!)
until_it "Proxmox VE answers" test -s "$dir/proxmox-ready"

say "starting Terrier at https://127.0.0.1:$port"
"$bin/terrier" up -o json --data-dir "$dir/terrier" --http-address "127.0.0.1:$port" \
	--provider-mirror "$bin/mirror-building" --provider-registries=false "$@" >"$dir/ready" 2>>"$dir/log" &
running+=($!)
until_it "Terrier is ready" test -s "$dir/ready"

say "pushing the inventory with the modules, and the substrate"
if [ ! -e "$dir/tree" ]; then
	rm -rf "$dir/tree.new" && mkdir -p "$dir/tree.new/modules"
	cp -R "$here/tenant-inventory" "$dir/tree.new/"
	cp -R "$root/modules/proxmox-vm" "$dir/tree.new/modules/"
	rm -rf "$dir/tree.new/modules/proxmox-vm/tests"
	mv "$dir/tree.new" "$dir/tree"
fi
[ -e "$dir/substrate" ] || cp -R "$here/substrate" "$dir/substrate"
apply() { "$bin/kubectl" apply --server-side --force-conflicts "$@" >/dev/null; }
"$bin/kubectl" create namespace tenants --dry-run=client -o yaml | apply -f -
"$bin/terrier" push "$dir/tree" "oci://127.0.0.1:$port/tenants/building:latest" >/dev/null
"$bin/terrier" push "$dir/substrate" "oci://127.0.0.1:$port/tenants/substrate:latest" >/dev/null

say "applying the tenants"
for tenant in grooveiq vintronics moneyrouter; do
	"$bin/kubectl" -n tenants create secret generic "proxmox-$tenant" --dry-run=client -o yaml --from-env-file=/dev/stdin <<ENV | apply -f -
PROXMOX_VE_API_TOKEN=terrier@pve!$tenant=$(cat "$dir/proxmox/tokens/$tenant")
DNS_UPDATE_KEYSECRET=$(cat "$dir/proxmox/dns/$tenant")
ENV
	"$bin/kubectl" -n tenants create configmap "proxmox-$tenant" --dry-run=client -o yaml --from-env-file=/dev/stdin <<ENV | apply -f -
PROXMOX_VE_ENDPOINT=http://127.0.0.1:$proxmox_port
DNS_UPDATE_SERVER=127.0.0.1
DNS_UPDATE_PORT=$dns_port
DNS_UPDATE_KEYNAME=$tenant.
DNS_UPDATE_KEYALGORITHM=hmac-sha256
ENV
done
{
	cat <<YAML
apiVersion: policy.terrier.dev/v1alpha1
kind: ClusterPolicy
metadata: {name: target-nodes}
spec:
  selector: {namespaces: [tenants]}
  rego:
    parameters: {nodes: [pve-tenant]}
    modules:
      policy.rego: |
YAML
	sed 's/^/        /' "$root/policies/target-nodes/policy.rego"
} | apply -f -
sed -e "s|REGISTRY|127.0.0.1:$port|" "$here/clusters/sources.yaml" | apply -f -
for source in building substrate; do
	until_it "the source $source is fetched" "$bin/kubectl" -n tenants wait "ocirepository/$source" --for=condition=Ready --timeout=1s
done
sed -e "s|SSH_PORT|$ssh_port|" "$here/clusters/tenants.yaml" | apply -f -

# status STACK JSONPATH prints a part of the status of a stack.
status() { "$bin/kubectl" -n tenants get "terraforms.infra.contrib.fluxcd.io/$1" -o jsonpath="$2"; }
# settled STACK succeeds once a plan is pending, what is approved is applied, or the stack waits
# for the network team.
settled() {
	status "$1" '{.status.plan.pending}{.status.plan.lastApplied}{.status.lastAppliedRevision}' | grep . ||
		status "$1" '{.status.conditions[?(@.type=="Ready")].reason}' | grep -x PrerequisiteMissing
}
for module in "$dir"/tree/tenant-inventory/*/terraform; do
	tenant=$(basename "$(dirname "$module")")
	until_it "the stack $tenant has a plan, or waits for the network" settled "$tenant"
	if status "$tenant" '{.status.conditions[?(@.type=="Ready")].reason}' | grep -qx PrerequisiteMissing; then
		say "the stack tenants/$tenant waits: $(status "$tenant" '{.status.conditions[?(@.type=="Ready")].message}')"
	else
		say "the stack tenants/$tenant has a plan"
	fi
done

cat <<TEXT
building: the tenants are up. In another terminal, in this directory:
  export KUBECONFIG=$KUBECONFIG
  $bin/terrier get -n tenants
  $bin/terrier plan grooveiq -n tenants
  $bin/terrier approve grooveiq -n tenants
  $bin/terrier outputs grooveiq -n tenants
  curl -s -H "Authorization: Bearer \$(cat $dir/proxmox/admin)" http://127.0.0.1:$proxmox_port/stand-in/vms
  curl -s -X PATCH -H "Authorization: Bearer \$(cat $dir/proxmox/admin)" -d '{"set": {"cores": "8"}}' http://127.0.0.1:$proxmox_port/stand-in/vms/101
  $bin/terrier replan grooveiq -n tenants --wait
  echo '- {id: 102, name: moneyrouter, interface: vmbr0.102}' >> $dir/substrate/net/vlans.yaml
  $bin/terrier push $dir/substrate oci://127.0.0.1:$port/tenants/substrate:latest
  $bin/terrier push $dir/tree oci://127.0.0.1:$port/tenants/building:latest
TEXT
wait -n
