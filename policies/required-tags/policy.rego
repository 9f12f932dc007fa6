# METADATA
# title: Required tags
# description: Resources that can have tags have those that are required.
# custom:
#   parameters:
#     tags: {type: array, items: {type: string}}
#     patterns: {type: object}
#     exempt_types: {type: array, items: {type: string}}
#     effect: {enum: [deny, hold, warn]}
package terrier

required := object.get(input.parameters, "tags", ["owner"])

# Patterns that values have to match, by tag.
patterns := object.get(input.parameters, "patterns", {})

exempt := object.get(input.parameters, "exempt_types", [])

effect := object.get(input.parameters, "effect", "deny")

# Where a provider keeps tags. The first of these that the resource has counts: tags_all
# has those of the provider's default_tags as well.
attributes := ["tags_all", "tags", "effective_labels", "labels"]

checked contains c if {
	some c in input.changes
	c.mode == "managed"
	c.kind in {"create", "update", "replace", "import"}
	not exempted(c)
}

exempted(c) if {
	some t in exempt
	glob.match(t, [], c.type)
}

place(c) := [a | some a in attributes; a in object.keys(c.after)][0]

tags(c) := t if {
	t := c.after[place(c)]
	is_object(t)
}

tags(c) := {} if c.after[place(c)] == null

missing(c) := [t | some t in required; not good(c, t)]

good(c, tag) if {
	value := tags(c)[tag]
	value != ""
	not patterns[tag]
}

good(c, tag) if {
	value := tags(c)[tag]
	regex.match(patterns[tag], value)
}

# Tags whose names are known and whose values are not: only a pattern is left open.
unknown_tag(c, tag) if {
	some a in attributes
	sprintf("%s.%s", [a, tag]) in c.unknown
}

unknown_tag(c, tag) if {
	some a in attributes
	sprintf("%s[%q]", [a, tag]) in c.unknown
}

wholly_unknown(c) if {
	some a in attributes
	a in c.unknown
	not known_elsewhere(c)
}

known_elsewhere(c) if {
	some a in ["tags", "labels"]
	is_object(c.after[a])
	every tag in required {
		c.after[a][tag]
	}
}

violation contains {
	"rule": "required-tags",
	"msg": sprintf("%s needs the tags %s", [c.address, concat(", ", lacking)]),
	"address": c.address,
	"severity": "medium",
} if {
	some c in checked
	not wholly_unknown(c)
	lacking := [t | some t in missing(c); not unknown_tag(c, t)]
	count(lacking) > 0
	place(c)
}

hold contains {
	"rule": "unknown-tags",
	"msg": sprintf("the tags of %s are known only after the apply", [c.address]),
	"address": c.address,
	"severity": "low",
} if {
	some c in checked
	wholly_unknown(c)
}

deny contains v if {
	effect == "deny"
	some v in violation
}

hold contains v if {
	effect == "hold"
	some v in violation
}

warn contains v if {
	effect == "warn"
	some v in violation
}
