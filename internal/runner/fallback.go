package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Some providers cannot serve several engine processes: they crash when they are
// configured a second time, or an engine cannot talk to them. A step that only
// reads is then run again with the engine starting the providers. If that helps,
// the engine starts this version of the provider in this stack from then on. An
// apply is never run again.

// execute runs one engine command. It returns an ending if the run cannot go on.
func (r *engineProcesses) execute(ctx context.Context, c command) (result, error) {
	before := len(r.reportFile.content().Diagnostics)
	res, err := r.once(ctx, c)
	e, failed := errors.AsType[ending](err)
	if !failed || r.providers.session == nil {
		return res, err
	}
	suspects := r.providers.suspects(&e, res.output)
	if e.outcome != stack.Failed || len(suspects) == 0 {
		return res, e
	}
	reason := e.message
	if c.step == "apply" {
		if res.output.began {
			return res, e
		}
		e.message += "\n\nNothing was changed. This may be because the providers were started before the engine; " +
			"from the next run on, the engine starts them itself."
		return res, errors.Join(e, r.providers.refuseAll(suspects, reason))
	}
	r.recorder.logf("Trying once more, with the engine starting the providers.")
	if err := r.providers.stop(); err != nil {
		return res, err
	}
	r.reportFile.set(func(rep *Report) { rep.Diagnostics = rep.Diagnostics[:before] })
	if c.out != nil {
		*c.out = capped{most: c.out.most}
	}
	if res, err = r.once(ctx, c); err != nil {
		return res, err
	}
	return res, r.providers.refuseAll(suspects, reason)
}

// suspects are the providers of the session that may have made a step fail
// because the engine did not start them. If some have crashed it is those, and
// the message says so.
func (r *providerProcesses) suspects(e *ending, h stepOutput) []provider {
	var crashed []provider
	var patience time.Duration
	if slices.ContainsFunc(h.diagnostics, plan.Diagnostic.LostContact) {
		patience = deathTime // the engine may have ended before we heard of the provider's end
	}
	late, done := context.WithTimeout(context.Background(), patience)
	defer done()
	for _, p := range r.session.providers {
		if !p.serves || !p.endsBefore(late.Done()) {
			continue
		}
		crashed = append(crashed, p.provider)
		text := fmt.Sprintf("The provider %s ended early (%v).", p.Source(), p.exit)
		if last := p.lastOutput(); last != "" {
			text += " Its last words:\n" + last
		}
		r.recorder.logf("%s", text)
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
	return r.work.refuse(p.Locked, refusal{Reason: fault.Shorten(r.hide.String(reason), maxText), Until: until})
}

func (r *providerProcesses) refuseAll(all []provider, reason string) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, r.refuse(p, reason, time.Time{}))
	}
	return errors.Join(errs...)
}
