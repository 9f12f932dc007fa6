package service

import "github.com/terrier-iac/terrier/internal/stack"

// Queue is who waits for a run and whose run is at work. It answers for all
// namespaces: whoever shows it cuts it to what its reader may see.
type Queue interface {
	Backlog() stack.Backlog
	Line() stack.Line
	Place(uid string) (stack.Place, bool)
}
