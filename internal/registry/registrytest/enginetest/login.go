package enginetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Login runs login for a host on the computer of a user, who visits the address that the engine
// shows. It returns the token that the engine keeps for the host.
func (c Client) Login(t testing.TB, host string, visit func(address string)) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	command := c.Command(ctx, t, t.TempDir(), "login", host)
	command.Stdin = strings.NewReader("yes\n")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaint bytes.Buffer
	command.Stderr = &complaint
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	visited := false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		if line := strings.TrimSpace(lines.Text()); !visited && strings.HasPrefix(line, "https://") {
			visited = true
			visit(line)
		}
	}
	if err := errors.Join(lines.Err(), command.Wait()); err != nil {
		t.Fatalf("login: %v: %s%s", err, said.String(), complaint.String())
	}
	kept, err := os.ReadFile(filepath.Join(c.Home, ".terraform.d", "credentials.tfrc.json"))
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	var credentials struct {
		Credentials map[string]struct{ Token string } `json:"credentials"`
	}
	if err := json.Unmarshal(kept, &credentials); err != nil {
		t.Fatal(err)
	}
	return credentials.Credentials[host].Token
}
