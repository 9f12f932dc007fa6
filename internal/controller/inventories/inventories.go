// Package inventories reads tenants from the artifacts of sources: each directory of an
// inventory is a row, as a row of a database is one. A read is all of one artifact, or an
// error; a directory that cannot be understood spoils its own row and no other. It runs
// nothing, and follows nothing that leads out of the artifact.
//
// Start reading at Reader.Read.
package inventories

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/controller/sources"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/inventory"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// Artifacts fetches the archives of sources, verified.
type Artifacts interface {
	Get(ctx context.Context, a source.Artifact) (path string, err error)
}

// Reader reads inventories, each version of each once.
type Reader struct {
	sources   client.Reader
	artifacts Artifacts
	dir       string // scratch space
	known     cache.Map[string, tenant.Snapshot]
}

// Bounds of what a Reader remembers, and of one value, in bytes.
const (
	kept    = 256
	weight  = 64 << 20
	maxCell = 256 << 10

	mostBytes  = 256 << 20 // of all rows of one artifact
	hostWeight = 256       // that a host counts as
)

// New returns a Reader that finds sources with a reader, and unpacks artifacts in dir.
func New(sources client.Reader, artifacts Artifacts, dir string) *Reader {
	return &Reader{sources: sources, artifacts: artifacts, dir: dir, known: cache.Map[string, tenant.Snapshot]{Size: kept, Weigh: weigh, Weight: weight}}
}

func weigh(_ string, s tenant.Snapshot) int {
	bytes := 0
	for _, row := range s.Rows {
		for _, c := range row {
			bytes += len(c.Text) + len(c.Bad) + 64
		}
	}
	for _, n := range s.Notes {
		bytes += len(n.Text) + 64
	}
	return bytes
}

// Reasons of errors.
const (
	DirectoryMissing = "InventoryMissing"   // Invalid: the artifact has no such directory
	TooManyTenants   = "TooManyRows"        // Invalid: more than maxRows
	SourceNotReady   = "SourceNotReady"     // Missing: there is no source, or it has no artifact yet
	Unreadable       = "ArtifactUnreadable" // the artifact cannot be fetched or unpacked
)

// Read returns the tenants of a registry as rows, with the columns that it maps.
func (r *Reader) Read(ctx context.Context, obj *tenantsv1.TenantRegistry, most int) (tenant.Snapshot, error) {
	dir, allowed, err := tenantapi.Inventory(obj)
	if err != nil {
		return tenant.Snapshot{}, err
	}
	ref := obj.Spec.Source.Inventory.SourceRef
	key := types.NamespacedName{Namespace: obj.Namespace, Name: ref.Name}
	artifact, err := sources.Artifact(ctx, r.sources, ref.Kind, key, provenance.Key{})
	if err != nil {
		return tenant.Snapshot{}, fault.New(fault.Of(err), cmp.Or(fault.Reason(err, ""), SourceNotReady), fmt.Errorf("spec.source.inventory.sourceRef: %w", err))
	}
	dir = path.Join(artifact.Directory, dir)
	columns := tenantapi.Mapping(obj).Columns()
	version := stack.Digest([]any{artifact.Digest, dir, allowed, columns, most})
	if s, ok := r.known.Get(version); ok {
		return s, nil
	}
	file, err := r.artifacts.Get(ctx, artifact)
	if err != nil {
		return tenant.Snapshot{}, fault.New(fault.Of(err), Unreadable, fmt.Errorf("fetching the artifact of %s %s: %w", ref.Kind, key, err))
	}
	d := &directories{dir: dir, allowed: allowed, columns: columns, most: most, of: fmt.Sprintf("%s of %s %s", artifact.Revision, ref.Kind, key)}
	if err := r.unpacked(file, d.read); err != nil {
		return tenant.Snapshot{}, err
	}
	r.known.Put(version, d.snapshot)
	return d.snapshot, nil
}

// unpacked calls read with the tree of an archive.
func (r *Reader) unpacked(file string, read func(fs.FS) error) (err error) {
	tree, err := archive.OpenScratch(file, r.dir, archive.Limits{})
	if err != nil {
		return fault.New(fault.Of(err), Unreadable, fmt.Errorf("unpacking the artifact: %w", err))
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	return read(tree.Root.FS())
}

// directories reads the tenants of one tree.
type directories struct {
	dir     string
	of      string // what the tree is, for messages
	allowed []inventory.Variable
	columns []string
	most    int

	snapshot tenant.Snapshot
	bytes    int
	hosts    map[string][]inventory.Host // by uid
	rows     map[string]int              // by uid: the place in the snapshot
}

// ofTenant are the entries of a directory by which it is that of a tenant.
var ofTenant = []string{inventory.HostsFile, "hosts.yaml", inventory.GroupVars, inventory.HostVars, terraformDir}

const terraformDir = "terraform"

func (d *directories) read(tree fs.FS) error {
	entries, err := fs.ReadDir(tree, d.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.Invalid, DirectoryMissing, fmt.Errorf("spec.source.inventory.path: %s has no directory %q: name the one with the directories of the tenants", d.of, d.dir))
	case err != nil:
		return fault.New(fault.Invalid, Unreadable, fmt.Errorf("spec.source.inventory.path: reading %q of %s: %w", d.dir, d.of, err))
	}
	d.snapshot.Columns = d.columns
	d.hosts, d.rows = map[string][]inventory.Host{}, map[string]int{}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		inside, err := fs.ReadDir(tree, path.Join(d.dir, e.Name()))
		if err != nil {
			return fmt.Errorf("reading %q of %s: %w", path.Join(d.dir, e.Name()), d.of, err)
		}
		if !slices.ContainsFunc(inside, func(in fs.DirEntry) bool { return slices.Contains(ofTenant, in.Name()) }) {
			d.note(e.Name(), "the directory has none of %s, and is no tenant", strings.Join(ofTenant, ", "))
			continue
		}
		if len(d.snapshot.Rows) == d.most {
			return fault.New(fault.Invalid, TooManyTenants, fmt.Errorf("there are more than %d tenants, which is what maxRows allows: raise spec.source.maxRows", d.most))
		}
		if err := d.tenant(tree, e.Name()); err != nil {
			return err
		}
	}
	d.conflicts()
	return nil
}

func (d *directories) note(uid, format string, args ...any) {
	d.snapshot.Notes = append(d.snapshot.Notes, tenant.RowNote{UID: uid, Text: fmt.Sprintf(format, args...)})
}

// tenant adds the row of one directory.
func (d *directories) tenant(tree fs.FS, uid string) error {
	dir := path.Join(d.dir, uid)
	own, err := fs.Sub(tree, dir)
	if err != nil {
		return err
	}
	digest, err := digestOf(own)
	if err != nil {
		return fmt.Errorf("reading %q of %s: %w", dir, d.of, err)
	}
	cells := map[string]tenant.Cell{
		tenantapi.ColumnUID:       {Text: uid},
		tenantapi.ColumnActive:    {Text: "true"},
		tenantapi.ColumnPath:      {Text: dir},
		tenantapi.ColumnDigest:    {Text: digest},
		tenantapi.ColumnTerraform: {},
	}
	has, err := d.hasStack(own, uid)
	if err != nil {
		return err
	}
	if has {
		cells[tenantapi.ColumnTerraform] = tenant.Cell{Text: path.Join(dir, terraformDir)}
	}
	if err := d.inventory(tree, dir, uid, cells); err != nil {
		return err
	}
	row := make([]tenant.Cell, len(d.columns))
	for i, column := range d.columns {
		c, ok := cells[column]
		if !ok {
			c.Null = true
		}
		if len(c.Text) > maxCell {
			c = tenant.Cell{Bad: fmt.Sprintf("holds %d bytes, where %d are the most", len(c.Text), maxCell)}
		}
		row[i] = c
	}
	if d.bytes += weigh("", tenant.Snapshot{Rows: [][]tenant.Cell{row}}) + hostWeight*len(d.hosts[uid]); d.bytes > mostBytes {
		return fault.New(fault.Invalid, TooManyTenants, fmt.Errorf("the tenants of %s have more than %d bytes of values and hosts: divide them among several registries", d.of, mostBytes))
	}
	d.rows[uid] = len(d.snapshot.Rows)
	d.snapshot.Rows = append(d.snapshot.Rows, row)
	return nil
}

// digestOf identifies everything in a directory: names, contents, and what may be executed.
func digestOf(dir fs.FS) (string, error) {
	all := sha256.New()
	err := fs.WalkDir(dir, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		f, err := dir.Open(name)
		if err != nil {
			return err
		}
		one := sha256.New()
		_, err = io.Copy(one, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		fmt.Fprintf(all, "%q %t %x\n", name, info.Mode()&0o111 != 0, one.Sum(nil))
		return nil
	})
	return "sha256:" + hex.EncodeToString(all.Sum(nil)), err
}

// hasStack reports whether a tenant has a root module, and notes if not.
func (d *directories) hasStack(own fs.FS, uid string) (bool, error) {
	info, err := fs.Stat(own, terraformDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.note(uid, "the directory has no %s, so the tenant has no stack", terraformDir)
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading %s of %s: %w", terraformDir, uid, err)
	case !info.IsDir():
		d.note(uid, "%s is no directory, so the tenant has no stack", terraformDir)
		return false, nil
	}
	entries, err := fs.ReadDir(own, terraformDir)
	if err != nil {
		return false, fmt.Errorf("reading %s of %s: %w", terraformDir, uid, err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(module.Configuration(names)) == 0 {
		d.note(uid, "%s has no file of configuration, so the tenant has no stack", terraformDir)
		return false, nil
	}
	return true, nil
}

// inventory adds what the files of Ansible say. What is wrong with them spoils the row.
func (d *directories) inventory(tree fs.FS, dir, uid string, cells map[string]tenant.Cell) error {
	found, err := inventory.Read(tree, dir)
	if wrong, ok := errors.AsType[*inventory.Problem](err); ok {
		cells[tenantapi.ColumnVars] = tenant.Cell{Bad: "cannot be read: " + wrong.Error()}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the inventory of %s: %w", uid, err)
	}
	for _, n := range found.Notes {
		d.note(uid, "%s", n)
	}
	values, notes, errs := found.Variables(d.allowed)
	for _, n := range notes {
		d.note(uid, "%s", n)
	}
	d.hosts[uid] = found.Hosts()
	if len(errs) > 0 {
		cells[tenantapi.ColumnVars] = tenant.Cell{Bad: "cannot be used: " + joined(errs)}
		return nil
	}
	for name, v := range values {
		cell, err := cellOf(v)
		if err != nil {
			return err
		}
		cells[tenantapi.VarColumn+name] = cell
	}
	if cells[tenantapi.ColumnVars], err = jsonCell(values); err != nil {
		return err
	}
	all := d.hosts[uid]
	d.hosts[uid] = slices.DeleteFunc(slices.Clone(all), func(h inventory.Host) bool { return h.Address == "" && h.MAC == "" }) // those that may conflict
	bytes := 0
	for _, h := range all {
		for _, text := range append(h.Groups, h.Name, h.Address, h.User, h.MAC) {
			bytes += len(text)
		}
		if bytes > maxCell {
			cells[tenantapi.ColumnHosts] = tooLarge()
			return nil
		}
	}
	cells[tenantapi.ColumnHosts], err = jsonCell(hostsOf(all))
	return err
}

func joined(errs []error) string {
	const most = 5
	var all []string
	for _, err := range errs[:min(len(errs), most)] {
		all = append(all, err.Error())
	}
	if len(errs) > most {
		all = append(all, fmt.Sprintf("and %d more", len(errs)-most))
	}
	return strings.Join(all, "; ")
}

// conflicts spoils the rows of tenants that have the same address.
func (d *directories) conflicts() {
	for _, c := range inventory.Conflicts(d.hosts) {
		for _, p := range c.At {
			column := d.column(tenantapi.ColumnHosts)
			if column < 0 { // nothing is mapped to it
				d.note(p.Tenant, "%s. Give one of them another", c)
				continue
			}
			cell := &d.snapshot.Rows[d.rows[p.Tenant]][column]
			if cell.Bad == "" {
				*cell = tenant.Cell{Bad: "cannot be used: " + c.String() + ". Give one of them another"}
			}
		}
	}
}

func (d *directories) column(name string) int { return slices.Index(d.columns, name) }

// hostValue is a host as templates see it.
type hostValue struct {
	Name    string   `json:"name"`
	Address string   `json:"address,omitempty"`
	User    string   `json:"user,omitempty"`
	Port    int      `json:"port,omitempty"`
	MAC     string   `json:"mac,omitempty"`
	Groups  []string `json:"groups"`
}

func hostsOf(hosts []inventory.Host) []hostValue {
	out := make([]hostValue, 0, len(hosts))
	for _, h := range hosts {
		out = append(out, hostValue{h.Name, h.Address, h.User, h.Port, h.MAC, h.Groups})
	}
	return out
}

// cellOf is a value as text: a string as it is, everything else as JSON.
func cellOf(v any) (tenant.Cell, error) {
	switch v := v.(type) {
	case nil:
		return tenant.Cell{Null: true}, nil
	case string:
		return tenant.Cell{Text: v}, nil
	}
	return jsonCell(v)
}

func tooLarge() tenant.Cell {
	return tenant.Cell{Bad: fmt.Sprintf("holds more than %d bytes, which are the most", maxCell)}
}

// left is what a value leaves of a number of bytes: less than nothing if it has more.
func left(v any, of int) int {
	of--
	switch v := v.(type) {
	case string:
		of -= len(v)
	case json.Number:
		of -= len(v)
	case []any:
		for _, each := range v {
			if of = left(each, of); of < 0 {
				return of
			}
		}
	case map[string]any:
		for name, each := range v {
			if of = left(each, of-len(name)); of < 0 {
				return of
			}
		}
	}
	return of
}

func jsonCell(v any) (tenant.Cell, error) {
	if left(v, maxCell) < 0 { // before it is written out
		return tooLarge(), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return tenant.Cell{}, fmt.Errorf("encoding a value of an inventory: %w", err)
	}
	return tenant.Cell{Text: strings.TrimSuffix(b.String(), "\n")}, nil
}
