package pages

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// retainedEvery is how often the page looks again: all records are read for it,
// and a stack that goes and leaves something is rare.
const retainedEvery = time.Minute

// addressesShown bounds how many resources of one stack are named.
const addressesShown = 200

// Retained shows what stacks left that are gone, and what can be done about it.
func Retained(v *Visit) (Page, error) {
	page := Page{Title: "Left behind", Section: "stacks", Template: "retained", Live: Live{Every: retainedEvery}}
	if v.House.Retained == nil {
		page.Data = retainedView{Now: v.Now, Empty: &Empty{Title: "No records are kept", Text: "This server does not write down what stacks leave behind."}}
		return page, nil
	}
	found, err := v.House.Retained.List(v.Context, "")
	if err != nil {
		return page, err
	}
	page.Data = retainedOf(v, found)
	return page, nil
}

// retainedView is what the page shows.
type retainedView struct {
	Now        time.Time
	Namespace  string
	Name       string
	Namespaces []string
	Rows       []retainedRow
	Pager      Pager
	Empty      *Empty
	Filtered   bool
}

// retainedRow is one stack that is gone.
type retainedRow struct {
	command.Retained
	Total  int    // of its resources
	More   int    // of them, that are not named
	Again  string // the page of a stack that has the name now, empty if none has
	File   string // the address of its last state, empty if the visitor does not get it
	Forget string // where the form goes that has it forgotten, empty if the visitor may not
}

// retainedOf cuts the records to those of namespaces whose stacks the visitor may
// list. It asks about the namespaces of the records: those that the board knows
// are not enough, since the last stack of one may be gone.
func retainedOf(v *Visit, found []command.Retained) retainedView {
	d := retainedView{Now: v.Now, Namespace: v.Query.Get("namespace"), Name: strings.TrimSpace(v.Query.Get("name"))}
	d.Filtered = d.Namespace != "" || d.Name != ""
	var in names
	for _, r := range found {
		in.add(r.Namespace)
	}
	sees := sightOf(v, access.ResourceStacks, in.sorted())
	d.Namespaces = slices.DeleteFunc(in.sorted(), func(n string) bool { return !sees(n) })
	found = slices.DeleteFunc(slices.Clone(found), func(r command.Retained) bool {
		return !sees(r.Namespace) || d.Namespace != "" && r.Namespace != d.Namespace || !strings.Contains(r.Name, d.Name)
	})
	offset := countIn(v.Query.Get("offset"))
	shown := found[min(offset, len(found)):min(offset+pageRows, len(found))]
	d.fill(v, shown)
	d.Pager = pager(v.Path, v.Query, offset, len(shown), pageRows, len(found), "stack")
	switch {
	case len(d.Rows) > 0:
	case d.Filtered:
		d.Empty = &Empty{Title: "No record is like that", Href: v.Path, Link: "Show all"}
	default:
		d.Empty = &Empty{
			Title: "Nothing was left",
			Text:  "No record says that a stack left anything, in a namespace whose stacks you may list. Records are kept for 30 days after a stack is gone.",
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
		row := retainedRow{Retained: r, Total: len(r.Resources)}
		if row.More = max(0, row.Total-addressesShown); row.More > 0 {
			row.Resources = r.Resources[:addressesShown]
		}
		if v.House.Board != nil {
			if _, there := v.House.Board.Get(r.Key()); there {
				row.Again = stackPath(r.Key())
			}
		}
		if r.Kept && reads(r.Key()) {
			row.File = with(retainedPath(r.Key(), "state"), nil, "uid", r.UID)
		}
		if forgets(r.Key()) {
			row.Forget = retainedPath(r.Key(), "forget")
		}
		d.Rows = append(d.Rows, row)
	}
}

func retainedPath(k query.Key, what string) string {
	return pathOf("retained", k.Namespace, k.Name, what)
}

// mayOn says on which of some objects the visitor may do something. It asks once
// for all, else once for each namespace, and for single objects where that is
// refused.
func mayOn(v *Visit, verb string, r access.Resource, keys []query.Key) func(query.Key) bool {
	if len(keys) == 0 || v.Can(access.Request{Verb: verb, Resource: r}) {
		return func(query.Key) bool { return true }
	}
	within := func(k query.Key) bool {
		return v.Can(access.Request{Verb: verb, Resource: r, Namespace: k.Namespace})
	}
	single := func(k query.Key) access.Request {
		return access.Request{Verb: verb, Resource: r, Namespace: k.Namespace, Name: k.Name}
	}
	var in names
	for _, k := range keys {
		in.add(k.Namespace)
	}
	v.askTogether(accesses(verb, r, in.sorted()))
	var singles []access.Request
	for _, k := range keys {
		if !within(k) {
			singles = append(singles, single(k))
		}
	}
	v.askTogether(singles)
	return func(k query.Key) bool { return within(k) || v.Can(single(k)) }
}

// ForgetRetained drops the record of a stack that is gone, if the name of the
// stack was typed. One that is forgotten already came of the first of two clicks,
// and the second waits for the first, so that the journal has it once.
func ForgetRetained(v *Visit) (Done, error) {
	done := Done{To: "/retained", Said: "retained-forgotten"}
	if v.House.Retained == nil || v.Forget == nil {
		return Done{}, fault.New(fault.Missing, query.ReasonNotRetained, errors.New("no records of stacks that are gone are kept here"))
	}
	uid := v.Form.Get("uid")
	if uid == "" {
		return Done{}, fault.New(fault.Invalid, "NotConfirmed", errors.New("the form does not say which stack of that name is meant, so that nothing was done"))
	}
	if err := confirmed(v); err != nil {
		return Done{}, err
	}
	v.House.forgetting.Lock()
	defer v.House.forgetting.Unlock()
	found, err := v.House.Retained.List(v.Context, v.Key().Namespace)
	if err != nil {
		return Done{}, err
	}
	if !slices.ContainsFunc(found, func(r command.Retained) bool { return r.Key() == v.Key() && r.UID == uid }) {
		return done, nil
	}
	return done, v.Forget(v.Key(), uid)
}

var _ = says(map[Said]string{"retained-forgotten": "It is forgotten. What it built is where it was."})
