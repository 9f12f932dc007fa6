package runner

import (
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/plan"
)

func TestAboutProvider(t *testing.T) {
	const aws = "registry.opentofu.org/hashicorp/aws"
	for name, c := range map[string]struct {
		d    plan.Diagnostic
		want bool
	}{
		"its configuration":             {plan.Diagnostic{Severity: "error", Summary: "configured twice", Address: `provider["` + aws + `"]`}, true},
		"another one's":                 {plan.Diagnostic{Severity: "error", Summary: "x", Address: `provider["registry.opentofu.org/hashicorp/awscc"]`}, false},
		"no contact":                    {plan.Diagnostic{Severity: "error", Summary: "Plugin did not respond", Detail: "The plugin crashed."}, true},
		"no schema":                     {plan.Diagnostic{Severity: "error", Summary: "Failed to load plugin schemas", Detail: "Reattachment process not found"}, true},
		"a resource":                    {plan.Diagnostic{Severity: "error", Summary: "creating bucket", Detail: "dial tcp 10.0.0.1:443: connect: connection refused", Address: "aws_x.y"}, false},
		"a syntax error":                {plan.Diagnostic{Severity: "error", Summary: "Unclosed configuration block", File: "main.tf"}, false},
		"a warning that sounds like it": {plan.Diagnostic{Severity: "warning", Summary: "Plugin did not respond"}, false},
	} {
		if got := aboutProvider(c.d, aws); got != c.want {
			t.Errorf("%s: aboutProvider() = %v, want %v", name, got, c.want)
		}
	}
}

func TestLastWords(t *testing.T) {
	for name, c := range map[string]struct{ written, want string }{
		"a panic":       {"2026/01/01 [DEBUG] secret talk\npanic: runtime error: x\n\ngoroutine 1 [running]:\n", "panic: runtime error: x\n\ngoroutine 1 [running]:"},
		"a fatal error": {"[DEBUG] x\nfatal error: all goroutines are asleep\n", "fatal error: all goroutines are asleep"},
		"anything else": {"no such region\n", "no such region"},
		"nothing":       {"", ""},
	} {
		p := &runningProvider{stderr: stderrTail{tail: tail{most: maxStderr}}}
		if _, err := p.stderr.Write([]byte(c.written)); err != nil {
			t.Fatal(err)
		}
		if got := p.lastOutput(); got != c.want {
			t.Errorf("%s: lastOutput() = %q, want %q", name, got, c.want)
		}
	}
}

func TestRefusalsEnd(t *testing.T) {
	p := &workDir{dir: t.TempDir()}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	old := engine.Locked{Address: "a.b/c/d", Version: "1.0.0"}
	other := engine.Locked{Address: "a.b/c/e", Version: "1.0.0"}
	for l, f := range map[*engine.Locked]refusal{&old: {Reason: "crashed"}, &other: {Reason: "slow", Until: now.Add(time.Hour)}} {
		if err := p.refuse(*l, f); err != nil {
			t.Fatal(err)
		}
	}
	all, err := p.refusals()
	if err != nil {
		t.Fatal(err)
	}
	if !all.holds(old, now.AddDate(9, 0, 0)) || !all.holds(other, now) || all.holds(other, now.Add(2*time.Hour)) {
		t.Errorf("refusals = %+v", all)
	}
	fresh := engine.Locked{Address: "a.b/c/d", Version: "1.0.1"}
	if all.holds(fresh, now) {
		t.Error("a new version is refused for what an old one did")
	}
	if err := p.refuse(fresh, refusal{Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	if all, err = p.refusals(); err != nil || len(all) != 2 {
		t.Errorf("refusals = %+v, %v, want the old version forgotten", all, err)
	}
}
