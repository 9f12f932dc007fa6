package children

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/terrier-iac/terrier/internal/tenant"
)

// unchanged reports whether a write would certainly change nothing: live has every
// desired field, and Terrier manages these and no others. In doubt Write asks the
// server, by writing. Asked is desired without the ignored fields, whose manager
// does not matter.
func unchanged(strategy tenant.PatchStrategy, asked, desired, live *unstructured.Unstructured) bool {
	switch strategy {
	case tenant.Merge:
		return len(differing(asked.Object, live.Object)) == 0 // a merge removes nothing
	case tenant.Replace:
		set := ours(live, metav1.ManagedFieldsOperationUpdate)
		return set != nil && len(differing(asked.Object, live.Object)) == 0 && within(set, desired.Object, live.Object)
	}
	set := ours(live, metav1.ManagedFieldsOperationApply)
	return set != nil && applied(set, unnamed(stored(asked.Object)), live.Object, false) && within(set, desired.Object, live.Object)
}

// ours are the fields that Terrier manages by an operation; nil if there are none.
func ours(live *unstructured.Unstructured, operation metav1.ManagedFieldsOperationType) *fieldpath.Set {
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == manager && entry.Operation == operation && entry.Subresource == "" {
			return inData(fieldSet(entry))
		}
	}
	return nil
}

// inData adds the managed fields below stringData to those below data, where a
// Secret keeps them.
func inData(set *fieldpath.Set) *fieldpath.Set {
	if set == nil {
		return nil
	}
	texts, data := "stringData", "data"
	if below, ok := set.Children.Get(fieldpath.PathElement{FieldName: &texts}); ok {
		kept := set.Children.Descend(fieldpath.PathElement{FieldName: &data})
		*kept = *kept.Union(below)
	}
	return set
}

func fieldSet(entry metav1.ManagedFieldsEntry) *fieldpath.Set {
	if entry.FieldsV1 == nil {
		return nil
	}
	set := &fieldpath.Set{}
	if err := set.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
		return nil
	}
	return set
}

// unnamed is an object without its identity, which has no manager.
func unnamed(object map[string]any) map[string]any {
	u := (&unstructured.Unstructured{Object: object}).DeepCopy()
	for _, field := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}} {
		unstructured.RemoveNestedField(u.Object, field...)
	}
	return u.Object
}

// applied reports whether a value has all wanted fields and all of these are in a
// set of managed fields. The set says which lists have keys, so that elements of
// others do no harm. A list without keys, and an atomic map, is managed as a
// whole: it has left the set if another manager changed any of it.
func applied(set *fieldpath.Set, want, is any, quantity bool) bool {
	switch want := want.(type) {
	case map[string]any:
		has, ok := is.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range want {
			if v == nil && has[k] == nil {
				continue
			}
			step := fieldpath.PathElement{FieldName: &k}
			if !appliedAt(set, step, v, has[k], quantity || isQuantity(k)) {
				return false
			}
		}
		return true
	case []any:
		has, _ := is.([]any)
		for _, v := range want {
			step, found := elementOf(set, v)
			if !found {
				return false
			}
			i := slices.IndexFunc(has, func(e any) bool { return matches(step, e) })
			if i < 0 || !appliedAt(set, step, v, has[i], quantity) {
				return false
			}
		}
		return true
	}
	return false // a scalar with fields below it
}

func appliedAt(set *fieldpath.Set, step fieldpath.PathElement, want, is any, quantity bool) bool {
	if below, ok := set.Children.Get(step); ok {
		return applied(below, want, is, quantity)
	}
	return set.Members.Has(step) && covers(want, is, quantity)
}

// elementOf finds the step in a set that leads to an element of a list.
func elementOf(set *fieldpath.Set, element any) (step fieldpath.PathElement, found bool) {
	check := func(s fieldpath.PathElement) { // Iterate cannot stop early
		if !found && matches(s, element) {
			step, found = s, true
		}
	}
	set.Children.Iterate(check)
	set.Members.Iterate(check)
	return step, found
}

// matches reports whether a step leads to this element of a list.
func matches(step fieldpath.PathElement, element any) bool {
	switch {
	case step.Key != nil:
		return keyed(element, *step.Key)
	case step.Value != nil:
		return equal(element, (*step.Value).Unstructured())
	}
	return false
}

// keyed reports whether an element of a list has a key. A part of the key that the
// element leaves out has its default, such as the protocol of a port.
func keyed(element any, key value.FieldList) bool {
	m, ok := element.(map[string]any)
	if !ok {
		return false
	}
	some := false
	for _, f := range key {
		v, set := m[f.Name]
		if set && !equal(v, f.Value.Unstructured()) {
			return false
		}
		some = some || set
	}
	return some
}

// within reports whether an object has all fields of a set that live has. A write
// cannot remove the fields that live does not have, such as maps that were empty.
func within(set *fieldpath.Set, object, live map[string]any) bool {
	object = withData(object)
	all := true
	set.Iterate(func(p fieldpath.Path) { all = all && (has(object, p) || !has(live, p)) })
	return all
}

// has reports whether an object has the field of a managed path.
func has(at any, path fieldpath.Path) bool {
	for _, step := range path {
		switch {
		case step.FieldName != nil:
			m, _ := at.(map[string]any)
			next, ok := m[*step.FieldName]
			if !ok {
				return false
			}
			at = next
		case step.Index != nil:
			list, _ := at.([]any)
			if *step.Index >= len(list) {
				return false
			}
			at = list[*step.Index]
		default:
			list, _ := at.([]any)
			i := slices.IndexFunc(list, func(e any) bool { return matches(step, e) })
			if i < 0 {
				return false
			}
			at = list[i]
		}
	}
	return true
}
