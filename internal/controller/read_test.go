package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
)

// countingDialect counts how often objects are decoded.
type countingDialect struct {
	infra.Dialect
	decoded *int
}

func (c countingDialect) Decode(o client.Object) (dialect.Stack, error) {
	*c.decoded++
	return c.Dialect.Decode(o)
}

// Each index and each watch asks what an object says. Each version of it is decoded once; an
// object that the server has not seen has no version to know it by.
func TestAVersionOfAnObjectIsDecodedOnce(t *testing.T) {
	n := 0
	c := takeApart(&Stacks{Dialects: dialect.NewRegistry(countingDialect{decoded: &n})})
	ask := func(was, is client.Object) {
		for _, o := range []client.Object{was, is} {
			c.dependsOnKeys(o)
			c.refersKeys(o)
			c.stateKeys(o)
		}
		c.statusLost().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is})
	}
	was := &v1alpha2.Terraform{}
	was.Namespace, was.Name, was.UID, was.ResourceVersion = "apps", "net", types.UID("one"), "1"
	was.Spec.Values, was.Spec.Interval = inline(`output "a" { value = 1 }`), &metav1.Duration{Duration: time.Hour}
	is := was.DeepCopy()
	is.ResourceVersion = "2"
	is.Spec.DependsOn = []v1alpha2.ObjectRef{{Name: "db"}}
	if ask(was, is); n != 2 {
		t.Errorf("two versions were decoded %d times, want once each", n)
	}
	if got := c.dependsOnKeys(is); len(got) != 1 {
		t.Errorf("the second version depends on %v, want what it says", got)
	}
	next := is.DeepCopy()
	next.ResourceVersion, next.Spec.DependsOn = "3", nil
	if ask(is, next); n != 3 {
		t.Errorf("a third version was decoded %d times, want once", n-2)
	}
	if got := c.dependsOnKeys(next); len(got) != 0 {
		t.Errorf("the third version depends on %v, want nothing", got)
	}
	other := next.DeepCopy()
	other.UID = "two"
	if c.dependsOnKeys(other); n != 4 {
		t.Error("an object of the same name and version was taken for another one")
	}
	other.UID = ""
	c.dependsOnKeys(other)
	if c.dependsOnKeys(other); n != 6 {
		t.Errorf("an object without a UID was decoded %d times, want each time", n-4)
	}
}
