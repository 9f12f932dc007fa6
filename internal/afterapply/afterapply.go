// Package afterapply says which steps follow an apply: a wait for hosts, a playbook of
// Ansible, a program of the source. It reads the annotation in which users say it, and makes
// of the outputs of a stack what a step is given. It runs nothing: a run of its own kind
// does, in the sandbox of any other run.
//
// Start reading at Parse, then at Step.Given.
package afterapply

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Annotation is where a stack says what follows its applies: a list in YAML.
const Annotation = "terrier.dev/after-apply"

// Rerun is the annotation by which a user asks for the steps once more.
const Rerun = "terrier.dev/rerun-steps"

// ConditionPrefix begins the type of the condition of each step; its name follows.
const ConditionPrefix = "Step-"

// Bounds of one annotation.
const (
	maxText    = 32 << 10 // bytes
	maxSteps   = 32
	maxField   = 1024 // bytes of one text in it
	maxRetries = 20
	maxTimeout = 24 * time.Hour
	minTimeout = time.Second
)

// What steps have that do not say.
const (
	DefaultTimeout = 10 * time.Minute
	DefaultPause   = 10 * time.Second
	sshPort        = 22
	ansible        = "ansible-playbook"
)

// Step is one thing to do after an apply. Exactly one of WaitFor, Ansible, Command, Targets and
// Inventory is set.
type Step struct {
	Name    string   `json:"name"`
	Timeout Duration `json:"timeout,omitzero"` // of each attempt; DefaultTimeout if zero
	Retries int      `json:"retries,omitempty"`
	Pause   Duration `json:"pause,omitzero"`    // before a retry; DefaultPause if zero
	Outputs []string `json:"outputs,omitempty"` // sensitive outputs that the step is given beside all others
	Files   []string `json:"files,omitempty"`   // files and directories of the module whose change runs the steps again, beside those that it names

	WaitFor   *WaitFor   `json:"waitFor,omitempty"`
	Ansible   *Ansible   `json:"ansible,omitempty"`
	Targets   *Targets   `json:"targets,omitempty"`
	Inventory *Inventory `json:"inventory,omitempty"`
	Command   []string   `json:"command,omitempty"` // a program and its arguments; no shell reads them
}

// WaitFor waits until hosts answer.
type WaitFor struct {
	Protocol  string   `json:"protocol"`            // ssh or tcp
	Hosts     []string `json:"hosts,omitempty"`     // names or addresses
	HostsFrom string   `json:"hostsFrom,omitempty"` // the output that has them
	Port      int      `json:"port,omitempty"`      // 22 of ssh
}

// Ansible runs a playbook of the module.
type Ansible struct {
	Playbook  string   `json:"playbook"`            // relative to the root module
	HostsFrom string   `json:"hostsFrom,omitempty"` // the output of which the inventory is made
	Inventory string   `json:"inventory,omitempty"` // a file or directory of the module, beside that
	ExtraVars []string `json:"extraVars,omitempty"` // outputs that the playbook has as variables, with their types
	Limit     string   `json:"limit,omitempty"`
	Program   string   `json:"program,omitempty"` // ansible-playbook if empty
}

// Targets are hosts that a monitoring asks for metrics. They are written to a ConfigMap, and
// removed from there before the hosts are destroyed.
type Targets struct {
	HostsFrom string            `json:"hostsFrom"` // the output that has them
	Port      int               `json:"port"`
	Labels    map[string]string `json:"labels,omitempty"` // of their series, besides host

	ScrapeConfig *ScrapeConfig `json:"scrapeConfig,omitempty"` // the hosts are written to one, too
}

// ScrapeConfig is an object of the operator of Prometheus with the targets of the stack, beside
// the ConfigMap.
type ScrapeConfig struct {
	Labels map[string]string `json:"labels,omitempty"` // of the object, by which a Prometheus selects it
	Path   string            `json:"path,omitempty"`   // of the metrics
	Scheme string            `json:"scheme,omitempty"` // HTTP or HTTPS
}

// Mode is what an inventory does with its file.
type Mode string

// The modes of an inventory.
const (
	Verify Mode = "verify" // the step fails if the file is not what the outputs say
	Commit Mode = "commit" // the file is written to the branch that the source follows
	Branch Mode = "branch" // the file is written to another branch, for a review
)

// Inventory is a hosts.yml of Ansible in the source, which says the hosts of an output.
// Terrier writes it itself: no run has credentials for the repository.
type Inventory struct {
	Path      string `json:"path"`                // relative to the root module
	HostsFrom string `json:"hostsFrom"`           // the output that has the hosts
	Mode      Mode   `json:"mode,omitempty"`      // Verify if empty
	Exact     bool   `json:"exact,omitempty"`     // of Verify: the file must have no other hosts
	Branch    string `json:"branch,omitempty"`    // of Branch
	SecretRef string `json:"secretRef,omitempty"` // the Secret with credentials that may push; that of the GitRepository if empty
}

// Writes reports whether Terrier writes the file.
func (i *Inventory) Writes() bool { return i != nil && (i.Mode == Commit || i.Mode == Branch) }

// Duration is a time as users write it: 90s.
type Duration struct{ time.Duration }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return errors.New("a duration is a text such as 90s or 10m")
	}
	var err error
	if d.Duration, err = time.ParseDuration(text); err != nil {
		return fmt.Errorf("%.40q is no duration such as 90s or 10m", text)
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// dnsLabel is the form of the name of a step: the type of its condition has it.
var dnsLabel = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`) })

// IsName reports whether a step can be called so.
func IsName(name string) bool { return dnsLabel().MatchString(name) }

// MaxSteps is how many steps a stack may have.
const MaxSteps = maxSteps

// Parse reads a list of steps in JSON. Its error begins with the place in the list, as in
// [1].ansible.playbook.
func Parse(text []byte) ([]Step, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("has %d bytes, more than %d", len(text), maxText)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(text, &items); err != nil {
		return nil, errors.New("is not a list: each step has a name, and one of " + kinds)
	}
	if len(items) > maxSteps {
		return nil, fmt.Errorf("has %d steps, more than %d", len(items), maxSteps)
	}
	var all []Step
	for i, item := range items {
		var s Step
		in := json.NewDecoder(bytes.NewReader(item))
		in.DisallowUnknownFields()
		if err := in.Decode(&s); err != nil {
			return nil, fmt.Errorf("[%d]%w", i, decoding(err))
		}
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("[%d]%w", i, err)
		}
		if slices.ContainsFunc(all, func(other Step) bool { return other.Name == s.Name }) {
			return nil, fmt.Errorf("[%d].name: %q is the name of another step, too", i, s.Name)
		}
		all = append(all, s)
	}
	if err := checkWrites(all); err != nil {
		return nil, err
	}
	return all, nil
}

// kinds are the fields of which a step has one.
const kinds = "waitFor, ansible, command, targets and inventory"

// checkWrites keeps steps in the order of the list: Terrier writes a file once the run has ended, so
// that no program comes after it. No step may use a file that one of them writes, since each
// commit would run the steps again.
func checkWrites(all []Step) error {
	for i, s := range all {
		if !s.Inventory.Writes() {
			continue
		}
		for j, other := range all {
			if other.Inventory.Writes() && j > i && path.Clean(other.Inventory.Path) == path.Clean(s.Inventory.Path) {
				return fmt.Errorf("[%d].inventory.path: the step %s writes this file, too", j, s.Name)
			}
			if j > i && other.Targets == nil && other.Inventory == nil {
				return fmt.Errorf("[%d]: the step %s comes after %s, and Terrier writes a file once all programs have ended: move %s to the end of the list", j, other.Name, s.Name, s.Name)
			}
			for _, u := range other.Uses() {
				if within(s.Inventory.Path, u) {
					return fmt.Errorf("[%d]: the step %s uses %s, which the step %s writes, so that each commit would run the steps again: give it the hosts with hostsFrom", j, other.Name, u, s.Name)
				}
			}
		}
	}
	return nil
}

// within reports whether a path is another one, or below it.
func within(p, of string) bool {
	p, of = path.Clean(p), path.Clean(of)
	if strings.HasPrefix(of, "..") && strings.Trim(of, "./") == "" { // a directory above the module
		return strings.Count(of, "..") >= strings.Count(p, "..")
	}
	return of == "." && !strings.HasPrefix(p, "..") || p == of || strings.HasPrefix(p, of+"/")
}

// decoding is an error of package json, which begins with a place.
func decoding(err error) error {
	text := strings.TrimPrefix(err.Error(), "json: ")
	if field, ok := strings.CutPrefix(text, "unknown field "); ok {
		return fmt.Errorf(".%.40s: there is no such field", strings.Trim(field, `"`))
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return fmt.Errorf(".%s: is a %s, and must be of another type", wrong.Field, wrong.Value)
	}
	return fmt.Errorf(": %s", text)
}

// check reports the first field that means nothing, with its place.
func (s Step) check() error {
	has := 0
	for _, set := range []bool{s.WaitFor != nil, s.Ansible != nil, s.Command != nil, s.Targets != nil, s.Inventory != nil} {
		if set {
			has++
		}
	}
	switch {
	case !IsName(s.Name):
		return fmt.Errorf(".name: %.80q is no name: it has at most 63 small letters, digits and dashes", s.Name)
	case has != 1:
		return fmt.Errorf(": has %d of %s, and must have exactly one", has, kinds)
	case s.Timeout.Duration != 0 && (s.Timeout.Duration < minTimeout || s.Timeout.Duration > maxTimeout):
		return fmt.Errorf(".timeout: %s is not between %s and %s", s.Timeout, minTimeout, maxTimeout)
	case s.Pause.Duration < 0 || s.Pause.Duration > maxTimeout:
		return fmt.Errorf(".pause: %s is not between 0s and %s", s.Pause, maxTimeout)
	case s.Retries < 0 || s.Retries > maxRetries:
		return fmt.Errorf(".retries: %d is not between 0 and %d", s.Retries, maxRetries)
	}
	for i, f := range s.Files {
		if err := below(fmt.Sprintf(".files[%d]", i), f); err != nil {
			return err
		}
	}
	switch {
	case s.WaitFor != nil:
		return s.WaitFor.check()
	case s.Ansible != nil:
		return s.Ansible.check()
	case s.Targets != nil && len(s.Outputs) > 0:
		return errors.New(".outputs: names sensitive outputs, and targets are readable for users who may read ConfigMaps")
	case s.Targets != nil:
		return s.Targets.check()
	case s.Inventory != nil && len(s.Outputs) > 0:
		return errors.New(".outputs: names sensitive outputs, and the file is readable for users who may read the repository")
	case s.Inventory != nil:
		return s.Inventory.check()
	default:
		return checkCommand(s.Command)
	}
}

func (w WaitFor) check() error {
	switch {
	case w.Protocol != "ssh" && w.Protocol != "tcp":
		return fmt.Errorf(".waitFor.protocol: %.20q is neither ssh nor tcp", w.Protocol)
	case w.Port < 0 || w.Port > 65535 || w.Port == 0 && w.Protocol == "tcp":
		return fmt.Errorf(".waitFor.port: %d is no port: it may be 1 to 65535", w.Port)
	case (len(w.Hosts) == 0) == (w.HostsFrom == ""):
		return errors.New(".waitFor: needs hosts, or the output in hostsFrom that has them")
	}
	for i, h := range w.Hosts {
		if !isHost(h) {
			return fmt.Errorf(".waitFor.hosts[%d]: %.80q is no name or address of a host", i, h)
		}
	}
	return nil
}

func (a Ansible) check() error {
	if err := below(".ansible.playbook", a.Playbook); err != nil {
		return err
	}
	if a.Inventory != "" {
		if err := below(".ansible.inventory", a.Inventory); err != nil {
			return err
		}
	}
	switch {
	case a.HostsFrom == "" && a.Inventory == "":
		return errors.New(".ansible: needs an inventory: the output in hostsFrom, a file in inventory, or both")
	case strings.HasPrefix(a.Limit, "-") || len(a.Limit) > maxField:
		return fmt.Errorf(".ansible.limit: %.80q is no pattern of hosts", a.Limit)
	case a.Program != "":
		return checkProgram(".ansible.program", a.Program)
	}
	return nil
}

// labelName is the form of the name of a label of Prometheus.
var labelName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`) })

// objectLabel and labelValue are the forms of a label of an object.
var (
	objectLabel = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$`)
	})
	labelValue = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$`) })
)

func (t Targets) check() error {
	switch {
	case t.HostsFrom == "":
		return errors.New(".targets.hostsFrom: is missing: it names the output that has the hosts")
	case t.Port < 1 || t.Port > 65535:
		return fmt.Errorf(".targets.port: %d is no port: it may be 1 to 65535", t.Port)
	}
	for name := range t.Labels {
		if !labelName().MatchString(name) || strings.HasPrefix(name, "__") {
			return fmt.Errorf(".targets.labels: %.80q is no name of a label", name)
		}
	}
	if s := t.ScrapeConfig; s != nil {
		switch {
		case s.Scheme != "" && s.Scheme != "HTTP" && s.Scheme != "HTTPS":
			return fmt.Errorf(".targets.scrapeConfig.scheme: %.20q is neither HTTP nor HTTPS", s.Scheme)
		case s.Path != "" && (!strings.HasPrefix(s.Path, "/") || len(s.Path) > maxField):
			return fmt.Errorf(".targets.scrapeConfig.path: %.80q is no path such as /metrics", s.Path)
		}
		for name, value := range s.Labels {
			if !objectLabel().MatchString(name) || strings.HasPrefix(name, "terrier.dev/") || value != "" && !labelValue().MatchString(value) {
				return fmt.Errorf(".targets.scrapeConfig.labels: %.80q: %.80q is no label of an object", name, value)
			}
		}
	}
	return nil
}

func (i Inventory) check() error {
	if err := below(".inventory.path", i.Path); err != nil {
		return err
	}
	name := path.Base(i.Path)
	switch {
	case path.Ext(name) != ".yml" && path.Ext(name) != ".yaml":
		return fmt.Errorf(".inventory.path: %.80q is no file such as hosts.yml", i.Path)
	case slices.ContainsFunc(strings.Split(i.Path, "/"), func(part string) bool { return strings.HasPrefix(part, ".") && strings.Trim(part, ".") != "" }):
		return fmt.Errorf(".inventory.path: %.80q has a part that begins with a dot", i.Path)
	case i.HostsFrom == "":
		return errors.New(".inventory.hostsFrom: is missing: it names the output that has the hosts")
	}
	switch i.Mode {
	case "", Verify:
		if i.SecretRef != "" {
			return errors.New(".inventory.secretRef: nothing is written with the mode verify")
		}
	case Commit, Branch:
		if i.Exact {
			return fmt.Errorf(".inventory.exact: hosts that others wrote stay in the file with the mode %s", i.Mode)
		}
	default:
		return fmt.Errorf(".inventory.mode: %.20q is none of verify, commit and branch", i.Mode)
	}
	if (i.Mode == Branch) != (i.Branch != "") {
		return errors.New(".inventory.branch: the mode branch needs the name of a branch, and no other mode takes one")
	}
	if i.SecretRef != "" && (!objectName().MatchString(i.SecretRef) || len(i.SecretRef) > 253) {
		return fmt.Errorf(".inventory.secretRef: %.80q is no name of a Secret", i.SecretRef)
	}
	return nil
}

// objectName is the form of the name of a Secret.
var objectName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`) })

func checkCommand(argv []string) error {
	if len(argv) == 0 {
		return errors.New(".command: is empty: it needs a program")
	}
	for i, a := range argv {
		if strings.ContainsRune(a, 0) || len(a) > maxField {
			return fmt.Errorf(".command[%d]: has a NUL byte, or more than %d bytes", i, maxField)
		}
	}
	return checkProgram(".command[0]", argv[0])
}

// checkProgram takes a program of the image, by its name or whole path, and a file of the
// module, by its path.
func checkProgram(field, program string) error {
	switch {
	case program == "" || strings.HasPrefix(program, "-"):
		return fmt.Errorf("%s: %.80q is no program", field, program)
	case path.IsAbs(program) || !strings.Contains(program, "/"):
		return nil
	default:
		return below(field, program)
	}
}

// below takes paths that stay in the root module, or above it in the source.
func below(field, p string) error {
	if p == "" || len(p) > maxField || path.IsAbs(p) || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' }) || strings.HasPrefix(p, "-") {
		return fmt.Errorf("%s: %.80q is no path relative to the root module, as in ansible/site.yml", field, p)
	}
	return nil
}

// isHost reports whether a text can be the name or the address of a host.
func isHost(h string) bool {
	return h != "" && len(h) <= 253 && !strings.HasPrefix(h, "-") && !strings.ContainsFunc(h, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune("/@\"'{}[],", r)
	})
}

// Does is the field that says what the step does.
func (s Step) Does() string {
	switch {
	case s.WaitFor != nil:
		return "waitFor"
	case s.Ansible != nil:
		return "ansible"
	case s.Targets != nil:
		return "targets"
	case s.Inventory != nil:
		return "inventory"
	default:
		return "command"
	}
}

// Uses are the files and directories of the module, relative to its root, whose change runs
// the step again.
func (s Step) Uses() []string {
	uses := slices.Clone(s.Files)
	if len(s.Command) > 0 && ofModule(s.Command[0]) {
		uses = append(uses, s.Command[0])
	}
	if a := s.Ansible; a != nil {
		uses = append(uses, a.Playbook)
		if a.Inventory != "" {
			uses = append(uses, a.Inventory)
		}
		if ofModule(a.Program) {
			uses = append(uses, a.Program)
		}
	}
	if s.Inventory != nil && !s.Inventory.Writes() { // else each commit would run the steps again
		uses = append(uses, s.Inventory.Path)
	}
	return uses
}

// Beside are directories of the module, relative to its root, that a step may read beside what
// it uses: Ansible looks for roles, variables and files beside a playbook, and for variables
// beside an inventory.
func (s Step) Beside() []string {
	if s.Ansible == nil {
		return nil
	}
	beside := []string{path.Dir(s.Ansible.Playbook)}
	if i := s.Ansible.Inventory; i != "" {
		beside = append(beside, path.Join(path.Dir(i), "group_vars"), path.Join(path.Dir(i), "host_vars"))
	}
	return beside
}

// ofModule reports whether a program is a file of the module.
func ofModule(program string) bool { return strings.Contains(program, "/") && !path.IsAbs(program) }
