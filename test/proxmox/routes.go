package proxmox

import (
	"crypto/sha1"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// routes are all paths that are answered, as the API viewer has them.
func (s *Server) routes() {
	for pattern, h := range map[string]handler{
		"GET version":                          version,
		"GET access/permissions":               permissions,
		"GET nodes":                            nodes,
		"GET nodes/{node}/status":              nodeStatus,
		"GET nodes/{node}/storage":             storages,
		"GET nodes/{node}/network":             networks,
		"GET cluster/nextid":                   nextID,
		"GET cluster/resources":                resources,
		"GET cluster/sdn/zones":                zones,
		"GET cluster/sdn/vnets":                vnets,
		"GET pools":                            pools,
		"GET pools/{pool}":                     pool,
		"PUT pools/{pool}":                     changePool,
		"GET nodes/{node}/tasks":               tasks,
		"GET nodes/{node}/qemu":                machines,
		"GET nodes/{node}/tasks/{upid}/status": taskStatus,
		"GET nodes/{node}/tasks/{upid}/log":    taskLog,

		"GET nodes/{node}/qemu/{vmid}/config":                       of("VM.Audit", false, config),
		"PUT nodes/{node}/qemu/{vmid}/config":                       of("", true, setConfig),
		"POST nodes/{node}/qemu/{vmid}/config":                      of("", true, startConfig),
		"GET nodes/{node}/qemu/{vmid}/pending":                      of("VM.Audit", false, pending),
		"GET nodes/{node}/qemu/{vmid}/status/current":               of("VM.Audit", false, current),
		"POST nodes/{node}/qemu/{vmid}/status/start":                of("VM.PowerMgmt", true, task("qmstart")),
		"POST nodes/{node}/qemu/{vmid}/status/stop":                 of("VM.PowerMgmt", true, task("qmstop")),
		"POST nodes/{node}/qemu/{vmid}/status/shutdown":             of("VM.PowerMgmt", true, task("qmshutdown")),
		"POST nodes/{node}/qemu/{vmid}/status/reboot":               of("VM.PowerMgmt", true, task("qmreboot")),
		"POST nodes/{node}/qemu/{vmid}/clone":                       of("VM.Clone", true, clone),
		"POST nodes/{node}/qemu/{vmid}/migrate":                     of("VM.Migrate", true, migrate),
		"PUT nodes/{node}/qemu/{vmid}/resize":                       of("VM.Config.Disk", true, resize),
		"DELETE nodes/{node}/qemu/{vmid}":                           of("VM.Allocate", true, destroy),
		"GET nodes/{node}/qemu/{vmid}/agent/network-get-interfaces": of("VM.Monitor", false, interfaces),
		"GET nodes/{node}/qemu/{vmid}/agent/file-read":              of("VM.Monitor", false, readFile),
		"POST nodes/{node}/qemu/{vmid}/agent/file-write":            of("VM.Monitor", true, writeFile),
	} {
		s.handle(pattern, h)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		s.handle(method+" {rest...}", func(r *request) (any, error) {
			return nil, refusal{status: http.StatusNotImplemented, message: fmt.Sprintf("Method '%s /%s' not implemented", r.Method, r.PathValue("rest"))}
		})
	}
}

// of finds the machine of a call, and checks the privilege that the call takes. Nothing is
// changed of a machine that is locked.
func of(privilege string, changes bool, h func(*request, *VM) (any, error)) handler {
	return func(r *request) (any, error) {
		node := r.PathValue("node")
		if _, err := r.node(node); err != nil {
			return nil, err
		}
		id, err := strconv.Atoi(r.PathValue("vmid"))
		if err != nil || id < 100 {
			return nil, badParameter("vmid", "type check ('integer') failed - got '%s'", r.PathValue("vmid"))
		}
		vm, ok := r.VMs[id]
		if privilege != "" {
			places := []string{"/vms/" + strconv.Itoa(id)}
			if ok {
				places = vm.places()
			}
			if err := r.need(privilege, places...); err != nil {
				return nil, err
			}
		}
		if !ok || vm.Node != node {
			return nil, broken("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", node, id)
		}
		if changes && vm.Lock != "" {
			return nil, broken("VM is locked (%s)", vm.Lock)
		}
		return h(r, vm)
	}
}

func task(kind string) func(*request, *VM) (any, error) {
	return func(r *request, vm *VM) (any, error) {
		if vm.Template {
			return nil, broken("you can't start a vm if it's a template")
		}
		return r.begin(vm.Node, kind, vm.ID, nil)
	}
}

func machines(r *request) (any, error) {
	n, err := r.node(r.PathValue("node"))
	if err != nil {
		return nil, err
	}
	answer := []map[string]any{}
	for _, id := range slices.Sorted(maps.Keys(r.VMs)) {
		if vm := r.VMs[id]; vm.Node == n.Name && r.sees(vm) {
			answer = append(answer, vm.row())
		}
	}
	return answer, nil
}

func (vm *VM) row() map[string]any {
	row := map[string]any{"vmid": vm.ID, "name": vm.Config["name"], "status": vm.status()}
	if vm.Template {
		row["template"] = 1
	}
	if tags := vm.Config["tags"]; tags != "" {
		row["tags"] = tags
	}
	if vm.Lock != "" {
		row["lock"] = vm.Lock
	}
	for name, key := range map[string]string{"cores": "cpus", "memory": "maxmem"} {
		if n, err := strconv.ParseInt(vm.Config[name], 10, 64); err == nil {
			row[key] = n
		}
	}
	return row
}

func (vm *VM) status() string {
	if vm.Running {
		return "running"
	}
	return "stopped"
}

func current(_ *request, vm *VM) (any, error) {
	row := vm.row()
	row["qmpstatus"], row["agent"] = vm.status(), bit(vm.agent())
	return row, nil
}

// digest changes with the configuration.
func (vm *VM) digest() string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(vm.Config)) {
		text += name + ": " + vm.Config[name] + "\n"
	}
	return fmt.Sprintf("%x", sha1.Sum([]byte(text)))
}

// config answers with the options from the next start on, or with current=1 those of now.
func config(r *request, vm *VM) (any, error) {
	values := maps.Clone(vm.Config)
	if r.form.Get("current") != "1" {
		maps.Copy(values, vm.Pending)
	}
	answer := map[string]any{"digest": vm.digest()}
	for name, v := range values {
		answer[name] = v
		if n, err := strconv.Atoi(v); err == nil && contains([]string{"cores", "sockets", "onboot", "numa", "protection", "balloon"}, name) {
			answer[name] = n // the memory is text
		}
	}
	if vm.Template {
		answer["template"] = 1
	}
	if vm.Lock != "" {
		answer["lock"] = vm.Lock
	}
	return answer, nil
}

func pending(_ *request, vm *VM) (any, error) {
	answer := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(vm.Config)) {
		row := map[string]any{"key": name, "value": vm.Config[name]}
		if v, ok := vm.Pending[name]; ok {
			row["pending"] = v
		}
		answer = append(answer, row)
	}
	return answer, nil
}

func setConfig(r *request, vm *VM) (any, error) { return nil, r.set(vm) }

func startConfig(r *request, vm *VM) (any, error) {
	if err := r.set(vm); err != nil {
		return nil, err
	}
	return r.begin(vm.Node, "qmconfig", vm.ID, nil)
}

// clone begins a copy. The new machine is there at once, and locked until the task is over.
func clone(r *request, vm *VM) (any, error) {
	id, err := strconv.Atoi(r.form.Get("newid"))
	if err != nil || id < 100 {
		return nil, badParameter("newid", "type check ('integer') failed - got '%s'", r.form.Get("newid"))
	}
	made := &VM{ID: id, Node: vm.Node, Pool: r.form.Get("pool"), Lock: "clone", Config: maps.Clone(vm.Config)}
	if err := r.need("VM.Allocate", made.places()...); err != nil {
		return nil, err
	}
	if made.Pool != "" && !contains(r.Pools, made.Pool) {
		return nil, broken("pool '%s' does not exist", made.Pool)
	}
	if r.VMs[id] != nil {
		return nil, broken("unable to create VM %d: config file already exists", id)
	}
	full := !vm.Template
	if v := r.form.Get("full"); v != "" {
		full = v == "1" || !vm.Template
	}
	to := r.form.Get("storage")
	if to != "" && !full {
		return nil, badParameter("storage", "parameter not allowed for linked clones")
	}
	for name, v := range vm.Config {
		switch {
		case netName.MatchString(name):
			r.LastMAC++
			model, rest, _ := strings.Cut(v, "=")
			_, rest, _ = strings.Cut(rest, ",")
			made.Config[name] = fmt.Sprintf("%s=BC:24:11:%02X:%02X:%02X,%s", model, r.LastMAC>>16&0xff, r.LastMAC>>8&0xff, r.LastMAC&0xff, rest)
		case diskName.MatchString(name) && strings.Contains(v, ":"):
			if made.Config[name], err = r.cloned(made, v, full, to); err != nil {
				return nil, err
			}
		}
	}
	delete(made.Config, "tags") // the tags of a template are about the template
	for _, name := range []string{"name", "description"} {
		if v := r.form.Get(name); v != "" {
			if made.Config[name], err = r.value(made, name, v); err != nil {
				return nil, err
			}
		}
	}
	if target := r.form.Get("target"); target != "" && target != vm.Node {
		if made.Node, err = target, r.elsewhere(made, target); err != nil {
			return nil, err
		}
	}
	r.VMs[id] = made
	return r.begin(vm.Node, "qmclone", id, map[string]string{"from": vm.number()})
}

// cloned is the volume of a clone.
func (r *request) cloned(made *VM, v string, full bool, to string) (string, error) {
	volume, rest, _ := strings.Cut(v, ",")
	store, name, _ := strings.Cut(volume, ":")
	if to != "" {
		store = to
	}
	if _, err := r.storage(store); err != nil {
		return "", err
	}
	if err := r.need("Datastore.AllocateSpace", "/storage/"+store); err != nil {
		return "", err
	}
	switch {
	case strings.HasSuffix(name, "-cloudinit"):
		return fmt.Sprintf("%s:vm-%d-cloudinit,%s", store, made.ID, rest), nil
	case full:
		return made.volume(store) + "," + rest, nil
	default:
		_, disk, _ := strings.Cut(made.volume(store), ":")
		return store + ":" + name + "/" + disk + "," + rest, nil
	}
}

// elsewhere refuses a node that does not have the disks of a machine.
func (r *request) elsewhere(vm *VM, target string) error {
	if _, err := r.node(target); err != nil {
		return err
	}
	for name, v := range vm.Config {
		if store, _, ok := strings.Cut(v, ":"); ok && diskName.MatchString(name) {
			if s, err := r.storage(store); err == nil && !s.Shared {
				return broken("can't clone to non-shared storage '%s'", store)
			}
		}
	}
	return nil
}

func migrate(r *request, vm *VM) (any, error) {
	target := r.form.Get("target")
	if _, err := r.node(target); err != nil {
		return nil, err
	}
	if target == vm.Node {
		return nil, broken("target is local node.")
	}
	vm.Lock = "migrate"
	return r.begin(vm.Node, "qmigrate", vm.ID, map[string]string{"target": target})
}

func resize(r *request, vm *VM) (any, error) {
	disk := r.form.Get("disk")
	v, ok := vm.Config[disk]
	if !ok || !diskName.MatchString(disk) {
		return nil, broken("disk '%s' does not exist", disk)
	}
	size, more, ok := sizeOf(r.form.Get("size"))
	if !ok {
		return nil, badParameter("size", "value does not match the regex pattern")
	}
	old, _, _ := sizeOf(part(v, "size"))
	if more {
		size += old
	}
	if size < old {
		return nil, broken("unable to shrink disk size")
	}
	return r.begin(vm.Node, "resize", vm.ID, map[string]string{"disk": disk, "size": gigabytes(size)})
}

func gigabytes(size int64) string {
	if size%(1<<30) == 0 {
		return strconv.FormatInt(size>>30, 10) + "G"
	}
	return strconv.FormatInt(size>>20, 10) + "M"
}

func destroy(r *request, vm *VM) (any, error) {
	if vm.Config["protection"] == "1" {
		return nil, broken("can't remove VM %d - protection mode enabled", vm.ID)
	}
	if vm.Running {
		return nil, broken("VM %d is running - destroy failed", vm.ID)
	}
	return r.begin(vm.Node, "qmdestroy", vm.ID, nil)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
