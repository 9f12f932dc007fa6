package pages

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/query/situation"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/vault/monitor"
)

// county is what pages about more than one stack ask.
type county struct {
	list       query.TenantList
	detail     query.TenantDetail
	rollout    query.Rollout
	registry   query.RegistryDetail
	template   query.TemplateDetail
	registries []query.Registry
	templates  []query.Template
	backlog    schedule.Backlog
	line       schedule.Line
	sources    []query.Source
	happened   map[string][]query.Event // to sources, by name
	entries    []query.AuditEntry
	report     query.AuditReport
	notices    []query.Delivery
	left       []command.Retained
	capacity   query.CapacityInfo
	err        error

	verified int
}

func (c *county) List(context.Context, query.TenantFilter) (query.TenantList, error) {
	return c.list, c.err
}
func (c *county) Describe(context.Context, query.Key) (query.TenantDetail, error) {
	return c.detail, c.err
}
func (c *county) Registry(context.Context, query.Key) (query.Registry, error) {
	return c.registry.Registry, c.err
}
func (c *county) Rollout(context.Context, query.Key) (query.Rollout, error) {
	return c.rollout, c.err
}
func (c *county) Registries(context.Context, string) ([]query.Registry, error) {
	return c.registries, c.err
}
func (c *county) Templates(context.Context, string) ([]query.Template, error) {
	return c.templates, c.err
}
func (c *county) RegistryDetail(context.Context, query.Key) (query.RegistryDetail, error) {
	return c.registry, c.err
}
func (c *county) TemplateDetail(context.Context, query.Key) (query.TemplateDetail, error) {
	return c.template, c.err
}
func (c *county) Backlog() schedule.Backlog           { return c.backlog }
func (c *county) Line() schedule.Line                 { return c.line }
func (c *county) Place(string) (schedule.Place, bool) { return schedule.Place{}, false }

func (c *county) Entries(_ context.Context, sight query.AuditSight, q query.AuditQuery) (query.AuditPage, error) {
	var out query.AuditPage
	for _, e := range c.entries {
		if sight.Has(e.Object.Namespace) && (q.Who == "" || e.Who == q.Who) && (q.Before == 0 || e.Seq < q.Before) {
			out.Items = append(out.Items, e)
		}
	}
	return out, c.err
}

func (c *county) CheckAuditLog(context.Context) (query.AuditReport, error) {
	c.verified++
	return c.report, c.err
}

func (c *county) VerifyAuditLog(context.Context) (query.AuditReport, error) {
	c.verified++
	return c.report, c.err
}

func (c *county) Deliveries(_ context.Context, scope access.Scope, q query.NoticeQuery) (query.NoticePage, error) {
	out := query.NoticePage{Counts: map[query.Outcome]int{}, Providers: []string{"team-slack", hostile}, Events: []string{"PlanPending", hostile}}
	for _, n := range c.notices {
		if scope.Has(n.Namespace) {
			out.Items = append(out.Items, n)
			out.Counts[n.Outcome]++
		}
	}
	out.Total = len(out.Items)
	return out, c.err
}

// leftIn are the records of a county about stacks that are gone.
type leftIn struct {
	command.RetainedStacks
	*county
	formers command.Formers
}

func (l leftIn) For(formers command.Formers) command.RetainedStacks {
	l.formers = formers
	return l
}

func (l leftIn) List(_ context.Context, namespace string) ([]command.Retained, error) {
	var out []command.Retained
	for _, r := range l.left {
		if (namespace == "" || r.Namespace == namespace) && (!r.Former || l.formers(r.Kind) == nil) {
			out = append(out, r)
		}
	}
	return out, l.err
}

// sourcesOf lists the sources of a county.
type sourcesOf struct{ *county }

func (s sourcesOf) List(context.Context, access.Scope) ([]query.Source, error) {
	return s.sources, s.err
}

func (s sourcesOf) Events(_ context.Context, of query.Source) ([]query.Event, error) {
	return s.happened[of.Name], s.err
}

// boardOf counts the stacks of tenants and knows the capacity of a county.
type boardOf struct {
	Board
	*county
}

func (b boardOf) Capacity(query.Slots) (query.CapacityInfo, error) { return b.capacity, b.err }

// guest is a visitor of a county.
func guest(t *testing.T, c *county, address string) *Visit {
	v := visitor(t, town(), address)
	parts := strings.Split(strings.Trim(v.Path, "/"), "/")
	if len(parts) == 3 {
		v.Names = map[string]string{"namespace": parts[1], "name": parts[2]}
	}
	v.Backend.Tenants, v.Backend.Estate, v.Backend.Queue, v.Backend.Sources = c, c, c, sourcesOf{c}
	v.Backend.AuditLog, v.Backend.Notices, v.Backend.Board = c, c, boardOf{v.Backend.Board, c}
	v.Backend.Retained = leftIn{county: c}
	v.Backend.Tokens, v.Backend.LoginLife = ringOf(), 30*24*time.Hour
	v.Backend.Checked, v.Backend.API = &AuditCheck{}, []byte(apiDocument)
	v.Backend.Platform = Platform{
		Started: now.Add(-50 * time.Hour), Isolation: Isolation{"full", "kernel", []string{"own namespaces", "system call filter", hostile}},
		Engines: func(context.Context) []Engine {
			return []Engine{{Version: "tofu 1.11.1"}, {Name: "old", Version: "terraform 1.5.7", Advice: "1.5.7 is no longer mended."}, {Name: "gone", Trouble: hostile}}
		},
		Mirror:    Mirror{"/srv/mirror", 12},
		Settings:  []Setting{{"Runs at once", "4", "--max-runs"}, {"Memory for runs", "5,600 MiB", "--memory-for-runs"}, {"Memory of one run", "4,096 MiB", "--run-memory"}, DurationSetting("Time of one run", time.Hour, "--run-timeout")},
		Addresses: []Address{{AddressAPI, "https://127.0.0.1:8443"}, {"Kubernetes API", "https://127.0.0.1:6443"}},
		Checks: append(CheckOf("Kubernetes API", func(context.Context) error { return nil }),
			CheckOf("Records", func(context.Context) error { return errors.New(hostile) })...),
	}
	v.Backend.Overview = situation.Asked{
		Board: v.Backend.Board, Queue: c, Version: "v1",
		Vaults: func() []monitor.Status {
			return []monitor.Status{{Address: hostile, State: monitor.Sealed, Message: hostile}}
		},
		Checks: []situation.Check{{Name: "Records", Ask: func(context.Context) error { return errors.New(hostile) }}},
		Sharing: func(context.Context) (situation.Sharing, error) {
			return situation.Sharing{Controllers: []situation.Controller{{Name: hostile, Leads: true, Shards: 200, Lease: hostile, Seen: now}, {Name: "b", Shards: 56, Lease: hostile, Stale: true}}}, nil
		},
	}
	v.Person.Flux = fluxOf{}
	return v
}

// fluxOf is one object of Flux that fails.
type fluxOf struct{}

func (fluxOf) List(context.Context, access.Scope) (situation.Listed, error) {
	return situation.Listed{Objects: []situation.Object{{Kind: "Kustomization", Namespace: "apps", Name: hostile, Ready: "False", Reason: hostile, Message: hostile}}}, nil
}

const apiDocument = `{"openapi":"3.1.0","info":{"title":"Terrier","description":"<script>alert(1)</script> What is served."},
"tags":[{"name":"stacks","description":"Stacks and what runs for them."},{"name":"platform"}],
"paths":{"/api/v1/namespaces/{namespace}/stacks/{name}":{"get":{"operationId":"getStack","summary":"One stack.","tags":["stacks"],"x-terrier-right":"get terraforms","parameters":[
{"name":"namespace","in":"path","required":true,"schema":{"type":"string"}},{"name":"name","in":"path","required":true,"schema":{"type":"string"}}],
"responses":{"200":{"description":"It.","content":{"application/json":{"schema":{"$ref":"#/components/schemas/Detail"}}}},"404":{"description":"There is none."}}},
"parameters":[]},
"/api/v1/namespaces/{namespace}/stacks/{name}/approve":{"post":{"operationId":"approve","summary":"Let a plan through.","tags":["stacks"],"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/Approval"}}}},"responses":{"200":{"description":"Done."}},
"parameters":[{"name":"namespace","in":"path","required":true,"schema":{"type":"string"}},{"name":"name","in":"path","required":true,"schema":{"type":"string"}},{"name":"dry","in":"query","required":true,"schema":{"type":["string","null"]}}]}},
"/api/v1/read-now":{"post":{"operationId":"readNow","x-terrier-right":"patch registries","requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/None"}}}},"responses":{}}},
"/api/v1/queue":{"get":{"operationId":"getQueue","summary":"Who waits.","tags":["platform"],"responses":{"200":{"description":"The queue."}}}}}}`

// shire is a county with a bit of everything, also of what is hostile.
func shire() *county {
	why := "Waiting for its turn: 4 runs may run at once"
	c := &county{
		capacity: query.CapacityInfo{Stacks: 1240, SlotsNeeded: 29.4, Slots: 4, RunSeconds: 14.2, Measured: 1199, Interval: 10 * time.Minute, Cycle: 73 * time.Minute,
			Warning: "Looking at 1240 stacks every 10m takes 29.4 runs at once, and there may be 4: drift is found later than the stacks ask for. Set --max-runs to 37, or the intervals of the stacks to 92m."},
		backlog: schedule.Backlog{
			Running: 4, MaxRuns: 4, MaxPerTenant: 2, Memory: 2900 << 20, MaxMemory: 5600 << 20, Waiting: 6, OldestSince: now.Add(-9 * time.Minute),
			Classes: []schedule.ClassBacklog{{Class: "apply", Waiting: 1, OldestSince: now.Add(-40 * time.Second)}, {Class: "person", Waiting: 1, OldestSince: now.Add(-10 * time.Second)}, {Class: "spec"}, {Class: "upstream", Waiting: 1, OldestSince: now.Add(-time.Minute)}, {Class: "drift", Waiting: 3, OldestSince: now.Add(-9 * time.Minute)}},
			Tenants: []schedule.TenantBacklog{
				{Tenant: "acme", Running: 2, Memory: 1400 << 20, Waiting: map[string]int{"drift": 2, "apply": 1}, OldestSince: now.Add(-9 * time.Minute)},
				{Tenant: "globex", Running: 1, Memory: 700 << 20, Waiting: map[string]int{"upstream": 1, "person": 1}, OldestSince: now.Add(-time.Minute)},
				{Tenant: "secret-tenant", Running: 1, Memory: 800 << 20, Waiting: map[string]int{"drift": 1}, OldestSince: now.Add(-2 * time.Minute)},
			},
		},
		line: schedule.Line{
			Running: []schedule.Turn{
				{UID: "1", Namespace: "apps", Name: "checkout", Kind: stack.ApplyRun, Class: "apply", Tenant: "acme", Memory: 700 << 20, Asked: now.Add(-4 * time.Minute), Started: now.Add(-3 * time.Minute)},
				{UID: "2", Namespace: "apps", Name: "cart", Kind: stack.CheckRun, Class: "drift", Tenant: "acme", Memory: 700 << 20, Asked: now.Add(-2 * time.Minute), Started: now.Add(-time.Minute)},
				{UID: "3", Namespace: "net", Name: "edge", Kind: stack.PlanRun, Tenant: "globex", Memory: 700 << 20, Asked: now.Add(-time.Minute), Started: now.Add(-50 * time.Second)},
				{UID: "4", Namespace: "hidden", Name: "secret-stack", Kind: stack.PlanRun, Class: "spec", Tenant: "secret-tenant", Memory: 800 << 20, Asked: now.Add(-time.Minute), Started: now.Add(-50 * time.Second)},
			},
			Waiting: []schedule.Turn{
				{UID: "5", Namespace: "net", Name: "dns", Kind: stack.PlanRun, Class: "person", Tenant: "globex", Asked: now.Add(-10 * time.Second), Position: 1, Called: true, Why: "It is its turn"},
				{UID: "6", Namespace: "apps", Name: "hostile", Kind: stack.ApplyRun, Class: "apply", Tenant: hostile, Asked: now.Add(-40 * time.Second), Position: 2, Why: "Waiting for its turn: 2 runs of the tenant " + hostile + " may run at once"},
				{UID: "7", Namespace: "net", Name: "vpc", Kind: stack.PlanRun, Class: "upstream", Tenant: "globex", Asked: now.Add(-time.Minute), Position: 3, Why: why},
				{UID: "8", Namespace: "hidden", Name: "secret-stack-2", Kind: stack.CheckRun, Class: "drift", Tenant: "secret-tenant", Asked: now.Add(-2 * time.Minute), Position: 4, Why: why},
				{UID: "9", Namespace: "apps", Name: "search", Kind: stack.CheckRun, Class: "drift", Tenant: "acme", Asked: now.Add(-9 * time.Minute), Position: 5, Why: "Waiting for memory: the run takes 3100 MiB, and all runs may take 5600 MiB together"},
				{UID: "10", Namespace: "apps", Name: "mail", Kind: stack.HealthRun, Class: "drift", Tenant: "acme", Asked: now.Add(-5 * time.Minute), Position: 6, Why: why},
			},
		},
	}
	c.tenants()
	c.estates()
	c.told()
	return c
}

func (c *county) tenants() {
	tenant := func(ns, uid, state string, edit func(*query.Tenant)) {
		v := query.Tenant{Namespace: ns, Name: uid + "-web", UID: uid, Template: "web", Registry: "customers", State: state, Created: now.Add(-300 * time.Hour), Since: now.Add(-3 * time.Hour), Ready: 6, Desired: 6, Generation: 4, Made: 4}
		if edit != nil {
			edit(&v)
		}
		c.list.Items = append(c.list.Items, v)
	}
	tenant("apps", "acme", query.TenantReady, nil)
	tenant("apps", "globex", query.TenantFailed, func(v *query.Tenant) {
		v.Reason, v.Message, v.Ready, v.Failed, v.Skipped = "ResourcesFailed", "2 of 6 objects failed: "+hostile+long, 3, 2, 1
	})
	tenant("apps", "initech", query.TenantProgressing, func(v *query.Tenant) {
		v.Reason, v.Message, v.Ready, v.Generation = "NotAllResourcesReady", "the stack initech-db is not ready yet", 4, 5
	})
	tenant("apps", "umbrella", query.TenantLeaving, func(v *query.Tenant) {
		v.Leaving, v.Protected = "its row is inactive since 2026-03-14T12:00:00Z; the tenant is deleted at 2026-03-14T13:00:00Z unless the row becomes active again", true
	})
	tenant("apps", "hooli", query.TenantConflicted, func(v *query.Tenant) {
		v.Reason, v.Message = "ResourcesConflicted", "ConfigMap hooli-settings is somebody else's: argocd"
	})
	tenant("net", "odd "+hostile, query.TenantNew, func(v *query.Tenant) { v.Name, v.Since = "odd-web", time.Time{} })
	tenant("hidden", "secret-uid", query.TenantReady, nil)
	c.list.Alarms = []query.Alarm{
		{Kind: query.KindRegistry, Namespace: "apps", Name: "customers", Reason: "TooManyDeletions", Message: "42 deletions held back: 42 of 61 tenants would go at once, which is more than guard.maxDeletionPercent (10) and guard.maxDeletions (10) let pass", Since: now.Add(-20 * time.Minute), Look: "terrier rows customers -n apps"},
		{Kind: query.KindTemplate, Namespace: "apps", Name: "web", Reason: "RolloutStopped", Message: "the rollout of generation 5 has stopped: " + hostile, Since: now.Add(-time.Hour), Look: "terrier rollout status web -n apps"},
		{Kind: query.KindRegistry, Namespace: "hidden", Name: "secret-registry", Reason: "RowErrors", Message: "secret", Look: "x"},
	}
	applied := planOf("plan-main-1", stack.Changes{Add: 12})
	c.detail = query.TenantDetail{
		Tenant: c.list.Items[1], Means: meaning.OfTenant("ResourcesFailed"), Newest: 5, Behind: "its rollout has stopped: " + hostile,
		Row: query.RowInfo{Variables: []string{"uid", "host", "plan", hostile}, Secret: "terrier-row-globex-web"},
		Objects: []query.TenantObject{
			{ID: "ns", Kind: "ConfigMap", APIVersion: "v1", Namespace: "apps", Name: "globex-settings", State: query.ObjectReady, Once: true},
			{ID: "db", Kind: "Terraform", Namespace: "apps", Name: "cart", State: query.ObjectReady, DependsOn: []string{"ns"}, Retain: true, Stack: &query.Stack{Namespace: "apps", Name: "cart", Phase: "Applied", Applied: applied, Message: "12 objects are as they were applied"}},
			{ID: "queue", Kind: "Terraform", Namespace: "net", Name: "vpc", State: "Progressing", Reason: "NotReady", Message: "a plan waits", DependsOn: []string{"ns"}, Since: now.Add(-time.Hour),
				Stack: &query.Stack{Namespace: "net", Name: "vpc", Pending: "plan-main-77", Plan: planOf("plan-main-77", stack.Changes{Change: 2}), Drift: &query.DriftInfo{Changes: stack.Changes{Change: 2}}}},
			{ID: "web", Kind: "Deployment", State: query.ObjectPending, Reason: "DependencyNotReady", Message: "waits for queue", DependsOn: []string{"db", "queue"}, WaitsFor: []string{"queue"}},
			{ID: hostile, Kind: hostile, Namespace: "apps", Name: hostile, State: "Failed", Reason: "ApplyFailed", Message: hostile + long, Means: meaning.OfTenant("ApplyFailed"), DependsOn: []string{"web", "gone"}},
			{ID: "dns", Kind: "Terraform", Namespace: "hidden", Name: "globex-zone", State: query.ObjectReady, Stack: &query.Stack{Namespace: "hidden", Name: "secret-stack", Message: "secret message"}},
			{ID: "old", Kind: "Secret", Namespace: "apps", Name: "globex-old", State: query.ObjectRemoving, Reason: "RemovedFromTemplate"},
		},
		Conditions: []query.Condition{{Type: "Ready", Status: "False", Reason: "ResourcesFailed", Message: hostile, Since: now.Add(-time.Hour)}, {Type: "Conflicted", Status: "False", Reason: "NoConflicts", Since: now.Add(-time.Hour)}},
		Events:     []query.Event{{At: now.Add(-time.Minute), Type: "Warning", Reason: "ApplyFailed", Message: hostile, Count: 7}, {At: now.Add(-time.Hour), Type: "Normal", Reason: "Applied", Message: "made"}},
		Unseen:     []string{"the template: " + hostile},
	}
}

func (c *county) estates() {
	r := query.Registry{
		Namespace: "apps", Name: "customers", Source: "postgresql db.internal:5432/crm, table customers", Interval: "1m", Created: now.Add(-900 * time.Hour),
		Ready: "False", Reason: "TooManyDeletions", Message: hostile, Since: now.Add(-20 * time.Minute), Means: meaning.OfTenant("TooManyDeletions"),
		LastRead: now.Add(-20 * time.Minute), Rows: 1960, Active: 1902, Mark: "2026-03-14T15:00:00Z", Templates: 2, Desired: 1902, Kept: 7, ReadyNow: 1888, Failed: 4, Leaving: 3, RowErrors: 7,
		FirstErrors: []query.RowError{{UID: hostile, Reason: "RowUIDInvalid", Message: hostile}, {Reason: "RowUIDMissing", Message: "the uid is NULL"}},
		Blocked:     &query.BlockedSet{Reason: "TooManyDeletions", Message: "42 of 61 tenants would go at once", Since: now.Add(-20 * time.Minute), Count: 42, Tenants: []string{"acme-web", "globex-web", hostile}, Token: "b81f3c2d90"},
		DryRun:      true, WouldChange: &query.WouldChange{Create: 2, Update: 1, Delete: 9, Tenants: []string{"+ new-web", "~ acme-web", "- " + hostile}},
		Departed: []query.Departed{{UID: "vandelay", At: now.Add(-30 * time.Hour), Count: 1}}, Grace: time.Hour,
		Conditions: []query.Condition{{Type: "Ready", Status: "False", Reason: "TooManyDeletions", Since: now.Add(-time.Hour)}},
	}
	c.registry = query.RegistryDetail{
		Registry: r, Guard: query.GuardInfo{MaxDeletions: 10, MaxPercent: 10, Grace: time.Hour},
		Mapping: []query.Mapped{{Variable: "activate", Column: "active"}, {Variable: "uid", Column: "id"}, {Variable: hostile, Column: hostile}}, Yes: []string{"1", "yes"},
		Events: []query.Event{{At: now, Type: "Warning", Reason: "GuardTripped", Message: hostile}},
	}
	calm := r
	calm.Name, calm.Ready, calm.Reason, calm.Blocked, calm.RowErrors, calm.DryRun, calm.WouldChange = "partners", "True", "DatabaseConnected", nil, 0, false, nil
	hidden := calm
	hidden.Namespace, hidden.Name = "hidden", "secret-registry"
	c.registries = []query.Registry{r, calm, hidden}
	t := query.Template{Namespace: "apps", Name: "web", Registry: "customers", Generation: 5, Valid: "False", Reason: "ValidationFailed", Message: hostile, Phase: query.RolloutFailed, Total: 1902, Ready: 1600}
	c.templates = []query.Template{t, {Namespace: "apps", Name: "batch", Registry: "customers", Generation: 1, Valid: "True", Phase: query.RolloutComplete, Total: 12, Ready: 12}, {Namespace: "hidden", Name: "secret-template", Registry: "secret-registry"}}
	c.template = query.TemplateDetail{
		Template: t, Means: meaning.OfTenant("ValidationFailed"), MaxSkew: 20, MaxFailures: 2, Deadline: 600, Account: "tenant-writer", Protected: true,
		Waves:     []query.WaveInfo{{Name: "canary", Which: "tier=canary"}, {Name: "tenth", Percent: 10}, {Name: hostile, Which: hostile}},
		Resources: []query.TemplateObject{{ID: "ns", Group: "namespaces", Kind: "Namespace"}, {ID: hostile, Group: "manifests", Kind: hostile, DependsOn: []string{"ns", hostile}}},
	}
	c.rollout = query.Rollout{
		Namespace: "apps", Template: "web", Registry: "customers", Phase: query.RolloutFailed, Target: 5, Good: 4, Total: 1902, Updated: 190, Updating: 3, Ready: 170, Failed: 3, Wave: "tenth", Waves: []string{"canary", "tenth", hostile},
		Started: now.Add(-2 * time.Hour), Completed: now.Add(-time.Hour), Message: "3 tenants failed, and 2 may: " + hostile, Means: meaning.OfTenant("RolloutFailed"),
		Generations: []query.Generation{{Number: 5, Tenants: 190, Ready: 170, Kept: true}, {Number: 4, Made: now.Add(-50 * time.Hour), Tenants: 1700, Ready: 1700, Kept: true}, {Number: 2, Tenants: 12}, {Number: 0, Tenants: 1}},
		Holding:     []query.Tenant{c.list.Items[1], c.list.Items[2]},
	}
}

func (c *county) told() {
	used := make([]query.Key, 9)
	for i := range used {
		used[i] = query.Key{Namespace: "apps", Name: fmt.Sprint("stack-", i)}
	}
	c.happened = map[string][]query.Event{hostile: {
		{At: now.Add(-10 * time.Minute), Type: "Warning", Reason: "AuthenticationFailed", Message: hostile, Count: 3},
		{At: now.Add(-20 * time.Minute), Type: "Warning", Reason: "GitOperationFailed", Message: "no route to host", Count: 1},
	}}
	c.sources = []query.Source{
		{Kind: "GitRepository", Namespace: "apps", Name: "platform", URL: "https://git.example.com/platform.git", Revision: "main@sha1:4f1c9ab2d7b8e362c2065d1f09aa4f1c9ab2d7b8", Ready: "True", Since: now.Add(-3 * time.Hour), UsedBy: used},
		{Kind: "GitRepository", Namespace: "net", Name: hostile, URL: "javascript:alert(1)//" + hostile, Ready: "False", Reason: "AuthenticationFailed", Message: hostile + long, Since: now.Add(-time.Hour), UsedBy: used[:2]},
		{Kind: "OCIRepository", Namespace: "apps", Name: "modules", URL: "oci://registry.example.com/modules", Revision: "v1@sha256:aa", Ready: "True", Suspended: true, Since: now.Add(-time.Hour)},
		{Kind: "Bucket", Namespace: "apps", Name: "exports", URL: "https://user:pass@s3.example.com/exports", Ready: "Unknown", Since: now},
		{Kind: "Bucket", Namespace: "hidden", Name: "secret-bucket", Ready: "False"},
	}
	object := query.AuditObject{Kind: "Terraform", Namespace: "apps", Name: "cart"}
	c.entries = []query.AuditEntry{
		{Seq: 1042, At: now.Add(-time.Minute), Who: "ann@example.com", Via: query.ViaUI, What: "approved", Object: object, Plan: "plan-main-4f1c9ab2d7", Digest: "sha256:aabb", Comment: "looks right " + hostile, Changes: stack.Changes{Add: 2, Destroy: 1}},
		{Seq: 1041, At: now.Add(-2 * time.Minute), Via: "controller", What: "apply-failed", Object: object, Run: "apply-7", Outcome: "failed", Why: hostile + long, Details: map[string]string{"rule": "retry", hostile: hostile}},
		{Seq: 1040, At: now.Add(-time.Hour), Who: hostile, Via: query.ViaCLI, What: "deletions-allowed", Object: query.AuditObject{Kind: query.KindRegistry, Namespace: "apps", Name: "customers"}, Details: map[string]string{"token": "b81f3c2d90", "count": "42"}},
		{Seq: 1039, At: now.Add(-2 * time.Hour), Who: "bob", Via: "kubectl", What: "unheard-of", Object: query.AuditObject{Kind: "Secret", Namespace: "hidden", Name: "secret-object"}},
		{Seq: 1038, At: now.Add(-2 * time.Hour), Who: "eve@example.org", Via: "api", What: "sign-in-refused"},
	}
	c.report.Entries, c.report.Head.Seq, c.report.Head.Hash, c.report.Head.At = 1042, 1042, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", now.Add(-time.Minute)
	c.left = []command.Retained{
		{Namespace: "apps", Name: "mail", UID: "u1", At: now.Add(-time.Hour), Until: now.Add(719 * time.Hour), Why: "terrier.dev/deletion is retain", Secret: "tfstate-default-mail", Kept: true, Resources: []string{"terraform_data.a", hostile}, Ways: []string{"To go on with it, create the stack again.", hostile + long}},
		{Namespace: "apps", Name: "cart", UID: "u2", At: now.Add(-30 * time.Hour), Until: now.Add(690 * time.Hour), Why: hostile, Kept: true, Resources: make([]string, addressesShown+7), Untracked: &stack.Untracked{Objects: []stack.UntrackedResource{{Address: "aws_instance." + hostile, ID: "i-1"}, {Address: "aws_eip.x"}}}},
		{Namespace: "gone", Name: "last", UID: "u3", At: now.Add(-40 * time.Hour), Until: now.Add(680 * time.Hour), Why: "its object was removed by force"},
		{Namespace: "hidden", Name: "secret-stack", UID: "u4", At: now.Add(-50 * time.Hour), Secret: "secret-state", Kept: true},
	}
	c.notices = []query.Delivery{
		{ID: "1", At: now.Add(-time.Minute), Namespace: "apps", Kind: "Terraform", Name: "cart", Event: "PlanPending", Message: "a plan waits: " + hostile, Provider: "team-slack", Type: "slack", Address: "hooks.slack.com", Attempts: 1, Outcome: query.NoticeDelivered},
		{ID: "2", At: now.Add(-2 * time.Minute), Namespace: "apps", Kind: "Tenant", Name: "globex-web", Event: "Failed", Provider: hostile, Type: "generic", Address: hostile, Attempts: 3, Outcome: query.NoticeRetrying, Error: "502 " + hostile + long, NextAt: now.Add(time.Minute)},
		{ID: "3", At: now.Add(-time.Hour), Namespace: "net", Kind: "GitRepository", Name: hostile, Event: hostile, Provider: "pager", Attempts: 9, Outcome: query.NoticeFailed, Error: "gone"},
		{ID: "4", At: now.Add(-time.Hour), Namespace: "hidden", Kind: "Terraform", Name: "secret-stack", Event: "Applied", Provider: "secret-provider", Outcome: query.NoticeDropped},
	}
}

// tenantHands is a person who commands tenants.
type tenantHands struct {
	done   []string
	from   int64
	err    error
	refuse error // of a preview
}

func (h *tenantHands) do(format string, args ...any) error {
	if h.err == nil {
		h.done = append(h.done, fmt.Sprintf(format, args...))
	}
	return h.err
}

func (h *tenantHands) Allow(_ context.Context, k query.Key, token string) error {
	return h.do("allow %s %s", k, token)
}
func (h *tenantHands) ReadNow(_ context.Context, k query.Key) (string, error) {
	return "now", h.do("read %s", k)
}
func (h *tenantHands) SuspendRegistry(_ context.Context, k query.Key) error {
	return h.do("suspend %s", k)
}
func (h *tenantHands) ResumeRegistry(_ context.Context, k query.Key) error {
	return h.do("resume %s", k)
}
func (h *tenantHands) ResumeRollout(_ context.Context, k query.Key) (int64, error) {
	return 5, h.do("go on %s", k)
}
func (h *tenantHands) PlanUndo(_ context.Context, k query.Key, to int64) (command.Undoing, error) {
	if to > 9 {
		return command.Undoing{}, fault.New(fault.Missing, query.ReasonNoRevision, errors.New("it is not kept"))
	}
	return command.Undoing{Key: k, From: h.from, To: to, Same: to == h.from}, h.refuse
}
func (h *tenantHands) Undo(_ context.Context, u command.Undoing) error {
	return h.do("undo %s from %d to %d", u.Key, u.From, u.To)
}

// ring is tokens for the registry, whose names others chose.
type ring []regtoken.Token

func (r ring) List(context.Context) ([]regtoken.Token, error) { return r, nil }
func (r ring) Get(_ context.Context, id string) (regtoken.Token, error) {
	for _, t := range r {
		if t.ID == id {
			return t, nil
		}
	}
	return regtoken.Token{}, fault.New(fault.Missing, regtoken.ReasonMissing, errors.New(id))
}
func (r ring) Revoke(ctx context.Context, id, _ string) (regtoken.Token, error) {
	return r.Get(ctx, id)
}

func ringOf() ring {
	life := func(t regtoken.Token) regtoken.Token {
		t.Name, t.By, t.Created, t.Expires = hostile, hostile, now.Add(-time.Hour), now.Add(time.Hour)
		return t
	}
	gone, old := life(regtoken.Token{ID: "03", Namespace: "apps"}), life(regtoken.Token{ID: "04", Namespace: "apps"})
	gone.Revoked, gone.RevokedBy, old.Expires = now, hostile, now
	hidden := life(regtoken.Token{ID: "05", Namespace: "hidden"})
	hidden.Name = "secret-ci"
	return ring{life(regtoken.Token{ID: "01", User: hostile}), life(regtoken.Token{ID: "02", Namespace: "apps", Write: true}), gone, old, hidden}
}
