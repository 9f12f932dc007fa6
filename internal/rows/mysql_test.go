package rows_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/rows"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/testkit/database"
)

func TestValuesOfMariaDB(t *testing.T) {
	b := mariadb(t)
	b.exec(t, "CREATE TABLE x (yes BOOLEAN, bit1 BIT(1), bit9 BIT(9), filled INT(5) ZEROFILL, big BIGINT UNSIGNED, f FLOAT, d DOUBLE, e ENUM('on', 'off'), day DATE, at DATETIME(3), y YEAR, j JSON, bin VARBINARY(9), dec0 DECIMAL(5,2) ZEROFILL)",
		`INSERT INTO x VALUES (TRUE, b'1', 257, 42, 18446744073709551615, 1.1, 1e20, 'on', '2026-11-28', '2026-11-28 01:02:03.400', 2026, '{"a": 1}', 'text', 1.5), (FALSE, b'0', 0, 0, 0, -0.25, 0.1, 'off', '0000-00-00', '0001-01-01', 1999, '[]', '', 0)`)
	got := texts(read(t, b.open(t), b.table("x"), "yes", "bit1", "bit9", "filled", "big", "f", "d", "e", "day", "at", "y", "j", "bin", "dec0"))
	want := [][]string{
		{"0", "0", "0", "00000", "0", "-0.25", "0.1", "off", "0000-00-00", "0001-01-01 00:00:00.000", "1999", "[]", "", "000.00"},
		{"1", "1", "257", "00042", "18446744073709551615", "1.1", "1e20", "on", "2026-11-28", "2026-11-28 01:02:03.400", "2026", `{"a": 1}`, "text", "001.50"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	c := b.table("x")
	for column, want := range map[string]string{"big": "18446744073709551615", "bit9": "257", "at": "2026-11-28 01:02:03.400"} {
		c.HighWaterMark = column
		if got := read(t, b.open(t), c, "yes").Mark; got != want {
			t.Errorf("Mark of %s = %q, want %q", column, got, want)
		}
	}
}

// A table whose engine has no transactions cannot be seen at one moment; what is
// read is checked all the same.
func TestTablesWithoutTransactionsAreRead(t *testing.T) {
	b := mariadb(t)
	b.exec(t, "CREATE TABLE x (uid VARCHAR(9)) ENGINE=Aria", "INSERT INTO x VALUES ('a')")
	if got := texts(read(t, b.open(t), b.table("x"), "uid")); !cmp.Equal(got, [][]string{{"a"}}) {
		t.Errorf("rows = %q, want a", got)
	}
}

// packet frames a message of the MySQL protocol.
func packet(sequence byte, payload []byte) []byte {
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	head[3] = sequence
	return append(head, payload...)
}

// greeting is that of a server which authenticates by the given plugin.
func greeting(plugin string) []byte {
	var b bytes.Buffer
	b.WriteString("\x0a10.11.0-MariaDB\x00\x01\x00\x00\x00" + "12345678" + "\x00")
	b.Write([]byte{0xff, 0xf7, 45, 2, 0, 0x0f, 0, 21})
	b.Write(make([]byte, 10))
	b.WriteString("123456789012\x00" + plugin + "\x00")
	return packet(0, b.Bytes())
}

// hostile serves one connection: it accepts every login, and answers the first
// statement that holds a word with an answer of its own. What comes after is kept.
func hostile(t *testing.T, plugin, word string, answer []byte) (*net.TCPAddr, <-chan []byte) {
	after := make(chan []byte, 8)
	address := serve(t, func(c net.Conn) {
		buffer := make([]byte, 1<<16)
		if _, err := c.Write(greeting(plugin)); err != nil {
			return
		}
		if n, err := c.Read(buffer); err != nil || plugin != "mysql_native_password" {
			after <- bytes.Clone(buffer[:n])
			return
		}
		ok := []byte{0, 0, 0, 2, 0, 0, 0}
		if _, err := c.Write(packet(2, ok)); err != nil {
			return
		}
		for {
			n, err := c.Read(buffer)
			if err != nil {
				return
			}
			if bytes.Contains(buffer[:n], []byte(word)) {
				_, _ = c.Write(packet(1, answer))
				// The client waits for more. It is disconnected when it has said
				// all.
				for wait := time.Minute; ; wait = 300 * time.Millisecond {
					_ = c.SetReadDeadline(time.Now().Add(wait))
					n, err := c.Read(buffer)
					if n > 0 {
						after <- bytes.Clone(buffer[:n])
					}
					if err != nil {
						close(after)
						return
					}
				}
			}
			if _, err := c.Write(packet(1, ok)); err != nil {
				return
			}
		}
	})
	return address, after
}

// T05: a server that answers a query by asking for a file of ours gets nothing.
func TestAServerThatAsksForAFileGetsNothing(t *testing.T) {
	for word, file := range map[string]string{"VERSION": "/etc/passwd", "LIMIT 0": "Reader::anything", "COUNT": "/proc/self/environ"} {
		address, after := hostile(t, "mysql_native_password", word, append([]byte{0xfb}, file...))
		p := rows.New(rows.Options{})
		c := rows.Config{Kind: rows.MySQL, Host: address.IP.String(), Port: address.Port, User: "u", Password: secret.New(database.Password), Table: "t", Timeout: time.Minute}
		if s, err := p.Read(t.Context(), "key", c, []string{"uid"}); fault.Of(err) != fault.Later || s.Rows != nil {
			t.Errorf("%s: Read() = %d rows, %v, want an error", word, len(s.Rows), err)
		}
		p.Close()
		heard := 0
		for sent := range after {
			// An empty packet is how a client says that there is no file; then it quits.
			if heard += len(sent); heard > 16 {
				t.Errorf("%s: the server was sent %q", word, sent)
			}
		}
		if heard == 0 {
			t.Errorf("%s: the server never got to ask", word)
		}
	}
}

// The password is never sent in clear.
func TestPasswordsAreNotSentInClear(t *testing.T) {
	for _, plugin := range []string{"mysql_clear_password", "mysql_old_password", "dialog"} {
		address, after := hostile(t, plugin, "", nil)
		p := rows.New(rows.Options{})
		c := rows.Config{Kind: rows.MySQL, Host: address.IP.String(), Port: address.Port, User: "u", Password: secret.New(database.Password), Table: "t", Timeout: time.Minute}
		if _, err := p.Read(t.Context(), "key", c, []string{"uid"}); err == nil || strings.Contains(err.Error(), database.Password) {
			t.Errorf("%s: Read() = %v, want an error without the password", plugin, err)
		}
		p.Close()
		if sent := <-after; bytes.Contains(sent, []byte(database.Password)) {
			t.Errorf("%s: the server was sent %q", plugin, sent)
		}
	}
}
