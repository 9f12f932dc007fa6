package archive

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/terrier-iac/terrier/internal/fault"
)

// zstdWindow bounds the window of a layer that is compressed with zstd: a decoder keeps that
// much of what it wrote in memory. RFC 8878 recommends 8 MiB, and levels up to 19 of zstd use
// no more. Level 20 uses 32 MiB. Larger windows need --ultra or --long.
const zstdWindow = 32 << 20

// Layer reads a layer of a container image, compressed with gzip or zstd or not at all, as
// the tar stream in it. A layer whose zstd window is too large is Invalid. Closing it closes
// the layer.
func Layer(layer io.ReadCloser) (io.ReadCloser, error) {
	buffered := bufio.NewReader(layer)
	magic, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, layer.Close())
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		plain, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, errors.Join(unreadable(err), layer.Close())
		}
		return plainLayer{plain, layer, func() {}}, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		// A frame of one segment has its content for a window, which the first option bounds, too.
		plain, err := zstd.NewReader(buffered, zstd.WithDecoderMaxMemory(zstdWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, errors.Join(err, layer.Close())
		}
		return plainLayer{zstdStream{plain}, layer, plain.Close}, nil
	default:
		return plainLayer{buffered, layer, func() {}}, nil
	}
}

// plainLayer is a layer without its compression.
type plainLayer struct {
	io.Reader
	layer io.Closer
	free  func()
}

func (l plainLayer) Close() error {
	l.free()
	return l.layer.Close()
}

// zstdStream says what a user can do about a window that is too large.
type zstdStream struct{ *zstd.Decoder }

func (z zstdStream) Read(p []byte) (int, error) {
	n, err := z.Decoder.Read(p)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		err = fault.New(fault.Invalid, Reason, fmt.Errorf("a layer is compressed with zstd and a window of more than %d MiB: "+
			"compress it with gzip, or with zstd at a level of at most 19 and without --long", zstdWindow>>20))
	}
	return n, err
}
