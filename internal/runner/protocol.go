package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// The supervisor's one answer to whoever started it: whether the run is on its
// way, and if not, what kind of failure that is.
type word struct {
	OK     bool          `json:"ok"`
	Kind   fault.Kind    `json:"kind,omitempty"`
	Reason string        `json:"reason,omitempty"`
	After  time.Duration `json:"after,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// say writes the supervisor's answer to w. Its error is nobody's business: a
// starter that is gone will find the run by itself.
func say(w io.Writer, err error) {
	a := word{OK: err == nil}
	if err != nil {
		a.Kind, a.Reason, a.Error = fault.Of(err), fault.Reason(err, ""), err.Error()
	}
	_ = json.NewEncoder(w).Encode(a)
}

// answered is the other side of say.
func answered(answer []byte) error {
	var a word
	if err := json.Unmarshal(answer, &a); err != nil {
		return fmt.Errorf("the supervisor answered %.200q", answer)
	}
	if a.OK {
		return nil
	}
	return fault.New(a.Kind, a.Reason, errors.New(a.Error))
}
