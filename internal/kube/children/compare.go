package children

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/terrier-iac/terrier/internal/tenant"
)

// unchanged says that writing would change nothing, for certain: live has all
// that is desired, and we manage nothing that is not desired any more. In doubt
// the server is asked, by writing.
func unchanged(strategy tenant.PatchStrategy, desired, live *unstructured.Unstructured) bool {
	if len(differing(desired.Object, live.Object)) > 0 {
		return false
	}
	operation := metav1.ManagedFieldsOperationApply
	switch strategy {
	case tenant.Merge:
		return true // a merge takes nothing away
	case tenant.Replace:
		operation = metav1.ManagedFieldsOperationUpdate
	}
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == manager && entry.Operation == operation && entry.Subresource == "" {
			return within(entry, desired.Object)
		}
	}
	return false // we manage nothing of it yet
}

// within says that all fields of an entry are in an object.
func within(entry metav1.ManagedFieldsEntry, object map[string]any) bool {
	set := fieldSet(entry)
	if set == nil {
		return false
	}
	all := true
	set.Iterate(func(p fieldpath.Path) { all = all && has(object, p) })
	return all
}

func fieldSet(entry metav1.ManagedFieldsEntry) *fieldpath.Set {
	if entry.FieldsV1 == nil {
		return nil
	}
	set := &fieldpath.Set{}
	if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.Raw)); err != nil {
		return nil
	}
	return set
}

// has says that a managed path leads somewhere in an object.
func has(at any, path fieldpath.Path) bool {
	for _, step := range path {
		switch {
		case step.FieldName != nil:
			m, ok := at.(map[string]any)
			if !ok {
				return false
			}
			if at, ok = m[*step.FieldName]; !ok {
				return false
			}
		case step.Key != nil:
			list, _ := at.([]any)
			i := slices.IndexFunc(list, func(e any) bool { return keyed(e, *step.Key) })
			if i < 0 {
				return false
			}
			at = list[i]
		case step.Value != nil:
			list, _ := at.([]any)
			want := (*step.Value).Unstructured()
			i := slices.IndexFunc(list, func(e any) bool { return equal(e, want) })
			if i < 0 {
				return false
			}
			at = list[i]
		case step.Index != nil:
			list, _ := at.([]any)
			if *step.Index >= len(list) {
				return false
			}
			at = list[*step.Index]
		}
	}
	return true
}

// keyed says that an element of a list has a key. A part of the key that the
// element leaves out has its default, such as the protocol of a port.
func keyed(element any, key value.FieldList) bool {
	m, ok := element.(map[string]any)
	if !ok {
		return false
	}
	for _, f := range key {
		if v, set := m[f.Name]; set && !equal(v, f.Value.Unstructured()) {
			return false
		}
	}
	return true
}

// holds says that a manager set the field of a path, or something in it. Lists
// are taken as a whole.
func holds(entry metav1.ManagedFieldsEntry, path []string) bool {
	set := fieldSet(entry)
	if set == nil {
		return false
	}
	found := false
	set.Iterate(func(p fieldpath.Path) {
		for i, step := range p {
			if i >= len(path) {
				break
			}
			if step.FieldName == nil {
				found = true // into a list that our path is
				return
			}
			if *step.FieldName != path[i] {
				return
			}
		}
		found = found || len(p) >= len(path)
	})
	return found
}

// differing are the paths, in order, at which live is not what is desired.
// Fields that are not desired are nobody's business here, lists are compared as
// a whole, and so is what the server writes in another way: quantities, and the
// stringData of a Secret.
func differing(desired, live map[string]any) [][]string {
	var all [][]string
	if data, ok := desired["stringData"].(map[string]any); ok && desired["kind"] == "Secret" {
		desired = encoded(desired, data)
	}
	walk(nil, desired, live, &all)
	return all
}

// encoded is a Secret as the server keeps it.
func encoded(secret, texts map[string]any) map[string]any {
	secret = maps.Clone(secret)
	delete(secret, "stringData")
	data := map[string]any{}
	if was, ok := secret["data"].(map[string]any); ok {
		maps.Copy(data, was)
	}
	for k, v := range texts {
		data[k] = base64.StdEncoding.EncodeToString(fmt.Append(nil, v))
	}
	secret["data"] = data
	return secret
}

func walk(path []string, desired, live map[string]any, all *[][]string) {
	for _, k := range slices.Sorted(maps.Keys(desired)) {
		at := append(slices.Clone(path), k)
		want, is := desired[k], live[k]
		if m, ok := want.(map[string]any); ok {
			n, _ := is.(map[string]any)
			walk(at, m, n, all)
			continue
		}
		if !covers(want, is, isQuantity(at)) {
			*all = append(*all, at)
		}
	}
}

// quantities are fields whose values, at any depth, are quantities.
var quantities = []string{"limits", "requests", "capacity", "hard", "sizeLimit", "divisor"}

func isQuantity(path []string) bool {
	return slices.ContainsFunc(path, func(s string) bool { return slices.Contains(quantities, s) })
}

// covers says that a value has everything that is wanted of it.
func covers(want, is any, quantity bool) bool {
	switch want := want.(type) {
	case nil:
		return is == nil
	case map[string]any:
		m, ok := is.(map[string]any)
		if !ok {
			return len(want) == 0 && is == nil
		}
		for k, v := range want {
			if !covers(v, m[k], quantity || slices.Contains(quantities, k)) {
				return false
			}
		}
		return true
	case []any:
		list, ok := is.([]any)
		if !ok || len(list) != len(want) {
			return len(want) == 0 && is == nil
		}
		for i := range want {
			if !covers(want[i], list[i], quantity) {
				return false
			}
		}
		return true
	}
	return equal(want, is) || quantity && sameQuantity(want, is)
}

// equal compares scalars; numbers by their value.
func equal(a, b any) bool {
	x, ok := number(a)
	y, also := number(b)
	if ok && also {
		return x.Cmp(y) == 0
	}
	return ok == also && isScalar(a) && isScalar(b) && a == b
}

// isScalar says that a value is a scalar, which == may be asked about.
func isScalar(v any) bool {
	switch v.(type) {
	case nil, string, bool, int64, int, int32, float64:
		return true
	}
	return false
}

func number(v any) (*big.Float, bool) {
	switch v := v.(type) {
	case int64:
		return new(big.Float).SetInt64(v), true
	case int:
		return new(big.Float).SetInt64(int64(v)), true
	case int32:
		return new(big.Float).SetInt64(int64(v)), true
	case float64:
		return big.NewFloat(v), true
	}
	return nil, false
}

func sameQuantity(a, b any) bool {
	x, err := resource.ParseQuantity(fmt.Sprint(a))
	if err != nil {
		return false
	}
	y, err := resource.ParseQuantity(fmt.Sprint(b))
	return err == nil && x.Cmp(y) == 0
}
