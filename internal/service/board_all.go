package service

// All returns every row, by namespace and name; false before all stacks were
// read. The rows are the board's own, and never change.
func (b *Board) All() ([]*Row, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.synced {
		return nil, false
	}
	rows := make([]*Row, len(b.order))
	for i, e := range b.order {
		rows[i] = e.row
	}
	return rows, true
}
