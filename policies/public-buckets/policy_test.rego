package terrier_test

import data.terrier

given(type, after) := {
	"changes": [{"address": sprintf("%s.a", [type]), "type": type, "mode": "managed", "kind": "create", "after": after, "unknown": []}],
	"parameters": {},
}

policy(principal) := json.marshal({"Statement": [{"Effect": "Allow", "Principal": principal, "Action": "s3:GetObject"}]})

public := [
	["aws_s3_bucket", {"acl": "public-read"}],
	["aws_s3_bucket_acl", {"acl": "public-read-write"}],
	["aws_s3_bucket_public_access_block", {"block_public_acls": true, "block_public_policy": false}],
	["aws_s3_bucket_policy", {"policy": policy("*")}],
	["aws_s3_bucket_policy", {"policy": policy({"AWS": "*"})}],
	["aws_s3_bucket_policy", {"policy": policy({"AWS": ["arn:aws:iam::1:root", "*"]})}],
	["aws_s3_bucket_policy", {"policy": json.marshal({"Statement": {"Effect": "Allow", "Principal": "*"}})}],
	["google_storage_bucket_iam_member", {"member": "allUsers"}],
	["google_storage_bucket_iam_binding", {"members": ["user:a@example.com", "allAuthenticatedUsers"]}],
	["google_storage_bucket_access_control", {"entity": "allUsers"}],
	["azurerm_storage_account", {"allow_nested_items_to_be_public": true}],
	["azurerm_storage_container", {"container_access_type": "blob"}],
]

test_public_is_denied if {
	every p in public {
		count(terrier.deny) == 1 with input as given(p[0], p[1])
	}
}

private := [
	["aws_s3_bucket", {"acl": "private", "policy": null}],
	["aws_s3_bucket_public_access_block", {"block_public_acls": true, "block_public_policy": true, "ignore_public_acls": true, "restrict_public_buckets": true}],
	["aws_s3_bucket_policy", {"policy": policy({"AWS": "arn:aws:iam::1:root"})}],
	["aws_s3_bucket_policy", {"policy": json.marshal({"Statement": [{"Effect": "Deny", "Principal": "*"}]})}],
	["google_storage_bucket_iam_member", {"member": "user:a@example.com"}],
	["azurerm_storage_account", {"allow_nested_items_to_be_public": false}],
	["azurerm_storage_container", {"container_access_type": "private"}],
	["aws_instance", {"acl": "public-read"}],
]

test_private_is_not if {
	every p in private {
		count(terrier.deny) == 0 with input as given(p[0], p[1])
	}
}

test_exempt if {
	doc := object.union(given("aws_s3_bucket", {"acl": "public-read"}), {"parameters": {"exempt": ["aws_s3_bucket.*"]}})
	count(terrier.deny) == 0 with input as doc
}

test_a_policy_that_is_not_known_holds if {
	doc := {"changes": [{"address": "p", "type": "aws_s3_bucket_policy", "mode": "managed", "kind": "create", "after": {}, "unknown": ["policy"]}], "parameters": {}}
	count(terrier.hold) == 1 with input as doc
}
