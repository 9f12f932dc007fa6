package client

import (
	"context"
	"io"
)

// IdentityIssuer is the issuer of the identities of runs, as a server serves it.
type IdentityIssuer struct{ *conn }

// IdentityIssuer returns that of the server.
func (c Connection) IdentityIssuer(ctx context.Context) (*IdentityIssuer, error) {
	s, _, err := c.server(ctx)
	return &IdentityIssuer{s}, err
}

// maxIdentityDocument bounds a document of the issuer, in bytes.
const maxIdentityDocument = 1 << 20

// Document returns the document at one of identity.Documents. It is Missing if runs of that
// server have no identity.
func (i *IdentityIssuer) Document(ctx context.Context, path string) ([]byte, error) {
	r, err := i.open(ctx, requestTime, endpoint{beside: path})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, maxIdentityDocument))
}
