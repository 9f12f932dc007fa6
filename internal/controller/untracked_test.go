package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/alustan"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// An apply of thousands of resources may be lost with its machine. The API server takes the status
// of its stack all the same, a pass knows all of these resources, and the next status says nothing
// new.
func TestThousandsOfUntrackedResources(t *testing.T) {
	all := &stack.Untracked{Run: "apply-1", At: time.Unix(1e9, 0).UTC(), Lost: true}
	for i := range 20_000 {
		all.Objects = append(all.Objects, stack.UntrackedResource{Address: fmt.Sprintf("module.region[%q].aws_instance.node[%d]", "eu-central-1", i), ID: fmt.Sprintf("i-%017d", i)})
	}
	m := stack.Status{LastRun: "apply-1", Resources: stack.Resources{Created: true, Untracked: all}}
	for name, d := range map[string]dialect.Dialect{"infra": infra.Dialect{}, "alustan": alustan.Dialect{}} {
		t.Run(name, func(t *testing.T) {
			blobs := blobtest.Files(t, 8<<20)
			c := takeApart(&Stacks{Blobs: blobs, Now: time.Now})
			obj := d.New()
			obj.SetUID("uid")
			o := stack.Observation{Status: m}
			says := dialect.Summary{Decision: stack.Decide(o), Status: m, Now: time.Unix(1e9, 0)}
			d.Encode(obj, says)
			b, err := json.Marshal(obj)
			if err != nil || len(b) > 300<<10 {
				t.Fatalf("the object has %d bytes, %v", len(b), err)
			}
			if err := record.Checkpoint("uid").Write(t.Context(), blobs, m.Checkpoint()); err != nil {
				t.Fatal(err)
			}
			p := &pass{dialect: d, obj: obj, id: "uid", entry: &entry{id: "uid"}}
			if err := c.loader.decode(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(all, p.o.Status.Untracked); d != "" {
				t.Fatalf("the pass lacks: %.500s", d)
			}
			if !p.st.Status.Checkpoint().Same(p.o.Status.Checkpoint()) {
				t.Error("the checkpoint would be written again")
			}
			before := obj.DeepCopyObject().(client.Object)
			says.Status = p.o.Status
			d.Encode(obj, says)
			if change, err := kube.DifferenceOf(before, obj); err != nil || !change.None() {
				t.Errorf("the status would be written again: %+v, %v", change, err)
			}
		})
	}
}

// A list that cannot be read now is not taken for a short one: what is not on it would be created
// a second time. The status says why the stack stands still, and it is read again.
func TestAListOfUntrackedResourcesThatCannotBeReadNow(t *testing.T) {
	m := stack.Status{LastRun: "apply-1", Resources: stack.Resources{Created: true, Untracked: &stack.Untracked{Run: "apply-1", Objects: []stack.UntrackedResource{{Address: "x.a"}}, More: 1}}}
	old, lost, _ := twoKeys(t)
	if err := record.Checkpoint("uid").Write(t.Context(), old, m.Checkpoint()); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		blobs records.Blobs
		fails bool
	}{
		"its key is lost": {lost, true},
		"it is gone":      {openRecords(t), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := takeApart(&Stacks{Blobs: tt.blobs, Now: time.Now})
			obj := infra.Dialect{}.New()
			infra.Dialect{}.Encode(obj, dialect.Summary{Decision: stack.Decide(stack.Observation{Status: m}), Status: m, Now: time.Unix(1e9, 0)})
			p := &pass{dialect: infra.Dialect{}, obj: obj, id: "uid", entry: &entry{id: "uid"}}
			if err := c.loader.decode(t.Context(), p); err != nil {
				t.Fatal(err) // the pass would not get as far as the status
			}
			d := stack.Decide(p.o)
			if (d.Reason == stack.StatusUnreadable) != tt.fails || tt.fails && (d.Action != stack.Wait{} || p.recheck != unreadableRecheck) {
				t.Errorf("it decides %+v, and is read again after %s", d, p.recheck)
			}
			if !tt.fails {
				return
			}
			infra.Dialect{}.Encode(obj, c.committer.statusOf(t.Context(), p))
			ready := meta.FindStatusCondition(obj.(*v1alpha2.Terraform).Status.Conditions, dialect.ConditionReady)
			if ready == nil || ready.Status != metav1.ConditionFalse || !strings.Contains(ready.Message, "restore that key. Terrier does nothing with this stack until then") {
				t.Errorf("the status says %+v", ready)
			}
			if st, err := p.dialect.Decode(obj); fault.Of(err) == fault.Broken || !st.Status.Checkpoint().Same(p.st.Status.Checkpoint()) || st.Status.Untracked.More != 1 {
				t.Errorf("the rest of the status is %+v, %v", st.Status, err)
			}
		})
	}
}

// A record beside the status that cannot be read keeps its stack from everything, and the status
// says so. A status that was lost is no status of a new stack, and is restored later.
func TestARecordBesideTheStatusThatCannotBeRead(t *testing.T) {
	old, lost, _ := twoKeys(t)
	whole := stack.Status{LastRun: "apply-1", Resources: stack.Resources{Created: true, Untracked: &stack.Untracked{Run: "apply-1", More: 1, Objects: []stack.UntrackedResource{{Address: "x.a"}}}}}
	if err := record.Checkpoint("uid").Write(t.Context(), old, whole.Checkpoint()); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		blobs records.Blobs
		says  string
		again time.Duration
	}{
		"its key is lost":   {lost, "restore that key. Terrier does nothing with this stack until then", unreadableRecheck},
		"it cannot be read": {unreadable{old, record.Checkpoint("uid").Key, errors.New("input/output error")}, "input/output error. If that does not pass, restore the record from a backup. Terrier does nothing", failedRecheck},
	} {
		for status, m := range map[string]stack.Status{"a status that was lost": {}, "a status that is incomplete": whole} {
			t.Run(name+", "+status, func(t *testing.T) {
				obj := infra.Dialect{}.New()
				if m.LastRun != "" {
					infra.Dialect{}.Encode(obj, dialect.Summary{Decision: stack.Decide(stack.Observation{Status: m}), Status: m, Now: time.Unix(1e9, 0)})
				}
				decode := func(blobs records.Blobs) *pass {
					c := takeApart(&Stacks{Blobs: blobs, Now: time.Now, Events: &events{}})
					p := &pass{dialect: infra.Dialect{}, obj: obj, id: "uid", entry: &entry{id: "uid"}}
					if err := c.loader.decode(t.Context(), p); err != nil {
						t.Fatal(err) // the pass would not get as far as the status
					}
					if p.unreadable != nil {
						infra.Dialect{}.Encode(obj, c.committer.statusOf(t.Context(), p))
					}
					return p
				}
				p := decode(tt.blobs)
				if d := stack.Decide(p.o); d.Reason != stack.StatusUnreadable || d.Action != (stack.Wait{}) || p.recheck != tt.again {
					t.Errorf("it decides %+v, and is read again after %s", d, p.recheck)
				}
				ready := meta.FindStatusCondition(obj.(*v1alpha2.Terraform).Status.Conditions, dialect.ConditionReady)
				if ready == nil || ready.Status != metav1.ConditionFalse || !strings.Contains(ready.Message, tt.says) {
					t.Errorf("the status says %+v", ready)
				}
				if p = decode(old); p.unreadable != nil || !p.o.Status.Created || p.o.Status.Untracked == nil || p.o.Status.Untracked.More != 1 {
					t.Errorf("once the record can be read, the status is %+v, %v", p.o.Status, p.unreadable)
				}
			})
		}
	}
}
