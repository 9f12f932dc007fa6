package inventories

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// shelf has one source, the GitRepository estate, whose artifact is a directory that the
// test fills.
type shelf struct {
	client.Reader
	t        *testing.T
	revision string
	archive  string
	gets     int
}

func (s *shelf) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	g, ok := o.(*sourcev1.GitRepository)
	if !ok || key != (client.ObjectKey{Namespace: "ns", Name: "estate"}) {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	if s.revision != "" {
		g.Status.Artifact = &fluxmeta.Artifact{Revision: s.revision, Digest: "sha256:" + s.revision, URL: "http://example.com"}
	}
	return nil
}

// artifacts hands out the archive of a shelf.
type artifacts struct{ *shelf }

func (a artifacts) Get(context.Context, source.Artifact) (string, error) {
	a.gets++
	return a.archive, nil
}

// commit makes the artifact hold these files, and no others.
func (s *shelf) commit(files map[string]string) {
	s.t.Helper()
	dir := s.t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	s.archive = filepath.Join(s.t.TempDir(), "artifact")
	f, err := os.Create(s.archive)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	if err := archive.Pack(dir, nil, f, archive.Limits{}); err != nil {
		s.t.Fatal(err)
	}
	s.revision = fmt.Sprint(len(s.revision), "-", s.gets, "-", s.archive)
}

func registry(variables ...tenantsv1.InventoryVariable) *tenantsv1.TenantRegistry {
	r := &tenantsv1.TenantRegistry{}
	r.Namespace, r.Name = "ns", "estate"
	r.Spec.Source = tenantsv1.Source{Type: tenantapi.SourceInventory, Inventory: &tenantsv1.Inventory{
		SourceRef: tenantsv1.InventorySource{Kind: "GitRepository", Name: "estate"}, Variables: variables,
	}}
	r.Spec.ExtraValueMappings = map[string]string{}
	for _, v := range variables {
		r.Spec.ExtraValueMappings["v_"+v.Name] = tenantapi.VarColumn + v.Name
	}
	return r
}

// read returns the rows, by uid, and the errors and notes as texts.
func read(t *testing.T, r *Reader, obj *tenantsv1.TenantRegistry) (rows map[string]tenant.Row, errs, notes []string) {
	t.Helper()
	s, err := r.Read(t.Context(), obj, 100)
	if err != nil {
		t.Fatal(err)
	}
	found, wrong := tenant.Rows(tenantapi.Mapping(obj), s)
	rows = map[string]tenant.Row{}
	for _, row := range found {
		rows[row.UID] = row
	}
	for _, e := range wrong {
		errs = append(errs, e.Reason+": "+e.Message)
	}
	for _, n := range s.Notes {
		notes = append(notes, n.UID+": "+n.Text)
	}
	slices.Sort(notes)
	return rows, errs, notes
}

func seed() map[string]string {
	files := map[string]string{
		"README.md": "x", "tenant-inventory/README.md": "x", "tenant-inventory/.hidden/hosts.yml": "", "tenant-inventory/docs/x.md": "x",
	}
	for i, name := range []string{"grooveiq", "vintronics", "moneyrouter"} {
		dir := "tenant-inventory/" + name
		files[dir+"/hosts.yml"] = fmt.Sprintf("all: {children: {api: {hosts: {api-%s: {ansible_host: 10.%d.0.10, mac_address: \"02:00:00:00:00:0%d\"}}}}}", name, 100+i, i)
		files[dir+"/group_vars/all.yml"] = "cores: 4\nquoted: \"4\"\nzones: [a, b]\nmap: {a: {b: 1}}\nflag: yes\n"
		files[dir+"/terraform/main.tf"] = "# " + name
		files[dir+"/notes.txt"] = "ignored"
	}
	return files
}

func TestRowsOfAnInventory(t *testing.T) {
	s := &shelf{t: t}
	s.commit(seed())
	r := New(s, artifacts{s}, t.TempDir())
	obj := registry(
		tenantsv1.InventoryVariable{Name: "cores", Type: "number", Required: true}, tenantsv1.InventoryVariable{Name: "quoted", Type: "string"}, tenantsv1.InventoryVariable{Name: "zones", Type: "list"},
		tenantsv1.InventoryVariable{Name: "map", Type: "map"}, tenantsv1.InventoryVariable{Name: "flag", Type: "bool"}, tenantsv1.InventoryVariable{Name: "absent"},
	)
	rows, errs, notes := read(t, r, obj)
	if errs != nil {
		t.Fatal(errs)
	}
	if diff := cmp.Diff([]string{"docs: the directory has none of hosts.yml, hosts.yaml, group_vars, host_vars, terraform, and is no tenant"}, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	row := rows["grooveiq"]
	digest := row.Extra["digest"]
	delete(row.Extra, "digest")
	want := tenant.Row{UID: "grooveiq", Activate: "true", Active: true, Extra: map[string]string{
		"path": "tenant-inventory/grooveiq", "terraformPath": "tenant-inventory/grooveiq/terraform",
		"hosts":   `[{"name":"api-grooveiq","address":"10.100.0.10","mac":"02:00:00:00:00:00","groups":["api"]}]`,
		"vars":    `{"cores":4,"flag":true,"map":{"a":{"b":1}},"quoted":"4","zones":["a","b"]}`,
		"v_cores": "4", "v_quoted": "4", "v_zones": `["a","b"]`, "v_map": `{"a":{"b":1}}`, "v_flag": "true", "v_absent": "",
	}}
	if diff := cmp.Diff(want, row); diff != "" || len(rows) != 3 || !strings.HasPrefix(digest, "sha256:") {
		t.Errorf("%d rows, digest %q (-want +got):\n%s", len(rows), digest, diff)
	}

	// The same artifact is not unpacked again; another one changes the rows that it touches.
	before := s.gets
	if read(t, r, obj); s.gets != before {
		t.Errorf("the artifact was fetched %d times, want %d", s.gets, before)
	}
	was := rows
	files := seed()
	files["tenant-inventory/moneyrouter/terraform/main.tf"] = "# changed"
	s.commit(files)
	rows, _, _ = read(t, r, obj)
	for uid, same := range map[string]bool{"vintronics": true, "moneyrouter": false} {
		if got := rows[uid].Extra["digest"] == was[uid].Extra["digest"]; got != same {
			t.Errorf("the digest of %s is the same: %t, want %t", uid, got, same)
		}
	}
}

// What is wrong with one directory is an error of its row, with file and line.
func TestWrongDirectoriesSpoilTheirOwnRow(t *testing.T) {
	files := seed()
	files["tenant-inventory/vintronics/group_vars/all.yml"] = "cores: \"4\"\n"
	files["tenant-inventory/moneyrouter/group_vars/all.yml"] = "cores: 4\ncores: 5\n"
	files["tenant-inventory/GrooveBig/hosts.yml"] = ""
	files["tenant-inventory/bare/hosts.yml"] = ""
	files["tenant-inventory/bare/group_vars/all.yml"] = "cores: 1\n"
	files["tenant-inventory/"+strings.Repeat("x", 70)+"/group_vars/all.yml"] = "cores: 1\n"
	s := &shelf{t: t}
	s.commit(files)
	rows, errs, notes := read(t, New(s, artifacts{s}, t.TempDir()), registry(tenantsv1.InventoryVariable{Name: "cores", Type: "number", Required: true}))
	if len(rows) != 2 || rows["grooveiq"].UID == "" || rows["bare"].Extra["terraformPath"] != "" {
		t.Errorf("the rows are %v, want grooveiq, and bare without a stack", rows)
	}
	want := []string{
		`ValueUnusable: "vars" of uid "GrooveBig" cannot be used: hosts.yml: the required variable "cores" is not set for the group "all"; its tenants stay as they are`,
		`ValueUnusable: "vars" of uid "moneyrouter" cannot be read: group_vars/all.yml:2: the key "cores" is there twice; the first is in line 1; its tenants stay as they are`,
		`ValueUnusable: "vars" of uid "vintronics" cannot be used: group_vars/all.yml:1: the variable "cores" is a string, and the allow-list asks for a number: remove the quotes; its tenants stay as they are`,
	}
	for _, w := range want {
		if !slices.Contains(errs, w) {
			t.Errorf("the errors lack %s\n%s", w, strings.Join(errs, "\n"))
		}
	}
	if all := strings.Join(errs, "\n"); !strings.Contains(all, "has 70 characters; a label holds at most 63") {
		t.Errorf("the errors say nothing of a long name:\n%s", all)
	}
	if all := strings.Join(notes, "\n"); !strings.Contains(all, "bare: the directory has no terraform, so the tenant has no stack") {
		t.Errorf("the notes are\n%s", all)
	}
	delete(files, "tenant-inventory/GrooveBig/hosts.yml")
	files["tenant-inventory/GrooveBig/group_vars/all.yml"] = "cores: 1\n"
	s.commit(files)
	_, errs, _ = read(t, New(s, artifacts{s}, t.TempDir()), registry(tenantsv1.InventoryVariable{Name: "cores"}))
	if all := strings.Join(errs, "\n"); !strings.Contains(all, `uid "GrooveBig" cannot be part of a name: use lower-case letters`) {
		t.Errorf("the errors say nothing of capital letters:\n%s", all)
	}
}

// What a tenant commits in the place of a directory, and names that no file can have, stop
// no other tenant: the author of one directory must not stop a registry.
func TestOddDirectoriesStopNoOtherTenant(t *testing.T) {
	for name, tt := range map[string]struct {
		file, text string
		note       string // about the tenant odd, which is a row all the same
	}{
		"terraform is a file":          {"terraform", "", "odd: terraform is no directory, so the tenant has no stack"},
		"group_vars is a file":         {"group_vars", "cores: 9", "odd: group_vars: it is no directory, so Ansible does not read it"},
		"host_vars is a file":          {"host_vars", "", "odd: host_vars: it is no directory, so Ansible does not read it"},
		"a host with a long name":      {"hosts.yml", "all: {hosts: {" + strings.Repeat("h", 253) + ": }}", ""},
		"a host in a range":            {"hosts.yml", "all: {hosts: {'" + strings.Repeat("h", 250) + "[1:3]': }}", ""},
		"a group with a long name":     {"hosts.yml", strings.Repeat("g", 255) + ": {hosts: {a: }}", ""},
		"variables for the long names": {"group_vars/" + strings.Repeat("g", 255), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := seed()
			for _, has := range []string{"group_vars/all.yml", "host_vars/x.yml"} { // so that the directories of variables are there
				if !strings.HasPrefix(has, tt.file+"/") {
					files["tenant-inventory/odd/"+has] = "cores: 1\n"
				}
			}
			files["tenant-inventory/odd/"+tt.file] = tt.text
			s := &shelf{t: t}
			s.commit(files)
			rows, errs, notes := read(t, New(s, artifacts{s}, t.TempDir()), registry(tenantsv1.InventoryVariable{Name: "cores"}))
			if len(rows) != 4 || errs != nil {
				t.Errorf("the rows are %v and the errors %v, want all four and none", slices.Sorted(maps.Keys(rows)), errs)
			}
			if tt.note != "" && !slices.Contains(notes, tt.note) {
				t.Errorf("the notes lack %q: %q", tt.note, notes)
			}
		})
	}
}

// TB-13: an address or a MAC address of two tenants is an error of both.
func TestAddressesOfTwoTenants(t *testing.T) {
	files := seed()
	files["tenant-inventory/vintronics/hosts.yml"] = "all: {hosts: {thief: {ansible_host: 10.100.0.10}}}"
	files["tenant-inventory/moneyrouter/hosts.yml"] = "all: {hosts: {other: {mac: 02-00-00-00-00-00}}}"
	s := &shelf{t: t}
	s.commit(files)
	rows, errs, _ := read(t, New(s, artifacts{s}, t.TempDir()), registry())
	all := strings.Join(errs, "\n")
	if len(rows) != 0 || !strings.Contains(all, "the address 10.100.0.10 is that of api-grooveiq of tenant grooveiq and of thief of tenant vintronics") ||
		!strings.Contains(all, "the MAC address 02:00:00:00:00:00 is that of api-grooveiq of tenant grooveiq and of other of tenant moneyrouter") {
		t.Errorf("the rows are %v and the errors\n%s", rows, all)
	}
}

// The column of hosts is read only if a variable is mapped to another one by its name.
func TestAddressesWithoutTheirColumn(t *testing.T) {
	files := seed()
	files["tenant-inventory/vintronics/hosts.yml"] = "all: {hosts: {thief: {ansible_host: 10.100.0.10}}}"
	s := &shelf{t: t}
	s.commit(files)
	r := registry()
	r.Spec.ExtraValueMappings = map[string]string{"hosts": "uid"}
	_, _, notes := read(t, New(s, artifacts{s}, t.TempDir()), r)
	if all := strings.Join(notes, "\n"); !strings.Contains(all, "the address 10.100.0.10 is that of") {
		t.Errorf("the notes are\n%s", all)
	}
}

// A value of many bytes spoils its own row, and is not written out.
func TestLargeValues(t *testing.T) {
	files := seed()
	files["tenant-inventory/vintronics/hosts.yml"] = "all: {hosts: {'" + strings.Repeat("h", 200) + "[1:9999]': }}"
	files["tenant-inventory/moneyrouter/group_vars/all.yml"] = "cores: [&a " + strings.Repeat("x", 1<<10) + strings.Repeat(",*a", 1000) + "]"
	s := &shelf{t: t}
	s.commit(files)
	_, errs, _ := read(t, New(s, artifacts{s}, t.TempDir()), registry(tenantsv1.InventoryVariable{Name: "cores"}))
	if all := strings.Join(errs, "\n"); len(errs) != 2 || strings.Count(all, "holds more than 262144 bytes") < 2 {
		t.Errorf("the errors are\n%s", all)
	}
}

// What cannot be read is an error, and no rows.
func TestInventoriesThatCannotBeRead(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*shelf, *tenantsv1.TenantRegistry)
		kind   fault.Kind
		want   string
	}{
		"no such source":        {func(_ *shelf, r *tenantsv1.TenantRegistry) { r.Spec.Source.Inventory.SourceRef.Name = "other" }, fault.Missing, "GitRepository ns/other does not exist"},
		"no artifact yet":       {func(s *shelf, _ *tenantsv1.TenantRegistry) { s.revision = "" }, fault.Missing, "artifact not found"},
		"no such directory":     {func(_ *shelf, r *tenantsv1.TenantRegistry) { r.Spec.Source.Inventory.Path = "other" }, fault.Invalid, `has no directory "other": name the one`},
		"a path that leads out": {func(_ *shelf, r *tenantsv1.TenantRegistry) { r.Spec.Source.Inventory.Path = "../x" }, fault.Invalid, `spec.source.inventory.path: "../x" is no directory`},
		"a file":                {func(_ *shelf, r *tenantsv1.TenantRegistry) { r.Spec.Source.Inventory.Path = "README.md" }, fault.Invalid, `reading "README.md"`},
		"no archive": {func(s *shelf, _ *tenantsv1.TenantRegistry) {
			if err := os.WriteFile(s.archive, []byte("no archive at all"), 0o600); err != nil {
				s.t.Fatal(err)
			}
		}, fault.Invalid, "unpacking the artifact"},
		"an unknown column": {func(_ *shelf, r *tenantsv1.TenantRegistry) { r.Spec.ExtraValueMappings["x"] = "vars.x" }, fault.Invalid, `spec.extraValueMappings.x: an inventory has no column "vars.x"; there are uid, active, path`},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := &shelf{t: t}, registry()
			s.commit(seed())
			tt.change(s, r)
			_, err := New(s, artifacts{s}, t.TempDir()).Read(t.Context(), r, 100)
			if fault.Of(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("Read() = %v (%v), want %v with %q", err, fault.Of(err), tt.kind, tt.want)
			}
		})
	}
	s := &shelf{t: t}
	s.commit(seed())
	if _, err := New(s, artifacts{s}, t.TempDir()).Read(t.Context(), registry(), 2); fault.Reason(err, "") != TooManyTenants {
		t.Errorf("Read() of three tenants where two are the most = %v", err)
	}
}
