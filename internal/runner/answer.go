package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// startAnswer is the supervisor's one answer to the process that started it:
// whether the run has started, and if not, the kind of failure.
type startAnswer struct {
	OK     bool          `json:"ok"`
	Kind   fault.Kind    `json:"kind,omitempty"`
	Reason string        `json:"reason,omitempty"`
	After  time.Duration `json:"after,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// sendAnswer writes the supervisor's answer to w. An error is dropped: a
// starter that is gone finds the run by itself.
func sendAnswer(w io.Writer, err error) {
	a := startAnswer{OK: err == nil}
	if err != nil {
		a.Kind, a.Reason, a.Error = fault.Of(err), fault.Reason(err, ""), err.Error()
	}
	_ = json.NewEncoder(w).Encode(a)
}

// readAnswer is the other side of sendAnswer.
func readAnswer(answer []byte) error {
	var a startAnswer
	if err := json.Unmarshal(answer, &a); err != nil {
		return fmt.Errorf("the supervisor answered %.200q", answer)
	}
	if a.OK {
		return nil
	}
	return fault.New(a.Kind, a.Reason, errors.New(a.Error))
}
