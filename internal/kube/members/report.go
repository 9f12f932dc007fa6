package members

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report is how the controllers share the stacks.
type Report struct {
	Members []Standing // by ID
	Leader  string     // the ID of the member that wrote the Map; empty before there is one
	Unowned int        // shards without an owner
	Moving  int        // shards that their owner is to give up
}

// Standing is one member: one that has a Lease, or shards.
type Standing struct {
	ID, URL string
	Lease   string    // the name of its Lease
	Seen    time.Time // when this process first saw its Lease as it is; zero if there is none
	Stale   bool      // the Lease has expired, or is gone: the member works on nothing any more
	Shards  int       // that it owns
}

// Keys are the IDs of the oldest keys with which the processes that hold a Lease of the group may
// still encrypt records, by process; empty for one that does not say it. A process reads the keys
// once it has its Lease: one that is not here encrypts nothing, or knows all keys that there are now.
func Keys(ctx context.Context, m *Members) (map[string]string, error) {
	asked := m.Now()
	list, err := m.API.CoordinationV1().Leases(m.Namespace).List(ctx, m.ofGroup())
	if err != nil {
		return nil, fmt.Errorf("listing the Leases of the controllers: %w", err)
	}
	keys := map[string]string{}
	for i := range list.Items {
		l := &list.Items[i]
		if h := l.Spec.HolderIdentity; h == nil || *h == "" || l.Name != LeaseName(m.Group, *h) {
			continue // it was released, or no member made it
		}
		if gone, _ := m.watched.expired(l, asked); !gone {
			keys[*l.Spec.HolderIdentity] = l.Annotations[annotationKey]
		}
	}
	return keys, nil
}

// ReportOf reads how the controllers of a group share the stacks. It changes nothing. Whether a
// Lease has expired is known once it was seen for its whole duration, as always here.
func ReportOf(ctx context.Context, m *Members) (Report, error) {
	now, _, err := m.read(ctx)
	if err != nil {
		return Report{}, err
	}
	asked := m.Now()
	list, err := m.API.CoordinationV1().Leases(m.Namespace).List(ctx, m.ofGroup())
	if err != nil {
		return Report{}, fmt.Errorf("listing the Leases of the controllers: %w", err)
	}
	out := Report{Leader: now.Leader}
	all := map[string]*Standing{}
	at := func(id string) *Standing {
		if all[id] == nil {
			all[id] = &Standing{ID: id, Lease: LeaseName(m.Group, id), Stale: true}
		}
		return all[id]
	}
	for i := range list.Items {
		l := &list.Items[i]
		if h := l.Spec.HolderIdentity; h == nil || *h == "" || l.Name != LeaseName(m.Group, *h) {
			continue // it was released, or no member made it
		}
		s := at(*l.Spec.HolderIdentity)
		s.URL = l.Annotations[annotationURL]
		s.Stale, s.Seen = m.watched.expired(l, asked)
	}
	for _, s := range now.Shards {
		if s.Next != "" {
			out.Moving++
		}
		if s.Owner == "" {
			out.Unowned++
		} else {
			at(s.Owner).Shards++
		}
	}
	if now.Generation == 0 { // nothing was ever divided
		out.Unowned = 0
	}
	for _, s := range all {
		if known, ok := now.Member(s.ID); ok && s.URL == "" {
			s.URL = known.URL
		}
		out.Members = append(out.Members, *s)
	}
	slices.SortFunc(out.Members, func(a, b Standing) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}
