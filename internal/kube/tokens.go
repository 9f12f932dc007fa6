package kube

import (
	"context"
	"fmt"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// tokenSeconds is how long a token of a ServiceAccount lasts: the least that the API
// server gives. It is used at once.
const tokenSeconds = 600

// AccountTokens reads ServiceAccounts and makes tokens of them.
type AccountTokens struct{ Client client.Client }

// Annotations are those of a ServiceAccount; Missing if there is none.
func (a AccountTokens) Annotations(ctx context.Context, account types.NamespacedName) (map[string]string, error) {
	if _, err := AccountUser(account); err != nil {
		return nil, err
	}
	var found corev1.ServiceAccount
	err := a.Client.Get(ctx, account, &found)
	if apierrors.IsNotFound(err) {
		return nil, fault.New(fault.Missing, "", fmt.Errorf("there is no ServiceAccount %s in the namespace %s: create it", account.Name, account.Namespace))
	}
	return found.Annotations, denied(err, "get on serviceaccounts")
}

// Token makes a token of a ServiceAccount that lasts ten minutes. An empty audience is
// that of the API server.
func (a AccountTokens) Token(ctx context.Context, account types.NamespacedName, audience string) (secret.Text, error) {
	if audience == "" {
		return a.TokenFor(ctx, account, nil)
	}
	return a.TokenFor(ctx, account, []string{audience})
}

// TokenFor makes one for several audiences; none is that of the API server.
func (a AccountTokens) TokenFor(ctx context.Context, account types.NamespacedName, audiences []string) (secret.Text, error) {
	if _, err := AccountUser(account); err != nil {
		return secret.Text{}, err
	}
	asked := &authnv1.TokenRequest{Spec: authnv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenSeconds)), Audiences: audiences}}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
	err := a.Client.SubResource("token").Create(ctx, of, asked)
	if apierrors.IsNotFound(err) {
		return secret.Text{}, fault.New(fault.Missing, "", fmt.Errorf("there is no ServiceAccount %s in the namespace %s: create it", account.Name, account.Namespace))
	}
	if err != nil {
		return secret.Text{}, denied(err, "create on serviceaccounts/token")
	}
	return secret.New(asked.Status.Token), nil
}

// denied says which right this program lacks, if it lacks one.
func denied(err error, right string) error {
	if apierrors.IsForbidden(err) {
		return fault.New(fault.Denied, "AccessDenied", fmt.Errorf("this controller lacks the right %s: the chart grants it if flags.vault or flags.external-secrets is set in its values: %w", right, err))
	}
	return err
}
