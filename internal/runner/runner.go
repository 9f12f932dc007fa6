// Package runner carries out runs. It has two sides that meet in a directory:
//
//	controller                    RUN = DIR/runs/<stack>/<id>             supervisor
//	Processes.Start  ── Job over stdin ─────────────────────────────────▶ Supervise
//	Processes.Current ◀── run.json, events.jsonl, state.json, lock ───────┘   │
//	                                                                          ▼
//	                              STACK = DIR/stacks/<stack>          engine in its sandbox
//
// A run outlives the process that started it. Its supervisor is a process of
// its own that holds a lock on RUN/lock for as long as it lives, which is the
// only proof of life, and one on STACK/lock, so that no stack ever has two
// writers. Everything else about a run is read from its directory, by the
// controller that started it or by the next one.
//
// It refuses to run an engine outside a sandbox below the level asked for, to
// store anything that was not redacted but the plan, the state and, while it is
// printed, the output of an apply (see outputfile.go), and to
// forget a run that still lives.
//
// Start reading at Job and Report, then Supervise and Processes.
package runner

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// checkName reports whether name can be one component of a path; kind names
// it in the error.
func checkName(kind, name string) error {
	foreign := func(c rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789.-", c) }
	if name == "" || len(name) > 128 || strings.ContainsFunc(name, foreign) || strings.Trim(name[:1], ".-") == "" || strings.Contains(name, "..") {
		return fault.New(fault.Invalid, NameInvalid, fmt.Errorf("%.80q cannot be the %s of a run", name, kind))
	}
	return nil
}

// checkKey reports whether key is a stack, or what Key makes.
func checkKey(key string) error {
	name, beside, found := strings.Cut(key, besideMark)
	err := checkName("stack", name)
	if found {
		err = errors.Join(err, checkName("name beside a stack", beside))
	}
	return err
}

// Check refuses a job that no runner may start.
func (j Job) Check() error {
	if err := errors.Join(checkName("ID", j.ID), checkName("stack", j.Stack)); err != nil || j.Beside == "" {
		return err
	}
	if j.Kind != stack.PlanRun || j.Options.ForceUnlock != "" {
		return fault.New(fault.Invalid, BesideWrites, fmt.Errorf("a run beside a stack may only plan, and this one is of kind %q", j.Kind))
	}
	return checkName("name beside a stack", j.Beside)
}

// layout is where things are below the data directory. All directories are
// 0700 and all files 0600, except what the sandbox's user owns below work.
type layout struct{ dir string }

func (l layout) stacks() string          { return filepath.Join(l.dir, "stacks") }
func (l layout) runs() string            { return filepath.Join(l.dir, "runs") }
func (l layout) stack(s string) string   { return filepath.Join(l.stacks(), s) }
func (l layout) runsOf(s string) string  { return filepath.Join(l.runs(), s) }
func (l layout) run(s, id string) string { return filepath.Join(l.runs(), s, id) }

// Files beside those that a run leaves for Open.
const (
	fileLock       = "lock"           // held by the supervisor; in RUN and in STACK
	fileReport     = "run.json"       // in RUN
	fileAllowed    = "allowed"        // in RUN: see Processes.Allow
	fileStderr     = "supervisor.txt" // in RUN: the last words of a supervisor that broke
	fileTrace      = "processes.json" // in RUN: the processes that are running
	filePlacement  = "sheet.json"     // in STACK: what the last run put into the work directory
	fileInitRecord = "marker.json"    // in STACK: what the work directory is prepared for
	fileUses       = "uses.json"      // in STACK: FileUses as it was after init
	fileRefusals   = "refused.json"   // in STACK: providers that the engine has to start
	dirBackends    = "backends"       // in DIR: what init writes down where it has nothing to install, by engine
	dirWork        = "work"           // in STACK: all that the sandbox sees
	dirOriginals   = "shadow"         // in STACK: files of the tree that generated ones stand in for
	dirTree        = "tree"           // in work: the module tree
	dirShown       = "shown"          // in STACK: the saved plan while it is shown, which the sandbox cannot write
	dirScratch     = "run"            // in work: what belongs to one run
	dirHome        = "home"           // in work: the home of one run, if it has files there
	dirIdentity    = "identity"       // in work: the tokens of one run, if it has some
)
