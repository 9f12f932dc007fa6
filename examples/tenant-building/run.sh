#!/usr/bin/env bash
# run.sh [DIR [FLAG…]] runs the tenants of the example on this machine, in the foreground: what
# stands in for Proxmox VE and for the router of the network team, a DNS server, Terrier with its
# API server, and the objects. What it makes is in DIR, and another start goes on with it. Flags
# are of `terrier up`. Ctrl-C ends everything.
#
# PROXMOX_PORT, DHCP_PORT, DNS_PORT, SSH_PORT and TERRIER_PORT are the ports on loopback. They are
# part of what is kept in DIR. So are the inventory with the playbook (tree) and what the network
# team has (substrate): edit them there, and push.
example=building
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
begin "${1:-.terrier-building}" proxmox terrier kubectl mirror-building
shift || true
command -v ansible-playbook >/dev/null || fail "ansible-playbook is not there: install it, for instance with: sudo apt-get install ansible-core"
proxmox_port=${PROXMOX_PORT:-8206} dhcp_port=${DHCP_PORT:-8267} dns_port=${DNS_PORT:-8253} ssh_port=${SSH_PORT:-8222} port=${TERRIER_PORT:-8451}

say "starting what stands in for Proxmox VE and the router, and a DNS server"
start "$dir/proxmox-ready" "$bin/proxmox" -dir "$dir/proxmox" -listen "127.0.0.1:$proxmox_port" -dhcp "127.0.0.1:$dhcp_port" \
	-dns "127.0.0.1:$dns_port" -ssh "127.0.0.1:$ssh_port"
until_it "Proxmox VE answers" test -s "$dir/proxmox-ready"
terrier_up "$port" --provider-mirror "$bin/mirror-building" --allow-host "127.0.0.1:$proxmox_port" "$@"

say "pushing the inventory with the modules and the playbook, and what the network team has"
if [ ! -e "$dir/tree" ]; then
	rm -rf "$dir/tree.new" && mkdir -p "$dir/tree.new/modules"
	cp -R "$here/tenant-inventory" "$here/ansible" "$dir/tree.new/"
	cp -R "$root/modules/proxmox-vm" "$dir/tree.new/modules/"
	rm -rf "$dir/tree.new/modules/proxmox-vm/tests"
	mv "$dir/tree.new" "$dir/tree"
fi
[ -e "$dir/substrate" ] || cp -R "$here/substrate" "$dir/substrate"
namespace tenants
"$bin/terrier" push "$dir/tree" "oci://127.0.0.1:$port/tenants/building:latest" >/dev/null
"$bin/terrier" push "$dir/substrate" "oci://127.0.0.1:$port/tenants/substrate:latest" >/dev/null

say "applying the tenants"
# environment KIND NAME makes a Secret or a ConfigMap of the variables in its input.
environment() { "$bin/kubectl" -n tenants create $1 "$2" --dry-run=client -o yaml --from-env-file=/dev/stdin | apply -f -; }
for tenant in grooveiq vintronics moneyrouter; do
	environment "secret generic" "proxmox-$tenant" <<ENV
PROXMOX_VE_API_TOKEN=terrier@pve!$tenant=$(cat "$dir/proxmox/tokens/$tenant")
DNS_UPDATE_KEYSECRET=$(cat "$dir/proxmox/dns/$tenant")
ENV
	environment configmap "proxmox-$tenant" <<ENV
PROXMOX_VE_ENDPOINT=http://127.0.0.1:$proxmox_port
DNS_UPDATE_SERVER=127.0.0.1
DNS_UPDATE_PORT=$dns_port
DNS_UPDATE_KEYNAME=$tenant.
DNS_UPDATE_KEYALGORITHM=hmac-sha256
ENV
done
environment "secret generic" router <<ENV
OPNSENSE_URI=http://127.0.0.1:$dhcp_port
OPNSENSE_API_KEY=$(cat "$dir/proxmox/router/key")
OPNSENSE_API_SECRET=$(cat "$dir/proxmox/router/secret")
ENV
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
sed -e "s|SSH_PORT|$ssh_port|" -e "s|PROXMOX_PORT|$proxmox_port|" "$here/clusters/tenants.yaml" | apply -f -

# status STACK JSONPATH prints a part of the status of a stack.
status() { "$bin/kubectl" -n tenants get "terraforms.infra.contrib.fluxcd.io/$1" -o jsonpath="{.status$2}"; }
ready='.conditions[?(@.type=="Ready")]'
# settled STACK succeeds once a plan is pending, what is approved is applied, or the stack waits
# for the network team.
settled() {
	status "$1" '.plan.pending}{.status.plan.lastApplied}{.status.lastAppliedRevision' | grep . ||
		status "$1" "$ready.message" | grep -E 'vlan|dhcp-scope|firewall-zone'
}
for module in "$dir"/tree/tenant-inventory/*/terraform; do
	tenant=$(basename "$(dirname "$module")")
	until_it "the stack $tenant has a plan, or waits for the network team" settled "$tenant"
	if [ "$(status "$tenant" "$ready.reason")" = PrerequisiteMissing ]; then
		say "the stack tenants/$tenant waits: $(status "$tenant" "$ready.message")"
	else
		say "the stack tenants/$tenant has a plan"
	fi
done

admin="curl -s -H \"Authorization: Bearer \$(cat $dir/proxmox/admin)\""
cat <<TEXT
building: the tenants are up. In another terminal, in this directory:
  export KUBECONFIG=$KUBECONFIG
  $bin/terrier get -n tenants
  $bin/terrier plan grooveiq -n tenants
  $bin/terrier approve grooveiq -n tenants
  $bin/terrier inventory --list -n tenants
  $admin http://127.0.0.1:$proxmox_port/stand-in/vms
  $admin -X PATCH -d '{"set": {"cores": "8"}}' http://127.0.0.1:$proxmox_port/stand-in/vms/101
  $bin/terrier replan grooveiq -n tenants --wait
  echo '- {id: 102, name: moneyrouter, interface: vmbr0.102}' >> $dir/substrate/net/vlans.yaml
  $bin/terrier push $dir/substrate oci://127.0.0.1:$port/tenants/substrate:latest
  $bin/terrier push $dir/tree oci://127.0.0.1:$port/tenants/building:latest
TEXT
wait -n
