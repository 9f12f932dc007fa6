package proxmox

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

func version(*request) (any, error) {
	return map[string]any{"version": "8.4.1", "release": "8.4", "repoid": "stand-in"}, nil
}

func permissions(r *request) (any, error) {
	all := map[string]map[string]int{}
	for _, g := range r.token.Grants {
		all[g.Path] = map[string]int{}
		for _, p := range g.Privileges {
			all[g.Path][p] = 1
		}
	}
	return all, nil
}

func nodes(r *request) (any, error) {
	answer := []map[string]any{}
	for _, n := range r.Nodes {
		row := map[string]any{"node": n.Name, "id": "node/" + n.Name, "type": "node", "status": "online"}
		if n.Offline {
			row["status"] = "offline"
		}
		if r.token.may("Sys.Audit", "/nodes/"+n.Name) {
			row["maxcpu"], row["maxmem"] = n.CPUs, n.Memory
		}
		answer = append(answer, row)
	}
	return answer, nil
}

func nodeStatus(r *request) (any, error) {
	n, err := r.node(r.PathValue("node"))
	if err == nil {
		err = r.need("Sys.Audit", "/nodes/"+n.Name)
	}
	return map[string]any{"cpuinfo": map[string]any{"cpus": n.CPUs}, "memory": map[string]any{"total": n.Memory}, "pveversion": "pve-manager/8.4.1"}, err
}

func storages(r *request) (any, error) {
	if _, err := r.node(r.PathValue("node")); err != nil {
		return nil, err
	}
	answer := []map[string]any{}
	for _, s := range r.Storages {
		if r.token.may("Datastore.Audit", "/storage/"+s.Name) || r.token.may("Datastore.AllocateSpace", "/storage/"+s.Name) {
			answer = append(answer, map[string]any{"storage": s.Name, "type": s.Type, "content": "images,rootdir", "active": 1, "enabled": 1, "shared": bit(s.Shared), "total": s.Total, "avail": s.Total})
		}
	}
	return answer, nil
}

// networks answers with bridges, and the interfaces of VLANs on them.
func networks(r *request) (any, error) {
	n, err := r.node(r.PathValue("node"))
	if err != nil {
		return nil, err
	}
	kind, answer := r.form.Get("type"), []map[string]any{}
	sees := func(path string) bool {
		return r.token.may("SDN.Audit", path) || r.token.may("SDN.Use", path) || r.token.may("Sys.Audit", "/nodes/"+n.Name)
	}
	for _, b := range n.Bridges {
		path, below := "/sdn/zones/localnetwork/"+b, false
		for _, v := range r.VLANs {
			if !sees(path + "/" + strconv.Itoa(v.ID)) {
				continue
			}
			below = true
			if v.Interface && (kind == "" || kind == "vlan") {
				answer = append(answer, map[string]any{"iface": b + "." + strconv.Itoa(v.ID), "type": "vlan", "vlan-id": v.ID, "vlan-raw-device": b, "active": 1, "cidr": v.Gateway + v.Subnet[strings.Index(v.Subnet, "/"):]})
			}
		}
		if (below || sees(path)) && (kind == "" || kind == "bridge" || kind == "any_bridge") {
			answer = append(answer, map[string]any{"iface": b, "type": "bridge", "bridge_vlan_aware": 1, "active": 1, "autostart": 1})
		}
	}
	return answer, nil
}

func zones(r *request) (any, error) {
	return []map[string]any{{"zone": "localnetwork", "type": "vlan", "bridge": "vmbr0"}}, r.need("SDN.Audit", "/sdn/zones/localnetwork")
}

func vnets(r *request) (any, error) {
	answer := []map[string]any{}
	for _, v := range r.VLANs {
		if r.token.may("SDN.Audit", "/sdn/zones/localnetwork/vmbr0/"+strconv.Itoa(v.ID)) {
			answer = append(answer, map[string]any{"vnet": "vlan" + strconv.Itoa(v.ID), "zone": "localnetwork", "tag": v.ID, "type": "vnet"})
		}
	}
	return answer, nil
}

// nextID answers with the least number that is free, as text.
func nextID(r *request) (any, error) {
	id := 100
	if asked := r.form.Get("vmid"); asked != "" {
		n, err := strconv.Atoi(asked)
		if err != nil {
			return nil, badParameter("vmid", "type check ('integer') failed - got '%s'", asked)
		}
		if r.VMs[n] != nil {
			return nil, badParameter("vmid", "VM %d already exists", n)
		}
		id = n
	}
	for r.VMs[id] != nil {
		id++
	}
	return strconv.Itoa(id), nil
}

func resources(r *request) (any, error) {
	kind, answer := r.form.Get("type"), []map[string]any{}
	if kind == "" || kind == "vm" {
		for _, id := range slices.Sorted(maps.Keys(r.VMs)) {
			if vm := r.VMs[id]; r.sees(vm) {
				row := vm.row()
				row["id"], row["type"], row["node"] = "qemu/"+vm.number(), "qemu", vm.Node
				if vm.Pool != "" {
					row["pool"] = vm.Pool
				}
				answer = append(answer, row)
			}
		}
	}
	if kind == "" || kind == "node" {
		for _, n := range r.Nodes {
			answer = append(answer, map[string]any{"id": "node/" + n.Name, "type": "node", "node": n.Name, "status": map[bool]string{true: "offline", false: "online"}[n.Offline]})
		}
	}
	if kind == "" || kind == "pool" {
		for _, p := range r.Pools {
			if r.token.may("Pool.Audit", "/pool/"+p) {
				answer = append(answer, map[string]any{"id": "/pool/" + p, "type": "pool", "pool": p})
			}
		}
	}
	return answer, nil
}

func pools(r *request) (any, error) {
	answer := []map[string]any{}
	for _, p := range r.Pools {
		if r.token.may("Pool.Audit", "/pool/"+p) {
			answer = append(answer, map[string]any{"poolid": p})
		}
	}
	return answer, nil
}

func pool(r *request) (any, error) {
	name := r.PathValue("pool")
	if err := r.need("Pool.Audit", "/pool/"+name); err != nil {
		return nil, err
	}
	if !contains(r.Pools, name) {
		return nil, broken("pool '%s' does not exist", name)
	}
	members := []map[string]any{}
	for _, id := range slices.Sorted(maps.Keys(r.VMs)) {
		if vm := r.VMs[id]; vm.Pool == name {
			members = append(members, vm.row())
		}
	}
	return map[string]any{"members": members}, nil
}

// changePool adds machines to a pool, or with delete=1 takes them out of it.
func changePool(r *request) (any, error) {
	name := r.PathValue("pool")
	if err := r.need("Pool.Allocate", "/pool/"+name); err != nil {
		return nil, err
	}
	for text := range strings.SplitSeq(r.form.Get("vms"), ",") {
		id, err := strconv.Atoi(text)
		vm := r.VMs[id]
		if err != nil || vm == nil {
			return nil, badParameter("vms", "VM %s does not exist", url.QueryEscape(text))
		}
		if vm.Pool = name; r.form.Get("delete") == "1" {
			vm.Pool = ""
		}
	}
	return nil, nil
}
