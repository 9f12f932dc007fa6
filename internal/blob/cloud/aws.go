package cloud

import (
	"errors"
	"fmt"
	"os"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// AWS is the chain of AWS: keys in the environment, then the file of profiles,
// then the role of a ServiceAccount (IRSA, EKS Pod Identity) or of a task, and, if the
// operator allows it, the role of the machine.
func AWS(c Clients, o Options, region string) (*credentials.Credentials, error) {
	switch {
	case o.Credentials == FromNowhere:
		return credentials.NewStaticV4("", "", ""), nil
	case o.Environ("AWS_ACCESS_KEY_ID") != "":
		return credentials.NewStaticV4(o.Environ("AWS_ACCESS_KEY_ID"), o.Environ("AWS_SECRET_ACCESS_KEY"), o.Environ("AWS_SESSION_TOKEN")), nil
	case o.Environ("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		return credentials.New(identified{&credentials.IAM{Client: c.Data, Region: region}}), nil
	case o.Environ("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "", o.Environ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "":
		return credentials.New(identified{&credentials.IAM{Client: c.Metadata}}), nil
	}
	file := &credentials.FileAWSCredentials{}
	if _, err := file.RetrieveWithCredContext(nil); err == nil {
		return credentials.New(file), nil
	} else if named := o.Environ("AWS_SHARED_CREDENTIALS_FILE"); named != "" && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading AWS_SHARED_CREDENTIALS_FILE %s: %w", named, err)
	}
	if o.Credentials != FromMetadata {
		return nil, noIdentity(o, ToAWS)
	}
	return credentials.New(identified{&credentials.IAM{Client: c.Metadata}}), nil
}

// identified marks the errors of a source of credentials.
type identified struct{ *credentials.IAM }

func (i identified) RetrieveWithCredContext(c *credentials.CredContext) (credentials.Value, error) {
	v, err := i.IAM.RetrieveWithCredContext(c)
	if err != nil {
		return v, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	return v, nil
}
