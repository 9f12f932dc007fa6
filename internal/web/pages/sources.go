package pages

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// sourcesEvery is how often the list refreshes.
const sourcesEvery = 15 * time.Second

// Sources shows the sources of modules, whether they can be fetched, and the stacks
// that use them.
func Sources(v *Visit) (Page, error) {
	page := Page{Title: "Sources", Section: "sources", Template: "sources", Live: Live{Every: sourcesEvery}}
	d := sourcesView{Now: v.Now}
	if v.Backend.Sources == nil {
		d.Empty = &ui.Empty{Title: "No sources", Text: "This server does not read GitRepositories, OCIRepositories and Buckets."}
		page.Data = d
		return page, nil
	}
	list, err := v.Backend.Sources.List(v.Context, v.Scope())
	if err != nil && fault.Of(err) != fault.Later {
		return page, err
	}
	d.fill(v, list)
	if err != nil {
		d.Problem, d.Empty = problemOf("Sources cannot be shown yet", err), nil
	}
	page.Data = d
	return page, nil
}

// SourceDetail shows one source: its revision, its last failures, and the stacks that
// use it.
func SourceDetail(v *Visit) (Page, error) {
	kind, key := v.Names["kind"], v.Key()
	missing := fault.New(fault.Missing, access.ReasonNotFound, fmt.Errorf("%s %s/%s does not exist", kind, key.Namespace, key.Name))
	if v.Backend.Sources == nil {
		return Page{}, missing
	}
	list, err := v.Backend.Sources.List(v.Context, access.Everything)
	if err != nil {
		return Page{}, err
	}
	i := slices.IndexFunc(list, func(s query.Source) bool {
		return s.Kind == kind && s.Namespace == key.Namespace && s.Name == key.Name
	})
	if i < 0 {
		return Page{}, missing
	}
	d := sourceDetail{sourceRow: rowOfSource(list[i]), Get: fmt.Sprintf("kubectl describe %s -n %s %s", strings.ToLower(kind), key.Namespace, key.Name)}
	var seen []query.Key
	for _, k := range d.UsedBy {
		if v.Scope().Of(k.Kind).Has(k.Namespace) {
			seen = append(seen, k)
		}
	}
	d.Hidden, d.Total = len(d.UsedBy)-len(seen), len(seen)
	offset := offsetOf(v, len(seen), pageRows)
	for _, k := range seen[offset:min(offset+pageRows, len(seen))] {
		if row, ok := v.row(k); ok {
			d.Users = append(d.Users, listed(&row, v.Now))
		}
	}
	events, err := v.Backend.Sources.Events(v.Context, list[i])
	d.Events, d.Unseen = events[:min(len(events), sourceEvents)], problemOf("The history cannot be shown", err)
	d.Pager = ui.NewPager(v.Path, v.Query, offset, len(d.Users), pageRows, len(seen), "stack")
	return Page{Title: key.Name + " · " + kind, Section: "sources", Template: "source", Live: Live{Every: sourcesEvery}, Data: d}, nil
}

// sourceEvents bounds how many failures and new artifacts the page of a source has.
const sourceEvents = 20

// sourceDetail is what the page of one source shows.
type sourceDetail struct {
	sourceRow
	Get    string // the command that prints all of it
	Events []query.Event
	Unseen *Problem // why Events are not known
	Users  []stackRow
	Total  int // stacks that the visitor may view
	Hidden int // stacks that the visitor may not view
	Pager  ui.Pager
}

// sourcePath is the address of the page of a source.
func sourcePath(s query.Source) string { return ui.PathOf("sources", s.Kind, s.Namespace, s.Name) }

// sourcesView is what the page shows.
type sourcesView struct {
	Now                    time.Time
	Text, Kind, Namespace  string
	State                  string
	Kinds, Namespaces      []string
	Chips                  []stateChip
	Rows                   []sourceRow
	Pager                  ui.Pager
	Empty                  *ui.Empty
	Problem                *Problem
	Filtered               bool
	Failing, FailingStacks int // sources that cannot be fetched, and stacks that need them
}

type sourceRow struct {
	query.Source
	Href   string // of its page
	Pill   ui.Pill
	State  string
	Link   string // its URL, if a browser can open it; its content is from outside
	Means  string // of the reason
	Do     string
	Stacks []stackLink
	More   int // stacks that are not named
	All    string
}

// stackLink leads to a stack.
type stackLink struct{ Name, Href string }

// The states of a source.
const (
	sourceFailing   = "failing"
	sourceFetching  = "fetching"
	sourceSuspended = "suspended"
	sourceReady     = "ready"
)

var sourceStates = []struct {
	state string
	pill  ui.Pill
}{
	{sourceFailing, ui.NewPill(ui.ToneBad, "cross", "Failing")},
	{sourceFetching, ui.NewPill(ui.ToneBusy, "turn", "Fetching")},
	{sourceSuspended, ui.NewPill(ui.ToneIdle, "pause", "Suspended")},
	{sourceReady, ui.NewPill(ui.ToneOK, "check", "Ready")},
}

func sourceState(s query.Source) string {
	switch {
	case s.Suspended:
		return sourceSuspended
	case s.Ready == "True":
		return sourceReady
	case s.Ready == "False":
		return sourceFailing
	default:
		return sourceFetching
	}
}

// sourceMeans explains the reasons of sources and the next step, for ours and for
// those of Flux.
var sourceMeans = map[string]struct{ Means, Do string }{
	"URLInvalid":                      {"The address is invalid.", "Correct spec.url: https, ssh or oci."},
	"AuthenticationFailed":            {"The server rejected the credentials.", "Check that the Secret of secretRef exists, is current, and may read this source."},
	"GitOperationFailed":              {"The repository cannot be read.", "See the message: a name, a branch or a tag does not exist, or the server does not answer."},
	"OCIArtifactPullFailed":           {"The artifact cannot be pulled.", "Check that the tag exists, and that secretRef may pull it."},
	"OCIArtifactLayerOperationFailed": {"The artifact has no layer of that type.", "Correct layerSelector, or push it with flux push artifact or terrier push."},
	"BucketOperationFailed":           {"The bucket cannot be read.", "Check endpoint, bucketName and the keys in secretRef."},
	"Unsupported":                     {"A field is not supported.", "Remove the field that the message names, or run with --sources=false beside the source-controller of Flux."},
	"ReferenceInvalid":                {"The reference in ref does not exist.", "Correct the branch, tag, semver or commit."},
	"ArtifactFailed":                  {"The fetched content could not be packed.", "See the message. Usually a link leads out of the tree, or the content is too large."},
	"StorageOperationFailed":          {"The fetched content could not be stored.", "Check that the data directory has free space."},
	"AddressDenied":                   {"The address is local to this machine or to its network, or the operator refuses it, and Terrier does not connect to it.", "If the address is correct, ask the operator to set --allow-host HOST:PORT."},
	"InsecureConnectionsDisallowed":   {"The address is unencrypted.", "Use https, or ask the operator to set --allow-plain-http."},
	"AnswerTooLarge":                  {"The source is larger than the limit.", "Exclude files that modules do not need, with .sourceignore or spec.ignore."},
	"RedirectDenied":                  {"The server redirects to another address, and Terrier does not follow it.", "Set spec.url to the final address."},
	"TLSConfigInvalid":                {"The certificates cannot be read.", "Correct the Secret of certSecretRef."},
}

func (d *sourcesView) fill(v *Visit, list []query.Source) {
	d.Text, d.Kind, d.Namespace, d.State = strings.TrimSpace(v.Query.Get("q")), v.Query.Get("kind"), v.Query.Get("namespace"), v.Query.Get("state")
	d.Filtered = d.Text != "" || d.Kind != "" || d.Namespace != "" || d.State != ""
	sees := sightOf(v, access.ResourceSources, namespacesIn(list, func(s *query.Source) string { return s.Namespace }))
	words := strings.Fields(strings.ToLower(d.Text))
	var kinds, namespaces names
	counts := map[string]int{}
	var chosen []sourceRow
	for _, s := range list {
		if !sees(s.Namespace) {
			continue
		}
		kinds.add(s.Kind)
		namespaces.add(s.Namespace)
		text := strings.ToLower(strings.Join([]string{s.Kind, s.Namespace, s.Name, s.URL, s.Revision, s.Reason, s.Message}, "\n"))
		if d.Kind != "" && s.Kind != d.Kind || d.Namespace != "" && s.Namespace != d.Namespace ||
			slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			continue
		}
		row := rowOfSource(s)
		counts[row.State]++
		if row.State == sourceFailing {
			d.Failing++
			d.FailingStacks += len(s.UsedBy)
		}
		if d.State == "" || d.State == row.State {
			chosen = append(chosen, row)
		}
	}
	d.Kinds, d.Namespaces = kinds.sorted(), namespaces.sorted()
	d.chips(v, counts)
	sortSources(chosen)
	offset := offsetOf(v, len(chosen), pageRows)
	d.Rows = chosen[offset:min(offset+pageRows, len(chosen))]
	d.Pager = ui.NewPager(v.Path, v.Query, offset, len(d.Rows), pageRows, len(chosen), "source")
	switch {
	case len(d.Rows) > 0:
	case d.Filtered:
		d.Empty = &ui.Empty{Title: "No matching sources", Href: v.Path, Link: "Show all"}
	default:
		d.Empty = &ui.Empty{
			Title: "No sources yet", Text: "A stack names a GitRepository, an OCIRepository or a Bucket in spec.sourceRef. To push a directory as an artifact:",
			Command: "terrier push ./modules/network oci://SERVER/NAMESPACE/network:v1",
		}
		if !v.Can(access.Request{Verb: "list", Resource: access.ResourceSources}) {
			d.Empty = &ui.Empty{Title: "No sources that you may view", Text: "To view sources, you need the permission to list gitrepositories in their namespace. Ask the administrator of the cluster for a role that allows it."}
		}
	}
}

func (d *sourcesView) chips(v *Visit, counts map[string]int) {
	for _, s := range sourceStates {
		to := s.state
		if d.State == s.state {
			to = ""
		}
		d.Chips = append(d.Chips, stateChip{s.pill, counts[s.state], ui.With(v.Path, ui.Without(v.Query, "offset"), "state", to), d.State == s.state})
	}
}

// sortSources puts failing sources first, and of these those
// that most stacks use.
func sortSources(list []sourceRow) {
	rank := func(r sourceRow) int {
		return slices.IndexFunc(sourceStates, func(s struct {
			state string
			pill  ui.Pill
		}) bool {
			return s.state == r.State
		})
	}
	slices.SortStableFunc(list, func(a, b sourceRow) int {
		by := cmp.Compare(rank(a), rank(b))
		if by == 0 && a.State == sourceFailing {
			by = cmp.Compare(len(b.UsedBy), len(a.UsedBy))
		}
		return cmp.Or(by, cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// stacksNamed is how many stacks of a source are named in its row.
const stacksNamed = 3

func rowOfSource(s query.Source) sourceRow {
	row := sourceRow{Source: s, Href: sourcePath(s), State: sourceState(s), Link: webLink(s.URL)}
	row.URL = withoutUser(s.URL)
	for _, p := range sourceStates {
		if p.state == row.State {
			row.Pill = p.pill
		}
	}
	if row.State == sourceFailing {
		means := sourceMeans[s.Reason]
		row.Means, row.Do = means.Means, means.Do
	}
	for _, k := range s.UsedBy[:min(stacksNamed, len(s.UsedBy))] {
		row.Stacks = append(row.Stacks, stackLink{k.String(), stackPath(k)})
	}
	row.More = len(s.UsedBy) - len(row.Stacks)
	row.All = row.Href
	return row
}

// withoutUser is an address without its user information, which may contain a
// password.
func withoutUser(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		scheme, rest = "", address
	}
	host, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		host, path = rest[:i], rest[i:]
	}
	at := strings.LastIndex(host, "@")
	if at < 0 || !strings.Contains(host[:at], ":") && scheme != "https" && scheme != "http" {
		return address // git@host is no secret
	}
	if scheme != "" {
		scheme += "://"
	}
	return scheme + "•••@" + host[at+1:] + path
}

// webLink is an address that may stand behind a link: of https, with no name or
// password in it.
func webLink(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return ""
	}
	return u.String()
}
