package children

import (
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// sureMapper tells a kind that the cluster does not have from one whose API does not answer.
// The discovery of all APIs at once leaves those out that do not answer, and the mapper then
// takes their kinds for unknown: an object that is to be deleted would count as gone. Once
// the mapper knows the groups, it asks the one API, whose error says which it is.
type sureMapper struct{ meta.RESTMapper }

// RESTMapping returns the mapping of a kind. meta.IsNoMatchError holds for its error only if
// the cluster does not have the kind.
func (m sureMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := m.RESTMapper.RESTMapping(kind, versions...)
	if _, unsure := errors.AsType[*apiutil.ErrResourceDiscoveryFailed](err); unsure && meta.IsNoMatchError(err) {
		mapping, err = m.RESTMapper.RESTMapping(kind, versions...)
	}
	return mapping, err
}
