package protocol

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
)

// packedFrom is the size in bytes from which an answer is packed for a client that takes
// that. Lists of many versions shrink to a tenth. What has signed addresses is smaller.
const packedFrom = 16 << 10

// takesGzip reports whether a client takes an answer that is packed with gzip.
func takesGzip(accepted []string) bool {
	for part := range strings.SplitSeq(strings.Join(accepted, ","), ",") {
		name, weight, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		q, has := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
		value, err := strconv.ParseFloat(q, 64)
		return !has || err == nil && value > 0
	}
	return false
}

// encoded is what a client gets of an answer: it is packed if it is long and the client takes
// that. The headers say so.
func encoded(w http.ResponseWriter, r *http.Request, answer []byte, packed func([]byte) []byte) []byte {
	if len(answer) < packedFrom {
		return answer
	}
	w.Header().Set("Vary", "Accept-Encoding")
	if !takesGzip(r.Header.Values("Accept-Encoding")) {
		return answer
	}
	w.Header().Set("Content-Encoding", "gzip")
	return packed(answer)
}

// packed is an answer in gzip, as fast as that can be made.
func packed(answer []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		panic("protocol: packing an answer: " + err.Error()) // only of an unknown level
	}
	// A buffer takes everything.
	_, _ = z.Write(answer)
	_ = z.Close()
	return b.Bytes()
}
