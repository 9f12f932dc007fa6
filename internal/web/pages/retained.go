package pages

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// retainedEvery is how often the page refreshes: it reads all records, and
// a deleted stack with retained resources is rare.
const retainedEvery = time.Minute

// addressesShown bounds how many resources of one stack are named.
const addressesShown = 200

// Retained shows the retained resources of deleted stacks, and the next steps.
func Retained(v *Visit) (Page, error) {
	page := Page{Title: "Retained resources", Section: "retained", Template: "retained", Live: Live{Every: retainedEvery}}
	if v.Backend.Retained == nil {
		page.Data = retainedView{Now: v.Now, Empty: &ui.Empty{Title: "No records", Text: "This server does not record retained resources."}}
		return page, nil
	}
	found, err := v.retained("list", access.ResourceStacks).List(v.Context, "")
	if err != nil {
		return page, err
	}
	page.Data = retainedOf(v, found)
	return page, nil
}

// retained are the records of deleted stacks that the visitor may have by a permission: in all
// namespaces it is one to the records of former namespaces, too.
func (v *Visit) retained(verb string, r access.Resource) command.RetainedStacks {
	return v.Backend.Retained.For(func(kind string) error {
		if v.Can(ofStack(verb, r, query.Key{Kind: kind})) {
			return nil
		}
		return fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("the record is of a former namespace"))
	})
}

// retainedView is what the page shows.
type retainedView struct {
	Now        time.Time
	Namespace  string
	Name       string
	Namespaces []string
	Rows       []retainedRow
	Pager      ui.Pager
	Empty      *ui.Empty
	Filtered   bool
}

// retainedRow is one deleted stack.
type retainedRow struct {
	command.Retained
	Total int // of its resources
	More  int // of them, that are not named

	Left     []stack.ForgottenResource // the forgotten ones that are named
	MoreLeft int                       // those that are not

	Again  string // the page of a stack that has the name now, empty if none has
	File   string // the address of its last state, empty if the visitor does not get it
	Forget string // address of the form that forgets the record, empty if the visitor may not
}

// retainedOf reduces the records to namespaces whose stacks the visitor may
// list. It asks about the namespaces of the records: those of the board are
// not enough, since the last stack of a namespace may be deleted.
func retainedOf(v *Visit, found []command.Retained) retainedView {
	d := retainedView{Now: v.Now, Namespace: v.Query.Get("namespace"), Name: strings.TrimSpace(v.Query.Get("name"))}
	d.Filtered = d.Namespace != "" || d.Name != ""
	spaceOf := func(r command.Retained) query.Key { return query.Key{Namespace: r.Namespace, Kind: r.Kind} }
	var spaces []query.Key
	for _, r := range found {
		spaces = append(spaces, spaceOf(r))
	}
	sees := mayOn(v, "list", access.ResourceStacks, spaces)
	var in names
	for _, k := range spaces {
		if sees(k) {
			in.add(k.Namespace)
		}
	}
	d.Namespaces = in.sorted()
	found = slices.DeleteFunc(slices.Clone(found), func(r command.Retained) bool {
		return !sees(spaceOf(r)) || d.Namespace != "" && r.Namespace != d.Namespace || !strings.Contains(r.Name, d.Name)
	})
	offset := ui.CountIn(v.Query.Get("offset"))
	shown := found[min(offset, len(found)):min(offset+pageRows, len(found))]
	d.fill(v, shown)
	d.Pager = ui.NewPager(v.Path, v.Query, offset, len(shown), pageRows, len(found), "stack")
	switch {
	case len(d.Rows) > 0:
	case d.Filtered:
		d.Empty = &ui.Empty{Title: "No matching records", Href: v.Path, Link: "Show all"}
	default:
		d.Empty = &ui.Empty{
			Title:   "No retained resources",
			Text:    "No deleted stack has retained resources in the namespaces whose stacks you may list, and no apply forgot any. Records expire 30 days after the deletion. If a namespace was deleted and created again, the records of the former one are shown to users who may list the stacks of all namespaces. To keep the resources of a stack, annotate the stack before you delete it:",
			Command: "kubectl annotate terraforms.infra.contrib.fluxcd.io NAME -n NAMESPACE terrier.dev/deletion=retain",
		}
	}
	return d
}

func (d *retainedView) fill(v *Visit, shown []command.Retained) {
	var keys []query.Key
	for _, r := range shown {
		keys = append(keys, r.Key())
	}
	forgets := mayOn(v, "delete", access.ResourceStacks, keys)
	reads := mayOn(v, "get", access.ResourceState, keys)
	for _, r := range shown {
		row := retainedRow{Retained: r, Total: len(r.Resources), Left: r.Forgotten}
		if row.MoreLeft = max(0, len(r.Forgotten)-addressesShown); row.MoreLeft > 0 {
			row.Left = r.Forgotten[:addressesShown]
		}
		if row.More = max(0, row.Total-addressesShown); row.More > 0 {
			row.Resources = r.Resources[:addressesShown]
		}
		if v.Backend.Board != nil {
			if _, there := v.Backend.Board.Get(r.Key()); there {
				row.Again = stackPath(r.Key())
			}
		}
		if r.Kept && mayHave(v, r, "get", access.ResourceState, reads) {
			row.File = ui.With(retainedPath(r.Key(), "state"), nil, "uid", r.UID)
		}
		if mayHave(v, r, "delete", access.ResourceStacks, forgets) {
			row.Forget = retainedPath(r.Key(), "forget")
		}
		d.Rows = append(d.Rows, row)
	}
}

// mayHave reports whether the visitor has a permission to a record, where here says so for
// those of the namespaces that there are.
func mayHave(v *Visit, r command.Retained, verb string, res access.Resource, here func(query.Key) bool) bool {
	if r.Former {
		return v.Can(ofStack(verb, res, query.Key{Kind: r.Kind}))
	}
	return here(r.Key())
}

func retainedPath(k query.Key, what string) string {
	return ui.PathOf("retained", k.Namespace, k.Address(), what)
}

// mayOn says for which stacks the visitor has a permission. It asks once for all of a
// kind, else once for each namespace, and for single stacks where that is refused.
func mayOn(v *Visit, verb string, r access.Resource, keys []query.Key) func(query.Key) bool {
	within := func(k query.Key) bool {
		return v.Can(ofStack(verb, r, query.Key{Kind: k.Kind})) || v.Can(ofStack(verb, r, query.Key{Namespace: k.Namespace, Kind: k.Kind}))
	}
	var spaces, singles []access.Request
	for _, k := range keys {
		if !v.Can(ofStack(verb, r, query.Key{Kind: k.Kind})) {
			spaces = append(spaces, ofStack(verb, r, query.Key{Namespace: k.Namespace, Kind: k.Kind}))
		}
	}
	slices.SortFunc(spaces, func(a, b access.Request) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace))
	})
	v.askTogether(slices.Compact(spaces))
	for _, k := range keys {
		if !within(k) {
			singles = append(singles, ofStack(verb, r, k))
		}
	}
	v.askTogether(singles)
	return func(k query.Key) bool { return within(k) || v.Can(ofStack(verb, r, k)) }
}

// ForgetRetained deletes the record of a deleted stack, if the name of the
// stack was typed. The second of two clicks waits for the first and finds the
// record gone, so that the audit log has one entry.
func ForgetRetained(v *Visit) (Done, error) {
	done := Done{To: "/retained", Said: "retained-forgotten"}
	if v.Backend.Retained == nil || v.Forget == nil {
		return Done{}, fault.New(fault.Missing, query.ReasonNotRetained, errors.New("this server has no records of deleted stacks"))
	}
	uid := v.Form.Get("uid")
	if uid == "" {
		return Done{}, fault.New(fault.Invalid, "NotConfirmed", errors.New("the form does not identify the stack; nothing was changed"))
	}
	if err := confirmed(v); err != nil {
		return Done{}, err
	}
	v.Backend.forgetting.Lock()
	defer v.Backend.forgetting.Unlock()
	found, err := v.retained("delete", access.ResourceStacks).List(v.Context, v.Key().Namespace)
	if err != nil {
		return Done{}, err
	}
	if !slices.ContainsFunc(found, func(r command.Retained) bool { return r.Key() == v.Key() && r.UID == uid }) {
		return done, nil
	}
	return done, v.Forget(v.Key(), uid)
}

var _ = says(map[Said]string{"retained-forgotten": "The record was deleted. The resources of the stack still exist."})
