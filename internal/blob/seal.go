package blob

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"golang.org/x/crypto/chacha20poly1305"
)

// The sealed form:
//
//	magic (4)  key id (8)  prefix of the nonces (19)
//	chunk 0    up to 64 KiB, encrypted, and its tag (16)
//	chunk 1    …
//
// Every chunk but the last is full, and there is always a last one. The nonce
// of a chunk is the prefix, which is random, its number (4) and whether it is
// the last (1): chunks cannot be reordered, repeated or left off. The
// additional data of each is the header and the blob's key, so a value that is
// moved to another key does not open.
const (
	magic      = "TRB1"
	prefixSize = chacha20poly1305.NonceSizeX - 5
	headerSize = len(magic) + len(keyID{}) + prefixSize
	chunkSize  = 64 << 10
)

type sealed struct {
	store Store
	keys  Keys
}

// Keys are those that values are sealed with.
type Keys interface {
	// Current is the key for new values.
	Current() Key
	// Find returns the key with an ID. It may look for it where keys are kept, since
	// another process may have begun to use a new one.
	Find(ctx context.Context, id string) (key Key, found bool, err error)
}

// fixed are keys that do not change. The first one is for new values.
type fixed []Key

func (f fixed) Current() Key { return f[0] }

func (f fixed) Find(_ context.Context, id string) (Key, bool, error) {
	for _, k := range f {
		if k.ID() == id {
			return k, true, nil
		}
	}
	return Key{}, false, nil
}

// Seal is SealWith for keys that do not change.
func Seal(store Store, key Key, older ...Key) Store {
	return SealWith(store, append(fixed{key}, older...))
}

// SealWith returns a Store that encrypts what it puts into store with the current key,
// and opens what was sealed with any of them. Keys of blobs are not hidden, nor is
// about how long the values are.
func SealWith(store Store, keys Keys) Store { return sealed{store, keys} }

func (s sealed) Put(ctx context.Context, key string, r io.Reader) error {
	value, err := s.sealing(s.keys.Current(), key, r)
	if err != nil {
		return err
	}
	return s.store.Put(ctx, key, value)
}

// sealing is the sealed value of what r holds.
func (s sealed) sealing(with Key, key string, r io.Reader) (io.Reader, error) {
	header := make([]byte, headerSize)
	copy(header, magic)
	copy(header[len(magic):], with.id[:])
	if _, err := rand.Read(header[headerSize-prefixSize:]); err != nil {
		return nil, fmt.Errorf("sealing blob %s: %w", key, err)
	}
	return io.MultiReader(bytes.NewReader(header), &sealer{chunks: newChunks(with, header, key), r: bufio.NewReaderSize(r, chunkSize)}), nil
}

// Get opens a value. What it returns gives out only bytes that were checked,
// and fails instead of ending if something is missing: a reader must not use
// what it read before it has seen io.EOF.
func (s sealed) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	value, err := s.store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	o, err := s.open(ctx, key, value)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening blob %s: %w", key, err), value.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{o, value}, nil
}

func (s sealed) open(ctx context.Context, key string, value io.Reader) (*opener, error) {
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(value, header); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, damaged("it is cut off in its header")
		}
		return nil, err
	}
	if string(header[:len(magic)]) != magic {
		return nil, damaged("it is not sealed, or in a form of the future")
	}
	id := keyID(header[len(magic):])
	k, ok, err := s.keys.Find(ctx, id.String())
	if err != nil {
		return nil, fmt.Errorf("looking for the key %s: %w", id, err)
	}
	if !ok {
		return nil, keyUnknown(id)
	}
	return &opener{chunks: newChunks(k, header, key), r: bufio.NewReaderSize(value, chunkSize+chacha20poly1305.Overhead), key: key}, nil
}

func (s sealed) Delete(ctx context.Context, key string) error { return s.store.Delete(ctx, key) }

func (s sealed) List(ctx context.Context, prefix string) ([]string, error) {
	return s.store.List(ctx, prefix)
}

// chunks makes the nonces and the additional data of one value.
type chunks struct {
	key   Key
	nonce [chacha20poly1305.NonceSizeX]byte
	data  []byte // additional
	next  uint64
}

func newChunks(k Key, header []byte, key string) *chunks {
	c := &chunks{key: k, data: append(bytes.Clone(header), key...)}
	copy(c.nonce[:], header[headerSize-prefixSize:])
	return c
}

// step sets the nonce for the next chunk.
func (c *chunks) step(last bool) error {
	if c.next > math.MaxUint32 {
		return errors.New("it has too many chunks")
	}
	binary.BigEndian.PutUint32(c.nonce[prefixSize:], uint32(c.next))
	c.nonce[prefixSize+4] = 0
	if last {
		c.nonce[prefixSize+4] = 1
	}
	c.next++
	return nil
}

// readChunk fills buf from r and reports whether nothing comes after it.
func readChunk(r *bufio.Reader, buf []byte) (n int, last bool, err error) {
	n, err = io.ReadFull(r, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, true, nil
	}
	if err != nil {
		return n, false, err
	}
	if _, err := r.Peek(1); errors.Is(err, io.EOF) {
		return n, true, nil
	} else if err != nil {
		return n, false, err
	}
	return n, false, nil
}

// sealer reads plain bytes and gives out chunks.
type sealer struct {
	*chunks
	r     *bufio.Reader
	plain [chunkSize]byte
	out   []byte // sealed, not yet given out
	done  bool
}

func (s *sealer) Read(p []byte) (int, error) {
	if len(s.out) == 0 {
		if s.done {
			return 0, io.EOF
		}
		n, last, err := readChunk(s.r, s.plain[:])
		if err != nil {
			return 0, err
		}
		if err := s.step(last); err != nil {
			return 0, err
		}
		s.out = s.key.aead.Seal(nil, s.nonce[:], s.plain[:n], s.data)
		s.done = last
	}
	n := copy(p, s.out)
	s.out = s.out[n:]
	return n, nil
}

// opener reads chunks and gives out plain bytes.
type opener struct {
	*chunks
	r      *bufio.Reader
	key    string
	sealed [chunkSize + chacha20poly1305.Overhead]byte
	out    []byte // opened, not yet given out
	done   bool
	err    error
}

func (o *opener) Read(p []byte) (int, error) {
	for len(o.out) == 0 {
		if o.err != nil {
			return 0, o.err
		}
		if o.done {
			return 0, io.EOF
		}
		if o.err = o.fill(); o.err != nil {
			o.err = fmt.Errorf("reading blob %s: %w", o.key, o.err)
		}
	}
	n := copy(p, o.out)
	o.out = o.out[n:]
	return n, nil
}

func (o *opener) fill() error {
	n, last, err := readChunk(o.r, o.sealed[:])
	if err != nil {
		return err
	}
	if err := o.step(last); err != nil {
		return err
	}
	o.out, err = o.chunks.key.aead.Open(o.sealed[:0], o.nonce[:], o.sealed[:n], o.data)
	if err != nil {
		o.out = nil
		return damaged("it was changed, cut off, or belongs to another key")
	}
	o.done = last
	return nil
}
