package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	appsv1 "k8s.io/api/apps/v1"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// get fetches over the cluster's network, in which this test runs.
func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Timeout: 2 * time.Second}
	var text []byte
	// The rules of Services take a moment.
	Eventually(t, "fetched", func(context.Context) error {
		answer, err := client.Get(url)
		if err != nil {
			return err
		}
		text, err = io.ReadAll(answer.Body)
		return errors.Join(err, answer.Body.Close())
	})
	return string(text)
}

func TestPodAnswersOnItsAddress(t *testing.T) {
	t.Parallel()
	c := Open(t)
	pod := c.Pod(t, "server", probe(t), []string{"serve", ":8080"})
	if got, want := get(t, "http://"+pod.Status.PodIP+":8080"), "hello from server\n"; got != want {
		t.Errorf("the pod said %q, want %q", got, want)
	}
}

func TestLogsAndExec(t *testing.T) {
	t.Parallel()
	c := Open(t)
	c.Pod(t, "server", probe(t), []string{"serve", ":8080"})
	out, err := c.Exec(t, "server", "/cluster-probe", "fetch", "http://localhost:8080")
	if want := "hello from server\n"; out != want || err != nil {
		t.Errorf("exec printed %q, %v, want %q", out, err, want)
	}
	if got, want := c.Logs(t, "server"), "serving :8080\n"; got != want {
		t.Errorf("the logs are %q, want %q", got, want)
	}
	if _, err := c.Exec(t, "server", "/cluster-probe", "no such command"); err == nil {
		t.Error("a command that fails is not told to")
	}
}

func TestServiceAnswersByAddressAndByName(t *testing.T) {
	t.Parallel()
	c := Open(t)
	labels := map[string]string{"app": "greeter"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "greeter"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: new(int64(2)),
				Containers: []corev1.Container{{Name: "main", Image: probe(t), Args: []string{"serve", ":8080"}, ReadinessProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)}}, PeriodSeconds: 1,
				}}},
			}},
		},
	}
	if _, err := c.Client.AppsV1().Deployments(c.Namespace).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service, err := c.Client.CoreV1().Services(c.Namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "greeter"},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.AwaitDeployment(t, "greeter")
	if got := get(t, "http://"+service.Spec.ClusterIP); !strings.HasPrefix(got, "hello from greeter-") {
		t.Errorf("from the node the Service said %q", got)
	}
	c.Pod(t, "client", probe(t), []string{"serve", ":8080"})
	for _, host := range []string{service.Spec.ClusterIP, "greeter", "greeter." + c.Namespace + ".svc.cluster.local"} {
		got, err := c.Exec(t, "client", "/cluster-probe", "fetch", "http://"+host)
		if !strings.HasPrefix(got, "hello from greeter-") || err != nil {
			t.Errorf("from a pod %s said %q, %v", host, got, err)
		}
	}
	if _, err := c.Exec(t, "client", "/cluster-probe", "fetch", "http://elsewhere.example"); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("a name outside of the cluster: %v, want no such host", err)
	}
}

func TestPodReachesTheTest(t *testing.T) {
	t.Parallel()
	c := Open(t)
	listener, err := net.Listen("tcp", NodeAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.WriteString(w, "hello from the test\n"); err != nil {
			t.Error(err)
		}
	})}
	go server.Serve(listener)
	defer server.Close()
	pod := c.Pod(t, "client", probe(t), []string{"fetch", "http://" + listener.Addr().String()})
	c.AwaitPod(t, pod.Name, "ended", Ended)
	if got, want := c.Logs(t, "client"), "hello from the test\n"; got != want {
		t.Errorf("the pod heard %q, want %q", got, want)
	}
}

func TestClaimBindsAndBelongsToTheGroup(t *testing.T) {
	t.Parallel()
	c := Open(t)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
	if _, err := c.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mounted := func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)), FSGroup: new(int64(65532))}
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
	c.Pod(t, "writer", probe(t), []string{"write", "/data/file", "kept"}, mounted)
	writer := c.AwaitPod(t, "writer", "ended", Ended)
	if writer.Status.Phase != corev1.PodSucceeded {
		t.Fatalf("writing: %s", c.Logs(t, "writer"))
	}
	c.Pod(t, "reader", probe(t), []string{"read", "/data/file"}, mounted)
	c.AwaitPod(t, "reader", "ended", Ended)
	if got := c.Logs(t, "reader"); got != "kept" {
		t.Errorf("the next pod read %q, want %q", got, "kept")
	}
}

func TestMemoryLimitKills(t *testing.T) {
	t.Parallel()
	c := Open(t)
	c.Pod(t, "greedy", probe(t), []string{"take", "256"}, func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	})
	pod := c.AwaitPod(t, "greedy", "ended", Ended)
	if end := pod.Status.ContainerStatuses[0].State.Terminated; end.Reason != "OOMKilled" {
		t.Errorf("the container ended by %s (code %d), want OOMKilled", end.Reason, end.ExitCode)
	}
}

func TestEvictionHeedsTheBudget(t *testing.T) {
	t.Parallel()
	c := Open(t)
	c.Pod(t, "server", probe(t), []string{"serve", ":8080"})
	budgets := c.Client.PolicyV1().PodDisruptionBudgets(c.Namespace)
	none := intstr.FromInt32(0)
	if _, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "server"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "server"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "server", Namespace: c.Namespace}}
	if err := c.Client.PolicyV1().Evictions(c.Namespace).Evict(t.Context(), eviction); !apierrors.IsTooManyRequests(err) {
		t.Errorf("evicting against the budget: %v, want 429", err)
	}
	if err := budgets.Delete(t.Context(), "server", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "evicted", func(ctx context.Context) error {
		return c.Client.PolicyV1().Evictions(c.Namespace).Evict(ctx, eviction)
	})
}

func TestRestrictedNamespaceRefusesRoot(t *testing.T) {
	t.Parallel()
	c := Open(t, "pod-security.kubernetes.io/enforce", "restricted")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "root"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: probe(t), Args: []string{"say", "hello"}}}},
	}
	if _, err := c.Client.CoreV1().Pods(c.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a pod that may run as root: %v, want Forbidden", err)
	}
	c.Pod(t, "confined", probe(t), []string{"say", "hello"}, restrictedUser)
	c.AwaitPod(t, "confined", "ended", Ended)
	if got, want := c.Logs(t, "confined"), "hello\n"; got != want {
		t.Errorf("the confined pod said %q, want %q", got, want)
	}
}

func TestProjectedTokenHasItsAudience(t *testing.T) {
	t.Parallel()
	c := Open(t)
	c.Pod(t, "caller", probe(t), []string{"read", "/token/token"}, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "terrier", ExpirationSeconds: new(int64(600)), Path: "token"}}},
		}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "token", MountPath: "/token", ReadOnly: true}}
	})
	c.AwaitPod(t, "caller", "ended", Ended)
	token := c.Logs(t, "caller")
	for audience, want := range map[string]bool{"terrier": true, "another": false} {
		review, err := c.Client.AuthenticationV1().TokenReviews().Create(t.Context(), &authv1.TokenReview{
			Spec: authv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Authenticated != want {
			t.Errorf("for audience %s the token is valid: %v, want %v (%s)", audience, review.Status.Authenticated, want, review.Status.Error)
		}
	}
}

func TestNetworkPoliciesAreEnforced(t *testing.T) {
	t.Parallel()
	c := Open(t)
	server := c.Pod(t, "server", probe(t), []string{"serve", ":8080"})
	for _, name := range []string{"friend", "stranger", "confined"} {
		c.Pod(t, name, probe(t), []string{"serve", ":8080"})
	}
	hears := func(from string) error {
		_, err := c.Exec(t, from, "/cluster-probe", "fetch", "http://"+server.Status.PodIP+":8080")
		return err
	}
	for _, from := range []string{"friend", "stranger", "confined"} {
		if err := hears(from); err != nil {
			t.Errorf("before there is a policy: %v", err)
		}
	}
	selected := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	for _, policy := range []*networkingv1.NetworkPolicy{
		{ObjectMeta: metav1.ObjectMeta{Name: "friends-come-in"}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *selected("server"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: selected("friend")}, {PodSelector: selected("confined")}}}},
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "nothing-goes-out"}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *selected("confined"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		}},
	} {
		if _, err := c.Client.NetworkingV1().NetworkPolicies(c.Namespace).Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{"stranger", "confined"} {
		Eventually(t, "refused to "+from, func(context.Context) error {
			if hears(from) == nil {
				return errors.New("it gets through")
			}
			return nil
		})
	}
	if err := hears("friend"); err != nil {
		t.Errorf("a policy allows it: %v", err)
	}
}

func TestImagesOfAFileArePulledByAnyName(t *testing.T) {
	t.Parallel()
	c := Open(t)
	image := ProgramImage(t, filepath.Join("..", "..", "bin", "cluster-probe"))
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("registry.example/of/" + c.Namespace + ":1")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		t.Fatal(err)
	}
	load := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", "cluster"), "--state", os.Getenv("TERRIER_CLUSTER"), "load", file)
	if text, err := load.CombinedOutput(); err != nil {
		t.Fatalf("loading: %v\n%s", err, text)
	}
	for pod, image := range map[string]string{"by-tag": tag.String(), "by-digest": tag.Context().Digest(digest.String()).String()} {
		c.Pod(t, pod, image, []string{"say", "hello"}, func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways })
		c.AwaitPod(t, pod, "ended", Ended)
		if got, want := c.Logs(t, pod), "hello\n"; got != want {
			t.Errorf("pod %s said %q, want %q", pod, got, want)
		}
	}
}
