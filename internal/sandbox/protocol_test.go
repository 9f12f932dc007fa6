package sandbox

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func lines(t testing.TB) (ours, theirs conn) {
	t.Helper()
	ours, theirs, err := newConn()
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

func TestMessagesArriveWhole(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 1<<20)
	a, b := lines(t)
	defer b.close()
	sent := make(chan error, 1)
	go func() {
		sent <- errors.Join(a.send(specified, big, -1), a.send(ready, nil, int(os.Stdin.Fd())), a.send(failed, []byte("no"), -1))
		a.close()
	}()
	for _, want := range []struct {
		m    message
		body []byte
		fd   bool
	}{{specified, big, false}, {ready, []byte{}, true}, {failed, []byte("no"), false}} {
		m, body, fd, err := b.receive()
		if err != nil || m != want.m || !bytes.Equal(body, want.body) || (fd >= 0) != want.fd {
			t.Errorf("receive() = %q, %d bytes, %d, %v, want %q, %d bytes", m, len(body), fd, err, want.m, len(want.body))
		}
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	if _, _, _, err := b.receive(); err != io.EOF {
		t.Errorf("receive() at the end = %v, want %v", err, io.EOF)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// A launcher that cannot read its spec says so, whatever comes over the
// connection, and enters nothing.
func FuzzHearOrders(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{'o', 2, 0, 0, 0, '{', '}'})
	f.Add([]byte{'o', 255, 255, 255, 255, '{'})
	f.Add([]byte{'p', 0, 0, 0, 0})
	f.Add([]byte("o\x05\x00\x00\x00{\"Le"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		if len(stream) > 64<<10 {
			t.Skip("more than the socket holds")
		}
		a, b := lines(t)
		defer b.close()
		if len(stream) > 0 {
			if _, err := unix.Write(int(a), stream); err != nil {
				t.Fatal(err)
			}
		}
		a.close()
		o, err := receiveSpec(b)
		if (o == nil) == (err == nil) {
			t.Errorf("receiveSpec() = %v, %v", o, err)
		}
	})
}

func TestOrdersSurviveTheWay(t *testing.T) {
	b := &Config{
		Level: Full, Work: "/srv/work", Dir: "a", Network: NoNetwork, Listen: true, TmpBytes: 1,
		ReadOnly: []Bind{{"/a", "/b"}}, Writable: []string{"/c"}, Limits: Limits{Memory: 1, FileBytes: 2, OpenFiles: 3, Processes: 4},
	}
	want := Command{Path: "/x\xff", Args: []string{"\xfe", ""}, Env: []string{"A=\x80"}, Sandbox: b}.spec(nil)
	ours, theirs := lines(t)
	defer theirs.close()
	if err := ours.sendJSON(specified, want); err != nil {
		t.Fatal(err)
	}
	ours.close()
	got, err := receiveSpec(theirs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-sent +got):\n%s", diff)
	}
}

// The launcher carries messages out only when it is started as one.
func TestALauncherWithoutAStarter(t *testing.T) {
	for name, spec := range map[string]string{"nothing": "", "nonsense": "x"} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := lines(t)
			c := Command{Stderr: os.Stderr}.command(self, []string{launcherName, roleEnter, "3"}, nil)
			c.ExtraFiles = []*os.File{os.NewFile(uintptr(theirs), "conn")}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			_ = c.ExtraFiles[0].Close()
			if spec != "" {
				if err := ours.send(specified, []byte(spec), -1); err != nil {
					t.Fatal(err)
				}
			}
			_ = ours.closeWrite()
			m, body, _, err := ours.receive()
			if err != nil || m != failed || !strings.Contains(string(body), "spec") {
				t.Errorf("receive() = %q, %q, %v", m, body, err)
			}
			ours.close()
			if err := c.Wait(); err == nil {
				t.Error("the launcher succeeded")
			}
		})
	}
}
