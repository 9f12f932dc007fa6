package query

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/stack/stacktest"
)

// onlyOfOneKind are fields that one kind has for what no other kind can do. A text about
// that may name them.
var onlyOfOneKind = []string{"planOnly", "dependsOn", "healthChecks", "disableDriftDetection"}

// A text names no field that only another kind has. Names of one word are left out: they are
// words as well.
func TestTextsNameFieldsOfTheKind(t *testing.T) {
	names := map[string][]string{}
	for of, spec := range map[string]any{"infra": v1alpha2.TerraformSpec{}, "alustan": v1alpha1.TerraformSpec{}} {
		fieldsOf(reflect.TypeOf(spec), func(name string) {
			if strings.ContainsFunc(name, unicode.IsUpper) && !slices.Contains(onlyOfOneKind, name) {
				names[of] = append(names[of], name)
			}
		}, map[reflect.Type]bool{})
	}
	if len(names["infra"]) < 50 || !slices.Contains(names["infra"], "approvePlan") || !slices.Contains(names["alustan"], "gitRepo") {
		t.Fatalf("the names of fields are %v", names)
	}
	for kind, o := range map[string]client.Object{
		"infra":   &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns"}, Spec: v1alpha2.TerraformSpec{SourceRef: &v1alpha2.SourceRef{Kind: "GitRepository", Name: "code"}}},
		"alustan": &v1alpha1.Terraform{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns"}},
	} {
		w := ReadObject(kinds.All(), o).Spec.Words
		var texts []string
		for _, r := range stacktest.Reasons(t, "../stack") {
			s := meaning.Of(r, w)
			texts = append(texts, s.Means, s.Do)
		}
		for _, r := range meaning.Rules() {
			texts = append(texts, w.In(r.Why))
		}
		for of, foreign := range names {
			for _, name := range foreign {
				if of == kind || slices.Contains(names[kind], name) {
					continue
				}
				for _, text := range texts {
					if slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) }), name) {
						t.Errorf("a stack of %s is told of the field %s: %q", kind, name, text)
					}
				}
			}
		}
		for _, text := range texts {
			if strings.ContainsAny(text, "{}") {
				t.Errorf("%s: %q has a mark without a word", kind, text)
			}
		}
	}
}

// fieldsOf calls yield with the name of each field of a spec.
func fieldsOf(of reflect.Type, yield func(string), seen map[reflect.Type]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		fieldsOf(of.Elem(), yield, seen)
	case reflect.Struct:
		if seen[of] || !strings.Contains(of.PkgPath(), "/api/") {
			return
		}
		seen[of] = true
		for f := range of.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				yield(name)
			}
			fieldsOf(f.Type, yield, seen)
		}
	}
}

// What a stack is told to do works: an approval is advised only where it is taken.
func TestAdviceFitsTheMode(t *testing.T) {
	noon := metav1.NewTime(time.Unix(1e9, 0))
	drift := stack.Status{
		Plans:     stack.Plans{Pending: &stack.Plan{Name: "p", Digest: "d", Drift: true}},
		Resources: stack.Resources{Created: true, Drift: &stack.Drift{At: noon.Time}},
	}
	for name, tt := range map[string]struct {
		object      client.Object
		undecidable string
		do          string
	}{
		"a script that reports drift": {&v1alpha1.Terraform{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"terrier.dev/drift": "report"}}}, "", "Approve the plan"},
		"a script that repairs it":    {&v1alpha1.Terraform{}, "the annotation terrier.dev/approval is not manual, so that every plan is applied without an approval", "The plan cannot be approved: the annotation"},
		"approvals by hand":           {&v1alpha2.Terraform{}, "", "Approve the plan"},
		"drift checks alone":          {&v1alpha2.Terraform{Spec: v1alpha2.TerraformSpec{ApprovePlan: "disable"}}, "approvePlan is disable, so that Terrier only checks for drift", "The plan cannot be approved: approvePlan is disable"},
		"every plan is applied":       {&v1alpha2.Terraform{Spec: v1alpha2.TerraformSpec{ApprovePlan: "auto"}}, "approvePlan is auto, so that every plan is applied without an approval", "The plan cannot be approved: approvePlan is auto"},
	} {
		o := ReadObject(kinds.All(), tt.object)
		o.Status = drift
		if got := View(o).Undecidable; got != tt.undecidable {
			t.Errorf("%s: undecidable = %q, want %q", name, got, tt.undecidable)
		}
		if got := o.explained(stack.DriftFound); !strings.Contains(got.Do, tt.do) {
			t.Errorf("%s: the next step is %q, want %q in it", name, got.Do, tt.do)
		}
	}
}

// A script has no plan. A suspended stack can be deleted.
func TestExplainedOfScript(t *testing.T) {
	object := func(annotations map[string]string) *Object {
		return ReadObject(kinds.All(), &v1alpha1.Terraform{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns", Annotations: annotations}})
	}
	for name, tt := range map[string]struct {
		annotations map[string]string
		reason      stack.Reason
		means, do   string
	}{
		"a suspension":                 {nil, stack.Suspended, "A deletion of the object still runs its destroy script.", "terrier.dev/deletion=retain"},
		"a suspension with approval":   {map[string]string{"terrier.dev/deletion": "approve"}, stack.Suspended, "still runs its destroy script once a user approved the plan of it.", "terrier.dev/deletion=retain"},
		"a script that has ended":      {nil, stack.Applied, "The script has ended with exit code 0.", ""},
		"a script that runs":           {nil, stack.Applying, "Terrier is running the script of the stack.", ""},
		"a script that does not exist": {nil, stack.InputsFailed, "Terrier cannot read a script or a variable", "Create or correct"},
	} {
		t.Run(name, func(t *testing.T) {
			got := object(tt.annotations).explained(tt.reason)
			if !strings.Contains(got.Means, tt.means) || !strings.Contains(got.Do, tt.do) {
				t.Errorf("explained(%s) = %q, %q; want %q, %q in it", tt.reason, got.Means, got.Do, tt.means, tt.do)
			}
		})
	}
	retained := object(map[string]string{"terrier.dev/deletion": "retain"}).explained(stack.Suspended)
	if strings.Contains(retained.Means, "deletion") {
		t.Errorf("a stack whose resources stay is told %q", retained.Means)
	}
}
