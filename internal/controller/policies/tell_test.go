package policies

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

// foreseen are findings as programs give them to each question.
func foreseen(found []policy.Finding) func(context.Context, Early) []policy.Finding {
	return func(_ context.Context, q Early) []policy.Finding {
		out := []policy.Finding{}
		for _, f := range found {
			f.Policy = q.Members[0].Policy
			f.Message += " for " + q.Requester
			out = append(out, f)
		}
		return out
	}
}

func TestWhatIsTold(t *testing.T) {
	freeze := &v1alpha1.Guards{Freezes: []v1alpha1.Freeze{{From: metav1.NewTime(time.Unix(0, 0)), To: metav1.NewTime(time.Unix(1<<33, 0)), Reason: "release"}}}
	for name, tt := range map[string]struct {
		spec  *v1alpha1.PolicySpec
		found []policy.Finding
		want  string
	}{
		"no policy":     {nil, nil, ""},
		"a freeze":      {&v1alpha1.PolicySpec{Guards: freeze}, nil, "no plan of this stack is applied now, by ClusterPolicy/p: nothing is applied from 1970-01-01T00:00:00Z to 2242-03-16T12:56:32Z: release"},
		"a dry run":     {&v1alpha1.PolicySpec{Mode: v1alpha1.DryRun, Guards: freeze}, nil, ""},
		"a limit":       {&v1alpha1.PolicySpec{Guards: noDestroys()}, nil, ""},
		"a broken one":  {&v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{MaxDestroyedShare: "x"}}, nil, `ClusterPolicy/p cannot be evaluated, and holds every plan of this stack: spec.guards.maxDestroyedShare: is "x"`},
		"what is known": {&v1alpha1.PolicySpec{}, []policy.Finding{{Rule: "r", Effect: policy.Deny, Message: "no"}, {Rule: "r", Effect: policy.Hold, Message: "wait"}, {Rule: "r", Effect: policy.Warn, Message: "hm"}}, "ClusterPolicy/p denies every plan of this stack: r: no for ann\nClusterPolicy/p holds every plan of this stack until it is approved: r: wait for ann\nClusterPolicy/p warns of this stack: r: hm for ann"},
		"no objections": {&v1alpha1.PolicySpec{}, []policy.Finding{{Effect: policy.Allow}, {Effect: policy.Hold, Error: true}, {Effect: policy.Deny, DryRun: true}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := having(t, nil)
			if tt.spec != nil {
				p = having(t, nil, clusterPolicy("p", *tt.spec))
			}
			p.Foresee = foreseen(tt.found)
			if tt.found != nil {
				p.now.Load().policies[0].program = struct{}{}
			}
			obj := stackOf("team", "net", nil, nil)
			got := strings.Join(p.Tell(t.Context(), p.Dialects.For(obj), obj, map[string]json.RawMessage{}, "ann"), "\n")
			if got != tt.want && (name != "a broken one" || !strings.HasPrefix(got, tt.want)) {
				t.Errorf("told (-want +got):\n%s", cmp.Diff(tt.want, got))
			}
		})
	}
	var none *Policies
	obj := stackOf("team", "net", nil, nil)
	if got := none.Tell(t.Context(), having(t, nil).Dialects.For(obj), obj, nil, "ann"); got != nil {
		t.Errorf("without policies %q is told", got)
	}
}

// A deletion that destroys nothing is told nothing.
func TestWhatIsToldOfDeletions(t *testing.T) {
	p := having(t, nil, clusterPolicy("p", v1alpha1.PolicySpec{Guards: noDestroys()}))
	d := p.Dialects.For(&v1alpha2.Terraform{})
	for name, tt := range map[string]struct {
		destroys, applied bool
		notes             map[string]string
		want              int
	}{
		"it destroys resources":       {true, true, nil, 2},
		"it destroys none":            {false, true, nil, 0},
		"it has none":                 {true, false, nil, 0},
		"it is told to let them stay": {true, true, map[string]string{"terrier.dev/deletion": "retain"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := stackOf("team", "net", nil, tt.notes).(*v1alpha2.Terraform)
			s.Spec.DestroyResourcesOnDeletion = tt.destroys
			s.Spec.Interval = &metav1.Duration{Duration: time.Hour}
			s.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "code"}
			if tt.applied {
				var status stack.Status
				status.Applied = &stack.Plan{Name: "p", Digest: "d"}
				d.Encode(s, dialect.Summary{Status: status, Now: p.Now()})
			}
			if got := p.TellDeleted(t.Context(), d, s); len(got) != tt.want {
				t.Errorf("told %q, want %d", got, tt.want)
			}
		})
	}
}

// What is wrong with a policy is told with its field, and with what follows from it.
func TestWhatIsToldOfAPolicy(t *testing.T) {
	of := func(r v1alpha1.Rego) v1alpha1.PolicySpec { return v1alpha1.PolicySpec{Rego: &r} }
	inline := func(text string) v1alpha1.PolicySpec { return of(v1alpha1.Rego{Modules: map[string]string{"a": text}}) }
	source := of(v1alpha1.Rego{SourceRef: &v1alpha1.SourceRef{Kind: "GitRepository", Name: "policies"}})
	denying, dry := inline("wrong"), inline("wrong")
	denying.OnError, dry.Mode = v1alpha1.Deny, v1alpha1.DryRun
	const held = ". Until this is corrected, every plan of a stack that the policy selects is held"
	for name, tt := range map[string]struct {
		spec  v1alpha1.PolicySpec
		down  error
		want  []string // what each sentence begins with
		alone []string // the same where no programs are known
	}{
		"nothing is wrong":      {spec: inline("ok")},
		"it breaks off":         {spec: inline("panic"), want: []string{"spec.rego: compiling the policy broke off: the library broke" + held}},
		"a text":                {spec: inline("wrong"), want: []string{"spec.rego: a.rego:1: it is wrong" + held}},
		"one that denies":       {spec: denying, want: []string{"spec.rego: a.rego:1: it is wrong. Until this is corrected, every plan of a stack that the policy selects is denied"}},
		"a dry run":             {spec: dry, want: []string{"spec.rego: a.rego:1: it is wrong. Until this is corrected, the dry run shows this"}},
		"a source":              {spec: source, down: fault.New(fault.Missing, "", errors.New("sourceRef: it does not exist")), want: []string{"spec.rego.sourceRef: it does not exist" + held}},
		"a source that is away": {spec: source, down: errors.New("sourceRef: no answer")},
		"guards and a parameter": {
			spec:  v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{MaxDestroyedShare: "x", Windows: []v1alpha1.Window{{From: "9"}}}, Rego: source.Rego},
			down:  fault.New(fault.Invalid, "", errors.New("parameters.tags[1]: is a number, and must be a text")),
			want:  []string{`spec.guards.maxDestroyedShare: is "x"`, "spec.guards.windows[0].from: is", "spec.rego.parameters.tags[1]: is a number, and must be a text" + held},
			alone: []string{`spec.guards.maxDestroyedShare: is "x"`, "spec.guards.windows[0].from: is"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := having(t, nil)
			p.Programs = &scripted{artifact: "ok", down: tt.down}
			p.builds.programs = p.Programs
			begin := func(got, want []string) {
				for i := range max(len(got), len(want)) {
					if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
						t.Errorf("told %q, want %q", got, want)
					}
				}
			}
			obj := clusterPolicy("p", tt.spec)
			begin(p.TellPolicy(t.Context(), obj), tt.want)
			var none *Policies
			begin(none.TellPolicy(t.Context(), obj), tt.alone)
		})
	}
	if got := having(t, nil).TellPolicy(t.Context(), stackOf("team", "net", nil, nil)); got != nil {
		t.Errorf("of a stack %q is told", got)
	}
}
