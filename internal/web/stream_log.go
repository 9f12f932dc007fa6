package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// logs send the logs of runs: as they are now, or followed.
type logs struct {
	*gate
	stacks  query.StackReader
	former  query.StackReader // nil: nothing is found of stacks of former namespaces
	streams *opener
	tails   *tails
	log     *slog.Logger
}

// recorded reads what the records know of a stack. Where nothing is found, a caller with the
// permission in all namespaces gets what a stack of a former namespace left.
func recorded[A any](l *logs, c *gin.Context, read func(query.StackReader) (A, error)) (A, error) {
	found, err := read(l.stacks)
	if l.former == nil || fault.Of(err) != fault.Missing {
		return found, err
	}
	switch denied := l.everywhere(c, "get", access.ResourceLog, keyOf(c).Kind); fault.Of(denied) {
	case fault.None:
		return read(l.former)
	case fault.Denied:
		return found, err
	default:
		return found, denied
	}
}

// serve sends a log: as it is now, or followed; as text, or as events.
func (l *logs) serve(c *gin.Context) {
	asked := call{c, l.gate}
	follow, err := asked.yes("follow")
	timestamps, err2 := asked.yes("timestamps")
	switch err := errors.Join(err, err2); {
	case err != nil:
		l.replies.refuse(c, err)
	case wantsEvents(c):
		l.asEvents(c, timestamps)
	case follow:
		l.asText(c, timestamps)
	default:
		l.asItIs(c, timestamps)
	}
}

func (l *logs) asItIs(c *gin.Context, timestamps bool) {
	r, err := recorded(l, c, func(s query.StackReader) (io.ReadCloser, error) {
		return s.Log(c.Request.Context(), keyOf(c), runOf(c), query.LogOptions{Timestamps: timestamps})
	})
	if err != nil {
		l.replies.refuse(c, err)
		return
	}
	defer r.Close()
	c.Header("Content-Type", "text/plain; charset=utf-8")
	if _, err := io.Copy(c.Writer, r); err != nil {
		panic(http.ErrAbortHandler) // an incomplete log must not look complete
	}
}

// asText follows a log as text.
func (l *logs) asText(c *gin.Context, timestamps bool) {
	from, err := spotOf(c, c.Query("after"))
	if err != nil {
		l.replies.refuse(c, err)
		return
	}
	st, f, done, err := l.follow(c, from, timestamps)
	if err != nil {
		l.replies.refuse(c, err)
		return
	}
	defer done()
	err = st.start("text/plain; charset=utf-8")
	if err == nil {
		err = st.copy(f, st.write)
	}
	if err != nil && err != io.EOF {
		panic(http.ErrAbortHandler) // an incomplete log must not look complete
	}
}

// spot is a position in a log as it is asked for, with timestamps or without.
type spot struct {
	run string // empty for the newest
	at  int64  // bytes to skip
}

// spotOf reads the position of a reader. A reader of the newest
// run got the name of the run, and resumes with this run.
func spotOf(c *gin.Context, said string) (spot, error) {
	p := spot{run: runOf(c)}
	if said == "" {
		return p, nil
	}
	number := said
	if run, rest, found := strings.Cut(said, ":"); found && p.run == "" && dnsName.MatchString(run) {
		p.run, number = run, rest
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return spot{}, errQuery("%.80q is not a position in a log", said)
	}
	p.at = n
	return p, nil
}

// asEvents follows a log as events, one per line. The id of an event is
// the end of the line in bytes, with the run if the newest was requested; a
// last event has the outcome of the run.
func (l *logs) asEvents(c *gin.Context, timestamps bool) {
	last, over := strings.CutSuffix(c.GetHeader("Last-Event-ID"), endOfLog)
	if over {
		c.Status(http.StatusNoContent) // a browser does not reconnect then
		return
	}
	from, err := spotOf(c, cmp.Or(last, c.Query("after")))
	if err != nil {
		l.replies.refuse(c, err)
		return
	}
	st, f, done, err := l.follow(c, from, timestamps)
	if err != nil {
		l.replies.refuse(c, err)
		return
	}
	defer done()
	lines := &lineEvents{at: from.at}
	if runOf(c) == "" {
		lines.of = f.run + ":"
	}
	st.beat = func() error { return st.write([]byte(heartbeat)) }
	if err := st.startEvents(); err != nil {
		return
	}
	err = st.copy(f, func(b []byte) error {
		lines.add(b)
		if lines.out.Len() == 0 {
			return nil
		}
		return st.write(lines.take())
	})
	if err == io.EOF {
		l.end(st, f.run, lines)
	}
}

// endOfLog ends the id of the last event.
const endOfLog = "-end"

// logEnd is the last event of a log.
type logEnd struct {
	Run     string        `json:"run"`
	Outcome stack.Outcome `json:"outcome,omitempty"` // empty if it is not known
	Message string        `json:"message,omitempty"`
}

func (l *logs) end(st *stream, run string, lines *lineEvents) {
	lines.rest()
	end := logEnd{Run: run}
	r, err := recorded(l, st.c, func(s query.StackReader) (query.Report, error) {
		return s.Run(st.c.Request.Context(), keyOf(st.c), run)
	})
	if err == nil {
		end.Run, end.Outcome, end.Message = r.ID, r.Outcome, r.Message
	}
	data, err := json.Marshal(end)
	if err != nil {
		return
	}
	lines.event("end", lines.place()+endOfLog, data)
	if err := st.write(lines.take()); err != nil {
		return // the reader is gone
	}
}

// follow opens a stream of a log from a position. A missing log is
// reported before the stream starts.
func (l *logs) follow(c *gin.Context, from spot, timestamps bool) (st *stream, f *follower, done func(), err error) {
	ctx, key := c.Request.Context(), keyOf(c)
	st, leave, err := l.streams.open(c, func(ctx context.Context, user access.User) error {
		return l.auth.Authorize(ctx, user, access.Request{Verb: "get", Resource: access.ResourceLog, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name})
	})
	if err != nil {
		return nil, nil, nil, err
	}
	of, again := tailed{key: key, timestamps: timestamps}, false
	f, err = recorded(l, c, func(s query.StackReader) (*follower, error) {
		of.run, of.former, again = from.run, again, true
		if of.run == "" {
			newest, err := s.Run(ctx, key, "")
			if err != nil {
				return nil, err
			}
			of.run = newest.ID
		}
		f := &follower{run: of.run, at: from.at, log: func() (io.ReadCloser, error) {
			return s.Log(ctx, key, of.run, query.LogOptions{Timestamps: timestamps})
		}}
		return f, f.reopen()
	})
	if err != nil {
		leave()
		return nil, nil, nil, err
	}
	it, part := l.tails.join(of)
	f.tail = it
	return st, f, func() {
		part()
		leave()
		if err := f.close(); err != nil {
			l.log.Debug("closing a log", "stack", key, "run", of.run, "err", err)
		}
	}, nil
}

// copy sends the content of f as it grows. It ends with an error, which is io.EOF
// when the run has ended.
func (st *stream) copy(f *follower, send func([]byte) error) error {
	buf := make([]byte, 16<<10)
	for {
		n, wait, err := f.next(buf)
		if n > 0 {
			err = errors.Join(st.due(), send(buf[:n]))
		} else if err == nil {
			err = st.wait(wait)
		}
		if err != nil {
			return err
		}
	}
}

// lineBytes is where a long line is cut.
const lineBytes = 64 << 10

// lineEvents turns bytes of a log into events.
type lineEvents struct {
	of      string // prefix of positions
	at      int64  // end of the last event
	partial []byte
	out     bytes.Buffer
}

func (l *lineEvents) add(b []byte) {
	for len(b) > 0 {
		text, rest, ends := bytes.Cut(b, []byte{'\n'})
		l.partial = append(l.partial, text...)
		for len(l.partial) > lineBytes {
			l.line(l.partial[:whole(l.partial[:lineBytes])], 0)
		}
		if !ends {
			return
		}
		l.line(l.partial, 1)
		b = rest
	}
}

// whole is the length of the complete characters of b.
func whole(b []byte) int {
	for i := 1; i <= utf8.UTFMax && i < len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if utf8.FullRune(b[len(b)-i:]) {
				return len(b)
			}
			return len(b) - i
		}
	}
	return len(b)
}

// line makes an event of the first part of partial and the line break after it.
func (l *lineEvents) line(text []byte, follows int64) {
	l.at += int64(len(text)) + follows
	l.event("", l.place(), text)
	l.partial = l.partial[:copy(l.partial, l.partial[len(text):])]
}

func (l *lineEvents) place() string { return l.of + strconv.FormatInt(l.at, 10) }

// rest makes an event of a last line without a line break.
func (l *lineEvents) rest() {
	if len(l.partial) > 0 {
		l.line(l.partial, 0)
	}
}

// event writes one event. A carriage return would end a line of the stream: text that
// a terminal would overwrite is on a line of its own here.
func (l *lineEvents) event(name, id string, data []byte) { writeEvent(&l.out, name, id, data) }

func (l *lineEvents) take() []byte {
	b := bytes.Clone(l.out.Bytes())
	l.out.Reset()
	return b
}
