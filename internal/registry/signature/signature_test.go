package signature_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/signature"
)

const list = "" +
	"0000000000000000000000000000000000000000000000000000000000000001  terraform-provider-aws_1.0.0_linux_amd64.zip\n" +
	"0000000000000000000000000000000000000000000000000000000000000002  terraform-provider-aws_1.0.0_darwin_arm64.zip\n" +
	"0000000000000000000000000000000000000000000000000000000000000003  terraform-provider-aws_1.0.0_manifest.json\n"

func TestVerify(t *testing.T) {
	signer, other := registrytest.NewSigner(t), registrytest.NewSigner(t)
	now := time.Now()
	made := signer.Sign(t, []byte(list))

	got, err := signature.Verify([]byte(list), made, []signature.Key{other.Key(t), signer.Key(t)}, now)
	if err != nil || got.KeyID != signer.Key(t).ID || got.Expired {
		t.Errorf("Verify() = %+v, %v, want the key %s", got, err, signer.Key(t).ID)
	}
	for name, c := range map[string]struct {
		sums, signature []byte
		keys            []signature.Key
	}{
		"another key":          {[]byte(list), made, []signature.Key{other.Key(t)}},
		"no key":               {[]byte(list), made, nil},
		"another list":         {[]byte(list + "\n"), made, []signature.Key{signer.Key(t)}},
		"no signature":         {[]byte(list), nil, []signature.Key{signer.Key(t)}},
		"text for a signature": {[]byte(list), []byte("<html>not found</html>"), []signature.Key{signer.Key(t)}},
		"text for a key":       {[]byte(list), made, []signature.Key{{ID: "1", Armor: "<html>"}}},
	} {
		if got, err := signature.Verify(c.sums, c.signature, c.keys, now); err == nil {
			t.Errorf("%s: Verify() = %+v, want an error", name, got)
		}
	}
	if _, err := signature.Verify([]byte(list), made, []signature.Key{other.Key(t)}, now); !errors.Is(err, signature.ErrUnknown) {
		t.Errorf("Verify() = %v, want %v", err, signature.ErrUnknown)
	}
}

// Engines accept a key that has expired, so that old releases stay installable.
func TestVerifyAcceptsAnExpiredKey(t *testing.T) {
	signer := registrytest.NewSigner(t, registrytest.Expiring(time.Hour))
	made := signer.Sign(t, []byte(list))
	got, err := signature.Verify([]byte(list), made, []signature.Key{signer.Key(t)}, time.Now().Add(2*time.Hour))
	if err != nil || !got.Expired {
		t.Errorf("Verify() = %+v, %v, want an expired key", got, err)
	}
}

func TestParseKey(t *testing.T) {
	signer := registrytest.NewSigner(t)
	want := signer.Key(t)
	if got, err := signature.ParseKey(want.Armor); err != nil || got != want {
		t.Errorf("ParseKey() = %v, %v, want %v", got.ID, err, want.ID)
	}
	for name, armor := range map[string]string{
		"empty":       "",
		"not a key":   "hello",
		"private":     signer.Private(t),
		"far too big": strings.Repeat("x", 2<<20),
	} {
		if got, err := signature.ParseKey(armor); err == nil {
			t.Errorf("%s: ParseKey() = %v, want an error", name, got.ID)
		}
	}
}

func TestParseSums(t *testing.T) {
	sums, err := signature.ParseSums([]byte(list))
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(sums.Platforms("aws", "1.0.0"))); !slices.Equal(got, []string{"darwin_arm64", "linux_amd64"}) {
		t.Errorf("Platforms() = %q", got)
	}
	if got := sums.Platforms("aws", "1.0"); len(got) > 0 {
		t.Errorf("Platforms() of another version = %q", got)
	}
	sum := strings.Repeat("a", 64)
	for name, text := range map[string]string{
		"empty":                   "\n",
		"a page":                  "<html><body>not found</body></html>",
		"too short":               sum[1:] + "  a.zip",
		"not hex":                 strings.Repeat("z", 64) + "  a.zip",
		"no name":                 sum + "\n",
		"two sums for one name":   sum + "  a.zip\n" + strings.Repeat("b", 64) + "  a.zip\n",
		"more bytes than allowed": strings.Repeat(sum+"  a.zip\n", 20_000),
	} {
		if got, err := signature.ParseSums([]byte(text)); err == nil {
			t.Errorf("%s: ParseSums() = %v, want an error", name, got)
		}
	}
	if got, err := signature.ParseSums([]byte(strings.ToUpper(sum) + " *a.zip\n")); err != nil || got["a.zip"] != sum {
		t.Errorf("ParseSums() of a binary mark = %v, %v", got, err)
	}
}

// Names with further underscores are no platforms.
func TestPlatformsOfOddNames(t *testing.T) {
	for name, want := range map[string]int{
		"terraform-provider-my_odd_name_1.0.0_linux_amd64.zip":   1,
		"terraform-provider-my_odd_name_1.0.0_linux_amd64_2.zip": 0,
		"terraform-provider-my_odd_name_1.0.0_linux.zip":         0,
		"terraform-provider-my_odd_name_1.0.0_.zip":              0,
		"terraform-provider-my_odd_name_1.0.0_LINUX_amd64.zip":   0,
	} {
		sums := signature.Sums{name: strings.Repeat("a", 64)}
		if got := sums.Platforms("my_odd_name", "1.0.0"); len(got) != want {
			t.Errorf("Platforms() of %s = %v, want %d", name, got, want)
		}
	}
}

func FuzzParseSums(f *testing.F) {
	f.Add([]byte(list))
	f.Fuzz(func(t *testing.T, text []byte) {
		sums, err := signature.ParseSums(text)
		for name, sum := range sums {
			if err != nil || len(sum) != 64 || name != "" && strings.ContainsAny(name, " \n") {
				t.Errorf("ParseSums() = %q: %q, %v", name, sum, err)
			}
		}
	})
}
