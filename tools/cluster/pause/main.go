// Command pause is the first process of each pod of the test cluster: it holds
// the pod's namespaces open, and does nothing else.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	// Where containers share one process namespace, orphans are ours.
	signal.Ignore(syscall.SIGCHLD)
	<-end
}
