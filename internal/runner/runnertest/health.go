package runnertest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit/port"
)

// patient returns a stack whose runs may reach servers of the test.
func patient(t *testing.T, f Fixture) *Stack {
	t.Helper()
	s := f.stack(t, f.New(t), oneResource)
	s.Job.Engine, s.Job.Managed, s.Job.Files = runner.Engine{}, false, nil // none is needed
	s.Job.Sandbox.Network = "host"
	return s
}

func asks(checks ...runner.Check) func(*runner.Job) {
	return func(j *runner.Job) { j.Checks = checks }
}

func httpCheck(name, url string) runner.Check {
	return runner.Check{Name: name, Kind: stack.HTTPCheck, Target: url, Shown: url}
}

func tcpCheck(name, address string) runner.Check {
	return runner.Check{Name: name, Kind: stack.TCPCheck, Target: address, Shown: address}
}

// closedPort returns an address on which no server listens.
func closedPort(t *testing.T, f Fixture) string {
	t.Helper()
	host := f.host()
	return net.JoinHostPort(host, strconv.Itoa(port.Reserve(t, host)))
}

// silent returns the address of a server that takes connections and never says
// anything, and a channel that tells of each.
func silent(t *testing.T, f Fixture) (address string, met <-chan struct{}) {
	t.Helper()
	l := f.listen(t)
	came, over := make(chan struct{}, 16), make(chan struct{})
	go func() {
		defer close(over)
		var open []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			open = append(open, c)
			came <- struct{}{}
		}
		for _, c := range open {
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-over
	})
	return l.Addr().String(), came
}

func healthy(t *testing.T, f Fixture) {
	s := patient(t, f)
	var well atomic.Bool
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	server.Listener = f.listen(t)
	server.Start()
	up := server.Listener.Addr().String()
	dead := closedPort(t, f)
	ask := asks(httpCheck("web", server.URL+"/ready"), tcpCheck("db", dead), tcpCheck("port", up),
		runner.Check{Name: "odd", Broken: `the module has no output "url"`})

	d := s.Finish(s.Start(stack.HealthRun, ask))
	if d.Outcome != stack.Failed || d.Step != "health" || len(d.Health) != 4 {
		t.Fatalf("ended %s in %q with %+v, want Failed in health with four answers: %s", d.Outcome, d.Step, d.Health, d.Message)
	}
	for _, want := range []string{"3 of 4 health checks failed", "web: " + server.URL + "/ready: answered 503 Service Unavailable, after ",
		"db: " + dead + ": connect: connection refused, after ", `odd: the module has no output "url"`} {
		if !strings.Contains(d.Message, want) {
			t.Errorf("message = %q, want %q in it", d.Message, want)
		}
	}
	if h := d.Health[2]; h.Name != "port" || !h.OK || d.Health[0].OK || d.Health[1].OK || d.Health[3].OK {
		t.Errorf("answers = %+v, want only that port is open", d.Health)
	}
	if steps(d) != "health" || d.Resources != 0 || d.State != (runner.StateID{}) || d.Plan != nil || d.Outputs != nil {
		t.Errorf("asking for health took the steps %q and left %+v", steps(d), d.Report)
	}
	well.Store(true)
	d = s.Must(stack.HealthRun, asks(httpCheck("web", server.URL), tcpCheck("port", up)))
	if !Has("web passed: "+server.URL+" answered 200 OK after ", d.Log) {
		t.Errorf("the log %s does not say how it went", d.Log)
	}
}

func unhurried(t *testing.T, f Fixture) {
	s := patient(t, f)
	address, met := silent(t, f)
	slow := httpCheck("slow", "http://"+address)

	slow.Timeout = 300 * time.Millisecond
	d := s.Finish(s.Start(stack.HealthRun, asks(slow)))
	if d.Outcome != stack.Failed || !strings.Contains(d.Message, "slow: http://"+address+": no answer within 300ms") {
		t.Errorf("a check without an answer ended %s: %s", d.Outcome, d.Message)
	}
	slow.Timeout = time.Minute
	d = s.Finish(s.Start(stack.HealthRun, asks(slow), func(j *runner.Job) { j.Limits.Health = 300 * time.Millisecond }))
	if d.Outcome != stack.TimedOut {
		t.Errorf("checks beyond the deadline of their run ended %s: %s", d.Outcome, d.Message)
	}
	for range len(met) {
		<-met
	}
	id := s.Start(stack.HealthRun, asks(slow))
	select {
	case <-met:
	case <-time.After(patience):
		t.Fatal("the server was not asked")
	}
	if err := s.runner.Cancel(t.Context(), s.Job.Stack, id); err != nil {
		t.Fatal(err)
	}
	if d := s.Finish(id); d.Outcome != stack.Interrupted {
		t.Errorf("cancelled checks ended %s: %s", d.Outcome, d.Message)
	}
}

func isolated(t *testing.T, f Fixture) {
	s := patient(t, f)
	s.Job.Sandbox.Network = "none"
	address, met := silent(t, f)
	d := s.Finish(s.Start(stack.HealthRun, asks(tcpCheck("outside", address))))
	if d.Outcome != stack.Failed || len(met) != 0 {
		t.Errorf("without a network the check ended %s and met %d servers: %s", d.Outcome, len(met), d.Message)
	}
}

func discreet(t *testing.T, f Fixture) {
	const token = "canary-token-31f0"
	s := patient(t, f)
	dead := closedPort(t, f)
	check := runner.Check{Name: "web", Kind: stack.HTTPCheck, Target: "http://" + dead + "/" + token, Shown: "http://" + dead + "/(sensitive)"}
	id := s.Start(stack.HealthRun, asks(check, tcpCheck("named", token+".invalid:80")), func(j *runner.Job) { j.Mask = []string{token} })
	report := s.Await()
	if !strings.Contains(report.Message, "http://"+dead+"/(sensitive): connect: connection refused") {
		t.Errorf("message = %q, want the address without what is sensitive", report.Message)
	}
	for _, h := range report.Health {
		if strings.Contains(h.Message, token) {
			t.Errorf("the answer of %s shows the token: %s", h.Name, h.Message)
		}
	}
	if Has(token, s.Read(id, runner.FileLog), s.Read(id, runner.FileEvents), []byte(report.Message)) {
		t.Errorf("the token was stored: %s", s.Read(id, runner.FileLog))
	}
	s.Finish(id)
}
