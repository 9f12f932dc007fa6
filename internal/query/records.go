package query

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/logfile"
	"github.com/terrier-iac/terrier/internal/stack"
)

// StackID names a stack to the records: by its key where they are asked for
// over the network, by its identity where they are kept. Without a UID it is a stack that was
// deleted, of which only the last run is known.
type StackID struct {
	Key
	UID string

	// In is the namespace that has the name now. Of a deleted stack nothing is found that was in
	// a former namespace of that name: its new users may be others.
	In kube.Namespace
	// Former finds a deleted stack in whatever namespace of that name it was. The user of the
	// caller has the right in all namespaces.
	Former bool
}

// Report is what a run says of itself.
type Report = runner.Report

// Records are the records of runs. The error for an absent one is Missing.
type Records interface {
	// Runs returns what the runs of a stack say of themselves, newest first.
	Runs(ctx context.Context, id StackID) ([]Report, error)
	// Run returns what one run says of itself.
	Run(ctx context.Context, id StackID, run string) (Report, error)
	// Log opens the log of a run.
	Log(ctx context.Context, id StackID, run string, o LogOptions) (io.ReadCloser, error)
	// Plan opens the document of a plan, its sensitive values masked.
	Plan(ctx context.Context, id StackID, digest string) (io.ReadCloser, error)

	StateRecords
	StateCipher
	SecretRecords
	UsesRecords
	VerdictRecords
	AppliedRecords
	DriftRecords
}

// AppliedPlan is a plan that was applied, with what it used.
type AppliedPlan struct {
	PlanInfo
	AppliedAt time.Time    `json:"appliedAt"`
	Uses      *usage.Usage `json:"uses,omitempty"` // nil if it is not known
}

// AppliedRecords know the plans that were applied.
type AppliedRecords interface {
	// Applied returns the plans that a stack applied last, the newest first: those whose
	// documents are kept.
	Applied(ctx context.Context, id StackID) ([]AppliedPlan, error)
}

// Applied implements Records.
func (b *Blobs) Applied(ctx context.Context, id StackID) ([]AppliedPlan, error) {
	if id.UID == "" {
		return nil, nil // of a deleted stack no plan is kept
	}
	if err := CheckID(id, "any"); err != nil {
		return nil, err
	}
	kept, err := b.store.Get(ctx, record.Applied(id.UID).Key)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	var all []record.AppliedPlan
	if err == nil {
		all, err = record.Applied(id.UID).Decode(kept)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the plans that the stack %s applied: %w", id.Key, err)
	}
	var out []AppliedPlan
	for _, a := range all {
		one := AppliedPlan{PlanInfo: *PlanInfoOf(&a.Plan), AppliedAt: a.At}
		b, err := b.store.Get(ctx, record.Plan(id.UID, a.Plan.Digest, record.UsesFile))
		if err == nil {
			if found, err := usage.Parse(b); err == nil {
				one.Uses = &found
			}
		} else if reason := fault.Reason(err, ""); fault.Of(err) != fault.Missing && reason != blob.Damaged && reason != blob.KeyUnknown {
			return nil, fmt.Errorf("reading what the plan %s of the stack %s uses: %w", a.Plan.Name, id.Key, err)
		}
		out = append(out, one)
	}
	return out, nil
}

// Applied returns the plans that a stack applied last, the newest first.
func (s *Stacks) Applied(ctx context.Context, key Key) ([]AppliedPlan, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return nil, err
	}
	st := View(o)
	return s.Objects.Records.Applied(ctx, st.ID())
}

// VerdictRecords know what policies said of plans.
type VerdictRecords interface {
	// Verdict returns what policies found in a plan that is kept. It is Missing if no policy
	// judged the plan.
	Verdict(ctx context.Context, id StackID, digest string) (Verdict, error)
}

// Verdict implements Records.
func (b *Blobs) Verdict(ctx context.Context, id StackID, digest string) (Verdict, error) {
	if id.UID == "" {
		return Verdict{}, noVerdict(id, digest) // of a deleted stack no plan is kept
	}
	if err := errors.Join(CheckID(id, "any"), checkDigest(digest)); err != nil {
		return Verdict{}, err
	}
	kept, err := b.store.Get(ctx, record.Verdict(id.UID, digest).Key)
	if fault.Of(err) == fault.Missing {
		return Verdict{}, noVerdict(id, digest)
	}
	var j policy.Judgement
	if err == nil {
		j, err = record.Verdict(id.UID, digest).Decode(kept)
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("reading the verdict about the plan %s: %w", digest, err)
	}
	v := Verdict{Effect: policy.Combine(j.Findings), At: j.At}
	v.Findings, v.More = policy.Keep(j.Findings)
	return v, nil
}

func noVerdict(id StackID, digest string) error {
	return fault.New(fault.Missing, ReasonNoVerdict, fmt.Errorf("no policy judged the plan %s of the stack %s, or its record is not kept any more", digest, id.Key))
}

// Verdict returns what policies find in a plan of a stack, or found in it before it was
// applied. It is nil if they found nothing.
func (s *Stacks) Verdict(ctx context.Context, key Key, digest string) (*Verdict, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return nil, err
	}
	st := View(o)
	if st.Plan != nil && st.Plan.Digest == digest {
		return st.Verdict, nil
	}
	return s.kept(ctx, st.ID(), digest)
}

// kept is the verdict about a plan that is not pending, nil if policies found nothing.
func (s *Stacks) kept(ctx context.Context, id StackID, digest string) (*Verdict, error) {
	v, err := s.Objects.Records.Verdict(ctx, id, digest)
	if fault.Of(err) == fault.Missing || err == nil && len(v.Findings) == 0 {
		return nil, nil
	}
	return &v, err
}

// UsesRecords know the modules and providers that stacks use.
type UsesRecords interface {
	// Uses returns what a stack uses. It is Missing while no run has found it out.
	Uses(ctx context.Context, id StackID) (usage.Record, error)
}

// Uses implements Records.
func (b *Blobs) Uses(ctx context.Context, id StackID) (usage.Record, error) {
	if err := CheckID(id, "any"); err != nil {
		return usage.Record{}, err
	}
	kept, err := b.store.Get(ctx, record.Uses(id.UID).Key)
	var r usage.Record
	if err == nil {
		r, err = record.Uses(id.UID).Decode(kept)
		if err != nil {
			err = fault.New(fault.Missing, blob.Damaged, err)
		}
	}
	// A record that cannot be read is written again by the next run that finds out.
	if reason := fault.Reason(err, ""); fault.Of(err) == fault.Missing || reason == blob.Damaged || reason == blob.KeyUnknown {
		return usage.Record{}, fault.New(fault.Missing, ReasonNoUses, fmt.Errorf("it is not known yet which modules and providers the stack %s uses: the next run that initialises its directory finds out. To start one: terrier replan %s -n %s", id.Key, id.Argument(), id.Namespace))
	}
	if err != nil {
		return usage.Record{}, fmt.Errorf("reading what the stack %s uses: %w", id.Key, err)
	}
	return r, nil
}

// Uses returns the modules and providers that a stack uses.
func (s *Stacks) Uses(ctx context.Context, key Key) (usage.Record, error) {
	st, err := s.Get(ctx, key)
	if err != nil {
		return usage.Record{}, err
	}
	return s.Objects.Records.Uses(ctx, st.ID())
}

// LogOptions say how a log is read.
type LogOptions struct {
	Follow     bool // reading goes on until the run has ended
	Timestamps bool // each line begins with its time, as logfile.Read has it
}

// CutLogTime cuts a line of a log that was read with its timestamps into its time,
// empty if it is not known, and its text.
func CutLogTime(line string) (at, text string) { return logfile.CutTime(line) }

// SecretRecords know the values from Secrets that a stack was given.
type SecretRecords interface {
	// SecretPrints recognise the values; those of a stack that was given none are
	// empty. While it is not known which values they are, there is an error.
	SecretPrints(ctx context.Context, id StackID) (plan.Prints, error)
}

// SecretPrints implements Records.
func (b *Blobs) SecretPrints(ctx context.Context, id StackID) (plan.Prints, error) {
	if err := CheckID(id, "any"); err != nil {
		return plan.Prints{}, err
	}
	get := func(key string) ([]byte, error) { return b.store.Get(ctx, key) }
	known, err := record.ReadSecrets(id.UID, get, record.SecretFaults{Damaged: blob.Damaged, KeyUnknown: blob.KeyUnknown})
	if fault.Of(err) == fault.Missing {
		return plan.Prints{}, nil
	}
	if err == nil && !known.Lost.IsZero() {
		err = fmt.Errorf("the record of them was damaged and is incomplete since %s; an apply of the whole stack completes it, or a plan or drift check of the whole stack that finds no changes: terrier replan asks for a plan, and with spec.targets none is of the whole stack", known.Lost.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return plan.Prints{}, fmt.Errorf("reading which values of %s came from Secrets: %w", id.Key, err)
	}
	return known.Prints()
}

// GoneFor is how long the last run of a deleted stack is kept.
const GoneFor = kube.RetainedFor

// Limits of what is read of records at once.
const (
	reportBytes   = 4 << 20
	DocumentBytes = 256 << 20
	runsShown     = 200
)

var (
	segment   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,126}[a-z0-9])?$`)
	planNamed = regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}$`)
)

// checkID refuses what cannot be part of a key, so that no name that comes from
// outside ever leads to the records of another stack.
func CheckID(id StackID, run string) error {
	for _, s := range []string{id.UID, run} {
		if !segment.MatchString(s) || strings.Contains(s, "..") {
			return fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("%.80q is not the name of a run or of a stack", s))
		}
	}
	return nil
}

func checkDigest(digest string) error {
	if !planNamed.MatchString(digest) {
		return fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("%.80q is not the digest of a plan", digest))
	}
	return nil
}

// decodeGone reads the last run of a deleted stack, and the origin of the stack, which is
// beside it in the record.
func decodeGone(r io.ReadCloser) (Report, kube.Origin, error) {
	raw, err := io.ReadAll(io.LimitReader(r, reportBytes))
	var origin kube.Origin
	if err = errors.Join(err, r.Close()); err == nil {
		err = json.Unmarshal(raw, &origin)
	}
	if err != nil {
		return Report{}, origin, fmt.Errorf("reading the report of a run: %w", err)
	}
	report, err := decodeReport(bytes.NewReader(raw))
	return report, origin, err
}

func decodeReport(r io.Reader) (Report, error) {
	var report Report
	if err := json.NewDecoder(io.LimitReader(r, reportBytes)).Decode(&report); err != nil {
		return Report{}, fmt.Errorf("reading the report of a run: %w", err)
	}
	return report, nil
}

// recorded is how the records know a stack: also one that was deleted, if its last run is kept.
func (s *Stacks) recorded(ctx context.Context, key Key) (StackID, error) {
	st, err := s.Get(ctx, key)
	if fault.Of(err) != fault.Missing {
		return st.ID(), err
	}
	gone := StackID{Key: key, Former: s.Former}
	if !s.Former {
		in, unknown := NamespacesIn(s.Kube)(ctx, key.Namespace)
		if fault.Reason(unknown, "") == ReasonNamespaces {
			return gone, err // it cannot be told whose the records are
		}
		if unknown != nil {
			return gone, unknown
		}
		gone.In = in
	}
	if _, unknown := s.Records.Runs(ctx, gone); unknown == nil {
		return gone, nil
	}
	return st.ID(), err
}

// Runs returns what the runs of a stack say of themselves, newest first. Of a deleted stack
// that is the last one.
func (s *Stacks) Runs(ctx context.Context, key Key) ([]Report, error) {
	id, err := s.recorded(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.Records.Runs(ctx, id)
}

// Run returns what one run says of itself: the newest if run is empty.
func (s *Stacks) Run(ctx context.Context, key Key, run string) (Report, error) {
	id, err := s.recorded(ctx, key)
	if err != nil {
		return Report{}, err
	}
	if run == "" {
		return s.newest(ctx, id)
	}
	return s.Records.Run(ctx, id, run)
}

// newest returns the report of the run that goes on, or of the last one.
func (s *Stacks) newest(ctx context.Context, id StackID) (Report, error) {
	runs, err := s.Records.Runs(ctx, id)
	if err != nil {
		return Report{}, err
	}
	if len(runs) == 0 {
		return Report{}, fault.New(fault.Missing, ReasonNoRuns, fmt.Errorf("nothing is known of any run of the stack %s", id.Key))
	}
	return runs[0], nil
}

// Log opens the log of a run of a stack: of the newest one if run is empty.
func (s *Stacks) Log(ctx context.Context, key Key, run string, o LogOptions) (io.ReadCloser, error) {
	id, err := s.recorded(ctx, key)
	if err != nil {
		return nil, err
	}
	if run == "" {
		report, err := s.newest(ctx, id)
		if err != nil {
			return nil, err
		}
		run = report.ID
	}
	return s.Records.Log(ctx, id, run, o)
}

// PlanDocument is a plan with what it says.
type PlanDocument struct {
	PlanInfo
	Waits    bool            `json:"waits"`             // it is neither applied nor replaced yet
	Verdict  *Verdict        `json:"verdict,omitempty"` // what policies find in it, or found before it was applied
	Document json.RawMessage `json:"document"`          // as the engine's show -json, sensitive values masked
}

// Plan returns a plan of a stack: the one with the given digest, or if that is
// empty the one that waits, else the one that was applied last.
func (s *Stacks) Plan(ctx context.Context, key Key, digest string) (PlanDocument, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return PlanDocument{}, err
	}
	st := View(o)
	info := st.Plan
	switch {
	case digest != "":
		info = &PlanInfo{Digest: digest}
		for _, p := range []*PlanInfo{st.Plan, st.Applied} {
			if p != nil && p.Digest == digest {
				info = p
			}
		}
	case info == nil:
		info = st.Applied
	}
	if (info == nil || info.Digest == "") && o.Spec.Script && o.Spec.Mode == stack.Auto {
		return PlanDocument{}, fault.New(fault.Missing, ReasonOnlyScript, fmt.Errorf("no plan of the stack %s is kept: its script is run without one", key))
	}
	if info == nil || info.Digest == "" {
		return PlanDocument{}, fault.New(fault.Missing, ReasonNoPlan, fmt.Errorf("no plan of the stack %s is kept", key))
	}
	doc, err := s.Document(ctx, st.ID(), *info)
	if err != nil {
		return doc, err
	}
	if doc.Waits = info == st.Plan; doc.Waits {
		doc.Verdict = st.Verdict
		return doc, nil
	}
	doc.Verdict, err = s.kept(ctx, st.ID(), info.Digest)
	return doc, err
}

// document reads the document of a plan that is known.
func (s *Stacks) Document(ctx context.Context, id StackID, info PlanInfo) (PlanDocument, error) {
	r, err := s.Records.Plan(ctx, id, info.Digest)
	if err != nil {
		return PlanDocument{}, err
	}
	raw, err := io.ReadAll(io.LimitReader(r, DocumentBytes))
	if err := errors.Join(err, r.Close()); err != nil {
		return PlanDocument{}, fmt.Errorf("reading the plan %s: %w", info.Name, err)
	}
	return PlanDocument{PlanInfo: info, Document: raw}, nil
}
