package tenants

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// readRow returns the row of a Tenant: from its Secret, or from the annotations of a
// Tenant that a user or Tenant Operator created. It returns an error for a Tenant
// whose annotation announces a Secret that does not exist, and ignores the Secret of
// a former Tenant of this name, which is not deleted yet.
func readRow(ctx context.Context, r client.Reader, t *tenantsv1.Tenant) (tenant.Row, error) {
	var s corev1.Secret
	err := r.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: tenantapi.RowSecret(t.Name)}, &s)
	switch {
	case err == nil && s.Type == tenantapi.RowSecretType && !ofFormer(&s, t):
		return tenantapi.RowOf(s.Data)
	case err != nil && !apierrors.IsNotFound(err):
		return tenant.Row{}, fmt.Errorf("reading the row of %s: %w", t.Name, err)
	case t.Annotations[tenantsv1.AnnotationRow] != "":
		return tenant.Row{}, fault.New(fault.Later, "RowMissing", fmt.Errorf("the Secret %s with the row of this tenant does not exist yet", tenantapi.RowSecret(t.Name)))
	}
	return tenantapi.AnnotatedRow(t)
}

// ofFormer reports whether a Secret belongs to another Tenant than t.
func ofFormer(s *corev1.Secret, t *tenantsv1.Tenant) bool {
	owner := metav1.GetControllerOf(s)
	return owner != nil && owner.UID != t.UID
}

// writeRow writes a row to the Secret of a Tenant, in one request unless the
// Tenant's annotation is wrong about the Secret.
func writeRow(ctx context.Context, c client.Client, t *tenantsv1.Tenant, row tenant.Row) error {
	data, err := tenantapi.RowData(row)
	if err != nil {
		return err
	}
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.Namespace, Name: tenantapi.RowSecret(t.Name),
			Labels:          maps.Clone(t.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(t, tenantsv1.GroupVersion.WithKind(tenantsv1.TenantKind))},
		},
		Type: tenantapi.RowSecretType, Data: data,
	}
	create := func() error { return c.Create(ctx, s.DeepCopy(), client.FieldOwner(tenantsv1.FieldManager)) }
	change := func() error { return c.Update(ctx, s.DeepCopy(), client.FieldOwner(tenantsv1.FieldManager)) }
	if t.Annotations[tenantsv1.AnnotationRow] == "" {
		if err = create(); apierrors.IsAlreadyExists(err) {
			err = change()
		}
	} else if err = change(); apierrors.IsNotFound(err) {
		err = create()
	}
	return wrapRow(err, t)
}

func wrapRow(err error, t *tenantsv1.Tenant) error {
	if err != nil {
		return fmt.Errorf("writing the row of %s: %w", t.Name, err)
	}
	return nil
}

// digestOf is the value of the annotation terrier.dev/row: a keyed digest, which
// values cannot be tried against.
func digestOf(key secret.Text, row tenant.Row) string {
	b, err := json.Marshal(struct {
		UID, HostOrURL, Activate string
		Extra                    map[string]string
	}{row.UID, row.HostOrURL, row.Activate, row.Extra})
	if err != nil {
		panic("tenants: hashing a row: " + err.Error()) // texts always encode
	}
	mac := hmac.New(sha256.New, []byte(key.Reveal()))
	mac.Write(b)
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
}
