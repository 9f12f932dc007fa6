package query

import (
	"cmp"
	"container/list"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
)

// newsRows bounds how many changes are told at once.
const newsRows = 1000

// soon is closed: there is more already.
var soon = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Changes returns what changed in scope since the cursor of a page or of other
// news; an empty one begins now. The board keeps nothing for a reader: each row
// knows when it changed last, and a reader who is slow is told of it once.
//
// A cursor is good for as long as this board is: one of another board, or one
// from before something went that is no longer remembered or told, is answered with
// Reset.
func (b *Board) Changes(scope access.Scope, since string) (BoardNews, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.synced {
		return BoardNews{}, errNotReady
	}
	news := BoardNews{Next: b.cursor(b.seq), Wait: b.news}
	if since == "" {
		return news, nil
	}
	seq, ours, err := b.parse(since)
	if err != nil {
		return BoardNews{}, err
	}
	if !ours || seq < b.floor || seq > b.seq {
		news.Reset = true
		return news, nil
	}
	gone := after(&b.gone, seq) // the newest first
	if n := len(gone); n > 0 && b.o.Now().Sub(gone[n-1].at) > ghostsTold {
		news.Reset = true
		return news, nil
	}
	changed := append(after(&b.recent, seq), gone...)
	slices.SortFunc(changed, func(x, y *card) int { return cmp.Compare(x.seq, y.seq) })
	for i, e := range changed {
		if !scope.Of(e.key.Kind).Has(e.key.Namespace) {
			continue
		}
		if len(news.Changes) == newsRows {
			news.Next, news.Wait = b.cursor(changed[i-1].seq), soon
			break
		}
		news.Changes = append(news.Changes, BoardChange{Cursor: b.cursor(e.seq), At: e.at, Row: *e.row, Gone: b.rows[e.key] != e})
	}
	return news, nil
}

// after returns the cards of a list that changed after seq.
func after(l *list.List, seq uint64) []*card {
	var out []*card
	for m := l.Back(); m != nil; m = m.Prev() {
		e := m.Value.(*card)
		if e.seq <= seq {
			break
		}
		out = append(out, e)
	}
	return out
}

// cursor names the state of the board after a change.
func (b *Board) cursor(seq uint64) string { return b.boot + "-" + strconv.FormatUint(seq, 10) }

// parse reads a cursor. A text that is no cursor is Invalid, so that a reader does
// not begin again and again.
func (b *Board) parse(cursor string) (seq uint64, ours bool, err error) {
	boot, number, found := strings.Cut(cursor, "-")
	if found {
		seq, err = strconv.ParseUint(number, 10, 64)
	}
	if !found || err != nil {
		return 0, false, fault.New(fault.Invalid, ReasonQuery, fmt.Errorf("cursor: %.80q is none that was given out", cursor))
	}
	return seq, boot == b.boot, nil
}
