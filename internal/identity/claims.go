package identity

import (
	"fmt"
	"strings"
)

// Run is a run as the controller knows it. Nothing of it is what the author of a stack says
// about the stack: the tenant is that of the namespace.
type Run struct {
	ID        string `json:"run_id"`
	RunKind   string `json:"run_kind"` // plan, check, apply, destroy …
	Phase     Phase  `json:"phase"`
	Stack     string `json:"stack"`      // name of the object
	StackKind string `json:"stack_kind"` // kind.group of the object, in lower case
	StackUID  string `json:"stack_uid"`
	Namespace string `json:"namespace"`

	NamespaceUID string `json:"namespace_uid"`     // another one if the namespace was made again
	Tenant       string `json:"tenant,omitempty"`  // a label of the namespace; empty if it has none: a name would be another customer's
	Cluster      string `json:"cluster,omitempty"` // UID of the namespace kube-system; empty if it is not known

	SourceURL      string `json:"source_url,omitempty"`      // of the content of the run; empty if it is not certain
	SourceRevision string `json:"source_revision,omitempty"` // as the source names it: main@sha1:…
}

// Claims are what one token says.
type Claims struct {
	Issuer    string `json:"iss"`
	Subject   string `json:"sub"`
	Audience  string `json:"aud"`
	IssuedAt  int64  `json:"iat"`
	NotBefore int64  `json:"nbf"`
	Expires   int64  `json:"exp"`
	ID        string `json:"jti"`
	Run
}

// maxSubject is the length of the longest subject that verifiers take: OpenID Connect
// bounds it.
const maxSubject = 255

// Subject is the name by which verifiers know the runs of a stack in a phase. It has always
// the same parts in the same order. No part holds a colon, since names in Kubernetes do not,
// so that no name can stand for more than one part.
//
//	namespace:NAMESPACE:kind:KIND.GROUP:stack:NAME:phase:PHASE
func (r Run) Subject() (string, error) {
	for name, part := range map[string]string{"namespace": r.Namespace, "kind": r.StackKind, "name": r.Stack} {
		if part == "" || strings.ContainsFunc(part, func(c rune) bool {
			return c != '-' && c != '.' && (c < 'a' || c > 'z') && (c < '0' || c > '9')
		}) {
			return "", fmt.Errorf("the %s of the stack is %.80q, which is no name for a subject", name, part)
		}
	}
	if r.Phase != Plan && r.Phase != Apply {
		return "", fmt.Errorf("there is no phase %.80q", r.Phase)
	}
	s := "namespace:" + r.Namespace + ":kind:" + r.StackKind + ":stack:" + r.Stack + ":phase:" + string(r.Phase)
	if len(s) > maxSubject {
		return "", fmt.Errorf("the subject of the runs has %d characters, more than %d: give the stack or its namespace a shorter name", len(s), maxSubject)
	}
	return s, nil
}
