package stack

import "time"

// ForgottenResource is a resource that an apply or a destroy took out of the state,
// as the configuration asked, and left where it is. It has what an import takes.
type ForgottenResource struct {
	Address  string    `json:"address"`
	Type     string    `json:"type"`
	ID       string    `json:"id,omitempty"`       // empty if unknown, or if the configuration marks it as sensitive
	Provider string    `json:"provider,omitempty"` // its full address
	Run      string    `json:"run"`
	At       time.Time `json:"at"`
	Unsure   bool      `json:"unsure,omitempty"` // the run failed and its state could not be compared: it may still be managed
}

// MergeForgotten adds resources to those that were forgotten before. The same resource
// is listed once, as it was forgotten last.
func MergeForgotten(before, now []ForgottenResource) []ForgottenResource {
	out := []ForgottenResource{}
	for _, was := range before {
		if !containsForgotten(now, was) {
			out = append(out, was)
		}
	}
	return append(out, now...)
}

func containsForgotten(list []ForgottenResource, r ForgottenResource) bool {
	for _, f := range list {
		if f.Address == r.Address && f.Type == r.Type && f.ID == r.ID && (f.ID != "" || f.Run == r.Run) {
			return true
		}
	}
	return false
}
