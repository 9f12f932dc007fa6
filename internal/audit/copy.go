package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Copy is where the segments of a log are a second time, where they outlive its directory.
// Only the process that has the log open may save.
type Copy interface {
	Segments(ctx context.Context) ([]string, error) // names, the oldest first
	Load(ctx context.Context, name string) ([]byte, error)
	Save(ctx context.Context, name string, content []byte) error
}

// copiedSegmentBytes is the size of a segment that has a copy, since each write copies the
// last segment as a whole.
const copiedSegmentBytes = 256 << 10

// copyTime bounds how long an entry waits for its copy.
const copyTime = 30 * time.Second

// save copies the last segment as it is with text at its end.
func (j *Log) save(end tail, text []byte) error {
	if j.copy == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), copyTime)
	defer cancel()
	content, err := os.ReadFile(filepath.Join(j.dir, end.segment))
	if err != nil {
		return err
	}
	if want := end.size + int64(len(text)); int64(len(content)) != want {
		return fmt.Errorf("%s has %d bytes instead of %d", end.segment, len(content), want)
	}
	if err := j.copy.Save(ctx, end.segment, content); err != nil {
		return fmt.Errorf("copying %s: %w", end.segment, err)
	}
	return nil
}

// meet makes the directory and its copy agree, before the log is opened. The directory
// wins if it goes on where the copy ends, as after a while without a copy. Otherwise the
// copy is what another process wrote since, and the directory is what was before.
func (j *Log) meet(ctx context.Context) error {
	if j.copy == nil {
		return nil
	}
	there, err := j.copy.Segments(ctx)
	if err != nil {
		return fmt.Errorf("listing the copies of the audit log: %w", err)
	}
	here, err := segmentsIn(j.dir)
	if err != nil {
		return err
	}
	if len(there) == 0 {
		return j.saveAll(ctx, here)
	}
	last := there[len(there)-1]
	content, err := j.copy.Load(ctx, last)
	if err != nil {
		return fmt.Errorf("reading the copy of %s: %w", last, err)
	}
	ahead, err := j.holdsAll(last, content)
	if err != nil {
		return err
	}
	if ahead {
		return j.saveAll(ctx, here[slices.Index(here, last):])
	}
	return j.restore(ctx, here, there, content)
}

// holdsAll reports whether a segment of the directory begins with content.
func (j *Log) holdsAll(name string, content []byte) (bool, error) {
	is, err := os.ReadFile(filepath.Join(j.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && len(is) >= len(content) && string(is[:len(content)]) == string(content), err
}

func (j *Log) saveAll(ctx context.Context, names []string) error {
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(j.dir, name))
		if err == nil {
			err = j.copy.Save(ctx, name, content)
		}
		if err != nil {
			return fmt.Errorf("copying %s of the audit log: %w", name, err)
		}
	}
	return nil
}

// restore makes the directory what the copies are. Segments that do not end a log are
// never changed, so those that are here need not be read again.
func (j *Log) restore(ctx context.Context, here, there []string, newest []byte) error {
	for _, name := range here {
		if !slices.Contains(there, name) {
			if err := aside(j.dir, name); err != nil {
				return err
			}
		}
	}
	for i, name := range there {
		ended := i < len(there)-1 && slices.Contains(here, name) && name != here[len(here)-1]
		if ended {
			continue
		}
		content := newest
		if i < len(there)-1 {
			var err error
			if content, err = j.copy.Load(ctx, name); err != nil {
				return fmt.Errorf("reading the copy of %s: %w", name, err)
			}
		}
		if err := put(j.dir, name, content); err != nil {
			return fmt.Errorf("restoring %s of the audit log: %w", name, err)
		}
	}
	return syncDir(j.dir)
}

// aside moves a segment that no copy has where nothing reads it but a person.
func aside(dir, name string) error {
	former := filepath.Join(dir, "former")
	if err := os.MkdirAll(former, 0o700); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, name), filepath.Join(former, name))
}

// put writes a segment, whole or not at all.
func put(dir, name string, content []byte) error {
	f, err := os.CreateTemp(dir, "restored-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
