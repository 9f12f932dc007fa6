package terrier_test

import data.terrier

config(resources) := {"plan": {"configuration": {"root_module": resources}}, "parameters": {}}

remote := {"address": "data.terraform_remote_state.vpc", "mode": "data", "type": "terraform_remote_state", "name": "vpc"}

test_remote_state_is_denied if {
	count(terrier.deny) == 1 with input as config({"resources": [remote]})
	count(terrier.deny) == 1 with input as config({"module_calls": {"a": {"module": {"module_calls": {"b": {"module": {"resources": [remote]}}}}}}})
}

test_others_are_not if {
	count(terrier.deny) == 0 with input as config({"resources": [{"mode": "data", "type": "aws_ami", "name": "a"}, {"mode": "managed", "type": "terraform_remote_state", "name": "x"}]})
}

test_exempt if {
	doc := object.union(config({"resources": [remote]}), {"parameters": {"exempt": ["data.terraform_remote_state.vpc"]}})
	count(terrier.deny) == 0 with input as doc
}

test_no_configuration_holds if count(terrier.hold) == 1 with input as {"plan": {}, "parameters": {}}
