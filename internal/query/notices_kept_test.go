package query

import (
	"slices"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/notify"
)

type delivered []notify.Delivery

func (d delivered) Deliveries() []notify.Delivery { return d }

func TestDeliveriesOfAScope(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC) }
	n := NewNotices(delivered{
		{ID: "1", At: at(1), Namespace: "team", Name: "net", Event: "Applied", Provider: "chat", Outcome: notify.Delivered},
		{ID: "2", At: at(3), Namespace: "team", Name: "net", Event: "Failed", Provider: "chat", Outcome: notify.Failed, Error: "no"},
		{ID: "3", At: at(2), Namespace: "team", Name: "web", Event: "Applied", Provider: "hook", Outcome: notify.Delivered},
		{ID: "4", At: at(0), Namespace: "other", Name: "net", Event: "Secret", Provider: "spy", Outcome: notify.Dropped},
	}, nil)
	team := access.Scope{In: map[string]bool{"team": true}}
	for name, c := range map[string]struct {
		scope access.Scope
		q     NoticeQuery
		ids   []string
		total int
	}{
		"all that may be seen, newest first": {team, NoticeQuery{}, []string{"2", "3", "1"}, 3},
		"nothing without a scope":            {access.Scope{}, NoticeQuery{}, nil, 0},
		"not by asking for it":               {team, NoticeQuery{Namespace: "other"}, nil, 0},
		"everything":                         {access.Everything, NoticeQuery{}, []string{"2", "3", "1", "4"}, 4},
		"by name":                            {team, NoticeQuery{Name: "net"}, []string{"2", "1"}, 2},
		"by provider and event":              {team, NoticeQuery{Provider: "hook", Event: "Applied"}, []string{"3"}, 1},
		"by outcome":                         {team, NoticeQuery{Outcomes: []Outcome{NoticeFailed, NoticeDropped}}, []string{"2"}, 1},
		"a page":                             {team, NoticeQuery{Offset: 1, Limit: 1}, []string{"3"}, 3},
		"beyond the last page":               {team, NoticeQuery{Offset: 9}, nil, 3},
	} {
		page, err := n.Deliveries(t.Context(), c.scope, c.q)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, d := range page.Items {
			ids = append(ids, d.ID)
		}
		if !slices.Equal(ids, c.ids) || page.Total != c.total || page.Items == nil {
			t.Errorf("%s: found %v of %d, want %v of %d", name, ids, page.Total, c.ids, c.total)
		}
	}
	page, err := n.Deliveries(t.Context(), team, NoticeQuery{Outcomes: []Outcome{NoticeFailed}})
	if err != nil {
		t.Fatal(err)
	}
	if page.Counts[NoticeFailed] != 1 || page.Counts[NoticeDelivered] != 2 || page.Counts[NoticeDropped] != 0 {
		t.Errorf("the counts are %v; they do not depend on the outcomes that are asked for", page.Counts)
	}
	if !slices.Equal(page.Providers, []string{"chat", "hook"}) || !slices.Equal(page.Events, []string{"Applied", "Failed"}) || !page.Since.Equal(at(1)) {
		t.Errorf("of the scope there are %v, %v, since %v", page.Providers, page.Events, page.Since)
	}
}
