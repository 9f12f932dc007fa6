package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A stack that is applied by a script without a plan has no empty names, and its failure
// shows the exit code and each line of the script.
func TestStacksOfScriptsAreDescribed(t *testing.T) {
	const failure = "exit code 3: creating the bucket\naccess denied"
	st := query.Stack{
		Name: "site", Namespace: "net", Ready: "False", Phase: string(stack.RetryLater), Message: failure, Failures: 1,
		Applied: &query.PlanInfo{Revision: "main@sha1:1"},
	}
	var out bytes.Buffer
	p := stackCommands{newProgram(Env{Stdout: &out, Now: func() time.Time { return time.Unix(1e9, 0) }})}
	p.write(p.detail(described{Detail: query.Detail{
		Stack: st, Failure: &query.Failure{Kind: stack.ScriptRun, Step: "script", Message: failure},
		Conditions: []query.Condition{
			{Type: "Ready", Status: "False", Reason: "TFExecApplyFailed", Message: failure},
			{Type: "FieldsIgnored", Status: "True", Reason: "NoEffect", Message: "Terrier ignores these fields, which have no effect: spec.environment"},
		},
	}}))
	text := out.String()
	for _, want := range []string{
		"Applied:        by the script, without a plan main@sha1:1\n", "Step:           script\n",
		"Message:        exit code 3: creating the bucket | access denied\n", "Terrier ignores these fields, which have no effect: spec.environment\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("describe does not say %q:\n%s", want, text)
		}
	}
	if got, want := strings.Count(text, "access denied"), 2; got != want {
		t.Errorf("describe has the message %d times, want %d: of the status and of the failure", got, want)
	}
}

// The list shows how a failure began and what its cause is, which comes last.
func TestTheListShowsTheCauseOfAFailure(t *testing.T) {
	message := "Source is not ready, artifact not found: GitRepository net/alustan-site: GitOperationFailed: reading https://git.example/site: no such host"
	got := stackMessage(listView{}, query.Stack{Ready: "False", Message: message}).text
	if !strings.HasPrefix(got, "Source is not ready") || !strings.HasSuffix(got, "no such host") || len([]rune(got)) > messageWidth {
		t.Errorf("the list says %q, want the beginning and the cause in %d characters", got, messageWidth)
	}
	if got, want := stackMessage(listView{}, query.Stack{Ready: "False", Message: "exit code 3: creating\ndenied"}).text, "exit code 3: creating | denied"; got != want {
		t.Errorf("the list says %q, want %q", got, want)
	}
}
