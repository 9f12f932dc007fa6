package sandbox

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// spec is everything that a launcher reads. The starter makes all decisions; the
// launcher executes them.
type spec struct {
	Level Level
	Path  []byte   // bytes, since JSON would change text that is not UTF-8
	Argv  [][]byte // with argv[0]
	Env   [][]byte
	Dir   string // as seen inside

	Probe bool // end instead of becoming the program
	User  int  // the user and group to become; 0 keeps ours

	Scratch  string // below Full: the private directory to make
	Tree     *tree  // Full: the file system to make
	Loopback bool   // bring lo up: the network is the sandbox's own
	Listen   bool   // make the listener inside
	Limits   rlimits
	Landlock landlock
	UDP      bool // sockets other than TCP may be made
	IPC      bool // shared memory, semaphores and message queues may be made
}

// rlimits are the per-process limits. Zero keeps ours.
type rlimits struct {
	FileBytes, Data      uint64
	OpenFiles, Processes uint64
}

// spec of a command. What its control group does not bound is bounded by
// process, as far as that makes sense: below Full the kernel counts a user's
// processes over all sandboxes, and over the whole machine if the user is us.
func (c Command) spec(g *cgroup) *spec {
	b := c.Sandbox
	o := &spec{
		Level: b.Level,
		Probe: c.probe,
		Path:  []byte(c.Path),
		Argv:  [][]byte{[]byte(cmp.Or(c.name, c.Path))},
		Env:   bytesOf(c.Env),
		Dir:   filepath.Join(b.PathInside(workInside), b.Dir),
		UDP:   b.Network == HostNetwork || b.Level == Full,
		IPC:   b.Level == Full || !b.Shared,
		Limits: rlimits{
			FileBytes: uint64(b.Limits.FileBytes),
			OpenFiles: uint64(b.Limits.OpenFiles),
		},
	}
	o.Argv = append(o.Argv, bytesOf(c.Args)...)
	if uid, change := runAs(); change {
		o.User = uid
	}
	if !g.has("memory") {
		o.Limits.Data = uint64(b.Limits.Memory)
	}
	if b.Level == Full {
		o.Limits.Processes = uint64(b.Limits.Processes)
		o.Tree = b.tree()
		o.Loopback = b.Network == NoNetwork
		o.Listen = b.Listen && o.Loopback
	}
	if b.Level < Full {
		o.Scratch = b.scratch()
	}
	if b.Level >= Kernel {
		o.Landlock = b.landlock()
		if c.Path == self {
			// The launcher's own file, which is in no tree that the sandbox
			// sees.
			o.Landlock.Read = append(o.Landlock.Read, self)
		}
	}
	return o
}

func bytesOf(texts []string) [][]byte {
	out := make([][]byte, len(texts))
	for i, t := range texts {
		out[i] = []byte(t)
	}
	return out
}

func textsOf(texts [][]byte) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = string(t)
	}
	return out
}

// tree is the file system of a Full sandbox.
type tree struct {
	Stage   string // a host directory to build it over; it is hidden in this sandbox alone
	Bytes   int64
	Scratch []string // empty directories that every user may write
	Links   [][2]string
	Texts   []text
	Mounts  []mount // in this order
}

// text is a small file of the tree.
type text struct {
	Path    string
	Content []byte
}

// mount shows a piece of the host in the tree.
type mount struct {
	Host, Inside string
	ReadOnly     bool
	Device       bool
	Optional     bool // skipped where the host has none; a link is made as a link
}

// The system's part of a tree. Of /etc only what programs need to run, resolve
// names and trust certificates: no keys, no accounts, no service's settings.
var (
	systemTrees = []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
		"/etc/alternatives", "/etc/ca-certificates", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust",
	}
	systemFiles = []string{
		"/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/openssl.cnf", "/etc/ssl/cert.pem", "/etc/pki/tls/openssl.cnf",
		"/etc/mime.types", "/etc/services", "/etc/protocols",
	}
	resolverFiles = []string{"/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"}
	devices       = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
)

const (
	accounts = "root:x:0:0:root:HOME:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:HOME:/usr/sbin/nologin\n"
	groups   = "root:x:0:\nnogroup:x:65534:\n"
	loHosts  = "127.0.0.1 localhost\n::1 localhost\n"
	loNames  = "hosts: files\n"
)

func (b *Config) tree() *tree {
	users := strings.ReplaceAll(accounts, "HOME", b.PathInside(cmp.Or(b.Home, "/home")))
	t := &tree{
		Stage:   b.Work,
		Bytes:   b.TmpBytes,
		Scratch: []string{"/tmp", "/home", shm},
		Links: [][2]string{
			{"/proc/self/fd", "/dev/fd"}, {"/proc/self/fd/0", "/dev/stdin"}, {"/proc/self/fd/1", "/dev/stdout"},
			{"/proc/self/fd/2", "/dev/stderr"}, {"/proc/self/mounts", "/etc/mtab"},
		},
		Texts: []text{{"/etc/passwd", []byte(users)}, {"/etc/group", []byte(groups)}},
	}
	if t.Bytes == 0 {
		t.Bytes = defaultTmp
	}
	t.Texts = append(t.Texts, resolver(b.Network)...)
	for _, p := range slices.Concat(systemTrees, systemFiles) {
		t.Mounts = append(t.Mounts, mount{Host: p, Inside: p, ReadOnly: true, Optional: true})
	}
	for _, p := range devices {
		t.Mounts = append(t.Mounts, mount{Host: p, Inside: p, Device: true})
	}
	for _, bind := range b.ReadOnly {
		t.Mounts = append(t.Mounts, mount{Host: bind.Host, Inside: bind.Inside, ReadOnly: true})
	}
	for _, w := range b.Writable {
		t.Mounts = append(t.Mounts, mount{Host: w, Inside: w})
	}
	// The work directory is last: its content belongs to the program, and no
	// place for another mount may be made in it.
	t.Mounts = append(t.Mounts, mount{Host: b.Work, Inside: b.workInside()})
	return t
}

// resolver is how names are looked up inside. Copies, because three small
// writes cost less than three mounts.
func resolver(n Network) []text {
	if n == NoNetwork {
		return []text{{"/etc/hosts", []byte(loHosts)}, {"/etc/nsswitch.conf", []byte(loNames)}}
	}
	var texts []text
	for _, p := range resolverFiles {
		content, err := os.ReadFile(p)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			texts = append(texts, text{p, content})
		}
	}
	return texts
}
