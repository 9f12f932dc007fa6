package terrier_test

import data.terrier

base := {
	"stack": {"environment": "prod"}, "source": {"kind": "OCIRepository", "tag": "1.2.3", "pinned": false},
	"modules": [], "providers": [], "incomplete": [], "parameters": {},
}

with_source(s) := object.union(object.remove(base, ["source"]), {"source": s})

with_module(m) := object.union(base, {"modules": [object.union({"path": "module.a"}, m)]})

test_exact_versions_pass if {
	every s in [
		{"kind": "OCIRepository", "tag": "1.2.3", "pinned": false},
		{"kind": "OCIRepository", "tag": "v1.2.3-rc.1", "pinned": false},
		{"kind": "OCIRepository", "tag": "latest", "pinned": true},
		{"kind": "GitRepository", "branch": "main", "pinned": true},
		{"kind": "", "pinned": false},
	] {
		count(terrier.deny) == 0 with input as with_source(s)
	}
}

test_moving_sources_are_denied if {
	every s in [
		{"kind": "OCIRepository", "tag": "latest", "pinned": false},
		{"kind": "OCIRepository", "tag": "v1", "pinned": false},
		{"kind": "OCIRepository", "range": "~> 9.0.0", "pinned": false},
		{"kind": "GitRepository", "branch": "main", "pinned": false},
		{"kind": "OCIRepository", "pinned": false},
	] {
		count(terrier.deny) == 1 with input as with_source(s)
	}
}

test_other_environments_may if {
	doc := object.union(with_source({"kind": "OCIRepository", "tag": "latest", "pinned": false}), {"stack": {"environment": "dev"}})
	count(terrier.deny) == 0 with input as doc
	count(terrier.deny) == 1 with input as object.union(doc, {"parameters": {"environments": ["*"]}})
}

test_modules if {
	every m in [
		{"kind": "registry", "constraint": "1.2.3"},
		{"kind": "registry", "constraint": "= 1.2.3"},
		{"kind": "git", "version": "v1.2.3"},
		{"kind": "git", "version": "0123456789012345678901234567890123456789"},
		{"kind": "oci", "commit": "sha256:abc"},
		{"kind": "local"},
	] {
		count(terrier.deny) == 0 with input as with_module(m)
	}
	every m in [
		{"kind": "registry", "constraint": "~> 1.2", "version": "1.2.3"},
		{"kind": "registry", "version": "1.2.3"},
		{"kind": "git", "version": "main"},
		{"kind": "git"},
		{"kind": "oci", "version": "latest", "commit": "sha256:abc"},
		{"kind": "archive", "address": "https://example.com/a.zip"},
	] {
		count(terrier.deny) == 1 with input as with_module(m)
	}
}

test_nested_modules_warn if {
	doc := object.union(base, {"modules": [
		{"path": "module.a", "kind": "registry", "constraint": "1.2.3"},
		{"path": "module.a.module.b", "kind": "registry", "constraint": ">= 1"},
	]})
	count(terrier.deny) == 0 with input as doc
	count(terrier.warn) == 1 with input as doc
	count(terrier.hold) == 1 with input as object.union(doc, {"parameters": {"nested_modules": "hold"}})
}

test_providers if {
	doc := object.union(base, {"providers": [
		{"source": "registry.opentofu.org/hashicorp/aws", "constraints": ["~> 5.0"]},
		{"source": "registry.opentofu.org/hashicorp/random", "constraints": []},
		{"source": "registry.opentofu.org/hashicorp/local", "constraints": ["2.5.1"]},
		{"source": "terraform.io/builtin/terraform", "constraints": []},
	]})
	count(terrier.warn) == 2 with input as doc
	count(terrier.deny) == 2 with input as object.union(doc, {"parameters": {"providers": "deny"}})
}

test_incomplete_lists_hold if count(terrier.hold) == 1 with input as object.union(base, {"incomplete": ["it was cut"]})
