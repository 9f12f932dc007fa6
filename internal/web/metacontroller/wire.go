// Package metacontroller answers the hooks of metacontroller about stacks: sync, finalize
// and customize, of a CompositeController or a DecoratorController, versions 1 and 2.
//
// Terrier's own controller reconciles stacks. A hook starts no run and changes nothing: it
// says what there is. Of a request it believes the name and the UID of the object alone,
// and reads everything else from the API server. It knows no kind of stack.
//
// Start reading at Handler.
package metacontroller

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// Key names an object.
type Key struct{ APIVersion, Kind, Namespace, Name, UID string }

// request is what a hook needs of a request. The rest of it is read by nothing.
type request struct {
	Key
	composite  bool  // of a CompositeController, which replaces the status of the object by that of the answer
	generation int64 // of the object as metacontroller has it
	finalizing bool
}

// reference is an object in a request.
type reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace  string `json:"namespace"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
		Generation int64  `json:"generation"`
	} `json:"metadata"`
}

var (
	objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
	kindName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`)
	version    = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[a-z0-9]{1,63}$`)
)

// parse reads the body of a request. A composite has its object as parent, a decorator
// as object.
func parse(body []byte) (request, error) {
	var b struct {
		Parent     *reference `json:"parent"`
		Object     *reference `json:"object"`
		Finalizing bool       `json:"finalizing"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return request{}, fmt.Errorf("reading the request: %w", err)
	}
	of, composite := b.Object, false
	switch {
	case b.Parent != nil && b.Object != nil:
		return request{}, errors.New("the request has a parent and an object: metacontroller sends one of them")
	case b.Parent != nil:
		of, composite = b.Parent, true
	case b.Object == nil:
		return request{}, errors.New("the request has no parent and no object: this address takes what metacontroller sends to a hook")
	}
	r := request{
		Key:        Key{APIVersion: of.APIVersion, Kind: of.Kind, Namespace: of.Metadata.Namespace, Name: of.Metadata.Name, UID: of.Metadata.UID},
		composite:  composite,
		generation: of.Metadata.Generation,
		finalizing: b.Finalizing,
	}
	switch {
	case !version.MatchString(r.APIVersion), !kindName.MatchString(r.Kind):
		return request{}, fmt.Errorf("the object is of %.80q %.80q, which is no kind", r.APIVersion, r.Kind)
	case !objectName.MatchString(r.Namespace), !objectName.MatchString(r.Name):
		return request{}, fmt.Errorf("the object is called %.80q in the namespace %.80q, which is no name", r.Name, r.Namespace)
	case r.UID == "":
		return request{}, errors.New("the object has no metadata.uid")
	}
	return r, nil
}

// compositeReply answers sync and finalize of a CompositeController. Version 2 refuses
// fields that it does not know.
type compositeReply struct {
	Status             json.RawMessage `json:"status"`
	Children           []struct{}      `json:"children"`
	ResyncAfterSeconds float64         `json:"resyncAfterSeconds"`
	Finalized          bool            `json:"finalized"`
}

// decoratorReply answers sync and finalize of a DecoratorController. It has no status,
// no label and no annotation, which leaves those of the object as they are.
type decoratorReply struct {
	Attachments        []struct{} `json:"attachments"`
	ResyncAfterSeconds float64    `json:"resyncAfterSeconds"`
	Finalized          bool       `json:"finalized"`
}

// customizeReply answers customize: a stack has no related objects. metacontroller keeps
// the answer, so it is the same for all.
type customizeReply struct {
	RelatedResources []struct{} `json:"relatedResources"`
}
