package terrier_test

import data.terrier

config(resource) := {"plan": {"configuration": {"root_module": {"module_calls": {"a": {"module": {"resources": [resource]}}}}}}, "parameters": {}}

test_provisioners_are_denied if {
	every p in ["local-exec", "remote-exec", "file"] {
		r := {"address": "null_resource.a", "mode": "managed", "type": "null_resource", "provisioners": [{"type": p}]}
		count(terrier.deny) == 1 with input as config(r)
	}
}

test_external_data_is_denied if {
	count(terrier.deny) == 1 with input as config({"address": "data.external.a", "mode": "data", "type": "external"})
}

test_others_are_not if {
	count(terrier.deny) == 0 with input as config({"address": "null_resource.a", "mode": "managed", "type": "null_resource"})
}

test_parameters if {
	doc := object.union(config({"address": "data.external.a", "mode": "data", "type": "external"}), {"parameters": {"data_sources": []}})
	count(terrier.deny) == 0 with input as doc
}

test_no_configuration_holds if count(terrier.hold) == 1 with input as {"plan": {}, "parameters": {}}
