package serving_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/app/serving"
)

func ends(at time.Time) tls.Certificate {
	return tls.Certificate{Leaf: &x509.Certificate{NotAfter: at}}
}

// A server shows the certificate that was renewed while it runs, and the last one as long as
// there is no other.
func TestARunningServerShowsTheRenewedCertificate(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	first, second := now.Add(100*day), now.Add(700*day)
	newest, failure, asked := ends(first), error(nil), 0
	var log strings.Builder
	c := serving.New(ends(first), func() (tls.Certificate, error) { asked++; return newest, failure },
		func() time.Time { return now }, slog.New(slog.NewTextHandler(&log, nil)))
	shows := func(why string, want time.Time, asks int) {
		t.Helper()
		for range 2 {
			got, err := c.Get(nil)
			if err != nil || !got.Leaf.NotAfter.Equal(want) {
				t.Errorf("%s: it shows a certificate that ends %s, %v, want %s", why, got.Leaf.NotAfter, err, want)
			}
		}
		if asked != asks {
			t.Errorf("%s: another certificate was asked for %d times, want %d", why, asked, asks)
		}
	}
	now = now.Add(69 * day)
	shows("while it lasts", first, 0)
	now = now.Add(2 * day)
	shows("a month before its end, with no other one", first, 1)
	now, failure = now.Add(time.Hour), errors.New("no such file")
	shows("an hour later, when the other one cannot be read", first, 2)
	if got := strings.Count(log.String(), "not renewed"); got != 1 {
		t.Errorf("it says %d times that it is not renewed, want once a day: %s", got, log.String())
	}
	now, failure, newest = now.Add(time.Hour), nil, ends(second)
	shows("once there is another one", second, 3)
	if !strings.Contains(log.String(), "certificate of the http api renewed") {
		t.Errorf("it says %s, want the renewal", log.String())
	}
	now = now.Add(time.Hour)
	shows("while that lasts", second, 3)
}
