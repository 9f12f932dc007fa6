package secretsync

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/fault"
)

// unknown finds the names of fields in what is said of those that a type lacks.
var unknown = regexp.MustCompile(`unknown field "([^"]+)"`)

// decode reads the spec of an object. Its error names all fields that are not served; the
// others are read nevertheless.
func decode[T any](o client.Object) (T, error) {
	var into struct {
		Spec T `json:"spec"`
	}
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return into.Spec, fmt.Errorf("%T is not what was asked for", o)
	}
	spec, _, err := unstructured.NestedMap(u.Object, "spec")
	if err != nil {
		return into.Spec, fault.New(fault.Invalid, externalsecret.ReasonInvalid, errors.New("spec is no object"))
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(map[string]any{"spec": spec}, &into, true)
	if err == nil {
		return into.Spec, nil
	}
	if runtime.IsStrictDecodingError(err) {
		var fields []string
		for _, found := range unknown.FindAllStringSubmatch(err.Error(), -1) {
			fields = append(fields, found[1])
		}
		return into.Spec, externalsecret.Unsupported(fields...)
	}
	return into.Spec, fault.New(fault.Invalid, externalsecret.ReasonInvalid, fmt.Errorf("the spec cannot be read: %s: correct it", strings.TrimSpace(fault.Shorten(err.Error(), 200))))
}
