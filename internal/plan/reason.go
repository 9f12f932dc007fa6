package plan

import "strings"

// reason puts an engine's word for why it does something into plain words.
func reason(word string) string {
	switch word {
	case "replace_because_cannot_update":
		return "it cannot be changed in place"
	case "replace_because_tainted":
		return "it is tainted"
	case "replace_by_request":
		return "a user requested the replacement"
	case "replace_by_triggers":
		return "a trigger of its replacement has changed"
	case "delete_because_no_resource_config":
		return "it is no longer in the configuration"
	case "delete_because_wrong_repetition":
		return "count or for_each was added or removed"
	case "delete_because_count_index":
		return "its index is beyond count"
	case "delete_because_each_key":
		return "its key is no longer in for_each"
	case "delete_because_enabled_false":
		return "it is disabled"
	case "delete_because_no_module":
		return "its module is no longer there"
	case "delete_because_no_move_target":
		return "it was moved to where nothing is declared"
	case "read_because_config_unknown":
		return "its configuration is not known yet"
	case "read_because_dependency_pending":
		return "something it depends on is about to change"
	case "read_because_check_nested":
		return "a check reads it"
	case "forgot_because_lifecycle_destroy_in_state", "forgot_because_lifecycle_destroy_in_config":
		return "it is not to be destroyed"
	default:
		return clean(strings.ReplaceAll(word, "_", " "))
	}
}
