package clienttest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// drifted is the document of a plan that would set a size back.
const drifted = `{"format_version":"1.2","resource_changes":[{"address":"t.a","mode":"managed","type":"t","name":"a","change":{"actions":["update"],"before":{"size":5},"after":{"size":3},"after_unknown":{},"before_sensitive":{},"after_sensitive":{}}}]}`

// acceptsDrift has the source of net in the records, and drift of it.
func acceptsDrift(t *testing.T, w *World, s Subject) {
	_, err := s.Stacks.ProposeDrift(t.Context(), w.key("net"), query.DriftOrder{})
	want(t, "no drift", err, fault.Missing, query.ReasonNoDrift)
	_, err = s.Stacks.AcceptDrift(t.Context(), w.key("net"), command.AcceptDriftOrder{})
	want(t, "no drift to accept", err, fault.Missing, query.ReasonNoDrift)

	dir := t.TempDir()
	done(t, "making the source", os.MkdirAll(filepath.Join(dir, "net"), 0o700))
	done(t, "writing the source", os.WriteFile(filepath.Join(dir, "net", "main.tf"), []byte("resource \"t\" \"a\" {\n  size = 3 # few\n}\n"), 0o600))
	var tree bytes.Buffer
	done(t, "packing the source", archive.Pack(dir, nil, &tree, archive.Limits{}))
	pending := planOf(shown)
	pending.PlanInputs.Source, pending.Drift = "sha256:"+strings.Repeat("ef", 32), true
	w.status(t, stack.Status{Plans: stack.Plans{Pending: pending}, Resources: stack.Resources{Drift: &stack.Drift{Changes: shown.Changes}}}, nil)
	w.put(t, record.Plan(w.id(t).UID, shown.Digest, runner.FilePlanDoc), drifted)
	_, err = s.Stacks.ProposeDrift(t.Context(), w.key("net"), query.DriftOrder{})
	want(t, "a source that is not kept", err, fault.Missing, query.ReasonNoSource)
	w.put(t, record.Tree(pending.PlanInputs.Source), tree.String())

	got := must(s.Stacks.ProposeDrift(t.Context(), w.key("net"), query.DriftOrder{Addresses: []string{"t.a"}, Attributes: []string{"size"}}))(t)
	if got.Digest != shown.Digest || !strings.Contains(got.Patch, "+++ b/net/main.tf\n") || !strings.Contains(got.Patch, "-  size = 3 # few\n+  size = 5 # few\n") || len(got.Edits) != 1 || len(got.Open) != 0 {
		t.Errorf("ProposeDrift() = %+v, want the edit of one line", got)
	}
	ignored := must(s.Stacks.ProposeDrift(t.Context(), w.key("net"), query.DriftOrder{IgnoreChanges: true}))(t)
	if !strings.Contains(ignored.Patch, "+    ignore_changes = [size]\n") {
		t.Errorf("ProposeDrift() = %+v, want that the engine ignores the attribute", ignored)
	}
	_, err = s.Stacks.ProposeDrift(t.Context(), w.key("net"), query.DriftOrder{Addresses: []string{"t.b"}})
	want(t, "what did not drift", err, fault.Invalid, "NotDrifted")

	_, err = s.Stacks.AcceptDrift(t.Context(), w.key("net"), command.AcceptDriftOrder{Digest: other.Digest})
	want(t, "other drift than was seen", err, fault.Conflict, command.ReasonOtherDrift)
	_, err = s.Stacks.AcceptDrift(t.Context(), w.key("net"), command.AcceptDriftOrder{HoldSeconds: 8 * 24 * 3600})
	want(t, "a hold that is too long", err, fault.Invalid, "HoldInvalid")
	_, err = s.Stacks.AcceptDrift(t.Context(), w.key("net"), command.AcceptDriftOrder{Branch: "a..b"})
	want(t, "no name of a branch", err, fault.Invalid, "BranchInvalid")
	accepted := must(s.Stacks.AcceptDrift(t.Context(), w.key("net"), command.AcceptDriftOrder{Digest: shown.Digest, Reason: "resized\nmanually"}))(t)
	said, ok := stack.ParseAcceptedDrift(w.object(t, "net").Annotations[dialect.AcceptDrift])
	if !ok || said.Plan != shown.Digest || !said.Until.Equal(accepted.Until) || said.Why != "resized manually" || !accepted.Until.After(w.Now()) || said.Ignored {
		t.Errorf("accepted is %+v, and the object says %+v", accepted, said)
	}
	must(s.Stacks.AcceptDrift(t.Context(), w.key("net"), command.AcceptDriftOrder{Digest: shown.Digest, DriftOrder: query.DriftOrder{IgnoreChanges: true}}))(t)
	if said, ok := stack.ParseAcceptedDrift(w.object(t, "net").Annotations[dialect.AcceptDrift]); !ok || !said.Ignored || said.Why != "" {
		t.Errorf("the object says %+v, want that the engine is to ignore the attributes", said)
	}
}
