package cosign

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/sigstore-go/pkg/bundle"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/source/cosign/cosigntest"
)

// secretOf is a Secret of so many keys.
func secretOf(t *testing.T, keys int) map[string][]byte {
	t.Helper()
	data := map[string][]byte{"note.txt": []byte("no key")}
	for i := range keys {
		data[fmt.Sprintf("%02d.pub", i)] = cosigntest.NewKey(t, cosigntest.Ed25519).Public
	}
	return data
}

const artifact = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// Each candidate is parsed once, however many keys there are, and an error has few of the
// reasons.
func TestEachCandidateIsParsedOnce(t *testing.T) {
	if _, err := WithKeys(secretOf(t, 64)); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "the Secret has 64 public keys, and at most 32 are tried") {
		t.Fatalf("WithKeys() of 64 keys = %v, want an error that says how many may be", err)
	}
	v, err := WithKeys(secretOf(t, keysMost))
	if err != nil {
		t.Fatal(err)
	}
	text := cosigntest.NewKey(t, cosigntest.ECDSA).Bundle(t, cosigntest.Statement(artifact, cosigntest.SignPredicate))
	parses := 0
	found := func(at func(n int)) iter.Seq2[candidate, error] {
		return func(yield func(candidate, error) bool) {
			for n := range candidatesMost {
				at(n)
				if !yield(candidate{bundle: func(bool) (*bundle.Bundle, error) {
					parses++
					b := &bundle.Bundle{}
					return b, b.UnmarshalJSON(text)
				}}, nil) {
					return
				}
			}
		}
	}
	var all tally
	if by, err := v.best(t.Context(), found(func(int) {}), artifact, &all); err != nil || by.Kind != "" || all.seen != candidatesMost || parses != candidatesMost {
		t.Errorf("best() = %+v, %v after %d candidates and %d parses, want nothing after %d of both", by, err, all.seen, parses, candidatesMost)
	}
	if len(all.refused) != reasonsMost || all.more != keysMost*candidatesMost-reasonsMost || !strings.HasSuffix(all.why().Error(), fmt.Sprintf("and %d more reasons", all.more)) {
		t.Errorf("the error has %d reasons and %d more: %v", len(all.refused), all.more, all.why())
	}

	ctx, stop := context.WithCancel(t.Context())
	parses = 0
	_, err = v.best(ctx, found(func(n int) {
		if n == 1 {
			stop()
		}
	}), artifact, &tally{})
	if !errors.Is(err, context.Canceled) || parses != 1 {
		t.Errorf("once the context has ended, best() = %v after %d parses, want the end after one", err, parses)
	}
}

// large is a registry in which an artifact has many large bundles that are none.
type large struct {
	bundles int
	pad     []byte
	index   []byte
	at      map[string]string // manifests by their digests
	of      map[string]int    // bundles by their digests
	last    []byte            // one more bundle; none if empty
	live    uint64            // the most bytes that were live while a bundle was asked for
}

// content is a bundle, of which no two are the same.
func (l *large) content(n int) []byte {
	if n == l.bundles {
		return l.last
	}
	return append(strconv.AppendInt(nil, int64(n), 10), l.pad...)
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}

func newLarge(t *testing.T, bundles, size int, last []byte) *large {
	t.Helper()
	l := &large{bundles: bundles, pad: bytes.Repeat([]byte("x"), size-2), at: map[string]string{}, of: map[string]int{}, last: last}
	type descriptor struct {
		MediaType    string `json:"mediaType"`
		ArtifactType string `json:"artifactType,omitempty"`
		Digest       string `json:"digest"`
		Size         int    `json:"size"`
	}
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	index := map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}
	var all []descriptor
	for n := range bundles + 1 {
		c := l.content(n)
		if len(c) == 0 {
			continue
		}
		digest := sum(c)
		l.of[digest] = n
		m := encode(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": descriptor{MediaType: "application/vnd.oci.empty.v1+json", Digest: sum([]byte("{}")), Size: 2},
			"layers": []descriptor{{MediaType: bundleType + ".v0.3+json", Digest: digest, Size: len(c)}}})
		l.at[sum(m)] = string(m)
		all = append(all, descriptor{manifestType, bundleType + ".v0.3+json", sum(m), len(m)})
	}
	index["manifests"] = all
	l.index = encode(index)
	return l
}

func (l *large) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, kind, _ := strings.Cut(r.URL.Path, "/v2/team/net/")
	kind, digest, _ := strings.Cut(kind, "/")
	n, is := l.of[digest]
	switch {
	case r.URL.Path == "/v2/":
	case kind == "referrers":
		w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
		_, _ = w.Write(l.index)
	case kind == "manifests" && l.at[digest] != "":
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		_, _ = w.Write([]byte(l.at[digest]))
	case kind == "blobs" && is:
		l.live = max(l.live, live())
		if n == l.bundles {
			_, _ = w.Write(l.last)
			return
		}
		_, _ = w.Write(strconv.AppendInt(nil, int64(n), 10))
		_, _ = w.Write(l.pad)
	default:
		http.NotFound(w, r)
	}
}

// live are the bytes that the program holds.
func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Of many large candidates one at a time is in memory, as many as the bound on all of them lets,
// and the error says that there are more. A small signature behind them counts.
func TestLargeCandidates(t *testing.T) {
	const size = 4 << 20
	serve := func(l *large) name.Repository {
		t.Helper()
		server := httptest.NewServer(l)
		t.Cleanup(server.Close)
		repo, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/team/net")
		if err != nil {
			t.Fatal(err)
		}
		return repo
	}
	l := newLarge(t, 60, size, nil)
	repo := serve(l)
	v, err := WithKeys(secretOf(t, keysMost))
	if err != nil {
		t.Fatal(err)
	}
	before := live()
	_, err = v.Verify(t.Context(), repo, artifact, nil)
	for _, want := range []string{"none of 8 signatures", "and 52 more were not looked at, because at most 50 in one place are, of 32 MiB in all: delete from the repository"} {
		if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("Verify() = %.2000v, want an error with %q", err, want)
		}
	}
	if l.live > before+3*size {
		t.Errorf("at most %d MiB were live, want at most %d more than before", (l.live-before)>>20, 3*size>>20)
	}

	key := cosigntest.NewKey(t, cosigntest.ECDSA)
	l = newLarge(t, 20, size, key.Bundle(t, cosigntest.Statement(artifact, cosigntest.SignPredicate)))
	if v, err = WithKeys(map[string][]byte{"a.pub": key.Public}); err != nil {
		t.Fatal(err)
	}
	if by, err := v.Verify(t.Context(), serve(l), artifact, nil); err != nil || by.By != key.Fingerprint {
		t.Errorf("with a signature behind large bundles Verify() = %+v, %.500v, want that of the key", by, err)
	}
}
