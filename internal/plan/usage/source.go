package usage

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
)

// Kind is where a module comes from.
type Kind string

// The kinds.
const (
	Registry Kind = "registry"
	Git      Kind = "git"
	OCI      Kind = "oci"
	Archive  Kind = "archive" // any other address: of an archive, a bucket, another version control system
	Local    Kind = "local"   // a directory beside the module that calls
)

// Location is where a module is, whatever its version.
type Location struct {
	Kind      Kind   `json:"kind,omitempty"`
	Address   string `json:"address,omitempty"`   // host/namespace/name/system, or a URL without credentials; empty for a local module
	Directory string `json:"directory,omitempty"` // with the module, below the address; of a local module, as the call has it
}

// Origin is a source that was read.
type Origin struct {
	Location
	Version string // a git ref, an OCI tag
	Commit  string // an OCI digest
}

// sshKeys finds the private keys that git sources may hold.
var sshKeys = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)([?&]sshkey=)[^&]*`) })

// Masked is a source without the secrets in it.
func Masked(source string) string {
	if !strings.ContainsAny(source, ":?") {
		return source
	}
	masked, _ := plan.MaskURLs(source)
	return sshKeys().ReplaceAllString(masked, "${1}"+plan.Mask)
}

// ParseSource reads a source as engines resolve it. With a version it is that of a registry.
func ParseSource(source, version string) Origin {
	if source == "." || source == ".." || strings.HasPrefix(source, "./") || strings.HasPrefix(source, "../") {
		return Origin{Location: Location{Kind: Local, Directory: source}}
	}
	if version != "" {
		address, dir := cutDirectory(source)
		return Origin{Location: Location{Kind: Registry, Address: address, Directory: dir}, Version: version}
	}
	o := Origin{Location: Location{Kind: Archive}}
	getter, rest := cutGetter(source)
	if getter == "git" {
		o.Kind = Git
	}
	rest, query, _ := strings.Cut(rest, "?")
	o.Address, o.Directory = cutDirectory(rest)
	values, _ := url.ParseQuery(query) // what cannot be read is no ref
	switch {
	case strings.HasPrefix(o.Address, "oci://"):
		o.Kind, o.Version, o.Commit = OCI, values.Get("tag"), values.Get("digest")
	case o.Kind == Git:
		o.Version = values.Get("ref")
	case getter == "" && (strings.HasSuffix(o.Address, ".git") || isSCP(o.Address)):
		o.Kind, o.Version = Git, values.Get("ref")
	}
	o.Address = withoutUser(o.Address)
	return o
}

// cutGetter cuts the getter off that a source may begin with: git::https://….
func cutGetter(source string) (getter, rest string) {
	getter, rest, ok := strings.Cut(source, "::")
	if !ok || getter == "" || strings.ContainsFunc(getter, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
		return "", source
	}
	return getter, rest
}

// isSCP reports whether an address is user@host:path.
func isSCP(address string) bool {
	host, _, ok := strings.Cut(address, ":")
	return ok && strings.Contains(host, "@") && !strings.Contains(host, "/") && !strings.Contains(address, "://")
}

// cutDirectory cuts a source at the double slash behind its address.
func cutDirectory(source string) (address, dir string) {
	from := 0
	if at := strings.Index(source, "://"); at >= 0 {
		from = at + len("://")
	}
	if at := strings.Index(source[from:], "//"); at >= 0 {
		return source[:from+at], strings.Trim(path.Clean("/"+source[from+at:]), "/")
	}
	return source, ""
}

// withoutUser takes user and password out of an address, but the user of ssh.
func withoutUser(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || scheme == "ssh" {
		masked, _ := plan.MaskURLs(address)
		return masked
	}
	host, more, slash := strings.Cut(rest, "/")
	if at := strings.LastIndex(host, "@"); at >= 0 {
		host = host[at+1:]
	}
	if slash {
		more = "/" + more
	}
	masked, _ := plan.MaskURLs(scheme + "://" + host + more)
	return masked
}

// Key is the address by which the uses of a module are found: the same for all spellings of
// a repository. It is empty for a local module.
func (l Location) Key() string {
	switch l.Kind {
	case Registry:
		return registryKey(l.Address)
	case Local, "":
		return ""
	default:
		return urlKey(l.Address)
	}
}

// Name is namespace/name/system of a module of a registry.
func (l Location) Name() string {
	if l.Kind != Registry {
		return ""
	}
	_, name, _ := strings.Cut(l.Address, "/")
	return name
}

func registryKey(address string) string { return "registry:" + foldHost(address) }

// urlKey is made of host and path.
func urlKey(address string) string {
	if isSCP(address) {
		host, path, _ := strings.Cut(address, ":")
		address = host + "/" + strings.TrimPrefix(path, "/")
	}
	if _, rest, ok := strings.Cut(address, "://"); ok {
		address = rest
	}
	host, path, _ := strings.Cut(address, "/")
	host = host[strings.LastIndex(host, "@")+1:]
	return "url:" + foldHost(host+"/"+strings.TrimSuffix(strings.TrimSuffix(path, "/"), ".git"))
}

func foldHost(address string) string {
	host, rest, _ := strings.Cut(address, "/")
	return strings.ToLower(host) + "/" + rest
}

// Asked is a module that a user asks about.
type Asked struct {
	Keys []string // of Location.Key; any of them
	Name string   // namespace/name/system in any registry, in their place
}

// ParseAsked reads the address of a module as a user writes it: namespace/name/system in any
// registry, the same after a host, or the URL of a repository or an archive. A directory and
// a ref in it do not count.
func ParseAsked(text string) (Asked, error) {
	const how = "write namespace/name/system, HOST/namespace/name/system, or the URL of a repository"
	if text == "" || len(text) > maxText || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return Asked{}, invalid("the address of a module is missing, too long, or has spaces: " + how)
	}
	o := ParseSource(text, "")
	if o.Kind == Local {
		return Asked{}, invalid("%.80q is a directory: name the module that calls it", text)
	}
	if o.Kind == Archive && !strings.Contains(text, ":") {
		if isName(o.Address) {
			return Asked{Name: o.Address}, nil
		}
		host, name, _ := strings.Cut(o.Address, "/")
		if name == "" || !strings.Contains(host, ".") && host != "localhost" {
			return Asked{}, invalid("%.80q is no address of a module: "+how, text)
		}
	}
	asked := Asked{Keys: []string{urlKey(o.Address)}}
	if _, name, _ := strings.Cut(o.Address, "/"); isName(name) && !strings.Contains(text, "://") {
		asked.Keys = append(asked.Keys, registryKey(o.Address))
	}
	return asked, nil
}

// isName reports whether a text is namespace/name/system. Package address has the whole
// grammar, and a library that a supervisor does not link.
func isName(text string) bool {
	parts := strings.Split(text, "/")
	return len(parts) == 3 && !slices.ContainsFunc(parts, func(p string) bool {
		return p == "" || strings.ContainsFunc(p, func(r rune) bool {
			return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		})
	})
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "AddressInvalid", fmt.Errorf(format, args...))
}
