# METADATA
# title: No state of other stacks
# description: A state holds secrets. A stack reads outputs of others from what they publish, and never their state.
# custom:
#   parameters:
#     data_sources: {type: array, items: {type: string}}
#     exempt: {type: array, items: {type: string}}
package terrier

types := object.get(input.parameters, "data_sources", ["terraform_remote_state", "tfe_outputs"])

exempt := object.get(input.parameters, "exempt", [])

# Data sources that are read while planning are no changes, so the configuration is searched.
deny contains {
	"rule": "remote-state",
	"msg": sprintf("data.%s.%s reads the state of another stack, with all secrets in it: use the outputs that the stack publishes", [r.type, r.name]),
	"address": sprintf("data.%s.%s", [r.type, r.name]),
	"severity": "high",
} if {
	walk(input.plan.configuration, [_, r])
	is_object(r)
	r.mode == "data"
	r.type in types
	not sprintf("data.%s.%s", [r.type, r.name]) in exempt
}

hold contains {
	"rule": "no-configuration",
	"msg": "the plan has no configuration, so it is not known which states it reads",
	"severity": "high",
} if not input.plan.configuration
