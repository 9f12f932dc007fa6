// Package failpoint lets a test end a program of ours at one exact durable act:
// a write to the API server, a value of the records, a file of a run, a process
// that is started. Every such act says so with Act, before it and after it.
//
// It is off unless Arm was called with a value, which is taken from the
// environment variable Env when a program starts. A value names a file that has
// to be there already, so it is not switched on by accident; and a run cannot:
// the environment of a run is a list of its own, from which names of this kind
// are refused, and the file is outside its sandbox. Off, an act costs one load.
//
// It injects no errors and no delays, and decides nothing. Start reading at Act.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Env is the environment variable that arms a program:
//
//	count@FILE                        write every act down
//	crash:before:57@FILE              and end before the 57th
//	crash:after:run.file/run.json#2@FILE  or after the second of that name
//
// FILE is shared by the controller and all supervisors that it starts, so the
// acts of all of them have one order, the one in which they happened. Which
// program it was stands beside the act.
const Env = "TERRIER_FAILPOINT"

// Exit is what a program that was ended here exits with: what a shell says of
// one that was killed.
const Exit = 137

// armed is nil as long as nothing was asked for.
var armed atomic.Pointer[trap]

// trap is what Env asked for.
type trap struct {
	value string
	file  string
	after bool
	at    int    // the act by number, 0 for none
	name  string // or by name, "" for none
	nth   int    // of that name
}

// Arm does what a value of Env says; nothing if it is empty.
func Arm(value string) error {
	if value == "" {
		return nil
	}
	t, err := parse(value)
	if err != nil {
		return fmt.Errorf("%s is for tests that crash this program: %w", Env, err)
	}
	armed.Store(t)
	return nil
}

// Armed reports whether acts are written down.
func Armed() bool { return armed.Load() != nil }

// Environ is what a supervisor needs in its environment to be armed as this
// program is.
func Environ() []string {
	if t := armed.Load(); t != nil {
		return []string{Env + "=" + t.value}
	}
	return nil
}

func parse(value string) (*trap, error) {
	what, file, _ := strings.Cut(value, "@")
	t := &trap{value: value, file: file}
	if !filepath.IsAbs(file) {
		return nil, fmt.Errorf("%q does not end in @FILE with an absolute path", value)
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s must be a file that is there already", file), err)
	}
	if what == "count" {
		return t, nil
	}
	parts := strings.SplitN(what, ":", 3)
	if len(parts) != 3 || parts[0] != "crash" || parts[1] != "before" && parts[1] != "after" {
		return nil, fmt.Errorf("%q is neither count nor crash:before:ACT nor crash:after:ACT", what)
	}
	t.after = parts[1] == "after"
	if n, err := strconv.Atoi(parts[2]); err == nil && n > 0 {
		t.at = n
		return t, nil
	}
	name, nth, numbered := strings.Cut(parts[2], "#")
	t.name, t.nth = name, 1
	if numbered {
		var err error
		if t.nth, err = strconv.Atoi(nth); err != nil || t.nth < 1 {
			return nil, fmt.Errorf("%q: # is followed by a number", what)
		}
	}
	if name == "" {
		return nil, fmt.Errorf("%q names no act", what)
	}
	return t, nil
}

// Act says that a durable act begins, and returns what says that it has ended.
// It is called so that the act lies between the two:
//
//	defer failpoint.Act("blob.put", key)()
//
// The name of the act is the kind and what is stable in the key.
func Act(kind, key string) (done func()) {
	t := armed.Load()
	if t == nil {
		return nothing
	}
	return t.act(kind, key)
}

func nothing() {}

func (t *trap) act(kind, key string) func() {
	name := Name(kind, key)
	n, nth, err := t.record(name)
	if err != nil {
		panic("failpoint: writing " + t.file + ": " + err.Error()) // a test that counts wrongly proves nothing
	}
	if n != t.at && (name != t.name || nth != t.nth) {
		return nothing
	}
	if !t.after {
		t.crash(n, name)
	}
	return func() { t.crash(n, name) }
}

// crash ends the program as a kill would: nothing is flushed, nothing deferred.
func (t *trap) crash(n int, name string) {
	when := "before"
	if t.after {
		when = "after"
	}
	_ = t.locked(func(f *os.File) error {
		_, err := fmt.Fprintf(f, "! %s %d %s %s\n", when, n, name, program())
		return err
	})
	os.Exit(Exit)
}

// record appends an act to the file and returns its number, and its number
// among those of its name.
func (t *trap) record(name string) (n, nth int, err error) {
	err = t.locked(func(f *os.File) error {
		text, err := os.ReadFile(t.file)
		if err != nil {
			return err
		}
		n, nth = 1, 1
		for _, a := range Acts(text) {
			n++
			if a.Name == name {
				nth++
			}
		}
		_, err = fmt.Fprintf(f, "%d %s %s\n", n, name, program())
		return err
	})
	return n, nth, err
}

// locked works on the file alone.
func (t *trap) locked(do func(*os.File) error) error {
	f, err := os.OpenFile(t.file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close() // releases the lock
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	return do(f)
}

func program() string { return filepath.Base(os.Args[0]) + "/" + strconv.Itoa(os.Getpid()) }

// Recorded is one act in the file.
type Recorded struct {
	Name    string
	Program string
	Crash   string // before or after, of the line that says where a program ended
}

// Acts reads the acts out of the text of the file, without the crash.
func Acts(text []byte) []Recorded {
	acts, _ := read(text)
	return acts
}

// Crashed returns where a program was ended, if one was.
func Crashed(text []byte) (Recorded, bool) {
	_, crash := read(text)
	return crash, crash.Crash != ""
}

func read(text []byte) (acts []Recorded, crash Recorded) {
	for line := range strings.Lines(string(text)) {
		switch f := strings.Fields(line); {
		case len(f) == 5 && f[0] == "!":
			crash = Recorded{Name: f[3], Program: f[4], Crash: f[1]}
		case len(f) == 3:
			acts = append(acts, Recorded{Name: f[1], Program: f[2]})
		}
	}
	return acts, crash
}

// Name is the name of an act: the kind, and the key without what differs from
// one time to the next. A part of the key that holds a digit is such.
func Name(kind, key string) string {
	if key == "" {
		return kind
	}
	parts := strings.Split(key, "/")
	for i, p := range parts {
		if strings.ContainsAny(p, "0123456789 ") {
			parts[i] = "_"
		}
	}
	return kind + "/" + strings.Join(parts, "/")
}
