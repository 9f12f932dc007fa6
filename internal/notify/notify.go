// Package notify tells people and systems what happened: it takes events from
// the controllers, finds out who wants them, and sees to it that they arrive.
//
// Whoever tells never waits: Desk.Tell puts an event into a bounded queue and
// returns. What a provider is to be sent is written down before it is sent, so
// that it outlives this process, and leaves through outbound like everything
// else that goes to an address that somebody wrote.
//
// It knows neither Kubernetes nor where alerts and providers come from: a
// Directory does. It sends the text of an event and a few facts, never a plan,
// an input or an output, and it takes no text for markup of the receiver.
//
// Start reading at Desk; who wants what is in alert.go, what is sent in
// payload.go.
package notify

import (
	"context"
	"io"
	"maps"
	"strings"
	"time"
)

// Severities of events.
const (
	Info  = "info"
	Error = "error"
)

// EventGroup is the prefix of metadata that is about the event itself.
const EventGroup = "event.toolkit.fluxcd.io"

// Object is what an event is about.
type Object struct {
	Kind            string `json:"kind,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name,omitempty"`
	UID             string `json:"uid,omitempty"`
	APIVersion      string `json:"apiVersion,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Event is something that happened, in the form of Flux.
type Event struct {
	InvolvedObject      Object            `json:"involvedObject"`
	Severity            string            `json:"severity"`
	Timestamp           time.Time         `json:"timestamp"`
	Message             string            `json:"message"`
	Reason              string            `json:"reason"`
	Metadata            map[string]string `json:"metadata,omitempty"`
	ReportingController string            `json:"reportingController"`
	ReportingInstance   string            `json:"reportingInstance,omitempty"`

	Labels map[string]string `json:"-"` // of the object, for alerts that choose by them
}

// group is the API group of an object.
func (o Object) group() string {
	group, _, ok := strings.Cut(o.APIVersion, "/")
	if !ok {
		return ""
	}
	return group
}

// plain is the event as providers get it: the prefixes that tell metadata of
// the object from other annotations are gone, and more is added where it is
// silent.
func (e Event) plain(more map[string]string) Event {
	facts := maps.Clone(more)
	if facts == nil {
		facts = map[string]string{}
	}
	for key, value := range e.Metadata {
		prefix, name, ok := strings.Cut(key, "/")
		if ok && (prefix == EventGroup || prefix == e.InvolvedObject.group()) {
			key = name
		}
		facts[key] = value
	}
	e.Metadata = facts
	return e
}

// Store is where what has to outlive this process is kept.
type Store interface {
	Put(ctx context.Context, key string, r io.Reader) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]string, error)
}

// Route is one provider that an event goes to, and what the alert that led there
// adds to it.
type Route struct {
	Namespace string
	Provider  string
	Metadata  map[string]string
}

// Directory knows who wants what, and where they are.
type Directory interface {
	// Routes returns where an event goes. It is asked for every event.
	Routes(ctx context.Context, e Event) ([]Route, error)
	// Destination returns where a provider is now. Invalid, Denied and Missing
	// mean that trying again is of no use.
	Destination(ctx context.Context, namespace, provider string) (Destination, error)
}
