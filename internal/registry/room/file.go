package room

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/terrier-iac/terrier/internal/blob"
)

// Scratch makes a file without a name in a directory: the kernel removes it with this
// process.
func Scratch(dir string) (*os.File, error) {
	file, err := os.CreateTemp(dir, "archive-")
	if err != nil {
		return nil, fmt.Errorf("making a scratch file: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("making a scratch file: %w", err), file.Close())
	}
	return file, nil
}

// File is content on the disk of this machine, without a name, until it is closed.
type File struct {
	*os.File
	Size   int64  // in bytes
	SHA256 string // of the content, in hex
	claim  *Claim
}

// Spool copies content to a scratch file of a directory, as long as there is room for it.
// Content of more than so many bytes is Invalid, with the reason blob.TooLarge.
func (r *Room) Spool(ctx context.Context, dir string, content io.Reader, most int64) (f *File, err error) {
	claim, err := r.Claim(0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			claim.Close()
		}
	}()
	file, err := Scratch(dir)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	n, err := io.Copy(claim.Writer(io.MultiWriter(file, sum)), blob.Bounded(ctx, content, most))
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &File{file, n, hex.EncodeToString(sum.Sum(nil)), claim}, nil
}

// Close removes the file, and gives its room back.
func (f *File) Close() error {
	defer f.claim.Close()
	return f.File.Close()
}
