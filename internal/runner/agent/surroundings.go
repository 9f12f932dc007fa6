package agent

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// surroundings adds to a platform what the container of this program was given: what an
// operator, a user or an admission webhook added to the pod reaches the engine so.
func surroundings(p runner.Platform, o Options) (runner.Platform, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return p, fmt.Errorf("listing the volumes of the container: %w", err)
	}
	readable, writable, err := volumes(string(table), o.Dir, filepath.Dir(o.Token))
	if err != nil {
		return p, err
	}
	p.Readable = append(slices.Clone(p.Readable), readable...)
	p.Writable = append(slices.Clone(p.Writable), writable...)
	p.OwnShm = true
	env := given(os.Environ(), p.Settable)
	maps.Copy(env, p.Env)
	p.Env = env
	return p, nil
}

// ownPaths are what every container has, and what every run has in another way.
func ownPaths() []string {
	return []string{"/proc", "/sys", "/dev", "/tmp", "/run/terrier", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}
}

// volumes finds in the kernel's table of mounts those of a container beyond what every
// container has, and beyond own: which can be read, and which written as well.
func volumes(table string, own ...string) (readable, writable []string, err error) {
	own = append(own, ownPaths()...)
	lines := bufio.NewScanner(strings.NewReader(table))
	for lines.Scan() {
		// id parent device root mountpoint options …
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			return nil, nil, fmt.Errorf("reading the table of mounts: %q has too few fields", lines.Text())
		}
		at := unescape(fields[4])
		if at == "/" || slices.ContainsFunc(own, func(dir string) bool { return at == dir || strings.HasPrefix(at, dir+"/") }) {
			continue
		}
		if slices.Contains(strings.Split(fields[5], ","), "ro") {
			readable = append(readable, at)
		} else {
			writable = append(writable, at)
		}
	}
	return readable, writable, lines.Err()
}

// unescape reads a path as the kernel writes it in a table.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// given are the variables of the environment that runs get: not those of the image and
// of the cluster, and none that a stack could not set.
func given(environ, settable []string) map[string]string {
	env := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		own := slices.Contains([]string{"PATH", "HOME", "HOSTNAME", "PWD", "TMPDIR", "LANG", "TERM", "SHLVL"}, name) ||
			strings.HasPrefix(name, "TERRIER_") || strings.HasPrefix(name, "KUBERNETES_") || strings.HasPrefix(name, "SSL_CERT_")
		if !own && workdir.CheckEnvironment(name, settable...) == nil {
			env[name] = value
		}
	}
	return env
}
