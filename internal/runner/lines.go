package runner

import (
	"bytes"
	"fmt"

	"github.com/terrier-iac/terrier/internal/runner/managed"
)

// maxLine is the longest line that is looked at. A document that the engine
// prints in one line as a last resort is longer, see lineWriter.long.
const maxLine = 1 << 20

// lineWriter cuts what a program writes into lines. A line beyond the limit is
// cut and says so.
type lineWriter struct {
	line func([]byte)                 // gets each line without its end; must not keep it
	long func(start []byte) (ok bool) // whether a line that starts so may be as long as a state

	buf     []byte
	limit   int
	dropped int
}

func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			w.add(p)
			return n, nil
		}
		if len(w.buf) == 0 && w.dropped == 0 && i <= maxLine {
			w.line(p[:i]) // the whole line is here: no need to copy it
		} else {
			w.add(p[:i])
			w.end()
		}
		p = p[i+1:]
	}
}

// Close hands on a last line that has no end.
func (w *lineWriter) Close() error {
	if len(w.buf) > 0 || w.dropped > 0 {
		w.end()
	}
	return nil
}

func (w *lineWriter) add(p []byte) {
	if len(w.buf) == 0 && w.dropped == 0 {
		w.limit = maxLine
	}
	if len(w.buf)+len(p) > w.limit && w.limit < managed.MaxBytes && w.long != nil && len(w.buf) > 0 && w.long(w.buf) {
		w.limit = managed.MaxBytes
	}
	take := max(min(len(p), w.limit-len(w.buf)), 0)
	w.buf = append(w.buf, p[:take]...)
	w.dropped += len(p) - take
}

func (w *lineWriter) end() {
	if w.dropped > 0 {
		w.buf = fmt.Appendf(w.buf, "… (%d bytes of this line left out)", w.dropped)
	}
	w.line(w.buf)
	if cap(w.buf) > maxLine {
		w.buf = nil
	}
	w.buf, w.dropped = w.buf[:0], 0
}

// tail keeps the end of a text.
type tail struct {
	most int
	buf  []byte
	lost int64 // bytes that were written and are no longer kept
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	// Moving at twice the size makes the cost of a byte constant.
	if len(t.buf) > 2*t.most {
		t.trim()
	}
	return len(p), nil
}

func (t *tail) trim() {
	if over := len(t.buf) - t.most; over > 0 {
		t.lost += int64(over)
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
}

// bytes returns the end of the text, from the start of a line if a part of it
// was lost.
func (t *tail) bytes() []byte {
	t.trim()
	if t.lost == 0 {
		return t.buf
	}
	if i := bytes.IndexByte(t.buf, '\n'); i >= 0 {
		t.lost += int64(i + 1)
		t.buf = t.buf[i+1:]
	}
	return t.buf
}
