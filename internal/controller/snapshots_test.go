package controller

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/policy/guard"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// standing is a pass of a stack that was applied as the object asks for, and is left as it is. Its
// record and the archive of its source are there.
func standing(t *testing.T, blobs records.Blobs) (*apart, *pass) {
	t.Helper()
	c := takeApart(&Stacks{Blobs: blobs, Archives: records.Archives{Dir: t.TempDir()}})
	p := &pass{dialect: infra.Dialect{}, obj: &v1alpha2.Terraform{}, id: "uid", entry: &entry{id: "uid"}, decision: stack.Decision{Action: stack.Wait{}}}
	p.in.archive = filepath.Join(t.TempDir(), "source.tar.gz")
	if err := os.WriteFile(p.in.archive, []byte("the archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.o.Now = time.Unix(1e9, 0)
	p.o.PlanInputs = stack.PlanInputs{Revision: "main@sha1:1", Source: "sha256:aa", Inputs: "i", Shape: "s", Engine: "tofu 1.12.0"}
	p.job = &runner.Job{Tree: runner.Tree{Archive: "sha256:aa"}, Env: map[string]string{"TF_VAR_size": "1"}}
	p.note = note{State: &kube.StateRef{Suffix: "net"}}
	key := snapshotKey(p)
	if err := c.snapshots.write(t.Context(), p, key); err != nil {
		t.Fatal(err)
	}
	p.o.Status = stack.Status{
		Plans:     stack.Plans{Planned: p.o.PlanInputs},
		Resources: stack.Resources{Created: true, Snapshot: key, SnapshotPlace: p.note.place()},
		Recovery:  stack.Recovery{Revisions: []stack.Revision{{PlanInputs: p.o.PlanInputs, Snapshot: key}}},
	}
	return c, p
}

// whole reports what the record of the last apply lacks, as a controller finds it that has just
// started.
func whole(t *testing.T, c *apart, p *pass) string {
	t.Helper()
	p.entry.applied = recordSeen{}
	if err := c.snapshots.look(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p.entry.applied.lacks
}

// What a destroy needs is written again once it was lost, and until then the stack says so.
func TestALostRecordIsWrittenAgain(t *testing.T) {
	drop := func(key func(*pass) string) func(*testing.T, records.Blobs, *pass) {
		return func(t *testing.T, b records.Blobs, p *pass) {
			if err := b.Delete(t.Context(), key(p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	recordOf, treeOf := func(p *pass) string { return p.o.Status.Snapshot }, func(*pass) string { return record.Tree("sha256:aa") }
	for name, tt := range map[string]struct {
		lose func(*testing.T, records.Blobs, *pass)
		want string
	}{
		"nothing":                     {func(*testing.T, records.Blobs, *pass) {}, ""},
		"its record":                  {drop(recordOf), "is missing"},
		"the archive of its source":   {drop(treeOf), "lacks the archive of its source main@sha1:1"},
		"a record that other text is": {func(t *testing.T, _ records.Blobs, p *pass) { p.o.Status.Snapshot = "stacks/other/snapshots/1" }, "is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			b := openRecords(t)
			c, p := standing(t, b)
			tt.lose(t, b, p)
			if got := whole(t, c, p); got != tt.want {
				t.Fatalf("the record %q, want %q", got, tt.want)
			}
			if said := p.recordLacks(); said == nil || *said != tt.want {
				t.Errorf("the status says %v", said)
			}
			if err := c.snapshots.rewrite(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if said := p.recordLacks(); said == nil || *said != "" {
				t.Errorf("after it was written again the status says %v", said)
			}
			if got := whole(t, c, p); got != "" {
				t.Errorf("after it was written again the record %s", got)
			}
			s, err := record.SnapshotNamed[snapshot]("uid", p.o.Status.Snapshot).Read(t.Context(), b)
			if err != nil || s.Job.Env["TF_VAR_size"] != "1" || s.PlanInputs != p.o.PlanInputs {
				t.Errorf("the record is %+v, %v", s, err)
			}
		})
	}
}

// A record that was damaged, or whose key is lost, is written again as well.
func TestARecordThatDoesNotOpenIsWrittenAgain(t *testing.T) {
	old, lost, _ := twoKeys(t)
	files := blobtest.Files(t, 1<<20)
	key, err := blob.NewKey(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	damaged := blob.Seal(files, key)
	for name, tt := range map[string]struct{ written, read records.Blobs }{
		"an unknown key": {old, lost},
		"damaged":        {damaged, damaged},
	} {
		t.Run(name, func(t *testing.T) {
			c, p := standing(t, tt.written)
			if name == "damaged" {
				for _, k := range []string{p.o.Status.Snapshot, record.Tree("sha256:aa")} {
					if err := files.Put(t.Context(), k, strings.NewReader("no record")); err != nil {
						t.Fatal(err)
					}
				}
			}
			now := takeApart(&Stacks{Blobs: tt.read, Archives: c.whole.Archives})
			if got := whole(t, now, p); !strings.HasPrefix(got, "cannot be opened: ") {
				t.Fatalf("the record %q, want that it cannot be opened", got)
			}
			if err := now.snapshots.rewrite(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if got := whole(t, now, p); got != "" {
				t.Errorf("after it was written again the record %s", got)
			}
		})
	}
}

// What was not applied is not taken for it: then the stack goes on to say that the record lacks.
func TestARecordOfSomethingElseIsNotWritten(t *testing.T) {
	for name, change := range map[string]func(*pass){
		"a run starts":             func(p *pass) { p.decision.Action = stack.Start{Kind: stack.PlanRun} },
		"a run goes on":            func(p *pass) { p.o.Run = &stack.Run{ID: "plan-1"} },
		"its inputs are not known": func(p *pass) { p.job = nil },
		"its source is missing":    func(p *pass) { p.o.Blocked = &stack.Blocked{} },
		"it is deleted":            func(p *pass) { p.o.Deleting = true },
		"it is rolled back":        func(p *pass) { p.o.Status.Rollback = &stack.Rollback{} },
		"other inputs":             func(p *pass) { p.o.PlanInputs.Inputs = "j" },
		"other inputs, which have a plan": func(p *pass) {
			p.o.PlanInputs.Inputs = "j"
			p.o.Status.Planned, p.o.Status.Pending = p.o.PlanInputs, &stack.Plan{}
		},
		"another place of the state": func(p *pass) {
			p.o.PlanInputs.Shape = "t"
			p.o.Status.Planned, p.note.State = p.o.PlanInputs, &kube.StateRef{Suffix: "elsewhere"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := openRecords(t)
			c, p := standing(t, b)
			if err := b.Delete(t.Context(), p.o.Status.Snapshot); err != nil {
				t.Fatal(err)
			}
			whole(t, c, p)
			change(p)
			if err := c.snapshots.rewrite(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if said := p.recordLacks(); said == nil || *said == "" {
				t.Errorf("the status says %v, want that the record is missing", said)
			}
			if keys, err := b.List(t.Context(), record.Snapshots("uid")); err != nil || len(keys) != 0 {
				t.Errorf("there are the records %v, %v", keys, err)
			}
		})
	}
}

// Inputs whose plan had no changes are as good as those that were applied. Their record takes the
// place of the one that was lost, for rollbacks too.
func TestALostRecordHasTheInputsOfNow(t *testing.T) {
	b := openRecords(t)
	c, p := standing(t, b)
	before := p.o.Status.Snapshot
	if err := b.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	whole(t, c, p)
	p.o.PlanInputs.Engine = "tofu 1.12.1"
	p.o.Status.Planned = p.o.PlanInputs
	if err := c.snapshots.rewrite(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	m := p.o.Status
	if m.Snapshot == before || m.Revisions[0].Snapshot != m.Snapshot {
		t.Errorf("the record is %s, and that of the apply %s", m.Snapshot, m.Revisions[0].Snapshot)
	}
	if got := whole(t, c, p); got != "" {
		t.Errorf("the record %s", got)
	}
}

// A stack that nothing else is wrong with gets its record back in its next pass, without a write
// to the API server; and the record is read once, and not by each pass.
func TestALostRecordCostsNoRequest(t *testing.T) {
	l := newFrugal(t, "net")
	l.creates(t)
	l.applies(t, 1)
	l.looks(t)
	uid := string(l.stored(t).UID)
	keys, err := l.records.Blobs.List(t.Context(), record.Snapshots(uid))
	if err != nil || len(keys) != 1 {
		t.Fatalf("the records of the apply are %v, %v, want one", keys, err)
	}
	lose := func() {
		if err := l.records.Blobs.Delete(t.Context(), keys[0]); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() bool {
		now, err := l.records.Blobs.List(t.Context(), record.Snapshots(uid))
		if err != nil {
			t.Fatal(err)
		}
		return len(now) == 1 && now[0] == keys[0]
	}

	lose()
	l.looks(t)
	if kept() {
		t.Error("a quiet pass has read the record")
	}
	l.whole.index.drop(uid) // as if the controller had started again
	l.made.Take()
	l.looks(t)
	if !kept() {
		t.Error("the record is not there again")
	}
	for _, r := range l.made.Take() {
		if r.Method != "GET" {
			t.Errorf("it cost %s %s", r.Method, r.Path)
		}
	}

	lose()
	obj := l.stored(t)
	dialect.SetAnnotation(obj, "reconcile.fluxcd.io/requestedAt", "now")
	if err := l.k.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	l.works(t, stack.PlanRun)
	l.runs.ends(func(r *runner.Report) { r.State = idOf(thing("l", 1)) }, nil)
	l.looks(t)
	if !kept() {
		t.Error("the end of a run has not noticed that the record is missing")
	}
	if c := meta.FindStatusCondition(l.stored(t).Status.Conditions, dialect.ConditionRecord); c != nil {
		t.Errorf("the stack says %q", c.Message)
	}
}

// While the record cannot be written again, a condition says so, also in a pass that does not look.
func TestALostRecordIsToldInACondition(t *testing.T) {
	obj := &v1alpha2.Terraform{}
	says := func(lacks *string) string {
		infra.Dialect{}.Encode(obj, dialect.Summary{Decision: stack.Decision{Reason: stack.SourceFailed}, RecordLacks: lacks})
		if c := meta.FindStatusCondition(obj.Status.Conditions, dialect.ConditionRecord); c != nil {
			return c.Message
		}
		return ""
	}
	for _, step := range []struct {
		lacks *string
		want  string
	}{
		{nil, ""}, {new("is missing"), "The record of the last apply is missing. "}, {nil, "The record of the last apply is missing. "},
		{new("lacks the archive of its source r"), "The record of the last apply lacks the archive of its source r. "}, {new(""), ""},
	} {
		if got := says(step.lacks); !strings.HasPrefix(got, step.want) || (got == "") != (step.want == "") {
			t.Errorf("the condition says %q, want %q", got, step.want)
		}
	}
}

// The record has what was verified of the signature on the source, also if that was later, and
// keeps it after the source has another artifact.
func TestTheRecordHasTheSignature(t *testing.T) {
	k := testkit.Kube(t, sourcev1.AddToScheme)
	b := openRecords(t)
	c, p := standing(t, b)
	signs := provenance.Key{Text: secret.New("key")}
	c.snapshots.jobs.cache, c.snapshots.signatures = k.Client, provenance.Reader{Key: signs, Own: true}
	repository := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "net"}}
	repository.Spec = sourcev1.GitRepositorySpec{URL: "https://git.example.com/net", Verification: &sourcev1.GitRepositoryVerification{Mode: sourcev1.ModeGitHEAD, SecretRef: fluxmeta.LocalObjectReference{Name: "keys"}}}
	if err := k.Client.Create(t.Context(), repository); err != nil {
		t.Fatal(err)
	}
	p.obj.SetNamespace(k.Namespace)
	p.st.Configuration.Source = &stack.Ref{Kind: sourcev1.GitRepositoryKind, Name: "net"}
	p.in.artifact, p.in.revision = "sha256:aa", "main@sha1:1"
	says := func(artifact string) {
		repository.Status.Conditions = []metav1.Condition{signs.Signed(repository, artifact, source.Signature{Kind: source.SignedOpenPGP, By: "F00"})}
		repository.Status.Conditions[0].LastTransitionTime = metav1.NewTime(p.o.Now)
		if err := k.Client.Status().Update(t.Context(), repository); err != nil {
			t.Fatal(err)
		}
	}
	recorded := func() guard.Origin {
		t.Helper()
		if err := c.snapshots.rewrite(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		o, err := Recorded(b)(t.Context(), "uid", p.o.Status.Snapshot)
		if err != nil || o.Artifact != "sha256:aa" || o.Revision != "main@sha1:1" {
			t.Errorf("recorded is %+v, %v", o, err)
		}
		return o
	}
	whole(t, c, p)
	if got := recorded(); got.Signature.Verified {
		t.Errorf("before the source is verified the record says %+v", got)
	}
	says("sha256:aa")
	if got := recorded(); !got.Signature.Verified || got.Signature.By != "F00" {
		t.Errorf("once the source is verified the record says %+v", got)
	}
	says("sha256:bb")
	if err := b.Delete(t.Context(), record.Tree("sha256:aa")); err != nil { // the record is written once more
		t.Fatal(err)
	}
	if got := whole(t, c, p); got == "" {
		t.Error("the archive is not missed")
	}
	if got := recorded(); !got.Signature.Verified {
		t.Errorf("after the source has another artifact the record says %+v", got)
	}
	if o, err := Recorded(b)(t.Context(), "uid", record.Snapshot("uid", "sha256:00")); err != nil || o.Signature.Verified || o.Artifact != "" {
		t.Errorf("of a record that is missing %+v, %v is known", o, err)
	}
}
