package protocol

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/registry"
)

// Bounds of the lists that are kept.
const (
	mostLists   = 10_000
	listsWeight = 32 << 20 // bytes of all; 10,000 versions of a provider for 6 platforms have 2.4 MiB
)

// lists keeps lists of versions as clients get them, so that each is made once for an edition
// of its index, and not for each request. What is in a list depends on the index and, for
// warnings, on the time, and not on the caller, who is let in before. Only the lists of the
// mirror depend on its tenant: they are kept for each group of tenants with the same rules.
type lists struct {
	kept   cache.Map[string, *list] // by what it lists
	making cache.Flight[string, *list]
}

// list is a list as clients get it.
type list struct {
	edition registry.Edition
	plain   []byte // JSON
	packed  []byte // the same in gzip; nil if it is short
	tag     string // of both: it is weak
}

func newLists(weight int, now func() time.Time) *lists {
	return &lists{kept: cache.Map[string, *list]{
		Size: mostLists, Now: now,
		Weight: weight, Weigh: func(what string, l *list) int { return len(what) + len(l.plain) + len(l.packed) },
	}}
}

// of returns the list of an edition. render makes it, and says until when it is right; a zero
// time is for ever.
func (l *lists) of(ctx context.Context, what string, edition registry.Edition, render func() (content any, until time.Time)) (*list, error) {
	if kept, ok := l.kept.Get(what); ok && kept.edition == edition {
		return kept, nil
	}
	return l.making.Do(ctx, what+"\n"+string(edition), func(context.Context) (*list, error) {
		content, until := render()
		plain, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(plain)
		made := &list{edition: edition, plain: plain, tag: `W/"` + hex.EncodeToString(sum[:16]) + `"`}
		if len(plain) >= packedFrom {
			made.packed = packed(plain)
		}
		l.kept.PutUntil(what, made, until)
		return made, nil
	})
}

// list sends a list, or the status 304 to a client that has it. A cache on the way asks each
// time: what was retracted is in no list any more.
func (s *Server) list(w http.ResponseWriter, r *http.Request, what string, edition registry.Edition, render func() (content any, until time.Time)) error {
	l, err := s.lists.of(r.Context(), what, edition, render)
	if err != nil {
		return err
	}
	body := encoded(w, r, l.plain, func([]byte) []byte { return l.packed })
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Cache-Control", "private, no-cache")
	w.Header().Set("ETag", l.tag)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Header.Get("Range") != "" { // there are no parts of it
		r = r.Clone(r.Context())
		r.Header.Del("Range")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	return nil
}
