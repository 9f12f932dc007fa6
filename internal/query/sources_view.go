package query

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/plan"
)

// SourceReader lists what modules come from.
type SourceReader interface {
	List(context.Context, access.Scope) ([]Source, error)
	// Events returns what happened to a source as long as Kubernetes keeps it,
	// newest first.
	Events(context.Context, Source) ([]Event, error)
}

// Source is one GitRepository, OCIRepository or Bucket.
type Source struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	URL       string    `json:"url,omitempty"`      // without credentials
	Revision  string    `json:"revision,omitempty"` // that was fetched last
	Ready     string    `json:"ready"`              // True, False or Unknown
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
	Since     time.Time `json:"since,omitzero"` // it is Ready, or not
	Suspended bool      `json:"suspended,omitempty"`
	UsedBy    []Key     `json:"usedBy,omitempty"` // stacks that the visitor may see

	UID string `json:"-"` // of the object
}

// Sources lists sources with the stacks that use them.
type Sources struct {
	kube  client.Reader
	board *Board
}

// NewSources returns the Sources that kube knows, with the stacks of board.
func NewSources(kube client.Reader, board *Board) *Sources { return &Sources{kube: kube, board: board} }

var _ SourceReader = (*Sources)(nil)

// List implements SourceReader: the sources of the namespaces in scope, by
// namespace, name and kind. A kind that the cluster does not know has none.
func (s *Sources) List(ctx context.Context, scope access.Scope) ([]Source, error) {
	used, err := s.board.users(scope)
	if err != nil {
		return nil, err
	}
	out := []Source{}
	for _, list := range []client.ObjectList{&sourcev1.GitRepositoryList{}, &sourcev1.OCIRepositoryList{}, &sourcev1.BucketList{}} {
		err := s.kube.List(ctx, list)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, access.Fault(err, "sources")
		}
		for _, v := range sourcesIn(list) {
			if scope.Has(v.Namespace) {
				v.UsedBy = used[sourceKey{v.Kind, v.Namespace, v.Name}]
				out = append(out, v)
			}
		}
	}
	slices.SortFunc(out, func(a, b Source) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return out, nil
}

// Events implements SourceReader.
func (s *Sources) Events(ctx context.Context, of Source) ([]Event, error) {
	return events(ctx, s.kube, of.Namespace, of.UID)
}

func sourcesIn(list client.ObjectList) []Source {
	var out []Source
	switch list := list.(type) {
	case *sourcev1.GitRepositoryList:
		for i := range list.Items {
			o := &list.Items[i]
			out = append(out, sourceOf(sourcev1.GitRepositoryKind, o, o.Spec.URL, o.Spec.Suspend, o.Status.Conditions))
		}
	case *sourcev1.OCIRepositoryList:
		for i := range list.Items {
			o := &list.Items[i]
			out = append(out, sourceOf(sourcev1.OCIRepositoryKind, o, o.Spec.URL, o.Spec.Suspend, o.Status.Conditions))
		}
	case *sourcev1.BucketList:
		for i := range list.Items {
			o := &list.Items[i]
			out = append(out, sourceOf(sourcev1.BucketKind, o, o.Spec.Endpoint+"/"+o.Spec.BucketName, o.Spec.Suspend, o.Status.Conditions))
		}
	}
	return out
}

func sourceOf(kind string, o interface {
	client.Object
	sourcev1.Source
}, address string, suspended bool, conditions []metav1.Condition) Source {
	s := Source{
		Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()), URL: withoutPassword(address),
		Suspended: suspended, Ready: string(metav1.ConditionUnknown),
	}
	if a := o.GetArtifact(); a != nil {
		s.Revision = a.Revision
	}
	if c := meta.FindStatusCondition(conditions, "Ready"); c != nil {
		s.Ready, s.Reason, s.Since = string(c.Status), c.Reason, c.LastTransitionTime.Time
		s.Message, _ = plan.MaskURLs(c.Message) // another controller may have written it
	}
	return s
}

// withoutPassword removes credentials from an address: a password, and
// a user who may be a token. What is no URL, as git@host:path, has neither.
func withoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		// The address of a bucket has no scheme, and may be read as anything.
		return address[strings.LastIndex(address, "@")+1:]
	}
	if u.User == nil {
		return address
	}
	if _, secret := u.User.Password(); secret || u.Scheme != "ssh" {
		u.User = nil
	}
	return u.String()
}

type sourceKey struct{ kind, namespace, name string }

// users lists the stacks in scope by the source that they use.
func (b *Board) users(scope access.Scope) (map[sourceKey][]Key, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.synced {
		return nil, errNotReady
	}
	out := map[sourceKey][]Key{}
	for _, c := range b.order {
		if k, ok := sourceUsed(c.row.Stack); ok && scope.Of(c.key.Kind).Has(c.key.Namespace) {
			out[k] = append(out[k], c.key)
		}
	}
	return out, nil
}

// sourceUsed reads Stack.Source: Kind/name, Kind/namespace/name, or inline.
func sourceUsed(s Stack) (sourceKey, bool) {
	switch parts := strings.Split(s.Source, "/"); len(parts) {
	case 2:
		return sourceKey{parts[0], s.Namespace, parts[1]}, true
	case 3:
		return sourceKey{parts[0], parts[1], parts[2]}, true
	default:
		return sourceKey{}, false
	}
}
