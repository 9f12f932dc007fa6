package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/controller/policies"
)

// TellingOfPolicies returns the webhook of policies that also compiles their programs. It
// reveals sources that they name, and costs what compiling costs: its path must be a secret.
// The teller is nil until there is one.
func TellingOfPolicies(teller func() Teller) http.Handler {
	return webhook{warnOfPolicy(teller), make(chan struct{}, atOnce)}
}

// warnOfPolicy warns of what makes a policy hold or deny every plan: a field that cannot be
// read, a program that does not compile, a parameter that the program does not take.
func warnOfPolicy(teller func() Teller) answer {
	return func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		allowed := &admissionv1.AdmissionResponse{Allowed: true}
		_, touched, err := asked(r)
		if err != nil || !touched || r.Kind.Group != v1alpha1.GroupVersion.Group {
			return allowed, err
		}
		var obj client.Object
		switch r.Kind.Kind {
		case v1alpha1.ClusterPolicyKind:
			obj = &v1alpha1.ClusterPolicy{}
		case v1alpha1.PolicyKind:
			obj = &v1alpha1.Policy{}
		default:
			return allowed, nil
		}
		if err := json.Unmarshal(r.Object.Raw, obj); err != nil {
			return nil, fmt.Errorf("reading the object: %w", err)
		}
		obj.SetNamespace(r.Namespace)
		var told Teller
		if teller != nil {
			told = teller()
		}
		if told == nil {
			told = (*policies.Policies)(nil) // which knows what the object alone shows
		}
		ctx, cancel := context.WithTimeout(ctx, tellWithin)
		defer cancel()
		allowed.Warnings = warnings(told.TellPolicy(ctx, obj))
		return allowed, nil
	}
}
