package records

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/record"
)

// A record of secret values that cannot be read hides every value, blocks nothing, and
// is replaced by the next run. It is complete again once the state was settled after
// that.
func TestADamagedRecordOfSecrets(t *testing.T) {
	files, keys := openFiles(t)
	sealed := blob.Seal(files, keys[0])
	for name, tt := range map[string]struct {
		read, written Blobs
		content       string
	}{
		"cut off":                   {files, files, `{"key":"`},
		"of another form":           {files, files, `{"key":"AAAA","values":[{"id":"x","forms":["odd"]}]}`},
		"without a key":             {files, files, `{}`},
		"empty":                     {files, files, ""},
		"not JSON":                  {files, files, "\x00\x01"},
		"its mark is odd":           {files, files, `{"key":"AAAA","values":[{"id":"lost","forms":["odd"]}]}`},
		"not sealed":                {sealed, files, "it was not sealed, and so cannot be opened here"},
		"sealed with a key unknown": {sealed, blob.Seal(files, keys[1]), `{}`},
		"with another key id":       {sealed, files, "TRB1 is not what it says it is, and so cannot be opened"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := (&Store{Blobs: tt.written}).Put(t.Context(), record.Secrets("u"), []byte(tt.content)); err != nil {
				t.Fatal(err)
			}
			remembersAgain(t, &Store{Blobs: tt.read})
			if err := (&Store{Blobs: tt.read}).Blobs.Delete(t.Context(), record.SecretsBeside("u")); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func openFiles(t *testing.T) (*blob.Files, []blob.Key) {
	t.Helper()
	files, err := blob.OpenFiles(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	keys := make([]blob.Key, 2)
	for i := range keys {
		if keys[i], err = blob.NewKey(bytes.Repeat([]byte{byte(i)}, 32)); err != nil {
			t.Fatal(err)
		}
	}
	return files, keys
}

const hunter = "hunter2-hunter2"

// remembersAgain follows a record that is not whole until it is complete.
func remembersAgain(t *testing.T, s *Store) {
	t.Helper()
	hides(t, s, true)
	for i := range 2 {
		remembers(t, s, hunter, i == 0, true)
		hides(t, s, true)
	}
	settles(t, s)
	hides(t, s, false, hunter)
	remembers(t, s, hunter, false, false)
	hides(t, s, false, hunter)
}

func settles(t *testing.T, s *Store) {
	t.Helper()
	if err := s.SettleSecrets(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
}

// remembers begins a run, and checks whether a damage is found, and whether the record
// is incomplete.
func remembers(t *testing.T, s *Store, value string, damage, incomplete bool) {
	t.Helper()
	got, err := s.RememberSecrets(t.Context(), "u", []string{value}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	if err != nil || errors.Is(got.Damage, record.ErrSecretsUnknown) != damage || got.Incomplete != incomplete {
		t.Fatalf("RememberSecrets() = %+v, %v, want damage %v, incomplete %v", got, err, damage, incomplete)
	}
}

// hides checks whether every value is hidden, and that the given ones are.
func hides(t *testing.T, s *Store, every bool, values ...string) {
	t.Helper()
	p, err := s.SecretPrints(t.Context(), "u")
	if err != nil || p.All != every || !every && p.String("known to all") != "known to all" {
		t.Fatalf("SecretPrints() = %+v, %v, want every value hidden: %v", p, err, every)
	}
	for _, v := range values {
		if got := p.String("it is " + v); got == "it is "+v {
			t.Fatalf("SecretPrints() shows %q", v)
		}
	}
}

// A record whose key is lost stays as it is, and knows its values when the key is back.
// The values of the runs meanwhile are lost, until the state is settled.
func TestARecordOfSecretsWhoseKeyComesBack(t *testing.T) {
	for name, tt := range map[string]struct{ begins, settled bool }{
		"before a run":         {},
		"before a settled one": {begins: true},
		"after it was settled": {begins: true, settled: true},
	} {
		t.Run(name, func(t *testing.T) {
			files, keys := openFiles(t)
			before, without := &Store{Blobs: blob.Seal(files, keys[1])}, &Store{Blobs: blob.Seal(files, keys[0])}
			back := &Store{Blobs: blob.Seal(files, keys[0], keys[1])}
			remembers(t, before, hunter, false, false)
			hides(t, without, true)
			if tt.begins {
				remembers(t, without, "of-the-time-without-it", true, true)
			}
			if tt.settled {
				settles(t, without)
				hides(t, without, false, "of-the-time-without-it")
			}
			hides(t, back, tt.begins, hunter)
			settles(t, back)
			hides(t, back, tt.begins, hunter)
			remembers(t, back, "of-now", tt.begins, tt.begins)
			settles(t, back)
			hides(t, back, false, hunter, "of-now")
			if keys, err := files.List(t.Context(), record.SecretsBeside("u")); err != nil || len(keys) > 0 {
				t.Errorf("beside the record: %v, %v, want nothing", keys, err)
			}
		})
	}
}

// failing is a store that cannot be read.
type failing struct{ Blobs }

func (failing) Get(context.Context, string) (io.ReadCloser, error) {
	return nil, errors.New("the disk does not answer")
}

// A failure of the store is no damage: what it knows stays.
func TestAStoreThatFailsIsNoDamage(t *testing.T) {
	s := &Store{Blobs: failing{}}
	if p, err := s.SecretPrints(t.Context(), "u"); err == nil {
		t.Errorf("SecretPrints() = %+v, want the store's error", p)
	}
	if got, err := s.RememberSecrets(t.Context(), "u", []string{"hunter2-hunter2"}, time.Now()); err == nil {
		t.Errorf("RememberSecrets() = %+v, want the store's error", got)
	}
}
