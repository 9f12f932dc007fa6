package audit

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestRead(t *testing.T) {
	j := open(t, t.TempDir(), 700)
	stack := func(namespace, name string) Object {
		return Object{Kind: "Terraform", Namespace: namespace, Name: name}
	}
	record(t, j,
		Entry{What: SignedIn, Who: "ann", Via: ViaUI},
		Entry{What: Planned, Via: ViaController, Object: stack("apps", "net"), Plan: "plan-main-1"},
		Entry{What: Approved, Who: "ann", Via: ViaUI, Object: stack("apps", "net"), Plan: "plan-main-1", Comment: "Looks <fine>"},
		Entry{What: Approved, Who: "bob", Via: ViaKubectl, Object: stack("shop", "db"), Details: map[string]string{"manager": "kubectl-patch"}},
		Entry{What: Applied, Via: ViaController, Object: stack("apps", "net")},
		Entry{What: Rejected, Claimed: "eve", Via: ViaKubectl, Object: stack("far", "cdn")},
		Entry{What: Rejected, Via: ViaKubectl, Object: stack("far", "cdn"), Details: map[string]string{"manager": "kubectl-edit"}},
	)
	start := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC) // the entries are of the seconds after it
	for name, c := range map[string]struct {
		q    Query
		want []uint64
	}{
		"all":            {Query{}, []uint64{7, 6, 5, 4, 3, 2, 1}},
		"the newest":     {Query{Limit: 2}, []uint64{7, 6}},
		"before":         {Query{Before: 4, Limit: 2}, []uint64{3, 2}},
		"who":            {Query{Who: "ann"}, []uint64{3, 1}},
		"part of a name": {Query{Who: "an"}, nil},
		"a user who is claimed is no user who did it": {Query{Who: "eve"}, nil},
		"words of a user who is claimed":              {Query{Text: "eve"}, []uint64{6}},
		"what":                                        {Query{What: []What{Approved, Applied}}, []uint64{5, 4, 3}},
		"by users, known or not":                      {Query{ByUsers: true}, []uint64{7, 6, 4, 3, 1}},
		"via":                                         {Query{Via: ViaKubectl}, []uint64{7, 6, 4}},
		"namespace":                                   {Query{Namespace: "apps"}, []uint64{5, 3, 2}},
		"stack":                                       {Query{Stack: "db"}, []uint64{4}},
		"since":                                       {Query{Since: start.Add(4 * time.Second)}, []uint64{7, 6, 5, 4}},
		"until":                                       {Query{Until: start.Add(3 * time.Second)}, []uint64{2, 1}},
		"words":                                       {Query{Text: "FINE plan-main-1"}, []uint64{3}},
		"words of detail":                             {Query{Text: "kubectl-patch"}, []uint64{4}},
		"no such words":                               {Query{Text: "fine db"}, nil},
		"one namespace":                               {Query{Seen: func(n string, _ time.Time) bool { return n == "shop" }}, []uint64{4}},
	} {
		t.Run(name, func(t *testing.T) {
			page, err := j.Read(c.q)
			if err != nil {
				t.Fatal(err)
			}
			var got []uint64
			for _, e := range page.Items {
				got = append(got, e.Seq)
			}
			if !cmp.Equal(got, c.want) {
				t.Errorf("Read() finds %v, want %v", got, c.want)
			}
		})
	}
}

// Stacks of two kinds with one name have entries of their own. Those without a group are
// of the first kind, as all were while there was no other.
func TestEntriesOfOneKind(t *testing.T) {
	j := open(t, t.TempDir(), 700)
	first := Object{Kind: "Terraform", Namespace: "apps", Name: "net"}
	second := first
	second.Group = "second.example.com"
	record(t, j,
		Entry{What: Planned, Object: first}, Entry{What: Planned, Object: second},
		Entry{What: Applied, Object: Object{Namespace: "apps", Name: "net"}}, Entry{What: Applied, Object: second},
	)
	word := "terraform.second.example.com"
	for name, tt := range map[string]struct {
		kind *string
		want []uint64
	}{"whatever kind": {nil, []uint64{4, 3, 2, 1}}, "the first": {new(string), []uint64{3, 1}}, "the second": {&word, []uint64{4, 2}}} {
		page, err := j.Read(Query{Namespace: "apps", Stack: "net", Kind: tt.kind})
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for _, e := range page.Items {
			got = append(got, e.Seq)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: Read() finds %v, want %v", name, got, tt.want)
		}
	}
}

// Page by page everything is found once, whatever the size of pages.
func TestPages(t *testing.T) {
	j := open(t, t.TempDir(), 600)
	for i := range 37 {
		record(t, j, Entry{What: Planned, Run: fmt.Sprint(i), Who: []string{"ann", "bob"}[i%2]})
	}
	for _, q := range []Query{{Limit: 1}, {Limit: 5}, {Limit: 37}, {Limit: 1000}, {Limit: 4, Who: "ann"}} {
		var got []uint64
		for {
			page, err := j.Read(q)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Items {
				got = append(got, e.Seq)
			}
			if q.Before = page.Next; q.Before == 0 {
				break
			}
		}
		want := 37
		if q.Who != "" {
			want = 19
		}
		if len(got) != want || !slices.IsSortedFunc(got, func(a, b uint64) int { return int(b) - int(a) }) {
			t.Errorf("pages of %d show %v, want %d entries, the newest first", q.Limit, got, want)
		}
	}
}

// A page that ends before it is full says where to continue, and nothing is missing after it:
// each page gets at least one line further. Whether the caller may see a namespace, which is a
// question to the cluster, is asked of entries that match otherwise.
func TestAPageEndsWhenItIsEnough(t *testing.T) {
	j := open(t, t.TempDir(), 600)
	for i := range 37 {
		record(t, j, Entry{What: []What{Planned, Applied}[i%2], Object: Object{Kind: "Terraform", Namespace: fmt.Sprintf("team-%d", i%2), Name: "net"}})
	}
	for _, each := range []int{0, 1, 3, 100} {
		lines, asked := 0, map[string]bool{}
		q := Query{What: []What{Planned}, Enough: func() bool { lines++; return lines > each },
			Seen: func(namespace string, _ time.Time) bool { asked[namespace] = true; return true }}
		var got []uint64
		pages := 0
		for ; pages < 100; pages++ {
			page, err := j.Read(q)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Items {
				got = append(got, e.Seq)
			}
			if lines, q.Before = 0, page.Next; q.Before == 0 {
				break
			}
		}
		if len(got) != 19 || !slices.IsSortedFunc(got, func(a, b uint64) int { return int(b) - int(a) }) || pages != 36/(each+1) {
			t.Errorf("pages of %d lines: %d pages show %v, want 19 entries, the newest first", each+1, pages+1, got)
		}
		if len(asked) != 1 {
			t.Errorf("it was asked who may see %v, want the namespace with matching entries only", asked)
		}
	}
}

// What cannot be read keeps its place and hides nothing beside it.
func TestUnreadableLine(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, 0)
	record(t, j, Entry{What: Planned})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	add(t, dir+"/"+segmentName(1), "not an entry\n")
	j = open(t, dir, 0)
	record(t, j, Entry{What: Applied})
	page, err := j.Read(Query{})
	if err != nil {
		t.Fatal(err)
	}
	if got := whats(page.Items); !cmp.Equal(got, []What{Applied, LogDamaged, Unreadable, Planned}) {
		t.Errorf("Read() finds %v", got)
	}
	if got := page.Items[2].Seq; got != 2 {
		t.Errorf("what cannot be read has the number %d, want 2", got)
	}
}

// Lines are the same read backwards.
func TestBackwards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []string
		for range rapid.IntRange(0, 12).Draw(t, "lines") {
			n := rapid.SampledFrom([]int{0, 1, 7, chunk - 1, chunk, chunk + 1, 2*chunk + 3}).Draw(t, "length")
			want = append(want, strings.Repeat("x", n))
		}
		text := strings.Join(want, "\n")
		if len(want) > 0 {
			text += "\n"
		}
		torn := rapid.SampledFrom([]string{"", "torn", strings.Repeat("y", chunk)}).Draw(t, "torn")
		var got []string
		err := backwards(bytes.NewReader([]byte(text+torn)), int64(len(text+torn)), func(line []byte) bool {
			got = append(got, string(line))
			return true
		})
		slices.Reverse(got)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("read %d lines backwards (%v), want %d", len(got), err, len(want))
		}
	})
}

// What came since an entry is read from its own segments, the oldest first, as often as asked.
func TestSince(t *testing.T) {
	j := open(t, t.TempDir(), 300)
	var want []string
	var last uint64
	for n := range 30 {
		e := Entry{What: Planned, Plan: fmt.Sprint("plan-", n)}
		if n%3 == 0 {
			e.What = Applied
			want = append(want, e.Plan)
		}
		record(t, j, e)
		if n%10 != 9 {
			continue
		}
		entries, newest, err := j.Since(last, time.Time{}, Applied)
		var got []string
		for _, e := range entries {
			got = append(got, e.Plan)
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil || newest != uint64(n+1) {
			t.Errorf("Since(%d) = %v, the newest is %d, want %d (-want +got):\n%s", last, err, newest, n+1, diff)
		}
		last, want = newest, nil
	}
	if entries, newest, err := j.Since(last, time.Time{}, Applied); len(entries) != 0 || newest != 30 || err != nil {
		t.Errorf("Since() = %d entries, the newest %d, %v; want none that is new", len(entries), newest, err)
	}
	all, _, err := j.Since(0, time.Time{})
	if err != nil || len(all) != 30 {
		t.Fatalf("Since(0) = %d entries, %v; want all", len(all), err)
	}
	if young, _, err := j.Since(0, all[25].At); len(young) != 5 || err != nil {
		t.Errorf("Since() = %d entries, %v; want those that are not older", len(young), err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := j.Since(0, time.Time{}); fault.Of(err) != fault.Later {
		t.Errorf("Since() of a closed log = %v, want Later", err)
	}
}
