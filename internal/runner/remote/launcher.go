package remote

import (
	"context"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
)

// Launcher makes the places in which runs are carried out: pods of a cluster, say. A
// place starts an agent (package agent) and nothing else. A Launcher keeps nothing of
// its own: what exists is the truth.
type Launcher interface {
	// Launch makes a place and returns once it exists. It must not return the
	// place of an earlier call: one of that name is a Conflict. After a fault of
	// kind Later, Invalid or Denied there is no new place; after any other error
	// there may be one, and Runner removes it by its name. Later with the reason
	// NoRoom says that there is no room now.
	Launch(ctx context.Context, launch Launch) (Place, error)

	// Room says whether there is room for a place, and makes none. Its error is Later with
	// the reason NoRoom; whatever else is wrong, Launch says.
	Room(ctx context.Context, launch Launch) error

	// Look says what became of a place. Gone has to be certain: after it nothing of
	// the place can run any more.
	Look(ctx context.Context, p Place) (Life, error)

	// End asks the agent of a place to stop, kills it after grace, and removes the
	// place. It does not wait for that: Look says Gone once it is so. A place that is
	// gone, or has another UID, is left alone and is no error.
	End(ctx context.Context, p Place, grace time.Duration) error

	// Places lists every place that this installation made and that is not gone, also
	// those that an earlier process made. It has to be exact, and not from a cache.
	Places(ctx context.Context) ([]Place, error)

	// Changed sends a place after its life changed. A change may be missed: Runner
	// looks at each place now and then.
	Changed() <-chan Place
}

// Launch describes a place that has to be made.
type Launch struct {
	Name string // of the place; derived from key and ID, at most 63 characters, a DNS label
	Key  string // of the run
	ID   string // of the run
	Seal string // opaque, at most 64 KiB, no secret: kept with the place, for Places to return

	// Job is what shapes the place: its kind, its limits, its Pod. It holds secrets in
	// clear, none of which may reach what describes the place.
	Job *runner.Job
}

// Place is where one run is carried out.
type Place struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"` // tells it from an earlier place of that name
	Key       string `json:"-"`             // as in Launch; only from Places
	Seal      string `json:"-"`             // as in Launch; only from Places
}

// same reports whether both are the same place.
func (p Place) same(o Place) bool {
	return p.Namespace == o.Namespace && p.Name == o.Name && p.UID == o.UID
}

// State is whether the agent of a place can run.
type State string

// The states of a place, in order.
const (
	Pending State = "Pending" // the agent was not started yet; Message says why
	Running State = "Running" // the agent may be running
	Ended   State = "Ended"   // every process of the place is dead, and none will start
	Gone    State = "Gone"    // there is no such place
)

// Life is what became of a place.
type Life struct {
	State   State
	Reason  string    // Pending: Unschedulable, ImagePullBackOff, …; Ended: OutOfMemory (runner.OutOfMemory), Evicted, DeadlineExceeded, …
	Message string    // a sentence for people; empty while there is nothing to say. Running: why it is not known whether the agent runs
	Exit    int       // Ended: the exit code of the agent, if it is known
	Lacks   Lack      // Pending: what keeps the place from starting
	Since   time.Time // when it was made, began or ended; of a place that lacks room, since when
}

// Lack is what a pending place does not get.
type Lack string

// What a place may lack. Only UsableImage is a failure of the stack: the others pass without
// a change of it.
const (
	Room        Lack = "Room"        // no machine has room for the place
	Image       Lack = "Image"       // the registry of an image does not answer, or the operator chose an image that the registry does not give
	UsableImage Lack = "UsableImage" // the stack names an image that its registry does not give
)

// Identify finds the place that a credential was given to. It is Denied when the
// credential is no valid one for this purpose, and any other error says that the
// answer is not known now. Namespace, Name and UID of the place are those that the
// credential proves.
type Identify func(ctx context.Context, token string) (Place, error)
