package archive

import (
	"archive/tar"
	"errors"
	"io"
	"strings"
)

// Filter copies a tar stream, not compressed, to its end. Rename returns the name that an
// entry gets, and an empty one for an entry that is left out. What is copied has at most
// the given bytes of content. Nothing is extracted, so names are checked by Extract alone.
func Filter(r io.Reader, w io.Writer, most int64, rename func(name string) (string, error)) error {
	in, out := tar.NewReader(r), tar.NewWriter(w)
	for left := most; ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name, err := rename(header.Name)
		if err != nil {
			return err
		}
		if name == "" {
			continue
		}
		if left -= header.Size; left < 0 {
			return refuse(header.Name, "everything together is larger than %d bytes", most)
		}
		if header.Typeflag == tar.TypeDir && !strings.HasSuffix(name, "/") {
			name += "/"
		}
		header.Name, header.Format = name, tar.FormatPAX
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
	// A reader that compares a digest or a checksum does so at its end.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	return out.Close()
}
