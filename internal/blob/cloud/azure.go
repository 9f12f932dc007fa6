package cloud

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// Azure is the chain of Azure: the workload identity of a ServiceAccount, then a
// service principal in the environment, and, if the operator allows it, the managed
// identity of the machine.
func Azure(c Clients, o Options) (azcore.TokenCredential, error) {
	data := azcore.ClientOptions{Transport: c.Data}
	switch {
	case o.Environ("AZURE_FEDERATED_TOKEN_FILE") != "":
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: data})
	case o.Environ("AZURE_CLIENT_SECRET") != "", o.Environ("AZURE_CLIENT_CERTIFICATE_PATH") != "":
		return azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{ClientOptions: data})
	case o.Credentials != FromMetadata:
		return nil, noIdentity(o, ToAzure)
	}
	managed := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: azcore.ClientOptions{Transport: c.Metadata}}
	if id := o.Environ("AZURE_CLIENT_ID"); id != "" {
		managed.ID = azidentity.ClientID(id)
	}
	return azidentity.NewManagedIdentityCredential(managed)
}
