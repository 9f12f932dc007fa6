package kmstest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// AWS answers as AWS KMS does. It checks the signature of each request.
func AWS(t *testing.T) Server {
	s := newState(t, "arn:aws:kms:eu-west-1:111122223333:key/one", "arn:aws:kms:eu-west-1:111122223333:key/two")
	const secret = "secret-canary"
	alias := map[string]string{"alias/terrier": "arn:aws:kms:eu-west-1:111122223333:key/one"}
	fail := func(w http.ResponseWriter, name string) {
		write(w, http.StatusBadRequest, map[string]string{"__type": name, "message": "refused"})
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			KeyID                     string `json:"KeyId"`
			Plaintext, CiphertextBlob []byte
			EncryptionContext         map[string]string
		}
		body, err := read(r, &in)
		key := in.KeyID
		if alias[key] != "" {
			key = alias[key]
		}
		switch {
		case err != nil:
			fail(w, "SerializationException")
		case s.is(&s.revoked):
			fail(w, "UnrecognizedClientException")
		case !signed(r, body, secret, "eu-west-1", "kms"):
			fail(w, "InvalidSignatureException")
		case s.is(&s.denied):
			fail(w, "AccessDeniedException")
		case !s.has(key):
			fail(w, "NotFoundException")
		case s.is(&s.disabled):
			fail(w, "DisabledException")
		case r.Header.Get("X-Amz-Target") == "TrentService.Encrypt":
			wrapped, _ := s.wrap(key, append(contextText(in.EncryptionContext), in.Plaintext...))
			write(w, http.StatusOK, map[string]any{"CiphertextBlob": wrapped, "KeyId": key})
		default:
			whole, ok := s.unwrap(key, in.CiphertextBlob)
			plain, same := bytes.CutPrefix(whole, contextText(in.EncryptionContext))
			if !ok || !same {
				fail(w, "InvalidCiphertextException")
				return
			}
			write(w, http.StatusOK, map[string]any{"Plaintext": plain, "KeyId": key})
		}
	}))
	end := "?region=eu-west-1&endpoint=" + url.QueryEscape(started(t, h))
	return s.server(Server{
		URL: "awskms://alias/terrier" + end, Other: "awskms:///arn:aws:kms:eu-west-1:111122223333:key/two" + end, Missing: "awskms://missing" + end, Sticky: true,
		Environ: map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": secret},
	}, h, "arn:aws:kms:eu-west-1:111122223333:key/one")
}

// contextText is an encryption context as text. What was wrapped with one opens with no other.
func contextText(context map[string]string) []byte {
	text, _ := json.Marshal(context) // never fails
	return text
}

// signed checks a signature of AWS, version 4.
func signed(r *http.Request, body []byte, secret, region, service string) bool {
	fields := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	at := r.Header.Get("X-Amz-Date")
	if len(at) < 8 || fields["Credential"] != "id/"+at[:8]+"/"+region+"/"+service+"/aws4_request" {
		return false
	}
	hash := func(b []byte) string {
		sum := sha256.Sum256(b)
		return hex.EncodeToString(sum[:])
	}
	canonical := r.Method + "\n" + r.URL.EscapedPath() + "\n" + r.URL.RawQuery + "\n"
	for name := range strings.SplitSeq(fields["SignedHeaders"], ";") {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = r.Header.Get("Content-Length")
		}
		canonical += name + ":" + strings.TrimSpace(value) + "\n"
	}
	canonical += "\n" + fields["SignedHeaders"] + "\n" + hash(body)
	key := []byte("AWS4" + secret)
	for _, part := range []string{at[:8], region, service, "aws4_request", "AWS4-HMAC-SHA256\n" + at + "\n" + at[:8] + "/" + region + "/" + service + "/aws4_request\n" + hash([]byte(canonical))} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return strings.Contains(fields["SignedHeaders"], "x-amz-target") && hmac.Equal([]byte(hex.EncodeToString(key)), []byte(fields["Signature"]))
}
