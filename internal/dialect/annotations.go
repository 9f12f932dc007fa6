package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plainyaml"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Terrier's own annotations about how a stack is reconciled, in every kind.
const (
	Engine     = "terrier.dev/engine"      // tofu, terraform, or a name that the operator gave
	Network    = "terrier.dev/network"     // of the runs: none or host
	Deletion   = "terrier.dev/deletion"    // approve, retain or destroy; what happens to what was created
	AdoptState = "terrier.dev/adopt-state" // true or false

	RollbackOn = "terrier.dev/rollback-on" // failed-health; what has a stack rolled back by itself

	SourcePaths = "terrier.dev/source-paths" // auto, or a YAML list of patterns of paths, auto among them
)

// Identity reads what a stack asks its runs to sign in with elsewhere; nil if it asks for
// nothing. The annotation is YAML.
func Identity(o client.Object) (*identity.Request, error) {
	text := o.GetAnnotations()[identity.Annotation]
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	data, err := plainyaml.Annotation(text)
	if err == nil {
		var r *identity.Request
		if r, err = identity.Parse(data); err == nil {
			return r, nil
		}
	}
	return nil, fault.New(fault.Invalid, string(stack.SpecInvalid), fmt.Errorf("the annotation %s: %w", identity.Annotation, err))
}

// SelectedPaths reads which parts of its source a stack depends on; none for all. A value
// that means nothing is CheckAnnotations' to refuse, and selects nothing.
func SelectedPaths(o client.Object) []string {
	paths, _ := sourcePaths(o.GetAnnotations()[SourcePaths])
	return paths
}

// Bounds of the annotation.
const (
	mostPaths   = 64
	longestPath = 1024
	mostAnyDirs = 2 // of ** in a pattern
)

// sourcePaths reads the annotation, or says why it means nothing.
func sourcePaths(text string) ([]string, error) {
	wrong := fmt.Errorf("the annotation %s is %.40q; it may be auto, or a YAML list of paths in the source without .., in which * and ** stand for parts of them", SourcePaths, text)
	text = strings.TrimSpace(text)
	switch text {
	case "":
		return nil, nil
	case stack.SourceAuto:
		return []string{stack.SourceAuto}, nil
	}
	var paths []string
	if err := plainyaml.Decode(text, &paths); err != nil || len(paths) == 0 || len(paths) > mostPaths {
		return nil, wrong
	}
	for i, p := range paths {
		p = strings.TrimSuffix(strings.TrimPrefix(p, "./"), "/")
		if _, err := path.Match(strings.ReplaceAll(p, "**", "*"), ""); err != nil || !fs.ValidPath(p) || p == "." || len(p) > longestPath {
			return nil, wrong
		}
		parts := slices.CompactFunc(strings.Split(p, "/"), func(a, b string) bool { return a == "**" && b == "**" })
		anyDirs := 0
		for _, part := range parts {
			if part == "**" {
				anyDirs++
			}
		}
		if anyDirs > mostAnyDirs {
			return nil, fmt.Errorf("the annotation %s: the pattern %.80q has ** %d times; a pattern may have it %d times. Write several patterns, or name a directory for everything below it", SourcePaths, p, anyDirs, mostAnyDirs)
		}
		paths[i] = strings.Join(parts, "/")
	}
	return paths, nil
}

// Encrypted reports whether a stack asks for its state to be encrypted. A value that means
// nothing is CheckAnnotations' to refuse, and decrypts nothing.
func Encrypted(o client.Object) bool { return o.GetAnnotations()[encryption.Annotation] != "" }

// What the annotation terrier.dev/deletion may say.
const (
	DeletionDestroy = "destroy" // the resources are destroyed
	DeletionApprove = "approve" // the same, by a plan that a user approved
	DeletionRetain  = "retain"  // what was created stays
)

// OnFailedHealth is what the annotation terrier.dev/rollback-on may say: health checks after an
// apply that fail.
const OnFailedHealth = "failed-health"

// Annotation is one of Terrier's own that users write.
type Annotation struct {
	Name    string
	May     string             // what its value may be, for messages
	Reads   func(string) bool  // whether a value is one of these; never asked about an empty one. Nil if each is
	Check   func(string) error // in place of Reads, of one with fields: why a value means nothing, with the annotation and the field
	Instead string             // what takes its place, if the kind does not read it
}

// Common are the annotations that every kind reads.
func Common() []Annotation {
	known := []Annotation{
		{Name: AdoptState, May: TrueOrFalse, Reads: IsBool},
		{Name: Deletion, May: "destroy, approve or retain", Reads: OneOf(DeletionDestroy, DeletionApprove, DeletionRetain)},
		{Name: encryption.Annotation, May: encryption.Platform, Reads: OneOf(encryption.Platform)},
		{Name: AcceptDrift, May: "the digest of a plan and a time, as terrier drift accept writes it", Reads: func(v string) bool { _, ok := stack.ParseAcceptedDrift(v); return ok }},
		{Name: RollbackOn, May: OnFailedHealth, Reads: OneOf(OnFailedHealth)},
		{Name: RollBack, May: "what terrier rollback writes", Reads: func(v string) bool { _, _, ok := stack.ReadRollbackRequest(v); return ok }},
		{Name: Network, May: "none or host", Reads: OneOf("none", "host")},
		{Name: afterapply.Annotation, Check: func(v string) error { _, err := readSteps(v); return err }},
		{Name: prerequisite.Annotation, Check: func(v string) error { _, err := readPrerequisites(v); return err }},
		{Name: SourcePaths, Check: func(v string) error { _, err := sourcePaths(v); return err }},
		{Name: Repair, May: "JSON that terrier repair writes", Reads: func(v string) bool { return json.Unmarshal([]byte(v), &stack.Repair{}) == nil }},
	}
	for _, name := range []string{
		Engine, identity.Annotation, afterapply.Rerun, Rejected, Comment, IgnoreUntracked, PreviewDestroy, Cancel, AcceptState, BreakGlassCommand, oldIgnoreUntracked, oldBreakGlassCommand,
		v1alpha1.TolerateDrift, backend.AdoptStateOf, kube.ChangedBy, kube.DecidedBy, kube.RequestedBy, kube.ApprovedBy, kube.OverriddenBy, kube.Stamped, Confirm, OverrideWindow,
	} {
		known = append(known, Annotation{Name: name})
	}
	return known
}

// OneOf reads these values.
func OneOf(values ...string) func(string) bool {
	return func(v string) bool { return slices.Contains(values, v) }
}

// TrueOrFalse is what an annotation may say that IsBool reads.
const TrueOrFalse = "true or false"

// IsBool reports whether a value is true or false, in any of the words of YAML.
func IsBool(v string) bool { return kube.IsTrue(v) || kube.IsFalse(v) }

// Misread names the annotations of an object whose values mean nothing, and what each of
// them may be.
func Misread(says map[string]string, known []Annotation) []string {
	var wrong []string
	for _, a := range known {
		switch v := says[a.Name]; {
		case v == "":
		case a.Reads != nil && !a.Reads(v):
			wrong = append(wrong, fmt.Sprintf("the annotation %s is %.40q; it may be %s", a.Name, v, a.May))
		case a.Check != nil:
			if err := a.Check(v); err != nil {
				wrong = append(wrong, err.Error())
			}
		}
	}
	return wrong
}

// Unread names the annotations of an object that have no effect, and what the user can write
// in their place: those that only another kind reads, and names with a typing error.
func Unread(says map[string]string, known []Annotation) []string {
	var none []string
	for _, name := range slices.Sorted(maps.Keys(says)) {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		switch a, wrong := nearest(name, known); {
		case wrong > typingErrors:
		case a.Instead != "":
			none = append(none, fmt.Sprintf("metadata.annotations[%s] (%s takes its place)", name, a.Instead))
		case wrong > 0:
			none = append(none, fmt.Sprintf("metadata.annotations[%s] (there is no such annotation: it may be %s)", name, a.Name))
		}
	}
	return none
}

// prefix begins the names of Terrier's own annotations. Programs write some that no list has.
const prefix = "terrier.dev/"

// typingErrors is how many letters may be wrong in a name for it to be meant.
const typingErrors = 2

// nearest is the annotation whose name is most like a name, and how many letters are wrong.
func nearest(name string, known []Annotation) (found Annotation, wrong int) {
	if i := slices.IndexFunc(known, func(a Annotation) bool { return a.Name == name }); i >= 0 {
		return known[i], 0
	}
	wrong = typingErrors + 1
	for _, a := range known {
		if d := levenshtein.Distance(name, a.Name, nil); d < wrong {
			found, wrong = a, d
		}
	}
	return found, wrong
}

// CheckAnnotations is the error of all annotations of an object whose values mean nothing.
func CheckAnnotations(o client.Object, known []Annotation) error {
	if wrong := Misread(o.GetAnnotations(), known); len(wrong) > 0 {
		return fault.New(fault.Invalid, string(stack.SpecInvalid), errors.New(strings.Join(wrong, ", and ")))
	}
	return nil
}

// Annotated reads those of every kind into s. A value that means nothing is
// CheckAnnotations' to refuse, and counts as the more careful one.
func Annotated(o client.Object, s *stack.Spec) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(o.GetUID())) // never fails
	s.Spread = h.Sum64()
	says := o.GetAnnotations()
	s.AdoptState = kube.IsTrue(says[AdoptState])
	s.RollsBack = says[RollbackOn] == OnFailedHealth
	switch says[Deletion] {
	case "":
	case DeletionDestroy:
		s.DestroyLast = true
	case DeletionRetain:
		s.DestroyLast, s.Retain = false, true
	default: // approve
		// A typing error must neither destroy nor abandon resources: a plan that needs
		// an approval does neither.
		s.DestroyLast, s.ApproveDestroy = true, true
	}
}
