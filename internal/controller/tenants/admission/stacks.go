package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/dialect"
)

// Teller says what policies have against a stack before it has a plan, and against its
// deletion, and what is wrong with a policy.
type Teller interface {
	Tell(ctx context.Context, d dialect.Dialect, obj client.Object, raw map[string]json.RawMessage, user string) []string
	TellDeleted(ctx context.Context, d dialect.Dialect, obj client.Object) []string
	TellPolicy(ctx context.Context, obj client.Object) []string
}

// tellWithin bounds the evaluation of policies: it is less than the timeout of the API server.
const tellWithin = time.Second

// Telling returns the webhook of stacks that also warns of policies. It reveals them to any
// caller: its path must be a secret. The teller is nil until there is one.
func Telling(stacks dialect.Registry, teller func() Teller) http.Handler {
	return webhook{warnOfStack(stacks, teller), make(chan struct{}, atOnce)}
}

// warnOfStack warns of the annotations of a stack that its controller will refuse or ignore,
// and of policies that hold every plan of it.
func warnOfStack(stacks dialect.Registry, teller func() Teller) answer {
	return func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		allowed := &admissionv1.AdmissionResponse{Allowed: true}
		raw, deleted := r.Object.Raw, r.Operation == admissionv1.Delete
		if deleted {
			raw = r.OldObject.Raw
		}
		if len(raw) == 0 || r.SubResource != "" {
			return allowed, nil
		}
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, fmt.Errorf("reading the object: %w", err)
		}
		var told Teller
		if teller != nil {
			told = teller()
		}
		for _, d := range stacks.All() {
			if d.Kind().Group != r.Kind.Group || d.Kind().Kind != r.Kind.Kind {
				continue
			}
			if !deleted {
				known := d.Annotations()
				allowed.Warnings = dialect.Misread(o.Annotations, known)
				for _, ignored := range dialect.Unread(o.Annotations, known) {
					allowed.Warnings = append(allowed.Warnings, "no effect: "+ignored)
				}
				allowed.Warnings = append(allowed.Warnings, policies.OwnGuards(o.Annotations)...)
			}
			if told != nil && (deleted || o.DeletionTimestamp == nil) {
				more, err := tell(ctx, told, d, r, raw)
				if err != nil {
					return nil, err
				}
				allowed.Warnings = append(allowed.Warnings, more...)
			}
		}
		allowed.Warnings = warnings(allowed.Warnings)
		return allowed, nil
	}
}

func tell(ctx context.Context, told Teller, d dialect.Dialect, r *admissionv1.AdmissionRequest, text []byte) ([]string, error) {
	obj, raw := d.New(), map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(text, obj), json.Unmarshal(text, &raw)); err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(r.Namespace)
	}
	if r.Operation == admissionv1.Delete {
		return told.TellDeleted(ctx, d, obj), nil
	}
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	return told.Tell(ctx, d, obj, raw, r.UserInfo.Username), nil
}
