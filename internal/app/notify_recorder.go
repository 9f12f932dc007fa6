package app

import (
	"maps"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/notify"
)

// messageBytes bounds the length of a message: an engine may print a lot about
// a failure.
const messageBytes = 8 << 10

// recorder writes events to Kubernetes and sends them as notifications.
type recorder struct {
	kube.Events
	scheme    *runtime.Scheme
	notifier  notifier
	component string
	instance  string
	now       func() time.Time
}

// notifier has notifications sent. It never waits.
type notifier interface{ Notify(notify.Event) }

// recorder makes the recorder of one controller. It writes core/v1 events, which the
// API's users and their tools read.
func (a alerts) recorder(mgr ctrl.Manager, component string, now func() time.Time) recorder {
	host, _ := os.Hostname() // only for finding the process
	//lint:ignore SA1019 the newer recorder writes events.k8s.io, which kubectl shows without counts
	events := kube.Events{Recorder: mgr.GetEventRecorderFor(component)}
	return recorder{events, mgr.GetScheme(), a.notifier, component, host, now}
}

// Event implements Events of the controllers.
func (r recorder) Event(obj client.Object, kind, reason, message string) {
	r.EventWith(obj, kind, reason, message, nil)
}

func (r recorder) EventWith(obj client.Object, kind, reason, message string, facts map[string]string) {
	r.Events.Event(obj, kind, reason, message)
	r.Notify(obj, kind, reason, message, facts)
}

// Record implements controller.FactualEvents: an event that was
// notified already.
func (r recorder) Record(obj client.Object, kind, reason, message string) {
	r.Events.Event(obj, kind, reason, message)
}

// Notify has an event sent.
func (r recorder) Notify(obj client.Object, kind, reason, message string, facts map[string]string) {
	gvk, err := apiutil.GVKForObject(obj, r.scheme)
	if err != nil {
		return // an alert cannot select this object
	}
	if len(message) > messageBytes {
		message = strings.ToValidUTF8(message[:messageBytes], "") + "…"
	}
	version, name := gvk.ToAPIVersionAndKind()
	e := notify.Event{
		InvolvedObject: notify.Object{
			Kind: name, APIVersion: version, Namespace: obj.GetNamespace(), Name: obj.GetName(),
			UID: string(obj.GetUID()), ResourceVersion: obj.GetResourceVersion(),
		},
		Severity: notify.Info, Timestamp: r.now().UTC().Truncate(time.Second), Message: message, Reason: reason,
		Metadata: map[string]string{}, ReportingController: r.component, ReportingInstance: r.instance,
		Labels: maps.Clone(obj.GetLabels()),
	}
	if kind == corev1.EventTypeWarning {
		e.Severity = notify.Error
	}
	for key, value := range obj.GetAnnotations() {
		if strings.HasPrefix(key, notify.EventGroup+"/") {
			e.Metadata[key] = value
		}
	}
	for key, value := range facts {
		if !strings.Contains(key, "/") {
			key = gvk.Group + "/" + key
		}
		e.Metadata[key] = value
	}
	r.notifier.Notify(e)
}
