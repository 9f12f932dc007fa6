package installation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/app/interval"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
)

// Annotation is the annotation on the Lease that names the installation.
const Annotation = "terrier.dev/installation"

// inSecret is the Secret of the keys.
type inSecret struct {
	client.Client
	at client.ObjectKey
}

// requestTime bounds one request for the Secret.
const requestTime = 10 * time.Second

// read returns nil if there is no Secret.
func (s *inSecret) read(ctx context.Context) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	found := &corev1.Secret{}
	err := s.Get(ctx, s.at, found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, s.explain("reading", err)
}

// create makes the Secret. It is no error that another controller was faster.
func (s *inSecret) create(ctx context.Context, t texts) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	err := s.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.at.Namespace, Name: s.at.Name, Labels: map[string]string{"app.kubernetes.io/managed-by": "terrier"}},
		Data:       t,
	}, client.FieldOwner(kube.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return s.explain("creating", err)
}

func (s *inSecret) explain(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fault.New(fault.Denied, "InstallationKeysForbidden", fmt.Errorf(
			"%s the Secret %s, which holds the keys of this installation: %w: %s; or leave the keys in the data directory with --installation-keys=file (installationKeys: file in the chart)", doing, s.at, err, kube.SecretRule(s.at, "get", "update")))
	}
	return fmt.Errorf("%s the Secret %s, which holds the keys of this installation: %w", doing, s.at, err)
}

// openSecret reads the Secret, and makes it at the first start.
func (o Options) openSecret(ctx context.Context) (*Keys, error) {
	s := &inSecret{o.Client, client.ObjectKey{Namespace: o.Namespace, Name: SecretName}}
	of, err := Of(o.Dir)
	if err != nil {
		return nil, err
	}
	found, err := s.read(ctx)
	if err == nil && found == nil {
		if err = o.begin(ctx, s, of); err == nil {
			found, err = s.read(ctx)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, fault.New(fault.Later, ReasonLost, fmt.Errorf("the Secret %s was deleted while this controller started: start it again", s.at))
	}
	if err := s.check(found.Data); err != nil {
		return nil, err
	}
	if id := idOf(string(found.Data[digests])); of != "" && of != id {
		return nil, fault.New(fault.Denied, ReasonAnother, fmt.Errorf(
			"the data directory %s belongs to the installation %s, and the Secret %s to the installation %s: name another data directory, or delete the Secret if the keys in the data directory are the right ones",
			o.Dir, of, s.at, id))
	}
	next, err := succeeded(found.Data[authority], o.Now())
	if err == nil && next != nil {
		found, err = o.renew(ctx, s, found, next)
	}
	if err != nil {
		return nil, err
	}
	return parse(found.Data, s)
}

// check reports a Secret that lost a key.
func (s *inSecret) check(t texts) error {
	for _, name := range []string{digests, runs, authority} {
		text, ok := t[name]
		what := fmt.Sprintf("the Secret %s has no entry %s", s.at, name)
		if ok {
			err := whole(name, text)
			if err == nil {
				continue
			}
			what = fmt.Sprintf("the entry %s of the Secret %s is damaged: %v", name, s.at, err)
		}
		return fault.New(fault.Broken, ReasonLost, fmt.Errorf(
			"%s: restore it from a backup; %s; if it is lost for good, delete the Secret and the Lease of the controllers, and the next start makes new keys", what, lossOf[name]))
	}
	return nil
}

// begin makes the Secret of the keys in the data directory, and of new ones for those that
// it lacks. A Lease or a data directory that names an installation has had keys, so that
// only these will do.
func (o Options) begin(ctx context.Context, s *inSecret, of string) error {
	here, err := o.files(false)
	if err != nil {
		return err
	}
	claimed, err := o.claimed(ctx)
	if err != nil {
		return err
	}
	id := ""
	if text, ok := here[digests]; ok {
		id = idOf(string(text))
	}
	for _, was := range []string{claimed, of} {
		if was != "" && was != id {
			return fault.New(fault.Denied, ReasonLost, fmt.Errorf(
				"the keys of the installation %s are neither in the Secret %s nor in the data directory %s: restore the Secret from a backup, or start a controller with the data directory that has them; if they are lost for good, delete the Lease of the controllers and the file %s of the data directory, and the next start makes new keys: all users sign in again, all stacks are planned again, and the pods of runs that go on are not known",
				was, s.at, o.Dir, markFile))
		}
	}
	all := maps.Clone(here)
	for _, name := range []string{digests, runs, authority} {
		if _, ok := all[name]; ok {
			continue
		}
		if all[name], err = made(name, o.Now()); err != nil {
			return err
		}
	}
	if err := s.create(ctx, all); err != nil {
		return err
	}
	if len(here) > 0 {
		o.Progress("the keys of this installation are in the Secret %s from now on, and those in %s are copies", s.at, o.Dir)
	}
	return nil
}

// claimed returns the installation that the Lease of the controllers names.
func (o Options) claimed(ctx context.Context) (string, error) {
	if o.Lease == "" {
		return "", nil
	}
	var lease coordinationv1.Lease
	err := o.Client.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Lease}, &lease)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the Lease %s/%s, which names the installation: %w", o.Namespace, o.Lease, err)
	}
	return lease.Annotations[Annotation], nil
}

// renew stores the authorities with a successor for one that ends soon. The controller that is
// first decides, and the others take its authority.
func (o Options) renew(ctx context.Context, s *inSecret, found *corev1.Secret, text []byte) (*corev1.Secret, error) {
	next := found.DeepCopy()
	next.Data[authority] = text
	err := s.Update(ctx, next, client.FieldOwner(kube.FieldManager)) // refused if the Secret has changed
	if apierrors.IsConflict(err) {
		if next, err = s.read(ctx); err == nil && next == nil {
			err = fault.New(fault.Later, ReasonLost, errors.New("the Secret was deleted while this controller started: start it again"))
		}
		if err == nil {
			err = s.check(next.Data)
		}
		return next, err
	}
	if err == nil {
		o.sayRenewed(found.Data[authority], text)
	}
	return next, s.explain("renewing the certificate authority in", err)
}

// sayRenewed tells the operator that an authority has a successor.
func (o Options) sayRenewed(before, text []byte) {
	was, err := parseAuthorities(before)
	is, err2 := parseAuthorities(text)
	if errors.Join(err, err2) != nil || o.Progress == nil {
		return // both were parsed a moment ago
	}
	former, last := was[len(was)-1].Leaf, is[len(is)-1].Leaf
	if !last.Equal(former) {
		o.Progress("the certificate authority of the HTTP API ends on %s: a new one, until %s, is trusted beside it from now on, and signs later",
			former.NotAfter.UTC().Format(time.DateOnly), last.NotAfter.UTC().Format(time.DateOnly))
	}
}

// keepEvery is how often a process looks whether the Secret still has its keys.
const keepEvery = time.Minute

// Keep looks again and again until ctx ends. It makes the Secret again if it was deleted,
// and warns if it has other keys: then a restart would change them.
func (k *Keys) Keep(ctx context.Context, log *slog.Logger) {
	if k.kept == nil {
		return
	}
	last := ""
	for range interval.Turns(ctx, keepEvery) {
		err := k.keep(ctx)
		if err == nil {
			last = ""
		} else if said := err.Error(); said != last && ctx.Err() == nil {
			last = said
			log.Warn("keys of the installation not checked; this is tried again each minute", "err", err)
		}
	}
}

func (k *Keys) keep(ctx context.Context) error {
	found, err := k.kept.read(ctx)
	if err != nil {
		return err
	}
	if found == nil {
		return k.kept.create(ctx, k.texts)
	}
	var other []string
	for name, text := range k.texts {
		if !bytes.Equal(found.Data[name], text) && (name != authority || !k.succeededBy(found.Data[name])) {
			other = append(other, name)
		}
	}
	if len(other) == 0 {
		return nil
	}
	slices.Sort(other)
	return fault.New(fault.Denied, ReasonAnother, fmt.Errorf(
		"the Secret %s has other keys than this controller: %s: restore them from a backup, or delete the Secret while this controller runs, which then makes it again; to use the other keys, restart all controllers",
		k.kept.at, strings.Join(other, ", ")))
}

// succeededBy reports whether text has the authorities of this controller, and the successor
// that another one has made of them. This one knows it from its next start on, and puts it back
// if the Secret is deleted.
func (k *Keys) succeededBy(text []byte) bool {
	a, err := parseAuthorities(text)
	if err != nil || !k.authorities.shares(a) {
		return false
	}
	k.texts[authority] = text
	return true
}
