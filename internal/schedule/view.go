package schedule

import (
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Place is where an object stands that waits for its run.
type Place struct {
	Class  string    `json:"class"`
	Tenant string    `json:"tenant"`
	Since  time.Time `json:"since"`
	Before int       `json:"before"` // runs of its tenant that come first: more urgent ones, and those that asked earlier
	Others int       `json:"others"` // runs of other tenants that wait in classes as urgent or more; they take turns with its own
	Why    string    `json:"why"`
	Called bool      `json:"called,omitempty"` // it is its turn, and it is about to start
}

// Backlog is the queue of runs at one moment, in numbers.
type Backlog struct {
	Running      int             `json:"atWork"`
	MaxRuns      int             `json:"maxRuns"`
	MaxPerTenant int             `json:"maxRunsPerTenant,omitempty"` // 0 is no limit
	Memory       int64           `json:"memory"`                     // bytes that the runs are charged
	MaxMemory    int64           `json:"maxMemory,omitempty"`        // 0 is no limit
	Waiting      int             `json:"waiting"`
	OldestSince  time.Time       `json:"oldestSince,omitzero"` // since when the oldest request waits
	Classes      []ClassBacklog  `json:"classes"`              // all of them, most urgent first
	Tenants      []TenantBacklog `json:"tenants"`              // those that have something here, by name
}

// ClassBacklog is the part of one class.
type ClassBacklog struct {
	Class       string    `json:"class"` // apply, person, spec, upstream or drift
	Running     int       `json:"atWork"`
	MaxRuns     int       `json:"maxRuns,omitempty"` // 0 is no limit
	Waiting     int       `json:"waiting"`
	OldestSince time.Time `json:"oldestSince,omitzero"`
}

// TenantBacklog is the part of one tenant.
type TenantBacklog struct {
	Tenant      string         `json:"tenant"`
	Running     int            `json:"atWork"`
	Memory      int64          `json:"memory"`
	Waiting     map[string]int `json:"waiting,omitempty"` // by class
	OldestSince time.Time      `json:"oldestSince,omitzero"`
}

// Line is the queue of runs by name.
type Line struct {
	Running []Turn `json:"atWork"`  // what started first comes first
	Waiting []Turn `json:"waiting"` // in the order in which they would start if no other request came
}

// Turn is one object in the queue: its run is running, or waits.
type Turn struct {
	UID       string        `json:"uid"`
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	StackKind string        `json:"stackKind,omitempty"` // as Key.Kind has it, or as users have it
	Kind      stack.RunKind `json:"kind"`                // of the run
	Class     string        `json:"class"`
	Tenant    string        `json:"tenant"`
	Memory    int64         `json:"memory"`             // bytes that the run is charged
	Asked     time.Time     `json:"asked"`              // since when it waits, or waited
	Started   time.Time     `json:"started,omitzero"`   // since when it is running
	Position  int           `json:"position,omitempty"` // 1 is next; 0 is running
	Ending    bool          `json:"ending,omitempty"`   // its run has ended, and its pod has not
	Called    bool          `json:"called,omitempty"`   // it is its turn, and it is about to start
	Why       string        `json:"why,omitempty"`      // it waits
}
