package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A provider may not take being kept: it crashes when it is configured a second
// time, or an engine cannot talk to it. A step that only reads is then run
// again with the engine starting the providers. If that helps, it stays so for
// the provider's version in this stack. An apply is never run again.

// execute runs one engine command. It returns an ending if the run cannot go on.
func (r *engineProcesses) execute(ctx context.Context, c command) (result, error) {
	before := len(r.journal.current().Diagnostics)
	res, err := r.once(ctx, c)
	e, failed := errors.AsType[ending](err)
	if !failed || r.providers.session == nil {
		return res, err
	}
	suspects := r.providers.suspects(&e, res.heard)
	if e.outcome != stack.Failed || len(suspects) == 0 {
		return res, e
	}
	reason := cut(e.message, maxText)
	if c.step == "apply" {
		if res.heard.began {
			return res, e
		}
		e.message += "\n\nNothing was changed. This may be because the providers were started before the engine; " +
			"from the next run on, the engine starts them itself."
		return res, errors.Join(e, r.providers.refuseAll(suspects, reason))
	}
	r.recorder.tell("Trying once more, with the engine starting the providers.")
	if err := r.providers.dismiss(); err != nil {
		return res, err
	}
	r.journal.note(func(rep *Report) { rep.Diagnostics = rep.Diagnostics[:before] })
	if c.out != nil {
		*c.out = capped{most: c.out.most}
	}
	if res, err = r.once(ctx, c); err != nil {
		return res, err
	}
	return res, r.providers.refuseAll(suspects, reason)
}

// suspects are the kept providers that may have made a step fail because they
// are kept. If some have crashed it is those, and the message says so.
func (r *providerProcesses) suspects(e *ending, h heard) []provider {
	var crashed []provider
	var patience time.Duration
	if slices.ContainsFunc(h.diagnostics, plan.Diagnostic.LostContact) {
		patience = deathTime // the engine may have ended before we heard of the provider's end
	}
	late, done := context.WithTimeout(context.Background(), patience)
	defer done()
	for _, p := range r.session.providers {
		if !p.serves || !p.diesBefore(late.Done()) {
			continue
		}
		crashed = append(crashed, p.provider)
		text := fmt.Sprintf("The provider %s ended early (%v).", p.Source(), p.exit)
		if last := p.lastWords(); last != "" {
			text += " Its last words:\n" + last
		}
		r.recorder.tell("%s", text)
		e.message += "\n\n" + text
	}
	if len(crashed) > 0 {
		return crashed
	}
	var suspects []provider
	for _, d := range h.diagnostics {
		if d.Severity != "error" {
			continue
		}
		for _, p := range r.session.providers {
			if p.serves && aboutProvider(d, p.Address) && !slices.ContainsFunc(suspects, func(s provider) bool { return s.Address == p.Address }) {
				suspects = append(suspects, p.provider)
			}
		}
	}
	return suspects
}

// aboutProvider reports whether an error is about a provider as such: its
// configuration, which it may have refused to get twice, or talking to it.
func aboutProvider(d plan.Diagnostic, address string) bool {
	if strings.HasPrefix(d.Address, `provider["`) {
		return strings.HasPrefix(d.Address, `provider["`+address+`"]`)
	}
	return d.LostContact()
}

// refuse remembers that the engine has to start a provider; zero is for good.
func (r *providerProcesses) refuse(p provider, reason string, until time.Time) error {
	return r.work.refuse(p.Locked, refusal{Reason: cut(r.hide.String(reason), maxText), Until: until})
}

func (r *providerProcesses) refuseAll(all []provider, reason string) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, r.refuse(p, reason, time.Time{}))
	}
	return errors.Join(errs...)
}
