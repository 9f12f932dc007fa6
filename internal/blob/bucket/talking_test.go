package bucket

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// line is a service. It keeps the last request.
type line struct {
	answer  func(r *http.Request) (io.ReadCloser, error)
	request *http.Request
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	l.request = r
	body, err := l.answer(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
}

// slow gives a byte after each pause, so many in all. It ends with its context.
type slow struct {
	ctx   context.Context
	pause time.Duration
	left  int
}

func (s *slow) Read(p []byte) (int, error) {
	select {
	case <-time.After(s.pause):
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
	if s.left--; s.left < 0 {
		return 0, io.EOF
	}
	p[0] = 'x'
	return 1, nil
}

func (s *slow) Close() error { return nil }

// An answer and a value that is sent may take hours, as long as bytes move.
func TestSlowServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{answer: func(r *http.Request) (io.ReadCloser, error) {
			if b, err := io.ReadAll(r.Body); err != nil || len(b) != 100 {
				return nil, errors.Join(errors.New("the value was not sent"), err)
			}
			return &slow{r.Context(), silence - time.Second, 200}, nil
		}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "http://bucket/", &slow{t.Context(), silence - time.Second, 100})
		start := time.Now()
		resp, err := talking{l}.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Request != r {
			t.Error("the answer is to another request")
		}
		head := make([]byte, 1)
		if _, err := io.ReadFull(resp.Body, head); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour) // the client of a reader may be slower still
		b, err := io.ReadAll(resp.Body)
		if err != nil || len(b) != 199 || time.Since(start) < 5*time.Hour {
			t.Errorf("after %v %d bytes have come, %v, want 199 after the first", time.Since(start), len(b), err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if l.request.Context().Err() == nil || l.request.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("the request, %v, goes on, or asks for a compressed answer", l.request.Header)
		}
	})
}

// A service that is silent for a minute is given up, whatever it was about to do.
func TestSilentServices(t *testing.T) {
	silent := func(ctx context.Context) io.ReadCloser { return &slow{ctx, 24 * time.Hour, 1} }
	for name, do := range map[string]func(ctx context.Context) error{
		"no answer": func(ctx context.Context) error {
			_, err := talking{&line{answer: func(r *http.Request) (io.ReadCloser, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}}}.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "http://bucket/", nil))
			return err
		},
		"half an answer": func(ctx context.Context) error {
			resp, err := talking{&line{answer: func(r *http.Request) (io.ReadCloser, error) {
				return struct {
					io.Reader
					io.Closer
				}{io.MultiReader(strings.NewReader("half"), silent(r.Context())), io.NopCloser(nil)}, nil
			}}}.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "http://bucket/", nil))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); string(b) != "half" {
				return errors.Join(errors.New("half of it was lost"), err)
			} else {
				return err
			}
		},
		"it takes no more bytes": func(ctx context.Context) error {
			_, err := talking{&line{answer: func(r *http.Request) (io.ReadCloser, error) {
				if _, err := io.ReadFull(r.Body, make([]byte, 10)); err != nil {
					return nil, err
				}
				<-r.Context().Done()
				return nil, r.Context().Err()
			}}}.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodPut, "http://bucket/", strings.NewReader("more than ten bytes")))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := do(t.Context())
				if !errors.Is(err, errSilent) || time.Since(start) != silence {
					t.Errorf("after %v the error is %v, want %v after %v", time.Since(start), err, errSilent, silence)
				}
				if found := transport(err); found.trouble != cloud.Unreachable || !found.passing() {
					t.Errorf("it means %v, want that the service is unreachable for now", found)
				}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				if err := do(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, errSilent) {
					t.Errorf("the error of a caller that goes is %v, want that of its context", err)
				}
			})
		})
	}
}
