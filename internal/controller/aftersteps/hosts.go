package aftersteps

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/inventory"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/plural"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Tree is where the files are that the steps of a stack name.
type Tree struct {
	Archive   string     // the archive of the source, a file; empty if there is none
	Module    string     // the root module in it
	Source    *stack.Ref // nil if there is none
	Namespace string     // of the stack
	By        string     // the name under which hosts in a hosts.yml are managed
}

// ManagedBy is the name under which the hosts of a stack are managed in a hosts.yml.
func ManagedBy(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// at is a path of the module, from the root of the source.
func (t Tree) at(p string) string { return path.Join("/", t.Module, p)[1:] }

// mostHosts bounds a hosts.yml, in bytes.
const mostHosts = 1 << 20

// inventory says what a step about a hosts.yml says, or why it fails. The file is written
// later, when the run has ended.
func (t Tree) inventory(i afterapply.Inventory, hosts []inventory.Host) (said, broken string) {
	at := t.at(i.Path)
	switch {
	case i.Writes() && t.readOnly() != "":
		return "", "inventory: " + t.readOnly() + ": use the mode verify"
	case i.Writes():
		return "Terrier writes " + plural.Count(len(hosts), "host") + " to " + at, ""
	case t.Archive == "":
		return "", "inventory: the stack has no source in which the file could be"
	}
	text, err := fileIn(t.Archive, at)
	if err != nil {
		return "", "inventory.path: " + err.Error()
	}
	lines, err := inventory.Compare(text, hosts, t.By, i.Exact)
	if err != nil {
		return "", "inventory.path: " + at + ": " + err.Error()
	}
	if len(lines) > 0 {
		return "", fmt.Sprintf("%s\n%s is not what the output %s says: %s. Correct the file, or let Terrier write it with mode: commit or mode: branch",
			strings.Join(lines, "\n"), at, i.HostsFrom, plural.Count(len(lines), "difference"))
	}
	return fmt.Sprintf("%s has the %s of the output %s", at, plural.Count(len(hosts), "host"), i.HostsFrom), ""
}

// readOnly is why Terrier writes nothing to the source; empty if it may.
func (t Tree) readOnly() string {
	switch {
	case t.Source == nil || t.Source.Kind != sourcev1.GitRepositoryKind:
		return "the source of the stack is no GitRepository, so that the file cannot be written"
	case cmp.Or(t.Source.Namespace, t.Namespace) != t.Namespace:
		return "the GitRepository is in another namespace, and Terrier writes only to one in the namespace of the stack"
	default:
		return ""
	}
}

// fileIn is one file of an archive.
func fileIn(archived, name string) ([]byte, error) {
	text, size, err := archive.One(archived, name, mostHosts)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the source: %w", err)
	case size < 0:
		return nil, fmt.Errorf("the source has no file %s", name)
	case size > mostHosts:
		return nil, fmt.Errorf("%s has %d bytes, more than %d", name, size, mostHosts)
	}
	return text, nil
}

// Order is a hosts.yml to write once a run of the steps has ended, or once the resources of the
// stack are destroyed.
type Order struct {
	Step      string `json:"step"`
	Path      string `json:"path"` // in the repository
	HostsFrom string `json:"from"`
	Source    string `json:"source"`           // the GitRepository in the namespace of the stack
	Secret    string `json:"secret,omitempty"` // with credentials; that of the GitRepository if empty
	Branch    string `json:"branch,omitempty"` // to write to; the one that the source follows if empty
	Retries   int    `json:"retries,omitempty"`
	Remove    bool   `json:"remove,omitempty"` // the hosts of the stack from the file
}

// Orders are what is to be written after a run of steps.
func Orders(steps []afterapply.Step, made []runner.AfterStep, t Tree) []Order {
	var all []Order
	for _, s := range steps {
		i := s.Inventory
		sound := slices.ContainsFunc(made, func(m runner.AfterStep) bool { return m.Name == s.Name && m.Broken == "" })
		if i.Writes() && sound {
			all = append(all, t.order(s))
		}
	}
	return all
}

// Removals are what is to be written once the resources of a stack are destroyed: the files of its
// steps without its hosts.
func Removals(steps []afterapply.Step, t Tree) []Order {
	var all []Order
	for _, s := range steps {
		if s.Inventory.Writes() && t.readOnly() == "" {
			o := t.order(s)
			o.Remove = true
			all = append(all, o)
		}
	}
	return all
}

func (t Tree) order(s afterapply.Step) Order {
	i := s.Inventory
	return Order{Step: s.Name, Path: t.at(i.Path), HostsFrom: i.HostsFrom, Source: t.Source.Name, Secret: i.SecretRef, Branch: i.Branch, Retries: s.Retries}
}

// Hosts writes hosts.yml into git repositories, with the credentials of their GitRepository or
// of a Secret beside it. It keeps nothing.
type Hosts struct {
	Client     client.Reader // asks the API server
	Out        *outbound.Client
	KnownHosts string // the file of --ssh-known-hosts; may be empty
	Scratch    string // where a commit is fetched to for the time of a call
	Now        func() time.Time
}

// For is whose hosts are written.
type For struct {
	Namespace, Name string        // of the stack
	By              string        // see ManagedBy
	Run             string        // for the message of the commit
	Secrets         client.Reader // reads the Secret: with the rights of the stack, where the operator says so
}

const (
	defaultBranch = "master" // of a GitRepository that names none
	hostsTries    = 12       // of a file that others change meanwhile
)

// Write makes the hosts of a stack those of the file, on top of what the branch has, and says
// where they are; an order to remove leaves none of them. Hand-written parts stay. Its error is
// Later if the repository does not answer or others came first each time, and else is the step's
// to fail by.
func (h *Hosts) Write(ctx context.Context, f For, o Order, outputs map[string]kube.Output) (string, error) {
	file, err := h.file(ctx, f, o)
	if err != nil {
		return "", err
	}
	return h.write(ctx, f, o, file, outputs)
}

// file is the file of an order, in its repository. Its error is one that a user has to correct,
// or the API server's.
func (h *Hosts) file(ctx context.Context, f For, o Order) (*source.GitFile, error) {
	git, follows, err := h.repository(ctx, f, o)
	if err != nil {
		return nil, err
	}
	return &source.GitFile{Git: git, Branch: follows, Path: o.Path}, nil
}

// write is Write with what file has found.
func (h *Hosts) write(ctx context.Context, f For, o Order, file *source.GitFile, outputs map[string]kube.Output) (string, error) {
	var hosts []inventory.Host
	if !o.Remove {
		given, err := afterapply.Step{Inventory: &afterapply.Inventory{Path: o.Path, HostsFrom: o.HostsFrom, Mode: afterapply.Commit}}.Given(valuesOf(outputs))
		if err != nil {
			return "", fault.New(fault.Invalid, "", err)
		}
		hosts = given.Written
	}
	for try := 1; ; try++ {
		said, err := h.once(ctx, f, o, file, hosts)
		if fault.Reason(err, "") != source.ReasonFileChanged {
			return said, err
		}
		if try == hostsTries {
			return "", fault.New(fault.Later, source.ReasonFileChanged, fmt.Errorf("writing %s: others changed it %d times meanwhile", o.Path, try))
		}
	}
}

// once reads the file, and writes it where it was read.
func (h *Hosts) once(ctx context.Context, f For, o Order, file *source.GitFile, hosts []inventory.Host) (string, error) {
	tip, err := file.Read(ctx, source.GitTip{})
	if err != nil {
		return "", fmt.Errorf("reading %s of the branch %s: %w", o.Path, file.Branch, err)
	}
	if tip.Commit == "" {
		return "", fault.New(fault.Missing, "", fmt.Errorf("the repository has no branch %s", file.Branch))
	}
	after, err := merged(o.Path, tip, hosts, f.By)
	if err != nil {
		return "", err
	}
	if after == nil {
		return fmt.Sprintf("%s of the branch %s has the %s of the output %s", o.Path, file.Branch, plural.Count(len(hosts), "host"), o.HostsFrom), nil
	}
	to := file
	if o.Branch != "" && o.Branch != file.Branch {
		to = &source.GitFile{Git: file.Git, Branch: o.Branch, Base: file.Branch, Path: o.Path}
		begun, err := to.Read(ctx, source.GitTip{})
		if err != nil {
			return "", fmt.Errorf("reading %s of the branch %s: %w", o.Path, to.Branch, err)
		}
		if begun.Commit != "" {
			tip = begun
			if after, err = merged(o.Path, tip, hosts, f.By); err != nil {
				return "", err
			}
			if after == nil {
				return fmt.Sprintf("%s of the branch %s has the %s of the output %s: merge it into %s", o.Path, to.Branch, plural.Count(len(hosts), "host"), o.HostsFrom, file.Branch), nil
			}
		}
	}
	message := fmt.Sprintf("Write the hosts of %s/%s\n\n%s has the %s that the output %s says.\nRun: %s\n", f.Namespace, f.Name, o.Path, plural.Count(len(hosts), "host"), o.HostsFrom, f.Run)
	if o.Remove {
		message = fmt.Sprintf("Remove the hosts of %s/%s\n\nThe resources of the stack were destroyed.\nRun: %s\n", f.Namespace, f.Name, f.Run)
	}
	written, err := to.Write(ctx, tip, source.GitChange{Content: after, Author: "Terrier", Email: "terrier@terrier.dev", At: h.Now(), Message: message})
	if err != nil {
		return "", fmt.Errorf("writing %s to the branch %s: %w", o.Path, to.Branch, err)
	}
	said := fmt.Sprintf("wrote %s to the branch %s: %s", o.Path, to.Branch, written.Commit)
	if to != file {
		said += ". Merge it into " + file.Branch
	}
	return said, nil
}

// merged is the file with the hosts, nil if it has them.
func merged(name string, tip source.GitTip, hosts []inventory.Host, by string) ([]byte, error) {
	after, err := inventory.Merge(tip.Content, hosts, by)
	if err != nil {
		return nil, fault.New(fault.Invalid, "", fmt.Errorf("%s: %w", name, err))
	}
	if bytes.Equal(after, tip.Content) {
		return nil, nil
	}
	return after, nil
}

// repository is the repository of a GitRepository, and the branch that it follows.
func (h *Hosts) repository(ctx context.Context, f For, o Order) (*source.Git, string, error) {
	var r sourcev1.GitRepository
	if err := h.Client.Get(ctx, types.NamespacedName{Namespace: f.Namespace, Name: o.Source}, &r); client.IgnoreNotFound(err) != nil {
		return nil, "", fault.New(fault.Later, "", fmt.Errorf("reading the GitRepository %s: %w", o.Source, err))
	} else if err != nil {
		return nil, "", fault.New(fault.Missing, "", fmt.Errorf("the GitRepository %s does not exist", o.Source))
	}
	branch := defaultBranch
	if ref := r.Spec.Reference; ref != nil {
		if ref.Tag != "" || ref.SemVer != "" || ref.Commit != "" || ref.Name != "" {
			return nil, "", fault.New(fault.Invalid, "", fmt.Errorf("the GitRepository %s follows no branch, to which the file could be written: use the mode verify", o.Source))
		}
		branch = cmp.Or(ref.Branch, branch)
	}
	secret := o.Secret
	if secret == "" && r.Spec.SecretRef != nil {
		secret = r.Spec.SecretRef.Name
	}
	var data map[string][]byte
	if secret != "" {
		var err error
		if data, _, err = kube.ReadSecret(ctx, f.Secrets, types.NamespacedName{Namespace: f.Namespace, Name: secret}); err != nil {
			return nil, "", fmt.Errorf("reading the credentials for the repository: %w", err)
		}
	}
	hosts, err := source.ReadKnownHosts(h.KnownHosts)
	if err != nil {
		return nil, "", err
	}
	return &source.Git{URL: r.Spec.URL, Auth: source.GitAuthFrom(data), KnownHosts: hosts, Out: h.Out, Scratch: h.Scratch}, branch, nil
}
