// Package notify sends events of the controllers to people and systems: it finds
// their destinations, and delivers them.
//
// Callers never wait: Dispatcher.Notify puts an event into a bounded queue and
// returns. A message is stored before it is sent, so that it outlives the process,
// and leaves through package outbound, as every request to an address from a user
// does.
//
// It knows neither Kubernetes nor the source of alerts and providers: a Directory
// does. It sends the text of an event and a few facts, never a plan, an input or an
// output, and it escapes the markup of the receiver.
//
// Start reading at Dispatcher; alert.go has the routes, payload.go the messages.
package notify

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
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

// Bounds of the metadata of an event. An object, or an Alert, may have a megabyte of it, and a
// thousand messages wait.
const (
	metadataValue = 1 << 10  // bytes of one value
	metadataBytes = 16 << 10 // bytes of all names and values
)

// bounded is metadata within these bounds: values are cut, and what does not fit is left out,
// first what annotations of an object say of its events, so that these hide no fact of Terrier.
func bounded(metadata map[string]string) map[string]string {
	out := map[string]string{}
	left := metadataBytes
	said := func(key string) int { return len(key) - len(strings.TrimPrefix(key, EventGroup+"/")) }
	order := func(a, b string) int { return cmp.Or(cmp.Compare(said(a), said(b)), cmp.Compare(a, b)) }
	for _, key := range slices.SortedFunc(maps.Keys(metadata), order) {
		value := metadata[key]
		if len(value) > metadataValue {
			value = strings.ToValidUTF8(value[:metadataValue], "") + "…" // no part of the long one is kept
		}
		if left -= len(key) + len(value); left < 0 {
			break
		}
		out[key] = value
	}
	return out
}

// plain is the event as providers get it: without the prefixes that tell metadata
// of the object from other annotations, and with the metadata of more that it lacks. What a
// controller says wins over what annotations of the object say under the same name: their author
// must not tell approvers of other plans, or that a policy holds none.
func (e Event) plain(more map[string]string) Event {
	facts := bounded(more)
	own := map[string]string{}
	for key, value := range e.Metadata {
		switch prefix, name, ok := strings.Cut(key, "/"); {
		case ok && prefix == EventGroup:
			facts[name] = value
		case ok && prefix == e.InvolvedObject.group():
			own[name] = value
		default:
			own[key] = value
		}
	}
	maps.Copy(facts, own)
	e.Metadata = facts
	return e
}

// Store keeps records beyond the process.
type Store interface {
	Put(ctx context.Context, key string, r io.Reader) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]string, error)
}

// Route is one provider of an event, with the metadata of its alert.
type Route struct {
	Namespace string
	Provider  string
	Metadata  map[string]string
}

// Directory knows routes and destinations.
type Directory interface {
	// Routes returns the routes of an event. It is called for every event.
	Routes(ctx context.Context, e Event) ([]Route, error)
	// Destination returns the present destination of a provider. An error that is
	// Invalid, Denied or Missing is final.
	Destination(ctx context.Context, namespace, provider string) (Destination, error)
}
