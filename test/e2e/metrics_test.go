package e2e

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

var update = flag.Bool("update", false, "write the list of metrics in docs/metrics.md")

// family is one metric as a scrape has it.
type family struct {
	name, kind, help string
	labels           map[string]bool
	series           map[string]float64 // by what stands before the value
}

// scrapeOf reads the metrics of a platform, in the text that Prometheus gets.
func scrapeOf(ctx context.Context, p *testkit.Platform) (map[string]*family, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Metrics, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the scrape is answered with %s", resp.Status)
	}
	out := map[string]*family{}
	var f *family
	for lines := bufio.NewScanner(resp.Body); ; {
		if !lines.Scan() {
			return out, lines.Err()
		}
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			f = &family{labels: map[string]bool{}, series: map[string]float64{}}
			f.name, f.help, _ = strings.Cut(rest, " ")
			out[f.name] = f
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			_, f.kind, _ = strings.Cut(rest, " ")
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("reading %q: %w", line, err)
		}
		f.series[line[:i]] = v
		for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(line[:i], -1) {
			if l[1] != "le" {
				f.labels[l[1]] = true
			}
		}
	}
}

// allowedLabels are those that metrics may have. None of them grows with the
// number of stacks; a registry and a tenant take theirs with them when they go.
var allowedLabels = map[string]bool{
	"kind": true, "outcome": true, "step": true, "program": true, "reason": true, "action": true, "answer": true, "class": true,
	"source": true, "status": true, "phase": true, "part": true, "result": true, "code": true, "version": true, "goversion": true,
	"namespace": true, "tenant": true, "registry": true, "type": true, "conflict_policy": true, "resource_kind": true,
	"controller": true, "name": true, "method": true, "host": true, "protocol": true, "priority": true,
	"policy": true, "effect": true, // of ClusterPolicies; those of namespaces are one
}

// rarely are metrics of which a platform has no series until something goes
// wrong that is not made to go wrong here.
var rarely = []string{
	"| `terrier_module_repositories` | gauge | namespace, status | Registered git repositories by namespace and status: ok, failing if the last check failed, and problem if a tag contradicts what is published. |",
	"| `terrier_module_repository_checks_total` | counter | namespace, result | Checks of the tags of registered git repositories, by namespace and result: succeeded or failed. |",
	"| `terrier_module_tag_problems` | gauge | name, namespace, reason | Tags that contradict what is published, by the namespace and name of their registered git repository and by reason: TagMoved, TagsContradict or VersionHasOtherBytes. |",
	"| `terrier_module_tag_versions_total` | counter | namespace | Versions of modules that were published from tags of git repositories, by namespace. |",
	"| `terrier_mirror_bytes_total` | counter | host, kind, tenant | Bytes of archives of the mirror, by tenant and upstream: fetched from it, served to clients, and saved, which were stored before a client asked. |",
	"| `terrier_mirror_downloads_total` | counter | host, tenant | Archives that the mirror downloaded, by tenant and upstream. |",
	"| `terrier_mirror_failures_total` | counter | host, reason, tenant | Requests to the mirror that failed, by tenant, upstream and reason. |",
	"| `terrier_packages_downloads_total` | counter | kind, protocol, tenant | Downloads of published modules and providers, whole or in part, by protocol and tenant. |",
	"| `terrier_packages_sent_bytes_total` | counter | kind, protocol, tenant | Bytes of published modules and providers that clients got, by protocol and tenant. |",
	"| `terrier_vault_status` | gauge | host, status | 1 for the state that an OpenBao or Vault has, 0 for all others: active, standby, sealed, uninitialized or unreachable, by its address. |",
	"| `terrier_vault_up` | gauge | host | 1 if an OpenBao or Vault answers requests, 0 if it is sealed, not initialized or unreachable, by its address. |",
	"| `tenant_conflicts_total` | counter | conflict_policy, namespace, resource_kind, tenant | Writes of objects that have another owner. |",
	"| `tenant_degraded_status` | gauge | namespace, reason, tenant | 1 for the reason for which a tenant is degraded. |",
}

// What is measured is what docs/metrics.md says, and what alerts and the
// dashboard go by: test/monitoring holds those against the same list.
func TestMetricsAreWhatIsWrittenOfThem(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t, "--quickstart", "--metrics-address", "127.0.0.1:0")
	c := p.Cluster(t)
	c.Apply(t, inline("waits", "interval: 1h", `resource "terraform_data" "a" {}`))
	c.Apply(t, inline("broken", "approvePlan: auto\ninterval: 1h", `output "a" { value = nothing.there }`))
	c.AwaitPending(t, "waits")
	c.Patch(t, "waits", `{"spec":{"approvePlan":"plan-main-0123456789"}}`)
	p.In(t, "quickstart").AwaitReady(t, "network")

	var all map[string]*family
	testkit.Eventually(t, testkit.Patience, "what was done is counted", func(ctx context.Context) (err error) {
		if all, err = scrapeOf(ctx, p); err != nil {
			return err
		}
		for series, least := range map[string]float64{
			`terrier_runs_total{kind="plan",outcome="Succeeded"}`:  2,
			`terrier_runs_total{kind="plan",outcome="Failed"}`:     1,
			`terrier_runs_total{kind="apply",outcome="Succeeded"}`: 1,
			`terrier_resources_changed_total{action="add"}`:        1,
			`terrier_approvals_total{answer="stale"}`:              1,
			`terrier_pending_plans`:                                1,
			`terrier_stacks_failing`:                               1,
			`terrier_stacks{status="failed"}`:                      1,
			`terrier_tenant_stacks{tenant="quickstart"}`:           2,
			`terrier_leading`:                                      1,
			`terrier_runs_max`:                                     4,
			`terrier_records_writes_total{result="success"}`:       1,
			`terrier_data_bytes{part="cache"}`:                     0,
		} {
			name, _, _ := strings.Cut(series, "{")
			f := all[name]
			if f == nil {
				return fmt.Errorf("there is no %s", name)
			}
			if got, ok := f.series[series]; !ok || got < least {
				return fmt.Errorf("%s is %v (there: %v), want %v at least", series, got, ok, least)
			}
		}
		for _, name := range []string{"registry_ready", "tenant_resources_ready", "apply_attempts_total", "gotk_reconcile_duration_seconds"} {
			if all[name] == nil {
				return fmt.Errorf("there is no %s", name)
			}
		}
		return nil
	})
	bounded(t, all)
	written(t, p, all)
}

// bounded refuses labels that are not allowed, and names of stacks in any of them.
func bounded(t *testing.T, all map[string]*family) {
	t.Helper()
	for _, f := range all {
		if strings.HasPrefix(f.name, "go_") {
			continue
		}
		for l := range f.labels {
			if !allowedLabels[l] {
				t.Errorf("%s has the label %s, which nobody looked at", f.name, l)
			}
		}
		for series := range f.series {
			for _, stack := range []string{`"waits"`, `"broken"`, `"network"`, `"app"`} {
				if strings.Contains(series, stack) {
					t.Errorf("%s holds the name of a stack", series)
				}
			}
		}
	}
}

// written holds the list in docs/metrics.md against what is served. Some is served only once
// something has happened.
func written(t *testing.T, p *testkit.Platform, all map[string]*family) {
	t.Helper()
	const path, begin, end = "../../docs/metrics.md", "<!-- list -->\n", "<!-- end of list -->"
	doc := read(t, path)
	before, rest, ok := strings.Cut(doc, begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no list", path)
	}
	list := table(all)
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+list+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, want := strings.Split(old, "\n"), strings.Split(list, "\n")
	testkit.Eventually(t, testkit.Patience, "what docs/metrics.md has is served", func(ctx context.Context) error {
		now, err := scrapeOf(ctx, p)
		if err != nil {
			return err
		}
		want = strings.Split(table(now), "\n")
		for _, row := range have {
			if !slices.Contains(want, row) {
				return fmt.Errorf("nobody serves %s", row)
			}
		}
		return nil
	})
	for _, row := range want {
		if !slices.Contains(have, row) {
			t.Errorf("docs/metrics.md lacks %s", row)
		}
	}
}

// table is the list: ours first, by name.
func table(all map[string]*family) string {
	rows := slices.Clone(rarely)
	for _, f := range all {
		if strings.HasPrefix(f.name, "go_") {
			continue
		}
		labels := strings.Join(slices.Sorted(maps.Keys(f.labels)), ", ")
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", f.name, f.kind, labels, ofWhom(f))
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b string) int { return strings.Compare(place(a), place(b)) })
	return "\n| metric | type | labels | |\n| --- | --- | --- | --- |\n" + strings.Join(rows, "\n") + "\n\n"
}

// place is what a row is sorted by: its name, those of ours first.
func place(row string) string {
	name := strings.Split(row, "`")[1]
	return strings.TrimPrefix("~"+name, "~terrier_")
}

// ofWhom is what a metric means, or whose words say that.
func ofWhom(f *family) string {
	for prefix, whose := range map[string]string{
		"controller_runtime_": "of controller-runtime", "workqueue_": "of controller-runtime", "certwatcher_": "of controller-runtime", "leader_election_": "of controller-runtime",
		"rest_client_": "of the Kubernetes client", "process_": "of the process",
	} {
		if strings.HasPrefix(f.name, prefix) {
			return whose
		}
	}
	return f.help
}
