package provision

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/terrier-iac/terrier/internal/backend"
)

// kubernetes is a namespace of a cluster in which the engine keeps states. Beside the Secret of
// a state lies one that names its owner.
//
//	Secret tfstate-default-network         the engine's
//	Secret terrier-owner-default-network   owner, as JSON
type kubernetes struct {
	http      *http.Client
	secrets   *url.URL
	namespace string
	name      string // WORKSPACE-SUFFIX
	version   string // of the owner, as it was read last
}

// secretObject is as much of a Secret as there is of an owner.
type secretObject struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   secretMeta        `json:"metadata"`
	Data       map[string][]byte `json:"data,omitempty"`
}

type secretMeta struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

const (
	ownerKey      = "owner"
	clusterWithin = time.Minute // of one request
)

func (p Plugins) openKubernetes(_ context.Context, r backend.Request) (place, error) {
	b, _ := backend.Find(backend.Kubernetes)
	block, err := b.Render(r)
	if err != nil {
		return nil, err
	}
	config, err := p.clusterOf(block)
	if err != nil {
		return nil, fmt.Errorf("%w: reading how the cluster of the state is reached: %w", errUnseen, err)
	}
	config.Timeout = clusterWithin
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("reaching the cluster of the state: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("reaching the cluster of the state: %w", err)
	}
	k := &kubernetes{http: client, namespace: block.Text("namespace"), name: cmp.Or(r.Stack.Workspace, "default") + "-" + block.Text("secret_suffix")}
	k.secrets = base.JoinPath("api", "v1", "namespaces", k.namespace, "secrets")
	return k, nil
}

// clusterOf reads what the engine reads.
func (p Plugins) clusterOf(b backend.Block) (*rest.Config, error) {
	file := b.Text("config_path")
	if file == "" {
		return rest.InClusterConfig()
	}
	if !filepath.IsAbs(file) && !strings.HasPrefix(file, "~/") {
		return nil, fmt.Errorf("config_path is %.200q, which is relative to the directory of the engine", file)
	}
	if below, home := strings.CutPrefix(file, "~/"); home {
		file = filepath.Join(p.Environ("HOME"), below)
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: b.Text("config_context")}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, overrides).ClientConfig()
}

// do makes one request about a Secret; an empty name is all of them.
func (k *kubernetes) do(ctx context.Context, method, name string, in, out *secretObject) (status int, err error) {
	var body []byte
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return 0, err
		}
	}
	at := k.secrets
	if name != "" {
		at = at.JoinPath(name)
	}
	r, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	a, err := send(k.http, r)
	if err != nil {
		return 0, err
	}
	var told struct{ Message string }
	_ = json.Unmarshal(a.body, &told) // the status says enough otherwise
	switch {
	case a.status == http.StatusForbidden:
		return a.status, fmt.Errorf("%w: %s", errDenied, told.Message)
	case a.status == http.StatusNotFound && method != http.MethodPost, a.status == http.StatusConflict:
		return a.status, nil
	case !a.ok():
		return a.status, fmt.Errorf("the API server answered %d: %s", a.status, told.Message)
	case out != nil:
		return a.status, json.Unmarshal(a.body, out)
	default:
		return a.status, nil
	}
}

func (k *kubernetes) what() string { return "the namespace " + k.namespace + " of the cluster" }

// The namespace is its user's to make, and often not the run's to read.
func (k *kubernetes) there(context.Context) (bool, error)       { return true, nil }
func (k *kubernetes) create(context.Context) error              { return nil }
func (k *kubernetes) traits() []trait                           { return nil }
func (k *kubernetes) vacant(context.Context) (bool, error)      { return false, nil }
func (k *kubernetes) removePlace(context.Context) (bool, error) { return false, nil }

func (k *kubernetes) state() string    { return "tfstate-" + k.name }
func (k *kubernetes) owner() string    { return "terrier-owner-" + k.name }
func (k *kubernetes) objects() objects { return k }

func (k *kubernetes) hasState(ctx context.Context) (bool, error) {
	status, err := k.do(ctx, http.MethodGet, k.state(), nil, nil)
	return status == http.StatusOK, err
}

func (k *kubernetes) get(ctx context.Context, object string) ([]byte, error) {
	var o secretObject
	status, err := k.do(ctx, http.MethodGet, object, nil, &o)
	if err != nil || status == http.StatusNotFound {
		return nil, err
	}
	k.version = o.Metadata.ResourceVersion
	return append([]byte{}, o.Data[ownerKey]...), nil // without the key it is there, and cannot be read
}

func (k *kubernetes) put(ctx context.Context, object string, data []byte, absent bool) (bool, error) {
	o := &secretObject{APIVersion: "v1", Kind: "Secret", Data: map[string][]byte{ownerKey: data}, Metadata: secretMeta{
		Name: object, Namespace: k.namespace, Labels: map[string]string{"app.kubernetes.io/managed-by": "terrier"},
	}}
	method, name := http.MethodPost, ""
	if !absent {
		method, name, o.Metadata.ResourceVersion = http.MethodPut, object, k.version
	}
	status, err := k.do(ctx, method, name, o, nil)
	return err == nil && status < http.StatusMultipleChoices, err
}

func (k *kubernetes) remove(ctx context.Context, object string) error {
	_, err := k.do(ctx, http.MethodDelete, object, nil, nil)
	return err
}
