package forge

import (
	"context"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// handshakeTime bounds the beginning of a connection.
const handshakeTime = 20 * time.Second

// serveSSH serves connections until the listener is closed. The end of ctx closes them.
func (f *Forge) serveSSH(ctx context.Context, l net.Listener, config *ssh.ServerConfig) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				f.log.Error("git server of the examples ended", "err", err)
			}
			return
		}
		f.running.Go(func() { f.connection(ctx, conn, config) })
	}
}

func (f *Forge) connection(ctx context.Context, conn net.Conn, config *ssh.ServerConfig) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if conn.SetDeadline(time.Now().Add(handshakeTime)) != nil {
		return
	}
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		f.log.Debug("ssh connection refused", "err", err)
		return
	}
	if conn.SetDeadline(time.Time{}) != nil {
		return
	}
	f.running.Go(func() { ssh.DiscardRequests(requests) })
	for c := range channels {
		if c.ChannelType() != "session" {
			if c.Reject(ssh.UnknownChannelType, "only sessions") != nil {
				return
			}
			continue
		}
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		f.running.Go(func() { f.session(ctx, channel, requests) })
	}
}

// session carries out one command of a client.
func (f *Forge) session(ctx context.Context, channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	for r := range requests {
		var command struct{ Text string }
		known := r.Type == "exec" && ssh.Unmarshal(r.Payload, &command) == nil
		if r.WantReply && r.Reply(known, nil) != nil {
			return
		}
		if !known {
			continue // a variable of the environment, or a terminal
		}
		f.running.Go(func() { ssh.DiscardRequests(requests) })
		status := struct{ Code uint32 }{0}
		if err := f.command(ctx, command.Text, channel); err != nil {
			f.log.Debug("git command failed", "err", err)
			_, _ = io.WriteString(channel.Stderr(), err.Error()+"\n") // the client may be gone
			status.Code = 128
		}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(status))
		return
	}
}

// command carries out what git sends as a line for a shell: one word, and a quoted path.
func (f *Forge) command(ctx context.Context, line string, client io.ReadWriter) error {
	verb, path, _ := strings.Cut(line, " ")
	path = strings.Trim(path, "'")
	switch verb {
	case "git-upload-pack":
		return f.uploadPack(ctx, path, client, client)
	case "git-receive-pack":
		return f.receivePack(ctx, path, client, client)
	default:
		return errCommand
	}
}
