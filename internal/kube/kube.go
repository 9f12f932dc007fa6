// Package kube reads and writes Kubernetes objects beyond Terrier's own kinds:
// state Secrets and their leases, output Secrets, readable plans, the Secrets and
// ConfigMaps that variables come from, definitions to install. It reads by name,
// never lists Secrets, and decides nothing.
//
// Start reading at States.
package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
)

// FieldManager owns every field that Terrier applies. It is the name that the
// objects' users already know from tofu-controller.
const FieldManager = "tf-controller"

// ReadSecret returns the data of a Secret, Missing if there is none, and the keys
// that are public: outputs that the module does not mark sensitive.
func ReadSecret(ctx context.Context, c client.Reader, key types.NamespacedName) (data map[string][]byte, public []string, err error) {
	var s corev1.Secret
	if err := c.Get(ctx, key, &s); err != nil {
		return nil, nil, mark(err, "Secret", key)
	}
	if data, err = assemble(ctx, c, &s); err != nil {
		return nil, nil, err
	}
	switch names := s.Annotations[publicOutputs]; names {
	case "":
	case allPublic:
		public = slices.Collect(maps.Keys(data))
	default:
		public = strings.Split(names, ",")
	}
	return data, public, nil
}

// readConfigMap returns the data of a ConfigMap, text and binary, Missing if
// there is none.
func readConfigMap(ctx context.Context, c client.Reader, key types.NamespacedName) (map[string][]byte, error) {
	var m corev1.ConfigMap
	if err := c.Get(ctx, key, &m); err != nil {
		return nil, mark(err, "ConfigMap", key)
	}
	data := make(map[string][]byte, len(m.Data)+len(m.BinaryData))
	for k, v := range m.BinaryData {
		data[k] = v
	}
	for k, v := range m.Data {
		data[k] = []byte(v)
	}
	return data, nil
}

// mark gives an API error the kind of failure that it is.
func mark(err error, kind string, key types.NamespacedName) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fault.New(fault.Missing, "NotFound", fmt.Errorf("%s %s does not exist", kind, key))
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fault.New(fault.Denied, "AccessDenied", fmt.Errorf("%s %s: %w", kind, key, err))
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fault.New(fault.Conflict, "Conflict", fmt.Errorf("%s %s: %w", kind, key, err))
	case isBusy(err):
		return fault.New(fault.Later, "ServerBusy", fmt.Errorf("%s %s: %w", kind, key, err))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return fault.New(fault.Invalid, "Refused", fmt.Errorf("%s %s: %w", kind, key, err))
	default:
		return fmt.Errorf("%s %s: %w", kind, key, err)
	}
}

// isBusy reports whether the API server could not answer now, and may in a moment. An etcd
// whose disk stalls for more than its five seconds is told with the status 500 and a text.
func isBusy(err error) bool {
	if apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) {
		return true
	}
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code == http.StatusInternalServerError && strings.Contains(answer.Status().Message, "etcdserver: ")
}
