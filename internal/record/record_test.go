package record_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// keys are all keys as releases have written them: an upgrade finds its records
// under them.
var keys = map[string]string{
	record.Run("u", "apply-1", record.ReportFile):        "stacks/u/runs/apply-1/report.json",
	record.Run("u", record.QuietRun, "log.txt"):          "stacks/u/runs/check/log.txt",
	record.Plan("u", "sha256:d1", "plan.bin"):            "stacks/u/plans/d1/plan.bin",
	record.Applied("u").Key:                              "stacks/u/applied.json",
	record.Snapshot("u", "sha256:d2"):                    "stacks/u/snapshots/d2",
	record.Rescued("u", "apply-1"):                       "stacks/u/rescued/apply-1.tfstate",
	record.State("u"):                                    "stacks/u/state.json",
	record.Outputs("u"):                                  "stacks/u/outputs.json",
	record.StateIndex("u").Key:                           "stacks/u/states/index.json",
	record.StateVersion("u", "00000000000000000001-abc"): "stacks/u/states/00000000000000000001-abc",
	record.Decisions("u").Key:                            "stacks/u/decisions.json",
	record.Secrets("u"):                                  "stacks/u/secrets",
	record.SecretsBeside("u"):                            "stacks/u/secrets-since",
	record.Checkpoint("u").Key:                           "stacks/u/lasting",
	record.Audited("u"):                                  "stacks/u/told",
	record.Approvers("u").Key:                            "stacks/u/approvers.json",
	record.Checked("u").Key:                              "stacks/u/checked",
	record.Uses("u").Key:                                 "stacks/u/uses.json",
	record.HandedOut("u"):                                "stacks/u/vault",
	record.SecretLeases("u"):                             "externalsecrets/u/vault",
	record.Retained("u", record.RetainedFile):            "retained/u/record.json",
	record.Retained("u", record.RetainedStateFile):       "retained/u/state.json",
	record.Gone("k", "team", "net", "u", "log.txt"):      "gone/d76e9ced8fc0183fdf86e99f05becfcfed5dc67c135e4e2720244669dffe9406/u/log.txt",
	record.Tree("sha256:d3"):                             "trees/d3",
	record.SweptTree(record.Tree("sha256:d3")):           "swept/d3",
	record.Outgrown("p", "sha256:d4"):                    "overflow/p/d4",
	record.OutboxMessage("0001-0002"):                    "notices/outbox/0001-0002",
	record.Deliveries("team"):                            "notices/history/team",
	record.Figures("day", "1767225600"):                  "figures/day/1767225600",
	record.SignOut("id"):                                 "sessions/ended/id",
	record.RegistryToken("id"):                           "registry/tokens/id",
	record.IdentityKey("id"):                             "identity/keys/id",
	record.AuditSegment("1.jsonl"):                       "audit/1.jsonl",
	record.Marker().Key:                                  "installation.json",
	record.LoggedIn("u"):                                 "stacks/u/vault-login",
	record.Reseal().Key:                                  "resealing.json",
	record.Witness("0123"):                               "keys/0123",
}

var prefixes = map[string]string{
	record.Stacks:             "stacks/",
	record.Witnesses():        "keys/",
	record.Stack("u"):         "stacks/u/",
	record.Runs("u"):          "stacks/u/runs/",
	record.Plans("u"):         "stacks/u/plans/",
	record.Snapshots("u"):     "stacks/u/snapshots/",
	record.RescuedRuns("u"):   "stacks/u/rescued/",
	record.StateVersions("u"): "stacks/u/states/",
	record.AllRetained():      "retained/",
	record.Retained("u", ""):  "retained/u/",
	record.AllGone():          "gone/",
	record.Trees():            "trees/",
	record.SweptTrees():       "swept/",
	record.OutgrownOf("p"):    "overflow/p/",
	record.Outbox():           "notices/outbox/",
	record.AllDeliveries():    "notices/history/",
	record.AllFigures():       "figures/",
	record.SignOuts():         "sessions/ended/",
	record.RegistryTokens():   "registry/tokens/",
	record.IdentityKeys():     "identity/keys/",
	record.AllSecretLeases():  "externalsecrets/",
	record.AuditLog():         "audit/",
}

func TestKeysStay(t *testing.T) {
	for _, list := range []map[string]string{keys, prefixes} {
		for got, want := range list {
			if got != want {
				t.Errorf("got the key %s, want %s", got, want)
			}
		}
	}
}

// Each kind has a key that is pinned, and each key a kind.
func TestEachKindHasAKey(t *testing.T) {
	used := map[string]bool{}
	for _, k := range record.Kinds() {
		path := regexp.MustCompile("^" + regexp.MustCompile(`<\w+>`).ReplaceAllString(regexp.QuoteMeta(k.Path), `[^/]+`) + "$")
		for _, key := range keys {
			if path.MatchString(key) {
				used[k.Path], used[key] = true, true
			}
		}
		if !used[k.Path] {
			t.Errorf("no key is pinned for %s", k.Path)
		}
		if k.Holds == "" || k.Owner == "" || k.Until == "" {
			t.Errorf("%s does not say what it holds, whose it is, or when it goes", k.Path)
		}
	}
	for _, key := range keys {
		if !used[key] {
			t.Errorf("%s belongs to no kind", key)
		}
	}
}

func TestPartsOfKeys(t *testing.T) {
	run, file, ok := record.RunOf("u", "stacks/u/runs/apply-1/log.txt")
	if run != "apply-1" || file != "log.txt" || !ok {
		t.Errorf("RunOf() = %q, %q, %v, want apply-1, log.txt, true", run, file, ok)
	}
	if _, _, ok := record.RunOf("u", "stacks/v/runs/apply-1/log.txt"); ok {
		t.Error("RunOf() = true for another stack's key, want false")
	}
	uid, file, ok := record.RetainedOf("retained/u/state.json")
	if uid != "u" || file != "state.json" || !ok {
		t.Errorf("RetainedOf() = %q, %q, %v, want u, state.json, true", uid, file, ok)
	}
	if uid, ok := record.StackOf("stacks/u/told"); uid != "u" || !ok {
		t.Errorf("StackOf() = %q, %v, want u, true", uid, ok)
	}
	if _, ok := record.StackOf("trees/u/x"); ok {
		t.Error("StackOf() = true for a tree, want false")
	}
	if files, ok := record.IsGoneReport("gone/d/u/report.json"); files != "gone/d/u/" || !ok {
		t.Errorf("IsGoneReport() = %q, %v, want gone/d/u/, true", files, ok)
	}
	for _, key := range []string{"gone/d/u/log.txt", "stacks/u/runs/r/report.json"} {
		if _, ok := record.IsGoneReport(key); ok {
			t.Errorf("IsGoneReport(%s) = true, want false", key)
		}
	}
	if run := record.RescuedRun("u", record.Rescued("u", "apply-1")); run != "apply-1" {
		t.Errorf("RescuedRun() = %q, want apply-1", run)
	}
	for key, want := range map[string]bool{"stacks/u/snapshots/d": true, "stacks/u/told": false, "trees/d": false} {
		if got := record.IsSnapshot(key); got != want {
			t.Errorf("IsSnapshot(%s) = %v, want %v", key, got, want)
		}
	}
}

type store map[string]string

func (s store) Put(_ context.Context, key string, r io.Reader) error {
	b, err := io.ReadAll(r)
	s[key] = string(b)
	return err
}

func (s store) Get(_ context.Context, key string) (io.ReadCloser, error) {
	v, ok := s[key]
	if !ok {
		return nil, fault.New(fault.Missing, "BlobMissing", fmt.Errorf("there is no blob %s", key))
	}
	return io.NopCloser(strings.NewReader(v)), nil
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	s := store{}
	r := record.Decisions("u")
	want := []stack.Decided{{At: at, Phase: "Ready", Rule: "idle"}}
	if err := r.Write(t.Context(), s, want); err != nil {
		t.Fatal(err)
	}
	got, err := r.Read(t.Context(), s)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Read(), %v (-want +got)\n%s", err, diff)
	}
	if _, err := record.Checkpoint("u").Read(t.Context(), s); fault.Of(err) != fault.Missing {
		t.Errorf("Read() = %v, want that it is missing", err)
	}
	s[r.Key] = "["
	if _, err := r.Read(t.Context(), s); err == nil || !strings.Contains(err.Error(), r.Key) {
		t.Errorf("Read() = %v, want an error that names the key", err)
	}
}

// Formats are pinned, too: JSON, and once the time alone.
func TestFormatsOfChecks(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for text, want := range map[string]record.Check{
		`{"at":"2026-01-02T03:04:05.000000006Z","memory":1048576}`: {At: at, Memory: 1 << 20},
		`{"memory":1048576}`:             {Memory: 1 << 20},
		"2026-01-02T03:04:05.000000006Z": {At: at},
	} {
		s := store{record.Checked("u").Key: text}
		got, err := record.Checked("u").Read(t.Context(), s)
		if got != want || err != nil {
			t.Errorf("Read() of %s = %v, %v, want %v", text, got, err, want)
		}
		if text[0] != '{' {
			continue
		}
		if err := record.Checked("u").Write(t.Context(), s, want); s[record.Checked("u").Key] != text || err != nil {
			t.Errorf("Write() = %v, %s, want %s", err, s[record.Checked("u").Key], text)
		}
	}
	for _, text := range []string{"", "{", "yesterday"} {
		if got, err := record.Checked("u").Decode([]byte(text)); err == nil {
			t.Errorf("Decode(%q) = %v, want an error", text, got)
		}
	}
}

var update = flag.Bool("update", false, "write the table of records in docs/architecture.md")

// The table of records in the documents follows from Kinds.
func TestTableInTheDocuments(t *testing.T) {
	const document, begin, end = "../../docs/architecture.md", "<!-- records: written by internal/record -->\n", "<!-- end of records -->\n"
	var table bytes.Buffer
	table.WriteString("\n| record | holds | owner | goes when |\n| --- | --- | --- | --- |\n")
	for _, k := range record.Kinds() {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", k.Path, k.Holds, k.Owner, k.Until)
	}
	table.WriteString("\n")
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	was, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no table between %q and %q", document, begin, end)
	}
	if *update {
		if err := os.WriteFile(document, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(table.String(), was); diff != "" {
		t.Errorf("%s has another table; go test ./internal/record -update writes it (-want +got)\n%s", document, diff)
	}
}

func TestKnown(t *testing.T) {
	for key := range keys {
		if !record.Known(key) {
			t.Errorf("%s is no record", key)
		}
	}
	for _, key := range []string{"inventory/2026", "README", "stacks", "installation.json.bak", "notices"} {
		if record.Known(key) {
			t.Errorf("%s is a record", key)
		}
	}
}

// The plans that were applied last are kept, as many as there is room for.
func TestPlansThatWereApplied(t *testing.T) {
	made := func(n int, bytes int64) record.AppliedPlan {
		return record.AppliedPlan{Plan: stack.Plan{Digest: fmt.Sprint("sha256:", n), Example: "a secret?"}, Run: fmt.Sprint("apply-", n), Bytes: bytes}
	}
	names := func(all []record.AppliedPlan) string {
		var out []string
		for _, a := range all {
			out = append(out, a.Run)
			if a.Plan.Example != "" {
				t.Errorf("%s has the example %q", a.Run, a.Plan.Example)
			}
		}
		return strings.Join(out, " ")
	}
	for name, tt := range map[string]struct {
		sizes []int64
		want  string
	}{
		"one":                   {[]int64{1}, "apply-0"},
		"as many as are kept":   {[]int64{1, 1, 1, 1, 1}, "apply-4 apply-3 apply-2 apply-1 apply-0"},
		"more":                  {[]int64{1, 1, 1, 1, 1, 1, 1}, "apply-6 apply-5 apply-4 apply-3 apply-2"},
		"a large one":           {[]int64{1, 1, 100 << 20}, "apply-2 apply-1 apply-0"},
		"after a large one":     {[]int64{1, 100 << 20, 1}, "apply-2"},
		"larger than the bound": {[]int64{20 << 20, 20 << 20, 10 << 20, 1}, "apply-3 apply-2 apply-1"},
	} {
		var all []record.AppliedPlan
		for n, bytes := range tt.sizes {
			all = record.WithApplied(all, made(n, bytes))
			if again := record.WithApplied(all, made(n, bytes)); names(again) != names(all) {
				t.Errorf("%s: noted again: %s, want %s", name, names(again), names(all))
			}
		}
		if got := names(all); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		if files := record.AppliedFiles("u", all); len(files) != 3*len(all) || !slices.Contains(files, record.Plan("u", all[0].Plan.Digest, record.PlanFile)) {
			t.Errorf("%s: files %q", name, files)
		}
	}
}

// A status that names the record of another stack, or a record that is no snapshot, names none.
func TestASnapshotIsOneOfItsStack(t *testing.T) {
	own := record.Snapshot("u", "sha256:d2")
	for key, want := range map[string]bool{
		own: true, record.Snapshot("v", "sha256:d2"): false, record.Plan("u", "sha256:d1", "plan.bin"): false, record.Secrets("u"): false,
		"": false, "stacks/u/snapshots": false, record.Retained("u", record.RetainedFile): false,
	} {
		if got := record.SnapshotNamed[int]("u", key); (got.Key == key) != want || !record.IsSnapshot(got.Key) || !strings.HasPrefix(got.Key, record.Snapshots("u")) {
			t.Errorf("SnapshotNamed(%q) is %s", key, got.Key)
		}
	}
}
