package kubeapi

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes the file that kubectl is pointed at, whole or not at
// all, and readable by its owner only.
func writeKubeconfig(d dir, address string, k keys) (string, error) {
	const name = "terrier"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + address, CertificateAuthorityData: k.authority}
	config.AuthInfos[admin] = &clientcmdapi.AuthInfo{Token: k.token.Reveal()}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: admin}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("encoding the kubeconfig: %w", err)
	}
	return d.kubeconfig(), writeFile(d.kubeconfig(), content)
}
