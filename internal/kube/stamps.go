package kube

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
)

// ErrNoPolicies is why the policies of the stamps are not in force: the API server does not
// have their kind, or forbids Terrier to write any.
var ErrNoPolicies = errors.New("the API server takes no admission policies from Terrier")

// StampsConfigMap is the ConfigMap that says which policy has which epoch.
const StampsConfigMap = "terrier-stamps"

// stampsPolicy is the name of the policy and of its binding.
const stampsPolicy = "changed-by.terrier.dev"

// ServerEpoch begins the epochs of the API server inside of terrier up, which stamps without a
// policy. Its epoch is as old as its data directory, so no user can have known it before. The
// API server of a cluster has such an epoch only if an operator writes a policy with it.
const ServerEpoch = "terrier-server/2/"

// ProbeLabel is the label of the stack that is created as a dry run, and ProbeName the
// beginning of its name, so that an operator can exempt it from rules for other stacks.
const (
	ProbeLabel = "terrier.dev/probe"
	ProbeOf    = "stamps" // the value of the label
	ProbeName  = "terrier-stamped-"
)

// An API server acts on a new policy within a second. Where it has known the kinds for
// less than five seconds, too, it refuses every write of them until it has looked at
// their schemas.
const (
	stampsWithin = 20 * time.Second
	stampsEvery  = 200 * time.Millisecond
)

// stampsBelieved is how long an answer of the API server counts. It is short, because an
// approval may be forged as soon as the policy is gone.
const stampsBelieved = 5 * time.Second

// Stamping finds out whether the API server stamps who changes an object, and which stamps
// may be believed: see docs/adr/0044-a-stamp-says-when-it-was-given.md.
//
//	the policy is put in force with an epoch ── the API server stamps that epoch
//	        │                                        │
//	        │                        another epoch takes its place: no user can have
//	        │                        known it before the API server corrected stamps
//	        │                                        │
//	        └─ the policy was changed ◀──── the ConfigMap has the epoch, and the version
//	           since: once more              of the policy that has it
//
// Where an operator installs the policy, the same two epochs are words that the operator
// writes. The first one is never believed: users may know it from a repository before the API
// server acts on the policy, and may have written stamps of it.
type Stamping struct {
	Client    client.Client // reads and writes at the server
	Files     fs.FS         // the policy and its binding, a YAML document each
	Namespace string        // of the dry runs and of the ConfigMap
	Probe     func() client.Object
	Install   bool // Ensure may install the policy; otherwise a user does
	Now       func() time.Time
	Log       *slog.Logger

	mu    sync.Mutex
	asked time.Time
	epoch string
	err   error
}

// stampsRecord says which version of the policy and of its binding has which epoch. A
// version changes with each change, and an object that is made again has another one.
type stampsRecord struct {
	Epoch   string `json:"epoch"`
	Policy  string `json:"policy"`
	Binding string `json:"binding"`

	// The epoch was there before it was known that the API server stamps it.
	Early bool `json:"early,omitempty"`
}

// follows reports whether r is the record of a policy of which only the epoch was changed since
// before, when the API server was seen to act on it: the API server corrected stamps all the
// time.
func (r stampsRecord) follows(before stampsRecord) bool {
	is, generation := splitVersion(r.Policy)
	was, last := splitVersion(before.Policy)
	return before.Epoch != "" && r.Epoch != before.Epoch && r.Binding == before.Binding && is == was && is != "" && generation == last+1
}

// splitVersion returns the UID and the generation in a version.
func splitVersion(v string) (uid string, generation int64) {
	uid, number, _ := strings.Cut(v, "/")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return "", 0
	}
	return uid, n
}

// stampsInstalled is what the API server has of the policy and its binding.
type stampsInstalled struct {
	stampsRecord
	there  bool   // one of them is
	whole  bool   // both are, as the files have them
	narrow string // a field that leaves some changes out, empty if there is none; it is not whole then
}

// Ensure has the API server stamp changes, with policies if it does not do so by itself, and
// waits until it does: an object that is created earlier would be refused, or lack the
// stamps. An API server that takes no policies, or does not answer in time, is no error.
func (s *Stamping) Ensure(ctx context.Context) error {
	var e entering
	var failed error
	err := wait.PollUntilContextTimeout(ctx, stampsEvery, stampsWithin, true, func(ctx context.Context) (bool, error) {
		var done bool
		done, failed = s.enter(ctx, &e)
		return done || failed != nil, nil
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(failed, ErrNoPolicies):
		s.Log.Warn("the audit log will not contain the users of changes, and no approval counts for a policy that asks for certain users", "err", failed)
	case failed != nil:
		return failed
	case err != nil || e.refused != nil:
		s.Log.Warn("cannot verify that the API server records the users of changes", "err", errors.Join(err, e.refused))
	}
	return nil
}

// entering is how far the policy is put in force. The first epoch can be read in the policy
// before the API server acts on it, so a user could forge a stamp of it. A second one takes
// its place once the API server stamps the first.
type entering struct {
	first, second string
	waited        int   // for another controller, which puts its own epoch in force
	refused       error // why the API server cannot be asked
}

// strangers is how often Ensure looks whether another controller has finished.
const strangers = 25

// enter takes one step, and reports whether it was the last.
func (s *Stamping) enter(ctx context.Context, e *entering) (bool, error) {
	is, err := s.installed(ctx)
	if fault.Of(err) == fault.Denied {
		return false, fmt.Errorf("%w: %w", ErrNoPolicies, err)
	} else if err != nil {
		return false, err
	}
	var epoch string
	if epoch, _, e.refused = s.probe(ctx); e.refused != nil {
		return !later(e.refused), nil // any other refusal would be repeated
	}
	if !is.there && strings.HasPrefix(epoch, ServerEpoch) {
		return true, nil // our own server does it by itself
	}
	if is.narrow != "" { // another program wrote the field, so that it would stay
		e.refused = fmt.Errorf("the policy %s is not for all changes of stacks, since it has %s: remove this field, and restart the controller", stampsPolicy, is.narrow)
		return true, nil
	}
	if ours := is.Epoch == e.first || is.Epoch == e.second; is.whole && epoch != "" && epoch == is.Epoch && !ours {
		if known, err := s.recorded(ctx); err != nil || known == is.stampsRecord {
			return err == nil, err
		}
	}
	switch {
	case e.second != "" && is.Epoch == e.second:
		if epoch != e.second || !is.whole {
			return false, nil
		}
		return true, s.anchor().Save(ctx, "inForce", is.stampsRecord)
	case e.first != "" && is.Epoch == e.first:
		if epoch != e.first || !is.whole {
			return false, nil
		}
		e.second = rand.Text()
		return false, s.put(ctx, e.second)
	}
	if e.first != "" && e.waited < strangers {
		e.waited++
		return false, nil
	}
	*e = entering{first: rand.Text()}
	return false, s.put(ctx, e.first)
}

// Epoch returns the epoch of the stamps that the API server puts on objects now. A stamp of
// another epoch, or of none, may be forged. An error says in words for the user why no stamp
// can be believed, and what to do.
func (s *Stamping) Epoch(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since := s.Now().Sub(s.asked); s.asked.IsZero() || since < 0 || since >= stampsBelieved {
		s.epoch, s.err = s.verify(ctx)
		s.asked = s.Now()
		if ctx.Err() != nil {
			s.asked = time.Time{} // it says nothing about the API server
		}
	}
	return s.epoch, s.err
}

func (s *Stamping) verify(ctx context.Context) (string, error) {
	epoch, stamped, err := s.probe(ctx)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err):
		return "", fmt.Errorf("the controller cannot find out whether the API server records users: %w", err)
	case err != nil:
		return "", fault.New(fault.Later, "", fmt.Errorf("the controller cannot find out whether the API server records users: %w", err))
	case !stamped:
		return "", errors.New("the API server does not record who approves a plan. An operator has to install the policy " + stampsPolicy + " of config/admission, which needs Kubernetes 1.36")
	case epoch == "":
		return "", errors.New("the policy " + stampsPolicy + " has no epoch. An operator has to install the one of this release, with a random word as its epoch")
	}
	is, err := s.installed(ctx)
	if err != nil {
		return "", fmt.Errorf("the controller cannot read the policy %s: %w", stampsPolicy, err)
	}
	switch {
	case !is.there && strings.HasPrefix(epoch, ServerEpoch):
		return epoch, nil
	case !is.there:
		return "", errors.New("the API server records users by a policy that Terrier does not know. An operator has to install the policy " + stampsPolicy + " of config/admission in its place")
	case is.narrow != "":
		return "", errors.New("the policy " + stampsPolicy + " is not for all changes of stacks, since it has " + is.narrow + ". An operator has to remove this field; then approve the plan again")
	}
	if is.Epoch != epoch || !is.whole {
		return "", errors.New("the policy " + stampsPolicy + " is not the one of this release. " + s.again())
	}
	known, err := s.recorded(ctx)
	if err != nil {
		return "", fmt.Errorf("the controller cannot read which version of the policy %s is in force: %w", stampsPolicy, err)
	}
	early := is.stampsRecord
	early.Early = true
	switch {
	case known == is.stampsRecord:
		return epoch, nil
	case known == early:
		return "", s.tooEarly(epoch)
	case !s.Install && is.follows(known):
		return epoch, s.anchor().Save(ctx, "inForce", is.stampsRecord)
	case !s.Install && known.Epoch != epoch:
		// It is known from now on that the API server stamps. What was written before may be of
		// this epoch.
		if err := s.anchor().Save(ctx, "inForce", early); err != nil {
			return "", fmt.Errorf("the controller cannot write down which version of the policy %s is in force: %w", stampsPolicy, err)
		}
		return "", s.tooEarly(epoch)
	default:
		return "", errors.New("the policy " + stampsPolicy + " was changed or installed again, and users may have written stamps in between. " + s.again())
	}
}

// tooEarly is why an epoch is not believed that an operator installed with the policy, and how
// the next one takes its place.
func (s *Stamping) tooEarly(epoch string) error {
	return fmt.Errorf("the API server records users, but users may have known the epoch of the policy %s before it did. An operator has to write another random word into the policy, and to change nothing else: "+
		`kubectl get mutatingadmissionpolicies %[1]s -o yaml | sed "s/'%[2]s'/'$(openssl rand -hex 16)'/" | kubectl replace -f -. Then approve the plan again`, stampsPolicy, epoch)
}

// again says how another epoch begins.
func (s *Stamping) again() string {
	if s.Install {
		return "An operator has to restart the controller, which installs it; then approve the plan again"
	}
	return "An operator has to install it from config/admission, with another random word as its epoch; then approve the plan again"
}

// probe creates an object as a dry run, and returns the epoch that it was stamped with.
func (s *Stamping) probe(ctx context.Context) (epoch string, stamped bool, err error) {
	o := s.Probe()
	o.SetNamespace(s.Namespace)
	o.SetGenerateName(ProbeName)
	o.SetLabels(map[string]string{ProbeLabel: ProbeOf})
	if err := s.Client.Create(ctx, o, client.DryRunAll); err != nil {
		return "", false, err
	}
	a := o.GetAnnotations()
	return a[Stamped], a[ChangedBy] != "", nil
}

// later reports whether an API server has not answered yet.
func later(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// installed reads the policy and its binding.
func (s *Stamping) installed(ctx context.Context) (stampsInstalled, error) {
	wanted, err := readDefinitions(s.Files)
	if err != nil {
		return stampsInstalled{}, err
	}
	out := stampsInstalled{whole: true}
	for _, u := range wanted {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(u.GroupVersionKind())
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(u), live)
		switch {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			out.whole = false
			continue
		case err != nil:
			return stampsInstalled{}, mark(err, u.GetKind(), client.ObjectKeyFromObject(u))
		}
		out.there = true
		version := fmt.Sprintf("%s/%d", live.GetUID(), live.GetGeneration())
		if epoch, is := epochIn(live); is {
			out.Policy, out.Epoch = version, epoch
			setEpoch(u, epoch)
		} else {
			out.Binding = version
		}
		out.whole = out.whole && includes(live.Object["spec"], u.Object["spec"])
		if field := narrowedBy(live); field != "" && out.narrow == "" {
			out.narrow, out.whole = field, false
		}
	}
	return out, nil
}

// narrowedBy is a field of the policy, or of its binding, that leaves some changes of objects
// out; empty if it has none. Users could write stamps there.
func narrowedBy(live *unstructured.Unstructured) string {
	spec, _ := live.Object["spec"].(map[string]any)
	if says(spec["matchConditions"]) {
		return "spec.matchConditions"
	}
	if says(spec["paramRef"]) {
		return "spec.paramRef"
	}
	for _, name := range []string{"matchConstraints", "matchResources"} {
		match, _ := spec[name].(map[string]any)
		for _, field := range []string{"namespaceSelector", "objectSelector", "excludeResourceRules"} {
			if says(match[field]) {
				return "spec." + name + "." + field
			}
		}
		rules, _ := match["resourceRules"].([]any)
		if name == "matchResources" && len(rules) > 0 {
			return "spec.matchResources.resourceRules"
		}
		for _, r := range rules {
			rule, _ := r.(map[string]any)
			if says(rule["resourceNames"]) {
				return "spec." + name + ".resourceRules.resourceNames"
			}
			if scope, ok := rule["scope"].(string); ok && scope != "*" && scope != "Namespaced" {
				return "spec." + name + ".resourceRules.scope"
			}
		}
	}
	return ""
}

// says reports whether a value of an object is more than an empty map or list.
func says(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) > 0
	case []any:
		return len(v) > 0
	default:
		return v != nil
	}
}

// put applies the policy with an epoch, and its binding.
func (s *Stamping) put(ctx context.Context, epoch string) error {
	all, err := readDefinitions(s.Files)
	if err != nil {
		return err
	}
	for _, u := range all {
		gvk := u.GroupVersionKind()
		if _, err := s.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); meta.IsNoMatchError(err) {
			return fmt.Errorf("%w: it has no kind %s of %s", ErrNoPolicies, gvk.Kind, gvk.GroupVersion())
		}
		setEpoch(u, epoch)
		if err := ApplyOnce(ctx, s.Client, u); fault.Of(err) == fault.Denied {
			return fmt.Errorf("%w: %w", ErrNoPolicies, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (s *Stamping) anchor() Anchor {
	return Anchor{Client: s.Client, Key: types.NamespacedName{Namespace: s.Namespace, Name: StampsConfigMap}}
}

// recorded is what the ConfigMap says, nothing if there is none.
func (s *Stamping) recorded(ctx context.Context) (stampsRecord, error) {
	var r stampsRecord
	_, err := s.anchor().Load(ctx, "inForce", &r)
	return r, err
}

// epochIn is the epoch in a policy; a binding has none.
func epochIn(u *unstructured.Unstructured) (string, bool) {
	variables, _, _ := unstructured.NestedSlice(u.Object, "spec", "variables")
	for _, v := range variables {
		if m, ok := v.(map[string]any); ok && m["name"] == "epoch" {
			text, _ := m["expression"].(string)
			return strings.Trim(text, "'"), true
		}
	}
	return "", false
}

// setEpoch writes an epoch into a policy.
func setEpoch(u *unstructured.Unstructured, epoch string) {
	spec, _ := u.Object["spec"].(map[string]any)
	variables, _ := spec["variables"].([]any)
	for _, v := range variables {
		if m, ok := v.(map[string]any); ok && m["name"] == "epoch" {
			m["expression"] = "'" + epoch + "'"
		}
	}
}
