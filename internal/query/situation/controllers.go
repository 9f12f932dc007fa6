package situation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/plural"
)

// Sharing is how several controllers share the stacks.
type Sharing struct {
	Controllers []Controller
	Unowned     int // shards without an owner
	Moving      int // shards that go to another controller
}

// Controller is one of several controllers that share the stacks.
type Controller struct {
	Name   string    `json:"name"` // of the process
	URL    string    `json:"url,omitempty"`
	Leads  bool      `json:"leads,omitempty"`
	Shards int       `json:"shards"`          // of the stacks that it reconciles; there are 256
	Lease  string    `json:"lease"`           // the name of its Lease
	Stale  bool      `json:"stale,omitempty"` // the Lease has expired, or is gone
	Seen   time.Time `json:"seen,omitzero"`   // when the server that answers saw the Lease change last
}

// controllers says who of several controllers reconciles what. One that has stopped without a
// word is bad while stacks wait for it, and deserves attention as long as its Lease is there.
func (a Asked) controllers(ctx context.Context) Part {
	if a.Sharing == nil {
		return Part{Name: Controllers, Level: Unused, Text: "One controller reconciles all stacks"}
	}
	s, err := a.Sharing(ctx)
	if err != nil {
		return a.hiding(unanswered(Controllers, err))
	}
	p := Part{Name: Controllers, Level: Good}
	live, leader := 0, ""
	for _, c := range s.Controllers {
		if a.Scope.All {
			p.Controllers = append(p.Controllers, c)
		}
		if !c.Stale {
			live++
			if c.Leads {
				leader = c.Name
			}
			continue
		}
		item := Item{Level: Attention, Kind: "controller", Name: c.Name, Status: "stale", Since: c.Seen, Message: fmt.Sprintf("Its Lease %s is not renewed. The others have its stacks.", c.Lease), Next: fmt.Sprintf("kubectl describe lease %s -n %s", c.Lease, access.ServerNamespace)}
		if c.Shards > 0 {
			item.Level = Bad
			item.Message = fmt.Sprintf("Its Lease %s is not renewed, and %s of stacks wait until the leader gives them to others.", c.Lease, plural.Count(c.Shards, "shard"))
		}
		p.Items = append(p.Items, a.forOperators(item))
	}
	words := []string{plural.Count(live, "controller")}
	if leader == "" {
		p.Items = append(p.Items, a.forOperators(Item{
			Level: Bad, Kind: "controller", Name: "leader", Status: "missing", Message: "No controller leads: runs that are running go on, and no run starts. Another controller leads by itself once the Lease of the last leader has expired. If none does, see that the pods of the controller run.", Next: "kubectl get leases -n " + access.ServerNamespace,
		}))
		words = append(words, "no leader")
	} else if a.Scope.All {
		words = append(words, leader+" leads")
	}
	for _, n := range []struct {
		is   int
		says string
	}{{s.Moving, "going to another controller"}, {s.Unowned, "without a controller"}} {
		if n.is > 0 {
			words = append(words, plural.Count(n.is, "shard")+" "+n.says)
		}
	}
	if s.Unowned > 0 {
		p.Level = Attention
	}
	p.Text = strings.Join(words, ", ")
	return p
}

// hiding leaves out of a part what only those who may list all stacks see: errors name objects
// and addresses of the server.
func (a Asked) hiding(p Part) Part {
	if !a.Scope.All {
		p.Text = "Not known. Ask the operator of this server"
	}
	return p
}
