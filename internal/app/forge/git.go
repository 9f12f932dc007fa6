package forge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/server"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

var errCommand = errors.New("only git fetch and git push are served")

// noThin asks clients for complete packs: the library does not look in the repository for
// the objects that a thin pack leaves out.
const noThin = capability.Capability("no-thin")

// repositoryName matches the names of repositories, which cannot lead out of a directory.
var repositoryName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*(/[a-z0-9][a-z0-9-]*)*$`)

// located finds a repository by the path in a URL.
func (f *Forge) located(path string) (string, error) {
	name := strings.TrimSuffix(strings.Trim(strings.TrimPrefix(path, "./"), "/"), ".git")
	if !repositoryName.MatchString(name) {
		return "", transport.ErrRepositoryNotFound
	}
	return f.path(repositories, name+".git"), nil
}

// Load implements server.Loader.
func (f *Forge) Load(at *transport.Endpoint) (storer.Storer, error) {
	dir, err := f.located(at.Path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, transport.ErrRepositoryNotFound
	}
	return stored(dir), nil
}

func stored(dir string) *filesystem.Storage {
	return filesystem.NewStorage(osfs.New(dir, osfs.WithBoundOS()), cache.NewObjectLRUDefault())
}

// uploadPack answers a fetch: it lists the references, hears what the client wants and
// has, and sends the rest.
func (f *Forge) uploadPack(ctx context.Context, path string, in io.Reader, out io.Writer) error {
	session, err := server.NewServer(f).NewUploadPackSession(&transport.Endpoint{Path: path}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return err
	}
	if err := refs.Encode(out); err != nil {
		return err
	}
	return f.sendPack(ctx, session, path, in, out)
}

// sendPack reads a request and sends the pack. The library reads what a client wants, and
// not what it has.
func (f *Forge) sendPack(ctx context.Context, session transport.UploadPackSession, path string, in io.Reader, out io.Writer) error {
	req := packp.NewUploadPackRequest()
	if err := req.UploadRequest.Decode(in); err != nil {
		if errors.Is(err, io.EOF) || len(req.Wants) == 0 {
			return nil // a client that has everything says no more
		}
		return fmt.Errorf("reading what is wanted: %w", err)
	}
	store, err := f.Load(&transport.Endpoint{Path: path})
	if err != nil {
		return err
	}
	done, err := common(in, out, store, req)
	if err != nil || !done {
		return err
	}
	resp, err := session.UploadPack(ctx, req)
	if err != nil {
		return fmt.Errorf("packing: %w", err)
	}
	defer resp.Close()
	if len(req.Haves) == 0 {
		return resp.Encode(out)
	}
	_, err = io.Copy(out, resp) // the first common commit was acknowledged
	return err
}

// common hears which commits a client has, and notes those that are here too. It answers
// as the protocol has it without multi_ack: NAK at the end of each list, until the first
// common commit was acknowledged. Done is false if the client asks again in another
// request, as it does over HTTP.
func common(in io.Reader, out io.Writer, store storer.EncodedObjectStorer, req *packp.UploadPackRequest) (done bool, err error) {
	answer := pktline.NewEncoder(out)
	lines := pktline.NewScanner(in)
	for lines.Scan() {
		line := strings.TrimSuffix(string(lines.Bytes()), "\n")
		switch hash, has := strings.CutPrefix(line, "have "); {
		case line == "done":
			return true, nil
		case line == "": // a flush
			if len(req.Haves) == 0 {
				if err := answer.EncodeString("NAK\n"); err != nil {
					return false, err
				}
			}
		case has:
			h := plumbing.NewHash(hash)
			if store.HasEncodedObject(h) != nil {
				continue
			}
			if req.Haves = append(req.Haves, h); len(req.Haves) == 1 {
				if err := answer.Encodef("ACK %s\n", h); err != nil {
					return false, err
				}
			}
		default:
			return false, fmt.Errorf("reading what the client has: %.80q is none of have and done", line)
		}
	}
	return false, lines.Err()
}

// receivePack answers a push.
func (f *Forge) receivePack(ctx context.Context, path string, in io.Reader, out io.Writer) error {
	session, err := server.NewServer(f).NewReceivePackSession(&transport.Endpoint{Path: path}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return err
	}
	if err := refs.Capabilities.Set(noThin); err != nil {
		return err
	}
	if err := refs.Encode(out); err != nil {
		return err
	}
	req := packp.NewReferenceUpdateRequest()
	if err := req.Decode(struct{ io.Reader }{in}); err != nil { // the library would close it, and with it out
		if errors.Is(err, packp.ErrEmpty) || errors.Is(err, io.EOF) {
			return nil // nothing to push
		}
		return fmt.Errorf("reading what is pushed: %w", err)
	}
	status, err := session.ReceivePack(ctx, req)
	if status != nil {
		err = errors.Join(err, status.Encode(out))
	}
	return err
}
