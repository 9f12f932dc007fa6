package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Outputs that outgrow a Secret (1 MiB) are spread over several: the one that
// was asked for, and parts that it names. A part bears the digest of everything
// in its name, so that the switch from one set of outputs to the next is the one
// write of the Secret that was asked for.
const (
	outputsParts = "terrier.dev/outputs-parts" // on the first: the names of the others, separated by commas
	outputsCut   = "terrier.dev/outputs-cut"   // on the first: keys whose value is cut into <key>__part0, <key>__part1, …
	outputsOf    = "terrier.dev/outputs-of"    // label on a part: the name of the first
	cutSuffix    = "__part"

	partBytes = 900 << 10 // of keys and values in one Secret
	partsMost = 64
)

// spread is outputs divided among Secrets, the first of which is the one that
// was asked for.
type spread struct {
	first map[string][]byte
	rest  []map[string][]byte
	cut   []string // keys whose values are in pieces
}

// divide keeps small values together in the first Secret, where their readers
// look for them, and what is too large for one Secret in pieces.
func divide(data map[string][]byte) (spread, error) {
	total := 0
	for k, v := range data {
		total += len(k) + len(v)
	}
	if total <= partBytes {
		return spread{first: data}, nil
	}
	keys := slices.SortedFunc(maps.Keys(data), func(a, b string) int {
		if d := len(data[a]) - len(data[b]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var s spread
	parts, room := []map[string][]byte{{}}, partBytes
	put := func(k string, v []byte) {
		if room < len(k)+len(v) {
			parts, room = append(parts, map[string][]byte{}), partBytes
		}
		parts[len(parts)-1][k] = v
		room -= len(k) + len(v)
	}
	for _, k := range keys {
		v := data[k]
		if len(k)+len(v) <= partBytes {
			put(k, v)
			continue
		}
		s.cut = append(s.cut, k)
		piece := partBytes - len(k) - len(cutSuffix) - 4
		for n, chunk := range slices.Collect(slices.Chunk(v, piece)) {
			name := k + cutSuffix + strconv.Itoa(n)
			if !stack.IsSecretKey(name) {
				return s, fault.New(fault.Invalid, "OutputKeyInvalid", fmt.Errorf("the key %.60q holds an output that is too large for one Secret, and is too long for its parts %q: give it a shorter key with an entry OUTPUT:KEY in writeOutputsToSecret.outputs", k, "…"+cutSuffix+strconv.Itoa(n)))
			}
			if _, taken := data[name]; taken {
				return s, fault.New(fault.Invalid, "OutputKeyTaken", fmt.Errorf("the key %.60q holds an output that is too large for one Secret, and another output has the key of its part %q: give one of them another key with an entry OUTPUT:KEY in writeOutputsToSecret.outputs", k, name))
			}
			put(name, chunk)
		}
	}
	if len(parts) > partsMost {
		return s, fault.New(fault.Invalid, "OutputsTooLarge", fmt.Errorf("the outputs hold %d MiB, more than %d Secrets have room for: select some with writeOutputsToSecret.outputs", total>>20, partsMost))
	}
	s.first, s.rest = parts[0], parts[1:]
	return s, nil
}

// names are those of the parts, for outputs in the Secret called first.
func (s spread) names(first, digest string) []string {
	_, hex, _ := strings.Cut(digest, ":")
	var names []string
	for i := range s.rest {
		names = append(names, fmt.Sprintf("%s-%.10s-%d", first, hex, i+2))
	}
	return names
}

// writeParts creates the parts that do not exist yet.
func writeParts(ctx context.Context, c client.Client, owner client.Object, first string, s spread, names []string) error {
	for i, name := range names {
		key := types.NamespacedName{Namespace: owner.GetNamespace(), Name: name}
		part := corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: key.Name, Namespace: key.Namespace,
				Labels:      map[string]string{outputsOf: labelOf(first)},
				Annotations: map[string]string{outputsDigest: stack.Digest(s.rest[i])},
			},
			Type: corev1.SecretTypeOpaque,
			Data: s.rest[i],
		}
		if err := controllerutil.SetControllerReference(owner, &part, c.Scheme()); err != nil {
			return err
		}
		err := c.Create(ctx, &part, client.FieldOwner(FieldManager))
		if apierrors.IsAlreadyExists(err) { // of a write that was interrupted, or of another writer
			err = repairPart(ctx, c, owner, part)
		}
		if err != nil {
			return mark(err, "Secret", key)
		}
	}
	return nil
}

// repairPart gives an existing part the data that it should hold.
func repairPart(ctx context.Context, c client.Client, owner client.Object, want corev1.Secret) error {
	var have corev1.Secret
	if err := c.Get(ctx, client.ObjectKeyFromObject(&want), &have); err != nil {
		return err
	}
	if !metav1.IsControlledBy(&have, owner) {
		return fault.New(fault.Denied, "SecretOwned", errors.New("writeOutputsToSecret.name: another object owns it; choose another name"))
	}
	if stack.Digest(have.Data) == want.Annotations[outputsDigest] {
		return nil
	}
	have.Data, have.Annotations = want.Data, merged(have.Annotations, want.Annotations)
	return c.Update(ctx, &have, client.FieldOwner(FieldManager))
}

// dropParts removes the parts of owner that the first Secret no longer names. Without
// the right to list Secrets, these are the parts that it named before.
func dropParts(ctx context.Context, c client.Client, owner client.Object, first string, before, keep []string) error {
	var list corev1.SecretList
	err := c.List(ctx, &list, client.InNamespace(owner.GetNamespace()), client.MatchingLabels{outputsOf: labelOf(first)})
	if apierrors.IsForbidden(err) {
		list.Items, err = existing(ctx, c, owner.GetNamespace(), before)
	}
	if err != nil {
		return mark(err, "Secrets", types.NamespacedName{Namespace: owner.GetNamespace()})
	}
	for i := range list.Items {
		s := &list.Items[i]
		if !metav1.IsControlledBy(s, owner) || slices.Contains(keep, s.Name) {
			continue
		}
		if err := c.Delete(ctx, s); client.IgnoreNotFound(err) != nil {
			return mark(err, "Secret", client.ObjectKeyFromObject(s))
		}
	}
	return nil
}

// existing are the Secrets of these names that exist.
func existing(ctx context.Context, c client.Client, namespace string, names []string) ([]corev1.Secret, error) {
	var all []corev1.Secret
	for _, name := range names {
		var s corev1.Secret
		err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &s)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// labelOf is a name as the value of a label, which is shorter than a name.
func labelOf(name string) string {
	if len(name) <= 63 {
		return name
	}
	_, hex, _ := strings.Cut(stack.Digest(name), ":")
	return name[:50] + "." + hex[:12]
}

// assemble adds the data of its parts to the data of a Secret. Each part must be
// unchanged.
func assemble(ctx context.Context, c client.Reader, s *corev1.Secret) (map[string][]byte, error) {
	names := s.Annotations[outputsParts]
	if names == "" {
		return s.Data, nil
	}
	data := maps.Clone(s.Data)
	for name := range strings.SplitSeq(names, ",") {
		key := types.NamespacedName{Namespace: s.Namespace, Name: name}
		var part corev1.Secret
		if err := c.Get(ctx, key, &part); err != nil {
			return nil, mark(err, "Secret", key)
		}
		if part.Annotations[outputsDigest] != stack.Digest(part.Data) {
			return nil, fault.New(fault.Broken, "OutputsChanged", fmt.Errorf("the Secret %s holds a part of the outputs in %s, and another writer changed it", key, s.Name))
		}
		maps.Copy(data, part.Data)
	}
	for key := range strings.SplitSeq(s.Annotations[outputsCut], ",") {
		if key == "" {
			continue
		}
		var whole []byte
		for n := 0; ; n++ {
			name := key + cutSuffix + strconv.Itoa(n)
			piece, ok := data[name]
			if !ok {
				break
			}
			whole = append(whole, piece...)
			delete(data, name)
		}
		data[key] = whole
	}
	return data, nil
}
