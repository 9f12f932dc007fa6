package pods

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	reviewTimeout = 20 * time.Second
)

// identities are answers of the API server, by the hash of the token.
type identities = *cache.Map[string, remote.Place]

func newIdentities(now func() time.Time) identities {
	return &cache.Map[string, remote.Place]{Size: identitiesMax, TTL: identityTTL, Now: now}
}

// Identify returns the pod that a token is bound to. It is Denied if the API server
// does not know the token, issued it for another audience, or bound it to no pod. A
// refusal is never cached.
func (p *Pods) Identify(ctx context.Context, token string) (remote.Place, error) {
	sum := sha256.Sum256([]byte(token))
	return p.known.Load(ctx, hex.EncodeToString(sum[:]), func(ctx context.Context) (remote.Place, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		return p.review(ctx, token)
	})
}

func (p *Pods) review(ctx context.Context, token string) (remote.Place, error) {
	denied := func(why string) (remote.Place, error) {
		return remote.Place{}, fault.New(fault.Denied, "TokenRefused", errors.New(why))
	}
	if token == "" {
		return denied("no token was presented")
	}
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
