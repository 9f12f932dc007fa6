// Package admission validates a TenantRegistry or a TenantTemplate before the API
// server stores it, so that users learn of problems when they apply an object, and
// not later from its status. The checks are those of package tenants.
//
// A refusal depends on the request alone. The webhooks refuse only problems that the
// request itself creates: never a deletion, a status, a change that leaves the spec
// as it is, nor an older problem. A template that does not fit its registry is a
// warning, since the registry may be applied a moment later; the warning is given
// only at a secret path (Knowing), so that other callers learn nothing. A request
// that cannot be read gets an error, and the API server continues without a verdict.
//
// Of stacks it refuses nothing. It warns of annotations that have no effect, or a value
// that means nothing, and at a secret path (Telling) of policies that hold every plan of
// the stack, or its destroy. Of policies it refuses nothing either, and warns of what cannot
// be read, or at a secret path (TellingOfPolicies) be compiled.
//
// Start reading at Handlers, then at validate.
package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/dialect"
)

// Paths of the webhooks; those of registries and templates are those of Tenant Operator.
const (
	MutateRegistry   = "/mutate-operator-kubernetes-tenants-org-v1-tenantregistry"
	ValidateRegistry = "/validate-operator-kubernetes-tenants-org-v1-tenantregistry"
	MutateTemplate   = "/mutate-operator-kubernetes-tenants-org-v1-tenanttemplate"
	ValidateTemplate = "/validate-operator-kubernetes-tenants-org-v1-tenanttemplate"
	WarnOfStack      = "/warn-of-terraform"
	WarnOfPolicy     = "/warn-of-policy"
)

// atOnce bounds concurrent requests: callers are not authenticated, so that none may
// use the whole machine.
const atOnce = 4

// Handlers returns the webhooks by their paths. The definitions of the kinds hold
// their defaults. That of stacks knows these kinds.
func Handlers(definitions fs.FS, stacks dialect.Registry) (map[string]http.Handler, error) {
	defaults, err := defaultsOf(definitions)
	if err != nil {
		return nil, err
	}
	turns := make(chan struct{}, atOnce)
	all := map[string]http.Handler{}
	for path, answer := range map[string]answer{
		MutateRegistry:   defaults[tenantsv1.RegistryKind].mutate,
		MutateTemplate:   defaults[tenantsv1.TemplateKind].mutate,
		ValidateRegistry: registries.validate,
		ValidateTemplate: templates(nil).validate,
		WarnOfStack:      warnOfStack(stacks, nil),
		WarnOfPolicy:     warnOfPolicy(nil),
	} {
		all[path] = webhook{answer, turns}
	}
	return all, nil
}

// Knowing returns the webhook of templates that also reads their registries. It
// reveals their content to any caller: its path must be a secret.
func Knowing(registries client.Reader) http.Handler {
	return webhook{templates(registries).validate, make(chan struct{}, atOnce)}
}

// answer answers one request; an error says that it could not be read.
type answer func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)

// webhook speaks AdmissionReview of admission.k8s.io/v1.
type webhook struct {
	answer answer
	turns  chan struct{}
}

// ServeHTTP implements http.Handler. Its caller bounds the body.
func (h webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case h.turns <- struct{}{}:
		defer func() { <-h.turns }()
	case <-r.Context().Done():
		http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		refuse(w, fmt.Errorf("reading the review: %w", err))
		return
	}
	if review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Request == nil {
		refuse(w, errors.New("the body is no request for a review of "+admissionv1.SchemeGroupVersion.String()))
		return
	}
	response, err := h.answer(r.Context(), review.Request)
	if err != nil {
		refuse(w, err)
		return
	}
	response.UID = review.Request.UID
	review.Request, review.Response = nil, response
	body, err := json.Marshal(review)
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // fails only if the caller is gone
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		status = http.StatusRequestEntityTooLarge
	}
	http.Error(w, err.Error(), status)
}

// asked returns the new spec of a request, and whether the request changes it. All
// others pass: deletions, objects that are being deleted, changes of the status, of
// labels and of finalizers.
func asked(r *admissionv1.AdmissionRequest) (spec any, touched bool, err error) {
	if r.SubResource != "" || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return nil, false, nil
	}
	type object struct {
		Metadata struct {
			DeletionTimestamp string `json:"deletionTimestamp"`
		} `json:"metadata"`
		Spec any `json:"spec"`
	}
	var now, old object
	if err := json.Unmarshal(r.Object.Raw, &now); err != nil {
		return nil, false, fmt.Errorf("reading the object: %w", err)
	}
	if r.Operation == admissionv1.Create {
		return now.Spec, true, nil
	}
	if err := json.Unmarshal(r.OldObject.Raw, &old); err != nil {
		return nil, false, fmt.Errorf("reading the object as it was: %w", err)
	}
	return now.Spec, now.Metadata.DeletionTimestamp == "" && !reflect.DeepEqual(now.Spec, old.Spec), nil
}
