package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubewatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	kuberest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// runPods selects the pods of runs.
const runPods = "app.kubernetes.io/name=terrier-run"

// podEstate is an estate whose runs are pods, either of a kubelet in this process, which
// starts them as processes of this machine, or of a real node.
type podEstate struct {
	*estate
	carries string           // what carries the pods
	kubelet *testkit.Kubelet // nil if the node is real
	asked   *asked           // by the kubelet
	group   group            // of the real node
	forget  func() error     // removes from the cluster of the real node what is not the estate's
	api     *kubernetes.Clientset
}

// podEstate starts an empty one. The caller closes it, even if it did not start.
func (b *bench) podEstate(ctx context.Context, name string, flags ...string) (*podEstate, error) {
	flags = append([]string{"--lease=", "--metrics-address", "127.0.0.1:0", "--runs-as", "pods", "--run-image", "terrier-runner"}, flags...)
	e := &podEstate{carries: "simulated kubelet", asked: &asked{by: map[string]int{}}}
	var err error
	if e.estate, err = b.estate(ctx, name, flags...); err != nil {
		return e, err
	}
	config, err := e.reach()
	if err != nil {
		return e, err
	}
	config.Wrap(e.asked.count)
	e.kubelet, err = testkit.NewKubelet(config, "", filepath.Join(e.dir, "node"), map[string]string{"terrier-runner": b.bin("terrier-runner")})
	return e, err
}

// reach makes the client of the API server, and returns its configuration.
func (e *podEstate) reach() (*kuberest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", e.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	e.api, err = kubernetes.NewForConfig(config)
	return config, err
}

func (e *podEstate) close() error {
	if e.forget != nil {
		return errors.Join(e.leaveAll(), e.forget())
	}
	if e.kubelet != nil {
		defer e.kubelet.Close()
	}
	return e.estate.close()
}

// asked counts the requests of one client by method.
type asked struct {
	mu sync.Mutex
	by map[string]int
}

func (a *asked) count(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if !strings.HasSuffix(r.URL.Path, "/token") { // it stores nothing
			a.mu.Lock()
			a.by[r.Method]++
			a.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

func (a *asked) now() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.by)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// scrape reads a metric of the controller.
func (e *podEstate) scrape(ctx context.Context, metric string, each func(labels map[string]string, value float64)) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.metrics, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("reading the metrics of the controller: %s", answer.Status)
	}
	if err != nil {
		return err
	}
	return series(string(text), metric, each)
}

// podsSeen is what a watch of the pods of runs told.
type podsSeen struct {
	mu             sync.Mutex
	objects, alive map[types.UID]bool // that are there; whose container has not ended
	there, running int                // the most that ever were, of each
	made           []madePod
	ended          int
}

// madePod is a pod at the moment in which the watch told of it.
type madePod struct {
	namespace, name string
	at              time.Time
}

// watchPods follows the pods of runs from now on, until stop.
func (e *podEstate) watchPods(ctx context.Context) (seen *podsSeen, stop func(), err error) {
	w, err := e.api.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{LabelSelector: runPods})
	if err != nil {
		return nil, nil, err
	}
	seen = &podsSeen{objects: map[types.UID]bool{}, alive: map[types.UID]bool{}}
	go func() {
		for event := range w.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				seen.tell(event.Type, pod)
			}
		}
	}()
	return seen, w.Stop, nil
}

func (s *podsSeen) tell(what kubewatch.EventType, pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what == kubewatch.Added {
		s.made = append(s.made, madePod{pod.Namespace, pod.Name, time.Now()})
	}
	s.objects[pod.UID], s.alive[pod.UID] = true, true
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	for _, c := range pod.Status.ContainerStatuses { // a kubelet tells of the container first
		over = over || c.Name == stack.PodContainer && c.State.Terminated != nil
	}
	if what == kubewatch.Deleted || over {
		delete(s.alive, pod.UID)
	}
	if what == kubewatch.Deleted {
		delete(s.objects, pod.UID)
		s.ended++
	}
	s.there, s.running = max(s.there, len(s.objects)), max(s.running, len(s.alive))
}

// look reads what was seen so far.
func (s *podsSeen) look(do func(*podsSeen)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(s)
}
