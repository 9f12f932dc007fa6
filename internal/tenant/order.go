package tenant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// groups are in the order of creation of resources without dependencies.
var groups = []string{
	"serviceAccounts", "deployments", "statefulSets", "daemonSets", "services", "ingresses", "configMaps", "secrets",
	"persistentVolumeClaims", "jobs", "cronJobs", "podDisruptionBudgets", "networkPolicies", "horizontalPodAutoscalers",
	"namespaces", "manifests",
}

// Order returns resources in the order of creation: each after its dependencies,
// as early as that allows; then by group, then as they are written. Its error
// names what makes that impossible: every id that does not exist, or a cycle.
func Order(all []Resource) ([]Resource, error) {
	if errs := orderErrors(all); len(errs) > 0 {
		list := make([]error, len(errs))
		for i, e := range errs {
			list[i] = e
		}
		return nil, errors.Join(list...)
	}
	return sorted(all), nil
}

// sorted returns resources that have an order in it.
func sorted(all []Resource) []Resource {
	level := levels(all)
	ordered := slices.Clone(all)
	slices.SortStableFunc(ordered, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(level[a.ID], level[b.ID]), cmp.Compare(groupOrder(a.Group), groupOrder(b.Group)))
	})
	return ordered
}

// groupOrder is the place of a group; unknown ones come last.
func groupOrder(name string) int {
	if i := slices.Index(groups, name); i >= 0 {
		return i
	}
	return len(groups)
}

// orderErrors are the problems that make an order impossible.
func orderErrors(all []Resource) []ResourceError {
	var errs []ResourceError
	seen := map[string]Resource{}
	for _, r := range all {
		switch first, double := seen[r.ID]; {
		case r.ID == "":
			errs = append(errs, ResourceError{Message: fmt.Sprintf("a resource of %s has no id", r.Group)})
		case double:
			errs = append(errs, ResourceError{ID: r.ID, Field: "id", Message: fmt.Sprintf("the id is used twice, in %s and in %s", first.Group, r.Group)})
		default:
			seen[r.ID] = r
		}
	}
	for _, r := range all {
		for _, id := range r.DependIDs {
			if _, ok := seen[id]; !ok {
				errs = append(errs, ResourceError{ID: r.ID, Field: "dependIds", Message: fmt.Sprintf("there is no resource %q", id)})
			}
		}
	}
	if way := cycle(all, seen); way != nil {
		errs = append(errs, ResourceError{ID: way[0], Field: "dependIds", Message: "the resources depend on one another: " + strings.Join(way, " → ")})
	}
	return errs
}

// cycle returns the ids of one, the first of them again at its end, or nil.
func cycle(all []Resource, byID map[string]Resource) []string {
	var way []string
	done := map[string]bool{}
	var visit func(id string) []string
	visit = func(id string) []string {
		if i := slices.Index(way, id); i >= 0 {
			return append(slices.Clone(way[i:]), id)
		}
		if done[id] {
			return nil
		}
		way = append(way, id)
		for _, next := range byID[id].DependIDs {
			if found := visit(next); found != nil {
				return found
			}
		}
		way = way[:len(way)-1]
		done[id] = true
		return nil
	}
	for _, r := range all {
		if found := visit(r.ID); found != nil {
			return found
		}
	}
	return nil
}

// levels is the length of the longest chain of dependencies of each resource; there
// must be no cycle.
func levels(all []Resource) map[string]int {
	byID := map[string]Resource{}
	for _, r := range all {
		byID[r.ID] = r
	}
	level := map[string]int{}
	var of func(id string) int
	of = func(id string) int {
		if n, ok := level[id]; ok {
			return n
		}
		n := 0
		for _, d := range byID[id].DependIDs {
			n = max(n, of(d)+1)
		}
		level[id] = n
		return n
	}
	for _, r := range all {
		of(r.ID)
	}
	return level
}
