package terrier_test

import data.terrier

given(modules) := {"modules": modules, "incomplete": [], "parameters": {"sources": ["registry.example.com/platform/*/*", "https://git.example.com/platform/**"]}}

vpc := {"path": "module.vpc", "kind": "registry", "address": "registry.example.com/platform/vpc/aws", "declared": "registry.example.com/platform/vpc/aws", "version": "1.0.0"}

evil(path) := {"path": path, "kind": "git", "address": "https://git.example.com/evil.git", "declared": "git::https://git.example.com/evil.git"}

test_approved_sources if count(terrier.deny) == 0 with input as given([vpc])

test_direct_git_is_denied if count(terrier.deny) == 1 with input as given([evil("module.evil")])

test_what_an_approved_module_calls_is_allowed if {
	count(terrier.deny) == 0 with input as given([vpc, evil("module.vpc.module.subnets")])
}

test_a_local_module_hides_nothing if {
	wrapper := {"path": "module.wrapper", "kind": "local", "declared": "./wrapper"}
	count(terrier.deny) == 1 with input as given([wrapper, evil("module.wrapper.module.evil")])
	count(terrier.deny) == 0 with input as given([wrapper, object.union(vpc, {"path": "module.wrapper.module.vpc"})])
}

test_a_denied_module_approves_nothing if {
	count(terrier.deny) == 2 with input as given([evil("module.evil"), evil("module.evil.module.inner")])
}

test_a_prefix_is_no_match if {
	m := object.union(vpc, {"address": "registry.example.com/platform-evil/vpc/aws"})
	count(terrier.deny) == 1 with input as given([m])
}

test_double_slashes if {
	fine := "registry.example.com/platform/vpc/aws//modules/subnets"
	count(terrier.deny) == 0 with input as given([object.union(vpc, {"declared": fine})])
	count(terrier.deny) == 0 with input as given([{
		"path": "module.a", "kind": "git", "address": "https://git.example.com/platform/a.git",
		"declared": "git::https://git.example.com/platform/a.git//modules/x?ref=v1",
	}])
	every declared in [
		"registry.example.com/platform/vpc/aws//../../evil",
		"git::https://git.example.com/platform/a.git//x//../evil",
		"git::https://git.example.com/platform/a.git//x//y",
		"git::https://git.example.com/platform/%2e%2e/evil.git",
	] {
		count(terrier.deny) == 1 with input as given([object.union(vpc, {"declared": declared})])
	}
}

test_what_is_not_known_is_held if {
	count(terrier.hold) == 1 with input as given([{"path": "module.a", "declared": "example.com/a/b/c"}])
	count(terrier.hold) == 1 with input as object.union(given([vpc]), {"incomplete": ["it was cut"]})
}

test_the_address_is_shown_without_a_declaration if {
	m := {"path": "module.a", "kind": "git", "address": "https://git.example.com/evil.git"}
	some d in terrier.deny with input as given([m])
	contains(d.msg, "https://git.example.com/evil.git")
}
