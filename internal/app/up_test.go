package app

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
)

// The first Ctrl-C ends the context, the second says what a third would cost.
func TestInterruptible(t *testing.T) {
	progress, said := io.Pipe()
	ctx, stop := interruptible(t.Context(), said)
	defer stop()
	for range 2 {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
	}
	text := make([]byte, 1024)
	n, err := progress.Read(text)
	if got := string(text[:n]); err != nil || !strings.Contains(got, "still stopping, for at most 10s") || !strings.Contains(got, "The next Ctrl-C ends this program at once") {
		t.Errorf("said %q, %v", got, err)
	}
}

// The first Ctrl-C is no second one because it ended the context of the whole command
// line as well.
func TestInterruptibleOfAnInterruptedParent(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	cancel()
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, syscall.SIGINT)
	defer signal.Stop(seen)
	var said strings.Builder
	_, stop := interruptible(parent, &said)
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-seen
	stop()
	if said.Len() > 0 {
		t.Errorf("the first signal says %q, want nothing", &said)
	}
}

// Warnings of client-go are not for users, and its errors are.
func TestWarningsOfTheClientAreInformation(t *testing.T) {
	var said strings.Builder
	log := slog.New(demoted{slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn})}).With("a", "b").WithGroup("g")
	log.Warn("a watch was closed")
	log.Error("a certificate is wrong")
	if got := said.String(); strings.Contains(got, "watch") || !strings.Contains(got, "certificate") {
		t.Errorf("logged %q, want the error alone", got)
	}
}

// A program that runs need is missed before anything starts, by the flag that
// names it.
func TestWhatRunsNeedIsChecked(t *testing.T) {
	dir := t.TempDir()
	good := func() Options {
		return Options{Config: Config{Engine: "../../bin/tofu", Runner: "../../bin/terrier-runner", Mirror: "../../bin/mirror", Registries: true}, Environ: func(string) string { return "" }}
	}
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"a runner that is not there":          {func(c *Config) { c.Runner = dir + "/x" }, "--runner: " + dir + "/x does not exist"},
		"a runner that is a directory":        {func(c *Config) { c.Runner = dir }, "--runner: "},
		"a runner that is another program":    {func(c *Config) { c.Runner = "/bin/true" }, "--runner: /bin/true is not terrier-runner: "},
		"a runner that ends with an error":    {func(c *Config) { c.Runner = "/bin/false" }, "--runner: /bin/false is not terrier-runner: it ended with 1"},
		"an engine that is not there":         {func(c *Config) { c.Engine = dir + "/tofu" }, "--engine: no engine at " + dir + "/tofu"},
		"a named engine that is not there":    {func(c *Config) { c.Engines = []string{"old=" + dir + "/tofu"} }, "--engine-named old: " + dir + "/tofu does not exist"},
		"a mirror that is not there":          {func(c *Config) { c.Mirror = dir + "/mirror" }, "--provider-mirror: there is no directory " + dir + "/mirror"},
		"an authority that is not there":      {func(c *Config) { c.RunCA = dir + "/ca.pem" }, "--run-ca-file: "},
		"an authority that is none":           {func(c *Config) { c.RunCA = "up_test.go" }, "holds no certificate"},
		"a variable without a value":          {func(c *Config) { c.RunEnv = []string{"HTTPS_PROXY"} }, "write --run-env HTTPS_PROXY=VALUE"},
		"the rest of a value with a comma":    {func(c *Config) { c.RunEnv = []string{"NO_PROXY=localhost", "10.0.0.0/8"} }, "a value with a comma stands in --run-env"},
		"a variable that the supervisor sets": {func(c *Config) { c.RunEnv = []string{"TF_LOG=trace"} }, "--run-env: TF_LOG"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good()
			tt.change(&o.Config)
			if err := check(t, o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("checkPrograms() = %v, want %q", err, tt.want)
			}
		})
	}
	none := good()
	none.Config.Engine, none.Config.Runner = dir+"/tofu", dir+"/x"
	if err := check(t, none); fault.Of(err) != fault.Missing || !strings.Contains(err.Error(), "; --engine: ") {
		t.Errorf("checkPrograms() = %v, want all that is missing on one line", err)
	}
	if err := check(t, good()); err != nil {
		t.Errorf("checkPrograms() = %v where all is there", err)
	}
}

func check(t *testing.T, o Options) error {
	return checkPrograms(t.Context(), o, func() (findEngine, error) { return findEngines(o, slog.New(slog.DiscardHandler)) })
}
