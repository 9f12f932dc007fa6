package admission

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/dialect"
)

// warnOfStack warns of the annotations of a stack that its controller will refuse or ignore.
func warnOfStack(stacks dialect.Registry) answer {
	return func(_ context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		allowed := &admissionv1.AdmissionResponse{Allowed: true}
		var o metav1.PartialObjectMetadata
		if len(r.Object.Raw) == 0 {
			return allowed, nil
		}
		if err := json.Unmarshal(r.Object.Raw, &o); err != nil {
			return nil, fmt.Errorf("reading the object: %w", err)
		}
		for _, d := range stacks.All() {
			if d.Kind().Group == r.Kind.Group && d.Kind().Kind == r.Kind.Kind {
				known := d.Annotations()
				allowed.Warnings = dialect.Misread(o.Annotations, known)
				for _, ignored := range dialect.Unread(o.Annotations, known) {
					allowed.Warnings = append(allowed.Warnings, "no effect: "+ignored)
				}
			}
		}
		allowed.Warnings = warnings(append(allowed.Warnings, policies.OwnGuards(o.Annotations)...))
		return allowed, nil
	}
}
