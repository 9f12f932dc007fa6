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
	sealed := blob.Seal(files, keys[0])
	for name, tt := range map[string]struct {
		read, written Blobs
		content       string
	}{
		"cut off":                        {files, files, `{"key":"`},
		"of another form":                {files, files, `{"key":"AAAA","values":[{"id":"x","forms":["odd"]}]}`},
		"without a key":                  {files, files, `{}`},
		"empty":                          {files, files, ""},
		"not JSON":                       {files, files, "\x00\x01"},
		"sealed with a key that is lost": {sealed, blob.Seal(files, keys[1]), `{}`},
		"changed under its seal":         {sealed, files, "TRB1 is not what it says it is, and so cannot be opened"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := (&Store{Blobs: tt.written}).Put(t.Context(), record.Secrets("u"), []byte(tt.content)); err != nil {
				t.Fatal(err)
			}
			remembersAgain(t, &Store{Blobs: tt.read}, "u")
		})
	}
}

// remembersAgain follows a record that is damaged until it is complete.
func remembersAgain(t *testing.T, s *Store, id string) {
	t.Helper()
	const secret = "hunter2-hunter2"
	if p, err := s.SecretPrints(t.Context(), id); err != nil || !p.All {
		t.Fatalf("SecretPrints() of a damaged record = %+v, %v, want every value hidden", p, err)
	}
	found := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	steps := []struct {
		name          string
		now, settled  time.Time
		damage, whole bool
	}{
		{"the run that finds it", found, found.Add(-time.Hour), true, false},
		{"the run after that", found.Add(time.Minute), found.Add(-time.Hour), false, false},
		{"a run after an apply", found.Add(time.Hour), found.Add(time.Minute), false, true},
		{"and from then on", found.Add(2 * time.Hour), time.Time{}, false, true},
	}
	for _, step := range steps {
		got, err := s.RememberSecrets(t.Context(), id, []string{secret}, step.now, step.settled)
		if err != nil || errors.Is(got.Damage, errSecretsDamaged) != step.damage || got.Incomplete == step.whole {
			t.Errorf("%s: RememberSecrets() = %+v, %v", step.name, got, err)
		}
		p, err := s.SecretPrints(t.Context(), id)
		if err != nil || p.All == step.whole || p.String("it is "+secret) == "it is "+secret {
			t.Errorf("%s: SecretPrints() hides everything: %v, %v; of a known value: %q", step.name, p.All, err, p.String("it is "+secret))
		}
		if shown := p.String("known to all") == "known to all"; shown != step.whole {
			t.Errorf("%s: a value that is no secret is shown: %v", step.name, shown)
		}
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
	if got, err := s.RememberSecrets(t.Context(), "u", []string{"hunter2-hunter2"}, time.Now(), time.Time{}); err == nil {
		t.Errorf("RememberSecrets() = %+v, want the store's error", got)
	}
}
