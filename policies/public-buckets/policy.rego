# METADATA
# title: No public buckets
# description: Buckets of AWS, Google Cloud and Azure are not readable by everyone.
# custom:
#   parameters:
#     exempt: {type: array, items: {type: string}}
package terrier

exempt := object.get(input.parameters, "exempt", [])

checked contains c if {
	some c in input.changes
	c.mode == "managed"
	c.kind in {"create", "update", "replace", "import"}
	not exempted(c.address)
}

exempted(address) if {
	some pattern in exempt
	glob.match(pattern, [], address)
}

# Why a resource makes a bucket public.
reason contains {"address": c.address, "why": sprintf("the ACL is %s", [c.after.acl])} if {
	some c in checked
	c.type in {"aws_s3_bucket", "aws_s3_bucket_acl", "aws_s3_object"}
	c.after.acl in {"public-read", "public-read-write", "website"}
}

reason contains {"address": c.address, "why": "its public access block is switched off"} if {
	some c in checked
	c.type in {"aws_s3_bucket_public_access_block", "aws_s3_account_public_access_block"}
	some flag in ["block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets"]
	c.after[flag] == false
}

reason contains {"address": c.address, "why": "its policy allows every principal"} if {
	some c in checked
	c.type in {"aws_s3_bucket_policy", "aws_s3_bucket"}
	json.is_valid(c.after.policy)
	some s in statements(json.unmarshal(c.after.policy))
	s.Effect == "Allow"
	everyone(object.get(s, "Principal", null))
	not s.Condition
}

reason contains {"address": c.address, "why": sprintf("it gives rights to %s", [who])} if {
	some c in checked
	startswith(c.type, "google_storage_")
	some who in array.concat([object.get(c.after, "member", ""), object.get(c.after, "entity", "")], members(c))
	who in {"allUsers", "allAuthenticatedUsers"}
}

reason contains {"address": c.address, "why": "it allows public access to blobs"} if {
	some c in checked
	c.type == "azurerm_storage_account"
	some flag in ["allow_nested_items_to_be_public", "allow_blob_public_access"]
	c.after[flag] == true
}

reason contains {"address": c.address, "why": sprintf("its access type is %s", [c.after.container_access_type])} if {
	some c in checked
	c.type == "azurerm_storage_container"
	c.after.container_access_type in {"blob", "container"}
}

members(c) := m if {
	m := c.after.members
	is_array(m)
} else := []

statements(document) := document.Statement if is_array(document.Statement)

statements(document) := [document.Statement] if is_object(document.Statement)

everyone("*")

everyone(p) if p.AWS == "*"

everyone(p) if {
	is_array(p.AWS)
	"*" in p.AWS
}

deny contains {
	"rule": "public-bucket",
	"msg": sprintf("%s makes a bucket public: %s", [r.address, r.why]),
	"address": r.address,
	"severity": "critical",
} if some r in reason

hold contains {
	"rule": "unknown-policy",
	"msg": sprintf("the policy of %s is known only after the apply", [c.address]),
	"address": c.address,
	"severity": "medium",
} if {
	some c in checked
	c.type == "aws_s3_bucket_policy"
	"policy" in c.unknown
}
