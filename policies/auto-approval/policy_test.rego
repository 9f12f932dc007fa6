package terrier_test

import data.terrier

change(kind, attributes) := {
	"address": "aws_db_instance.main", "type": "aws_db_instance", "mode": "managed",
	"kind": kind, "attributes": attributes,
}

with_change(kind, attributes) := {"changes": [change(kind, attributes)], "plan": {}, "parameters": {}}

test_plain_changes_are_allowed if {
	every kind in ["create", "update", "read", "import", "move"] {
		count(terrier.allow) == 1 with input as with_change(kind, ["tags.owner"])
		count(terrier.hold) == 0 with input as with_change(kind, ["tags.owner"])
	}
}

test_outputs_alone_are_allowed if {
	count(terrier.allow) == 1 with input as {"changes": [], "plan": {}, "parameters": {}}
}

test_destroying_holds if {
	every kind in ["delete", "replace", "forget"] {
		count(terrier.hold) == 1 with input as with_change(kind, [])
		count(terrier.allow) == 0 with input as with_change(kind, [])
	}
}

test_data_that_is_no_longer_read_is_no_destroy if {
	c := object.union(change("delete", []), {"mode": "data"})
	count(terrier.allow) == 1 with input as {"changes": [c], "plan": {}, "parameters": {}}
}

test_protected_attributes_hold if {
	count(terrier.hold) == 1 with input as with_change("update", ["instance_class"])
	count(terrier.hold) == 1 with input as with_change("update", ["deletion_protection"])
}

test_protected_can_be_set if {
	doc := object.union(with_change("update", ["instance_class"]), {"parameters": {"protected": []}})
	count(terrier.hold) == 0 with input as doc
}

test_deferred_actions_and_errors_hold if {
	every p in [{"deferred_changes": [1]}, {"action_invocations": [1]}, {"errored": true}] {
		count(terrier.hold) == 1 with input as {"changes": [], "plan": p, "parameters": {}}
	}
}

test_approval_is_passed_on if {
	doc := object.union(with_change("delete", []), {"parameters": {"approval": {"count": 2, "groups": ["platform"]}}})
	some h in terrier.hold with input as doc
	h.approval == {"count": 2, "groups": ["platform"]}
}
