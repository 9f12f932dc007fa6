package main

import (
	"errors"
	"io"
	"net"
	"time"
)

// greeting is the line by which a server of SSH says its version.
const greeting = "SSH-2.0-standin\r\n"

// greetTime bounds one greeting.
const greetTime = 5 * time.Second

// greet says on every connection what the SSH server of a machine says first, while a machine
// runs. It speaks nothing else of SSH. It returns once the listener is closed.
func greet(l net.Listener, runs func() bool) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if err = conn.SetDeadline(time.Now().Add(greetTime)); err == nil && runs() {
			_, err = io.WriteString(conn, greeting)
		}
		if err := errors.Join(err, conn.Close()); err != nil && !gone(err) {
			return err
		}
	}
}

// gone reports whether an error is of a client that went away.
func gone(err error) bool {
	_, ok := errors.AsType[*net.OpError](err)
	return ok
}
