package archive

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// Limits of the package of a provider. The largest have one GiB, and some ten files.
const (
	maxPackage = 8 << 30
	maxFiles   = 10_000
)

// HashPackage is the h1 hash of a provider's unpacked package, as it stands in lock
// files: of the list of the hashes of its files.
func HashPackage(pkg fs.FS) (string, error) {
	var lines []string
	left := int64(maxPackage)
	err := fs.WalkDir(pkg, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if left -= info.Size(); !info.Mode().IsRegular() || left < 0 {
			return fmt.Errorf("%s is not a regular file of an ordinary size", name)
		}
		if len(lines) == maxFiles {
			return fmt.Errorf("there are more than %d files", maxFiles)
		}
		f, err := pkg.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return err
		}
		lines = append(lines, hex.EncodeToString(h.Sum(nil))+"  "+name+"\n")
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hashing a provider's package: %w", err)
	}
	// By name, which stands behind the hash.
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	h := sha256.Sum256([]byte(strings.Join(lines, "")))
	return "h1:" + base64.StdEncoding.EncodeToString(h[:]), nil
}

// HashZip is HashPackage of a package that is a zip archive of the given size. It
// writes nothing, and no file of the archive is larger than the archive says.
func HashZip(r io.ReaderAt, size int64) (string, error) {
	z, err := openZip(r, size)
	if err != nil {
		return "", fmt.Errorf("opening a provider's zip archive: %w", err)
	}
	return HashPackage(z)
}
