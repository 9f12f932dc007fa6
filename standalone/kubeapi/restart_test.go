package kubeapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRestartKeepsEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	dir := filepath.Join(t.TempDir(), "data")
	first, stop := startServer(t, Options{Dir: dir, UnsafeNoFsync: true})
	token := ownerConfig(t, dir).BearerToken
	secret := &corev1.Secret{ObjectMeta: objectMeta("kept"), StringData: map[string]string{"text": "kept"}}
	if _, err := ownerClient(t, dir).CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stop()

	second, stop := startServer(t, Options{Dir: dir, UnsafeNoFsync: true})
	if got, want := second.Address(), first.Address(); got != want {
		t.Errorf("the second start is at %s, want %s as before", got, want)
	}
	if got := ownerConfig(t, dir).BearerToken; got != token {
		t.Error("the second start has another token")
	}
	got, err := ownerClient(t, dir).CoreV1().Secrets("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || string(got.Data["text"]) != "kept" {
		t.Errorf("the secret after a restart is %v, %v", got, err)
	}
	stop()

	taken, err := net.Listen("tcp", first.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	third, stop := startServer(t, Options{Dir: dir, UnsafeNoFsync: true})
	if third.Address() == first.Address() {
		t.Errorf("the third start is at %s, which is taken", third.Address())
	}
	if got, want := ownerConfig(t, dir).Host, "https://"+third.Address(); got != want {
		t.Errorf("the kubeconfig names %s, want %s", got, want)
	}
	running := runtime.NumGoroutine()
	stop()
	// Kubernetes' package variables keep a few; a server has thousands.
	eventually(t, "three servers have taken their goroutines with them", func(context.Context) error {
		if after := runtime.NumGoroutine(); after > before+30 {
			return fmt.Errorf("there are %d goroutines, after %d before and %d while it ran", after, before, running)
		}
		return nil
	})
	t.Logf("goroutines: %d before, %d while it ran, %d after", before, running, runtime.NumGoroutine())
}

// TestKilled writes without pause, kills the control plane in the middle of it,
// and finds everything that it had acknowledged after the next start.
func TestKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, moment := range []string{"opening the store", "starting the kubernetes api"} {
		killWhile(t, dir, moment) // on an empty directory, and on one that was left half made
	}
	var kept []string
	for round, after := range []int{5, 40, 100} {
		plane := startChild(t, dir)
		checkKept(t, dir, kept)
		kept = append(kept, writeUntilKilled(t, dir, plane, round, after)...)
	}
	plane := startChild(t, dir)
	checkKept(t, dir, kept)

	if err := plane.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := plane.Wait(); err != nil {
		t.Errorf("after SIGTERM it ended with %v, want a clean end", err)
	}
}

// A user who stops a control plane while it starts gets a sentence, at whatever moment: the API
// server ends a process with a trace if its own start fails.
func TestStoppedWhileItStarts(t *testing.T) {
	dir := filepath.Join(openTempDir(t), "data")
	moment := "starting the kubernetes api"
	for _, lines := range []int{0, 1, 20, 60, 120, 200, 300, 450, 600} { // that are logged after the moment
		plane := childCommand(dir)
		plane.Env = append(plane.Env, childTalks+"=1")
		log, err := plane.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := plane.Start(); err != nil {
			t.Fatal(err)
		}
		var all []string
		began, after := false, 0
		stop := sync.OnceFunc(func() {
			if err := plane.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Error(err)
			}
		})
		scan := bufio.NewScanner(log)
		scan.Buffer(nil, 16<<20)
		for scan.Scan() {
			all = append(all, scan.Text())
			if began = began || strings.Contains(scan.Text(), moment); !began {
				continue
			}
			if after == lines || strings.Contains(scan.Text(), "control plane ready") {
				stop()
			}
			after++
		}
		if err := scan.Err(); err != nil {
			t.Fatal(err)
		}
		err = plane.Wait()
		text := strings.Join(all, "\n")
		last := all[max(0, len(all)-40):]
		if strings.Contains(text, "\ngoroutine ") || strings.Contains(text, "\npanic: ") {
			t.Errorf("stopped %d lines after it began to start, it ends with a trace:\n%s", lines, strings.Join(last, "\n"))
		}
		ready := strings.Contains(text, "control plane ready")
		switch code := plane.ProcessState.ExitCode(); {
		case ready && err != nil:
			t.Errorf("stopped %d lines after it began to start, when it was ready, it ends with %v:\n%s", lines, err, strings.Join(last, "\n"))
		case !ready && (code != 1 || !strings.Contains(text, "the control plane was stopped while it started")):
			t.Errorf("stopped %d lines after it began to start, it ends with %d and no sentence:\n%s", lines, code, strings.Join(last, "\n"))
		}
	}
	startChild(t, dir) // and the next one starts
}

// killWhile starts a control plane in a process of its own and kills it when it
// logs that moment.
func killWhile(t *testing.T, dir, moment string) {
	t.Helper()
	plane := childCommand(dir)
	log, err := plane.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := plane.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), moment) {
	}
	last := lines.Text()
	_ = plane.Process.Kill()
	_ = plane.Wait() // says that it was killed
	if !strings.Contains(last, moment) {
		t.Fatalf("the control plane ended before %q, with %q", moment, last)
	}
}

func childCommand(dir string) *exec.Cmd {
	plane := exec.Command(os.Args[0])
	plane.Env = append(os.Environ(), childDir+"="+dir)
	return plane
}

// startChild starts a control plane in a process of its own and returns when it
// is ready.
func startChild(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	plane, log := childCommand(dir), &recorder{}
	plane.Stderr = log
	out, err := plane.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := plane.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if plane.ProcessState == nil {
			_ = plane.Process.Kill()
			_ = plane.Wait()
		}
		if t.Failed() {
			t.Logf("process %d logged: %s", plane.Process.Pid, log)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the control plane says %q, %v, want ready", line, err)
	}
	for _, file := range []string{"cmdline", "environ"} {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", plane.Process.Pid, file))
		if err != nil {
			t.Skipf("there is no /proc to look at: %v", err)
		}
		if strings.Contains(string(content), ownerConfig(t, dir).BearerToken) {
			t.Errorf("the token is in the %s of the process", file)
		}
	}
	return plane
}

// writeUntilKilled has four writers create config maps, kills plane after so many
// were acknowledged, and returns the names of all that were.
func writeUntilKilled(t *testing.T, dir string, plane *exec.Cmd, round, after int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	client := ownerClient(t, dir).CoreV1().ConfigMaps("default")
	acknowledged := make(chan string)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("kept-%d-%d-%d", round, w, i)
				if _, err := client.Create(ctx, &corev1.ConfigMap{ObjectMeta: objectMeta(name)}, metav1.CreateOptions{}); err != nil {
					return
				}
				acknowledged <- name
			}
		})
	}
	go func() { writers.Wait(); close(acknowledged) }()
	var names []string
	for name := range acknowledged {
		names = append(names, name)
		if len(names) == after {
			_ = plane.Process.Kill()
		}
	}
	_ = plane.Wait() // says that it was killed
	if len(names) < after {
		t.Fatalf("only %d of %d writes were acknowledged", len(names), after)
	}
	return names
}

func checkKept(t *testing.T, dir string, want []string) {
	t.Helper()
	list, err := ownerClient(t, dir).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, item := range list.Items {
		have[item.Name] = true
	}
	for _, name := range want {
		if !have[name] {
			t.Errorf("%s was acknowledged, and is lost", name)
		}
	}
}
