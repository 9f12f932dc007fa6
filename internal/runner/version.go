package runner

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/disk"
)

// A run may outlive the program that started it: after an upgrade the old
// supervisor reports to a new controller, and after a downgrade a new one to an
// old controller. So fields are added and never change their meaning, readers
// leave alone what they do not know, and both sides say which version they are.
const (
	JobVersion    = 15 // of an order; 1 held paths in the job, and its contents; 2 had no environment and no authorities of the operator; 3 had neither scripts nor backends of plug-ins; 4 had no cluster of a state, no arguments of scripts and no postDeploy; 5 had no registry; 6 had no words of the kind of its stack; 7 had none for credentials; 8 expected no state; 9 took no provider past the mirror of the registry; 10 had no identity; 11 encrypted no state; 12 signed no run in to a Vault; 13 had no steps after an apply; 14 did not say whose the shared memory is
	ReportVersion = 1  // of what it says; 0 is from before there were versions
)

// understood refuses an order of another version: the part of it that this
// supervisor does not know may be what keeps the run safe. The run starts once
// controller and supervisor are of the same release.
func (o Order) understood() error {
	if o.Version != JobVersion {
		return fault.New(fault.Later, SupervisorTooOld, fmt.Errorf(
			"the job has version %d, and this supervisor knows version %d: terrier-runner has to be of the release of the controller", o.Version, JobVersion))
	}
	return nil
}

// updateReport replaces the report in a run's directory and keeps those fields
// of it that only a newer program knows.
func updateReport(dir string, r Report) error {
	path := filepath.Join(dir, fileReport)
	all := map[string]json.RawMessage{}
	if err := disk.ReadJSON(path, &all); err != nil {
		return err
	}
	ours, err := json.Marshal(r)
	if err != nil {
		return err
	}
	known := map[string]json.RawMessage{}
	if err := json.Unmarshal(ours, &known); err != nil {
		return err
	}
	maps.Copy(all, known)
	return disk.WriteJSON(path, all)
}
