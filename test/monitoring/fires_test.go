package monitoring

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// situation is a day of metrics, a sample a minute, in the notation of
// Prometheus' own tests, and when an alert has to fire in it.
type situation struct {
	name   string
	series string
	fires  time.Duration // after the beginning; 0 is never
}

// Each alert fires in the situation that it is for, when it should, and stays
// silent in one that is like it and nothing to worry about.
var situations = map[string][]situation{
	"TerrierStackFailing": {
		{"one fails and is not mended", `terrier_stacks_failing_oldest_seconds 0x9 0+60x60`, 41 * minute},
		{"one fails and is mended", `terrier_stacks_failing_oldest_seconds 0+60x25 0x60`, 0},
	},
	"TerrierPlanPending": {
		{"nobody answers", `terrier_pending_plan_oldest_seconds 82800+60x120`, 61 * minute},
		{"somebody does", `terrier_pending_plan_oldest_seconds 82800+60x50 0x60`, 0},
	},
	"TerrierDrift": {
		{"it stays", `terrier_drift_oldest_seconds 82800+60x120`, 61 * minute},
		{"it is put right", `terrier_drift_oldest_seconds 82800+60x50 0x60`, 0},
	},
	"TerrierChecksFailing": {
		{"a certificate expires", `terrier_failing_checks_oldest_seconds 0x9 0+60x60`, 41 * minute},
		{"it is renewed", `terrier_failing_checks_oldest_seconds 0x9 0+60x25 0x60`, 0},
	},
	"TerrierStateLockHeld": {
		{"a lock was left behind", `terrier_state_lock_oldest_seconds 0+60x120`, 61 * minute},
		{"somebody works by hand", `terrier_state_lock_oldest_seconds 0+60x50 0x60`, 0},
	},
	"TerrierUntrackedResources": {
		{"an apply was killed", `terrier_stacks_with_untracked_resources 0x4 1x60`, 15 * minute},
		{"it is repaired at once", `terrier_stacks_with_untracked_resources 0x4 1x5 0x60`, 0},
	},
	"TerrierQueueStuck": {
		{"no slot becomes free", `terrier_queue_oldest_seconds{class="person"} 0+60x60`, 36 * minute},
		{"the line moves", `terrier_queue_oldest_seconds{class="person"} 600x60`, 0},
	},
	"TerrierCycleNotMet": {
		{"there are too many stacks", "terrier_slots_needed 5.5x120\n terrier_check_intervals_met 0x120", 60 * minute},
		{"there are slots enough", "terrier_slots_needed 3.5x120\n terrier_check_intervals_met 1x120", 0},
		{"there was a rush", "terrier_slots_needed 5.5x30 3.5x120\n terrier_check_intervals_met 0x30 1x120", 0},
	},
	"TerrierNoRunSucceeds": {
		{"every run fails", `terrier_runs_total{kind="plan",outcome="Succeeded"} 7x120
			terrier_runs_total{kind="plan",outcome="Failed"} 0+1x120
			terrier_queue_waiting{class="spec"} 0x120`, 6 * minute},
		{"runs wait and none begins", `terrier_runs_total{kind="plan",outcome="Succeeded"} 0+1x60 60x120
			terrier_queue_waiting{class="spec"} 0x60 3x120`, 124 * minute},
		{"some fail, and others do not", `terrier_runs_total{kind="plan",outcome="Succeeded"} 0+1x120
			terrier_runs_total{kind="plan",outcome="Failed"} 0+1x120
			terrier_queue_waiting{class="spec"} 3x120`, 0},
		{"there is nothing to do", `terrier_runs_total{kind="plan",outcome="Succeeded"} 7x120
			terrier_runs_total{kind="plan",outcome="Failed"} 1x120
			terrier_queue_waiting{class="spec"} 0x120`, 0},
	},
	"TerrierRunsOutOfRoom": {
		{"a run needs more memory than it may have", `terrier_run_failures_total{reason="OutOfMemory"} 0x9 1x60`, 10 * minute},
		{"a module is wrong", `terrier_run_failures_total{reason="TFExecPlanFailed"} 0+1x60`, 0},
	},
	"TerrierGuardTripped": {
		{"half of the rows are gone", `registry_deletions_blocked{namespace="shop",registry="customers"} 0x4 50x60`, 10 * minute},
		{"nothing is held", `registry_deletions_blocked{namespace="shop",registry="customers"} 0x60`, 0},
	},
	"TerrierRegistryNotRead": {
		{"the database is away", `terrier_registry_last_read_timestamp_seconds{namespace="shop",registry="customers"} 0x60
			terrier_registry_interval_seconds{namespace="shop",registry="customers"} 60x60`, 9 * minute},
		{"it is read", `terrier_registry_last_read_timestamp_seconds{namespace="shop",registry="customers"} 0+60x60
			terrier_registry_interval_seconds{namespace="shop",registry="customers"} 60x60`, 0},
		{"it is read rarely", `terrier_registry_last_read_timestamp_seconds{namespace="shop",registry="customers"} 0x60
			terrier_registry_interval_seconds{namespace="shop",registry="customers"} 3600x60`, 0},
	},
	"TerrierTenantsFailing": {
		{"an object cannot be made", `registry_failed{namespace="shop",registry="customers"} 0x4 2x60`, 35 * minute},
		{"it was not ready yet", `registry_failed{namespace="shop",registry="customers"} 0x4 2x20 0x60`, 0},
	},
	"TerrierModuleTagProblem": {
		{"a tag moved", `terrier_module_tag_problems{namespace="net",name="vpc",reason="TagMoved"} _x4 1x60`, 9 * minute},
		{"it was moved back at once", `terrier_module_tag_problems{namespace="net",name="vpc",reason="TagMoved"} _x4 1x3 stale _x60`, 0},
	},
	"TerrierVaultSealed": {
		{"a node was restarted", `terrier_vault_status{host="bao:8200",status="sealed"} 0x4 1x60`, 7 * minute},
		{"it has no keys", `terrier_vault_status{host="bao:8200",status="uninitialized"} 1x60`, 2 * minute},
		{"it is unsealed at once", `terrier_vault_status{host="bao:8200",status="sealed"} 0x4 1x1 0x60`, 0},
		{"it is a standby", `terrier_vault_status{host="bao:8200",status="standby"} 1x60
			terrier_vault_status{host="bao:8200",status="sealed"} 0x60`, 0},
	},
	"TerrierVaultUnreachable": {
		{"it is gone", `terrier_vault_status{host="bao:8200",status="unreachable"} 0x4 1x60`, 10 * minute},
		{"it is restarted", `terrier_vault_status{host="bao:8200",status="unreachable"} 0x4 1x3 0x60`, 0},
		{"another controller reaches it", `terrier_vault_status{host="bao:8200",instance="a",status="unreachable"} 1x60
			terrier_vault_status{host="bao:8200",instance="b",status="unreachable"} 0x60`, 0},
	},
	"TerrierDown": {
		{"it is gone", "terrier_leading{job=\"terrier\"} 1x9 stale\n up{job=\"terrier\"} 1x9 0x60", 15 * minute},
		{"it lost its Lease", `terrier_leading{job="terrier"} 1x9 0x60`, 15 * minute},
		{"another one takes over", `terrier_leading{instance="a"} 1x9 0x60
			terrier_leading{instance="b"} _x11 1x60`, 0},
	},
	"TerrierDataDirectoryFilling": {
		{"the disk fills", "terrier_data_free_bytes 100-1x100\n terrier_data_size_bytes 500x100", 61 * minute},
		{"there is room", "terrier_data_free_bytes 100x100\n terrier_data_size_bytes 500x100", 0},
	},
	"TerrierRecordsNotWritten": {
		{"the disk is full", `terrier_records_writes_total{result="error"} 0x9 1x60`, 10 * minute},
		{"it is not", `terrier_records_writes_total{result="error"} 3x60
			terrier_records_writes_total{result="success"} 0+9x60`, 0},
	},
	"TerrierRecordsNotChecked": {
		{"a key management service refuses", `terrier_records_checked 1x9 0x60`, 20 * minute},
		{"it does not answer for a while", `terrier_records_checked 1x9 0x5 1x60`, 0},
	},
	"TerrierAPIServerFailing": {
		{"its store has no leader", `rest_client_requests_total{code="500",host="kube",method="PATCH"} 0x9 0+60x60`, 21 * minute},
		{"it cannot be reached", `rest_client_requests_total{code="<error>",host="kube",method="GET"} 0x9 0+60x60`, 21 * minute},
		{"it is asked for what is not there", `rest_client_requests_total{code="404",host="kube",method="GET"} 0+60x60`, 0},
	},
}

func TestEveryAlertFiresWhenItShould(t *testing.T) {
	all := alerts(t)
	for name := range situations {
		if _, ok := all[name]; !ok {
			t.Errorf("%s is no alert", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if fires := slices.ContainsFunc(situations[name], func(s situation) bool { return s.fires > 0 }); !fires {
			t.Errorf("nobody has seen %s fire", name)
		}
		if silent := slices.ContainsFunc(situations[name], func(s situation) bool { return s.fires == 0 }); !silent {
			t.Errorf("nobody has seen %s be silent", name)
		}
		for _, s := range situations[name] {
			t.Run(name+"/"+s.name, func(t *testing.T) {
				if got := firstFires(t, all[name], s.series); got != s.fires {
					t.Errorf("it fires after %s, want %s (0s is never)", got, s.fires)
				}
			})
		}
	}
}

const minute = time.Minute

// firstFires evaluates an alert each minute, as Prometheus does, and says when it had been true without a break for as long as it asks for.
func firstFires(t *testing.T, a alert, series string) time.Duration {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n "+series)
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	pending := map[string]time.Time{}
	begin := time.Unix(0, 0)
	for at := begin; at.UnixMilli() <= storage.Head().MaxTime(); at = at.Add(minute) {
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, a.Expr, at)
		if err != nil {
			t.Fatal(err)
		}
		result := query.Exec(t.Context())
		vector, err := result.Vector()
		if err != nil {
			t.Fatal(err)
		}
		now := map[string]time.Time{}
		for _, sample := range vector {
			key := sample.Metric.String()
			since, known := pending[key]
			if !known {
				since = at
			}
			if now[key] = since; at.Sub(since) >= time.Duration(a.For) {
				query.Close()
				return at.Sub(begin)
			}
		}
		query.Close()
		pending = now
	}
	return 0
}
