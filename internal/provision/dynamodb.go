package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// lockKey is the key of a table for the locks of the engine.
const lockKey = "LockID"

// tablePause is between two questions whether a table is ready.
const tablePause = 500 * time.Millisecond

type keySchema struct{ AttributeName, KeyType string }

type table struct {
	TableStatus string
	KeySchema   []keySchema
}

// ask makes one request to DynamoDB. code is what it calls a failure.
func (s *s3) ask(ctx context.Context, operation string, in any, out any) (code string, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.tables.String(), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+operation)
	c, err := cloud.NewClients(cloud.Options{Endpoint: s.tables, Environ: func(string) string { return "" }})
	if err != nil {
		return "", err
	}
	defer c.Close()
	a, err := s.sent(ctx, c.Data, "dynamodb", r, body)
	if err != nil {
		return "", err
	}
	if a.ok() {
		return "", json.Unmarshal(a.body, out)
	}
	var failed struct {
		Type string `json:"__type"`
	}
	if json.Unmarshal(a.body, &failed) != nil || failed.Type == "" {
		return fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)), nil
	}
	_, code, _ = strings.Cut(failed.Type, "#")
	if code == "" {
		code = failed.Type
	}
	return code, nil
}

// find reads the table; nil if there is none.
func (s *s3) find(ctx context.Context) (*table, error) {
	var out struct{ Table table }
	code, err := s.ask(ctx, "DescribeTable", map[string]string{"TableName": s.Table}, &out)
	switch {
	case err != nil:
		return nil, fmt.Errorf("finding the table %s: %w", s.Table, err)
	case code == "":
		return &out.Table, nil
	case code == "ResourceNotFoundException":
		return nil, nil
	}
	return nil, fmt.Errorf("finding the table %s: %s", s.Table, code)
}

// ensureMore makes the table, and waits until it can be used. It holds locks and no state,
// so it is made again if it is gone.
func (s *s3) ensureMore(ctx context.Context, say func(string)) error {
	if s.Table == "" {
		return nil
	}
	t, err := s.find(ctx)
	if err != nil {
		return err
	}
	if t == nil {
		var out struct{}
		code, err := s.ask(ctx, "CreateTable", map[string]any{
			"TableName":            s.Table,
			"AttributeDefinitions": []map[string]string{{"AttributeName": lockKey, "AttributeType": "S"}},
			"KeySchema":            []keySchema{{lockKey, "HASH"}},
			"BillingMode":          "PAY_PER_REQUEST",
		}, &out)
		if err == nil && code != "" && code != "ResourceInUseException" { // another run was faster
			err = fmt.Errorf("it answers %s: the identity of the run needs dynamodb:CreateTable", code)
		}
		if err != nil {
			return fmt.Errorf("creating the table %s: %w", s.Table, err)
		}
		say("created the table " + s.Table)
	}
	for t == nil || t.TableStatus != "ACTIVE" {
		if t, err = s.find(ctx); err != nil {
			return err
		}
		if t != nil && t.TableStatus == "ACTIVE" {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the table %s: %w", s.Table, ctx.Err())
		case <-time.After(tablePause):
		}
	}
	if len(t.KeySchema) != 1 || t.KeySchema[0] != (keySchema{lockKey, "HASH"}) {
		return &backend.Error{Field: "dynamoDB", Message: fmt.Sprintf("is %s, a table whose key is not %s alone: name another one", s.Table, lockKey)}
	}
	return nil
}

// digestSuffix ends the key of the item in which the engine keeps the digest of a state.
const digestSuffix = "-md5"

// removeMore forgets the digest of the removed state: with it the engine would refuse the next
// state of that name. The table stays, since states of other buckets may have their locks in it.
func (s *s3) removeMore(ctx context.Context, say func(string)) error {
	if s.Table == "" {
		return nil
	}
	var out struct{}
	code, err := s.ask(ctx, "DeleteItem", map[string]any{
		"TableName": s.Table,
		"Key":       map[string]map[string]string{lockKey: {"S": s.Bucket + "/" + s.Object + digestSuffix}},
	}, &out)
	if err == nil && code != "" && code != "ResourceNotFoundException" {
		err = fmt.Errorf("it answers %s", code)
	}
	if err != nil {
		return fmt.Errorf("removing the digest of the state from the table %s: %w", s.Table, err)
	}
	say("the table " + s.Table + " stays: states of other buckets may have their locks in it. If none has, remove it yourself")
	return nil
}
