package provision_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/jackc/pgx/v5/pgconn"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/backend/backendtest"
	"github.com/terrier-iac/terrier/internal/provision"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/database"
	"github.com/terrier-iac/terrier/internal/testkit/storage"
)

// asker answers requests as terrier-backend does, with this environment.
func asker(p provision.Plugins, environ map[string]string) func(*testing.T, backend.Request) backend.Reply {
	p.Environ, p.Now = func(name string) string { return environ[name] }, time.Now
	return func(t *testing.T, r backend.Request) backend.Reply {
		t.Helper()
		question, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := backend.Serve(t.Context(), bytes.NewReader(question), &out, p.Find); err != nil {
			t.Fatal(err)
		}
		var reply backend.Reply
		if err := json.Unmarshal(out.Bytes(), &reply); err != nil {
			t.Fatal(err)
		}
		return reply
	}
}

var awsIdentity = map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}

func TestAWS(t *testing.T) {
	s, d := storage.NewS3(t), storage.NewDynamoDB(t)
	p := backendtest.Plugin{
		Ask: asker(provision.Plugins{}, awsIdentity), Backend: "aws", Type: "s3",
		Settings: map[string]string{"s3": "store", "dynamoDB": "locks", "region": "eu-central-1", "endpoint": s.URL, "dynamodb_endpoint": d.URL},
		Writes:   func() int { return len(s.Take()) + len(d.Take()) },
		Store: func(t *testing.T, b backend.Block) {
			if got := s.Region("store"); got != "eu-central-1" {
				t.Errorf("the bucket is in %q", got)
			}
			for part, want := range map[string]string{"encryption": "AES256", "publicAccessBlock": "<RestrictPublicBuckets>true"} {
				if got := s.Part("store", part); !strings.Contains(got, want) {
					t.Errorf("the %s of the bucket is %s", part, got)
				}
			}
			if v := s.Object(t, "store?versioning"); !strings.Contains(string(v), "<Status>Enabled") {
				t.Errorf("the versioning of the bucket is %s", v)
			}
			s.Put(t, "store/"+b.Text("key"), []byte("{}"))
		},
	}
	backendtest.Run(t, p)
}

// What holds objects is left as it is, and a bucket elsewhere is named.
func TestAWSLeavesWhatIsThere(t *testing.T) {
	s := storage.NewS3(t)
	ask := asker(provision.Plugins{}, awsIdentity)
	r := backend.Request{Version: backend.Version, Operation: backend.Ensure, Backend: "aws", Settings: map[string]string{"bucket": "store", "region": "us-east-1", "endpoint": s.URL}, Stack: backend.Stack{Namespace: "team", Name: "network"}}
	s.Put(t, "store", nil)
	s.Put(t, "store/something", []byte("{}"))
	s.Take()
	reply := ask(t, r)
	if writes := s.Take(); reply.Error != nil || writes != nil {
		t.Fatalf("ensure of a bucket with objects = %+v, and wrote %q", reply, writes)
	}
	want := "the bucket store: versioning is not enabled. The place holds objects, so nothing was changed: enable it yourself"
	if !slices.Contains(reply.Messages, want) {
		t.Errorf("it says %q, want %q", reply.Messages, want)
	}
	r.Settings["region"] = "eu-west-1"
	if e := ask(t, r).Error; e == nil || e.Field != "region" || e.Message != "is eu-west-1, and the bucket store is in us-east-1" {
		t.Errorf("in another region = %+v", e)
	}
	r.Settings["region"] = "us-east-1"
	if e := asker(provision.Plugins{}, map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/"})(t, r).Error; e == nil || !strings.Contains(e.Message, "there are no credentials of AWS") || !strings.Contains(e.Message, "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY there") {
		t.Errorf("without credentials = %+v", e)
	}
}

func TestGCS(t *testing.T) {
	c := storage.GCS(t, testkit.Tool(t, "fake-gcs-server"))
	backendtest.Run(t, backendtest.Plugin{
		Ask: asker(provision.Plugins{}, map[string]string{"GOOGLE_OAUTH_ACCESS_TOKEN": "dummy", "GOOGLE_PROJECT": "p"}), Backend: "gcs", Type: "gcs",
		Settings: map[string]string{"bucket": "store", "location": "EU", "endpoint": c.URL},
		Writes:   func() int { return len(c.Take()) },
		Store: func(t *testing.T, b backend.Block) {
			resp, err := http.Post(c.URL+"/upload/storage/v1/b/store/o?uploadType=media&name="+b.Text("prefix")+"/default.tfstate", "application/json", strings.NewReader("{}"))
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("storing a state: %v, %v", resp, err)
			}
			_ = resp.Body.Close()
		},
	})
}

// azurite starts a stand-in of Azure's storage, and is its address.
func azurite(t *testing.T) string {
	t.Helper()
	program, err := filepath.Abs("../../bin/azurite/node_modules/.bin/azurite-blob")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%v: make bin/azurite, which needs npm", err)
	}
	return storage.StartAzure(t, program)
}

// azureContainer is a client of the container store.
func azureContainer(t *testing.T, at string) *container.Client {
	t.Helper()
	shared, err := container.NewSharedKeyCredential(storage.AzureAccount, storage.AzureKey)
	if err != nil {
		t.Fatal(err)
	}
	client, err := container.NewClientWithSharedKeyCredential(at+"/store", shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestAzure(t *testing.T) {
	c := storage.Watch(t, azurite(t), nil)
	at := c.URL + "/" + storage.AzureAccount
	backendtest.Run(t, backendtest.Plugin{
		Ask: asker(provision.Plugins{Azure: at}, map[string]string{"ARM_ACCESS_KEY": storage.AzureKey}), Backend: "azurerm", Type: "azurerm",
		Settings: map[string]string{"storageAccount": storage.AzureAccount, "container": "store"},
		Writes:   func() int { return len(c.Take()) },
		Store: func(t *testing.T, b backend.Block) {
			if _, err := azureContainer(t, at).NewBlockBlobClient(b.Text("key")).UploadBuffer(t.Context(), []byte("{}"), nil); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// contents is what is in the schemas of a database, as text.
func contents(t *testing.T, db *database.Server) string {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), connString(db, "admin"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	r := conn.ExecParams(t.Context(), "SELECT schema_to_xml(nspname, true, false, '')::text FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' ORDER BY nspname", nil, nil, nil, nil).Read()
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	return fmt.Sprintf("%s", r.Rows)
}

func connString(db *database.Server, user string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d&sslmode=disable", user, database.Database, url.QueryEscape(db.Socket), db.Port)
}

func TestPostgreSQL(t *testing.T) {
	db := database.StartPostgreSQL(t)
	before := contents(t, db)
	backendtest.Run(t, backendtest.Plugin{
		Ask: asker(provision.Plugins{}, map[string]string{"PG_CONN_STR": connString(db, "admin")}), Backend: "pg", Type: "pg", Settings: map[string]string{},
		Writes: func() int {
			now := contents(t, db)
			defer func() { before = now }()
			if now == before {
				return 0
			}
			return 1
		},
		Store: func(t *testing.T, b backend.Block) {
			schema := `"` + b.Text("schema_name") + `"`
			db.Exec(t, "CREATE TABLE "+schema+".states (id bigint PRIMARY KEY, name text UNIQUE, data text)", "INSERT INTO "+schema+".states VALUES (1, 'default', '{}')")
		},
	})
}

// A schema that other tables are in stays, and so does one with states of other workspaces. An
// identity that may not create the table is told, and one that may not create the schema fails.
func TestPostgreSQLOfOthers(t *testing.T) {
	db := database.StartPostgreSQL(t)
	ask := func(user string, o backend.Operation, change func(*backend.Request)) backend.Reply {
		t.Helper()
		r := backend.Request{
			Version: backend.Version, Operation: o, Backend: "pg", Settings: map[string]string{"schema_name": `a "b"`},
			Stack: backend.Stack{Namespace: "team", Name: "network", Cluster: "cluster-a"},
		}
		change(&r)
		return asker(provision.Plugins{}, map[string]string{"PG_CONN_STR": connString(db, user)})(t, r)
	}
	as := func(workspace string) func(*backend.Request) {
		return func(r *backend.Request) { r.Stack.Workspace = workspace }
	}
	if reply := ask(database.Reader, backend.Ensure, as("")); reply.Error == nil || !strings.Contains(reply.Error.Message, `creating the schema a "b": access is denied`) {
		t.Errorf("without the right to create a schema = %+v", reply)
	}
	if reply := ask("admin", backend.Ensure, func(r *backend.Request) { r.Settings["skip_schema_creation"] = "true" }); reply.Error == nil || !strings.Contains(reply.Error.Message, "create it") {
		t.Errorf("with skip_schema_creation = %+v", reply)
	}
	db.Exec(t, `CREATE SCHEMA "a ""b"""`, `GRANT USAGE ON SCHEMA "a ""b""" TO `+database.Reader)
	if reply := ask(database.Reader, backend.Ensure, as("")); reply.Error != nil || !strings.Contains(strings.Join(reply.Messages, "\n"), "access is denied") {
		t.Errorf("without the right to create a table = %+v", reply)
	}
	for _, workspace := range []string{"", "blue"} {
		if reply := ask("admin", backend.Ensure, as(workspace)); reply.Error != nil {
			t.Fatal(reply.Error)
		}
	}
	if reply := ask("admin", backend.Destroy, as("")); reply.Error != nil || !strings.Contains(strings.Join(reply.Messages, "\n"), "stays") {
		t.Errorf("destroy beside another workspace = %+v", reply)
	}
	db.Exec(t, `CREATE TABLE "a ""b""".mine (a int)`)
	if reply := ask("admin", backend.Destroy, as("blue")); reply.Error != nil || !strings.Contains(strings.Join(reply.Messages, "\n"), "stays") {
		t.Errorf("destroy beside a table = %+v", reply)
	}
	db.Exec(t, `DROP TABLE "a ""b""".mine`)
	if reply := ask("admin", backend.Destroy, as("blue")); reply.Error != nil || !strings.Contains(strings.Join(reply.Messages, "\n"), "removed the schema") {
		t.Errorf("destroy of the rest = %+v", reply)
	}
}

// kubeconfig writes one for a user of a test's API server.
func kubeconfig(t *testing.T, c *rest.Config, token string) string {
	t.Helper()
	config := api.NewConfig()
	config.Clusters["c"] = &api.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	config.AuthInfos["u"] = &api.AuthInfo{Token: token}
	config.Contexts["c"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	at := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, at); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestKubernetes(t *testing.T) {
	k := testkit.Kube(t)
	versions := func() map[string]string {
		t.Helper()
		var all corev1.SecretList
		if err := k.Client.List(t.Context(), &all, client.InNamespace(k.Namespace)); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, s := range all.Items {
			found[s.Name] = s.ResourceVersion
		}
		return found
	}
	before := versions()
	backendtest.Run(t, backendtest.Plugin{
		Ask: asker(provision.Plugins{}, nil), Backend: "kubernetes", Type: "kubernetes", Stands: true,
		Settings: map[string]string{"config_path": kubeconfig(t, k.Config, k.Config.BearerToken), "namespace": k.Namespace},
		Writes: func() int {
			now := versions()
			defer func() { before = now }()
			if maps.Equal(now, before) {
				return 0
			}
			return 1
		},
		Store: func(t *testing.T, b backend.Block) {
			state := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "tfstate-default-" + b.Text("secret_suffix")}}
			if err := k.Client.Create(t.Context(), state); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// An identity that may not read or write the Secret of the owner is told, and so is a stack
// whose kubeconfig is found by the engine alone. A Secret of that name without an owner in it
// is not overwritten.
func TestKubernetesWithoutTheRight(t *testing.T) {
	k := testkit.Kube(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "stranger"}}
	token := &authenticationv1.TokenRequest{}
	err := k.Client.Create(t.Context(), account)
	if err == nil {
		err = k.Client.SubResource("token").Create(t.Context(), account, token)
	}
	if err != nil {
		t.Fatal(err)
	}
	ask := func(file string) backend.Reply {
		t.Helper()
		return asker(provision.Plugins{}, nil)(t, backend.Request{
			Version: backend.Version, Operation: backend.Ensure, Backend: "kubernetes", Settings: map[string]string{"config_path": file, "namespace": k.Namespace},
			Stack: backend.Stack{Namespace: "team", Name: "network", Cluster: "cluster-a"},
		})
	}
	for name, file := range map[string]string{"no right": kubeconfig(t, k.Config, token.Status.Token), "a relative path": "kubeconfig", "no file": "/nowhere/kubeconfig"} {
		if reply := ask(file); reply.Error != nil || !strings.Contains(strings.Join(reply.Messages, "\n"), "so another cluster with a stack of this name is not noticed") {
			t.Errorf("%s: %+v, want that it is told", name, reply)
		}
	}
	mine := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "terrier-owner-default-network"}}
	if err := k.Client.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if reply := ask(kubeconfig(t, k.Config, k.Config.BearerToken)); reply.Error == nil || !strings.Contains(reply.Error.Message, "cannot be read: delete it if the state is of this cluster") {
		t.Errorf("with a Secret of that name = %+v", reply)
	}
}

func TestBackendsThatMakeNothing(t *testing.T) {
	for name, settings := range map[string]map[string]string{
		"http":  {"address": "https://states.example.org/a", "lock_address": "https://states.example.org/a"},
		"local": {"path": "/srv/states/a.tfstate"},
	} {
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, backendtest.Plugin{Ask: asker(provision.Plugins{}, nil), Backend: name, Type: name, Settings: settings})
		})
	}
}

// The engine and the plug-in mean one object by a key, however odd it is, and in each
// workspace.
func TestOddKeysNameOneObject(t *testing.T) {
	s := storage.NewS3(t)
	ask := asker(provision.Plugins{}, awsIdentity)
	for key, object := range map[string]string{
		"état/ключ": "%C3%A9tat/%D0%BA%D0%BB%D1%8E%D1%87", `a"b`: "a%22b", "a%2Fb": "a%252Fb", "a b?c=d#e": "a%20b%3Fc=d%23e", "a+b": "a%2Bb",
	} {
		r := backend.Request{
			Version: backend.Version, Operation: backend.Ensure, Backend: "aws", Stack: backend.Stack{Namespace: "team", Name: "network", Cluster: "cluster-a"},
			Settings: map[string]string{"s3": "store", "region": "us-east-1", "endpoint": s.URL, "key": key},
		}
		if reply := ask(t, r); reply.Error != nil {
			t.Errorf("ensure of %q = %v", key, reply.Error)
		}
		if s.Object(t, "store/"+object+".terrier") == nil {
			t.Errorf("the owner of %q is not beside it", key)
		}
		s.Put(t, "store/"+object, []byte("{}"))
		r.Operation = backend.Destroy
		if reply := ask(t, r); reply.Error == nil || !strings.Contains(reply.Error.Message, "holds the state "+key) {
			t.Errorf("destroy of %q = %+v, want the state to be found", key, reply)
		}
		r.Stack.Workspace = "blue"
		s.Put(t, "store/env:/blue/"+object, []byte("{}"))
		if reply := ask(t, r); reply.Error == nil || !strings.Contains(reply.Error.Message, "holds the state env:/blue/"+key) {
			t.Errorf("destroy of %q in a workspace = %+v, want the state to be found", key, reply)
		}
	}
}

// A run that was killed between the bucket and its protection is continued by the next one.
func TestHalfABucketIsCompleted(t *testing.T) {
	s := storage.NewS3(t)
	s.Put(t, "store", nil)
	r := backend.Request{
		Version: backend.Version, Operation: backend.Ensure, Backend: "aws", Stack: backend.Stack{Namespace: "team", Name: "network", Cluster: "cluster-a"},
		Settings: map[string]string{"s3": "store", "region": "us-east-1", "endpoint": s.URL},
	}
	reply := asker(provision.Plugins{}, awsIdentity)(t, r)
	if reply.Error != nil || !slices.Contains(reply.Messages, "the bucket store: enabled versioning") || s.Part("store", "encryption") == "" {
		t.Errorf("ensure of an empty bucket = %+v", reply)
	}
}

// Of two clusters that come at once the bucket itself lets one be first; a damaged object
// is not overwritten, and an identity without the right to it is told.
func TestOwnerOfAState(t *testing.T) {
	s := storage.NewS3(t)
	of := func(cluster string) backend.Request {
		return backend.Request{
			Version: backend.Version, Operation: backend.Ensure, Backend: "aws", Stack: backend.Stack{Namespace: "team", Name: "network", Cluster: cluster},
			Settings: map[string]string{"s3": "store", "region": "us-east-1", "endpoint": s.URL},
		}
	}
	ask := asker(provision.Plugins{}, awsIdentity)
	const mark = "store/team/network/terraform.tfstate.terrier"
	if reply := ask(t, of("")); reply.Error != nil || !strings.Contains(strings.Join(reply.Messages, "\n"), "the controller does not know its cluster, so another cluster with a stack of this name is not noticed") {
		t.Errorf("without a cluster = %+v", reply)
	}
	held := s.Hold("PUT /" + mark)
	slow := make(chan backend.Reply, 1)
	go func() { slow <- ask(t, of("cluster-a")) }()
	<-held.Arrived
	if reply := ask(t, of("cluster-b")); reply.Error != nil {
		t.Fatalf("the faster cluster = %v", reply.Error)
	}
	held.Release()
	want := "the bucket store: the state team/network/terraform.tfstate belongs to the stack team/network of another cluster (the UID of its namespace kube-system is cluster-b, here it is cluster-a). " +
		"Give this stack a key of its own. If that cluster is gone and this one takes its place, set the annotation terrier.dev/adopt-state-of: \"cluster-b\" on this stack, or start the controller with --adopt-states-of cluster-b for all stacks"
	if reply := <-slow; reply.Error == nil || reply.Error.Message != want || reply.Error.Field != "" {
		t.Errorf("the slower cluster = %+v, want %s", reply.Error, want)
	}
	s.Put(t, mark, []byte("{"))
	if reply := ask(t, of("cluster-b")); reply.Error == nil || !strings.Contains(reply.Error.Message, "cannot be read: delete it if the state is of this cluster") {
		t.Errorf("with a damaged object = %+v", reply)
	}
	s.Deny("/" + mark)
	if reply := ask(t, of("cluster-c")); reply.Error != nil || !strings.Contains(strings.Join(reply.Messages, "\n"), "access is denied, so another cluster with a stack of this name is not noticed") {
		t.Errorf("without the right = %+v", reply)
	}
}

// A server that refuses conditional writes lets a stack work on, and its owner is written.
func TestOwnerWithoutConditionalWrites(t *testing.T) {
	for _, status := range []int{http.StatusBadRequest, http.StatusNotImplemented} {
		s := storage.NewS3(t)
		meanwhile := false // another cluster writes before the answer
		at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") == "" {
				s.ServeHTTP(w, r)
				return
			}
			if meanwhile {
				s.Put(t, strings.TrimPrefix(r.URL.Path, "/"), []byte(`{"cluster":"cluster-b"}`))
			}
			w.WriteHeader(status)
		}))
		t.Cleanup(at.Close)
		ask := asker(provision.Plugins{}, awsIdentity)
		r := backend.Request{
			Version: backend.Version, Operation: backend.Ensure, Backend: "aws", Stack: backend.Stack{Namespace: "team", Name: "network", Cluster: "cluster-a"},
			Settings: map[string]string{"s3": "store", "region": "us-east-1", "endpoint": at.URL},
		}
		if reply := ask(t, r); reply.Error != nil {
			t.Errorf("ensure at a server that answers %d = %v", status, reply.Error)
		}
		if got := s.Object(t, "store/team/network/terraform.tfstate.terrier"); !strings.Contains(string(got), `"cluster":"cluster-a"`) {
			t.Errorf("the owner at a server that answers %d is %q", status, got)
		}
		meanwhile, r.Stack.Name = true, "other"
		if reply := ask(t, r); reply.Error == nil || !strings.Contains(reply.Error.Message, "of another cluster") {
			t.Errorf("ensure after another cluster, at a server that answers %d = %+v", status, reply)
		}
	}
}
