package command_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// drawer is records in memory; no run goes on.
type drawer map[string][]byte

func (d drawer) Get(_ context.Context, key string) ([]byte, error) {
	if b, ok := d[key]; ok {
		return b, nil
	}
	return nil, fault.New(fault.Missing, "", os.ErrNotExist)
}

func (d drawer) List(_ context.Context, prefix string) ([]string, error) {
	var keys []string
	for k := range d {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

func (drawer) Current(string) (*runner.Report, error) { return nil, nil }
func (drawer) Open(string, string, string) (io.ReadCloser, error) {
	return nil, fault.New(fault.Missing, "", os.ErrNotExist)
}

// details are what is told of the stack net, with its records.
func (c cluster) details(kept drawer) *query.Details {
	blobs := query.NewBlobs(kept, kept, time.Second)
	return query.NewDetails(query.New(c.kube, kinds.All(), blobs, func() time.Time { return noon }), blobs, blobs)
}

func (c cluster) hold(name string, annotations map[string]string, data map[string]string) {
	c.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name, Annotations: annotations}, StringData: data}
	if err := c.kube.Create(c.t.Context(), s); err != nil {
		c.t.Fatal(err)
	}
}

const canary = "canary-7f3a9"

func TestInputsAreNamesAndOrigins(t *testing.T) {
	c := newCluster(t)
	c.hold("cloud", nil, map[string]string{"AWS_ACCESS_KEY_ID": canary, "region": canary, "size": canary})
	c.hold("net-outputs-of-others", map[string]string{"terrier.dev/public-outputs": "vpc"}, map[string]string{"vpc": canary, "token": canary})
	c.hold("all-public", map[string]string{"terrier.dev/public-outputs": "ids"}, map[string]string{"ids": canary, "ids__type": canary})
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "sizes"}, Data: map[string]string{"size": canary}}
	if err := c.kube.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	from := func(secret, key string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key}}
	}
	c.spec(func(s *v1alpha2.TerraformSpec) {
		s.Values = &apiextensionsv1.JSON{Raw: []byte(`{"a":"` + canary + `"}`)}
		s.ReadInputsFromSecrets = []v1alpha2.InputSecret{{Name: "net-outputs-of-others", As: "shared"}, {Name: "all-public", As: "open"}, {Name: "gone", As: "lost"}}
		s.Vars = []v1alpha2.Variable{
			{Name: "size", Value: &apiextensionsv1.JSON{Raw: []byte(`"large"`)}}, {Name: "tags", Value: &apiextensionsv1.JSON{Raw: []byte(`{"a":[1]}`)}},
			{Name: "vpc", ValueFrom: from("net-outputs-of-others", "vpc")}, {Name: "token", ValueFrom: from("net-outputs-of-others", "token")},
			{Name: "owner", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		}
		s.VarsFrom = []v1alpha2.VarsReference{
			{Kind: "Secret", Name: "cloud"}, {Kind: "ConfigMap", Name: "sizes", VarsKeys: []string{"size:disk", "speed"}}, {Kind: "Secret", Name: "absent", Optional: true},
		}
		s.RunnerPodTemplate.Spec.Env = []corev1.EnvVar{{Name: "CLOUD_REGION", Value: canary}, {Name: "API_TOKEN", ValueFrom: from("cloud", "size")}}
		s.FileMappings = []v1alpha2.FileMapping{{SecretRef: v1alpha2.SecretKeyRef{Name: "cloud", Key: "region"}, Location: "home", Path: "rc"}}
	})
	c.status(func(s *v1alpha2.TerraformStatus) {
		s.Terrier = &v1alpha2.TerrierStatus{Environment: []string{"AWS_ACCESS_KEY_ID"}}
	})
	got, err := c.details(nil).Inputs(t.Context(), c.key()) // without a plan, no value is shown
	if err != nil {
		t.Fatal(err)
	}
	want := []query.InputInfo{
		{Name: "shared", Kind: query.InputOutputs, Origin: "Secret net-outputs-of-others", Sensitive: true},
		{Name: "open", Kind: query.InputOutputs, Origin: "Secret all-public"},
		{Name: "lost", Kind: query.InputOutputs, Origin: "Secret gone", Sensitive: true, Missing: true},
		{Name: "values", Kind: query.InputVariable, Origin: "spec.values"},
		{Name: "size", Kind: query.InputVariable, Origin: "spec.vars", Replaced: true, Sensitive: true},
		{Name: "tags", Kind: query.InputVariable, Origin: "spec.vars", Sensitive: true},
		{Name: "vpc", Kind: query.InputVariable, Origin: "Secret net-outputs-of-others key vpc"},
		{Name: "token", Kind: query.InputVariable, Origin: "Secret net-outputs-of-others key token", Sensitive: true},
		{Name: "owner", Kind: query.InputVariable, Origin: "field metadata.name"},
		{Name: "AWS_ACCESS_KEY_ID", Kind: query.InputEnvironment, Origin: "Secret cloud key AWS_ACCESS_KEY_ID", Sensitive: true},
		{Name: "region", Kind: query.InputVariable, Origin: "Secret cloud key region", Sensitive: true},
		{Name: "size", Kind: query.InputVariable, Origin: "Secret cloud key size", Sensitive: true},
		{Name: "disk", Kind: query.InputVariable, Origin: "ConfigMap sizes key size"},
		{Name: "speed", Kind: query.InputVariable, Origin: "ConfigMap sizes key speed", Missing: true},
		{Kind: query.InputVariable, Origin: "Secret absent", Sensitive: true, Missing: true, Optional: true},
		{Name: "CLOUD_REGION", Kind: query.InputEnvironment, Origin: "spec.runnerPodTemplate.spec.env"},
		{Name: "API_TOKEN", Kind: query.InputEnvironment, Origin: "Secret cloud key size", Sensitive: true},
		{Name: "~/rc", Kind: query.InputFile, Origin: "Secret cloud key region", Sensitive: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Inputs() (-want +got):\n%s", diff)
	}
	if text, err := json.Marshal(got); err != nil || strings.Contains(string(text), canary) {
		t.Errorf("a value is told: %s, %v", text, err)
	}
}

// What the module declares sensitive, or a name says to be, is not told, though it stands in the object;
// and nothing is while that cannot be found out.
func TestInputsThatAModuleHides(t *testing.T) {
	c := newCluster(t)
	c.spec(func(s *v1alpha2.TerraformSpec) {
		s.Vars = []v1alpha2.Variable{{Name: "size", Value: &apiextensionsv1.JSON{Raw: []byte(`3`)}}, {Name: "login", Value: &apiextensionsv1.JSON{Raw: []byte(`{"password":"` + canary + `","user":"u"}`)}}, {Name: "door", Value: &apiextensionsv1.JSON{Raw: []byte(`"` + canary + `"`)}}}
	})
	digest := "sha256:" + strings.Repeat("ab", 32)
	memory, err := json.Marshal(stack.Status{Resources: stack.Resources{Applied: &stack.Plan{Name: "plan-1", Digest: digest}}})
	if err != nil {
		t.Fatal(err)
	}
	c.status(func(s *v1alpha2.TerraformStatus) {
		s.Terrier = &v1alpha2.TerrierStatus{Memory: &apiextensionsv1.JSON{Raw: memory}}
	})
	size := query.InputInfo{Name: "size", Kind: query.InputVariable, Origin: "spec.vars", Value: json.RawMessage(`3`)}
	login := query.InputInfo{Name: "login", Kind: query.InputVariable, Origin: "spec.vars", Value: json.RawMessage(`{"password":"(sensitive)","user":"u"}`)}
	hidden := func(name string) query.InputInfo {
		return query.InputInfo{Name: name, Kind: query.InputVariable, Origin: "spec.vars", Sensitive: true}
	}
	plan := record.Plan(string(c.object().UID), digest, runner.FilePlanDoc)
	for document, want := range map[string][]query.InputInfo{
		`{"format_version":"1.2","configuration":{"root_module":{"variables":{"size":{},"login":{},"door":{"sensitive":true}}}}}`: {size, login, hidden("door")},
		`no document`: {hidden("size"), hidden("login"), hidden("door")},
	} {
		got, err := c.details(drawer{plan: []byte(document)}).Inputs(t.Context(), c.key())
		if err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("with the plan %s: %v (-want +got):\n%s", document, err, cmp.Diff(want, got))
		}
	}
}

func TestInputsOfASpecThatIsSpoilt(t *testing.T) {
	c := newCluster(t)
	c.spec(func(s *v1alpha2.TerraformSpec) { s.Workspace = "../up" })
	if _, err := c.details(nil).Inputs(t.Context(), c.key()); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "spec.workspace") {
		t.Errorf("Inputs(): %v, want Invalid naming spec.workspace", err)
	}
}

func TestOutputsKeptHideWhatIsSensitive(t *testing.T) {
	c := newCluster(t)
	uid := string(c.object().UID)
	kept := drawer{record.Outputs(uid): []byte(`{"vpc":{"value":{"id":"v-1"},"type":"dynamic"},"password":{"value":"` + canary + `","type":"string","sensitive":true}}`)}
	got, err := c.details(kept).OutputsKept(t.Context(), c.key())
	if err != nil {
		t.Fatal(err)
	}
	want := []query.Output{{Name: "password", Sensitive: true}, {Name: "vpc", Value: json.RawMessage(`{"id":"v-1"}`)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("OutputsKept() (-want +got):\n%s", diff)
	}
	kept[record.Secrets(uid)] = []byte(`{"key":`) // damaged: any value may have come from a Secret
	got, err = c.details(kept).OutputsKept(t.Context(), c.key())
	if err != nil || len(got) != 2 || got[1].Value != nil || !strings.Contains(got[1].Masked, "every value is masked") {
		t.Errorf("OutputsKept() with a damaged record of secrets = %+v, %v, want every value masked, and why", got, err)
	}
	if _, err := c.details(nil).OutputsKept(t.Context(), c.key()); fault.Of(err) != fault.Missing || fault.Reason(err, "") != query.ReasonNoOutputsKept {
		t.Errorf("OutputsKept() of a stack without: %v, want Missing", err)
	}
}

func TestDriftDetails(t *testing.T) {
	c := newCluster(t)
	document, err := os.ReadFile("../plan/testdata/drift-found.json")
	if err != nil {
		t.Fatal(err)
	}
	digest := "sha256:" + strings.Repeat("6d", 32)
	uid := string(c.object().UID)
	if _, err := c.details(nil).DriftDetails(t.Context(), c.key()); fault.Of(err) != fault.Missing || fault.Reason(err, "") != query.ReasonNoDrift {
		t.Errorf("DriftDetails() without drift: %v, want Missing", err)
	}
	seen := noon.Truncate(time.Second)
	c.status(func(s *v1alpha2.TerraformStatus) {
		raw, err := json.Marshal(stack.Status{
			Plans:     stack.Plans{Pending: &stack.Plan{Name: "plan-main-1", Digest: digest, Drift: true, Changes: stack.Changes{Change: 1}}},
			Resources: stack.Resources{Drift: &stack.Drift{At: seen, Changes: stack.Changes{Change: 1}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Plan.Pending = "plan-main-1"
		s.Terrier = &v1alpha2.TerrierStatus{Phase: "DriftFound", Memory: &apiextensionsv1.JSON{Raw: raw}}
	})
	got, err := c.details(drawer{record.Plan(uid, digest, runner.FilePlanDoc): document}).DriftDetails(t.Context(), c.key())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Drifted) == 0 || len(got.Drifted[0].Diffs) == 0 || len(got.Remediation) == 0 || got.Digest != digest || !got.Since.Equal(seen) {
		t.Errorf("DriftDetails() = %+v, want what differs, what would mend it, and since when", got)
	}
	got, err = c.details(nil).DriftDetails(t.Context(), c.key())
	if err != nil || got.Digest != "" || len(got.Drifted) != 0 || got.Changes != (stack.Changes{Change: 1}) {
		t.Errorf("DriftDetails() without the plan = %+v, %v, want what is known all the same", got, err)
	}
}

func TestLookedAt(t *testing.T) {
	c := newCluster(t)
	at := noon.UTC().Truncate(time.Second)
	for text, want := range map[string]time.Time{
		"": {}, `{"at":"` + at.Format(time.RFC3339) + `","memory":16777216}`: at, `{"memory":1}`: {}, at.Format(time.RFC3339Nano): at, "spoilt": {},
	} {
		kept := drawer{}
		if text != "" {
			kept[record.Checked(string(c.object().UID)).Key] = []byte(text)
		}
		if got, err := c.details(kept).CheckedAt(t.Context(), c.key()); err != nil || !got.Equal(want) {
			t.Errorf("CheckedAt() of %q = %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestTimelineOfAStack(t *testing.T) {
	c := newCluster(t)
	uid := string(c.object().UID)
	report, err := json.Marshal(runner.Report{ID: "plan-1", Kind: stack.PlanRun, Phase: runner.Done, Outcome: stack.Succeeded, Started: time.Now().Add(time.Hour), Finished: time.Now().Add(2 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	decided, err := json.Marshal([]stack.Decided{{At: time.Now().Add(30 * time.Minute), Phase: "Suspended", Rule: "a rule"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.details(drawer{record.Run(uid, "plan-1", record.ReportFile): report, record.Decisions(uid).Key: decided}).Timeline(t.Context(), c.key())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []query.MomentKind
	for _, m := range got {
		kinds = append(kinds, m.Kind)
	}
	if diff := cmp.Diff([]query.MomentKind{query.MomentRun, query.MomentDecision, query.MomentCreated}, kinds); diff != "" {
		t.Errorf("Timeline() (-want +got):\n%s", diff)
	}
}

func TestSources(t *testing.T) {
	c := newCluster(t)
	c.Apply(t, `
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: modules}
spec: {url: "https://robot:`+canary+`@git.example.com/modules.git", interval: 1m, suspend: true}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: images}
spec: {url: "oci://registry.example.com/modules", interval: 1m}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: Bucket
metadata: {name: box}
spec: {endpoint: minio.example.com, bucketName: modules, interval: 1m}
`)
	board := query.NewBoard(query.BoardOptions{Kinds: kinds.All(), Now: func() time.Time { return noon }})
	sources := query.NewSources(c.kube, board)
	mine := access.Scope{In: map[string]bool{c.Namespace: true}}
	if _, err := sources.List(t.Context(), mine); fault.Of(err) != fault.Later {
		t.Errorf("List() before the board is full: %v, want Later", err)
	}
	board.Set(c.object())
	other := c.object()
	other.Namespace, other.Spec.SourceRef = "elsewhere", &v1alpha2.SourceRef{Kind: "GitRepository", Name: "modules", Namespace: c.Namespace}
	board.Set(other)
	board.Synced()
	got, err := sources.List(t.Context(), mine)
	if err != nil {
		t.Fatal(err)
	}
	want := []query.Source{
		{Kind: "Bucket", Namespace: c.Namespace, Name: "box", URL: "minio.example.com/modules", Ready: "Unknown"},
		{Kind: "OCIRepository", Namespace: c.Namespace, Name: "images", URL: "oci://registry.example.com/modules", Ready: "Unknown"},
		{Kind: "GitRepository", Namespace: c.Namespace, Name: "modules", URL: "https://git.example.com/modules.git", Ready: "Unknown", Suspended: true, UsedBy: []query.Key{c.key()}},
	}
	for i, src := range got {
		if src.UID == "" {
			t.Errorf("source %s has no UID, by which its events are found", src.Name)
		}
		got[i].UID = ""
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List() (-want +got):\n%s", diff)
	}
	wide := access.Scope{In: map[string]bool{c.Namespace: true, "elsewhere": true}}
	if got, err = sources.List(t.Context(), wide); err != nil || len(got) != 3 || len(got[2].UsedBy) != 2 {
		t.Errorf("List() for who sees both = %+v, %v, want two users", got, err)
	}
}

// A cluster without one of the kinds has no sources of that kind, and that is
// no failure.
func TestSourcesOfAClusterWithoutThem(t *testing.T) {
	c := newCluster(t)
	board := query.NewBoard(query.BoardOptions{Kinds: kinds.All(), Now: func() time.Time { return noon }})
	board.Synced()
	got, err := query.NewSources(interceptor.NewClient(c.kube, unknownKinds()), board).List(t.Context(), access.Everything)
	if err != nil || len(got) != 0 {
		t.Errorf("List() = %+v, %v, want none", got, err)
	}
}

// unknownKinds answers as an API server that has none of the kinds.
func unknownKinds() interceptor.Funcs {
	return interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
		return &meta.NoKindMatchError{GroupKind: list.GetObjectKind().GroupVersionKind().GroupKind()}
	}}
}
