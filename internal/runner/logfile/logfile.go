// Package logfile is the form of the log of a run: lines with their time, which a reader
// may want or not.
//
// It opens and hides nothing. Start reading at Read.
package logfile

import (
	"bytes"
	"io"
	"strings"
	"time"
)

// layout is how a log has the time before each of its lines: in UTC, and always
// as long. A supervisor of an earlier release wrote lines without times. Its logs
// are known by their first line, which is the supervisor's own and does not begin
// with a digit.
const layout = "2006-01-02T15:04:05.000Z "

// NoTime stands in the place of a time that is not known.
const NoTime = "- "

// WithTime puts a time before each line of a text.
func WithTime(text string, at time.Time) []byte {
	stamp := at.UTC().Format(layout)
	var b []byte
	for line := range bytes.Lines([]byte(text)) {
		b = append(append(b, stamp...), line...)
	}
	return b
}

// Read reads the log of a run. Without timestamps it reads the text as the engine and
// the supervisor wrote it. With them, each line begins with its time and a space,
// or with NoTime. Both grow with the file, and never change what was read: a
// position in either stays valid.
func Read(file io.ReadCloser, timestamps bool) io.ReadCloser {
	return &logReader{file: file, timestamps: timestamps}
}

type logReader struct {
	file       io.ReadCloser
	timestamps bool

	known  bool   // whether the log has times
	timed  bool   // it has
	within bool   // the next byte is of the text of a line
	stamp  []byte // the part of a time that was read

	in, out []byte
	ready   []byte // the part of out that is not handed out yet
	err     error  // comes after ready
}

func (l *logReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(l.ready) == 0 {
		if err := l.err; err != nil {
			l.err = nil // a file that grows is read on after its end
			return 0, err
		}
		if l.in == nil {
			l.in = make([]byte, 32<<10)
		}
		n, err := l.file.Read(l.in)
		l.out, l.err = l.out[:0], err
		l.take(l.in[:n])
		l.ready = l.out
	}
	n := copy(p, l.ready)
	l.ready = l.ready[n:]
	return n, nil
}

func (l *logReader) Close() error { return l.file.Close() }

func (l *logReader) take(b []byte) {
	for len(b) > 0 {
		if !l.within && (l.timed || !l.known) {
			b = l.takeTime(b)
			continue
		}
		l.begin(NoTime)
		text, rest, ends := bytes.Cut(b, []byte{'\n'})
		l.out = append(l.out, text...)
		if ends {
			l.out = append(l.out, '\n')
		}
		l.within = !ends
		b = rest
	}
}

// begin begins the text of a line.
func (l *logReader) begin(time string) {
	if !l.within && l.timestamps {
		l.out = append(l.out, time...)
	}
	l.within = true
}

// takeTime reads the time of a line, which may be cut anywhere.
func (l *logReader) takeTime(b []byte) (rest []byte) {
	for i, c := range b {
		if !isOfTime(len(l.stamp), c) {
			l.known = true
			l.begin(NoTime)
			l.out = append(l.out, l.stamp...)
			l.stamp = l.stamp[:0]
			return b[i:]
		}
		if l.stamp = append(l.stamp, c); len(l.stamp) == len(layout) {
			l.known, l.timed = true, true
			l.begin(string(l.stamp))
			l.stamp = l.stamp[:0]
			return b[i+1:]
		}
	}
	return nil
}

// isOfTime reports whether a time has a byte like c at a place.
func isOfTime(place int, c byte) bool {
	if like := layout[place]; like < '0' || like > '9' {
		return c == like
	}
	return c >= '0' && c <= '9'
}

// CutTime cuts a line that Read gave with timestamps into its time, empty if
// it is not known, and its text.
func CutTime(line string) (at, text string) {
	if text, ok := strings.CutPrefix(line, NoTime); ok {
		return "", text
	}
	if len(line) < len(layout) {
		return "", line
	}
	for i := range layout {
		if !isOfTime(i, line[i]) {
			return "", line
		}
	}
	return line[:len(layout)-1], line[len(layout):]
}
