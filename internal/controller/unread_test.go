package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A run that cannot be read may go on: its stack says so, shows the run as before, and keeps its
// slot. Once the run can be read, everything goes on as if nothing had been.
func TestAStackWhoseRunCannotBeReadSaysSo(t *testing.T) {
	for name, tt := range map[string]struct {
		breaks func(*script) (mends func())
		says   string
	}{
		"its state cannot be saved": {func(s *script) func() {
			s.unread = errors.New("input/output error")
			return func() { s.unread = nil }
		}, "input/output error"},
		"it has no note": {func(s *script) func() {
			note := s.report.Note
			s.report.Note = []byte("no JSON")
			return func() { s.report.Note = note }
		}, "reading the note of run plan-"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newFrugal(t, "net")
			l.committer.config.Patience = 0
			l.creates(t)
			l.works(t, stack.PlanRun)
			before := l.stored(t).Status.Terrier
			if before.Run == nil {
				t.Fatalf("the status shows no run: %+v", before)
			}
			mend := tt.breaks(l.runs)
			for range 2 {
				l.looks(t)
				is := l.stored(t).Status.Terrier
				if is.Phase != string(stack.StateFailed) || !strings.Contains(is.WaitingFor, "cannot read the run of this stack, which may be running: "+tt.says) {
					t.Errorf("the status says %s: %s", is.Phase, is.WaitingFor)
				}
				if diff := cmp.Diff(before.Run, is.Run); diff != "" {
					t.Errorf("the run that is shown (-before +now):\n%s", diff)
				}
				if l.wait <= 0 || l.wait > unreadRecheck {
					t.Errorf("it is read again after %s", l.wait)
				}
				if why := l.whole.Queue.Admit("other", schedule.Candidate{Tenant: "other"}); why == "" {
					t.Error("another run was admitted to its slot")
				}
				l.whole.Queue.Leave("other")
			}
			mend()
			l.looks(t)
			if is := l.stored(t).Status.Terrier; is.Phase != string(stack.Planning) {
				t.Errorf("once the run can be read the phase is %s: %s", is.Phase, is.WaitingFor)
			}
			l.applies(t, 1)
			l.looks(t)
			if is := l.stored(t).Status.Terrier; is.Run != nil || is.Phase != string(stack.OutputsWritten) && is.Phase != string(stack.Applied) {
				t.Errorf("in the end the phase is %s: %s", is.Phase, is.WaitingFor)
			}
		})
	}
}

// What a run has of a Vault is not taken from it because the run cannot be read.
func TestARunThatCannotBeReadKeepsItsCredentials(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c, p, read := certified(t, roomy{}, &now)
	if err := c.launch(t.Context(), p, stack.ApplyRun, stack.Cause{}, ""); err != nil || p.o.Queued != "" || read.made != 1 {
		t.Fatalf("launch() = %v, it waits for %q, and was made %d credentials", err, p.o.Queued, read.made)
	}
	handed := func() bool {
		r, err := c.committer.vaults.Records.Get(t.Context(), record.HandedOut("uid"))
		if fault.Of(err) == fault.Missing {
			return false
		}
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		return true
	}
	p.o.Run = nil
	for _, p.unread = range []bool{true, false} {
		if err := c.committer.tendVault(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if got := handed(); got != p.unread {
			t.Errorf("if it is %v that the run cannot be read, its credentials are there: %v", p.unread, got)
		}
	}
}

// A file of hosts that is written soon is no trouble of the run: the status stays as it is, and
// the stack is reconciled again at the end of the writing.
func TestNothingIsSaidOfAFileThatIsWrittenSoon(t *testing.T) {
	l := newFrugal(t, "net")
	l.committer.config.Patience = 0
	l.creates(t)
	l.works(t, stack.PlanRun)
	before := l.stored(t).Status
	l.runs.unread = fault.New(fault.Later, aftersteps.Soon, errors.New("hosts.yml is being written"))
	l.looks(t)
	if diff := cmp.Diff(before, l.stored(t).Status); diff != "" {
		t.Errorf("the status (-before +now):\n%s", diff)
	}
	if l.wait != aftersteps.Patience {
		t.Errorf("it is looked at again after %s", l.wait)
	}
}
