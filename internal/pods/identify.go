package pods

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/remote"
)

// What the API server says about the bearer of a token that is bound to a pod.
const (
	accountPrefix = "system:serviceaccount:"
	extraPodName  = "authentication.kubernetes.io/pod-name"
	extraPodUID   = "authentication.kubernetes.io/pod-uid"
)

// How long an answer is believed, how many are, and how long one may take.
const (
	identityTTL   = 10 * time.Second
	identitiesMax = 4096
	refusalTTL    = 2 * time.Second // short: an API server may not know the pod yet
	reviewTimeout = 20 * time.Second
)

// identities are answers of the API server, by the hash of the token.
type identities struct {
	known    *cache.Map[string, remote.Place]
	refused  *cache.Map[string, error]
	accepted *cache.Map[string, struct{}] // tokens that were accepted before, and may have expired since
	asking   *asking
}

func newIdentities(now func() time.Time) identities {
	return identities{
		known:    &cache.Map[string, remote.Place]{Size: identitiesMax, TTL: identityTTL, Now: now},
		refused:  &cache.Map[string, error]{Size: identitiesMax, TTL: refusalTTL, Now: now},
		accepted: &cache.Map[string, struct{}]{Size: identitiesMax, TTL: tokenSeconds * time.Second, Now: now},
		asking:   newAsking(),
	}
}

// Identify returns the pod that a token is bound to. It is Denied if the API server
// does not know the token, issued it for another audience, or bound it to no pod. The API
// server is asked only about tokens that may be valid by what they say, and about few
// at once: each client that reaches the port may send any. A token that was valid before waits for no
// other.
func (p *Pods) Identify(ctx context.Context, token string) (remote.Place, error) {
	claims, err := readToken(token, p.config.Audience, p.config.Now())
	if err != nil {
		return remote.Place{}, err
	}
	sum := sha256.Sum256([]byte(token))
	key := hex.EncodeToString(sum[:])
	if err, refused := p.identities.refused.Get(key); refused {
		return remote.Place{}, err
	}
	return p.identities.known.Load(ctx, key, func(ctx context.Context) (remote.Place, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		if _, before := p.identities.accepted.Get(key); !before {
			leave, err := p.identities.asking.enter(ctx, claims, p.runs(ctx, claims))
			if err != nil {
				return remote.Place{}, fault.New(fault.Later, "APIServerBusy", fmt.Errorf("waiting to ask the API server about a token: %w", err))
			}
			defer leave()
		}
		place, err := p.review(ctx, token)
		switch {
		case err == nil:
			p.identities.accepted.Put(key, struct{}{})
		case fault.Of(err) == fault.Denied:
			p.identities.refused.Put(key, err)
		}
		return place, err
	})
}

// runs reports whether a place is a pod of this installation, as far as the watch has told.
func (p *Pods) runs(ctx context.Context, at remote.Place) bool {
	var pod corev1.Pod
	return p.informer.HasSynced() && p.seen.Get(ctx, types.NamespacedName{Namespace: at.Namespace, Name: at.Name}, &pod) == nil && string(pod.UID) == at.UID
}

func (p *Pods) review(ctx context.Context, token string) (remote.Place, error) {
	denied := func(why string) (remote.Place, error) { return remote.Place{}, denied(why) }
	review := &authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: token, Audiences: []string{p.config.Audience}}}
	review, err := p.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return remote.Place{}, fault.New(fault.Later, "APIServerBusy", fmt.Errorf("asking the API server about a token: %w", err))
	}
	s := review.Status
	if !s.Authenticated || !slices.Contains(s.Audiences, p.config.Audience) {
		return denied("the API server does not know the token, or issued it for another audience")
	}
	account, ok := strings.CutPrefix(s.User.Username, accountPrefix)
	namespace, _, _ := strings.Cut(account, ":")
	name, uid := only(s.User.Extra[extraPodName]), only(s.User.Extra[extraPodUID])
	if !ok || namespace == "" || name == "" || uid == "" {
		return denied("the token is not bound to a pod")
	}
	return remote.Place{Namespace: namespace, Name: name, UID: uid}, nil
}

// only is the one value of a list; empty if there is none or more than one.
func only(values authnv1.ExtraValue) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}
