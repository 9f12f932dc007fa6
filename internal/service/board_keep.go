package service

import (
	"errors"
	"time"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Board is all stacks as they are now, kept by whoever watches them. It answers
// for thousands of stacks without asking the cluster.
type Board struct{ o BoardOptions }

// BoardOptions are what a Board is made of.
type BoardOptions struct {
	TenantLabel string // whose value is the tenant of a stack; its namespace if empty or not set
	Now         func() time.Time
}

// NewBoard returns a Board that knows of no stack yet.
func NewBoard(o BoardOptions) *Board { return &Board{o: o} }

var errNotReady = fault.New(fault.Later, "NotReady", errors.New("the stacks are being read; ask again in a moment"))

// Set takes in a stack that is there or changed.
func (b *Board) Set(o *v1alpha2.Terraform) {}

// Drop takes out a stack that is gone.
func (b *Board) Drop(namespace, name string) {}

// Synced says that all stacks that there are were set.
func (b *Board) Synced() {}

// Page returns the rows in scope that q chooses.
func (b *Board) Page(scope Scope, q BoardQuery) (BoardPage, error) { return BoardPage{}, errNotReady }

// Get returns one row.
func (b *Board) Get(key Key) (Row, bool) { return Row{}, false }

// Namespaces lists the namespaces that hold stacks, sorted.
func (b *Board) Namespaces() []string { return nil }

// Len is how many stacks there are.
func (b *Board) Len() int { return 0 }

// Changes returns what changed in scope since the cursor of a page or of other
// news; an empty one begins now. Whoever is slow costs nothing.
func (b *Board) Changes(scope Scope, since string) (BoardNews, error) {
	return BoardNews{}, errNotReady
}

// Ran takes in how long a run took that ended.
func (b *Board) Ran(uid string, kind stack.RunKind, took time.Duration) {}

// Capacity is how much of the time of slots runs at once the stacks need.
func (b *Board) Capacity(slots int) (CapacityInfo, error) { return CapacityInfo{}, errNotReady }

// Graph returns what a stack depends on and what depends on it, up to depth
// steps away, or all of it if depth is 0.
func (b *Board) Graph(scope Scope, key Key, depth int) (Graph, error) { return Graph{}, errNotReady }
