package monitoring

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write what is generated")

// Where things are, from here.
const (
	rulesFile     = "../../config/monitoring/rules.yaml"
	objectFile    = "../../config/monitoring/prometheusrule.yaml"
	dashboardFile = "../../config/monitoring/dashboard.json"
	dashboardsDir = "../../config/monitoring/dashboards"
	dashboardsDoc = "../../config/monitoring/dashboards/README.md"
	metricsDoc    = "../../docs/metrics.md"
	commandsDoc   = "../../docs/cli.md"
)

// alert is one rule of the file.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         model.Duration    `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

type group struct {
	Name  string  `yaml:"name"`
	Rules []alert `yaml:"rules"`
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// alerts are all rules, by name.
func alerts(t *testing.T) map[string]alert {
	t.Helper()
	var file struct {
		Groups []group `yaml:"groups"`
	}
	d := yaml.NewDecoder(strings.NewReader(read(t, rulesFile)))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatalf("reading %s: %v", rulesFile, err)
	}
	out := map[string]alert{}
	for _, g := range file.Groups {
		for _, a := range g.Rules {
			if _, twice := out[a.Alert]; twice || a.Alert == "" {
				t.Errorf("the group %s has an alert %q that has no name, or one that another has", g.Name, a.Alert)
			}
			out[a.Alert] = a
		}
	}
	if len(out) == 0 {
		t.Fatal("there is no alert")
	}
	return out
}

// metricsOf are the metrics in an expression.
func metricsOf(t *testing.T, expr string) []string {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return nil
	}
	var names []string
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			names = append(names, v.Name)
		}
		return nil
	})
	return names
}

// listed are the metrics in the tables of pages, with their types.
func listed(t *testing.T, pages ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, page := range pages {
		before := len(out)
		for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z_:]+)` \\| ([a-z]+) \\|").FindAllStringSubmatch(read(t, page), -1) {
			out[row[1]] = row[2]
		}
		if len(out) == before {
			t.Fatalf("%s lists no metric", page)
		}
	}
	return out
}

// known fails the test for metrics that no page lists: those of Terrier, and of others.
func known(t *testing.T, where, expr string, others ...string) {
	t.Helper()
	list := listed(t, append([]string{metricsDoc}, others...)...)
	for _, name := range metricsOf(t, expr) {
		family := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); list[base] == "histogram" || list[base] == "summary" {
				family = base
			}
		}
		if list[family] == "" {
			t.Errorf("%s uses %s, which is not in docs/metrics.md, or in the list of the dashboards", where, name)
		}
	}
}

func TestEveryAlertSaysWhatToDo(t *testing.T) {
	doc, commands := read(t, metricsDoc), read(t, commandsDoc)
	for name, a := range alerts(t) {
		known(t, name, a.Expr)
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s has the severity %q", name, a.Labels["severity"])
		}
		if a.Annotations["summary"] == "" || len(a.Annotations["description"]) < 80 {
			t.Errorf("%s does not say what happened and what to do: %q", name, a.Annotations)
		}
		if _, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "docs/metrics.md#"); anchor != strings.ToLower(name) || !strings.Contains(doc, "\n### "+name+"\n") {
			t.Errorf("%s leads to %q; docs/metrics.md needs a section that is called like it", name, a.Annotations["runbook_url"])
		}
		for _, c := range regexp.MustCompile(`\bterrier ([a-z][a-z-]+)`).FindAllStringSubmatch(a.Annotations["description"], -1) {
			if !strings.Contains(commands, "\n## terrier "+c[1]+"\n") {
				t.Errorf("%s tells people to use terrier %s, which is no command", name, c[1])
			}
		}
	}
	for _, s := range regexp.MustCompile(`(?m)^### (Terrier\w+)$`).FindAllStringSubmatch(doc, -1) {
		if _, ok := alerts(t)[s[1]]; !ok {
			t.Errorf("docs/metrics.md has a section on %s, which is no alert", s[1])
		}
	}
}

// The Prometheus operator reads the same rules out of an object.
func TestObjectHoldsTheRules(t *testing.T) {
	_, groups, _ := strings.Cut(read(t, rulesFile), "\ngroups:\n")
	want := "# Made from rules.yaml: cd test/monitoring && go test . -update\n" +
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: terrier\n  namespace: terrier-system\n  labels: {app.kubernetes.io/name: terrier}\nspec:\n  groups:\n" +
		regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(groups, "  $1")
	if *update {
		if err := os.WriteFile(objectFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, objectFile) != want {
		t.Errorf("%s is not what rules.yaml makes; run go test . -update here", objectFile)
	}
	var object, file map[string]any
	if err := yaml.Unmarshal([]byte(want), &object); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(read(t, rulesFile)), &file); err != nil {
		t.Fatal(err)
	}
	inObject, err1 := json.Marshal(object["spec"])
	inFile, err2 := json.Marshal(file)
	if err1 != nil || err2 != nil || !bytes.Equal(inObject, inFile) {
		t.Errorf("the object holds other rules than the file (%v, %v)", err1, err2)
	}
}

// dashboard is what is looked at of Grafana's format.
type dashboard struct {
	UID        string
	Title      string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Query string }
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct{ Expr, LegendFormat string }
	FieldConfig              struct{ Defaults struct{ Unit string } }
}

func TestDashboardShowsWhatIsServed(t *testing.T) { shown(t, dashboardFile, 20) }

// Those of others show what their documents name.
func TestDashboardsOfOthersShowWhatIsDocumented(t *testing.T) {
	files, err := filepath.Glob(dashboardsDir + "/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("the dashboards are %v (%v), want those of Vault, Flux, Kyuubi and Spark", files, err)
	}
	var all strings.Builder
	uids := map[string]bool{}
	for _, file := range files {
		d := shown(t, file, 10, dashboardsDoc)
		if uids[d.UID] || !strings.HasPrefix(d.UID, "terrier-") {
			t.Errorf("%s has the UID %q of another, or one that is not ours", file, d.UID)
		}
		uids[d.UID] = true
		all.WriteString(read(t, file))
	}
	for name := range listed(t, dashboardsDoc) {
		if !strings.Contains(all.String(), name) {
			t.Errorf("%s lists %s, which no dashboard uses", dashboardsDoc, name)
		}
	}
}

// shown fails the test if a dashboard cannot be read, or uses a metric that is not listed.
func shown(t *testing.T, file string, least int, lists ...string) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, file)), &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || len(d.Panels) < least {
		t.Errorf("the dashboard %q %q has %d panels", d.UID, d.Title, len(d.Panels))
	}
	// Variables of Grafana are put in as it does, before anything is parsed.
	filled := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", `"$job"`, `"terrier"`, "$job", "terrier")
	for _, v := range d.Templating.List {
		if _, rest, ok := strings.Cut(v.Query, "label_values("); ok {
			metric, _, _ := strings.Cut(rest, ",")
			known(t, "the variable "+v.Name, metric, lists...)
		}
	}
	ids := map[int]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("the panel %q has no title, or the id %d of another", p.Title, p.ID)
		}
		ids[p.ID] = true
		for _, q := range d.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("the panels %q and %q lie on each other", p.Title, q.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.FieldConfig.Defaults.Unit == "" || p.Description == "" {
			t.Errorf("the panel %q shows nothing, or does not say in what unit or what it is", p.Title)
		}
		for _, target := range p.Targets {
			known(t, "the panel "+p.Title, filled.Replace(target.Expr), lists...)
		}
	}
	return d
}
