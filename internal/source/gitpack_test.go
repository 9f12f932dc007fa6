package source

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
)

// hostilePack is a pack in the form of git, whose sizes say anything.
type hostilePack struct{ bytes.Buffer }

// The types of objects in a pack.
const (
	packedBlob  = 3
	packedDelta = 6 // of an object that is named by its place
	packedOther = 7 // of one that is named by its hash
)

func newHostilePack(objects uint32) *hostilePack {
	p := &hostilePack{}
	p.WriteString("PACK")
	p.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 2), objects))
	return p
}

// add adds an object that claims a length, and returns where it is.
func (p *hostilePack) add(kind byte, claims uint64, before []byte, content string) int {
	at := p.Len()
	first, rest := kind<<4|byte(claims&15), claims>>4
	for ; rest > 0; rest >>= 7 {
		p.WriteByte(first | 0x80)
		first = byte(rest & 127)
	}
	p.WriteByte(first)
	p.Write(before)
	z := zlib.NewWriter(p)
	_, _ = z.Write([]byte(content)) // a buffer takes everything
	_ = z.Close()
	return at
}

// delta adds a delta of the object at a place that makes so many bytes, as it says, and returns
// where it is.
func (p *hostilePack) delta(of int, makes uint64, does ...byte) int {
	offset := uint64(p.Len() - of)
	back := []byte{byte(offset & 127)}
	for offset >>= 7; offset > 0; offset >>= 7 {
		offset--
		back = append([]byte{0x80 | byte(offset&127)}, back...)
	}
	content := string(append(binary.AppendUvarint(binary.AppendUvarint(nil, 1), makes), does...))
	return p.add(packedDelta, uint64(len(content)), back, content)
}

// hashed adds a delta of an object that is named by its hash, between objects of two sizes.
func (p *hostilePack) hashed(from, makes uint64) {
	content := string(binary.AppendUvarint(binary.AppendUvarint(nil, from), makes))
	p.add(packedOther, uint64(len(content)), make([]byte, 20), content)
}

// whole is the pack with its checksum.
func (p *hostilePack) whole() []byte {
	sum := sha1.Sum(p.Bytes())
	return append(bytes.Clone(p.Bytes()), sum[:]...)
}

// serve serves the pack to all who fetch.
func (p *hostilePack) serve(t *testing.T) string {
	t.Helper()
	pack := p.whole()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/info/refs") {
			line := strings.Repeat("1", 40) + " refs/heads/main\x00ofs-delta agent=git/2.0\n"
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			fmt.Fprintf(w, "001e# service=git-upload-pack\n0000%04x%s0000", len(line)+4, line)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		fmt.Fprint(w, "0008NAK\n")
		_, _ = w.Write(pack)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/repo.git"
}

// A small pack says that it has large objects, which the library would hold in memory. It is
// refused before one of them is read.
func TestGitRefusesHostilePacks(t *testing.T) {
	const gigabytes = 3 << 30
	for name, tt := range map[string]struct {
		pack func() *hostilePack
		want string
	}{
		"a file of gigabytes": {func() *hostilePack {
			p := newHostilePack(1)
			p.add(packedBlob, gigabytes, nil, "x")
			return p
		}, "a file of more than 100 MiB"},
		"a delta that makes gigabytes": {func() *hostilePack {
			p := newHostilePack(2)
			p.delta(p.add(packedBlob, 1, nil, "x"), gigabytes)
			return p
		}, "a file of more than 100 MiB"},
		"many large objects": {func() *hostilePack {
			const deltas = packBytes/packObject + 1
			p := newHostilePack(1 + deltas)
			base := p.add(packedBlob, 1, nil, "x")
			for range deltas {
				p.delta(base, packObject)
			}
			return p
		}, "more than 16 GiB together"},
		"versions of one file": {func() *hostilePack {
			const versions = packChain/packObject + 1
			p := newHostilePack(1 + versions)
			at := p.add(packedBlob, 1, nil, "x")
			for range versions {
				at = p.delta(at, packObject)
			}
			return p
		}, "more than 1 GiB together, each made from another one"},
		"versions of files that are named by their hashes": {func() *hostilePack {
			const versions = packChain/packObject + 1
			p := newHostilePack(versions)
			at := p.Len()
			p.hashed(1, packObject)
			for range versions - 1 {
				at = p.delta(at, packObject)
			}
			return p
		}, "more than 1 GiB together, each made from another one"},
		"versions whose sizes come again": {func() *hostilePack {
			const versions = packChain/packObject + 1
			p := newHostilePack(versions)
			for i := range uint64(versions) {
				p.hashed(packObject-i%2, packObject-(i+1)%2)
			}
			return p
		}, "more than 1 GiB together, each made from another one"},
		"versions of files that are joined by the last one": {func() *hostilePack {
			const versions = packChain/packObject + 1
			p := newHostilePack(versions + 1)
			for i := range uint64(versions) {
				p.hashed(1+i/6, packObject-i/6)
			}
			p.hashed(1, 2)
			return p
		}, "more than 1 GiB together, each made from another one"},
		"many objects": {func() *hostilePack { return newHostilePack(packObjects + 1) }, "500001 objects"},
	} {
		t.Run(name, func(t *testing.T) {
			scratch := scratchDir(t)
			g := &Git{URL: tt.pack().serve(t), Ref: GitRef{Branch: "main"}, Out: loopback(t), Scratch: scratch}
			if _, _, err := fetch(t, g); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("fetch() = %v, want a refusal that says %q", err, tt.want)
			}
		})
	}
}

// A pack of an ordinary server is read, with files that are deltas of one another.
func TestGitReadsDeltas(t *testing.T) {
	r := newRepository(t)
	want := map[string]string{}
	var text strings.Builder
	for i := range 20 {
		fmt.Fprintf(&text, "%d %x\n", i, sha1.Sum([]byte{byte(i)}))
		want[fmt.Sprintf("%02d.tf", i)] = text.String()
	}
	r.commit(want)
	if _, tree, err := fetch(t, &Git{URL: r.serve(nil), Ref: GitRef{Branch: "main"}, Out: loopback(t), Scratch: scratchDir(t)}); err != nil {
		t.Error(err)
	} else if diff := cmp.Diff(want, tree); diff != "" {
		t.Errorf("the tree differs (-want +got):\n%s", diff)
	}
}

// A server that names what a delta is made from by its hash may send more than one file has, as long
// as the versions of no file have more.
func TestVersionsOfFilesCountByFile(t *testing.T) {
	const files, versions = 15, 9
	p := newHostilePack(files * versions)
	for i := range uint64(versions) {
		for file := range uint64(files) {
			size := packObject - file*(versions+1) - i
			p.hashed(size, size-1)
		}
	}
	if err := checkPack(t.Context(), bytes.NewReader(p.whole())); err != nil {
		t.Errorf("%d files of %d MiB in all: %v", files, files*versions*packObject>>20, err)
	}
}

// In a pack that git writes with deltas that name what they are made from by its hash, no chain is larger
// than the family that it counts as, families of files of different sizes are apart, and the pack
// is read.
func TestGitReadsDeltasThatNameHashes(t *testing.T) {
	r := newRepository(t)
	const files, versions = 4, 12
	want := map[string]string{}
	text := make([]string, files)
	for file := range files {
		var b strings.Builder
		for i := range 400 << file {
			fmt.Fprintf(&b, "%x\n", sha1.Sum([]byte{byte(i), byte(i >> 8), byte(file)}))
		}
		text[file] = b.String()
	}
	for version := range versions {
		for file := range files {
			text[file] += fmt.Sprintf("%d of %d\n", version, file)
			want[fmt.Sprintf("%d.tf", file)] = text[file]
		}
		r.commit(want)
	}
	bare := func(args ...string) string { return r.git(append([]string{"-C", r.dir}, args...)...) }
	bare("config", "repack.useDeltaBaseOffset", "false")
	bare("repack", "-a", "-d", "-f", "--depth=50", "--window=50")
	packs, err := filepath.Glob(filepath.Join(r.dir, "objects", "pack", "*.pack"))
	if err != nil || len(packs) != 1 {
		t.Fatalf("there are the packs %v, %v, want one", packs, err)
	}
	sizes, bases := map[string]int64{}, map[string]string{}
	for _, line := range strings.Split(bare("verify-pack", "-v", packs[0]), "\n") {
		if f := strings.Fields(line); len(f) == 7 {
			bases[f[0]] = f[6]
		}
	}
	for id := range bases {
		for ; id != ""; id = bases[id] {
			n, err := strconv.ParseInt(bare("cat-file", "-s", id), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sizes[id] = n
		}
	}
	f, err := os.Open(packs[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	s, made, deltas := packfile.NewScanner(f), chains{}, 0
	_, objects, err := s.Header()
	if err != nil {
		t.Fatal(err)
	}
	for range objects {
		h, from, size, err := nextObject(s)
		if err != nil || !made.add(h, from, size) {
			t.Fatalf("an object of %d bytes is not within bounds: %v", size, err)
		}
		if h.Type.IsDelta() {
			if deltas++; h.Type != plumbing.REFDeltaObject {
				t.Errorf("a delta is a %s", h.Type)
			}
		}
	}
	if deltas != len(bases) || deltas < files*versions/2 {
		t.Errorf("there are %d deltas, and git knows of %d", deltas, len(bases))
	}
	largest := map[int64]bool{}
	for id := range bases {
		family, bytes := made.hashed.of(sizes[id]), int64(0)
		for at := id; bases[at] != ""; at = bases[at] {
			if bytes += sizes[at]; made.hashed.of(sizes[bases[at]]) != family {
				t.Errorf("an object of %d bytes is made from one of %d bytes, of another family", sizes[at], sizes[bases[at]])
			}
		}
		if known := made.hashed.bytes[family]; bytes > known {
			t.Errorf("a chain has %d bytes, and counts as %d", bytes, known)
		}
		if sizes[id] > 10<<10 {
			largest[family] = true
		}
	}
	if len(largest) != files {
		t.Errorf("%d files count as %d", files, len(largest))
	}
	if err := checkPack(t.Context(), f); err != nil {
		t.Error(err)
	}
	if _, tree, err := fetch(t, &Git{URL: r.serve(nil), Ref: GitRef{Branch: "main"}, Out: loopback(t), Scratch: scratchDir(t)}); err != nil {
		t.Error(err)
	} else if diff := cmp.Diff(want, tree); diff != "" {
		t.Errorf("the tree differs (-want +got):\n%s", diff)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	store := gitStore(t.Context(), t.TempDir())
	if err := (&Git{Scratch: t.TempDir()}).keepPack(t.Context(), f, store); err != nil {
		t.Fatal(err)
	}
	for id, size := range sizes {
		if o, err := store.EncodedObject(plumbing.AnyObject, plumbing.NewHash(id)); err != nil || o.Size() != size {
			t.Errorf("the object %s: %v, want its %d bytes", id, err, size)
		}
	}
}

// endsAfter is a context that ends after it was asked so many times whether it has ended.
type endsAfter struct {
	context.Context
	left *atomic.Int64
}

func (c endsAfter) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// While the library indexes a pack, the end of the context ends it at the next object, wherever
// it is.
func TestGitEndsWhileItIndexesAPack(t *testing.T) {
	const deltas = 200
	p := newHostilePack(1 + deltas)
	base := p.add(packedBlob, 1, nil, "x")
	for i := range byte(deltas) {
		p.delta(base, 2, 2, i, i) // two bytes of its own
	}
	g := &Git{Scratch: t.TempDir()}
	index := func(ctx context.Context) error {
		return g.keepPack(ctx, bytes.NewReader(p.whole()), gitStore(ctx, t.TempDir()))
	}
	if err := index(t.Context()); err != nil {
		t.Fatal(err)
	}
	for after := int64(0); after < 3*deltas; after += 7 { // each delta is read at least twice, and looked for once
		ctx := endsAfter{context.Background(), new(atomic.Int64)} // one that cannot end by itself
		ctx.left.Store(after)
		if err := index(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("after %d questions the pack is indexed: %v", after, err)
		}
		if asked := -ctx.left.Load(); asked > deltas/4 {
			t.Errorf("the library went on for %d questions after the end", asked)
		}
	}
}
