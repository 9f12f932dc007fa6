package testkit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/config/crd"
)

// installKinds applies our CustomResourceDefinitions and returns when their
// objects can be listed. Several test processes may do it at the same time.
func installKinds(config *rest.Config) error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	config = rest.CopyConfig(config)
	config.QPS = -1
	c, err := newClient(config, []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme})
	if err != nil {
		return err
	}
	files, err := fs.Glob(crd.Files, "*.yaml")
	if err != nil {
		return fmt.Errorf("listing our kinds: %w", err)
	}
	// Each new kind's first list waits a second for its cache, so all wait at once.
	failures := make([]error, len(files))
	var installing sync.WaitGroup
	for i, name := range files {
		installing.Go(func() {
			if err := installKind(ctx, c, name); err != nil {
				failures[i] = fmt.Errorf("installing %s: %w", name, err)
			}
		})
	}
	installing.Wait()
	return errors.Join(failures...)
}

func installKind(ctx context.Context, c client.Client, file string) error {
	content, err := fs.ReadFile(crd.Files, file)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &object.Object); err != nil {
		return err
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("testkit"), client.ForceOwnership); err != nil {
		return err
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, definition); err != nil {
		return err
	}
	for _, version := range definition.Spec.Versions {
		if !version.Served {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: definition.Spec.Group, Version: version.Name, Kind: definition.Spec.Names.ListKind})
		var last error
		err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			last = c.List(ctx, list, client.Limit(1))
			return last == nil, nil
		})
		if err != nil {
			return errors.Join(err, last)
		}
	}
	return nil
}
