package publish

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
)

// tree writes files, and returns their directory.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const meta = `metadata {
  namespace = "net"
  name      = "vpc"
  provider  = "aws"
  version   = "1.2.3"
}
`

// RG-09: names and versions come from a metadata file, and flags count more.
func TestModules(t *testing.T) {
	system := strings.Replace(meta, "provider ", "system ", 1)
	for name, tt := range map[string]struct {
		files   map[string]string
		options ModuleOptions
		want    []string
	}{
		"the file of boring-registry":   {map[string]string{"boring-registry.hcl": meta, "main.tf": ""}, ModuleOptions{}, []string{"net/vpc/aws 1.2.3"}},
		"a file of our own":             {map[string]string{".terrier-module.hcl": system, "a/main.tofu.json": "{}"}, ModuleOptions{}, []string{"net/vpc/aws 1.2.3"}},
		"our own file counts":           {map[string]string{".terrier-module.hcl": meta, "boring-registry.hcl": "broken", "main.tf": ""}, ModuleOptions{}, []string{"net/vpc/aws 1.2.3"}},
		"flags count more":              {map[string]string{"boring-registry.hcl": meta, "main.tf": ""}, ModuleOptions{Namespace: "a", Name: "b", System: "c", Version: "2.0.0"}, []string{"a/b/c 2.0.0"}},
		"flags alone":                   {map[string]string{"main.tf": ""}, ModuleOptions{Namespace: "a", Name: "b", System: "c", Version: "2.0.0-rc1"}, []string{"a/b/c 2.0.0-rc1"}},
		"a constraint that matches":     {map[string]string{"boring-registry.hcl": meta, "main.tf": ""}, ModuleOptions{Constraint: "~> 1.1"}, []string{"net/vpc/aws 1.2.3"}},
		"a constraint that does not":    {map[string]string{"boring-registry.hcl": meta, "main.tf": ""}, ModuleOptions{Constraint: "~> 1.1.0"}, []string{"net/vpc/aws 1.2.3 skipped"}},
		"a constraint with several":     {map[string]string{"boring-registry.hcl": meta, "main.tf": ""}, ModuleOptions{Constraint: ">= 1.3, < 2"}, []string{"net/vpc/aws 1.2.3 skipped"}},
		"every directory with metadata": {map[string]string{"a/boring-registry.hcl": meta, "a/main.tf": "", "b/c/.terrier-module.hcl": strings.Replace(meta, "vpc", "dns", 1), "b/c/x.tf": "", "b/.terraform/modules/boring-registry.hcl": "", "d/main.tf": ""}, ModuleOptions{Recursive: true}, []string{"net/vpc/aws 1.2.3", "net/dns/aws 1.2.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.options.Dir = tree(t, tt.files)
			modules, err := Modules(tt.options)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range modules {
				text := m.Address.String() + " " + string(m.Version)
				if m.Skipped != "" {
					text += " skipped"
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the modules differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestModulesRefuses(t *testing.T) {
	named := ModuleOptions{Namespace: "a", Name: "b", System: "c", Version: "1.0.0"}
	for name, tt := range map[string]struct {
		files   map[string]string
		options ModuleOptions
		kind    fault.Kind
		want    string
	}{
		"a name that is missing":         {map[string]string{"main.tf": ""}, ModuleOptions{Namespace: "a", Name: "b"}, fault.Invalid, "--system"},
		"a version that is missing":      {map[string]string{"main.tf": ""}, ModuleOptions{Namespace: "a", Name: "b", System: "c"}, fault.Invalid, "--version-from-tag"},
		"a version with v":               {map[string]string{"main.tf": ""}, ModuleOptions{Namespace: "a", Name: "b", System: "c", Version: "v1.0.0"}, fault.Invalid, "begins with v"},
		"build metadata":                 {map[string]string{"main.tf": ""}, ModuleOptions{Namespace: "a", Name: "b", System: "c", Version: "1.0.0+x"}, fault.Invalid, "build metadata"},
		"no module":                      {map[string]string{"README.md": ""}, named, fault.Invalid, "*.tf"},
		"a pointer of Git LFS":           {map[string]string{"main.tf": "", "big.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("a", 64) + "\nsize 5\n"}, named, fault.Invalid, "git lfs pull"},
		"an unknown attribute":           {map[string]string{"main.tf": "", "boring-registry.hcl": "metadata {\n  title = \"x\"\n}"}, ModuleOptions{}, fault.Invalid, "boring-registry.hcl:2"},
		"an unknown block":               {map[string]string{"main.tf": "", "boring-registry.hcl": "module {}"}, ModuleOptions{}, fault.Invalid, "boring-registry.hcl:1"},
		"no block":                       {map[string]string{"main.tf": "", "boring-registry.hcl": "\n"}, ModuleOptions{}, fault.Invalid, "One block metadata is needed"},
		"a value that is no text":        {map[string]string{"main.tf": "", "boring-registry.hcl": "metadata {\n  name = 5\n}"}, ModuleOptions{}, fault.Invalid, "A text is needed"},
		"an expression":                  {map[string]string{"main.tf": "", "boring-registry.hcl": "metadata {\n  name = var.x\n}"}, ModuleOptions{}, fault.Invalid, "boring-registry.hcl:2"},
		"two systems":                    {map[string]string{"main.tf": "", "boring-registry.hcl": "metadata {\n  system = \"a\"\n  provider = \"b\"\n}"}, ModuleOptions{}, fault.Invalid, "Two systems"},
		"two modules with one name":      {map[string]string{"a/main.tf": "", "a/boring-registry.hcl": meta, "b/main.tf": "", "b/boring-registry.hcl": meta}, ModuleOptions{Recursive: true}, fault.Invalid, "the same name"},
		"nothing below":                  {map[string]string{"a/main.tf": ""}, ModuleOptions{Recursive: true}, fault.Missing, "no directory"},
		"one name for several":           {map[string]string{}, ModuleOptions{Recursive: true, Name: "x"}, fault.Invalid, "--recursive"},
		"two versions":                   {map[string]string{}, ModuleOptions{Version: "1.0.0", FromTag: true}, fault.Invalid, "exclude each other"},
		"a prefix without a tag":         {map[string]string{}, ModuleOptions{Version: "1.0.0", TagPrefix: "x"}, fault.Invalid, "--version-from-tag"},
		"a constraint that is none":      {map[string]string{"main.tf": ""}, ModuleOptions{Constraint: "newest"}, fault.Invalid, "--version-constraints-semver"},
		"a pattern that is none":         {map[string]string{"main.tf": ""}, ModuleOptions{Namespace: "a", Name: "b", System: "c", Version: "1.0.0", Exclude: []string{"! "}}, fault.Invalid, "--exclude"},
		"a directory without repository": {map[string]string{"main.tf": ""}, ModuleOptions{Namespace: "a", Name: "b", System: "c", FromTag: true}, fault.Invalid, "not in a git repository"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.options.Dir = tree(t, tt.files)
			_, err := Modules(tt.options)
			if fault.Of(err) != tt.kind || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Modules() = %v, of kind %q, want %q with %q", err, fault.Of(err), tt.kind, tt.want)
			}
		})
	}
	if _, err := Modules(ModuleOptions{Dir: filepath.Join(t.TempDir(), "nowhere")}); fault.Of(err) != fault.Missing {
		t.Errorf("Modules() of no directory = %v, want Missing", err)
	}
}

// The file .terraformignore leaves out files, and --exclude counts more.
func TestModuleIgnore(t *testing.T) {
	files := map[string]string{
		"main.tf": "", ".terraformignore": "# comment\r\ntests/\n\n*.md\n!KEEP.md\n.env*\n", "tests/a.tf": "", "README.md": "", "KEEP.md": "", ".env": "", "nested/.env.local": "", "nested/main.tf": "",
	}
	for name, tt := range map[string]struct{ exclude, want []string }{
		"the file":                 {nil, []string{".terraformignore", "KEEP.md", "main.tf", "nested/main.tf"}},
		"what the user takes back": {[]string{"!.env", "!README.md", "KEEP.md"}, []string{".env", ".terraformignore", "README.md", "main.tf", "nested/main.tf"}},
	} {
		t.Run(name, func(t *testing.T) {
			modules, err := Modules(ModuleOptions{Dir: tree(t, files), Namespace: "a", Name: "b", System: "c", Version: "1.0.0", Exclude: tt.exclude, Secrets: true})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := modules[0].Pack(&b); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := archive.Extract(&b, dir, archive.Limits{}); err != nil {
				t.Fatal(err)
			}
			var got []string
			err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					got = append(got, name)
				}
				return err
			})
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("the archive has %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

// RG-09: patterns leave out files, and take them back in; some files are never packed.
func TestPack(t *testing.T) {
	files := map[string]string{
		"main.tf": "", "boring-registry.hcl": meta, "terraform.tfstate": "{}", "README.md": "", "examples/basic/main.tf": "", "examples/full/main.tf": "", "docs/a.png": "",
		".terraform/providers/x": "", "nested/.terraform/modules/modules.json": "", ".git/config": "", "nested/.git": "gitdir: x", "nested/boring-registry.hcl": "",
	}
	exclude := []string{"examples/*", "!examples/basic/", "*.png", "!.terraform/", "!.git/", "README.md"}
	packed := func(mode os.FileMode) []byte {
		dir := tree(t, files)
		if err := os.Chmod(filepath.Join(dir, "main.tf"), mode); err != nil {
			t.Fatal(err)
		}
		modules, err := Modules(ModuleOptions{Dir: dir, Exclude: exclude})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := modules[0].Pack(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	first := packed(0o644)
	if !bytes.Equal(first, packed(0o600)) {
		t.Error("the same files make other bytes")
	}
	out := t.TempDir()
	if err := archive.Extract(bytes.NewReader(first), out, archive.Limits{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := filepath.Walk(out, func(name string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			rel, failed := filepath.Rel(out, name)
			got = append(got, rel)
			err = failed
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"examples/basic/main.tf", "main.tf", "nested/boring-registry.hcl"}, got); diff != "" {
		t.Errorf("the archive differs (-want +got):\n%s", diff)
	}
}

// RG-09: files that often hold secrets are not packed silently. The error has the patterns
// that leave them out, and with these the module is packed.
func TestSecretFiles(t *testing.T) {
	const key = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"
	for name, tt := range map[string]struct {
		files   map[string]string
		exclude []string // what the error names
	}{
		"none":                       {map[string]string{"variables.tf": "", "defaults.tfvars": "a = 1"}, nil},
		"an environment":             {map[string]string{".env": "A=1", "examples/a/.env.local": ""}, []string{".env", ".env.*"}},
		"an example of one":          {map[string]string{".env.example": "A=1"}, nil},
		"variables that count alone": {map[string]string{"terraform.tfvars": "", "examples/prod.auto.tfvars": "", "x.auto.tfvars.json": ""}, []string{"*.auto.tfvars", "terraform.tfvars", "*.auto.tfvars.json"}},
		"a private key":              {map[string]string{"certs/server's.pem": key, "id_rsa": ""}, []string{"/certs/server's.pem", "id_rsa"}},
		"a certificate":              {map[string]string{"certs/ca.pem": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}, nil},
		"credentials of an engine":   {map[string]string{".terraformrc": ""}, []string{".terraformrc"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.files["main.tf"] = ""
			o := ModuleOptions{Dir: tree(t, tt.files), Namespace: "a", Name: "b", System: "c", Version: "1.0.0"}
			_, err := Modules(o)
			if tt.exclude == nil {
				if err != nil {
					t.Errorf("Modules() = %v", err)
				}
				return
			}
			if fault.Of(err) != fault.Invalid || fault.Reason(err, "") != ReasonSecrets {
				t.Fatalf("Modules() = %v, want a refusal", err)
			}
			for _, p := range tt.exclude {
				if want := "--exclude '" + strings.ReplaceAll(p, "'", `'\''`) + "'"; !strings.Contains(err.Error(), want) {
					t.Errorf("Modules() = %v, want %s in it", err, want)
				}
			}
			insists, excludes := o, o
			insists.Secrets, excludes.Exclude = true, tt.exclude
			for _, o := range []ModuleOptions{insists, excludes} {
				if _, err := Modules(o); err != nil {
					t.Errorf("Modules(%+v) = %v", o, err)
				}
			}
		})
	}
	states := ModuleOptions{Dir: tree(t, map[string]string{"main.tf": "", "terraform.tfstate": "{}"}), Namespace: "a", Name: "b", System: "c", Version: "1.0.0"}
	if _, err := Modules(states); err != nil {
		t.Errorf("Modules() = %v, and a state is left out", err)
	}
	states.Exclude = []string{"!*.tfstate"}
	if _, err := Modules(states); fault.Reason(err, "") != ReasonSecrets {
		t.Errorf("Modules() that takes a state back in = %v, want a refusal", err)
	}
}

// git runs git without the configuration of a user.
func git(t testing.TB, dir string, args ...string) {
	t.Helper()
	command := exec.Command("git", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// RG-09: the version of a tag is that of the commit, and of nothing else.
func TestVersionFromTag(t *testing.T) {
	dir := tree(t, map[string]string{"modules/vpc/main.tf": "# a", "modules/vpc/boring-registry.hcl": meta, "modules/dns/main.tf": "# b", "modules/dns/boring-registry.hcl": strings.Replace(meta, "vpc", "dns", 1)})
	vpc := filepath.Join(dir, "modules", "vpc")
	if err := os.Symlink("main.tf", filepath.Join(vpc, "link.tf")); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message=one")
	versions := func(o ModuleOptions) (string, error) {
		o.FromTag = true
		modules, err := Modules(o)
		var all []string
		for _, m := range modules {
			if m.Skipped == "" {
				all = append(all, m.Address.Name+" "+string(m.Version))
			}
		}
		return strings.Join(all, ", "), err
	}
	is := func(what, want string, o ModuleOptions) {
		t.Helper()
		if got, err := versions(o); err != nil || got != want {
			t.Errorf("%s: the versions are %q, %v, want %q", what, got, err, want)
		}
	}
	refused := func(what string, kind fault.Kind, want string, o ModuleOptions) {
		t.Helper()
		if _, err := versions(o); fault.Of(err) != kind || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, of kind %q, want %q with %q", what, err, fault.Of(err), kind, want)
		}
	}
	refused("no tag", fault.Missing, "git tag v1.0.0", ModuleOptions{Dir: vpc})
	git(t, dir, "tag", "nightly")
	git(t, dir, "tag", "v2.0.0")
	is("a tag", "vpc 2.0.0", ModuleOptions{Dir: vpc})
	git(t, dir, "tag", "--annotate", "--message=x", "vpc/3.1.0")
	is("an annotated tag with a prefix", "vpc 3.1.0", ModuleOptions{Dir: vpc, TagPrefix: "{name}/"})
	is("modules without a tag are skipped", "vpc 3.1.0", ModuleOptions{Dir: dir, Recursive: true, TagPrefix: "{name}/"})
	is("one tag for all", "dns 2.0.0, vpc 2.0.0", ModuleOptions{Dir: dir, Recursive: true})

	beside := filepath.Join(t.TempDir(), "beside")
	git(t, dir, "worktree", "add", "--quiet", "--detach", beside)
	is("another worktree", "vpc 2.0.0", ModuleOptions{Dir: filepath.Join(beside, "modules", "vpc")})
	git(t, dir, "pack-refs", "--all")
	git(t, dir, "gc", "--quiet")
	is("packed objects", "vpc 3.1.0", ModuleOptions{Dir: vpc, TagPrefix: "{name}/"})

	git(t, dir, "tag", "v2.0.1")
	refused("two versions", fault.Invalid, "2.0.0 and 2.0.1", ModuleOptions{Dir: vpc})
	git(t, dir, "tag", "--delete", "v2.0.1")

	extra := filepath.Join(vpc, "extra.tf")
	if err := os.WriteFile(extra, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	refused("a file that is not committed", fault.Invalid, "extra.tf is not committed", ModuleOptions{Dir: vpc})
	is("a file that is left out", "vpc 2.0.0", ModuleOptions{Dir: vpc, Exclude: []string{"extra.tf"}})
	if err := os.Remove(extra); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(vpc, "main.tf"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused("a file that was changed", fault.Invalid, "main.tf is not as the commit has it", ModuleOptions{Dir: vpc})
}

func TestConstraint(t *testing.T) {
	for _, tt := range []struct {
		constraint, version string
		want                bool
	}{
		{"~> 1.2", "1.9.0", true}, {"~> 1.2", "2.0.0", false}, {"~> 1.2", "1.1.9", false}, {"~> 1.2.3", "1.2.9", true}, {"~> 1.2.3", "1.3.0", false},
		{"~> 1", "1.9.9", true}, {"~> 1", "2.0.0", false}, {"~> 1.2, != 1.4.0", "1.4.0", false}, {">= 1.0.0", "1.0.0", true}, {"", "0.0.1", true},
		{"~> 1.2", "2.0.0-rc1", false},
	} {
		matches, err := constraint(tt.constraint)
		if err != nil {
			t.Errorf("constraint(%q) = %v", tt.constraint, err)
			continue
		}
		if got := matches(address.Version(tt.version)); got != tt.want {
			t.Errorf("%q matches %s: %v, want %v", tt.constraint, tt.version, got, tt.want)
		}
	}
}

// RG-09: a release is as its build tools leave it, with lines that are no packages.
func TestOpenProvider(t *testing.T) {
	sum := func(text string) string {
		file := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := sumOf(file)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const base = "terraform-provider-dns_1.2.3_"
	release := func(sums string) map[string]string {
		return map[string]string{base + "SHA256SUMS": sums, base + "SHA256SUMS.sig": "s", base + "linux_amd64.zip": "one", base + "darwin_arm64.zip": "two", base + "manifest.json": "{}"}
	}
	good := sum("one") + "  " + base + "linux_amd64.zip\n" + sum("two") + " *" + base + "darwin_arm64.zip\n" + sum("{}") + "  " + base + "manifest.json\n" + sum("x") + "  sbom.json\n"
	dir := tree(t, release(good))
	p, err := OpenProvider(dir, "net")
	if err != nil {
		t.Fatal(err)
	}
	if p.Address.String() != "net/dns" || p.Version != "1.2.3" || len(p.Packages) != 2 || !slices.Equal(p.Ignored, []string{"sbom.json"}) {
		t.Errorf("OpenProvider() = %+v", p)
	}
	var files []string
	for _, f := range p.Files {
		files = append(files, strings.TrimPrefix(filepath.Base(f), base))
	}
	if diff := cmp.Diff([]string{"SHA256SUMS", "SHA256SUMS.sig", "linux_amd64.zip", "darwin_arm64.zip", "manifest.json"}, files); diff != "" {
		t.Errorf("the files differ (-want +got):\n%s", diff)
	}
	for name, tt := range map[string]struct {
		files map[string]string
		kind  fault.Kind
		want  string
	}{
		"no list":                   {map[string]string{"x": ""}, fault.Missing, "has no file terraform-provider-TYPE_VERSION_SHA256SUMS"},
		"two lists":                 {map[string]string{base + "SHA256SUMS": "", "terraform-provider-dns_1.2.4_SHA256SUMS": ""}, fault.Invalid, "several lists"},
		"no signature":              {map[string]string{base + "SHA256SUMS": good}, fault.Missing, "gpg --detach-sign"},
		"a package that is missing": {map[string]string{base + "SHA256SUMS": good, base + "SHA256SUMS.sig": ""}, fault.Missing, "linux_amd64.zip is missing"},
		"another sum":               {release(sum("other") + "  " + base + "linux_amd64.zip\n"), fault.Invalid, "line 1"},
		"no package":                {release(sum("x") + "  sbom.json\n"), fault.Invalid, "names no package"},
		"a line that is none":       {release("hello\n"), fault.Invalid, "line 1"},
		"a version that is none":    {map[string]string{"terraform-provider-dns_next_SHA256SUMS": ""}, fault.Invalid, "no version"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OpenProvider(tree(t, tt.files), "net")
			if fault.Of(err) != tt.kind || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("OpenProvider() = %v, of kind %q, want %q with %q", err, fault.Of(err), tt.kind, tt.want)
			}
		})
	}
}

// Configuration that no engine can read is refused with its line, where callers reach it.
func TestBrokenModules(t *testing.T) {
	named := ModuleOptions{Namespace: "net", Name: "vpc", System: "aws", Version: "1.0.0"}
	for name, tt := range map[string]struct {
		files map[string]string
		says  string
	}{
		"at the root":                 {map[string]string{"main.tf": "variable \"x\" {\n  type =\n}\n"}, "main.tf:2: "},
		"in a submodule":              {map[string]string{"main.tf": "# fine", "modules/a/main.tf": "output {"}, "modules/a/main.tf:1: "},
		"in an example":               {map[string]string{"main.tf": "# fine", "examples/a/main.tf": "output {"}, ""},
		"in a file that is left out":  {map[string]string{"main.tf": "# fine", "draft.tf": "output {", ".terraformignore": "draft.tf\n"}, ""},
		"in a file that is too large": {map[string]string{"main.tf": "# fine", "large.tf": "output {" + strings.Repeat(" ", syntaxBytes)}, ""},
	} {
		o := named
		o.Dir = tree(t, tt.files)
		_, err := Modules(o)
		if tt.says == "" && err != nil || tt.says != "" && (fault.Reason(err, "") != ReasonSyntax || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: the error is %v, want %q", name, err, tt.says)
		}
	}
}
