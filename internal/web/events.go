package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

const (
	heartbeat = ": still here\n\n"
	retryMS   = 3000 // how long a browser waits before it reconnects
)

var eventQuery = []parameter{
	word("namespace", "Only this namespace."), word("stack", "Only this stack: NAMESPACE/NAME, or NAMESPACE/KIND:NAME."),
	word("q", "Only stacks whose name, namespace, tenant, source, path, labels or message contain all of these words after the change."),
	word("cursor", "The cursor of a page, to resume from there; by default now."),
}

// eventAPI is the row of the event stream.
type eventAPI struct {
	*gate
	board   Board // nil if the server watches no stacks
	streams *opener
}

func (a eventAPI) routes() []route {
	op := operation{id: "watchStacks", area: "stacks", as: "text/event-stream", fails: []fault.Kind{fault.Missing, fault.Later},
		summary: "Streams changes of the stacks that the caller may list. The stream resumes from Last-Event-ID, or from the cursor of a page.",
		query:   eventQuery}
	return []route{{method: http.MethodGet, path: api + "/events", door: known, operation: op, within: streaming, handle: a.events}}
}

// events sends the changes of stacks. Nothing is buffered for a reader: it asks the
// board for the changes since its cursor.
func (a eventAPI) events(c *gin.Context) {
	w := &watching{scopes: a.scopes, namespace: c.Query("namespace"), words: strings.Fields(strings.ToLower(c.Query("q")))}
	err := a.admitted(c, operation{query: eventQuery})
	if err == nil {
		err = w.choose(c.Query("stack"))
	}
	if err == nil && a.board == nil {
		err = errNoBoard
	}
	if err == nil {
		err = w.may(c.Request.Context(), userOf(c))
	}
	var st *stream
	var done func()
	if err == nil {
		st, done, err = a.streams.open(c, w.may)
	}
	if err != nil {
		a.replies.refuse(c, err)
		return
	}
	defer done()
	w.cursor = cmp.Or(c.GetHeader("Last-Event-ID"), c.Query("cursor"))
	news, err := a.board.Changes(w.scope, w.cursor)
	if err != nil {
		a.replies.refuse(c, err)
		return
	}
	// The cursor of this reader is sent with each heartbeat,
	// so that a reader whose stacks rarely change does not fall behind.
	st.beat = func() error { return st.write([]byte(heartbeat[:len(heartbeat)-1] + "id: " + w.cursor + "\n\n")) }
	st.again = func() bool { return w.moved }
	if st.startEvents() != nil {
		return
	}
	for {
		if err := st.write(w.render(news)); err != nil {
			return
		}
		if err := st.wait(news.Wait); err != nil {
			return
		}
		if news, err = a.board.Changes(w.scope, w.cursor); err != nil {
			return
		}
	}
}

// watching is the permissions and the filter of one reader of events.
type watching struct {
	scopes    scopes
	scope     access.Scope
	namespace string
	stack     *query.Key
	words     []string
	cursor    string
	moved     bool // the permissions of the reader have changed
}

func (w *watching) choose(stack string) error {
	if stack != "" {
		namespace, address, _ := strings.Cut(stack, "/")
		kind, name := query.SplitAddress(address)
		if !dnsName.MatchString(namespace) || !dnsName.MatchString(name) {
			return errName("stack", stack)
		}
		key := query.Key{Namespace: namespace, Name: name, Kind: kind}
		if kind != "" {
			var err error
			if key, err = query.Canonical(w.scopes.kinds, key); err != nil {
				return err
			}
		}
		w.stack = &key
		w.namespace = cmp.Or(w.namespace, namespace)
	}
	if w.namespace != "" && !dnsName.MatchString(w.namespace) {
		return errName("namespace", w.namespace)
	}
	return nil
}

// may checks again what the user may list. No namespace at all is Denied. While not all
// namespaces were checked yet, it uses those that were: the page
// refreshes until all are checked.
func (w *watching) may(ctx context.Context, user access.User) error {
	scope, err := w.scopes.soFar(ctx, user)
	if err == nil && scope.Unasked > 0 && w.namespace != "" && !w.sees(scope) {
		scope, err = w.scopes.of(ctx, user)
	}
	if err != nil {
		return err
	}
	if w.namespace != "" && !w.sees(scope) {
		return fault.New(fault.Denied, access.ReasonAccessDenied, fmt.Errorf("%s may not list the stacks of the namespace %s", user.Name, w.namespace))
	}
	if scope.None() {
		return fault.New(fault.Denied, access.ReasonAccessDenied, fmt.Errorf("%s may not list the stacks of any namespace", user.Name))
	}
	if w.scope.All || w.scope.In != nil {
		w.moved = w.moved || !w.scope.Same(scope)
	}
	w.scope = scope
	return nil
}

// sees reports whether the reader may list the stacks that it asks for.
func (w *watching) sees(scope access.Scope) bool {
	if w.stack != nil {
		return scope.Of(w.stack.Kind).Has(w.namespace)
	}
	return scope.HasAny(w.namespace)
}

// render is the events of a reader.
func (w *watching) render(news query.BoardNews) []byte {
	var out bytes.Buffer
	if news.Reset || w.moved {
		w.moved = false
		writeEvent(&out, "reset", news.Next, []byte("{}"))
	}
	for _, change := range news.Changes {
		if !w.wants(change.Row) {
			continue
		}
		data, err := json.Marshal(change)
		if err != nil {
			continue // never: a row is plain data
		}
		writeEvent(&out, "stack", change.Cursor, data)
	}
	if news.Next != w.cursor {
		w.cursor = news.Next
		out.WriteString("id: " + w.cursor + "\n\n")
	}
	return out.Bytes()
}

// wants reports whether a row matches the filter of the reader. The board has checked
// the permissions.
func (w *watching) wants(row query.Row) bool {
	if w.namespace != "" && row.Namespace != w.namespace || w.stack != nil && row.Key() != *w.stack {
		return false
	}
	return len(w.words) == 0 || row.Mentions(w.words)
}

// startEvents sends the headers of a stream of events.
func (st *stream) startEvents() error {
	if err := st.start("text/event-stream; charset=utf-8"); err != nil {
		return err
	}
	return st.write(fmt.Appendf(nil, "retry: %d\n\n", retryMS))
}

// writeEvent writes one event. Its data may contain anything: each of its lines
// becomes a line of the event, and invalid text is replaced.
func writeEvent(out *bytes.Buffer, name, id string, data []byte) {
	if name != "" {
		out.WriteString("event: " + name + "\n")
	}
	if id != "" {
		out.WriteString("id: " + id + "\n")
	}
	text := strings.ReplaceAll(strings.TrimSuffix(strings.ToValidUTF8(string(data), "\uFFFD"), "\r"), "\x00", "\uFFFD")
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r", "\n"), "\n") {
		out.WriteString("data: " + line + "\n")
	}
	out.WriteByte('\n')
}
