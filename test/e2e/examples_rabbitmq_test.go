package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// rabbitMQ is a real broker of the test's own, on loopback.
type rabbitMQ struct{ url, password string }

const rabbitMQServer = "/usr/lib/rabbitmq/bin/rabbitmq-server" // Debian's other one wants to be a service

// startRabbitMQ starts a broker that ends with the test, and so does the daemon
// that Erlang would leave behind.
func startRabbitMQ(t *testing.T) rabbitMQ {
	t.Helper()
	if _, err := os.Stat(rabbitMQServer); err != nil {
		t.Fatalf("%v; make deps installs it", err)
	}
	dir, err := os.MkdirTemp("", "rabbitmq-") // not below t.TempDir, which only its owner may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	epmd, distribution, amqp, management := reserved(t), reserved(t), reserved(t), reserved(t)
	b := rabbitMQ{url: "http://127.0.0.1:" + management, password: "canary-of-the-guide"}
	for name, text := range map[string]string{
		"plugins": "[rabbitmq_management].\n",
		"rabbit.conf": "management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = " + management +
			"\ndefault_user = guide\ndefault_pass = " + b.password + "\nlog.console = true\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "HOME=" + dir, "ERL_EPMD_PORT=" + epmd, "ERL_EPMD_ADDRESS=127.0.0.1",
		"RUNNING_UNDER_SYSTEMD=true", // the script becomes the server
		"RABBITMQ_NODENAME=guide" + epmd + "@localhost", "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT=" + amqp, "RABBITMQ_DIST_PORT=" + distribution,
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}", "RABBITMQ_LOGS=-",
		"RABBITMQ_MNESIA_BASE=" + dir + "/mnesia", "RABBITMQ_LOG_BASE=" + dir + "/log", "RABBITMQ_GENERATED_CONFIG_DIR=" + dir + "/generated",
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + dir + "/plugins", "RABBITMQ_CONFIG_FILE=" + dir + "/rabbit.conf",
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + dir + "/none", "RABBITMQ_CONF_ENV_FILE=" + dir + "/none",
	}
	serve(t, dir, env, "epmd", "-port", epmd, "-address", "127.0.0.1")
	serve(t, dir, env, rabbitMQServer)
	testkit.Eventually(t, testkit.Patience, "the broker answers", func(ctx context.Context) error {
		code, err := b.ask(ctx, "overview")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("it answers %d", code)
		}
		if err != nil {
			log, _ := os.ReadFile(filepath.Join(dir, "log.rabbitmq-server"))
			return fmt.Errorf("%w; it said: %s", err, log)
		}
		return nil
	})
	return b
}

// serve runs a program, as another user where we may choose, until the test ends.
func serve(t *testing.T, dir string, env []string, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "log."+filepath.Base(program)))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(program, args...)
	command.Dir, command.Env, command.Stdout, command.Stderr = dir, env, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		const nobody = 65534
		command.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill() // nothing of it is kept
		_ = command.Wait()
	})
}

func (b rabbitMQ) ask(ctx context.Context, what string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/api/"+what, nil)
	if err != nil {
		return 0, err
	}
	request.SetBasicAuth("guide", b.password)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func (b rabbitMQ) get(t *testing.T, what string) int {
	t.Helper()
	code, err := b.ask(t.Context(), what)
	if err != nil {
		t.Fatal(err)
	}
	return code
}
