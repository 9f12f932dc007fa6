package kube

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The stamps that the policies of config/admission put on an object. Where the
// policies are in force, only the API server can write them.
const (
	ChangedBy = "terrier.dev/changed-by" // the user who changed the spec or an annotation of Terrier last
	DecidedBy = "terrier.dev/decided-by" // the user who approved, rejected or allowed something last

	RequestedBy = "terrier.dev/requested-by" // the users who changed what plans are made from: see Changes
	ApprovedBy  = "terrier.dev/approved-by"  // the users who approved a plan: see Approvals

	OverriddenBy = "terrier.dev/overridden-by" // the users who want a plan to be applied outside of windows: see Approvals

	Stamped = "terrier.dev/stamps" // the epoch of the other stamps: see Stamping
)

// Stamps are the names of all stamps.
func Stamps() []string {
	return []string{ChangedBy, DecidedBy, RequestedBy, ApprovedBy, OverriddenBy, Stamped}
}

// Confirm is the annotation by which another user approves a plan that is approved: the
// name of the plan or its digest, and any other words behind it.
const Confirm = "terrier.dev/confirm"

// OverrideWindow is the annotation by which a user wants a plan to be applied outside of the
// windows of policies, and in their freezes: the name of the plan or its digest, and any other
// words behind it.
const OverrideWindow = "terrier.dev/override-window"

// Approval is the approval of a plan by one user, as the API server stamped it.
type Approval struct {
	Plan   string // its name or digest, as the user wrote it
	By     string
	Groups []string
}

// Approvals reads a value of ApprovedBy or OverriddenBy: the approvals of the plan that was approved last,
// the newest last. Their times are not known.
func Approvals(stamp string) []Approval {
	var all []Approval
	for line := range strings.Lines(stamp) {
		names := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(names) < 2 {
			continue
		}
		for i, name := range names {
			names[i] = unescape.Replace(name)
		}
		all = append(all, Approval{Plan: names[0], By: names[1], Groups: names[2:]})
	}
	return all
}

// Change is a change of what plans are made from, as the API server stamped it.
type Change struct {
	Number int // the next change has the next number
	By     string
}

// Changes reads a value of RequestedBy: the newest changes, the newest last.
func Changes(stamp string) []Change {
	var all []Change
	for line := range strings.Lines(stamp) {
		number, by, found := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if n, err := strconv.Atoi(number); err == nil && found {
			all = append(all, Change{Number: n, By: unescape.Replace(by)})
		}
	}
	return all
}

var unescape = strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n")

// Comment is the annotation with the comment on the newest decision.
const Comment = "terrier.dev/comment"

// ManagerOf is the field manager that wrote one of fields last, empty if there is
// none. A field is a path of names, separated by tabs: the names of annotations
// have dots and slashes in them. Obj must come from the server, since caches drop
// the managed fields.
func ManagerOf(obj client.Object, fields ...string) string {
	var last string
	var at metav1.Time
	for _, m := range obj.GetManagedFields() {
		if m.Subresource != "" || m.Time == nil {
			continue
		}
		for _, f := range fields {
			if manages(m.FieldsV1, strings.Split(f, "\t")) && (last == "" || !m.Time.Before(&at)) {
				last, at = m.Manager, *m.Time
			}
		}
	}
	return last
}

func manages(fields *metav1.FieldsV1, path []string) bool {
	if fields == nil {
		return false
	}
	raw := json.RawMessage(fields.GetRawBytes())
	for _, name := range path {
		var at map[string]json.RawMessage
		if json.Unmarshal(raw, &at) != nil {
			return false
		}
		next, ok := at["f:"+name]
		if !ok {
			return false
		}
		raw = next
	}
	return true
}

// Differ reports whether a patch from one object to the other would
// change anything.
func Differ(before, after client.Object) (bool, error) {
	c, err := DifferenceOf(before, after)
	return err != nil || !c.None(), err
}

// Difference is what a merge patch from one object to another changes. The zero Difference changes
// nothing.
type Difference struct{ fields map[string]any }

// DifferenceOf compares two versions of an object. The API server sorts the keys of raw JSON, and
// takes an empty list for none: neither is a change.
func DifferenceOf(before, after client.Object) (Difference, error) {
	if equality.Semantic.DeepEqual(before, after) {
		return Difference{}, nil
	}
	data, err := client.MergeFrom(before).Data(after)
	if err != nil {
		return Difference{}, err
	}
	var c Difference
	read := json.NewDecoder(bytes.NewReader(data))
	read.UseNumber() // large numbers stay what they are
	err = read.Decode(&c.fields)
	return c, err
}

// None reports whether the change changes nothing.
func (c Difference) None() bool { return len(c.fields) == 0 }

// Set adds the value of a field to a change that changes something.
func (c Difference) Set(value any, field ...string) {
	at := c.fields
	last := len(field) - 1
	for _, name := range field[:last] {
		next, ok := at[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[name] = next
		}
		at = next
	}
	at[field[last]] = value
}

// Patch is the patch of the object at exactly this version: the API server refuses it for
// another one.
func (c Difference) Patch(version string) (client.Patch, error) {
	c.Set(version, "metadata", "resourceVersion")
	data, err := json.Marshal(c.fields)
	return client.RawPatch(types.MergePatchType, data), err
}
