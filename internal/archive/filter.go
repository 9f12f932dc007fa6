package archive

import (
	"archive/tar"
	"errors"
	"io"
	"strings"
)

// Filter copies a tar stream, not compressed, to its end. Rename returns the name that an
// entry gets, and an empty one for an entry that is left out. What is copied has at most
// the given bytes, of content, names and targets of links. Nothing is extracted, so Extract
// alone checks where names lead. Owners and other attributes are left out.
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
		if len(header.Name) > mostName || len(header.Linkname) > mostName {
			return refuse(header.Name, "its name or the target of its link is longer than %d bytes", mostName)
		}
		if left -= int64(len(name) + len(header.Linkname)); left < header.Size {
			return refuse(header.Name, "everything together is larger than %d bytes", most)
		}
		left -= header.Size
		if header.Typeflag == tar.TypeDir && !strings.HasSuffix(name, "/") {
			name += "/"
		}
		header = &tar.Header{
			Format: tar.FormatPAX, Typeflag: header.Typeflag, Name: name, Linkname: header.Linkname,
			Size: header.Size, Mode: header.Mode, ModTime: header.ModTime,
		}
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
