package pages

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

func show(t *testing.T, e *estate, address string, h Handler) parsed {
	t.Helper()
	v := visitor(t, e, address)
	p, err := h(v)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, v, p)
}

func TestBoardQueryOfAnAddress(t *testing.T) {
	for address, want := range map[string]query.BoardQuery{
		"":        {Limit: pageRows},
		"q=+a+b+": {Text: "a b", Limit: pageRows},
		"status=failed&status=nonsense&status=ready":              {Statuses: []query.Status{query.StatusFailed, query.StatusReady}, Limit: pageRows},
		"namespace=n&tenant=t&labels=a%3Db&group=label%3Aa":       {Namespace: "n", Tenant: "t", Selector: "a=b", Group: "label:a", Limit: pageRows},
		"sort=-since&offset=200":                                  {Sort: "-since", Offset: 200, Limit: pageRows},
		"sort=password&offset=-4":                                 {Limit: pageRows},
		"offset=many&limit=100000":                                {Limit: pageRows},
		"offset=99999999999999999999999999999999999999999999&q=x": {Text: "x", Limit: pageRows},
	} {
		q, err := url.ParseQuery(address)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(boardQuery(q), want); diff != "" {
			t.Errorf("%q (-got +want):\n%s", address, diff)
		}
	}
}

// What one filter does to the address leaves the others as they are, and begins the
// list again.
func TestFiltersKeepEachOther(t *testing.T) {
	d := show(t, town(), "/stacks?q=n&group=namespace&sort=-since&offset=0&status=failed&done=asked", Stacks)
	got := map[string]string{}
	for _, a := range d.all(is(atom.A)) {
		if class := attr(a, "class"); strings.HasPrefix(class, "chip") {
			got[strings.TrimRight(textOf(a), " 0123456789")] = attr(a, "href")
		}
	}
	want := map[string]string{
		"All": "/stacks?group=namespace&q=n&sort=-since", "Failed": "/stacks?group=namespace&q=n&sort=-since",
		"Locked": "/stacks?group=namespace&q=n&sort=-since&status=locked", "Needs approval": "/stacks?group=namespace&q=n&sort=-since&status=pending",
		"Plan rejected": "/stacks?group=namespace&q=n&sort=-since&status=rejected",
		"Drifted":       "/stacks?group=namespace&q=n&sort=-since&status=drifted", "Running": "/stacks?group=namespace&q=n&sort=-since&status=running",
		"Waiting": "/stacks?group=namespace&q=n&sort=-since&status=waiting", "Deleting": "/stacks?group=namespace&q=n&sort=-since&status=deleting",
		"Suspended": "/stacks?group=namespace&q=n&sort=-since&status=suspended", "Ready": "/stacks?group=namespace&q=n&sort=-since&status=ready",
		"Search n: remove the filter":             "/stacks?group=namespace&sort=-since&status=failed",
		"Grouped by namespace: remove the filter": "/stacks?q=n&sort=-since&status=failed",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("filters (-got +want):\n%s", diff)
	}
	// The search form carries along what it has no field for.
	for _, f := range d.all(is(atom.Form)) {
		if attr(f, "method") != "get" {
			continue
		}
		fields := url.Values{}
		for _, in := range (parsed{t, f}).all(is(atom.Input)) {
			fields.Add(attr(in, "name"), attr(in, "value"))
		}
		if got, want := fields.Encode(), "group=namespace&labels=&namespace=&q=n&sort=-since&status=failed&tenant="; got != want {
			t.Errorf("the search form sends %q, want %q", got, want)
		}
	}
}

func TestHeadingsSortAndTurnAround(t *testing.T) {
	for sorted, want := range map[string][]string{
		"":       {"ascending", "/stacks?sort=-status", "", "/stacks?sort=name", "", "/stacks?sort=since"},
		"name":   {"", "/stacks?sort=status", "ascending", "/stacks?sort=-name", "", "/stacks?sort=since"},
		"-name":  {"", "/stacks?sort=status", "descending", "/stacks?sort=name", "", "/stacks?sort=since"},
		"status": {"ascending", "/stacks?sort=-status", "", "/stacks?sort=name", "", "/stacks?sort=since"},
	} {
		var got []string
		for _, c := range columnsOf("/stacks", url.Values{"offset": {"100"}}, sorted, nil) {
			if c.sort != "" {
				got = append(got, c.Sorted, c.Href)
			} else if c.Sorted != "" || c.Href != "" {
				t.Errorf("the column %s sorts: %q, %q", c.Name, c.Sorted, c.Href)
			}
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("sorted by %q (-got +want):\n%s", sorted, diff)
		}
	}
}

// Each column has one cell in each row, in the order of the headings, and the
// board sorts by what a heading names.
func TestEachColumnHasACell(t *testing.T) {
	d := show(t, town(), "/stacks", Stacks)
	rows := 0
	for _, tr := range d.all(is(atom.Tr)) {
		if attr(tr, "data-key") == "" {
			continue
		}
		rows++
		var got, want []string
		for c := tr.FirstChild; c != nil; c = c.NextSibling {
			if c.DataAtom == atom.Td || c.DataAtom == atom.Th {
				got = append(got, attr(c, "data-label"))
			}
		}
		want = append(want, "") // the checkbox
		for _, c := range stackColumns {
			name := c.Name
			if c.Class == "status" || c.Class == "name" {
				name = "" // they head the card on a small screen
			}
			want = append(want, name)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Fatalf("cells of %s (-got +want):\n%s", attr(tr, "data-key"), diff)
		}
	}
	if rows == 0 {
		t.Error("no row is shown")
	}
	for _, c := range stackColumns {
		if c.sort != "" && !slices.Contains(sorts, c.sort) {
			t.Errorf("the board does not sort by %q", c.sort)
		}
	}
}

func TestPagesOfTenThousandRows(t *testing.T) {
	e := &estate{}
	for i := range 10000 {
		e.rows = append(e.rows, row("net", fmt.Sprintf("stack-%05d", i), query.StatusReady, nil))
	}
	for offset, want := range map[int]ui.Pager{
		0:    {From: 1, To: 100, Total: 10000, Noun: "row", Next: "/stacks?offset=100&q=stack"},
		100:  {From: 101, To: 200, Total: 10000, Noun: "row", Prev: "/stacks?q=stack", Next: "/stacks?offset=200&q=stack"},
		9950: {From: 9951, To: 10000, Total: 10000, Noun: "row", Prev: "/stacks?offset=9850&q=stack"},
	} {
		v := visitor(t, e, fmt.Sprintf("/stacks?q=stack&offset=%d", offset))
		p, err := Stacks(v)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p.Data.(stackList).Pager, want); diff != "" {
			t.Errorf("at %d (-got +want):\n%s", offset, diff)
		}
	}
	d := show(t, e, "/stacks?offset=100", Stacks)
	if got := d.text(); !strings.Contains(got, "rows 101–200 of 10,000") {
		t.Error("the page does not say which rows it shows")
	}
	if d := show(t, e, "/stacks?offset=20000", Stacks); len(d.all(is(atom.Table))) != 0 || !strings.Contains(d.text(), "No matching stacks") {
		t.Error("beyond the end there is a table without rows")
	}
}

func TestGroupsOfRows(t *testing.T) {
	e := &estate{rows: []query.Row{
		row("apps", "a", query.StatusReady, nil), row("net", "b", query.StatusFailed, nil), row("apps", "c", query.StatusFailed, nil),
	}}
	type group struct {
		Name, Only string
		Total      int
		Rows       []string
	}
	for by, want := range map[string][]group{
		"":          {{"", "", 0, []string{"a", "b", "c"}}},
		"namespace": {{"apps", "/stacks?namespace=apps", 2, []string{"a", "c"}}, {"net", "/stacks?namespace=net", 1, []string{"b"}}},
		"label:app": {{"", "/stacks?labels=%21app", 3, []string{"a", "b", "c"}}},
	} {
		v := visitor(t, e, "/stacks?"+url.Values{"group": {by}}.Encode())
		p, err := Stacks(v)
		if err != nil {
			t.Fatal(err)
		}
		var got []group
		for _, g := range p.Data.(stackList).Groups {
			x := group{g.Name, g.Only, g.Total, nil}
			for _, r := range g.Rows {
				x.Rows = append(x.Rows, r.Name)
			}
			got = append(got, x)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("by %q (-got +want):\n%s", by, diff)
		}
	}
}

func TestSourcesInShort(t *testing.T) {
	for want, edit := range map[string]func(*query.Stack){
		"platform@4f1c9ab2:modules/net": nil,
		"inline":                        func(s *query.Stack) { s.Source, s.Path = "inline", "" },
		"platform@4f1c9ab2":             func(s *query.Stack) { s.Path = "./" },
		"shared/platform@v1.2.3:modules": func(s *query.Stack) {
			s.Source, s.Revision, s.Path = "GitRepository/shared/platform", "v1.2.3", "modules"
		},
		"platform:modules/net": func(s *query.Stack) { s.Revision = "" },
	} {
		r := row("apps", "net", query.StatusReady, nil)
		if edit != nil {
			edit(&r.Stack)
		}
		if got := sourceText(&r.Stack, true); got != want {
			t.Errorf("sourceText() = %q, want %q", got, want)
		}
	}
}

func TestUsersSeeOnlyWhatTheyMayList(t *testing.T) {
	got := show(t, town(), "/stacks", Stacks).text()
	if strings.Contains(got, "secret-stack") || strings.Contains(got, "hidden") {
		t.Error("the list names what is in a namespace that the visitor may not list")
	}
}

func TestAnEmptyListSaysWhatToDo(t *testing.T) {
	got := show(t, &estate{}, "/stacks", Stacks).text()
	if !strings.Contains(got, "There are no stacks yet") || !strings.Contains(got, "kubectl apply") {
		t.Errorf("nothing is said about the first stack: %s", got)
	}
	_, manifest, _ := strings.Cut(firstStack, "\n")
	told, err := query.ExplainManifest([]byte(strings.TrimSuffix(manifest, "EOF")), kinds.All(), now)
	if err != nil || len(told) != 1 || told[0].Stack.Name != "hello" || told[0].Stack.Mode != stack.Manual {
		t.Errorf("the first stack is %+v, %v", told, err)
	}
	v := visitor(t, town(), "/stacks?q=zzz")
	p, err := Stacks(v)
	if err != nil {
		t.Fatal(err)
	}
	if e := p.Data.(stackList).Empty; e == nil || e.Href != "/stacks" {
		t.Errorf("no way out of filters that find nothing: %+v", e)
	}
}

func TestABoardThatIsNotThereYet(t *testing.T) {
	v := visitor(t, town(), "/stacks")
	v.Backend.Board = nil
	for _, h := range []Handler{Stacks, Approvals, Drift} {
		if _, err := h(v); fault.Of(err) != fault.Later {
			t.Errorf("%v, want Later", err)
		}
	}
}

// One command for many stacks: each has its result, and a refusal of one does not
// affect the others.
func TestManyAtOnce(t *testing.T) {
	many := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("apps/s%d", i))
		}
		return out
	}
	for name, tt := range map[string]struct {
		do     string
		stacks []string
		done   []string
		says   []string
	}{
		"suspend": {"suspend", []string{"apps/cart", "net/vpc", "apps/cart"}, []string{"suspend apps/cart", "suspend net/vpc"}, []string{"Suspended: 2 stacks"}},
		"resume":  {"resume", []string{"apps/cart"}, []string{"resume apps/cart"}, []string{"Resumed: 1 stack"}},
		"replan, one of them refused": {"replan", []string{"net/dns", "apps/cart", "a/b/c"}, []string{"replan apps/cart"},
			[]string{"Refused: 2 stacks", "ann may not", "Ask the administrator of the cluster", "This is not the name of a stack", "New plan requested: 1 stack"}},
		"nothing that is known": {"destroy", []string{"apps/cart"}, nil, []string{"The form names no action"}},
		"none":                  {"suspend", nil, nil, []string{"No stack is selected"}},
		"too many":              {"suspend", many(pageRows + 1), nil, []string{"101 stacks are selected, and the limit is 100"}},
		"hostile names":         {"suspend", []string{hostile + "/x/y"}, nil, []string{"This is not the name of a stack"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := visitor(t, town(), "/stacks")
			h := &hands{refuse: map[string]error{"replan net/dns": fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("ann may not patch terraforms"))}}
			v.Person.Stacks = h
			v.Form = url.Values{"do": {tt.do}, "stack": tt.stacks, "back": {"/stacks?namespace=net"}}
			d, err := ToStacks(v)
			if err != nil || d.Page == nil {
				t.Fatalf("%+v, %v", d, err)
			}
			if diff := cmp.Diff(h.done, tt.done); diff != "" {
				t.Errorf("done (-got +want):\n%s", diff)
			}
			got := parse(t, v, *d.Page)
			for _, s := range tt.says {
				if !strings.Contains(got.text(), s) {
					t.Errorf("the page does not say %q: %s", s, got.text())
				}
			}
		})
	}
}

// A form with very many names, valid or not, gets a short page.
func TestTooManySelected(t *testing.T) {
	v, h := visitor(t, town(), "/stacks"), &hands{}
	v.Person.Stacks = h
	v.Form = url.Values{"do": {"suspend"}, "stack": append(slices.Repeat([]string{"!"}, 5000), "net/dns")}
	d, err := ToStacks(v)
	if err != nil || d.Page == nil {
		t.Fatalf("%+v, %v", d, err)
	}
	if text := parse(t, v, *d.Page).text(); len(h.done) != 0 || len(text) > 4096 || !strings.Contains(text, "5001 stacks are selected, and the limit is 100") {
		t.Errorf("done: %q; the page says %.300q", h.done, text)
	}
}

// The return address of a form never leads to another site.
func TestWhereAListIs(t *testing.T) {
	for back, want := range map[string]string{
		"/stacks?namespace=net&done=asked": "/stacks?namespace=net", "": "/stacks", "https://evil.example/stacks": "/stacks", "//evil.example/stacks": "/stacks",
		"/stacks/../sign-out": "/stacks", "javascript:alert(1)": "/stacks", "/stacks?q=" + url.QueryEscape(hostile): "/stacks?q=" + url.QueryEscape(hostile),
	} {
		if got := listAddress(back); got != want {
			t.Errorf("listAddress(%q) = %q, want %q", back, got, want)
		}
	}
}

// Why a stack failed stays there while it is tried again, and gives way to what
// holds it up now.
func TestARetriedStackSaysWhyItFailed(t *testing.T) {
	row := func(status query.Status, ready, message string, failures int) query.Row {
		return query.Row{Status: status, Stack: query.Stack{Ready: ready, Message: message, Failures: failures, FailedWith: "no such bucket"}}
	}
	for name, tt := range map[string]struct {
		row  query.Row
		want string
	}{
		"it is tried again":         {row(query.StatusFailed, "Unknown", "Terraform Planning", 2), "no such bucket"},
		"locked out, and once more": {row(query.StatusLocked, "Unknown", "Terraform Planning", 1), "no such bucket"},
		"its source has gone since": {row(query.StatusFailed, "False", "source not found", 2), "source not found"},
		"a pending plan in the end": {row(query.StatusPending, "Unknown", "Plan generated", 1), "Plan generated"},
		"it has not failed":         {row(query.StatusFailed, "Unknown", "Terraform Planning", 0), "Terraform Planning"},
		"it is ready":               {row(query.StatusReady, "True", "Applied", 0), ""},
		"no known reason":           {query.Row{Status: query.StatusFailed, Stack: query.Stack{Ready: "Unknown", Message: "Terraform Planning", Failures: 1}}, "Terraform Planning"},
	} {
		if got := whyNotReady(&tt.row); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// BenchmarkStacks is what one page of the list costs, of what was found already.
func BenchmarkStacks(b *testing.B) {
	pages := map[string]query.Status{"ready": query.StatusReady, "waiting for approval": query.StatusPending}
	renderer, err := NewRenderer("v1")
	if err != nil {
		b.Fatal(err)
	}
	for name, status := range pages {
		e := &estate{}
		for i := range pageRows {
			e.rows = append(e.rows, row(fmt.Sprintf("team-%02d", i), fmt.Sprintf("stack-%03d", i), status, func(r *query.Row) {
				if status == query.StatusPending {
					r.Phase, r.Message, r.Pending = string(stack.AwaitingApproval), "a plan waits: 2 to add", "plan-main-4f1c9ab2d7"
					r.Plan = planOf(r.Pending, stack.Changes{Add: 2})
					r.Delta = &r.Plan.Changes
				}
			}))
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v := &Visit{Context: b.Context(), Backend: &Backend{Board: board{e}}, Scopes: scoped(access.Everything), Can: func(access.Request) bool { return true }, Path: "/stacks", Query: url.Values{}, Now: now}
				p, err := Stacks(v)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := renderer.Render(v, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
