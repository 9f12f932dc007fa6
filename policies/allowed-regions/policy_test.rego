package terrier_test

import data.terrier

given(after) := {
	"changes": [{"address": "x.a", "type": "x", "mode": "managed", "kind": "create", "after": after}],
	"parameters": {"regions": ["eu-central-1", "europe-west3", "West Europe"]},
}

test_allowed if {
	every after in [
		{"region": "eu-central-1"}, {"availability_zone": "eu-central-1a"}, {"zone": "europe-west3-a"}, {"location": "EUROPE-WEST3"},
		{"location": "westeurope"}, {"location": "West Europe"}, {"location": "global"}, {"zones": ["europe-west3-a", "europe-west3-b"]}, {"name": "a"}, {"region": null},
	] {
		count(terrier.deny) == 0 with input as given(after)
	}
}

test_denied if {
	every after in [{"region": "us-east-1"}, {"zone": "europe-west1-a"}, {"location": "eastus"}, {"zones": ["europe-west3-a", "us-central1-a"]}] {
		count(terrier.deny) == 1 with input as given(after)
	}
}

test_exempt if {
	doc := object.union(given({"region": "us-east-1"}), {"parameters": {"exempt_types": ["x"]}})
	count(terrier.deny) == 0 with input as doc
}

test_strict_types_hold if {
	doc := object.union(given({"name": "a"}), {"parameters": {"strict_types": ["x"]}})
	count(terrier.hold) == 1 with input as doc
	located := object.union(given({"region": "eu-central-1"}), {"parameters": {"strict_types": ["x"]}})
	count(terrier.hold) == 0 with input as located
}
