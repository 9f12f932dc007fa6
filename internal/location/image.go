package location

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	// firstWord matches the name at the beginning of a text, and what stands behind it.
	firstWord = regexp.MustCompile(`^\s*(\S+)\s*((?s:.*?))\s*$`)
	// repositoryName matches the path of a repository in a registry.
	repositoryName = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	// registryName matches the host of a registry.
	registryName = regexp.MustCompile(`^(?:[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?$`)
)

// dockerHub is the usual registry of names without one.
const dockerHub = "docker.io"

// ParseImage reads the name of a repository for images: registry/repository. The design of
// Alustan has a comment in parentheses behind the name; comment is what stands behind it,
// and does not count.
func ParseImage(text string) (repository, comment string, err error) {
	return ParseImageAt(dockerHub, text)
}

// ParseImageAt is ParseImage with the registry of names that have none.
func ParseImageAt(usual, text string) (repository, comment string, err error) {
	m := firstWord.FindStringSubmatch(text)
	if m == nil {
		return "", "", fmt.Errorf("it names no image: write registry/repository, such as %s/team/network", dockerHub)
	}
	if m[2] != "" && !strings.HasPrefix(m[2], "(") {
		return "", "", fmt.Errorf("%.80q has several words: write registry/repository, and a comment in parentheses if you need one", text)
	}
	registry, path, _ := strings.Cut(m[1], "/")
	if path == "" || !strings.ContainsAny(registry, ".:") && registry != "localhost" {
		registry, path = usual, m[1]
	}
	if !registryName.MatchString(registry) || !repositoryName.MatchString(path) || len(path) > 255 {
		return "", "", fmt.Errorf("%.80q is not the name of a repository: write registry/repository without a scheme and a tag, which Terrier makes from the content", m[1])
	}
	return registry + "/" + path, m[2], nil
}

// CodeOfImage is the media type of a layer that no image has. An OCIRepository that selects
// it asks Terrier for the files below the working directory of a container image. Another
// source controller finds no such layer, so it does not take a layer of the base for code.
const CodeOfImage = "application/vnd.terrier.code-of-image"

// DockerConfigAnnotation names the key of the Secret of an OCIRepository that holds a
// Docker configuration. Without such a key the usual one counts.
const DockerConfigAnnotation = "terrier.dev/docker-config"
