package terrier_test

import data.terrier

given(after, unknown) := {
	"changes": [{
		"address": "aws_s3_bucket.a", "type": "aws_s3_bucket", "mode": "managed", "kind": "create",
		"after": after, "unknown": unknown,
	}],
	"parameters": {"tags": ["owner", "cost-center"]},
}

test_all_tags if {
	count(terrier.deny) == 0 with input as given({"tags": {"owner": "a", "cost-center": "1"}}, ["tags_all"])
	count(terrier.hold) == 0 with input as given({"tags": {"owner": "a", "cost-center": "1"}}, ["tags_all"])
	count(terrier.deny) == 0 with input as given({"tags": null, "tags_all": {"owner": "a", "cost-center": "1"}}, [])
	count(terrier.deny) == 0 with input as given({"labels": {"owner": "a", "cost-center": "1"}}, [])
}

test_missing_tags if {
	count(terrier.deny) == 1 with input as given({"tags": null}, [])
	count(terrier.deny) == 1 with input as given({"tags": {"owner": "", "cost-center": "1"}}, [])
	some d in terrier.deny with input as given({"tags": {"owner": "a"}}, [])
	d.msg == "aws_s3_bucket.a needs the tags cost-center"
}

test_types_without_tags if count(terrier.deny) == 0 with input as given({"name": "a"}, [])

test_unknown_tags if {
	count(terrier.hold) == 1 with input as given({}, ["tags"])
	count(terrier.deny) == 0 with input as given({"tags": {"owner": "a"}}, ["tags.cost-center"])
	count(terrier.deny) == 0 with input as given({"tags": {"owner": "a"}}, [`tags["cost-center"]`])
}

test_patterns if {
	doc := object.union(given({"tags": {"owner": "bob", "cost-center": "1"}}, []), {"parameters": {"patterns": {"owner": "^team-"}}})
	count(terrier.deny) == 1 with input as doc
	ok := object.union(given({"tags": {"owner": "team-a", "cost-center": "1"}}, []), {"parameters": {"patterns": {"owner": "^team-"}}})
	count(terrier.deny) == 0 with input as ok
}

test_effects_and_exemptions if {
	doc := given({"tags": null}, [])
	count(terrier.warn) == 1 with input as object.union(doc, {"parameters": {"effect": "warn"}})
	count(terrier.hold) == 1 with input as object.union(doc, {"parameters": {"effect": "hold"}})
	count(terrier.deny) == 0 with input as object.union(doc, {"parameters": {"exempt_types": ["aws_s3_*"]}})
}
