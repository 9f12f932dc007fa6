package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/controller/tenants"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// Bounds of the problems in an answer: an API server shortens longer ones, and users
// do not fix more at once.
const (
	mostProblems = 20
	mostWarnings = 10
	longest      = 250 // characters of one warning
)

// kind is one kind of object, of type T.
type kind[T any] struct {
	check func(*T) []tenants.Problem
	notes func(context.Context, *T) []string // warnings
	meta  func(*T) *metav1.ObjectMeta
}

var registries = kind[tenantsv1.TenantRegistry]{
	check: tenants.CheckRegistry,
	notes: func(context.Context, *tenantsv1.TenantRegistry) []string { return nil },
	meta:  func(r *tenantsv1.TenantRegistry) *metav1.ObjectMeta { return &r.ObjectMeta },
}

// templates are checked without the variables of their registry, which may be
// applied a moment later: problems with those are warnings, if registries may be
// read, and in any case in the condition Valid.
func templates(registries client.Reader) kind[tenantsv1.TenantTemplate] {
	return kind[tenantsv1.TenantTemplate]{
		check: func(t *tenantsv1.TenantTemplate) []tenants.Problem { return tenants.CheckTemplate(t, nil) },
		notes: func(ctx context.Context, t *tenantsv1.TenantTemplate) []string {
			return append(unfit(ctx, registries, t), brokenLines(t)...)
		},
		meta: func(t *tenantsv1.TenantTemplate) *metav1.ObjectMeta { return &t.ObjectMeta },
	}
}

// validate refuses the problems that the request creates, and warns of all others.
func (k kind[T]) validate(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	allowed := &admissionv1.AdmissionResponse{Allowed: true}
	if _, touched, err := asked(r); err != nil || !touched {
		return allowed, err
	}
	var now T
	if err := json.Unmarshal(r.Object.Raw, &now); err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	before := map[string]bool{}
	if r.Operation == admissionv1.Update {
		var old T
		if err := json.Unmarshal(r.OldObject.Raw, &old); err != nil {
			return nil, fmt.Errorf("reading the object as it was: %w", err)
		}
		for _, p := range k.check(&old) {
			before[p.Error()] = true
		}
	}
	if meta := k.meta(&now); meta.Namespace == "" {
		meta.Namespace = r.Namespace
	}
	var made []tenants.Problem
	for _, p := range k.check(&now) {
		if before[p.Error()] {
			allowed.Warnings = append(allowed.Warnings, p.Path+" is still not valid: "+p.Error())
		} else {
			made = append(made, p)
		}
	}
	if len(made) > 0 {
		return &admissionv1.AdmissionResponse{Result: refusal(r, k.meta(&now), made)}, nil
	}
	allowed.Warnings = warnings(append(allowed.Warnings, k.notes(ctx, &now)...))
	return allowed, nil
}

// refusal is an answer in the form of the API server's own validation, so that
// kubectl names the fields.
func refusal(r *admissionv1.AdmissionRequest, meta *metav1.ObjectMeta, problems []tenants.Problem) *metav1.Status {
	name := meta.Name
	if name == "" {
		name = meta.GenerateName
	}
	s := &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: problems[0].Path + ": " + cause(problems[0]),
		Details: &metav1.StatusDetails{Group: r.Kind.Group, Kind: r.Kind.Kind, Name: name},
	}
	if n := len(problems) - 1; n > 0 {
		s.Message += fmt.Sprintf("; and %d more", n)
	}
	for _, p := range problems[:min(len(problems), mostProblems)] {
		s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: p.Path, Message: cause(p)})
	}
	if n := len(problems) - mostProblems; n > 0 {
		s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec", Message: fmt.Sprintf("%d more are not valid", n)})
	}
	return s
}

// cause is the message of a problem beside the path of its field; the id of the
// resource says more to a reader than the path.
func cause(p tenants.Problem) string {
	if p.ID == "" {
		return strings.TrimPrefix(p.Message, p.Path+": ")
	}
	return p.ID + ": " + p.Message
}

// brokenLines warns of inline modules that Terrier repairs before an engine reads
// them.
func brokenLines(t *tenantsv1.TenantTemplate) []string {
	resources, err := tenantapi.Resources(&t.Spec.Resources)
	if err != nil {
		return nil // it was refused
	}
	var notes []string
	for _, r := range resources {
		for _, o := range infra.BrokenLines(r.Object) {
			notes = append(notes, fmt.Sprintf("%s: spec.values.hcl, %s: HCL refuses several arguments on one line; Terrier will put them on lines of their own", r.ID, o))
		}
	}
	return notes
}

// warnings are few and short.
func warnings(all []string) []string {
	if n := len(all) - mostWarnings; n > 0 {
		all = append(all[:mostWarnings:mostWarnings], fmt.Sprintf("and %d more", n))
	}
	for i, text := range all {
		if cut := []rune(text); len(cut) > longest {
			all[i] = string(cut[:longest-1]) + "…"
		}
	}
	return all
}
