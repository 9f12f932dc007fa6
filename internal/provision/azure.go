package provision

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// azure is a container of a storage account.
type azure struct {
	name      string
	key, mark string // of the state, and of its owner
	container *container.Client
}

func (p Plugins) openAzure(_ context.Context, r backend.Request) (place, error) {
	b, _ := backend.Find(backend.Azure)
	block, err := b.Render(r)
	if err != nil {
		return nil, err
	}
	account := block.Text("storage_account_name")
	at := p.Azure
	if at == "" {
		at = "https://" + account + ".blob.core.windows.net"
	}
	c, o, err := p.clients(backend.Azure, at)
	if err != nil {
		return nil, err
	}
	key, of := block.Text("key"), ""
	if w := r.Stack.Workspace; w != "" && w != "default" {
		of = "env:" + w
	}
	// The engine lists all that begins with its key and env: as workspaces.
	a := &azure{name: block.Text("container_name"), key: key + of, mark: key + ownerSuffix + of}
	at += "/" + a.name
	options := &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: c.Data}}
	if key := p.Environ("ARM_ACCESS_KEY"); key != "" {
		shared, err := container.NewSharedKeyCredential(account, key)
		if err != nil {
			return nil, fmt.Errorf("reading ARM_ACCESS_KEY in the environment of the run: %w", err)
		}
		a.container, err = container.NewClientWithSharedKeyCredential(at, shared, options)
		return a, err
	}
	if token := p.Environ("ARM_SAS_TOKEN"); token != "" {
		a.container, err = container.NewClientWithNoCredential(at+"?"+token, options)
		return a, err
	}
	identity, err := p.azureIdentity(block, c, o)
	if err != nil {
		return nil, err
	}
	a.container, err = container.NewClient(at, identity, options)
	return a, err
}

// azureIdentity reads the variables that the engine reads.
func (p Plugins) azureIdentity(b backend.Block, c cloud.Clients, o cloud.Options) (azcore.TokenCredential, error) {
	data := azcore.ClientOptions{Transport: c.Data}
	first := func(setting, variable string) string {
		if v := b.Text(setting); v != "" {
			return v
		}
		return p.Environ(variable)
	}
	tenant, id := first("tenant_id", "ARM_TENANT_ID"), first("client_id", "ARM_CLIENT_ID")
	if secret := p.Environ("ARM_CLIENT_SECRET"); secret != "" {
		return azidentity.NewClientSecretCredential(tenant, id, secret, &azidentity.ClientSecretCredentialOptions{ClientOptions: data})
	}
	if file := p.Environ("ARM_OIDC_TOKEN_FILE_PATH"); file != "" {
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: data, TenantID: tenant, ClientID: id, TokenFilePath: file})
	}
	return cloud.Azure(c, o)
}

func (a *azure) what() string { return "the container " + a.name }

func (a *azure) there(ctx context.Context) (bool, error) {
	_, err := a.container.GetProperties(ctx, nil)
	if bloberror.HasCode(err, bloberror.ContainerNotFound, bloberror.ResourceNotFound) {
		return false, nil
	}
	return err == nil, a.told("finding", err)
}

// told names what the service calls a failure, in one line.
func (a *azure) told(doing string, err error) error {
	if err == nil {
		return nil
	}
	for _, code := range []bloberror.Code{bloberror.AuthenticationFailed, bloberror.AuthorizationFailure, bloberror.AuthorizationPermissionMismatch, bloberror.AccountIsDisabled} {
		if bloberror.HasCode(err, code) {
			return fmt.Errorf("%s %s: %s", doing, a.what(), code)
		}
	}
	return fmt.Errorf("%s %s: %w", doing, a.what(), err)
}

func (a *azure) create(ctx context.Context) error {
	_, err := a.container.Create(ctx, nil) // without public access
	if bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
		return nil // another run was faster
	}
	return a.told("creating", err)
}

func (a *azure) traits() []trait {
	return []trait{{"the block of public access", func(ctx context.Context) (bool, error) {
		p, err := a.container.GetProperties(ctx, nil)
		return p.BlobPublicAccess == nil, a.told("reading", err)
	}, func(ctx context.Context) error {
		_, err := a.container.SetAccessPolicy(ctx, nil)
		return a.told("changing", err)
	}}}
}

// empty reports whether a list of the container is empty.
func (a *azure) empty(ctx context.Context, include container.ListBlobsInclude) (bool, error) {
	pages := a.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Include: include})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return false, a.told("listing", err)
		}
		if len(page.Segment.BlobItems) > 0 {
			return false, nil
		}
	}
	return true, nil
}

func (a *azure) vacant(ctx context.Context) (bool, error) {
	return a.empty(ctx, container.ListBlobsInclude{})
}

func (a *azure) state() string    { return a.key }
func (a *azure) owner() string    { return a.mark }
func (a *azure) objects() objects { return a }

func (a *azure) hasState(ctx context.Context) (bool, error) {
	_, err := a.container.NewBlobClient(a.key).GetProperties(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ResourceNotFound) {
		return false, nil
	}
	return err == nil, a.told("finding the state in", err)
}

// judged is the error of an answer about a blob.
func (a *azure) judged(doing string, err error) error {
	if bloberror.HasCode(err, bloberror.AuthorizationFailure, bloberror.AuthorizationPermissionMismatch) {
		return errDenied
	}
	return a.told(doing, err)
}

func (a *azure) get(ctx context.Context, object string) ([]byte, error) {
	out, err := a.container.NewBlobClient(object).DownloadStream(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ResourceNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, a.judged("reading a blob of", err)
	}
	defer out.Body.Close()
	return io.ReadAll(io.LimitReader(out.Body, maxOwner))
}

func (a *azure) put(ctx context.Context, object string, data []byte, absent bool) (bool, error) {
	var o blockblob.UploadOptions
	if absent {
		any := azcore.ETagAny
		o.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &any}}
	}
	_, err := a.container.NewBlockBlobClient(object).Upload(ctx, streaming.NopCloser(bytes.NewReader(data)), &o)
	if bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet) {
		return false, nil
	}
	return err == nil, a.judged("writing a blob of", err)
}

func (a *azure) remove(ctx context.Context, object string) error {
	_, err := a.container.NewBlobClient(object).Delete(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ResourceNotFound) {
		return nil
	}
	return a.judged("removing a blob of", err)
}

// removePlace looks first: Azure removes a container with all that is in it, blobs that can
// still be recovered included.
func (a *azure) removePlace(ctx context.Context) (bool, error) {
	all := container.ListBlobsInclude{Deleted: true, Snapshots: true, UncommittedBlobs: true, Versions: true}
	if empty, err := a.empty(ctx, all); err != nil || !empty {
		return false, err
	}
	_, err := a.container.Delete(ctx, nil)
	return err == nil, a.told("removing", err)
}
