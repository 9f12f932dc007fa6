package dialect

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// View is what an object shows of its stack, in words that every kind has. Lists,
// details and pages are made of it and of Stack, and know nothing else of a kind.
type View struct {
	Asked
	Conditions []metav1.Condition

	Source    string // where the module comes from: Kind/name, an address, or inline
	Path      string // of the root module in it
	OutputsIn string // the Secret to which outputs are published; empty if none is
	Outputs   []string

	Phase      string // a stack.Reason
	Rule       string
	WaitingFor string
	Since      time.Time     // of the phase
	Next       time.Time     // attempt; zero if none is announced
	Every      time.Duration // the check interval while nothing changes
	Run        *Running

	Pending  string // the name of the pending plan, as users approve it
	Lock     string // the foreign lock that blocks runs
	Handled  string // the newest request that the controller has answered
	Revision string // applied last, else planned last
	Failures int

	BreakGlassDenied bool // a session is asked for, and the platform allows none

	Isolation   string   // of the newest run
	Environment []string // names of variables that runs were given
}

// Running is a run that goes on.
type Running struct {
	ID, Kind, Phase string
	Started         time.Time
	Until           time.Time // when it is interrupted at the latest
}
