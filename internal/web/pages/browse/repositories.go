package browse

import (
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/web/pages"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// repositoriesView is what the page of git repositories with modules shows.
type repositoriesView struct {
	Now   time.Time
	Tabs  ui.Tabs
	Moved int // tags that moved after their versions were published
	Rows  []repositoryRow
	Pager ui.Pager
	Empty *ui.Empty
}

// repositoryRow is a git repository.
type repositoryRow struct {
	catalog.Repository
	Href   string
	Newest string // of its one module, or how many modules it has
	Pill   ui.Pill
	Says   string
}

// Repositories shows the git repositories whose tags become versions of modules. Those with
// problems come first.
func Repositories(v *pages.Visit) (pages.Page, error) {
	if v.Backend.Catalog == nil {
		return pages.Page{}, errNone()
	}
	all, err := v.Backend.Catalog.Repositories(v.Context, Sight(v.Can))
	if err != nil {
		return pages.Page{}, err
	}
	d := repositoriesView{Now: v.Now, Tabs: tabs("repositories")}
	for _, r := range all {
		d.Moved += movedIn(r)
	}
	from := min(ui.CountIn(v.Query.Get("offset")), max(0, len(all)-1)/rows*rows)
	for _, r := range all[from:min(len(all), from+rows)] {
		d.Rows = append(d.Rows, repositoryOf(r))
	}
	d.Pager = ui.NewPager(v.Path, v.Query, from, len(d.Rows), rows, len(all), "repository")
	if len(all) == 0 {
		d.Empty = &ui.Empty{
			Title: "No git repository is registered", Text: "The registry can follow git repositories in namespaces that you may read: each tag that is a version becomes a version of a module. To register a GitRepository:",
			Command: "kubectl annotate gitrepository NAME -n NAMESPACE registry.terrier.dev/module=NAME/SYSTEM",
		}
		if v.Backend.Alone {
			d.Empty = &ui.Empty{
				Title: "No git repository is registered", Text: "The registry can follow git repositories: each tag that is a version becomes a version of a module. Repositories are in the file that the operator gives with:",
				Command: "terrier registry --repositories repositories.yaml",
			}
		}
	}
	return pages.Page{Title: "Git repositories of modules", Section: section, Template: "catalog_repositories", Live: pages.Live{Every: listEvery}, Data: d}, nil
}

func movedIn(r catalog.Repository) (n int) {
	for _, p := range r.Problems {
		if p.Reason == catalog.TagMoved {
			n++
		}
	}
	return n
}

func repositoryOf(r catalog.Repository) repositoryRow {
	row := repositoryRow{Repository: r, Href: ui.PathOf("registry", "repositories", r.Namespace, r.Name), Pill: ui.NewPill(ui.ToneOK, "check", "OK")}
	switch {
	case r.Named == 1 && len(r.Modules) == 1:
		row.Newest = string(r.Modules[0].Newest)
	case r.Named > 1:
		row.Newest = "of " + query.Count(r.Named, "module")
	}
	switch {
	case len(r.Problems) > 0:
		row.Pill, row.Says = ui.NewPill(ui.ToneBad, "alert", query.Count(r.Contradictions(), "problem")), ui.Ends(200, r.Problems[0].Text)
	case r.Error != "":
		row.Pill, row.Says = ui.NewPill(ui.ToneBad, "cross", "Fails"), ui.Ends(200, r.Error)
	case r.Suspended:
		row.Pill, row.Says = ui.NewPill(ui.ToneWarn, "pause", "Suspended"), "It is not checked."
	case r.Pending > 0:
		row.Pill = ui.NewPill(ui.ToneBusy, "dot", query.Count(r.Pending, "tag")+" to go")
	case r.Checked.IsZero():
		row.Pill = ui.NewPill(ui.ToneIdle, "dot", "Not checked yet")
	}
	return row
}

// repositoryView is what the page of one git repository shows.
type repositoryView struct {
	repositoryRow
	Now      time.Time
	Space    string
	Problems []tagProblemView
	Modules  []repositoryModule
	More     int // modules that are not named
	Unnamed  int // problems that are not named
	Unshown  int // skipped tags that are not named
	Check    string
}

// tagProblemView is a tag that contradicts what is published.
type tagProblemView struct {
	catalog.TagProblem
	Title string
	Href  string // of the version
}

// repositoryModule is a module of the repository.
type repositoryModule struct {
	Name     string
	Versions int
	Newest   address.Version
	Href     string
}

// Repository shows a git repository: its modules, its problems, and tags of which no version
// was made.
func Repository(v *pages.Visit) (pages.Page, error) {
	if v.Backend.Catalog == nil {
		return pages.Page{}, errNone()
	}
	found, err := v.Backend.Catalog.Repository(v.Context, v.Names["namespace"], v.Names["name"])
	if err != nil {
		return pages.Page{}, err
	}
	d := repositoryView{
		repositoryRow: repositoryOf(found), Now: v.Now, Space: ui.With("/registry", nil, "namespace", found.Namespace),
		More: found.Named - len(found.Modules), Unnamed: found.Contradictions() - len(found.Problems), Unshown: found.Skips - len(found.Skipped),
		Check: fmt.Sprintf("terrier module repositories %s/%s", found.Namespace, found.Name),
	}
	for _, p := range found.Problems {
		d.Problems = append(d.Problems, tagProblemOf(p))
	}
	for _, m := range found.Modules {
		d.Modules = append(d.Modules, repositoryModule{m.Name, m.Versions, m.Newest, modulePath(m.Name, "")})
	}
	return pages.Page{Title: found.Name + " · git repository", Section: section, Template: "catalog_repository", Live: pages.Live{Every: listEvery}, Data: d}, nil
}

func tagProblemOf(p catalog.TagProblem) tagProblemView {
	title := "The tag " + p.Tag + " contradicts what is published"
	if p.Reason == catalog.TagMoved {
		title = "The tag " + p.Tag + " moved after version " + p.Version + " was published"
	}
	return tagProblemView{p, title, modulePath(p.Module, p.Version)}
}

// modulePath is the page of a module, or of one of its versions; empty for a name that no
// module has.
func modulePath(name, version string) string {
	m, err := address.ParseModule(name)
	if err != nil {
		return ""
	}
	return ui.With(ui.PathOf("registry", "modules", m.Namespace, m.Name, m.System), nil, "version", version)
}
