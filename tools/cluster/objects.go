package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// connect is how this program speaks to the API server, on either side.
func connect(s state) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("no cluster runs in %s: make cluster-up starts it (%w)", s, err)
	}
	config.UserAgent = "terrier-cluster"
	return config, nil
}

// applyObjects applies what every cluster has. The API server makes namespaces
// and priority classes of its own only after it has said that it is ready.
func applyObjects(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	text, err := fs.ReadFile(files, "files/objects.yaml")
	if err != nil {
		return fmt.Errorf("reading a file of this program: %w", err)
	}
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var object unstructured.Unstructured
		if err := d.Decode(&object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a file of this program: %w", err)
		}
		kind, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		err := poll(ctx, 100*time.Millisecond, func() error {
			_, err := client.Resource(kind).Namespace(object.GetNamespace()).Apply(ctx, object.GetName(), &object, metav1.ApplyOptions{FieldManager: "cluster", Force: true})
			return err
		})
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}
