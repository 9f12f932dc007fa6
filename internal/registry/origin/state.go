package origin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/source"
)

// State is what is known of a repository. Users see it.
type State struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	URL       string `json:"url"`
	Module    string `json:"module"`
	Tags      string `json:"tags,omitempty"`
	Directory string `json:"directory,omitempty"`
	Suspended bool   `json:"suspended,omitempty"`
	Webhook   string `json:"webhook,omitempty"` // the path to send webhooks to

	Checked time.Time `json:"checked,omitzero"` // when the last check ended
	Next    time.Time `json:"next,omitzero"`
	Error   string    `json:"error,omitempty"` // of the last check
	Failing time.Time `json:"failing,omitzero"`

	Versions int       `json:"versions"`           // that are published and come from its tags, also if a tag moved or is gone
	Pending  int       `json:"pending,omitempty"`  // new tags that were not taken yet
	Newest   string    `json:"newest,omitempty"`   // of all versions, as NAMESPACE/NAME/SYSTEM VERSION: the highest that clients choose by default
	Modules  []Module  `json:"modules,omitempty"`  // the first of them
	Named    int       `json:"named,omitempty"`    // how many modules there are
	Problems []Problem `json:"problems,omitempty"` // the first of them
	Skipped  []Skip    `json:"skipped,omitempty"`  // the first of them
	Skips    int       `json:"skips,omitempty"`    // how many there are

	Contradicting int `json:"contradicting,omitempty"` // how many problems there are
}

// Contradictions is how many problems there are. A state of an earlier version names them all.
func (s State) Contradictions() int { return max(s.Contradicting, len(s.Problems)) }

// Module is a module of a repository.
type Module struct {
	Name     string          `json:"module"`           // NAMESPACE/NAME/SYSTEM
	Versions int             `json:"versions"`         // those that are retracted included
	Newest   address.Version `json:"newest,omitempty"` // that clients choose by default; empty if all are retracted
}

// mostModules is how many modules of a repository a state names.
const mostModules = 100

// Problem is a tag that contradicts what is published.
type Problem struct {
	Reason  string    `json:"reason"`
	Tag     string    `json:"tag"`
	Module  string    `json:"module"`
	Version string    `json:"version"`
	Was     string    `json:"was,omitempty"` // the commit that the version was made from
	Is      string    `json:"is,omitempty"`  // the commit that the tag is at
	Text    string    `json:"text"`
	Since   time.Time `json:"since,omitzero"`
}

// Skip is a tag of which no version was made, and why.
type Skip struct {
	Tag    string `json:"tag"`
	Reason string `json:"reason"`
}

// Outcome is what came of a tag of which no version was made. The zero text means that the
// version was uploaded with the same content.
type Outcome struct {
	Object   string `json:"object"` // of the tag, when it was tried
	Text     string `json:"text,omitempty"`
	Problem  bool   `json:"problem,omitempty"`
	Failures int    `json:"failures,omitempty"` // if not zero, the tag is tried again
}

// mostSkipped is how many tags of which no version was made a state names, and mostProblems
// how many that contradict what is published.
const (
	mostSkipped  = 100
	mostProblems = 100
)

// record is what the storage keeps of a repository.
type record struct {
	State
	Known     map[string]Outcome `json:"known,omitempty"` // by the name of the tag
	Listed    string             `json:"listed,omitempty"`
	Settings  string             `json:"settings,omitempty"`
	Requested string             `json:"requested,omitempty"`
	Asked     string             `json:"asked,omitempty"` // the last webhook that was followed
	Failures  int                `json:"failures,omitempty"`
}

// states are the records of repositories in the storage of the registry.
type states struct{ store blob.Versions }

const (
	statesPrefix = "index/origins/"
	recordBytes  = 16 << 20
)

func stateKey(k Key) string { return statesPrefix + "states/" + k.Namespace + "/" + k.Name + ".json" }

// read returns the record of a repository, the zero one if there is none. A damaged one, and
// one that is too large, is as good as none: it is made again by the next check.
func (s states) read(ctx context.Context, k Key) (record, error) {
	var r record
	b, err := whole(ctx, s.store, stateKey(k), recordBytes)
	if fault.Reason(err, "") == blob.TooLarge {
		return r, nil
	}
	if err != nil || b == nil {
		return r, err
	}
	if json.Unmarshal(b, &r) != nil {
		return record{}, nil
	}
	return r, nil
}

func (s states) write(ctx context.Context, k Key, r record) error {
	b, err := json.Marshal(r)
	if err == nil && len(b) > recordBytes {
		r.Known = nil // these tags are tried once more, after a restart
		b, err = json.Marshal(r)
	}
	if err == nil && len(b) > recordBytes {
		err = fault.New(fault.Invalid, blob.TooLarge, fmt.Errorf("it has %d bytes, and at most %d are kept", len(b), recordBytes))
	}
	if err != nil {
		return fmt.Errorf("keeping the state of the repository %s: %w", k, err)
	}
	if err := s.store.Put(ctx, stateKey(k), bytes.NewReader(b)); err != nil {
		return fmt.Errorf("keeping the state of the repository %s: %w", k, err)
	}
	return nil
}

// whole reads a value of the storage; nil if there is none.
func whole(ctx context.Context, store blob.Versions, key string, most int64) ([]byte, error) {
	v, err := store.Open(ctx, key)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(blob.Bounded(ctx, v, most))
	if err = errors.Join(err, v.Close()); err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	return b, nil
}

// follow takes over what the user says now. Other settings make everything that was found
// out void.
func (r *record) follow(of Repository) {
	if settings := of.settings(); settings != r.Settings {
		*r = record{Settings: settings, Requested: of.Requested, Asked: r.Asked}
	}
	r.Namespace, r.Name, r.URL, r.Module, r.Tags, r.Directory = of.Namespace, of.Name, of.URL, of.Module, of.Tags, of.Directory
	r.Suspended, r.Webhook = of.Suspended, ""
	if of.Secret != nil {
		r.Webhook = WebhookPath(of.Key)
	}
}

// WebhookPath is where webhooks of a repository are sent to.
func WebhookPath(k Key) string { return "/v1/webhooks/" + k.Namespace + "/" + k.Name }

// listing is a digest of tags: while it is the same, there is nothing new.
func listing(tags []source.Tag) string {
	sum := sha256.New()
	for _, t := range tags {
		fmt.Fprintf(sum, "%q %s %s\n", t.Name, t.Object, t.Commit)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// keep drops what is known of tags that are gone.
func (r *record) keep(tags []source.Tag) {
	kept := map[string]Outcome{}
	for _, t := range tags {
		if o, ok := r.Known[t.Name]; ok && o.Object == t.Object {
			kept[t.Name] = o
		}
	}
	r.Known = kept
}

// States are the repositories that are registered, with what is known of them. Of one whose
// record cannot be read it says that, so that it hides no other.
func (p *Poller) States(ctx context.Context) ([]State, error) {
	all, err := p.o.Source.Repositories(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]State, 0, len(all))
	for _, r := range all {
		s, err := p.state(ctx, r)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			p.o.Log.Warn("state of a repository not read", "repository", r.Key.String(), "err", err)
			s = unread(r)
		}
		list = append(list, s)
	}
	return list, nil
}

// unread is the state of a repository whose record cannot be read. Why is for the operator: the
// error may have names of the storage.
func unread(of Repository) State {
	var r record
	r.follow(of)
	r.Error = "the storage of the registry cannot be read for this repository at the moment: tell the operator, whose log has the reason"
	return r.State
}

// state is what is known of a repository. What an entry says now counts at once.
func (p *Poller) state(ctx context.Context, of Repository) (State, error) {
	r, err := p.store.read(ctx, of.Key)
	if err != nil {
		return State{}, err
	}
	r.follow(of)
	if err := of.Check(); err != nil {
		r.Error = err.Error()
	}
	if of.Suspended {
		r.Next = time.Time{}
	}
	return r.State, nil
}
