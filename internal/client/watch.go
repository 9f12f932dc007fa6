package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// Watch implements query.StackReader. It lists stacks, and then follows the events
// of the server. When the server no longer knows what changed, it lists again.
func (s *questions) Watch(ctx context.Context, f query.Filter) iter.Seq2[query.Change, error] {
	return func(yield func(query.Change, error) bool) {
		w := &watching{questions: s, filter: f, known: map[query.Key]query.Stack{}, yield: yield}
		var err error
		if w.selector, err = labels.Parse(f.Selector); err != nil {
			err = fault.New(fault.Invalid, "SelectorInvalid", fmt.Errorf("reading the label selector %q: %w", f.Selector, err))
		}
		for err == nil && ctx.Err() == nil {
			if err = w.list(ctx); err == nil {
				err = w.follow(ctx)
			}
		}
		if ctx.Err() == nil && !errors.Is(err, errStopped) {
			yield(query.Change{}, err)
		}
	}
}

// errStopped says that the reader wants no more.
var errStopped = errors.New("the reader has stopped")

// watching is one reader of changes.
type watching struct {
	*questions
	filter   query.Filter
	selector labels.Selector
	known    map[query.Key]query.Stack // as the reader saw them last
	cursor   string
	yield    func(query.Change, error) bool
}

// list tells the reader of all stacks, and of those that are gone.
func (w *watching) list(ctx context.Context) error {
	rows, cursor, err := w.rows(ctx, w.filter)
	if err != nil {
		return err
	}
	gone := w.known
	w.known, w.cursor = map[query.Key]query.Stack{}, cursor
	for _, row := range rows {
		delete(gone, row.Key())
		if err := w.tell(row.Stack, false); err != nil {
			return err
		}
	}
	for _, st := range gone {
		if err := w.tell(st, true); err != nil {
			return err
		}
	}
	return nil
}

func (w *watching) tell(st query.Stack, gone bool) error {
	if gone {
		delete(w.known, st.Key())
	} else {
		w.known[st.Key()] = st
	}
	if !w.yield(query.Change{Stack: st, Gone: gone}, nil) {
		return errStopped
	}
	return nil
}

// follow tells the reader of what changes until everything has to be listed again.
// It opens a stream again that broke off.
func (w *watching) follow(ctx context.Context) error {
	for tries := 0; ; tries++ {
		reset, read, err := w.stream(ctx)
		if read {
			tries = 0
		}
		switch k := fault.Of(err); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case reset, errors.Is(err, errStopped):
			return err
		case err != nil && k != fault.Later && k != fault.Broken:
			return err
		case tries == followTries:
			return fault.New(fault.Later, access.ReasonUnreachable, fmt.Errorf("the events of the server at %s broke off: %w", w.host(), errors.Join(err, io.ErrUnexpectedEOF)))
		}
		if tries > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second << (tries - 1)):
			}
		}
	}
}

// stream reads events until they end. It says whether everything has to be listed
// again, and whether it read any event.
func (w *watching) stream(ctx context.Context) (reset, read bool, err error) {
	params := url.Values{"cursor": {w.cursor}}
	if w.filter.Namespace != "" && w.filter.Name != "" && w.filter.Kind != nil {
		params.Set("stack", w.filter.Namespace+"/"+query.Key{Name: w.filter.Name, Kind: *w.filter.Kind}.Address())
	} else {
		text(params, "namespace", w.filter.Namespace)
	}
	body, err := w.open(ctx, 0, w.at(params, "events"))
	if err != nil {
		return false, false, err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, eventBytes)
	var e event
	for lines.Scan() {
		if !e.add(lines.Text()) {
			continue
		}
		read = true
		if e.id != "" {
			w.cursor = e.id
		}
		if e.name == "reset" {
			return true, read, nil
		}
		if e.name == "stack" {
			if err := w.changed(e.data.String()); err != nil {
				return false, read, err
			}
		}
		e = event{}
	}
	return false, read, lines.Err()
}

// eventBytes bounds one line of a stream of events.
const eventBytes = 16 << 20

// changed tells the reader of one row, if it is one of those that were chosen.
func (w *watching) changed(data string) error {
	var c query.BoardChange
	if err := json.Unmarshal([]byte(data), &c); err != nil {
		return fmt.Errorf("reading an event of %s: %w", w.host(), err)
	}
	st := c.Row.Stack
	_, known := w.known[st.Key()]
	chosen := w.filter.Names(st.Key()) && w.selector.Matches(labels.Set(st.Labels))
	if !chosen && !known {
		return nil
	}
	return w.tell(st, c.Gone || !chosen)
}

// event is one event of a stream, as far as its lines were read.
type event struct {
	name, id string
	data     strings.Builder
}

// add takes in a line, and reports whether it ends the event.
func (e *event) add(line string) bool {
	if line == "" {
		return e.id != "" || e.name != ""
	}
	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "event":
		e.name = value
	case "id":
		e.id = value
	case "data":
		if e.data.Len() > 0 {
			e.data.WriteByte('\n')
		}
		e.data.WriteString(value)
	}
	return false
}
