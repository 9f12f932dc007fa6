package service

// Graph is stacks and what they need of each other.
type Graph struct {
	Nodes []GraphNode `json:"nodes"` // the first is the one that was asked for
	Edges []GraphEdge `json:"edges"`
	Left  int         `json:"left,omitempty"` // nodes that there was no room for
}

// GraphNode is one stack.
type GraphNode struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Status    Status `json:"status,omitempty"`
	Missing   bool   `json:"missing,omitempty"` // somebody depends on it, and it does not exist
	Hidden    bool   `json:"hidden,omitempty"`  // the visitor may not see it: it has no name here
}

// Key names the stack; it is zero if the node is hidden.
func (n GraphNode) Key() Key { return Key{n.Namespace, n.Name} }

// GraphEdge says that the stack From needs the stack To. Both are places in
// Graph.Nodes.
type GraphEdge struct {
	From int      `json:"from"`
	To   int      `json:"to"`
	Kind EdgeKind `json:"kind"`
}

// EdgeKind is why one stack needs another.
type EdgeKind string

// The kinds of edge.
const (
	EdgeDependsOn EdgeKind = "dependsOn" // it says so
	EdgeOutputs   EdgeKind = "outputs"   // it reads what the other publishes
)
