# METADATA
# title: Allowed regions
# description: Resources are created only in the regions that are allowed.
# custom:
#   parameters:
#     regions: {type: array, items: {type: string}}
#     exempt_types: {type: array, items: {type: string}}
#     strict_types: {type: array, items: {type: string}}
package terrier

# Regions as their cloud writes them. A zone such as europe-west3-a is in its region, and
# "West Europe" is westeurope.
regions := {normal(r) | some r in object.get(input.parameters, "regions", [])}

exempt := object.get(input.parameters, "exempt_types", [])

# Types whose region has to be known before the apply.
strict := object.get(input.parameters, "strict_types", [])

attributes := ["region", "location", "zone", "availability_zone", "replica_regions", "zones", "availability_zones", "locations"]

normal(text) := replace(lower(text), " ", "")

checked contains c if {
	some c in input.changes
	c.mode == "managed"
	c.kind in {"create", "update", "replace", "import"}
	not listed(exempt, c.type)
}

listed(patterns, type) if {
	some p in patterns
	glob.match(p, [], type)
}

places contains {"address": c.address, "region": value} if {
	some c in checked
	some a in attributes
	value := c.after[a]
	is_string(value)
}

places contains {"address": c.address, "region": value} if {
	some c in checked
	some a in attributes
	is_array(c.after[a])
	some value in c.after[a]
	is_string(value)
}

allowed(place) if normal(place) in regions

allowed(place) if {
	some suffix in [`-[a-z]$`, `[a-z]$`]
	regex.match(suffix, normal(place))
	regex.replace(normal(place), suffix, "") in regions
}

# Global resources are in no region.
allowed(place) if normal(place) == "global"

deny contains {
	"rule": "region",
	"msg": sprintf("%s would be in %s: use one of %s", [p.address, p.region, concat(", ", sort(regions))]),
	"address": p.address,
	"severity": "high",
} if {
	some p in places
	p.region != ""
	not allowed(p.region)
}

hold contains {
	"rule": "unknown-region",
	"msg": sprintf("the region of %s is known only after the apply", [c.address]),
	"address": c.address,
	"severity": "medium",
} if {
	some c in checked
	listed(strict, c.type)
	not located(c)
}

located(c) if {
	some p in places
	p.address == c.address
}
