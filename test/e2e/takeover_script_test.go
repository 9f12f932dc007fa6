package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"
)

// migrate runs a step of the script of docs/migrate-from-tofu-controller.md as
// it stands there. It returns what was said, and how it ended in the last line.
func (e *estate) migrate(t *testing.T, step string) string {
	t.Helper()
	return e.Shell(t, fmt.Sprintf("CONTROLLER_NAMESPACE=%s BACKUP=%s sh docs/migrate/from-tofu-controller.sh %s 2>&1; echo ended with $?",
		e.Namespace, e.backup, step))
}

// says demands that a step ends with a code and says all of these.
func (e *estate) says(t *testing.T, step string, code int, all ...string) string {
	t.Helper()
	said := e.migrate(t, step)
	for _, want := range append(all, fmt.Sprintf("ended with %d\n", code)) {
		if !strings.Contains(said, want) {
			t.Errorf("%s says\n%swant %q", step, said, want)
		}
	}
	return said
}

// scaled is how many replicas a Deployment is to have.
func (e *estate) scaled(t *testing.T, name string) int32 {
	t.Helper()
	var d appsv1.Deployment
	e.Get(t, name, &d)
	return *d.Spec.Replicas
}

// makeReady does what comes before Terrier is started.
func (e *estate) makeReady(t *testing.T, before memento) {
	name := "plan-main-" + e.commit[:10]
	e.says(t, "check", 0, "stacks: 17", "/tofu-controller: 1 replicas", "lock-tfstate-default-locked 6f1d6a0e",
		"/nameless: backendConfig without secretSuffix", "/asked: "+name+" waits for approval", "/approved: "+name+" is approved and not applied",
		"/going: is being deleted, and takes down")
	e.says(t, "stop", 0, "would: kubectl")
	e.says(t, "clean --yes", 1, "tofu-controller runs")
	e.says(t, "backup", 1, "tofu-controller runs")
	e.applying(t, "once", true)
	e.says(t, "stop --yes", 1, "applies go on", "/once")
	e.applying(t, "once", false)
	if n := e.scaled(t, "tofu-controller"); n != 1 {
		t.Errorf("a dry run scaled the controller to %d", n)
	}

	runner := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "settled-tf-runner", Labels: map[string]string{"app.kubernetes.io/created-by": "tofu-controller", "app.kubernetes.io/name": "tf-runner"}},
		Spec:       corev1.PodSpec{ServiceAccountName: "tf-runner", Containers: []corev1.Container{{Name: "tf-runner", Image: "tf-runner:v0.16.5"}}},
	}
	if err := e.Client.Create(t.Context(), runner); err != nil {
		t.Fatal(err)
	}
	e.says(t, "stop --yes", 1, "runners are at work", "/settled-tf-runner")
	e.says(t, "backup", 1, "runners are at work")
	if n, m := e.scaled(t, "tofu-controller"), e.scaled(t, "branch-planner"); n != 0 || m != 0 {
		t.Errorf("the controller is scaled to %d and the planner to %d, want nobody to start another runner", n, m)
	}
	runner.Status.Phase = corev1.PodSucceeded
	if err := e.Client.Status().Update(t.Context(), runner); err != nil {
		t.Fatal(err)
	}
	e.says(t, "stop --yes", 0, "is stopped already", "no runner is at work")
	if _, err := os.Stat(e.backup); !os.IsNotExist(err) {
		t.Errorf("a backup that was refused left %s: %v", e.backup, err)
	}
	// blue has an empty state in the default workspace, too
	e.says(t, "backup", 0, "states.yaml: 17 objects", "terraforms.yaml: 17 objects", "outputs.yaml: 1 objects")
	e.backedUp(t, before)
	e.says(t, "clean --yes", 1, "Terrier has looked at no stack")
}

// otherCluster demands that no step acts in another cluster than that of the backup.
func (e *estate) otherCluster(t *testing.T) {
	t.Helper()
	path := filepath.Join(e.backup, "cluster")
	is := read(t, path)
	write(t, e.backup, "cluster", "context: another\nuid: 6f0c\n")
	for _, step := range []string{"stop --yes", "watch", "clean --yes", "back --yes"} {
		e.says(t, step, 1, "is of another cluster", "context: another")
	}
	write(t, e.backup, "cluster", is)
}

// applying makes a stack say that an apply of it goes on, or that it has ended.
func (e *estate) applying(t *testing.T, name string, goesOn bool) {
	t.Helper()
	s := e.Stack(t, name)
	c := meta.FindStatusCondition(s.Status.Conditions, "Apply")
	c.Status, c.Reason = metav1.ConditionTrue, "TerraformAppliedSucceed"
	if goesOn {
		c.Status, c.Reason = metav1.ConditionUnknown, "Progressing"
	}
	if err := e.Client.Status().Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// backedUp reads the backup.
func (e *estate) backedUp(t *testing.T, before memento) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.backup, "states.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var states corev1.SecretList
	if err := yaml.Unmarshal(text, &states); err != nil {
		t.Fatal(err)
	}
	kept := map[string]string{}
	for _, s := range states.Items {
		kept[s.Name] = string(s.Data["tfstate"])
	}
	for _, h := range holdings {
		if kept[h.secret()] != string(before.states[h.stack].Data["tfstate"]) {
			t.Errorf("the backup does not hold the state of %s", h.stack)
		}
	}
	if i, err := os.Stat(filepath.Join(e.backup, "states.yaml")); err != nil || i.Mode().Perm()&0o077 != 0 {
		t.Errorf("others can read the states: %v, %v", i.Mode(), err)
	}
}

// watched follows the takeover.
func (e *estate) watched(t *testing.T) {
	said := e.says(t, "watch", 1, "/approved: AwaitingApproval: Plan generated", "/locked: LockedByOther: ", "/orphaned: DependencyNotReady: ", "15 stacks, 15 of them looked at, 5 not ready")
	for _, quiet := range []string{"/settled", "/suspended", "/watched"} {
		if strings.Contains(said, quiet) {
			t.Errorf("watch says\n%swant nothing of %s", said, quiet)
		}
	}
}

// deployed makes a Deployment with one replica, and returns what deletes it.
func (e *estate) deployed(t *testing.T, name, app string) (gone func()) {
	t.Helper()
	labels, one := map[string]string{"app.kubernetes.io/name": app}, int32(1)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name, Labels: labels}, Spec: appsv1.DeploymentSpec{
		Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "manager"}}}},
	}}
	if err := e.Client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := e.Client.Delete(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

// hiddenControllers demands that nothing is deleted while the old controller runs somewhere
// else than where the script is told to look.
func (e *estate) hiddenControllers(t *testing.T) {
	t.Helper()
	for name, app := range map[string]string{"tf-controller": "other", "fleet": "tofu-controller"} {
		gone := e.deployed(t, name, app)
		e.says(t, "clean --yes", 1, "tofu-controller runs", "/"+name+": 1 replicas")
		e.says(t, "watch", 1, "beside Terrier", "/"+name)
		gone()
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "tofu-controller-x", Labels: map[string]string{"app.kubernetes.io/name": "tofu-controller"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "manager"}}},
	}
	if err := e.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	e.says(t, "clean --yes", 1, "Pod default/tofu-controller-x")
	if err := e.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

// cleaned removes what only the old controller needed, when told to.
func (e *estate) cleaned(t *testing.T) {
	e.otherCluster(t)
	e.hiddenControllers(t)
	e.says(t, "backup", 1, "is there, and is kept as it is")
	garbage := []string{"tfplan-default-asked", "tfplan-default-approved", "terraform-runner.tls-1789459200", "tf-runner.cache-encryption"}
	said := e.says(t, "clean", 0)
	for _, name := range garbage {
		if !strings.Contains(said, "delete secret "+name) || !e.Exists(t, name, &corev1.Secret{}) {
			t.Errorf("clean says\n%swant it to say, and only to say, that %s would go", said, name)
		}
	}
	for range 2 {
		e.says(t, "clean --yes", 0, "cluster: ")
	}
	for _, name := range garbage {
		if e.Exists(t, name, &corev1.Secret{}) {
			t.Errorf("%s is still there", name)
		}
	}
	if !e.Exists(t, "settled-outputs", &corev1.Secret{}) || !e.Exists(t, "tfplan-default-asked", &corev1.ConfigMap{}) || !e.Exists(t, "tf-runner", &corev1.ServiceAccount{}) {
		t.Error("more was removed than what nobody needs")
	}
}

// terrierRuns demands that the old controller is not started beside Terrier, wherever that
// runs, and returns once Terrier's Lease names a controller that was killed.
func (e *estate) terrierRuns(t *testing.T) {
	t.Helper()
	gone := e.deployed(t, "terrier", "terrier")
	e.says(t, "back --yes", 1, "Terrier runs", "/terrier: 1 replicas")
	gone()

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "terrier-system", Name: "terrier-controller"}}
	renew := func(ctx context.Context) error {
		_, err := controllerutil.CreateOrUpdate(ctx, e.Client, lease, func() error {
			who, lasts, now := "laptop", int32(1), metav1.NowMicro()
			lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &who, LeaseDurationSeconds: &lasts, RenewTime: &now}
			return nil
		})
		return err
	}
	if err := renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, die := context.WithCancel(t.Context())
	died := make(chan error)
	go func() {
		for {
			if err := renew(ctx); err != nil {
				died <- err
				return
			}
		}
	}()
	e.says(t, "back --yes", 1, "Terrier runs", "held by laptop")
	die()
	if err := <-died; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// handedBack starts the old controller again.
func (e *estate) handedBack(t *testing.T) {
	t.Helper()
	e.terrierRuns(t)
	e.says(t, "back", 0, "would: kubectl")
	if n := e.scaled(t, "tofu-controller"); n != 0 {
		t.Errorf("a dry run scaled the controller to %d", n)
	}
	e.says(t, "back --yes", 0)
	e.says(t, "back --yes", 0, "runs already")
	if n := e.scaled(t, "tofu-controller"); n != 1 {
		t.Errorf("the controller is scaled to %d", n)
	}
}
