package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

const (
	starts = 3
	rest   = 30 * time.Second
)

// platform measures `terrier up`, started several times on new directories.
func (b *bench) platform(ctx context.Context, out io.Writer) error {
	var ready, first []time.Duration
	for i := range starts {
		p, err := testkit.NewPlatform(testkit.PlatformOptions{Dir: filepath.Join(b.scratch, fmt.Sprint("up-", i))})
		if err != nil {
			return err
		}
		took, err := firstStack(ctx, p)
		if err == nil {
			ready, first = append(ready, p.Started), append(first, p.Started+took)
			if i == starts-1 {
				err = idle(ctx, out, p.PID())
			}
		}
		if err := errors.Join(err, p.Close()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "terrier up to ready: %s; goal 4 s\nterrier up to the first ready stack: %s; goal 10 s\n", seconds(ready), seconds(first))
	return err
}

// firstStack says how long the first stack takes to be ready.
func firstStack(ctx context.Context, p *testkit.Platform) (time.Duration, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		return 0, err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha2.AddToScheme(scheme); err != nil {
		return 0, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return 0, err
	}
	s := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "first"}}
	s.Spec.ApprovePlan = v1alpha2.ApproveAuto
	module, err := json.Marshal(map[string]string{"hcl": builtin})
	if err != nil {
		return 0, err
	}
	s.Spec.Values = &apiextensionsv1.JSON{Raw: module}
	began := time.Now()
	if err := c.Create(ctx, s); err != nil {
		return 0, err
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(s), s)
		return meta.IsStatusConditionTrue(s.Status.Conditions, "Ready"), err
	})
	return time.Since(began), err
}

// idle prints what a process holds in memory once it has nothing to do.
func idle(ctx context.Context, out io.Writer, pid int) error {
	if err := sleep(ctx, rest); err != nil {
		return err
	}
	mib, err := rssOf(pid)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\nmemory of terrier up with one stack after %s at rest: %d MiB\n", rest, mib)
	return err
}

func seconds(all []time.Duration) string {
	var parts []string
	for _, d := range all {
		parts = append(parts, fmt.Sprintf("%.1f s", d.Seconds()))
	}
	return strings.Join(parts, ", ")
}
