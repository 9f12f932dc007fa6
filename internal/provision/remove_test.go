package provision_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/provision"
	"github.com/terrier-iac/terrier/internal/testkit/storage"
)

// put puts an item of one attribute besides the key into a table, as the engine does.
func put(t *testing.T, d *storage.DynamoDB, table, key, attribute, value string) {
	t.Helper()
	body := `{"TableName":"` + table + `","Item":{"LockID":{"S":"` + key + `"},"` + attribute + `":{"S":"` + value + `"}}}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810.PutItem")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("PutItem: %s", resp.Status)
	}
}

// A table with locks of other buckets stays. What it says of the removed state goes.
func TestTheTableOfLocksStays(t *testing.T) {
	s, d := storage.NewS3(t), storage.NewDynamoDB(t)
	ask := asker(provision.Plugins{}, awsIdentity)
	request := func(o backend.Operation, name string) backend.Request {
		return backend.Request{
			Version: backend.Version, Operation: o, Backend: "aws", Force: true, Stack: backend.Stack{Namespace: "team", Name: name, Cluster: "cluster-a"},
			Settings: map[string]string{"s3": "store", "dynamoDB": "locks", "region": "us-east-1", "endpoint": s.URL, "dynamodb_endpoint": d.URL},
		}
	}
	states := map[string]string{}
	for _, name := range []string{"network", "shop"} {
		if reply := ask(t, request(backend.Ensure, name)); reply.Error != nil {
			t.Fatal(reply.Error)
		}
		key := "store/team/" + name + "/terraform.tfstate"
		s.Put(t, key, []byte("{}"))
		put(t, d, "locks", key+"-md5", "Digest", "of "+name)
		states[name] = key
	}
	put(t, d, "locks", "elsewhere/a.tfstate", "Info", "an apply")
	for _, name := range []string{"network", "shop"} {
		reply := ask(t, request(backend.Destroy, name))
		if reply.Error != nil || !strings.Contains(strings.Join(reply.Messages, "\n"), "the table locks stays") {
			t.Fatalf("destroy of %s = %+v", name, reply)
		}
		if d.Has("locks", states[name]+"-md5") {
			t.Errorf("the table has the digest of the removed state of %s", name)
		}
	}
	if got := d.Lock("locks", "elsewhere/a.tfstate"); got != "an apply" {
		t.Errorf("the lock of another bucket is %q", got)
	}
}

// A container goes only if a list of everything is empty: what another program is uploading
// would go with it.
func TestAContainerWithHiddenBlobsStays(t *testing.T) {
	at := azurite(t) + "/" + storage.AzureAccount
	ask := asker(provision.Plugins{Azure: at}, map[string]string{"ARM_ACCESS_KEY": storage.AzureKey})
	request := func(o backend.Operation) backend.Request {
		return backend.Request{
			Version: backend.Version, Operation: o, Backend: "azurerm", Stack: backend.Stack{Namespace: "team", Name: "network", Cluster: "cluster-a"},
			Settings: map[string]string{"storageAccount": storage.AzureAccount, "container": "store"},
		}
	}
	if reply := ask(t, request(backend.Ensure)); reply.Error != nil {
		t.Fatal(reply.Error)
	}
	block := azureContainer(t, at).NewBlockBlobClient("a.tfstate")
	if _, err := block.StageBlock(t.Context(), base64.StdEncoding.EncodeToString([]byte("1")), streaming.NopCloser(strings.NewReader("{}")), nil); err != nil {
		t.Fatal(err)
	}
	if reply := ask(t, request(backend.Destroy)); reply.Error != nil || !strings.Contains(strings.Join(reply.Messages, "\n"), "stays") {
		t.Errorf("destroy beside an upload = %+v", reply)
	}
	if _, err := block.UploadBuffer(t.Context(), []byte("{}"), nil); err != nil {
		t.Fatalf("the container is gone: %v", err)
	}
}
