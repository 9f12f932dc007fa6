package terrier_test

import data.terrier

given(after, unknown) := {
	"stack": {"tenant": "acme"},
	"changes": [{"address": "proxmox_vm_qemu.a", "type": "proxmox_vm_qemu", "mode": "managed", "kind": "create", "after": after, "unknown": unknown}],
	"parameters": {"nodes": ["shared-1"], "nodes_by_tenant": {"acme": ["acme-*"], "other": ["other-*"]}},
}

test_allowed if {
	every after in [{"target_node": "shared-1"}, {"node_name": "acme-7"}, {"target_nodes": ["acme-1", "shared-1"]}, {"name": "a"}] {
		count(terrier.deny) == 0 with input as given(after, [])
	}
}

test_denied if {
	every after in [{"target_node": "mgmt-1"}, {"node_name": "other-1"}, {"target_nodes": ["acme-1", "mgmt-1"]}] {
		count(terrier.deny) == 1 with input as given(after, [])
	}
}

test_without_a_tenant if {
	doc := object.union(object.remove(given({"target_node": "acme-1"}, []), ["stack"]), {"stack": {}})
	count(terrier.deny) == 1 with input as doc
}

test_unknown_nodes_hold if count(terrier.hold) == 1 with input as given({}, ["target_node"])
