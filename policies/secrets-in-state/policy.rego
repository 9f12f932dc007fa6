# METADATA
# title: No secrets in the state
# description: Attributes that put a secret into the state have a write-only form, or the state is encrypted.
# custom:
#   parameters:
#     effect: {enum: [deny, hold, warn]}
#     state_encrypted: {type: boolean}
#     exempt: {type: array, items: {type: string}}
#     types: {type: object}
#     data_sources: {type: array, items: {type: string}}
package terrier

effect := object.get(input.parameters, "effect", "warn")

exempt := object.get(input.parameters, "exempt", [])

# Environments and stacks whose state is encrypted by the engine or by a backend.
encrypted if object.get(input.parameters, "state_encrypted", false) == true

# Attributes that are secrets, and what to use in their place. A type without attributes
# has a secret in any case.
secrets := object.union(
	{
		"vault_kv_secret_v2": {"attributes": ["data_json"], "use": "data_json_wo"},
		"vault_generic_secret": {"attributes": ["data_json"], "use": "vault_kv_secret_v2 with data_json_wo"},
		"random_password": {"attributes": [], "use": "an ephemeral random_password"},
		"tls_private_key": {"attributes": [], "use": "an ephemeral tls_private_key"},
		"aws_iam_access_key": {"attributes": [], "use": "pgp_key, or a role"},
		"aws_db_instance": {"attributes": ["password"], "use": "manage_master_user_password or password_wo"},
		"aws_rds_cluster": {"attributes": ["master_password"], "use": "manage_master_user_password or master_password_wo"},
		"aws_secretsmanager_secret_version": {"attributes": ["secret_string", "secret_binary"], "use": "secret_string_wo"},
		"aws_ssm_parameter": {"attributes": ["value"], "use": "value_wo", "when": {"type": "SecureString"}},
		"google_secret_manager_secret_version": {"attributes": ["secret_data"], "use": "secret_data_wo"},
		"google_service_account_key": {"attributes": [], "use": "workload identity"},
		"google_sql_user": {"attributes": ["password"], "use": "password_wo"},
		"azurerm_key_vault_secret": {"attributes": ["value"], "use": "value_wo"},
		"kubernetes_secret": {"attributes": ["data"], "use": "data_wo"},
		"kubernetes_secret_v1": {"attributes": ["data"], "use": "data_wo"},
		"local_sensitive_file": {"attributes": [], "use": "no file"},
	},
	object.get(input.parameters, "types", {}),
)

# Data sources write what they read into the state. Ephemeral resources do not.
data_sources := object.get(input.parameters, "data_sources", [
	"vault_kv_secret_v2", "vault_generic_secret", "aws_secretsmanager_secret_version", "aws_secretsmanager_random_password",
	"google_secret_manager_secret_version", "azurerm_key_vault_secret", "kubernetes_secret", "kubernetes_secret_v1",
])

violation contains {
	"rule": "secret-in-state",
	"msg": sprintf("%s puts a secret into the state: use %s", [c.address, s.use]),
	"address": c.address,
	"severity": "high",
} if {
	not encrypted
	some c in input.changes
	c.mode == "managed"
	c.kind in {"create", "update", "replace", "import"}
	not c.address in exempt
	s := secrets[c.type]
	conditions_met(c, object.get(s, "when", {}))
	writes(c, s.attributes)
}

conditions_met(c, when) if {
	every name, value in when {
		c.after[name] == value
	}
}

writes(_, attributes) if count(attributes) == 0

writes(c, attributes) if {
	some a in attributes
	object.get(c.after, a, null) != null
}

writes(c, attributes) if {
	some a in attributes
	a in c.unknown
}

violation contains {
	"rule": "secret-read-into-state",
	"msg": sprintf("%s reads a secret into the state: use the ephemeral resource %s", [r.address, r.type]),
	"address": r.address,
	"severity": "high",
} if {
	not encrypted
	walk(input.plan.configuration, [_, r])
	is_object(r)
	r.mode == "data"
	r.type in data_sources
	not r.address in exempt
}

deny contains v if {
	effect == "deny"
	some v in violation
}

hold contains v if {
	effect == "hold"
	some v in violation
}

warn contains v if {
	effect == "warn"
	some v in violation
}
