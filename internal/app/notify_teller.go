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

// messageBytes bounds what is sent of a message: an engine may say a lot about
// why it failed.
const messageBytes = 8 << 10

// teller writes events to Kubernetes and has them sent to those who want them.
type teller struct {
	kube.Events
	scheme    *runtime.Scheme
	desk      *notify.Desk
	component string
	instance  string
	now       func() time.Time
}

// tellers makes the teller of one controller.
func (p *parts) tellers(mgr ctrl.Manager, component string, events kube.Events) teller {
	host, _ := os.Hostname() // it only helps people to find the process
	return teller{events, mgr.GetScheme(), p.desk, component, host, p.Now}
}

// Event implements Events of the controllers.
func (t teller) Event(obj client.Object, kind, reason, message string) {
	t.EventWith(obj, kind, reason, message, nil)
}

// EventWith implements controller.FactualEvents.
func (t teller) EventWith(obj client.Object, kind, reason, message string, facts map[string]string) {
	t.Events.Event(obj, kind, reason, message)
	t.Notify(obj, kind, reason, message, facts)
}

// Record implements controller.FactualEvents: an event of which people have
// been told already.
func (t teller) Record(obj client.Object, kind, reason, message string) {
	t.Events.Event(obj, kind, reason, message)
}

// Notify has an event sent.
func (t teller) Notify(obj client.Object, kind, reason, message string, facts map[string]string) {
	gvk, err := apiutil.GVKForObject(obj, t.scheme)
	if err != nil {
		return // it is none that an alert could name
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
		Severity: notify.Info, Timestamp: t.now().UTC().Truncate(time.Second), Message: message, Reason: reason,
		Metadata: map[string]string{}, ReportingController: t.component, ReportingInstance: t.instance,
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
	t.desk.Tell(e)
}
