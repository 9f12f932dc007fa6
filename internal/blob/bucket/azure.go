package bucket

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	azblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// azure is a container of Azure Blob Storage.
type azure struct {
	container *container.Client
	shared    bool // the identity is the key of the account, which has every right
}

func openAzure(p Place, c cloud.Clients, of cloud.Options) (service, error) {
	at := p.Endpoint.JoinPath(p.Bucket).String()
	once := policy.RetryOptions{MaxRetries: -1} // Store tries again
	o := &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: c.Data, Retry: once}}
	if p.Credentials == cloud.FromNowhere {
		client, err := container.NewClientWithNoCredential(at, o)
		return &azure{container: client}, err
	}
	if key := of.Environ("AZURE_STORAGE_KEY"); key != "" {
		shared, err := container.NewSharedKeyCredential(p.Account, key)
		if err != nil {
			return nil, fmt.Errorf("reading AZURE_STORAGE_KEY: %w", err)
		}
		client, err := container.NewClientWithSharedKeyCredential(at, shared, o)
		return &azure{client, true}, err
	}
	identity, err := cloud.Azure(c, of)
	if errors.Is(err, cloud.ErrIdentity) {
		err = fmt.Errorf("%w, or set AZURE_STORAGE_KEY", err)
	}
	if err != nil {
		return nil, err
	}
	client, err := container.NewClient(at, identity, o)
	return &azure{container: client}, err
}

func (a *azure) put(ctx context.Context, name string, c *content, old *blob.Version) (blob.Version, error) {
	body, err := c.rewound()
	if err != nil {
		return blob.None, err
	}
	o := &blockblob.UploadOptions{HTTPHeaders: &azblob.HTTPHeaders{BlobContentType: new(octets)}}
	switch {
	case old == nil:
	case *old == blob.None:
		o.AccessConditions = &azblob.AccessConditions{ModifiedAccessConditions: &azblob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)}}
	default:
		o.AccessConditions = only(*old)
	}
	resp, err := a.container.NewBlockBlobClient(name).Upload(ctx, body, o)
	if err != nil {
		return blob.None, terse(err)
	}
	return versionOf(resp.ETag), nil
}

// only is the condition that a blob has this version.
func only(version blob.Version) *azblob.AccessConditions {
	return &azblob.AccessConditions{ModifiedAccessConditions: &azblob.ModifiedAccessConditions{IfMatch: new(azcore.ETag(version))}}
}

func versionOf(tag *azcore.ETag) blob.Version {
	if tag == nil {
		return blob.None
	}
	return blob.Version(*tag)
}

func (a *azure) get(ctx context.Context, name string, from int64, version blob.Version) (object, error) {
	o := &azblob.DownloadStreamOptions{Range: azblob.HTTPRange{Offset: from}}
	if version != blob.None {
		o.AccessConditions = only(version)
	}
	resp, err := a.container.NewBlobClient(name).DownloadStream(ctx, o)
	if err != nil {
		return object{}, terse(err)
	}
	found := object{body: resp.Body, version: versionOf(resp.ETag), size: -1}
	if resp.ContentLength != nil {
		found.size = *resp.ContentLength
	}
	if resp.LastModified != nil {
		found.modified = *resp.LastModified
	}
	if resp.ContentRange != nil {
		found.part = *resp.ContentRange
	}
	return found, nil
}

func (a *azure) remove(ctx context.Context, name string) error {
	_, err := a.container.NewBlobClient(name).Delete(ctx, nil)
	return terse(err)
}

func (a *azure) list(ctx context.Context, prefix string, each func(name string)) error {
	pages := a.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return terse(err)
		}
		for _, item := range page.Segment.BlobItems {
			if item.Name != nil {
				each(*item.Name)
			}
		}
	}
	return nil
}

// terse replaces the text of an answer, which is the whole request and the whole answer.
func terse(err error) error {
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return azureError{answer}
	}
	return err
}

type azureError struct{ answer *azcore.ResponseError }

func (e azureError) Error() string {
	return fmt.Sprintf("%d %s", e.answer.StatusCode, e.answer.ErrorCode)
}

func (e azureError) Unwrap() error { return e.answer }

func (a *azure) diagnose(err error) diagnosis {
	var answer *azcore.ResponseError
	switch {
	case errors.As(err, new(*azidentity.AuthenticationFailedError)):
		return diagnosis{trouble: cloud.BadIdentity}
	case !errors.As(err, &answer):
		return transport(err)
	case bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet):
		return diagnosis{trouble: cloud.Changed}
	case bloberror.HasCode(err, bloberror.BlobNotFound):
		return diagnosis{trouble: cloud.Absent}
	case bloberror.HasCode(err, bloberror.ContainerNotFound, bloberror.ResourceNotFound):
		return diagnosis{trouble: cloud.NotThere}
	case bloberror.HasCode(err, bloberror.AuthenticationFailed, bloberror.InvalidAuthenticationInfo),
		a.shared && bloberror.HasCode(err, bloberror.AuthorizationFailure):
		return diagnosis{trouble: cloud.BadIdentity}
	}
	return status(answer.StatusCode)
}
