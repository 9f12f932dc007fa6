package service

import "time"

// CapacityInfo is whether every stack can be looked at as often as it asks for.
type CapacityInfo struct {
	Stacks      int           `json:"stacks"`      // that are looked at by themselves
	SlotsNeeded float64       `json:"slotsNeeded"` // runs at once that keep up with them: the sum of run time by interval
	Slots       int           `json:"slots"`       // runs that there may be at once
	RunSeconds  float64       `json:"runSeconds"`  // of one look, on average
	Measured    int           `json:"measured"`    // stacks whose run time is known; others count as the average
	Interval    time.Duration `json:"interval"`    // between two looks at one stack, on average; nanoseconds
	Cycle       time.Duration `json:"cycle"`       // how long it takes to look at all of them once with all slots; nanoseconds
	CycleMet    bool          `json:"cycleMet"`
	Warning     string        `json:"warning,omitempty"` // what to do if it is not
}
