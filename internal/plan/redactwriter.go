package plan

import (
	"bytes"
	"io"
)

// RedactWriter hides values in a text that arrives in pieces. It buffers as many
// bytes as a value may have; Close writes the rest.
type RedactWriter struct {
	r    *Redactor
	w    io.Writer
	held []byte
}

// Writer returns a writer that hides values in what is written through it to w.
func (r *Redactor) Writer(w io.Writer) *RedactWriter { return &RedactWriter{r: r, w: w} }

// Write takes all of p, though some of it may reach the underlying writer only
// with a later Write or Close.
func (w *RedactWriter) Write(p []byte) (int, error) {
	if r := w.r.newest(); len(w.held) == 0 && (r == nil || r.longest == 0) {
		return w.w.Write(p)
	}
	w.held = append(w.held, p...)
	if err := w.flush(false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes the buffered rest. It does not close the underlying writer.
func (w *RedactWriter) Close() error { return w.flush(true) }

func (w *RedactWriter) flush(end bool) error {
	if len(w.held) == 0 {
		return nil
	}
	var out bytes.Buffer
	done := w.r.newest().replace(&out, w.held, end)
	w.held = append(w.held[:0], w.held[done:]...)
	if out.Len() == 0 {
		return nil
	}
	_, err := w.w.Write(out.Bytes())
	return err
}
