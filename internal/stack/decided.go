package stack

import (
	"encoding/json"
	"time"
)

// Decided is one decision about a stack, kept for people to read. It stands until
// the next one.
type Decided struct {
	At         time.Time `json:"at"`
	Phase      string    `json:"phase"` // a Reason
	Rule       string    `json:"rule"`
	Message    string    `json:"message,omitempty"`
	WaitingFor string    `json:"waitingFor,omitempty"` // what has to come about before the stack goes on
}

// UnmarshalJSON reads a decision, also one whose reason had another name then.
func (d *Decided) UnmarshalJSON(b []byte) error {
	type plain Decided
	if err := json.Unmarshal(b, (*plain)(d)); err != nil {
		return err
	}
	d.Phase = string(ParseReason(d.Phase))
	return nil
}
