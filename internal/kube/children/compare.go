package children

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// differing are the paths, in order, at which live is not as desired. Fields that
// are not desired are ignored. Lists are compared as a whole, except for owners,
// to which others may have added; quantities, and the stringData of a Secret, by
// what the server makes of them.
func differing(desired, live map[string]any) [][]string {
	var all [][]string
	collectDiffering(nil, stored(desired), live, &all)
	return all
}

// stored is an object as the server keeps it: a Secret without stringData.
func stored(object map[string]any) map[string]any {
	if _, ok := object["stringData"].(map[string]any); !ok || object["kind"] != "Secret" || object["apiVersion"] != "v1" {
		return object
	}
	object = withData(object)
	delete(object, "stringData")
	return object
}

// withData is an object with stringData in its data as well, as a Secret has it.
func withData(object map[string]any) map[string]any {
	texts, ok := object["stringData"].(map[string]any)
	if !ok || object["kind"] != "Secret" || object["apiVersion"] != "v1" {
		return object
	}
	object = maps.Clone(object)
	data := map[string]any{}
	if was, ok := object["data"].(map[string]any); ok {
		maps.Copy(data, was)
	}
	for k, v := range texts {
		data[k] = base64.StdEncoding.EncodeToString(fmt.Append(nil, v))
	}
	object["data"] = data
	return object
}

func collectDiffering(path []string, desired, live map[string]any, all *[][]string) {
	for _, k := range slices.Sorted(maps.Keys(desired)) {
		at := append(slices.Clone(path), k)
		want, is := desired[k], live[k]
		if m, ok := want.(map[string]any); ok && len(m) > 0 {
			n, _ := is.(map[string]any)
			collectDiffering(at, m, n, all)
			continue
		}
		if slices.Equal(at, []string{"metadata", "ownerReferences"}) && among(want, is) {
			continue
		}
		if !covers(want, is, slices.ContainsFunc(at, isQuantity)) {
			*all = append(*all, at)
		}
	}
}

// among reports whether every wanted element is in a list.
func among(want, is any) bool {
	wanted, _ := want.([]any)
	list, _ := is.([]any)
	return !slices.ContainsFunc(wanted, func(w any) bool {
		return !slices.ContainsFunc(list, func(e any) bool { return covers(w, e, false) })
	})
}

// dropped are the fields of live that are not desired and that a replace would
// remove: metadata and status stay.
func dropped(desired, live map[string]any) [][]string {
	var all [][]string
	collectDropped(nil, stored(desired), live, &all)
	return all
}

func collectDropped(path []string, desired, live map[string]any, all *[][]string) {
	for _, k := range slices.Sorted(maps.Keys(live)) {
		if len(path) == 0 && (k == "metadata" || k == "status") {
			continue
		}
		at := append(slices.Clone(path), k)
		want, wanted := desired[k]
		m, isMap := want.(map[string]any)
		n, hasMap := live[k].(map[string]any)
		switch {
		case !wanted:
			*all = append(*all, at)
		case isMap && hasMap:
			collectDropped(at, m, n, all)
		}
	}
}

// quantities are fields whose values, at any depth, are quantities.
var quantities = []string{"limits", "requests", "capacity", "hard", "sizeLimit", "divisor"}

func isQuantity(field string) bool { return slices.Contains(quantities, field) }

// covers reports whether a value has everything that is wanted.
func covers(want, is any, quantity bool) bool {
	switch want := want.(type) {
	case nil:
		return is == nil
	case map[string]any:
		m, ok := is.(map[string]any)
		if !ok {
			return false // an empty one means something, such as emptyDir: {}
		}
		for k, v := range want {
			if !covers(v, m[k], quantity || isQuantity(k)) {
				return false
			}
		}
		return true
	case []any:
		list, ok := is.([]any)
		if !ok || len(list) != len(want) {
			return false
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

// isScalar reports whether a value is a scalar, which == can compare.
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
