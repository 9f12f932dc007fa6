package terrier_test

import data.terrier

given(type, after, unknown) := {
	"plan": {"configuration": {}},
	"changes": [{"address": sprintf("%s.a", [type]), "type": type, "mode": "managed", "kind": "create", "after": after, "unknown": unknown}],
	"parameters": {},
}

test_secrets_warn if {
	every c in [
		["vault_kv_secret_v2", {"data_json": "(sensitive)"}, []],
		["random_password", {}, ["result"]],
		["aws_db_instance", {}, ["password"]],
		["aws_ssm_parameter", {"type": "SecureString", "value": "(sensitive)"}, []],
		["kubernetes_secret_v1", {"data": {"a": "(sensitive)"}}, []],
	] {
		count(terrier.warn) == 1 with input as given(c[0], c[1], c[2])
	}
}

test_write_only_forms_do_not if {
	every c in [
		["vault_kv_secret_v2", {"data_json": null, "data_json_wo": null}, []],
		["aws_db_instance", {"password": null, "manage_master_user_password": true}, []],
		["aws_ssm_parameter", {"type": "String", "value": "a"}, []],
		["aws_s3_bucket", {"bucket": "a"}, []],
	] {
		count(terrier.warn) == 0 with input as given(c[0], c[1], c[2])
	}
}

test_data_sources if {
	doc := {
		"plan": {"configuration": {"root_module": {"resources": [{"address": "data.vault_kv_secret_v2.a", "mode": "data", "type": "vault_kv_secret_v2"}]}}},
		"changes": [], "parameters": {},
	}
	count(terrier.warn) == 1 with input as doc
	count(terrier.warn) == 0 with input as object.union(doc, {"parameters": {"exempt": ["data.vault_kv_secret_v2.a"]}})
}

test_parameters if {
	doc := given("random_password", {}, [])
	count(terrier.deny) == 1 with input as object.union(doc, {"parameters": {"effect": "deny"}})
	count(terrier.hold) == 1 with input as object.union(doc, {"parameters": {"effect": "hold"}})
	count(terrier.warn) == 0 with input as object.union(doc, {"parameters": {"state_encrypted": true}})
	count(terrier.warn) == 1 with input as object.union(given("acme_token", {}, []), {"parameters": {"types": {"acme_token": {"attributes": [], "use": "none"}}}})
}
