package nameserver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// keys are those of two zones.
func keys() map[string]Key {
	return map[string]Key{
		"a.example.": {Name: "a.", Secret: "c2VjcmV0LW9mLWE="},
		"b.example.": {Name: "b.", Secret: "c2VjcmV0LW9mLWI="},
	}
}

func start(t *testing.T, file string) *Server {
	t.Helper()
	s, err := Start("127.0.0.1:0", file, keys())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// update changes a zone with the key of another one, or none.
func update(t *testing.T, s *Server, zone, key, record string) int {
	t.Helper()
	rr, err := dns.NewRR(record)
	if err != nil {
		t.Fatal(err)
	}
	m := new(dns.Msg)
	m.SetUpdate(zone)
	m.Insert([]dns.RR{rr})
	c := &dns.Client{Net: "tcp"}
	if key != "" {
		k := keys()[key]
		c.TsigSecret = map[string]string{k.Name: k.Secret}
		m.SetTsig(k.Name, dns.HmacSHA256, 300, time.Now().Unix())
	}
	r, _, err := c.ExchangeContext(t.Context(), m, s.Address())
	if err != nil {
		t.Fatal(err)
	}
	return r.Rcode
}

func TestUpdatesAreSignedWithTheKeyOfTheirZone(t *testing.T) {
	s := start(t, "")
	for name, c := range map[string]struct {
		zone, key, record string
		want              int
	}{
		"without a key":     {"a.example.", "", "x.a.example. 300 IN A 10.0.0.1", dns.RcodeRefused},
		"with another key":  {"a.example.", "b.example.", "x.a.example. 300 IN A 10.0.0.1", dns.RcodeRefused},
		"a name elsewhere":  {"a.example.", "a.example.", "x.b.example. 300 IN A 10.0.0.1", dns.RcodeNotZone},
		"a zone of no one":  {"c.example.", "a.example.", "x.c.example. 300 IN A 10.0.0.1", dns.RcodeNotZone},
		"its own, and once": {"a.example.", "a.example.", "x.a.example. 300 IN A 10.0.0.2", dns.RcodeSuccess},
	} {
		if got := update(t, s, c.zone, c.key, c.record); got != c.want {
			t.Errorf("%s: the code is %s, want %s", name, dns.RcodeToString[got], dns.RcodeToString[c.want])
		}
	}
	if diff := cmp.Diff([]string{"x.a.example.\t300\tIN\tA\t10.0.0.2"}, s.Records()); diff != "" {
		t.Errorf("the records (-want +got):\n%s", diff)
	}
}

func TestRecordsAreAnsweredAndKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records")
	if got := update(t, start(t, file), "a.example.", "a.example.", "x.a.example. 300 IN A 10.0.0.1"); got != dns.RcodeSuccess {
		t.Fatalf("the update is answered with %s", dns.RcodeToString[got])
	}
	again := start(t, file)
	for name, want := range map[string]int{"x.a.example.": dns.RcodeSuccess, "y.a.example.": dns.RcodeNameError, "x.elsewhere.": dns.RcodeRefused} {
		m := new(dns.Msg)
		m.SetQuestion(name, dns.TypeA)
		r, _, err := (&dns.Client{}).ExchangeContext(t.Context(), m, again.Address())
		if err != nil {
			t.Fatal(err)
		}
		if r.Rcode != want || len(r.Answer) != map[bool]int{true: 1}[want == dns.RcodeSuccess] {
			t.Errorf("%s is answered with %s, %v", name, dns.RcodeToString[r.Rcode], r.Answer)
		}
	}
}
