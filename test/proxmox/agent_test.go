package proxmox

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDHCPGivesWhatIsReserved(t *testing.T) {
	e := serve(t, Options{})
	e.done(t, "grooveiq", "POST", q+"9000/clone", "newid=101", "pool=grooveiq")
	e.done(t, "grooveiq", "PUT", q+"101/config", "net0=virtio%3D02:00:00:00:00:01,bridge%3Dvmbr0,tag%3D100", "ipconfig0=ip%3Ddhcp")
	e.done(t, "grooveiq", "POST", q+"101/status/start")
	address := func() string {
		text, err := json.Marshal(e.done(t, "grooveiq", "GET", q+"101/agent/network-get-interfaces"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := address(); !strings.Contains(got, `"10.100.0.101"`) {
		t.Errorf("without a reservation it has %s", got)
	}
	if err := e.Reserve("02:00:00:00:00:01", "10.100.0.10"); err != nil {
		t.Fatal(err)
	}
	if got := address(); !strings.Contains(got, `"10.100.0.10"`) {
		t.Errorf("with a reservation it has %s", got)
	}
}

// A file is there once the guest agent has written it, and goes with its machine.
func TestTheGuestAgentKeepsFiles(t *testing.T) {
	e := serve(t, Options{})
	e.done(t, "grooveiq", "POST", q+"9000/clone", "newid=101", "pool=grooveiq")
	write := func(tenant, file, content string) string {
		_, refused := e.ask(t, tenant, "POST", q+"101/agent/file-write", "file="+file, "content="+content)
		return refused
	}
	if refused := write("grooveiq", "/etc/motd", "x"); !strings.Contains(refused, "not running") {
		t.Errorf("a machine that does not run is answered with %q", refused)
	}
	e.done(t, "grooveiq", "POST", q+"101/status/start")
	for name, c := range map[string]struct{ tenant, file, content, want string }{
		"of another tenant": {"vintronics", "/etc/motd", "x", "403"},
		"no path":           {"grooveiq", "motd", "x", "No such file"},
		"too long":          {"grooveiq", "/etc/motd", strings.Repeat("x", mostWritten+1), "400"},
		"a file":            {"grooveiq", "/etc/motd", "api-vm01%0A", ""},
	} {
		if refused := write(c.tenant, c.file, c.content); !strings.Contains(refused, c.want) || (c.want == "") != (refused == "") {
			t.Errorf("%s is answered with %q, want %q", name, refused, c.want)
		}
	}
	if _, refused := e.ask(t, "grooveiq", "GET", q+"101/agent/file-read?file=/etc/issue"); !strings.HasPrefix(refused, "500") {
		t.Errorf("a file that is not there is answered with %q", refused)
	}
	read, _ := e.done(t, "grooveiq", "GET", q+"101/agent/file-read?file=/etc/motd").(map[string]any)
	if read["content"] != "api-vm01\n" {
		t.Errorf("the file is %q", read)
	}
	e.done(t, "grooveiq", "POST", q+"101/status/stop")
	e.done(t, "grooveiq", "DELETE", q+"101")
	e.done(t, "grooveiq", "POST", q+"9000/clone", "newid=101", "pool=grooveiq")
	if files := e.VMs()[101].Files; len(files) > 0 {
		t.Errorf("a new machine has the files %v", files)
	}
}
