package registry_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/room"
)

// bounded is a registry with other bounds than those of newPlace.
func bounded(t *testing.T, o registry.Options) *place {
	t.Helper()
	p := newPlace(t)
	o.Scratch = t.TempDir()
	p.Registry = registry.New(p.store, o)
	return p
}

// Uploads leave a part of the disk to others, whether or not the client says the size.
func TestUploadsLeaveRoom(t *testing.T) {
	free := int64(1<<30/20 + 3<<20) // 3 MiB above what is left to others: an upload takes 2 at first
	p := bounded(t, registry.Options{Room: room.New(func() (int64, int64, error) { return free, 1 << 30, nil })})
	m := module(t, "team/vpc/aws")
	for _, version := range []address.Version{"1.0.0", "1.1.0", "1.2.0"} { // each gives back its room
		p.publish(t, m, version, archiveOf(t, string(version)))
	}
	_, err := p.PublishModule(t.Context(), m, "2.0.0", registry.Upload{Content: failing{}, Size: 2 << 20})
	wantFault(t, err, fault.Later, room.ReasonFull, "make room")
	_, err = p.PublishModule(t.Context(), m, "2.0.0", upload(make([]byte, 2<<20)))
	wantFault(t, err, fault.Later, room.ReasonFull, "make room")
	free -= 2 << 20
	_, err = p.PublishModule(t.Context(), m, "2.0.0", upload(archiveOf(t, "two")))
	wantFault(t, err, fault.Later, room.ReasonFull, "make room")
	free += 2 << 20
	p.publish(t, m, "2.0.0", archiveOf(t, "two"))
}

// open is content that arrives when the test says so.
type open struct {
	*io.PipeReader
	begun *sync.WaitGroup
	once  sync.Once
}

func (o *open) Read(p []byte) (int, error) {
	o.once.Do(o.begun.Done)
	return o.PipeReader.Read(p)
}

// Uploads to one namespace that go on for ever do not hinder those to others.
func TestUploadsAtOnce(t *testing.T) {
	p, m := newPlace(t), module(t, "team/vpc/aws")
	var begun, ended sync.WaitGroup
	var clients []*io.PipeWriter
	left := errors.New("the client has left")
	for range 32 {
		reader, writer := io.Pipe()
		clients = append(clients, writer)
		begun.Add(1)
		ended.Go(func() {
			if _, err := p.PublishModule(t.Context(), m, "1.0.0", registry.Upload{Content: &open{PipeReader: reader, begun: &begun}}); !errors.Is(err, left) {
				t.Errorf("an upload without its end: %v", err)
			}
		})
	}
	begun.Wait()
	_, err := p.PublishModule(t.Context(), m, "1.0.0", registry.Upload{Content: failing{}})
	wantFault(t, err, fault.Later, registry.UploadsBusy, "32 uploads to the namespace team go on")
	p.publish(t, module(t, "other/vpc/aws"), "1.0.0", archiveOf(t, "other"))
	for _, client := range clients {
		client.CloseWithError(left)
	}
	ended.Wait()
	p.publish(t, m, "1.0.0", archiveOf(t, "team"))
}

// Small files leave a part of the disk to others as well.
func TestSmallFilesLeaveRoom(t *testing.T) {
	free := int64(1<<30/20 + 3<<20)
	p, cloud := bounded(t, registry.Options{Room: room.New(func() (int64, int64, error) { return free, 1 << 30, nil })}), address.Provider{Namespace: "acme", Type: "cloud"}
	stage := func(end string) error {
		return p.StageProvider(t.Context(), cloud, "1.0.0", "terraform-provider-cloud_1.0.0_"+end, registry.Upload{Content: strings.NewReader("text")})
	}
	ends := []string{"SHA256SUMS", "SHA256SUMS.sig", "manifest.json"}
	for _, end := range ends {
		if err := stage(end); err != nil {
			t.Error(err)
		}
	}
	free -= 2 << 20
	for _, end := range ends {
		wantFault(t, stage(end), fault.Later, room.ReasonFull, "make room")
	}
}

// A namespace has a bounded number of versions and of files that wait. What publishes one of
// these versions may still come, and so may files of another namespace.
func TestWaitingVersionsAreBounded(t *testing.T) {
	p, cloud := newPlace(t), address.Provider{Namespace: "acme", Type: "cloud"}
	stage := func(of address.Provider, v address.Version, end, text string) error {
		return p.StageProvider(t.Context(), of, v, "terraform-provider-cloud_"+string(v)+"_"+end, registry.Upload{Content: strings.NewReader(text)})
	}
	version := func(n int) address.Version { return address.Version(fmt.Sprintf("1.%d.0", n)) }
	for n := range 100 {
		if err := stage(cloud, version(n), "SHA256SUMS", "sums"); err != nil {
			t.Fatal(err)
		}
	}
	wantFault(t, stage(cloud, version(100), "SHA256SUMS", "sums"), fault.Invalid, registry.WaitingMany, "files of 100 versions of providers of the namespace acme are not published yet, and the limit is 100: publish versions, or wait")
	for n := range 1900 {
		if err := p.store.Put(t.Context(), fmt.Sprintf("waiting/providers/acme/cloud/1.0.0/%d.zip", n), strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	wantFault(t, stage(cloud, "1.0.0", "linux_amd64.zip", "zip"), fault.Invalid, registry.WaitingMany, "2000 files of the namespace acme are not published yet, and the limit is 2000")
	for _, end := range []string{"SHA256SUMS", "SHA256SUMS.sig"} {
		if err := stage(cloud, "1.0.0", end, "again"); err != nil {
			t.Errorf("%s of a version that waits: %v", end, err)
		}
	}
	if err := stage(address.Provider{Namespace: "other", Type: "cloud"}, "1.0.0", "SHA256SUMS", "sums"); err != nil {
		t.Errorf("a file of another namespace: %v", err)
	}
}

// Files that wait for their version to be published have a bound.
func TestWaitingFilesAreBounded(t *testing.T) {
	p, cloud := bounded(t, registry.Options{MaxWaiting: 1000}), address.Provider{Namespace: "acme", Type: "cloud"}
	stage := func(v address.Version, end string, content io.Reader) error {
		return p.StageProvider(t.Context(), cloud, v, "terraform-provider-cloud_"+string(v)+"_"+end, registry.Upload{Content: content})
	}
	if err := stage("1.0.0", "linux_amd64.zip", bytes.NewReader(make([]byte, 1000))); err != nil {
		t.Fatal(err)
	}
	wantFault(t, stage("1.0.0", "linux_arm64.zip", failing{}), fault.Invalid, blob.TooLarge, "publish the version")
	if err := errors.Join(stage("1.0.0", "SHA256SUMS", strings.NewReader("sums")), stage("1.1.0", "linux_amd64.zip", strings.NewReader("one"))); err != nil {
		t.Errorf("a list of checksums, and a file of another version: %v", err)
	}
}
