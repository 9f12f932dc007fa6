# METADATA
# title: Modules only from approved sources
# description: Modules that the configuration itself calls come from approved sources. What an approved module calls is its author's matter.
# custom:
#   parameters:
#     sources: {type: array, items: {type: string}}
package terrier

# Patterns of addresses. A star is one part of the address, two stars are any number.
sources := object.get(input.parameters, "sources", [])

# A module in a directory beside the caller is part of the configuration.
local(m) if m.kind == "local"

# A call is checked unless a module around it is from an approved source. A module that
# only wraps another one hides nothing: local modules approve nothing.
checked contains m if {
	some m in input.modules
	not local(m)
	not below_approved(m.path)
}

below_approved(path) if {
	some m in input.modules
	startswith(path, concat("", [m.path, ".module."]))
	not local(m)
	approved(m)
}

approved(m) if {
	some pattern in sources
	glob.match(pattern, ["/"], m.address)
	not suspicious(m)
}

# The directory behind a double slash is part of the module and leads out of nothing.
suspicious(m) if contains(m.declared, "..")

suspicious(m) if count(split(regex.replace(m.declared, `^([a-z0-9]+::)?([a-z0-9+.-]+://)?`, ""), "//")) > 2

suspicious(m) if {
	some encoded in ["%2e", "%2f", "%5c"]
	contains(lower(m.declared), encoded)
}

deny contains {
	"rule": "module-source",
	"msg": sprintf("%s comes from %s, which is no approved source", [m.path, shown(m)]),
	"address": m.path,
	"severity": "high",
} if {
	some m in checked
	known(m)
	not approved(m)
}

known(m) if object.get(m, "address", "") != ""

shown(m) := m.declared if object.get(m, "declared", "") != ""

shown(m) := m.address if object.get(m, "declared", "") == ""

hold contains {
	"rule": "unknown-source",
	"msg": sprintf("it is not known where %s comes from", [m.path]),
	"address": m.path,
	"severity": "high",
} if {
	some m in checked
	not known(m)
}

hold contains {
	"rule": "unknown-modules",
	"msg": sprintf("which modules the plan uses is not completely known: %s", [concat("; ", input.incomplete)]),
	"severity": "high",
} if count(input.incomplete) > 0
