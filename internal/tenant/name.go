package tenant

import (
	"errors"
	"fmt"
	"strings"
)

// Rules of the API server, checked in advance: the server's error would name the
// object and not the template, and come once for each tenant.

func isAlphanumeric(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// dnsLabelError says why a text is no DNS label, as names of namespaces are.
func dnsLabelError(s string) error {
	const most = 63
	switch {
	case s == "":
		return errors.New("it is empty")
	case len(s) > most:
		return fmt.Errorf("it has %d bytes, more than %d; the function trunc63 shortens it", len(s), most)
	}
	return partError(s)
}

// partError says why a text cannot be a part of a name.
func partError(s string) error {
	for i := range len(s) {
		switch c := s[i]; {
		case isAlphanumeric(c), c == '-':
		case c >= 'A' && c <= 'Z':
			return errors.New("it has capital letters; the function lower converts them")
		default:
			return errors.New("only small letters, digits and - can be in it")
		}
	}
	if !isAlphanumeric(s[0]) || !isAlphanumeric(s[len(s)-1]) {
		return errors.New("it must begin and end with a letter or a digit")
	}
	return nil
}

// RowSecretPrefix and the name of a Tenant are the name of the Secret with its row.
const RowSecretPrefix = "terrier-row-"

// nameError says why no object of this kind can have a name.
func nameError(apiVersion, kind, name string) error {
	err := func() error {
		switch group := groupOf(apiVersion); {
		case group == "rbac.authorization.k8s.io":
			return pathSegmentError(name)
		case group == "" && kind == "Namespace":
			return dnsLabelError(name)
		case group == "" && kind == "Secret" && strings.HasPrefix(name, RowSecretPrefix):
			return errors.New("names that begin with " + RowSecretPrefix + " are those of rows")
		case group == "" && kind == "Service":
			if err := dnsLabelError(name); err != nil {
				return err
			}
			if name[0] >= '0' && name[0] <= '9' {
				return errors.New("the name of a Service must begin with a letter")
			}
			return nil
		}
		return subdomainError(name)
	}()
	if err != nil {
		return fmt.Errorf("%s is not a valid name of a %s: %w", quoted(name), kind, err)
	}
	return nil
}

// subdomainError says why most objects cannot have a name.
func subdomainError(s string) error {
	const most = 253
	switch {
	case s == "":
		return errors.New("it is empty")
	case len(s) > most:
		return fmt.Errorf("it has %d bytes, more than %d", len(s), most)
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" {
			return errors.New("between dots, and at both ends, there must be a letter or a digit")
		}
		if err := partError(part); err != nil {
			return err
		}
	}
	return nil
}

// pathSegmentError says why a role cannot have a name.
func pathSegmentError(s string) error {
	switch {
	case s == "":
		return errors.New("it is empty")
	case s == ".", s == "..", strings.ContainsAny(s, "/%"), strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("it must not be a path, and have no / and no %")
	}
	return nil
}

// labelError says why a text is no value of a label.
func labelError(s string) error {
	const most = 63
	if len(s) > most {
		return fmt.Errorf("it has %d bytes, more than %d; the function trunc63 shortens it", len(s), most)
	}
	if s == "" {
		return nil
	}
	for i := range len(s) {
		c := s[i]
		inner := i > 0 && i < len(s)-1
		if !isAlphanumeric(c) && (c < 'A' || c > 'Z') && (!inner || !strings.ContainsRune("-_.", rune(c))) {
			return errors.New("letters, digits, - _ and . can be in it, and it must begin and end with a letter or a digit")
		}
	}
	return nil
}

// keyError says why a text is no name of a label or an annotation.
func keyError(key string) error {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		prefix, name = "", key
	}
	if ok {
		if err := subdomainError(prefix); err != nil {
			return fmt.Errorf("the prefix before the / is no domain: %w", err)
		}
	}
	if name == "" {
		return errors.New("the name is empty")
	}
	return labelError(name)
}
