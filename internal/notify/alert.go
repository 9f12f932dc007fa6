package notify

import (
	"fmt"
	"regexp"
)

// Any is the name that chooses all objects of a kind.
const Any = "*"

// Alert selects the events for a provider of its namespace.
type Alert struct {
	Namespace string
	Provider  string
	Sources   []Source
	Severity  string // Error leaves out the others
	Include   []string
	Exclude   []string
	Metadata  map[string]string
	Summary   string
	Suspended bool
}

// Source chooses objects.
type Source struct {
	Kind, Namespace, Name string // Namespace is the alert's if empty
	Labels                map[string]string
}

// Wants reports whether e is for the alert. Objects of other namespaces are so
// only if across says that alerts may see them. The error says which expression
// cannot be used; such an alert gets nothing.
func (a Alert) Wants(e Event, across bool) (bool, error) {
	if a.Suspended || a.Severity == Error && e.Severity != Error || !a.sees(e, across) {
		return false, nil
	}
	included, err := matchesAny(a.Include, e.Message)
	if err != nil || !included && len(a.Include) > 0 {
		return false, err
	}
	excluded, err := matchesAny(a.Exclude, e.Message)
	return err == nil && !excluded, err
}

func (a Alert) sees(e Event, across bool) bool {
	for _, s := range a.Sources {
		if s.Namespace == "" {
			s.Namespace = a.Namespace
		}
		if (across || s.Namespace == a.Namespace) && s.chooses(e) {
			return true
		}
	}
	return false
}

func (s Source) chooses(e Event) bool {
	o := e.InvolvedObject
	if s.Kind != o.Kind || s.Namespace != o.Namespace || s.Name != Any && s.Name != o.Name {
		return false
	}
	for key, value := range s.Labels {
		if have, ok := e.Labels[key]; !ok || have != value {
			return false
		}
	}
	return len(s.Labels) == 0 || s.Name == Any // as Flux has it: labels are for those that are not named
}

// Route is where the alert sends events.
func (a Alert) Route() Route {
	r := Route{Namespace: a.Namespace, Provider: a.Provider, Metadata: map[string]string{}}
	for key, value := range a.Metadata {
		r.Metadata[key] = value
	}
	if _, has := r.Metadata["summary"]; a.Summary != "" && !has {
		r.Metadata["summary"] = a.Summary
	}
	return r
}

func matchesAny(expressions []string, message string) (bool, error) {
	found := false
	for _, x := range expressions {
		re, err := regexp.Compile(x)
		if err != nil {
			return false, fmt.Errorf("the expression %.100q cannot be used: %w", x, err)
		}
		found = found || re.MatchString(message)
	}
	return found, nil
}
