package vaults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// retryEnd is when the end of a session at a server that did not answer is tried again.
const retryEnd = 30 * time.Second

// Makes reports whether a job needs secrets that are made when its run begins. The key is
// that of the placeholders (input.Made).
func Makes(key secret.Text, job *runner.Job) bool { return len(input.Made(key, texts(job)...)) > 0 }

// Fill makes the secrets that a run is given when it begins, and puts them into a copy of
// the job that no record has. The key is that of the placeholders (input.Made). Without a
// Vault, v is nil: a job that needs one is then Denied.
func (v *Vaults) Fill(ctx context.Context, of Stack, key secret.Text, job *runner.Job) error {
	wanted := input.Made(key, texts(job)...)
	if len(wanted) == 0 {
		return nil
	}
	if v == nil {
		return fault.New(fault.Denied, "VaultNotConfigured", fmt.Errorf("the run needs %s, and this installation knows no OpenBao or Vault: start the controller with --vault=URL", wanted[0]))
	}
	values, err := v.Begin(ctx, of, job.ID, wanted)
	if err != nil {
		return err
	}
	in := func(text string) string {
		for _, of := range wanted {
			text = input.Fill(key, text, of, values[of.String()])
		}
		return text
	}
	job.Env, job.Files, job.Home = maps.Clone(job.Env), slices.Clone(job.Files), slices.Clone(job.Home)
	for name, text := range job.Env {
		if job.Env[name] = in(text); strings.ContainsRune(job.Env[name], 0) {
			return fault.New(fault.Invalid, "", fmt.Errorf("the secret for the environment variable %s holds a NUL byte: give it as a file (fileMappings)", name))
		}
	}
	for _, files := range [][]workdir.File{job.Files, job.Home} {
		for i, f := range files {
			files[i].Content = []byte(in(string(f.Content)))
		}
	}
	job.Mask = slices.Clone(job.Mask)
	for _, value := range values {
		job.Mask = append(job.Mask, string(value))
	}
	return nil
}

// texts are where a job may have placeholders, in order.
func texts(job *runner.Job) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(job.Env)) {
		all = append(all, job.Env[name])
	}
	for _, f := range slices.Concat(job.Files, job.Home) {
		all = append(all, string(f.Content))
	}
	return all
}

// Known is what is remembered of what a run has, between two calls of Tend. The zero Known
// knows nothing.
type Known struct {
	due   time.Time // when it is to be renewed; zero if that is to be looked up
	ended bool      // there is nothing of it any more
}

// Tend renews what the run of a stack has, or ends it if none goes on. It returns when to
// call it again; zero if nothing is left to do before the next run. A server that does not
// answer holds no stack up.
func (v *Vaults) Tend(ctx context.Context, uid string, running bool, k *Known) time.Duration {
	switch {
	case v == nil || running && v.Now().Before(k.due) || !running && k.ended:
		return 0
	case running:
		due, err := v.Renew(ctx, uid)
		if err != nil {
			v.Log.Warn("credentials of a run are not renewed", "stack", uid, "err", err)
		}
		*k = Known{due: due}
		return 0
	}
	if err := v.End(ctx, uid); err != nil {
		v.Log.Warn("credentials of a run are not given back yet", "stack", uid, "err", err)
		return retryEnd
	}
	*k = Known{ended: true}
	return 0
}

// Release ends what a stack that is gone has. A server that does not answer holds no
// deletion up: what is left there ends by itself.
func (v *Vaults) Release(ctx context.Context, uid string) error {
	if v == nil {
		return nil
	}
	return v.EndOrForget(ctx, uid)
}
