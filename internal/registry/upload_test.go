package registry_test

import (
	"bytes"
	"errors"
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
