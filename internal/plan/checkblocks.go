package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Bounds of what is kept of check blocks.
const (
	mostCheckBlocks  = 20   // failed ones
	mostUnknown      = 200  // addresses
	mostCheckMessage = 1000 // bytes
)

// wireCheck is a checkable object in a plan: a check block, or another one with
// conditions. Those of others fail the plan.
type wireCheck struct {
	Address struct {
		Kind string `json:"kind"`
	} `json:"address"`
	Instances []struct {
		Address struct {
			Display string `json:"to_display"`
		} `json:"address"`
		Status   string `json:"status"`
		Problems []struct {
			Message string `json:"message"`
		} `json:"problems"`
	} `json:"instances"`
}

// CheckBlocks are the results of the check blocks, without what hide knows and the
// values that the document marks as sensitive.
func (d *Document) CheckBlocks(hide ...*Redactor) stack.CheckBlocks {
	c := checkResults{hide: append(hide, d.hide)}
	for _, b := range d.wire.CheckBlocks {
		if b.Address.Kind != kindCheck {
			continue
		}
		for _, i := range b.Instances {
			var messages []string
			for _, p := range i.Problems {
				messages = append(messages, p.Message)
			}
			c.add(i.Address.Display, i.Status, messages)
		}
	}
	return c.results()
}

// CheckBlocksOfState are the results of the check blocks that the last apply left in
// a state, without what hide knows.
func CheckBlocksOfState(state []byte, hide ...*Redactor) (stack.CheckBlocks, error) {
	var s struct {
		Results []struct {
			Kind    string `json:"object_kind"`
			Objects []struct {
				Address  string   `json:"object_addr"`
				Status   string   `json:"status"`
				Messages []string `json:"failure_messages"`
			} `json:"objects"`
		} `json:"check_results"`
	}
	if err := json.Unmarshal(state, &s); err != nil {
		return stack.CheckBlocks{}, fmt.Errorf("reading the check blocks in the state: %w", err)
	}
	c := checkResults{hide: hide}
	for _, r := range s.Results {
		if r.Kind != kindCheck {
			continue
		}
		for _, o := range r.Objects {
			c.add(o.Address, o.Status, o.Messages)
		}
	}
	return c.results(), nil
}

// kindCheck is what documents call check blocks.
const kindCheck = "check"

// checkResults collects the results of check blocks.
type checkResults struct {
	stack.CheckBlocks
	hide []*Redactor
}

func (c *checkResults) add(address, status string, messages []string) {
	switch status {
	case "fail", "error":
		slices.Sort(messages) // the engine evaluates the assertions of one check block in no order
		message := strings.Join(messages, ", ")
		for _, h := range c.hide {
			message = h.String(message) // while it is whole
		}
		message = strings.Join(strings.Fields(message), " ")
		c.Failed = append(c.Failed, stack.FailedCheckBlock{Address: address, Message: fault.Shorten(message, mostCheckMessage)})
	case "unknown":
		c.Unknown = append(c.Unknown, address)
	}
}

// results are the collected results, in the order of the addresses.
func (c *checkResults) results() stack.CheckBlocks {
	slices.SortFunc(c.Failed, func(a, b stack.FailedCheckBlock) int { return cmp.Compare(a.Address, b.Address) })
	slices.Sort(c.Unknown)
	c.More = max(0, len(c.Failed)-mostCheckBlocks)
	c.Failed, c.Unknown = c.Failed[:len(c.Failed)-c.More], c.Unknown[:min(len(c.Unknown), mostUnknown)]
	return c.CheckBlocks
}

// ofCheckBlock reports whether a check block may have caused a diagnostic: all that
// goes wrong in one is a warning. A warning without a place in the module may be of
// a data source in a check block.
func (d wireDiagnostic) ofCheckBlock() bool {
	if d.Severity != "warning" {
		return false
	}
	if d.Snippet == nil {
		return true
	}
	return strings.HasPrefix(d.Snippet.Context, `check "`) || strings.HasPrefix(d.Snippet.Context, "check.") || // the latter in JSON
		strings.HasPrefix(d.Summary, "Check block assertion ")
}
