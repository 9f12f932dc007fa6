package proxmox

import (
	"fmt"
	"strconv"
	"time"
)

// Task is what Proxmox VE does after it has answered:
// https://pve.proxmox.com/pve-docs/api-viewer/#/nodes/{node}/tasks.
type Task struct {
	UPID  string            `json:"upid"`
	Node  string            `json:"node"`
	Type  string            `json:"type"` // qmclone, qmstart
	VM    int               `json:"vm"`
	User  string            `json:"user"`
	Start time.Time         `json:"start"`
	End   time.Time         `json:"end"`            // when it is over
	Exit  string            `json:"exit,omitempty"` // OK, or why it failed; empty as long as it runs
	Fail  string            `json:"fail,omitempty"` // what a fault has it end with
	With  map[string]string `json:"with,omitempty"`
}

// begin starts a task, and returns its UPID.
func (r *request) begin(node, kind string, vm int, with map[string]string) (any, error) {
	r.Process++
	t := &Task{Node: node, Type: kind, VM: vm, User: r.token.ID, Start: r.now, End: r.now.Add(r.time), Fail: r.fail, With: with}
	t.UPID = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%d:%s:", node, r.Process, r.Process, r.now.Unix(), kind, vm, t.User)
	r.Tasks = append(r.Tasks, t)
	return t.UPID, nil
}

// settle ends the tasks whose time is over.
func (e *Estate) settle(now time.Time) {
	for _, t := range e.Tasks {
		if t.Exit != "" || t.End.After(now) {
			continue
		}
		if t.Exit = t.Fail; t.Exit == "" {
			t.Exit = e.end(t)
		}
		if t.Exit != "OK" && t.Type == "qmclone" {
			delete(e.VMs, t.VM) // a clone that failed leaves nothing
		}
		if vm := e.VMs[t.VM]; vm != nil && t.Type != "qmdestroy" {
			vm.Lock = ""
		}
	}
}

// end does what a task is for. It returns the exit status.
func (e *Estate) end(t *Task) string {
	vm, ok := e.VMs[t.VM]
	if !ok {
		return fmt.Sprintf("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", t.Node, t.VM)
	}
	switch t.Type {
	case "qmstart":
		if vm.Running {
			return fmt.Sprintf("VM %d already running", vm.ID)
		}
		if why := e.unbridged(vm); why != "" {
			return why
		}
		vm.power(true)
	case "qmreboot":
		if !vm.Running {
			return fmt.Sprintf("VM %d not running", vm.ID)
		}
		vm.power(true)
	case "qmstop":
		vm.power(false)
	case "qmshutdown":
		if !vm.Running {
			return fmt.Sprintf("VM %d not running", vm.ID)
		}
		vm.power(false)
	case "qmdestroy":
		delete(e.VMs, vm.ID)
	case "qmigrate":
		vm.Node = t.With["target"]
	case "resize":
		vm.Config[t.With["disk"]] = withPart(vm.Config[t.With["disk"]], "size", t.With["size"])
	}
	return "OK"
}

// power starts a machine again, or stops it. Pending options count from then on.
func (vm *VM) power(on bool) {
	vm.Running = on
	for name, v := range vm.Pending {
		if vm.Config[name] = v; v == "" {
			delete(vm.Config, name)
		}
	}
	vm.Pending = nil
}

// unbridged says why a machine cannot be started with its bridges.
func (e *Estate) unbridged(vm *VM) string {
	for i := range 8 {
		device := vm.option("net" + strconv.Itoa(i))
		if device == "" {
			continue
		}
		node, err := e.node(vm.Node)
		if err != nil {
			return err.Error()
		}
		if bridge := part(device, "bridge"); !contains(node.Bridges, bridge) {
			return fmt.Sprintf("bridge '%s' does not exist", bridge)
		}
	}
	return ""
}

// taskStatus answers GET nodes/{node}/tasks/{upid}/status.
func taskStatus(r *request) (any, error) {
	t, err := r.task()
	if err != nil {
		return nil, err
	}
	answer := t.row()
	answer["status"] = "running"
	if t.Exit != "" {
		answer["status"], answer["exitstatus"] = "stopped", t.Exit
	}
	delete(answer, "endtime")
	return answer, nil
}

// taskLog answers GET nodes/{node}/tasks/{upid}/log.
func taskLog(r *request) (any, error) {
	t, err := r.task()
	if err != nil {
		return nil, err
	}
	lines := []string{t.Type + " of VM " + strconv.Itoa(t.VM)}
	switch t.Exit {
	case "":
	case "OK":
		lines = append(lines, "TASK OK")
	default:
		lines = append(lines, "TASK ERROR: "+t.Exit)
	}
	var answer []map[string]any
	for i, line := range lines {
		answer = append(answer, map[string]any{"n": i + 1, "t": line})
	}
	return answer, nil
}

// tasks answers GET nodes/{node}/tasks: newest first, those of the token, or all with Sys.Audit.
func tasks(r *request) (any, error) {
	answer := []map[string]any{}
	for i := len(r.Tasks) - 1; i >= 0; i-- {
		t := r.Tasks[i]
		if t.Node == r.PathValue("node") && r.seesTask(t) {
			answer = append(answer, t.row())
		}
	}
	return answer, nil
}

func (r *request) seesTask(t *Task) bool {
	return t.User == r.token.ID || r.token.may("Sys.Audit", "/nodes/"+t.Node)
}

func (r *request) task() (*Task, error) {
	for _, t := range r.Tasks {
		if t.UPID == r.PathValue("upid") {
			if !r.seesTask(t) {
				return nil, r.need("Sys.Audit", "/nodes/"+t.Node)
			}
			return t, nil
		}
	}
	return nil, broken("unable to parse worker upid '%s'", r.PathValue("upid"))
}

func (t *Task) row() map[string]any {
	row := map[string]any{
		"upid": t.UPID, "node": t.Node, "type": t.Type, "id": strconv.Itoa(t.VM), "user": t.User, "starttime": t.Start.Unix(), "pid": 1, "pstart": 1,
	}
	if t.Exit != "" {
		row["endtime"], row["status"] = t.End.Unix(), t.Exit
	}
	return row
}
