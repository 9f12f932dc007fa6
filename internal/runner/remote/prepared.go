package remote

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The directory of a stack has what its last run with an init has left for later ones: one
// file, whose name says what it depends on. A run is given nothing of another stack, and
// nothing that was left for other content. So a hostile run can leave something wrong to
// itself alone.
//
//	STACK/prepared/<PreparedKey>-<digest>.tar.gz

const (
	dirPrepared = "prepared" // in STACK
	endPrepared = ".tar.gz"
)

// preparedStore keeps what runs prepared, in the directories of their stacks. Its callers hold
// the lock of the key, but for dropAll.
type preparedStore struct {
	lock  func(key string) (unlock func())
	stack func(key string) string // the directory of a stack
	bytes int64                   // see Config.Prepared
	log   *slog.Logger
}

// preparedName is the file that holds content of a digest for a key. Both are digests.
func preparedName(key, digest string) string {
	return strings.TrimPrefix(key, digestKind) + "-" + strings.TrimPrefix(digest, digestKind) + endPrepared
}

const digestKind = "sha256:"

// offer completes a job: whether its run may leave what it prepares, and what it is
// given of an earlier one. given is the path of that, or empty.
func (s *preparedStore) offer(job *runner.Job) (given string, err error) {
	key := job.PreparedKey()
	if s.bytes <= 0 || key == "" {
		return "", nil
	}
	job.Prepared.Keep = s.bytes
	pattern := filepath.Join(s.stack(job.Key()), dirPrepared, preparedName(key, "*"))
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		return "", err
	}
	digest, err := disk.Digest(found[0])
	if err != nil {
		return "", err
	}
	if filepath.Base(found[0]) != preparedName(key, digest) {
		s.log.Warn("prepared directory removed: it is not what was stored", "stack", job.Name)
		return "", s.drop(job.Key())
	}
	job.Prepared.Digest = digest
	return found[0], nil
}

// keep keeps what a run that has ended left for later ones. What a run was given and
// could not use is removed, and so is what a run failed with: the next one then begins with init,
// whatever was wrong.
func (s *preparedStore) keep(key, dir string, rec record, report json.RawMessage) error {
	if rec.Prepared == "" {
		return nil
	}
	var rep runner.Report
	if err := json.Unmarshal(report, &rep); err != nil {
		return err
	}
	left := filepath.Join(dir, runner.FilePrepared)
	digest, err := disk.Digest(left)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	case err == nil && rep.Outcome == stack.Succeeded:
		return s.put(key, left, preparedName(rec.Prepared, digest))
	case rec.Given != "" && (rep.Outcome == stack.Failed || !rep.InitSkipped):
		return s.drop(key)
	default:
		return nil
	}
}

// put puts a file in the place of what was kept before.
func (s *preparedStore) put(key, file, name string) error {
	dir := filepath.Join(s.stack(key), dirPrepared)
	fresh := dir + ".new"
	if err := errors.Join(os.RemoveAll(fresh), os.MkdirAll(fresh, 0o700)); err != nil {
		return err
	}
	if err := disk.Share(file, filepath.Join(fresh, name)); err != nil {
		return err
	}
	return errors.Join(s.drop(key), os.Rename(fresh, dir))
}

func (s *preparedStore) drop(key string) error {
	return os.RemoveAll(filepath.Join(s.stack(key), dirPrepared))
}

// dropAll removes what is kept of every stack that is in a set: another Runner has them now, and
// would not remove it with the stack.
func (s *preparedStore) dropAll(in func(key string) bool) error {
	entries, err := os.ReadDir(s.stack(""))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if key := e.Name(); in(key) {
			unlock := s.lock(key)
			errs = append(errs, s.drop(key))
			unlock()
		}
	}
	return errors.Join(errs...)
}

// servePrepared gives the agent what an earlier run prepared.
func (r *server) servePrepared(w http.ResponseWriter, _ *http.Request, run *placedRun) error {
	f, err := r.openGiven(run)
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/gzip")
	_, _ = io.Copy(w, f) // an agent that got a part of it asks again
	return nil
}

func (r *server) openGiven(run *placedRun) (*os.File, error) {
	defer r.Lock(run.key)()
	rec, _, err := r.going(run)
	if err != nil {
		return nil, err
	}
	if rec.Given == "" {
		return nil, refused(http.StatusUnprocessableEntity, "the run was given no prepared directory")
	}
	f, err := os.Open(filepath.Join(r.dir(run), fileGiven))
	if errors.Is(err, os.ErrNotExist) {
		return nil, refused(http.StatusUnprocessableEntity, "the prepared directory that the run was given is not here any more")
	}
	return f, err
}
