# METADATA
# title: Target nodes
# description: Virtual machines of Proxmox are placed only on the nodes that the tenant may use.
# custom:
#   parameters:
#     nodes: {type: array, items: {type: string}}
#     nodes_by_tenant: {type: object}
#     types: {type: array, items: {type: string}}
#     attributes: {type: array, items: {type: string}}
package terrier

# Nodes that every stack may use, and those of one tenant. Patterns; a star is any text.
nodes := array.concat(
	object.get(input.parameters, "nodes", []),
	object.get(object.get(input.parameters, "nodes_by_tenant", {}), object.get(input.stack, "tenant", ""), []),
)

types := object.get(input.parameters, "types", ["proxmox_*"])

attributes := object.get(input.parameters, "attributes", ["target_node", "target_nodes", "node_name"])

checked contains c if {
	some c in input.changes
	c.mode == "managed"
	c.kind in {"create", "update", "replace", "import"}
	some t in types
	glob.match(t, [], c.type)
}

targets contains {"address": c.address, "node": node} if {
	some c in checked
	some a in attributes
	node := c.after[a]
	is_string(node)
}

targets contains {"address": c.address, "node": node} if {
	some c in checked
	some a in attributes
	is_array(c.after[a])
	some node in c.after[a]
}

allowed(node) if {
	some n in nodes
	glob.match(n, [], node)
}

deny contains {
	"rule": "target-node",
	"msg": sprintf("%s would be on the node %s, which is not among the allowed nodes %s", [t.address, t.node, concat(", ", nodes)]),
	"address": t.address,
	"severity": "critical",
} if {
	some t in targets
	not allowed(t.node)
}

hold contains {
	"rule": "unknown-node",
	"msg": sprintf("the node of %s is known only after the apply", [c.address]),
	"address": c.address,
	"severity": "high",
} if {
	some c in checked
	some a in attributes
	a in c.unknown
}
