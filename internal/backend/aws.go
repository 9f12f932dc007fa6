package backend

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// Place is what Ensure has to know of an S3 backend.
type Place struct {
	Bucket, Region, Key, Table, KMSKey string
	Endpoint, TableEndpoint            string // empty is AWS

	Object string // the state: Key, or what the engine makes of it for a workspace
}

// S3Place reads the settings of aws.
func S3Place(r Request) (Place, error) {
	b, _ := Find(AWS)
	v, err := read(r, b.known, b.credentials)
	if err != nil {
		return Place{}, err
	}
	p := Place{
		Bucket: v.text("bucket"), Region: v.text("region"), Key: cmp.Or(v.text("key"), r.Stack.key()+stateName),
		Table: v.text("dynamodb_table"), KMSKey: v.text("kms_key_id"),
		Endpoint: v.text("endpoint"), TableEndpoint: v.text("dynamodb_endpoint"),
	}
	p.Object = p.Key
	if w := r.Stack.workspace(); w != defaultWorkspace {
		p.Object = path.Join("env:", w, p.Key)
	}
	return p, nil
}

func renderAWS(r Request, v values) (Block, error) {
	p, err := S3Place(r)
	if err != nil {
		return Block{}, err
	}
	if err := checkS3(p); err != nil {
		return Block{}, err
	}
	more := map[string]any{"key": p.Key}
	lockFile := v.text("use_lockfile") == "" && p.Table == "" || v.is("use_lockfile")
	switch {
	case lockFile && !since(r.Engine, 1, 10):
		return Block{}, wrong("dynamoDB", "is needed: %s knows no lock file in a bucket. Name a table for its locks", r.Engine)
	case lockFile:
		more["use_lockfile"] = true
	case p.Table == "":
		return Block{}, wrong("use_lockfile", "is false, and there is no table for locks: set dynamoDB, or remove use_lockfile")
	}
	if p.Endpoint == "" {
		more["encrypt"] = true
		return v.block("s3", []string{"bucket", "region", "dynamodb_table", "kms_key_id"}, more), nil
	}
	for _, name := range []string{"skip_credentials_validation", "skip_metadata_api_check", "skip_region_validation"} {
		more[name] = true
	}
	if !since(r.Engine, 1, 6) {
		more["endpoint"], more["force_path_style"] = p.Endpoint, true
		if p.TableEndpoint != "" {
			more["dynamodb_endpoint"] = p.TableEndpoint
		}
		return v.block("s3", []string{"bucket", "region", "dynamodb_table", "kms_key_id"}, more), nil
	}
	at := map[string]any{"s3": p.Endpoint}
	if p.TableEndpoint != "" {
		at["dynamodb"] = p.TableEndpoint
	}
	more["endpoints"], more["use_path_style"] = at, true
	more["skip_requesting_account_id"], more["skip_s3_checksum"] = true, true
	return v.block("s3", []string{"bucket", "region", "dynamodb_table", "kms_key_id"}, more), nil
}

func checkS3(p Place) error {
	for field, text := range map[string]string{"endpoint": p.Endpoint, "dynamodb_endpoint": p.TableEndpoint} {
		if err := httpURL(field, text); err != nil {
			return err
		}
	}
	switch {
	case !matches(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`, p.Bucket):
		return wrong("s3", "is %.80q, which is no name of a bucket: it has 3 to 63 lower-case letters, digits, dots and hyphens", p.Bucket)
	case !matches(`^[a-z0-9-]{1,40}$`, p.Region):
		return wrong("region", "is %.80q, which is no region: eu-central-1 is one", p.Region)
	case strings.HasPrefix(p.Key, "/") || strings.HasSuffix(p.Key, "/") || strings.Contains(p.Key, "//"):
		return wrong("key", "is %.80q, which is no key: it neither begins nor ends with a slash", p.Key)
	case checkObject("key", p.Key) != nil:
		return checkObject("key", p.Key)
	case p.Table != "" && !matches(`^[a-zA-Z0-9_.-]{3,255}$`, p.Table):
		return wrong("dynamoDB", "is %.80q, which is no name of a table: it has 3 to 255 letters, digits, dots, hyphens and underscores", p.Table)
	case p.TableEndpoint != "" && p.Endpoint == "":
		return wrong("dynamodb_endpoint", "needs endpoint as well")
	}
	return nil
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// since reports whether an engine, as tofu 1.12.6, has at least that version. An engine
// that is not named is of today.
func since(engine string, major, minor int) bool {
	_, version, ok := strings.Cut(engine, " ")
	if !ok {
		return true
	}
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return true
	}
	ma, err := strconv.Atoi(parts[0])
	mi, err2 := strconv.Atoi(parts[1])
	if err != nil || err2 != nil {
		return true
	}
	return fmt.Sprintf("%04d.%04d", ma, mi) >= fmt.Sprintf("%04d.%04d", major, minor)
}
