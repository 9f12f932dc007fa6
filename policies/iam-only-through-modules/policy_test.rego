package terrier_test

import data.terrier

parameters := {"modules": [{"source": "registry.example.com/platform/iam/aws", "versions": ["1.2.3"]}]}

module(path, address, version) := {"path": path, "address": address, "version": version}

role(module, type) := {
	"address": sprintf("%s.%s.role", [module, type]), "module": module, "type": type,
	"mode": "managed", "kind": "create",
}

given(change, modules) := {"changes": [change], "modules": modules, "incomplete": [], "parameters": parameters}

ours := [module("module.iam", "registry.example.com/platform/iam/aws", "1.2.3")]

test_direct_resources_are_denied if {
	every type in ["aws_iam_role", "google_project_iam_member", "google_service_account_key", "azurerm_role_assignment"] {
		count(terrier.deny) == 1 with input as given(role("", type), ours)
	}
}

test_approved_modules_may if {
	every at in ["module.iam", "module.iam[0]", `module.iam["a.b]"]`, "module.iam.module.inner"] {
		count(terrier.deny) == 0 with input as given(role(at, "aws_iam_role"), ours)
	}
}

test_other_versions_and_sources_are_denied if {
	every m in [
		module("module.iam", "registry.example.com/platform/iam/aws", "1.2.4"),
		module("module.iam", "registry.example.com/other/iam/aws", "1.2.3"),
		module("module.iam", "registry.example.com/platform/iam/aws", ""),
		{"path": "module.iam", "kind": "local"},
	] {
		count(terrier.deny) == 1 with input as given(role("module.iam", "aws_iam_role"), [m])
	}
}

# Keys of instances are text of the author, and look like a path.
test_keys_are_no_path if {
	modules := array.concat(ours, [module("module.evil", "git.example.com/evil", "1")])
	count(terrier.deny) == 1 with input as given(role(`module.evil["].module.iam["]`, "aws_iam_role"), modules)
	count(terrier.deny) == 1 with input as given(role("module.iamx", "aws_iam_role"), modules)
}

test_data_sources_are_allowed if {
	c := object.union(role("", "aws_iam_policy_document"), {"mode": "data", "kind": "read"})
	count(terrier.deny) == 0 with input as given(c, [])
}

test_direct_resources_may_be_deleted if {
	count(terrier.deny) == 0 with input as given(object.union(role("", "aws_iam_role"), {"kind": "delete"}), [])
}

test_unknown_modules_hold if {
	doc := object.union(given(role("module.iam", "aws_iam_role"), ours), {"incomplete": ["the list was cut"]})
	count(terrier.hold) == 1 with input as doc
}
