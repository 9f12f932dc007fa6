package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Names of readable plans, as tofu-controller gives them.
const (
	planKey          = "tfplan"
	planNameLabel    = "infra.contrib.fluxcd.io/plan-name"
	planWorkspace    = "infra.contrib.fluxcd.io/plan-workspace"
	planFullName     = "infra.contrib.fluxcd.io/plan-full-name"
	planFullSpace    = "infra.contrib.fluxcd.io/plan-full-workspace"
	planChunk        = "infra.contrib.fluxcd.io/plan-chunk"
	planHash         = "infra.contrib.fluxcd.io/plan-hash"
	planChunks       = "terrier.dev/plan-chunks" // their number, so that a missing last one is noticed
	planSaved        = "savedPlan"
	planChunkBytes   = 1 << 20
	planLabelMaximum = 63
)

// ReadablePlan is a plan for users and programs to read in the cluster.
type ReadablePlan struct {
	Workspace string
	Name      string // the plan's public name
	JSON      []byte // published as a Secret, packed
	Text      []byte // published as a ConfigMap
}

// WriteReadablePlan publishes p beside its owner, and removes the plan before it.
func WriteReadablePlan(ctx context.Context, c client.Client, owner client.Object, p ReadablePlan) error {
	want := map[string]client.Object{}
	if p.JSON != nil {
		packed, err := gzipped(p.JSON)
		if err != nil {
			return err
		}
		name := owner.GetName() + ".json"
		for i, part := range chunks(packed, false) {
			o := &corev1.Secret{ObjectMeta: planMeta(owner, p, name, i, part.of, packed), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{planKey: part.bytes}}
			o.Annotations["encoding"] = "gzip"
			want["Secret/"+o.Name] = o
		}
	}
	if p.Text != nil {
		for i, part := range chunks(p.Text, true) {
			o := &corev1.ConfigMap{ObjectMeta: planMeta(owner, p, owner.GetName(), i, part.of, p.Text), Data: map[string]string{planKey: string(part.bytes)}}
			want["ConfigMap/"+o.Name] = o
		}
	}
	for key, o := range want {
		if err := controllerutil.SetOwnerReference(owner, o, c.Scheme()); err != nil {
			return err
		}
		if err := replace(ctx, c, o); err != nil {
			return fmt.Errorf("writing the readable plan %s: %w", key, err)
		}
	}
	return removeReadable(ctx, c, owner, p.Workspace, want)
}

// removeReadable deletes readable plans of owner that are not among keep.
func removeReadable(ctx context.Context, c client.Client, owner client.Object, workspace string, keep map[string]client.Object) error {
	for _, name := range []string{owner.GetName(), owner.GetName() + ".json"} {
		match := client.MatchingLabels{planNameLabel: labelValue(name), planWorkspace: labelValue(workspace)}
		old, err := readables(ctx, c, owner, name, match)
		if apierrors.IsForbidden(err) { // the controller may not list, only use what it knows by name
			old, err = readablesByName(ctx, c, owner, workspace, name)
		}
		if err != nil {
			return err
		}
		for _, o := range old {
			kind := "Secret/"
			if _, ok := o.(*corev1.ConfigMap); ok {
				kind = "ConfigMap/"
			}
			if keep[kind+o.GetName()] != nil || !ownedBy(o, owner) {
				continue
			}
			if err := client.IgnoreNotFound(c.Delete(ctx, o)); err != nil {
				return err
			}
		}
	}
	return nil
}

// readables lists the objects with readable plans of this name.
func readables(ctx context.Context, c client.Client, owner client.Object, name string, match client.MatchingLabels) ([]client.Object, error) {
	var old []client.Object
	if name != owner.GetName() { // the binary plan belongs to another controller
		var secrets corev1.SecretList
		if err := c.List(ctx, &secrets, client.InNamespace(owner.GetNamespace()), match); err != nil {
			return nil, err
		}
		for i := range secrets.Items {
			old = append(old, &secrets.Items[i])
		}
	}
	var maps corev1.ConfigMapList
	if err := c.List(ctx, &maps, client.InNamespace(owner.GetNamespace()), match); err != nil {
		return nil, err
	}
	for i := range maps.Items {
		old = append(old, &maps.Items[i])
	}
	return old, nil
}

// readablesByName finds the same without a list: a plan has one object, or one for each
// of its chunks, which are numbered.
func readablesByName(ctx context.Context, c client.Client, owner client.Object, workspace, name string) ([]client.Object, error) {
	kind := func() client.Object { return &corev1.ConfigMap{} }
	if name != owner.GetName() {
		kind = func() client.Object { return &corev1.Secret{} }
	}
	var old []client.Object
	for _, chunked := range []bool{false, true} {
		for i := 0; i == 0 || chunked; i++ {
			o := kind()
			err := c.Get(ctx, client.ObjectKey{Namespace: owner.GetNamespace(), Name: planObject(workspace, name, i, chunked)}, o)
			if apierrors.IsNotFound(err) {
				break
			}
			if err != nil {
				return nil, err
			}
			old = append(old, o)
		}
	}
	return old, nil
}

// planObject is the name of the object with a chunk of a readable plan.
func planObject(workspace, name string, i int, chunked bool) string {
	object := "tfplan-" + workspace + "-" + name
	if chunked {
		object += "-" + strconv.Itoa(i)
	}
	return object
}

// RemoveReadablePlans deletes the readable plans of owner.
func RemoveReadablePlans(ctx context.Context, c client.Client, owner client.Object, workspace string) error {
	return removeReadable(ctx, c, owner, workspace, nil)
}

func ownedBy(o, owner client.Object) bool {
	for _, r := range o.GetOwnerReferences() {
		if r.UID == owner.GetUID() {
			return true
		}
	}
	return false
}

func replace(ctx context.Context, c client.Client, o client.Object) error {
	err := c.Create(ctx, o, client.FieldOwner(FieldManager))
	if client.IgnoreAlreadyExists(err) != nil || err == nil {
		return err
	}
	return c.Update(ctx, o, client.FieldOwner(FieldManager))
}

type chunk struct {
	bytes []byte
	of    int
}

// chunks cuts b into parts that an object can hold, text only between runes.
func chunks(b []byte, text bool) []chunk {
	var parts []chunk
	for len(b) > planChunkBytes {
		n := planChunkBytes
		for text && n > 0 && !utf8.RuneStart(b[n]) {
			n--
		}
		parts = append(parts, chunk{bytes: b[:n]})
		b = b[n:]
	}
	parts = append(parts, chunk{bytes: b})
	for i := range parts {
		parts[i].of = len(parts)
	}
	return parts
}

func planMeta(owner client.Object, p ReadablePlan, name string, i, count int, whole []byte) metav1.ObjectMeta {
	sum := sha256.Sum256(whole)
	return metav1.ObjectMeta{
		Name: planObject(p.Workspace, name, i, count > 1), Namespace: owner.GetNamespace(),
		Labels: map[string]string{planNameLabel: labelValue(name), planWorkspace: labelValue(p.Workspace)},
		Annotations: map[string]string{
			planSaved: p.Name, planFullName: name, planFullSpace: p.Workspace, planChunk: strconv.Itoa(i),
			planChunks: strconv.Itoa(count), planHash: hex.EncodeToString(sum[:]),
		},
	}
}

// labelValue shortens a value that is too long for a label, and keeps it distinct.
func labelValue(s string) string {
	if len(s) <= planLabelMaximum {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	suffix := "-" + hex.EncodeToString(sum[:8])
	return s[:planLabelMaximum-len(suffix)] + suffix
}
