package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/notify"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
)

// sinceMinute has a namespace "team" that was created at a minute of an hour, and no other one.
func sinceMinute(minute int) Namespaces {
	return func(_ context.Context, name string) (kube.Namespace, error) {
		if name != "team" {
			return kube.Namespace{}, nil
		}
		return kube.Namespace{UID: "team-2", Created: time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC)}, nil
	}
}

// What was sent and what was done before a namespace was created is about a former one of its
// name. Users of the namespace do not see it, and do not learn that there is anything. Those of
// all namespaces do. Nothing is left out while it is not known.
func TestUsersOfANamespaceSeeNothingOfAFormerOne(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC) }
	now := at(0)
	files, err := audit.Open(t.TempDir(), audit.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	}()
	var sent delivered
	for minute, namespace := range []string{"team", "gone", "team", "team", "team"} {
		now = at(minute)
		e := AuditEntry{What: audit.Applied, Object: AuditObjectOf(Key{Namespace: namespace, Name: fmt.Sprint("net-", minute)})}
		if err := files.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, notify.Delivery{ID: fmt.Sprint(minute), At: now, Namespace: namespace, Name: e.Object.Name, Provider: fmt.Sprint("chat-", minute), Event: "Applied", Outcome: notify.Delivered})
	}
	sent = append(sent, notify.Delivery{ID: "5", At: at(9), Caused: at(2), Namespace: "team", Name: "net-5", Provider: "chat-5", Event: "Applied", Outcome: notify.Delivered}) // of an event of before, delivered late
	broken := errors.New("the API server does not answer")
	in := map[string]bool{"team": true, "gone": true}
	for name, tt := range map[string]struct {
		namespaces Namespaces
		all        bool
		want       []string // of the newest first
		err        error
	}{
		"created in between":         {sinceMinute(3), false, []string{"net-4", "net-3"}, nil},
		"created first":              {sinceMinute(0), false, []string{"net-4", "net-3", "net-2", "net-0"}, nil},
		"created after all of it":    {sinceMinute(30), false, nil, nil},
		"permission everywhere":      {sinceMinute(3), true, []string{"net-4", "net-3", "net-2", "net-1", "net-0"}, nil},
		"it is not known":            {func(context.Context, string) (kube.Namespace, error) { return kube.Namespace{}, broken }, false, nil, broken},
		"not known, but everywhere":  {func(context.Context, string) (kube.Namespace, error) { return kube.Namespace{}, broken }, true, []string{"net-4", "net-3", "net-2", "net-1", "net-0"}, nil},
		"the namespace was deleted":  {func(context.Context, string) (kube.Namespace, error) { return kube.Namespace{}, nil }, false, nil, nil},
		"nothing says what there is": {nil, false, []string{"net-4", "net-3", "net-2", "net-1", "net-0"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			page, err := NewAuditLog(files, kube.Anchor{}, tt.namespaces).Entries(t.Context(), AuditSight{All: tt.all, In: func(n string) bool { return in[n] }}, AuditQuery{})
			var got []string
			for _, e := range page.Items {
				got = append(got, e.Object.Name)
			}
			if !slices.Equal(got, tt.want) || !errors.Is(err, tt.err) {
				t.Errorf("Entries() finds %v, %v, want %v", got, err, tt.want)
			}
			got = nil
			notices, err := NewNotices(sent, tt.namespaces).Deliveries(t.Context(), access.Scope{All: tt.all, In: in}, NoticeQuery{})
			for _, d := range notices.Items {
				if d.Name != "net-5" {
					got = append(got, d.Name)
				} else if !tt.all && name != "created first" && tt.namespaces != nil {
					t.Errorf("a message about a former namespace is seen, which was delivered late")
				}
			}
			if !slices.Equal(got, tt.want) || !errors.Is(err, tt.err) || !tt.all && name == "created in between" && !slices.Equal(notices.Providers, []string{"chat-3", "chat-4"}) {
				t.Errorf("Deliveries() finds %v of %v, %v, want %v", got, notices.Providers, err, tt.want)
			}
		})
	}
}

// shelf is a store in memory.
type shelf map[string][]byte

func (s shelf) Get(_ context.Context, key string) ([]byte, error) {
	if b, has := s[key]; has {
		return b, nil
	}
	return nil, fault.New(fault.Missing, "BlobMissing", errors.New(key))
}

func (s shelf) List(_ context.Context, prefix string) ([]string, error) {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(key string) bool { return !strings.HasPrefix(key, prefix) }), nil
}

// The last run of a deleted stack is found by the namespace in which the stack was. Only for
// users of all namespaces it is the last one of whichever namespace had the name.
func TestTheLastRunIsOfANamespace(t *testing.T) {
	s, key := shelf{}, Key{Namespace: "team", Name: "net"}
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, origin := range []kube.Origin{{NamespaceUID: "team-1"}, {NamespaceUID: "team-2"}, {StackCreated: created.Add(-time.Second)}} {
		raw, err := json.Marshal(struct {
			runner.Report
			kube.Origin
		}{runner.Report{ID: fmt.Sprint("destroy-", i), Started: created.Add(time.Hour), Gone: created.Add(time.Duration(i) * time.Hour)}, origin})
		if err != nil {
			t.Fatal(err)
		}
		s[record.Gone("", key.Namespace, key.Name, fmt.Sprint("uid-", i), record.ReportFile)] = raw
		s[record.Gone("", key.Namespace, key.Name, fmt.Sprint("uid-", i), runner.FileLog)] = []byte("log")
	}
	b := NewBlobs(s, nil, time.Second)
	for name, tt := range map[string]struct {
		id   StackID
		want string // empty: none
	}{
		"the namespace of now":      {StackID{Key: key, In: kube.Namespace{UID: "team-2", Created: created}}, "destroy-1"},
		"another one":               {StackID{Key: key, In: kube.Namespace{UID: "team-3", Created: created.Add(time.Hour)}}, ""},
		"no namespace":              {StackID{Key: key}, ""},
		"permission everywhere":     {StackID{Key: key, Former: true}, "destroy-2"},
		"a stack of another name":   {StackID{Key: Key{Namespace: "team", Name: "web"}, Former: true}, ""},
		"a namespace of other name": {StackID{Key: Key{Namespace: "other", Name: "net"}, In: kube.Namespace{UID: "team-2", Created: created}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			runs, err := b.Runs(t.Context(), tt.id)
			if tt.want == "" {
				_, of := b.Run(t.Context(), tt.id, "destroy-1")
				_, logged := b.Log(t.Context(), tt.id, "destroy-1", LogOptions{})
				if fault.Of(err) != fault.Missing || fault.Of(of) != fault.Missing || fault.Of(logged) != fault.Missing {
					t.Errorf("Runs() = %+v, %v, Run() = %v, Log() = %v, want nothing", runs, err, of, logged)
				}
				return
			}
			if err != nil || len(runs) != 1 || runs[0].ID != tt.want {
				t.Fatalf("Runs() = %+v, %v, want %s", runs, err, tt.want)
			}
			log, err := b.Log(t.Context(), tt.id, tt.want, LogOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := log.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
