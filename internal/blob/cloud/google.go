package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// credentialsFile is as much of a file of credentials as choosing its type takes.
type credentialsFile struct {
	Type google.CredentialsType `json:"type"`
}

// Google is the chain of Google: the file that the environment names, which may
// federate the identity of a ServiceAccount, and, if the operator allows it, the
// metadata service, as in GKE.
func Google(c Clients, o Options, scope string) (oauth2.TokenSource, error) {
	if o.Credentials == FromNowhere {
		return nil, nil
	}
	if name := o.Environ("GOOGLE_APPLICATION_CREDENTIALS"); name != "" {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading GOOGLE_APPLICATION_CREDENTIALS: %w", err)
		}
		var file credentialsFile
		if err := json.Unmarshal(b, &file); err != nil {
			return nil, fmt.Errorf("reading GOOGLE_APPLICATION_CREDENTIALS %s: %w", name, err)
		}
		// The client of the context makes the requests for tokens, now and later.
		tokens := *c.Data
		found, err := google.CredentialsFromJSONWithType(context.WithValue(context.Background(), oauth2.HTTPClient, &tokens), b, file.Type, scope)
		if err != nil {
			return nil, fmt.Errorf("reading GOOGLE_APPLICATION_CREDENTIALS %s: %w", name, err)
		}
		return named{found.TokenSource}, nil
	}
	if o.Credentials != FromMetadata {
		return nil, noIdentity(o, ToGoogle)
	}
	host := o.Environ("GCE_METADATA_HOST")
	if host == "" {
		host = ofMachine[0]
	}
	return oauth2.ReuseTokenSource(nil, metadataTokens{c.Metadata, "http://" + host + "/computeMetadata/v1/instance/service-accounts/default/token"}), nil
}

// named marks the errors of a source of tokens.
type named struct{ oauth2.TokenSource }

func (n named) Token() (*oauth2.Token, error) {
	token, err := n.TokenSource.Token()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	return token, nil
}

// metadataTokens asks the metadata service of a machine, or of a node in GKE.
type metadataTokens struct {
	http *http.Client
	url  string
}

func (m metadataTokens) Token() (*oauth2.Token, error) {
	req, err := http.NewRequest(http.MethodGet, m.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Metadata-Flavor", "Google")
	resp, err := m.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	defer resp.Body.Close()
	var answer struct {
		Token   string `json:"access_token"`
		Expires int    `json:"expires_in"`
		Type    string `json:"token_type"`
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: the metadata service answers %s", ErrIdentity, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	return &oauth2.Token{AccessToken: answer.Token, TokenType: answer.Type, Expiry: time.Now().Add(time.Duration(answer.Expires) * time.Second)}, nil
}
