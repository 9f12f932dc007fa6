package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Anchor is a ConfigMap that holds small values out of reach of a user who can
// write Terrier's files.
type Anchor struct {
	Client client.Client
	Key    types.NamespacedName
}

// Load reads the value under name into v, and reports whether there is one.
func (a Anchor) Load(ctx context.Context, name string, v any) (bool, error) {
	var m corev1.ConfigMap
	err := a.Client.Get(ctx, a.Key, &m)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, mark(err, "ConfigMap", a.Key)
	}
	text, ok := m.Data[name]
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return false, fmt.Errorf("reading %s of the ConfigMap %s: %w", name, a.Key, err)
	}
	return true, nil
}

// Save stores v under name.
func (a Anchor) Save(ctx context.Context, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{name: string(text)}})
	if err != nil {
		return err
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a.Key.Namespace, Name: a.Key.Name}}
	err = a.Client.Patch(ctx, m, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldManager))
	if apierrors.IsNotFound(err) {
		m.Data = map[string]string{name: string(text)}
		err = a.Client.Create(ctx, m, client.FieldOwner(FieldManager))
	}
	return mark(err, "ConfigMap", a.Key)
}
