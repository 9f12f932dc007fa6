package archive

import (
	"errors"
	"os"
)

// Scratch is an archive that is unpacked for the time of a reading.
type Scratch struct {
	Dir  string
	Root *os.Root // of Dir: no link of the archive leads out of it
}

// OpenScratch unpacks the archive in a file into a new directory below parent, which it makes
// if it is missing. The errors are those of Extract and of the file system; after one, nothing
// is left. The caller closes it.
func OpenScratch(file, parent string, limits Limits) (_ *Scratch, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	s := &Scratch{}
	if s.Dir, err = os.MkdirTemp(parent, "unpacked-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(s.Dir))
		}
	}()
	if err := Extract(f, s.Dir, limits); err != nil {
		return nil, err
	}
	s.Root, err = os.OpenRoot(s.Dir)
	return s, err
}

// Close removes the directory.
func (s *Scratch) Close() error { return errors.Join(s.Root.Close(), os.RemoveAll(s.Dir)) }
