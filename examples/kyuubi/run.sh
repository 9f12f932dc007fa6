#!/usr/bin/env bash
# run.sh [DIR [FLAG…]] runs the estate of the example on this machine, in the foreground: OpenBao,
# Terrier with its API server, the objects of the estate and its stacks. What it makes is in DIR,
# and another start goes on with it. Flags are of `terrier up`. Ctrl-C ends everything.
#
# BAO_PORT and TERRIER_PORT are the ports on loopback. They are part of what is kept in DIR.
example=kyuubi
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
begin "${1:-.terrier-kyuubi}" bao terrier kubectl mirror-kyuubi
shift || true
bao_port=${BAO_PORT:-8210} port=${TERRIER_PORT:-8450}
export VAULT_ADDR=http://127.0.0.1:$bao_port BAO_ADDR=http://127.0.0.1:$bao_port
issuer=https://127.0.0.1:$port

say "starting OpenBao at $BAO_ADDR"
mkdir -p "$dir/bao"
cat >"$dir/bao/config.hcl" <<HCL
storage "file" { path = "$dir/bao/data" }
listener "tcp" {
  address     = "127.0.0.1:$bao_port"
  tls_disable = true
}
api_addr = "$BAO_ADDR"
HCL
start "$dir/bao/said" "$bin/bao" server -config="$dir/bao/config.hcl"
answers() { "$bin/bao" status; [ $? != 1 ]; } # 2 is a server that is sealed
until_it "OpenBao answers" answers
[ -s "$dir/bao/keys" ] || "$bin/bao" operator init -key-shares=1 -key-threshold=1 >"$dir/bao/keys"
"$bin/bao" operator unseal "$(awk '/^Unseal Key 1:/ {print $NF}' "$dir/bao/keys")" >/dev/null
BAO_TOKEN=$(awk '/^Initial Root Token:/ {print $NF}' "$dir/bao/keys")
export BAO_TOKEN

cat >"$dir/rules.yaml" <<YAML
rules:
- namespaces: [vault]
  audiences: ["$VAULT_ADDR"]
  roles: ["$VAULT_ADDR/jwt/platform"]
YAML
terrier_up "$port" --vault "$VAULT_ADDR" --allow-plain-http --identity-issuer "$issuer" --identity-rules "$dir/rules.yaml" \
	--provider-mirror "$bin/mirror-kyuubi" "$@"

say "letting the stack vault sign in to OpenBao as the role platform"
"$bin/kubectl" -n terrier-system get configmap terrier-server -o jsonpath='{.data.ca\.crt}' >"$dir/terrier-ca.crt"
"$bin/bao" auth list | grep '^jwt/' >/dev/null || "$bin/bao" auth enable jwt >/dev/null
"$bin/bao" write auth/jwt/config oidc_discovery_url="$issuer" oidc_discovery_ca_pem=@"$dir/terrier-ca.crt" >/dev/null
"$bin/bao" policy write platform "$here/clusters/platform.hcl" >/dev/null
subject=namespace:vault:kind:terraform.infra.contrib.fluxcd.io:stack:vault:phase
"$bin/bao" write auth/jwt/role/platform - >/dev/null <<JSON
{
  "role_type": "jwt", "user_claim": "sub", "bound_audiences": ["$VAULT_ADDR"],
  "bound_claims": {"sub": ["$subject:plan", "$subject:apply"]},
  "claim_mappings": {"run_id": "run", "stack": "stack"}, "token_policies": ["platform"], "token_ttl": "15m"
}
JSON

say "applying the estate"
for name in vault kyuubi; do
	namespace "$name"
	"$bin/terrier" push "$here/terraform" "oci://127.0.0.1:$port/$name/terraform:1.0.0" >/dev/null
done
"$bin/kubectl" config view --raw --minify -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$dir/kubernetes-ca.crt"
"$bin/kubectl" -n vault create configmap cluster --dry-run=client -o yaml \
	--from-literal=kubernetes_host="$("$bin/kubectl" config view --raw --minify -o jsonpath='{.clusters[0].cluster.server}')" \
	--from-file=kubernetes_ca_cert="$dir/kubernetes-ca.crt" | apply -f -
[ -n "$("$bin/kubectl" -n vault get secret database --ignore-not-found -o name)" ] ||
	head -c 24 /dev/urandom | base64 -w0 | "$bin/kubectl" -n vault create secret generic database --from-file=database_password=/dev/stdin >/dev/null
for part in vault-secrets apps apps/kyuubi/overlays/minikube; do
	apply -k "$here/infrastructure/$part"
done
sed -e "s|REGISTRY|127.0.0.1:$port|" -e "s|VAULT|$VAULT_ADDR|" "$here/clusters/stacks.yaml" | apply -f -
for stack in vault kyuubi; do
	until_it "the stack $stack is Ready" "$bin/kubectl" -n "$stack" wait "terraform/$stack" --for=condition=Ready --timeout=1s
	say "the stack $stack/$stack is Ready"
done

cat <<TEXT
kyuubi: the estate is up. In another terminal, in this directory:
  export KUBECONFIG=$KUBECONFIG BAO_ADDR=$BAO_ADDR BAO_TOKEN=\$(awk '/^Initial Root Token:/ {print \$NF}' $dir/bao/keys)
  $bin/terrier get -A
  $bin/terrier audit list --what secret-read,identity-issued
  $bin/bao kv get kyuubi/database
  $bin/bao kv put kyuubi/database mariadb_password=changeme
TEXT
wait -n
