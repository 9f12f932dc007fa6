package registry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
)

// versions are those of a module that clients may use.
func (p *place) versions(t *testing.T, m address.Module) []address.Version {
	t.Helper()
	all, err := p.ModuleVersions(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	var open []address.Version
	for _, v := range all {
		if v.Retracted == nil {
			open = append(open, v.Version)
		}
	}
	return open
}

func (p *place) publish(t *testing.T, m address.Module, v address.Version, content []byte) registry.ModuleVersion {
	t.Helper()
	made, err := p.PublishModule(t.Context(), m, v, upload(content))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestPublishModule(t *testing.T) {
	p, m := newPlace(t), module(t, "team/vpc/aws")
	content := archiveOf(t, "one")
	made := p.publish(t, m, "1.10.0", content)
	p.publish(t, m, "1.9.0", zipOf(t, map[string]string{"modules/a/main.tofu.json": "{}"}))

	if want := []address.Version{"1.9.0", "1.10.0"}; !slices.Equal(p.versions(t, m), want) {
		t.Errorf("versions are %v, want %v", p.versions(t, m), want)
	}
	got, err := p.ModuleVersion(t.Context(), m, "1.10.0")
	want := registry.ModuleVersion{Version: "1.10.0", File: "team-vpc-aws-1.10.0.tar.gz", SHA256: made.SHA256, Size: int64(len(content)), Published: p.now, By: "ci"}
	if err != nil || got != want || got != made {
		t.Errorf("ModuleVersion() = %+v, %v, want %+v", got, err, want)
	}
	if !bytes.Equal(p.bytes(t, registry.ModuleKey(m, got.File)), content) {
		t.Error("the archive is not what was published")
	}
	_, err = p.ModuleVersion(t.Context(), m, "2.0.0")
	wantFault(t, err, fault.Missing, registry.VersionMissing, "team/vpc/aws has no version 2.0.0")
	_, err = p.ModuleVersions(t.Context(), module(t, "team/vpc/gcp"))
	wantFault(t, err, fault.Missing, registry.ModuleMissing, "there is no module team/vpc/gcp")
	_, err = p.OpenArchive(t.Context(), "index/modules/team/vpc/aws.json")
	wantFault(t, err, fault.Missing, "BlobMissing", "")
}

// Published bytes never change (RG-08).
func TestPublishAgain(t *testing.T) { everywhere(t, inPublishAgain) }

func inPublishAgain(t *testing.T, p *place) {
	m := module(t, "team/vpc/aws")
	content := archiveOf(t, "one")
	made := p.publish(t, m, "1.0.0", content)
	p.now = p.now.Add(time.Hour)
	made.Unchanged = true
	if again := p.publish(t, m, "1.0.0", content); again != made {
		t.Errorf("the same bytes again: %+v, want %+v", again, made)
	}
	for name, other := range map[string][]byte{"other bytes": archiveOf(t, "two"), "another format": zipOf(t, map[string]string{"main.tf": "# one\n"})} {
		_, err := p.PublishModule(t.Context(), m, "1.0.0", upload(other))
		t.Log(name)
		wantFault(t, err, fault.Conflict, registry.VersionExists, "publish a new version")
	}
	if !bytes.Equal(p.bytes(t, registry.ModuleKey(m, made.File)), content) {
		t.Error("the bytes of a published version have changed")
	}
	if keys, err := p.store.List(t.Context(), "modules/"); err != nil || len(keys) != 1 {
		t.Errorf("the store has the archives %v, %v, want one", keys, err)
	}
}

// Configuration that no engine can read is refused where callers reach it: the version could
// never be corrected.
func TestConfigurationIsParsed(t *testing.T) { everywhere(t, inConfigurationIsParsed) }

func inConfigurationIsParsed(t *testing.T, p *place) {
	m := module(t, "team/vpc/aws")
	broken := "variable \"x\" {\n  type =\n}\n"
	for name, tt := range map[string]struct {
		files map[string]string
		says  string
	}{
		"at the root":    {map[string]string{"main.tf": "# fine\n", "vars.tf": broken}, "vars.tf:2: "},
		"in a submodule": {map[string]string{"main.tf": "# fine\n", "modules/a/main.tf": broken}, "modules/a/main.tf:2: "},
		"in JSON":        {map[string]string{"main.tf.json": "{"}, "main.tf.json:1: "},
	} {
		t.Log(name)
		_, err := p.PublishModule(t.Context(), m, "1.0.0", upload(tarGz(t, tt.files)))
		wantFault(t, err, fault.Invalid, registry.UploadInvalid, tt.says)
	}
	if keys, err := p.store.List(t.Context(), "modules/"); err != nil || len(keys) > 0 {
		t.Errorf("the store has %v, %v, want nothing", keys, err)
	}
	// An example, a fixture of a test, and a file that is too large to be checked stop nothing.
	p.publish(t, m, "1.0.0", tarGz(t, map[string]string{"main.tf": "# fine\n", "examples/a/main.tf": broken, "tests/b/main.tf": broken, "large.tf": broken + strings.Repeat("#", 1<<20)}))
}

// A namespace that does not exist takes nothing new, unless it has something already.
func TestNamespacesThatDoNotExist(t *testing.T) {
	store, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	gone := errors.New("there is no namespace of this name")
	r := registry.New(store, registry.Options{Scratch: t.TempDir(), Exists: func(_ context.Context, namespace string) error {
		if namespace == "team" {
			return nil
		}
		return fault.New(fault.Missing, "", gone)
	}})
	if err := r.Admits(t.Context(), "team"); err != nil {
		t.Errorf("of a namespace that exists: %v", err)
	}
	wantFault(t, r.Admits(t.Context(), "taem"), fault.Invalid, registry.NamespaceMissing, gone.Error())
	if _, err := r.PublishModule(t.Context(), module(t, "imported/vpc/aws"), "1.0.0", upload(archiveOf(t, "one"))); err != nil {
		t.Fatal(err)
	}
	if err := r.Admits(t.Context(), "imported"); err != nil {
		t.Errorf("of a namespace that has modules: %v", err)
	}
}

// Of many uploads of one version at once, one wins (RG-08).
func TestPublishAtOnce(t *testing.T) { everywhere(t, inPublishAtOnce) }

func inPublishAtOnce(t *testing.T, p *place) {
	m := module(t, "team/vpc/aws")
	const many = 16
	var won [many]error
	var all [many][]byte
	var wait sync.WaitGroup
	for i := range many {
		files := map[string]string{"main.tf": fmt.Sprintf("# %d\n", i)}
		if all[i] = tarGz(t, files); i%2 == 0 {
			all[i] = zipOf(t, files)
		}
		wait.Go(func() { _, won[i] = p.PublishModule(t.Context(), m, "1.0.0", upload(all[i])) })
	}
	wait.Wait()
	winner := slices.Index(won[:], nil)
	if winner < 0 {
		t.Fatalf("no upload won: %v", won)
	}
	for i, err := range won {
		if i == winner {
			continue
		}
		wantFault(t, err, fault.Conflict, registry.VersionExists, "")
	}
	got, err := p.ModuleVersion(t.Context(), m, "1.0.0")
	if err != nil || !bytes.Equal(p.bytes(t, registry.ModuleKey(m, got.File)), all[winner]) {
		t.Errorf("the archive %+v is not the one of the winner (%v)", got, err)
	}
	if keys, err := p.store.List(t.Context(), "modules/"); err != nil || len(keys) != 1 {
		t.Errorf("the store has the archives %v, %v, want one", keys, err)
	}
}

// Many versions at once all get into the index.
func TestPublishManyVersionsAtOnce(t *testing.T) { everywhere(t, inPublishManyVersionsAtOnce) }

func inPublishManyVersionsAtOnce(t *testing.T, p *place) {
	m := module(t, "team/vpc/aws")
	var wait sync.WaitGroup
	var errs [20]error
	for i := range errs {
		content := archiveOf(t, fmt.Sprint(i))
		wait.Go(func() {
			_, errs[i] = p.PublishModule(t.Context(), m, address.Version(fmt.Sprintf("1.0.%d", i)), upload(content))
		})
	}
	wait.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	if n := len(p.versions(t, m)); n != len(errs) {
		t.Errorf("there are %d versions, want %d", n, len(errs))
	}
}

// A crash between the archive and the index: the same upload again completes it.
func TestCrashBeforeTheIndex(t *testing.T) {
	for name, first := range map[string]bool{"of the first version": true, "of a later version": false} {
		t.Run(name, func(t *testing.T) {
			p, m := newPlace(t), module(t, "team/vpc/aws")
			if !first {
				p.publish(t, m, "0.1.0", archiveOf(t, "zero"))
			}
			content := archiveOf(t, "one")
			crash := errors.New("the process ends here")
			p.store.failing(func(op, key string) error {
				if strings.HasPrefix(key, "index/modules/") {
					return crash
				}
				return nil
			})
			if _, err := p.PublishModule(t.Context(), m, "1.0.0", upload(content)); !errors.Is(err, crash) {
				t.Fatalf("PublishModule() = %v, want the crash", err)
			}
			p.store.failing(nil)
			p.restart(t)
			_, err := p.PublishModule(t.Context(), m, "1.0.0", upload(archiveOf(t, "other")))
			wantFault(t, err, fault.Conflict, registry.VersionExists, "")
			made := p.publish(t, m, "1.0.0", content)
			if got, err := p.ModuleVersion(t.Context(), m, "1.0.0"); err != nil || got != made || got.By != "ci" || got.SHA256 == "" {
				t.Errorf("ModuleVersion() = %+v, %v, want %+v", got, err, made)
			}
		})
	}
}

// failing is content that must not be read.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("it was read") }

func TestUploadsThatAreNoModules(t *testing.T) {
	p, m := newPlace(t), module(t, "team/vpc/aws")
	for name, tt := range map[string]struct {
		content      []byte
		reason, says string
	}{
		"a page":                {[]byte("<html>"), archive.Reason, "neither a zip archive nor a gzipped tar archive"},
		"nothing":               {nil, archive.Reason, "neither a zip archive nor a gzipped tar archive"},
		"a plain tar archive":   {unzipped(t, archiveOf(t, "one")), archive.Reason, "neither a zip archive nor a gzipped tar archive"},
		"no configuration":      {tarGz(t, map[string]string{"README.md": "x"}), registry.UploadInvalid, "pack the directory of the module"},
		"a name that leads up":  {tarGz(t, map[string]string{"../main.tf": "x"}), archive.Reason, "does not stay below the root"},
		"cut off":               {archiveOf(t, "one")[:60], archive.Reason, "reading the archive"},
		"larger than the limit": {bytes.Repeat([]byte{0x1f, 0x8b}, 1<<20), "BlobTooLarge", "larger than the limit of 1048576 bytes"},
	} {
		_, err := p.PublishModule(t.Context(), m, "1.0.0", upload(tt.content))
		t.Log(name)
		wantFault(t, err, fault.Invalid, tt.reason, tt.says)
	}
	_, err := p.PublishModule(t.Context(), m, "1.0.0", registry.Upload{Size: 2 << 20, Content: failing{}})
	wantFault(t, err, fault.Invalid, "BlobTooLarge", "larger than the limit of 1048576 bytes")
	long := strings.Repeat("a", 64)
	_, err = p.PublishModule(t.Context(), module(t, long+"/"+long+"/"+long), "1.0.0", upload(archiveOf(t, "x")))
	wantFault(t, err, fault.Invalid, address.Reason, "longer than 200 characters")
	if keys, err := p.store.List(t.Context(), ""); err != nil || len(keys) != 0 {
		t.Errorf("the store has %v, %v, want nothing", keys, err)
	}
}

// RG-08: a retracted version is in no list, and its place stays taken.
func TestRetractModule(t *testing.T) {
	p, m := newPlace(t), module(t, "team/vpc/aws")
	one := archiveOf(t, "one")
	p.publish(t, m, "1.0.0", one)
	p.publish(t, m, "1.1.0", archiveOf(t, "two"))
	if err := p.RetractModule(t.Context(), m, "1.0.0", "ann", "it deletes the gateway: use 1.1.0"); err != nil {
		t.Fatal(err)
	}
	if got := p.versions(t, m); !slices.Equal(got, []address.Version{"1.1.0"}) {
		t.Errorf("versions are %v", got)
	}
	_, err := p.ModuleVersion(t.Context(), m, "1.0.0")
	wantFault(t, err, fault.Missing, registry.VersionRetracted, "version 1.0.0 of team/vpc/aws was retracted: it deletes the gateway: use 1.1.0")
	_, err = p.PublishModule(t.Context(), m, "1.0.0", upload(one))
	wantFault(t, err, fault.Conflict, registry.VersionRetracted, "restore it, or publish a new version")
	_, err = p.PublishModule(t.Context(), m, "1.0.0", upload(archiveOf(t, "other")))
	wantFault(t, err, fault.Conflict, registry.VersionExists, "")
	if err := p.RestoreModule(t.Context(), m, "1.0.0", "ann"); err != nil {
		t.Fatal(err)
	}
	if got := p.versions(t, m); !slices.Equal(got, []address.Version{"1.0.0", "1.1.0"}) {
		t.Errorf("versions are %v after the restore", got)
	}
	if !bytes.Equal(p.bytes(t, "modules/team/vpc/aws/team-vpc-aws-1.0.0.tar.gz"), one) {
		t.Error("the bytes have changed")
	}
	wantFault(t, p.RetractModule(t.Context(), m, "9.0.0", "ann", "x"), fault.Missing, registry.VersionMissing, "")
	wantFault(t, p.RetractModule(t.Context(), module(t, "a/b/c"), "9.0.0", "ann", "x"), fault.Missing, registry.ModuleMissing, "")
	for _, reason := range []string{"", " \n", "a\nb", strings.Repeat("x", 501)} {
		wantFault(t, p.RetractModule(t.Context(), m, "1.0.0", "ann", reason), fault.Invalid, registry.RetractionInvalid, "")
	}
}

// RG-03, RG-17: a bucket of boring-registry is served as it is, and names that begin
// alike stay apart.
func TestBucketOfBoringRegistry(t *testing.T) { everywhere(t, inBucketOfBoringRegistry) }

func inBucketOfBoringRegistry(t *testing.T, p *place) {
	content := archiveOf(t, "one")
	for _, key := range []string{
		"modules/team/vpc/aws/team-vpc-aws-1.0.1.tar.gz", "modules/team/vpc/aws/team-vpc-aws-1.0.10.tar.gz",
		"modules/team/vpc/aws/team-vpc-aws-1.1.0.zip", "modules/team/vpc/aws/team-vpc-aws-1.1.0.tgz", "modules/team/vpc/aws/team-vpc-aws-1.2.0-rc1.tar.xz",
		"modules/team/vpc/awscc/team-vpc-awscc-9.9.9.tar.gz", "modules/team/vpc-two/aws/team-vpc-two-aws-8.0.0.tar.gz", "modules/team-two/vpc/aws/team-two-vpc-aws-7.0.0.tar.gz",
		"modules/team/vpc/aws/team-vpc-aws-latest.tar.gz", "modules/team/vpc/aws/other-vpc-aws-3.0.0.tar.gz", "modules/team/vpc/aws/team-vpc-aws-4.0.0.txt", "modules/team/vpc/aws/old/team-vpc-aws-5.0.0.tar.gz",
	} {
		p.keep(t, key, content)
	}
	for text, want := range map[string][]address.Version{
		"team/vpc/aws": {"1.0.1", "1.0.10", "1.1.0", "1.2.0-rc1"}, "team/vpc/awscc": {"9.9.9"}, "team/vpc-two/aws": {"8.0.0"}, "team-two/vpc/aws": {"7.0.0"},
	} {
		if got := p.versions(t, module(t, text)); !slices.Equal(got, want) {
			t.Errorf("%s has the versions %v, want %v", text, got, want)
		}
	}
	m := module(t, "team/vpc/aws")
	got, err := p.ModuleVersion(t.Context(), m, "1.1.0")
	if err != nil || got.File != "team-vpc-aws-1.1.0.zip" || !bytes.Equal(p.bytes(t, registry.ModuleKey(m, got.File)), content) {
		t.Errorf("ModuleVersion() = %+v, %v", got, err)
	}
	_, err = p.PublishModule(t.Context(), m, "1.0.1", upload(archiveOf(t, "other")))
	wantFault(t, err, fault.Conflict, registry.VersionExists, "")
	_, err = p.PublishModule(t.Context(), m, "1.1.0", upload(archiveOf(t, "other")))
	wantFault(t, err, fault.Conflict, registry.VersionExists, "")
	if made := p.publish(t, m, "1.0.1", content); made.SHA256 == "" {
		t.Errorf("the same bytes: %+v", made)
	}
	for namespace, want := range map[string][]string{"team": {"vpc-two/aws", "vpc/aws", "vpc/awscc"}, "team-two": {"vpc/aws"}} {
		if got, err := p.Names(t.Context(), registry.Modules, namespace); err != nil || !slices.Equal(got, want) {
			t.Errorf("Names(%s) = %v, %v, want %v", namespace, got, err, want)
		}
	}
	if got, err := p.Namespaces(t.Context(), registry.Modules); err != nil || !slices.Equal(got, []string{"team", "team-two"}) {
		t.Errorf("Namespaces() = %v, %v", got, err)
	}
}

// RG-18: no request lists, whatever there is.
func TestNoRequestLists(t *testing.T) {
	p, m := newPlace(t), module(t, "team/vpc/aws")
	for i := range 10_000 {
		p.store.older = append(p.store.older, fmt.Sprintf("modules/team/vpc/aws/team-vpc-aws-1.%d.%d.tar.gz", i/100, i%100))
	}
	ask := func() {
		t.Helper()
		if n := len(p.versions(t, m)); n < 10_000 {
			t.Fatalf("there are %d versions", n)
		}
		if _, err := p.ModuleVersion(t.Context(), m, "1.50.7"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Names(t.Context(), registry.Modules, "team"); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	if n := len(p.store.listed()); n > 4 {
		t.Errorf("the first request made %d lists, and one each of versions and namespaces, and two of names, are needed", n)
	}
	for i := range 3 {
		p.restart(t)
		ask()
		p.publish(t, m, address.Version(fmt.Sprintf("2.0.%d", i)), archiveOf(t, fmt.Sprint(i)))
	}
	if lists := p.store.listed(); len(lists) > 0 {
		t.Errorf("requests made the lists %v, want none", lists)
	}
}

// Names that are not there cost one list of their namespace a minute.
func TestUnknownNames(t *testing.T) {
	p := newPlace(t)
	m := module(t, "team/vpc/aws")
	p.keep(t, registry.ModuleKey(m, "team-vpc-aws-1.0.0.tar.gz"), archiveOf(t, "by another program"))
	unknown := func(n int) {
		t.Helper()
		for i := range n {
			_, err := p.ModuleVersions(t.Context(), module(t, fmt.Sprintf("team/unknown%d/aws", i)))
			wantFault(t, err, fault.Missing, registry.ModuleMissing, "")
			_, err = p.ProviderVersions(t.Context(), address.Provider{Namespace: "team", Type: fmt.Sprintf("unknown%d", i)})
			wantFault(t, err, fault.Missing, registry.ProviderMissing, "")
		}
	}
	unknown(20)
	if diff := cmp.Diff([]string{"modules/team/", "providers/team/"}, p.store.listed()); diff != "" {
		t.Errorf("the lists for unknown names differ (-want +got):\n%s", diff)
	}
	if _, err := p.ModuleVersion(t.Context(), m, "1.0.0"); err != nil {
		t.Errorf("a module of another program: %v", err)
	}
	// What a user publishes is there at once, and what another program stores a minute later.
	p.publish(t, module(t, "team/unknown1/aws"), "1.0.0", archiveOf(t, "published"))
	if _, err := p.ModuleVersion(t.Context(), module(t, "team/unknown1/aws"), "1.0.0"); err != nil {
		t.Errorf("a module that was published: %v", err)
	}
	p.keep(t, registry.ModuleKey(module(t, "team/unknown2/aws"), "team-unknown2-aws-1.0.0.tar.gz"), archiveOf(t, "later"))
	p.now = p.now.Add(61 * time.Second)
	if _, err := p.ModuleVersion(t.Context(), module(t, "team/unknown2/aws"), "1.0.0"); err != nil {
		t.Errorf("a module that another program stored a minute ago: %v", err)
	}
}

// A store that cannot be written is listed once a minute for an address.
func TestReadOnlyBucket(t *testing.T) {
	p, m := newPlace(t), module(t, "team/vpc/aws")
	p.keep(t, "modules/team/vpc/aws/team-vpc-aws-1.0.0.tar.gz", []byte("x"))
	denied := fault.New(fault.Denied, "BucketDenied", errors.New("the bucket is read-only"))
	p.store.failing(func(string, string) error { return denied })
	for range 5 {
		if got := p.versions(t, m); !slices.Equal(got, []address.Version{"1.0.0"}) {
			t.Fatalf("versions are %v", got)
		}
		_, err := p.ModuleVersions(t.Context(), module(t, "team/vpc/gcp"))
		wantFault(t, err, fault.Missing, registry.ModuleMissing, "")
	}
	count := func() (n int) {
		for _, prefix := range p.store.listed() {
			if strings.HasPrefix(prefix, "modules/team/vpc/") {
				n++
			}
		}
		return n
	}
	if n := count(); n != 1 {
		t.Errorf("there were %d lists, want one of the module that is there", n)
	}
	p.now = p.now.Add(2 * time.Minute)
	p.versions(t, m)
	if n := count(); n != 1 {
		t.Errorf("there were %d lists after a minute, want one", n)
	}
}

// An index of 10,000 versions answers from memory as long as it has not changed.
func BenchmarkVersions(b *testing.B) {
	files, err := blob.OpenVersionedFiles(b.TempDir(), 1<<30)
	if err != nil {
		b.Fatal(err)
	}
	defer files.Close()
	store := &watched{Versions: files}
	for i := range 10_000 {
		store.older = append(store.older, fmt.Sprintf("modules/team/vpc/aws/team-vpc-aws-1.%d.%d.tar.gz", i/100, i%100))
	}
	m := address.Module{Namespace: "team", Name: "vpc", System: "aws"}
	r := registry.New(store, registry.Options{Scratch: b.TempDir()})
	for b.Loop() {
		if all, err := r.ModuleVersions(b.Context(), m); err != nil || len(all) != 10_000 {
			b.Fatal(len(all), err)
		}
	}
	if lists := store.listed(); len(lists) > 3 {
		b.Errorf("requests made the lists %v", lists)
	}
}
