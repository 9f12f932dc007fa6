# METADATA
# title: No programs beside the providers
# description: Provisioners and external data sources run programs that no plan shows.
# custom:
#   parameters:
#     provisioners: {type: array, items: {type: string}}
#     data_sources: {type: array, items: {type: string}}
package terrier

provisioners := object.get(input.parameters, "provisioners", ["local-exec", "remote-exec", "file"])

data_sources := object.get(input.parameters, "data_sources", ["external"])

resources contains r if {
	walk(input.plan.configuration, [_, r])
	is_object(r)
	r.mode in {"managed", "data"}
	is_string(r.type)
}

deny contains {
	"rule": "provisioner",
	"msg": sprintf("%s has the provisioner %s, which runs a program that no plan shows", [r.address, p.type]),
	"address": r.address,
	"severity": "high",
} if {
	some r in resources
	some p in r.provisioners
	p.type in provisioners
}

deny contains {
	"rule": "external-data",
	"msg": sprintf("%s runs a program while planning", [r.address]),
	"address": r.address,
	"severity": "high",
} if {
	some r in resources
	r.mode == "data"
	r.type in data_sources
}

hold contains {
	"rule": "no-configuration",
	"msg": "the plan has no configuration, so it is not known which programs it runs",
	"severity": "high",
} if not input.plan.configuration
