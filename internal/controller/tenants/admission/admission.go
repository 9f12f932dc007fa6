// Package admission answers the API server when it asks, before it stores a
// TenantRegistry or a TenantTemplate, whether that can be what it is: so that
// whoever applies it is told at once what package tenants would say of it later,
// in a status. The checks are those of package tenants.
//
// What it refuses depends on nothing but what it is sent. It refuses nothing but
// what a request itself makes wrong: never a deletion, a status, a change that
// leaves the spec as it is, nor what was wrong before. What does not fit the
// registry of a template is a warning, since that may be applied a moment later;
// it is told at a path that nobody can guess (Knowing), so that whoever else asks
// learns nothing. Who asks what it does not understand gets no answer, and the
// API server goes on without one.
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
)

// Paths of the four webhooks; they are those of Tenant Operator.
const (
	MutateRegistry   = "/mutate-operator-kubernetes-tenants-org-v1-tenantregistry"
	ValidateRegistry = "/validate-operator-kubernetes-tenants-org-v1-tenantregistry"
	MutateTemplate   = "/mutate-operator-kubernetes-tenants-org-v1-tenanttemplate"
	ValidateTemplate = "/validate-operator-kubernetes-tenants-org-v1-tenanttemplate"
)

// atOnce is how many requests are looked at at once. Nobody has to show who he is
// to ask, so nobody may have the whole machine.
const atOnce = 4

// Handlers returns the webhooks by their paths. Definitions are those of our
// kinds, for the defaults that are in them.
func Handlers(definitions fs.FS) (map[string]http.Handler, error) {
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
	} {
		all[path] = webhook{answer, turns}
	}
	return all, nil
}

// Knowing returns the webhook of templates that looks at their registries, too. It
// tells what is in those to whoever asks: its path must be a secret.
func Knowing(registries client.Reader) http.Handler {
	return webhook{templates(registries).validate, make(chan struct{}, atOnce)}
}

// answer is what one of them says to a request; an error says that it was not
// understood.
type answer func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)

// webhook speaks AdmissionReview of admission.k8s.io/v1.
type webhook struct {
	answer answer
	turns  chan struct{}
}

// ServeHTTP implements http.Handler. Whoever mounts it bounds the body.
func (h webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case h.turns <- struct{}{}:
		defer func() { <-h.turns }()
	case <-r.Context().Done():
		http.Error(w, "too many ask at once", http.StatusServiceUnavailable)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		refuse(w, fmt.Errorf("reading the review: %w", err))
		return
	}
	if review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Request == nil {
		refuse(w, errors.New("this is no request for a review of "+admissionv1.SchemeGroupVersion.String()))
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
	_, _ = w.Write(body) // who has gone does not hear it
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		status = http.StatusRequestEntityTooLarge
	}
	http.Error(w, err.Error(), status)
}

// asked returns the spec that a request asks for, and whether it touches it. One
// that does not is let pass as it is: a deletion, what is being deleted, a status,
// labels and finalizers.
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
