# METADATA
# title: Rights in clouds only through approved modules
# description: Roles, bindings and accounts of AWS, Google Cloud and Azure come only from modules that are approved by source and version.
# custom:
#   parameters:
#     modules: {type: array, items: {type: object}}
#     types: {type: array, items: {type: string}}
package terrier

types := object.get(input.parameters, "types", [
	"aws_iam_*", "aws_ssoadmin_*", "aws_organizations_policy*",
	"google_*_iam_*", "google_service_account*", "google_iam_*",
	"azurerm_role_*", "azurerm_user_assigned_identity", "azurerm_federated_identity_credential", "azuread_*",
])

# Sources that may have such resources: {"source": …, "versions": […]}. A source is the
# address of a module in a registry, or the URL of its repository, without a version.
approved_modules := object.get(input.parameters, "modules", [])

# Direct resources may still be deleted, or be forgotten.
gives := {"create", "update", "replace", "import", "move"}

deny contains {
	"rule": "direct-iam",
	"msg": sprintf("%s gives rights outside of an approved module: use one of %v", [c.address, sources]),
	"address": c.address,
	"severity": "critical",
} if {
	some c in input.changes
	c.mode != "data"
	c.kind in gives
	some t in types
	glob.match(t, [], c.type)
	not in_approved_module(c.module)
}

sources := [m.source | some m in approved_modules]

# A resource is in an approved module if one of the modules around it is approved.
in_approved_module(module) if {
	some m in input.modules
	around(m.path, regex.replace(module, `\[("([^"\\]|\\.)*"|[0-9]+)\]`, ""))
	approved(m)
}

around(path, module) if path == module

around(path, module) if startswith(module, concat("", [path, ".module."]))

approved(m) if {
	some a in approved_modules
	m.address == a.source
	some v in a.versions
	v in {m.version, "*"}
	m.version != ""
}

hold contains {
	"rule": "unknown-modules",
	"msg": sprintf("which modules the plan uses is not completely known: %s", [concat("; ", input.incomplete)]),
	"severity": "high",
} if {
	count(input.incomplete) > 0
	some c in input.changes
	some t in types
	glob.match(t, [], c.type)
}
