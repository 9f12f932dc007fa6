package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

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

func (a *azure) put(ctx context.Context, name string, c *content) error {
	body, err := c.rewound()
	if err != nil {
		return err
	}
	_, err = a.container.NewBlockBlobClient(name).Upload(ctx, body, &blockblob.UploadOptions{HTTPHeaders: &blob.HTTPHeaders{BlobContentType: new(octets)}})
	return terse(err)
}

func (a *azure) get(ctx context.Context, name string) (io.ReadCloser, error) {
	resp, err := a.container.NewBlobClient(name).DownloadStream(ctx, nil)
	if err != nil {
		return nil, terse(err)
	}
	return resp.Body, nil
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
