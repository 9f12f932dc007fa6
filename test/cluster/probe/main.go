// Command probe is what the pods of the cluster's tests run: it serves, fetches,
// writes, takes memory and probes the sandbox, as its arguments say.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/sandbox"
)

func main() {
	sandbox.Main() // isolation starts this program again
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve": // an address
		return serve(args[1])
	case len(args) == 2 && args[0] == "fetch": // a URL
		return fetch(args[1])
	case len(args) == 2 && args[0] == "say": // a text
		_, err := fmt.Println(args[1])
		return err
	case len(args) == 3 && args[0] == "write": // a file and a text
		return os.WriteFile(args[1], []byte(args[2]), 0o644)
	case len(args) == 2 && args[0] == "read": // a file
		text, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(text)
		return err
	case len(args) == 2 && args[0] == "take": // MiB of memory
		return take(args[1])
	case len(args) == 1 && args[0] == "isolation": // the level of the sandbox of runs here, and why
		probed := sandbox.Probe()
		_, err := fmt.Println("level", probed.Level, probed.Reasons)
		return err
	default:
		return fmt.Errorf("%q is no command", args)
	}
}

// serve greets with the host's name, until it is told to end.
func serve(address string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	go end()
	server := &http.Server{Addr: address, ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "hello from %s\n", host)
	})}
	fmt.Println("serving", address)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// end ends the process when the kubelet asks. Process 1 ignores signals that it
// does not catch.
func end() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	<-asked
	os.Exit(0)
}

func fetch(url string) error {
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(os.Stdout, io.LimitReader(answer.Body, 1<<20))
	return err
}

// take touches memory page by page, and keeps it.
func take(mib string) error {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	memory := make([]byte, n<<20)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	fmt.Println("took", len(memory)>>20, "MiB")
	end()
	return nil
}
