# METADATA
# title: Approve what destroys nothing
# description: Plans that create, change or read need no approval. Plans that destroy, replace or forget need one.
# custom:
#   parameters:
#     hold: {type: array, items: {enum: [create, update, replace, delete, forget, import, move, read]}}
#     protected: {type: array, items: {type: object}}
#     approval: {type: object}
package terrier

# What needs an approval, by kind of change.
kinds := object.get(input.parameters, "hold", ["delete", "replace", "forget"])

# Data live in resources of these types, so a change of these attributes needs an approval as well.
protected := object.get(input.parameters, "protected", [{
	"types": [
		"aws_db_instance", "aws_rds_cluster", "aws_dynamodb_table", "aws_s3_bucket*", "aws_efs_file_system", "aws_ebs_volume", "aws_kms_*",
		"google_sql_*", "google_storage_bucket*", "google_kms_*", "google_bigtable_*", "google_spanner_*",
		"azurerm_storage_account", "azurerm_mssql_*", "azurerm_postgresql_*", "azurerm_mysql_*", "azurerm_cosmosdb_*", "azurerm_key_vault*",
	],
	"attributes": [
		"engine*", "instance_class", "allocated_storage", "storage_*", "*deletion*", "skip_final_snapshot", "backup_*", "*lifecycle*",
		"versioning*", "force_destroy", "policy", "*rotation*", "soft_delete*", "purge_*", "tier", "database_version", "key_*", "is_enabled",
	],
}])

approval := {"approval": input.parameters.approval} if input.parameters.approval

default approval := {}

held contains object.union(approval, {
	"rule": "destroys",
	"msg": sprintf("%s would be %s", [c.address, verb[c.kind]]),
	"address": c.address,
	"severity": "high",
}) if {
	some c in input.changes
	c.kind in kinds
	c.mode != "data"
}

verb := {
	"create": "created", "update": "changed", "replace": "destroyed and created again", "delete": "destroyed",
	"forget": "removed from the state and left as it is", "import": "imported", "move": "moved to another address", "read": "read",
}

held contains object.union(approval, {
	"rule": "protected",
	"msg": sprintf("%s holds data, and %s would change", [c.address, concat(", ", sort(attributes))]),
	"address": c.address,
	"severity": "high",
}) if {
	some c in input.changes
	c.kind == "update"
	some p in protected
	some t in p.types
	glob.match(t, [], c.type)
	attributes := {a |
		some a in c.attributes
		some pattern in p.attributes
		glob.match(pattern, [], a)
	}
	count(attributes) > 0
}

# What the engine leaves for a later plan is not known yet.
held contains object.union(approval, {
	"rule": "deferred",
	"msg": sprintf("%d changes are deferred to a later plan", [count(input.plan.deferred_changes)]),
	"severity": "medium",
}) if {
	count(input.plan.deferred_changes) > 0
}

# Actions of providers do things that are no change of a resource.
held contains object.union(approval, {
	"rule": "actions",
	"msg": sprintf("the plan invokes %d actions of providers", [count(input.plan.action_invocations)]),
	"severity": "medium",
}) if {
	count(input.plan.action_invocations) > 0
}

held contains object.union(approval, {"rule": "errored", "msg": "planning ended with an error", "severity": "high"}) if {
	input.plan.errored == true
}

hold contains h if some h in held

allow contains {"rule": "auto-approval", "msg": "the plan destroys, replaces and forgets nothing"} if count(held) == 0
