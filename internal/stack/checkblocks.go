package stack

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// CheckBlocks are the results of the check blocks of a module, as an engine found
// them. A check block never prevents an apply.
type CheckBlocks struct {
	Failed  []FailedCheckBlock `json:"failed,omitempty"`  // the first ones by address
	More    int                `json:"more,omitempty"`    // others that failed
	Unknown []string           `json:"unknown,omitempty"` // addresses of those with a result that is known after an apply
}

// FailedCheckBlock is one instance of a check block that failed.
type FailedCheckBlock struct {
	Address string `json:"address"`
	Message string `json:"message,omitempty"` // without secrets
}

// FailingCheckBlocks are the check blocks of a stack that failed when they were
// evaluated last.
type FailingCheckBlocks struct {
	Since  time.Time          `json:"since"` // at least one fails since then
	Failed []FailedCheckBlock `json:"failed"`
	More   int                `json:"more,omitempty"`
}

// Count is how many instances of check blocks fail.
func (f FailingCheckBlocks) Count() int { return len(f.Failed) + f.More }

// String names the check blocks, with their messages.
func (f FailingCheckBlocks) String() string {
	text := "1 check block fails: "
	if n := f.Count(); n != 1 {
		text = fmt.Sprintf("%d check blocks fail: ", n)
	}
	var parts []string
	for _, b := range f.Failed {
		parts = append(parts, b.String())
	}
	if f.More > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", f.More))
	}
	return text + strings.Join(parts, "; ")
}

// String is the address of the check block, and what it says.
func (b FailedCheckBlock) String() string {
	if b.Message == "" {
		return b.Address
	}
	return b.Address + ": " + b.Message
}

// newAmong reports whether f has a check block that did not fail before.
func (f FailingCheckBlocks) newAmong(was *FailingCheckBlocks) bool {
	return was == nil || f.Count() > was.Count() || slices.ContainsFunc(f.Failed, func(b FailedCheckBlock) bool { return !was.has(b.Address) })
}

func (f FailingCheckBlocks) has(address string) bool {
	return slices.ContainsFunc(f.Failed, func(b FailedCheckBlock) bool { return b.Address == address })
}

// evaluated folds the results of a run at that time. Nil results say nothing. What a
// plan does not know yet stays as it was. The same results leave f as it is.
func (f *FailingCheckBlocks) evaluated(found *CheckBlocks, at time.Time) *FailingCheckBlocks {
	if found == nil {
		return f
	}
	is := FailingCheckBlocks{Since: at, Failed: slices.Clone(found.Failed), More: found.More}
	if f != nil {
		is.Since = f.Since
		for _, b := range f.Failed {
			if slices.Contains(found.Unknown, b.Address) {
				is.Failed = append(is.Failed, b)
			}
		}
	}
	if is.Count() == 0 {
		return nil
	}
	if f != nil && is.More == f.More && slices.Equal(is.Failed, f.Failed) {
		return f
	}
	return &is
}
