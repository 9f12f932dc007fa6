package kube

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/client-go/tools/record"

	"github.com/terrier-iac/terrier/internal/fault"
)

// eventBytes is what the API server takes as the message of an event.
const eventBytes = 1000

// Events writes events. It shortens messages that are too long for the API server.
type Events struct{ Recorder record.EventRecorder }

// Event writes an event about obj.
func (e Events) Event(obj client.Object, kind, reason, message string) {
	e.Recorder.Event(obj, kind, reason, fault.Shorten(message, eventBytes))
}
