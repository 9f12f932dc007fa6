package states

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/controller/gitstate"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// gitShelf is a shelf whose state Terrier makes its own.
type gitShelf struct {
	shelf
	reformed int
	refs     []kube.StateRef // with which it was written
}

func (s *gitShelf) Reform(context.Context, kube.StateRef) error {
	s.reformed++
	s.found.Foreign = false
	return nil
}

func (s *gitShelf) Save(ctx context.Context, ref kube.StateRef, owner kube.Owner, state []byte) error {
	s.refs = append(s.refs, ref)
	return s.shelf.Save(ctx, ref, owner, state)
}

// inGit is a stack with a state in git, and its reference.
func inGit() (Subject, kube.StateRef) {
	of := subject("uid", &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "net"}})
	of.Asked.Configuration.Backend = stack.Backend{Kind: stack.Managed, Suffix: "net", Git: &stack.GitPlace{Repository: "https://git.example.org/states", Secret: "push"}}
	of.Observed.Status.Created = true
	return of, kube.RefOf(of.Asked.Configuration, "apps")
}

const gitFile = "the file git::https://git.example.org/states//states/apps/net.tfstate?ref=terrier-states"

// TB-16: a state in git that Terrier did not write is held, also if it continues the last one,
// until a user accepts it. It is Terrier's from then on.
func TestAStateInGitThatTerrierDidNotWrite(t *testing.T) {
	five, seven := thing("l", 5), thing("l", 7)
	foreign := func(state []byte) kube.Stored {
		s := storedAs(state)
		s.Foreign, s.Newest = true, true
		return s
	}
	ours := storedAs(seven)
	ours.Newest = true
	for name, tt := range map[string]struct {
		found  kube.Stored
		known  []byte
		accept string
		held   bool
		event  string
	}{
		"it continues the last one":      {found: foreign(seven), known: five, held: true},
		"nothing was known":              {found: foreign(seven), held: true},
		"it is older":                    {found: foreign(thing("l", 4)), known: five, held: true},
		"a user accepts it":              {found: foreign(seven), known: five, accept: knownAs(seven).Digest + "@now", event: "StateAccepted"},
		"it is the last one":             {found: foreign(five), known: five},
		"Terrier wrote it and forgot so": {found: ours, known: five, event: "StateContinued"},
	} {
		t.Run(name, func(t *testing.T) {
			said, at := &events{}, &gitShelf{shelf: shelf{found: tt.found}}
			c := newKeeper(Keeper{Store: at, Records: openRecords(t), Events: said}, nil)
			of, ref := inGit()
			of.Observed.Spec.AcceptState = tt.accept
			if tt.known != nil {
				of.Observed.Status.KnownState = knownAs(tt.known)
			}
			for range 2 {
				_, err := c.load(t.Context(), of, ref)
				if held := fault.Reason(err, "") == string(stack.StateTampered); held != tt.held || !held && err != nil {
					t.Fatalf("load() = %v, want it held: %v", err, tt.held)
				}
				if tt.held && (!strings.Contains(err.Error(), gitFile) || !strings.Contains(err.Error(), "Terrier did not write") || !strings.Contains(err.Error(), "terrier state accept net")) {
					t.Errorf("it says %q, want the file, why, and a way out", err)
				}
			}
			if said.last != tt.event {
				t.Errorf("the events are %q, want %q", said.all, tt.event)
			}
			if want := !tt.held && tt.found.Foreign; (at.reformed == 1) != want {
				t.Errorf("it was made Terrier's own %d times, want it: %v", at.reformed, want)
			}
		})
	}
}

// A push that waits is told with what follows, loses nothing, and takes the credentials that
// the stack names by then.
func TestAPushThatWaits(t *testing.T) {
	state := thing("l", 8)
	out := fault.New(fault.Later, string(stack.StateFailed), errors.New("the server is out"))
	at := &gitShelf{shelf: shelf{full: out}}
	c := newKeeper(Keeper{Store: at, Records: leftBy(t, files{runner.FileState: string(state)}), Events: &events{}}, nil)
	of, ref := inGit()
	r := &runner.Report{ID: "apply-1", Kind: stack.ApplyRun}
	var run stack.Run
	err := c.Settle(t.Context(), of, r, &ref, &run)
	for _, part := range []string{"not in its repository yet", "the server is out", "The records keep the state, sealed", "starts no run before"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("Settle() = %v, want %q in it", err, part)
		}
	}
	if got, err := c.Records.Get(t.Context(), record.State("uid")); err != nil || string(got) != string(state) {
		t.Errorf("the records have %q, %v; want the state", got, err)
	}
	at.full = nil
	of.Asked.Configuration.Backend.Git = &stack.GitPlace{Repository: "https://git.example.org/states", Secret: "renewed"}
	if err := c.Settle(t.Context(), of, r, &ref, &run); err != nil || string(at.saved) != string(state) {
		t.Errorf("Settle() = %v, stored is %q", err, at.saved)
	}
	if last := at.refs[len(at.refs)-1]; last.Git.Secret != "renewed" {
		t.Errorf("it was pushed with %q, want the credentials that the stack names now", last.Git.Secret)
	}
	if run.KnownState != knownAs(state) || run.LastState.In != gitFile || !run.LastState.Managed {
		t.Errorf("known is %+v, last %+v", run.KnownState, run.LastState)
	}
}

func TestAStateThatIsLargeForGit(t *testing.T) {
	large := []byte(`{"version":4,"lineage":"l","serial":8,"resources":[{"mode":"managed","type":"a","name":"b","instances":[{"index_key":0},{"index_key":1},{"index_key":2}]}]}`)
	for most, want := range map[int]string{2: "StateLargeForGit", 3: ""} {
		said := &events{}
		c := newKeeper(Keeper{Store: &gitShelf{}, Records: leftBy(t, files{runner.FileState: string(large)}), Events: said}, nil)
		of, ref := inGit()
		of.Asked.Configuration.Backend.Git.Most = most
		var run stack.Run
		if err := c.Settle(t.Context(), of, &runner.Report{ID: "apply-1", Kind: stack.ApplyRun}, &ref, &run); err != nil || said.last != want {
			t.Errorf("with warnAbove %d Settle() = %v, the events are %q; want %q", most, err, said.all, want)
		}
	}
}

// A namespace that is deleted takes the credentials with it: the resources are destroyed by
// our copy of the state, and what cannot be stored is no failure.
func TestADeletedNamespaceTakesTheCredentials(t *testing.T) {
	gone := fault.New(fault.Later, gitstate.ReasonNoAccess, errors.New("the Secret is gone"))
	before, after := thing("l", 7), thing("l", 8)
	for name, tt := range map[string]struct {
		deleting bool
		copied   []byte
		want     []byte
		kind     fault.Kind
	}{
		"a stack that stays":       {copied: before, kind: fault.Later},
		"a stack that is deleted":  {deleting: true, copied: before, want: before},
		"a stack without our copy": {deleting: true, kind: fault.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			c := newKeeper(Keeper{Store: &gitShelf{shelf: shelf{err: gone, full: gone}}, Records: leftBy(t, files{runner.FileState: string(after)}), Events: &events{}}, nil)
			of, ref := inGit()
			of.Observed.Deleting = tt.deleting
			if tt.copied != nil {
				if err := c.Records.Put(t.Context(), record.State("uid"), tt.copied); err != nil {
					t.Fatal(err)
				}
			}
			got, err := c.load(t.Context(), of, ref)
			if fault.Of(err) != tt.kind || string(got) != string(tt.want) {
				t.Errorf("load() = %q, %v; want %q", got, err, tt.want)
			}
			if err := c.Flush(t.Context(), of, &runner.Report{ID: "destroy-1", Kind: stack.DestroyRun}, &ref); (err == nil) != tt.deleting {
				t.Errorf("Flush() = %v", err)
			}
		})
	}
}

// The place of a state in git is one place, however its URL is spelt.
func TestPlacesInGit(t *testing.T) {
	place := func(repository string) string {
		return Place(stack.Configuration{Backend: stack.Backend{Kind: stack.Managed, Suffix: "net", Git: &stack.GitPlace{Repository: repository, Path: "a"}}}, "apps")
	}
	one := place("https://git.example.org/team/states")
	for _, same := range []string{"https://GIT.example.org/team/states.git", "ssh://git@git.example.org/team/states/"} {
		if got := place(same); got != one {
			t.Errorf("%s is %s, want %s", same, got, one)
		}
	}
	for _, other := range []string{"https://git.example.org/team/other", "states"} {
		if got := place(other); got == one {
			t.Errorf("%s is the same place", other)
		}
	}
}
