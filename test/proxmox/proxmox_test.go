package proxmox

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// estate is a server with its client. Its clock stands still until it is moved.
type estate struct {
	*Server
	url string
	now time.Time
}

func serve(t *testing.T, o Options) *estate {
	t.Helper()
	e := &estate{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	o.Now = func() time.Time { return e.now }
	if o.Estate.Nodes == nil {
		o.Estate = Building(func(tenant string) string { return "secret-of-" + tenant })
	}
	var err error
	if e.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	e.url = server.URL
	return e
}

// ask makes a call as a tenant; administrator is one, too. What is not 200 comes as text.
func (e *estate) ask(t *testing.T, tenant, method, path string, form ...string) (any, string) {
	t.Helper()
	id := map[bool]string{true: "root@pam!administrator", false: "terrier@pve!" + tenant}[tenant == "administrator"]
	return e.send(t, "PVEAPIToken="+id+"=secret-of-"+tenant, method, e.url+"/api2/json/"+path, strings.Join(form, "&"))
}

func (e *estate) send(t *testing.T, authorization, method, target, form string) (any, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", authorization)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, "lost: " + err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Data    any
		Message string
		Errors  map[string]string
	}
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatalf("%s %s: %v: %s", method, target, err, text)
	}
	if resp.StatusCode != http.StatusOK {
		return body.Data, strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", body.Message)) + fmt.Sprint(body.Errors)
	}
	return body.Data, ""
}

// done makes a call that has to succeed.
func (e *estate) done(t *testing.T, tenant, method, path string, form ...string) any {
	t.Helper()
	data, refused := e.ask(t, tenant, method, path, form...)
	if refused != "" {
		t.Fatalf("%s %s: %s", method, path, refused)
	}
	return data
}

// exit is the exit status of a task.
func (e *estate) exit(t *testing.T, tenant string, upid any) string {
	t.Helper()
	status, _ := e.done(t, tenant, "GET", "nodes/pve-tenant/tasks/"+url.PathEscape(fmt.Sprint(upid))+"/status").(map[string]any)
	return fmt.Sprint(status["status"], " ", status["exitstatus"])
}

const q = "nodes/pve-tenant/qemu/"

// made is a VM of grooveiq, as a provider makes it.
func (e *estate) made(t *testing.T) {
	t.Helper()
	e.done(t, "grooveiq", "POST", q+"9000/clone", "newid=101", "name=api-vm01", "pool=grooveiq", "full=1")
	e.done(t, "grooveiq", "PUT", q+"101/config", "cores=2", "memory=4096", "net0=virtio,bridge=vmbr0,tag=100",
		"ipconfig0="+url.QueryEscape("ip=10.100.0.10/24,gw=10.100.0.1"), "tags=web%3Bgrooveiq", "sshkeys="+url.QueryEscape(url.PathEscape("ssh-ed25519 AAAA ops\n")))
	e.done(t, "grooveiq", "PUT", q+"101/resize", "disk=scsi0", "size=32G")
}

func TestACloneIsAMachineOfItsOwn(t *testing.T) {
	e := serve(t, Options{})
	e.made(t)
	if exit := e.exit(t, "grooveiq", e.done(t, "grooveiq", "POST", q+"101/status/start")); exit != "stopped OK" {
		t.Errorf("the start is %s", exit)
	}
	got := e.VMs()[101]
	want := VM{ID: 101, Node: "pve-tenant", Pool: "grooveiq", Running: true, Config: map[string]string{
		"name": "api-vm01", "cores": "2", "sockets": "1", "memory": "4096", "net0": "virtio=BC:24:11:00:00:02,bridge=vmbr0,tag=100", "ipconfig0": "ip=10.100.0.10/24,gw=10.100.0.1",
		"tags": "grooveiq;web", "sshkeys": "ssh-ed25519%20AAAA%20ops%0A", "scsi0": "local-lvm:vm-101-disk-0,size=32G", "ide2": "local-lvm:vm-101-cloudinit,media=cdrom",
		"agent": "enabled=1", "boot": "order=scsi0", "ostype": "l26", "scsihw": "virtio-scsi-single", "serial0": "socket", "vga": "serial0",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the machine (-want +got):\n%s", diff)
	}
	config, _ := e.done(t, "grooveiq", "GET", q+"101/config").(map[string]any)
	if config["cores"] != 2.0 || config["memory"] != "4096" {
		t.Errorf("cores and memory are answered as %v (%T), %v (%T), want a number and text", config["cores"], config["cores"], config["memory"], config["memory"])
	}
	addresses, err := json.Marshal(e.done(t, "grooveiq", "GET", q+"101/agent/network-get-interfaces"))
	if err != nil || !strings.Contains(string(addresses), `"10.100.0.10"`) {
		t.Errorf("the agent answers %s, %v", addresses, err)
	}
	if calls := e.Calls("PUT", "nodes/*/qemu/101/config"); len(calls) != 1 || calls[0].Form.Get("ipconfig0") != "ip=10.100.0.10/24,gw=10.100.0.1" || calls[0].User != "terrier@pve!grooveiq" {
		t.Errorf("the calls are %+v", calls)
	}
}

func TestALinkedCloneRestsOnItsTemplate(t *testing.T) {
	e := serve(t, Options{})
	e.done(t, "grooveiq", "POST", q+"9000/clone", "newid=101", "pool=grooveiq", "full=0")
	if got := e.VMs()[101].Config["scsi0"]; got != "local-lvm:base-9000-disk-0/vm-101-disk-0,size=10G" {
		t.Errorf("the disk is %s", got)
	}
}

func TestTasksEndWithTime(t *testing.T) {
	e := serve(t, Options{TaskTime: time.Minute})
	upid := e.done(t, "grooveiq", "POST", q+"9000/clone", "newid=101", "pool=grooveiq")
	if exit := e.exit(t, "grooveiq", upid); exit != "running <nil>" {
		t.Errorf("the task is %s", exit)
	}
	if _, refused := e.ask(t, "grooveiq", "PUT", q+"101/config", "cores=2"); !strings.Contains(refused, "500 VM is locked (clone)") {
		t.Errorf("a change meanwhile is answered with %q", refused)
	}
	if _, refused := e.ask(t, "grooveiq", "POST", q+"9000/clone", "newid=101", "pool=grooveiq"); !strings.Contains(refused, "already exists") {
		t.Errorf("the same number again is answered with %q", refused)
	}
	e.now = e.now.Add(time.Minute)
	if exit := e.exit(t, "grooveiq", upid); exit != "stopped OK" {
		t.Errorf("the task is %s", exit)
	}
	e.done(t, "grooveiq", "PUT", q+"101/config", "cores=2")
	if id := e.done(t, "grooveiq", "GET", "cluster/nextid"); id != "102" {
		t.Errorf("the next number is %v", id)
	}
}

func TestValuesThatProxmoxRefuses(t *testing.T) {
	e := serve(t, Options{})
	e.made(t)
	for form, want := range map[string]string{
		"cores=two": "cores:type check ('integer') failed",
		"memory=4":  "memory:value must have a minimum value of 16",
		"name=a_b":  "name:value does not look like a valid DNS name",
		"net0=virtio%3D01:00:00:00:00:01,bridge%3Dvmbr0,tag%3D100": "valid unicast MAC address",
		"net0=virtio,bridge%3Dvmbr0,tag%3D4095":                    "maximum value of 4094",
		"net0=ne2k,bridge%3Dvmbr0":                                 "model: value 'ne2k'",
		"ipconfig0=ip%3D10.100.0.10":                               "valid IPv4 network configuration",
		"ipconfig0=ip%3Ddhcp,gw%3D10.100.0.1":                      "gateway specified without",
		"sshkeys=ssh-ed25519+AAAA":                                 "invalid urlencoded string",
		"tags=a!":                                                  "invalid characters in tag",
		"scsi1=nowhere:8":                                          "500 storage 'nowhere' does not exist",
		"color=red":                                                "color:property is not defined in schema",
		"cores=2&digest=0":                                         "detected modified configuration",
	} {
		if _, refused := e.ask(t, "administrator", "PUT", q+"101/config", form); !strings.Contains(refused, want) {
			t.Errorf("%s is answered with %q, want %q", form, refused, want)
		}
	}
	for path, want := range map[string]string{
		"PUT " + q + "101/resize?disk=scsi0&size=8G": "500 unable to shrink disk size",
		"GET nodes/nowhere/qemu":                     "500 hostname lookup 'nowhere' failed",
		"GET " + q + "999/config":                    "500 Configuration file 'nodes/pve-tenant/qemu-server/999.conf' does not exist",
		"GET nodes/pve-tenant/lxc":                   "501 Method 'GET /nodes/pve-tenant/lxc' not implemented",
		"POST " + q + "9000/status/start":            "500 you can't start a vm if it's a template",
	} {
		method, path, _ := strings.Cut(path, " ")
		if _, refused := e.ask(t, "administrator", method, path); !strings.Contains(refused, want) {
			t.Errorf("%s %s is answered with %q, want %q", method, path, refused, want)
		}
	}
}

func TestATokenEndsAtItsPool(t *testing.T) {
	e := serve(t, Options{})
	e.made(t)
	for name, c := range map[string][]string{
		"a machine of another":       {"GET", q + "101/config", "(/vms/101, VM.Audit)"},
		"deleting it":                {"DELETE", q + "101", "(/vms/101, VM.Allocate)"},
		"the management plane":       {"POST", "nodes/pve-mgmt/qemu/100/status/stop", "(/vms/100, VM.PowerMgmt)"},
		"a clone without a pool":     {"POST", q + "9000/clone?newid=102", "(/vms/102, VM.Allocate)"},
		"a clone in another pool":    {"POST", q + "9000/clone?newid=102&pool=grooveiq", "(/vms/102, VM.Allocate)"},
		"a change of the template":   {"PUT", q + "9000/config?cores=9", "(/vms/9000, VM.Config.CPU)"},
		"a template on its storage":  {"POST", q + "9000/clone?newid=102&pool=vintronics&full=1&storage=local", "(/storage/local, Datastore.AllocateSpace)"},
		"a pool of another":          {"GET", "pools/grooveiq", "(/pool/grooveiq, Pool.Audit)"},
		"the status of a hypervisor": {"GET", "nodes/pve-tenant/status", "(/nodes/pve-tenant, Sys.Audit)"},
	} {
		if _, refused := e.ask(t, "vintronics", c[0], c[1]); !strings.Contains(refused, "403 Permission check failed "+c[2]) {
			t.Errorf("%s is answered with %q, want %s", name, refused, c[2])
		}
	}
	e.done(t, "vintronics", "POST", q+"9000/clone", "newid=102", "pool=vintronics")
	if _, refused := e.ask(t, "vintronics", "PUT", q+"102/config", "net0=virtio,bridge%3Dvmbr0,tag%3D100"); !strings.Contains(refused, "403 Permission check failed (/sdn/zones/localnetwork/vmbr0/100, SDN.Use)") {
		t.Errorf("the VLAN of another is answered with %q", refused)
	}
	if rows, _ := e.done(t, "vintronics", "GET", "nodes/pve-tenant/qemu").([]any); len(rows) != 2 {
		t.Errorf("it sees %v, want the template and its own", rows)
	}
	for authorization, want := range map[string]string{"": "401 No ticket", "PVEAPIToken=terrier@pve!nobody=x": "401 no such API token", "PVEAPIToken=terrier@pve!grooveiq=x": "401 invalid token value!"} {
		if _, refused := e.send(t, authorization, "GET", e.url+"/api2/json/version", ""); !strings.Contains(refused, want) {
			t.Errorf("%q is answered with %q, want %q", authorization, refused, want)
		}
	}
}

func TestARunningMachineChangesAtItsNextStart(t *testing.T) {
	e := serve(t, Options{})
	e.made(t)
	e.done(t, "grooveiq", "POST", q+"101/status/start")
	e.done(t, "grooveiq", "PUT", q+"101/config", "cores=8")
	next, _ := e.done(t, "grooveiq", "GET", q+"101/config").(map[string]any)
	now, _ := e.done(t, "grooveiq", "GET", q+"101/config?current=1").(map[string]any)
	if next["cores"] != 8.0 || now["cores"] != 2.0 {
		t.Errorf("cores are %v, and %v now; want 8 and 2", next["cores"], now["cores"])
	}
	e.done(t, "grooveiq", "POST", q+"101/status/reboot")
	if now, _ = e.done(t, "grooveiq", "GET", q+"101/config?current=1").(map[string]any); now["cores"] != 8.0 {
		t.Errorf("after a reboot cores are %v", now["cores"])
	}
	e.done(t, "grooveiq", "PUT", q+"101/config", "scsi1=local-lvm:8")
	e.done(t, "grooveiq", "PUT", q+"101/config", "delete=scsi1")
	if got := e.VMs()[101].Config["unused0"]; got != "local-lvm:vm-101-disk-1" {
		t.Errorf("a disk that is taken out is %q, want it unused", got)
	}
	if _, refused := e.ask(t, "grooveiq", "DELETE", q+"101"); !strings.Contains(refused, "500 VM 101 is running - destroy failed") {
		t.Errorf("destroying it is answered with %q", refused)
	}
	e.done(t, "grooveiq", "POST", q+"101/status/stop")
	e.done(t, "grooveiq", "DELETE", q+"101")
	if len(e.Tagged("grooveiq")) > 0 || len(e.VMs()) != 2 {
		t.Errorf("what is left is %v", e.VMs())
	}
}

func TestFaults(t *testing.T) {
	e := serve(t, Options{Admin: "of-the-stand-in"})
	const clones = "nodes/*/qemu/*/clone"
	again := func() (any, string) {
		return e.ask(t, "grooveiq", "POST", q+"9000/clone", "newid=101", "pool=grooveiq")
	}
	e.Fault(Fault{Path: clones, Times: 1, Status: 595, Message: "No route to host"})
	if _, refused := again(); !strings.HasPrefix(refused, "595 No route to host") {
		t.Errorf("a node that is away is answered with %q", refused)
	}
	e.Fault(Fault{Path: clones, Times: 1, Task: "clone failed: no space left on device"})
	upid, _ := again()
	if exit := e.exit(t, "grooveiq", upid); exit != "stopped clone failed: no space left on device" || len(e.VMs()) != 2 {
		t.Errorf("the task is %s, and the machines are %v", exit, e.VMs())
	}
	e.Fault(Fault{Path: clones, Times: 1, Lost: true})
	if _, refused := again(); !strings.HasPrefix(refused, "lost: ") || e.VMs()[101].Pool != "grooveiq" {
		t.Errorf("an answer that is lost is %q, and the machines are %v", refused, e.VMs())
	}

	admin := func(method, path, body string) string {
		_, refused := e.send(t, "Bearer of-the-stand-in", method, e.url+"/stand-in/"+path, body)
		return refused
	}
	if refused := admin("POST", "faults", `{"path": "version", "status": 500, "message": "out of order"}`); refused != "" {
		t.Error(refused)
	}
	if _, refused := e.ask(t, "grooveiq", "GET", "version"); !strings.HasPrefix(refused, "500 out of order") {
		t.Errorf("the fault is answered with %q", refused)
	}
	if refused := admin("DELETE", "faults", "") + admin("PATCH", "vms/101", `{"set": {"cores": "7"}, "running": true}`); refused != "" {
		t.Error(refused)
	}
	e.done(t, "grooveiq", "GET", "version")
	if vm := e.VMs()[101]; vm.Config["cores"] != "7" || !vm.Running {
		t.Errorf("after a manual change it is %+v", vm)
	}
	if refused := admin("DELETE", "vms/101", ""); refused != "" || len(e.VMs()) != 2 {
		t.Errorf("%s: the machines are %v", refused, e.VMs())
	}
	if refused := admin("PATCH", "vms/101", `{}`); !strings.HasPrefix(refused, "404") {
		t.Errorf("a machine that is not there is answered with %q", refused)
	}
	if _, refused := e.send(t, "Bearer x", "GET", e.url+"/stand-in/vms", ""); !strings.HasPrefix(refused, "401") {
		t.Errorf("without its secret the stand-in answers %q", refused)
	}
}

func TestAnotherStartGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "estate.json")
	e := serve(t, Options{File: file, TaskTime: time.Minute})
	upid := e.done(t, "grooveiq", "POST", q+"9000/clone", "newid=101", "pool=grooveiq")
	next := serve(t, Options{File: file})
	next.now = e.now.Add(time.Minute)
	if exit := next.exit(t, "grooveiq", upid); exit != "stopped OK" || next.VMs()[101].Pool != "grooveiq" {
		t.Errorf("after another start the task is %s, and the machines are %v", exit, next.VMs())
	}
}

func TestNetworksAreThoseThatATokenMayUse(t *testing.T) {
	e := serve(t, Options{})
	for tenant, want := range map[string]int{"grooveiq": 2, "administrator": 4} { // vmbr0 and its VLANs
		if rows, _ := e.done(t, tenant, "GET", "nodes/pve-tenant/network").([]any); len(rows) != want {
			t.Errorf("%s sees %v, want %d networks", tenant, rows, want)
		}
	}
}
