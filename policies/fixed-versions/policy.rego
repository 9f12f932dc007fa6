# METADATA
# title: Fixed versions in production
# description: What runs in production is named by an exact version, so that it can be said later what ran.
# custom:
#   parameters:
#     environments: {type: array, items: {type: string}}
#     modules: {enum: [deny, hold, warn, none]}
#     nested_modules: {enum: [deny, hold, warn, none]}
#     providers: {enum: [deny, hold, warn, none]}
package terrier

environments := object.get(input.parameters, "environments", ["prod", "production"])

applies if "*" in environments

applies if lower(object.get(input.stack, "environment", "")) in environments

# What follows for modules and for providers: deny, hold, warn or none. The source of the
# stack is always denied.
modules_effect := object.get(input.parameters, "modules", "deny")

nested_effect := object.get(input.parameters, "nested_modules", "warn")

providers_effect := object.get(input.parameters, "providers", "warn")

exact := `^(=\s*)?v?[0-9]+\.[0-9]+\.[0-9]+([-+_][0-9A-Za-z.+_-]+)?$`

commit := `^([0-9a-f]{40}|[0-9a-f]{64})$`

problem contains {
	"effect": "deny",
	"rule": "source-version",
	"msg": sprintf("the source follows the range %s: name one version, or a digest", [input.source.range]),
} if {
	applies
	object.get(input.source, "range", "") != ""
}

problem contains {
	"effect": "deny",
	"rule": "source-version",
	"msg": sprintf("the source follows the branch %s: name a tag or a commit", [input.source.branch]),
} if {
	applies
	object.get(input.source, "branch", "") != ""
	not input.source.pinned
}

problem contains {
	"effect": "deny",
	"rule": "source-version",
	"msg": sprintf("the source has the tag %s, which may move: name an exact version such as 1.2.3, or a digest", [input.source.tag]),
} if {
	applies
	object.get(input.source, "tag", "") != ""
	not regex.match(exact, input.source.tag)
	not input.source.pinned
}

problem contains {
	"effect": "deny",
	"rule": "source-version",
	"msg": "the source has no version: name a tag or a digest",
} if {
	applies
	object.get(input.source, "kind", "") != ""
	not input.source.pinned
	every field in ["tag", "range", "branch"] {
		object.get(input.source, field, "") == ""
	}
}

problem contains {
	"effect": effect_of(m),
	"rule": "module-version",
	"msg": sprintf("%s has no fixed version: %s", [m.path, wants(m)]),
	"address": m.path,
} if {
	applies
	some m in input.modules
	object.get(m, "kind", "") != "local"
	not fixed(m)
}

effect_of(m) := modules_effect if own(m)

effect_of(m) := nested_effect if not own(m)

# A call is the configuration's own if all modules around it are local.
own(m) if {
	every other in input.modules {
		not foreign_around(other, m)
	}
}

foreign_around(other, m) if {
	startswith(m.path, concat("", [other.path, ".module."]))
	object.get(other, "kind", "") != "local"
}

fixed(m) if {
	object.get(m, "kind", "registry") == "registry"
	regex.match(exact, trim_space(object.get(m, "constraint", "")))
}

fixed(m) if {
	m.kind in {"git", "oci"}
	regex.match(exact, object.get(m, "version", ""))
}

fixed(m) if {
	m.kind == "git"
	regex.match(commit, object.get(m, "version", ""))
}

fixed(m) if {
	m.kind == "oci"
	object.get(m, "commit", "") != "" # a digest in the source
	object.get(m, "version", "") == ""
}

wants(m) := "write version = \"1.2.3\"" if object.get(m, "kind", "registry") == "registry"

wants(m) := "name a tag such as 1.2.3, or a commit, in its source" if object.get(m, "kind", "registry") != "registry"

problem contains {
	"effect": providers_effect,
	"rule": "provider-version",
	"msg": sprintf("the provider %s has the constraint %q, which is no exact version", [p.source, c]),
	"address": p.source,
} if {
	applies
	some p in input.providers
	some c in p.constraints
	not regex.match(exact, trim_space(c))
}

problem contains {
	"effect": providers_effect,
	"rule": "provider-version",
	"msg": sprintf("the provider %s has no version constraint", [p.source]),
	"address": p.source,
} if {
	applies
	some p in input.providers
	not startswith(p.source, "terraform.io/builtin/")
	count(p.constraints) == 0
}

finding(p) := object.union(object.remove(p, ["effect"]), {"severity": "medium"})

deny contains finding(p) if {
	some p in problem
	p.effect == "deny"
}

hold contains finding(p) if {
	some p in problem
	p.effect == "hold"
}

warn contains finding(p) if {
	some p in problem
	p.effect == "warn"
}

hold contains {"rule": "unknown-modules", "msg": sprintf("which modules and providers the plan uses is not completely known: %s", [concat("; ", input.incomplete)]), "severity": "medium"} if {
	applies
	count(input.incomplete) > 0
}
