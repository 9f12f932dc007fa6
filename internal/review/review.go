// Package review asks reviewers what they think of a plan before it counts. They are the
// policies of the operator and the webhooks of its object. A reviewer passes the plan, holds it until a
// person approves it, or refuses it. What follows from the answer is decided by
// package stack; this package changes nothing.
//
// To add a reviewer: implement Reviewer, here or elsewhere, and return it from
// Reviewers.Of.
//
// Start reading at Ask; Pool has questions asked beside the reconciles.
package review

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Reviewer says what it thinks of a plan.
type Reviewer interface {
	// Sees is the document of the plan that the reviewer is shown. The stack has a say
	// in it only for the reviewers that its object names.
	Sees() Document
	// Review returns the answer. The error says why there is none: the plan does
	// not count, and the reviewer is asked again after the retry interval. With Busy it is
	// asked again at once.
	Review(context.Context, *Plan) (Answer, error)
}

// Busy is the error of a reviewer that had no time for a question, and did not begin with it.
type Busy struct{ Why error }

// Error implements error.
func (b Busy) Error() string { return b.Why.Error() }

// Unwrap returns why.
func (b Busy) Unwrap() error { return b.Why }

// Document is one of the documents of a plan, by its name among the records.
type Document string

// The documents of a plan, without and with the secrets in it.
const (
	Masked   Document = "plan.json"
	Unmasked Document = "plan-raw.json"
)

// Answer is what a reviewer thinks of a plan. The zero value passes it.
type Answer struct {
	Outcome Outcome
	Why     string // of Hold and Refuse, for the user

	Findings []policy.Finding // of policies
	Policies []policy.Judge   // the policies that were asked, for the record
	Input    string           // digest of what they were shown
}

// Outcome is one of the three answers.
type Outcome int

// The three answers.
const (
	Pass   Outcome = iota
	Hold           // the plan needs an approval, also in a stack that approves plans by itself
	Refuse         // the plan must not be applied
)

// Bounds of asking.
const (
	reviewsDeadline = time.Minute // of all reviewers of one stack
	documentBytes   = 64 << 20    // of the document of a plan that is sent
	verdictBytes    = 2 << 10     // of the message that is kept
	findingBytes    = 1 << 10     // of the message of one finding
)

// Plan is what reviewers are asked about.
type Plan struct {
	Digest   string
	Destroys int                        // as the engine counted them
	Source   string                     // digest of the module tree that it was made from
	Object   map[string]json.RawMessage // the stack, as the API server has it

	// Open opens a document of the plan. Its error is Missing if the document is not
	// among the records any more.
	Open func(context.Context, Document) (io.ReadCloser, error)

	sees   Document // of the reviewer that is asked
	lost   error    // the document is not among the records any more
	bodies map[sent][]byte
}

// sent is what the body of a webhook is made from.
type sent struct {
	Document
	stack.Payload
}

// Document returns the document that the reviewer sees. Reviewers read it here and not
// by Open: a document that is gone makes the plan a lost one, which is made again.
func (p *Plan) Document(ctx context.Context) ([]byte, error) {
	r, err := p.Open(ctx, p.sees)
	if fault.Of(err) == fault.Missing {
		p.lost = err
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, documentBytes+1))
	if err == nil && len(b) > documentBytes {
		err = fmt.Errorf("the plan is a document of more than %d MiB, which no reviewer is sent", documentBytes>>20)
	}
	return b, err
}

// body is what a webhook is sent. It is made once for all webhooks that are sent
// the same.
func (p *Plan) body(ctx context.Context, kind stack.Payload) ([]byte, error) {
	key := sent{p.sees, kind}
	if body := p.bodies[key]; body != nil {
		return body, nil
	}
	body, err := p.payload(ctx, kind)
	if err == nil {
		if p.bodies == nil {
			p.bodies = map[sent][]byte{}
		}
		p.bodies[key] = body
	}
	return body, err
}

// payload is what upstream sends: the object with nothing but the plan as its
// status, the object without one, or the plan.
func (p *Plan) payload(ctx context.Context, kind stack.Payload) ([]byte, error) {
	object := map[string]json.RawMessage{}
	for name, part := range p.Object {
		if name != "status" {
			object[name] = part
		}
	}
	if kind == stack.SpecOnly {
		return encoded(object)
	}
	document, err := p.Document(ctx)
	if err != nil || kind == stack.PlanAlone {
		return document, err
	}
	if object["status"], err = encoded(map[string]json.RawMessage{"tfplan": document}); err != nil {
		return nil, err
	}
	return encoded(object)
}

// encoded is v as JSON, with < and > left as they are.
func encoded(v map[string]json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// Question is what the reviewers of a stack are asked. It holds all that it
// takes to ask: by then the reconcile that asked is over.
type Question struct {
	Stack     string // its UID
	Namespace string // whose reviewers these are
	ID        string // the same for the same question after the same past
	Wake      func() // the question was answered; must not call back into the pool

	Plan      *Plan
	By        string // digest of the reviewers
	Inside    bool   // they are policies only: they answer soon, and none of them waits for another system
	Reviewers []Reviewer
	Hide      *plan.Redactor
}

// Reply is what came of a question.
type Reply struct {
	Verdict stack.Verdict
	Judged  *policy.Judgement // all that policies said; nil if there are none
	Lost    error             // the plan is not among the records any more
	Unasked bool              // a reviewer was busy: the question is to be asked again
}

// Ask asks one reviewer after the other until one refuses the plan or does not
// answer. All policies together are one reviewer. A plan that one of them holds is held if none of the others refuses
// it.
func Ask(ctx context.Context, q Question, now func() time.Time) Reply {
	ctx, cancel := context.WithTimeoutCause(ctx, reviewsDeadline, fmt.Errorf("all reviewers together took longer than %v", reviewsDeadline))
	defer cancel()
	v := stack.Verdict{Plan: q.Plan.Digest, By: q.By, Passed: true}
	var judged *policy.Judgement
	for _, r := range q.Reviewers {
		q.Plan.sees = r.Sees()
		answer, err := r.Review(ctx, q.Plan)
		if q.Plan.lost != nil {
			return Reply{Lost: q.Plan.lost}
		}
		if _, busy := errors.AsType[Busy](err); busy {
			return Reply{Unasked: true}
		}
		if len(answer.Policies) > 0 {
			judged = &policy.Judgement{Plan: v.Plan, By: v.By, Policies: answer.Policies, Input: answer.Input, Findings: policy.Bounded(q.hidden(answer.Findings))}
			if len(judged.Findings) > len(answer.Findings) {
				answer.Outcome, answer.Why = Refuse, policy.Text(policy.Deny, judged.Findings)
			}
		}
		if err != nil {
			v.Passed, v.Held, v.Message = false, false, err.Error()
			break
		}
		if answer.Outcome == Refuse {
			v.Passed, v.Held, v.Refused, v.Message = false, false, true, answer.Why
			break
		}
		if answer.Outcome == Hold && !v.Held {
			v.Passed, v.Held, v.Message = false, true, answer.Why
		}
	}
	v.Message, v.At = shown(q.Hide.String(v.Message), verdictBytes), now()
	if judged != nil {
		judged.At = v.At
		v.Digest = policy.Digest(judged.Findings)
		v.Allowed = v.Passed && len(policy.With(policy.Allow, judged.Findings)) > 0
		v.Findings, v.More = policy.Keep(judged.Findings)
	}
	return Reply{Verdict: v, Judged: judged}
}

// hidden are findings without secrets, sorted.
func (q Question) hidden(findings []policy.Finding) []policy.Finding {
	out := slices.Clone(findings)
	for i := range out {
		f := &out[i]
		f.Message = shown(q.Hide.String(f.Message), findingBytes)
		f.Rule, f.Link = shown(q.Hide.String(f.Rule), findingBytes), shown(q.Hide.String(f.Link), findingBytes)
		f.Addresses = slices.Clone(f.Addresses)
		for j, a := range f.Addresses {
			f.Addresses[j] = shown(q.Hide.String(a), findingBytes)
		}
	}
	policy.Sort(out)
	return out
}

// shown is text from outside as a message: of one size, and without what would
// move a terminal's cursor.
func shown(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
