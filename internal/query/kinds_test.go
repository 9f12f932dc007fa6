package query

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/dialecttest"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
)

var twoKinds = dialect.NewRegistry(infra.Dialect{}, dialecttest.Second{})

func TestParseKeyReadsKinds(t *testing.T) {
	const second = dialecttest.Word
	for text, want := range map[string]Key{
		"net":                {Namespace: "apps", Name: "net"},
		"db/net":             {Namespace: "db", Name: "net"},
		"terraform/net":      {Namespace: "apps", Name: "net"},
		"tf/db/net":          {Namespace: "db", Name: "net"},
		second + "/net":      {Namespace: "apps", Name: "net", Kind: second},
		second + "/db/net":   {Namespace: "db", Name: "net", Kind: second},
		"Terraform.X.io/net": {Namespace: "apps", Name: "net", Kind: "terraform.x.io"},
	} {
		if got, err := ParseKey(text, "apps"); err != nil || got != want {
			t.Errorf("ParseKey(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a/", "a/b/c", "../net", second + "/a/b/c", second + "/"} {
		if got, err := ParseKey(text, "apps"); err == nil && got.Check() == nil {
			t.Errorf("ParseKey(%q) = %+v, want an error", text, got)
		}
	}
	for _, k := range []Key{{Namespace: "apps", Name: "net"}, {Namespace: "apps", Name: "net", Kind: second}} {
		if got, err := ParseKey(k.String(), ""); err != nil || got != k {
			t.Errorf("ParseKey(%q) = %+v, %v, want the key itself", k, got, err)
		}
		if kind, name := SplitAddress(k.Address()); kind != k.Kind || name != k.Name {
			t.Errorf("SplitAddress(%q) = %q, %q", k.Address(), kind, name)
		}
	}
}

// named has the stacks with these keys.
type named struct {
	StackReader
	keys map[Key]error
}

func (n named) Get(_ context.Context, k Key) (Stack, error) {
	if err, there := n.keys[k]; there {
		return Stack{}, err
	}
	return Stack{}, fault.New(fault.Missing, access.ReasonNotFound, errors.New("none"))
}

func TestFindSearchesAllKinds(t *testing.T) {
	first, second := Key{Namespace: "apps", Name: "net"}, Key{Namespace: "apps", Name: "net", Kind: dialecttest.Word}
	denied := fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("no"))
	unknown := fault.New(fault.Invalid, "NameInvalid", errors.New("that is not a kind of stack"))
	for name, tt := range map[string]struct {
		text string
		keys map[Key]error
		want Key
		says string
	}{
		"a name of one kind":                {"net", map[Key]error{second: nil}, second, ""},
		"a name of the first kind":          {"net", map[Key]error{first: nil}, first, ""},
		"a name of no kind":                 {"net", nil, first, ""},
		"a kind that may not be read":       {"net", map[Key]error{first: nil, second: denied}, first, ""},
		"a kind that an older server lacks": {"net", map[Key]error{first: nil, second: unknown}, first, ""},
		"a name of both":                    {"net", map[Key]error{first: nil, second: nil}, Key{}, "terraform.infra.contrib.fluxcd.io/apps/net, terraform.second.example.com/apps/net"},
		"the second of both":                {dialecttest.Word + "/net", map[Key]error{first: nil, second: nil}, second, ""},
		"the first of both":                 {"terraform.infra.contrib.fluxcd.io/net", map[Key]error{first: nil, second: nil}, first, ""},
		"by its resource":                   {"terraforms.second.example.com/net", nil, second, ""},
		"by its resource with a version":    {"terraforms.v1.second.example.com/net", nil, second, ""},
		"a kind that there is not":          {"terraform.example.com/net", nil, Key{}, "it may be terraform.infra.contrib.fluxcd.io or terraform.second.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Find(t.Context(), twoKinds, named{keys: tt.keys}, tt.text, "apps")
			if tt.says != "" {
				if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("Find() = %v, want it to say %q", err, tt.says)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("Find() = %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

// recalled also has the last runs of deleted stacks.
type recalled struct {
	named
	gone map[Key]time.Time
}

func (r recalled) Runs(_ context.Context, k Key) ([]Report, error) {
	if at, gone := r.gone[k]; gone {
		return []Report{{ID: "destroy-1", Gone: at}}, nil
	}
	if err, there := r.keys[k]; there && err == nil {
		return []Report{{ID: "apply-1"}}, nil
	}
	return nil, fault.New(fault.Missing, ReasonNotKept, errors.New("none"))
}

// A stack that exists comes first, then the one of its name that was deleted last.
func TestFindRecordedSearchesDeletedStacks(t *testing.T) {
	first, second := Key{Namespace: "apps", Name: "net"}, Key{Namespace: "apps", Name: "net", Kind: dialecttest.Word}
	denied := fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("no"))
	for name, tt := range map[string]struct {
		text string
		keys map[Key]error
		gone map[Key]time.Time
		want Key
		at   time.Time
	}{
		"it exists":                             {"net", map[Key]error{first: nil}, map[Key]time.Time{first: day}, first, time.Time{}},
		"one of its name exists":                {"net", map[Key]error{second: nil}, map[Key]time.Time{first: day}, second, time.Time{}},
		"it was deleted":                        {"net", nil, map[Key]time.Time{second: day}, second, day},
		"two were deleted":                      {"net", nil, map[Key]time.Time{first: day, second: day.Add(time.Hour)}, second, day.Add(time.Hour)},
		"it was deleted, and the kind is named": {"terraform.infra.contrib.fluxcd.io/net", nil, map[Key]time.Time{first: day, second: day.Add(time.Hour)}, first, day},
		"another kind was deleted":              {"terraform.infra.contrib.fluxcd.io/net", nil, map[Key]time.Time{second: day}, first, time.Time{}},
		"nothing is known":                      {"net", nil, nil, first, time.Time{}},
		"it may not be read":                    {dialecttest.Word + "/net", map[Key]error{second: denied}, map[Key]time.Time{second: day}, second, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, last, err := FindRecorded(t.Context(), twoKinds, recalled{named{keys: tt.keys}, tt.gone}, tt.text, "apps")
			if err != nil || got != tt.want || (last != nil) != !tt.at.IsZero() || last != nil && !last.Gone.Equal(tt.at) {
				t.Errorf("FindRecorded() = %+v, %+v, %v, want %+v, gone at %v", got, last, err, tt.want, tt.at)
			}
		})
	}
}

// Two stacks of one name are two rows, two changes and two nodes, and each is shown
// to the users that may list its kind.
func TestBoardKeepsKindsApart(t *testing.T) {
	b := NewBoard(BoardOptions{Kinds: twoKinds, Now: func() time.Time { return day }})
	first := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "net", UID: "1"}}
	first.Spec.DependsOn = []v1alpha2.ObjectRef{{Name: "base"}}
	second := dialecttest.Second{}.New()
	second.SetNamespace("apps")
	second.SetName("net")
	second.SetUID("2")
	b.Set(first)
	b.Set(second)
	b.Synced()
	one, other := Key{Namespace: "apps", Name: "net"}, Key{Namespace: "apps", Name: "net", Kind: dialecttest.Word}
	apps := map[string]bool{"apps": true}
	for name, tt := range map[string]struct {
		scope access.Scope
		want  []Key
	}{
		"everything":       {access.Everything, []Key{one, other}},
		"all of the first": {access.Scope{All: true}, []Key{one}},
		"the first":        {access.Scope{In: apps}, []Key{one}},
		"the second":       {access.Scope{Others: map[string]access.Scope{dialecttest.Word: {In: apps}}}, []Key{other}},
		"both":             {access.Scope{In: apps, Others: map[string]access.Scope{dialecttest.Word: {All: true}}}, []Key{one, other}},
		"none":             {access.Scope{}, nil},
	} {
		page, err := b.Page(tt.scope, BoardQuery{})
		if err != nil {
			t.Fatal(err)
		}
		nodes, _, _, err := NewWholeGraph(b).Whole(tt.scope, "apps")
		if err != nil {
			t.Fatal(err)
		}
		var drawn []Key
		for _, n := range nodes {
			drawn = append(drawn, n.Key())
		}
		news, err := b.Changes(tt.scope, b.cursor(0))
		if err != nil {
			t.Fatal(err)
		}
		var rows, changed []Key
		for _, r := range page.Items {
			rows = append(rows, r.Key())
		}
		for _, c := range news.Changes {
			changed = append(changed, c.Row.Key())
		}
		for what, got := range map[string][]Key{"Page": rows, "Changes": changed, "Whole": drawn} {
			if len(got) != len(tt.want) || len(got) > 0 && got[0] != tt.want[0] || page.Total != len(tt.want) {
				t.Errorf("%s: %s() has %v of %d, want %v", name, what, got, page.Total, tt.want)
			}
		}
	}
	if g, err := b.Graph(access.Scope{In: apps}, other, 0); err != nil || len(g.Nodes) != 1 || g.Nodes[0].Key() != other {
		t.Errorf("Graph() = %+v, %v, want the second stack alone", g, err)
	}
	b.Drop(one)
	if _, there := b.Get(other); !there || b.Len() != 1 {
		t.Error("the second stack went with the first")
	}
}
