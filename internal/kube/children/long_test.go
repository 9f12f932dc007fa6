package children

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/tenant"
)

// A name that is too long for a label is in one as a hash, and in an annotation as
// it is. It finds its objects by either, and releases both.
func TestTenantsOfLongNames(t *testing.T) {
	for _, strategy := range strategies {
		t.Run(string(strategy), func(t *testing.T) {
			l := newLab(t)
			other := l.owner
			l.owner = l.tenant(strings.Repeat("a", 199) + "z")
			l.owner.TenantID = ""
			q, key := l.watched("v1", "ConfigMap"), l.key("ConfigMap", "c")
			w := l.want(l.configMap("c", map[string]string{"a": "1"}), by(strategy), retained)
			live := l.write(w)
			made := marks(l.live(key))
			want := []string{
				"kubernetes-tenants.org/deletion-policy=Retain", "kubernetes-tenants.org/tenant-namespace=" + l.Namespace,
				"kubernetes-tenants.org/tenant=" + tenant.Label(l.owner.Name), "terrier.dev/tenant=" + l.owner.Name,
			}
			if diff := cmp.Diff(made, want); diff != "" || !live.Owned {
				t.Errorf("it is the Tenant's: %t, and its marks are (-got +want):\n%s", live.Owned, diff)
			}
			if again := l.write(w); again.Change != Unchanged {
				t.Errorf("the second write is %q, want none", again.Change)
			}
			l.settled(key, live)
			l.drain(q)
			for _, data := range []string{`"2"`, "null"} {
				l.patchAs("them", key, `{"data":{"b":`+data+`}}`)
				l.woken(q, "its object changed")
			}

			l.patchAs("them", key, `{"metadata":{"annotations":{"terrier.dev/tenant":null}}}`)
			l.woken(q, "the name was taken off")
			if l.write(w); cmp.Diff(marks(l.live(key)), made) != "" {
				t.Errorf("the marks are not put back: %s", strings.Join(marks(l.live(key)), " "))
			}
			theirs := w
			theirs.Owner, theirs.Force = other, true
			_, err := l.cluster.Write(t.Context(), theirs)
			if conflict, ok := errors.AsType[*ConflictError](err); !ok || !strings.Contains(conflict.Error(), l.owner.Name) {
				t.Errorf("another Tenant's write gives %v, want a conflict that names the holder", err)
			}

			if err := l.cluster.Orphan(t.Context(), key, live.UID, "TenantDeleted", l.owner, time.Now()); err != nil {
				t.Fatal(err)
			}
			if left := strings.Join(marks(l.live(key)), " "); strings.Contains(left, "/tenant=") {
				t.Errorf("the orphan has the marks %s, want no Tenant", left)
			}
			if got := l.write(w).Change; got != Adopted {
				t.Errorf("the write after that is %q, want %q", got, Adopted)
			}
			if diff := cmp.Diff(marks(l.live(key)), made); diff != "" {
				t.Errorf("marks after adopting (-got +want):\n%s", diff)
			}
		})
	}
}
