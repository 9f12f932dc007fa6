package process

import (
	"context"
	"errors"
)

// Box confines a program.
type Box struct {
	Level    Level    // how well; must not be None
	Work     string   // host directory, seen read-write at /work; see OwnWork
	Dir      string   // working directory, relative to /work
	ReadOnly []Bind   // shown read-only
	Writable []string // host directories shown read-write at the same path
	Network  Network
	TmpBytes int64 // bound on /tmp, /home and /dev/shm together; 0 means a default
	Limits   Limits
	Listen   bool // make a loopback TCP listener in the box's network before the program starts
}

// Bind shows a host file or directory inside a box.
type Bind struct{ Host, Inside string }

// Network is what a box can reach.
type Network string

// The networks of a box.
const (
	NoNetwork   Network = "none" // a loopback of its own
	HostNetwork Network = "host"
)

// Limits bound what a box uses. Zero means unlimited.
type Limits struct {
	Memory    int64 // bytes, of the whole box
	FileBytes int64 // size of one file
	OpenFiles int   // of one process
	Processes int   // processes and threads of the whole box
}

func (b *Box) check() error { return nil }

func startBoxed(context.Context, Command) (*Process, error) {
	return nil, errors.New("boxes are not available")
}

// Main must be called first in the main function of a binary that starts
// boxes. In the launcher of a box it never returns; else it does nothing.
func Main() {}

// OwnWork gives a work directory to the user that boxed programs run as.
func OwnWork(dir string) error { return nil }
