package externalsecret

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Live is the Secret as it is. The zero Live is none.
type Live struct {
	Exists      bool
	Ours        bool   // the object is its controller
	Controller  string // its controller, if that is another object
	Type        string
	Data        map[string][]byte
	Labels      map[string]string
	Annotations map[string]string
	Mark        *Mark  // what the object has written; nil if nothing
	Writer      string // another ExternalSecret that writes all of it without being its controller, where keys are to be added
}

// writer begins Live.Controller of a Secret that another object writes as a whole.
const writer = "ExternalSecret "

// mine reports whether the object may write the whole Secret.
func (l Live) mine() bool { return l.Ours || l.Controller == "" && l.Mark != nil && l.Mark.Whole }

// written is what the object has written of it.
func (l Live) written() map[string][]byte {
	if l.mine() {
		return l.Data
	}
	out := map[string][]byte{}
	if l.Mark != nil {
		for _, key := range l.Mark.Keys {
			if value, ok := l.Data[key]; ok {
				out[key] = value
			}
		}
	}
	return out
}

// InSync reports whether the Secret is as the object has written it. The function digest is
// that of the installation.
func (s Spec) InSync(l Live, digest func(map[string][]byte) string) bool {
	switch {
	case s.Target.CreationPolicy == None:
		return true
	case s.Target.CreationPolicy == Merge:
		return l.Exists && l.Mark != nil && digest(l.written()) == l.Mark.Content
	}
	return l.Exists && l.Mark != nil && l.mine() && l.Ours == (s.Target.CreationPolicy == Owner) && digest(l.Data) == l.Mark.Content
}

// Times are what the next reading depends on.
type Times struct {
	Now, Read time.Time // the last reading that succeeded; zero if there was none
	Changed   bool      // the object is another one than was read for then
	Failed    bool      // the last attempt failed
}

// Due reports whether the secrets are to be read, and when the next reading is due; zero if
// none is. It asks for one more reading if the Secret is not what was written.
func (s Spec) Due(t Times, l Live, inSync bool) (bool, time.Time) {
	interval, _ := s.Interval() // checked
	switch {
	case t.Read.IsZero(), t.Failed, !l.Exists && s.Target.CreationPolicy != None:
		return true, time.Time{}
	case s.RefreshPolicy == CreatedOnce:
		return false, time.Time{}
	case t.Changed, !inSync:
		return true, time.Time{}
	case s.RefreshPolicy == OnChange || interval == 0:
		return false, time.Time{}
	}
	next := t.Read.Add(interval)
	return !t.Now.Before(next) || t.Now.Before(t.Read), next // a clock that was set back says nothing of the last reading
}

// Observation is what a decision depends on.
type Observation struct {
	Spec    Spec // checked
	Secret  Live
	Content Content // what was read

	// Healthy reports whether the server said, after the reading, that it can be used.
	// Nothing is deleted otherwise.
	Healthy bool
	Digest  func(map[string][]byte) string

	Lease    string // names what the server made for the content; empty for secrets that stay
	Replaces bool   // workloads may have credentials that are revoked now
}

// Action is what is done with the Secret.
type Action string

// The actions.
const (
	Keep   Action = "keep"
	Write  Action = "write" // create it, or replace what it holds
	Remove Action = "remove"
)

// Decision is what follows. With Keep, everything but Message is empty.
type Decision struct {
	Action      Action
	Own         bool // the object is to be its controller
	Type        string
	Data        map[string][]byte
	Labels      map[string]string // to add
	Annotations map[string]string // to add
	Mark        Mark
	Reason      string
	Message     string
}

// managed is the label that External Secrets Operator gives the Secrets that it writes.
const managed = "reconcile.external-secrets.io/managed"

// Decide says what becomes of the Secret, after its secrets were read. An error leaves it as
// it is: it says why, and what to do.
func Decide(o Observation) (Decision, error) {
	t := o.Spec.Target
	if err := o.Spec.May(o.Secret); err != nil {
		return Decision{}, err
	}
	if len(o.Content.Gone) > 0 {
		gone := strings.Join(o.Content.Gone, ", ")
		switch {
		case t.DeletionPolicy == Retain || t.CreationPolicy == None:
			return Decision{}, fault.New(fault.Missing, ReasonGone, fmt.Errorf("%s: there is none in Vault: write it there, or correct the reference", gone))
		case !o.Healthy:
			return Decision{}, fault.New(fault.Later, ReasonGone, fmt.Errorf("%s: there is none in Vault, which does not say that it can be used: nothing is deleted. Terrier tries again by itself", gone))
		case !o.Content.Left && t.DeletionPolicy == Delete:
			if !o.Secret.Exists {
				return Decision{Action: Keep, Reason: ReasonDeleted, Message: gone + ": there is none in Vault, so there is no Secret"}, nil
			}
			return Decision{Action: Remove, Reason: ReasonDeleted, Message: gone + ": there is none in Vault, so the Secret was deleted"}, nil
		}
	}
	switch t.CreationPolicy {
	case None:
		return Decision{Action: Keep, Reason: ReasonSynced, Message: "the secrets can be read, and creationPolicy None has no Secret written"}, nil
	case Merge:
		return o.merge()
	}
	return o.whole()
}

// May reports why the object may not write its target, if it may not. It needs nothing that
// has to be read from Vault.
func (s Spec) May(l Live) error {
	t := s.Target
	notOwned := func(format string, args ...any) error {
		return fault.New(fault.Invalid, ReasonNotOwned, fmt.Errorf("the Secret %s "+format, append([]any{t.Name}, args...)...))
	}
	switch {
	case t.CreationPolicy == None:
		return nil
	case !l.Exists && t.CreationPolicy == Merge:
		return fault.New(fault.Missing, ReasonNoTarget, fmt.Errorf("the Secret %s is not there, and creationPolicy Merge adds to one: create it, or use Owner", t.Name))
	case !l.Exists:
		return nil
	case slices.Contains(guarded, l.Type):
		return notOwned("has the type %s, which the cluster trusts: name another target", l.Type)
	case t.CreationPolicy == Merge && strings.HasPrefix(l.Controller, writer): // which removes what is added, again and again
		return notOwned("is written as a whole by the %s: add the keys there, or name another target", l.Controller)
	case t.CreationPolicy == Merge && l.Writer != "":
		return notOwned("is written as a whole by the ExternalSecret %s: add the keys there, or name another target", l.Writer)
	case t.CreationPolicy == Merge:
		return nil
	case l.Controller != "":
		return notOwned("belongs to %s: name another target", l.Controller)
	case !l.mine():
		return notOwned("was not made by this object: delete it, name another target, or use creationPolicy Merge to add keys to it")
	case l.Type != t.typed():
		return notOwned("has the type %s, which cannot be changed to %s: delete it, and Terrier makes it again", l.Type, t.typed())
	}
	return nil
}

// Whole reports whether the Secret holds what the object writes, and nothing else. It may be asked
// of a spec that was not checked.
func (t Target) Whole() bool { return t.CreationPolicy != Merge && t.CreationPolicy != None }

// typed is the type that the Secret is to have.
func (t Target) typed() string {
	if t.Template == nil {
		return "Opaque"
	}
	return cmp.Or(t.Template.Type, "Opaque")
}

// whole makes the Secret hold the content, and nothing else.
func (o Observation) whole() (Decision, error) {
	if len(o.Content.Data) == 0 && !o.Secret.Exists {
		return Decision{Action: Keep, Reason: ReasonDeleted, Message: "nothing is in Vault, so there is no Secret"}, nil
	}
	d := Decision{Own: o.Spec.Target.CreationPolicy == Owner, Type: o.Spec.Target.typed(), Data: o.Content.Data, Labels: map[string]string{managed: "true"}}
	if t := o.Spec.Target.Template; t != nil {
		maps.Copy(d.Labels, t.Metadata.Labels)
		d.Annotations = t.Metadata.Annotations
	}
	d.Mark = o.mark(o.Content.Data, true)
	return o.settled(d, d.Own == o.Secret.Ours), nil
}

// merge adds the content to a Secret of another. It replaces no key that the object has not
// written.
func (o Observation) merge() (Decision, error) {
	data := maps.Clone(o.Secret.Data)
	own := o.Secret.written()
	for key := range own {
		delete(data, key)
	}
	var others []string
	for key, value := range o.Content.Data {
		if had, ok := data[key]; ok && !bytes.Equal(had, value) {
			others = append(others, key)
		}
	}
	if slices.Sort(others); len(others) > 0 {
		return Decision{}, fault.New(fault.Invalid, ReasonNotOwned, fmt.Errorf("the Secret %s has the keys %s, which this object has not written: remove them there, and Terrier writes them, or use other keys", o.Spec.Target.Name, strings.Join(others, ", ")))
	}
	if data == nil {
		data = map[string][]byte{}
	}
	maps.Copy(data, o.Content.Data)
	d := Decision{Own: o.Secret.Ours, Type: o.Secret.Type, Data: data, Mark: o.mark(o.Content.Data, false)}
	return o.settled(d, true), nil
}

// mark says what was written, and which workloads have to be restarted for it.
func (o Observation) mark(written map[string][]byte, whole bool) Mark {
	m := Mark{Keys: slices.Sorted(maps.Keys(written)), Whole: whole, Content: o.Digest(written), Lease: o.Lease}
	was := o.Secret.Mark
	switch {
	case o.Replaces && (!o.Secret.Exists || was == nil):
		m.Restart = RestartAll
	case !o.Secret.Exists:
		m.Restart = RestartKnown
	case !same(o.Secret.written(), written):
		m.Restart = RestartAll
		if !whole && was == nil { // pods that wait for a key begin by themselves
			m.Restart = RestartKnown
		}
	case was != nil:
		m.Restart = was.Restart
	}
	return m
}

// settled keeps the Secret if it is already as the decision has it.
func (o Observation) settled(d Decision, owned bool) Decision {
	d.Action, d.Reason, d.Message = Write, ReasonSynced, "the Secret "+o.Spec.Target.Name+" holds what was read"
	if o.Lease != "" {
		d.Message = MessageMade(o.Spec.Target.Name)
	}
	l := o.Secret
	if l.Exists && owned && l.Mark != nil && l.Mark.String() == d.Mark.String() && same(l.Data, d.Data) && includes(l.Labels, d.Labels) && includes(l.Annotations, d.Annotations) {
		return Decision{Action: Keep, Reason: d.Reason, Message: d.Message}
	}
	return d
}

// MessageMade is that of an object whose Secret holds what a server made for it.
func MessageMade(secret string) string {
	return "the Secret " + secret + " holds credentials of its own: they are renewed, and replaced before they end"
}

func includes(has, wanted map[string]string) bool {
	for name, value := range wanted {
		if had, ok := has[name]; !ok || had != value {
			return false
		}
	}
	return true
}

// Kept says what becomes of the Secret after an error, for people.
func Kept(err error, l Live, name string, read time.Time) string {
	text := strings.TrimSuffix(err.Error(), ".")
	switch {
	case !l.Exists:
		return text + ". There is no Secret " + name + " yet"
	case l.Mark == nil || read.IsZero():
		return text
	}
	return fmt.Sprintf("%s. The Secret %s keeps what was read at %s", text, name, read.UTC().Format(time.RFC3339))
}

// IsStale reports whether an error leaves a Secret with what was read before.
func IsStale(err error, l Live) bool { return err != nil && l.Exists && l.Mark != nil }
